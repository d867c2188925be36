//! A row with which a query fails: which it is, what of the query, and what can be done.

use std::fmt;

use datafusion::error::DataFusionError;
use thiserror::Error;

use crate::api::dead_letter::Place;
use crate::api::source::{Classified, Failure, Kind};

/// An expression could not be computed, with which row is not known.
#[derive(Debug, Error)]
#[error("{text}")]
pub struct ComputeError {
    /// What DataFusion says.
    text: String,
    /// The same without its names for kinds of errors.
    pub problem: String,
}

impl Classified for ComputeError {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

impl ComputeError {
    /// The error, where it comes from computing values and not from the engine.
    pub fn of(error: &DataFusionError) -> Option<Self> {
        match error.find_root() {
            DataFusionError::ArrowError(..)
            | DataFusionError::Execution(_)
            | DataFusionError::External(_) => {
                let text = error.strip_backtrace();
                Some(Self { problem: tidy(&text), text })
            }
            _ => None,
        }
    }
}

/// Whether `failure` is that of an expression.
pub fn is_computed(failure: &Failure) -> bool {
    failure.cause().is::<ComputeError>()
}

/// A message without the prefixes that say which library found it.
fn tidy(text: &str) -> String {
    let mut rest = text.trim();
    for prefix in ["Execution error: ", "External error: ", "Arrow error: "] {
        while let Some(shorter) = rest.strip_prefix(prefix) {
            rest = shorter;
        }
    }
    for prefix in ["Cast error: ", "Parser error: ", "Compute error: ", "Invalid argument error: "]
    {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    match rest {
        "Divide by zero error" => "division by zero".to_owned(),
        other => other.trim_end_matches('.').to_owned(),
    }
}

/// A part of the pipeline file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InSql {
    /// Line and column, both from 1, where the part was found in the file.
    pub at: Option<(usize, usize)>,
    /// The part itself, cut where it is long.
    pub text: String,
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
    /// Whether the flow puts rows aside that can be.
    pub puts_aside: bool,
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
        f.write_str(match (self.place.is_some(), self.puts_aside) {
            (true, _) => {
                "Repair the data, write SQL that takes such values (try_cast, try_divide, CASE), or \
                 have such records put aside: 'onError' = 'dead letter' among the options of the \
                 table that the flow writes to"
            }
            (false, false) => "Write SQL that takes such values (try_cast, try_divide, CASE)",
            (false, true) => {
                "No one record is the cause, so that none can be put aside: write SQL that takes \
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
