//! Options of a Kafka table that is read, as Spark names and orders them.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use millstream_engine::api::connector::ReadMode;
use millstream_engine::api::dead_letter;
use millstream_engine::api::options::{OptionError, Options};
use millstream_formats::excerpt;
use regex::Regex;

use super::limits::{DELAY_MAX_DEFAULT, Limits};
use crate::client::settings::{ClientSettings, Use};
use crate::client::subscription::Subscription;
use crate::offsets::{EARLIEST, LATEST, PartitionId, PerPartition, parse, to_json};

/// A place in each partition as the options give it, before the brokers have resolved it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The first record there is.
    Earliest,
    /// After the last record.
    Latest,
    /// Offsets, [`EARLIEST`] or [`LATEST`], for all partitions.
    Offsets(PerPartition),
    /// The first record not older than this, in milliseconds since the epoch.
    Time(i64),
    /// As `Time`, for all partitions.
    Times(PerPartition),
}

impl Place {
    /// Whether records that are there already may come before it.
    pub fn may_skip(&self) -> bool {
        match self {
            Self::Earliest => false,
            Self::Latest | Self::Time(_) | Self::Times(_) => true,
            Self::Offsets(offsets) => offsets.values().any(|offset| *offset != EARLIEST),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Earliest => f.write_str("earliest"),
            Self::Latest => f.write_str("latest"),
            Self::Time(time) => time.fmt(f),
            Self::Offsets(numbers) | Self::Times(numbers) => {
                let json = to_json(numbers.iter().map(|(id, number)| (id, *number)));
                f.write_str(&excerpt(json.as_bytes()))
            }
        }
    }
}

/// `startingOffsetsByTimestampStrategy`: where to start if no record is as new as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSuchTime {
    /// The query fails.
    Fail,
    /// After the last record.
    Latest,
}

