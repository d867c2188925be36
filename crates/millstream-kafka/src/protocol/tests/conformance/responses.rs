//! Responses in Kafka's JSON with values of their own in each field, and what is read of them.
//!
//! What is expected is taken from the JSON field by field, so that it does not depend on the order
//! in which fields are encoded.

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{CORRELATION, check, from_hex, kafka};
use crate::protocol::ProducerIdentity;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::fetch::{self, Diverging, FetchAnswer, Fetched, Listed};
use crate::protocol::frame::{API_VERSIONS, Api};
use crate::protocol::read::ResponseReader;
use crate::protocol::responses::{self, Address, LoginAnswer, Outcome, Spoken, Topic};

const UNICODE: &str = "Maß-末-𝄞-é";

fn long() -> String {
    "long-".repeat(60)
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[field].as_array().unwrap_or_else(|| panic!("{field} is a list: {value}")).iter()
}

fn number<T: TryFrom<i64>>(value: &Value, field: &str) -> T {
    let number = value[field].as_i64().unwrap_or_else(|| panic!("{field} is a number: {value}"));
    T::try_from(number).unwrap_or_else(|_| panic!("{field} is a small number: {value}"))
}

/// The text, or none for null.
fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn code(value: &Value) -> ErrorCode {
    ErrorCode(number(value, "errorCode"))
}

fn address(value: &Value) -> Address {
    Address { host: text(value, "host"), port: number(value, "port") }
}

fn assert_throttled(body: &ResponseReader<'_>, expected: &Value) {
    let throttled = Duration::from_millis(number(expected, "throttleTimeMs"));
    assert_eq!(body.throttled(), throttled);
}

pub fn api_versions(_: i16) -> Vec<Value> {
    let feature = |name: &str, from: i16, to: i16| json!({"name": name, "minVersion": from, "maxVersion": to});
    let level = |name: &str, from: i16, to: i16| json!({"name": name, "maxVersionLevel": to, "minVersionLevel": from});
    let api =
        |key: i16, from: i16, to: i16| json!({"apiKey": key, "minVersion": from, "maxVersion": to});
    let whole = |transactions: i16| {
        json!({
            "errorCode": 0,
            "apiKeys": [api(0, 3, 13), api(1, 4, 18), api(18, 0, 4), api(i16::MAX, 1, i16::MAX)],
            "throttleTimeMs": 70_000,
            "supportedFeatures": [feature(UNICODE, 1, 3), feature("transaction.version", 1, 9)],
            "finalizedFeaturesEpoch": 1_i64 << 40,
            "finalizedFeatures": [
                level("metadata.version", 7, 29),
                level("transaction.version", 1, transactions),
                level(&long(), 2, 3),
            ],
            "zkMigrationReady": true,
        })
    };
    // An older broker's, which knows no features.
    let old = json!({"errorCode": 0, "apiKeys": [api(3, 0, 9)], "throttleTimeMs": 0});
    let empty = json!({"errorCode": 0, "apiKeys": [], "throttleTimeMs": 1});
    vec![whole(1), whole(2), whole(3), old, empty]
}

pub fn read_api_versions(body: &mut ResponseReader<'_>, expected: &Value) -> io::Result<()> {
    let spoken = responses::api_versions(body)?;
    for api in list(expected, "apiKeys") {
        let (key, from, to) =
            (number(api, "apiKey"), number::<i16>(api, "minVersion"), number(api, "maxVersion"));
        let has = |version| spoken.has(&[Api { key, version }]);
        assert!(has(from) && has(to) && !has(from - 1), "{api}");
        assert!(to == i16::MAX || !has(to + 1), "{api}");
    }
    assert!(!spoken.has(&[Api { key: 900, version: 0 }]));
    let features = expected["finalizedFeatures"].as_array();
    let transactions = features
        .and_then(|all| all.iter().find(|it| it["name"] == "transaction.version"))
        .map_or(0, |it| number(it, "maxVersionLevel"));
    assert_eq!(spoken.has_transactions(), transactions >= 2, "{expected}");
    assert_throttled(body, expected);
    Ok(())
}

