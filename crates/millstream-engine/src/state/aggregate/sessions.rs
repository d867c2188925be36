//! Groups of sessions: a key's rows that follow each other within a gap.
//!
//! Each input row is a session of its own, from its time to a gap after it. A session that starts
//! no later than another of its key ends is part of it, so a row may lengthen a session or make one
//! of several. State is a row of partial aggregates per session. A micro-batch takes the sessions
//! of the keys it touches, sorts them with its own rows by their start, merges what belongs
//! together under one number, and puts the results in their place: the cost follows what is
//! touched.
//!
//! A session is published when the watermark has passed its end. With output mode `complete` all
//! sessions are published every time and none is evicted; late rows are left out even then, as in
//! Spark. Sessions of a time without a watermark are possible in that mode only: they never end,
//! and no row is late.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, RecordBatch, StructArray, TimestampMicrosecondArray, UInt32Array,
};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{DataType, Field, Schema, TimestampMicrosecondType};
use datafusion::common::{Result, internal_err};
use millstream_store::offset::BatchId;

use super::spec::{AggregateSpec, TimeKind, results_of, results_of_all};
use crate::state::keyed::{Key, KeyFormat, Keyed};
use crate::state::late_rows;
use crate::state::micro_batch::{MicroBatchFacts, Snapshot};
use crate::state::retained_micro_batches::RetainedMicroBatches;
use crate::state::shard::{Outcome, Shard};
use crate::state::sharded::Sharded;

/// An aggregation whose sessions are published when they end.
pub type SessionAggregate = Sharded<Sessions<false>>;
/// An aggregation that publishes all sessions every time.
pub type CompleteSessions = Sharded<Sessions<true>>;

/// The sessions of some keys.
pub struct Sessions<const COMPLETE: bool> {
    /// The format of keys: the group columns without the session.
    keys: KeyFormat,
    /// The format of row keys: those columns and the session's start.
    rows: KeyFormat,
    /// By row key, the session's row.
    states: Keyed,
    /// By key, its sessions in order.
    by_key: HashMap<Arc<[u8]>, Vec<Session>>,
    /// Ends and keys of all sessions.
    ends: BTreeSet<(i64, Arc<[u8]>)>,
    /// By micro-batch, how many sessions began to need the state log there.
    firsts: RetainedMicroBatches,
}

/// A session; times in microseconds since the epoch.
struct Session {
    start: i64,
    end: i64,
    /// The micro-batch of its first row.
    first: BatchId,
    /// The key of its row.
    row: Key,
}

/// The rows of a micro-batch that are not late.
struct Fresh {
    rows: RecordBatch,
    starts: TimestampMicrosecondArray,
    ends: TimestampMicrosecondArray,
}

/// What is to be merged: the group of each row of the state and of the micro-batch, and the
/// sessions that result.
#[derive(Default)]
struct Merge {
    known: Vec<(Key, usize)>,
    fresh: Vec<usize>,
    merged: Vec<Merged>,
}

struct Merged {
    key: Arc<[u8]>,
    start: i64,
    end: i64,
    first: BatchId,
    /// One of its fresh rows, from which the key columns are taken.
    sample: u32,
}

impl<const COMPLETE: bool> Shard for Sessions<COMPLETE> {
    type Spec = AggregateSpec;

    const PUBLISHES_ALL: bool = COMPLETE;

    fn new(spec: &AggregateSpec) -> Result<Self> {
        let mut fields: Vec<_> = spec.others().fields().to_vec();
        fields.push(Arc::new(Field::new("start", time_type(), false)));
        let rows = KeyFormat::new(&Arc::new(Schema::new(fields)))?;
        Ok(Self {
            keys: KeyFormat::new(spec.others())?,
            rows,
            states: Keyed::new(Arc::clone(spec.input())),
            by_key: HashMap::new(),
            ends: BTreeSet::new(),
            firsts: RetainedMicroBatches::default(),
        })
    }

    fn apply(
        &mut self,
        spec: &AggregateSpec,
        facts: &MicroBatchFacts,
        mut inputs: Vec<Vec<RecordBatch>>,
    ) -> Result<Outcome> {
        let rows = inputs.pop().unwrap_or_default();
        let mut outcome = Outcome::default();
        let late_us = facts.watermark.late_us();
        let rows = concat_batches(spec.input(), &rows)?;
        let fresh = Fresh::new(spec, rows, late_us, &mut outcome.late)?;
        if fresh.rows.num_rows() > 0 {
            self.merge(spec, facts.id, &fresh)?;
        }
        if !COMPLETE {
            self.close(spec, facts, &mut outcome)?;
        } else if facts.is_wanted {
            outcome.published = results_of_all(spec, &self.states)?;
        }
        Ok(outcome)
    }

