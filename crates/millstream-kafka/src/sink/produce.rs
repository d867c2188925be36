//! Writes the batches of a micro-batch, in a transaction or in none: what was refused for a while
//! or lost with a connection goes out again, the same bytes under the same numbers, of which the
//! brokers keep one.
//!
//! A partition has one batch under way at a time: the brokers remember only the last few batches
//! of a producer in a partition, so an older one that is repeated would not be recognized.

use std::collections::HashMap;
use std::time::Duration;

use millstream_engine::api::contact::ContactWith;
use millstream_store::crash_points::{self, Step};
use millstream_store::env::Env;

use super::record_batches::{Limits, PartitionBatches};
use crate::brokers::request_error::{RequestError, as_librdkafka};
use crate::brokers::tries::Tries;
use crate::brokers::{Brokers, Purpose};
use crate::error::SinkError;
use crate::protocol::ProducerIdentity;
use crate::protocol::connection::Connection;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::frame::{PRODUCE, PRODUCE_ALONE};
use crate::protocol::requests::{self, Batches, Partitions};
use crate::protocol::responses::{self, Address, Outcome};
use crate::sink::columns::SinkRows;

/// Bytes of one request, unless its first batch is larger.
const REQUEST_BYTES: usize = 4 << 20;
/// How long a broker may wait for its replicas.
const REPLICAS_PATIENCE_MS: i32 = 8_000;

/// How long a topic may be unknown: it may just have been created.
const TOPIC_PATIENCE: Duration = Duration::from_secs(10);

/// Why batches cannot be written.
pub enum Failure {
    /// A step failed.
    Step(&'static str, RequestError),
    /// The brokers refuse a row.
    Row(SinkError),
}

/// Batches that are being written.
pub struct Filling<'a> {
    /// The transactional id, if they belong to a transaction.
    pub transaction: Option<&'a str>,
    /// Who writes.
    pub writer: ProducerIdentity,
    /// What is written, to name a row.
    pub rows: &'a [SinkRows],
    /// The time that records get.
    pub timestamp_ms: i64,
    /// How large things may be.
    pub limits: Limits,
    /// Batches that the brokers have not acknowledged yet, by partition.
    pub parts: Vec<PartitionBatches>,
}

/// The problems of one round of requests.
#[derive(Default)]
pub struct Round {
    /// A transient problem, or the refusal of a transaction's writer.
    pub problem: Option<RequestError>,
    /// Who has refused the writer. One such [word](ErrorCode::is_about_writer) proves nothing yet.
    pub refused_by: Option<Address>,
    /// True if a request belongs to another broker.
    misplaced: bool,
}

impl Round {
    /// Notes a transient problem; any other is an error.
    fn note(&mut self, step: &'static str, problem: RequestError) -> Result<(), Failure> {
        if !problem.may_pass() {
            return Err(Failure::Step(step, problem));
        }
        // A lost connection may mean a lost broker.
        self.misplaced |= problem.code().is_none_or(ErrorCode::is_misplaced);
        // A refusal weighs more than what passes.
        if self.refused_by.is_none() {
            self.problem = Some(problem);
        }
        Ok(())
    }

    /// Notes that a broker has refused the writer of a transaction.
    fn refuse(&mut self, by: &Address, code: ErrorCode) {
        self.refused_by = Some(by.clone());
        self.problem = Some(RequestError::Refused(code));
    }
}

