//! What is written and read here is what Kafka's own classes read and write. They are made from the
//! schema files of the protocol, so they are its definition in a form that can be asked.
//!
//! ```text
//! requests   encoded here   ──►  decoded by Kafka: the same fields, no byte left over, and the
//!                                same bytes when Kafka encodes them again
//! responses  encoded by Kafka, each field of the schema set  ──►  decoded here
//! batches    both ways, each compression
//! ```
//!
//! [`APIS`] has each request that the crate sends; one that is missing there is found by
//! [`each_api_stands_in_the_table`]. One process of Java answers all tests, see [`kafka`].

mod batches;
mod errors;
mod kafka;
mod requests;
mod responses;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::protocol::frame::{
    self, ADD_PARTITIONS_TO_TXN, API_VERSIONS, Api, END_TXN, FETCH, FIND_COORDINATOR,
    INIT_PRODUCER_ALONE, INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, PRODUCE, PRODUCE_ALONE,
    SASL_AUTHENTICATE, SASL_HANDSHAKE,
};
use crate::protocol::read::ResponseReader;
use requests::Sent;

/// The number of the request that a response belongs to.
const CORRELATION: i32 = 0x0102_0304;

/// A kind of request in the version that is sent, and what is known of it.
struct Tested {
    /// The constant's name in [`frame`].
    constant: &'static str,
    api: Api,
    /// Kafka's name.
    name: &'static str,
    /// Requests, each with what it says.
    requests: fn(Api) -> Vec<Sent>,
    /// Fields of requests that are always left as they are by default.
    unset: &'static [&'static str],
    /// Responses in Kafka's JSON, for a version.
    responses: fn(i16) -> Vec<Value>,
    /// Fields of responses that cannot be set where the rest is to be read.
    unanswered: &'static [&'static str],
    /// Decodes the body of a response, and compares it with the JSON that it was made from.
    read: fn(&mut ResponseReader<'_>, &Value) -> io::Result<()>,
}

/// A producer's earlier id and epoch, which are never sent.
const NO_EARLIER: &[&str] = &["producerEpoch", "producerId"];

