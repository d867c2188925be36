//! A query that a cluster runs.
//!
//! The client submits its plan to the coordinator and gets a stream of the query's states.
//! It keeps that stream open until it wants no more rows: closing it is what ends the query and
//! removes what it has written (`leases.rs`), so that a client that is interrupted or killed
//! leaves nothing behind.

use std::sync::Arc;

use ballista_core::BALLISTA_VERSION;
use ballista_core::client::BallistaClient;
use ballista_core::error::BallistaError;
use ballista_core::extension::SessionConfigExt as _;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::{
    ExecuteQueryParams, GetJobMetricsParams, GetJobStatusResult, KeyValuePair, OperatorMetricsSet,
    OperatorWithMetrics, PartitionLocation, SuccessfulJob, job_status,
};
use ballista_core::utils::GrpcClientConfig;
use ballista_core::version;
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionConfig;
use datafusion_proto::physical_plan::AsExecutionPlan as _;
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::stream;
use futures::{StreamExt as _, TryStreamExt as _};
use millstream_store::env::Env;
use tonic::{Request, Status, Streaming};

use super::codec::PlanCodec;
use super::connect::connect_for;
use super::error::ClusterError;
use super::settings::{MESSAGE_BYTES_MAX, cluster_config};

/// A query that has run, and whose rows can be read.
pub struct Answer {
    /// The rows, from the nodes that have them. Dropping it ends the query.
    pub rows: SendableRecordBatchStream,
    /// The query as the coordinator names it.
    pub job: String,
}

/// Has the coordinator at `address` run `plan`.
///
/// # Errors
/// [`ClusterError::OnlyHere`] for a plan that reads what only this process can read, and what the
/// cluster fails with.
pub async fn run(
    env: &Env,
    address: &str,
    plan: Arc<dyn ExecutionPlan>,
    state: &SessionState,
) -> Result<Answer, ClusterError> {
    check_leaves(&plan)?;
    let config = cluster_config(state.config().clone());
    let mut coordinator = connect_for(state.config(), address).await?;
    let schema = plan.schema();
    let query = query(env, plan, state, &config)?;
    let mut request = Request::new(query);
    version::insert_version_header(request.metadata_mut());
    let answered = coordinator.execute_query_push(request).await;
    let answered = answered.map_err(|status| refused(address, &status))?;
    let its_version = version::version_from_metadata(answered.metadata());
    version::check_compatibility(Some(BALLISTA_VERSION), its_version)
        .map_err(DataFusionError::Execution)?;
    let mut states = answered.into_inner();
    let (job, done) = wait(address, &mut states).await?;
    let config = Arc::new(config);
    let parts = stream::iter(done.partition_location);
    let rows = parts.then(move |part| rows_of(part, Arc::clone(&config))).try_flatten();
    // Whoever drops the rows closes the stream of states, too.
    let rows = rows.inspect(move |_| {
        let _open = (&states, &coordinator);
    });
    Ok(Answer { rows: Box::pin(RecordBatchStreamAdapter::new(schema, rows)), job })
}

fn query(
    env: &Env,
    plan: Arc<dyn ExecutionPlan>,
    state: &SessionState,
    config: &SessionConfig,
) -> Result<ExecuteQueryParams, ClusterError> {
    let encoded = PhysicalPlanNode::try_from_physical_plan(plan, &PlanCodec::new(state))?;
    let mut bytes = Vec::new();
    encoded.try_encode(&mut bytes)?;
    let settings = config.options().entries().into_iter();
    let settings = settings.map(|entry| KeyValuePair { key: entry.key, value: entry.value });
    Ok(ExecuteQueryParams {
        query: Some(Query::PhysicalPlan(bytes)),
        settings: settings.collect(),
        session_id: env.random_uuid().to_string(),
        operation_id: env.random_uuid().to_string(),
    })
}

/// What a coordinator's refusal means: that it is gone, or that it rejects the query.
fn refused(address: &str, status: &Status) -> ClusterError {
    match status.code() {
        tonic::Code::Unavailable | tonic::Code::Unknown => ClusterError::NoCoordinator {
            address: address.to_owned(),
            problem: status.message().to_owned(),
        },
        _ => DataFusionError::Execution(status.message().to_owned()).into(),
    }
}

