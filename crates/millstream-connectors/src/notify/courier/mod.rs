//! Delivers messages, in lanes.
//!
//! A lane is a task that delivers one message after the other, each until the receiver has accepted
//! it. Messages of one lane are in order, across micro-batches and retries; those of several lanes
//! are not. A micro-batch is acknowledged when all of its messages are accepted, or are put aside.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{join_all, try_join_all};
use millstream_engine::api::contact::ContactWith;
use millstream_engine::api::sink::{Acknowledgement, BatchId, Ending, Failure};
use millstream_store::crash_points::{self, Step};
use millstream_store::env::{Env, Task};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::accepted::Accepted;
use super::aside::{Aside, Kept};
use super::error::DeliveryError;
use super::retries::Retries;
use super::{Message as _, Outcome, Transport};

/// When a run ends, a message that is not accepted for so long is left to the next run; when it is
/// stopped, so is one that may be sent only later.
const ENDING_PATIENCE: Duration = Duration::from_secs(30);
/// How long attempts that are under way may take when the courier is closed: what they have sent
/// is accepted, and is not to be sent again.
const CLOSING_PATIENCE: Duration = Duration::from_secs(10);
/// How often an attempt that lasts is reported as unanswered.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Messages that wait in each lane before the driver takes more input. Few, so that rows that come
/// meanwhile share a micro-batch, and few are repeated after a crash.
const QUEUED_PER_LANE_MAX: usize = 4;

/// How messages are delivered.
pub struct Settings {
    /// When a message is tried again.
    pub retries: Retries,
    /// How many messages may be under way at a time.
    pub lanes: usize,
    /// The time between the beginnings of two attempts, at least.
    pub interval: Duration,
    /// Where refused messages go; without it they fail the query.
    pub refused: Option<Aside>,
}

/// A message that fails the query.
pub struct Undelivered {
    /// Why.
    pub error: DeliveryError,
    /// The rows of a message that was refused; empty where it is not about the message.
    pub rows: Vec<Bytes>,
}

impl From<DeliveryError> for Undelivered {
    fn from(error: DeliveryError) -> Self {
        Self { error, rows: Vec::new() }
    }
}

/// Messages of a micro-batch for one lane.
struct Parcel<M> {
    batch_id: BatchId,
    messages: Vec<M>,
    done: oneshot::Sender<Result<i64, Undelivered>>,
}

/// What the lanes share.
struct Shared<T> {
    transport: T,
    settings: Settings,
    contact: ContactWith,
    env: Env,
    /// Messages that are not delivered yet.
    queued: watch::Sender<usize>,
    /// When the next attempt may begin, by the monotonic clock.
    next_attempt: Mutex<Duration>,
    end: Mutex<End>,
    accepted: Mutex<Accepted>,
}

/// How far the run has come to its end, by the monotonic clock.
#[derive(Clone, Copy, Default)]
struct End {
    /// Since when no message follows.
    since: Option<Duration>,
    /// Since when it is to end soon.
    stopped_since: Option<Duration>,
    /// Since when nobody waits for anything but attempts that are under way.
    closed_since: Option<Duration>,
}

/// Delivers messages until it is dropped.
pub struct Courier<T: Transport> {
    shared: Arc<Shared<T>>,
    lanes: Vec<mpsc::UnboundedSender<Parcel<T::Message>>>,
    tasks: Vec<Task<()>>,
    /// The lane of the next message that may go to any.
    next_lane: usize,
}

impl<T: Transport> Courier<T> {
    /// Starts the lanes. `accepted` has what was delivered before of messages that come again.
    pub fn start(
        transport: T,
        settings: Settings,
        accepted: Accepted,
        contact: ContactWith,
        env: &Env,
    ) -> Self {
        let lane_count = settings.lanes;
        let shared = Arc::new(Shared {
            transport,
            settings,
            contact,
            env: env.clone(),
            queued: watch::Sender::new(0),
            next_attempt: Mutex::default(),
            end: Mutex::default(),
            accepted: Mutex::new(accepted),
        });
        let (mut lanes, mut tasks) = (Vec::new(), Vec::new());
        for _ in 0..lane_count {
            let (sender, parcels) = mpsc::unbounded_channel();
            lanes.push(sender);
            tasks.push(env.spawn("notify", Arc::clone(&shared).serve(parcels)));
        }
        Self { shared, lanes, tasks, next_lane: 0 }
    }

    /// Completes when a micro-batch would soon be under way.
    pub async fn ready(&self) {
        let max = QUEUED_PER_LANE_MAX * self.lanes.len();
        let is_broken = || self.lanes.iter().any(mpsc::UnboundedSender::is_closed);
        let mut queued = self.shared.queued.subscribe();
        // The sender lives as long as this.
        let _ = queued.wait_for(|queued| *queued < max || is_broken()).await;
    }

