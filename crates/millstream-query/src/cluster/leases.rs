//! A query ends with the client that asked for it.
//!
//! A client keeps the stream of its query's states open for as long as it wants rows. When that
//! stream is closed, by a client that was interrupted, has stopped reading, or was killed, the
//! query is cancelled if it still runs, and what it has written is removed from the nodes. So is
//! the query of a machine that goes away without closing its connections, as it answers no pings.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::error::Result;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpc as _;
use ballista_core::serde::protobuf::{CleanJobDataParams, JobStatus, job_status};
use ballista_core::{JobId, JobStatusSubscriber};
use ballista_scheduler::cluster::{JobState, JobStateEventStream};
use ballista_scheduler::scheduler_server::SchedulerServer;
use ballista_scheduler::state::execution_graph::ExecutionGraphBox;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use millstream_store::env::Env;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::Request;

/// How long the files of a query stay whose client has not been seen to go, in seconds.
pub const FILES_KEPT_S: u64 = 6 * 3_600;
/// How long the coordinator knows what has become of a query whose client is gone. A client asks
/// when it has read the rows: for the reason of a failure, or for the figures of operators.
const JOBS_KEPT: Duration = Duration::from_secs(300);
/// How long to wait until it is looked at again whether a query has ended. Within this time nodes
/// end the tasks of a query that was cancelled or has failed, so that these write nothing after
/// its files were removed.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The scheduler, with plans in DataFusion's own encoding.
pub type Scheduler = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// A query, and what knows whether its client is there.
pub struct Lease {
    job: JobId,
    client: JobStatusSubscriber,
}

/// The state of all jobs; what clients ask for is passed on.
pub struct LeasedJobs {
    env: Env,
    jobs: Arc<dyn JobState>,
    leases: UnboundedSender<Lease>,
}

impl LeasedJobs {
    /// `jobs`, and the leases of those that clients ask for, to be [watched](watch).
    pub fn new(env: Env, jobs: Arc<dyn JobState>) -> (Self, UnboundedReceiver<Lease>) {
        let (leases, asked) = unbounded_channel();
        (Self { env, jobs, leases }, asked)
    }
}

/// Ends queries whose clients are gone, until there are no jobs any more.
pub async fn watch(
    env: Env,
    scheduler: Arc<Scheduler>,
    jobs: Arc<dyn JobState>,
    mut asked: UnboundedReceiver<Lease>,
) {
    while let Some(Lease { job, client }) = asked.recv().await {
        let (clock, scheduler, jobs) = (env.clone(), Arc::clone(&scheduler), Arc::clone(&jobs));
        env.spawn("query-lease", async move {
            client.closed().await;
            if let Err(error) = end(&clock, &scheduler, jobs.as_ref(), &job).await {
                tracing::warn!(%job, %error, "a query cannot be ended");
            }
        });
    }
}

/// Cancels `job` if it runs, has its files removed, and forgets it later.
async fn end(env: &Env, scheduler: &Scheduler, jobs: &dyn JobState, job: &JobId) -> Result<()> {
    loop {
        let status = jobs.get_job_status(job).await?.and_then(|status| status.status);
        match status {
            // A job that is still being planned can be cancelled only afterwards.
            Some(job_status::Status::Queued(_)) => {}
            Some(job_status::Status::Running(_)) => {
                tracing::info!(%job, "the client is gone, and its query is cancelled");
                scheduler.cancel_job(job.clone()).await?;
            }
            Some(job_status::Status::Successful(_)) => break,
            // The tasks beside the one that failed write files until they have ended.
            Some(job_status::Status::Failed(_)) | None => {
                env.sleep(LOOK_AGAIN).await;
                break;
            }
        }
        env.sleep(LOOK_AGAIN).await;
    }
    let job_id = job.as_str().to_owned();
    let request = CleanJobDataParams { job_id, remove_stage_ids: Vec::new() };
    if let Err(status) = scheduler.clean_job_data(Request::new(request)).await {
        tracing::warn!(%job, %status, "the files of a query cannot be removed");
    }
    env.sleep(JOBS_KEPT).await;
    forget(jobs, job).await.map(drop)
}

