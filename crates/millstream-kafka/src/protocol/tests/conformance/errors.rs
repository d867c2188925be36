//! Error codes are Kafka's, and those that pass are those that Kafka's own client takes for that.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::kafka;
use crate::protocol::error_code::{ErrorCode, PASSING};

/// What the names here are in Kafka.
const NAMED: [(ErrorCode, &str); 17] = [
    (ErrorCode::NONE, "NONE"),
    (ErrorCode::OFFSET_OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"),
    (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "UNKNOWN_TOPIC_OR_PARTITION"),
    (ErrorCode::LEADER_NOT_AVAILABLE, "LEADER_NOT_AVAILABLE"),
    (ErrorCode::MESSAGE_TOO_LARGE, "MESSAGE_TOO_LARGE"),
    (ErrorCode::COORDINATOR_NOT_AVAILABLE, "COORDINATOR_NOT_AVAILABLE"),
    (ErrorCode::RECORD_LIST_TOO_LARGE, "RECORD_LIST_TOO_LARGE"),
    (ErrorCode::GROUP_AUTHORIZATION, "GROUP_AUTHORIZATION_FAILED"),
    (ErrorCode::CLUSTER_AUTHORIZATION, "CLUSTER_AUTHORIZATION_FAILED"),
    (ErrorCode::UNSUPPORTED_SASL_MECHANISM, "UNSUPPORTED_SASL_MECHANISM"),
    (ErrorCode::UNSUPPORTED_VERSION, "UNSUPPORTED_VERSION"),
    (ErrorCode::DUPLICATE_SEQUENCE, "DUPLICATE_SEQUENCE_NUMBER"),
    (ErrorCode::INVALID_PRODUCER_EPOCH, "INVALID_PRODUCER_EPOCH"),
    (ErrorCode::INVALID_TRANSACTION_STATE, "INVALID_TXN_STATE"),
    (ErrorCode::INVALID_PRODUCER_ID_MAPPING, "INVALID_PRODUCER_ID_MAPPING"),
    (ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    (ErrorCode::PRODUCER_FENCED, "PRODUCER_FENCED"),
];

/// What belongs to a group, and Kafka's names for that.
type Group = (fn(ErrorCode) -> bool, &'static [&'static str]);

/// What the numbers in the groups of [`ErrorCode`] are in Kafka.
const GROUPED: [Group; 4] = [
    (
        ErrorCode::is_about_rows,
        &[
            "INVALID_RECORD",
            "INVALID_TIMESTAMP",
            "INVALID_TOPIC_EXCEPTION",
            "MESSAGE_TOO_LARGE",
            "POLICY_VIOLATION",
            "RECORD_LIST_TOO_LARGE",
            "TOPIC_AUTHORIZATION_FAILED",
        ],
    ),
    (
        ErrorCode::is_about_session,
        &[
            "FETCH_SESSION_ID_NOT_FOUND",
            "FETCH_SESSION_TOPIC_ID_ERROR",
            "INVALID_FETCH_SESSION_EPOCH",
        ],
    ),
    (
        ErrorCode::is_about_data,
        &["CORRUPT_MESSAGE", "INVALID_RECORD", "UNSUPPORTED_COMPRESSION_TYPE"],
    ),
    (
        ErrorCode::is_about_writer,
        &[
            "INVALID_PRODUCER_EPOCH",
            "INVALID_PRODUCER_ID_MAPPING",
            "INVALID_TXN_STATE",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            "PRODUCER_FENCED",
            "UNKNOWN_PRODUCER_ID",
        ],
    ),
];

/// Errors after which a leader or coordinator is looked up again though Kafka's class does not say
/// so.
const MOVED_TOO: [&str; 5] = [
    "BROKER_NOT_AVAILABLE",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_CONTROLLER",
    "NOT_COORDINATOR",
    "UNKNOWN_LEADER_EPOCH",
];

fn errors() -> BTreeMap<i16, Value> {
    let all = kafka::ask(&json!({"ask": "errors"}));
    let all = all.as_array().expect("a list").iter().cloned();
    all.map(|error| {
        let code = error["code"].as_i64().expect("a number");
        (i16::try_from(code).expect("it has two bytes"), error)
    })
    .collect()
}

#[test]
fn names_belong_to_kafkas_numbers() {
    let errors = errors();
    for (code, name) in NAMED {
        assert_eq!(errors[&code.0]["name"], name);
    }
    for (is_in_group, expected) in GROUPED {
        let codes = errors.iter().filter(|(code, _)| is_in_group(ErrorCode(**code)));
        let mut names: Vec<_> = codes.map(|(_, error)| error["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, expected);
    }
}

#[test]
fn errors_pass_that_kafkas_client_takes_for_passing() {
    for (code, error) in errors() {
        let name = error["name"].as_str().expect("a name");
        let passing = PASSING.iter().find(|passing| passing.code == code);
        // A broker that is away may come back; the class does not say that.
        let passes = error["retriable"] == true || name == "BROKER_NOT_AVAILABLE";
        assert_eq!(passing.map(|passing| passing.name), passes.then_some(name));
        let moves = error["metadata"] == true || MOVED_TOO.contains(&name);
        assert_eq!(ErrorCode(code).is_misplaced(), moves, "{name}");
    }
}