/// A broker that does not know the version of this question answers in version 0.
#[test]
fn unknown_api_versions() {
    let said = kafka::ask(&json!({
        "ask": "responses", "key": API_VERSIONS.key, "version": 0, "correlation": CORRELATION,
        "bodies": [{
            "errorCode": ErrorCode::UNSUPPORTED_VERSION.0,
            "apiKeys": [{"apiKey": API_VERSIONS.key, "minVersion": 0, "maxVersion": 2}],
        }],
    }));
    let bytes = from_hex(&said["plain"][0]);
    let mut body = ResponseReader::new(&bytes[4..]);
    assert_eq!(responses::api_versions(&mut body).unwrap(), Spoken::default());
    // Nothing but the error matters.
    let read = |body: &mut ResponseReader<'_>| responses::api_versions(body).map(drop);
    check(API_VERSIONS, &bytes[..6], read, "API_VERSIONS");
}

pub fn metadata(_: i16) -> Vec<Value> {
    let id = |bytes: [u8; 16]| URL_SAFE_NO_PAD.encode(bytes);
    let partition = |index: i32, code: i16, leader: i32| {
        json!({
            "errorCode": code, "partitionIndex": index, "leaderId": leader, "leaderEpoch": 17 + index,
            "replicaNodes": (1..150).collect::<Vec<_>>(), "isrNodes": [2, 1], "offlineReplicas": [7, 8],
        })
    };
    let topic = |name: Option<&str>, code: i16, id: String, partitions: Vec<Value>| {
        json!({
            "errorCode": code, "name": name, "topicId": id, "isInternal": code == 0,
            "partitions": partitions, "topicAuthorizedOperations": 0x0f0f,
        })
    };
    // In no order, as brokers may give them.
    let three = vec![partition(2, 0, i32::MAX), partition(0, 5, -1), partition(1, 0, 3)];
    vec![
        json!({
            "throttleTimeMs": 5,
            "brokers": [
                {"nodeId": 1, "host": UNICODE, "port": 9_092, "rack": "r"},
                {"nodeId": i32::MAX, "host": long(), "port": 65_535, "rack": null},
            ],
            "clusterId": "bWlsbHN0cmVhbS10ZXN0cw",
            "controllerId": 2,
            "topics": [
                topic(Some("a"), 0, id(*b"0123456789abcdef"), three),
                topic(Some(UNICODE), 0, id([0xff; 16]), vec![partition(0, 0, 0)]),
                topic(None, 100, id([7; 16]), Vec::new()),
            ],
        }),
        json!({
            "throttleTimeMs": 0, "brokers": [], "clusterId": null, "controllerId": -1, "topics": [],
        }),
    ]
}

pub fn read_metadata(body: &mut ResponseReader<'_>, expected: &Value) -> io::Result<()> {
    let (nodes, topics) = responses::metadata(body)?;
    let node = |it| (number(it, "nodeId"), address(it));
    assert_eq!(nodes, list(expected, "brokers").map(node).collect::<Vec<_>>());
    let topic = |it| {
        let mut leaders: Vec<(i32, i32, i32)> = list(it, "partitions")
            .map(|it| {
                (number(it, "partitionIndex"), number(it, "leaderId"), number(it, "leaderEpoch"))
            })
            .collect();
        leaders.sort_unstable();
        let id = URL_SAFE_NO_PAD.decode(text(it, "topicId")).expect("it is base64");
        Topic {
            name: text(it, "name"),
            id: id.try_into().expect("it has 16 bytes"),
            code: code(it),
            leaders: leaders.iter().map(|(_, leader, _)| *leader).collect(),
            epochs: leaders.iter().map(|(.., epoch)| *epoch).collect(),
        }
    };
    assert_eq!(topics, list(expected, "topics").map(topic).collect::<Vec<_>>());
    assert_throttled(body, expected);
    Ok(())
}

