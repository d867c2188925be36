//! Whether what a query depends on answers: the brokers of a source, say. A query that waits for
//! them looks like one that has nothing to do, so their silence is told, once it is more than a
//! moment, and so is its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::Env;
use parking_lot::Mutex;

use crate::api::progress::{Contact, Listener, Silent};

/// A silence that is no longer is nobody's business: a broker that restarts, a leader that moves.
const TOLD_AFTER: Duration = Duration::from_secs(5);

/// Tells a query's listener what does not answer. Cheap to clone.
#[derive(Clone)]
pub struct Contacts {
    listener: Arc<dyn Listener>,
    env: Env,
}

impl fmt::Debug for Contacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contacts")
    }
}

impl Contacts {
    /// Tells `listener`.
    pub fn new(listener: Arc<dyn Listener>, env: Env) -> Self {
        Self { listener, env }
    }

    /// Tells nobody.
    pub fn untold(env: Env) -> Self {
        Self::new(Arc::new(Silent), env)
    }

    /// Contact with `what`, in words for people: "the brokers of ...".
    pub fn with(&self, what: String) -> ContactWith {
        ContactWith { what, contacts: self.clone(), silence: Mutex::default() }
    }
}

/// Contact with one thing. What is silent when this is dropped is told to be back: nobody asks it
/// any more.
pub struct ContactWith {
    what: String,
    contacts: Contacts,
    silence: Mutex<Silence>,
}

#[derive(Default)]
struct Silence {
    /// Milliseconds since the epoch.
    since_ms: Option<i64>,
    is_told: bool,
}

impl ContactWith {
    /// An answer came, or nothing is asked now.
    pub fn answered(&self) {
        let mut silence = self.silence.lock();
        let Silence { since_ms, is_told } = std::mem::take(&mut *silence);
        if let Some(since_ms) = since_ms.filter(|_| is_told) {
            self.tell(since_ms, true);
        }
    }

    /// What was asked at `asked_ms`, milliseconds since the epoch, is not answered yet. To be
    /// called again while that lasts.
    pub fn unanswered(&self, asked_ms: i64) {
        let mut silence = self.silence.lock();
        let since_ms = *silence.since_ms.get_or_insert(asked_ms);
        let lasts_ms = self.contacts.env.now_ms().saturating_sub(since_ms);
        if !silence.is_told && lasts_ms >= TOLD_AFTER.as_millis() as i64 {
            silence.is_told = true;
            self.tell(since_ms, false);
        }
    }

    fn tell(&self, since_ms: i64, is_back: bool) {
        let (with, at_ms) = (self.what.clone(), self.contacts.env.now_ms());
        self.contacts.listener.contact(&Contact { with, at_ms, since_ms, is_back });
    }
}

impl Drop for ContactWith {
    fn drop(&mut self) {
        self.answered();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::progress::Progress;

    #[derive(Default)]
    struct Heard(Mutex<Vec<(i64, bool)>>);

    impl Listener for Heard {
        fn contact(&self, contact: &Contact) {
            self.0.lock().push((contact.since_ms, contact.is_back));
        }

        fn published(&self, _: &Progress) {}
    }

    #[test]
    fn each_change_is_told_once_and_moments_are_not() {
        let (heard, env) = (Arc::new(Heard::default()), Env::real());
        let contact = Contacts::new(heard.clone(), env.clone()).with("it".to_owned());
        let now_ms = env.now_ms();
        contact.unanswered(now_ms);
        contact.answered();
        assert!(heard.0.lock().is_empty(), "a moment");
        let long_ago = now_ms - 60_000;
        for _ in 0..3 {
            contact.unanswered(long_ago);
        }
        // Since then, whatever is asked later.
        contact.unanswered(now_ms);
        assert_eq!(*heard.0.lock(), [(long_ago, false)]);
        contact.answered();
        contact.answered();
        assert_eq!(*heard.0.lock(), [(long_ago, false), (long_ago, true)]);
    }

    #[test]
    fn what_is_asked_no_more_is_not_silent() {
        let heard = Arc::new(Heard::default());
        let contact = Contacts::new(heard.clone(), Env::real()).with("it".to_owned());
        contact.unanswered(0);
        drop(contact);
        assert_eq!(*heard.0.lock(), [(0, false), (0, true)]);
    }
}
