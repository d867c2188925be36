//! From the service into the journal, and back the acknowledgement.
//!
//! ```text
//! receive ──▶ journal ──▶ acknowledge (as soon as it is durable)
//!    │           └─────▶ buffer ──▶ driver
//!    └ waits while the journal is full, or too much is on its way
//! extend: the leases of what waits for its acknowledgement
//! fill:   what did not fit into the buffer is read from the journal
//! ```
//!
//! A message that comes again, by its id, is not written again; its new acknowledgement is sent as
//! any other.
//!
//! Ids are known until the journal knows that their acknowledgements are confirmed, and then for
//! its window. What an earlier run left unconfirmed counts as confirmed when the first messages
//! arrive: from then on the service may send them again. What it refuses to acknowledge, since the
//! lease has ended, comes again as well, and so counts from the refusal.
//!
//! A run that ends (`once`, `availableNow`) is over when nothing came for a while. Silence alone
//! does not show that there is nothing: the service is asked before that while and after it, and no
//! time counts in which nothing could come.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use googleapis_tonic_google_pubsub_v1::google::pubsub::v1 as pb;
use millstream_engine::api::source::Failure;
use millstream_store::crash_points::{self, Step};
use millstream_store::env::{Env, Task};
use millstream_store::journal::{Journal, Key, Record};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::Notify;

use super::buffer::{Buffer, Hold, Waiting};
use super::client::{CallError, Client, Tries};
use super::error::PubsubError;

/// How long a message may wait for its acknowledgement before the service sends it again, seconds.
const LEASE_S: i32 = 60;
/// Leases of what has waited so long are extended, and so often.
const EXTEND_AFTER: Duration = Duration::from_secs(20);
/// The service does not take more in one call.
const ACK_IDS_MAX: usize = 1_000;
/// How often a stream without messages shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// A stream that has lasted so long was answered, though the service says nothing without messages:
/// what cannot be reached fails earlier.
const ANSWERED_AFTER: Duration = Duration::from_secs(60);
/// How long the service may give no answer when a run is to end, at least.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// Between two questions whether it answers, at least.
const ASK_PAUSE: Duration = Duration::from_millis(100);
/// The same where it did not answer.
const ASK_AGAIN_PAUSE: Duration = Duration::from_secs(1);
/// How long the last acknowledgements may take when a run ends.
const CLOSING_PATIENCE: Duration = Duration::from_secs(5);

/// How messages are received.
pub(super) struct Settings {
    pub(super) id_attribute: Option<String>,
    pub(super) messages_max: u64,
    pub(super) bytes_max: u64,
    pub(super) streams: usize,
    /// A run that ends is over when nothing came for so long.
    pub(super) fetch_period: Duration,
}

/// Receives, writes, acknowledges.
pub(super) struct Intake {
    client: Arc<Client>,
    journal: Arc<Journal>,
    buffer: Arc<Buffer>,
    settings: Settings,
    env: Env,
    /// Held while messages get their positions and go to the buffer: it has them in that order.
    order: Mutex<()>,
    unacknowledged: Mutex<Unacknowledged>,
    /// There is something to acknowledge, or less.
    changed: Notify,
    repeated: AtomicU64,
    refused: AtomicU64,
}

#[derive(Default)]
struct Unacknowledged {
    queue: VecDeque<Ack>,
    /// What is in the hands of a call.
    in_hand: Vec<Ack>,
    bytes: u64,
    /// Positions of messages whose acknowledgement is not confirmed.
    open: BTreeSet<u64>,
    /// Nobody knows what is confirmed of what an earlier run has left from this position on, and
    /// nothing has come yet.
    earlier: Option<u64>,
}

#[derive(Clone)]
struct Ack {
    id: String,
    position: u64,
    bytes: u64,
    /// On the monotonic clock.
    received: Duration,
}

