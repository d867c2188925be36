//! Queries with several sinks, crashes in between: each sink has every row of its own once and in
//! order, whatever the others have.

mod catching_up;
mod checked;
mod letters;
mod stopping;

use std::sync::atomic::AtomicU64;

use tokio::sync::oneshot;

use super::*;
use crate::driver::branch::Branch;

/// Numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }
}

/// Counts what the sinks do, and ends them all at a moment.
#[derive(Default)]
struct Moments {
    left: AtomicU64,
}

impl Moments {
    /// Another moment has come; true if the process is gone.
    fn are_over(&self) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err()
    }
}

/// What a sink keeps outside, by micro-batch.
type Kept = Vec<(u64, Vec<i64>, EndOffsets)>;

/// The outside of one sink; outlives the query.
pub(super) struct Place {
    delivery: Delivery,
    /// Micro-batches that are published together; 0 publishes each at once.
    gathered: usize,
    kept: Mutex<Kept>,
}

impl Place {
    pub(super) fn new(delivery: Delivery, gathered: usize) -> Arc<Self> {
        Arc::new(Self { delivery, gathered, kept: Mutex::default() })
    }

    fn rows(&self) -> Vec<i64> {
        self.kept.lock().iter().flat_map(|(_, rows, _)| rows.clone()).collect()
    }
}

struct PlaceSink {
    place: Arc<Place>,
    moments: Arc<Moments>,
    gathered: Vec<oneshot::Sender<i64>>,
    waiting: Kept,
}

impl PlaceSink {
    fn keep(&mut self) -> Result<(), Failure> {
        if self.moments.are_over() {
            return Err(gone());
        }
        self.place.kept.lock().append(&mut self.waiting);
        // The answer may be lost.
        let is_lost = self.moments.are_over();
        for done in self.gathered.drain(..).filter(|_| !is_lost) {
            let _ = done.send(1);
        }
        Ok(())
    }
}

/// The first column, of numbers or of their texts.
fn numbers(rows: &RecordBatch) -> Vec<i64> {
    match rows.column(0).as_string_opt::<i32>() {
        Some(texts) => texts.iter().flatten().map(|text| text.parse().unwrap()).collect(),
        None => rows.column(0).as_primitive::<Int64Type>().values().to_vec(),
    }
}

fn gone() -> Failure {
    Refusal::Gone.into()
}

#[async_trait]
impl Sink for PlaceSink {
    fn description(&self) -> String {
        format!("{:?}", self.place.delivery)
    }

    fn delivery(&self) -> Delivery {
        self.place.delivery
    }

    fn micro_batches_in_flight_max(&self) -> Option<usize> {
        (self.place.gathered > 0).then_some(64)
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        let kept = self.place.kept.lock();
        let last = kept.last().filter(|_| self.place.delivery != Delivery::AtLeastOnce);
        Ok(last.map(|(id, _, end_offsets)| Published {
            batch_id: BatchId(*id),
            end_offsets: (self.place.delivery == Delivery::Transactional)
                .then(|| end_offsets.clone()),
        }))
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let rows: Vec<_> = output.record_batches().flat_map(numbers).collect();
        if self.moments.are_over() {
            return Err(gone());
        }
        if rows.is_empty() && self.place.delivery != Delivery::Idempotent {
            return Ok(Acknowledgement::Done);
        }
        self.waiting.push((output.batch_id.0, rows, output.end_offsets));
        let (done, accepted) = oneshot::channel();
        self.gathered.push(done);
        if self.gathered.len() >= self.place.gathered {
            self.keep()?;
        }
        let accepted = async move { accepted.await.map_err(|_| gone()) };
        Ok(Acknowledgement::Later(accepted.boxed()))
    }

