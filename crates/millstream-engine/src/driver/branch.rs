//! One branch of a query: a plan over its sources, and the sink of its rows.

use millstream_store::crash_points::{self, Step};
use millstream_store::env::Env;

use crate::api::sink::Sink;
use crate::api::source::{Failure, Split};
use crate::plan::StreamPlan;
use crate::plan::failing_rows::RunOutcome;
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

/// Runs the plan of a branch without state.
pub(super) async fn run(
    plan: &mut StreamPlan,
    env: &Env,
    splits: Splits,
) -> Result<RunOutcome, Failure> {
    let StreamPlan::Stateless(plan) = plan else {
        unreachable!("the driver runs queries with state another way")
    };
    let outcome = plan.run_rejecting(env, splits).await?;
    crash_points::reached(Step::AfterRun);
    Ok(outcome)
}

/// Runs the plan of a branch of a query with state; it need not have any itself.
pub(super) async fn run_with_state(
    plan: &mut StreamPlan,
    env: &Env,
    facts: &MicroBatchFacts,
    splits: Splits,
) -> Result<Ran, Failure> {
    let ran = match plan {
        StreamPlan::Stateful(plan) => plan.run(env, facts, splits).await?,
        StreamPlan::Stateless(plan) => {
            let outcome = plan.run_rejecting(env, splits).await?;
            let (changes, rejected) = (Vec::new(), Vec::new());
            Ran { partitions: outcome.partitions, changes, rejected }
        }
    };
    crash_points::reached(Step::AfterRun);
    Ok(ran)
}
