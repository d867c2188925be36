//! The thread that serves a producer client's events: delivery reports, log lines, errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_engine::api::contact::ContactWith;
use millstream_store::env::{Env, Thread};
use rdkafka::producer::{Producer as _, PurgeConfig};

use super::create::LogsIn as _;
use super::native::ProducerClient;

/// How long the thread waits for an event, and so how soon it notices that it should end.
const POLL: Duration = Duration::from_millis(100);
/// How long records may wait for brokers that refuse the credentials. Then they are given up: the
/// client keeps the password that it was made with, and would try it until the records time out.
const REFUSED_PATIENCE_MS: i64 = 3_000;

/// The running thread. Dropping it ends the thread, and releases its reference to the client.
pub struct Poller {
    stop: Arc<AtomicBool>,
    thread: Option<Thread>,
}

impl Poller {
    /// Serves `client` on a thread called `name`, and tells `contact` whether the brokers answer
    /// for the records that are under way.
    pub fn start(
        env: &Env,
        name: &str,
        client: Arc<ProducerClient>,
        contact: Arc<ContactWith>,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, clock) = (stop.clone(), env.clone());
        let thread = env.thread(name, move || {
            let (mut awaited, mut reports_before) = (Awaited::default(), 0);
            while !stopped.load(Ordering::Acquire) {
                client.poll(POLL);
                client.renew_token();
                let reports = client.context().reports();
                if std::mem::replace(&mut reports_before, reports) != reports {
                    client.context().context().let_in();
                }
                let now_ms = clock.now_ms();
                awaited.look(client.in_flight_count() > 0, reports, now_ms, &contact);
                let waits = awaited.lasts_ms(now_ms) >= REFUSED_PATIENCE_MS;
                if waits && client.context().context().refused().is_some() {
                    client.purge(PurgeConfig::default().queue().inflight());
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

/// How long records have waited without any delivery report.
#[derive(Default)]
struct Awaited {
    /// Milliseconds since the epoch, and how many reports there were then.
    since: Option<(i64, u64)>,
}

impl Awaited {
    /// Notes whether records are under way, and how many reports have come in all.
    fn look(&mut self, is_any: bool, reports: u64, now_ms: i64, contact: &ContactWith) {
        match self.since {
            Some((since_ms, before)) if is_any && before == reports => {
                contact.unanswered(since_ms);
                return;
            }
            // Answered only where something was awaited: other clients of the same brokers may
            // still be waiting, and an idle one must not clear their state.
            Some(_) => contact.answered(),
            None => {}
        }
        self.since = is_any.then_some((now_ms, reports));
    }

    /// For how many milliseconds no report has come.
    fn lasts_ms(&self, now_ms: i64) -> i64 {
        self.since.map_or(0, |(since_ms, _)| now_ms.saturating_sub(since_ms))
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        drop(self.thread.take());
    }
}