    fn due_us(&self, _: &AggregateSpec) -> Option<i64> {
        self.ends.first().map(|(end, _)| *end).filter(|_| !COMPLETE)
    }

    fn needs_from(&self) -> Option<BatchId> {
        self.firsts.first()
    }

    fn rows(&self) -> u64 {
        self.states.len() as u64
    }

    fn bytes(&self) -> u64 {
        let session_bytes = 2 * size_of::<Session>() + size_of::<(i64, Arc<[u8]>)>();
        (self.states.bytes() + self.ends.len() * session_bytes) as u64
    }

    fn snapshot(self, _: &AggregateSpec) -> Result<Snapshot> {
        Ok(vec![self.states.all()?])
    }
}

impl<const COMPLETE: bool> Sessions<COMPLETE> {
    /// Merges fresh rows with the sessions of their keys.
    fn merge(&mut self, spec: &AggregateSpec, id: BatchId, fresh: &Fresh) -> Result<()> {
        let mut merge = self.find(spec, id, fresh)?;
        let known_keys = merge.known.iter().map(|(key, _)| &**key);
        let (known, found) = self.states.rows_of(known_keys)?;
        if found.len() != merge.known.len() {
            return internal_err!("the state has no row of a session that it knows");
        }
        let known_groups: Vec<usize> = merge.known.iter().map(|(_, group)| *group).collect();
        for (key, _) in &merge.known {
            self.states.remove(key);
        }

        let total = merge.merged.len();
        let parts = [(&known, known_groups.as_slice()), (&fresh.rows, merge.fresh.as_slice())];
        let mut accumulators = spec.merged(parts, total)?;
        let starts = times(merge.merged.iter().map(|merged| merged.start));
        let ends = times(merge.merged.iter().map(|merged| merged.end));
        let samples = merge.merged.iter().map(|merged| merged.sample);
        let samples = UInt32Array::from_iter_values(samples);
        let others = spec.other_columns(fresh.rows.columns());
        let others = others.iter().map(|column| take(column, &samples, None));
        let others = others.collect::<std::result::Result<Vec<_>, _>>()?;

        let mut row_key = others.clone();
        row_key.push(Arc::new(starts.clone()));
        let keys = self.rows.keys(&row_key, total)?;
        let columns = key_columns(spec, others, starts, ends);
        self.states.put(&keys, spec.states(columns, &mut accumulators)?, |_| {})?;
        for (at, merged) in merge.merged.drain(..).enumerate() {
            self.add(merged, keys.at(at).into());
        }
        Ok(())
    }

    /// Finds the rows and sessions that belong together, and takes the sessions that change out of
    /// the index.
    fn find(&mut self, spec: &AggregateSpec, id: BatchId, fresh: &Fresh) -> Result<Merge> {
        let count = fresh.rows.num_rows();
        let keys = self.keys.keys(&spec.other_columns(fresh.rows.columns()), count)?;
        let (starts, ends) = (fresh.starts.values(), fresh.ends.values());
        let mut order: Vec<u32> = (0..).take(count).collect();
        order.sort_unstable_by_key(|at| (keys.at(*at as usize), starts[*at as usize]));
        let mut merge = Merge { fresh: vec![0; count], ..Merge::default() };
        for rows_of_key in
            order.chunk_by(|one, other| keys.at(*one as usize) == keys.at(*other as usize))
        {
            let bytes = keys.at(rows_of_key[0] as usize);
            let (key, known) = match self.by_key.remove_entry(bytes) {
                Some((key, known)) => (key, known),
                None => (bytes.into(), Vec::new()),
            };
            // A merge of two lists in order of their starts, the key's sessions and its fresh rows:
            // each is looked at once.
            let mut known = known.into_iter().peekable();
            let mut untouched = Vec::new();
            let mut rows = rows_of_key.iter().map(|at| *at as usize).peekable();
            while let Some(row) = rows.next() {
                let group = merge.merged.len();
                let (mut start, mut end, mut first) = (starts[row], ends[row], id);
                merge.fresh[row] = group;
                // Sessions that end before this row stay as they are.
                while let Some(before) = known.next_if(|session| session.end < start) {
                    untouched.push(before);
                }
                // The session grows while the next one of either list starts no later than it ends.
                // Its end moves with each, so neither list can be searched ahead of the other.
                loop {
                    if let Some(session) = known.next_if(|session| session.start <= end) {
                        start = start.min(session.start);
                        end = end.max(session.end);
                        first = first.min(session.first);
                        self.unindex(&key, &session);
                        merge.known.push((session.row, group));
                    } else if let Some(next) = rows.next_if(|row| starts[*row] <= end) {
                        end = end.max(ends[next]);
                        merge.fresh[next] = group;
                    } else {
                        break;
                    }
                }
                let (key, sample) = (Arc::clone(&key), row_number(row));
                merge.merged.push(Merged { key, start, end, first, sample });
            }
            untouched.extend(known);
            if !untouched.is_empty() {
                self.by_key.insert(key, untouched);
            }
        }
        Ok(merge)
    }

