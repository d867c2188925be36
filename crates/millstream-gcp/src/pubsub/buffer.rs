//! Messages that wait for the driver.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use millstream_engine::api::source::Failure;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// What a message costs beside its bytes, about.
const OVERHEAD: usize = 64;

/// A message in the journal.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) position: u64,
    /// As it is in the journal.
    pub(super) content: Bytes,
    /// When it arrived, microseconds since the epoch.
    pub(super) arrival_us: i64,
}

/// Messages in the journal's order, without gaps. Those that are not durable are not given out.
pub(super) struct Buffer {
    state: Mutex<State>,
    changed: Notify,
    /// Something was taken.
    drained: Notify,
    bytes_max: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// The position behind the last one.
    end: u64,
    durable: u64,
    failure: Option<Failure>,
    ending: Option<Ending>,
}

/// What is known of the end of a run that ends.
struct Ending {
    /// When it was fixed, milliseconds since the epoch: later messages do not count.
    fixed_ms: i64,
    /// The last sign, on the monotonic clock, that there may be earlier messages.
    sign: Duration,
}

/// Messages of a micro-batch.
pub(super) struct Taken {
    pub(super) messages: Vec<Waiting>,
    /// The position behind them.
    pub(super) end: u64,
}

impl Buffer {
    pub(super) fn new(bytes_max: usize) -> Self {
        let (state, changed, drained) = (Mutex::default(), Notify::new(), Notify::new());
        Self { state, changed, drained, bytes_max }
    }

    /// The next message is at `position`; what is below `durable` is durable.
    pub(super) fn begin(&self, position: u64, durable: u64) {
        *self.state.lock() = State { end: position, durable, ..State::default() };
    }

    /// Adds messages that follow those that are there, as long as there is room. The others have to
    /// be read from the journal.
    pub(super) fn put(&self, messages: impl Iterator<Item = Waiting>) {
        let mut state = self.state.lock();
        for message in messages {
            if message.position == state.end && state.bytes < self.bytes_max {
                state.bytes += message.content.len() + OVERHEAD;
                state.end += 1;
                state.waiting.push_back(message);
            }
        }
    }

    /// What is below `position` is durable.
    pub(super) fn durable(&self, position: u64) {
        self.state.lock().durable = position;
        self.changed.notify_one();
    }

    /// Where the next message has to be read from, if it is in the journal only and there is room
    /// for it.
    pub(super) fn lacks(&self) -> Option<u64> {
        let state = self.state.lock();
        let has_room = state.bytes < self.bytes_max / 2 || state.waiting.is_empty();
        (state.end < state.durable && has_room).then_some(state.end)
    }

    pub(super) async fn drained(&self) {
        self.drained.notified().await;
    }

    pub(super) fn fail(&self, failure: Failure) {
        self.state.lock().failure.get_or_insert(failure);
        self.changed.notify_one();
    }

    /// Up to `rows_max` messages of about `bytes_max` bytes; `None` where there is none.
    pub(super) fn take(&self, rows_max: usize, bytes_max: usize) -> Result<Option<Taken>, Failure> {
        let mut state = self.state.lock();
        let (mut count, mut bytes) = (0, 0);
        for message in state.waiting.iter().take(rows_max) {
            let own = message.content.len();
            let is_too_much = count > 0 && bytes + own > bytes_max;
            if message.position >= state.durable || is_too_much {
                break;
            }
            (count, bytes) = (count + 1, bytes + own);
        }
        if count == 0 {
            return state.failure.take().map_or(Ok(None), Err);
        }
        let messages: Vec<Waiting> = state.waiting.drain(..count).collect();
        state.bytes -= bytes + count * OVERHEAD;
        drop(state);
        self.drained.notify_one();
        let end = messages.last().map_or(0, |last| last.position + 1);
        Ok(Some(Taken { messages, end }))
    }

    /// Whether something can be taken, or taking would fail.
    pub(super) fn is_filled(&self) -> bool {
        let state = self.state.lock();
        let first = state.waiting.front();
        state.failure.is_some() || first.is_some_and(|first| first.position < state.durable)
    }

    /// Completes when more became durable, or reading has failed, since the last time.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The run ends with the messages that were published before `fixed_ms`.
    pub(super) fn end_is_fixed(&self, fixed_ms: i64, now: Duration) {
        self.state.lock().ending = Some(Ending { fixed_ms, sign: now });
    }

    /// There may be more messages: one arrived that was published at `published_ms`, or the service
    /// could not be asked.
    pub(super) fn sign(&self, published_ms: Option<i64>, now: Duration) {
        let mut state = self.state.lock();
        if let Some(ending) = &mut state.ending
            && published_ms.is_none_or(|published_ms| published_ms <= ending.fixed_ms)
        {
            ending.sign = now;
        }
    }

    /// How long after now a run that ends is over, if nothing arrives until then; `None` where it
    /// does not end.
    pub(super) fn over_in(&self, period: Duration, now: Duration) -> Option<Duration> {
        let state = self.state.lock();
        let ending = state.ending.as_ref()?;
        let is_all_taken = state.waiting.is_empty() && state.end >= state.durable;
        let left = (ending.sign + period).saturating_sub(now);
        // What is there is taken first, however long that takes.
        Some(if is_all_taken { left } else { left.max(Duration::from_millis(10)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(position: u64) -> Waiting {
        Waiting { position, content: Bytes::from_static(b"0123456789"), arrival_us: 0 }
    }

    fn positions(buffer: &Buffer, rows_max: usize, bytes_max: usize) -> Vec<u64> {
        let taken = buffer.take(rows_max, bytes_max).expect("nothing has failed");
        taken.map_or(Vec::new(), |it| it.messages.iter().map(|it| it.position).collect())
    }

    #[test]
    fn what_is_not_durable_waits_and_what_has_no_room_is_read_again() {
        let buffer = Buffer::new(3 * (10 + OVERHEAD));
        buffer.begin(5, 5);
        buffer.put((5..10).map(message));
        assert!(!buffer.is_filled());
        buffer.durable(7);
        assert!(buffer.is_filled());
        assert_eq!(positions(&buffer, usize::MAX, usize::MAX), [5, 6]);
        assert_eq!(buffer.lacks(), None);
        buffer.durable(10);
        assert_eq!(buffer.lacks(), Some(8));
        buffer.put([message(10)].into_iter());
        assert_eq!(positions(&buffer, usize::MAX, usize::MAX), [7], "10 would leave a gap");
        buffer.put([message(8), message(9)].into_iter());
        assert_eq!(positions(&buffer, 1, usize::MAX), [8]);
        assert_eq!(positions(&buffer, usize::MAX, 1), [9], "one at least");
        assert_eq!(buffer.lacks(), None);
    }

    #[test]
    fn a_run_ends_when_no_earlier_message_comes_for_a_while() {
        let (buffer, second) = (Buffer::new(1_000), Duration::from_secs(1));
        assert_eq!(buffer.over_in(second, second), None);
        buffer.end_is_fixed(1_000, second);
        buffer.sign(Some(2_000), second * 2);
        assert_eq!(buffer.over_in(second, second * 2), Some(Duration::ZERO));
        buffer.sign(Some(500), second * 2);
        assert_eq!(buffer.over_in(second, second * 2), Some(second));
        buffer.begin(0, 0);
        buffer.end_is_fixed(1_000, second);
        buffer.put([message(0)].into_iter());
        assert_ne!(buffer.over_in(second, second * 3), Some(Duration::ZERO), "it is not taken");
    }
}
