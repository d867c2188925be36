//! Requests with values of their own in each field, and what they say in Kafka's JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::protocol::ProducerIdentity;
use crate::protocol::compression::Compression;
use crate::protocol::fetch::{self, AT_BEGINNING, AT_END, FetchLimits, Position, SessionNumber};
use crate::protocol::frame::{self, Api};
use crate::protocol::record_batch::{Record, RecordBatch};
use crate::protocol::requests;
use crate::protocol::write::Writer;

/// A text in which a character has one to four bytes.
const UNICODE: &str = "Maß-末-𝄞-é";
const WRITER: ProducerIdentity = ProducerIdentity { id: i64::MAX - 5, epoch: 32_000 };
/// No topic id.
const ZEROS: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// A request, without the length in front.
pub struct Sent {
    /// Its header and body.
    pub bytes: Vec<u8>,
    /// The number in its header.
    pub correlation: i32,
    /// The client in its header.
    pub client: String,
    /// What its body says.
    pub body: Value,
}

/// A text whose length takes two bytes where it is a variable-length integer.
fn long() -> String {
    "long-".repeat(60)
}

/// As many bytes as a text of Kafka's can have.
fn longest() -> String {
    "x".repeat(32_767)
}

/// Each pair of an encoder and its meaning, from clients of several names.
fn sent<'a>(
    api: Api,
    bodies: impl IntoIterator<Item = (Box<dyn FnOnce(&mut Writer) + 'a>, Value)>,
) -> Vec<Sent> {
    let clients = [UNICODE.to_owned(), String::new(), long(), longest()];
    let numbers = [1, i32::MAX, i32::MIN, -1];
    let headers = clients.into_iter().zip(numbers).cycle();
    let bodies = bodies.into_iter().zip(headers);
    let sent = bodies.map(|((encode, body), (client, correlation))| {
        let bytes = frame::frame(api, correlation, &client, encode);
        let (length, bytes) = bytes.split_first_chunk().expect("it begins with its length");
        assert_eq!(usize::try_from(i32::from_be_bytes(*length)).unwrap(), bytes.len());
        Sent { bytes: bytes.to_vec(), correlation, client, body }
    });
    sent.collect()
}

/// Boxes an encoder.
fn encoder<'a>(encode: impl FnOnce(&mut Writer) + 'a) -> Box<dyn FnOnce(&mut Writer) + 'a> {
    Box::new(encode)
}

pub fn api_versions(api: Api) -> Vec<Sent> {
    let body = json!({
        "clientSoftwareName": "millstream",
        "clientSoftwareVersion": env!("CARGO_PKG_VERSION"),
    });
    // Once for each header.
    sent(api, (0..4).map(|_| (encoder(requests::api_versions), body.clone())))
}

pub fn metadata(api: Api) -> Vec<Sent> {
    let long = long();
    let all: [(Vec<&str>, bool); 4] = [
        (vec!["a", UNICODE, "", &long], true),
        (vec!["only"], false),
        (Vec::new(), true),
        ((0..200).map(|_| "one-of-many").collect(), false),
    ];
    let bodies = all.iter().map(|(topics, may_create)| {
        let named = |topic: &&str| json!({"topicId": ZEROS, "name": topic});
        let body = json!({
            "topics": topics.iter().map(named).collect::<Vec<_>>(),
            "allowAutoTopicCreation": may_create,
            "includeTopicAuthorizedOperations": false,
        });
        (encoder(|body| requests::metadata(body, topics, *may_create)), body)
    });
    sent(api, bodies)
}

pub fn find_coordinator(api: Api) -> Vec<Sent> {
    let ids = ["id".to_owned(), UNICODE.to_owned(), String::new(), long(), longest()];
    let bodies = ids.iter().map(|id| {
        // 1 is for transactional ids.
        let body = json!({"keyType": 1, "coordinatorKeys": [id]});
        (encoder(|body| requests::find_coordinator(body, id)), body)
    });
    sent(api, bodies)
}

