//! What the options of a table say.

use std::path::Path;
use std::time::Duration;

use millstream_engine::api::connector::{ReadMode, Table};
use millstream_engine::api::needs::Need;
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_store::journal;

use crate::credentials::{self, Place};
use crate::service::Service;

/// Where Pub/Sub is.
const SERVICE: &str = "https://pubsub.googleapis.com";
/// The variable of its emulator.
const EMULATOR: &str = "PUBSUB_EMULATOR_HOST";
/// The variable of the project, as other clients have it.
const PROJECT: &str = "GOOGLE_CLOUD_PROJECT";

const MESSAGES_MAX: u64 = 10_000;
const BYTES_MAX: u64 = 100 << 20;
const FETCH_PERIOD: Duration = Duration::from_secs(10);
/// More streams of one subscription a client has no use for.
const STREAMS_MAX: usize = 32;

const fn source(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Source, about }
}

const OWN: [OptionSpec; 13] = [
    source("subscriptionId", "the subscription, its id or 'projects/PROJECT/subscriptions/ID'"),
    source("topicId", "the topic; a new query creates its subscription if there is none"),
    source("endpoint", "another address of the service: https://HOST, or http:// for an emulator"),
    source("idAttribute", "the attribute that tells messages apart (default: the message id)"),
    source("deduplicationWindow", "how long a repeated message is recognized (default 10m)"),
    source("maxOutstandingMessages", "messages on their way without acknowledgement (10000)"),
    source("maxOutstandingBytes", "bytes of such messages (default 100mb)"),
    source("maxRecordsPerFetch", "another name of 'maxOutstandingMessages'"),
    source("numFetchPartitions", "streams that messages arrive on (default 1)"),
    source("maxBytesPerTrigger", "bytes of a micro-batch, about (default: no limit)"),
    source("maxRecordsPerTrigger", "messages of a micro-batch, at most (default: no limit)"),
    source("maxFetchPeriod", "how long a run that ends waits for another message (default 10s)"),
    source("journalSize", "bytes of the journal, about (default 1gb)"),
];

/// All options.
pub(super) const OPTIONS: &[OptionSpec] = &{
    let mut all = [OWN[0]; 19];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < 13 { OWN[at] } else { credentials::OPTIONS[at - 13] };
        at += 1;
    }
    all
};

/// A table that is read.
#[derive(Clone, Debug)]
pub(super) struct SourceOptions {
    pub(super) table: String,
    pub(super) service: Service,
    /// As it is written: an id, or a full name.
    subscription: String,
    topic: Option<String>,
    project: Option<String>,
    pub(super) id_attribute: Option<String>,
    pub(super) messages_max: u64,
    pub(super) bytes_max: u64,
    pub(super) streams: usize,
    /// Of a micro-batch.
    pub(super) batch_bytes_max: usize,
    pub(super) batch_rows_max: usize,
    pub(super) fetch_period: Duration,
    pub(super) journal: journal::Settings,
}

impl SourceOptions {
    pub(super) fn parse(
        table: &Table,
        mode: ReadMode,
        base_dir: &Path,
    ) -> Result<Self, OptionError> {
        let options = &table.options;
        if mode == ReadMode::Batch {
            let name = &table.name;
            let problem = format!("'{name}' uses 'pubsub', which is read as a stream only");
            return Err(OptionError::table(problem, Some(format!("write FROM STREAM {name}"))));
        }
        let Some(subscription) = options.get("subscriptionId") else {
            let help = "name the subscription, for example 'subscriptionId' = 'orders'";
            return Err(OptionError::missing("subscriptionId", help));
        };
        check_name("subscriptionId", subscription, "subscriptions")?;
        let topic = options.get("topicId");
        if let Some(topic) = topic {
            check_name("topicId", topic, "topics")?;
        }
        let place = Place::parse(options, base_dir)?;
        let messages_max = match options.get("maxOutstandingMessages") {
            Some(_) => positive(options, "maxOutstandingMessages")?,
            None => positive(options, "maxRecordsPerFetch")?,
        };
        let streams = positive(options, "numFetchPartitions")?.unwrap_or(1) as usize;
        if streams > STREAMS_MAX {
            let (text, wanted) = (streams.to_string(), format!("at most {STREAMS_MAX}"));
            return Err(OptionError::invalid("numFetchPartitions", &text, &wanted));
        }
        let variable = std::env::var(PROJECT).ok().filter(|project| !project.is_empty());
        let parsed = Self {
            table: table.name.clone(),
            service: Service::parse(options, EMULATOR, SERVICE, place)?,
            subscription: subscription.to_owned(),
            topic: topic.map(str::to_owned),
            project: options.get("projectId").map(str::to_owned).or(variable),
            id_attribute: options.get("idAttribute").map(str::to_owned),
            messages_max: messages_max.unwrap_or(MESSAGES_MAX),
            bytes_max: options.parse_bytes("maxOutstandingBytes")?.unwrap_or(BYTES_MAX),
            streams,
            batch_bytes_max: options
                .parse_bytes("maxBytesPerTrigger")?
                .map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            batch_rows_max: positive(options, "maxRecordsPerTrigger")?
                .map_or(usize::MAX, |rows| usize::try_from(rows).unwrap_or(usize::MAX)),
            fetch_period: duration(options, "maxFetchPeriod")?.unwrap_or(FETCH_PERIOD),
            journal: journal_settings(options)?,
        };
        if parsed.service.credentials.is_none() {
            // An emulator has no credentials, which could say the project.
            parsed.names(None)?;
        }
        Ok(parsed)
    }