/// Has `jobs` forget `job`, unless it was forgotten before; says whether it was there. What a query
/// leaves is removed when its client is gone, and hours later by the scheduler itself.
async fn forget(jobs: &dyn JobState, job: &JobId) -> Result<bool> {
    let is_there = jobs.get_job_status(job).await?.is_some();
    if is_there {
        jobs.remove_job(job).await?;
    }
    Ok(is_there)
}

#[async_trait]
impl JobState for LeasedJobs {
    async fn submit_job(
        &self,
        job_id: JobId,
        graph: &ExecutionGraphBox,
        subscriber: Option<JobStatusSubscriber>,
    ) -> Result<()> {
        if let Some(client) = subscriber.clone() {
            // Nobody watches when the coordinator ends.
            let _ = self.leases.send(Lease { job: job_id.clone(), client });
        }
        self.jobs.submit_job(job_id, graph, subscriber).await
    }

    fn accept_job(&self, job_id: &JobId, job_name: &str, queued_at: u64) -> Result<()> {
        self.jobs.accept_job(job_id, job_name, queued_at)
    }

    fn pending_job_number(&self) -> usize {
        self.jobs.pending_job_number()
    }

    async fn get_jobs(&self) -> Result<HashSet<JobId>> {
        self.jobs.get_jobs().await
    }

    async fn get_all_jobs(&self) -> Result<HashSet<JobId>> {
        self.jobs.get_all_jobs().await
    }

    async fn get_job_status(&self, job_id: &JobId) -> Result<Option<JobStatus>> {
        self.jobs.get_job_status(job_id).await
    }

    async fn get_execution_graph(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
        self.jobs.get_execution_graph(job_id).await
    }

    async fn save_job(&self, job_id: &JobId, graph: &ExecutionGraphBox) -> Result<()> {
        self.jobs.save_job(job_id, graph).await
    }

    async fn fail_unscheduled_job(&self, job_id: &JobId, reason: String) -> Result<()> {
        self.jobs.fail_unscheduled_job(job_id, reason).await?;
        // The scheduler forgets only jobs that have run.
        let (clock, jobs, job) = (self.env.clone(), Arc::clone(&self.jobs), job_id.clone());
        self.env.spawn("query-unplanned", async move {
            clock.sleep(JOBS_KEPT).await;
            if let Err(error) = forget(jobs.as_ref(), &job).await {
                tracing::warn!(%job, %error, "a query cannot be forgotten");
            }
        });
        Ok(())
    }

    async fn remove_job(&self, job_id: &JobId) -> Result<()> {
        forget(self.jobs.as_ref(), job_id).await.map(drop)
    }

    async fn try_acquire_job(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
        self.jobs.try_acquire_job(job_id).await
    }

    async fn job_state_events(&self) -> Result<JobStateEventStream> {
        self.jobs.job_state_events().await
    }

    async fn create_or_update_session(
        &self,
        session_id: &str,
        config: &SessionConfig,
    ) -> Result<Arc<SessionContext>> {
        self.jobs.create_or_update_session(session_id, config).await
    }

    async fn remove_session(&self, session_id: &str) -> Result<()> {
        self.jobs.remove_session(session_id).await
    }

    fn produce_config(&self) -> SessionConfig {
        self.jobs.produce_config()
    }
}

#[cfg(test)]
mod tests {
    use ballista_scheduler::cluster::BallistaCluster;
    use ballista_scheduler::config::SchedulerConfig;
    use futures::future::BoxFuture;
    use millstream_store::env::{Clock, SeededRng};
    use tokio::sync::Notify;

    use super::*;

    /// Whatever sleeps wakes up when it is notified.
    #[derive(Clone, Default)]
    struct Alarm(Arc<Notify>);

    impl Clock for Alarm {
        fn now_us(&self) -> i64 {
            0
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            let alarm = Arc::clone(&self.0);
            Box::pin(async move { alarm.notified().await })
        }
    }

