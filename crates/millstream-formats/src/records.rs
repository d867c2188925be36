//! What comes out of records: rows, and malformed ones, with the options that say what becomes of
//! those.

use arrow::array::RecordBatch;
use millstream_engine::api::dead_letter;
use millstream_engine::api::options::{OptionError, Options};
use millstream_sql::json::ParseMode;

/// What becomes of malformed records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The option `mode`. Where malformed records are dead letters none of them becomes a row.
    pub mode: ParseMode,
    /// The option `deadLetter` is set: a record with a null in a column declared NOT NULL is
    /// malformed, too.
    pub dead_letters: bool,
    /// The option `columnNameOfCorruptRecord`: the column that gets the text of malformed records,
    /// if it is declared.
    pub column: String,
}

impl Malformed {
    /// What a table's options say.
    /// Errors: a `mode` that there is not.
    pub fn parse(options: &Options) -> Result<Self, OptionError> {
        let stated = options.parse_mode()?;
        let dead_letters = options.get(dead_letter::OPTION).is_some();
        let column = options.get("columnNameOfCorruptRecord").unwrap_or("_corrupt_record");
        Ok(Self {
            mode: if dead_letters { ParseMode::DropMalformed } else { stated },
            dead_letters,
            column: column.to_owned(),
        })
    }
}

/// A record that cannot be decoded, where the mode does not allow that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedRecord {
    /// Which of the records handed over, from 0.
    pub row: usize,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

/// The rows decoded from some records.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The projected columns of the records that were not left out.
    pub rows: RecordBatch,
    /// How many records were malformed.
    pub malformed: u64,
}
