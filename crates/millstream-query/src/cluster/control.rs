//! What the coordinator can ask of a node: to end tasks of a query that was cancelled.
//!
//! Nodes fetch their tasks themselves, so that nothing else is asked of them.

use ballista_core::serde::protobuf::executor_grpc_server::ExecutorGrpc;
use ballista_core::serde::protobuf::{
    CancelTasksParams, CancelTasksResult, LaunchMultiTaskParams, LaunchMultiTaskResult,
    LaunchTaskParams, LaunchTaskResult, RemoveJobDataParams, RemoveJobDataResult,
    StopExecutorParams, StopExecutorResult,
};
use tonic::{Request, Response, Status};

use super::polling::Current;

/// Ends tasks of a node.
pub(super) struct Control(Vec<Current>);

impl Control {
    /// Tasks of all `executors` of a node.
    pub(super) fn new(executors: Vec<Current>) -> Self {
        Self(executors)
    }
}

fn not_here<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("a node fetches its tasks itself"))
}

#[tonic::async_trait]
impl ExecutorGrpc for Control {
    async fn cancel_tasks(
        &self,
        request: Request<CancelTasksParams>,
    ) -> Result<Response<CancelTasksResult>, Status> {
        let mut cancelled = true;
        for task in request.into_inner().task_infos {
            let (stage, number) = (task.stage_id as usize, task.task_id as usize);
            tracing::info!(job = task.job_id, stage, task = number, "a task is ended");
            // The request does not say which executor of the node has the task.
            for executor in &self.0 {
                let ended = executor
                    .executor()
                    .cancel_task(task.job_id.clone().into(), stage, number)
                    .await;
                cancelled &= ended.is_ok();
            }
        }
        Ok(Response::new(CancelTasksResult { cancelled }))
    }

    async fn launch_task(
        &self,
        _: Request<LaunchTaskParams>,
    ) -> Result<Response<LaunchTaskResult>, Status> {
        not_here()
    }

    async fn launch_multi_task(
        &self,
        _: Request<LaunchMultiTaskParams>,
    ) -> Result<Response<LaunchMultiTaskResult>, Status> {
        not_here()
    }

    async fn stop_executor(
        &self,
        _: Request<StopExecutorParams>,
    ) -> Result<Response<StopExecutorResult>, Status> {
        not_here()
    }

    async fn remove_job_data(
        &self,
        _: Request<RemoveJobDataParams>,
    ) -> Result<Response<RemoveJobDataResult>, Status> {
        not_here()
    }
}
