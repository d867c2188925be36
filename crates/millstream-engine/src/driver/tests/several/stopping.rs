//! A run that is asked to stop while a sink is away ends.

use super::*;

/// A sink whose outside is away: it has no room, or it answers only when the run ends.
#[derive(Default)]
struct Away {
    has_room: bool,
    gathers: bool,
    waiting: Vec<oneshot::Sender<i64>>,
    endings: Arc<Mutex<Vec<Ending>>>,
}

#[async_trait]
impl Sink for Away {
    fn description(&self) -> String {
        "Away".to_owned()
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }

    fn micro_batches_in_flight_max(&self) -> Option<usize> {
        self.gathers.then_some(64)
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        Ok(None)
    }

    async fn room(&mut self) -> Result<(), Failure> {
        if !self.has_room {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn publish(&mut self, _: Output) -> Result<Acknowledgement, Failure> {
        self.room().await?;
        let (done, accepted) = oneshot::channel();
        self.waiting.push(done);
        let accepted = async move { accepted.await.map_err(|_| gone()) };
        Ok(Acknowledgement::Later(accepted.boxed()))
    }

    async fn end(&mut self, ending: Ending) {
        self.endings.lock().push(ending);
        if ending == Ending::Stopped {
            for done in self.waiting.drain(..) {
                let _ = done.send(1);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// The run of `query`, which is asked to stop after a moment.
async fn stopped(query: Query, stopper: stop::Stopper) -> Finished {
    let env = query.env.clone();
    let asking = env.spawn("stop", {
        let env = env.clone();
        async move {
            env.sleep(Duration::from_millis(200)).await;
            stopper.stop();
        }
    });
    let finished = tokio::select! {
        finished = query.run() => finished.unwrap(),
        () = env.sleep(Duration::from_secs(60)) => panic!("the run does not end"),
    };
    asking.join().await;
    finished
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_without_room_beside_one_that_does_not_gather_does_not_hold_up_a_stop() {
    let scene = Scene::new(0..10, Outside::default());
    let (stopper, stop) = stop_pair();
    let away = Away { gathers: true, ..Away::default() };
    let branches = vec![
        branch(QUERIES[1], Box::new(OutsideSink(Arc::clone(&scene.outside)))).await,
        branch(QUERIES[1], Box::new(away)).await,
    ];
    let query = scene.query(Trigger::BackToBack, stop).await;
    let finished = stopped(Query { branches: Branches::new(branches), ..query }, stopper).await;
    assert_eq!(finished, Finished::default(), "nothing is taken before there is room for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_only_when_the_run_is_stopped_ends_it() {
    let complete = (Trigger::AvailableNow, vec![Ending::Complete, Ending::Stopped]);
    let endless = (Trigger::BackToBack, vec![Ending::Stopped]);
    for tracking in [ProgressTracking::EveryMicroBatch, ProgressTracking::Blocking] {
        for (trigger, wanted) in [complete.clone(), endless.clone()] {
            let mut scene = Scene::new(0..10, Outside::default());
            scene.tracking = tracking;
            let (stopper, stop) = stop_pair();
            let away = Away { has_room: true, ..Away::default() };
            let endings = Arc::clone(&away.endings);
            let branches = vec![branch(QUERIES[1], Box::new(away)).await];
            let query = scene.query(trigger, stop).await;
            let query = Query { branches: Branches::new(branches), ..query };
            let finished = stopped(query, stopper).await;
            assert_eq!(finished.rows_out, 10, "{tracking:?}");
            assert_eq!(scene.names("commits"), [0], "{tracking:?}");
            let endings = endings.lock().clone();
            let is_blocking = tracking == ProgressTracking::Blocking;
            assert!(endings == wanted || is_blocking, "{tracking:?}: {endings:?}");
        }
    }
}