/// The options of a table that is read, checked for form.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// Which partitions.
    pub subscription: Subscription,
    /// Where a new query starts, and the option that says so.
    pub starting: (&'static str, Place),
    /// What happens if a starting time is later than all records.
    pub no_such_time: NoSuchTime,
    /// Where a batch query ends, and the option that says so.
    pub ending: (&'static str, Place),
    /// Whether missing records are an error.
    pub fail_on_data_loss: bool,
    /// Limits of a micro-batch.
    pub limits: Limits,
    /// Whether headers are kept.
    pub include_headers: bool,
    /// The beginning of the consumer group's name.
    pub group_prefix: Option<String>,
    /// Settings of the client.
    pub client: ClientSettings,
}

impl SourceOptions {
    /// The options of a table.
    /// Errors: an option with a value that cannot be, or options that exclude each other.
    pub fn parse(options: &Options, mode: ReadMode) -> Result<Self, OptionError> {
        let client = ClientSettings::parse(options, Use::Consumer)?;
        if mode == ReadMode::Stream {
            refuse_ending(options)?;
        }
        let parsed = Self {
            subscription: subscription(options)?,
            starting: starting(options, mode)?,
            no_such_time: no_such_time(options)?,
            ending: ending(options)?,
            fail_on_data_loss: options.parse_bool("failOnDataLoss")?.unwrap_or(true),
            limits: limits(options)?,
            // A dead letter keeps its record's headers, for which there is no column then.
            include_headers: options.parse_bool("includeHeaders")?.unwrap_or(false)
                || options.get(dead_letter::OPTION).is_some(),
            group_prefix: options.get("groupIdPrefix").map(str::to_owned),
            client,
        };
        parsed.check_assigned()?;
        for (key, wanted) in NUMBERS_WITHOUT_EFFECT {
            options.parse::<u64>(key, wanted)?;
        }
        Ok(parsed)
    }

    /// Offsets by partition must be for the assigned partitions; for topics that is known only
    /// once the brokers were asked.
    fn check_assigned(&self) -> Result<(), OptionError> {
        let Subscription::Partitions(assigned) = &self.subscription else { return Ok(()) };
        for (option, place) in [&self.starting, &self.ending] {
            if let Some(problem) = place.mismatch(assigned) {
                return Err(OptionError::of(option, format!("'{option}' {problem}"), None));
            }
        }
        Ok(())
    }
}

/// Accepted for Spark's sake. Splits are one per partition and already balanced by rows.
const NUMBERS_WITHOUT_EFFECT: [(&str, &str); 5] = [
    ("minPartitions", "a whole number"),
    ("maxRecordsPerPartition", "a whole number"),
    ("kafkaConsumer.pollTimeoutMs", "a whole number of milliseconds"),
    ("fetchOffset.numRetries", "a whole number"),
    ("fetchOffset.retryIntervalMs", "a whole number of milliseconds"),
];

impl Place {
    /// Says how per-partition numbers differ from the partitions there are, if they do.
    pub fn mismatch(&self, partitions: &BTreeSet<PartitionId>) -> Option<String> {
        let (Self::Offsets(given) | Self::Times(given)) = self else { return None };
        let names = |ids: Vec<&PartitionId>| {
            ids.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let missing: Vec<_> = partitions.iter().filter(|id| !given.contains_key(*id)).collect();
        let unknown: Vec<_> = given.keys().filter(|id| !partitions.contains(*id)).collect();
        let hint = match self {
            Self::Offsets(_) => ", with -2 for the earliest and -1 for the latest offset",
            _ => "",
        };
        if !missing.is_empty() {
            Some(format!("lacks {}. It must name every partition{hint}", names(missing)))
        } else if !unknown.is_empty() {
            Some(format!("names {}, which the table does not read", names(unknown)))
        } else {
            None
        }
    }
}

fn subscription(options: &Options) -> Result<Subscription, OptionError> {
    let given: Vec<&str> = ["subscribe", "subscribePattern", "assign"]
        .into_iter()
        .filter(|key| options.get(key).is_some())
        .collect();
    match given.as_slice() {
        [one] => {
            let text = options.get(one).unwrap_or_default();
            match *one {
                "subscribe" => subscribe(text),
                "subscribePattern" => pattern(text),
                _ => assign(text),
            }
        }
        [] => Err(OptionError::table(
            "no topic is named",
            Some(
                "Set one of 'subscribe', 'subscribePattern' and 'assign', for example \
                  'subscribe' = 'events'"
                    .to_owned(),
            ),
        )),
        [first, second, ..] => Err(OptionError::of(
            second,
            format!("'{first}' and '{second}' exclude each other"),
            Some("Keep one of 'subscribe', 'subscribePattern' and 'assign'".to_owned()),
        )),
    }
}

fn subscribe(text: &str) -> Result<Subscription, OptionError> {
    let mut topics: Vec<String> =
        text.split(',').map(|topic| topic.trim().to_owned()).filter(|t| !t.is_empty()).collect();
    topics.sort_unstable();
    topics.dedup();
    if topics.is_empty() {
        return Err(OptionError::invalid("subscribe", text, "topic names separated by commas"));
    }
    Ok(Subscription::Topics(topics))
}

fn pattern(text: &str) -> Result<Subscription, OptionError> {
    let text = text.trim();
    // Spark matches the whole name.
    match Regex::new(&format!("^(?:{text})$")) {
        Ok(regex) if !text.is_empty() => Ok(Subscription::Pattern { text: text.to_owned(), regex }),
        _ => Err(OptionError::invalid(
            "subscribePattern",
            text,
            "a regular expression for topic \
                 names (without look-around and backreferences)",
        )),
    }
}

fn assign(text: &str) -> Result<Subscription, OptionError> {
    let wanted = r#"JSON such as {"topic":[0,1]}"#;
    let invalid = || OptionError::invalid("assign", text, wanted);
    let topics: std::collections::BTreeMap<String, Vec<i32>> =
        serde_json::from_str(text).map_err(|_| invalid())?;
    let partitions: BTreeSet<PartitionId> = topics
        .iter()
        .flat_map(|(topic, numbers)| {
            numbers.iter().map(|number| PartitionId::new(topic.as_str(), *number))
        })
        .collect();
    if partitions.is_empty() || partitions.iter().any(|id| id.partition < 0) {
        return Err(invalid());
    }
    Ok(Subscription::Partitions(partitions))
}

fn starting(options: &Options, mode: ReadMode) -> Result<(&'static str, Place), OptionError> {
    let default = match mode {
        ReadMode::Stream => Place::Latest,
        ReadMode::Batch => Place::Earliest,
    };
    let keys = ["startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"];
    let (option, place) = place(options, keys)?.unwrap_or((keys[2], default));
    if mode == ReadMode::Batch && place.names(LATEST) {
        let problem = format!("'{option}' of a table that is read as a batch cannot be the latest");
        return Err(OptionError::of(option, problem, None));
    }
    Ok((option, place))
}

fn ending(options: &Options) -> Result<(&'static str, Place), OptionError> {
    let keys = ["endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"];
    let (option, place) = place(options, keys)?.unwrap_or((keys[2], Place::Latest));
    if place.names(EARLIEST) {
        let problem = format!("'{option}' cannot be the earliest");
        return Err(OptionError::of(option, problem, None));
    }
    Ok((option, place))
}

fn refuse_ending(options: &Options) -> Result<(), OptionError> {
    for option in ["endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"] {
        if options.get(option).is_some() {
            let problem = format!("'{option}' cannot be set on a table that is read as a stream");
            let help = "A stream has no end. Read the table without STREAM, or use the trigger \
                        'availableNow'";
            return Err(OptionError::of(option, problem, Some(help.to_owned())));
        }
    }
    Ok(())
}

impl Place {
    fn names(&self, special: i64) -> bool {
        match self {
            Self::Earliest => special == EARLIEST,
            Self::Latest => special == LATEST,
            Self::Offsets(offsets) => offsets.values().any(|offset| *offset == special),
            Self::Time(_) | Self::Times(_) => false,
        }
    }
}

/// Reads one of three options. As in Spark, an earlier one overrides those after it.
fn place(
    options: &Options,
    [time, times, offsets]: [&'static str; 3],
) -> Result<Option<(&'static str, Place)>, OptionError> {
    if let Some(millis) = options.parse(time, "milliseconds since 1970-01-01 00:00 UTC")? {
        return Ok(Some((time, Place::Time(millis))));
    }
    if let Some(text) = options.get(times) {
        let wanted = r#"JSON such as {"topic":{"0":1700000000000}}, in milliseconds since 1970"#;
        let numbers = numbers(times, text, wanted, 0)?;
        return Ok(Some((times, Place::Times(numbers))));
    }
    let Some(text) = options.get(offsets) else { return Ok(None) };
    let place = match text.trim().to_ascii_lowercase().as_str() {
        "earliest" => Place::Earliest,
        "latest" => Place::Latest,
        _ => {
            let wanted = r#"'earliest', 'latest', or JSON such as {"topic":{"0":23,"1":-2}}"#;
            Place::Offsets(numbers(offsets, text, wanted, EARLIEST)?)
        }
    };
    Ok(Some((offsets, place)))
}

fn numbers(key: &str, text: &str, wanted: &str, least: i64) -> Result<PerPartition, OptionError> {
    match parse(text) {
        Ok(numbers) if numbers.values().all(|number| *number >= least) => Ok(numbers),
        _ => Err(OptionError::invalid(key, text, wanted)),
    }
}

fn no_such_time(options: &Options) -> Result<NoSuchTime, OptionError> {
    let key = "startingOffsetsByTimestampStrategy";
    match options.get(key).map(|text| (text, text.trim().to_ascii_lowercase())) {
        None => Ok(NoSuchTime::Fail),
        Some((_, lower)) if lower == "error" => Ok(NoSuchTime::Fail),
        Some((_, lower)) if lower == "latest" => Ok(NoSuchTime::Latest),
        Some((text, _)) => Err(OptionError::invalid(key, text, "'error' or 'latest'")),
    }
}

fn limits(options: &Options) -> Result<Limits, OptionError> {
    let (max, min, delay) = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay");
    let rows_max: Option<u64> = options.parse(max, "a whole number")?;
    let rows_min: Option<u64> = options.parse(min, "a whole number")?;
    for (key, value) in [(max, rows_max), (min, rows_min)] {
        if value == Some(0) {
            return Err(OptionError::invalid(key, "0", "1 or more"));
        }
    }
    if let (Some(most), Some(least)) = (rows_max, rows_min)
        && least > most
    {
        let problem = format!("'{min}' is {least}, more than '{max}', which is {most}");
        return Err(OptionError::of(min, problem, None));
    }
    let delay_max = match options.get(delay) {
        None => DELAY_MAX_DEFAULT,
        Some(text) => duration(text).ok_or_else(|| {
            OptionError::invalid(delay, text, "a duration such as '15m' or '30s'")
        })?,
    };
    Ok(Limits { rows_max, rows_min, delay_max })
}

/// Reads a duration as Spark's configuration does: a number and `ms`, `s`, `m` or `min`, `h`, `d`;
/// a bare number is milliseconds.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit_ms = match text[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.checked_mul(unit_ms)?))
}

#[cfg(test)]
mod tests;