pub fn find_coordinator(_: i16) -> Vec<Value> {
    let found = |host: &str, code: i16, message: Option<&str>| {
        json!({
            "key": UNICODE, "nodeId": 3, "host": host, "port": 19_092, "errorCode": code,
            "errorMessage": message,
        })
    };
    let refused = found("", 15, Some("not now"));
    vec![
        json!({"throttleTimeMs": 5, "coordinators": [found(UNICODE, 0, None), refused]}),
        json!({"throttleTimeMs": i32::MAX, "coordinators": [refused, found("b", 0, None)]}),
        json!({"throttleTimeMs": 0, "coordinators": []}),
    ]
}

pub fn read_find_coordinator(body: &mut ResponseReader<'_>, expected: &Value) -> io::Result<()> {
    let found = responses::find_coordinator(body)?;
    // One is asked for, so the first one counts.
    let first = match list(expected, "coordinators").next() {
        Some(first) if code(first) == ErrorCode::NONE => Ok(address(first)),
        Some(first) => Err(code(first)),
        None => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
    };
    assert_eq!(found, first);
    assert_throttled(body, expected);
    Ok(())
}

/// Of producers: the answer to the one that begins and to the one that ends a transaction.
pub fn identity(_: i16) -> Vec<Value> {
    let answer = |code: i16, id: i64, epoch: i16| {
        json!({
            "throttleTimeMs": 7, "errorCode": code, "producerId": id, "producerEpoch": epoch,
        })
    };
    vec![answer(0, i64::MAX - 3, i16::MAX), answer(51, -1, -1), answer(-1, 5, 6)]
}

pub fn read_init_producer_id(body: &mut ResponseReader<'_>, expected: &Value) -> io::Result<()> {
    assert_identity(&responses::init_producer_id(body)?, body, expected);
    Ok(())
}

pub fn read_end_txn(body: &mut ResponseReader<'_>, expected: &Value) -> io::Result<()> {
    assert_identity(&responses::end_txn(body)?, body, expected);
    Ok(())
}

fn assert_identity(
    read: &Result<ProducerIdentity, ErrorCode>,
    body: &ResponseReader<'_>,
    expected: &Value,
) {
    let (id, epoch) = (number(expected, "producerId"), number(expected, "producerEpoch"));
    let identity = match code(expected) {
        ErrorCode::NONE => Ok(ProducerIdentity { id, epoch }),
        code => Err(code),
    };
    assert_eq!(*read, identity);
    assert_throttled(body, expected);
}

pub fn add_partitions_to_txn(_: i16) -> Vec<Value> {
    let partition =
        |index: i32, code: i16| json!({"partitionIndex": index, "partitionErrorCode": code});
    vec![
        json!({
            "throttleTimeMs": 5,
            "resultsByTopicV3AndBelow": [
                {"name": "a", "resultsByPartition": [partition(0, 0), partition(i32::MAX, 51)]},
                {"name": UNICODE, "resultsByPartition": [partition(5, -1)]},
                {"name": "", "resultsByPartition": []},
            ],
        }),
        json!({"throttleTimeMs": 0, "resultsByTopicV3AndBelow": []}),
    ]
}

pub fn read_add_partitions_to_txn(
    body: &mut ResponseReader<'_>,
    expected: &Value,
) -> io::Result<()> {
    let added = responses::add_partitions_to_txn(body)?;
    let of_topic = |topic: &Value| {
        let name = text(topic, "name");
        let one = |it: &Value| Outcome {
            topic: name.clone(),
            partition: number(it, "partitionIndex"),
            code: ErrorCode(number(it, "partitionErrorCode")),
        };
        list(topic, "resultsByPartition").map(one).collect::<Vec<_>>()
    };
    let all = list(expected, "resultsByTopicV3AndBelow").flat_map(of_topic);
    assert_eq!(added, all.collect::<Vec<_>>());
    assert_throttled(body, expected);
    Ok(())
}