/// The tasks of an intake.
pub(super) struct Running {
    intake: Arc<Intake>,
    receiving: Vec<Task<()>>,
    others: Vec<Task<()>>,
}

impl Intake {
    pub(super) fn new(
        client: Arc<Client>,
        journal: Arc<Journal>,
        buffer: Arc<Buffer>,
        settings: Settings,
    ) -> Arc<Self> {
        let env = client.env.clone();
        let (confirmed, durable) = (journal.acknowledged_below(), journal.durable());
        let earlier = (confirmed < durable).then_some(confirmed);
        let unacknowledged = Mutex::new(Unacknowledged { earlier, ..Unacknowledged::default() });
        Arc::new(Self {
            client,
            journal,
            buffer,
            settings,
            env,
            order: Mutex::default(),
            unacknowledged,
            changed: Notify::new(),
            repeated: AtomicU64::default(),
            refused: AtomicU64::default(),
        })
    }

    /// Begins to receive.
    pub(super) fn start(self: Arc<Self>) -> Running {
        let receiving = (0..self.settings.streams).map(|_| {
            // Begun here, so that a run does not end before its streams are asked for.
            let hold = self.buffer.hold(&self.env);
            self.env.spawn("pubsub-receive", Arc::clone(&self).receive(hold))
        });
        let receiving = receiving.collect();
        let others = vec![
            self.env.spawn("pubsub-acknowledge", Arc::clone(&self).acknowledge()),
            self.env.spawn("pubsub-extend", Arc::clone(&self).extend()),
            self.env.spawn("pubsub-fill", Arc::clone(&self).fill()),
            self.env.spawn("pubsub-end", Arc::clone(&self).end()),
        ];
        Running { intake: self, receiving, others }
    }

    /// Messages that came again, and acknowledgements that the service has not taken.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.repeated.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// Receives until it fails; `hold` lasts until a stream is asked for.
    async fn receive(self: Arc<Self>, mut hold: Hold) {
        let client_id = self.env.random_uuid().to_string();
        let mut tries = Tries::default();
        loop {
            let is_answered = AtomicBool::new(false);
            let ended = self.receive_stream(&client_id, hold, &mut tries, &is_answered).await;
            hold = self.buffer.hold(&self.env);
            if is_answered.into_inner() {
                self.client.answered(&mut tries);
            }
            // The service closes a stream now and then; the next one is not opened in a hurry.
            let closed = || CallError::Away("the stream was closed".to_owned());
            let error = ended.err().unwrap_or_else(closed);
            // What was read from a subscription that is gone cannot be read from a new one.
            let may_create = self.journal.durable() == 0;
            if let Err(failure) = self.client.wait(&mut tries, error, may_create).await {
                return self.buffer.fail(failure);
            }
        }
    }

    /// Receives over one stream until it ends.
    async fn receive_stream(
        &self,
        client_id: &str,
        hold: Hold,
        tries: &mut Tries,
        is_answered: &AtomicBool,
    ) -> Result<(), CallError> {
        self.room().await?;
        let (requests, outgoing) = mpsc::unbounded();
        let first = pb::StreamingPullRequest {
            subscription: self.client.subscription.clone(),
            stream_ack_deadline_seconds: LEASE_S,
            client_id: client_id.to_owned(),
            max_outstanding_messages: i64::try_from(self.settings.messages_max).unwrap_or(i64::MAX),
            max_outstanding_bytes: i64::try_from(self.settings.bytes_max).unwrap_or(i64::MAX),
            ..pb::StreamingPullRequest::default()
        };
        // A send fails only where the stream has ended, which reading from it reports.
        let _ = requests.unbounded_send(first);
        let request = self.client.stream_request(outgoing).await?;
        self.buffer.opens_stream();
        drop(hold);
        let opened = self.env.monotonic();
        let keeping_alive = async {
            loop {
                self.env.sleep(KEEP_ALIVE).await;
                let _ = requests.unbounded_send(pb::StreamingPullRequest::default());
                if self.env.monotonic().saturating_sub(opened) >= ANSWERED_AFTER {
                    is_answered.store(true, Ordering::Relaxed);
                    self.client.heard();
                }
            }
        };
        let receiving = async {
            let mut stream = self.client.stream(request).await?;
            self.client.answered(tries);
            while let Some(response) = stream.message().await? {
                self.client.answered(tries);
                self.take_in(response.received_messages);
                self.room().await?;
            }
            Ok(())
        };
        tokio::select! {
            ended = receiving => ended,
            () = keeping_alive => unreachable!("it never ends"),
        }
    }

