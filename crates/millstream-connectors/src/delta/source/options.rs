//! What the options of a table that is read as a stream say. Their names and defaults are those of
//! Spark's source of Delta tables.

use std::time::Duration;

use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_lake::stream::{Rules, Start};
use regex::Regex;

use crate::delta::options::{moment, path};
use crate::duration;

/// Files of a micro-batch, where neither files nor bytes are limited.
const FILES_MAX: usize = 1_000;
/// Bytes of its files then: a thousand files may be of a gigabyte each.
const BYTES_MAX: u64 = 512 << 20;
/// Shorter than this is no pause.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// How a table is read as a stream.
#[derive(Clone, Debug)]
pub(in crate::delta) struct StreamOptions {
    /// As written.
    pub(in crate::delta) path: String,
    pub(super) start: Start,
    pub(super) rules: Rules,
    /// Rows say what became of them.
    pub(in crate::delta) gives_changes: bool,
    /// Files of a micro-batch.
    pub(super) files_max: usize,
    /// Bytes of a micro-batch's files; the last one may go beyond.
    pub(super) bytes_max: u64,
    /// Files whose path matches are left out.
    pub(super) exclude: Option<Regex>,
    /// How often the next version is looked for; `None` for what suits the store.
    pub(super) poll_interval: Option<Duration>,
}

impl StreamOptions {
    pub(in crate::delta) fn parse(options: &Options) -> Result<Self, OptionError> {
        refuse_others(options)?;
        let flag = |key: &str| Ok(options.parse_bool(key)?.unwrap_or(false));
        let positive = |key: &str| {
            let wanted = "a whole number, 1 or more";
            match options.parse::<usize>(key, wanted)? {
                Some(0) => Err(OptionError::invalid(key, "0", wanted)),
                number => Ok(number),
            }
        };
        let (files_max, bytes_max) =
            (positive("maxFilesPerTrigger")?, options.parse_bytes("maxBytesPerTrigger")?);
        let poll_interval = duration::option(options, "pollInterval")?;
        if poll_interval.is_some_and(|interval| interval < POLL_INTERVAL_MIN) {
            let text = options.get("pollInterval").unwrap_or_default();
            return Err(OptionError::invalid("pollInterval", text, "1ms or longer"));
        }
        Ok(Self {
            path: path(options)?.to_owned(),
            start: start(options)?,
            rules: Rules {
                ignore_deletes: flag("ignoreDeletes")?,
                ignore_changes: flag("ignoreChanges")?,
                skip_change_commits: flag("skipChangeCommits")?,
                fail_on_data_loss: options.parse_bool("failOnDataLoss")?.unwrap_or(true),
            },
            gives_changes: flag("readChangeFeed")? || flag("readChangeData")?,
            files_max: match (files_max, bytes_max) {
                (Some(files), _) => files,
                (None, Some(_)) => usize::MAX,
                (None, None) => FILES_MAX,
            },
            bytes_max: match (files_max, bytes_max) {
                (_, Some(bytes)) => bytes,
                (Some(_), None) => u64::MAX,
                (None, None) => BYTES_MAX,
            },
            exclude: exclude(options)?,
            poll_interval,
        })
    }

    /// The option that says where a new query begins.
    pub(super) fn beginning(&self) -> (String, bool) {
        match self.start {
            Start::Snapshot => ("no 'startingVersion'".to_owned(), false),
            Start::Version(version) => (format!("'startingVersion' = '{version}'"), false),
            Start::Latest => ("'startingVersion' = 'latest'".to_owned(), true),
            Start::Moment(_) => ("'startingTimestamp'".to_owned(), false),
        }
    }
}

/// Options that a stream has no use for, and those of Spark that are not here.
fn refuse_others(options: &Options) -> Result<(), OptionError> {
    let refused = |key: &str, problem: &str, help: &str| match options.get(key) {
        Some(text) if !text.trim().eq_ignore_ascii_case("false") => {
            Err(OptionError::of(key, problem, Some(help.to_owned())))
        }
        _ => Ok(()),
    };
    let whole = "a stream does not read one version of a table";
    refused("versionAsOf", whole, "say where it begins with 'startingVersion'")?;
    refused("timestampAsOf", whole, "say where it begins with 'startingTimestamp'")?;
    refused(
        "withEventTimeOrder",
        "the files that are there at the beginning are read by the time of the file, not by that \
         of their rows",
        "give WATERMARK a longer delay, or read what is there in a query of its own first",
    )?;
    for key in ["schemaTrackingLocation", "schemaLocation"] {
        refused(
            key,
            "schemas are not tracked: a stream has the schema of the table's newest version",
            "leave it out; after a column was renamed or dropped start the query again",
        )?;
    }
    Ok(())
}

