//! The error of a row with which a query fails: the row, the part of the query, and the remedy.

use std::fmt;

use thiserror::Error;

use crate::api::dead_letter::Place;
use crate::api::source::{Classified, Kind};

/// A part of the pipeline file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InSql {
    /// Line and column, both from 1, where the part was found in the file.
    pub at: Option<(usize, usize)>,
    /// The part itself, cut where it is long.
    pub text: String,
}

/// An expression that fails with a row, in words that can be searched for in the SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// What it does.
    pub operation: Operation,
    /// The columns and the constants that it is computed of, as they may stand in the SQL.
    pub leaves: Vec<String>,
    /// The columns with their values in the row.
    pub values: Vec<(String, String)>,
    /// The whole of it, in the planner's words.
    pub text: String,
}

/// What an expression does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes a value of this type, in Spark's words.
    Cast(String),
    /// Calls a function.
    Call(String),
    /// Applies an operator.
    Operator(String),
    /// Something else.
    Other,
}

/// A row with which a query fails.
#[derive(Clone, Debug, Error)]
pub struct RowError {
    /// What is wrong.
    pub problem: String,
    /// Where the row was read; `None` for one that follows from several.
    pub place: Option<Place>,
    /// The row as JSON, where it was read nowhere.
    pub row: Option<String>,
    /// What cannot be computed.
    pub in_sql: Option<InSql>,
    /// The columns that it is computed of, with their values.
    pub values: Vec<(String, String)>,
    /// What can be done about it.
    pub remedy: Remedy,
}

/// What can be done about a row with which a query fails, besides what always can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The flow may have such rows as dead letters.
    OfStream,
    /// Such rows are dead letters where they can be.
    OfStreamWithDeadLetters,
    /// There are no dead letters.
    OfTablesAtRest,
}

/// The longest text of a letter's error.
const SHORT_BYTES: usize = 1 << 10;
/// The longest row that is shown.
const ROW_CHARACTERS: usize = 400;

impl RowError {
    /// What is wrong and where in the query, without the record: for a letter, which has that.
    pub fn in_short(&self) -> String {
        let mut text = self.what();
        if text.len() > SHORT_BYTES {
            let end = (0..=SHORT_BYTES - 4).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or(0));
            text.push_str("...");
        }
        text
    }

    fn what(&self) -> String {
        let mut text = self.problem.clone();
        if let Some(InSql { at, text: part }) = &self.in_sql {
            match at {
                Some((line, column)) => {
                    text.push_str(&format!("; in the SQL at {line}:{column}: "))
                }
                None => text.push_str("; in the SQL: "),
            }
            text.push_str(part);
        }
        let values = self.values.iter().map(|(name, value)| format!("{name} = {value}"));
        let values = values.collect::<Vec<_>>().join(", ");
        if !values.is_empty() {
            text.push_str(", where ");
            text.push_str(&values);
        }
        text
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.place, &self.row) {
            (Some(place), _) => write!(f, "the record {place} cannot be computed: ")?,
            (None, Some(row)) => {
                let row = shortened(row, ROW_CHARACTERS);
                write!(f, "the row {row} cannot be computed: ")?;
            }
            (None, None) => f.write_str("a row cannot be computed: ")?,
        }
        write!(f, "{}. ", self.what())?;
        f.write_str(match (self.place.is_some(), self.remedy) {
            (_, Remedy::OfTablesAtRest) => {
                "Repair the data, or write SQL that takes such values (try_cast, try_divide, CASE)"
            }
            (true, _) => {
                "Repair the data, write SQL that takes such values (try_cast, try_divide, CASE), or \
                 have such records written as dead letters: 'onError' = 'dead letter' among the options of the \
                 table that the flow writes to"
            }
            (false, Remedy::OfStream) => "Write SQL that takes such values (try_cast, try_divide, CASE)",
            (false, Remedy::OfStreamWithDeadLetters) => {
                "No one record is the cause, so that none can become a dead letter: write SQL that takes \
                 such values (try_cast, try_divide, CASE)"
            }
        })
    }
}

impl Classified for RowError {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

/// `text` in one line, cut where it is longer than `characters`.
pub fn shortened(text: &str, characters: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(characters) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
