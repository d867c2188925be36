//! What may stand in the OPTIONS of a table of files.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use millstream_engine::api::dead_letter;
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_formats::csv::CsvOptions;
use millstream_formats::{Malformed, RecordEncoder};
use millstream_lake::store::CREDENTIALS;
use millstream_store::secrets::credentials_in_url;

use super::metadata_log::COMPACT_INTERVAL;
use crate::gather::{Pacing, Patience};
use crate::{duration, paths};

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A directory gets files every second, as a Delta table does.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// But each commit costs a few hundred bytes of the manifest several times over, and a small file
/// its block on the disk: one that would be smaller than this waits for more, some seconds.
const PATIENCE: Patience = Patience { bytes: 16 << 10, interval: Duration::from_secs(10) };
const TARGET_FILE_BYTES: u64 = 128 << 20;
/// Spark's default for `spark.sql.streaming.fileSink.log.cleanupDelay` and for the source's.
const CLEANUP_DELAY: Duration = Duration::from_secs(600);

/// How rows stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A JSON object on each line.
    Json,
    /// Separated values, a record on each line.
    Csv,
    /// Apache Parquet.
    Parquet,
    /// Lines, each the value of the only column.
    Text,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Json, Self::Csv, Self::Parquet, Self::Text];

    /// The name after `USING` or in the option `format`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Text => "text",
        }
    }

    /// The ending of the files that a sink writes.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Text => "txt",
            other => other.name(),
        }
    }

    fn parse(options: &Options, fixed: Option<Self>) -> Result<Self, OptionError> {
        let given = options.get("format");
        match (fixed, given) {
            (Some(fixed), None) => Ok(fixed),
            (None, None) => Err(OptionError::missing("format", "one of json, csv, parquet, text")),
            (fixed, Some(given)) => {
                let named = |format: &Self| format.name().eq_ignore_ascii_case(given.trim());
                let found = Self::ALL.into_iter().find(named);
                match (found, fixed) {
                    (Some(found), None) => Ok(found),
                    (Some(found), Some(fixed)) if found == fixed => Ok(found),
                    (Some(_), Some(fixed)) => Err(OptionError::of(
                        "format",
                        format!("the table is declared USING {fixed}, but 'format' is '{given}'"),
                        Some("leave 'format' out, or write USING files".into()),
                    )),
                    (None, _) => {
                        let wanted = "one of json, csv, parquet, text";
                        Err(OptionError::invalid("format", given, wanted))
                    }
                }
            }
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is read, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// How rows stand in a file.
    pub format: Format,
    /// A directory, a file or a glob pattern, as written.
    pub path: String,
    /// Whether directories inside the directory are read too.
    pub recursive: bool,
    /// Files in a micro-batch, at most.
    pub files_max: Option<usize>,
    /// How many bytes the files of a micro-batch may have, where memory is limited; one file may
    /// have more.
    pub bytes_max: Option<u64>,
    /// Time between two looks at the directory.
    pub poll_interval: Duration,
    /// Whether files that cannot be decoded are passed over.
    pub ignore_corrupt_files: bool,
    /// Whether files that have vanished are passed over.
    pub ignore_missing_files: bool,
    /// What becomes of malformed records.
    pub malformed: Malformed,
    /// For format `csv`.
    pub csv: CsvOptions,
    /// How the checkpoint's list of files is kept.
    pub(super) log: LogSettings,
}

/// How a log that is compacted is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogSettings {
    /// From one entry that repeats all before it to the next, at first.
    pub(super) compact_interval: u64,
    /// Whether entries that are superseded are deleted.
    pub(super) deletion: bool,
    /// But not before they are this old.
    pub(super) cleanup_delay: Duration,
    /// Files that are older are not repeated.
    pub(super) retention: Option<Duration>,
}

