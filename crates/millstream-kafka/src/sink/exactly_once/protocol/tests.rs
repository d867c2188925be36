//! Transactions against a broker made for testing.

use futures::future::BoxFuture;
use millstream_engine::api::contact::Contacts;
use millstream_store::env::{Clock, SeededRng};

use super::*;
use crate::brokers::settings::ConnectionSettings;
use crate::brokers::throttling::Throttling;
use crate::protocol::compression::Compression;
use crate::protocol::security::Security;
use crate::sink::testing::broker::{Asked, Broker, has};
use crate::sink::testing::rows::content;

fn client(broker: &Broker) -> ProtocolClient {
    client_of(&[broker])
}

/// A client that knows several brokers and asks the first of them first.
fn client_of(brokers: &[&Broker]) -> ProtocolClient {
    let env = Env::real();
    let origin = Origin {
        query: "q".to_owned(),
        flow: "flow".to_owned(),
        topic: None,
        table: "t".to_owned(),
    };
    ProtocolClient {
        id: "id".to_owned(),
        record_topic: "records".to_owned(),
        topic: None,
        origin: Arc::new(origin),
        contact: Arc::new(Contacts::untold(env.clone()).with("the broker".to_owned())),
        timeout: Duration::from_secs(20),
        limits: Limits { record_bytes: 1_000, batch_bytes: 200, compression: Compression::None },
        writer: ProducerIdentity { id: 7, epoch: 1 },
        brokers: Brokers::new(
            ConnectionSettings {
                servers: brokers.iter().map(|broker| broker.address.clone()).collect(),
                client: "test".to_owned(),
                security: Security::default(),
                tokens: None,
            },
            Arc::new(Throttling::new("t")),
            env.clone(),
        ),
        env,
        begun: Duration::ZERO,
        refused_after: None,
    }
}

#[test]
fn a_transaction_has_its_rows_and_its_record_and_is_committed() {
    let broker = Broker::start();
    let mut client = client(&broker);
    for epoch in [2, 3] {
        client.fill(&content(&[("a", 1, "first"), ("b", 1, "second")])).unwrap();
        client.commit().unwrap();
        assert_eq!(client.writer, ProducerIdentity { id: 7, epoch }, "the brokers' answer");
        let Asked { batches, ends, .. } = std::mem::take(&mut *broker.asked.lock());
        assert_eq!(ends, [true]);
        let places: Vec<_> = batches.iter().map(|batch| (batch.0.as_str(), batch.1)).collect();
        assert_eq!(places, [("a", 1), ("b", 1), ("records", 0)]);
        assert!(has(&batches[0], "first") && has(&batches[1], "second"));
        assert!(has(&batches[2], "12"), "the number of the micro-batch");
    }
    client.fill(&content(&[("a", 0, "third")])).unwrap();
    client.abort();
    assert_eq!(broker.asked.lock().ends, [false]);
}

#[test]
fn partitions_of_several_leaders_are_added_in_one_request() {
    let first = Broker::start();
    let second = first.second();
    let mut client = client(&first);
    client.fill(&content(&[("a", 1, "first"), ("b", 0, "second")])).unwrap();
    client.commit().unwrap();
    let added = [("a".to_owned(), 1), ("b".to_owned(), 0), ("records".to_owned(), 0)];
    assert_eq!(first.asked.lock().added, [added]);
    assert_eq!(places(&first), [("b".to_owned(), 0), ("records".to_owned(), 0)]);
    assert_eq!(places(&second), [("a".to_owned(), 1)]);
    // One leader adds its partitions by itself.
    client.fill(&content(&[("a", 0, "third")])).unwrap();
    assert_eq!(first.asked.lock().added.len(), 1);
}

#[test]
fn partitions_are_added_once_the_transaction_before_has_ended() {
    let first = Broker::start();
    let second = first.second();
    first.asked.lock().add_codes = [51, 51, 51].into();
    client(&first).fill(&content(&[("a", 1, "first")])).unwrap();
    assert_eq!(first.asked.lock().added.len(), 4);
    assert_eq!(places(&second), [("a".to_owned(), 1)]);
}

#[test]
fn partitions_that_are_not_added_beforehand_are_left_to_their_leaders() {
    for code in REFUSALS.into_iter().chain([3, 16, 29, 53, 55]) {
        let first = Broker::start();
        let second = first.second();
        first.asked.lock().add_codes = [code].into();
        client(&first).fill(&content(&[("a", 1, "first")])).unwrap();
        assert_eq!(first.asked.lock().added.len(), 1, "{code}");
        assert_eq!(places(&second), [("a".to_owned(), 1)], "{code}");
    }
}

