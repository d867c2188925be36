//! What comes in: ordinary events, and among them those that cause alerts.
//!
//! An event follows from its number, and carries it and the moment at which it was due; so does
//! its alert. Of a surge that is the request with which its source reaches the threshold
//! within a window; it is found by counting, as the query does. A source always has one partition,
//! so that its requests stay in order.

use std::collections::HashMap;

use chrono::{DateTime, SecondsFormat};
use serde_json::{Value, json};

use super::case::{BUILDINGS, Case, SERVICES, THRESHOLD, WINDOW_S};

/// Numbers of events that show that a partition is being read.
const PROBES: u64 = 1 << 40;
/// Requests of a source in a second, where there is no surge.
const CALM: u64 = 4;
/// One request in so many is part of a surge.
const SURGING_SHARE: u64 = 5;
/// Requests of a surge.
const SURGE: u64 = 2 * THRESHOLD;
/// Names of sources that surge, and of those that show that a partition is being read.
const SURGING: u64 = 1 << 20;
const PROBING: u64 = 1 << 24;

/// Makes the events of a run.
pub struct Events {
    case: Case,
    /// One event in so many causes an alert; not for surges.
    share: u64,
    /// Sources of ordinary requests.
    sources: u64,
    /// Requests of a source in a second.
    requests: HashMap<(u64, i64), u64>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What decides about its partition.
    pub key: String,
    /// JSON.
    pub value: String,
    /// The alert that it causes.
    pub alert: Option<u64>,
}

impl Events {
    /// Of `rate` events a second, of which one in `share` causes an alert.
    pub fn new(case: Case, rate: u64, share: u64) -> Self {
        let calm = rate * (SURGING_SHARE - 1) / SURGING_SHARE;
        Self { case, share, sources: (calm / CALM).max(1), requests: HashMap::new() }
    }

    /// The event with this number, due at a moment in microseconds since the epoch.
    pub fn make(&mut self, number: u64, due_us: i64) -> Event {
        if self.case == Case::Surge {
            return self.request(self.source(number), due_us);
        }
        let has_alert = number % self.share == self.share - 1;
        self.single(number, due_us, has_alert)
    }

    /// What makes one alert, for a partition.
    pub fn probe(&mut self, partition: i32, due_us: i64) -> Vec<Event> {
        let partition = u64::from(partition.unsigned_abs());
        if self.case == Case::Surge {
            let source = PROBING + partition;
            return (0..THRESHOLD).map(|_| self.request(source, due_us)).collect();
        }
        vec![self.single(PROBES + partition, due_us, true)]
    }

    /// Who sends a request: for a while one request in some is of a source that surges, and then of
    /// the next one.
    fn source(&self, number: u64) -> u64 {
        if number.is_multiple_of(SURGING_SHARE) {
            return SURGING + number / (SURGING_SHARE * SURGE);
        }
        mixed(number) % self.sources
    }

    fn request(&mut self, source: u64, due_us: i64) -> Event {
        let second = due_us.div_euclid(1_000_000 * WINDOW_S) * WINDOW_S;
        let requests = self.requests.entry((source, second)).or_default();
        *requests += 1;
        let alert = (*requests == THRESHOLD).then(|| surge(source, second));
        let key = format!("s-{source}");
        let value = json!({
            "ts": time(due_us), "source": key, "method": "GET", "path": "/orders", "status": 200,
        });
        Event { key, value: value.to_string(), alert }
    }

    fn single(&self, number: u64, due_us: i64, has_alert: bool) -> Event {
        let (ts, any) = (time(due_us), mixed(number));
        let (key, value) = match self.case {
            Case::Leak => {
                let service = format!("svc-{}", any % SERVICES);
                let message = match (has_alert, number / self.share % 2) {
                    (false, _) => format!("order {number} was paid in {} ms", any % 900),
                    (true, 0) => format!("user {number} signed up with ssn 078-05-1120"),
                    (true, _) => format!("card 4000 0000 0000 0002 refused, order {number}"),
                };
                let value = json!({
                    "service": service, "ts": ts, "level": "INFO", "message": message,
                    "number": number,
                });
                (service, value)
            }
            Case::Emergency => {
                let building = format!("B{}", any % BUILDINGS);
                let event = if has_alert { "emergency" } else { "door_open" };
                let value = json!({
                    "ts": ts, "building": building, "elevator": any % 8, "event": event,
                    "floor": any % 30, "number": number,
                });
                (building, value)
            }
            Case::Overheating | Case::Surge => {
                let generator = format!("G{}", any % 200);
                let celsius = (any % 300) as f64 / 10.0 + if has_alert { 95.5 } else { 60.0 };
                let value = json!({
                    "ts": ts, "generator": generator, "sensor": any % 4, "celsius": celsius,
                    "number": number,
                });
                (generator, value)
            }
        };
        Event { key, value: value.to_string(), alert: Some(number).filter(|_| has_alert) }
    }
}

