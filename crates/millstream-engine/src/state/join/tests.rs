//! The join against one that looks at all pairs, over random rows in random micro-batches.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use datafusion::common::ToDFSchema;
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{col, lit};
use datafusion::physical_expr::create_physical_expr;
use proptest::prelude::*;

use super::*;
use crate::state::watermark::Watermark;

/// A row of a side: its number, its time in seconds, its key.
type Row = (i64, i64, Option<i64>);
/// Which rows met: the numbers of both sides.
type Pair = (Option<i64>, Option<i64>);

const KINDS: [JoinKind; 5] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::LeftSemi];
/// A right row's partners are up to so many seconds older.
const BOUND: i64 = 10;

/// A side with the columns v, t; the key k; and the times and the mark of a side.
fn side(offset_s: i64) -> SideSpec {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let fields = vec![
        Field::new("v", DataType::Int64, false),
        Field::new("t", DataType::Int64, false),
        Field::new("k", DataType::Int64, true),
        Field::new("late", time.clone(), false),
        Field::new("evict", time, false),
        Field::new("met", DataType::Boolean, false),
    ];
    let evict = Some(Evict { column: 4, offset_us: offset_s * 1_000_000 });
    let (input, keys) = (Arc::new(Schema::new(fields)), 2..3);
    SideSpec { input, columns: 2, keys, late: Some(3), evict, mark: 5 }
}

fn spec(kind: JoinKind) -> JoinSpec {
    let names = ["v0", "t0", "v1", "t1"];
    let both = names.map(|name| Field::new(name, DataType::Int64, true));
    let both = Arc::new(Schema::new(both.to_vec()));
    let condition = col("t1").gt_eq(col("t0")).and(col("t1").lt_eq(col("t0") + lit(BOUND)));
    let of_both = Arc::clone(&both).to_dfschema().unwrap();
    let residual = {
        let (properties, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
        create_physical_expr(&condition, &of_both, &properties, &context).unwrap()
    };
    let output = match kind {
        JoinKind::LeftSemi => Arc::new(both.project(&[0, 1]).unwrap()),
        _ => Arc::clone(&both),
    };
    let sides = [side(-BOUND), side(0)];
    JoinSpec { sides, kind, residual: Some(residual), both, output }
}

fn input(spec: &SideSpec, rows: &[Row]) -> Vec<RecordBatch> {
    let times = || {
        let times = rows.iter().map(|(_, t, _)| t * 1_000_000);
        Arc::new(TimestampMicrosecondArray::from_iter_values(times))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|(v, ..)| *v))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, t, _)| *t))),
        Arc::new(rows.iter().map(|(.., k)| *k).collect::<Int64Array>()),
        times(),
        times(),
        Arc::new(BooleanArray::from(vec![false; rows.len()])),
    ];
    vec![RecordBatch::try_new(Arc::clone(&spec.input), columns).unwrap()]
}

fn pairs(kind: JoinKind, outcome: &Outcome) -> Vec<Pair> {
    let value = |rows: &RecordBatch, column: usize, at: usize| {
        let column = rows.column(column).as_primitive::<Int64Type>();
        column.is_valid(at).then(|| column.value(at))
    };
    let of = |rows: &RecordBatch| -> Vec<Pair> {
        let right = |at| (kind != JoinKind::LeftSemi).then(|| value(rows, 2, at)).flatten();
        (0..rows.num_rows()).map(|at| (value(rows, 0, at), right(at))).collect()
    };
    outcome.published.iter().flat_map(of).collect()
}

fn expected(kind: JoinKind, left: &[Row], right: &[Row]) -> Vec<Pair> {
    let meets =
        |l: &Row, r: &Row| l.2.is_some() && l.2 == r.2 && (0..=BOUND).contains(&(r.1 - l.1));
    let mut all = Vec::new();
    for l in left {
        let partners: Vec<_> = right.iter().filter(|r| meets(l, r)).collect();
        match (kind, partners.is_empty()) {
            (JoinKind::LeftSemi, false) => all.push((Some(l.0), None)),
            (JoinKind::LeftSemi, true) => {}
            (JoinKind::Left | JoinKind::Full, true) => all.push((Some(l.0), None)),
            _ => all.extend(partners.iter().map(|r| (Some(l.0), Some(r.0)))),
        }
    }
    if matches!(kind, JoinKind::Right | JoinKind::Full) {
        let alone = right.iter().filter(|r| !left.iter().any(|l| meets(l, r)));
        all.extend(alone.map(|r| (None, Some(r.0))));
    }
    all.sort_unstable();
    all
}

/// The watermark behind which no row of `rest` lies, milliseconds.
fn watermark(rest: &[&[Row]]) -> i64 {
    rest.iter().flat_map(|rows| rows.iter()).map(|row| row.1).min().unwrap_or(1_000_000) * 1_000 - 1
}

fn rows(count: usize) -> impl Strategy<Value = Vec<(i64, Option<i64>)>> {
    let key = prop_oneof![4 => (0..4_i64).prop_map(Some), 1 => Just(None)];
    proptest::collection::vec((0..60_i64, key), 0..count)
}

/// What a restart has.
#[derive(Default)]
struct StateLog {
    snapshot: Option<(BatchId, Snapshot)>,
    /// Since the snapshot.
    entries: Vec<(MicroBatchFacts, Vec<Vec<RecordBatch>>)>,
}