/// Waits until the query has run, and gives its name and where its rows are.
async fn wait(
    address: &str,
    states: &mut Streaming<GetJobStatusResult>,
) -> Result<(String, SuccessfulJob), ClusterError> {
    loop {
        let next = states.message().await.map_err(|status| refused(address, &status))?;
        let Some(GetJobStatusResult { status, .. }) = next else {
            let problem = "it has ended the connection before the query was done".to_owned();
            return Err(ClusterError::NoCoordinator { address: address.to_owned(), problem });
        };
        let Some(status) = status else { continue };
        match status.status {
            Some(job_status::Status::Successful(done)) => return Ok((status.job_id, done)),
            Some(job_status::Status::Failed(failed)) => {
                let problem = format!("Job {} failed: {}", status.job_id, failed.error);
                return Err(DataFusionError::Execution(problem).into());
            }
            Some(job_status::Status::Queued(_) | job_status::Status::Running(_)) | None => {}
        }
    }
}

/// The rows of one partition of the answer, from the node that has it.
async fn rows_of(
    part: PartitionLocation,
    config: Arc<SessionConfig>,
) -> Result<SendableRecordBatchStream, DataFusionError> {
    let layout = part.layout();
    let (Some(node), Some(partition)) = (part.executor_meta, part.partition_id) else {
        let problem = "the coordinator does not say where the rows are".to_owned();
        return Err(DataFusionError::Internal(problem));
    };
    let grpc = GrpcClientConfig::from(&config.ballista_config());
    let client = BallistaClient::try_new(
        &node.host,
        u16::try_from(node.port).unwrap_or_default(),
        MESSAGE_BYTES_MAX as usize,
        config.ballista_use_tls(),
        config.ballista_override_create_grpc_client_endpoint(),
        grpc.io_retries_times,
        grpc.io_retry_wait_time_ms,
        grpc.initial_connection_window_size,
        grpc.initial_stream_window_size,
    );
    let mut client = client.await.map_err(BallistaError::into_datafusion)?;
    let partition = partition.into();
    let rows = client.fetch_partition(&node.id, &partition, part.file_id, layout, true).await;
    rows.map_err(BallistaError::into_datafusion)
}

/// The plan of `job` as it ran, stage by stage, with rows and times of each operator.
///
/// # Errors
/// A coordinator that does not answer, or that knows the job no more.
pub async fn profile(
    address: &str,
    job: &str,
    config: &SessionConfig,
) -> Result<String, ClusterError> {
    let mut coordinator = connect_for(config, address).await?;
    let request = GetJobMetricsParams { job_id: job.to_owned() };
    let answered = coordinator.get_job_metrics(request).await;
    let stages = answered.map_err(|status| refused(address, &status))?.into_inner().stages;
    let mut text = String::new();
    for stage in stages {
        let (id, partitions) = (stage.stage_id, stage.partitions);
        text.push_str(&format!("stage {id}, partitions={partitions}\n"));
        for operator in stage.operators {
            text.push_str(&shown(operator)?);
        }
    }
    Ok(text)
}

fn shown(operator: OperatorWithMetrics) -> Result<String, ClusterError> {
    let metrics: MetricsSet = OperatorMetricsSet { metrics: operator.metrics }.try_into()?;
    let metrics = metrics.aggregate_by_name().sorted_for_display().timestamps_removed();
    let indent = "  ".repeat(operator.depth as usize + 1);
    Ok(format!("{indent}{}, metrics=[{metrics}]\n", operator.operator_desc))
}

/// Refuses a scan that a connector of this process does itself.
pub fn check_leaves(plan: &Arc<dyn ExecutionPlan>) -> Result<(), ClusterError> {
    if plan.name() == "TableScan" {
        let what = "it reads a table that is not made of plain Parquet files".to_owned();
        return Err(ClusterError::OnlyHere { what });
    }
    plan.children().into_iter().try_for_each(check_leaves)
}
