//! What the log writer does at the same time, and what never.

use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::Env;
use millstream_store::log_writer::{LogWriter, Settings, Ticket};
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::storage::Durability;
use millstream_store::{commit_log, offset_log};

use crate::faulty_store;

async fn intent(writer: &LogWriter, id: u64) -> Ticket {
    let entry = offset_log::Entry {
        batch_watermark_ms: 0,
        batch_timestamp_ms: i64::try_from(id).expect("a small id"),
        conf: Vec::new(),
        offsets: vec![Some(SourceOffset::new("1"))],
    };
    writer.intent(BatchId(id), entry, Durability::Process).await
}

async fn commit(writer: &LogWriter, id: u64) -> Ticket {
    writer.commit(BatchId(id), commit_log::Entry::default()).await
}

fn is_pending<T>(future: impl Future<Output = T>) -> bool {
    futures::FutureExt::now_or_never(future).is_none()
}

#[tokio::test]
async fn a_commit_entry_and_the_next_intent_travel_together() {
    let (store, storage) = faulty_store::storage();
    let env = Env::real();
    let checkpoint = Checkpoint::open_in(storage, &env).await.expect("opened");
    let writer = LogWriter::start(&checkpoint, &env, Settings::default());
    for name in ["offsets/0", "offsets/1", "commits/0"] {
        store.hold(name);
    }
    let tickets = [intent(&writer, 0).await, commit(&writer, 0).await, intent(&writer, 1).await];
    store.has_begun("offsets/0").await;
    tokio::task::yield_now().await;
    assert_eq!(store.begun(), ["metadata", "offsets/0"], "nothing overtakes an intent");
    assert!(is_pending(tickets[0].clone().written()));

    store.release("offsets/0");
    store.has_begun("offsets/1").await;
    store.has_begun("commits/0").await;
    tickets[0].clone().written().await.expect("written");
    assert!(is_pending(tickets[1].clone().written()) && is_pending(tickets[2].clone().written()));

    store.release("offsets/1");
    tickets[2].clone().written().await.expect("written");
    assert!(is_pending(tickets[1].clone().written()));
    let last = commit(&writer, 1).await;
    store.release("commits/0");
    last.written().await.expect("written");
    writer.close().await.expect("written");
    let mut begun = store.begun();
    begun[2..4].sort();
    assert_eq!(begun, ["metadata", "offsets/0", "commits/0", "offsets/1", "commits/1"]);
}

#[tokio::test]
async fn slow_storage_makes_the_caller_wait() {
    let (store, storage) = faulty_store::storage();
    let env = Env::real();
    let checkpoint = Checkpoint::open_in(storage, &env).await.expect("opened");
    let settings = Settings { in_flight_max: 2, ..Settings::default() };
    let writer = LogWriter::start(&checkpoint, &env, settings);
    store.hold("offsets/0");
    intent(&writer, 0).await;
    intent(&writer, 1).await;
    assert!(is_pending(intent(&writer, 2)), "two are in flight");
    store.release("offsets/0");
    intent(&writer, 2).await.written().await.expect("written");
}

#[tokio::test]
async fn a_failure_wakes_everybody() {
    let (store, storage) = faulty_store::storage();
    let env = Env::real();
    let checkpoint = Checkpoint::open_in(storage, &env).await.expect("opened");
    let settings = Settings { in_flight_max: 1, ..Settings::default() };
    let writer = LogWriter::start(&checkpoint, &env, settings);
    store.hold("offsets/0");
    let first = intent(&writer, 0).await;
    let waiting = async {
        let second = intent(&writer, 1).await;
        second.written().await
    };
    let fail = async {
        store.has_begun("offsets/0").await;
        store.set_fault(Some(faulty_store::Fault::Network));
        store.release("offsets/0");
    };
    let (second, ()) = tokio::join!(waiting, fail);
    let failure = writer.failure().expect("failed");
    assert_eq!(first.written().await, Err((*failure).clone()));
    assert_eq!(second, Err((*failure).clone()));
    store.set_fault(None);
    assert!(commit(&writer, 0).await.written().await.is_err(), "a failure is for good");
    assert_eq!(store.begun(), ["metadata", "offsets/0"]);
}

/// The driver moves tickets and the writer between tasks.
#[test]
fn writer_and_tickets_can_be_sent() {
    fn sent<T: Send + Sync + 'static>() {}
    fn future<T: Send>(_: impl FnOnce(LogWriter, Ticket) -> T) {}
    sent::<LogWriter>();
    sent::<Checkpoint>();
    future(|_, ticket| ticket.written());
    future(|writer, _| writer.close());
}
