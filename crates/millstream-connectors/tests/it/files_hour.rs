//! An hour of a small stream into a directory, in time that is moved by the test.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::future::BoxFuture;
use millstream_engine::api::connector::FlowContext;
use millstream_engine::api::sink::{BatchId, EndOffsets, Output};
use millstream_store::env::{Clock, Env, SeededRng};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::support::{connector, context, names, table};

const ROWS_PER_SECOND: i64 = 200;
/// Long enough that a debug build is done with an hour in seconds.
const STEP: Duration = Duration::from_millis(200);
const START_US: i64 = 1_767_225_600_000_000;

/// A clock that stands still until it is moved.
#[derive(Clone, Default)]
struct MovedClock {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    now: Duration,
    sleepers: Vec<(Duration, oneshot::Sender<()>)>,
}

impl MovedClock {
    fn advance(&self, step: Duration) {
        let mut state = self.state.lock();
        state.now += step;
        let now = state.now;
        // Those who wake up, and those who have stopped waiting, leave.
        state.sleepers.retain(|(until, sleeper)| *until > now && !sleeper.is_closed());
    }
}

impl Clock for MovedClock {
    fn now_us(&self) -> i64 {
        START_US + i64::try_from(self.state.lock().now.as_micros()).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.state.lock().now
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let (sleeper, woken) = oneshot::channel();
        let mut state = self.state.lock();
        let until = state.now + duration;
        if until > state.now {
            state.sleepers.push((until, sleeper));
        }
        Box::pin(async move {
            // The end of a sleep is that its sender is dropped.
            let _ = woken.await;
        })
    }
}

#[derive(Debug)]
struct Use {
    data_files: usize,
    data_bytes: u64,
    metadata_files: usize,
    metadata_bytes: u64,
    /// In blocks of 4 KB, as a file system has it.
    data_on_disk: u64,
    metadata_on_disk: u64,
}

fn measure(out: &Path) -> Use {
    let sizes = |directory: &Path, prefix: &str| -> Vec<u64> {
        let names = names(directory).into_iter().filter(|name| name.starts_with(prefix));
        names.map(|name| fs::metadata(directory.join(name)).unwrap().len()).collect()
    };
    let on_disk = |sizes: &[u64]| sizes.iter().map(|size| size.div_ceil(4_096) * 4_096).sum();
    let data = sizes(out, "part-");
    let manifest = sizes(&out.join("_spark_metadata"), "");
    let records = sizes(&out.join("_millstream/commits"), "");
    let metadata = [manifest, records].concat();
    Use {
        data_files: data.len(),
        data_bytes: data.iter().sum(),
        metadata_files: metadata.len(),
        metadata_bytes: metadata.iter().sum(),
        data_on_disk: on_disk(&data),
        metadata_on_disk: on_disk(&metadata),
    }
}

fn rows(from: i64, count: i64) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + count));
    RecordBatch::try_from_iter_with_nullable([("n", column, true)]).unwrap()
}

/// Writes for `hours`, with a restart after each; gives what there is after each of them.
async fn run(format: &str, base: &Path, hours: usize) -> Vec<Use> {
    let clock = MovedClock::default();
    let env = Env::new(Arc::new(clock.clone()), Arc::new(SeededRng::new(7)));
    let context = FlowContext { env: env.clone(), ..context(base) };
    let table = table(None, &[("path", "out")]);
    let schema = rows(0, 0).schema();
    let per_step = ROWS_PER_SECOND * i64::try_from(STEP.as_millis()).unwrap() / 1_000;
    let steps = 3_600_000 / STEP.as_millis();
    let (mut batch_id, mut uses) = (0, Vec::new());
    for _ in 0..hours {
        let mut sink = connector(format, base).sink(&table, &schema, &context).unwrap();
        let last = sink.open().await.unwrap().map(|published| published.batch_id.0);
        assert_eq!(last, u64::checked_sub(batch_id, 1), "it goes on where it stopped");
        for _ in 0..steps {
            let from = i64::try_from(batch_id).unwrap() * per_step;
            let output = Output {
                batch_id: BatchId(batch_id),
                partitions: vec![vec![rows(from, per_step)]],
                end_offsets: EndOffsets::default(),
            };
            batch_id += 1;
            sink.ready().await.unwrap();
            sink.publish(output).await.unwrap();
            clock.advance(STEP);
        }
        sink.close().await.unwrap();
        uses.push(measure(&base.join("out")));
    }
    uses
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_of_small_rows_costs_little_metadata() {
    for format in ["json", "csv"] {
        let base = tempfile::tempdir().unwrap();
        let uses = run(format, base.path(), 2).await;
        for (hour, now) in uses.iter().enumerate() {
            println!("{format}, hour {}: {now:?}", hour + 1);
            assert!(now.metadata_bytes * 20 <= now.data_bytes, "{format}: {now:?}");
            assert!(now.metadata_on_disk * 5 <= now.data_on_disk, "{format}: {now:?}");
            assert!(now.data_files <= 3_600 * (hour + 1), "{format}: {now:?}");
            assert!(now.metadata_files <= now.data_files, "{format}: {now:?}");
        }
        let growth = uses[1].metadata_bytes as f64 / uses[0].metadata_bytes as f64;
        assert!(growth < 2.5, "{format}: metadata grows faster than data, {growth} times");
    }
}
