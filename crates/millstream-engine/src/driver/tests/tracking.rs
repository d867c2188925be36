//! What the logs hold, and when: asynchronous tracking, whose entries come now and then, and
//! blocking tracking, which waits for each.

use super::*;

/// Runs five micro-batches of ten rows each with entries only now and then, and stops. Gives the
/// entries there were before the stop.
async fn five_tracked_sparsely(scene: &mut Scene) -> (Vec<u64>, Vec<u64>) {
    scene.tracking = ProgressTracking::Interval(Duration::from_secs(3_600));
    scene.rows_max = 10;
    let (stopper, stop) = stop_pair();
    let query = scene.query(Trigger::BackToBack, stop).await;
    let env = query.env.clone();
    let before = scene.outside.ids().len();
    let running = env.spawn("query", query.run());
    while scene.outside.ids().len() < before + 5 {
        env.sleep(Duration::from_millis(1)).await;
    }
    while scene.names("commits").is_empty() {
        env.sleep(Duration::from_millis(1)).await;
    }
    // Longer than the committer's step: another entry would be there.
    env.sleep(Duration::from_millis(50)).await;
    let entries = (scene.names("offsets"), scene.names("commits"));
    stopper.stop();
    running.join().await.unwrap();
    entries
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_tracking_logs_the_first_and_the_last() {
    let mut scene = Scene::new(0..50, Outside::default());
    let running = five_tracked_sparsely(&mut scene).await;
    assert_eq!(running, (vec![0], vec![0]), "while it runs");
    let stopped = (scene.names("offsets"), scene.names("commits"));
    assert_eq!(stopped, (vec![0, 4], vec![0, 4]), "once it is stopped");

    scene.topic.push(50..60);
    scene.tracking = ProgressTracking::EveryMicroBatch;
    scene.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(scene.outside.rows(), kept(0..60), "nothing is repeated, in the other mode either");
    assert_eq!(scene.names("commits"), [0, 4, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_asynchronous_tracking_repeats_what_has_no_entries() {
    let mut scene = Scene::new(0..50, Outside::default());
    five_tracked_sparsely(&mut scene).await;
    scene.remove("offsets/4");
    scene.remove("commits/4");
    scene.run(Trigger::AvailableNow).await.unwrap();
    let expected: Vec<i64> = kept(0..50).into_iter().chain(kept(10..50)).collect();
    assert_eq!(scene.outside.rows(), expected, "everything since the entry that is there");

    // Spark's form of it: an intent without commit covers all since the one before.
    let mut scene = Scene::new(0..50, Outside::default());
    five_tracked_sparsely(&mut scene).await;
    scene.remove("commits/4");
    scene.run(Trigger::AvailableNow).await.unwrap();
    assert_eq!(scene.outside.accepted.lock().last(), Some(&(4, kept(10..50))));
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_tracking_logs_an_idle_query_when_it_is_due() {
    let mut scene = Scene::new(0..20, Outside::default());
    (scene.rows_max, scene.tracking) = (10, ProgressTracking::Interval(Duration::from_millis(40)));
    let (stopper, stop) = stop_pair();
    let query = scene.query(Trigger::BackToBack, stop).await;
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    while scene.names("commits") != [0, 1] {
        env.sleep(Duration::from_millis(1)).await;
    }
    stopper.stop();
    running.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_leaves_entries_of_what_was_published() {
    let mut scene = Scene::new(0..50, Outside::default());
    (scene.rows_max, scene.tracking) = (10, ProgressTracking::Interval(Duration::from_secs(9)));
    *scene.outside.refuse.lock() = Some(3);
    let (_stopper, stop) = stop_pair();
    scene.query(Trigger::BackToBack, stop).await.run().await.unwrap_err();
    assert_eq!((scene.names("offsets"), scene.names("commits")), (vec![0, 2], vec![0, 2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_logging_takes_one_micro_batch_after_the_other() {
    let mut scene = Scene::new(0..50, Outside::default());
    (scene.rows_max, scene.tracking) = (10, ProgressTracking::Blocking);
    let release = Arc::new(Notify::new());
    *scene.outside.hold.lock() = Some((1, Arc::clone(&release)));
    let (_stopper, stop) = stop_pair();
    let query = scene.query(Trigger::AvailableNow, stop).await;
    let env = query.env.clone();
    let running = env.spawn("query", query.run());
    while scene.outside.ids().len() < 2 {
        env.sleep(Duration::from_millis(1)).await;
    }
    env.sleep(Duration::from_millis(30)).await;
    assert_eq!(scene.outside.ids(), [0, 1], "the next one waits for the acknowledgement");
    assert_eq!((scene.names("offsets"), scene.names("commits")), (vec![0, 1], vec![0]));
    release.notify_one();
    running.join().await.unwrap();
    assert_eq!(scene.outside.rows(), kept(0..50));
    assert_eq!(scene.names("commits"), [0, 1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_purge_leaves_as_many_entries_as_asked_for() {
    let mut scene = Scene::new(0..300, Outside::default());
    (scene.rows_max, scene.tracking) = (2, ProgressTracking::Blocking);
    scene.purge = PurgeTime::WhenCalled;
    scene.run(Trigger::AvailableNow).await.unwrap();
    let expected: Vec<u64> = (49..150).collect();
    assert_eq!((scene.names("offsets"), scene.names("commits")), (expected.clone(), expected));
}

/// Keeps when each micro-batch comes, on the monotonic clock.
struct TimedSink(OutsideSink, Env, Arc<Mutex<Vec<Duration>>>);

#[async_trait]
impl Sink for TimedSink {
    fn description(&self) -> String {
        self.0.description()
    }

    fn delivery(&self) -> Delivery {
        self.0.delivery()
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        self.0.open().await
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        self.2.lock().push(self.1.monotonic());
        self.0.publish(output).await
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_logging_waits_until_the_commit_entry_is_written() {
    const PUT: Duration = Duration::from_millis(100);
    let mut scene = Scene::new(0..30, Outside::default());
    (scene.rows_max, scene.tracking) = (10, ProgressTracking::Blocking);
    let ((_stopper, stop), env) = (stop_pair(), Env::real());
    let storage = Storage::in_memory_with_put_latency(&env, PUT);
    let checkpoint = Checkpoint::open_in(storage, &env).await.unwrap();
    let times = Arc::<Mutex<Vec<Duration>>>::default();
    let outside = OutsideSink(Arc::clone(&scene.outside));
    let sink = Box::new(TimedSink(outside, env, Arc::clone(&times)));
    let branches = Branches::new(vec![several::branch("SELECT v FROM input", sink).await]);
    let query = scene.query(Trigger::AvailableNow, stop).await;
    Query { branches, checkpoint, ..query }.run().await.unwrap();
    let times = times.lock().clone();
    assert_eq!(times.len(), 3);
    // The commit entry of the one before, and then the own intent.
    assert!(times.windows(2).all(|two| two[1] - two[0] >= 2 * PUT), "{times:?}");
}
