//! Queries that begin at a sink which knows another query.

use super::*;
use crate::api::sink::OtherQuery;
use crate::api::source::Beginning;
use crate::driver::start::{Siblings, Start};

const OTHER: &str = "0a1b2c3d-0000-4000-8000-000000000000";

/// A transactional sink, which knows the query [`OTHER`] up to micro-batch 4.
struct Known(OutsideSink);

#[async_trait]
impl Sink for Known {
    fn description(&self) -> String {
        self.0.description()
    }

    fn delivery(&self) -> Delivery {
        self.0.delivery()
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        self.0.open().await
    }

    async fn other_queries(&mut self) -> Result<Vec<OtherQuery>, Failure> {
        let (query_id, flow) = (format!("{OTHER}-second"), Some("pii".to_owned()));
        Ok(vec![OtherQuery { query_id, flow, batch_id: BatchId(4), at_ms: Some(0) }])
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        self.0.publish(output).await
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// A topic whose offsets stand alone, read from its end by a new query.
struct Tail(TopicSource);

#[async_trait]
impl Source for Tail {
    fn description(&self) -> String {
        self.0.description()
    }

    fn schema(&self) -> SchemaRef {
        schema()
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        log: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        self.0.open(position, log).await
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        self.0.replay(start, end).await
    }

    fn beginning(&self) -> Option<Beginning> {
        Some(Beginning { option: "'startingOffsets' = 'latest'".into(), may_skip: true })
    }

    fn offsets_stand_alone(&self) -> bool {
        true
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        self.0.start(position).await
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        self.0.fix_end().await
    }

    fn at_end(&self) -> bool {
        self.0.at_end()
    }

    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        self.0.poll(limit)
    }

    async fn data_available(&mut self) {
        self.0.data_available().await;
    }

    fn committed(&mut self, end: &SourceOffset) {
        self.0.committed(end);
    }

    async fn close(&mut self) {}
}

/// Runs a query over all there is, from a new checkpoint unless `scene` has one.
async fn run(scene: &Scene, start: Start) -> Result<Finished, Failure> {
    let (_stopper, stop) = stop_pair();
    let mut query = scene.query(Trigger::AvailableNow, stop).await;
    if start.adopts {
        // The checkpoint under the other's id.
        drop(query);
        let location = scene.directory.path().to_str().unwrap();
        drop(Checkpoint::open_as(location, OTHER, &Env::real()).await.unwrap());
        let (_stopper, stop) = stop_pair();
        query = scene.query(Trigger::AvailableNow, stop).await;
    }
    let sink = Box::new(Known(OutsideSink(Arc::clone(&scene.outside))));
    query.branches = query.branches.with_sink(sink).beginning(start);
    query.sources = vec![Box::new(Tail(TopicSource::new(&scene.topic, 10)))];
    query.run().await
}

fn scene() -> Scene {
    Scene::new(0..50, Outside::which(Delivery::Transactional))
}

#[tokio::test]
async fn a_new_query_is_refused_where_another_has_published() {
    let scene = scene();
    let refused = run(&scene, Start::default()).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Config);
    let said = refused.to_string();
    for word in [
        OTHER,
        "flow 'pii'",
        "micro-batch 4 of 1970-01-01T00:00:00Z",
        "leave out what came since ('startingOffsets' = 'latest')",
        &format!("--adopt {OTHER}, or with --checkpoint"),
        "'otherQueries' = 'allowed'",
    ] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    assert!(scene.outside.ids().is_empty(), "nothing was published");
}

#[tokio::test]
async fn a_query_that_may_writes_beside_others_and_is_not_asked_again() {
    let scene = scene();
    let beside = Start { is_beside_others: true, ..Start::default() };
    run(&scene, beside).await.unwrap();
    let written = scene.outside.rows();
    assert!(!written.is_empty());
    scene.topic.push(50..60);
    run(&scene, Start::default()).await.unwrap();
    assert!(scene.outside.rows().len() > written.len());
}

#[tokio::test]
async fn queries_of_one_file_know_each_other() {
    let (scene, siblings) = (scene(), Siblings::default());
    siblings.add(OTHER);
    run(&scene, Start { siblings, ..Start::default() }).await.unwrap();
    assert!(!scene.outside.rows().is_empty());
}

#[tokio::test]
async fn a_query_that_is_adopted_goes_on_where_it_stands() {
    let scene = scene();
    run(&scene, Start { is_beside_others: true, ..Start::default() }).await.unwrap();
    let (rows, ids) = (scene.outside.rows(), scene.outside.ids());
    // The same outside, which takes the rows for those of the other query; a new checkpoint.
    let again = Scene {
        directory: tempfile::tempdir().unwrap(),
        topic: Arc::clone(&scene.topic),
        outside: Arc::clone(&scene.outside),
        ..scene
    };
    again.topic.push(50..60);
    run(&again, Start { adopts: true, ..Start::default() }).await.unwrap();
    let expected: Vec<i64> = rows.into_iter().chain((50..60).filter(|v| v % 10 != 9)).collect();
    assert_eq!(again.outside.rows(), expected);
    assert_eq!(again.outside.ids().last(), Some(&(ids.len() as u64)));
    run(&again, Start { adopts: true, ..Start::default() }).await.unwrap();
    assert_eq!(again.outside.rows(), expected, "the flag may stay");
}

#[tokio::test]
async fn only_a_query_that_a_sink_knows_is_adopted() {
    let scene = scene();
    let refused = run(&scene, Start { adopts: true, ..Start::default() }).await.unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("no table that this flow writes to has a record"), "{said}");
}

#[tokio::test]
async fn what_only_the_checkpoint_knows_is_not_adopted() {
    let scene = scene();
    run(&scene, Start { is_beside_others: true, ..Start::default() }).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let location = directory.path().to_str().unwrap();
    drop(Checkpoint::open_as(location, OTHER, &Env::real()).await.unwrap());
    let again = Scene { directory, ..scene };
    let (_stopper, stop) = stop_pair();
    let mut query = again.query(Trigger::AvailableNow, stop).await;
    query.branches = query.branches.beginning(Start { adopts: true, ..Start::default() });
    let said = query.run().await.unwrap_err().to_string();
    assert!(said.contains("the source Topic with a log of its own"), "{said}");
}