pub fn init_producer_id(api: Api) -> Vec<Sent> {
    let long = long();
    let all = [(Some(UNICODE), 60_000), (None, i32::MAX), (Some(""), 1), (Some(&long), 0)];
    let bodies = all.into_iter().map(|(id, timeout_ms)| {
        let body = json!({
            "transactionalId": id,
            "transactionTimeoutMs": timeout_ms,
            "producerId": -1,
            "producerEpoch": -1,
        });
        (encoder(move |body| requests::init_producer_id(body, id, timeout_ms)), body)
    });
    sent(api, bodies)
}

/// A record batch with a value of so many bytes.
fn batch(bytes: usize) -> Vec<u8> {
    let mut batch = RecordBatch::default();
    batch.push(&Record { key: Some(b"k"), value: Some(&vec![b'v'; bytes]), headers: &[] });
    batch.encode(WRITER, 3, true, 1_000, Compression::None)
}

pub fn produce(api: Api) -> Vec<Sent> {
    let long = long();
    let small = || vec![(0, batch(0)), (i32::MAX, batch(1))];
    let all = [
        (Some(UNICODE), 1_000, vec![("a", small()), (UNICODE, vec![(7, batch(200_000))])]),
        (None, i32::MAX, vec![(long.as_str(), small()), ("", small()), ("c", small())]),
        (Some(""), 1, vec![("a", Vec::new())]),
        (Some(&long), 0, Vec::new()),
    ];
    let bodies = all.iter().map(|(id, timeout_ms, topics)| {
        let partition = |(index, batch): &(i32, Vec<u8>)| {
            json!({"index": index, "records": STANDARD.encode(batch)})
        };
        let topic = |(name, partitions): &requests::Batches<'_>| {
            let partitions: Vec<_> = partitions.iter().map(partition).collect();
            json!({"name": name, "partitionData": partitions})
        };
        let body = json!({
            "transactionalId": id,
            "acks": -1,
            "timeoutMs": timeout_ms,
            "topicData": topics.iter().map(topic).collect::<Vec<_>>(),
        });
        (encoder(|body| requests::produce(body, *id, *timeout_ms, topics)), body)
    });
    sent(api, bodies)
}

pub fn add_partitions_to_txn(api: Api) -> Vec<Sent> {
    let (long, none) = (long(), ProducerIdentity { id: 0, epoch: 0 });
    let all = [
        (UNICODE, WRITER, vec![("a", vec![0, i32::MAX]), (UNICODE, vec![7])]),
        (&long, none, vec![(long.as_str(), vec![1]), ("", Vec::new())]),
        ("", WRITER, Vec::new()),
    ];
    let bodies = all.iter().map(|(id, writer, topics)| {
        let topic = |(name, partitions): &requests::Partitions<'_>| {
            json!({"name": name, "partitions": partitions})
        };
        let body = json!({
            "v3AndBelowTransactionalId": id,
            "v3AndBelowProducerId": writer.id,
            "v3AndBelowProducerEpoch": writer.epoch,
            "v3AndBelowTopics": topics.iter().map(topic).collect::<Vec<_>>(),
        });
        (encoder(|body| requests::add_partitions_to_txn(body, id, *writer, topics)), body)
    });
    sent(api, bodies)
}

pub fn end_txn(api: Api) -> Vec<Sent> {
    let (long, none) = (long(), ProducerIdentity { id: 0, epoch: 0 });
    let all = [(UNICODE, WRITER, true), (&long, none, false), ("", WRITER, false)];
    let bodies = all.into_iter().map(|(id, writer, commit)| {
        let body = json!({
            "transactionalId": id,
            "producerId": writer.id,
            "producerEpoch": writer.epoch,
            "committed": commit,
        });
        (encoder(move |body| requests::end_txn(body, id, writer, commit)), body)
    });
    sent(api, bodies)
}

pub fn sasl_handshake(api: Api) -> Vec<Sent> {
    let bodies = ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", ""].map(|mechanism| {
        let body = json!({"mechanism": mechanism});
        (encoder(move |body| requests::sasl_handshake(body, mechanism)), body)
    });
    sent(api, bodies)
}

pub fn sasl_authenticate(api: Api) -> Vec<Sent> {
    let plain = format!("\0{UNICODE}\0password").into_bytes();
    let messages = [plain, b"\x01".to_vec(), Vec::new(), vec![0xff; 40_000]];
    let bodies = messages.iter().map(|message| {
        let body = json!({"authBytes": STANDARD.encode(message)});
        (encoder(|body| requests::sasl_authenticate(body, message)), body)
    });
    sent(api, bodies)
}