    async fn flush(&mut self) {
        if self.keep().is_err() {
            self.waiting.clear();
        }
        self.gathered.clear();
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

const QUERIES: [&str; 3] = [
    "SELECT v FROM input WHERE v % 10 = 3",
    "SELECT v FROM input",
    "SELECT v FROM input WHERE v % 40 < 20",
];

fn expected(sink: usize, rows: i64) -> Vec<i64> {
    let keeps = |v: &i64| match sink {
        0 => v % 10 == 3,
        1 => true,
        _ => v % 40 < 20,
    };
    (0..rows).filter(keeps).collect()
}

pub(super) async fn branch(query: &str, sink: Box<dyn Sink>) -> Branch {
    let slots = Slots::new(2);
    let context = SessionContext::new_with_config(streaming_config());
    let table = StreamTable::new("input".to_owned(), schema(), Arc::clone(&slots));
    context.register_table("input", Arc::new(table)).unwrap();
    let (state, logical) = context.sql(query).await.unwrap().into_parts();
    Branch { plan: QueryPlan::new(state, logical, vec![slots]).await.unwrap().into(), sink }
}

/// Three sinks of one query, on a checkpoint of their own.
pub(super) struct Several {
    scene: Scene,
    places: Vec<Arc<Place>>,
    /// Whether the last place is for dead letters.
    has_letters: bool,
    moments: Arc<Moments>,
}

impl Several {
    pub(super) fn new(places: Vec<Arc<Place>>) -> Self {
        let scene = Scene::new([], Outside::default());
        Self { scene, places, has_letters: false, moments: Arc::default() }
    }

    /// With sinks of these kinds; `seed` decides how progress is written.
    fn at_random(kinds: &[Delivery], seed: u64, chance: &mut Chance) -> Self {
        let trackings = [ProgressTracking::EveryMicroBatch, SPARSE, ProgressTracking::Blocking];
        let tracking = trackings[seed as usize % 3];
        let can_gather = tracking != ProgressTracking::Blocking;
        let place = |delivery: &Delivery| {
            let gathered = if can_gather { chance.below(6) as usize } else { 0 };
            Place::new(*delivery, if *delivery == Delivery::Transactional { gathered } else { 0 })
        };
        let mut several = Self::new(kinds.iter().map(place).collect());
        several.scene.tracking = tracking;
        several
    }

    /// Adds some rows to the `rows` there are, and gives their number then.
    fn more_rows(&mut self, rows: i64, chance: &mut Chance) -> i64 {
        let more = 20 + chance.below(60) as i64;
        self.scene.topic.push(rows..rows + more);
        self.scene.rows_max = 1 + chance.below(9) as usize;
        rows + more
    }

    fn sink(&self, place: &Arc<Place>) -> Box<dyn Sink> {
        let (place, moments) = (Arc::clone(place), Arc::clone(&self.moments));
        Box::new(PlaceSink { place, moments, gathered: Vec::new(), waiting: Vec::new() })
    }

    fn branch_count(&self) -> usize {
        self.places.len() - usize::from(self.has_letters)
    }

    /// What a place has of the first `rows` numbers.
    fn expected(&self, index: usize, rows: i64) -> Vec<i64> {
        match self.has_letters {
            false => expected(index, rows),
            true if index == self.branch_count() => {
                (0..rows).filter(|v| is_malformed(*v)).collect()
            }
            true => expected(index, rows).into_iter().filter(|v| !is_malformed(*v)).collect(),
        }
    }

    async fn run(&self, moments: u64) -> Result<Finished, Failure> {
        self.moments.left.store(moments, Ordering::Relaxed);
        let (_stopper, stop) = stop_pair();
        let mut branches = Vec::new();
        for (place, query) in self.places[..self.branch_count()].iter().zip(QUERIES) {
            branches.push(branch(query, self.sink(place)).await);
        }
        let query = self.scene.query(Trigger::AvailableNow, stop).await;
        let branches = if self.has_letters {
            Branches::new(branches).with_dead_letters(self.dead_letter_sinks())
        } else {
            Branches::new(branches)
        };
        Query { branches, ..query }.run().await
    }

    /// Takes entries off the ends of the logs, as a crash before they were written would. Entries
    /// that were repaired stay: they are durable before anything else happens.
    fn forget(&self, commits: usize, intents: usize) {
        let ends = logged_ends(&self.scene);
        let taken = ends.windows(2).rev().take(intents).take_while(|two| two[0] != two[1]).count();
        for (log, count) in [("commits", commits.max(taken)), ("offsets", taken)] {
            for id in self.scene.names(log).into_iter().rev().take(count) {
                self.scene.remove(&format!("{log}/{id}"));
            }
        }
    }

    fn assert_all(&self, rows: i64, what: &str) {
        for (index, place) in self.places.iter().enumerate() {
            let mut found = place.rows();
            if place.delivery == Delivery::AtLeastOnce {
                found.sort_unstable();
                found.dedup();
            }
            assert_eq!(found, self.expected(index, rows), "sink {index} of {what}");
            let ids: Vec<u64> = place.kept.lock().iter().map(|(id, ..)| *id).collect();
            let is_ascending = ids.windows(2).all(|two| two[0] < two[1]);
            assert!(is_ascending || place.delivery == Delivery::AtLeastOnce, "{ids:?} of {what}");
        }
    }
}

const SPARSE: ProgressTracking = ProgressTracking::Interval(Duration::from_micros(300));

async fn crash_at_random(kinds: &[Delivery], has_letters: bool, seed: u64) {
    use Delivery::Idempotent;
    let mut chance = Chance(seed);
    let mut several = Several::at_random(kinds, seed, &mut chance);
    several.has_letters = has_letters;
    let mut rows = 0;
    for round in 0..6 {
        rows = several.more_rows(rows, &mut chance);
        let moments = if round == 5 { u64::MAX } else { chance.below(80) };
        let ended = several.run(moments).await;
        // Entries of sparse logs are not to be taken off one log alone: both are written at once.
        let forgotten = chance.below(4) as usize;
        match kinds.contains(&Idempotent) {
            _ if ended.is_ok() => {}
            true => several.forget(forgotten, 0),
            false => several.forget(forgotten, chance.below(3) as usize),
        }
        assert!(round < 5 || ended.is_ok(), "{kinds:?} {seed}: {ended:?}");
    }
    several.assert_all(rows, &format!("{kinds:?}, seed {seed}"));
    let logs = (several.scene.names("offsets"), several.scene.names("commits"));
    assert_eq!(logs.0.last(), logs.1.last(), "{kinds:?}, seed {seed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_at_any_moment_lose_and_double_nothing_in_any_sink() {
    use Delivery::{AtLeastOnce, Idempotent, Transactional};
    let seeds = std::env::var("MILLSTREAM_SEEDS").ok().map(|seeds| seeds.parse().unwrap());
    for seed in 0..seeds.unwrap_or(12) {
        for kinds in [
            [Transactional, Transactional, Transactional],
            [Transactional, Idempotent, Transactional],
            [Transactional, AtLeastOnce, Transactional],
            [AtLeastOnce, Idempotent, AtLeastOnce],
        ] {
            crash_at_random(&kinds, false, seed).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_reading_serves_all_sinks_under_one_number() {
    let places = [Delivery::Transactional; 3].map(|delivery| Place::new(delivery, 0));
    let mut several = Several::new(places.to_vec());
    several.scene.topic.push(0..100);
    several.scene.rows_max = 50;
    let finished = several.run(u64::MAX).await.unwrap();
    let rows_out = (0..3).map(|sink| expected(sink, 100).len() as u64).sum();
    assert_eq!(finished, Finished { micro_batches: 2, rows_in: 100, rows_out });
    several.assert_all(100, "a plain run");
    assert_eq!(several.scene.names("commits"), [0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_added_begins_at_the_last_commit_entry() {
    let places = [Delivery::Transactional; 3].map(|delivery| Place::new(delivery, 0));
    let mut several = Several::new(places[..2].to_vec());
    several.scene.topic.push(0..100);
    several.run(u64::MAX).await.unwrap();
    several.places = places.to_vec();
    several.scene.topic.push(100..200);
    several.run(u64::MAX).await.unwrap();
    let added = expected(2, 200).into_iter().filter(|v| *v >= 100).collect::<Vec<_>>();
    assert_eq!(places[2].rows(), added, "what came after it was added");
    assert_eq!(places[1].rows(), expected(1, 200));
}

/// Looks whether what was published before a crash is in the logs when something new comes.
struct AfterRepairing {
    sink: Box<dyn Sink>,
    commits: std::path::PathBuf,
    first_new: u64,
    has_ended: bool,
}

#[async_trait]
impl Sink for AfterRepairing {
    fn description(&self) -> String {
        self.sink.description()
    }

    fn delivery(&self) -> Delivery {
        self.sink.delivery()
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        let published = self.sink.open().await?;
        self.first_new = published.as_ref().map_or(0, |published| published.batch_id.next().0);
        Ok(published)
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let (id, last) = (output.batch_id.0, self.first_new - 1);
        let is_logged = self.commits.join(last.to_string()).exists();
        assert!(id < self.first_new || is_logged, "{id} comes before {last} is logged");
        assert!(!self.has_ended, "{id} comes after the end");
        self.sink.publish(output).await
    }

    async fn flush(&mut self) {
        self.sink.flush().await;
    }

    async fn end(&mut self, ending: Ending) {
        self.has_ended = true;
        self.sink.end(ending).await;
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_logs_are_repaired_before_anything_new_is_published() {
    // The second sink has caught up when the logs are repaired, or has to catch up first.
    for last_of_second in [9, 6] {
        let places = [Delivery::Transactional; 2].map(|delivery| Place::new(delivery, 0));
        let mut several = Several::new(places.to_vec());
        several.scene.topic.push(0..100);
        several.scene.rows_max = 10;
        several.run(u64::MAX).await.unwrap();
        several.forget(7, 7);
        let second = &several.places[1];
        second.kept.lock().retain(|(id, ..)| *id <= last_of_second);
        several.scene.topic.push(100..150);
        let commits = several.scene.directory.path().join("commits");
        let sink = several.sink(&several.places[0]);
        let first = Box::new(AfterRepairing { sink, commits, first_new: 0, has_ended: false });
        let (_stopper, stop) = stop_pair();
        let branches =
            vec![branch(QUERIES[0], first).await, branch(QUERIES[1], several.sink(second)).await];
        let query = several.scene.query(Trigger::AvailableNow, stop).await;
        Query { branches: Branches::new(branches), ..query }.run().await.unwrap();
        several.assert_all(150, &format!("a second sink that stood at {last_of_second}"));
    }
}

/// Gathers, and is not ready again before it is told so.
struct NeverReady(OutsideSink);

#[async_trait]
impl Sink for NeverReady {
    fn description(&self) -> String {
        "NeverReady".to_owned()
    }

    fn delivery(&self) -> Delivery {
        Delivery::Transactional
    }

    fn micro_batches_in_flight_max(&self) -> Option<usize> {
        Some(64)
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        Ok(None)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        std::future::pending().await
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        self.0.publish(output).await
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Waits until a sink has so many micro-batches; fails if it takes much too long.
async fn until_kept(outside: &Outside, micro_batches: usize, env: &Env) {
    for _ in 0..10_000 {
        if outside.ids().len() >= micro_batches {
            return;
        }
        env.sleep(Duration::from_millis(1)).await;
    }
    panic!("{} of {micro_batches} micro-batches came through", outside.ids().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_gathers_does_not_hold_back_one_that_does_not() {
    let scene = Scene::new(0..10, Outside::which(Delivery::Transactional));
    let release = Arc::new(Notify::new());
    let archive = Arc::new(Outside::which(Delivery::Transactional));
    *archive.hold.lock() = Some((0, Arc::clone(&release)));
    let (stopper, stop) = stop_pair();
    let alerts = OutsideSink(Arc::clone(&scene.outside));
    let branches = vec![
        branch(QUERIES[1], Box::new(alerts)).await,
        branch(QUERIES[1], Box::new(NeverReady(OutsideSink(Arc::clone(&archive))))).await,
    ];
    let query = scene.query(Trigger::BackToBack, stop).await;
    let query = Query { branches: Branches::new(branches), ..query };
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    // More than the 128 that may be in flight of other queries.
    for round in 1..=300 {
        until_kept(&scene.outside, round, &env).await;
        scene.topic.push([round as i64]);
    }
    assert_eq!(scene.names("commits"), [0; 0], "the archive has not acknowledged anything");
    stopper.stop();
    release.notify_one();
    running.join().await.unwrap();
    assert_eq!(scene.names("offsets"), scene.names("commits"));
    assert_eq!(archive.rows(), scene.outside.rows());
}