impl LogSettings {
    /// The options that start with `prefix`, and `retention`.
    fn parse(options: &Options, prefix: &str) -> Result<Self, OptionError> {
        let key = |name: &str| format!("{prefix}.{name}");
        let wanted = "a whole number from 1";
        let compact_interval = options.parse(&key("compactInterval"), wanted)?;
        if compact_interval == Some(0) {
            return Err(OptionError::invalid(&key("compactInterval"), "0", wanted));
        }
        Ok(Self {
            compact_interval: compact_interval.unwrap_or(COMPACT_INTERVAL),
            deletion: options.parse_bool(&key("deletion"))?.unwrap_or(true),
            cleanup_delay: duration::option(options, &key("cleanupDelay"))?
                .unwrap_or(CLEANUP_DELAY),
            retention: duration::option(options, "retention")?,
        })
    }
}

impl ReadOptions {
    /// Reads the options of a table that is read; `format` is the one after `USING`, if any.
    pub fn parse(options: &Options, format: Option<Format>) -> Result<Self, OptionError> {
        refuse_unsupported(options)?;
        let poll_interval = duration::option(options, "pollInterval")?.unwrap_or(POLL_INTERVAL);
        if poll_interval.is_zero() {
            return Err(OptionError::invalid("pollInterval", "0", "longer than nothing"));
        }
        let format = Format::parse(options, format)?;
        Ok(Self {
            format,
            path: read_path(options, format)?,
            recursive: options.parse_bool("recursiveFileLookup")?.unwrap_or(false),
            files_max: files_max(options)?,
            bytes_max: None,
            poll_interval,
            ignore_corrupt_files: options.parse_bool("ignoreCorruptFiles")?.unwrap_or(false),
            ignore_missing_files: options.parse_bool("ignoreMissingFiles")?.unwrap_or(false),
            malformed: malformed(options, format)?,
            csv: CsvOptions::parse(options)?,
            log: LogSettings::parse(options, "fileSource.log")?,
        })
    }
}

/// What is written, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// How rows stand in a file.
    pub format: Format,
    /// The directory, as written.
    pub path: String,
    /// How rows become lines; `None` for Parquet, which has none.
    pub encoder: Option<RecordEncoder>,
    /// When micro-batches become visible.
    pub(crate) pacing: Pacing,
    /// A file that has reached this size is closed.
    pub target_file_bytes: u64,
    /// How the manifest is kept.
    pub(super) log: LogSettings,
}

impl WriteOptions {
    /// Reads the options of a table that is written; `format` is the one after `USING`, if any.
    pub fn parse(options: &Options, format: Option<Format>) -> Result<Self, OptionError> {
        refuse_unsupported(options)?;
        let format = Format::parse(options, format)?;
        if let Some(compression) = options.get("compression") {
            let lower = compression.trim().to_ascii_lowercase();
            let wanted = if format == Format::Parquet { "snappy" } else { "none" };
            if lower != wanted && !(wanted == "none" && lower == "uncompressed") {
                let wanted = format!("{wanted}, the only one for {format} files");
                return Err(OptionError::invalid("compression", compression, &wanted));
            }
        }
        let path = path(options)?;
        if path.contains(['*', '?', '[']) {
            return Err(OptionError::invalid("path", &path, "a directory, without wildcards"));
        }
        let pacing = match duration::option(options, "commitInterval")? {
            Some(interval) => Pacing { interval, patience: None },
            None => Pacing { interval: COMMIT_INTERVAL, patience: Some(PATIENCE) },
        };
        Ok(Self {
            format,
            path,
            encoder: encoder(options, format)?,
            pacing,
            target_file_bytes: options.parse_bytes("targetFileSize")?.unwrap_or(TARGET_FILE_BYTES),
            log: LogSettings::parse(options, "fileSink.log")?,
        })
    }
}

fn encoder(options: &Options, format: Format) -> Result<Option<RecordEncoder>, OptionError> {
    let ignore_null_fields = options.parse_bool("ignoreNullFields")?.unwrap_or(true);
    let csv = CsvOptions::parse(options)?;
    Ok(match format {
        Format::Json => Some(RecordEncoder::Json { ignore_null_fields }),
        Format::Csv => Some(RecordEncoder::Csv(csv)),
        Format::Text => Some(RecordEncoder::Text),
        Format::Parquet => None,
    })
}