    /// Waits until more may be taken from the service.
    ///
    /// # Errors
    /// The journal has failed: what is taken would not be written.
    async fn room(&self) -> Result<(), CallError> {
        let mut room = std::pin::pin!(self.wait_for_room());
        if let Poll::Ready(there_is) = futures::poll!(&mut room) {
            return there_is;
        }
        let _hold = self.buffer.hold(&self.env);
        room.await
    }

    /// Waits until the journal has room, and not too much is on its way to it.
    async fn wait_for_room(&self) -> Result<(), CallError> {
        self.journal.room().await;
        loop {
            let changed = self.changed.notified();
            if let Some(failure) = self.journal.failure() {
                return Err(CallError::Failure(failure.into()));
            }
            {
                let now = self.unacknowledged.lock();
                let count = (now.queue.len() + now.in_hand.len()) as u64;
                let has_room = count < self.settings.messages_max.saturating_mul(2)
                    && now.bytes < self.settings.bytes_max.saturating_mul(2);
                if has_room {
                    return Ok(());
                }
            }
            changed.await;
        }
    }

    /// Finds out when a run that ends is over.
    async fn end(self: Arc<Self>) {
        self.buffer.end_fixed().await;
        let period = self.settings.fetch_period;
        let patience = period.max(ANSWER_PATIENCE);
        let mut heard = self.env.monotonic();
        loop {
            let (streams, asked) = (self.buffer.streams(), self.env.monotonic());
            let answer = self.client.ask().await;
            let now = self.env.monotonic();
            let pause = match answer {
                Ok(()) => {
                    heard = now;
                    if self.buffer.answered(streams, (asked, now), period) {
                        return;
                    }
                    self.buffer.quiet_in(period, now).max(ASK_PAUSE)
                }
                Err(CallError::Failure(failure)) => return self.buffer.fail(failure),
                Err(error) => {
                    let waited = now.saturating_sub(heard);
                    if waited >= patience {
                        let subscription = self.client.subscription.clone();
                        let (waited_s, problem) = (waited.as_secs(), error.to_string());
                        let error = PubsubError::NoAnswer { subscription, waited_s, problem };
                        return self.buffer.fail(error.into());
                    }
                    ASK_AGAIN_PAUSE
                }
            };
            self.env.sleep(pause).await;
        }
    }

