//! Answers on their way to clients, and plans that wait to be asked for.
//!
//! What a client can make the coordinator keep is limited: the plans that wait, and for how long;
//! the queries that run; the answers that are open, of each of which two record batches are held
//! at most. A ticket holds the text of its query, so a plan that is forgotten is made again.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use futures::Stream;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use millstream_engine::failures::from_datafusion;
use millstream_store::env::Env;
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::statement::{Planned, failed, status};

/// Queries that run at one time; more are refused.
const RUNNING_MAX: usize = 64;
/// Answers that are open at one time, those included whose client has stopped reading.
const OPEN_MAX: usize = 256;
/// A query whose client takes no rows for so long is ended.
const READ_PATIENCE: Duration = Duration::from_secs(600);
/// Plans that wait at one time; the oldest is forgotten for a new one.
const PLANS_MAX: usize = 64;
/// How long a plan waits: a query is to see its tables as they are.
const PLAN_PATIENCE: Duration = Duration::from_secs(60);

/// The name of one query, which nobody can guess.
pub(super) type Id = u128;

/// The rows of an answer, encoded.
pub(super) type Encoded = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

/// Plans that wait to be asked for.
pub(super) struct Plans {
    env: Env,
    waiting: Mutex<Waiting>,
}

/// The oldest first, each with the time at which it was made, on the monotonic clock.
type Waiting = VecDeque<(Id, Duration, Planned)>;

fn forget_old(waiting: &mut Waiting, now: Duration) {
    waiting.retain(|(_, made, _)| now.saturating_sub(*made) < PLAN_PATIENCE);
}

impl Plans {
    /// None yet.
    pub(super) fn new(env: Env) -> Self {
        Self { env, waiting: Mutex::default() }
    }

    /// Keeps a plan for a while, under a new name.
    pub(super) fn keep(&self, planned: Planned) -> Id {
        let (id, now) = (self.env.random_uuid().as_u128(), self.env.monotonic());
        let mut waiting = self.waiting.lock();
        forget_old(&mut waiting, now);
        if waiting.len() >= PLANS_MAX {
            waiting.pop_front();
        }
        waiting.push_back((id, now, planned));
        id
    }

    /// The plan of this name, if it waits.
    pub(super) fn take(&self, id: Id) -> Option<Planned> {
        let now = self.env.monotonic();
        let mut waiting = self.waiting.lock();
        forget_old(&mut waiting, now);
        let at = waiting.iter().position(|(waits, _, _)| *waits == id)?;
        waiting.remove(at).map(|(_, _, planned)| planned)
    }
}

/// Runs queries, and gives their rows to clients.
pub(super) struct Answers {
    env: Env,
    running: Arc<Semaphore>,
    open: Arc<Semaphore>,
    /// What ends the queries that run.
    ends: Arc<Mutex<HashMap<Id, Arc<Notify>>>>,
}

/// What comes out of a query that runs.
enum Item {
    Rows(RecordBatch),
    /// The answer is whole.
    End,
}

/// The places of a query that runs.
struct Place {
    id: Id,
    ends: Arc<Mutex<HashMap<Id, Arc<Notify>>>>,
    end: Arc<Notify>,
    _running: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut ends = self.ends.lock();
        // A ticket may be in use twice.
        if ends.get(&self.id).is_some_and(|end| Arc::ptr_eq(end, &self.end)) {
            ends.remove(&self.id);
        }
    }
}

impl Answers {
    /// None yet.
    pub(super) fn new(env: Env) -> Self {
        let (running, open) = (Semaphore::new(RUNNING_MAX), Semaphore::new(OPEN_MAX));
        Self { env, running: Arc::new(running), open: Arc::new(open), ends: Arc::default() }
    }

    /// Runs `planned`, made of `text`, and gives its rows as they are asked for.
    ///
    /// # Errors
    /// There is no room; whatever else is wrong comes in place of rows.
    pub(super) fn run(&self, id: Id, planned: Planned, text: String) -> Result<Encoded, Status> {
        let schema = planned.schema();
        let query = match planned {
            Planned::Known(rows) | Planned::Explained { rows, .. } => {
                return Ok(encoded(schema, stream::iter([Ok(rows)]).boxed()));
            }
            Planned::Query(query) => query,
        };
        let full = |_| Status::resource_exhausted("too many queries run; try again later");
        let running = Arc::clone(&self.running).try_acquire_owned().map_err(full)?;
        let open = Arc::clone(&self.open).try_acquire_owned().map_err(full)?;
        let end = Arc::new(Notify::new());
        self.ends.lock().insert(id, Arc::clone(&end));
        let place = Place { id, ends: Arc::clone(&self.ends), end, _running: running };
        let (sender, receiver) = channel(1);
        let env = self.env.clone();
        let running = async move {
            let work = async {
                if let Err(status) = give(&env, &query, &text, &sender).await {
                    sent(&env, &sender, Err(status)).await;
                }
            };
            tokio::select! {
                () = work => {}
                () = place.end.notified() => {}
                // The client has gone away.
                () = sender.closed() => {}
            }
        };
        drop(self.env.spawn("flight-sql-query", running));
        Ok(encoded(schema, received(receiver, open)))
    }