/// The path of what is read: Parquet files may be in an object store.
fn read_path(options: &Options, format: Format) -> Result<String, OptionError> {
    match options.get("path") {
        Some(path) if format == Format::Parquet && paths::is_stored(path) => {
            if credentials_in_url(path).is_some() {
                return Err(OptionError::of("path", format!("'path': {CREDENTIALS}"), None));
            }
            for key in ["ignoreCorruptFiles", "ignoreMissingFiles"] {
                if options.parse_bool(key)?.unwrap_or(false) {
                    let problem = "files in an object store are never passed over";
                    let help = "leave it out, or copy the files to a local disk";
                    return Err(OptionError::of(key, problem, Some(help.to_owned())));
                }
            }
            Ok(path.to_owned())
        }
        _ => path(options),
    }
}

fn path(options: &Options) -> Result<String, OptionError> {
    let help = "LOCATION '/directory', or OPTIONS ('path' = '/directory')";
    let path = options.get("path").ok_or_else(|| OptionError::missing("path", help))?;
    paths::check_local("path", path)?;
    Ok(path.to_owned())
}

fn files_max(options: &Options) -> Result<Option<usize>, OptionError> {
    let wanted = "a whole number from 1";
    match options.parse("maxFilesPerTrigger", wanted)? {
        Some(0) => Err(OptionError::invalid("maxFilesPerTrigger", "0", wanted)),
        files_max => Ok(files_max),
    }
}

/// Errors: dead letters of a format whose records cannot be malformed.
fn malformed(options: &Options, format: Format) -> Result<Malformed, OptionError> {
    let malformed = Malformed::parse(options)?;
    if malformed.dead_letters && !RECORDS.contains(&format) {
        let problem = format!("no record of a {format} file can be malformed by itself");
        let help = Some("leave 'deadLetter' out; it is for json and csv".to_owned());
        return Err(OptionError::of(dead_letter::OPTION, problem, help));
    }
    Ok(malformed)
}

/// Options of Spark that would change what is read or written, and are not implemented.
fn refuse_unsupported(options: &Options) -> Result<(), OptionError> {
    let of = |key: &str, problem: &str, help: &str| {
        Err(OptionError::of(key, problem, Some(help.to_owned())))
    };
    if options.get("cleanSource").is_some_and(|value| !value.trim().eq_ignore_ascii_case("off")) {
        let help = "leave it out, and remove old files by other means";
        return of("cleanSource", "source files are never moved or deleted", help);
    }
    if options.parse_bool("multiLine")?.unwrap_or(false) {
        let help = "write each record on a line of its own";
        return of("multiLine", "records that span lines are not supported", help);
    }
    if options.parse_bool("latestFirst")?.unwrap_or(false) {
        return of("latestFirst", "files are read oldest first", "leave it out");
    }
    for key in ["dateFormat", "timestampFormat"] {
        if options.get(key).is_some() {
            let help = "declare the column as STRING and convert it in the query";
            return of(key, "only the standard formats of dates and times are read", help);
        }
    }
    if options.get("maxFileAge").is_some() {
        let help = "leave it out, or move old files away before the first start";
        return of("maxFileAge", "files are read whatever their age", help);
    }
    Ok(())
}

const EVERY: &[Format] = &Format::ALL;
const RECORDS: &[Format] = &[Format::Json, Format::Csv];
const CSV: &[Format] = &[Format::Csv];
const JSON: &[Format] = &[Format::Json];

