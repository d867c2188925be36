//! A snapshot is made by a replica from what the state log has: a plan that begins with it must go
//! on as the plan does whose state it is.

use std::collections::HashMap;

use millstream_store::offset::BatchId;

use super::stateful::{Timed, timed_schema};
use super::*;
use crate::api::settings::OutputMode;
use crate::plan::{StatefulPlan, stages};
use crate::state::codec;
use crate::state::event_times::Time;
use crate::state::micro_batch::MicroBatchFacts;
use crate::state::sharded::ResourceLimits;
use crate::state::snapshot_builder::QueryReplica;
use crate::state::watermark::Watermark;

const DELAY_S: i64 = 2;
const MICRO_BATCHES: u64 = 40;

const JOINED: &str = "SELECT l.v AS v, l.ts AS ts FROM __stream_left AS l LEFT JOIN __stream_right \
                      AS r ON l.v = r.v + 1 AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '3' SECOND";

/// Queries whose output is one number, with their modes.
fn queries() -> Vec<(String, OutputMode)> {
    use OutputMode::{Append, Complete, Update};
    let plain = [
        ("SELECT sum(v) AS s FROM __stream_left GROUP BY ts", Append),
        ("SELECT sum(v) AS s FROM __stream_left GROUP BY ts", Update),
        ("SELECT sum(v) AS s FROM __stream_left GROUP BY v % 7", Update),
        ("SELECT max(v) * count(v) AS s FROM __stream_left GROUP BY v % 50", Complete),
        ("SELECT sum(v) AS s FROM __stream_left GROUP BY ts", Complete),
        ("SELECT count(v) AS s FROM __stream_left", Update),
        ("SELECT DISTINCT v / 3 AS s FROM __stream_left", Append),
        ("SELECT s FROM (SELECT DISTINCT v AS s, ts FROM __stream_left)", Append),
        (
            "SELECT s FROM (SELECT DISTINCT ON ('__within_watermark', v % 25) v AS s, ts \
             FROM __stream_left)",
            Append,
        ),
        (
            "SELECT sum(s) AS s FROM (SELECT ts, sum(v) AS s FROM __stream_left GROUP BY ts, v % 3) \
             GROUP BY ts",
            Append,
        ),
    ];
    let plain = plain.map(|(sql, mode)| (sql.to_owned(), mode));
    let joined = [
        format!("SELECT v AS s FROM ({JOINED})"),
        format!("SELECT sum(v) AS s FROM ({JOINED}) GROUP BY ts"),
    ];
    plain.into_iter().chain(joined.map(|sql| (sql, Append))).collect()
}

pub(super) async fn plan(sql: &str, mode: OutputMode, memory_bytes: Option<u64>) -> StatefulPlan {
    let context = SessionContext::new_with_config(streaming_config());
    let (mut scans, mut watermarks) = (Vec::new(), HashMap::new());
    for name in ["left", "right"] {
        let slots = Slots::new(2);
        slots.watch_event_time(Time::Column(1));
        let table = StreamTable::new(name.to_owned(), timed_schema(), Arc::clone(&slots));
        let name = format!("__stream_{name}");
        context.register_table(&name, Arc::new(table)).unwrap();
        let delay_us = DELAY_S * 1_000_000;
        watermarks.insert(name, stages::Watermarked { column: "ts".to_owned(), delay_us });
        scans.push(slots);
    }
    let state = context.state();
    let logical = state.create_logical_plan(sql).await.unwrap();
    let logical =
        state.analyzer().execute_and_check(logical, state.config_options(), |_, _| {}).unwrap();
    let (partitions, stream_prefix) = (2, "__stream_");
    let context = stages::Context { stream_prefix, watermarks: &watermarks, mode, partitions };
    let cut = stages::cut(logical, &context).unwrap();
    let limits = ResourceLimits { cores: partitions, memory_bytes };
    StatefulPlan::new(&Arc::new(state), cut, &scans, mode, limits).await.unwrap()
}

/// By micro-batch, the values of each source: some in order, some older, some late.
fn values() -> Vec<[Vec<i64>; 2]> {
    let mut random = 7_u64;
    let mut value = |id: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let back = i64::try_from((random >> 33) % 45).unwrap();
        i64::try_from(id).unwrap() * 6 + 50 - back
    };
    let mut of = |id, side| (0..id % 9 + side).map(|_| value(id)).collect();
    (0..MICRO_BATCHES).map(|id| [of(id, 0), of(id, 1)]).collect()
}

