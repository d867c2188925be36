//! A query whose windows are those of the clock, checked: nobody knows which bid is in which
//! window, but every bid is in one of them.
//!
//! The windows are still open when all events have been read. So the query runs on, its watermark
//! follows the clock, and it is ended when the table has as many bids as there are.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use millstream_store::env::Env;

use crate::clock::Clock;
use crate::error::Error;
use crate::testbed::TestBed;
use crate::{engine, read_back};

/// Options of the table's writer.
pub const SINK: &[(&str, &str)] = &[("watermarkAdvanceAfter", "1 second")];

/// Longer than a window, and than reading the events.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Runs a pipeline into `table` until it has all `bids`, by bidder. Errors with [`Error::Result`]
/// if a bidder has more or fewer.
pub fn check(
    testbed: &TestBed,
    pipeline: &str,
    directory: &Path,
    table: &Path,
    bids: BTreeMap<i64, i64>,
) -> Result<(), Error> {
    let (env, wanted) = (&testbed.env, bids.values().sum::<i64>());
    let clock = Clock::new(env);
    let mut engine = engine::start_telling(env, &clock, pipeline, &testbed.options, directory)?;
    let deadline = env.monotonic() + PATIENCE;
    let mut found = BTreeMap::new();
    while found.values().sum::<i64>() < wanted && env.monotonic() < deadline {
        std::thread::sleep(LOOK_AGAIN);
        engine.process.check()?;
        // Before that there may be no table.
        if engine.progress.look(|told| told.iter().any(|told| told.rows_out > 0)) {
            found = counts(env, table)?;
        }
    }
    engine.process.stop()?;
    engine.progress.finish()?;
    match difference(bids, &found) {
        None => Ok(()),
        Some(problem) => Err(Error::Result { path: table.to_owned(), problem }),
    }
}

/// Bids in all windows, by bidder.
fn counts(env: &Env, table: &Path) -> Result<BTreeMap<i64, i64>, Error> {
    let mut found: BTreeMap<i64, i64> = BTreeMap::new();
    read_back::table(env, table, &["bidder", "bid_count"], |rows| {
        let bidders = rows.column(0).as_primitive::<Int64Type>().values();
        let counts = rows.column(1).as_primitive::<Int64Type>().values();
        for (bidder, count) in bidders.iter().zip(counts) {
            *found.entry(*bidder).or_default() += count;
        }
    })?;
    Ok(found)
}

fn difference(bids: BTreeMap<i64, i64>, found: &BTreeMap<i64, i64>) -> Option<String> {
    let mut left = bids;
    for (bidder, count) in found {
        *left.entry(*bidder).or_default() -= count;
    }
    let (bidder, left) = left.into_iter().find(|(_, left)| *left != 0)?;
    let of = if left < 0 { "too many" } else { "too few" };
    Some(format!("bidder {bidder} has {} bids {of}", left.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bidder_has_the_bids_that_it_made() {
        let made = BTreeMap::from([(1, 5), (2, 3)]);
        let said = |found| difference(made.clone(), &BTreeMap::from(found)).unwrap_or_default();
        assert_eq!(said([(1, 5), (2, 3)]), "");
        assert_eq!(said([(1, 5), (2, 4)]), "bidder 2 has 1 bids too many");
        assert_eq!(said([(1, 2), (2, 3)]), "bidder 1 has 3 bids too few");
        assert_eq!(said([(2, 3), (3, 1)]), "bidder 1 has 5 bids too few");
    }
}