    fn add(&mut self, merged: Merged, row: Key) {
        let Merged { key, start, end, first, .. } = merged;
        self.ends.insert((end, Arc::clone(&key)));
        self.firsts.add(first, 1);
        let sessions = self.by_key.entry(key).or_default();
        let place = sessions.partition_point(|session| session.start < start);
        sessions.insert(place, Session { start, end, first, row });
    }

    /// Takes a session of `key` out of all but the map by key.
    fn unindex(&mut self, key: &Arc<[u8]>, session: &Session) {
        self.ends.remove(&(session.end, Arc::clone(key)));
        self.firsts.remove(session.first);
    }

    /// Publishes the sessions that the watermark has passed, and evicts them.
    fn close(
        &mut self,
        spec: &AggregateSpec,
        facts: &MicroBatchFacts,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let evict_us = facts.watermark.evict_us();
        let mut closed: Vec<Key> = Vec::new();
        while self.ends.first().is_some_and(|(end, _)| *end <= evict_us) {
            let Some((end, key)) = self.ends.pop_first() else { break };
            let Some(sessions) = self.by_key.get_mut(&key) else { continue };
            let Some(at) = sessions.iter().position(|session| session.end == end) else { continue };
            let session = sessions.remove(at);
            if sessions.is_empty() {
                self.by_key.remove(&key);
            }
            self.unindex(&key, &session);
            closed.push(session.row);
        }
        if closed.is_empty() {
            return Ok(());
        }
        if facts.is_wanted {
            let (rows, _) = self.states.rows_of(closed.iter().map(|key| &**key))?;
            outcome.published.push(results_of(spec, &rows)?);
        }
        outcome.removed = closed.len() as u64;
        closed.iter().for_each(|key| {
            self.states.remove(key);
        });
        Ok(())
    }
}

impl Fresh {
    /// Leaves out rows that end at or before `late_us`, and adds how many to `late`.
    fn new(spec: &AggregateSpec, rows: RecordBatch, late_us: i64, late: &mut u64) -> Result<Self> {
        let Some(time) = spec.time() else { return internal_err!("sessions have a time") };
        let bound = |rows: &RecordBatch, at: usize| {
            let sessions = rows.column(time.column).as_struct();
            sessions.column(at).as_primitive::<TimestampMicrosecondType>().clone()
        };
        let before = rows.num_rows();
        let rows = match time.kind {
            // Without a watermark no time is too early, not even one before the epoch.
            TimeKind::EndlessSession => rows,
            _ => late_rows::without(&bound(&rows, 1), late_us, rows)?,
        };
        *late += (before - rows.num_rows()) as u64;
        Ok(Self { starts: bound(&rows, 0), ends: bound(&rows, 1), rows })
    }
}

/// The group columns of partial rows, in order.
fn key_columns(
    spec: &AggregateSpec,
    others: Vec<ArrayRef>,
    starts: TimestampMicrosecondArray,
    ends: TimestampMicrosecondArray,
) -> Vec<ArrayRef> {
    let mut others = others.into_iter();
    let column = |index: usize| -> ArrayRef {
        if spec.time().is_none_or(|time| time.column != index) {
            return others.next().expect("a key column each");
        }
        let DataType::Struct(fields) = spec.input().field(index).data_type() else {
            unreachable!("a session is a STRUCT")
        };
        let of = |times: &TimestampMicrosecondArray, at: usize| -> ArrayRef {
            Arc::new(times.clone().with_data_type(fields[at].data_type().clone()))
        };
        Arc::new(StructArray::new(fields.clone(), vec![of(&starts, 0), of(&ends, 1)], None))
    };
    (0..spec.key_count()).map(column).collect()
}

fn times(times: impl Iterator<Item = i64>) -> TimestampMicrosecondArray {
    TimestampMicrosecondArray::from_iter_values(times)
}

fn time_type() -> DataType {
    DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None)
}

fn row_number(row: usize) -> u32 {
    u32::try_from(row).expect("a micro-batch has fewer rows on one core")
}
