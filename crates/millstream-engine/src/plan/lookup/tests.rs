//! Look-ups beside the same joins with a static table, over a table that tells what it was asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use datafusion::datasource::MemTable;
use futures::future::BoxFuture;
use millstream_sql::functions::BatchClock;
use millstream_sql::session::session;
use millstream_store::env::{Clock, Env, SeededRng};
use parking_lot::Mutex;
use thiserror::Error;

use super::table::PlannedLookup;
use super::*;
use crate::api::lookup::{CacheLimits, LookedUp, LookupForm, LookupTable};
use crate::api::source::{Classified, Failure, Kind, Split};
use crate::plan::QueryPlan;
use crate::plan::session::streaming_config;
use crate::plan::stateful_plan::InMemory;
use crate::plan::stream_scan::{Slots, StreamTable};

/// Rows of a table `b`, and what was asked for.
struct Fake {
    rows: Mutex<RecordBatch>,
    /// By call, the keys.
    calls: Mutex<Vec<Vec<i64>>>,
    keys_max: usize,
    is_away: bool,
}

#[derive(Debug, Error)]
#[error("the table's server is away")]
struct Away;

impl Classified for Away {
    fn kind(&self) -> Kind {
        Kind::Retry
    }
}

#[async_trait]
impl LookupTable for Fake {
    fn keys_max(&self) -> usize {
        self.keys_max
    }

    async fn look_up(&self, keys: &[ArrayRef], columns: &[usize]) -> Result<LookedUp, Failure> {
        if self.is_away {
            return Err(Away.into());
        }
        let keys = keys[0].as_primitive::<Int64Type>();
        self.calls.lock().push(keys.values().to_vec());
        let rows = self.rows.lock();
        let ids = rows.column(0).as_primitive::<Int64Type>();
        let place = |key: &i64| ids.values().iter().position(|id| id == key).map(|at| at as u64);
        let places: Vec<Option<u64>> = keys.values().iter().map(place).collect();
        let found = places.iter().map(Option::is_some).collect();
        let places = arrow::array::UInt64Array::from(places);
        let projected = rows.project(columns).unwrap();
        Ok(LookedUp { rows: take_record_batch(&projected, &places).unwrap(), found })
    }
}

fn table_rows() -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("region", DataType::Utf8, true),
        Field::new("floor", DataType::Int32, true),
        Field::new("parent", DataType::Int64, true),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1, 2, 3, 4, 9])),
        Arc::new(StringArray::from(vec![Some("x"), Some("y"), None, Some("x"), Some("z")])),
        Arc::new(Int32Array::from(vec![Some(1), Some(2), Some(3), None, Some(9)])),
        Arc::new(Int64Array::from(vec![Some(2), Some(9), None, Some(77), Some(1)])),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn stream_rows() -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("i", DataType::Int32, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("v", DataType::Int64, false),
    ]);
    let k = vec![Some(1), Some(2), None, Some(3), Some(5), Some(2), Some(1), Some(4), Some(9)];
    let i = vec![Some(1), None, Some(3), Some(3), Some(6), Some(2), Some(1), Some(4), Some(1)];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(k)),
        Arc::new(Int32Array::from(i)),
        Arc::new(StringArray::from(vec!["x", "x", "z", "z", "x", "y", "y", "x", "9"])),
        Arc::new(Int64Array::from_iter_values(0..9)),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn fake(keys_max: usize) -> Arc<Fake> {
    let (rows, calls) = (Mutex::new(table_rows()), Mutex::default());
    Arc::new(Fake { rows, calls, keys_max, is_away: false })
}

/// `query` over the stream `e`, the look-up table `b` and the static tables `st` and `sb`, which
/// have the same rows.
async fn plan(
    query: &str,
    table: &Arc<Fake>,
    cache: Option<CacheLimits>,
    env: &Env,
) -> datafusion::common::Result<QueryPlan> {
    let context = session(streaming_config(), &BatchClock::default());
    let slots = Slots::new(2);
    let stream = StreamTable::new("e".to_owned(), stream_rows().schema(), Arc::clone(&slots));
    context.register_table("e", Arc::new(stream)).unwrap();
    let form = LookupForm { schema: table_rows().schema(), key: vec![0], cache };
    let planned = PlannedLookup::new("b".to_owned(), form);
    planned.open(Arc::clone(table) as Arc<dyn LookupTable>, env);
    context.register_table("b", planned).unwrap();
    for name in ["st", "sb"] {
        let rows = MemTable::try_new(table_rows().schema(), vec![vec![table_rows()]]).unwrap();
        context.register_table(name, Arc::new(rows)).unwrap();
    }
    let (state, logical) = context.sql(query).await?.into_parts();
    QueryPlan::new(state, logical, vec![slots]).await
}

