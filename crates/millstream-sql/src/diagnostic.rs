//! What is wrong with a pipeline file, where, and what to write instead.
//!
//! A [`Diagnostic`] holds facts and byte ranges only. The binary draws it on the terminal;
//! [`Diagnostics::plain`] is the same without decoration, for logs and tests.

use std::fmt::{self, Write as _};

use crate::lines::LineIndex;

/// A range of bytes in the pipeline file, end exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
}

impl Span {
    /// The bytes from `start` to `end`.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end: end.max(start) }
    }

    /// The smallest span that holds both.
    pub fn to(self, other: Span) -> Self {
        Self::new(self.start.min(other.start), self.end.max(other.end))
    }

    /// The span as a range, to index the file's text.
    pub fn range(self) -> std::ops::Range<usize> {
        self.start..self.end
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong: a sentence without a full stop.
    pub message: String,
    /// Where; `None` where the pipeline file is not the place (a flag of the command line).
    pub span: Option<Span>,
    /// A few words beside the span.
    pub label: Option<String>,
    /// What to write instead.
    pub help: Option<String>,
    /// Facts that explain it, each with a place of its own or none.
    pub notes: Vec<Note>,
}

/// A fact beside the main message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The fact.
    pub message: String,
    /// Where in the file it stands, if anywhere.
    pub span: Option<Span>,
}

impl Diagnostic {
    /// Something wrong at `span`.
    pub fn at(span: Span, message: impl Into<String>) -> Self {
        Self { span: Some(span), ..Self::nowhere(message) }
    }

    /// Something wrong that has no place in the file.
    pub fn nowhere(message: impl Into<String>) -> Self {
        Self { message: message.into(), span: None, label: None, help: None, notes: Vec::new() }
    }

    /// Adds a few words beside the span.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Adds what to write instead.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds what to write instead, where there is an idea.
    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    /// Adds a fact without a place.
    pub fn note(mut self, message: impl Into<String>) -> Self {
        self.notes.push(Note { message: message.into(), span: None });
        self
    }

    /// Adds a fact that stands at `span`.
    pub fn note_at(mut self, span: Span, message: impl Into<String>) -> Self {
        self.notes.push(Note { message: message.into(), span: Some(span) });
        self
    }
}

/// Everything that is wrong with a pipeline file; never empty when it is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Forgets what was found twice: what is wrong with a FROM clause that several branches share
    /// is found for each of them.
    pub fn forget_repeats(&mut self) {
        let mut known = Vec::with_capacity(self.0.len());
        self.0.retain(|diagnostic| {
            let is_new = !known.contains(diagnostic);
            if is_new {
                known.push(diagnostic.clone());
            }
            is_new
        });
    }

    /// `Ok` where nothing was found.
    pub fn into_result(self) -> Result<(), Diagnostics> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// The value where it is there; else its diagnostics are kept and there is none.
    pub fn take<T>(&mut self, result: Result<T, impl Into<Diagnostics>>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(found) => {
                self.0.extend(found.into().0);
                None
            }
        }
    }

    /// All diagnostics as undecorated text, with line and column (from 1, in characters) and the
    /// line itself with the span underlined. Secrets in the text and in messages are the
    /// caller's to take out.
    pub fn plain(&self, file_name: &str, text: &str) -> String {
        let lines = LineIndex::new(text);
        let mut out = String::new();
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            let _ = writeln!(out, "error: {}", diagnostic.message);
            if let Some(span) = diagnostic.span {
                let label = diagnostic.label.as_deref().unwrap_or("");
                underline(&mut out, file_name, text, &lines, span, '^', label);
            }
            for note in &diagnostic.notes {
                let _ = writeln!(out, "  note: {}", note.message);
                if let Some(span) = note.span {
                    underline(&mut out, file_name, text, &lines, span, '-', "");
                }
            }
            if let Some(help) = &diagnostic.help {
                let _ = writeln!(out, "  help: {}", help.replace('\n', "\n        "));
            }
        }
        out
    }
}

fn underline(
    out: &mut String,
    file_name: &str,
    text: &str,
    lines: &LineIndex,
    span: Span,
    mark: char,
    label: &str,
) {
    let (line, column) = lines.line_and_column(text, span.start);
    let _ = writeln!(out, "  --> {file_name}:{line}:{column}");
    let line_start = lines.line_start(line);
    let line_text = text[line_start..].lines().next().unwrap_or("");
    // A span that is not of this text may begin behind its end.
    let line_end = (line_start + line_text.len()).max(span.start);
    let marked_end = span.end.clamp(span.start, line_end);
    let marks = text.get(span.start..marked_end).map_or(1, |marked| marked.chars().count().max(1));
    let _ = writeln!(out, "{line:4} | {line_text}");
    let pad = " ".repeat(column - 1);
    let marks = mark.to_string().repeat(marks);
    let _ = writeln!(out, "     | {}", format!("{pad}{marks} {label}").trim_end());
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            f.write_str(&diagnostic.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_behind_the_end_is_drawn_at_the_end() {
        let found = Diagnostics::from(Diagnostic::at(Span::new(14, 18), "it is not there"));
        let drawn = found.plain("query", "DESCRIBE t");
        assert!(drawn.contains("   1 | DESCRIBE t"), "{drawn}");
    }
}
