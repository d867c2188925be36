//! What became of each query.

/// What became of one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The same rows, of the same types.
    Equal,
    /// Both sides refuse it.
    BothError,
    /// The same rows, but columns of other types: which.
    Types(String),
    /// Only ours refuses it: why.
    Refused(String),
    /// Other rows: how.
    Different(String),
    /// Spark has an error, ours has rows.
    NoError,
    /// It does not end.
    Hang,
    /// It panics.
    Panic(String),
    /// Spark's rows have no form here, so nothing is compared: why.
    Unshown(String),
}

impl Outcome {
    /// The word for it in the state. `None` where there is nothing to be done about it.
    pub fn word(&self) -> Option<&'static str> {
        match self {
            Self::Equal | Self::BothError | Self::Unshown(_) => None,
            Self::Types(_) => Some("types"),
            Self::Refused(_) => Some("refused"),
            Self::Different(_) => Some("different"),
            Self::NoError => Some("no-error"),
            Self::Hang => Some("hang"),
            Self::Panic(_) => Some("panic"),
        }
    }

    /// Whether somebody would believe a wrong answer.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Different(_) | Self::NoError)
    }

    /// More about it, or nothing.
    pub fn detail(&self) -> &str {
        match self {
            Self::Types(text)
            | Self::Refused(text)
            | Self::Different(text)
            | Self::Panic(text)
            | Self::Unshown(text) => text,
            _ => "",
        }
    }
}

/// A query with its outcome.
pub struct Found {
    /// The input file.
    pub file: String,
    /// Which statement of it, from 0.
    pub number: usize,
    /// The CRC-32 of its text, in hexadecimal digits.
    pub sum: String,
    /// Its text.
    pub text: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Whether the columns have the names that Spark gives them; `None` where there are none.
    pub same_names: Option<bool>,
}