    #[tokio::test]
    async fn a_query_that_could_not_be_planned_is_forgotten() {
        let alarm = Alarm::default();
        let env = Env::new(Arc::new(alarm.clone()), Arc::new(SeededRng::new(1)));
        let cluster = BallistaCluster::new_from_config(&SchedulerConfig::default()).await;
        let (jobs, _) = LeasedJobs::new(env, cluster.expect("a cluster").job_state());
        let job = JobId::from("a job".to_owned());
        jobs.accept_job(&job, "", 0).expect("it is accepted");
        jobs.fail_unscheduled_job(&job, "no plan".to_owned()).await.expect("it fails");
        tokio::task::yield_now().await;
        assert!(jobs.get_job_status(&job).await.expect("a state").is_some());
        alarm.0.notify_one();
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert!(jobs.get_job_status(&job).await.expect("a state").is_none());
    }

    /// Passes on what is asked for, and fails where a job is to be removed that is not there.
    #[derive(Clone)]
    struct Strict(Arc<dyn JobState>);

    #[tokio::test]
    async fn a_query_that_is_forgotten_twice_is_asked_for_once() {
        let cluster = BallistaCluster::new_from_config(&SchedulerConfig::default()).await;
        let inner: Arc<dyn JobState> = Arc::new(Strict(cluster.expect("a cluster").job_state()));
        let (leased, _) = LeasedJobs::new(Env::real(), Arc::clone(&inner));
        for its_own_first in [true, false] {
            let job = JobId::from(format!("a job {its_own_first}"));
            inner.accept_job(&job, "", 0).expect("it is accepted");
            inner.fail_unscheduled_job(&job, "no plan".to_owned()).await.expect("it fails");
            if its_own_first {
                assert!(forget(inner.as_ref(), &job).await.expect("it is there"));
                leased.remove_job(&job).await.expect("it is gone");
            } else {
                leased.remove_job(&job).await.expect("it is there");
                assert!(!forget(inner.as_ref(), &job).await.expect("it is gone"));
            }
        }
    }

    #[async_trait]
    impl JobState for Strict {
        async fn submit_job(
            &self,
            job_id: JobId,
            graph: &ExecutionGraphBox,
            subscriber: Option<JobStatusSubscriber>,
        ) -> Result<()> {
            self.0.submit_job(job_id, graph, subscriber).await
        }

        fn accept_job(&self, job_id: &JobId, job_name: &str, queued_at: u64) -> Result<()> {
            self.0.accept_job(job_id, job_name, queued_at)
        }

        fn pending_job_number(&self) -> usize {
            self.0.pending_job_number()
        }

        async fn get_jobs(&self) -> Result<HashSet<JobId>> {
            self.0.get_jobs().await
        }

        async fn get_all_jobs(&self) -> Result<HashSet<JobId>> {
            self.0.get_all_jobs().await
        }

        async fn get_job_status(&self, job_id: &JobId) -> Result<Option<JobStatus>> {
            self.0.get_job_status(job_id).await
        }

        async fn get_execution_graph(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
            self.0.get_execution_graph(job_id).await
        }

        async fn save_job(&self, job_id: &JobId, graph: &ExecutionGraphBox) -> Result<()> {
            self.0.save_job(job_id, graph).await
        }

        async fn fail_unscheduled_job(&self, job_id: &JobId, reason: String) -> Result<()> {
            self.0.fail_unscheduled_job(job_id, reason).await
        }

        async fn remove_job(&self, job_id: &JobId) -> Result<()> {
            assert!(self.0.get_jobs().await?.contains(job_id), "{job_id} is not there");
            self.0.remove_job(job_id).await
        }

        async fn try_acquire_job(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
            self.0.try_acquire_job(job_id).await
        }

        async fn job_state_events(&self) -> Result<JobStateEventStream> {
            self.0.job_state_events().await
        }

        async fn create_or_update_session(
            &self,
            session_id: &str,
            config: &SessionConfig,
        ) -> Result<Arc<SessionContext>> {
            self.0.create_or_update_session(session_id, config).await
        }

        async fn remove_session(&self, session_id: &str) -> Result<()> {
            self.0.remove_session(session_id).await
        }

        fn produce_config(&self) -> SessionConfig {
            self.0.produce_config()
        }
    }
}
