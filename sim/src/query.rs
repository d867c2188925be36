//! The query that runs: one branch or several, with state or without, and which rows each has to
//! publish.
//!
//! A plan without state is made once per thread; planning would take longer than all the rest.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::prelude::SessionContext;
use millstream_engine::api::settings::OutputMode;
use millstream_engine::plan::session::streaming_config;
use millstream_engine::plan::stages::{self, Watermarked};
use millstream_engine::plan::stream_scan::{Slots, StreamTable};
use millstream_engine::plan::{QueryPlan, StatefulPlan, StreamPlan};
use millstream_engine::state::event_times::Time;
use millstream_engine::state::sharded::ResourceLimits;

use crate::topic::schema;

/// Rows of a group of [`Rows::Groups`].
const GROUP_ROWS: u64 = 10;

/// How far the watermark is behind the newest event time, seconds: a group.
pub const DELAY_S: u64 = 1;

/// Which rows an output gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Most rows, so that some micro-batches come out without any.
    Most,
    /// Twenty of forty rows.
    Half,
    /// Each value once, which takes state: some rows repeat an earlier value.
    Distinct,
    /// The sums of groups by event time, published when the watermark has passed them.
    Groups,
    /// The records that cannot be decoded.
    Letters,
}

/// What the records of a source are.
#[derive(Clone, Copy, Debug)]
pub struct Records {
    /// Whether some cannot be decoded.
    pub malformed: bool,
    /// Whether some repeat an earlier value.
    pub repeating: bool,
}

impl Records {
    /// Whether record `n` cannot be decoded.
    pub fn is_malformed(self, n: u64) -> bool {
        self.malformed && n % 7 == 5
    }

    /// The value of record `n`; itself, or that of an earlier one.
    pub fn value(self, n: u64) -> u64 {
        let earlier = n.checked_sub(2 + 4 * (n % 5));
        match earlier {
            // One before by an even number that four does not divide is never a repetition.
            Some(earlier) if self.repeating && n % 4 == 3 && !self.is_malformed(earlier) => earlier,
            _ => n,
        }
    }
}

/// The event time of record `n`, seconds.
pub fn time_s(n: u64) -> u64 {
    // Zero would be as old as no watermark.
    100 + n / GROUP_ROWS
}

impl Rows {
    /// Whether this takes state.
    pub fn has_state(self) -> bool {
        matches!(self, Self::Distinct | Self::Groups)
    }

    /// Whether record `n` itself is to be published, under the number `n`.
    pub fn keeps(self, records: Records, n: u64) -> bool {
        let malformed = records.is_malformed(n);
        match self {
            Self::Most => !malformed && n % 10 != 9,
            Self::Half => !malformed && n % 40 < 20,
            Self::Distinct => !malformed && records.value(n) == n,
            Self::Groups => true,
            Self::Letters => malformed,
        }
    }

    /// How many there are, of `records` records in all: each is published under a number below.
    pub fn total(self, records: Records, total: u64) -> u64 {
        let newest = (0..total).rev().find(|n| !records.is_malformed(*n)).unwrap_or(0);
        match self {
            // The group of the newest time is open.
            Self::Groups => (newest / GROUP_ROWS).saturating_sub(DELAY_S - 1),
            _ => total,
        }
    }

    /// The number of a row that is published as `value`; `None` if there is no such row.
    pub fn number(self, records: Records, value: u64) -> Option<u64> {
        if self != Self::Groups {
            return Some(value);
        }
        let sum = |group: u64| -> u64 {
            let all = group * GROUP_ROWS..(group + 1) * GROUP_ROWS;
            all.filter(|n| !records.is_malformed(*n)).map(|n| records.value(n)).sum()
        };
        (0..=value / GROUP_ROWS).find(|group| sum(*group) == value)
    }

    /// Whether a micro-batch that ends at a row publishes all rows before.
    pub fn follow_input(self) -> bool {
        self != Self::Groups
    }

