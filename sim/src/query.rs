//! The query that runs: a filter, so that some micro-batches come out without rows.
//!
//! Planned once per thread; planning would take longer than all the rest.

use std::cell::OnceCell;
use std::sync::Arc;

use datafusion::prelude::SessionContext;
use millstream_engine::plan::QueryPlan;
use millstream_engine::plan::session::streaming_config;
use millstream_engine::plan::stream_scan::{Slots, StreamTable};

use crate::topic::schema;

thread_local! {
    static PLANS: [OnceCell<QueryPlan>; 2] = const { [OnceCell::new(), OnceCell::new()] };
}

/// The plan of the query over one source or two.
pub fn plan(sources: usize) -> QueryPlan {
    PLANS.with(|plans| {
        plans[sources - 1].get_or_init(|| futures::executor::block_on(make(sources))).clone()
    })
}

async fn make(sources: usize) -> QueryPlan {
    let context = SessionContext::new_with_config(streaming_config());
    let mut scans = Vec::new();
    let mut selects = Vec::new();
    for source in 0..sources {
        let (name, slots) = (format!("source{source}"), Slots::new(1));
        let table = StreamTable::new(name.clone(), schema(), Arc::clone(&slots));
        context.register_table(name.as_str(), Arc::new(table)).expect("a new name");
        selects.push(format!("SELECT v FROM {name} WHERE v % 10 <> 9"));
        scans.push(slots);
    }
    let logical = context.sql(&selects.join(" UNION ALL ")).await.expect("a query");
    let (state, logical) = logical.into_parts();
    QueryPlan::new(state, logical, scans).await.expect("a plan")
}