    /// Takes the messages of a micro-batch. Those with the same number beside them stay in order.
    /// `failure` makes what the query fails with.
    pub fn hand_over(
        &mut self,
        batch_id: BatchId,
        messages: Vec<(Option<u64>, T::Message)>,
        failure: impl Fn(Undelivered) -> Failure + Send + 'static,
    ) -> Acknowledgement {
        let messages = self.shared.accepted.lock().begin(batch_id, messages);
        if messages.is_empty() {
            return Acknowledgement::Done;
        }
        let mut shares: Vec<Vec<T::Message>> = self.lanes.iter().map(|_| Vec::new()).collect();
        self.shared.queued.send_modify(|queued| *queued += messages.len());
        for (order, message) in messages {
            let lane = match order {
                Some(order) => (order % self.lanes.len() as u64) as usize,
                None => {
                    self.next_lane = (self.next_lane + 1) % self.lanes.len();
                    self.next_lane
                }
            };
            shares[lane].push(message);
        }
        let mut waiting = Vec::new();
        for (lane, messages) in self.lanes.iter().zip(shares) {
            if messages.is_empty() {
                continue;
            }
            let (done, accepted) = oneshot::channel();
            // A lane that has ended drops the parcel, and with it the sender that is waited for.
            let _ = lane.send(Parcel { batch_id, messages, done });
            waiting.push(async { accepted.await.unwrap_or(Err(DeliveryError::Stopped.into())) });
        }
        Acknowledgement::Later(Box::pin(async move {
            let moments = try_join_all(waiting).await.map_err(failure)?;
            crash_points::reached(Step::AfterCommit);
            Ok(moments.into_iter().max().expect("there is a message"))
        }))
    }

    /// No message follows: those that are not accepted are not tried for ever.
    pub fn end(&self, ending: Ending) {
        let now = self.shared.env.monotonic();
        let mut end = self.shared.end.lock();
        end.since.get_or_insert(now);
        if ending == Ending::Stopped {
            end.stopped_since.get_or_insert(now);
            return;
        }
        let messages = *self.shared.queued.borrow();
        let count = u32::try_from(messages).unwrap_or(u32::MAX);
        let lasts = self.shared.settings.interval.saturating_mul(count);
        if lasts > ENDING_PATIENCE {
            let receiver = self.shared.transport.receiver();
            tracing::warn!(%receiver, messages, ?lasts, "all input is read; the run ends when \
                these messages are sent, which takes so long because the options allow no more \
                in a time");
        }
    }

    /// Ends the lanes, after the attempts that are under way. Gives what was accepted of
    /// micro-batches that were not acknowledged.
    pub async fn close(mut self) -> Accepted {
        self.shared.end.lock().closed_since = Some(self.shared.env.monotonic());
        self.lanes.clear();
        join_all(self.tasks.drain(..).map(Task::join)).await;
        std::mem::take(&mut *self.shared.accepted.lock())
    }
}

impl<T: Transport> Drop for Courier<T> {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl<T: Transport> Shared<T> {
    /// A lane: delivers parcels until there are no more, or one fails.
    async fn serve(self: Arc<Self>, mut parcels: mpsc::UnboundedReceiver<Parcel<T::Message>>) {
        while let Some(Parcel { batch_id, messages, done }) = parcels.recv().await {
            let mut outcome = Ok(());
            for message in &messages {
                match self.deliver(batch_id, message).await {
                    Ok(Kept::Now) => self.accepted.lock().add(batch_id, message.key()),
                    Ok(Kept::WithMicroBatch) => self.accepted.lock().settle(batch_id),
                    Err(undelivered) => {
                        // Nothing may overtake it.
                        parcels.close();
                        outcome = Err(undelivered);
                        break;
                    }
                }
                crash_points::reached(Step::AfterProduce);
                self.queued.send_modify(|queued| *queued -= 1);
            }
            let has_failed = outcome.is_err();
            // Nobody listens where the query has ended.
            let _ = done.send(outcome.map(|()| self.env.now_us()));
            if has_failed {
                drop(parcels);
                // Wakes a driver that waits for space.
                self.queued.send_modify(|_| {});
                return;
            }
        }
    }

    /// Tries until the message is accepted or put aside.
    async fn deliver(&self, batch_id: BatchId, message: &T::Message) -> Result<Kept, Undelivered> {
        self.wait_for_turn().await?;
        let (begun, asked_ms) = (self.env.monotonic(), self.env.now_ms());
        let mut failed = 0;
        loop {
            self.check_time()?;
            let (problem, asked_wait) = match self.attempt(message, asked_ms).await {
                Outcome::Accepted => {
                    self.contact.answered();
                    return Ok(Kept::Now);
                }
                Outcome::Refused(answer) => {
                    self.contact.answered();
                    return self.refuse(batch_id, message, answer).await;
                }
                Outcome::Failed(error) => return Err(error.into()),
                Outcome::Later { problem, wait } => (problem, wait),
            };
            failed += 1;
            let receiver = self.transport.receiver();
            if failed == 1 {
                tracing::warn!(%receiver, %problem, key = message.key(), "a message is not accepted \
                    yet; it is tried again");
            }
            if self.settings.retries.max.is_some_and(|max| failed > max) {
                return self.give_up(batch_id, message, failed, problem).await;
            }
            let wait = self.settings.retries.wait(failed, asked_wait, &self.env);
            self.wait_to_retry(begun, wait, asked_ms, &problem).await?;
            self.wait_for_turn().await?;
        }
    }