fn start(options: &Options) -> Result<Start, OptionError> {
    let (version, time) = (options.get("startingVersion"), options.get("startingTimestamp"));
    match (version, time) {
        (Some(_), Some(_)) => {
            let problem = "both 'startingVersion' and 'startingTimestamp' are given";
            let help = Some("keep one of them".to_owned());
            Err(OptionError::of("startingTimestamp", problem, help))
        }
        (Some(text), None) if text.trim().eq_ignore_ascii_case("latest") => Ok(Start::Latest),
        (Some(text), None) => match text.trim().parse() {
            Ok(version) => Ok(Start::Version(version)),
            Err(_) => {
                let wanted = "a version's number or 'latest'";
                Err(OptionError::invalid("startingVersion", text, wanted))
            }
        },
        (None, Some(text)) => Ok(Start::Moment(moment("startingTimestamp", text)?)),
        (None, None) => Ok(Start::Snapshot),
    }
}

fn exclude(options: &Options) -> Result<Option<Regex>, OptionError> {
    let Some(text) = options.get("excludeRegex") else { return Ok(None) };
    Regex::new(text).map(Some).map_err(|error| {
        let problem = format!("'excludeRegex' is no regular expression: {error}");
        OptionError::of("excludeRegex", problem, None)
    })
}

const fn spec(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Source, about }
}

/// The options of a table that is read as a stream.
pub(in crate::delta) const KNOWN: [OptionSpec; 15] = [
    spec(
        "startingVersion",
        "begin with what this version has added, or with 'latest' (default: all rows, then changes)",
    ),
    spec("startingTimestamp", "begin with the first version at this moment or later"),
    spec("maxFilesPerTrigger", "files of one micro-batch at most (default 1000)"),
    spec(
        "maxBytesPerTrigger",
        "bytes of one micro-batch's files, about (default 512m if maxFilesPerTrigger is not given)",
    ),
    spec("ignoreDeletes", "leave out commits that only delete rows (default false)"),
    spec("ignoreChanges", "give files again that a commit has changed (default false)"),
    spec("skipChangeCommits", "leave out commits that delete or change rows (default false)"),
    spec("readChangeFeed", "give each change as a row, with _change_type (default false)"),
    spec("readChangeData", "the same as readChangeFeed"),
    spec(
        "failOnDataLoss",
        "stop where versions or files are gone that were not read (default true)",
    ),
    spec("excludeRegex", "leave out files whose path matches"),
    spec(
        "pollInterval",
        "how often the next version is looked for (default 20ms on a local disk, else 1s)",
    ),
    spec("withEventTimeOrder", "of Spark; refused"),
    spec("schemaTrackingLocation", "of Spark; refused"),
    spec("schemaLocation", "of Spark; refused"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: &[(&str, &str)]) -> Result<StreamOptions, OptionError> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let path = [("path", "t")];
        StreamOptions::parse(&Options::new(path.iter().chain(options).map(owned)))
    }

    #[test]
    fn limits_and_defaults_are_those_of_spark() {
        let limits = |options: &[_]| {
            let options = parsed(options).expect("right");
            (options.files_max, options.bytes_max)
        };
        assert_eq!(limits(&[]), (1_000, 512 << 20), "Spark has no limit of bytes");
        assert_eq!(limits(&[("maxFilesPerTrigger", "7")]), (7, u64::MAX));
        assert_eq!(limits(&[("maxBytesPerTrigger", "1m")]), (usize::MAX, 1 << 20));
        assert_eq!(limits(&[("maxFilesPerTrigger", "7"), ("maxBytesPerTrigger", "10")]), (7, 10));
        let start = |text| parsed(&[("startingVersion", text)]).map(|options| options.start);
        assert_eq!(start("latest").ok(), Some(Start::Latest));
        assert_eq!(start("12").ok(), Some(Start::Version(12)));
        assert!(start("soon").is_err());
    }

    #[test]
    fn what_would_be_wrong_is_refused() {
        for wrong in [
            ("versionAsOf", "3"),
            ("withEventTimeOrder", "true"),
            ("schemaTrackingLocation", "/log"),
            ("maxFilesPerTrigger", "0"),
            ("excludeRegex", "("),
            ("pollInterval", "0"),
        ] {
            assert!(parsed(&[wrong]).is_err(), "{wrong:?}");
        }
        assert!(parsed(&[("startingVersion", "1"), ("startingTimestamp", "2026-01-01")]).is_err());
        assert!(parsed(&[("withEventTimeOrder", "false")]).is_ok());
    }
}
