//! Options of the writer where a flow has several sinks: each may stand on any of them.

use millstream_sql::diagnostic::{Diagnostic, Diagnostics};

use super::{DeclaredTable, ON_ERROR, WRITER_OPTIONS, WriterOptions};
use crate::api::dead_letter;

impl DeclaredTable {
    /// Reads the writer's options of a flow that writes to `tables`, `overrides` being those given
    /// for all flows. What stands on several tables must be the same on all of them.
    pub(in crate::pipeline) fn writer_of_all(
        tables: &[&Self],
        overrides: &[(String, String)],
    ) -> Result<WriterOptions, Diagnostics> {
        let [first, others @ ..] = tables else { return Ok(WriterOptions::default()) };
        if others.is_empty() {
            return first.writer(overrides);
        }
        let (mut merged, mut found) = (first.copied(), Diagnostics::default());
        let is_overridden =
            |name: &str| overrides.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
        for name in WRITER_OPTIONS.iter().filter(|name| !is_overridden(name)) {
            let mut having = tables.iter().filter(|table| table.table.options.get(name).is_some());
            let Some(first) = having.next() else { continue };
            for other in having {
                found.take(first.agrees_with(other, name));
            }
            merged.take_option(first, name);
            if *name == ON_ERROR {
                merged.take_option(first, dead_letter::OPTION);
            }
        }
        found.into_result()?;
        merged.writer(overrides)
    }

    fn copied(&self) -> Self {
        Self {
            table: self.table.clone(),
            connector: self.connector.clone(),
            span: self.span,
            spans: self.spans.clone(),
        }
    }

    /// Takes an option over, with the place where it stands.
    fn take_option(&mut self, from: &Self, name: &str) {
        let Some(value) = from.table.options.get(name) else { return };
        self.table.options.set(name, value);
        let key = name.to_lowercase();
        if let Some(span) = from.spans.get(&key) {
            self.spans.insert(key, *span);
        }
    }

    fn agrees_with(&self, other: &Self, name: &str) -> Result<(), Diagnostic> {
        let (own, others) = (self.table.options.get(name), other.table.options.get(name));
        if own.map(str::trim) == others.map(str::trim) {
            return Ok(());
        }
        let value_of = |table: &Self| {
            table.spans.get(&name.to_lowercase()).copied().flatten().map(|(_, value)| value)
        };
        let message = format!(
            "one flow writes to `{}` and `{}`, and '{name}' is '{}' on the one and '{}' on the other",
            self.table.name,
            other.table.name,
            own.unwrap_or_default(),
            others.unwrap_or_default(),
        );
        let diagnostic = Diagnostic { span: value_of(other), ..Diagnostic::nowhere(message) }
            .help("a flow is driven in one way: leave it out on one of them, or write it alike");
        Err(match value_of(self) {
            Some(first) => diagnostic.note_at(first, "the other value"),
            None => diagnostic,
        })
    }
}