    /// The full names of the subscription and of the topic, in the project of the options or else
    /// `project`.
    pub(super) fn names(
        &self,
        project: Option<&str>,
    ) -> Result<(String, Option<String>), OptionError> {
        let full = |name: &str, kind: &str| {
            if name.contains('/') {
                return Ok(name.to_owned());
            }
            let project = self.project.as_deref().or(project).ok_or_else(|| {
                let help = "name the project, for example 'projectId' = 'my-project', or set the \
                    variable GOOGLE_CLOUD_PROJECT";
                OptionError::missing("projectId", help)
            })?;
            Ok(format!("projects/{project}/{kind}/{name}"))
        };
        let topic = self.topic.as_deref().map(|topic| full(topic, "topics")).transpose()?;
        Ok((full(&self.subscription, "subscriptions")?, topic))
    }

    /// What the table needs of the service. The project may be that of the credentials, which are
    /// not looked at here.
    pub(super) fn needs(&self) -> Vec<Need> {
        let mut needs = self.service.needs();
        if self.service.credentials.is_none() {
            return needs;
        }
        let of = |name: &str, kind: &str| match &self.project {
            Some(project) if !name.contains('/') => {
                format!("{kind} projects/{project}/{kind}s/{name}")
            }
            _ => format!("{kind} {name}"),
        };
        let subscription = of(&self.subscription, "subscription");
        let purpose = "reading and acknowledging; the role Pub/Sub Subscriber has it";
        needs.push(Need::rights(&["pubsub.subscriptions.consume"], subscription, purpose));
        if let Some(topic) = &self.topic {
            let purpose = "only to create the subscription";
            let attach = ["pubsub.topics.attachSubscription"];
            needs.push(Need::rights(&attach, of(topic, "topic"), purpose));
            needs.push(Need::rights(&["pubsub.subscriptions.create"], "the project", purpose));
        }
        needs
    }

    /// What the subscription is called in the pipeline file.
    pub(super) fn subscription(&self) -> &str {
        &self.subscription
    }
}

fn journal_settings(options: &Options) -> Result<journal::Settings, OptionError> {
    let default = journal::Settings::default();
    let bytes_max = options.parse_bytes("journalSize")?.unwrap_or(default.bytes_max);
    if bytes_max < 1 << 20 {
        return Err(OptionError::invalid("journalSize", &bytes_max.to_string(), "1mb or more"));
    }
    let key_window = duration(options, "deduplicationWindow")?.unwrap_or(default.key_window);
    Ok(journal::Settings { bytes_max, key_window, ..default })
}

fn check_name(key: &str, name: &str, kind: &str) -> Result<(), OptionError> {
    let parts: Vec<&str> = name.split('/').collect();
    let is_name = match &parts[..] {
        [id] => !id.is_empty(),
        ["projects", project, found, id] => !project.is_empty() && *found == kind && !id.is_empty(),
        _ => false,
    };
    if is_name {
        return Ok(());
    }
    Err(OptionError::invalid(key, name, &format!("an id, or projects/PROJECT/{kind}/ID")))
}

fn positive(options: &Options, key: &str) -> Result<Option<u64>, OptionError> {
    let wanted = "a whole number, 1 or more";
    match options.parse::<u64>(key, wanted)? {
        Some(0) => Err(OptionError::invalid(key, "0", wanted)),
        number => Ok(number),
    }
}

/// A time with its unit: `500ms`, `10s`, `10m`, `1h`.
fn duration(options: &Options, key: &str) -> Result<Option<Duration>, OptionError> {
    let Some(text) = options.get(key) else { return Ok(None) };
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
    let unit_ms = match lower[digits..].trim() {
        "ms" => 1,
        "s" | "second" | "seconds" => 1_000,
        "m" | "min" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        _ => 0,
    };
    let count: Option<u64> = lower[..digits].parse().ok();
    match count.and_then(|count| count.checked_mul(unit_ms)).filter(|ms| *ms > 0) {
        Some(ms) => Ok(Some(Duration::from_millis(ms))),
        None => Err(OptionError::invalid(key, text, "a time such as '10s' or '500ms'")),
    }
}
