//! Refusals of the writer, which are not believed at once.
//!
//! That it knows of no transaction, or that another instance has taken the id over, a coordinator
//! says from memory, without a look at its log. If it stood still meanwhile, it is another one that
//! keeps the id:
//!
//! ```text
//! coordinator A   gives the id; stands still ............. goes on; learns that B leads
//! leaders         add the rows' partitions, at B, which leads after the session of A
//! client          commit, to A ........................... refused: A knows of no transaction
//! ```
//!
//! The refusal is about a past that only A remembers. The same holds of a leader that stood still,
//! and of one that asks such a coordinator while it adds partitions.
//!
//! So whoever refuses is distrusted: the others are asked who leads, and the same request goes
//! there. That is safe however often it is done. A batch is written once, by its number. And the
//! epoch of the writer ends with its transaction, whichever way that goes: a commit of it either
//! commits what the brokers have acknowledged, or tells again that it did, or is refused. What
//! succeeds does so only after it was written to the coordinator's log, where A cannot write any
//! more.
//!
//! A refusal that lasts is true. It then means what it meant when it came first: a transaction that
//! was young then was not aborted for its age.

use std::time::Duration;

use super::ProtocolClient;
use crate::brokers::request_error::RequestError;
use crate::protocol::error_code::ErrorCode;

/// How long a refusal must last. A broker that goes on after it stood still hears of elections
/// within a second or two, even where the machine is busy.
const DOUBT: Duration = Duration::from_secs(5);
/// When a refusal that lasts is believed at the latest: the last attempt may wait for a broker that
/// does not answer. One that came longer ago was another matter: the brokers were away since.
const BELIEVED_WITHIN: Duration = Duration::from_secs(20);

impl ProtocolClient {
    /// Notes a refusal. True if it has lasted.
    pub fn believes_refusal(&mut self) -> bool {
        let open = self.open_for();
        let first = *self.refused_after.get_or_insert(open);
        open.saturating_sub(first) > DOUBT
    }

    /// True if `problem` refuses the writer and may be about the past.
    pub fn is_in_doubt(&mut self, problem: &RequestError) -> bool {
        problem.code().is_some_and(ErrorCode::is_about_writer) && !self.believes_refusal()
    }

    /// For how long the transaction was open when the problem came up.
    pub fn open_before(&self, problem: &RequestError) -> Duration {
        let open = self.open_for();
        let is_refusal = problem.code().is_some_and(ErrorCode::is_about_writer);
        let lasted = |first: &Duration| open.saturating_sub(*first) <= BELIEVED_WITHIN;
        self.refused_after.filter(|first| is_refusal && lasted(first)).unwrap_or(open)
    }
}