fn limits(only_committed: bool, rack: &str) -> FetchLimits {
    FetchLimits {
        wait_ms: 500,
        bytes_min: 1,
        bytes_max: 52_428_800,
        partition_bytes_max: 1_048_576,
        only_committed,
        rack: rack.to_owned(),
    }
}

pub fn fetch(api: Api) -> Vec<Sent> {
    let long = long();
    let session = |id, epoch| SessionNumber { id, epoch };
    let position = |at: i32| Position {
        offset: i64::from(at) << 40,
        epoch: at * 3 - 1,
        leader_epoch: at * 7 - 1,
    };
    let many = |of: i32| (0..of).map(|at| (at, position(at))).collect::<Vec<_>>();
    let all = [
        (
            (limits(true, UNICODE), session(i32::MAX, 7)),
            vec![
                ("a", many(3)),
                (UNICODE, vec![(i32::MAX, Position::at(i64::MAX))]),
                (long.as_str(), many(200)),
            ],
            vec![("b", vec![(4, ()), (9, ())]), (UNICODE, vec![(0, ())]), (&long, Vec::new())],
        ),
        ((limits(false, ""), session(0, 0)), vec![("", many(1))], Vec::new()),
        ((limits(false, &long), session(-1, -1)), Vec::new(), vec![("", vec![(0, ())])]),
    ];
    let bodies = all.iter().map(|((limits, session), wanted, unwanted)| {
        let partition = |(partition, at): &(i32, Position)| {
            json!({
                "partition": partition, "currentLeaderEpoch": at.leader_epoch,
                "fetchOffset": at.offset, "lastFetchedEpoch": at.epoch, "logStartOffset": -1,
                "partitionMaxBytes": 1_048_576,
            })
        };
        let topic = |(topic, partitions): &(&str, Vec<_>)| {
            let partitions: Vec<_> = partitions.iter().map(partition).collect();
            json!({"topic": topic, "partitions": partitions})
        };
        let forgotten = |(topic, partitions): &(&str, Vec<(i32, ())>)| {
            let partitions: Vec<_> = partitions.iter().map(|(partition, ())| partition).collect();
            json!({"topic": topic, "partitions": partitions})
        };
        let body = json!({
            "replicaId": -1,
            "maxWaitMs": limits.wait_ms,
            "minBytes": limits.bytes_min,
            "maxBytes": limits.bytes_max,
            // READ_UNCOMMITTED and READ_COMMITTED.
            "isolationLevel": i32::from(limits.only_committed),
            "sessionId": session.id,
            "sessionEpoch": session.epoch,
            "topics": wanted.iter().map(topic).collect::<Vec<_>>(),
            "forgottenTopicsData": unwanted.iter().map(forgotten).collect::<Vec<_>>(),
            "rackId": limits.rack,
        });
        (encoder(|body| fetch::fetch(body, limits, *session, wanted, unwanted)), body)
    });
    sent(api, bodies)
}

pub fn list_offsets(api: Api) -> Vec<Sent> {
    let long = long();
    let all = [
        (true, vec![("a", vec![(0, AT_BEGINNING), (i32::MAX, AT_END)]), (UNICODE, vec![(1, 5)])]),
        (false, vec![(long.as_str(), vec![(3, 1_700_000_000_000)]), ("", Vec::new())]),
        (false, Vec::new()),
    ];
    let bodies = all.iter().map(|(only_committed, topics)| {
        let partition = |(index, time): &(i32, i64)| {
            json!({"partitionIndex": index, "currentLeaderEpoch": -1, "timestamp": time})
        };
        let topic = |(name, partitions): &(&str, Vec<_>)| {
            let partitions: Vec<_> = partitions.iter().map(partition).collect();
            json!({"name": name, "partitions": partitions})
        };
        let body = json!({
            "replicaId": -1,
            "isolationLevel": i32::from(*only_committed),
            "topics": topics.iter().map(topic).collect::<Vec<_>>(),
        });
        (encoder(|body| fetch::list_offsets(body, *only_committed, topics)), body)
    });
    sent(api, bodies)
}