    /// Looks whether there is time for another attempt.
    /// Errors: the run was stopped a while ago, or nobody waits any more.
    fn check_time(&self) -> Result<(), DeliveryError> {
        let End { stopped_since, closed_since, .. } = *self.end.lock();
        if closed_since.is_some() {
            return Err(DeliveryError::Stopped);
        }
        let now = self.env.monotonic();
        match stopped_since.map(|since| now.saturating_sub(since)) {
            Some(waited) if waited > ENDING_PATIENCE => {
                let receiver = self.transport.receiver().to_owned();
                Err(DeliveryError::OutOfTime { receiver, waited })
            }
            _ => Ok(()),
        }
    }

    /// Waits for the time between two attempts.
    /// Errors: the run is stopped, and the turn comes too late.
    async fn wait_for_turn(&self) -> Result<(), DeliveryError> {
        if self.settings.interval.is_zero() {
            return Ok(());
        }
        let turn = {
            let mut next = self.next_attempt.lock();
            let turn = (*next).max(self.env.monotonic());
            *next = turn + self.settings.interval;
            turn
        };
        loop {
            let now = self.env.monotonic();
            let wait = turn.saturating_sub(now);
            let End { stopped_since, closed_since, .. } = *self.end.lock();
            if closed_since.is_some() {
                return Err(DeliveryError::Stopped);
            }
            if stopped_since.is_some_and(|since| turn > since + ENDING_PATIENCE) {
                let receiver = self.transport.receiver().to_owned();
                return Err(DeliveryError::NotDue { receiver, wait });
            }
            if wait.is_zero() {
                return Ok(());
            }
            self.env.sleep(wait.min(REPORT_INTERVAL)).await;
        }
    }

    async fn attempt(&self, message: &T::Message, asked_ms: i64) -> Outcome {
        let mut attempt = self.transport.attempt(message);
        loop {
            tokio::select! {
                outcome = &mut attempt => return outcome,
                () = self.env.sleep(REPORT_INTERVAL) => self.contact.unanswered(asked_ms),
            }
            let closed_since = self.end.lock().closed_since;
            let now = self.env.monotonic();
            if closed_since.is_some_and(|since| now.saturating_sub(since) > CLOSING_PATIENCE) {
                return Outcome::Failed(DeliveryError::Stopped);
            }
        }
    }

    /// Waits before the next attempt.
    /// Errors: the run is ending, and has waited long enough.
    async fn wait_to_retry(
        &self,
        begun: Duration,
        wait: Duration,
        asked_ms: i64,
        problem: &str,
    ) -> Result<(), DeliveryError> {
        let until = self.env.monotonic() + wait;
        loop {
            self.contact.unanswered(asked_ms);
            let now = self.env.monotonic();
            let End { since: ending_since, closed_since, .. } = *self.end.lock();
            if closed_since.is_some() {
                return Err(DeliveryError::Stopped);
            }
            let waited = ending_since.map(|since| now.saturating_sub(since.max(begun)));
            if let Some(waited) = waited.filter(|waited| *waited > ENDING_PATIENCE) {
                let receiver = self.transport.receiver().to_owned();
                let problem = problem.to_owned();
                return Err(DeliveryError::Unfinished { receiver, waited, problem });
            }
            if now >= until {
                return Ok(());
            }
            self.env.sleep((until - now).min(REPORT_INTERVAL)).await;
        }
    }

    async fn refuse(
        &self,
        batch_id: BatchId,
        message: &T::Message,
        answer: String,
    ) -> Result<Kept, Undelivered> {
        let (receiver, key) = (self.transport.receiver().to_owned(), message.key().to_owned());
        let error = DeliveryError::Refused { receiver, answer: answer.clone(), key };
        match &self.settings.refused {
            Some(aside) => Ok(aside.keep(batch_id, message, &error, &answer).await?),
            None => Err(Undelivered { error, rows: message.rows().to_vec() }),
        }
    }

    async fn give_up(
        &self,
        batch_id: BatchId,
        message: &T::Message,
        attempts: u32,
        problem: String,
    ) -> Result<Kept, Undelivered> {
        let receiver = self.transport.receiver().to_owned();
        let error = DeliveryError::GivenUp { receiver, attempts, problem: problem.clone() };
        match &self.settings.refused {
            Some(aside) => Ok(aside.keep(batch_id, message, &error, &problem).await?),
            None => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
