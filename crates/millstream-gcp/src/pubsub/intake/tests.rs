//! What becomes of messages and acknowledgements, without a service.

use std::collections::HashMap;

use millstream_engine::api::contact::Contacts;
use millstream_store::error::Kind;
use millstream_store::journal;
use millstream_store::source_log::SourceLog;

use super::*;
use crate::service::Service;

/// An intake that receives nothing by itself, and its journal.
async fn intake(log: &SourceLog, id_attribute: Option<&str>) -> (Arc<Intake>, Arc<Journal>) {
    let env = Env::real();
    let journal = Journal::open(log, None, journal::Settings::default(), &env).await;
    let journal = Arc::new(journal.expect("it opens"));
    // Nobody listens there.
    let service = Service { url: "http://127.0.0.1:1".to_owned(), credentials: None };
    let connection = service.connect(&env).expect("nobody is asked yet");
    let contact = Contacts::untold(env.clone()).with("it".to_owned());
    let client = Client::new(connection, ("s".to_owned(), None), contact, env);
    let settings = Settings {
        id_attribute: id_attribute.map(str::to_owned),
        messages_max: 10,
        bytes_max: 1_000_000,
        streams: 1,
        fetch_period: Duration::from_secs(1),
    };
    let buffer = Arc::new(Buffer::new(1_000_000));
    (Intake::new(client, Arc::clone(&journal), buffer, settings), journal)
}

fn message(id: &str, attribute: Option<&str>) -> pb::ReceivedMessage {
    let attributes: HashMap<String, String> =
        attribute.map(|value| ("id".to_owned(), value.to_owned())).into_iter().collect();
    let message_id = id.to_owned();
    let message = pb::PubsubMessage { message_id, attributes, ..pb::PubsubMessage::default() };
    let ack_id = format!("ack of {id}");
    pb::ReceivedMessage { ack_id, message: Some(message), ..pb::ReceivedMessage::default() }
}

async fn durable(journal: &Journal, position: u64) {
    while journal.durable() < position {
        journal.advanced(journal.durable()).await;
        assert!(journal.failure().is_none());
    }
}

#[tokio::test]
async fn an_attribute_that_is_empty_is_no_id() {
    let (intake, journal) = intake(&SourceLog::in_memory(), Some("id")).await;
    let with = |id, attribute| message(id, Some(attribute));
    intake.take_in(vec![with("1", ""), with("2", ""), with("3", "x"), with("4", "x")]);
    intake.take_in(vec![message("5", None), with("1", "")]);
    durable(&journal, 4).await;
    assert_eq!(intake.counts().0, 2, "the second x, and 1 again");
}

#[tokio::test]
async fn a_time_that_no_publisher_has_is_no_harm() {
    let (intake, journal) = intake(&SourceLog::in_memory(), None).await;
    let mut hostile = message("1", None);
    let time = hostile.message.as_mut().unwrap().publish_time.get_or_insert_default();
    (time.seconds, time.nanos) = (i64::MAX, i32::MAX);
    intake.take_in(vec![hostile]);
    durable(&journal, 1).await;
}

#[tokio::test]
async fn what_an_earlier_run_has_left_counts_as_confirmed_when_messages_come() {
    let log = SourceLog::in_memory();
    let (earlier, journal) = intake(&log, None).await;
    earlier.take_in(vec![message("1", None), message("2", None)]);
    durable(&journal, 2).await;
    journal.close().await;
    drop((earlier, journal));
    let (intake, journal) = intake(&log, None).await;
    intake.settle(&[], &[], &[]);
    assert_eq!(journal.acknowledged_below(), 0, "nobody has confirmed anything");
    intake.take_in(vec![message("2", None), message("3", None), message("4", None)]);
    assert_eq!(journal.acknowledged_below(), 2, "they may come again from now on");
    durable(&journal, 4).await;
    let ids = intake.take_durable();
    assert_eq!(ids.len(), 3);
    intake.settle(&ids[..2], &ids[1..2], &[]);
    assert_eq!(journal.acknowledged_below(), 2, "3 is to be acknowledged again");
    intake.settle(&ids[1..2], &[], &ids[1..2]);
    assert_eq!(journal.acknowledged_below(), 3, "it comes again: that counts from now");
    intake.settle(&ids[2..], &[], &[]);
    assert_eq!((journal.acknowledged_below(), intake.counts()), (4, (1, 1)));
}

#[tokio::test]
async fn nothing_is_taken_in_once_the_journal_has_failed() {
    let log = SourceLog::in_memory();
    let (intake, journal) = intake(&log, None).await;
    intake.room().await.expect("there is room");
    let of_somebody_else = log.put_if_absent("journal-0", b"x".to_vec()).await;
    of_somebody_else.expect("it is free");
    intake.take_in(vec![message("1", None)]);
    journal.advanced(0).await;
    match intake.room().await {
        Err(CallError::Failure(failure)) => assert_eq!(failure.kind(), Kind::Fenced),
        other => panic!("it goes on: {other:?}"),
    }
}