fn splits(rows: &[RecordBatch]) -> Vec<Vec<Box<dyn Split>>> {
    let split = |rows: &RecordBatch| -> Box<dyn Split> {
        Box::new(InMemory(vec![rows.clone()], Arc::default()))
    };
    vec![rows.iter().map(split).collect()]
}

/// The rows of a micro-batch of `input`, as text, in order.
async fn run(plan: &mut QueryPlan, env: &Env, input: &[RecordBatch]) -> Vec<String> {
    let partitions = plan.run(env, splits(input)).await.unwrap();
    let mut lines = Vec::new();
    for rows in partitions.iter().flatten() {
        let options = FormatOptions::default().with_null("NULL");
        let columns: Vec<ArrayFormatter<'_>> = rows
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..rows.num_rows() {
            let values: Vec<String> =
                columns.iter().map(|column| column.value(row).to_string()).collect();
            lines.push(values.join("|"));
        }
    }
    lines
}

#[tokio::test]
async fn the_rows_are_those_of_a_static_join() {
    let env = Env::real();
    for query in [
        "SELECT e.v, b.region, b.id FROM e JOIN b ON e.k = b.id",
        "SELECT e.v, b.region, b.id FROM e LEFT JOIN b ON e.k = b.id",
        "SELECT * FROM e LEFT JOIN b ON e.k = b.id",
        "SELECT * FROM b JOIN e ON e.k = b.id",
        "SELECT * FROM b RIGHT JOIN e ON b.id = e.k",
        "SELECT e.v FROM e JOIN b ON e.k = b.id",
        "SELECT count(*) AS n FROM e JOIN b ON e.k = b.id",
        "SELECT e.v, b.floor FROM e JOIN b ON e.i = b.id",
        "SELECT e.v, b.floor FROM e LEFT JOIN b ON e.k + 1 = b.id",
        "SELECT e.v, b.* FROM e LEFT JOIN b ON e.k = b.id AND b.floor > 1",
        "SELECT e.v, b.* FROM e LEFT JOIN b ON e.k = b.id AND e.v > 3",
        "SELECT e.v, b.* FROM e LEFT JOIN b ON e.k = b.id AND b.floor > e.v",
        "SELECT e.v, b.* FROM e JOIN b ON e.k = b.id AND b.region = e.s",
        "SELECT e.v, b.* FROM e LEFT JOIN b ON e.k = b.id WHERE b.region = 'x'",
        "SELECT e.v FROM e LEFT JOIN b ON e.k = b.id WHERE b.id IS NULL",
        "SELECT e.v, b.region FROM e LEFT JOIN b ON e.k = b.id WHERE e.k = 2",
        "SELECT e.v, b.region FROM e LEFT JOIN b ON e.k = b.id AND b.id = 2",
        "SELECT e.v, x.r FROM e LEFT JOIN (SELECT id AS key, upper(region) AS r, 'c' AS c \
         FROM b WHERE floor > 1) AS x ON e.k = x.key",
        "SELECT e.v, x.c FROM e LEFT JOIN (SELECT id, 'c' AS c FROM b) AS x ON e.k = x.id",
        "SELECT e.v, coalesce(b.region, 'none') AS r FROM e LEFT JOIN b ON e.k = b.id",
        "SELECT e.v, m.region AS m, p.region AS p FROM e JOIN b AS m ON e.k = m.id \
         LEFT JOIN b AS p ON m.parent = p.id",
        "SELECT e.v, m.floor AS m, p.floor AS p FROM e LEFT JOIN b AS m ON e.k = m.id \
         LEFT JOIN b AS p ON e.i = p.id",
        "SELECT e.v, b.region, st.region AS r FROM e JOIN st ON e.k = st.id \
         JOIN b ON st.parent = b.id",
        "SELECT e.v, b.region, st.region AS r FROM e JOIN b ON e.k = b.id \
         LEFT JOIN st ON b.parent = st.id",
        "SELECT e.v FROM e WHERE e.k IN (SELECT id FROM b WHERE floor > 1)",
        "SELECT e.v FROM e WHERE EXISTS (SELECT 1 FROM b WHERE b.id = e.k)",
        "SELECT e.v FROM e WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = e.k)",
        "SELECT e.v, b.region FROM e JOIN b ON e.k = b.id \
         UNION ALL SELECT e.v, b.region FROM e JOIN b ON e.i = b.id WHERE e.v < 0",
        "SELECT e.v, b.region FROM e JOIN b ON e.k = b.id AND 10 / b.floor > 3 AND b.floor > 0",
    ] {
        let table = fake(2);
        let mut looked_up = plan(query, &table, None, &env).await.unwrap();
        let of_static =
            query.replace(" b ", " sb ").replace("FROM b)", "FROM sb)").replace("b.", "sb.");
        let mut of_static = plan(&of_static, &table, None, &env).await.unwrap();
        for input in [vec![stream_rows()], vec![stream_rows().slice(0, 4), stream_rows()]] {
            let mut found = run(&mut looked_up, &env, &input).await;
            let mut expected = run(&mut of_static, &env, &input).await;
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{query}\n{}", looked_up.explain().1);
        }
        assert!(!table.calls.lock().is_empty(), "{query}");
    }
}

