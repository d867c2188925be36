//! Queries with state against the same source and sink: groups by event time, closed by the
//! watermark. Row `v` has the time `v / 10` in seconds, so ten rows make a group.

use std::collections::HashMap;

use arrow::array::TimestampMicrosecondArray;
use arrow::datatypes::TimeUnit;
use datafusion::execution::SessionState;
use millstream_store::state_log::{Facts, StateReader};

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
    /// The query of another branch with state, into the same sink as `beside`.
    other_sql: Option<&'static str>,
    /// The partitions that the source says have more rows.
    behind: Vec<SourcePartition>,
    clock: BatchClock,
    /// Whether records that cannot be decoded go to a table.
    has_letters: bool,
}

const SUMS: &str = "SELECT sum(v) AS s FROM __stream_input GROUP BY ts";

impl Stateful {
    fn new(rows: impl IntoIterator<Item = i64>, outside: Outside) -> Self {
        let scene = Scene::new(rows, outside);
        let (mode, idling) = (OutputMode::Append, Idling::default());
        let snapshots = SnapshotSettings::default();
        let (sql, delay_s, memory_bytes, beside) = (SUMS, 0, None, None);
        let (other_sql, behind, clock, has_letters) = Default::default();
        Self {
            scene,
            sql,
            mode,
            delay_s,
            idling,
            memory_bytes,
            snapshots,
            beside,
            other_sql,
            behind,
            clock,
            has_letters,
        }
    }

    async fn plan(&self, sql: &str) -> StreamPlan {
        let (slots, state) = timed_input();
        let logical = state.create_logical_plan(sql).await.unwrap();
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
        let plan = StatefulPlan::new(&Arc::new(state), cut, &[slots], mode, limits).await.unwrap();
        StreamPlan::Stateful(Box::new(plan))
    }

    async fn run(&self, trigger: Trigger) -> Result<Finished, Failure> {
        let (_stopper, stop) = stop_pair();
        self.run_until(trigger, stop).await
    }

    async fn run_until(&self, trigger: Trigger, stop: Stop) -> Result<Finished, Failure> {
        let mut query = self.scene.query(trigger, stop).await;
        let sink = Box::new(OutsideSink(Arc::clone(&self.scene.outside)));
        let mut branches = vec![Branch { plan: self.plan(self.sql).await, sink }];
        if let (Some(sql), Some(beside)) = (self.other_sql, &self.beside) {
            let sink = Box::new(OutsideSink(Arc::clone(beside)));
            branches.push(Branch { plan: self.plan(sql).await, sink });
        } else if let Some(beside) = &self.beside {
            let (slots, state) = timed_input();
            let logical = state.create_logical_plan("SELECT v FROM __stream_input").await.unwrap();
            let plan = QueryPlan::new(state, logical, vec![slots]).await.unwrap().into();
            branches.push(Branch { plan, sink: Box::new(OutsideSink(Arc::clone(beside))) });
        }
        query.branches = Branches::new(branches);
        if self.has_letters {
            let place = several::Place::new(Delivery::Transactional, 0);
            let letters = several::Several::new(vec![place]).dead_letter_sinks_of(2);
            query.branches = query.branches.with_dead_letters(letters);
        }
        (query.snapshots, query.batch_clock) = (self.snapshots, self.clock.clone());
        let delay = Some(std::time::Duration::from_secs(self.delay_s));
        query.watermarks = Watermarks::new(&[delay], Policy::Min, self.idling);
        let split = |rows| Box::new(Timed(rows)) as Box<dyn Split>;
        let source = TopicSource::new(&self.scene.topic, self.scene.rows_max);
        query.sources =
            vec![Box::new(TopicSource { split, behind: self.behind.clone(), ..source })];
        query.run().await
    }

    /// Runs, takes one row after the other, and stops; each waits for the commit entry of the one
    /// before.
    async fn run_row_by_row(&self, rows: impl IntoIterator<Item = i64>) {
        let ((stopper, stop), env) = (stop_pair(), Env::real());
        let feeding = async {
            for row in rows {
                let commits = self.scene.names("commits");
                self.scene.topic.push([row]);
                while self.scene.names("commits") == commits {
                    env.sleep(std::time::Duration::from_millis(1)).await;
                }
            }
            stopper.stop();
        };
        let (outcome, ()) = tokio::join!(self.run_until(Trigger::BackToBack, stop), feeding);
        outcome.unwrap();
    }

