//! DataFusion's settings for a streaming query, each with its reason.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::{Result, TableReference};
use datafusion::execution::SessionState;
use datafusion::prelude::SessionConfig;
use millstream_sql::session::config;

/// Settings for planning and running a query whose leaves are streams.
pub fn streaming_config() -> SessionConfig {
    let mut config = config()
        // The scan's own partitions are all the parallelism there is: a repartition would move
        // rows between cores and lose their order for nothing.
        .with_target_partitions(1)
        .with_round_robin_repartition(false)
        .with_repartition_joins(false)
        .with_repartition_aggregations(false);
    let optimizer = &mut config.options_mut().optimizer;
    // One run of a join builds such a filter for its own scan. A plan here runs many times over
    // other rows, which the filter of an earlier run would wrongly drop.
    optimizer.enable_dynamic_filter_pushdown = false;
    // The static side of a join is always the one that is collected, whatever its size.
    optimizer.hash_join_single_partition_threshold = usize::MAX;
    optimizer.hash_join_single_partition_threshold_rows = usize::MAX;
    config
}

/// Settings for a query over tables at rest.
pub fn batch_config(partitions: usize) -> SessionConfig {
    config().with_target_partitions(partitions)
}

/// Adds a table to what the queries of a session may read.
pub fn register(state: &SessionState, name: &str, table: Arc<dyn TableProvider>) -> Result<()> {
    let reference = TableReference::from(name);
    let name = reference.table().to_owned();
    state.schema_for_ref(reference)?.register_table(name, table).map(drop)
}
