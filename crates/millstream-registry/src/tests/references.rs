//! Schemas that are made with others.

use std::collections::BTreeMap;

use super::*;
use crate::{Body, Reference, RegistryError};

/// A subject, the number of its version, and what that refers to.
type Schema<'a> = (&'a str, u32, &'a [(&'a str, i64)]);

/// A registry of the subjects `schemas`: each has one version, whose number is given, a text of its
/// name, and references under the names of their subjects.
fn registry(kind: &str, schemas: &[Schema<'_>]) -> Server {
    let kind = kind.to_owned();
    let schemas: BTreeMap<String, Value> = schemas
        .iter()
        .map(|(subject, version, references)| {
            let link = |(name, version): &(&str, i64)| {
                json!({"name": name, "subject": name, "version": version})
            };
            let references: Vec<Value> = references.iter().map(link).collect();
            let answer = json!({
                "schema": format!("text of {subject}"), "schemaType": kind, "version": version,
                "id": 1, "references": references,
            });
            ((*subject).to_owned(), answer)
        })
        .collect();
    serve(move |seen| {
        let path = seen.line.trim_start_matches("GET ").split('?').next().expect("it has a path");
        let parts: Vec<&str> = path.split('/').collect();
        let subject = if parts[1] == "schemas" { "root" } else { parts[2] };
        match schemas.get(subject) {
            None => Said::error(404, 40_401, "no"),
            Some(answer) if parts[1] == "schemas" || parts[4] == "latest" => Said::json(answer),
            Some(answer) if parts[4].parse().is_ok_and(|it: u32| answer["version"] == it) => {
                Said::json(answer)
            }
            Some(_) => Said::error(404, 40_402, "no"),
        }
    })
}

fn error(server: &Server) -> RegistryError {
    server.client().schema(1, &patience()).expect_err("it is refused")
}

#[test]
fn references_come_each_once_and_after_those_that_they_need() {
    let server = registry(
        "JSON",
        &[
            ("root", 9, &[("left", 2), ("right", 3), ("low", 1)]),
            ("left", 2, &[("low", 1)]),
            ("right", 3, &[("low", 1), ("left", 2)]),
            ("low", 1, &[]),
        ],
    );
    let schema = server.client().schema(1, &patience()).expect("it is there");
    let reference = |name: &str, version| Reference {
        name: name.to_owned(),
        subject: name.to_owned(),
        version,
        body: Body::Text(format!("text of {name}")),
    };
    let expected = [reference("low", 1), reference("left", 2), reference("right", 3)];
    assert_eq!(schema.references, expected);
    assert_eq!(schema.kind, SchemaKind::Json);
    let asked: Vec<String> = ["left/versions/2", "low/versions/1", "right/versions/3"]
        .map(|path| format!("GET /subjects/{path}?deleted=true"))
        .into();
    assert_eq!(server.lines()[1..], asked);
}

#[test]
fn references_of_protobuf_are_asked_for_as_descriptors() {
    let server = registry("PROTOBUF", &[("root", 1, &[("b", 2)]), ("b", 2, &[])]);
    server.client().schema(1, &patience()).expect("it is there");
    let asked = [
        "GET /schemas/ids/1",
        "GET /schemas/ids/1?format=serialized",
        "GET /subjects/b/versions/2?deleted=true",
        "GET /subjects/b/versions/2?deleted=true&format=serialized",
    ];
    assert_eq!(server.lines(), asked);
}

#[test]
fn a_reference_to_the_latest_version_says_which_that_is() {
    let server = registry("AVRO", &[("root", 1, &[("b", -1)]), ("b", 8, &[])]);
    let schema = server.client().schema(1, &patience()).expect("it is there");
    assert_eq!(schema.references[0].version, 8);
    assert_eq!(server.lines()[1], "GET /subjects/b/versions/latest?deleted=true");
}

#[test]
fn references_that_are_not_there_are_named() {
    let server = registry("AVRO", &[("root", 1, &[("b", 1)])]);
    let subject = "b".to_owned();
    assert_eq!(error(&server), RegistryError::NoSuchSubject { subject });
    let server = registry("AVRO", &[("root", 1, &[("b", 1)]), ("b", 2, &[])]);
    let (subject, version) = ("b".to_owned(), "1".to_owned());
    assert_eq!(error(&server), RegistryError::NoSuchVersion { subject, version });
    for version in [0, -2, i64::MIN, i64::MAX] {
        let server = registry("AVRO", &[("root", 1, &[("b", version)]), ("b", 2, &[])]);
        let text = error(&server).to_string();
        assert!(text.contains(&format!("version {version} of 'b'")), "{text}");
    }
}

#[test]
fn a_schema_that_is_made_with_itself_is_refused() {
    let direct = registry("AVRO", &[("root", 1, &[("root", 1)])]);
    let far =
        registry("AVRO", &[("root", 1, &[("a", 1)]), ("a", 1, &[("b", 1)]), ("b", 1, &[("a", 1)])]);
    // Under another name each time.
    let renamed = serve(|seen| {
        let link = json!({"name": seen.number.to_string(), "subject": "s", "version": 1});
        Said::json(&json!({"schema": "x", "id": 1, "version": 1, "references": [link]}))
    });
    for server in [direct, far, renamed] {
        let error = error(&server);
        assert!(matches!(&error, RegistryError::Unusable { .. }), "{error}");
        assert!(error.to_string().contains("refers to itself"), "{error}");
        assert!(server.count() < 5);
    }
}

#[test]
fn references_without_end_are_refused() {
    let deep = serve(|seen| {
        let name = seen.number.to_string();
        let link = json!({"name": name, "subject": name, "version": 1});
        Said::json(&json!({"schema": "x", "id": 1, "version": 1, "references": [link]}))
    });
    let wide = serve(|seen| {
        let link = |number| json!({"name": format!("{number}"), "subject": "s", "version": number});
        let links: Vec<Value> = match seen.line.contains("ids") {
            true => (1..=200).map(link).collect(),
            false => Vec::new(),
        };
        Said::json(&json!({"schema": "x", "id": 1, "version": 1, "references": links}))
    });
    for server in [deep, wide] {
        let text = error(&server).to_string();
        assert!(text.contains("more than 100 schemas"), "{text}");
        assert_eq!(server.count(), 101);
    }
    let large = serve(|seen| {
        let name = seen.number.to_string();
        let link = json!({"name": name, "subject": name, "version": 1});
        let text = "x".repeat(4 << 20);
        Said::json(&json!({"schema": text, "id": 1, "version": 1, "references": [link]}))
    });
    let text = error(&large).to_string();
    assert!(text.contains("over 16 MiB"), "{text}");
}

#[test]
fn a_schema_of_another_kind_cannot_be_part_of_one() {
    let server = serve(|seen| {
        let kind = if seen.number == 0 { "AVRO" } else { "JSON" };
        let link = json!({"name": "n", "subject": "s", "version": 1});
        Said::json(&json!({"schema": "x", "schemaType": kind, "references": [link]}))
    });
    let text = error(&server).to_string();
    assert!(text.contains("it is AVRO") && text.contains("which is JSON"), "{text}");
}

#[test]
fn a_subject_that_is_no_name_leads_to_no_other_path() {
    for subject in ["..", "../../config", "s?x=1"] {
        let server = serve(move |_| {
            let link = json!({"name": "n", "subject": subject, "version": 1});
            Said::json(&json!({"schema": "x", "references": [link]}))
        });
        error(&server);
        let lines = server.lines();
        let is_below = |line: &String| {
            line.starts_with("GET /subjects/") && line.contains("/versions/1?deleted=true")
        };
        assert!(lines.iter().skip(1).all(is_below), "{lines:?}");
    }
}