    /// The number of the newest snapshot.
    fn snapshot(&self) -> Option<u64> {
        let names = self.state_files("snapshot-");
        names.iter().map(|name| name["snapshot-".len()..].parse().unwrap()).max()
    }

    /// The facts of the state log's entries, which are read as a restart reads them.
    async fn logged(&self) -> Vec<Facts> {
        let location = self.scene.directory.path().to_str().unwrap();
        let checkpoint = Checkpoint::open(location, &Env::real()).await.unwrap();
        let mut reader = StateReader::open(&checkpoint).await.unwrap();
        let mut logged = Vec::new();
        while let Some(entry) = reader.next().await.unwrap() {
            logged.push(entry.facts);
        }
        logged
    }

    /// Runs until `done`, which is looked at now and then.
    async fn run_while(&self, mut goes_on: impl FnMut() -> bool) {
        let ((stopper, stop), env) = (stop_pair(), Env::real());
        let began = env.monotonic();
        let watching = async {
            while goes_on() {
                let waited = env.monotonic().saturating_sub(began);
                assert!(waited < std::time::Duration::from_secs(30), "it takes too long");
                env.sleep(std::time::Duration::from_millis(5)).await;
            }
            stopper.stop();
        };
        let (outcome, ()) = tokio::join!(self.run_until(Trigger::BackToBack, stop), watching);
        outcome.unwrap();
    }

