//! Functions of user analytics beside the same questions in plain SQL, over random events of some
//! thousand users, in random order, in several partitions.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::datasource::MemTable;

use crate::slt::Engine;

const USERS: i64 = 1_500;
const PARTITIONS: usize = 5;
const MINUTE_US: i64 = 60_000_000;

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % end
    }
}

/// A row: the user, the time, what was done, and from where.
type Row = (i64, Option<i64>, Option<&'static str>, Option<&'static str>);

/// Up to 24 events of each user within four hours, to the minute, so that many times are equal. The
/// same for a seed, but for their order.
fn events(seed: u64, order: u64) -> MemTable {
    let (mut random, mut rows) = (Random(seed), Vec::<Row>::new());
    for user in 0..USERS {
        for _ in 0..1 + random.below(24) {
            let time = (random.below(40) > 0).then(|| random.below(240) as i64 * MINUTE_US);
            let event = [Some("view"), Some("cart"), Some("buy"), Some("other"), None];
            let channel = [Some("ads"), Some("mail"), None];
            let (event, channel) =
                (event[random.below(5) as usize], channel[random.below(3) as usize]);
            rows.push((user, time, event, channel));
        }
    }
    let mut random = Random(order);
    for at in (1..rows.len()).rev() {
        rows.swap(at, random.below(at as u64 + 1) as usize);
    }
    let parts: Vec<RecordBatch> =
        rows.chunks(rows.len().div_ceil(PARTITIONS)).map(record_batch).collect();
    let cut = |rows: &RecordBatch| -> Vec<RecordBatch> {
        let starts = (0..rows.num_rows()).step_by(1_000);
        starts.map(|start| rows.slice(start, 1_000.min(rows.num_rows() - start))).collect()
    };
    let schema = parts[0].schema();
    MemTable::try_new(schema, parts.iter().map(cut).collect()).expect("rows of the schema")
}

fn record_batch(rows: &[Row]) -> RecordBatch {
    let times = TimestampMicrosecondArray::from_iter(rows.iter().map(|row| row.1));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("user_id", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)))),
        ("at", Arc::new(times.with_timezone("UTC"))),
        ("event", Arc::new(StringArray::from_iter(rows.iter().map(|row| row.2)))),
        ("channel", Arc::new(StringArray::from_iter(rows.iter().map(|row| row.3)))),
    ];
    let nullable = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(nullable).expect("columns of one length")
}

