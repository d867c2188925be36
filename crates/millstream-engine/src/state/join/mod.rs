//! Joins of two streams.
//!
//! State is the rows of each side, by join key. A micro-batch's rows of the left side are joined
//! with the right side's state and added to the left one; then its rows of the right side are
//! joined with all of the left side. So each pair is made once, when the later of its rows arrives.
//! A side's rows are evicted when the watermark says that no partner can arrive any more: by the
//! event time in the join key, or by the bounds that the condition sets between the sides' event
//! times. A row that is evicted, and that an outer join keeps, is published with nulls for the
//! other side if it never met a partner.
//!
//! Input rows have the side's columns first, then the columns of [`SideSpec`]. Whether a row has
//! met a partner is its mark in the `RowLog`; in a snapshot it is a column of the row. After a
//! crash it follows from the state log, which is therefore needed from the partner's micro-batch
//! on, even where the partner itself was evicted.

mod side;
mod spec;
#[cfg(test)]
mod tests;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::take_record_batch;
use datafusion::common::Result;
use millstream_store::offset::BatchId;

use self::side::{Fresh, Side};
pub use self::spec::{Evict, JoinKind, JoinSpec, SideSpec};
use super::micro_batch::{MicroBatchFacts, Snapshot};
use super::shard::{Outcome, Shard};
use super::sharded::Sharded;

/// A join of two streams; see the module's head.
pub type StreamJoin = Sharded<Joined>;

/// When so many pairs are found, they are evaluated: this bounds the memory for keys with many rows
/// on both sides to about that many pairs, and the pairs of one row.
const PAIRS_MAX: usize = 65_536;

/// Both sides' rows of some keys.
pub struct Joined {
    sides: [Side; 2],
}

/// Pairs of a row of the micro-batch and a row of the other side with the same key.
#[derive(Default)]
struct Pairs {
    /// Places among the fresh rows.
    fresh: Vec<u32>,
    /// Numbers of the other side's rows.
    known: Vec<u64>,
}

impl Shard for Joined {
    type Spec = JoinSpec;

    fn new(spec: &JoinSpec) -> Result<Self> {
        Ok(Self { sides: [Side::new(&spec.sides[0])?, Side::new(&spec.sides[1])?] })
    }

    fn apply(
        &mut self,
        spec: &JoinSpec,
        facts: &MicroBatchFacts,
        inputs: Vec<Vec<RecordBatch>>,
    ) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for (side, rows) in inputs.into_iter().enumerate() {
            if facts.is_snapshot {
                self.keep_as_they_are(spec, side, facts.id, rows)?;
                continue;
            }
            let late_us = facts.watermark.late_us();
            let fresh = self.sides[side].fresh(&spec.sides[side], rows, late_us)?;
            let Some((fresh, late)) = fresh else { continue };
            outcome.late += late;
            if facts.is_wanted || spec.kind != JoinKind::Inner {
                self.take(spec, side, facts, fresh, &mut outcome)?;
            } else {
                // An inner join needs no marks, so without output the pairs need not be made.
                self.sides[side].keep(&spec.sides[side], facts.id, fresh)?;
            }
        }
        for side in 0..2 {
            self.evict(spec, side, facts, &mut outcome)?;
        }
        Ok(outcome)
    }

    fn due_us(&self, spec: &JoinSpec) -> Option<i64> {
        // Only rows that an outer join keeps are published when they are evicted; others can wait
        // for the next rows.
        let kept = (0..2).filter(|side| spec.kind.keeps(*side));
        kept.filter_map(|side| self.sides[side].due_us(&spec.sides[side])).min()
    }

    fn needs_from(&self) -> Option<BatchId> {
        self.sides.iter().filter_map(Side::first).min()
    }

    fn rows(&self) -> u64 {
        self.sides.iter().map(|side| side.len() as u64).sum()
    }

    fn bytes(&self) -> u64 {
        self.sides.iter().map(|side| side.bytes() as u64).sum()
    }

    fn snapshot(self, spec: &JoinSpec) -> Result<Snapshot> {
        let sides = self.sides.into_iter().zip(&spec.sides);
        sides.map(|(side, spec)| side.snapshot(spec)).collect()
    }
}

impl Joined {
    /// Keeps rows of a snapshot without joining them: their marks say which have met a partner.
    fn keep_as_they_are(
        &mut self,
        spec: &JoinSpec,
        side: usize,
        id: BatchId,
        rows: Vec<RecordBatch>,
    ) -> Result<()> {
        let late_us = MicroBatchFacts::NOTHING_LATE.late_us();
        for rows in rows {
            if let Some((fresh, _)) =
                self.sides[side].fresh(&spec.sides[side], vec![rows], late_us)?
            {
                self.sides[side].keep(&spec.sides[side], id, fresh)?;
            }
        }
        Ok(())
    }

