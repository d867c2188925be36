//! The driver against a source and a sink made for testing: every promise of the module's head,
//! with crashes in between.

mod joins;
mod other_queries;
mod several;
mod snapshot_builders;
mod stateful;
mod tracking;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::prelude::SessionContext;
use futures::FutureExt;
use millstream_store::error::{Classified, Kind};
use millstream_store::source_log::SourceLog;
use millstream_store::storage::Storage;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;

use super::stop::stop_pair;
use super::*;
use crate::api::dead_letter::{Letter, Place};
use crate::api::settings::{Idling, Policy};
use crate::api::sink::{Acknowledgement, Ending, Output, Published, RefusedRow, Sink};
use crate::api::source::{RecordBatches, SourcePartition, Split, StaticTable};
use crate::plan::QueryPlan;
use crate::plan::session::streaming_config;
use crate::plan::stream_scan::{Slots, StreamTable};

/// Why a sink that is made for testing does not take a micro-batch.
#[derive(Debug, Error)]
enum Refusal {
    #[error("refused")]
    Refused,
    #[error("gone")]
    Gone,
}

impl Classified for Refusal {
    fn kind(&self) -> Kind {
        Kind::Retry
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]))
}

/// A log of integers that outlives the query; what a Kafka topic is to the real source.
#[derive(Default)]
struct Topic {
    rows: Mutex<Vec<i64>>,
    /// Up to where each commit that the source heard of goes.
    committed: Mutex<Vec<usize>>,
    more: Notify,
    /// How many rows that are not committed it gives, where it has a bound.
    room: Option<usize>,
}

impl Topic {
    fn with(rows: impl IntoIterator<Item = i64>) -> Arc<Self> {
        let topic = Self::default();
        topic.rows.lock().extend(rows);
        Arc::new(topic)
    }

    fn push(&self, rows: impl IntoIterator<Item = i64>) {
        self.rows.lock().extend(rows);
        self.more.notify_one();
    }
}

struct TopicSource {
    topic: Arc<Topic>,
    next: usize,
    end: Option<usize>,
    rows_max: usize,
    split: fn(Vec<i64>) -> Box<dyn Split>,
    /// The partitions that it says have more rows.
    behind: Vec<SourcePartition>,
}

struct Rows(Vec<i64>);

impl Split for Rows {
    fn rows(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        assert_eq!(projection, [0]);
        let rows = RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(self.0))]);
        Box::new(std::iter::once(Ok(rows.unwrap())))
    }

    fn read_with_letters(
        self: Box<Self>,
        projection: &[usize],
        letters: &mut Vec<Letter>,
    ) -> Result<Vec<RecordBatch>, Failure> {
        let (malformed, sound): (Vec<i64>, Vec<i64>) =
            self.0.into_iter().partition(|v| is_malformed(*v));
        letters.extend(malformed.into_iter().map(|offset| {
            let place = Place::Record { topic: "input".into(), partition: 0, offset };
            Letter { place: Some(place), ..Letter::default() }
        }));
        Box::new(Self(sound)).read(projection).collect()
    }
}

/// Whether a record cannot be decoded, where that is looked at.
fn is_malformed(v: i64) -> bool {
    v % 7 == 5
}

fn offset_of(position: usize) -> SourceOffset {
    SourceOffset::new(position.to_string())
}

fn position_of(offset: &SourceOffset) -> usize {
    offset.as_str().parse().unwrap()
}

impl TopicSource {
    fn new(topic: &Arc<Topic>, rows_max: usize) -> Self {
        let split = |rows| Box::new(Rows(rows)) as Box<dyn Split>;
        let (topic, behind) = (Arc::clone(topic), Vec::new());
        Self { topic, next: 0, end: None, rows_max, split, behind }
    }

    fn range(&self, start: usize, end: usize) -> InputBatch {
        let rows = self.topic.rows.lock()[start..end].to_vec();
        InputBatch {
            end: offset_of(end),
            rows: rows.len() as u64,
            splits: vec![(self.split)(rows)],
            oldest_arrival_us: 0,
        }
    }