    /// The names of the state's files that begin with `prefix`.
    fn state_files(&self, prefix: &str) -> Vec<String> {
        // The directory is made with the first file.
        let files = std::fs::read_dir(self.scene.directory.path().join("state"));
        let files = files.into_iter().flatten();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(prefix)).collect()
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
        let intent = query.scene.directory.path().join("offsets/4");
        let intent = offset_log::Entry::decode(&std::fs::read(intent).unwrap()).unwrap();
        assert_eq!(intent.batch_watermark_ms, 4_000, "{delivery:?}: it is logged as it was run");
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
    let names = |query: &Stateful, prefix: &str| query.state_files(prefix);
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

#[tokio::test(flavor = "multi_thread")]
async fn the_logs_are_not_ahead_of_a_state_that_cannot_be_written() {
    for delivery in [Delivery::Transactional, Delivery::Idempotent] {
        // No group is complete, so nothing is published that would wait for the state.
        let mut query = Stateful::new(10..45, Outside::which(delivery));
        (query.scene.rows_max, query.delay_s) = (10, 1_000);
        let ((stopper, stop), env) = (stop_pair(), Env::real());
        let logs = || (query.scene.names("offsets"), query.scene.names("commits"));
        let expected = || (vec![0, 1, 2, 3], vec![0, 1, 2, 3]);
        let interfere = async {
            while logs() != expected() {
                env.sleep(std::time::Duration::from_millis(1)).await;
            }
            // The names that the next state files would have are taken.
            for id in 0..1_000 {
                let path = query.scene.directory.path().join(format!("state/changes-{id}"));
                let _ = std::fs::File::options().write(true).create_new(true).open(path);
            }
            query.scene.topic.push([50]);
            env.sleep(std::time::Duration::from_secs(10)).await;
            stopper.stop();
            std::future::pending().await
        };
        let outcome = tokio::select! {
            outcome = query.run_until(Trigger::BackToBack, stop) => outcome,
            () = interfere => unreachable!("it does not end"),
        };
        assert_eq!(outcome.unwrap_err().kind(), Kind::Fenced, "{delivery:?}");
        assert_eq!(logs(), expected(), "{delivery:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_state_log_knows_as_acknowledged_is_not_given_again() {
    let mut query = Stateful::new([], Outside::default());
    (query.mode, query.delay_s) = (OutputMode::Update, 1_000);
    query.run_row_by_row(10..20).await;
    for log in ["offsets", "commits"] {
        std::fs::remove_dir_all(query.scene.directory.path().join(log)).unwrap();
    }
    let before = query.scene.outside.ids();
    assert_eq!(before, Vec::from_iter(0..10));
    query.run(Trigger::AvailableNow).await.unwrap();
    let again = query.scene.outside.ids().split_off(before.len());
    assert!(again.iter().all(|id| *id > 5), "the last entries know that {again:?} are published");
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_state_does_not_go_on_without_its_table_of_letters() {
    let mut query = Stateful::new(10..100, Outside::which(Delivery::Transactional));
    (query.scene.rows_max, query.has_letters) = (10, true);
    *query.scene.outside.refuse.lock() = Some(4);
    query.run(Trigger::AvailableNow).await.unwrap_err();
    *query.scene.outside.refuse.lock() = None;
    query.scene.outside.accepted.lock().retain(|(id, _)| *id < 4);
    query.scene.outside.end_offsets.lock().truncate(4);
    query.has_letters = false;
    let refused = query.run(Trigger::AvailableNow).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Config);
    assert!(refused.to_string().contains("'bad'"), "{refused}");
    query.has_letters = true;
    query.run(Trigger::AvailableNow).await.unwrap();
    // What is finished goes on without it.
    query.has_letters = false;
    query.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(query.published(), sums(1, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_in_time_is_in_time_when_it_is_given_again() {
    // Row 900 brings the watermark to 90 s; the first row after it is compared with the one before.
    let rows = (10..20).chain([900, 40]);
    let mut query = Stateful::new(rows, Outside::which(Delivery::Transactional));
    (query.scene.rows_max, query.delay_s) = (1, 1);
    query.run(Trigger::AvailableNow).await.unwrap();
    let published = query.published();
    assert_eq!(published, [40, 145]);
    let accepted = query.scene.outside.accepted.lock().clone();
    let at = accepted.iter().position(|(_, rows)| rows.contains(&40)).unwrap();
    let id = accepted[at].0;
    query.scene.outside.accepted.lock().truncate(at);
    query.scene.outside.end_offsets.lock().truncate(at);
    for log in ["offsets", "commits"] {
        for later in query.scene.names(log).into_iter().filter(|later| *later >= id) {
            query.scene.remove(&format!("{log}/{later}"));
        }
    }
    query.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(query.published(), published);
}

/// Runs, one row of group 2 after the other, until there is a snapshot after `before`; gives the
/// number of the newest and how many rows it took.
async fn run_until_snapshot(query: &Stateful, before: Option<u64>) -> (Option<u64>, i64) {
    let ((stopper, stop), env) = (stop_pair(), Env::real());
    let feeding = async {
        for rows in 1..1_000 {
            query.scene.topic.push([20]);
            // Long enough for a snapshot, so that the last entry does not know of it.
            env.sleep(std::time::Duration::from_millis(50)).await;
            if query.snapshot() > before {
                stopper.stop();
                return rows;
            }
        }
        panic!("no snapshot is made after {before:?}");
    };
    let mut running = std::pin::pin!(query.run_until(Trigger::BackToBack, stop));
    let rows = tokio::select! {
        outcome = &mut running => panic!("it is to go on: {outcome:?}"),
        rows = feeding => rows,
    };
    running.await.unwrap();
    // Another may have been made until the query had stopped.
    (query.snapshot(), rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_go_on_from_a_snapshot_and_from_one_that_builds_on_it() {
    let mut query = Stateful::new(10..40, Outside::which(Delivery::Transactional));
    (query.scene.rows_max, query.delay_s) = (10, 1_000);
    query.run(Trigger::AvailableNow).await.unwrap();
    query.snapshots.interval = Some(std::time::Duration::ZERO);
    let (first, rows) = run_until_snapshot(&query, None).await;
    let (second, more_rows) = run_until_snapshot(&query, first).await;
    assert!(second > first);
    query.snapshots.interval = None;
    // All groups are complete with this.
    query.scene.topic.push([20_000]);
    query.run(Trigger::AvailableNow).await.unwrap();
    let mut expected = sums(1, 4);
    expected[1] += (rows + more_rows) * 20;
    expected.sort_unstable();
    assert_eq!(query.published(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_earlier_runs_logged_counts_towards_a_snapshot() {
    let mut query = Stateful::new(10..2_000, Outside::which(Delivery::Transactional));
    query.delay_s = 1_000;
    query.run(Trigger::AvailableNow).await.unwrap();
    let state = query.scene.directory.path().join("state");
    let bytes = std::fs::metadata(state.join(query.state_files("changes-").pop().unwrap()));
    query.snapshots.after_bytes = bytes.unwrap().len() / 2;
    // One small entry more.
    query.scene.topic.push([10]);
    query.run_while(|| query.state_files("snapshot-").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_entry_is_noticed_where_it_is_needed_and_only_there() {
    for is_needed in [false, true] {
        let mut query = Stateful::new(10..20, Outside::which(Delivery::Transactional));
        query.delay_s = if is_needed { 1_000 } else { 0 };
        for round in 1..6 {
            query.run(Trigger::AvailableNow).await.unwrap();
            query.scene.topic.push(round * 100..round * 100 + 10);
        }
        let number = |name: &String| name["changes-".len()..].parse::<u64>().unwrap();
        let mut files = query.state_files("changes-");
        files.sort_unstable_by_key(number);
        assert!(files.len() >= 5, "{files:?}");
        std::fs::remove_file(query.scene.directory.path().join("state").join(&files[2])).unwrap();
        let outcome = query.run(Trigger::AvailableNow).await;
        assert_eq!(
            outcome.map(drop).map_err(|failure| failure.kind()).err(),
            is_needed.then_some(Kind::Data)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_no_other_rows_are_late() {
    // Row 900 brings the watermark to 89 s; the first row after it is compared with the one before.
    let mut query = Stateful::new([900], Outside::which(Delivery::Transactional));
    query.delay_s = 1;
    query.run(Trigger::AvailableNow).await.unwrap();
    query.scene.topic.push([40]);
    query.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(query.published(), [40]);
    query.scene.topic.push([50]);
    query.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(query.published(), [40], "that row is late");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_computed_again_has_its_own_time() {
    let query = Stateful::new(10..20, Outside::which(Delivery::Transactional));
    query.run(Trigger::AvailableNow).await.unwrap();
    query.clock.set(0);
    let again = query.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(again.micro_batches, 0);
    let last = query.logged().await.pop().unwrap();
    assert_eq!(query.clock.us(), last.batch_time_ms * 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_needed_until_the_rows_that_follow_from_them_are_acknowledged() {
    let query = Stateful::new(10..20, Outside::which(Delivery::Transactional));
    query.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(query.scene.outside.accepted.lock().last().unwrap().0, 1, "the group is closed");
    // The sink has lost that, and gets it again in the next run.
    query.scene.outside.accepted.lock().retain(|(id, _)| *id < 1);
    query.scene.outside.end_offsets.lock().truncate(1);
    query.scene.remove("commits/1");
    query.scene.remove("offsets/1");
    let release = Arc::new(Notify::new());
    *query.scene.outside.hold.lock() = Some((1, Arc::clone(&release)));
    let is_held = || query.scene.outside.ids().contains(&1);
    let mut pushed = false;
    query
        .run_while(|| {
            if is_held() && !pushed {
                query.scene.topic.push([200]);
                pushed = true;
            }
            // Micro-batch 3 publishes group 20.
            let goes_on = !query.scene.outside.ids().contains(&3);
            if !goes_on {
                release.notify_one();
            }
            goes_on
        })
        .await;
    let needs: Vec<u64> = query.logged().await.iter().map(|facts| facts.needs).collect();
    assert_eq!(needs, [0, 0, 0, 0], "micro-batch 1 follows from entry 0");

    // When it is acknowledged, entry 0 is not needed any more.
    let query = Stateful::new([10], Outside::which(Delivery::Transactional));
    let mut pushed = false;
    query
        .run_while(|| {
            let commits = query.scene.names("commits");
            if commits == [0, 1] && !pushed {
                query.scene.topic.push([200]);
                pushed = true;
            }
            commits != [0, 1, 2, 3]
        })
        .await;
    let logged = query.logged().await;
    assert_eq!(logged[3].needs, 2, "{logged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_snapshot_has_is_not_needed_of_the_entries() {
    let mut query = Stateful::new(10..40, Outside::which(Delivery::Transactional));
    query.delay_s = 1_000;
    query.snapshots.interval = Some(std::time::Duration::ZERO);
    run_until_snapshot(&query, None).await;
    query.snapshots.interval = None;
    query.scene.topic.push([20]);
    query.run(Trigger::AvailableNow).await.unwrap();
    let last = query.logged().await.pop().unwrap();
    assert_eq!(Some(last.needs), query.snapshot().map(|snapshot| snapshot + 1));
    assert_eq!(last.seen_ms, [Some(-997_000)], "where the source stands");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_operators_the_one_that_needs_most_counts() {
    let mut query = Stateful::new(10..100, Outside::which(Delivery::Transactional));
    query.beside = Some(Arc::new(Outside::which(Delivery::Transactional)));
    query.other_sql = Some("SELECT DISTINCT v AS s FROM __stream_input");
    query.scene.rows_max = 10;
    query.run(Trigger::AvailableNow).await.unwrap();
    let logged = query.logged().await;
    assert!(logged.len() > 5 && logged.iter().all(|facts| facts.needs == 0), "{logged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_with_a_partition_behind_moves_no_watermark() {
    let mut query = Stateful::new(10..100, Outside::default());
    query.behind = vec![3];
    query.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(query.published(), [0; 0], "nothing is known of partition 3 but that it has rows");
}