#[test]
fn batches_of_a_partition_are_numbered_by_their_records() {
    let broker = Broker::start();
    let long = "long ".repeat(8);
    let all = [("a", 0, long.as_str()); 5];
    client(&broker).fill(&content(&all)).unwrap();
    let asked = broker.asked.lock();
    let of_rows = asked.batches.iter().filter(|batch| batch.0 == "a");
    let sequences: Vec<i32> = of_rows.map(|batch| batch.2).collect();
    assert_eq!(sequences, [0, 2, 4], "a batch has room for two records");
}

#[test]
fn what_is_refused_for_a_while_goes_out_again() {
    let broker = Broker::start();
    // NOT_ENOUGH_REPLICAS, which passes.
    broker.asked.lock().codes.push_back(("b".to_owned(), 19));
    client(&broker).fill(&content(&[("a", 0, "first"), ("b", 0, "second")])).unwrap();
    let asked = broker.asked.lock();
    let mut places: Vec<_> =
        asked.batches.iter().map(|batch| (batch.0.as_str(), batch.2)).collect();
    places.sort_unstable();
    assert_eq!(places, [("a", 0), ("b", 0), ("records", 0)], "each once");
}

#[test]
fn rows_whose_answer_is_lost_go_out_again() {
    let broker = Broker::start();
    broker.asked.lock().lost = 2;
    client(&broker).fill(&content(&[("a", 0, "first"), ("b", 0, "second")])).unwrap();
    let asked = broker.asked.lock();
    let mut topics: Vec<_> = asked.batches.iter().map(|batch| batch.0.as_str()).collect();
    topics.sort_unstable();
    assert_eq!(topics, ["a", "b", "records"], "each once");
}

#[test]
fn a_broker_that_throttles_is_waited_for_on_the_same_connection() {
    let broker = Broker::start();
    let mut client = client(&broker);
    // Longer than an answer is waited for otherwise.
    broker.asked.lock().quota_pause = Duration::from_millis(10_400);
    client.fill(&content(&[("a", 0, "first")])).unwrap();
    let before = broker.asked.lock().connections;
    client.fill(&content(&[("a", 0, "second")])).unwrap();
    let asked = broker.asked.lock();
    let of_rows = asked.batches.iter().filter(|batch| batch.0 == "a");
    assert_eq!((of_rows.count(), asked.connections), (2, before), "each once");
}

#[test]
fn a_record_that_is_too_large_is_not_sent() {
    let broker = Broker::start();
    let large = "large ".repeat(200);
    let error = client(&broker).fill(&content(&[("a", 0, "small"), ("a", 0, &large)]));
    assert!(error.unwrap_err().to_string().contains("1000"), "it names the limit");
    assert!(broker.asked.lock().batches.is_empty());
}

#[test]
fn a_partition_that_is_not_there_is_not_written_to() {
    let broker = Broker::start();
    for partition in [2, -1] {
        assert!(client(&broker).fill(&content(&[("a", partition, "lost")])).is_err());
    }
    assert!(broker.asked.lock().batches.is_empty());
}

#[test]
fn who_is_turned_away_was_replaced_or_came_too_late() {
    let mut client = client(&Broker::start());
    let refused = |code| RequestError::Refused(ErrorCode(code));
    client.begun = client.env.monotonic();
    for code in [47, 90] {
        let error = client.explain("its rows", &refused(code));
        assert!(matches!(error, SinkError::TakenOver { .. }), "{error}");
    }
    let error = client.explain("its rows", &refused(48));
    assert!(matches!(error, SinkError::Transaction { .. }), "{error}");
    client.timeout = Duration::ZERO;
    std::thread::sleep(Duration::from_millis(2));
    for code in [47, 48, 90] {
        let error = client.explain("its rows", &refused(code));
        assert!(matches!(error, SinkError::TimedOut { .. }), "{error}");
    }
}

/// The machine's clock, an hour ahead.
struct Ahead(Env);

impl Clock for Ahead {
    fn now_us(&self) -> i64 {
        self.0.now_us()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic() + Duration::from_secs(3_600)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }
}

#[test]
fn the_time_of_a_transaction_begins_when_it_is_filled() {
    let broker = Broker::start();
    let mut client = client(&broker);
    client.env = Env::new(Arc::new(Ahead(Env::real())), Arc::new(SeededRng::new(1)));
    // NOT_ENOUGH_REPLICAS, after which it is looked whether there is time left.
    broker.asked.lock().codes.push_back(("a".to_owned(), 19));
    client.fill(&content(&[("a", 0, "first")])).unwrap();
}

/// What brokers say of a writer or a transaction that they know nothing of.
const REFUSALS: [i16; 6] = [45, 47, 48, 49, 59, 90];

