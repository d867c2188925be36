//! The live line of each flow.
//!
//! Drawn a few times a second from what the flow's watch has counted, by a task of its own: a slow
//! terminal delays no micro-batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use millstream_store::env::{Env, Task};
use millstream_store::secrets;

use crate::human;
use crate::screen::Screen;
use crate::watch::{FlowWatch, Snapshot};

const REDRAW_INTERVAL: Duration = Duration::from_millis(250);
/// Rates are over this many redraws: long enough to be read, short enough to be live.
const RATE_SAMPLES_MAX: usize = 8;

/// The live lines of a run, until dropped.
pub struct LiveLines {
    task: Task<()>,
    lines: Vec<ProgressBar>,
}

impl LiveLines {
    /// Shows a line for each flow, name and watch, at the bottom of `screen`.
    pub fn start(env: &Env, screen: &Screen, flows: Vec<(String, Arc<FlowWatch>)>) -> Self {
        let width = flows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let lines: Vec<_> = flows.iter().map(|_| screen.live_line()).collect();
        let mut shown: Vec<_> = flows
            .into_iter()
            .zip(lines.clone())
            .map(|((name, watch), line)| Shown { name, watch, line, rates: Rates::default() })
            .collect();
        let clock = env.clone();
        let task = env.spawn("live-lines", async move {
            loop {
                for flow in &mut shown {
                    flow.draw(clock.monotonic(), width);
                }
                clock.sleep(REDRAW_INTERVAL).await;
            }
        });
        Self { task, lines }
    }
}

impl Drop for LiveLines {
    fn drop(&mut self) {
        self.task.abort();
        for line in &self.lines {
            line.finish_and_clear();
        }
    }
}

struct Shown {
    name: String,
    watch: Arc<FlowWatch>,
    line: ProgressBar,
    rates: Rates,
}

impl Shown {
    fn draw(&mut self, now: Duration, name_width: usize) {
        let snapshot = self.watch.snapshot();
        let (rows_in, rows_out) = self.rates.update(now, snapshot.rows_in, snapshot.rows_out);
        let name = &self.name;
        let text = text(&snapshot, rows_in, rows_out);
        let line = format!("{name:name_width$}  {text}");
        self.line.set_message(secrets::redacted(&line).into_owned());
    }
}

/// A live line without the flow's name; rates are rows per second.
fn text(snapshot: &Snapshot, rows_in: f64, rows_out: f64) -> String {
    if let Some(count) = snapshot.restart {
        return format!("failed; starting again (number {count} in a row)");
    }
    let silence = silence(snapshot);
    let Some(id) = snapshot.last else {
        return silence.unwrap_or_else(|| "waiting for input".into());
    };
    let mut text = format!(
        "in {:>6}/s  out {:>6}/s  #{:<7}",
        human::short(rows_in),
        human::short(rows_out),
        human::count(id.0)
    );
    let quantiles = (snapshot.recent.quantile(0.5), snapshot.recent.quantile(0.99));
    if let (Some(p50), Some(p99)) = quantiles {
        let (p50, p99) = (human::duration(p50), human::duration(p99));
        text.push_str(&format!("  latency p50 {p50:>6} p99 {p99:>6}"));
    } else {
        text.push_str("  idle");
    }
    match (silence, snapshot.lag) {
        (Some(silence), _) => text.push_str(&format!("  lag ?  {silence}")),
        (None, Some(lag)) => text.push_str(&format!("  lag {}", human::short(lag as f64))),
        (None, None) => {}
    }
    text
}

/// What does not answer, and for how long.
fn silence(snapshot: &Snapshot) -> Option<String> {
    let (with, since_ms) = snapshot.silences.longest()?;
    let lasted = human::milliseconds(snapshot.now_ms.saturating_sub(since_ms));
    let since = human::moment(since_ms);
    Some(format!("NO ANSWER for {lasted} (since {since}) from {with}"))
}

/// Rows per second over the last samples.
#[derive(Default)]
struct Rates {
    samples: VecDeque<(Duration, u64, u64)>,
}

impl Rates {
    fn update(&mut self, now: Duration, rows_in: u64, rows_out: u64) -> (f64, f64) {
        self.samples.push_back((now, rows_in, rows_out));
        if self.samples.len() > RATE_SAMPLES_MAX + 1 {
            self.samples.pop_front();
        }
        let (then, in_then, out_then) = self.samples[0];
        let seconds = now.saturating_sub(then).as_secs_f64();
        if seconds == 0.0 {
            return (0.0, 0.0);
        }
        ((rows_in - in_then) as f64 / seconds, (rows_out - out_then) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::api::progress::Listener as _;

    use super::*;
    use crate::watch::tests::{contact, progress};

    #[test]
    fn rates_are_over_the_last_samples() {
        let mut rates = Rates::default();
        assert_eq!(rates.update(Duration::ZERO, 1_000, 10), (0.0, 0.0));
        assert_eq!(rates.update(Duration::from_millis(250), 1_500, 10), (2_000.0, 0.0));
        for quarter in 2..20_u32 {
            rates.update(Duration::from_millis(250) * quarter, 1_500, 10);
        }
        assert_eq!(rates.update(Duration::from_secs(5), 1_600, 30), (50.0, 10.0));
    }

    #[test]
    fn a_line_says_what_happens() {
        let watch = FlowWatch::new(Env::real());
        assert_eq!(text(&watch.snapshot(), 0.0, 0.0), "waiting for input");
        watch.published(&progress(1_233));
        assert_eq!(
            text(&watch.snapshot(), 20_100.0, 3.0),
            "in  20.1k/s  out      3/s  #1,233    latency p50 4.0 ms p99 4.0 ms  lag 6"
        );
    }

    #[test]
    fn a_dead_broker_does_not_look_like_peace() {
        let watch = FlowWatch::new(Env::real());
        watch.contact(&contact(false));
        let shown = text(&watch.snapshot(), 0.0, 0.0);
        assert!(shown.starts_with("NO ANSWER for "), "{shown}");
        watch.published(&progress(7));
        let shown = text(&watch.snapshot(), 0.0, 0.0);
        assert!(shown.contains("lag ?  NO ANSWER for "), "{shown}");
        let since = "(since 2026-01-01 00:00:00 UTC) from the brokers of in";
        assert!(shown.ends_with(since), "{shown}");
        watch.contact(&contact(true));
        assert!(text(&watch.snapshot(), 0.0, 0.0).ends_with("lag 6"));
    }
}
