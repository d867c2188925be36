//! The options `kafka.*`: settings of the Kafka client.
//!
//! Spark hands them to Kafka's Java client; here they go to librdkafka, which shares most names.
//! Common Java-only names are translated, names with no counterpart are errors, and what the
//! connector sets itself is refused, as Spark does. Values are checked without connecting.

mod security;
mod token_options;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use millstream_engine::api::connector::Memory;
use millstream_engine::api::options::{OptionError, Options};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;

use super::context::log_level;
use super::native::known_settings;
use crate::protocol::login::OAUTHBEARER;
use crate::tokens::Tokens;
use security::PemStores;
use token_options::{AWS_MSK_IAM, TokenOptions};

/// How much a client that reads holds back at most, and the least that one answer to it may be:
/// librdkafka wants it to be no less than the largest record by default.
const QUEUE_BYTES_MAX: usize = 64 << 20;
const FETCH_BYTES_MIN: usize = 1 << 20;
/// Settings that say how large answers may be.
const FETCH_SIZES: [&str; 3] =
    ["fetch.max.bytes", "message.max.bytes", "receive.message.max.bytes"];
/// The prefix of options that are the client's.
const PREFIX: &str = "kafka.";

/// librdkafka's default of `message.max.bytes`.
pub const RECORD_BYTES_MAX: usize = 1_000_000;

/// `kafka.bootstrap.servers`, without the prefix.
const SERVERS: &str = "bootstrap.servers";

/// How many requests may be under way to a broker; the setting has two names.
const IN_FLIGHT: [&str; 2] = ["max.in.flight.requests.per.connection", "max.in.flight"];
/// Requests under way to a broker for a topic of few partitions; see
/// [`ClientSettings::producer_to`].
const IN_FLIGHT_FOR_FEW_PARTITIONS: &str = "2";
const FEW_PARTITIONS: usize = 8;
/// How long a transaction may be open. A dead instance that is not started again keeps
/// `read_committed` readers of its topics waiting for that long.
const TRANSACTION_TIMEOUT: &str = "transaction.timeout.ms";
const TRANSACTION_TIMEOUT_MS: u64 = 30_000;

/// librdkafka's default of `message.timeout.ms`.
const DELIVERY_TIMEOUT_MS: u64 = 300_000;

/// Whose code writes transactions, without the prefix. This setting and the next one alone are not
/// librdkafka's.
const TRANSACTIONS: &str = "millstream.transactions";
/// Whose code reads, and writes at least once.
const CLIENT: &str = "millstream.client";

/// What the client is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Reading.
    Consumer,
    /// Writing.
    Producer,
}

/// Whose code reads, or writes transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Implementation {
    /// The protocol client's where brokers and settings allow it, otherwise librdkafka's.
    #[default]
    Protocol,
    /// librdkafka's.
    Librdkafka,
}

/// Checked settings, under librdkafka's names.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    settings: BTreeMap<String, String>,
    transactions: Implementation,
    client: Implementation,
    tokens: Option<Tokens>,
}