/// All that the crate sends.
const APIS: [Tested; 13] = [
    Tested {
        constant: "API_VERSIONS",
        api: API_VERSIONS,
        name: "API_VERSIONS",
        requests: requests::api_versions,
        unset: &[],
        responses: responses::api_versions,
        // With an error nothing that follows it counts: see `responses::unknown_api_versions`.
        unanswered: &["errorCode"],
        read: responses::read_api_versions,
    },
    Tested {
        constant: "METADATA",
        api: METADATA,
        name: "METADATA",
        requests: requests::metadata,
        unset: &["includeTopicAuthorizedOperations", "topics.topicId"],
        responses: responses::metadata,
        unanswered: &[],
        read: responses::read_metadata,
    },
    Tested {
        constant: "FIND_COORDINATOR",
        api: FIND_COORDINATOR,
        name: "FIND_COORDINATOR",
        requests: requests::find_coordinator,
        // Never two at a time.
        unset: &["coordinatorKeys"],
        responses: responses::find_coordinator,
        unanswered: &[],
        read: responses::read_find_coordinator,
    },
    Tested {
        constant: "INIT_PRODUCER_ID",
        api: INIT_PRODUCER_ID,
        name: "INIT_PRODUCER_ID",
        requests: requests::init_producer_id,
        unset: NO_EARLIER,
        responses: responses::identity,
        unanswered: &[],
        read: responses::read_init_producer_id,
    },
    Tested {
        constant: "INIT_PRODUCER_ALONE",
        api: INIT_PRODUCER_ALONE,
        name: "INIT_PRODUCER_ID",
        requests: requests::init_producer_id,
        unset: NO_EARLIER,
        responses: responses::identity,
        unanswered: &[],
        read: responses::read_init_producer_id,
    },
    Tested {
        constant: "PRODUCE",
        api: PRODUCE,
        name: "PRODUCE",
        requests: requests::produce,
        unset: &["acks"],
        responses: responses::produce,
        unanswered: &[],
        read: responses::read_produce,
    },
    Tested {
        constant: "PRODUCE_ALONE",
        api: PRODUCE_ALONE,
        name: "PRODUCE",
        requests: requests::produce,
        unset: &["acks"],
        responses: responses::produce,
        unanswered: &[],
        read: responses::read_produce,
    },
    Tested {
        constant: "ADD_PARTITIONS_TO_TXN",
        api: ADD_PARTITIONS_TO_TXN,
        name: "ADD_PARTITIONS_TO_TXN",
        requests: requests::add_partitions_to_txn,
        unset: &[],
        responses: responses::add_partitions_to_txn,
        unanswered: &[],
        read: responses::read_add_partitions_to_txn,
    },
    Tested {
        constant: "END_TXN",
        api: END_TXN,
        name: "END_TXN",
        requests: requests::end_txn,
        unset: &[],
        responses: responses::identity,
        unanswered: &[],
        read: responses::read_end_txn,
    },
    Tested {
        constant: "SASL_HANDSHAKE",
        api: SASL_HANDSHAKE,
        name: "SASL_HANDSHAKE",
        requests: requests::sasl_handshake,
        unset: &[],
        responses: responses::sasl_handshake,
        unanswered: &[],
        read: responses::read_sasl_handshake,
    },
    Tested {
        constant: "SASL_AUTHENTICATE",
        api: SASL_AUTHENTICATE,
        name: "SASL_AUTHENTICATE",
        requests: requests::sasl_authenticate,
        unset: &[],
        responses: responses::sasl_authenticate,
        unanswered: &[],
        read: responses::read_sasl_authenticate,
    },
    Tested {
        constant: "FETCH",
        api: FETCH,
        name: "FETCH",
        requests: requests::fetch,
        unset: &["clusterId", "replicaId", "topics.partitions.logStartOffset"],
        responses: responses::fetch,
        unanswered: &[],
        read: responses::read_fetch,
    },
    Tested {
        constant: "LIST_OFFSETS",
        api: LIST_OFFSETS,
        name: "LIST_OFFSETS",
        requests: requests::list_offsets,
        unset: &["replicaId", "topics.partitions.currentLeaderEpoch"],
        responses: responses::list_offsets,
        unanswered: &[],
        read: responses::read_list_offsets,
    },
];

