//! What a session's settings make of a query: its time zone and whether it has ANSI mode, and what
//! the query names that was made under other ones.
//!
//! Spark keeps with a temporary view and with a function the settings of the session at the time
//! that made it, and reads its texts of timestamps and computes by those. Here the words of both
//! are read where they are used. So what was made under other settings than the query's is refused.

use std::collections::BTreeSet;

use millstream_sql::diagnostic::{Diagnostic, Span};
use millstream_sql::functions::SessionZone;
use millstream_sql::query::routines::declare::Routine;
use parking_lot::Mutex;

use crate::statements::{Statements, View};

/// Settings of a session that change what an expression computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The time zone.
    pub zone: SessionZone,
    /// Whether there is ANSI mode.
    pub ansi: bool,
}

impl Default for Meaning {
    fn default() -> Self {
        Self { zone: SessionZone::default(), ansi: true }
    }
}

/// Which of these settings a session has never changed.
#[derive(Clone, Copy, Debug)]
pub struct Always {
    /// It has always had the zone UTC.
    pub utc: bool,
    /// It has always had ANSI mode.
    pub ansi: bool,
}

impl Always {
    /// What is left of it in a session with these settings.
    pub fn and(self, meaning: &Meaning) -> Self {
        Self { utc: self.utc && meaning.zone.is_utc(), ansi: self.ansi && meaning.ansi }
    }
}

/// Which setting was another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Zone,
    Ansi,
    /// One of both; it is not known which.
    Either,
}

impl Other {
    fn name(self) -> &'static str {
        match self {
            Self::Zone => "time zone",
            Self::Ansi => "ANSI mode",
            Self::Either => "time zone or ANSI mode",
        }
    }

    fn statement(self) -> &'static str {
        match self {
            Self::Zone => "SET TIME ZONE",
            Self::Ansi => "SET spark.sql.ansi.enabled",
            Self::Either => "SET",
        }
    }
}

/// The settings of a session, in which the query runs that begins with a token of a text.
pub struct Meanings<'a> {
    /// The session's settings.
    pub now: &'a Meaning,
    text: &'a Statements,
    at: usize,
    /// The functions of earlier texts that were made under other settings, in lower case.
    elsewhere: &'a BTreeSet<String>,
    always: Always,
    /// What the query names that was made under other settings, which, and where.
    found: Mutex<Option<(String, Other, Option<Span>)>>,
}

impl<'a> Meanings<'a> {
    /// Of the query at the token `at`.
    pub fn new(
        now: &'a Meaning,
        (text, at): (&'a Statements, usize),
        elsewhere: &'a BTreeSet<String>,
        always: Always,
    ) -> Self {
        Self { now, text, at, elsewhere, always, found: Mutex::default() }
    }

    /// Which setting was another one for a statement at a token of the text.
    fn other_at(&self, made_at: usize) -> Option<Other> {
        let is_other_zone = match self.text.zone_between(made_at, self.at) {
            None => false,
            Some(Some(zone)) => zone != self.now.zone.name(),
            Some(None) => !self.always.utc,
        };
        let is_other_mode = match self.text.ansi_between(made_at, self.at) {
            None => false,
            Some(Some(ansi)) => ansi != self.now.ansi,
            Some(None) => !self.always.ansi,
        };
        match (is_other_zone, is_other_mode) {
            (true, _) => Some(Other::Zone),
            (false, true) => Some(Other::Ansi),
            (false, false) => None,
        }
    }

    /// Which setting was another one for a function.
    fn other_of(&self, routine: &Routine) -> Option<Other> {
        match self.text.is_of_earlier_text(routine) {
            true => {
                let is_other = self.elsewhere.contains(&routine.name.text.to_lowercase());
                is_other.then_some(Other::Either)
            }
            false => self.other_at(routine.body.start),
        }
    }

    /// Whether a function was made under other settings.
    pub fn has_other(&self, routine: &Routine) -> bool {
        self.other_of(routine).is_some()
    }

    /// Whether there is a view or a function that was made under other settings.
    pub fn has_any_other(&self) -> bool {
        let views = self.text.views_at(self.at);
        let functions = self.text.functions_at(self.at);
        views.iter().any(|view| self.other_at(view.query.start).is_some())
            || functions.iter().any(|routine| self.has_other(routine))
    }

    pub(super) fn see_view(&self, view: &View) {
        if let Some(other) = self.other_at(view.query.start) {
            let what = format!("the view `{}`", view.name.text);
            *self.found.lock() = Some((what, other, Some(view.name.span)));
        }
    }

    pub(super) fn see_function(&self, routine: &Routine) {
        if let Some(other) = self.other_of(routine) {
            let is_earlier = self.text.is_of_earlier_text(routine);
            let span = Some(routine.name.span).filter(|_| !is_earlier);
            let what = format!("the function `{}`", routine.name.text);
            *self.found.lock() = Some((what, other, span));
        }
    }

    /// # Errors
    /// The query has named what was made under other settings.
    pub(super) fn check_made(&self) -> Result<(), Diagnostic> {
        let Some((what, other, span)) = self.found.lock().take() else { return Ok(()) };
        let name = other.name();
        let message = format!("{what} was made when the session's {name} was another one");
        let statement = other.statement();
        let help = format!("make it again behind {statement}: CREATE OR REPLACE TEMPORARY ...");
        Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) })
    }

    /// The text of a timestamp for one who reads it in UTC.
    pub(super) fn in_utc(&self, timestamp: &str) -> String {
        let zone = &self.now.zone;
        let moved = zone.in_utc(timestamp).filter(|_| !zone.is_utc());
        moved.unwrap_or_else(|| timestamp.to_owned())
    }
}
