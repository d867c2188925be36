//! One branch of a query: a plan over its sources, and the sink of its rows.

use millstream_store::crash_points::{self, Step};
use millstream_store::env::Env;

use crate::api::sink::Sink;
use crate::api::source::{Failure, Split};
use crate::plan::StreamPlan;
use crate::plan::failing_rows::Sifted;
use crate::plan::stateful_plan::Ran;
use crate::state::micro_batch::MicroBatchFacts;

/// A micro-batch's input, by source.
pub(super) type Splits = Vec<Vec<Box<dyn Split>>>;

/// A plan over the query's sources, and where its rows go.
pub struct Branch {
    /// The plan.
    pub plan: StreamPlan,
    /// The sink.
    pub sink: Box<dyn Sink>,
}

impl Branch {
    /// Whether the sink gathers micro-batches.
    pub(super) fn gathers(&self) -> bool {
        self.sink.micro_batches_in_flight_max().is_some()
    }

    pub(super) async fn run_sifting(
        &mut self,
        env: &Env,
        splits: Splits,
    ) -> Result<Sifted, Failure> {
        let StreamPlan::Stateless(plan) = &mut self.plan else {
            unreachable!("the driver runs queries with state another way")
        };
        let sifted = plan.run_sifting(env, splits).await?;
        crash_points::reached(Step::AfterRun);
        Ok(sifted)
    }

    pub(super) async fn run_with_state(
        &mut self,
        env: &Env,
        facts: &MicroBatchFacts,
        splits: Splits,
    ) -> Result<Ran, Failure> {
        let ran = match &mut self.plan {
            StreamPlan::Stateful(plan) => plan.run(env, facts, splits).await?,
            StreamPlan::Stateless(plan) => {
                let sifted = plan.run_sifting(env, splits).await?;
                let (changes, rejected) = (Vec::new(), Vec::new());
                Ran { partitions: sifted.partitions, changes, rejected }
            }
        };
        crash_points::reached(Step::AfterRun);
        Ok(ran)
    }
}
