//! When micro-batches start: the trigger, seen from the driver's loop.

use std::time::Duration;

use millstream_store::env::Env;

use crate::api::trigger::Trigger;

/// What to do once the trigger is due.
pub enum Due {
    /// Look for input now; if there is none, the next tick will do.
    Now,
    /// Look as soon as a source has something.
    WhenInputArrives,
}

/// Keeps the time of an interval trigger; the others have none to keep.
pub struct Pace {
    interval: Option<Duration>,
    /// The tick to wait for, milliseconds since the epoch; `None` before the first.
    next_tick_ms: Option<i64>,
    env: Env,
}

impl Pace {
    /// The pace that `trigger` asks for.
    pub fn new(trigger: &Trigger, env: Env) -> Self {
        let interval = match trigger {
            Trigger::Interval(interval) => Some(*interval),
            Trigger::BackToBack | Trigger::Once | Trigger::AvailableNow => None,
        };
        Self { interval, next_tick_ms: None, env }
    }

    /// Waits until the trigger fires. Dropping the future before it completes loses no tick.
    ///
    /// The first tick of an interval is at once, the others at multiples of the interval since the
    /// epoch. After a micro-batch that took longer than the interval the next one starts at once,
    /// and missed ticks are not made up for. (Spark: `ProcessingTimeExecutor`.)
    pub async fn due(&mut self) -> Due {
        let Some(interval) = self.interval else { return Due::WhenInputArrives };
        let interval_ms = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).max(1);
        let now_ms = self.env.now_ms();
        let tick_ms = self.next_tick_ms.unwrap_or(now_ms);
        if tick_ms > now_ms {
            self.env.sleep(Duration::from_millis(tick_ms.abs_diff(now_ms))).await;
        }
        self.next_tick_ms = Some(next_tick(self.env.now_ms().max(tick_ms), interval_ms));
        Due::Now
    }
}

/// The first multiple of `interval_ms` after `now_ms`.
fn next_tick(now_ms: i64, interval_ms: i64) -> i64 {
    (now_ms.div_euclid(interval_ms) + 1).saturating_mul(interval_ms)
}

#[cfg(test)]
mod tests {
    use super::next_tick;

    #[test]
    fn ticks_are_multiples_of_the_interval() {
        assert_eq!(next_tick(0, 1_000), 1_000);
        assert_eq!(next_tick(999, 1_000), 1_000);
        assert_eq!(next_tick(1_000, 1_000), 2_000);
        assert_eq!(next_tick(1_767_225_600_123, 500), 1_767_225_600_500);
    }
}
