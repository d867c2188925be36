//! `millstream-bench windowed --curve`: throughput and latency as keys, and with them the state,
//! become more.
//!
//! For each number of keys a topic is filled and emptied as fast as that goes, then messages come
//! at a fixed rate. `millstream-bench plot` draws the lines.

use serde::Serialize;

use super::live::{self, LiveWindows};
use super::query::Form;
use super::{Bench, Flags};
use crate::error::Error;
use crate::report::{self, Report};
use crate::testbed::TestBed;
use crate::throughput::Throughput;

/// Characters of a configuration's name.
const WIDTH: usize = 8;

/// One result line: a number of keys in one round.
#[derive(Clone, Debug, Serialize)]
struct Point {
    #[serde(flatten)]
    live: live::LiveLine,
    /// Of the topic that was emptied.
    throughput: Throughput,
    /// Messages in all groups of that table less those of the topic.
    drained_surplus_rows: i64,
}

/// Runs all points. True if every message was in every table once.
pub fn run(flags: &Flags, testbed: &TestBed, report: &Report) -> Result<bool, Error> {
    eprintln!("{}", flags.live_settings());
    eprintln!("{} {:>18}", live::table_head(WIDTH), "MB/s per busy core");
    let mut is_complete = true;
    for &keys in &flags.curve_keys {
        testbed.with_topic(&format!("in-{keys}"), flags.topic.partitions, |topic| {
            let bench = Bench { flags, testbed, topic, keys: Some(keys) };
            let sent = bench.fill()?;
            for round in 1..=flags.topic.repeat {
                for form in flags.forms() {
                    let drained = bench.round(form, round, &sent)?;
                    let live = live(flags, testbed, form, keys, round)?;
                    let row = live::table_row(&live, WIDTH);
                    let per_core = drained.throughput.mb_per_busy_core_second;
                    eprintln!("{row} {per_core:>18.1}");
                    is_complete &= drained.surplus_rows == 0 && live.surplus_rows == 0;
                    let drained_surplus_rows = drained.surplus_rows;
                    let throughput = drained.throughput;
                    report.line("point", &Point { live, throughput, drained_surplus_rows })?;
                }
            }
            Ok(())
        })?;
    }
    Ok(is_complete)
}

fn live(
    flags: &Flags,
    testbed: &TestBed,
    form: Form,
    keys: u64,
    round: u32,
) -> Result<live::LiveLine, Error> {
    let run = LiveWindows {
        testbed,
        live: &flags.live,
        topic: &flags.topic,
        configuration: report::name(&form),
        form,
        keys: Some(keys),
        window_s: flags.window_seconds,
        delay_s: flags.delay_seconds,
        round,
        of_writer: &flags.of_writer(),
    };
    run.run(|_, _| Ok(()))
}
