use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;
use millstream_engine::api::options::Options;
use millstream_engine::api::sink::BatchId;

use super::body::{Request, requests};
use super::*;
use crate::notify::Message as _;
use crate::notify::keys::Keys;

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
    ])
}

fn parse(options: &[(&str, &str)]) -> Result<WebhookOptions, OptionError> {
    let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    WebhookOptions::parse(&Options::new(options), &schema())
}

fn rows(values: &[(i64, Option<&str>)]) -> RecordBatch {
    let numbers = Int64Array::from_iter_values(values.iter().map(|(n, _)| *n));
    let texts: StringArray = values.iter().map(|(_, text)| *text).collect();
    RecordBatch::try_new(Arc::new(schema()), vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
}

fn made(options: &[(&str, &str)], rows: &[RecordBatch]) -> Vec<(Option<u64>, Request)> {
    let parsed = parse(&[&[("url", "http://a")], options].concat()).unwrap();
    let keys = Keys::new("q", "t", BatchId(5));
    requests(&parsed.encoder, parsed.body, parsed.order_by, keys, rows.iter()).unwrap()
}

#[test]
fn what_cannot_be_is_refused_with_the_option_and_without_its_secret() {
    let refused: &[(&str, &[(&str, &str)])] = &[
        ("url", &[("url", "not a url")]),
        ("url", &[("url", "ftp://a/b")]),
        ("url", &[("url", "https://me:hidden-word@a/b")]),
        ("method", &[("method", "GET")]),
        ("body", &[("body", "rows")]),
        ("maxRowsPerRequest", &[("maxRowsPerRequest", "5")]),
        ("maxRowsPerRequest", &[("body", "array"), ("maxRowsPerRequest", "0")]),
        ("header.Host", &[("header.Host", "b")]),
        ("header.webhook-id", &[("header.webhook-id", "b")]),
        ("header.a b", &[("header.a b", "c")]),
        ("header.a", &[("header.a", "hidden-word\r\nb: c")]),
        ("bearerToken", &[("bearerToken", "hidden-word\n b")]),
        ("bearerToken", &[("bearerToken", "a"), ("user", "b")]),
        ("bearerToken", &[("bearerToken", "a"), ("header.authorization", "b")]),
        ("password", &[("password", "hidden-word")]),
        ("signingSecret", &[("signingSecret", "hidden-word")]),
        ("requestTimeout", &[("requestTimeout", "0s")]),
        ("maxRequestsInFlight", &[("maxRequestsInFlight", "0")]),
        ("orderBy", &[("orderBy", "m")]),
        ("orderBy", &[("orderBy", "n"), ("body", "array")]),
        ("maxRequestsPerSecond", &[("maxRequestsPerSecond", "0")]),
        ("maxRequestsPerSecond", &[("maxRequestsPerSecond", "nan")]),
        ("maxRetries", &[("maxRetries", "-1")]),
        ("refusedPath", &[("refusedPath", "s3://a/b")]),
        ("proxy", &[("proxy", "somewhere")]),
    ];
    for (key, options) in refused {
        let error = parse(&[&[("url", "https://a")], *options].concat()).err();
        let error = error.unwrap_or_else(|| panic!("{options:?} is taken"));
        assert_eq!(error.key.as_deref(), Some(*key), "{error:?}");
        assert!(!error.to_string().contains("hidden-word"), "{error}");
    }
    assert!(parse(&[]).err().unwrap().problem.contains("'url' is missing"));
}

#[test]
fn a_row_is_a_request() {
    let made = made(&[], &[rows(&[(1, Some("a\nb")), (2, None)]), rows(&[(1, Some("a\nb"))])]);
    let bodies: Vec<&[u8]> = made.iter().map(|(_, request)| &*request.body).collect();
    let first: &[u8] = br#"{"n":1,"text":"a\nb"}"#;
    assert_eq!(bodies, [first, br#"{"n":2}"#, first]);
    assert_ne!(made[0].1.key, made[2].1.key, "equal rows are two messages");
    assert_eq!(made[0].1.rows(), [Bytes::from(first)]);
}

#[test]
fn arrays_are_the_same_whatever_the_order_of_rows() {
    let options = [("body", "array"), ("maxRowsPerRequest", "2")];
    let one = made(&options, &[rows(&[(3, None), (1, None)]), rows(&[(2, None)])]);
    let other = made(&options, &[rows(&[(2, None), (3, None), (1, None)])]);
    let shown = |made: &[(Option<u64>, Request)]| {
        let show = |(_, request): &(_, Request)| (request.key.clone(), request.body.clone());
        made.iter().map(show).collect::<Vec<_>>()
    };
    assert_eq!(shown(&one), shown(&other));
    assert_eq!(&*one[0].1.body, br#"[{"n":1},{"n":2}]"#);
    assert_eq!(one[1].1.rows().len(), 1);
    assert!(made(&options, &[]).is_empty());
}

#[test]
fn rows_with_the_same_value_have_the_same_number() {
    let rows = rows(&[(1, Some("a")), (2, Some("b")), (3, Some("a")), (4, None)]);
    let made = made(&[("orderBy", "TEXT")], &[rows]);
    let orders: Vec<u64> = made.iter().map(|(order, _)| order.unwrap()).collect();
    assert_eq!(orders[0], orders[2]);
    assert_ne!(orders[0], orders[1]);
}
