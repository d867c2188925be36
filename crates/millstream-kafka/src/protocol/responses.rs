//! The bodies of answers, as far as they matter.
//!
//! An answer is read field by field in Kafka's order, and fields that do not matter are skipped.

use std::io;

use super::ProducerIdentity;
use super::error_code::ErrorCode;
use super::frame::Api;
use super::read::ResponseReader;

/// The feature that makes brokers add partitions and groups to transactions by themselves.
const FEATURE: &str = "transaction.version";
const FEATURE_LEVEL: i16 = 2;
/// The tagged field of the features that are in force.
const FINALIZED_FEATURES: u64 = 2;

/// Kafka's default port.
const PORT: u16 = 9092;

/// Host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Address {
    /// Reads `host`, `host:port` or `[address]:port`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.contains("//") {
            return None;
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (text, PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(Self { host: host.to_owned(), port })
    }
}

/// A broker and its number.
pub type Node = (i32, Address);

/// A topic as the brokers describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id, another one when it was made again under the same name; zeros for none.
    pub id: [u8; 16],
    /// The error of a topic that cannot be described.
    pub code: ErrorCode,
    /// The leader of each partition, by partition; -1 if there is none.
    pub leaders: Vec<i32>,
    /// The epoch of each leader, by partition: larger for each new leader of a topic; -1 if it is
    /// not known.
    pub epochs: Vec<i32>,
}

/// The outcome for one partition of a request about several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The error of that partition, or none.
    pub code: ErrorCode,
}

/// What a broker says that it can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spoken {
    /// For each kind of request its number, its oldest and its newest version.
    apis: Vec<(i16, i16, i16)>,
    /// Of transactions, the version in force.
    transactions: i16,
}

impl Spoken {
    /// True if it has all of `apis`, each in its version.
    pub fn has(&self, apis: &[Api]) -> bool {
        apis.iter().all(|api| {
            let fits = |(key, min, max): &(i16, i16, i16)| {
                *key == api.key && (*min..=*max).contains(&api.version)
            };
            self.apis.iter().any(fits)
        })
    }

    /// True if brokers add partitions to transactions by themselves.
    pub fn has_transactions(&self) -> bool {
        self.transactions >= FEATURE_LEVEL
    }
}

/// Mechanisms of SASL that a broker may name; nobody has more.
const MECHANISMS_MAX: i32 = 100;

/// Whether the broker takes the mechanism that was asked for, and which ones it takes.
pub fn sasl_handshake(body: &mut ResponseReader<'_>) -> io::Result<(ErrorCode, Vec<String>)> {
    let code = ErrorCode(body.i16()?);
    let count = body.i32()?.clamp(0, MECHANISMS_MAX);
    let known = (0..count).map(|_| body.short_text()).collect::<io::Result<_>>()?;
    Ok((code, known))
}

/// What a broker says to a message of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginAnswer {
    /// The error, or none.
    pub code: ErrorCode,
    /// The error in words.
    pub reason: Option<String>,
    /// The mechanism's own answer.
    pub message: String,
    /// How long the login counts, in milliseconds; 0 for any time.
    pub lifetime_ms: i64,
}

/// The answer to a message of a login.
pub fn sasl_authenticate(body: &mut ResponseReader<'_>) -> io::Result<LoginAnswer> {
    let answer = LoginAnswer {
        code: ErrorCode(body.i16()?),
        reason: body.text_or_null()?,
        message: body.text_or_null()?.unwrap_or_default(),
        lifetime_ms: body.i64()?,
    };
    body.end()?;
    Ok(answer)
}

/// What the broker can do; nothing if it does not know the question.
pub fn api_versions(body: &mut ResponseReader<'_>) -> io::Result<Spoken> {
    if body.i16()? != 0 {
        return Ok(Spoken::default());
    }
    let apis = body.list(|api| {
        let range = (api.i16()?, api.i16()?, api.i16()?);
        api.end()?;
        Ok(range)
    })?;
    body.throttle()?;
    let mut transactions = 0;
    body.tagged(|tag, field| {
        if tag == FINALIZED_FEATURES {
            transactions = feature_level(field)?;
        }
        Ok(())
    })?;
    Ok(Spoken { apis, transactions })
}

fn feature_level(field: &mut ResponseReader<'_>) -> io::Result<i16> {
    let features = field.list(|feature| {
        let (name, max) = (feature.text()?, feature.i16()?);
        feature.i16()?;
        feature.end()?;
        Ok((name, max))
    })?;
    Ok(features.into_iter().find(|(name, _)| name == FEATURE).map_or(0, |(_, level)| level))
}

fn node(body: &mut ResponseReader<'_>) -> io::Result<Node> {
    let (id, host, port) = (body.i32()?, body.text()?, body.i32()?);
    Ok((id, Address { host, port: u16::try_from(port).unwrap_or(0) }))
}