#[tokio::test]
async fn each_key_is_asked_for_once_and_null_never() {
    let env = Env::real();
    let table = fake(3);
    let query = "SELECT e.v, b.region FROM e LEFT JOIN b ON e.k = b.id";
    let mut plan = plan(query, &table, None, &env).await.unwrap();
    let found = run(&mut plan, &env, &[stream_rows().slice(0, 4), stream_rows().slice(4, 5)]).await;
    let expected = ["0|x", "1|y", "2|NULL", "3|NULL", "4|NULL", "5|y", "6|x", "7|x", "8|z"];
    assert_eq!(found, expected, "in the order of the stream");
    assert_eq!(*table.calls.lock(), [vec![1, 2, 3], vec![5, 4, 9]]);
    table.calls.lock().clear();
    run(&mut plan, &env, &[]).await;
    run(&mut plan, &env, &[stream_rows().slice(2, 1)]).await;
    assert!(table.calls.lock().is_empty(), "there was nothing to ask for");
}

#[tokio::test]
async fn a_row_that_changes_is_seen_in_the_next_micro_batch() {
    let env = Env::real();
    let table = fake(10);
    let query = "SELECT b.region FROM e JOIN b ON e.k = b.id";
    let mut plan = plan(query, &table, None, &env).await.unwrap();
    let one = [stream_rows().slice(1, 1)];
    assert_eq!(run(&mut plan, &env, &one).await, ["y"]);
    *table.rows.lock() = {
        let rows = table_rows();
        let mut columns = rows.columns().to_vec();
        columns[1] = Arc::new(StringArray::from(vec!["1", "2", "3", "4", "5"]));
        RecordBatch::try_new(rows.schema(), columns).unwrap()
    };
    assert_eq!(run(&mut plan, &env, &one).await, ["2"]);
}

#[derive(Default)]
struct Moved(AtomicU64);

