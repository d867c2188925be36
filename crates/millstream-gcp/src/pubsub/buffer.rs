//! Messages that wait for the driver.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream_engine::api::source::Failure;
use millstream_store::env::Env;
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
    /// The run is to end.
    fixed: Notify,
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
    holds: usize,
    /// How many streams were asked for.
    streams: u64,
}

/// What is known of the end of a run that ends: it is over when the service has answered, nothing
/// that counts has come for a while after that, and it answers again.
struct Ending {
    /// When it was fixed, milliseconds since the epoch: later messages do not count.
    fixed_ms: i64,
    /// The last sign, on the monotonic clock, that there may be earlier messages.
    sign: Duration,
    /// The service has answered since that many streams were asked for.
    answered: Option<u64>,
    is_over: bool,
}

/// While there is one, nothing can come, and so a run does not end.
pub(super) struct Hold {
    buffer: Arc<Buffer>,
    env: Env,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.buffer.state.lock().holds -= 1;
        self.buffer.sign(None, self.env.monotonic());
    }
}

/// Messages of a micro-batch.
pub(super) struct Taken {
    pub(super) messages: Vec<Waiting>,
    /// The position behind them.
    pub(super) end: u64,
}

impl Buffer {
    pub(super) fn new(bytes_max: usize) -> Self {
        let (changed, drained, fixed) = (Notify::new(), Notify::new(), Notify::new());
        Self { state: Mutex::default(), changed, drained, fixed, bytes_max }
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
        let ending = Ending { fixed_ms, sign: now, answered: None, is_over: false };
        self.state.lock().ending = Some(ending);
        self.fixed.notify_waiters();
    }

    /// Completes when the run is to end.
    pub(super) async fn end_fixed(&self) {
        loop {
            let fixed = self.fixed.notified();
            if self.state.lock().ending.is_some() {
                return;
            }
            fixed.await;
        }
    }

    /// From now on nothing can come, until what this gives is dropped.
    pub(super) fn hold(self: &Arc<Self>, env: &Env) -> Hold {
        self.state.lock().holds += 1;
        Hold { buffer: Arc::clone(self), env: env.clone() }
    }

    /// A stream is being asked for.
    pub(super) fn opens_stream(&self) {
        self.state.lock().streams += 1;
    }

    /// How many streams were asked for.
    pub(super) fn streams(&self) -> u64 {
        self.state.lock().streams
    }

    /// There may be more messages: one arrived that was published at `published_ms`, or nothing
    /// could come until now.
    pub(super) fn sign(&self, published_ms: Option<i64>, now: Duration) {
        let mut state = self.state.lock();
        if let Some(ending) = &mut state.ending
            && published_ms.is_none_or(|published_ms| published_ms <= ending.fixed_ms)
        {
            ending.sign = now;
        }
    }

    /// The service has answered what it was asked at `asked`, when it had been asked for `streams`
    /// streams. Gives whether the run is over, if nothing that counts came for `period` before.
    pub(super) fn answered(
        &self,
        streams: u64,
        (asked, now): (Duration, Duration),
        period: Duration,
    ) -> bool {
        let mut state = self.state.lock();
        let is_current = state.holds == 0 && state.streams == streams;
        let Some(ending) = &mut state.ending else { return false };
        if !is_current {
            ending.answered = None;
        } else if ending.answered != Some(streams) {
            // What was asked before was heard by now.
            (ending.answered, ending.sign) = (Some(streams), now);
        } else if asked >= ending.sign + period {
            ending.is_over = true;
            drop(state);
            self.changed.notify_one();
            return true;
        }
        false
    }

    /// How long nothing that counts has to come, from now, until it has not for `period`.
    pub(super) fn quiet_in(&self, period: Duration, now: Duration) -> Duration {
        let state = self.state.lock();
        let since = state.ending.as_ref().filter(|_| state.holds == 0).map_or(now, |it| it.sign);
        (since + period).saturating_sub(now)
    }

    /// Whether the run is over and all is taken.
    pub(super) fn is_over(&self) -> bool {
        let state = self.state.lock();
        let is_all_taken = state.waiting.is_empty() && state.end >= state.durable;
        is_all_taken && state.ending.as_ref().is_some_and(|ending| ending.is_over)
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
        let (buffer, second) = (Arc::new(Buffer::new(1_000)), Duration::from_secs(1));
        let at = |half: u32| (second * half / 2, second * half / 2);
        let answered = |streams, half| buffer.answered(streams, at(half), second);
        assert!(!answered(0, 1) && !buffer.is_over(), "it does not end");
        buffer.end_is_fixed(1_000, second);
        let hold = buffer.hold(&Env::real());
        assert!(!answered(0, 10) && !answered(0, 20), "nothing can come yet");
        assert_eq!(buffer.quiet_in(second, second * 30), second);
        buffer.opens_stream();
        drop(hold);
        assert!(!answered(0, 40), "of another stream");
        assert!(!answered(1, 50), "that is when it begins");
        assert!(!answered(1, 51));
        buffer.sign(Some(500), second * 26);
        assert!(!answered(1, 53), "one came");
        assert_eq!(buffer.quiet_in(second, second * 53 / 2), second / 2);
        buffer.sign(Some(2_000), second * 27);
        buffer.opens_stream();
        assert!(!answered(1, 60) && !answered(2, 60) && !answered(2, 61), "asked once more");
        buffer.begin(0, 0);
        buffer.end_is_fixed(1_000, second);
        buffer.put([message(0)].into_iter());
        assert!(!answered(0, 2) && answered(0, 4));
        assert!(!buffer.is_over(), "it is not taken");
        buffer.durable(1);
        assert_eq!(positions(&buffer, 1, 1), [0]);
        assert!(buffer.is_over());
    }
}
