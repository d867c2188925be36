//! A query that a cluster runs.

use std::sync::Arc;

use ballista_core::execution_plans::execute_physical_plan;
use ballista_core::extension::SessionConfigExt as _;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::TryStreamExt as _;
use millstream_store::env::Env;

use super::codec::PlanCodec;
use super::connect::connect;
use super::error::ClusterError;
use super::security::Security;
use super::settings::cluster_config;

/// Has the coordinator at `address` run `plan`. The rows come from the nodes that have them.
///
/// # Errors
/// [`ClusterError::OnlyHere`] for a plan that reads what only this process can read, and what the
/// cluster fails with.
pub async fn run(
    env: &Env,
    address: &str,
    plan: Arc<dyn ExecutionPlan>,
    state: &SessionState,
) -> Result<SendableRecordBatchStream, ClusterError> {
    check_leaves(&plan)?;
    let security = Security::of(state.config());
    // Where nobody answers, this says so sooner and better than Ballista.
    drop(connect(address, &security).await?);
    let config = cluster_config(state.config().clone());
    let ballista = config.ballista_config();
    let session = env.random_uuid().to_string();
    let codec = PlanCodec::new(state);
    let schema = plan.schema();
    let rows = execute_physical_plan::<PhysicalPlanNode>(
        format!("{}://{address}", security.scheme()),
        &ballista,
        plan,
        &codec,
        session,
        config,
    );
    let rows = rows.await?;
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows.map_err(Into::into))))
}

/// Refuses a scan that a connector of this process does itself.
fn check_leaves(plan: &Arc<dyn ExecutionPlan>) -> Result<(), ClusterError> {
    if plan.name() == "TableScan" {
        let what = "it reads a table that is not made of plain Parquet files".to_owned();
        return Err(ClusterError::OnlyHere { what });
    }
    plan.children().into_iter().try_for_each(check_leaves)
}
