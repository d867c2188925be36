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
//! others [read](broker). Each request has the [epoch](epochs) of what was read last, with which a
//! broker finds out that its log is another one.

mod assignment;
mod broker;
mod epochs;
mod leaders;
mod rows;
mod session;
mod settings;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::{Env, Thread};

use super::orders::Orders;
use super::read_ahead::ReadAhead;
use super::reader::Rules;
use crate::brokers::Brokers;
use crate::brokers::throttling::Throttling;
use crate::offsets::{PartitionId, PerPartition};
use assignment::Assignment;
use broker::Common;
use leaders::Leaders;
pub use settings::FetchSettings;
use trouble::{EndOfThread, Report};

/// How long a broker that is asked who leads may be silent, before the next one is asked.
const LEADERS_PATIENCE: Duration = Duration::from_secs(2);

/// The running reader. Dropping it ends its threads.
pub struct Fetcher {
    assignment: Arc<Assignment>,
    orders: Arc<Orders>,
    thread: Option<Thread>,
}

/// The brokers as the reader of `table` asks them who leads. Not connected yet.
pub fn brokers(settings: &FetchSettings, table: &str, env: &Env) -> Brokers {
    let throttling = Arc::new(Throttling::of_reader(table));
    let brokers = Brokers::new(settings.connections.clone(), throttling, env.clone());
    // Another one can be asked, so that one that stands still is not waited for.
    brokers.with_patience(LEADERS_PATIENCE)
}

impl Fetcher {
    /// Begins to read partitions where they stand, into `buffer`, for `table`, whose brokers are at
    /// `servers`; `brokers` are asked who leads.
    pub fn start(
        settings: FetchSettings,
        brokers: Brokers,
        (table, servers): (&str, &str),
        positions: &PerPartition,
        (buffer, rules): (Arc<ReadAhead>, Rules),
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
        let leaders = Leaders::new(common, brokers, Arc::clone(&orders), rules.fail_on_data_loss);
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
