//! A transaction over Kafka's protocol, without librdkafka: for brokers with transactions of
//! version 2 (Kafka 4) and for plain settings.
//!
//! Version 2 lets the brokers themselves add partitions and groups to a transaction when something
//! is written to them. So a transaction is two requests, one after the other:
//!
//! ```text
//! fill  pack; rows and the record of progress    one request to each leader
//! end   commit                                   to the coordinator; answers the next epoch
//! ```
//!
//! With several leaders there is a request before these, for the reason that [enlisting] gives.
//!
//! While one client ends its transaction the next fills its own.
//!
//! The record is written into a [topic](super::record_topic), and not as an offset of a group,
//! which would be a request of its own to another coordinator. Beside the rows' request one of the
//! two is often refused, since the transaction's coordinator has the id already in hand; after it,
//! the broker adds to the transaction a second time, which takes as long as the whole end.
//!
//! An id that has just been ended still waits for its markers, and the brokers would hold its next
//! transaction back by 20 ms and more. So here, too, [`rotation`](super::rotation) is the way.
//!
//! A lost connection, a leader that moves or a broker that restarts does no harm: the same request
//! is sent again for as long as the transaction lives. Every client has connections of its own.
//! So it is with [refusals] by a broker that does not know yet that another one leads.

mod enlisting;
mod fencing;
mod refusals;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::contact::ContactWith;
use millstream_store::crash_points::{self, Step};
use millstream_store::env::Env;

use super::progress::{self, Origin};
use super::rotation::{Content, Transactor};
use crate::brokers::request_error::{RequestError, as_librdkafka};
use crate::brokers::tries::Tries;
use crate::brokers::{Brokers, Purpose};
use crate::error::SinkError;
use crate::protocol::ProducerIdentity;
use crate::protocol::connection::Connection;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::frame::END_TXN;
use crate::protocol::requests;
use crate::protocol::responses;
use crate::sink::produce::{self, Failure, Filling, NoPartitions, ROWS, Round};
use crate::sink::record_batches::{self, Limits, Packing, PartitionBatches};
pub use fencing::{BrokerSupport, broker_support};
pub use settings::ProtocolSettings;

/// How long aborting may take at the end of a query that failed. The brokers would do it, too.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);
/// How long the commit of a transaction may be without an answer, beyond the transaction's life.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

const COMMIT: &str = "its commit";

/// A client with a transactional id.
pub struct ProtocolClient {
    id: String,
    record_topic: String,
    topic: Option<Arc<str>>,
    origin: Arc<Origin>,
    contact: Arc<ContactWith>,
    timeout: Duration,
    limits: Limits,
    writer: ProducerIdentity,
    brokers: Brokers,
    env: Env,
    /// When the transaction began, on the monotonic clock.
    begun: Duration,
    /// For how long it was open when the writer was first refused in the present step.
    refused_after: Option<Duration>,
}

impl ProtocolClient {
    fn open_for(&self) -> Duration {
        self.env.monotonic().saturating_sub(self.begun)
    }

    /// Divides the rows among partitions, whose number the brokers are asked for first.
    fn pack(&mut self, content: &Content) -> Result<Vec<PartitionBatches>, SinkError> {
        let topics = record_batches::topics(&content.rows, self.topic.as_deref())?;
        let (env, begun, timeout) = (&self.env, self.begun, self.timeout);
        let gives_up = |problem: &RequestError| {
            let open_for = env.monotonic().saturating_sub(begun);
            open_for > produce::patience_for(problem, timeout)
        };
        let found = produce::partitions(&mut self.brokers, &topics, &self.contact, env, gives_up);
        let counts = found.map_err(|NoPartitions { topic, problem }| match problem.code() {
            Some(code) => SinkError::Topic { topic, code: as_librdkafka(code) },
            None => self.explain(ROWS, &problem),
        })?;
        let packing = Packing::new(&content.rows, self.limits, self.env.random_u64(), &counts);
        packing.pack(self.topic.as_deref())
    }

    fn write(&mut self, content: &Content) -> Result<(), SinkError> {
        let mut parts = self.pack(content)?;
        let record = progress::to_text(content.batch_id, &content.end_offsets, &self.origin);
        parts.push(PartitionBatches::from_text(self.record_topic.clone(), &record));
        let id = self.id.clone();
        self.write_all(&mut Filling {
            transaction: Some(&id),
            writer: self.writer,
            rows: &content.rows,
            timestamp_ms: self.env.now_ms(),
            limits: self.limits,
            parts,
        })
    }