pub fn produce(version: i16) -> Vec<Value> {
    // Version 10 has begun to name leaders.
    let has_leaders = version >= 10;
    let partition = |index: i32, code: i16, message: Option<&str>| {
        let mut partition = json!({
            "index": index, "errorCode": code, "baseOffset": 1_i64 << 50, "logAppendTimeMs": 9,
            "logStartOffset": 4, "errorMessage": message,
            "recordErrors": [
                {"batchIndex": 3, "batchIndexErrorMessage": message},
                {"batchIndex": i32::MAX, "batchIndexErrorMessage": UNICODE},
            ],
        });
        if has_leaders && code != 0 {
            partition["currentLeader"] = json!({"leaderId": 3, "leaderEpoch": 12});
        }
        partition
    };
    let mut whole = json!({
        "responses": [
            {"name": "a", "partitionResponses": [
                partition(0, 0, None), partition(i32::MAX, 6, Some(UNICODE)),
            ]},
            {"name": UNICODE, "partitionResponses": [partition(5, 87, Some(&long()))]},
            {"name": "", "partitionResponses": []},
        ],
        "throttleTimeMs": 11,
    });
    if has_leaders {
        whole["nodeEndpoints"] = json!([
            {"nodeId": 3, "host": UNICODE, "port": 9_093, "rack": "r"},
            {"nodeId": 4, "host": "b", "port": 9_094, "rack": null},
        ]);
    }
    vec![whole, json!({"responses": [], "throttleTimeMs": 0})]
}

pub fn read_produce(body: &mut ResponseReader<'_>, expected: &Value) -> io::Result<()> {
    let written = responses::produce(body)?;
    let of_topic = |topic: &Value| {
        let name = text(topic, "name");
        let one = |it: &Value| Outcome {
            topic: name.clone(),
            partition: number(it, "index"),
            code: code(it),
        };
        list(topic, "partitionResponses").map(one).collect::<Vec<_>>()
    };
    assert_eq!(written, list(expected, "responses").flat_map(of_topic).collect::<Vec<_>>());
    assert_throttled(body, expected);
    Ok(())
}

pub fn fetch(_: i16) -> Vec<Value> {
    let whole = json!({
        "partitionIndex": i32::MAX, "errorCode": 6, "highWatermark": i64::MAX - 1,
        "lastStableOffset": 1_i64 << 33, "logStartOffset": 12,
        "divergingEpoch": {"epoch": 5, "endOffset": 77},
        "currentLeader": {"leaderId": 3, "leaderEpoch": 9},
        "snapshotId": {"endOffset": 4, "epoch": 8},
        "abortedTransactions": [
            {"producerId": 7, "firstOffset": 1_i64 << 40}, {"producerId": 8, "firstOffset": 3},
        ],
        "preferredReadReplica": 2, "records": STANDARD.encode(vec![0xab; 17_000]),
    });
    let empty = json!({
        "partitionIndex": 0, "errorCode": 0, "highWatermark": -1, "lastStableOffset": -1,
        "logStartOffset": -1, "abortedTransactions": null, "preferredReadReplica": -1,
        "records": null,
    });
    let mut small = empty.clone();
    (small["abortedTransactions"], small["records"]) = (json!([]), json!(STANDARD.encode([1])));
    vec![
        json!({
            "throttleTimeMs": 13, "errorCode": 70, "sessionId": i32::MAX,
            "responses": [
                {"topic": UNICODE, "partitions": [empty, small]},
                {"topic": long(), "partitions": [small]},
                {"topic": "", "partitions": []},
            ],
        }),
        json!({
            "throttleTimeMs": 0, "errorCode": 0, "sessionId": 0,
            "responses": [{"topic": "a", "partitions": [whole, small]}],
        }),
        json!({"throttleTimeMs": 0, "errorCode": 0, "sessionId": 5, "responses": []}),
    ]
}

/// What is expected of a partition, without its topic and its record batches.
fn partition(it: &Value) -> Fetched<'static> {
    let aborted = it["abortedTransactions"].as_array().into_iter().flatten();
    let diverging = Some(&it["divergingEpoch"]).filter(|it| it.is_object());
    Fetched {
        topic: "",
        partition: number(it, "partitionIndex"),
        code: code(it),
        high_watermark: number(it, "highWatermark"),
        last_stable: number(it, "lastStableOffset"),
        aborted: aborted.map(|it| (number(it, "producerId"), number(it, "firstOffset"))).collect(),
        other_replica: number(it, "preferredReadReplica"),
        diverging: diverging.map(|it| Diverging {
            epoch: number(it, "epoch"),
            end_offset: number(it, "endOffset"),
        }),
        records: &[],
    }
}