/// What becomes of a setting of the Java client that librdkafka has under another name, or not.
enum Translation {
    /// The same under another name.
    Name(&'static str),
    /// The same in bytes for the Java client, in kibibytes for librdkafka.
    Kibibytes(&'static str),
    /// The code that would use it does not exist here; leaving it out changes nothing.
    NoEffect,
    /// It has no counterpart; the text says what to use instead.
    Refuse(&'static str),
}

fn translation(key: &str, purpose: Use) -> Option<Translation> {
    use Translation::{Kibibytes, Name, NoEffect, Refuse};
    let translation = match key {
        "fetch.max.wait.ms" => Name("fetch.wait.max.ms"),
        "max.request.size" => Name("message.max.bytes"),
        "buffer.memory" => Kibibytes("queue.buffering.max.kbytes"),
        "send.buffer.bytes" => Name("socket.send.buffer.bytes"),
        "receive.buffer.bytes" => Name("socket.receive.buffer.bytes"),
        "request.timeout.ms" if purpose == Use::Consumer => Name("socket.timeout.ms"),
        "max.poll.records"
        | "max.block.ms"
        | "default.api.timeout.ms"
        | "socket.connection.setup.timeout.max.ms"
        | "partitioner.ignore.keys"
        | "partitioner.adaptive.partitioning.enable"
        | "ssl.protocol" => NoEffect,
        "partitioner.class" => Refuse(
            "Use 'kafka.partitioner', whose default 'murmur2_random' \
                                       is what Kafka's Java client does",
        ),
        "ssl.truststore.location" | "ssl.truststore.password" | "ssl.truststore.type" => Refuse(
            "Export the certificates as PEM (keytool -exportcert -rfc -keystore STORE -alias \
             NAME -file ca.pem), and name the file in 'kafka.ssl.ca.location'",
        ),
        "ssl.keystore.type" => Refuse(
            "Convert the keystore (keytool -importkeystore -srckeystore STORE -destkeystore \
             STORE.p12 -deststoretype PKCS12), and set the type to PKCS12",
        ),
        "ssl.truststore.certificates" => Name("ssl.ca.pem"),
        "ssl.keystore.certificate.chain" => Name("ssl.certificate.pem"),
        "ssl.keystore.key" => Name("ssl.key.pem"),
        _ => return None,
    };
    Some(translation)
}

/// Settings that are the connector's own business, and why.
fn refused(key: &str, purpose: Use) -> Option<&'static str> {
    let reason = match key {
        "auto.offset.reset" => {
            "Where a new query starts is the option 'startingOffsets'; after that the checkpoint \
             says it"
        }
        "enable.auto.commit" | "enable.auto.offset.store" | "auto.commit.interval.ms" => {
            "Progress is kept in the checkpoint. Offsets are also committed to the consumer group \
             after each micro-batch, for lag monitors"
        }
        "key.deserializer" | "value.deserializer" => {
            "Keys and values are read as bytes. Use 'value.format', or CAST and functions in SQL"
        }
        "key.serializer" | "value.serializer" => {
            "Keys and values are written as STRING or BINARY. Use CAST and to_json in SQL"
        }
        "interceptor.classes" => "Interceptors are Java code and cannot run here",
        "enable.partition.eof" | "log.queue" | "delivery.report.only.error" => {
            "The connector relies on its own value of it"
        }
        "transactional.id" if purpose == Use::Producer => {
            "Transactions are named after the flow and the query, so that a restart finds them"
        }
        _ => return None,
    };
    Some(reason)
}

impl ClientSettings {
    /// The `kafka.*` options of a table.
    /// Errors: a setting that is unknown, refused, or has a value that cannot be.
    pub fn parse(options: &Options, purpose: Use) -> Result<Self, OptionError> {
        let settings = BTreeMap::new();
        let (transactions, client) = Default::default();
        let mut parsed = Self { settings, transactions, client, tokens: None };
        let (mut spellings, mut token_options) = (Vec::new(), TokenOptions::default());
        let stores = PemStores::of(options);
        for (spelled, value) in options.iter() {
            let lower = spelled.to_ascii_lowercase();
            let Some(key) = lower.strip_prefix(PREFIX) else { continue };
            if key == TRANSACTIONS {
                parsed.transactions = implementation(spelled, value)?;
                continue;
            }
            if key == CLIENT {
                parsed.client = implementation(spelled, value)?;
                continue;
            }
            if token_options.take(key, value)? {
                continue;
            }
            let converted = match stores.convert(key, value) {
                Some(converted) => converted,
                None => convert(key, spelled, value, purpose)?,
            };
            match converted {
                Converted::Several(several) => {
                    for (key, value) in several {
                        if !token_options.take(&key, &value)? {
                            parsed.settings.insert(key, value);
                        }
                    }
                }
                Converted::Setting(key, value) => {
                    spellings.push((key.clone(), spelled));
                    parsed.settings.insert(key, value);
                }
            }
        }
        // What needs TLS gets its own message, not librdkafka's about a value it does not know.
        parsed.check_security()?;
        parsed.set_tokens(&token_options)?;
        for (key, spelled) in spellings {
            if let Some(value) = parsed.settings.get(&key) {
                check(&key, spelled, value)?;
            }
        }
        if parsed.servers().trim().is_empty() {
            let help = "Say where the brokers are, for example 'kafka.bootstrap.servers' = \
                        'localhost:9092'";
            return Err(OptionError::missing("kafka.bootstrap.servers", help));
        }
        Ok(parsed)
    }

    /// `kafka.bootstrap.servers`.
    pub fn servers(&self) -> &str {
        self.get(SERVERS).unwrap_or_default()
    }

    /// A setting under librdkafka's name.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }

    /// All settings and their values.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Who gives tokens, where users are known by them.
    pub fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_ref()
    }

    fn set_tokens(&mut self, options: &TokenOptions) -> Result<(), OptionError> {
        let mechanism = self.get("sasl.mechanism").or(self.get("sasl.mechanisms"));
        let mechanism = mechanism.unwrap_or_default().trim().to_ascii_uppercase();
        let protocol = self.get("security.protocol").unwrap_or_default();
        let has_login = protocol.trim().to_ascii_lowercase().starts_with("sasl");
        let is_iam = mechanism == AWS_MSK_IAM;
        if has_login && (is_iam || mechanism == OAUTHBEARER) {
            self.tokens = Some(options.tokens(is_iam, self.servers())?);
            self.settings.remove("sasl.mechanisms");
            self.settings.insert("sasl.mechanism".to_owned(), OAUTHBEARER.to_owned());
        }
        Ok(())
    }

    /// Whose code writes transactions.
    pub fn transactions(&self) -> Implementation {
        self.transactions
    }

    /// How long a record may wait for its acknowledgement.
    pub fn delivery_timeout(&self) -> Duration {
        let given = self.get("message.timeout.ms").or(self.get("delivery.timeout.ms"));
        match given.and_then(|text| text.trim().parse().ok()).unwrap_or(DELIVERY_TIMEOUT_MS) {
            // For ever.
            0 => Duration::MAX,
            timeout => Duration::from_millis(timeout),
        }
    }

    /// Whose code reads, and writes at least once.
    pub fn client(&self) -> Implementation {
        self.client
    }

    /// How long a transaction may be open.
    pub fn transaction_timeout(&self) -> Duration {
        let timeout = self.get(TRANSACTION_TIMEOUT).and_then(|text| text.trim().parse().ok());
        Duration::from_millis(timeout.unwrap_or(TRANSACTION_TIMEOUT_MS))
    }

    /// The largest record that a client with these settings sends, in bytes.
    pub fn record_bytes_max(&self) -> usize {
        let given = self.get("message.max.bytes").and_then(|text| text.trim().parse().ok());
        given.unwrap_or(RECORD_BYTES_MAX)
    }

    /// Settings of the client that reads records.
    /// With a limit of memory the client holds back no more than its share.
    pub fn reader(&self, memory: Option<Memory>) -> ClientConfig {
        let queue = memory.map_or(QUEUE_BYTES_MAX, Memory::client_queue).min(QUEUE_BYTES_MAX);
        let queue_kb = (queue >> 10).max(1).to_string();
        let mut config = self.with_defaults(&[
            // Spark's default. librdkafka's own is read_committed.
            ("isolation.level", "read_uncommitted"),
            // A broker answers at once when it has something. A shorter wait only lets partitions
            // that are added later join the next request sooner.
            ("fetch.wait.max.ms", "100"),
            // How soon fetching resumes after the queue was full; the default is a second.
            ("fetch.queue.backoff.ms", "5"),
            ("queued.max.messages.kbytes", &queue_kb),
        ]);
        if memory.is_some() && FETCH_SIZES.iter().all(|key| self.get(key).is_none()) {
            // One answer of a broker; a larger record comes alone.
            config.set("fetch.max.bytes", queue.max(FETCH_BYTES_MIN).to_string());
        }
        // Set after the user's settings, because the reader relies on them: the end of a partition
        // tells a replay that its range is complete, offsets live in the checkpoint, and an offset
        // that is gone is an error to be reported and not a reason to jump to another place.
        config.set("enable.partition.eof", "true");
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        config.set("auto.offset.reset", "error");
        // The reader is not a member of a group: it needs no coordinator.
        config.remove("group.id");
        config
    }

    /// Settings of the client that asks about partitions, and commits to `group`, if there is one.
    pub fn control(&self, group: Option<&str>) -> ClientConfig {
        // The client is no member of the group. The time-out is how long a commit waits for its
        // coordinator, and so how long closing the client may take: 45 s by default if no broker
        // answers.
        let defaults = [("isolation.level", "read_uncommitted"), ("session.timeout.ms", "6000")];
        let mut config = self.with_defaults(&defaults);
        match group {
            Some(group) => config.set("group.id", group),
            None => config.remove("group.id"),
        };
        config.set("enable.auto.commit", "false");
        config
    }

    /// Settings of the client that writes records.
    pub fn producer(&self) -> ClientConfig {
        let mut defaults = vec![
            ("linger.ms", "0"),
            // Records without a key stay with one partition for a moment: a micro-batch of them is
            // one write instead of one per partition. Without linger the client would not do so.
            ("sticky.partitioning.linger.ms", "10"),
            // What Kafka's Java client does, so that both send a key to the same partition.
            ("partitioner", "murmur2_random"),
            ("queue.buffering.max.messages", "1000000"),
            ("queue.buffering.max.kbytes", "524288"),
        ];
        let acks = self.get("acks").or(self.get("request.required.acks"));
        // Without it a retry may double records or change their order.
        if acks.is_none_or(|acks| matches!(acks, "all" | "-1")) {
            defaults.push(("enable.idempotence", "true"));
        }
        self.with_defaults(&defaults)
    }

    /// As [`producer`](Self::producer), for a topic of `partitions` partitions; 0 if their number
    /// is not known.
    ///
    /// The client puts the batch of one partition into a request, and has five under way to a
    /// broker. With few partitions and no linger that makes a request of nearly each record, and at
    /// 10,000 a second the broker does nothing else. With two under way, records gather while they
    /// are. With many partitions each would wait for its turn.
    pub fn producer_to(&self, partitions: usize) -> ClientConfig {
        let mut config = self.producer();
        let is_open = IN_FLIGHT.iter().all(|key| self.get(key).is_none());
        if is_open && (1..=FEW_PARTITIONS).contains(&partitions) {
            config.set(IN_FLIGHT[0], IN_FLIGHT_FOR_FEW_PARTITIONS);
        }
        config
    }

    /// Settings of a client that writes transactions under `id`, and how long one may be open.
    pub fn transactional(&self, id: &str) -> (ClientConfig, Duration) {
        let mut config = self.producer();
        config.set("transactional.id", id);
        let timeout = self.transaction_timeout();
        config.set(TRANSACTION_TIMEOUT, timeout.as_millis().to_string());
        // The client refuses a record that may wait longer than its transaction lives.
        for key in ["message.timeout.ms", "delivery.timeout.ms"] {
            let given = self.get(key).and_then(|text| text.trim().parse::<u128>().ok());
            if given.is_some_and(|given| given == 0 || given > timeout.as_millis()) {
                config.set(key, timeout.as_millis().to_string());
            }
        }
        if self.get("retry.backoff.ms").is_none() {
            // How soon a broker that is busy with the end of a transaction is asked again.
            config.set("retry.backoff.ms", "5");
        }
        (config, timeout)
    }

    /// The setting that makes transactions impossible, if there is one.
    pub fn setting_against_transactions(&self) -> Option<&'static str> {
        let is = |key: &str, fits: fn(&str) -> bool| self.get(key).is_some_and(fits);
        if is("acks", |acks| !matches!(acks, "all" | "-1"))
            || is("request.required.acks", |acks| !matches!(acks, "all" | "-1"))
        {
            return Some("acks");
        }
        is("enable.idempotence", |on| on == "false").then_some("enable.idempotence")
    }