impl Clock for Moved {
    fn now_us(&self) -> i64 {
        0
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn the_cache_answers_until_rows_expire() {
    let clock = Arc::new(Moved::default());
    let env = Env::new(Arc::clone(&clock) as Arc<dyn Clock>, Arc::new(SeededRng::new(1)));
    let table = fake(10);
    let limits = CacheLimits {
        rows_max: 100,
        bytes_max: 1 << 20,
        expire_after_write: Duration::from_secs(10),
        keeps_missing_keys: true,
    };
    let query = "SELECT e.v, b.region, b.floor FROM e LEFT JOIN b ON e.k = b.id";
    let mut plan = plan(query, &table, Some(limits), &env).await.unwrap();
    let expected = run(&mut plan, &env, &[stream_rows().slice(0, 5)]).await;
    assert_eq!(expected, ["0|x|1", "1|y|2", "2|NULL|NULL", "3|NULL|3", "4|NULL|NULL"]);
    assert_eq!(table.calls.lock().drain(..).collect::<Vec<_>>(), [vec![1, 2, 3, 5]]);
    clock.0.store(9, Ordering::Relaxed);
    assert_eq!(run(&mut plan, &env, &[stream_rows().slice(0, 5)]).await, expected);
    assert!(table.calls.lock().is_empty());
    // The plan is made anew, as after a change of a static table: the cache stays.
    plan.replan().await.unwrap();
    run(&mut plan, &env, &[stream_rows().slice(0, 9)]).await;
    assert_eq!(table.calls.lock().drain(..).collect::<Vec<_>>(), [vec![4, 9]]);
    clock.0.store(10, Ordering::Relaxed);
    assert_eq!(run(&mut plan, &env, &[stream_rows().slice(0, 5)]).await, expected);
    assert_eq!(*table.calls.lock(), [vec![1, 2, 3, 5]]);
}

#[tokio::test]
async fn a_table_that_is_away_fails_the_micro_batch_with_its_own_failure() {
    let env = Env::real();
    let table = Arc::new(Fake { is_away: true, ..Arc::into_inner(fake(10)).unwrap() });
    let query = "SELECT e.v, b.region FROM e JOIN b ON e.k = b.id";
    let mut plan = plan(query, &table, None, &env).await.unwrap();
    let failure = plan.run(&env, splits(&[stream_rows()])).await.unwrap_err();
    assert_eq!((failure.kind(), failure.to_string()), (Kind::Retry, Away.to_string()));
}

#[tokio::test]
async fn other_uses_are_refused_with_a_remedy() {
    let env = Env::real();
    for (query, why) in [
        ("SELECT e.v FROM e JOIN b ON e.v > b.id", "no equality on all of it"),
        ("SELECT e.v FROM e JOIN b ON e.s = b.region", "no equality on all of it"),
        ("SELECT e.v FROM e CROSS JOIN b", "no equality on all of it"),
        ("SELECT e.v FROM e JOIN b ON e.k = b.id + 1", "no equality on all of it"),
        ("SELECT e.v, b.id FROM e FULL JOIN b ON e.k = b.id", "needs all rows"),
        ("SELECT e.v, b.id FROM e RIGHT JOIN b ON e.k = b.id", "needs all rows"),
        ("SELECT e.v FROM e WHERE e.k NOT IN (SELECT id FROM b)", "needs all rows"),
        ("SELECT e.v FROM e WHERE e.v > (SELECT max(floor) FROM b)", "in another way"),
        ("SELECT e.v FROM e JOIN (SELECT DISTINCT id FROM b) x ON e.k = x.id", "in another way"),
        ("SELECT e.v FROM e UNION ALL SELECT id FROM b", "in another way"),
        (
            "SELECT e.v FROM e JOIN (SELECT st.id FROM st JOIN b ON st.parent = b.id) x \
             ON e.k = x.id",
            "reads no stream",
        ),
        (
            "SELECT e.v FROM e JOIN b ON CAST(e.v AS DECIMAL(10, 2)) = b.id",
            "no equality on all of it",
        ),
    ] {
        let refused = plan(query, &fake(10), None, &env).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{query} was planned"));
        let Some(refused) = LookupRefused::of(&refused) else { panic!("{query}: {refused}") };
        assert!(refused.problem.contains(why), "{query}: {refused}");
        assert!(refused.help.contains("[LEFT] JOIN b ON s.id = b.id"), "{query}");
    }
}

#[tokio::test]
async fn a_cast_of_the_key_that_changes_its_meaning_is_refused() {
    let env = Env::real();
    for query in [
        "SELECT e.v FROM e JOIN b ON CAST(e.v AS DOUBLE) = b.id",
        "SELECT e.v FROM e JOIN b ON e.s = CAST(b.id AS STRING)",
    ] {
        let refused = plan(query, &fake(10), None, &env).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{query} was planned"));
        let Some(refused) = LookupRefused::of(&refused) else { panic!("{query}: {refused}") };
        assert!(refused.problem.contains("'id' of 'b' is BIGINT"), "{query}: {refused}");
        assert!(refused.help.contains("CAST(... AS BIGINT) = id"), "{query}");
    }
}

#[tokio::test]
async fn a_number_that_the_key_cannot_be_equals_no_key() {
    let env = Env::real();
    let context = session(streaming_config(), &BatchClock::default());
    let slots = Slots::new(1);
    let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
    let stream = StreamTable::new("e".to_owned(), Arc::clone(&schema), Arc::clone(&slots));
    context.register_table("e", Arc::new(stream)).unwrap();
    let narrow = Schema::new(vec![Field::new("id", DataType::Int32, false)]);
    let form = LookupForm { schema: Arc::new(narrow), key: vec![0], cache: None };
    let planned = PlannedLookup::new("n".to_owned(), form);
    planned.open(Arc::new(Echo), &env);
    context.register_table("n", planned).unwrap();
    let query = "SELECT e.v, n.id FROM e LEFT JOIN n ON e.v = n.id";
    let (state, logical) = context.sql(query).await.unwrap().into_parts();
    let mut plan = QueryPlan::new(state, logical, vec![slots]).await.unwrap();
    let values: ArrayRef = Arc::new(Int64Array::from(vec![7, i64::from(i32::MAX) + 8]));
    let rows = RecordBatch::try_new(schema, vec![values]).unwrap();
    assert_eq!(run(&mut plan, &env, &[rows]).await, ["7|7", "2147483655|NULL"]);
}

/// A table that has a row for every key.
struct Echo;

#[async_trait]
impl LookupTable for Echo {
    fn keys_max(&self) -> usize {
        10
    }

    async fn look_up(&self, keys: &[ArrayRef], _: &[usize]) -> Result<LookedUp, Failure> {
        let schema = Schema::new(vec![Field::new("id", keys[0].data_type().clone(), true)]);
        let rows = RecordBatch::try_new(Arc::new(schema), keys.to_vec()).unwrap();
        Ok(LookedUp { found: std::iter::repeat_n(true, rows.num_rows()).collect(), rows })
    }
}
