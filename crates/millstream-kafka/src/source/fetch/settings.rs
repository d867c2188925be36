//! Which `kafka.*` settings the protocol reader understands. With any other one, librdkafka reads.

use millstream_engine::api::connector::Memory;

use crate::brokers::settings::{ConnectionSettings, NotSpoken, is_of_connections};
use crate::client::settings::{ClientSettings, Implementation};
use crate::protocol::fetch::FetchLimits;

/// How long a broker waits for records. It answers at once when it has some; a shorter wait only
/// lets partitions that are added later join the next request sooner.
const WAIT_MS: i32 = 100;
/// Defaults of Kafka's Java client.
const BYTES_MAX: i32 = 50 << 20;
const PARTITION_BYTES_MAX: i32 = 1 << 20;
/// With a limit of memory, the least that one answer may be.
const BYTES_LEAST: usize = 1 << 20;

const READ: [&str; 8] = [
    "fetch.wait.max.ms",
    "fetch.min.bytes",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "fetch.message.max.bytes",
    "isolation.level",
    "client.rack",
    "check.crcs",
];
/// Settings of librdkafka's queues, and of groups, which the reader is not a member of; the client
/// that commits offsets has them.
const WITHOUT_EFFECT: [&str; 17] = [
    "queued.min.messages",
    "queued.max.messages.kbytes",
    "fetch.queue.backoff.ms",
    "fetch.error.backoff.ms",
    "receive.message.max.bytes",
    "message.max.bytes",
    "socket.timeout.ms",
    "allow.auto.create.topics",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "consume.callback.max.messages",
];

/// What the protocol reader needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchSettings {
    /// How connections are made.
    pub connections: ConnectionSettings,
    /// How much is asked for.
    pub limits: FetchLimits,
    /// Whether what all brokers send together is limited so, and not what each sends.
    pub shares: bool,
    /// Whether checksums are looked at.
    pub checks: bool,
}

impl FetchSettings {
    /// Those of a client; with a limit of memory an answer has its share.
    ///
    /// # Errors
    /// Only librdkafka has one of them.
    pub fn of(settings: &ClientSettings, memory: Option<Memory>) -> Result<Self, NotSpoken> {
        if settings.client() == Implementation::Librdkafka {
            return Err(NotSpoken::Wanted);
        }
        let is_known =
            |key| is_of_connections(key) || READ.contains(&key) || WITHOUT_EFFECT.contains(&key);
        if let Some((key, _)) = settings.all().find(|(key, _)| !is_known(key)) {
            return Err(NotSpoken::Setting(key.to_owned()));
        }
        let number = |key: &str, default: i32| match settings.get(key) {
            Some(text) => text.trim().parse().map_err(|_| NotSpoken::Setting(key.to_owned())),
            None => Ok(default),
        };
        let share = memory.map(|memory| memory.client_queue().max(BYTES_LEAST));
        let share = share.and_then(|share| i32::try_from(share).ok());
        let partition = match settings.get("fetch.message.max.bytes") {
            Some(_) => "fetch.message.max.bytes",
            None => "max.partition.fetch.bytes",
        };
        let text = |key| settings.get(key).map(|text: &str| text.trim().to_ascii_lowercase());
        let only_committed = match text("isolation.level").as_deref() {
            Some("read_committed") => true,
            None | Some("read_uncommitted") => false,
            Some(_) => return Err(NotSpoken::Setting("isolation.level".to_owned())),
        };
        Ok(Self {
            connections: ConnectionSettings::of(settings)?,
            limits: FetchLimits {
                wait_ms: number("fetch.wait.max.ms", WAIT_MS)?,
                bytes_min: number("fetch.min.bytes", 1)?,
                bytes_max: number(
                    "fetch.max.bytes",
                    share.map_or(BYTES_MAX, |share| share.min(BYTES_MAX)),
                )?,
                partition_bytes_max: number(partition, PARTITION_BYTES_MAX)?,
                only_committed,
                rack: settings.get("client.rack").unwrap_or_default().to_owned(),
            },
            shares: share.is_some(),
            checks: !matches!(text("check.crcs").as_deref(), Some("false" | "f" | "0")),
        })
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::api::options::Options;

    use super::*;
    use crate::client::settings::Use;

    fn of(entries: &[(&str, &str)]) -> Result<FetchSettings, NotSpoken> {
        let servers = [("kafka.bootstrap.servers", "a:1")];
        let entries = servers.iter().chain(entries);
        let entries = entries.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let settings = ClientSettings::parse(&Options::new(entries), Use::Consumer).unwrap();
        FetchSettings::of(&settings, None)
    }

    #[test]
    fn values_count_in_any_case_and_unknown_settings_are_librdkafkas() {
        let usual = of(&[]).unwrap();
        assert!(!usual.limits.only_committed && usual.checks && !usual.shares);
        let committed = of(&[("kafka.isolation.level", "READ_COMMITTED")]).unwrap();
        assert!(committed.limits.only_committed);
        let unchecked = of(&[("kafka.check.crcs", "False"), ("kafka.fetch.min.bytes", "7")]);
        let unchecked = unchecked.unwrap();
        assert!(!unchecked.checks);
        assert_eq!(unchecked.limits.bytes_min, 7);
        let other = of(&[("kafka.broker.address.family", "v6")]);
        assert_eq!(other, Err(NotSpoken::Setting("broker.address.family".to_owned())));
        let wanted = of(&[("kafka.millstream.client", "librdkafka")]);
        assert_eq!(wanted, Err(NotSpoken::Wanted));
    }
}
