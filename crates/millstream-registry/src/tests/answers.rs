//! What is asked, and what answers mean.

use millstream_store::error::{Classified as _, Kind};
use serde_json::json;

use super::*;
use crate::{Body, Compatibility, Link, RegistryError};

/// A descriptor of a file `a.proto` without messages.
const DESCRIPTOR: &str = "CgdhLnByb3Rv";

#[test]
fn a_schema_is_of_the_kind_that_the_registry_says() {
    let schemas = [
        (json!({"schema": "\"int\""}), SchemaKind::Avro),
        (json!({"schema": "\"int\"", "schemaType": null, "references": null}), SchemaKind::Avro),
        (json!({"schema": "\"int\"", "schemaType": "AVRO", "references": []}), SchemaKind::Avro),
        (json!({"schema": "{}", "schemaType": "JSON", "id": 9, "more": [1]}), SchemaKind::Json),
    ];
    for (answer, kind) in schemas {
        let text = answer["schema"].as_str().expect("it is text").to_owned();
        let server = serve(move |_| Said::json(&answer));
        let schema = server.client().schema(7, &patience()).expect("it is there");
        assert_eq!((schema.id, schema.kind), (7, kind));
        assert_eq!(schema.body, Body::Text(text));
        assert_eq!(server.lines(), ["GET /schemas/ids/7"]);
    }
    let server = serve(|_| Said::json(&json!({"schema": "x", "schemaType": "THRIFT"})));
    let error = server.client().schema(7, &patience()).expect_err("nobody knows it");
    assert!(matches!(&error, RegistryError::Unusable { .. }), "{error}");
    assert!(error.to_string().contains("\"THRIFT\""), "{error}");
}

#[test]
fn a_protobuf_schema_is_a_descriptor_where_the_registry_can_give_one() {
    let text = "syntax = \"proto3\";";
    let plain = json!({"schema": text, "schemaType": "PROTOBUF"});
    let serialized = json!({"schema": DESCRIPTOR, "schemaType": "PROTOBUF"});
    let descriptor = Body::Descriptor(b"\x0a\x07a.proto".to_vec());
    let both = vec!["GET /schemas/ids/1".to_owned(), "GET /schemas/ids/1?format=serialized".into()];
    type Second = fn() -> Said;
    let ways: [(Second, Body); 5] = [
        (
            || Said::json(&json!({"schema": DESCRIPTOR, "schemaType": "PROTOBUF"})),
            descriptor.clone(),
        ),
        (
            || Said::json(&json!({"schema": "syntax = \"proto3\";", "schemaType": "PROTOBUF"})),
            Body::Text(text.to_owned()),
        ),
        (|| Said::error(501, 501, "unknown format"), Body::Text(text.to_owned())),
        (|| Said::new(500, "Internal Server Error"), Body::Text(text.to_owned())),
        (|| Said::error(422, 42_201, "unknown format"), Body::Text(text.to_owned())),
    ];
    for (second, body) in ways {
        let plain = plain.clone();
        let server = serve(move |seen| match seen.number {
            0 => Said::json(&plain),
            _ => second(),
        });
        let schema = server.client().schema(1, &once()).expect("it is there");
        assert_eq!(schema.body, body);
        assert_eq!(server.lines(), both);
    }
    let server = serve(move |_| Said::json(&serialized));
    let schema = server.client().schema(1, &once()).expect("it is there");
    assert_eq!(schema.body, descriptor);
    assert_eq!(server.count(), 1, "it was one already");
}

#[test]
fn versions_are_asked_for_each_time_and_subjects_are_encoded() {
    let server = serve(|_| {
        Said::json(&json!({"subject": "s", "version": 3, "id": 12, "schema": "\"int\""}))
    });
    let client = server.client();
    for _ in 0..2 {
        let (version, schema) = client.latest("a/b %ü?#", &patience()).expect("it is there");
        assert_eq!((version, schema.id), (3, 12));
    }
    let schema = client.version("x", 3, &patience()).expect("it is there");
    assert_eq!(schema.id, 12);
    let latest = "GET /subjects/a%2Fb%20%25%C3%BC%3F%23/versions/latest";
    assert_eq!(server.lines(), [latest, latest, "GET /subjects/x/versions/3"]);
    for nameless in ["", ".", ".."] {
        let error = client.latest(nameless, &patience()).expect_err("it is no segment");
        assert!(matches!(&error, RegistryError::Invalid { .. }), "{error}");
    }
    assert_eq!(server.count(), 3, "nothing was asked");
}