impl Filling<'_> {
    /// How many batches the brokers do not have yet.
    pub fn left(&self) -> usize {
        self.parts.iter().map(|part| part.batches.len()).sum()
    }

    /// True once the brokers have everything.
    pub fn is_done(&self) -> bool {
        self.parts.is_empty()
    }

    /// True if more than one broker leads what is to be written, as far as leaders are known.
    pub fn is_spread(&self, brokers: &mut Brokers) -> bool {
        let mut leaders = self.parts.iter().map(|part| brokers.leader(&part.topic, part.partition));
        let first = leaders.next().and_then(Result::ok);
        leaders.any(|leader| leader.ok() != first)
    }

    /// The partitions that are to be written to, by topic.
    pub fn partitions(&self) -> Vec<Partitions<'_>> {
        by_topic(self.parts.iter().map(|part| (part.topic.as_str(), part.partition)))
    }

    /// Sends each partition's next batch, those of a broker in one request. Returns where to.
    pub fn send_parts(
        &self,
        brokers: &mut Brokers,
        round: &mut Round,
    ) -> Result<Vec<Address>, Failure> {
        let mut by_leader: Vec<(Address, usize, Vec<&PartitionBatches>)> = Vec::new();
        for part in &self.parts {
            let leader = match brokers.leader(&part.topic, part.partition) {
                Ok(leader) => leader,
                Err(problem) => {
                    round.note(ROWS, problem)?;
                    continue;
                }
            };
            let bytes = part.batches.front().map_or(0, |packed| packed.batch.bytes());
            match by_leader.iter_mut().find(|(found, ..)| *found == leader) {
                Some((_, sum, parts)) if *sum + bytes <= REQUEST_BYTES => {
                    *sum += bytes;
                    parts.push(part);
                }
                // The request is full: this part waits for the next round.
                Some(_) => {}
                None => by_leader.push((leader, bytes, vec![part])),
            }
        }
        let mut sent = Vec::new();
        for (leader, _, parts) in by_leader {
            let topics = self.encode(&parts);
            let transaction = self.transaction;
            let body =
                |body: &mut _| requests::produce(body, transaction, REPLICAS_PATIENCE_MS, &topics);
            let channel = (leader, Purpose::Rows);
            let api = if transaction.is_some() { PRODUCE } else { PRODUCE_ALONE };
            match brokers.using(&channel, |connection| connection.send(api, body)) {
                Ok(()) => sent.push(channel.0),
                Err(problem) => round.note(ROWS, problem)?,
            }
        }
        // All requests are sent before the first answer is awaited, so brokers write at the same
        // time.
        crash_points::reached(Step::AfterProduce);
        Ok(sent)
    }

    fn encode<'b>(&self, parts: &[&'b PartitionBatches]) -> Vec<Batches<'b>> {
        by_topic(parts.iter().filter_map(|part| {
            let batch = part.batches.front()?.batch.encode(
                self.writer,
                part.sequence,
                self.transaction.is_some(),
                self.timestamp_ms,
                self.limits.compression,
            );
            Some((part.topic.as_str(), (part.partition, batch)))
        }))
    }

    /// Takes the answers of the brokers that batches were sent to.
    pub fn await_parts(
        &mut self,
        brokers: &mut Brokers,
        sent: Vec<Address>,
        round: &mut Round,
    ) -> Result<(), Failure> {
        // The answers of all are read, whatever one says: a later request on the same connection
        // would take an answer that was left for its own.
        let mut failed = None;
        for leader in sent {
            let receive = |connection: &mut Connection| connection.receive(responses::produce);
            let channel = (leader, Purpose::Rows);
            let outcomes = match brokers.using(&channel, receive) {
                Ok(written) => {
                    written.into_iter().map(|it| self.note_written(it, &channel.0, round)).collect()
                }
                Err(problem) => vec![round.note(ROWS, problem)],
            };
            for outcome in outcomes {
                if let Err(failure) = outcome {
                    failed.get_or_insert(failure);
                }
            }
        }
        self.parts.retain(|part| !part.batches.is_empty());
        failed.map_or(Ok(()), Err)
    }

    fn note_written(
        &mut self,
        written: Outcome,
        leader: &Address,
        round: &mut Round,
    ) -> Result<(), Failure> {
        let is_it = |part: &&mut PartitionBatches| {
            part.partition == written.partition && part.topic == written.topic
        };
        let Some(part) = self.parts.iter_mut().find(is_it) else { return Ok(()) };
        match written.code {
            // A duplicate was written by an earlier attempt whose answer was lost.
            ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE => {
                let packed = part.batches.pop_front();
                part.sequence += packed.map_or(0, |packed| packed.batch.count());
                Ok(())
            }
            code if code.is_about_rows() => {
                let code = match code {
                    ErrorCode::RECORD_LIST_TOO_LARGE => ErrorCode::MESSAGE_TOO_LARGE,
                    code => code,
                };
                let code = as_librdkafka(code);
                Err(Failure::Row(part.refused(self.rows, code, self.limits)))
            }
            // Without a transaction, a new writer can be had and nothing is lost by asking for one.
            code if self.transaction.is_some() && code.is_about_writer() => {
                round.refuse(leader, code);
                Ok(())
            }
            code => round.note(ROWS, RequestError::Refused(code)),
        }
    }

    /// Forgets leaders and coordinators, if a round has shown that they have moved, or if one has
    /// refused the writer: it may not have noticed that others lead now.
    pub fn learn(&self, brokers: &mut Brokers, round: &Round) {
        match &round.refused_by {
            Some(by) => brokers.distrust(by),
            None if round.misplaced => brokers.forget(),
            None => {}
        }
    }
}

/// What there is of each topic, in the order in which the topics come.
fn by_topic<'a, T>(parts: impl Iterator<Item = (&'a str, T)>) -> Vec<(&'a str, Vec<T>)> {
    let mut topics: Vec<(&str, Vec<T>)> = Vec::new();
    for (topic, part) in parts {
        match topics.iter_mut().find(|(known, _)| *known == topic) {
            Some((_, parts)) => parts.push(part),
            None => topics.push((topic, vec![part])),
        }
    }
    topics
}

/// The step in which rows are written, for messages.
pub const ROWS: &str = "its rows";

/// The brokers do not say how many partitions a topic has.
pub struct NoPartitions {
    /// The topic.
    pub topic: String,
    /// Why.
    pub problem: RequestError,
}

/// How many partitions each of `topics` has. Asks again until `gives_up` says that it has taken too
/// long, which is looked at after each failure; a topic may have just been created.
pub fn partitions(
    brokers: &mut Brokers,
    topics: &[&str],
    contact: &ContactWith,
    env: &Env,
    gives_up: impl Fn(&RequestError) -> bool,
) -> Result<HashMap<String, usize>, NoPartitions> {
    let mut counts = HashMap::new();
    let mut tries = Tries::new(env);
    for topic in topics {
        loop {
            match brokers.partitions(topic) {
                Ok(count) => {
                    counts.insert((*topic).to_owned(), count);
                    break;
                }
                Err(problem) if !problem.may_pass() || gives_up(&problem) => {
                    return Err(NoPartitions { topic: (*topic).to_owned(), problem });
                }
                Err(problem) => tries.failed(&problem, contact),
            }
        }
    }
    Ok(counts)
}

/// How long the partitions of a topic are asked for where `problem` is the answer, and `patience`
/// is that for everything else.
pub fn patience_for(problem: &RequestError, patience: Duration) -> Duration {
    match problem.code() {
        Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => TOPIC_PATIENCE,
        _ => patience,
    }
}
