//! A line that shows that a long query is alive, for a person at a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use millstream_query::progress::Scans;
use millstream_store::env::{Env, Task};

use crate::human;
use crate::screen::Screen;

/// A query that takes less time shows no line.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(500);

/// The line, until this is dropped.
pub(super) struct Line {
    task: Task<()>,
}

impl Line {
    /// Of a query that begins now and whose rows come from `scans`; none where nobody looks.
    pub fn begin(env: &Env, screen: &Screen, scans: Scans) -> Option<Self> {
        if !screen.is_terminal() {
            return None;
        }
        let (clock, screen) = (env.clone(), screen.clone());
        let task = env.spawn("query-progress", async move {
            let start = clock.monotonic();
            clock.sleep(SHOWN_AFTER).await;
            let line = Shown(screen.live_line());
            line.0.set_style(ProgressStyle::with_template("{msg}").expect("it is a template"));
            loop {
                let seconds = (clock.monotonic() - start).as_secs();
                line.0.set_message(shown(seconds, scans.rows()));
                clock.sleep(EVERY).await;
            }
        });
        Some(Self { task })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A line of the screen that goes when it is no longer wanted.
struct Shown(ProgressBar);

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Rows are known of queries that run in this process.
fn shown(seconds: u64, rows: u64) -> String {
    match rows {
        0 => format!("running for {seconds} s (Ctrl-C ends the query)"),
        rows => {
            let rows = human::count(rows);
            format!("running for {seconds} s, {rows} rows read (Ctrl-C ends the query)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_shown_where_they_are_known() {
        assert_eq!(shown(3, 0), "running for 3 s (Ctrl-C ends the query)");
        assert!(
            shown(61, 1_500_000).starts_with("running for 61 s, 1"),
            "{}",
            shown(61, 1_500_000)
        );
    }
}
