//! Queries with state against the same source and sink: groups by event time, closed by the
//! watermark. Row `v` has the time `v / 10` in seconds, so ten rows make a group.

use std::collections::HashMap;

use arrow::array::TimestampMicrosecondArray;
use arrow::datatypes::TimeUnit;
use datafusion::execution::SessionState;

use super::*;
use crate::api::settings::{OutputMode, SnapshotSettings};
use crate::driver::branch::Branch;
use crate::plan::{StatefulPlan, StreamPlan, stages};
use crate::state::event_times::Time;
use crate::state::sharded::ResourceLimits;

pub(super) fn timed_schema() -> SchemaRef {
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    let fields = vec![Field::new("v", DataType::Int64, false), Field::new("ts", timestamp, true)];
    Arc::new(Schema::new(fields))
}

pub(super) struct Timed(pub(super) Vec<i64>);

impl Split for Timed {
    fn rows(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let times = self.0.iter().map(|v| v.div_euclid(10) * 1_000_000);
        let times = TimestampMicrosecondArray::from_iter_values(times);
        let values = Int64Array::from(self.0);
        let rows = RecordBatch::try_new(timed_schema(), vec![Arc::new(values), Arc::new(times)]);
        Box::new(std::iter::once(Ok(rows.unwrap().project(projection).unwrap())))
    }
}

/// A scene with a query over `input(v, ts)`.
struct Stateful {
    scene: Scene,
    sql: &'static str,
    mode: OutputMode,
    delay_s: u64,
    idling: Idling,
    memory_bytes: Option<u64>,
    snapshots: SnapshotSettings,
    /// Where all rows go as they are, by a plan without state.
    beside: Option<Arc<Outside>>,
}

const SUMS: &str = "SELECT sum(v) AS s FROM __stream_input GROUP BY ts";

impl Stateful {
    fn new(rows: impl IntoIterator<Item = i64>, outside: Outside) -> Self {
        let scene = Scene::new(rows, outside);
        let (mode, idling) = (OutputMode::Append, Idling::default());
        let snapshots = SnapshotSettings::default();
        let (sql, delay_s, memory_bytes, beside) = (SUMS, 0, None, None);
        Self { scene, sql, mode, delay_s, idling, memory_bytes, snapshots, beside }
    }

    async fn plan(&self) -> StreamPlan {
        let (slots, state) = timed_input();
        let logical = state.create_logical_plan(self.sql).await.unwrap();
        let logical =
            state.analyzer().execute_and_check(logical, state.config_options(), |_, _| {}).unwrap();
        let watermark = stages::Watermarked {
            column: "ts".to_owned(),
            delay_us: i64::try_from(self.delay_s).unwrap() * 1_000_000,
        };
        let watermarks = HashMap::from([("__stream_input".to_owned(), watermark)]);
        let (mode, partitions, stream_prefix) = (self.mode, 2, "__stream_");
        let context = stages::Context { stream_prefix, watermarks: &watermarks, mode, partitions };
        let cut = stages::cut(logical, &context).unwrap();
        let limits = ResourceLimits { cores: partitions, memory_bytes: self.memory_bytes };
        let plan = StatefulPlan::new(&state, cut, &[slots], mode, limits).await.unwrap();
        StreamPlan::Stateful(Box::new(plan))
    }

    async fn run(&self, trigger: Trigger) -> Result<Finished, Failure> {
        let (_stopper, stop) = stop_pair();
        self.run_until(trigger, stop).await
    }

    async fn run_until(&self, trigger: Trigger, stop: Stop) -> Result<Finished, Failure> {
        let mut query = self.scene.query(trigger, stop).await;
        let sink = Box::new(OutsideSink(Arc::clone(&self.scene.outside)));
        let mut branches = vec![Branch { plan: self.plan().await, sink }];
        if let Some(beside) = &self.beside {
            let (slots, state) = timed_input();
            let logical = state.create_logical_plan("SELECT v FROM __stream_input").await.unwrap();
            let plan = QueryPlan::new(state, logical, vec![slots]).await.unwrap().into();
            branches.push(Branch { plan, sink: Box::new(OutsideSink(Arc::clone(beside))) });
        }
        query.branches = Branches::new(branches);
        query.snapshots = self.snapshots;
        let delay = Some(std::time::Duration::from_secs(self.delay_s));
        query.watermarks = Watermarks::new(&[delay], Policy::Min, self.idling);
        let split = |rows| Box::new(Timed(rows)) as Box<dyn Split>;
        let source = TopicSource::new(&self.scene.topic, self.scene.rows_max);
        query.sources = vec![Box::new(TopicSource { split, ..source })];
        query.run().await
    }

