//! The partitions of a transaction that several brokers lead are added to it beforehand, in one
//! request.
//!
//! A broker that is written to adds its own partitions to the transaction. That is a write to the
//! coordinator's log, and while it is under way the coordinator refuses everybody else with
//! CONCURRENT_TRANSACTIONS. Of three brokers that are written to at the same time two are refused,
//! and ask again after `add.partitions.to.txn.retry.backoff.ms`, which is 20 ms by itself. What is
//! in the transaction already is only looked up:
//!
//! ```text
//! one leader       rows        ─►  leader  ─►  coordinator, which writes  ─►  leader, which writes
//!
//! several leaders  partitions  ─►  coordinator, which writes
//!                  rows        ─►  leaders ─►  coordinator, which looks   ─►  leaders, which write
//! ```
//!
//! Nothing but time depends on it: a partition that is not in the transaction is added by its
//! leader. So whatever else goes wrong here comes up again, and is dealt with, when rows are
//! written.

use super::ProtocolClient;
use crate::brokers::Purpose;
use crate::brokers::request_error::RequestError;
use crate::brokers::tries::Tries;
use crate::protocol::connection::Connection;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::frame::ADD_PARTITIONS_TO_TXN;
use crate::protocol::requests;
use crate::protocol::responses;
use crate::sink::produce::Filling;

impl ProtocolClient {
    /// Adds what is to be written to the transaction, if more than one broker leads it. Waits while
    /// the coordinator is still busy with the transaction before.
    pub fn enlist(&mut self, filling: &Filling<'_>) {
        if !filling.is_spread(&mut self.brokers) {
            return;
        }
        let mut tries = Tries::new(&self.env);
        while let Err(problem) = self.try_enlist(filling) {
            tracing::debug!(id = self.id, %problem, "partitions are not in a transaction yet");
            if problem.code() != Some(ErrorCode::CONCURRENT_TRANSACTIONS) {
                if problem.code().is_none_or(ErrorCode::is_misplaced) {
                    self.brokers.forget();
                }
                return;
            }
            if self.open_for() > self.timeout {
                return;
            }
            tries.failed(&problem, &self.contact);
        }
    }

    fn try_enlist(&mut self, filling: &Filling<'_>) -> Result<(), RequestError> {
        let (id, writer, topics) = (&self.id, self.writer, filling.partitions());
        let channel = (self.brokers.coordinator(id)?, Purpose::Control);
        let body = |body: &mut _| requests::add_partitions_to_txn(body, id, writer, &topics);
        let ask = |connection: &mut Connection| {
            connection.ask(ADD_PARTITIONS_TO_TXN, body, responses::add_partitions_to_txn)
        };
        let outcomes = self.brokers.using(&channel, ask)?;
        match outcomes.iter().find(|outcome| outcome.code != ErrorCode::NONE) {
            Some(outcome) => Err(RequestError::Refused(outcome.code)),
            None => Ok(()),
        }
    }
}