    fn sql(self, source: &str) -> String {
        match self {
            Self::Most => format!("SELECT v FROM {source} WHERE v % 10 <> 9"),
            Self::Half => format!("SELECT v FROM {source} WHERE v % 40 < 20"),
            Self::Distinct => format!("SELECT DISTINCT v FROM {source}"),
            Self::Groups => format!("SELECT sum(v) AS v FROM {source} GROUP BY ts"),
            Self::Letters => unreachable!("no plan gives them"),
        }
    }
}

thread_local! {
    static PLANS: [OnceCell<QueryPlan>; 3] = const { [const { OnceCell::new() }; 3] };
}

/// The plan of a branch over one source, or over two that `Most` alone is of.
pub fn plan(rows: Rows, sources: usize) -> StreamPlan {
    let place = match (rows, sources) {
        (Rows::Most, 1) => 0,
        (Rows::Most, _) => 1,
        (Rows::Half, _) => 2,
        _ => return futures::executor::block_on(with_state(rows)),
    };
    let made = || futures::executor::block_on(without_state(rows, sources));
    PLANS.with(|plans| plans[place].get_or_init(made).clone().into())
}

fn scanned(sources: usize) -> (Vec<Arc<Slots>>, Vec<String>, SessionContext) {
    let context = SessionContext::new_with_config(streaming_config());
    let (mut scans, mut names) = (Vec::new(), Vec::new());
    for source in 0..sources {
        let (name, slots) = (format!("stream_{source}"), Slots::new(1));
        let table = StreamTable::new(name.clone(), schema(), Arc::clone(&slots));
        context.register_table(name.as_str(), Arc::new(table)).expect("a new name");
        names.push(name);
        scans.push(slots);
    }
    (scans, names, context)
}

async fn without_state(rows: Rows, sources: usize) -> QueryPlan {
    let (scans, names, context) = scanned(sources);
    let selects: Vec<_> = names.iter().map(|name| rows.sql(name)).collect();
    let logical = context.sql(&selects.join(" UNION ALL ")).await.expect("a query");
    let (state, logical) = logical.into_parts();
    QueryPlan::new(state, logical, scans).await.expect("a plan")
}

async fn with_state(rows: Rows) -> StreamPlan {
    let (scans, names, context) = scanned(1);
    // Of this plan alone, which is new: what a process has seen and not used is gone with it.
    scans.iter().for_each(|slots| slots.watch_event_time(Time::Column(1)));
    let state: SessionState = context.state();
    let logical = state.create_logical_plan(&rows.sql(&names[0])).await.expect("a query");
    let options = state.config_options();
    let analyzed = state.analyzer().execute_and_check(logical, options, |_, _| {});
    let delay_us = DELAY_S as i64 * 1_000_000;
    let watermark = Watermarked { column: "ts".to_owned(), delay_us };
    let watermarks = HashMap::from([(names[0].clone(), watermark)]);
    let (mode, partitions, stream_prefix) = (OutputMode::Append, 1, "stream_");
    let context = stages::Context { stream_prefix, watermarks: &watermarks, mode, partitions };
    let cut = stages::cut(analyzed.expect("a plan"), &context).expect("it has state");
    let limits = ResourceLimits { cores: 1, memory_bytes: None };
    let state = Arc::new(state);
    let plan = StatefulPlan::new(&state, cut, &scans, mode, limits).await.expect("a plan");
    StreamPlan::Stateful(Box::new(plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_value_is_that_of_a_record_that_can_be_decoded_and_repeats_none() {
        for malformed in [false, true] {
            let records = Records { malformed, repeating: true };
            let repeating = (0..200).filter(|n| records.value(*n) != *n);
            let mut count = 0;
            for n in repeating {
                let earlier = records.value(n);
                assert!(earlier < n && records.value(earlier) == earlier);
                assert!(!records.is_malformed(earlier));
                count += 1;
            }
            assert!(count > 20);
        }
    }
}