    fn published(&self) -> Vec<i64> {
        let mut rows = self.scene.outside.rows();
        rows.sort_unstable();
        rows
    }
}

fn timed_input() -> (Arc<Slots>, SessionState) {
    let slots = Slots::new(2);
    slots.watch_event_time(Time::Column(1));
    let context = SessionContext::new_with_config(streaming_config());
    let table = StreamTable::new("input".to_owned(), timed_schema(), Arc::clone(&slots));
    context.register_table("__stream_input", Arc::new(table)).unwrap();
    (slots, context.state())
}

/// The sums of the groups of ten from `first` to `end`.
fn sums(first: i64, end: i64) -> Vec<i64> {
    (first..end).map(|group| (0..10).map(|row| group * 10 + row).sum()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_published_once_when_the_watermark_has_passed_them() {
    for rows_max in [1, 7, 10, 33, 1_000] {
        let mut query = Stateful::new(10..100, Outside::default());
        (query.scene.rows_max, query.delay_s) = (rows_max, 1);
        query.run(Trigger::AvailableNow).await.unwrap();
        // The newest time is 9 s: group 8 is complete by then.
        assert_eq!(query.published(), sums(1, 9), "micro-batches of {rows_max}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_goes_on_in_the_next_run_and_a_delay_holds_it_open() {
    let mut query = Stateful::new(10..45, Outside::which(Delivery::Transactional));
    (query.delay_s, query.scene.rows_max) = (2, 10);
    query.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(query.published(), sums(1, 3), "the watermark is 2 s");
    // Rows of an open group, rows of one that is closed, and one that moves the watermark.
    query.scene.topic.push([31, 12, 45, 46, 47, 48, 49, 70]);
    query.run(Trigger::AvailableNow).await.unwrap();
    let mut expected = sums(1, 5);
    expected[2] += 31;
    assert_eq!(query.published(), expected);
    let again = query.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(again.micro_batches, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watermarks_stand_in_both_logs() {
    let mut query = Stateful::new(10..45, Outside::default());
    query.scene.rows_max = 10;
    query.run(Trigger::AvailableNow).await.unwrap();
    let read = |log: &str, id: u64| {
        let path = query.scene.directory.path().join(format!("{log}/{id}"));
        std::fs::read_to_string(path).unwrap()
    };
    assert!(read("offsets", 0).contains("\"batchWatermarkMs\":0,"));
    assert!(read("commits", 0).ends_with("{\"nextBatchWatermarkMs\":1000}"));
    assert!(read("offsets", 1).contains("\"batchWatermarkMs\":1000,"));
    let last = *query.scene.names("offsets").last().unwrap();
    assert!(read("offsets", last).contains("\"batchWatermarkMs\":4000,"), "one without input");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sink_lacks_is_given_again_from_the_state_log() {
    for delivery in [Delivery::Transactional, Delivery::Idempotent] {
        let mut query = Stateful::new(10..100, Outside::which(delivery));
        query.scene.rows_max = 10;
        *query.scene.outside.refuse.lock() = Some(4);
        query.run(Trigger::AvailableNow).await.unwrap_err();
        *query.scene.outside.refuse.lock() = None;
        // A sink takes micro-batches in order; what came after the refusal is none of its.
        query.scene.outside.accepted.lock().retain(|(id, _)| *id < 4);
        query.scene.outside.end_offsets.lock().truncate(4);
        assert!(query.published().len() < 9);
        query.run(Trigger::AvailableNow).await.unwrap();
        assert_eq!(query.published(), sums(1, 10), "{delivery:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sink_without_state_lacks_is_computed_again_from_the_input() {
    for delivery in [Delivery::Transactional, Delivery::Idempotent] {
        let mut query = Stateful::new(10..100, Outside::which(delivery));
        let beside = Arc::new(Outside::which(delivery));
        (query.scene.rows_max, query.beside) = (10, Some(Arc::clone(&beside)));
        *beside.refuse.lock() = Some(4);
        query.run(Trigger::AvailableNow).await.unwrap_err();
        *beside.refuse.lock() = None;
        beside.accepted.lock().retain(|(id, _)| *id < 4);
        beside.end_offsets.lock().truncate(4);
        assert_eq!(beside.rows(), Vec::from_iter(10..50));
        query.run(Trigger::AvailableNow).await.unwrap();
        assert_eq!(beside.rows(), Vec::from_iter(10..100), "{delivery:?}");
        assert_eq!(query.published(), sums(1, 10), "{delivery:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_beyond_the_limit_of_memory_goes_on_in_files() {
    const FIRST_ONES: &str = "SELECT DISTINCT v / 3 * 3 AS s FROM __stream_input";
    let modes = [OutputMode::Append, OutputMode::Update, OutputMode::Complete];
    let sums = modes.map(|mode| (SUMS, mode));
    for (sql, mode) in sums.into_iter().chain([(FIRST_ONES, OutputMode::Append)]) {
        let mut published = Vec::new();
        for memory_bytes in [None, Some(1), Some(20_000)] {
            let mut query = Stateful::new(10..300, Outside::which(Delivery::Transactional));
            (query.sql, query.mode, query.memory_bytes) = (sql, mode, memory_bytes);
            (query.scene.rows_max, query.delay_s) = (7, 5);
            query.run(Trigger::AvailableNow).await.unwrap();
            // Another run, whose state comes from the log.
            query.scene.topic.push(200..500);
            query.run(Trigger::AvailableNow).await.unwrap();
            published.push(query.published());
        }
        assert!(!published[0].is_empty());
        assert_eq!(published[0], published[1], "{mode:?} of {sql}");
        assert_eq!(published[0], published[2], "{mode:?} of {sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watermark_follows_rows_that_pass_the_filters() {
    // Row 900 would bring the watermark to 90 s, and all after it would be late.
    let rows = || (10..40).chain([900]).chain(40..80);
    let mut all = Stateful::new(rows(), Outside::default());
    (all.scene.rows_max, all.delay_s) = (1, 1);
    all.run(Trigger::AvailableNow).await.unwrap();
    // The first row after it is held against the watermark before.
    assert_eq!(all.published(), [&[40][..], &sums(1, 4)].concat());

    let mut some = Stateful::new(rows(), Outside::default());
    (some.scene.rows_max, some.delay_s) = (1, 1);
    some.sql = "SELECT sum(v) AS s FROM __stream_input WHERE v < 500 GROUP BY ts";
    some.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(some.published(), sums(1, 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_was_gone_comes_back_without_old_entries() {
    let mut query = Stateful::new(10..20, Outside::which(Delivery::Transactional));
    (query.mode, query.scene.rows_max) = (OutputMode::Update, 10);
    for round in 1..40 {
        query.run(Trigger::AvailableNow).await.unwrap();
        query.scene.topic.push(round * 100..round * 100 + 10);
    }
    let state = query.scene.directory.path().join("state");
    let files = std::fs::read_dir(&state).unwrap().count();
    assert!(files < 40, "{files} files: entries of groups that are gone have gone");
    let found = query.published().len();
    assert_eq!(found, 39);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_whose_rows_have_gone_is_in_nobodys_way() {
    let mut query = Stateful::new(10..20, Outside::which(Delivery::Transactional));
    query.scene.rows_max = 10;
    let names = |query: &Stateful, prefix: &str| {
        let files = std::fs::read_dir(query.scene.directory.path().join("state")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(prefix)).collect::<Vec<_>>()
    };
    let (mut round, mut snapshot, mut left) = (0, None, 100);
    while left > 0 {
        let interval = snapshot.is_none().then_some(std::time::Duration::ZERO);
        query.snapshots = SnapshotSettings { interval, ..SnapshotSettings::default() };
        query.run(Trigger::AvailableNow).await.unwrap();
        round += 1;
        assert!(round < 2_000, "no snapshot is made");
        query.scene.topic.push(round * 100..round * 100 + 10);
        snapshot = snapshot.or_else(|| names(&query, "snapshot-").pop());
        left -= u32::from(snapshot.is_some());
    }
    assert!(names(&query, "changes-").len() < 60, "entries behind the snapshot have gone");
    assert_eq!(query.published().len(), usize::try_from(round).unwrap());
    // Snapshots go on behind it.
    query.snapshots.interval = Some(std::time::Duration::ZERO);
    while names(&query, "snapshot-").pop() == snapshot {
        query.run(Trigger::AvailableNow).await.unwrap();
        round += 1;
        assert!(round < 4_000, "no other snapshot is made");
        query.scene.topic.push(round * 100..round * 100 + 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn update_gives_changed_groups_and_complete_gives_all() {
    let rows = [10, 11, 20, 12, 21, 22];
    let mut update = Stateful::new(rows, Outside::default());
    (update.mode, update.scene.rows_max, update.delay_s) = (OutputMode::Update, 3, 100);
    update.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(update.published(), [20, 21, 33, 63]);
    update.scene.topic.push([13]);
    update.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(update.published(), [20, 21, 33, 46, 63], "the sum goes on in another run");

    let mut complete = Stateful::new(rows, Outside::default());
    (complete.mode, complete.scene.rows_max) = (OutputMode::Complete, 3);
    complete.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(complete.published(), [20, 21, 33, 63]);
    complete.scene.topic.push([13]);
    complete.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(complete.published(), [20, 21, 33, 46, 63, 63]);
}

#[tokio::test(flavor = "multi_thread")]
async fn state_is_for_the_query_that_made_it() {
    let mut query = Stateful::new(10..100, Outside::default());
    query.run(Trigger::AvailableNow).await.unwrap();
    query.sql = "SELECT count(v) AS s FROM __stream_input GROUP BY ts";
    let refused = query.run(Trigger::AvailableNow).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Config);
    let text = refused.to_string();
    assert!(
        text.contains("it had `") && text.contains("sum(") && text.contains("count("),
        "{text}"
    );

    let refused = query.scene.run(Trigger::AvailableNow).await.unwrap_err();
    assert!(refused.to_string().contains("has the state of another query"), "{refused}");

    let stateless = Scene::new(0..10, Outside::default());
    stateless.run(Trigger::AvailableNow).await.unwrap();
    let query = Stateful { scene: stateless, ..Stateful::new([], Outside::default()) };
    let refused = query.run(Trigger::AvailableNow).await.unwrap_err();
    assert!(refused.to_string().contains("made by a query without state"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_files_that_are_missing_are_noticed() {
    let mut query = Stateful::new(10..100, Outside::default());
    (query.scene.rows_max, query.delay_s) = (10, 50);
    query.run(Trigger::AvailableNow).await.unwrap();
    let state = query.scene.directory.path().join("state");
    let changes: Vec<_> = std::fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("changes-"))
        .collect();
    assert!(!changes.is_empty());
    for file in changes {
        std::fs::remove_file(file).unwrap();
    }
    let refused = query.run(Trigger::AvailableNow).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Data, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_closes_the_last_windows_where_that_is_wanted() {
    let mut query = Stateful::new(10..45, Outside::default());
    let after = std::time::Duration::from_millis(100);
    query.idling = Idling { closes_after: Some(after), ..Idling::default() };
    query.delay_s = 1;
    let (stopper, stop) = stop_pair();
    let all = vec![145, 40 + 41 + 42 + 43 + 44, 245, 345];
    let watching = async {
        let env = Env::real();
        while query.published() != all {
            assert!(
                env.monotonic() < std::time::Duration::from_secs(30),
                "{:?}",
                query.published()
            );
            env.sleep(std::time::Duration::from_millis(10)).await;
        }
        stopper.stop();
    };
    let (finished, ()) = tokio::join!(query.run_until(Trigger::default(), stop), watching);
    finished.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_row_is_published_before_the_state_that_it_follows_from_survives() {
    let mut query = Stateful::new(10..45, Outside::which(Delivery::Transactional));
    query.scene.rows_max = 10;
    let ((_stopper, stop), env) = (stop_pair(), Env::real());
    // The newest time is 4 s, so group 4 is published as far as it goes.
    let mut expected = sums(1, 4);
    expected.insert(1, (40..45).sum());
    let interfere = async {
        while query.published().len() < 4 {
            env.sleep(std::time::Duration::from_millis(1)).await;
        }
        // The names that the next state files would have are taken.
        for id in 0..1_000 {
            let path = query.scene.directory.path().join(format!("state/changes-{id}"));
            let _ = std::fs::File::options().write(true).create_new(true).open(path);
        }
        query.scene.topic.push(100..110);
    };
    let (outcome, ()) = tokio::join!(query.run_until(Trigger::BackToBack, stop), interfere);
    assert_eq!(outcome.unwrap_err().kind(), Kind::Fenced);
    assert_eq!(query.published(), expected, "the next group is in no state that survives");

    // Nor are the logs ahead of the state.
    for id in 0..1_000 {
        let path = query.scene.directory.path().join(format!("state/changes-{id}"));
        if std::fs::metadata(&path).is_ok_and(|found| found.len() == 0) {
            std::fs::remove_file(path).unwrap();
        }
    }
    query.run(Trigger::AvailableNow).await.unwrap();
    expected.push((100..110).sum());
    assert_eq!(query.published(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_ahead_of_the_state_is_refused() {
    let outside = Outside::which(Delivery::Idempotent);
    outside.accepted.lock().push((5, Vec::new()));
    let query = Stateful::new(10..45, outside);
    let failure = query.run(Trigger::AvailableNow).await.unwrap_err();
    assert_eq!(failure.kind(), Kind::Data);
    assert!(failure.to_string().contains("the sink has published micro-batch 5"), "{failure}");
}