/// Brokers and topics.
pub fn metadata(body: &mut ResponseReader<'_>) -> io::Result<(Vec<Node>, Vec<Topic>)> {
    body.throttle()?;
    let nodes = body.list(|broker| {
        let node = node(broker)?;
        broker.text_or_null()?;
        broker.end()?;
        Ok(node)
    })?;
    // The cluster's id and its controller.
    body.text_or_null()?;
    body.i32()?;
    let topics = body.list(topic)?;
    body.end()?;
    Ok((nodes, topics))
}

fn topic(body: &mut ResponseReader<'_>) -> io::Result<Topic> {
    let (code, name) = (ErrorCode(body.i16()?), body.text_or_null()?.unwrap_or_default());
    let id = body.id()?;
    // Whether the topic is internal.
    body.skip(1)?;
    let partitions = body.list(partition)?;
    body.i32()?;
    body.end()?;
    let (mut leaders, mut epochs) = (vec![-1; partitions.len()], vec![-1; partitions.len()]);
    for (partition, leader, epoch) in partitions {
        let at = usize::try_from(partition).unwrap_or(usize::MAX);
        if at < leaders.len() {
            (leaders[at], epochs[at]) = (leader, epoch);
        }
    }
    Ok(Topic { name, id, code, leaders, epochs })
}

/// A partition's number, its leader, and the leader's epoch.
fn partition(body: &mut ResponseReader<'_>) -> io::Result<(i32, i32, i32)> {
    body.i16()?;
    let (partition, leader, epoch) = (body.i32()?, body.i32()?, body.i32()?);
    // Replicas: all, in sync, offline.
    for _ in 0..3 {
        body.list(ResponseReader::i32)?;
    }
    body.end()?;
    Ok((partition, leader, epoch))
}

/// The broker that was looked for, or why there is none.
pub fn find_coordinator(body: &mut ResponseReader<'_>) -> io::Result<Result<Address, ErrorCode>> {
    body.throttle()?;
    let found = body.list(|found| {
        found.text()?;
        let (_, address) = node(found)?;
        let code = ErrorCode(found.i16()?);
        found.text_or_null()?;
        found.end()?;
        Ok((code, address))
    })?;
    body.end()?;
    Ok(match found.into_iter().next() {
        Some((ErrorCode::NONE, address)) => Ok(address),
        Some((code, _)) => Err(code),
        None => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
    })
}

/// The producer's id and epoch from now on, or why there are none.
pub fn init_producer_id(
    body: &mut ResponseReader<'_>,
) -> io::Result<Result<ProducerIdentity, ErrorCode>> {
    body.throttle()?;
    identity(body)
}

/// For each partition, whether it belongs to the transaction now.
pub fn add_partitions_to_txn(body: &mut ResponseReader<'_>) -> io::Result<Vec<Outcome>> {
    body.throttle()?;
    let added = by_topic(body, |partition| Ok((partition.i32()?, ErrorCode(partition.i16()?))))?;
    body.end()?;
    Ok(added)
}

/// The producer's id and epoch for the next transaction, or why this one is not ended.
pub fn end_txn(body: &mut ResponseReader<'_>) -> io::Result<Result<ProducerIdentity, ErrorCode>> {
    body.throttle()?;
    identity(body)
}

fn identity(body: &mut ResponseReader<'_>) -> io::Result<Result<ProducerIdentity, ErrorCode>> {
    let code = ErrorCode(body.i16()?);
    let identity = ProducerIdentity { id: body.i64()?, epoch: body.i16()? };
    body.end()?;
    Ok(if code == ErrorCode::NONE { Ok(identity) } else { Err(code) })
}

/// The outcome of each batch.
pub fn produce(body: &mut ResponseReader<'_>) -> io::Result<Vec<Outcome>> {
    let written = by_topic(body, |partition| {
        let (index, code) = (partition.i32()?, ErrorCode(partition.i16()?));
        // The base offset, the time of appending and the start of the log, eight bytes each.
        partition.skip(24)?;
        partition.list(|record| {
            record.i32()?;
            record.text_or_null()?;
            record.end()
        })?;
        partition.text_or_null()?;
        Ok((index, code))
    })?;
    body.throttle()?;
    body.end()?;
    Ok(written)
}

fn by_topic(
    body: &mut ResponseReader<'_>,
    mut each: impl FnMut(&mut ResponseReader<'_>) -> io::Result<(i32, ErrorCode)>,
) -> io::Result<Vec<Outcome>> {
    let topics = body.list(|topic| {
        let name = topic.text()?;
        let partitions = topic.list(|partition| {
            let (index, code) = each(partition)?;
            partition.end()?;
            Ok(Outcome { topic: name.clone(), partition: index, code })
        })?;
        topic.end()?;
        Ok(partitions)
    })?;
    Ok(topics.into_iter().flatten().collect())
}
