//! Reading over Kafka's protocol, without librdkafka.
//!
//! ```text
//!                   a thread for each broker             the driver
//! broker ──answer──► record batches ──copied──► buffer ──takes──► micro-batch
//!    ▲                                             │
//!    └── next request ◄── space ◄──────────────────┘
//! ```
//!
//! One request is under way to each broker, for all partitions that it leads; it names only what is
//! [new](session). A record's bytes are [copied once](rows), into the column they belong to: no
//! object is made of a record, and nothing is handed from thread to thread but whole chunks.
//!
//! [Who reads what](assignment) is known in one place. One thread [knows the leaders](leaders); the
//! others [read](broker).

mod assignment;
mod broker;
mod leaders;
mod rows;
mod session;
mod settings;
mod trouble;

use std::sync::Arc;

use millstream_store::env::{Env, Thread};

use super::orders::Orders;
use super::read_ahead::ReadAhead;
use super::reader::Rules;
use crate::brokers::request_error::RequestError;
use crate::brokers::{ApiSupport, Brokers};
use crate::offsets::{PartitionId, PerPartition};
use crate::protocol::frame::FOR_READING;
use assignment::Assignment;
use broker::Common;
use leaders::Leaders;
pub use settings::FetchSettings;
use trouble::{EndOfThread, Report};

/// The running reader. Dropping it ends its threads.
pub struct Fetcher {
    assignment: Arc<Assignment>,
    orders: Arc<Orders>,
    thread: Option<Thread>,
}

/// Why the protocol reader cannot read, or `None` if it can. Blocks.
pub fn unsupported(settings: &FetchSettings, table: &str, env: &Env) -> Option<String> {
    let throttling = Arc::new(crate::brokers::throttling::Throttling::of_reader(table));
    let mut brokers = Brokers::new(settings.connections.clone(), throttling, env.clone());
    match brokers.api_support(|spoken| spoken.has(&FOR_READING)) {
        Ok(ApiSupport { by_all: true, .. }) => None,
        Ok(ApiSupport { by_all: false, .. }) => {
            Some("a broker does not have the requests of Kafka 3.0".to_owned())
        }
        // One that is away for a moment is waited for.
        Err(problem) if problem.may_pass() => None,
        Err(problem @ RequestError::Lost(_)) => Some(problem.to_string()),
        Err(problem) => Some(problem.to_string()),
    }
}

impl Fetcher {
    /// Begins to read the partitions of `buffer` where they stand, for `table`, whose brokers are
    /// at `servers`.
    pub fn start(
        settings: FetchSettings,
        (table, servers): (&str, &str),
        positions: &PerPartition,
        buffer: Arc<ReadAhead>,
        rules: Rules,
        env: &Env,
    ) -> Self {
        let (assignment, orders) = (Arc::new(Assignment::default()), Arc::new(Orders::default()));
        let report =
            Report::new(table, servers, Arc::clone(&buffer), Arc::clone(&orders), env.clone());
        for (id, offset) in positions {
            assignment.start(id.clone(), *offset);
        }
        let common = Common {
            settings: Arc::new(settings),
            assignment: Arc::clone(&assignment),
            buffer,
            report: Arc::new(report),
            include_headers: rules.include_headers,
            env: env.clone(),
        };
        let end = EndOfThread(Arc::clone(&common.report));
        let leaders = Leaders::new(common, Arc::clone(&orders), rules.fail_on_data_loss);
        orders.wake();
        let thread = env.thread("kafka-leaders", move || {
            let _end = end;
            leaders.run();
        });
        Self { assignment, orders, thread: Some(thread) }
    }

    /// Where orders to the reader are given.
    pub fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    /// The newest end of a partition that an answer has brought along, if one has.
    pub fn end_seen(&self, id: &PartitionId) -> Option<i64> {
        self.assignment.end_seen(id)
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.orders.stop_all();
        // Waits for brokers end at once, and with them the threads.
        self.assignment.end();
        drop(self.thread.take());
    }
}

#[cfg(test)]
mod tests;