const KNOWN: &[(&[Format], Side, &str, &str)] = &[
    (EVERY, Side::Both, "path", "the directory; to read also one file or a glob pattern"),
    (EVERY, Side::Both, "format", "json, csv, parquet or text, for USING files"),
    (EVERY, Side::Source, "maxFilesPerTrigger", "files in a micro-batch (default: no limit)"),
    (EVERY, Side::Source, "recursiveFileLookup", "read directories inside too (default false)"),
    (EVERY, Side::Source, "pollInterval", "time between looks at the directory (default 100ms)"),
    (EVERY, Side::Source, "ignoreCorruptFiles", "pass over files that cannot be decoded"),
    (EVERY, Side::Source, "ignoreMissingFiles", "pass over files that have vanished"),
    (EVERY, Side::Source, "cleanSource", "only 'off': source files are left alone"),
    (EVERY, Side::Source, "latestFirst", "only 'false': files are read oldest first"),
    (EVERY, Side::Source, "maxFileAge", "refused: files are read whatever their age"),
    (
        EVERY,
        Side::Source,
        "fileSource.log.compactInterval",
        "entries of the checkpoint's list of files from one that repeats all to the next, at first \
         (default 10)",
    ),
    (
        EVERY,
        Side::Source,
        "fileSource.log.deletion",
        "delete entries of that list that are superseded (default true)",
    ),
    (EVERY, Side::Source, "fileSource.log.cleanupDelay", "but not before (default 10min)"),
    (
        EVERY,
        Side::Sink,
        "commitInterval",
        "micro-batches are gathered into a commit for so long (default 1s, for less than 16 KB up \
         to 10s; 0: a commit each)",
    ),
    (
        EVERY,
        Side::Sink,
        "targetFileSize",
        "a data file that has reached this size is closed (default 128mb)",
    ),
    (
        EVERY,
        Side::Sink,
        "fileSink.log.compactInterval",
        "entries of the manifest from one that repeats all to the next, at first (default 10)",
    ),
    (
        EVERY,
        Side::Sink,
        "fileSink.log.deletion",
        "delete entries of the manifest that are superseded (default true)",
    ),
    (EVERY, Side::Sink, "fileSink.log.cleanupDelay", "but not before (default 10min)"),
    (EVERY, Side::Sink, "retention", "the manifest forgets files that are older (default: none)"),
    (EVERY, Side::Sink, "compression", "parquet: only 'snappy'; others: only 'none'"),
    (RECORDS, Side::Source, "mode", "PERMISSIVE (default), DROPMALFORMED or FAILFAST"),
    (
        RECORDS,
        Side::Source,
        "deadLetter",
        "the table that gets malformed records, instead of what mode says (default: none)",
    ),
    (
        RECORDS,
        Side::Source,
        "columnNameOfCorruptRecord",
        "the column for the text of malformed records (default _corrupt_record)",
    ),
    (RECORDS, Side::Source, "multiLine", "only 'false': a record is a line"),
    (RECORDS, Side::Both, "dateFormat", "refused: dates are yyyy-MM-dd"),
    (RECORDS, Side::Both, "timestampFormat", "refused: times are ISO 8601"),
    (JSON, Side::Sink, "ignoreNullFields", "leave out fields that are null (default true)"),
    (CSV, Side::Both, "header", "each file starts with column names (default false)"),
    (CSV, Side::Both, "sep", "the character between values (default ',')"),
    (CSV, Side::Both, "delimiter", "the same as sep"),
    (CSV, Side::Both, "quote", "the character around values (default '\"'; empty: none)"),
    (CSV, Side::Both, "escape", "the character before a quote in a value (default '\\')"),
    (CSV, Side::Both, "nullValue", "text that means null, besides an empty value"),
];

/// The options of `USING json` and so on, or of `USING files`.
pub(super) fn known(format: Option<Format>) -> &'static [OptionSpec] {
    static BY_FORMAT: LazyLock<[Vec<OptionSpec>; 5]> = LazyLock::new(|| {
        let of = |wanted: Option<Format>| {
            let fits = |formats: &[Format]| wanted.is_none_or(|wanted| formats.contains(&wanted));
            let known = KNOWN.iter().filter(|known| fits(known.0));
            known.map(|&(_, side, name, about)| OptionSpec { name, side, about }).collect()
        };
        let [json, csv, parquet, text] = Format::ALL.map(Some);
        [of(json), of(csv), of(parquet), of(text), of(None)]
    });
    let place = Format::ALL.iter().position(|known| Some(*known) == format);
    &BY_FORMAT[place.unwrap_or(Format::ALL.len())]
}
