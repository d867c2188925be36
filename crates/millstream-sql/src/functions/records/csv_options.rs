//! The options of `from_csv`, `to_csv` and `schema_of_csv`.

use datafusion::common::{Result, plan_datafusion_err, plan_err};

use super::super::time_pattern::TimePattern;
use super::options::{Mode, options, unknown};
use super::prepared::Literals;
use crate::csv::{Dialect, WriteRules};

const KNOWN: &str = "sep, quote, escape, nullValue, mode, columnNameOfCorruptRecord, nanValue, \
                     positiveInf, negativeInf, dateFormat, timeFormat, timestampFormat and, for \
                     to_csv, timestampNTZFormat, emptyValue, ignoreLeadingWhiteSpace and \
                     ignoreTrailingWhiteSpace";

/// The letters of what a TIME does not have.
const NOT_OF_TIME: &str = "yMLEQqDdGXxZzVO";

/// What the options of a call say. As in Spark, those of reading are no mistake where something is
/// written.
pub(super) struct CsvOptions {
    /// How the values stand on a line, and what only a writer asks for.
    pub rules: WriteRules,
    pub mode: Mode,
    /// The field for texts that are malformed.
    pub corrupt: String,
    pub not_a_number: String,
    pub infinity: String,
    pub minus_infinity: String,
    /// The forms of dates and times; `None` for those of casts.
    pub dates: Option<TimePattern>,
    pub times: Option<TimePattern>,
    pub timestamps: Option<TimePattern>,
    pub local_times: Option<TimePattern>,
}

impl CsvOptions {
    /// The options in argument `at`. Those that only a writer has are refused where `reads`.
    ///
    /// # Errors
    /// An option that there is not, or a value that it cannot have.
    pub fn of(function: &str, literals: &Literals<'_>, at: usize, reads: bool) -> Result<Self> {
        let mut parsed = Self {
            rules: WriteRules::default(),
            mode: Mode::Permissive,
            corrupt: "_corrupt_record".to_owned(),
            not_a_number: "NaN".to_owned(),
            infinity: "Inf".to_owned(),
            minus_infinity: "-Inf".to_owned(),
            dates: None,
            times: None,
            timestamps: None,
            local_times: None,
        };
        let mut has_separator = false;
        for (name, value) in options(function, literals, at)? {
            match name.as_str() {
                "sep" | "delimiter" if has_separator => {
                    return plan_err!("{function}: sep and delimiter are the same; keep one");
                }
                "sep" | "delimiter" => {
                    has_separator = true;
                    parsed.rules.dialect.separator = separator(function, &value)?;
                }
                "mode" => parsed.mode = Mode::named(function, &value)?,
                "columnnameofcorruptrecord" => parsed.corrupt = value,
                "nanvalue" => parsed.not_a_number = value,
                "positiveinf" => parsed.infinity = value,
                "negativeinf" => parsed.minus_infinity = value,
                "dateformat" => parsed.dates = Some(pattern(function, &name, &value)?),
                "timeformat" => parsed.times = Some(pattern_of_time(function, &name, &value)?),
                "timestampformat" => parsed.timestamps = Some(pattern(function, &name, &value)?),
                _ if parsed.set_dialect(function, &name, &value)? => {}
                _ if !reads && parsed.set_rule(function, &name, &value)? => {}
                _ => return unknown(function, &name, KNOWN),
            }
        }
        Ok(parsed)
    }

    /// How the values stand on a line.
    pub fn dialect(&self) -> &Dialect {
        &self.rules.dialect
    }

    /// Sets an option of how values stand on a line; false if `name` is none.
    fn set_dialect(&mut self, function: &str, name: &str, value: &str) -> Result<bool> {
        let dialect = &mut self.rules.dialect;
        match name {
            "quote" => dialect.quote = character(function, name, value)?,
            "escape" => dialect.escape = character(function, name, value)?,
            "nullvalue" => value.clone_into(&mut dialect.null_value),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets an option of writing; false if `name` is none.
    fn set_rule(&mut self, function: &str, name: &str, value: &str) -> Result<bool> {
        match name {
            "emptyvalue" => value.clone_into(&mut self.rules.empty_value),
            "timestampntzformat" => self.local_times = Some(pattern(function, name, value)?),
            "ignoreleadingwhitespace" => self.rules.trims_start = boolean(function, name, value)?,
            "ignoretrailingwhitespace" => self.rules.trims_end = boolean(function, name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn pattern(function: &str, name: &str, value: &str) -> Result<TimePattern> {
    TimePattern::parse(value).map_err(|error| plan_datafusion_err!("{function}: {name}: {error}"))
}

fn pattern_of_time(function: &str, name: &str, value: &str) -> Result<TimePattern> {
    let found = pattern(function, name, value)?;
    match found.first_of(NOT_OF_TIME) {
        Some(letter) => plan_err!("{function}: {name} has {letter}, which a TIME has nothing for"),
        None => Ok(found),
    }
}

fn boolean(function: &str, name: &str, value: &str) -> Result<bool> {
    match value.to_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => plan_err!("{function}: {name} is true or false, not {value}"),
    }
}

fn separator(function: &str, value: &str) -> Result<u8> {
    match value.as_bytes() {
        b"\\t" => Ok(b'\t'),
        &[byte] if byte.is_ascii() && byte != b'\\' => Ok(byte),
        _ => plan_err!("{function}: sep is one ASCII character, or \\t, not '{value}'"),
    }
}

/// One character; none at all where the option is empty.
fn character(function: &str, name: &str, value: &str) -> Result<Option<u8>> {
    match value.as_bytes() {
        [] => Ok(None),
        &[byte] if byte.is_ascii() => Ok(Some(byte)),
        _ => plan_err!("{function}: {name} is one ASCII character, not '{value}'"),
    }
}