    fn readable(&self) -> usize {
        let end = self.end.unwrap_or_else(|| self.topic.rows.lock().len());
        let Some(room) = self.topic.room else { return end };
        end.min(self.topic.committed.lock().last().copied().unwrap_or(0) + room)
    }
}

#[async_trait]
impl Source for TopicSource {
    fn description(&self) -> String {
        "Topic".to_owned()
    }

    fn schema(&self) -> SchemaRef {
        schema()
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        _: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        Ok(position.cloned().unwrap_or_else(|| offset_of(0)))
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        Ok(self.range(start.map_or(0, position_of), position_of(end)))
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        self.next = position_of(position);
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        self.end = Some(self.topic.rows.lock().len());
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }

    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        let rows_max = if limit == ReadLimit::AllAvailable { usize::MAX } else { self.rows_max };
        let end = self.readable().min(self.next.saturating_add(rows_max));
        if end == self.next {
            return Ok(None);
        }
        let taken = self.range(self.next, end);
        self.next = end;
        Ok(Some(taken))
    }

    async fn data_available(&mut self) {
        while self.readable() <= self.next && !self.at_end() {
            self.topic.more.notified().await;
        }
    }

    fn partitions_behind(&self) -> Vec<SourcePartition> {
        self.behind.clone()
    }

    fn committed(&mut self, end: &SourceOffset) {
        self.topic.committed.lock().push(position_of(end));
        self.topic.more.notify_one();
    }

    fn metrics(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    async fn close(&mut self) {}
}

/// What the outside has accepted, by micro-batch; outlives the query.
#[derive(Default)]
struct Outside {
    accepted: Mutex<Vec<(u64, Vec<i64>)>>,
    /// Fails the publish of this micro-batch.
    refuse: Mutex<Option<u64>>,
    /// Never acknowledges this micro-batch until notified.
    hold: Mutex<Option<(u64, Arc<Notify>)>>,
    /// Accepts this micro-batch, and then seems to be gone: what a crash at that moment leaves.
    lose_answer: Mutex<Option<u64>>,
    /// Is not ready for the next micro-batch until notified.
    busy: Mutex<Option<Arc<Notify>>>,
    delivery: Option<Delivery>,
    /// Where the query stood after each accepted micro-batch.
    end_offsets: Mutex<Vec<EndOffsets>>,
}

impl Outside {
    fn which(delivery: Delivery) -> Self {
        Self { delivery: Some(delivery), ..Self::default() }
    }

    fn rows(&self) -> Vec<i64> {
        self.accepted.lock().iter().flat_map(|(_, rows)| rows.clone()).collect()
    }

    fn ids(&self) -> Vec<u64> {
        self.accepted.lock().iter().map(|(id, _)| *id).collect()
    }
}

struct OutsideSink(Arc<Outside>);

#[async_trait]
impl Sink for OutsideSink {
    fn description(&self) -> String {
        "Outside".to_owned()
    }