    /// Messages go to the journal and to the buffer, and are to be acknowledged.
    fn take_in(&self, received: Vec<pb::ReceivedMessage>) {
        let (now_us, now) = (self.env.now_us(), self.env.monotonic());
        self.confirm_earlier();
        let mut ids = Vec::with_capacity(received.len());
        let mut records = Vec::with_capacity(received.len());
        for received in received {
            let message = received.message.unwrap_or_default();
            let published = message.publish_time.as_ref();
            let published_ms = published.map_or(0, |time| {
                time.seconds.saturating_mul(1_000).saturating_add(i64::from(time.nanos) / 1_000_000)
            });
            self.buffer.sign(Some(published_ms), now);
            let key = Some(self.key(&message));
            ids.push(received.ack_id);
            records.push(Record { key, content: Bytes::from(message.encode_to_vec()) });
        }
        if records.is_empty() {
            return;
        }
        let contents: Vec<Bytes> = records.iter().map(|record| record.content.clone()).collect();
        let order = self.order.lock();
        let appended = self.journal.append(records);
        let mut next = appended.first;
        let mut fresh = Vec::with_capacity(ids.len());
        let mut acks = Vec::with_capacity(ids.len());
        for ((position, content), id) in appended.positions.into_iter().zip(contents).zip(ids) {
            let bytes = content.len() as u64;
            acks.push((Ack { id, position, bytes, received: now }, position >= appended.first));
            if position == next {
                next += 1;
                fresh.push(Waiting { position, content, arrival_us: now_us });
            }
        }
        let repeated = (acks.len() - fresh.len()) as u64;
        self.buffer.put(fresh.into_iter());
        {
            let mut unacknowledged = self.unacknowledged.lock();
            for (ack, is_fresh) in acks {
                unacknowledged.bytes += ack.bytes;
                if is_fresh {
                    unacknowledged.open.insert(ack.position);
                }
                unacknowledged.queue.push_back(ack);
            }
        }
        drop(order);
        self.repeated.fetch_add(repeated, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// What tells the message from others.
    fn key(&self, message: &pb::PubsubMessage) -> Key {
        let attribute = self.settings.id_attribute.as_ref();
        let own = attribute.and_then(|name| message.attributes.get(name));
        // An empty one is none: all messages that have it would be one.
        let own = own.filter(|own| !own.is_empty());
        // An attribute may be anything its publisher likes; nobody finds two with one digest.
        let (kind, id) = match own {
            Some(own) => (b"a", own),
            None => (b"m", &message.message_id),
        };
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        context.update(kind);
        context.update(id.as_bytes());
        let digest = context.finish();
        digest.as_ref()[..16].try_into().expect("it has 32 bytes")
    }

    /// Acknowledges what is durable, in the order of arrival.
    async fn acknowledge(self: Arc<Self>) {
        let mut tries = Tries::default();
        loop {
            let changed = self.changed.notified();
            let first = self.unacknowledged.lock().queue.front().map(|ack| ack.position);
            let Some(first) = first else {
                changed.await;
                continue;
            };
            self.journal.advanced(first).await;
            if self.journal.durable() <= first {
                // The journal has failed, which is reported by whoever fills the buffer.
                return;
            }
            let mut left = self.take_durable();
            while !left.is_empty() {
                match self.client.acknowledge(left.clone()).await {
                    Ok(outcome) => {
                        crash_points::reached(Step::AfterAcknowledge);
                        self.client.answered(&mut tries);
                        self.settle(&left, &outcome.again, &outcome.invalid);
                        if !outcome.again.is_empty() {
                            // It is refused now, and waiting is all that helps.
                            let away = CallError::Away("acknowledgements".to_owned());
                            let _ = self.client.wait(&mut tries, away, false).await;
                        }
                        left = outcome.again;
                    }
                    Err(error) => {
                        if let Err(failure) = self.client.wait(&mut tries, error, false).await {
                            return self.buffer.fail(failure);
                        }
                    }
                }
            }
        }
    }

    /// What is durable of the queue's beginning goes into the hands of a call.
    fn take_durable(&self) -> Vec<String> {
        let durable = self.journal.durable();
        let mut now = self.unacknowledged.lock();
        let is_durable = |ack: &&Ack| ack.position < durable;
        let count = now.queue.iter().take(ACK_IDS_MAX).take_while(is_durable).count();
        let taken: Vec<Ack> = now.queue.drain(..count).collect();
        now.in_hand = taken;
        now.in_hand.iter().map(|ack| ack.id.clone()).collect()
    }

    /// Of the acknowledgements `called` those in `again` are repeated; those in `invalid` will
    /// never count, and their messages come again, unless they were acknowledged before; the others
    /// are confirmed.
    fn settle(&self, called: &[String], again: &[String], invalid: &[String]) {
        {
            let mut state = self.unacknowledged.lock();
            let state = &mut *state;
            let again: HashSet<&str> = again.iter().map(String::as_str).collect();
            let called = called.iter().map(String::as_str);
            let settled: HashSet<&str> = called.filter(|id| !again.contains(id)).collect();
            state.in_hand.retain(|ack| {
                if !settled.contains(ack.id.as_str()) {
                    return true;
                }
                state.bytes = state.bytes.saturating_sub(ack.bytes);
                state.open.remove(&ack.position);
                false
            });
        }
        self.refused.fetch_add(invalid.len() as u64, Ordering::Relaxed);
        self.confirm();
        self.changed.notify_waiters();
    }

    /// Tells the journal what is confirmed.
    fn confirm(&self) {
        // What has just become durable is among what is open, too.
        let _order = self.order.lock();
        let state = self.unacknowledged.lock();
        let lowest = state.open.first().copied().unwrap_or_else(|| self.journal.durable());
        self.journal.acknowledged(state.earlier.unwrap_or(lowest).min(lowest));
    }

    /// Messages come: from now on what an earlier run has left may come again.
    fn confirm_earlier(&self) {
        if self.unacknowledged.lock().earlier.take().is_some() {
            self.confirm();
        }
    }

    /// Extends leases of what has to wait.
    async fn extend(self: Arc<Self>) {
        loop {
            self.env.sleep(EXTEND_AFTER).await;
            let before = self.env.monotonic().saturating_sub(EXTEND_AFTER);
            let ids: Vec<String> = {
                let now = self.unacknowledged.lock();
                let all = now.in_hand.iter().chain(&now.queue);
                let old = all.take_while(|ack| ack.received <= before);
                old.map(|ack| ack.id.clone()).collect()
            };
            for ids in ids.chunks(ACK_IDS_MAX) {
                // Where it fails the message comes again, and is known.
                let _ = self.client.extend(ids.to_vec(), LEASE_S).await;
            }
        }
    }

    /// Tells the buffer what is durable, and gives it from the journal what it lacks.
    async fn fill(self: Arc<Self>) {
        let mut known = self.journal.durable();
        self.buffer.durable(known);
        loop {
            while let Some(from) = self.buffer.lacks() {
                if let Err(failure) = self.fill_from(from).await {
                    return self.buffer.fail(failure);
                }
            }
            tokio::select! {
                () = self.journal.advanced(known) => {}
                () = self.buffer.drained() => {}
            }
            let durable = self.journal.durable();
            if durable == known
                && let Some(failure) = self.journal.failure()
            {
                return self.buffer.fail(failure.into());
            }
            if durable != known {
                known = durable;
                self.buffer.durable(known);
            }
        }
    }

    async fn fill_from(&self, from: u64) -> Result<(), Failure> {
        let arrival_us = self.env.now_us();
        let read = self.journal.read(from, u64::MAX).await?;
        let _order = self.order.lock();
        let waiting = read.into_iter().map(|(position, record)| {
            // The slice would keep all that was read with it.
            let content = Bytes::copy_from_slice(&record.content);
            Waiting { position, content, arrival_us }
        });
        self.buffer.put(waiting);
        self.buffer.durable(self.journal.durable());
        Ok(())
    }

    fn is_all_acknowledged(&self) -> bool {
        let now = self.unacknowledged.lock();
        now.queue.is_empty() && now.in_hand.is_empty()
    }
}

impl Running {
    /// Stops receiving, acknowledges what can be acknowledged soon, and ends.
    pub(super) async fn stop(self) {
        for task in self.receiving {
            task.stop().await;
        }
        let all_acknowledged = async {
            loop {
                let changed = self.intake.changed.notified();
                if self.intake.is_all_acknowledged() {
                    return;
                }
                changed.await;
            }
        };
        tokio::select! {
            () = all_acknowledged => {}
            () = self.intake.env.sleep(CLOSING_PATIENCE) => {}
        }
        for task in self.others {
            task.stop().await;
        }
    }
}
