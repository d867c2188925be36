//! How an executor of a node asks the coordinator for tasks.
//!
//! Each request reports what has become of tasks, and is answered with new ones. Where a request
//! fails nobody knows which half of that was lost: reports are not repeated, and the coordinator
//! takes it that tasks run which never arrived, as long as it hears of the executor. A query would
//! wait for them for ever. So an executor ends with the first request that fails, its tasks with
//! it. The coordinator is asked to give it up, and has done again what it was given and had done;
//! another executor of a new name goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ballista_core::serde::BallistaCodec;
use ballista_core::serde::protobuf::ExecutorStoppedParams;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_executor::execution_loop::poll_loop;
use ballista_executor::executor::Executor;
use ballista_executor::health::ExecutorHealth;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use millstream_store::env::{Env, Task};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::settings::MESSAGE_BYTES_MAX;

/// How long to wait until a coordinator that has not answered is asked again.
const ASKED_AGAIN: Duration = Duration::from_millis(500);

/// The executor that asks at this moment.
#[derive(Clone)]
pub(super) struct Current(Arc<Mutex<Arc<Executor>>>);

impl Current {
    pub(super) fn executor(&self) -> Arc<Executor> {
        Arc::clone(&self.0.lock())
    }
}

/// What the executors of a node ask with.
pub(super) struct Polling {
    pub(super) env: Env,
    /// `HOST:PORT`, for messages.
    pub(super) coordinator: String,
    pub(super) channel: Channel,
    pub(super) codec: BallistaCodec<LogicalPlanNode, PhysicalPlanNode>,
    /// Whether the coordinator has answered last, of which all executors report once.
    pub(super) answers: Arc<AtomicBool>,
}

impl Polling {
    /// Has an executor of `made` ask for tasks, up to `at_once` at one time; `made` gives each a
    /// name of its own.
    pub(super) fn start(
        self: &Arc<Self>,
        at_once: usize,
        made: impl Fn() -> Arc<Executor> + Send + 'static,
    ) -> (Current, Task<()>) {
        let current = Current(Arc::new(Mutex::new(made())));
        let (polling, shown) = (Arc::clone(self), current.clone());
        let task = self.env.spawn("node-tasks", async move {
            loop {
                let executor = shown.executor();
                let id = executor.metadata.id.clone();
                if !polling.until_failure(executor, at_once).await {
                    return;
                }
                polling.give_up(id).await;
                *shown.0.lock() = made();
            }
        });
        (current, task)
    }

    /// Asks until a request fails; false if nothing can be asked any more.
    async fn until_failure(&self, executor: Arc<Executor>, at_once: usize) -> bool {
        let (health, failed) = (ExecutorHealth::new(), Arc::new(Notify::new()));
        let limit = MESSAGE_BYTES_MAX as usize;
        let guard = until_failed(health.clone(), Arc::clone(&failed));
        let scheduler = SchedulerGrpcClient::with_interceptor(self.channel.clone(), guard)
            .max_encoding_message_size(limit)
            .max_decoding_message_size(limit);
        let room = Arc::new(Semaphore::new(at_once.max(1)));
        let polled = poll_loop(scheduler, executor, self.codec.clone(), None, Some(room), health);
        tokio::select! {
            ended = polled => {
                if let Err(error) = ended {
                    tracing::error!(%error, "the node takes no tasks any more");
                }
                false
            }
            () = failed.notified() => true,
        }
    }

    /// Has the coordinator do again what it has given to the executor `id`, when it answers.
    async fn give_up(&self, id: String) {
        let coordinator = &self.coordinator;
        if self.answers.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                coordinator,
                "the coordinator does not answer; the node goes on asking it for tasks"
            );
        }
        let mut scheduler = SchedulerGrpcClient::new(self.channel.clone());
        loop {
            self.env.sleep(ASKED_AGAIN).await;
            let reason = "a request for tasks has failed".to_owned();
            let stopped = ExecutorStoppedParams { executor_id: id.clone(), reason };
            if scheduler.executor_stopped(stopped).await.is_ok() {
                break;
            }
        }
        if !self.answers.swap(true, Ordering::Relaxed) {
            tracing::info!(coordinator, "the coordinator answers");
        }
    }
}

/// Lets requests pass until one has failed. `health` is that of the loop that makes them one after
/// the other, and so says before each what has become of the last.
fn until_failed(
    health: ExecutorHealth,
    failed: Arc<Notify>,
) -> impl FnMut(Request<()>) -> Result<Request<()>, Status> + Clone {
    let mut has_asked = false;
    move |request| {
        if has_asked && !health.is_ready() {
            failed.notify_one();
            return Err(Status::unavailable("the request before has failed"));
        }
        has_asked = true;
        Ok(request)
    }
}