    fn delivery(&self) -> Delivery {
        self.0.delivery.unwrap_or(Delivery::AtLeastOnce)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        let busy = self.0.busy.lock().clone();
        if let Some(free) = busy {
            free.notified().await;
            *self.0.busy.lock() = None;
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        let last = self.0.accepted.lock().last().map(|(id, _)| BatchId(*id));
        let end_offsets = self.0.end_offsets.lock().last().cloned();
        Ok(match (self.0.delivery, last) {
            (None | Some(Delivery::AtLeastOnce), _) | (_, None) => None,
            (Some(Delivery::Idempotent), Some(batch_id)) => {
                Some(Published { batch_id, end_offsets: None })
            }
            (Some(Delivery::Transactional), Some(batch_id)) => {
                Some(Published { batch_id, end_offsets })
            }
        })
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let id = output.batch_id.0;
        if *self.0.refuse.lock() == Some(id) {
            let refused = async { Err(Refusal::Refused.into()) };
            return Ok(Acknowledgement::Later(refused.boxed()));
        }
        let rows = output.record_batches().flat_map(|rows| {
            rows.column(0).as_primitive::<Int64Type>().values().iter().copied().collect::<Vec<_>>()
        });
        self.0.accepted.lock().push((id, rows.collect()));
        self.0.end_offsets.lock().push(output.end_offsets.clone());
        if self.0.lose_answer.lock().is_some_and(|lost| id >= lost) {
            let gone = async { Err(Refusal::Gone.into()) };
            return Ok(Acknowledgement::Later(gone.boxed()));
        }
        let held = self.0.hold.lock().clone().filter(|(held, _)| *held == id);
        let Some((_, release)) = held else { return Ok(Acknowledgement::Done) };
        let released = async move {
            release.notified().await;
            Ok(0)
        };
        Ok(Acknowledgement::Later(released.boxed()))
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

struct Scene {
    directory: tempfile::TempDir,
    topic: Arc<Topic>,
    outside: Arc<Outside>,
    rows_max: usize,
    tracking: ProgressTracking,
    purge: PurgeTime,
}

impl Scene {
    fn new(rows: impl IntoIterator<Item = i64>, outside: Outside) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let outside = Arc::new(outside);
        let (topic, tracking) = (Topic::with(rows), ProgressTracking::default());
        let purge = PurgeTime::default();
        Self { directory, topic, outside, rows_max: usize::MAX, tracking, purge }
    }

    async fn query(&self, trigger: Trigger, stop: Stop) -> Query {
        let env = Env::real();
        let location = self.directory.path().to_str().unwrap();
        let checkpoint = Checkpoint::open(location, &env).await.unwrap();
        let slots = Slots::new(2);
        let context = SessionContext::new_with_config(streaming_config());
        let table = StreamTable::new("input".to_owned(), schema(), Arc::clone(&slots));
        context.register_table("input", Arc::new(table)).unwrap();
        let logical = context.sql("SELECT v FROM input WHERE v % 10 <> 9").await.unwrap();
        let (state, logical) = logical.into_parts();
        Query {
            snapshots: SnapshotSettings::default(),
            watermarks: Watermarks::new(&[None], Policy::Min, Idling::default()),
            branches: Branches::one(
                QueryPlan::new(state, logical, vec![slots]).await.unwrap(),
                Box::new(OutsideSink(Arc::clone(&self.outside))),
            ),
            sources: vec![Box::new(TopicSource::new(&self.topic, self.rows_max))],
            statics: Vec::new(),
            log_settings: Settings { purge: self.purge, ..Settings::of(&checkpoint) },
            checkpoint,
            trigger,
            tracking: self.tracking,
            batch_clock: BatchClock::default(),
            listener: Arc::new(crate::api::progress::Silent),
            stop,
            env,
        }
    }

    async fn run(&self, trigger: Trigger) -> Result<Finished, Failure> {
        let (_stopper, stop) = stop_pair();
        self.query(trigger, stop).await.run().await
    }

    fn names(&self, log: &str) -> Vec<u64> {
        // A log's directory is made with its first entry.
        let Ok(entries) = std::fs::read_dir(self.directory.path().join(log)) else {
            return Vec::new();
        };
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.unwrap().file_name().to_str().and_then(|name| name.parse().ok())
        };
        let mut names: Vec<u64> = entries.filter_map(name).collect();
        names.sort_unstable();
        names
    }

    fn remove(&self, entry: &str) {
        std::fs::remove_file(self.directory.path().join(entry)).unwrap();
    }
}

fn kept(rows: impl IntoIterator<Item = i64>) -> Vec<i64> {
    rows.into_iter().filter(|v| v % 10 != 9).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn available_now_reads_to_the_end_in_limited_micro_batches() {
    let mut scene = Scene::new(0..100, Outside::default());
    scene.rows_max = 30;
    let finished = scene.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(finished, Finished { micro_batches: 4, rows_in: 100, rows_out: 90 });
    assert_eq!(scene.outside.rows(), kept(0..100));
    assert_eq!(
        (scene.names("offsets"), scene.names("commits")),
        (vec![0, 1, 2, 3], vec![0, 1, 2, 3])
    );

    scene.topic.push(100..120);
    scene.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(scene.outside.rows(), kept(0..120), "a restart goes on where the logs end");
    assert_eq!(scene.outside.ids(), [0, 1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_new_means_no_micro_batch() {
    let scene = Scene::new(0..10, Outside::default());
    scene.run(Trigger::AvailableNow).await.unwrap();
    let finished = scene.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(finished.micro_batches, 0);
    assert_eq!(scene.names("offsets"), [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn once_ignores_limits_and_runs_one_micro_batch() {
    let mut scene = Scene::new(0..100, Outside::default());
    scene.rows_max = 30;
    let finished = scene.run(Trigger::Once).await.unwrap();
    assert_eq!((finished.micro_batches, finished.rows_in), (1, 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncommitted_micro_batch_runs_again_over_its_own_range() {
    let scene = Scene::new(0..100, Outside::default());
    scene.run(Trigger::AvailableNow).await.unwrap();
    scene.remove("commits/0");
    scene.topic.push(100..110);
    Env::real().sleep(Duration::from_millis(5)).await;

    scene.run(Trigger::Once).await.unwrap();
    let times: Vec<_> =
        scene.outside.end_offsets.lock().iter().map(|ends| ends.batch_time_ms).collect();
    assert_eq!(times[0], times[1], "the same time");
    let accepted = scene.outside.accepted.lock().clone();
    assert_eq!(accepted, vec![(0, kept(0..100)), (0, kept(0..100))], "the same range, the same id");
    assert_eq!(scene.names("commits"), [0], "and with `once` nothing more");

    scene.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(scene.outside.ids(), [0, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_can_answer_sees_no_micro_batch_twice() {
    let scene = Scene::new(0..100, Outside::which(Delivery::Idempotent));
    scene.run(Trigger::AvailableNow).await.unwrap();
    scene.remove("commits/0");
    scene.topic.push(100..110);
    scene.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(scene.outside.rows(), kept(0..110));
    assert_eq!(scene.names("commits"), [0, 1], "the missing entry is written");
}

/// The end of source 0 in each entry of the offset log.
fn logged_ends(scene: &Scene) -> Vec<usize> {
    let end = |id: u64| {
        let entry = scene.directory.path().join(format!("offsets/{id}"));
        let entry = offset_log::Entry::decode(&std::fs::read(entry).unwrap()).unwrap();
        position_of(entry.offsets[0].as_ref().unwrap())
    };
    scene.names("offsets").into_iter().map(end).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_logs_are_repaired_from_what_the_sink_answers() {
    let mut scene = Scene::new(0..100, Outside::which(Delivery::Transactional));
    scene.rows_max = 10;
    // From micro-batch 3 on everything is published, and nobody hears of it.
    *scene.outside.lose_answer.lock() = Some(3);
    scene.run(Trigger::AvailableNow).await.unwrap_err();
    assert_eq!(scene.names("commits"), [0, 1, 2]);
    let published = scene.outside.ids().len() as u64;
    assert!(published > 3, "the driver hands over without waiting for an answer");
    *scene.outside.lose_answer.lock() = None;

    scene.topic.push(100..110);
    scene.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(scene.outside.rows(), kept(0..110), "nothing is missing, nothing doubled");
    let all: Vec<u64> = (0..11).collect();
    assert_eq!(scene.outside.ids(), all, "numbers go on where the sink was");
    assert_eq!((scene.names("offsets"), scene.names("commits")), (all.clone(), all));
    let ends = logged_ends(&scene);
    assert_eq!(ends.last(), Some(&110));
    assert!(ends.is_sorted(), "{ends:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_that_are_lost_come_back_from_the_sink() {
    let mut scene = Scene::new(0..50, Outside::which(Delivery::Transactional));
    scene.rows_max = 10;
    scene.run(Trigger::AvailableNow).await.unwrap();
    for log in ["offsets", "commits"] {
        std::fs::remove_dir_all(scene.directory.path().join(log)).unwrap();
    }
    scene.topic.push(50..60);
    scene.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(scene.outside.rows(), kept(0..60));
    assert_eq!(scene.names("commits"), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logged_micro_batch_that_the_sink_does_not_have_runs_again() {
    let mut scene = Scene::new(0..50, Outside::which(Delivery::Transactional));
    (scene.rows_max, scene.tracking) = (10, ProgressTracking::Blocking);
    *scene.outside.refuse.lock() = Some(3);
    scene.run(Trigger::AvailableNow).await.unwrap_err();
    let intents = scene.names("offsets");
    // Only so is an intent logged that then fails, and the sink has nothing after it.
    assert_eq!((intents.last(), scene.names("commits").last()), (Some(&3), Some(&2)));
    scene.outside.accepted.lock().retain(|(id, _)| *id < 3);
    scene.outside.end_offsets.lock().truncate(3);
    *scene.outside.refuse.lock() = None;
    scene.rows_max = usize::MAX;

    scene.run(Trigger::AvailableNow).await.unwrap();
    let accepted = scene.outside.accepted.lock().clone();
    assert_eq!(accepted[3], (3, kept(30..40)), "the range that was logged");
    assert_eq!(scene.outside.rows(), kept(0..50));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_micro_batch_fails_the_query_and_is_not_committed() {
    let mut scene = Scene::new(0..100, Outside::default());
    scene.rows_max = 10;
    *scene.outside.refuse.lock() = Some(3);
    let failure = scene.run(Trigger::AvailableNow).await.unwrap_err();
    assert_eq!((failure.kind(), failure.to_string().as_str()), (Kind::Retry, "refused"));
    assert_eq!(scene.names("commits"), [0, 1, 2]);

    *scene.outside.refuse.lock() = None;
    scene.run(Trigger::AvailableNow).await.unwrap();
    let mut rows = scene.outside.rows();
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows, kept(0..100), "nothing is missing after the restart");
}

#[tokio::test(flavor = "multi_thread")]
async fn later_micro_batches_do_not_wait_for_an_acknowledgement_but_their_commits_do() {
    let mut scene = Scene::new(0..50, Outside::default());
    scene.rows_max = 10;
    let release = Arc::new(Notify::new());
    *scene.outside.hold.lock() = Some((1, Arc::clone(&release)));
    let (_stopper, stop) = stop_pair();
    let query = scene.query(Trigger::AvailableNow, stop).await;
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    while scene.outside.ids().len() < 5 {
        env.sleep(Duration::from_millis(1)).await;
    }
    assert!(scene.names("commits").len() <= 1, "micro-batch 1 is not acknowledged");
    release.notify_one();
    running.join().await.unwrap();
    assert_eq!(scene.names("commits"), [0, 1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_query_stops_when_asked() {
    let scene = Scene::new(0..10, Outside::default());
    let (stopper, stop) = stop_pair();
    let query = scene.query(Trigger::BackToBack, stop).await;
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    while scene.outside.ids().is_empty() {
        env.sleep(Duration::from_millis(1)).await;
    }
    scene.topic.push(10..20);
    while scene.outside.rows().len() < 18 {
        env.sleep(Duration::from_millis(1)).await;
    }
    stopper.stop();
    let finished = running.join().await.unwrap();
    assert_eq!(finished.rows_in, 20);
    assert_eq!(scene.names("offsets"), scene.names("commits"), "nothing is left half done");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_arrive_while_the_sink_is_busy_go_along() {
    let scene = Scene::new(0..10, Outside::default());
    let free = Arc::new(Notify::new());
    *scene.outside.busy.lock() = Some(Arc::clone(&free));
    let (stopper, stop) = stop_pair();
    let query = scene.query(Trigger::BackToBack, stop).await;
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    env.sleep(Duration::from_millis(20)).await;
    scene.topic.push(10..20);
    free.notify_one();
    while scene.outside.ids().is_empty() {
        env.sleep(Duration::from_millis(1)).await;
    }
    stopper.stop();
    running.join().await.unwrap();
    assert_eq!(scene.outside.accepted.lock().clone(), vec![(0, kept(0..20))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_intent_of_a_transactional_sink_waits_for_its_acknowledgement() {
    let mut scene = Scene::new(0..50, Outside::which(Delivery::Transactional));
    scene.rows_max = 10;
    let release = Arc::new(Notify::new());
    *scene.outside.hold.lock() = Some((1, Arc::clone(&release)));
    let (_stopper, stop) = stop_pair();
    let query = scene.query(Trigger::AvailableNow, stop).await;
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    while scene.outside.ids().len() < 5 {
        env.sleep(Duration::from_millis(1)).await;
    }
    // Several steps of the committer.
    env.sleep(Duration::from_millis(100)).await;
    assert_eq!((scene.names("offsets"), scene.names("commits")), (vec![0], vec![0]));
    release.notify_one();
    running.join().await.unwrap();
    assert_eq!(scene.names("offsets"), [0, 1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_another_process_writes_to_stops_a_running_query() {
    let scene = Scene::new(0..10, Outside::default());
    let release = Arc::new(Notify::new());
    *scene.outside.hold.lock() = Some((0, Arc::clone(&release)));
    let (_stopper, stop) = stop_pair();
    let query = scene.query(Trigger::BackToBack, stop).await;
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    while scene.outside.ids().is_empty() {
        env.sleep(Duration::from_millis(1)).await;
    }
    let commits = scene.directory.path().join("commits");
    std::fs::create_dir_all(&commits).unwrap();
    std::fs::write(commits.join("0"), "v1\n{}").unwrap();
    release.notify_one();
    let feeding = async {
        loop {
            scene.topic.push([1]);
            env.sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        outcome = running.join() => assert_eq!(outcome.unwrap_err().kind(), Kind::Fenced),
        () = feeding => unreachable!("it has no end"),
        () = env.sleep(Duration::from_secs(30)) => panic!("it goes on without its log"),
    }
}

/// Adds up the rows of the micro-batches that it hears of.
#[derive(Default)]
struct Adding(std::sync::atomic::AtomicU64);

impl Listener for Adding {
    fn published(&self, progress: &Progress) {
        self.0.fetch_add(progress.rows_in, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_and_sources_hear_of_what_is_committed_while_the_query_runs() {
    let scene = Scene::new(0..10, Outside::default());
    let (stopper, stop) = stop_pair();
    let (mut query, adding) = (scene.query(Trigger::BackToBack, stop).await, Arc::default());
    query.listener = Arc::<Adding>::clone(&adding);
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    let began = env.monotonic();
    while scene.topic.committed.lock().is_empty() {
        assert!(env.monotonic() < began + Duration::from_secs(30), "the source hears nothing");
        env.sleep(Duration::from_millis(20)).await;
    }
    stopper.stop();
    let finished = running.join().await.unwrap();
    assert_eq!(adding.0.load(Ordering::Relaxed), finished.rows_in);

    scene.run(Trigger::AvailableNow).await.unwrap();
    scene.topic.committed.lock().clear();
    scene.run(Trigger::AvailableNow).await.unwrap();
    let rows = scene.topic.rows.lock().len();
    assert_eq!(scene.topic.committed.lock().first(), Some(&rows), "it is where the query goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_waits_for_a_commit_hears_of_it_though_nothing_arrives() {
    for trigger in [Trigger::BackToBack, Trigger::AvailableNow] {
        let mut scene = Scene::new([], Outside::default());
        scene.topic = Arc::new(Topic { room: Some(10), ..Topic::default() });
        scene.topic.push(0..50);
        let (stopper, stop) = stop_pair();
        let query = scene.query(trigger, stop).await;
        let env = query.env.clone();
        let running = env.spawn("query", query.run());
        let began = env.monotonic();
        while scene.outside.rows().len() < 45 {
            assert!(env.monotonic() < began + Duration::from_secs(30), "it waits for ever");
            env.sleep(Duration::from_millis(5)).await;
        }
        stopper.stop();
        assert_eq!(running.join().await.unwrap().rows_in, 50);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_micro_batch_computes_with_the_time_of_its_intent() {
    let scene = Scene::new(0..10, Outside::default());
    let (_stopper, stop) = stop_pair();
    let query = scene.query(Trigger::AvailableNow, stop).await;
    let clock = query.batch_clock.clone();
    query.run().await.unwrap();
    let intent = std::fs::read(scene.directory.path().join("offsets/0")).unwrap();
    let intent = offset_log::Entry::decode(&intent).unwrap();
    assert!(intent.batch_timestamp_ms > 0);
    assert_eq!(clock.us(), intent.batch_timestamp_ms * 1_000);
}

/// Refuses a row of micro-batch 2 when those after it are handed over long since.
struct Refusing;

#[async_trait]
impl Sink for Refusing {
    fn description(&self) -> String {
        "Refusing".to_owned()
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        Ok(None)
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        if output.batch_id != BatchId(2) {
            return Ok(Acknowledgement::Done);
        }
        let refused = async {
            Env::real().sleep(Duration::from_millis(200)).await;
            Err(RefusedRow::new(Refusal::Refused, |_| false).into())
        };
        Ok(Acknowledgement::Later(refused.boxed()))
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_row_is_looked_for_from_the_micro_batch_that_was_not_acknowledged() {
    let mut scene = Scene::new(0..50, Outside::default());
    scene.rows_max = 10;
    let (_stopper, stop) = stop_pair();
    let query = scene.query(Trigger::AvailableNow, stop).await;
    let refusing = several::branch("SELECT v FROM input", Box::new(Refusing)).await;
    let query = Query { branches: Branches::new(vec![refusing]), ..query };
    let failure = query.run().await.unwrap_err().to_string();
    assert!(failure.contains("of Topic from 20 to "), "{failure}");
}

/// A static table of one column, whose rows and fingerprint are what was put there last.
struct Changing(Mutex<Vec<i64>>);

#[async_trait]
impl StaticTable for Changing {
    fn schema(&self) -> SchemaRef {
        schema()
    }

    async fn fingerprint(&self) -> Result<String, Failure> {
        Ok(format!("{:?}", self.0.lock()))
    }

    async fn read(&self) -> Result<Vec<RecordBatch>, Failure> {
        let rows = Int64Array::from(self.0.lock().clone());
        Ok(vec![RecordBatch::try_new(schema(), vec![Arc::new(rows)]).unwrap()])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_table_that_changes_is_read_again() {
    let scene = Scene::new([1, 2], Outside::default());
    let (stopper, stop) = stop_pair();
    let mut query = scene.query(Trigger::BackToBack, stop).await;
    let (table, changing) = (LoadedTable::empty(schema()), Arc::new(Changing(Mutex::new(vec![1]))));
    table.load(Arc::clone(&changing) as Arc<dyn StaticTable>).await.unwrap();
    let slots = Slots::new(2);
    let context = SessionContext::new_with_config(streaming_config());
    let input = StreamTable::new("input".to_owned(), schema(), Arc::clone(&slots));
    context.register_table("input", Arc::new(input)).unwrap();
    context.register_table("known", Arc::clone(&table) as _).unwrap();
    let joined = "SELECT input.v FROM input JOIN known ON input.v = known.v";
    let (state, logical) = context.sql(joined).await.unwrap().into_parts();
    let plan = QueryPlan::new(state, logical, vec![slots]).await.unwrap();
    query.branches = Branches::one(plan, Box::new(OutsideSink(Arc::clone(&scene.outside))));
    query.statics = vec![table];
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    let began = env.monotonic();
    let mut pushed = 0;
    while !scene.outside.rows().contains(&2) {
        assert!(env.monotonic() < began + Duration::from_secs(30), "row 2 stays unknown");
        if scene.outside.rows() == [1] {
            *changing.0.lock() = vec![2];
        }
        scene.topic.push([2]);
        pushed += 1;
        env.sleep(Duration::from_millis(50)).await;
    }
    stopper.stop();
    running.join().await.unwrap();
    let rows = scene.outside.rows();
    assert!(rows[0] == 1 && rows.len() <= pushed + 1, "{rows:?} of {pushed}");
}

/// Keeps where the first source began in each micro-batch.
#[derive(Default)]
struct Starts(Mutex<Vec<Option<SourceOffset>>>);

impl Listener for Starts {
    fn published(&self, progress: &Progress) {
        self.0.lock().push(progress.sources[0].start.clone());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_again_is_reported_with_its_own_start() {
    let mut scene = Scene::new(0..30, Outside::default());
    scene.rows_max = 10;
    scene.run(Trigger::AvailableNow).await.unwrap();
    scene.remove("commits/2");
    scene.topic.push(30..40);
    let (_stopper, stop) = stop_pair();
    let starts = Arc::<Starts>::default();
    let query = scene.query(Trigger::AvailableNow, stop).await;
    Query { listener: Arc::clone(&starts) as _, ..query }.run().await.unwrap();
    assert_eq!(*starts.0.lock(), [20, 30].map(|position| Some(offset_of(position))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_hears_of_its_rows_though_later_entries_are_of_others() {
    let mut scene = Scene::new(0..10, Outside::default());
    scene.tracking = ProgressTracking::Interval(Duration::from_secs(3_600));
    let other = Topic::with([]);
    let ((stopper, stop), context) =
        (stop_pair(), SessionContext::new_with_config(streaming_config()));
    let mut scans = Vec::new();
    for name in ["one", "other"] {
        let slots = Slots::new(2);
        let table = StreamTable::new(name.to_owned(), schema(), Arc::clone(&slots));
        context.register_table(name, Arc::new(table)).unwrap();
        scans.push(slots);
    }
    let both = "SELECT v FROM one UNION ALL SELECT v FROM other";
    let (state, logical) = context.sql(both).await.unwrap().into_parts();
    let plan = QueryPlan::new(state, logical, scans).await.unwrap();
    let query = scene.query(Trigger::BackToBack, stop).await;
    let source = |topic| Box::new(TopicSource::new(topic, 10)) as Box<dyn Source>;
    let query = Query {
        branches: Branches::one(plan, Box::new(OutsideSink(Arc::clone(&scene.outside)))),
        sources: vec![source(&scene.topic), source(&other)],
        watermarks: Watermarks::new(&[None, None], Policy::Min, Idling::default()),
        ..query
    };
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    // The first micro-batch gets its entries at once. Of the others, which give the one source's
    // rows and then the other's, the last stands for both.
    for (topic, rows) in [(&scene.topic, 10), (&scene.topic, 20), (&other, 25)] {
        while scene.outside.rows().len() < rows {
            env.sleep(Duration::from_millis(1)).await;
        }
        topic.push(0..if rows == 10 { 10 } else { 5 });
    }
    while scene.outside.rows().len() < 30 {
        env.sleep(Duration::from_millis(1)).await;
    }
    // Longer than the committer's step.
    env.sleep(Duration::from_millis(50)).await;
    stopper.stop();
    running.join().await.unwrap();
    assert_eq!(scene.topic.committed.lock().last(), Some(&25));
    assert_eq!(other.committed.lock().last(), Some(&5));
}