impl StateLog {
    /// The state again, from what is needed alone.
    fn replay(&self, spec: &JoinSpec, needed: Option<BatchId>) -> Joined {
        let mut joined = Joined::new(spec).unwrap();
        let is_needed = |id: BatchId| needed.is_some_and(|needed| needed <= id);
        if let Some((id, snapshot)) = self.snapshot.as_ref().filter(|(id, _)| is_needed(*id)) {
            let facts = MicroBatchFacts::from_snapshot(*id);
            joined.apply(spec, &facts, snapshot.clone()).unwrap();
        }
        for (facts, inputs) in self.entries.iter().filter(|(facts, _)| is_needed(facts.id)) {
            joined.apply(spec, &facts.for_state_alone(), inputs.clone()).unwrap();
        }
        joined
    }
}

proptest! {
    #[test]
    fn every_pair_is_given_once_and_who_stays_alone_once(
        left in rows(60),
        right in rows(60),
        cuts in proptest::collection::vec((1..15_usize, 1..15_usize, 0..3_u8), 120),
        kind in 0..KINDS.len(),
    ) {
        let (kind, spec) = (KINDS[kind], spec(KINDS[kind]));
        let numbered = |rows: Vec<(i64, Option<i64>)>| -> Vec<Row> {
            let mut rows = rows;
            rows.sort_by_key(|(t, _)| t / 20);
            (0..).zip(rows).map(|(v, (t, k))| (v, t, k)).collect()
        };
        let (left, right) = (numbered(left), numbered(right));
        let mut joined = Joined::new(&spec).unwrap();
        let mut found = Vec::new();
        let (mut rest_left, mut rest_right) = (&left[..], &right[..]);
        let mut late_ms = -1;
        let mut log = StateLog::default();
        for (id, (of_left, of_right, restarts)) in (0_u64..).zip(cuts) {
            let (l, more) = rest_left.split_at(of_left.min(rest_left.len()));
            rest_left = more;
            let (r, more) = rest_right.split_at(of_right.min(rest_right.len()));
            rest_right = more;
            let evict_ms = watermark(&[rest_left, rest_right]).max(late_ms);
            let watermark = Watermark { late_ms: late_ms.min(watermark(&[l, r])), evict_ms };
            let facts = MicroBatchFacts::new(BatchId(id), watermark);
            let inputs = vec![input(&spec.sides[0], l), input(&spec.sides[1], r)];
            log.entries.push((facts, inputs.clone()));
            let outcome = joined.apply(&spec, &facts, inputs).unwrap();
            prop_assert_eq!(outcome.late, 0);
            found.extend(pairs(kind, &outcome));
            late_ms = evict_ms;
            let (known, needed) = (joined.rows(), joined.needs_from());
            if restarts == 1 {
                let ended = std::mem::replace(&mut joined, Joined::new(&spec).unwrap());
                let snapshot = ended.snapshot(&spec).unwrap();
                log = StateLog { snapshot: Some((BatchId(id), snapshot)), entries: Vec::new() };
            }
            if restarts > 0 {
                joined = log.replay(&spec, needed);
                prop_assert_eq!(joined.rows(), known);
            }
        }
        prop_assert_eq!(joined.rows(), 0, "all went by their time");
        found.sort_unstable();
        prop_assert_eq!(found, expected(kind, &left, &right));
    }
}

#[test]
fn a_row_needs_the_partner_that_was_evicted_before_it() {
    let spec = spec(JoinKind::Left);
    let mut joined = Joined::new(&spec).unwrap();
    let facts = |id: u64, evict_s: i64| {
        let watermark = Watermark { late_ms: 0, evict_ms: evict_s * 1_000 };
        MicroBatchFacts::new(BatchId(id), watermark)
    };
    let right = vec![Vec::new(), input(&spec.sides[1], &[(1, 12, Some(1))])];
    joined.apply(&spec, &facts(0, 0), right).unwrap();
    let left = vec![input(&spec.sides[0], &[(1, 10, Some(1))]), Vec::new()];
    let met = joined.apply(&spec, &facts(1, 0), left).unwrap();
    assert_eq!(pairs(JoinKind::Left, &met), [(Some(1), Some(1))]);
    joined.apply(&spec, &facts(2, 15), vec![Vec::new(), Vec::new()]).unwrap();
    assert_eq!((joined.rows(), joined.needs_from()), (1, Some(BatchId(0))));
    let then = joined.apply(&spec, &facts(3, 25), vec![Vec::new(), Vec::new()]).unwrap();
    assert_eq!((pairs(JoinKind::Left, &then), joined.needs_from()), (vec![], None));
}

#[test]
fn rows_are_by_key_until_the_watermark_has_passed_them() {
    let spec = spec(JoinKind::Left);
    let mut joined = Joined::new(&spec).unwrap();
    let facts = |late_s: i64, evict_s: i64| {
        MicroBatchFacts::new(
            BatchId(0),
            Watermark { late_ms: late_s * 1_000, evict_ms: evict_s * 1_000 },
        )
    };
    let inputs = vec![input(&spec.sides[0], &[(1, 20, Some(1)), (2, 5, Some(1))]), Vec::new()];
    let first = joined.apply(&spec, &facts(5, 29), inputs).unwrap();
    assert_eq!((first.late, joined.rows()), (1, 1));
    assert_eq!(joined.due_us(&spec), Some(30_000_000));
    let then = joined.apply(&spec, &facts(29, 30), vec![Vec::new(), Vec::new()]).unwrap();
    assert_eq!(pairs(JoinKind::Left, &then), [(Some(1), None)]);
    assert_eq!((joined.rows(), then.removed), (0, 1));
}