    /// Ends the query of this name; false if it does not run.
    pub(super) fn cancel(&self, id: Id) -> bool {
        let end = self.ends.lock().get(&id).cloned();
        // Kept for the query if it waits for something else just now.
        end.map(|end| end.notify_one()).is_some()
    }
}

/// Sends the rows of `query`; one that is not taken in time ends it.
async fn give(
    env: &Env,
    query: &crate::session::PlannedQuery,
    text: &str,
    to: &Sender<Result<Item, Status>>,
) -> Result<(), Status> {
    let mut rows = query.run().await.map_err(|error| status(&error, text))?;
    while let Some(next) = rows.next().await {
        let next = next.map_err(|error| failed(&from_datafusion(error)))?;
        if !sent(env, to, Ok(Item::Rows(next))).await {
            return Ok(());
        }
    }
    sent(env, to, Ok(Item::End)).await;
    Ok(())
}

/// Sends `item`. False if nobody took it in time, or the client has gone away.
async fn sent(env: &Env, to: &Sender<Result<Item, Status>>, item: Result<Item, Status>) -> bool {
    tokio::select! {
        sent = to.send(item) => sent.is_ok(),
        () = env.sleep(READ_PATIENCE) => {
            tracing::info!("a query is ended, whose rows are not read");
            false
        }
    }
}

/// The rows up to the end of the answer; one that ends without it has failed.
fn received(
    receiver: Receiver<Result<Item, Status>>,
    open: OwnedSemaphorePermit,
) -> stream::BoxStream<'static, Result<RecordBatch, FlightError>> {
    let state = Some((receiver, open));
    let next = |state: Option<(Receiver<Result<Item, Status>>, OwnedSemaphorePermit)>| async {
        let (mut receiver, open) = state?;
        match receiver.recv().await {
            Some(Ok(Item::Rows(rows))) => Some((Ok(rows), Some((receiver, open)))),
            Some(Ok(Item::End)) => None,
            Some(Err(status)) => Some((Err(status.into()), None)),
            None => {
                let problem = "the query was cancelled, or its rows were not read for ten minutes";
                Some((Err(Status::cancelled(problem).into()), None))
            }
        }
    };
    stream::unfold(state, next).boxed()
}

/// Rows as Flight has them.
pub(super) fn encoded(
    schema: arrow::datatypes::SchemaRef,
    rows: stream::BoxStream<'static, Result<RecordBatch, FlightError>>,
) -> Encoded {
    let encoded = FlightDataEncoderBuilder::new().with_schema(schema).build(rows);
    Box::pin(encoded.map_err(Status::from))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use arrow::datatypes::Schema;
    use futures::future::BoxFuture;
    use millstream_store::env::{Clock, SeededRng};

    use super::*;

    /// A clock on which a sleep is over at once, and that otherwise stands.
    #[derive(Default)]
    struct Hasty(AtomicU64);

    impl Clock for Hasty {
        fn now_us(&self) -> i64 {
            0
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::Relaxed))
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(async {})
        }
    }

    #[tokio::test]
    async fn neither_the_end_nor_an_error_waits_for_ever() {
        let env = Env::new(Arc::new(Hasty::default()), Arc::new(SeededRng::new(1)));
        let (sender, _unread) = channel(1);
        sender.try_send(Ok(Item::End)).expect("there is room for one");
        let limit = Duration::from_secs(60);
        for item in [Ok(Item::End), Err(Status::internal("a problem"))] {
            let sending = sent(&env, &sender, item);
            let is_sent = tokio::time::timeout(limit, sending).await.expect("it gives up");
            assert!(!is_sent);
        }
    }

    #[test]
    fn a_plan_that_is_kept_has_old_ones_forgotten() {
        let clock = Arc::new(Hasty::default());
        let env = Env::new(Arc::clone(&clock) as Arc<dyn Clock>, Arc::new(SeededRng::new(1)));
        let plans = Plans::new(env);
        let planned = || Planned::Known(RecordBatch::new_empty(Arc::new(Schema::empty())));
        let (first, second) = (plans.keep(planned()), plans.keep(planned()));
        assert!(plans.take(first).is_some() && plans.take(first).is_none());
        clock.0.store(PLAN_PATIENCE.as_secs(), Ordering::Relaxed);
        plans.keep(planned());
        assert_eq!(plans.waiting.lock().len(), 1);
        assert!(plans.take(second).is_none());
    }
}
