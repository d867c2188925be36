//! Alerts that are expected, and those that came: arithmetic without a receiver.

use std::collections::{HashMap, HashSet};

use crate::quantiles::{Latencies, Quantiles};

/// Alerts of a run.
pub struct Alerts {
    /// Those that did not come, and when what they are about was due.
    waiting: HashMap<u64, i64>,
    came: HashSet<u64>,
    repeated: u64,
    foreign: u64,
    /// Those that are due from then on count, microseconds since the epoch.
    measured_from_us: i64,
    latencies: Latencies,
}

/// What came of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Received {
    /// Alerts that latency was measured on.
    pub alerts: u64,
    /// Those that never came, warm-up included.
    pub missing: u64,
    /// Alerts that came again. That of a surge is sent again whenever its count grows.
    pub repeated: u64,
    /// What came and is no alert that was expected.
    pub foreign: u64,
    /// Receipt minus the moment at which the event that causes the alert was due.
    pub latency: Quantiles,
}

impl Alerts {
    /// None yet, and none that counts.
    pub fn new() -> Self {
        Self {
            waiting: HashMap::new(),
            came: HashSet::new(),
            repeated: 0,
            foreign: 0,
            measured_from_us: i64::MAX,
            latencies: Latencies::new(),
        }
    }

    /// Counts those that are due from a moment on.
    pub fn measure_from(&mut self, at_us: i64) {
        self.measured_from_us = at_us;
    }

    /// An event that causes an alert is about to be sent.
    pub fn expect(&mut self, alert: u64, due_us: i64) {
        self.waiting.insert(alert, due_us);
    }

    /// Something came; `None` is nothing that can be understood.
    pub fn receive(&mut self, alert: Option<u64>, now_us: i64) {
        let due_us = alert.and_then(|alert| self.waiting.remove(&alert));
        match (alert, due_us) {
            (Some(alert), Some(due_us)) => {
                self.came.insert(alert);
                if due_us >= self.measured_from_us {
                    self.latencies.add(now_us - due_us);
                }
            }
            (Some(alert), None) if self.came.contains(&alert) => self.repeated += 1,
            _ => self.foreign += 1,
        }
    }

    /// How many have not come.
    pub fn missing(&self) -> usize {
        self.waiting.len()
    }

    /// The result.
    pub fn received(&self) -> Received {
        Received {
            alerts: self.latencies.count(),
            missing: self.waiting.len() as u64,
            repeated: self.repeated,
            foreign: self.foreign,
            latency: self.latencies.quantiles(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alert_counts_once_from_the_moment_on_and_the_rest_is_named() {
        let mut alerts = Alerts::new();
        alerts.expect(1, 1_000);
        alerts.receive(Some(1), 9_000);
        alerts.measure_from(10_000);
        for (alert, due_us) in [(2, 9_999), (3, 10_000), (4, 20_000), (5, 30_000)] {
            alerts.expect(alert, due_us);
        }
        assert_eq!(alerts.missing(), 4);
        for (alert, now_us) in [(3, 12_000), (2, 12_000), (3, 13_000), (4, 25_000), (1, 26_000)] {
            alerts.receive(Some(alert), now_us);
        }
        alerts.receive(Some(77), 40_000);
        alerts.receive(None, 40_000);
        let received = alerts.received();
        let Received { alerts, missing, repeated, foreign, latency } = received;
        assert_eq!((alerts, missing, repeated, foreign), (2, 1, 2, 2));
        assert_eq!((latency.p50_ms, latency.max_ms), (2.0, 5.0));
    }
}