/// Each function beside the same in plain SQL, as queries of `user_id` and an answer.
const PAIRS: &[(&str, &str, &str)] = &[
    (
        "a funnel",
        "SELECT user_id, window_funnel(INTERVAL '1' HOUR, at, event = 'view', event = 'cart', \
         event = 'buy') AS answer FROM events GROUP BY user_id",
        "SELECT user_id, aggregate(array_sort(events), \
         named_struct('view', CAST(NULL AS TIMESTAMP), 'cart', CAST(NULL AS TIMESTAMP), 'reached', 0), \
         (acc, e) -> CASE \
           WHEN e.step = 1 THEN named_struct('view', e.at, 'cart', acc.cart, \
             'reached', greatest(acc.reached, 1)) \
           WHEN e.step = 2 AND e.at <= acc.view + INTERVAL '1' HOUR THEN named_struct( \
             'view', acc.view, 'cart', acc.view, 'reached', greatest(acc.reached, 2)) \
           WHEN e.step = 3 AND e.at <= acc.cart + INTERVAL '1' HOUR THEN named_struct( \
             'view', acc.view, 'cart', acc.cart, 'reached', 3) \
           ELSE acc END, \
         acc -> acc.reached) AS answer \
         FROM (SELECT user_id, collect_list(struct(at, step)) FILTER (WHERE at IS NOT NULL AND \
         step IS NOT NULL) AS events FROM (SELECT user_id, at, CASE event WHEN 'view' THEN 1 \
         WHEN 'cart' THEN 2 WHEN 'buy' THEN 3 END AS step FROM events) GROUP BY user_id)",
    ),
    (
        "retention",
        "SELECT user_id, retention(at < TIMESTAMP'1970-01-01 01:00:00', event = 'buy', \
         channel = 'mail') AS answer FROM events GROUP BY user_id",
        "SELECT user_id, transform(array(true, bought, mailed), r -> r AND early) AS answer FROM \
         (SELECT user_id, coalesce(bool_or(at < TIMESTAMP'1970-01-01 01:00:00'), false) AS early, \
         coalesce(bool_or(event = 'buy'), false) AS bought, \
         coalesce(bool_or(channel = 'mail'), false) AS mailed FROM events GROUP BY user_id)",
    ),
    (
        "a sequence",
        "SELECT user_id, sequence_count('(?1).*(?2)', at, event = 'view', event = 'buy') AS answer \
         FROM events GROUP BY user_id",
        "SELECT user_id, aggregate(array_sort(events), named_struct('seen', false, 'n', 0L), \
         (acc, e) -> CASE WHEN e.step = 1 THEN named_struct('seen', true, 'n', acc.n) \
         WHEN acc.seen THEN named_struct('seen', false, 'n', acc.n + 1L) ELSE acc END, \
         acc -> acc.n) AS answer \
         FROM (SELECT user_id, collect_list(struct(at, step)) FILTER (WHERE at IS NOT NULL AND \
         step IS NOT NULL) AS events FROM (SELECT user_id, at, CASE event WHEN 'view' THEN 1 \
         WHEN 'buy' THEN 2 END AS step FROM events) GROUP BY user_id)",
    ),
    (
        "a sequence with times",
        "SELECT user_id, sequence_match('(?1)(?t<=600)(?2)', at, event = 'view', event = 'buy') \
         AS answer FROM events GROUP BY user_id",
        "SELECT user_id, aggregate(array_sort(events), \
         named_struct('last', CAST(NULL AS TIMESTAMP), 'found', false), \
         (acc, e) -> CASE WHEN e.step = 1 THEN named_struct('last', e.at, 'found', acc.found) \
         ELSE named_struct('last', acc.last, 'found', acc.found OR \
         coalesce(e.at <= acc.last + INTERVAL '10' MINUTE, false)) END, \
         acc -> acc.found) AS answer \
         FROM (SELECT user_id, collect_list(struct(at, step)) FILTER (WHERE at IS NOT NULL AND \
         step IS NOT NULL) AS events FROM (SELECT user_id, at, CASE event WHEN 'view' THEN 1 \
         WHEN 'buy' THEN 2 END AS step FROM events) GROUP BY user_id)",
    ),
    (
        "sessions",
        "SELECT user_id, s.start AS start, s.end AS end, s.events AS answer FROM \
         (SELECT user_id, explode(sessions(at, INTERVAL '15' MINUTES)) AS s FROM events \
         GROUP BY user_id)",
        "SELECT user_id, session_window(at, '15 minutes').start AS start, \
         session_window(at, '15 minutes').end AS end, count(*) AS answer FROM events \
         WHERE at IS NOT NULL GROUP BY user_id, session_window(at, '15 minutes')",
    ),
    (
        "the first touch",
        "SELECT user_id, first_touch(channel, at, event = 'buy', INTERVAL '1' HOUR) AS answer \
         FROM events GROUP BY user_id",
        "SELECT user_id, min_by(channel, struct(at, channel)) FILTER (WHERE channel IS NOT NULL \
         AND at <= bought AND at >= bought - INTERVAL '1' HOUR) AS answer FROM \
         (SELECT *, min(CASE WHEN event = 'buy' THEN at END) OVER (PARTITION BY user_id) AS bought \
         FROM events) GROUP BY user_id",
    ),
    (
        "the last touch",
        "SELECT user_id, last_touch(channel, at, event = 'buy', INTERVAL '1' HOUR) AS answer \
         FROM events GROUP BY user_id",
        "SELECT user_id, max_by(channel, struct(at, channel)) FILTER (WHERE channel IS NOT NULL \
         AND at <= bought AND at >= bought - INTERVAL '1' HOUR) AS answer FROM \
         (SELECT *, min(CASE WHEN event = 'buy' THEN at END) OVER (PARTITION BY user_id) AS bought \
         FROM events) GROUP BY user_id",
    ),
];

/// The rows of a query over `table`, in order.
async fn answer(table: MemTable, sql: &str, partitions: usize) -> Vec<Vec<String>> {
    let mut engine = Engine::with_partitions(512, partitions);
    engine.add("events", table).expect("it is the first table");
    let rows = engine.rows(sql).await;
    let mut rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.sort();
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_and_plain_sql_give_the_same_answers() {
    for (what, by_function, plain) in PAIRS {
        let mut all = 0;
        for seed in 0..2 {
            let expected = answer(events(seed, seed), plain, 4).await;
            for (order, partitions) in [(seed + 10, 4), (seed + 20, 1)] {
                let found = answer(events(seed, order), by_function, partitions).await;
                for (found, expected) in found.iter().zip(&expected) {
                    assert_eq!(found, expected, "{what}, in {partitions} partitions");
                }
                assert_eq!(found.len(), expected.len(), "{what}");
            }
            let answers: std::collections::BTreeSet<_> =
                expected.iter().filter_map(|row| row.last()).collect();
            all += answers.len();
        }
        assert!(all > 2, "{what}: all answers are the same");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modes_and_patterns_do_not_depend_on_the_order_of_rows() {
    let calls = [
        "window_funnel('1 hour', 'strict_order', at, event = 'view', event = 'cart', channel = 'ads')",
        "window_funnel('1 hour', 'strict_increase, strict_deduplication', at, channel = 'ads', \
         event = 'cart', event IS NULL)",
        "sequence_count('(?1).(?t>=60)(?2).*(?t<3600)(?3)', at, event = 'view', channel = 'ads', \
         event IS NULL)",
    ];
    for call in calls {
        let sql = format!("SELECT user_id, {call} AS answer FROM events GROUP BY user_id");
        let expected = answer(events(7, 1), &sql, 1).await;
        for (order, partitions) in [(2, 4), (3, 3), (4, 1)] {
            assert_eq!(answer(events(7, order), &sql, partitions).await, expected, "{call}");
        }
    }
}
