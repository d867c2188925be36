//! Writing against a broker made for testing.

use millstream_engine::api::contact::Contacts;
use millstream_engine::api::sink::Acknowledgement;

use super::*;
use crate::brokers::settings::ConnectionSettings;
use crate::protocol::compression::Compression;
use crate::protocol::security::Security;
use crate::sink::testing::broker::{Broker, has};
use crate::sink::testing::rows::rows;

/// Where the attributes, the writer's id and the epoch stand in a record batch.
const ATTRIBUTES_AT: usize = 21;
const WRITER_AT: usize = 43;

fn writer(broker: &Broker) -> ProtocolWriter {
    let env = Env::real();
    let context = WriterContext {
        settings: ProtocolSettings {
            connections: ConnectionSettings {
                servers: vec![broker.address.clone()],
                client: "test".to_owned(),
                security: Security::default(),
                tokens: None,
            },
            timeout: Duration::from_secs(20),
            record_bytes_max: 1_000,
            batch_bytes_max: 200,
            compression: Compression::None,
        },
        patience: Duration::from_secs(20),
        servers: "a:1".to_owned(),
        table: "t".to_owned(),
        topic: None,
        contact: Arc::new(Contacts::untold(env.clone()).with("the broker".to_owned())),
        env,
    };
    let brokers = context.brokers();
    ProtocolWriter::start(context, brokers, None).unwrap()
}

/// Hands rows over as a micro-batch of their own, which takes so many bytes.
fn put(writer: &ProtocolWriter, all: &[(&str, i32, &str)], bytes: usize) -> Acknowledgement {
    let (pending, acknowledgement) = Pending::new(&Env::real());
    writer.put(rows(all), bytes, &pending);
    acknowledgement
}

async fn outcome(acknowledgement: Acknowledgement) -> Result<(), String> {
    let Acknowledgement::Later(later) = acknowledgement else { panic!("it is never done at once") };
    later.await.map(drop).map_err(|error| error.to_string())
}

/// Rows leave the count a moment after they are acknowledged.
fn nothing_is_in_flight(writer: &ProtocolWriter) {
    for _ in 0..1_000 {
        if writer.in_flight() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} rows are still in flight", writer.in_flight());
}

fn number(batch: &[u8]) -> i64 {
    i64::from_be_bytes(batch[WRITER_AT..WRITER_AT + 8].try_into().unwrap())
}

#[tokio::test]
async fn micro_batches_go_on_where_the_one_before_has_ended() {
    let broker = Broker::start();
    let writer = writer(&broker);
    for text in ["first", "second"] {
        let all = [("a", 0, text), ("a", 0, text), ("b", 1, text)];
        outcome(put(&writer, &all, 100)).await.unwrap();
    }
    let asked = broker.asked.lock();
    let mut places: Vec<_> =
        asked.batches.iter().map(|batch| (batch.0.as_str(), batch.1, batch.2)).collect();
    // In which order a request has its topics is nobody's business.
    places.sort_by_key(|place| place.0);
    assert_eq!(places, [("a", 0, 0), ("a", 0, 2), ("b", 1, 0), ("b", 1, 1)]);
    for (_, _, _, bytes) in &asked.batches {
        assert_eq!((number(bytes), bytes[ATTRIBUTES_AT + 1] & 0x10), (1, 0), "no transaction");
    }
    assert_eq!(asked.writers, 1);
    nothing_is_in_flight(&writer);
}

#[tokio::test]
async fn a_writer_that_is_forgotten_is_followed_by_another() {
    // OUT_OF_ORDER_SEQUENCE_NUMBER and UNKNOWN_PRODUCER_ID.
    for code in [45, 59] {
        let broker = Broker::start();
        let writer = writer(&broker);
        outcome(put(&writer, &[("a", 0, "first"), ("b", 0, "first")], 100)).await.unwrap();
        broker.asked.lock().codes.push_back(("a".to_owned(), code));
        outcome(put(&writer, &[("a", 0, "second"), ("b", 0, "second")], 100)).await.unwrap();
        let asked = broker.asked.lock();
        let seconds = asked.batches.iter().filter(|batch| has(batch, "second"));
        let seconds: Vec<_> =
            seconds.map(|batch| (batch.0.as_str(), number(&batch.3), batch.2)).collect();
        // What the answer says of the other topic counts, so that it is not written again.
        assert_eq!(seconds, [("b", 1, 1), ("a", 2, 0)], "{code}");
    }
}

#[tokio::test]
async fn rows_whose_answer_is_lost_go_out_again_under_the_same_numbers() {
    let broker = Broker::start();
    let writer = writer(&broker);
    outcome(put(&writer, &[("a", 0, "first")], 100)).await.unwrap();
    broker.asked.lock().lost = 2;
    outcome(put(&writer, &[("a", 0, "second")], 100)).await.unwrap();
    let asked = broker.asked.lock();
    let places: Vec<_> = asked.batches.iter().map(|batch| (number(&batch.3), batch.2)).collect();
    assert_eq!(places, [(1, 0), (1, 1)]);
}

#[tokio::test]
async fn after_a_refused_row_nothing_counts_as_written() {
    let broker = Broker::start();
    let writer = writer(&broker);
    // MESSAGE_TOO_LARGE.
    broker.asked.lock().codes.push_back(("a".to_owned(), 10));
    let refused = put(&writer, &[("a", 0, "first")], TOGETHER_BYTES_MAX);
    let queued = put(&writer, &[("a", 0, "second")], TOGETHER_BYTES_MAX);
    assert!(outcome(refused).await.unwrap_err().contains("too large"));
    assert!(outcome(queued).await.unwrap_err().contains("was not published"));
    let late = put(&writer, &[("a", 0, "third")], 100);
    assert!(outcome(late).await.unwrap_err().contains("was not published"));
    assert!(broker.asked.lock().batches.is_empty());
    nothing_is_in_flight(&writer);
}

#[tokio::test]
async fn a_writer_that_ends_while_brokers_are_away_does_not_wait_for_them() {
    let broker = Broker::start();
    let writer = writer(&broker);
    broker.asked.lock().lost = u32::MAX;
    let stuck = put(&writer, &[("a", 0, "first")], TOGETHER_BYTES_MAX);
    let queued = put(&writer, &[("a", 0, "second")], TOGETHER_BYTES_MAX);
    let env = Env::real();
    let begun = env.monotonic();
    drop(writer);
    assert!(env.monotonic() - begun < Duration::from_secs(10));
    assert!(outcome(stuck).await.is_err());
    assert!(outcome(queued).await.is_err());
}
