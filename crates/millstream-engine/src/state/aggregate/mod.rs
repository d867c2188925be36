//! Aggregation over a stream.
//!
//! The plan below it computes partial aggregates of a micro-batch, on all cores: rows of keys and
//! states, which DataFusion's accumulators can merge ([`spec`]). They are what the state log keeps.
//! Here they are spread by the hash of their keys over *shards*, one per core, and each shard
//! merges its own into what it has. What it has depends on the output mode:
//! - append: groups are kept by the time at which they close, and published then ([`closing`]);
//! - update and complete: groups are kept by key, and published as they change ([`changing`]);
//! - sessions, which grow together, have a form of their own ([`sessions`]).

pub mod changing;
pub mod closing;
pub mod sessions;
pub mod spec;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::Result;
use millstream_store::env::Env;
use millstream_store::offset::BatchId;

use self::spec::AggregateSpec;
use super::operator::{Applied, MicroBatchFacts, Operator, OperatorMetrics, Snapshot};
use super::spread::Spread;

/// Fewer partial rows than this are merged on one core.
const ROWS_WORTH_A_CORE: usize = 4_096;

/// The groups of some keys.
pub trait Shard: Send + Sized + 'static {
    /// No groups yet.
    fn new(spec: &AggregateSpec) -> Result<Self>;

    /// Merges the partial rows of a micro-batch.
    fn apply(
        &mut self,
        spec: &AggregateSpec,
        facts: &MicroBatchFacts,
        rows: Vec<RecordBatch>,
    ) -> Result<Outcome>;

    /// See [`Operator::is_due`].
    fn is_due(&self, evict_us: i64) -> bool;

    /// See [`Operator::needs_from`].
    fn needs_from(&self) -> Option<BatchId>;

    /// How many groups there are.
    fn groups(&self) -> u64;

    /// Their memory.
    fn bytes(&self) -> u64;

    /// All groups as partial rows.
    fn snapshot(self, spec: &AggregateSpec) -> Result<Vec<RecordBatch>>;
}

/// What a micro-batch did to a shard.
#[derive(Default)]
pub struct Outcome {
    /// What is published.
    pub published: Vec<RecordBatch>,
    /// Groups that went.
    pub removed: u64,
    /// Partial rows that were late.
    pub late: u64,
}

/// An aggregation over a stream; see the module's head.
pub struct ShardedAggregate<S> {
    spec: Arc<AggregateSpec>,
    spread: Spread,
    /// `None` while one is worked on.
    shards: Vec<Option<S>>,
    metrics: OperatorMetrics,
}

impl<S: Shard> ShardedAggregate<S> {
    /// An aggregation without groups yet, on up to `shards` cores.
    pub fn new(spec: Arc<AggregateSpec>, shards: usize) -> Result<Self> {
        let metrics = OperatorMetrics { name: "aggregate", ..OperatorMetrics::default() };
        let spread = Spread::new(shards);
        let shards = (0..shards).map(|_| S::new(&spec).map(Some)).collect::<Result<_>>()?;
        Ok(Self { spec, spread, shards, metrics })
    }

    fn present(&self) -> impl Iterator<Item = &S> {
        self.shards.iter().flatten()
    }

    fn apply_here(
        &mut self,
        facts: &MicroBatchFacts,
        shares: Vec<Vec<RecordBatch>>,
    ) -> Result<Vec<Outcome>> {
        let shards = self.shards.iter_mut().flatten().zip(shares);
        shards.map(|(shard, share)| shard.apply(&self.spec, facts, share)).collect()
    }

    async fn apply_on_cores(
        &mut self,
        env: &Env,
        facts: MicroBatchFacts,
        shares: Vec<Vec<RecordBatch>>,
    ) -> Result<Vec<Outcome>> {
        let start = |(shard, share): (&mut Option<S>, Vec<RecordBatch>)| {
            let mut shard = shard.take().expect("it was put back after the last micro-batch");
            let spec = Arc::clone(&self.spec);
            env.spawn_on_cores("aggregate", async move {
                let outcome = shard.apply(&spec, &facts, share);
                (shard, outcome)
            })
        };
        let tasks: Vec<_> = self.shards.iter_mut().zip(shares).map(start).collect();
        let mut outcomes = Vec::with_capacity(tasks.len());
        for (shard, task) in self.shards.iter_mut().zip(tasks) {
            let (back, outcome) = task.join().await;
            *shard = Some(back);
            outcomes.push(outcome);
        }
        outcomes.into_iter().collect()
    }
}

#[async_trait]
impl<S: Shard> Operator for ShardedAggregate<S> {
    async fn apply(
        &mut self,
        env: &Env,
        facts: &MicroBatchFacts,
        mut inputs: Vec<Vec<RecordBatch>>,
    ) -> Result<Applied> {
        let rows = inputs.pop().unwrap_or_default();
        let total: usize = rows.iter().map(RecordBatch::num_rows).sum();
        let keys = |rows: &RecordBatch| self.spec.other_columns(rows.columns());
        let shares = self.spread.rows(&rows, keys)?;
        let outcomes = match total < ROWS_WORTH_A_CORE || self.shards.len() == 1 {
            true => self.apply_here(facts, shares)?,
            false => self.apply_on_cores(env, *facts, shares).await?,
        };
        self.metrics.rows_late = outcomes.iter().map(|outcome| outcome.late).sum();
        self.metrics.rows_updated = total as u64 - self.metrics.rows_late;
        self.metrics.rows_removed = outcomes.iter().map(|outcome| outcome.removed).sum();
        let output = outcomes.into_iter().map(|outcome| outcome.published).collect();
        Ok(Applied { output })
    }

    fn input_schemas(&self) -> Vec<SchemaRef> {
        vec![Arc::clone(self.spec.input())]
    }

    fn is_due(&self, evict_us: i64) -> bool {
        self.present().any(|shard| shard.is_due(evict_us))
    }

    fn needs_from(&self) -> Option<BatchId> {
        self.present().filter_map(S::needs_from).min()
    }

    fn metrics(&self) -> OperatorMetrics {
        let rows = self.present().map(S::groups).sum();
        OperatorMetrics { rows, ..self.metrics.clone() }
    }

    fn bytes(&self) -> u64 {
        self.present().map(S::bytes).sum()
    }

    fn fresh(&self) -> Result<Box<dyn Operator>> {
        Ok(Box::new(Self::new(Arc::clone(&self.spec), 1)?))
    }

    fn snapshot(self: Box<Self>) -> Result<Snapshot> {
        let shards = self.shards.into_iter().flatten();
        let rows = shards.map(|shard| shard.snapshot(&self.spec)).collect::<Result<Vec<_>>>()?;
        Ok(vec![rows.into_iter().flatten().collect()])
    }
}