/// What an alert is about, from its JSON; `None` if that is not one of ours.
pub fn alert_of(case: Case, text: &str) -> Option<u64> {
    let value: Value = serde_json::from_str(text).ok()?;
    if case != Case::Surge {
        return value.get("number")?.as_u64();
    }
    let source = value.get("source")?.as_str()?.strip_prefix("s-")?.parse().ok()?;
    Some(surge(source, value.get("second")?.as_i64()?))
}

/// A surge of a source in the window that begins with a second.
fn surge(source: u64, second: i64) -> u64 {
    source << 32 | second.unsigned_abs()
}

fn time(at_us: i64) -> String {
    let at = DateTime::from_timestamp_micros(at_us).expect("a run is in this age");
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A number that looks drawn.
fn mixed(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN_US: i64 = 1_700_000_000_000_000;

    #[test]
    fn one_event_in_so_many_has_alert_and_carries_its_number() {
        for case in [Case::Leak, Case::Emergency, Case::Overheating] {
            let mut events = Events::new(case, 1_000, 100);
            let told: Vec<_> =
                (0..1_000).filter_map(|number| events.make(number, BEGIN_US).alert).collect();
            let expected: Vec<u64> = (0..10).map(|hundred| hundred * 100 + 99).collect();
            assert_eq!(told, expected, "{case:?}");
            let event = events.make(199, BEGIN_US);
            assert_eq!(alert_of(case, &event.value), Some(199), "{case:?}");
            let probes = events.probe(3, BEGIN_US);
            assert_eq!((probes.len(), probes[0].alert), (1, Some(PROBES + 3)));
        }
    }

    #[test]
    fn what_is_ordinary_is_nothing_that_a_query_looks_for() {
        let mut hot = Events::new(Case::Overheating, 1_000, 50);
        let mut logs = Events::new(Case::Leak, 1_000, 50);
        for number in 0..5_000 {
            let Event { value, alert, .. } = hot.make(number, BEGIN_US);
            let reading: Value = serde_json::from_str(&value).expect("it is JSON");
            let celsius = reading["celsius"].as_f64().expect("a number");
            assert_eq!(celsius > 95.0, alert.is_some(), "{value}");
            let Event { value, alert, .. } = logs.make(number, BEGIN_US);
            assert_eq!(
                value.contains("078-05-1120") || value.contains("4000 0000"),
                alert.is_some()
            );
        }
    }

    #[test]
    fn a_surge_has_alert_once_in_a_window_with_the_request_that_reaches_the_threshold() {
        let mut events = Events::new(Case::Surge, 1_000, 100);
        let told: Vec<_> = (0..10_000)
            .filter_map(|number| {
                let due_us = BEGIN_US + i64::try_from(number).expect("small") * 1_000;
                Some((number, events.make(number, due_us).alert?))
            })
            .collect();
        // Each fifth request is of a surge, and 200 requests make one of 40.
        assert_eq!(told[0].0, 5 * (THRESHOLD - 1));
        assert_eq!(told[0].1, surge(SURGING, BEGIN_US / 1_000_000));
        assert!((45..=55).contains(&told.len()), "{}", told.len());
        let mut alerts: Vec<_> = told.iter().map(|(_, alert)| *alert).collect();
        alerts.dedup();
        assert_eq!(alerts.len(), told.len());
    }

    #[test]
    fn a_partition_is_shown_by_a_surge_of_its_own() {
        let mut events = Events::new(Case::Surge, 1_000, 100);
        let probes = events.probe(2, BEGIN_US);
        let told: Vec<_> = probes.iter().filter_map(|event| event.alert).collect();
        assert_eq!((probes.len() as u64, told.len()), (THRESHOLD, 1));
        let alert =
            format!(r#"{{"source":"s-{}","second":1700000000,"requests":20}}"#, PROBING + 2);
        assert_eq!(alert_of(Case::Surge, &alert), Some(told[0]));
    }

    #[test]
    fn an_alert_that_is_none_is_refused() {
        assert_eq!(alert_of(Case::Leak, "7"), None);
        assert_eq!(alert_of(Case::Surge, r#"{"source":"x-1","second":1}"#), None);
        assert_eq!(alert_of(Case::Emergency, r#"{"number":-1}"#), None);
    }

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(time(BEGIN_US + 123_456), "2023-11-14T22:13:20.123Z");
    }
}