    /// Joins fresh rows of a side with the other side's rows, and keeps them.
    fn take(
        &mut self,
        spec: &JoinSpec,
        side: usize,
        facts: &MicroBatchFacts,
        mut fresh: Fresh,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let mut pairs = Pairs::default();
        for place in 0..fresh.rows.num_rows() {
            let Some(key) = fresh.key(place) else { continue };
            let known = self.sides[1 - side].with_key(key);
            pairs.known.extend(known);
            let place = u32::try_from(place).expect("a micro-batch has fewer rows");
            pairs.fresh.resize(pairs.known.len(), place);
            if pairs.fresh.len() >= PAIRS_MAX {
                let full = std::mem::take(&mut pairs);
                let published = self.meet(spec, side, &mut fresh, full)?;
                outcome.published.extend(published.filter(|_| facts.is_wanted));
            }
        }
        if !pairs.fresh.is_empty() {
            let published = self.meet(spec, side, &mut fresh, pairs)?;
            outcome.published.extend(published.filter(|_| facts.is_wanted));
        }
        self.sides[side].keep(&spec.sides[side], facts.id, fresh)
    }

    /// The pairs that meet the rest of the condition; their rows are marked.
    fn meet(
        &mut self,
        spec: &JoinSpec,
        side: usize,
        fresh: &mut Fresh,
        pairs: Pairs,
    ) -> Result<Option<RecordBatch>> {
        let other = 1 - side;
        let fresh_rows = take_record_batch(&fresh.rows, &UInt32Array::from(pairs.fresh.clone()))?;
        let known_rows = self.sides[other].rows(&pairs.known)?;
        let mut columns = [&fresh_rows, &known_rows].map(|rows| rows.columns());
        if side == 1 {
            columns.swap(0, 1);
        }
        let joined = spec.joined(columns)?;
        let meets = spec.meets(&joined)?;
        let mut published = Vec::with_capacity(joined.num_rows());
        for (at, (place, number)) in (0_u32..).zip(pairs.fresh.iter().zip(&pairs.known)) {
            if meets.as_ref().is_some_and(|meets| !meets[at as usize]) {
                continue;
            }
            let was_marked = match side {
                0 => std::mem::replace(&mut fresh.is_marked[*place as usize], true),
                _ => fresh.is_marked[*place as usize],
            };
            let known_is_new = self.sides[other].mark(*number);
            fresh.is_marked[*place as usize] = true;
            if spec.kind.asks_for_marks(side) {
                let met_in = &mut fresh.met_in[*place as usize];
                *met_in = (*met_in).max(Some(self.sides[other].micro_batch(*number)));
            }
            // A semi join publishes the left row with its first partner, whichever side comes last.
            let is_published = match (spec.kind, side) {
                (JoinKind::LeftSemi, 0) => !was_marked,
                (JoinKind::LeftSemi, _) => known_is_new,
                _ => true,
            };
            if is_published {
                published.push(at);
            }
        }
        if published.is_empty() {
            return Ok(None);
        }
        let picked = if published.len() == joined.num_rows() {
            joined
        } else {
            take_record_batch(&joined, &UInt32Array::from(published))?
        };
        Ok(Some(spec.output_of(&picked)?))
    }

    /// Evicts rows of a side for which no partner can arrive any more.
    fn evict(
        &mut self,
        spec: &JoinSpec,
        side: usize,
        facts: &MicroBatchFacts,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let evict_us = facts.watermark.evict_us();
        let Some(evicted) = self.sides[side].evict(&spec.sides[side], evict_us)? else {
            return Ok(());
        };
        outcome.removed += evicted.rows.num_rows() as u64;
        if !spec.kind.keeps(side) || !facts.is_wanted {
            return Ok(());
        }
        let alone = evicted.is_marked.iter().zip(0_u32..).filter(|(marked, _)| !**marked);
        let alone: UInt32Array = alone.map(|(_, at)| at).collect();
        if alone.is_empty() {
            return Ok(());
        }
        let alone = take_record_batch(&evicted.rows, &alone)?;
        let other = &spec.sides[1 - side];
        let nulls = other.input.fields()[..other.columns].iter();
        let nulls: Vec<ArrayRef> =
            nulls.map(|field| new_null_array(field.data_type(), alone.num_rows())).collect();
        let mut columns = [alone.columns(), &nulls[..]];
        if side == 1 {
            columns.swap(0, 1);
        }
        outcome.published.push(spec.output_of(&spec.joined(columns)?)?);
        Ok(())
    }
}

/// Which rows a Boolean column is true for.
fn trues(column: &ArrayRef) -> Vec<bool> {
    let column = column.as_boolean();
    (0..column.len()).map(|at| column.is_valid(at) && column.value(at)).collect()
}
