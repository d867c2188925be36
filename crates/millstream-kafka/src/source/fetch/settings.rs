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
        let is = |key, value| settings.get(key).is_some_and(|text| text.trim() == value);
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
                only_committed: is("isolation.level", "read_committed"),
                rack: settings.get("client.rack").unwrap_or_default().to_owned(),
            },
            checks: !is("check.crcs", "false"),
        })
    }
}