    fn with_defaults(&self, defaults: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("client.id", "millstream");
        for (key, value) in defaults {
            config.set(*key, *value);
        }
        for (key, value) in &self.settings {
            config.set(key, value);
        }
        config.set_log_level(log_level());
        config
    }
}

fn implementation(spelled: &str, value: &str) -> Result<Implementation, OptionError> {
    match value.trim().to_ascii_lowercase().as_str() {
        // `own` is the name that earlier versions had for it.
        "protocol" | "own" => Ok(Implementation::Protocol),
        "librdkafka" => Ok(Implementation::Librdkafka),
        _ => Err(OptionError::invalid(spelled, value, "'protocol' or 'librdkafka'")),
    }
}

enum Converted {
    Setting(String, String),
    Several(Vec<(String, String)>),
}

fn convert(key: &str, spelled: &str, value: &str, purpose: Use) -> Result<Converted, OptionError> {
    let setting = |key: &str, value: &str| Converted::Setting(key.to_owned(), value.to_owned());
    if let Some(reason) = refused(key, purpose) {
        let problem = format!("'{spelled}' cannot be set");
        return Err(OptionError::of(spelled, problem, Some(reason.to_owned())));
    }
    if key == "sasl.jaas.config" {
        return security::jaas(spelled, value);
    }
    // Java's clients write nothing for none.
    if key == "ssl.endpoint.identification.algorithm" && value.trim().is_empty() {
        return Ok(setting(key, "none"));
    }
    Ok(match translation(key, purpose) {
        None => setting(key, value),
        Some(Translation::Name(name)) => setting(name, value),
        Some(Translation::Kibibytes(name)) => {
            let Ok(bytes) = value.trim().parse::<u64>() else {
                return Err(OptionError::invalid(spelled, value, "a whole number of bytes"));
            };
            setting(name, &bytes.div_ceil(1024).max(1).to_string())
        }
        Some(Translation::NoEffect) => Converted::Several(Vec::new()),
        Some(Translation::Refuse(help)) => {
            let problem = format!("'{spelled}' is a setting of Kafka's Java client only");
            return Err(OptionError::of(spelled, problem, Some(help.to_owned())));
        }
    })
}