/// The topics and partitions of what was written.
fn places(broker: &Broker) -> Vec<(String, i32)> {
    let asked = broker.asked.lock();
    asked.batches.iter().map(|batch| (batch.0.clone(), batch.1)).collect()
}

#[test]
fn a_commit_that_a_former_coordinator_refuses_is_asked_of_the_present_one() {
    for code in REFUSALS {
        let (former, present) = (Broker::start(), Broker::start());
        former.asked.lock().end_codes = [code; 1_000].into();
        let mut client = client_of(&[&former, &present]);
        client.fill(&content(&[("a", 0, "first")])).unwrap();
        client.commit().unwrap();
        assert_eq!(former.asked.lock().ends, [true], "{code}");
        assert_eq!(present.asked.lock().ends, [true], "{code}");
        assert_eq!(client.writer.epoch, 2, "the brokers' answer");
    }
}

#[test]
fn a_coordinator_that_learns_of_its_transaction_only_later_is_asked_again() {
    let broker = Broker::start();
    broker.asked.lock().end_codes = [48, 48, 14, 48].into();
    let mut client = client(&broker);
    client.fill(&content(&[("a", 0, "first")])).unwrap();
    client.commit().unwrap();
    assert_eq!(broker.asked.lock().ends, [true; 5]);
}

#[test]
fn rows_that_a_former_leader_refuses_go_to_the_present_one() {
    for code in REFUSALS {
        let (former, present) = (Broker::start(), Broker::start());
        former.asked.lock().codes = vec![("a".to_owned(), code); 1_000].into();
        let mut client = client_of(&[&former, &present]);
        client.fill(&content(&[("a", 1, "first")])).unwrap();
        assert_eq!(places(&former), [("records".to_owned(), 0)], "{code}");
        assert_eq!(places(&present), [("a".to_owned(), 1)], "{code}");
    }
}

/// The machine's clock, where time passes a hundred times as fast.
struct Fast(Env);

impl Clock for Fast {
    fn now_us(&self) -> i64 {
        self.0.now_us()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic() * 100
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }
}

fn fast_client(broker: &Broker) -> ProtocolClient {
    let mut client = client(broker);
    client.env = Env::new(Arc::new(Fast(Env::real())), Arc::new(SeededRng::new(1)));
    client.timeout = Duration::from_secs(6_000);
    client
}

#[test]
fn a_refused_commit_is_given_up_if_that_lasts() {
    for (code, is_taken_over) in [(48, false), (49, false), (47, true), (90, true)] {
        let broker = Broker::start();
        broker.asked.lock().end_codes = [code; 10_000].into();
        let mut client = fast_client(&broker);
        client.fill(&content(&[("a", 0, "first")])).unwrap();
        let error = client.commit().unwrap_err();
        let found = matches!(error, SinkError::TakenOver { .. });
        assert_eq!(found, is_taken_over, "{error}");
        assert!(found || matches!(error, SinkError::Transaction { .. }), "{error}");
        assert!(broker.asked.lock().ends.len() > 1, "the commit is asked for again");
        // It is left to the brokers.
        broker.asked.lock().ends.clear();
        client.abort();
        assert_eq!(broker.asked.lock().ends, [false]);
    }
}

#[test]
fn refused_rows_are_given_up_if_that_lasts() {
    let broker = Broker::start();
    broker.asked.lock().codes = vec![("a".to_owned(), 47); 10_000].into();
    let error = fast_client(&broker).fill(&content(&[("a", 0, "first")])).unwrap_err();
    assert!(matches!(error, SinkError::TakenOver { .. }), "{error}");
    assert!(broker.asked.lock().codes.len() < 9_999, "the rows are sent again");
    assert_eq!(places(&broker), [("records".to_owned(), 0)]);
}

#[test]
fn who_was_refused_early_was_replaced_even_if_that_is_believed_late() {
    let mut client = client(&Broker::start());
    client.env = Env::new(Arc::new(Ahead(Env::real())), Arc::new(SeededRng::new(1)));
    // The transaction is open for an hour.
    client.timeout = Duration::from_secs(3_595);
    let refused = RequestError::Refused(ErrorCode::PRODUCER_FENCED);
    for (refused_after, is_taken_over) in [(None, false), (Some(3_594), true), (Some(1), false)] {
        client.refused_after = refused_after.map(Duration::from_secs);
        let error = client.explain(ROWS, &refused);
        let found = matches!(error, SinkError::TakenOver { .. });
        assert_eq!(found, is_taken_over, "{error}");
        assert!(found || matches!(error, SinkError::TimedOut { .. }), "{error}");
    }
}
