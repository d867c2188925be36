//! Which record a row was made of that a sink refuses.
//!
//! A sink refuses a row when the driver has long turned to other micro-batches, and it knows the
//! row and not what that was made of. So once the query has failed, the sources give the
//! micro-batches again that were not acknowledged, and the plan runs over halves of their records
//! until the row comes of a single one. Nothing is published meanwhile, and a query that does not
//! fail pays for none of it but remembering where its last micro-batches began.
//!
//! A row that follows from several records, as one above an aggregation does, has no record: then
//! the error names the ranges that were read.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use arrow::array::RecordBatch;
use millstream_store::env::Env;
use millstream_store::error::Classified;
use millstream_store::offset::{BatchId, SourceOffset};
use thiserror::Error;

use super::branch::Splits;
use super::branches::Branches;
use super::{Driver, Query};
use crate::api::dead_letter::Place;
use crate::api::sink::RefusedRow;
use crate::api::source::{Failure, Kind, Source};
use crate::plan::{StreamPlan, failing_rows};

/// Records that are read again at once, unless a single micro-batch has more.
const RECORDS_AT_ONCE: u64 = 1 << 16;
/// How long the record is looked for. A source that is away must not keep the error back.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the last micro-batches were read from.
pub(super) struct Ranges {
    last: VecDeque<Range>,
    /// So many may be unacknowledged.
    max: usize,
}

/// What one or several micro-batches were read from.
#[derive(Clone)]
pub(super) struct Range {
    /// The first of them.
    pub(super) id: BatchId,
    /// By source, where it began.
    pub(super) starts: Vec<Option<SourceOffset>>,
    /// By source, where it ended, exclusive.
    pub(super) ends: Vec<Option<SourceOffset>>,
    /// Records in it.
    pub(super) records: u64,
}

impl Ranges {
    /// For a query that has at most `max` micro-batches under way.
    pub(super) fn new(max: usize) -> Self {
        Self { last: VecDeque::new(), max }
    }

    /// The next micro-batch is read from `range`.
    pub(super) fn add(&mut self, range: Range) {
        if self.last.len() >= self.max {
            self.last.pop_front();
        }
        self.last.push_back(range);
    }

    /// All sinks have acknowledged the micro-batches up to `id`.
    pub(super) fn acknowledged(&mut self, id: BatchId) {
        while self.last.pop_front_if(|range| range.id <= id).is_some() {}
    }

    /// The ranges from micro-batch `first` on, or of the last one; small ones together.
    fn from(&self, first: Option<BatchId>) -> Vec<Range> {
        let last = self.last.back().map(|range| range.id);
        let first = first.or(last);
        let mut together: Vec<Range> = Vec::new();
        for range in self.last.iter().filter(|range| Some(range.id) >= first) {
            match together.last_mut() {
                Some(before)
                    if before.ends == range.starts
                        && before.records + range.records <= RECORDS_AT_ONCE =>
                {
                    before.ends.clone_from(&range.ends);
                    before.records += range.records;
                }
                _ => together.push(range.clone()),
            }
        }
        together
    }
}

/// A row that a sink refuses, and what it was made of.
#[derive(Debug, Error)]
#[error("{origin} cannot be written: {cause}")]
struct NotWritten {
    origin: Origin,
    #[source]
    cause: RefusedRow,
}

impl Classified for NotWritten {
    fn kind(&self) -> Kind {
        self.cause.kind()
    }
}

/// What a row was made of.
#[derive(Debug)]
enum Origin {
    /// This record.
    Record(Place),
    /// Some of these: by source what it is, where the range begins, if it does not with the query,
    /// and where it ends.
    Ranges(Vec<(String, Option<SourceOffset>, SourceOffset)>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = match self {
            Self::Record(place) => return write!(f, "the record {place}"),
            Self::Ranges(ranges) => ranges,
        };
        f.write_str("a row that was computed of records")?;
        for (index, (source, start, end)) in ranges.iter().enumerate() {
            let and = if index > 0 { " and" } else { "" };
            match start {
                Some(start) => write!(f, "{and} of {source} from {start} to {end}")?,
                None => write!(f, "{and} of {source} up to {end}")?,
            }
        }
        Ok(())
    }
}

