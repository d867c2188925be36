//! The options of `from_csv`, `to_csv` and `schema_of_csv`.

use datafusion::common::{DataFusionError, Result, plan_datafusion_err, plan_err};

use super::super::time_pattern::TimePattern;
use super::options::{Mode, boolean, options, unknown};
use super::prepared::Literals;
use crate::csv::{Splitter, WriteRules};

const KNOWN: &str = "sep, quote, escape, nullValue, mode, columnNameOfCorruptRecord, nanValue, \
                     positiveInf, negativeInf, dateFormat, timeFormat, timestampFormat, \
                     ignoreLeadingWhiteSpace, ignoreTrailingWhiteSpace and, for to_csv, \
                     timestampNTZFormat and emptyValue";

/// The letters of what a TIME does not have.
const NOT_OF_TIME: &str = "yMLEFQqDdGXxZzVO";

/// What the options of a call say. As in Spark, those of reading are no mistake where something is
/// written.
pub(super) struct CsvOptions {
    /// How the values stand on a line, and what only a writer asks for.
    pub rules: WriteRules,
    /// Whether a reader leaves out white space before values, and behind them.
    trims_start: bool,
    trims_end: bool,
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
            trims_start: false,
            trims_end: false,
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
                "ignoreleadingwhitespace" if reads => {
                    parsed.trims_start = boolean(function, &name, &value)?;
                }
                "ignoretrailingwhitespace" if reads => {
                    parsed.trims_end = boolean(function, &name, &value)?;
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

    /// What splits lines for a reader.
    pub fn splitter(&self) -> Splitter {
        Splitter::new(&self.rules.dialect).trimming(self.trims_start, self.trims_end)
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
    let wrong = |error: DataFusionError| plan_datafusion_err!("{function}: {name}: {error}");
    let found = TimePattern::parse(value).map_err(wrong)?;
    if !function.starts_with("to_") {
        found.to_read().map_err(wrong)?;
    }
    Ok(found)
}

fn pattern_of_time(function: &str, name: &str, value: &str) -> Result<TimePattern> {
    let found = pattern(function, name, value)?;
    match found.first_of(NOT_OF_TIME) {
        Some(letter) => plan_err!("{function}: {name} has {letter}, which a TIME has nothing for"),
        None => Ok(found),
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
