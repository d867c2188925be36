//! What sinks that stand apart get at a restart, and what waits until they have it.

use std::path::PathBuf;

use super::*;

/// A query with two sinks that take every row, one micro-batch for ten rows.
struct Pair {
    scene: Scene,
    sinks: [Arc<Outside>; 2],
}

impl Pair {
    /// After a run of ten micro-batches.
    async fn after_ten() -> Self {
        let mut scene = Scene::new(0..100, Outside::default());
        scene.rows_max = 10;
        let sinks = [Delivery::Transactional; 2].map(|delivery| Arc::new(Outside::which(delivery)));
        let pair = Self { scene, sinks };
        pair.run().await.unwrap();
        pair
    }

    async fn run(&self) -> Result<Finished, Failure> {
        let (_stopper, stop) = stop_pair();
        self.query(stop).await.run().await
    }

    async fn query(&self, stop: Stop) -> Query {
        let mut branches = Vec::new();
        for sink in &self.sinks {
            branches.push(branch(QUERIES[1], Box::new(OutsideSink(Arc::clone(sink)))).await);
        }
        let query = self.scene.query(Trigger::AvailableNow, stop).await;
        Query { branches: Branches::new(branches), ..query }
    }

    /// As a crash leaves it after which the logs end with `commit` and have the intents `intents`
    /// besides, and the sinks with `last`.
    fn cut(&self, commit: u64, intents: &[u64], last: [u64; 2]) {
        for id in self.scene.names("commits").into_iter().filter(|id| *id > commit) {
            self.scene.remove(&format!("commits/{id}"));
            if !intents.contains(&id) {
                self.scene.remove(&format!("offsets/{id}"));
            }
        }
        for (sink, last) in self.sinks.iter().zip(last) {
            let mut accepted = sink.accepted.lock();
            accepted.retain(|(id, _)| *id <= last);
            sink.end_offsets.lock().truncate(accepted.len());
        }
    }

    /// Runs, and looks with `look` when the second sink has got micro-batch `id` and has not
    /// acknowledged it yet.
    async fn run_held_at(&self, id: u64, look: impl FnOnce(&Self)) {
        let release = Arc::new(Notify::new());
        *self.sinks[1].hold.lock() = Some((id, Arc::clone(&release)));
        let (_stopper, stop) = stop_pair();
        let query = self.query(stop).await;
        let env = query.env.clone();
        let running = env.spawn("query", query.run());
        let began = env.monotonic();
        while !self.sinks[1].ids().contains(&id) {
            assert!(env.monotonic() < began + Duration::from_secs(30), "{:?}", self.sinks[1].ids());
            env.sleep(Duration::from_millis(1)).await;
        }
        // Several steps of the committer.
        env.sleep(Duration::from_millis(100)).await;
        look(self);
        release.notify_one();
        running.join().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_entry_waits_for_the_last_sink_that_repeats_its_micro_batch() {
    let pair = Pair::after_ten().await;
    // The sinks stand apart, so each repeats the last intent from a place of its own.
    pair.cut(4, &[9], [6, 2]);
    let look = |pair: &Pair| {
        assert_eq!(pair.sinks[0].ids().last(), Some(&9), "the first sink has it");
        assert_eq!(pair.scene.names("commits"), [0, 1, 2, 3, 4], "the second has not");
    };
    pair.run_held_at(9, look).await;
    assert_eq!(pair.scene.names("commits"), [0, 1, 2, 3, 4, 9]);
    assert_eq!(pair.sinks[0].rows(), Vec::from_iter(0..100));
    // Micro-batches 3 and 4 are committed, so the second sink is known to have had no rows there.
    assert_eq!(pair.sinks[1].rows(), Vec::from_iter((0..30).chain(50..100)));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_new_is_published_before_all_sinks_have_caught_up() {
    let sparse = ProgressTracking::Interval(Duration::from_secs(3_600));
    for tracking in [ProgressTracking::EveryMicroBatch, sparse] {
        let mut pair = Pair::after_ten().await;
        pair.cut(3, &[4, 5], [9, 3]);
        (pair.scene.tracking, pair.scene.rows_max) = (tracking, 1_000);
        pair.scene.topic.push(100..110);
        pair.scene.topic.committed.lock().clear();
        let look = |pair: &Pair| {
            assert_eq!(pair.sinks[0].ids().last(), Some(&9), "{tracking:?}");
        };
        pair.run_held_at(9, look).await;
        for sink in &pair.sinks {
            assert_eq!(sink.rows(), Vec::from_iter(0..110), "{tracking:?}");
        }
        let all = Vec::from_iter(0..=10);
        assert_eq!((pair.scene.names("offsets"), pair.scene.names("commits")), (all.clone(), all));
        let committed = pair.scene.topic.committed.lock().clone();
        assert!(committed.is_sorted(), "{tracking:?}: {committed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_gathers_publishes_what_it_catches_up_with() {
    let places = [0, 64].map(|gathered| Place::new(Delivery::Transactional, gathered));
    let mut several = Several::new(places.to_vec());
    several.scene.topic.push(0..100);
    several.scene.rows_max = 10;
    several.run(u64::MAX).await.unwrap();
    several.forget(7, 7);
    several.places[1].kept.lock().retain(|(id, ..)| *id <= 6);
    several.scene.topic.push(100..150);
    let env = Env::real();
    tokio::select! {
        outcome = several.run(u64::MAX) => outcome.map(drop).unwrap(),
        () = env.sleep(Duration::from_secs(30)) => panic!("the query waits for what it holds back"),
    }
    several.assert_all(150, "a sink that gathers");
}

/// Is opened when another process has just ended, which has written these files of the checkpoint
/// since the logs were read: where they are, and where they belong.
struct Overtaken(OutsideSink, Vec<(PathBuf, PathBuf)>);

#[async_trait]
impl Sink for Overtaken {
    fn description(&self) -> String {
        self.0.description()
    }

    fn delivery(&self) -> Delivery {
        self.0.delivery()
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        for (from, to) in self.1.drain(..) {
            std::fs::rename(from, to).unwrap();
        }
        self.0.open().await
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        self.0.publish(output).await
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_process_logged_while_the_query_started_is_read_again() {
    let mut scene = Scene::new(0..100, Outside::which(Delivery::Idempotent));
    scene.rows_max = 10;
    scene.run(Trigger::AvailableNow).await.unwrap();
    let (aside, mut moved) = (tempfile::tempdir().unwrap(), Vec::new());
    for (log, id) in ["offsets", "commits"].into_iter().flat_map(|log| [8, 9].map(|id| (log, id))) {
        let there = scene.directory.path().join(format!("{log}/{id}"));
        let away = aside.path().join(format!("{log}-{id}"));
        std::fs::rename(&there, &away).unwrap();
        moved.push((away, there));
    }
    scene.topic.push(100..110);
    let (_stopper, stop) = stop_pair();
    let sink = Overtaken(OutsideSink(Arc::clone(&scene.outside)), moved);
    let branches =
        Branches::new(vec![branch("SELECT v FROM input WHERE v % 10 <> 9", Box::new(sink)).await]);
    let query = scene.query(Trigger::AvailableNow, stop).await;
    Query { branches, ..query }.run().await.unwrap();
    assert_eq!(scene.outside.rows(), kept(0..110));
    assert_eq!(scene.outside.ids(), Vec::from_iter(0..=10));
}
