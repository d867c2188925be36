//! DataFusion's state for a query at rest: Spark's functions, and limits beyond which it spills.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionConfig;
use millstream_engine::failures::from_datafusion;
use millstream_sql::functions::BatchClock;
use millstream_sql::session::{self, config};

use crate::error::QueryError;
use crate::stores::Stores;
use crate::yielding::Yielding;

/// The largest consumers of memory that an error names.
const CONSUMERS_NAMED: NonZeroUsize = NonZeroUsize::new(3).expect("not zero");

/// What a session may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Partitions of a plan, and so the cores that it keeps busy.
    pub partitions: usize,
    /// Bytes of memory for what queries have to keep; `None` for no limit. Beyond it they spill.
    pub memory_bytes: Option<usize>,
    /// Where they spill to; `None` for the system's directory for temporary files.
    pub spill_directory: Option<PathBuf>,
}

/// Settings of a session whose plans have `partitions`.
pub fn session_config(partitions: usize) -> SessionConfig {
    let mut config = config().with_target_partitions(partitions);
    let options = config.options_mut();
    let parquet = &mut options.execution.parquet;
    // Conditions are checked one after the other while a file is decoded, each of the rows that
    // are left by those before. In the order of the text, as in Spark: `x <> 0 AND 1 / x > 2`
    // never divides by zero.
    parquet.pushdown_filters = true;
    parquet.reorder_filters = false;
    parquet.schema_force_view_types = false;
    // Large enough for the footers of most files; each file of a scan costs so many bytes.
    parquet.metadata_size_hint = Some(64 << 10);
    // Spark's old timestamps reach beyond what nanoseconds can hold.
    parquet.coerce_int96 = Some("us".to_owned());
    config
}

/// A state with Spark's functions and no tables, in which plans are made and run.
///
/// # Errors
/// A directory to spill to that cannot be used.
pub fn session_state(limits: &Limits, clock: &BatchClock) -> Result<SessionState, QueryError> {
    let mut runtime =
        RuntimeEnvBuilder::new().with_object_store_registry(Arc::new(Stores::default()));
    if let Some(bytes) = limits.memory_bytes {
        let pool = TrackConsumersPool::new(FairSpillPool::new(bytes), CONSUMERS_NAMED);
        runtime = runtime.with_memory_pool(Arc::new(pool));
    }
    if let Some(directory) = &limits.spill_directory {
        let mode = DiskManagerMode::Directories(vec![directory.clone()]);
        let builder = DiskManagerBuilder::default().with_mode(mode);
        runtime = runtime.with_disk_manager_builder(builder);
    }
    let runtime = runtime.build_arc().map_err(from_datafusion)?;
    let builder = session::builder(session_config(limits.partitions), runtime, clock);
    Ok(builder.with_physical_optimizer_rule(Arc::new(Yielding)).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_name_are_those_of_this_project() {
        let clock = BatchClock::default();
        let limits = Limits { partitions: 1, memory_bytes: None, spill_directory: None };
        let expected = session::state(session_config(1), Arc::default(), &clock);
        // Where chance decides, it does otherwise each time.
        for _ in 0..10 {
            let state = session_state(&limits, &clock).expect("a state");
            for (name, function) in expected.scalar_functions() {
                assert_eq!(&state.scalar_functions()[name], function);
            }
            for (name, function) in expected.aggregate_functions() {
                assert_eq!(&state.aggregate_functions()[name], function);
            }
            for (name, function) in expected.window_functions() {
                assert_eq!(&state.window_functions()[name], function);
            }
            for (name, function) in expected.higher_order_functions() {
                assert_eq!(&state.higher_order_functions()[name], function);
            }
        }
    }
}