    /// Sends what is missing until the brokers have it all.
    fn write_all(&mut self, filling: &mut Filling<'_>) -> Result<(), SinkError> {
        self.enlist(filling);
        let mut tries = Tries::new(&self.env);
        loop {
            let round = self.round(filling).map_err(|failure| self.failed(failure))?;
            if filling.is_done() {
                self.contact.answered();
                let us = self.open_for().as_micros();
                tracing::debug!(
                    id = self.id,
                    tries = tries.failed + 1,
                    us,
                    "wrote to a transaction"
                );
                return Ok(());
            }
            let Some(problem) = &round.problem else { continue };
            tracing::debug!(id = self.id, %problem, "a part of a transaction is sent again");
            let is_refused = round.refused_by.is_some() && self.believes_refusal();
            if is_refused || self.open_for() > self.timeout {
                return Err(self.explain(ROWS, problem));
            }
            tries.failed(problem, &self.contact);
            filling.learn(&mut self.brokers, &round);
        }
    }

    /// Sends what is missing, and takes the answers.
    fn round(&mut self, filling: &mut Filling<'_>) -> Result<Round, Failure> {
        let (brokers, mut round) = (&mut self.brokers, Round::default());
        let sent = filling.send_parts(brokers, &mut round)?;
        filling.await_parts(brokers, sent, &mut round)?;
        Ok(round)
    }

    /// Ends the transaction; repeated until the brokers answer, for as long as `patience` after
    /// its beginning.
    fn end(&mut self, commit: bool, patience: Duration) -> Result<(), RequestError> {
        let mut tries = Tries::new(&self.env);
        loop {
            let problem = match self.try_end(commit) {
                Ok(writer) => {
                    self.contact.answered();
                    self.writer = writer;
                    return Ok(());
                }
                Err(problem) => problem,
            };
            // Aborting is worth no wait: the brokers do it, too.
            let is_in_doubt = commit && self.is_in_doubt(&problem);
            let may_pass = problem.may_pass() || is_in_doubt;
            if !may_pass || self.open_for() > patience {
                return Err(problem);
            }
            tracing::debug!(id = self.id, %problem, "the end of a transaction is sent again");
            tries.failed(&problem, &self.contact);
            if is_in_doubt {
                self.brokers.distrust_coordinator(&self.id);
            } else if problem.code().is_none_or(ErrorCode::is_misplaced) {
                self.brokers.forget();
            }
        }
    }

    fn try_end(&mut self, commit: bool) -> Result<ProducerIdentity, RequestError> {
        let (id, writer) = (&self.id, self.writer);
        let channel = (self.brokers.coordinator(id)?, Purpose::Control);
        let body = |body: &mut _| requests::end_txn(body, id, writer, commit);
        let ask = |connection: &mut Connection| connection.ask(END_TXN, body, responses::end_txn);
        self.brokers.using(&channel, ask)?.map_err(RequestError::Refused)
    }

    fn failed(&self, failure: Failure) -> SinkError {
        match failure {
            Failure::Step(step, problem) => self.explain(step, &problem),
            Failure::Row(error) => error,
        }
    }

    /// What a problem means. The brokers abort a transaction after its time-out, and refuse its
    /// owner from then on.
    fn explain(&self, step: &'static str, problem: &RequestError) -> SinkError {
        let (id, open, timeout) = (self.id.clone(), self.open_before(problem), self.timeout);
        let is_too_old = open > timeout;
        match problem.code() {
            Some(code) if code.is_turned_away() && !is_too_old => SinkError::TakenOver { id },
            Some(code) if code.is_lost_transaction() && is_too_old => {
                SinkError::TimedOut { id, open, timeout }
            }
            // A commit without an answer may have succeeded, so it is not reported as timed out,
            // which would say that nothing is visible.
            _ if is_too_old && problem.may_pass() && step != COMMIT => {
                SinkError::TimedOut { id, open, timeout }
            }
            _ => {
                let (code, reason) = (problem.as_librdkafka(), problem.to_string());
                SinkError::Transaction { id, step, code, reason }
            }
        }
    }
}

impl Transactor for ProtocolClient {
    fn fill(&mut self, content: &Content) -> Result<(), SinkError> {
        crash_points::reached(Step::BeforeBegin);
        self.begun = self.env.monotonic();
        self.refused_after = None;
        self.write(content)?;
        crash_points::reached(Step::AfterOffsets);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), SinkError> {
        crash_points::reached(Step::BeforeCommit);
        let asked = self.env.monotonic();
        self.refused_after = None;
        let ended = self.end(true, self.timeout + ANSWER_PATIENCE);
        ended.map_err(|problem| self.explain(COMMIT, &problem))?;
        let took = self.env.monotonic().saturating_sub(asked);
        tracing::debug!(id = self.id, us = took.as_micros(), "committed a transaction");
        crash_points::reached(Step::AfterCommit);
        Ok(())
    }

    fn abort(&mut self) {
        let patience = self.open_for() + ABORT_PATIENCE;
        if let Err(problem) = self.end(false, patience) {
            let id = &self.id;
            tracing::debug!(id, %problem, "a transaction was left to the brokers to abort");
        }
    }
}

#[cfg(test)]
mod tests;
