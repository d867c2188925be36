//! Lines that are not of a micro-batch: they have the key `event`, and Spark has none of them.

use millstream_engine::api::progress::{Contact, Restart};
use serde::Serialize;

use super::{Identity, timestamp, whole_ms};

/// What happened.
pub enum Event {
    /// Something does not answer, or answers again.
    Contact(Contact),
    /// The flow failed and is started again.
    Restart(Restart),
}

/// The object of an event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventLine<'a> {
    id: &'a str,
    run_id: &'a str,
    name: &'a str,
    timestamp: String,
    #[serde(flatten)]
    facts: Facts<'a>,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Facts<'a> {
    Unanswered { of: &'a str, since: String },
    Answered { of: &'a str, since: String, after_ms: i64 },
    Restart { count: u32, count_max: u32, wait_ms: u64, reason: &'a str },
}

impl<'a> EventLine<'a> {
    /// The line of an event of one run.
    pub fn new(identity: &'a Identity, event: &'a Event) -> Self {
        let (at_ms, facts) = match event {
            Event::Contact(contact) => (contact.at_ms, Facts::from_contact(contact)),
            Event::Restart(Restart { at_ms, count, count_max, wait, reason }) => {
                let (count, count_max, wait_ms) = (*count, *count_max, whole_ms(*wait));
                (*at_ms, Facts::Restart { count, count_max, wait_ms, reason })
            }
        };
        Self {
            id: &identity.query.query_id,
            run_id: &identity.query.run_id,
            name: &identity.name,
            timestamp: timestamp(at_ms),
            facts,
        }
    }
}

impl<'a> Facts<'a> {
    fn from_contact(contact: &'a Contact) -> Self {
        let Contact { with: of, at_ms, since_ms, is_back } = contact;
        let since = timestamp(*since_ms);
        if *is_back {
            Self::Answered { of, since, after_ms: at_ms.saturating_sub(*since_ms) }
        } else {
            Self::Unanswered { of, since }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_engine::api::progress::QueryStarted;

    use super::*;
    use crate::watch::tests::contact;

    fn line(event: &Event) -> String {
        let query = QueryStarted { query_id: "q".into(), run_id: "r".into() };
        let identity = Identity { name: "pii".into(), query };
        serde_json::to_string(&EventLine::new(&identity, event)).unwrap()
    }

    #[test]
    fn events_have_the_key_event() {
        let began = r#"{"id":"q","runId":"r","name":"pii","timestamp":"2026-01-01T00:00:05.000Z","#;
        let since = r#""of":"the brokers of in","since":"2026-01-01T00:00:00.000Z""#;
        assert_eq!(
            line(&Event::Contact(contact(false))),
            format!(r#"{began}"event":"unanswered",{since}}}"#)
        );
        assert_eq!(
            line(&Event::Contact(contact(true))),
            format!(r#"{began}"event":"answered",{since},"afterMs":5000}}"#)
        );
        let restart = Restart {
            at_ms: 1_767_225_605_000,
            count: 1,
            count_max: 60,
            wait: Duration::from_millis(700),
            reason: "gone".into(),
        };
        let facts = r#""event":"restart","count":1,"countMax":60,"waitMs":700,"reason":"gone"}"#;
        assert_eq!(line(&Event::Restart(restart)), format!("{began}{facts}"));
    }
}
