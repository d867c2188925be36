//! What is wrong with a template, and where.

use std::error::Error;
use std::fmt;

/// A template that cannot be written, with what to do about it.
///
/// The original fails on these as well, or never ends; tokens that it leaves alone are
/// [`Warning`]s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// Line of the template, from 1.
    pub line: usize,
    /// Column in that line, in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub what: String,
    /// What to write instead.
    pub remedy: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, what, remedy } = self;
        write!(f, "line {line}, column {column}: {what}; {remedy}")
    }
}

impl Error for TemplateError {}

/// A token that stays in each message unchanged, because it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Line of the template, from 1.
    pub line: usize,
    /// Column in that line, in characters, from 1; it names the place inside the token.
    pub column: usize,
    /// The token with its braces, as messages contain it.
    pub token: String,
    /// Why it cannot be read.
    pub what: String,
    /// What to write instead.
    pub remedy: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, token, what, remedy } = self;
        write!(f, "line {line}, column {column}: `{token}` is left as it is: {what}; {remedy}")
    }
}

/// Why a call gives no value, without the place, which only callers know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }

    pub(crate) fn at(self, text: &str, offset: usize) -> TemplateError {
        let (line, column) = position(text, offset);
        TemplateError { line, column, what: self.what, remedy: self.remedy }
    }
}

/// Line and column, both from 1, of the byte at `offset`.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
