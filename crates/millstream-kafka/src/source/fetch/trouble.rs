//! What goes wrong while partitions are read: what ends the query, and what is only reported and
//! tried again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::source::Kind;
use millstream_store::env::Env;
use parking_lot::Mutex;

use crate::brokers::request_error::{RequestError, as_librdkafka};
use crate::brokers::throttling::Throttling;
use crate::client::context::is_refusal;
use crate::error::SourceError;
use crate::offsets::PartitionId;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::record_batches::Malformed;
use crate::source::orders::Orders;
use crate::source::read_ahead::ReadAhead;

/// How soon the same warning is given again.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What an error of a partition means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The offset does not exist.
    OutOfRange,
    /// The error stays until a person acts.
    Hopeless(Kind),
    /// The same is tried again, at the leader there is then.
    Passing,
}

impl Verdict {
    /// The verdict on `code`.
    pub fn of(code: ErrorCode) -> Self {
        match code {
            ErrorCode::OFFSET_OUT_OF_RANGE => Self::OutOfRange,
            code if code.is_about_data() => Self::Hopeless(Kind::Data),
            code if is_refusal(as_librdkafka(code)) => Self::Hopeless(Kind::Config),
            _ => Self::Passing,
        }
    }
}

/// Where the threads of a reader report their problems.
pub struct Report {
    table: String,
    servers: String,
    buffer: Arc<ReadAhead>,
    orders: Arc<Orders>,
    throttling: Arc<Throttling>,
    env: Env,
    /// When each warning was given last, on the monotonic clock.
    warned: Mutex<HashMap<String, Duration>>,
}

/// Ends the query if the thread that has it panics: nobody else would notice.
pub struct EndOfThread(pub Arc<Report>);

impl Drop for EndOfThread {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(SourceError::ThreadEnded);
        }
    }
}

impl Report {
    /// Of the reader of `table`, whose brokers are at `servers`.
    pub fn new(
        table: &str,
        servers: &str,
        buffer: Arc<ReadAhead>,
        orders: Arc<Orders>,
        env: Env,
    ) -> Self {
        Self {
            table: table.to_owned(),
            servers: servers.to_owned(),
            buffer,
            orders,
            throttling: Arc::new(Throttling::of_reader(table)),
            env,
            warned: Mutex::default(),
        }
    }

    /// Where pauses by quotas are reported.
    pub fn throttling(&self) -> &Arc<Throttling> {
        &self.throttling
    }

    /// Has the leaders looked for.
    pub fn wake(&self) {
        self.orders.wake();
    }

    /// The query fails with `error`.
    pub fn fail(&self, error: SourceError) {
        self.buffer.fail(error.into());
    }

    /// The query fails, since a partition cannot be read.
    pub fn refused(&self, id: &PartitionId, offset: i64, code: ErrorCode, kind: Kind) {
        let text = as_librdkafka(code).to_string();
        self.fail(SourceError::Read { id: id.clone(), offset, text, kind });
    }

    /// The query fails, since what a broker keeps is not what it should be.
    pub fn malformed(&self, id: &PartitionId, offset: i64, malformed: Malformed) {
        let text = match malformed {
            Malformed::Form => "the record batch there does not follow Kafka's format",
            Malformed::Checksum => {
                "the checksum of the record batch there is another one: a disk or a network has \
                 changed it. 'kafka.check.crcs' = 'false' reads it as it is"
            }
            Malformed::OldForm => {
                "the records there have a form from before Kafka 0.11, which only librdkafka \
                 reads: set 'kafka.millstream.client' = 'librdkafka'"
            }
            Malformed::Compression => "the record batch there cannot be decompressed",
        };
        let (id, text) = (id.clone(), text.to_owned());
        self.fail(SourceError::Read { id, offset, text, kind: Kind::Data });
    }

    /// A partition cannot be read at the moment.
    pub fn passing(&self, id: &PartitionId, code: ErrorCode) {
        let problem = RequestError::Refused(code);
        // That leaders move is no more than that.
        if code.is_misplaced() {
            tracing::debug!(table = self.table, partition = %id, %problem, "read again elsewhere");
            return;
        }
        self.warn(&format!("{id} {code:?}"), || {
            tracing::warn!(table = self.table, partition = %id, %problem, "a partition cannot be \
                read at the moment; it is tried again");
        });
    }

    /// A broker cannot be read from at the moment.
    pub fn unreachable(&self, node: i32, problem: &RequestError) {
        self.warn(&format!("node {node}"), || {
            tracing::warn!(table = self.table, broker = node, %problem, "a broker cannot be read \
                from at the moment; its partitions are read from where they are led");
        });
    }

    /// No broker says where partitions are led.
    pub fn no_leaders(&self, problem: &RequestError) {
        self.warn("leaders", || {
            tracing::warn!(table = self.table, %problem, "no broker says who leads the partitions; \
                they are asked again");
        });
    }

    /// The query fails: the brokers have turned the reader away several times.
    pub fn turned_away(&self, problem: &RequestError) {
        let (servers, reason) = (self.servers.clone(), problem.to_string());
        self.fail(SourceError::Refused { servers, reason });
    }

    fn warn(&self, kind: &str, warn: impl FnOnce()) {
        let now = self.env.monotonic();
        let mut warned = self.warned.lock();
        let is_due = |last: &Duration| now.saturating_sub(*last) >= WARN_EVERY;
        if warned.get(kind).is_none_or(is_due) {
            // Kinds of long ago need no place any more.
            warned.retain(|_, last| !is_due(last));
            warned.insert(kind.to_owned(), now);
            drop(warned);
            warn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let verdicts =
            [1, 2, 6, 29, 74, 75, 76, 78, 87, -1].map(|code| Verdict::of(ErrorCode(code)));
        let (data, config) = (Verdict::Hopeless(Kind::Data), Verdict::Hopeless(Kind::Config));
        let passing = Verdict::Passing;
        let (epoch, range) = (Verdict::Passing, Verdict::OutOfRange);
        let expected = [range, data, passing, config, epoch, epoch, data, passing, data, passing];
        assert_eq!(verdicts, expected);
    }
}