/// By micro-batch, its watermarks.
fn watermarks(values: &[[Vec<i64>; 2]]) -> Vec<Watermark> {
    let (mut newest_s, mut late_ms) = (0, 0);
    let next = |values: &[Vec<i64>; 2]| {
        let watermark = Watermark { evict_ms: (newest_s - DELAY_S).max(0) * 1_000, late_ms };
        late_ms = watermark.evict_ms;
        newest_s = values.iter().flatten().map(|v| v / 10).chain([newest_s]).max().unwrap();
        watermark
    };
    values.iter().map(next).collect()
}

/// Runs one micro-batch; gives its output and its sections of the state log.
pub(super) async fn run(
    plan: &mut StatefulPlan,
    facts: &MicroBatchFacts,
    values: &[Vec<i64>; 2],
) -> (Vec<Option<i64>>, Vec<Vec<u8>>) {
    let splits = values.iter().map(|values| {
        if values.is_empty() {
            Vec::new()
        } else {
            vec![Box::new(Timed(values.clone())) as Box<dyn Split>]
        }
    });
    let ran = plan.run(&Env::real(), facts, splits.collect()).await.unwrap();
    let rows = ran.partitions.iter().flatten();
    let numbers = rows.flat_map(|rows| rows.column(0).as_primitive::<Int64Type>().iter());
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    let schemas = plan.section_schemas();
    let changes = ran.changes.iter().flatten();
    let sections = schemas.iter().zip(changes).map(|(schema, rows)| codec::encode(schema, rows));
    (numbers, sections.collect::<Result<_, _>>().unwrap())
}

fn pieces(mut snapshot_builder: QueryReplica) -> Vec<Vec<Vec<u8>>> {
    std::iter::from_fn(|| snapshot_builder.next_piece().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_goes_on_from_a_snapshot_as_without_one() {
    let values = values();
    let facts = watermarks(&values).into_iter().zip(0..);
    let facts: Vec<_> = facts.map(|(of, id)| MicroBatchFacts::new(BatchId(id), of)).collect();
    for (sql, mode) in queries() {
        let mut with_any_memory = None;
        for memory_bytes in [None, Some(1), Some(20_000)] {
            let mut all = plan(&sql, mode, memory_bytes).await;
            let (mut expected, mut entries) = (Vec::new(), Vec::new());
            for (facts, values) in facts.iter().zip(&values) {
                let (output, sections) = run(&mut all, facts, values).await;
                expected.push(output);
                entries.push(sections);
            }
            assert!(expected.iter().flatten().count() > 5, "{sql}");
            let known = with_any_memory.get_or_insert_with(|| expected.clone());
            for (id, (own, known)) in expected.iter().zip(known).enumerate() {
                assert_eq!(own, known, "{id}, {mode:?} of {sql} with {memory_bytes:?}");
            }
            // One snapshot from the beginning, and one that builds on it.
            let (mut begun, mut before) = (0, Vec::<Vec<Vec<u8>>>::new());
            for end in [9, 18, 27, 33] {
                let mut snapshot_builder = QueryReplica::new(all.snapshot_builder().unwrap());
                for piece in &before {
                    let facts_of_snapshot = MicroBatchFacts::from_snapshot(facts[begun].id);
                    snapshot_builder.apply(&facts_of_snapshot, piece).unwrap();
                }
                for (facts, sections) in facts[begun..end].iter().zip(&entries[begun..]) {
                    snapshot_builder.apply(facts, sections).unwrap();
                }
                (begun, before) = (end, pieces(snapshot_builder));
                let mut other = plan(&sql, mode, memory_bytes).await;
                for piece in &before {
                    let facts_of_snapshot = MicroBatchFacts::from_snapshot(facts[end - 1].id);
                    let changes = other.changes(piece).unwrap();
                    other.apply(&Env::real(), &facts_of_snapshot, changes, false).await.unwrap();
                }
                for at in end..facts.len() {
                    let (output, _) = run(&mut other, &facts[at], &values[at]).await;
                    assert_eq!(
                        output, expected[at],
                        "{at} after {end}, {mode:?} of {sql}, {memory_bytes:?}"
                    );
                }
            }
        }
    }
}
