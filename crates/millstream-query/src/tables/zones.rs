//! The time zone of the session that runs a query, and what the query names that was made in
//! another one.
//!
//! Spark keeps with a temporary view and with a function the zone of the session at the time that
//! made it, and reads its texts of timestamps in that. Here the words of both are read where they
//! are used. So what was made in another zone than the query's is refused.

use std::collections::BTreeSet;

use millstream_sql::diagnostic::{Diagnostic, Span};
use millstream_sql::functions::SessionZone;
use millstream_sql::query::routines::declare::Routine;
use parking_lot::Mutex;

use crate::statements::{Statements, View};

/// The zone of a session, in which the query runs that begins with a token of a text.
pub struct Zones<'a> {
    /// The session's zone.
    pub zone: &'a SessionZone,
    text: &'a Statements,
    at: usize,
    /// The functions of earlier texts that were made in another zone, in lower case.
    elsewhere: &'a BTreeSet<String>,
    /// The session has never had another zone than UTC.
    always_utc: bool,
    /// What the query names that was made in another zone, and where.
    found: Mutex<Option<(String, Option<Span>)>>,
}

impl<'a> Zones<'a> {
    /// Of the query at the token `at`.
    pub fn new(
        zone: &'a SessionZone,
        (text, at): (&'a Statements, usize),
        elsewhere: &'a BTreeSet<String>,
        always_utc: bool,
    ) -> Self {
        Self { zone, text, at, elsewhere, always_utc, found: Mutex::default() }
    }

    /// Whether a statement at a token of the text was made in another zone.
    fn is_other(&self, made_at: usize) -> bool {
        match self.text.zone_between(made_at, self.at) {
            None => false,
            Some(Some(zone)) => zone != self.zone.name(),
            Some(None) => !self.always_utc,
        }
    }

    /// Whether a function was made in another zone.
    pub fn has_other(&self, routine: &Routine) -> bool {
        match self.text.is_of_earlier_text(routine) {
            true => self.elsewhere.contains(&routine.name.text.to_lowercase()),
            false => self.is_other(routine.body.start),
        }
    }

    /// Whether there is a view or a function that was made in another zone.
    pub fn has_any_other(&self) -> bool {
        let views = self.text.views_at(self.at);
        let functions = self.text.functions_at(self.at);
        views.iter().any(|view| self.is_other(view.query.start))
            || functions.iter().any(|routine| self.has_other(routine))
    }

    pub(super) fn see_view(&self, view: &View) {
        if self.is_other(view.query.start) {
            let what = format!("the view `{}`", view.name.text);
            *self.found.lock() = Some((what, Some(view.name.span)));
        }
    }

    pub(super) fn see_function(&self, routine: &Routine) {
        if self.has_other(routine) {
            let is_earlier = self.text.is_of_earlier_text(routine);
            let span = Some(routine.name.span).filter(|_| !is_earlier);
            let what = format!("the function `{}`", routine.name.text);
            *self.found.lock() = Some((what, span));
        }
    }

    /// # Errors
    /// The query has named what was made in another zone.
    pub(super) fn check_made(&self) -> Result<(), Diagnostic> {
        let Some((what, span)) = self.found.lock().take() else { return Ok(()) };
        let message = format!("{what} was made when the session's time zone was another one");
        let help = "make it again behind SET TIME ZONE: CREATE OR REPLACE TEMPORARY ...";
        Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) })
    }

    /// The text of a timestamp for one who reads it in UTC.
    pub(super) fn in_utc(&self, timestamp: &str) -> String {
        let moved = self.zone.in_utc(timestamp).filter(|_| !self.zone.is_utc());
        moved.unwrap_or_else(|| timestamp.to_owned())
    }
}