/// Checks one setting on an empty configuration, without connecting.
fn check(key: &str, spelled: &str, value: &str) -> Result<(), OptionError> {
    let mut config = ClientConfig::new();
    config.set(key, value);
    // One setting at a time, so that an error names the option; on an empty configuration, because
    // settings that depend on each other are checked when the client is made.
    let Err(error) = config.create_native_config() else { return Ok(()) };
    let KafkaError::ClientConfig(result, text, ..) = error else {
        return Err(OptionError::of(spelled, format!("'{spelled}': {error}"), None));
    };
    if result == RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN {
        let problem = format!("the Kafka client has no setting '{key}'");
        return Err(OptionError::of(spelled, problem, Some(suggestion(key))));
    }
    // Without TLS some settings are known but not built in; they get their own message.
    if cfg!(not(feature = "tls")) && (key.starts_with("ssl.") || key.contains("oauth")) {
        let problem = format!("'{spelled}' needs TLS, which this build does not have");
        let help = "Build Millstream with the feature 'kafka-tls'".to_owned();
        return Err(OptionError::of(spelled, problem, Some(help)));
    }
    Err(OptionError::of(spelled, format!("'{spelled}' is '{value}': {text}"), None))
}

/// Java names and aliases that are accepted beside librdkafka's own names.
const ALSO_KNOWN: [&str; 12] = [
    "acks",
    "batch.size",
    "bootstrap.servers",
    "buffer.memory",
    "compression.type",
    "delivery.timeout.ms",
    "fetch.max.wait.ms",
    "linger.ms",
    "max.partition.fetch.bytes",
    "max.request.size",
    "sasl.mechanism",
    "sasl.jaas.config",
];

fn suggestion(key: &str) -> String {
    static KNOWN: LazyLock<Vec<String>> = LazyLock::new(|| {
        known_settings().into_iter().chain(ALSO_KNOWN.map(str::to_owned)).collect()
    });
    let distance = |known: &&String| strsim::damerau_levenshtein(known, key);
    let nearest = KNOWN.iter().min_by_key(distance).expect("there are settings");
    if strsim::damerau_levenshtein(nearest, key) <= key.len().div_ceil(3) {
        format!("Did you mean '{PREFIX}{nearest}'?")
    } else {
        "Settings are librdkafka's; those of Kafka's Java client that have a counterpart are \
         translated"
            .to_owned()
    }
}

#[cfg(test)]
mod tests;