pub fn read_fetch(body: &mut ResponseReader<'_>, expected: &Value) -> io::Result<()> {
    let read = fetch::fetched(body)?;
    let mut partitions = Vec::new();
    for topic in list(expected, "responses") {
        for it in list(topic, "partitions") {
            let records = STANDARD.decode(text(it, "records")).expect("it is base64");
            partitions.push((text(topic, "topic"), records, partition(it)));
        }
    }
    let partitions: Vec<_> = partitions
        .iter()
        .map(|(topic, records, it)| Fetched { topic, records, aborted: it.aborted.clone(), ..*it })
        .collect();
    let (code, session) = (code(expected), number(expected, "sessionId"));
    assert!(read == FetchAnswer { code, session, partitions }, "{expected}");
    assert_throttled(body, expected);
    Ok(())
}

pub fn list_offsets(_: i16) -> Vec<Value> {
    let partition = |index: i32, code: i16, offset: i64| {
        json!({
            "partitionIndex": index, "errorCode": code, "timestamp": 1_700_000_000_000_i64,
            "offset": offset, "leaderEpoch": 6,
        })
    };
    vec![
        json!({
            "throttleTimeMs": 3,
            "topics": [
                {"name": UNICODE, "partitions": [
                    partition(0, 0, i64::MAX), partition(i32::MAX, 78, -1),
                ]},
                {"name": long(), "partitions": [partition(4, 0, 0)]},
                {"name": "", "partitions": []},
            ],
        }),
        json!({"throttleTimeMs": 0, "topics": []}),
    ]
}

pub fn read_list_offsets(body: &mut ResponseReader<'_>, expected: &Value) -> io::Result<()> {
    let listed = fetch::listed(body)?;
    let of_topic = |topic: &Value| {
        let name = text(topic, "name");
        let one = |it: &Value| Listed {
            topic: name.clone(),
            partition: number(it, "partitionIndex"),
            offset: match code(it) {
                ErrorCode::NONE => Ok(number(it, "offset")),
                code => Err(code),
            },
        };
        list(topic, "partitions").map(one).collect::<Vec<_>>()
    };
    assert_eq!(listed, list(expected, "topics").flat_map(of_topic).collect::<Vec<_>>());
    assert_throttled(body, expected);
    Ok(())
}

pub fn sasl_handshake(_: i16) -> Vec<Value> {
    vec![
        json!({"errorCode": 33, "mechanisms": ["PLAIN", "SCRAM-SHA-512", UNICODE, long()]}),
        json!({"errorCode": 0, "mechanisms": []}),
    ]
}

pub fn read_sasl_handshake(body: &mut ResponseReader<'_>, expected: &Value) -> io::Result<()> {
    let (read, known) = responses::sasl_handshake(body)?;
    assert_eq!(read, code(expected));
    assert_eq!(json!(known), expected["mechanisms"]);
    Ok(())
}

pub fn sasl_authenticate(_: i16) -> Vec<Value> {
    let answer = |code: i16, reason: Option<&str>, message: &str, lifetime_ms: i64| {
        json!({
            "errorCode": code, "errorMessage": reason, "authBytes": STANDARD.encode(message),
            "sessionLifetimeMs": lifetime_ms,
        })
    };
    vec![
        answer(0, None, &format!("r=x,s={UNICODE}"), i64::MAX),
        answer(58, Some(UNICODE), "", 0),
        answer(0, Some(""), &long(), 4_000),
    ]
}

pub fn read_sasl_authenticate(body: &mut ResponseReader<'_>, expected: &Value) -> io::Result<()> {
    let read = responses::sasl_authenticate(body)?;
    let message = STANDARD.decode(text(expected, "authBytes")).expect("it is base64");
    let answer = LoginAnswer {
        code: code(expected),
        reason: expected["errorMessage"].as_str().map(str::to_owned),
        message: String::from_utf8(message).expect("it is text"),
        lifetime_ms: number(expected, "sessionLifetimeMs"),
    };
    assert_eq!(read, answer);
    Ok(())
}