#[test]
fn a_latest_protobuf_schema_is_one_version_also_if_another_comes() {
    let server = serve(|seen| {
        let version = if seen.number == 0 { 4 } else { 5 };
        let text = if seen.line.ends_with("serialized") { DESCRIPTOR } else { "message A {}" };
        Said::json(&json!({
            "version": version, "id": version, "schema": text, "schemaType": "PROTOBUF",
        }))
    });
    let (version, schema) = server.client().latest("s", &once()).expect("it is there");
    assert_eq!((version, schema.id), (4, 4));
    assert_eq!(server.lines()[1], "GET /subjects/s/versions/4?format=serialized");
}

#[test]
fn a_schema_is_registered_and_looked_up_with_all_that_belongs_to_it() {
    let server = serve(|_| Said::json(&json!({"id": 5})));
    let client = server.client();
    assert_eq!(client.register("s", &avro("\"int\""), &patience()), Ok(5));
    let link = Link { name: "b.proto".into(), subject: "b".into(), version: 2 };
    let draft = Draft { kind: SchemaKind::Protobuf, text: "import", references: &[link] };
    assert_eq!(client.lookup("s", &draft, &patience()), Ok(Some(5)));
    let seen = server.seen.lock();
    let body = |index: usize| -> Value { serde_json::from_str(&seen[index].body).expect("JSON") };
    assert_eq!(seen[0].line, "POST /subjects/s/versions");
    assert_eq!(seen[0].media_type.as_deref(), Some("application/vnd.schemaregistry.v1+json"));
    assert_eq!(body(0), json!({"schema": "\"int\""}));
    assert_eq!(seen[1].line, "POST /subjects/s");
    let references = json!([{"name": "b.proto", "subject": "b", "version": 2}]);
    let sent = json!({"schema": "import", "schemaType": "PROTOBUF", "references": references});
    assert_eq!(body(1), sent);
}

#[test]
fn what_is_not_registered_is_no_error_of_a_lookup() {
    for code in [40_401, 40_403] {
        let server = serve(move |_| Said::error(404, code, "not found"));
        assert_eq!(server.client().lookup("s", &avro("\"int\""), &patience()), Ok(None));
    }
}

#[test]
fn compatibility_is_said_with_its_reasons() {
    let check = |said: fn() -> Said| {
        let server = serve(move |_| said());
        let answer = server.client().compatible("s", &avro("\"int\""), &patience());
        let line = "POST /compatibility/subjects/s/versions/latest?verbose=true";
        assert_eq!(server.lines(), [line]);
        answer.expect("it is an answer")
    };
    let is = |is_compatible, messages: &[&str]| {
        let messages = messages.iter().map(|it| (*it).to_owned()).collect();
        Compatibility { is_compatible, messages }
    };
    assert_eq!(check(|| Said::json(&json!({"is_compatible": true}))), is(true, &[]));
    let no = || Said::json(&json!({"is_compatible": false, "messages": ["a", "b"]}));
    assert_eq!(check(no), is(false, &["a", "b"]));
    let one = || Said::json(&json!({"is_compatible": false, "messages": "a"}));
    assert_eq!(check(one), is(false, &["a"]));
    assert_eq!(check(|| Said::error(404, 40_401, "no subject")), is(true, &[]));
    assert_eq!(check(|| Said::error(409, 409, "never")), is(false, &["never"]));
}