fn sorted(values: &Value) -> Vec<&str> {
    let values = values.as_array().expect("a list of names");
    let mut names: Vec<_> = values.iter().map(|it| it.as_str().expect("a name")).collect();
    names.sort_unstable();
    names
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |four_bits: u8| char::from(DIGITS[usize::from(four_bits)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

fn from_hex(text: &Value) -> Vec<u8> {
    let (pairs, []) = text.as_str().expect("bytes as text").as_bytes().as_chunks::<2>() else {
        panic!("half a byte: {text}")
    };
    let value = |digit: u8| char::from(digit).to_digit(16).expect("it is a digit") as u8;
    pairs.iter().map(|[high, low]| value(*high) << 4 | value(*low)).collect()
}

#[test]
fn kafka_knows_the_versions_and_their_headers() {
    for Tested { constant, api, name, .. } in &APIS {
        let said = kafka::ask(&json!({"ask": "api", "key": api.key, "version": api.version}));
        assert_eq!(said["name"], *name, "{constant}");
        let number = |field: &str| said[field].as_i64().expect("a number");
        let versions = number("oldest")..=number("latest");
        assert!(versions.contains(&api.version.into()), "{constant}: Kafka has {versions:?}");

        // Version 2 of a request's header has tagged fields, and version 1 of a response's.
        let length = frame::frame(*api, 1, "client", |_| {}).len();
        let plain = 4 + 2 + 2 + 4 + 2 + "client".len();
        let ours = if length == plain { 1 } else { 2 };
        assert_eq!(ours, number("request_header"), "{constant}");
        let mut response = ResponseReader::new(&[0, 0, 0, 1, 0, 9]);
        assert_eq!(frame::header(*api, &mut response).unwrap(), 1);
        let ours = if response.left() == 2 { 0 } else { 1 };
        assert_eq!(ours, number("response_header"), "{constant}");
    }
}

#[test]
fn kafka_reads_requests_as_they_are_meant() {
    for Tested { constant, api, requests, unset, .. } in &APIS {
        let sent = requests(*api);
        let frames: Vec<String> = sent.iter().map(|sent| hex(&sent.bytes)).collect();
        let said = kafka::ask(&json!({
            "ask": "requests", "key": api.key, "version": api.version, "frames": frames,
        }));
        let decoded = said["decoded"].as_array().expect("a list");
        assert_eq!(decoded.len(), sent.len());
        for ((sent, frame), decoded) in sent.iter().zip(&frames).zip(decoded) {
            let header = json!({
                "requestApiKey": api.key,
                "requestApiVersion": api.version,
                "correlationId": sent.correlation,
                "clientId": sent.client,
            });
            assert_eq!(decoded["header"], header, "{constant}");
            assert_eq!(decoded["body"], sent.body, "{constant}");
            assert_eq!(decoded["left"], 0, "{constant}");
            assert_eq!(decoded["again"], **frame, "{constant}");
        }
        assert_eq!(sorted(&said["unset"]), *unset, "{constant}");
    }
}

#[test]
fn what_kafka_answers_is_read_as_it_is_meant() {
    for Tested { constant, api, responses, unanswered, read, .. } in &APIS {
        let bodies = responses(api.version);
        let said = kafka::ask(&json!({
            "ask": "responses", "key": api.key, "version": api.version,
            "correlation": CORRELATION, "bodies": bodies,
        }));
        // Each field of the schema has a value of its own in one of them at least, lists have
        // several elements, and what may be null is null in one.
        assert_eq!(sorted(&said["unset"]), *unanswered, "{constant}");
        assert_eq!((&said["never_null"], &said["unknown"]), (&json!([]), &json!([])), "{constant}");
        for form in ["plain", "tagged"] {
            let encoded = said[form].as_array().expect("a list");
            assert_eq!(encoded.len(), bodies.len());
            for (bytes, body) in encoded.iter().zip(&bodies) {
                check(*api, &from_hex(bytes), |rest| read(rest, body), constant);
            }
        }
    }
}

/// Decodes a response, and all that is left of it when it is cut off anywhere.
fn check(
    api: Api,
    bytes: &[u8],
    read: impl Fn(&mut ResponseReader<'_>) -> io::Result<()>,
    constant: &str,
) {
    let decode = |bytes: &[u8]| {
        let mut reader = ResponseReader::new(bytes);
        let correlation = frame::header(api, &mut reader)?;
        assert_eq!(correlation, CORRELATION, "{constant}");
        read(&mut reader)?;
        io::Result::Ok(reader.left())
    };
    assert_eq!(decode(bytes).unwrap(), 0, "{constant}: bytes are left over");
    for length in 0..bytes.len() {
        let decoded = decode(&bytes[..length]);
        assert!(decoded.is_err(), "{constant}: {length} bytes of {} will do", bytes.len());
    }
}

/// All sources of the crate but its tests.
fn sources() -> Vec<(PathBuf, String)> {
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here = std::env::var_os("CARGO_MANIFEST_DIR");
    let here = here.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut directories = vec![Path::new(&here).join("src")];
    let mut sources = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("sources can be listed") {
            let path = entry.expect("sources can be listed").path();
            if path.ends_with("tests") || path.ends_with("testing") || path.ends_with("tests.rs") {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(&path).expect("sources are text");
                sources.push((path, text));
            }
        }
    }
    sources
}

#[test]
fn each_api_stands_in_the_table() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (before, _) in text.match_indices("Api {").map(|(at, _)| text.split_at(at)) {
            if before.ends_with(|before: char| before.is_alphanumeric() || before == '_') {
                continue;
            }
            let line = before.rsplit('\n').next().unwrap_or(before);
            if line == "pub struct " || line == "impl " {
                continue;
            }
            let constant = line.strip_prefix("pub const ");
            let constant = constant.and_then(|rest| rest.strip_suffix(": Api = "));
            let place = path.display();
            assert!(path.ends_with("protocol/frame.rs"), "{place} makes an Api of its own");
            found.push(
                constant.unwrap_or_else(|| panic!("{place}: not a constant: {line}")).to_owned(),
            );
        }
    }
    let mut table = APIS.map(|tested| tested.constant);
    found.sort_unstable();
    table.sort_unstable();
    assert_eq!(found, table);
}