impl Driver {
    /// `failure` with the record that it is about, where a sink refuses a row. `first` is the first
    /// micro-batch that was not acknowledged; `None` for the one in hand.
    pub(super) async fn with_record(
        &mut self,
        failure: Failure,
        first: Option<BatchId>,
    ) -> Failure {
        let cause = match failure.downcast::<RefusedRow>() {
            Ok(refused) => refused,
            Err(other) => return other,
        };
        let ranges = self.ranges.from(first);
        let Query { branches, sources, env, .. } = &mut self.query;
        let clock = env.clone();
        let place = tokio::select! {
            biased;
            place = find(branches, sources, env, &cause, &ranges) => place,
            () = clock.sleep(PATIENCE) => None,
        };
        let origin = match place {
            Some(place) => Origin::Record(place),
            None => Origin::Ranges(self.described(&ranges)),
        };
        NotWritten { origin, cause }.into()
    }

    /// By source that gave something, what `ranges` are together; with state, rows may follow from
    /// all that came before.
    fn described(&self, ranges: &[Range]) -> Vec<(String, Option<SourceOffset>, SourceOffset)> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return Vec::new() };
        let sources = self.query.sources.iter().zip(first.starts.iter().zip(&last.ends));
        let has_state = self.state.is_some();
        let described = sources.filter_map(|(source, (start, end))| {
            let end = end.clone().filter(|_| has_state || start != end)?;
            Some((source.description(), start.clone().filter(|_| !has_state), end))
        });
        described.collect()
    }
}

/// Reads `ranges` again, one after the other, until one has the record.
async fn find(
    branches: &mut Branches,
    sources: &mut [Box<dyn Source>],
    env: &Env,
    refused: &RefusedRow,
    ranges: &[Range],
) -> Option<Place> {
    for range in ranges {
        let mut splits = Splits::new();
        for (index, source) in sources.iter_mut().enumerate() {
            let (start, end) = (range.starts[index].as_ref(), range.ends[index].as_ref());
            let Some(end) = end.filter(|_| start != end) else {
                splits.push(Vec::new());
                continue;
            };
            match source.replay(start, end).await {
                Ok(taken) => splits.push(taken.splits),
                Err(failure) => {
                    tracing::warn!(%failure, "the record of a refused row cannot be looked for");
                    return None;
                }
            }
        }
        if let Some(place) = branches.place_of_row(env, splits, refused).await {
            return Some(place);
        }
    }
    None
}

impl Branches {
    /// Where the record stands of which, alone, a row follows that a sink has refused: `splits` are
    /// read again, by source. `None` where it follows from several, or of none of these.
    async fn place_of_row(
        &mut self,
        env: &Env,
        splits: Splits,
        refused: &RefusedRow,
    ) -> Option<Place> {
        let kept = failing_rows::kept(&splits)?;
        // A side output's sink comes after those of the plans.
        let StreamPlan::Stateless(plan) = self.plans.get_mut(refused.sink)? else { return None };
        let checks = self.side_outputs.checks();
        let is_among = |rows: Vec<RecordBatch>| {
            let checked = match checks {
                Some(checks) => checks.apply(vec![rows]).map(|checked| checked.partitions),
                None => Ok(vec![rows]),
            };
            checked.is_ok_and(|rows| rows.iter().flatten().any(|rows| refused.is_among(rows)))
        };
        plan.place_of_row(env, kept, &is_among).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(id: u64, records: u64) -> Range {
        let at = |end: u64| vec![Some(SourceOffset::new(end.to_string()))];
        Range { id: BatchId(id), starts: at(id), ends: at(id + 1), records }
    }

    #[test]
    fn small_micro_batches_are_read_again_together() {
        let mut ranges = Ranges::new(4);
        for (id, records) in [(0, 1), (1, 1), (2, 1), (3, 2), (4, RECORDS_AT_ONCE), (5, 1)] {
            ranges.add(range(id, records));
        }
        let found = |ranges: &Ranges, first: Option<u64>| {
            let together = ranges.from(first.map(BatchId)).into_iter();
            together.map(|range| (range.id.0, range.records)).collect::<Vec<_>>()
        };
        assert_eq!(
            found(&ranges, Some(0)),
            [(2, 3), (4, RECORDS_AT_ONCE), (5, 1)],
            "as many as may be"
        );
        assert_eq!(found(&ranges, Some(3)), [(3, 2), (4, RECORDS_AT_ONCE), (5, 1)]);
        assert_eq!(found(&ranges, None), [(5, 1)], "the one in hand");
        ranges.acknowledged(BatchId(4));
        assert_eq!(ranges.last.len(), 1);
    }
}