#[test]
fn refusals_say_what_the_caller_should_do() {
    type Asked = fn(&Registry) -> RegistryError;
    let schema: Asked = |client| client.schema(7, &once()).expect_err("it is refused");
    let version: Asked = |client| client.version("s", 3, &once()).expect_err("it is refused");
    let latest: Asked = |client| client.latest("s", &once()).expect_err("it is refused");
    let register: Asked =
        |client| client.register("s", &avro("x"), &once()).expect_err("it is refused");
    let cases: [(Asked, u16, i64, Kind, &str); 16] = [
        (schema, 404, 40_403, Kind::Data, "no schema of the id 7"),
        (schema, 404, 40_401, Kind::Data, "no schema of the id 7"),
        (latest, 404, 40_401, Kind::Config, "no subject 's'"),
        (version, 404, 40_402, Kind::Config, "'s' has no version 3"),
        (latest, 404, 40_402, Kind::Config, "'s' has no version latest"),
        (version, 404, 404, Kind::Config, "not answer as a schema registry"),
        (schema, 401, 401, Kind::Credentials, "who asks without a user (401 no!): correct the"),
        (schema, 403, 40_301, Kind::Credentials, "needs a permission"),
        (register, 409, 409, Kind::Config, "incompatible with those before: no!"),
        (register, 422, 42_201, Kind::Config, "take the AVRO schema for the subject 's': no!"),
        (register, 400, 42_201, Kind::Config, "take the AVRO schema for the subject 's': no!"),
        (schema, 405, 405, Kind::Config, "405 Method Not Allowed: no!"),
        (schema, 500, 50_001, Kind::Retry, "500 Internal Server Error: no!"),
        (register, 503, 50_003, Kind::Retry, "503 Service Unavailable: no!"),
        (schema, 429, 42_901, Kind::Retry, "429 Too Many Requests: no!"),
        (schema, 408, 408, Kind::Retry, "408"),
    ];
    for (asked, status, code, kind, said) in cases {
        let server = serve(move |_| Said::error(status, code, "no!"));
        let error = asked(&server.client());
        let text = error.to_string();
        assert!(text.contains(said), "{text} for {status} {code}");
        assert_eq!(error.kind(), kind, "{text}");
        assert_eq!(server.count(), 1);
    }
}

#[test]
fn what_is_no_registry_is_named_with_what_came() {
    let answers: [(u16, &str, &str); 7] = [
        (200, "<html>\n <body>Welcome</body></html>", "'<html> <body>Welcome</body></html>'"),
        (200, "", "''"),
        (200, "{\"schema\": 5}", "invalid type"),
        (200, "{\"other\": true}", "missing field `schema`"),
        (200, "[1,2]", "[1,2]"),
        (404, "<html>nginx</html>", "404 Not Found: <html>nginx</html>"),
        (400, "Client sent an HTTP request to an HTTPS server.", "an HTTPS server"),
    ];
    for (status, body, said) in answers {
        let server = serve(move |_| Said::new(status, body));
        let error = server.client().schema(7, &patience()).expect_err("it is no registry");
        assert!(matches!(&error, RegistryError::NotARegistry { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(said) && text.contains(&server.url), "{text}");
        assert_eq!(server.count(), 1, "it is not asked again");
    }
}

#[test]
fn a_url_keeps_its_path_and_is_checked() {
    let server = serve(|_| string_schema());
    let url = format!("{}/apis/ccompat/v7/", server.url);
    client(&[&url], &Env::real()).schema(1, &patience()).expect("it is there");
    assert_eq!(server.lines(), ["GET /apis/ccompat/v7/schemas/ids/1"]);
    for (url, said) in [
        ("localhost:8081", "begin with http:// or https://"),
        ("registry", "relative URL"),
        ("ftp://registry", "begin with http:// or https://"),
        ("http://registry?x=1", "ends with its path"),
        ("http://registry:port", "port"),
    ] {
        let error = Registry::new(&settings(&[url]), &Env::real()).expect_err("it is no URL");
        assert_eq!(error.kind(), Kind::Config);
        let text = error.to_string();
        assert!(text.contains(said) && text.contains(url), "{text}");
    }
    let error = Registry::new(&settings(&[]), &Env::real()).expect_err("there is no URL");
    assert!(matches!(&error, RegistryError::Setting { .. }), "{error}");
}
