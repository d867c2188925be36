//! Schemas by their ids: what an id stands for never changes.
//!
//! Who asks first for an id asks the registry; who comes meanwhile waits for that answer. An id
//! that nobody registered is remembered for some seconds, so that records that are not framed but
//! look so do not ask for one each.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::RegistryError;
use crate::schema::Registered;

/// What is kept: the oldest is dropped first.
const SCHEMAS_MAX: usize = 10_000;
const BYTES_MAX: usize = 256 << 20;
/// What a schema takes besides its texts, about, bytes.
const OVERHEAD_BYTES: usize = 200;
/// For how long, and how many, ids are known not to be registered.
const UNKNOWN_FOR: Duration = Duration::from_secs(5);
const UNKNOWN_MAX: usize = 10_000;

pub(crate) type Outcome = Result<Arc<Registered>, RegistryError>;

/// Schemas by their ids.
#[derive(Default)]
pub(crate) struct Cache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: HashMap<u32, Arc<Registered>>,
    /// The oldest first.
    order: VecDeque<u32>,
    bytes: usize,
    /// Until when ids count as not registered, on the monotonic clock.
    unknown: HashMap<u32, Duration>,
    asked: HashMap<u32, watch::Receiver<Option<Outcome>>>,
}

/// What a caller has to do for an id.
pub(crate) enum Turn<'a> {
    /// Nothing.
    Done(Outcome),
    /// Wait for who asks already; the sender is gone without a value where that came to nothing.
    Wait(watch::Receiver<Option<Outcome>>),
    /// Ask.
    Ask(Asking<'a>),
}

/// The right to ask for an id. Dropped without an outcome, it goes to the next one.
pub(crate) struct Asking<'a> {
    cache: &'a Cache,
    id: u32,
    answer: watch::Sender<Option<Outcome>>,
}

impl Cache {
    /// What to do for `id` at `now` of the monotonic clock.
    pub(crate) fn turn(&self, id: u32, now: Duration) -> Turn<'_> {
        let mut state = self.state.lock();
        if let Some(known) = state.known.get(&id) {
            return Turn::Done(Ok(Arc::clone(known)));
        }
        if state.unknown.get(&id).is_some_and(|until| now < *until) {
            return Turn::Done(Err(RegistryError::NoSuchSchema { id }));
        }
        if let Some(asked) = state.asked.get(&id) {
            return Turn::Wait(asked.clone());
        }
        let (answer, waiting) = watch::channel(None);
        state.asked.insert(id, waiting);
        Turn::Ask(Asking { cache: self, id, answer })
    }
}

impl Asking<'_> {
    /// Gives `outcome` to all who wait, and keeps it if it will be the same for the next one.
    pub(crate) fn finish(self, outcome: &Outcome, now: Duration) {
        let mut state = self.cache.state.lock();
        match outcome {
            Ok(schema) => state.keep(self.id, schema),
            Err(RegistryError::NoSuchSchema { .. }) => state.miss(self.id, now),
            Err(_) => {}
        }
        drop(state);
        self.answer.send_replace(Some(outcome.clone()));
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.cache.state.lock().asked.remove(&self.id);
    }
}

impl State {
    fn keep(&mut self, id: u32, schema: &Arc<Registered>) {
        self.unknown.remove(&id);
        self.bytes += schema.len() + OVERHEAD_BYTES;
        self.known.insert(id, Arc::clone(schema));
        self.order.push_back(id);
        while self.order.len() > SCHEMAS_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(dropped) = self.known.remove(&oldest) {
                self.bytes -= dropped.len() + OVERHEAD_BYTES;
            }
        }
    }

    fn miss(&mut self, id: u32, now: Duration) {
        if self.unknown.len() >= UNKNOWN_MAX {
            self.unknown.retain(|_, until| now < *until);
        }
        if self.unknown.len() < UNKNOWN_MAX {
            self.unknown.insert(id, now + UNKNOWN_FOR);
        }
    }
}
