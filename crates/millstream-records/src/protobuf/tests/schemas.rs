//! Where schemas come from, and the choice of a message.

use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};

use super::super::files::is_identifier;
use super::super::{Schema, SchemaError};

const TEXT: &str = r#"
    syntax = "proto3";
    package shop.v1;
    import "common/money.proto";
    import "google/protobuf/timestamp.proto";
    message Order {
        map<string, int32> counts = 1;
        message Line { int32 count = 1; message Deep {} }
        message Other { int32 x = 1; }
        common.Money price = 2;
        google.protobuf.Timestamp at = 3;
        repeated Line lines = 4;
    }
    message Refund { message Line { int32 count = 1; } Line line = 1; }
"#;
const MONEY: &str = r#"
    syntax = "proto3";
    package common;
    import public "common/currency.proto";
    message Money { int64 units = 1; Currency currency = 2; }
"#;
const CURRENCY: &str = r#"
    syntax = "proto3";
    package common;
    import public "common/sign.proto";
    enum Currency { NONE = 0; EUR = 1; }
"#;
const SIGN: &str = r#"syntax = "proto3"; package common; message Sign { string text = 1; }"#;
const REFERENCES: [(&str, &str); 3] = [
    ("common/money.proto", MONEY),
    ("common/currency.proto", CURRENCY),
    ("common/sign.proto", SIGN),
];

fn text(message: Option<&str>) -> Result<Schema, SchemaError> {
    Schema::from_text(TEXT, &REFERENCES, message)
}

fn files() -> Vec<FileDescriptorProto> {
    let pool = text(None).unwrap().descriptor().parent_pool().clone();
    pool.file_descriptor_protos().cloned().collect()
}

fn set(files: Vec<FileDescriptorProto>) -> Vec<u8> {
    FileDescriptorSet { file: files }.encode_to_vec()
}

#[test]
fn texts_refer_to_each_other() {
    let schema = text(None).unwrap();
    assert_eq!(schema.message_name(), "shop.v1.Order");
    assert_eq!(schema.message_index().unwrap(), [0]);
}

#[test]
fn public_imports_are_seen_at_any_distance() {
    let main = r#"syntax = "proto3"; import "common/money.proto";
        message M { common.Sign sign = 1; common.Currency currency = 2; }"#;
    assert!(Schema::from_text(main, &REFERENCES, None).is_ok());
    let private = MONEY.replace("import public", "import");
    let references = [("common/money.proto", private.as_str()), REFERENCES[1], REFERENCES[2]];
    let error = Schema::from_text(main, &references, None).unwrap_err();
    assert!(error.to_string().contains("common.Sign"), "{error}");
}

#[test]
fn descriptor_sets_are_linked_in_any_order() {
    let mut files = files();
    for _ in 0..files.len() {
        files.rotate_left(1);
        let schema = Schema::from_descriptor_set(&set(files.clone()), Some("Order")).unwrap();
        assert_eq!(schema.message_name(), "shop.v1.Order");
    }
    // Well-known files need not be in the set.
    files.retain(|file| !file.name().starts_with("google/"));
    assert!(Schema::from_descriptor_set(&set(files), Some("shop.v1.Refund")).is_ok());
}

#[test]
fn a_file_descriptor_has_its_dependencies_beside_it() {
    let bytes: Vec<(String, Vec<u8>)> =
        files().iter().map(|file| (file.name().to_owned(), file.encode_to_vec())).collect();
    let (main, others): (Vec<_>, Vec<_>) =
        bytes.into_iter().partition(|(name, _)| name == "the schema");
    let others: Vec<&[u8]> = others.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    let schema = Schema::from_file_descriptor(&main[0].1, &others, None).unwrap();
    assert_eq!(schema.message_name(), "shop.v1.Order");
    let error = Schema::from_file_descriptor(&main[0].1, &[], None).unwrap_err();
    assert!(
        matches!(&error, SchemaError::MissingImport { file, import }
            if file == "the schema" && import.starts_with("common/")),
        "{error}"
    );
}

#[test]
fn messages_have_names() {
    for name in ["shop.v1.Refund", ".shop.v1.Refund", "Refund", "v1.Refund"] {
        assert_eq!(text(Some(name)).unwrap().message_name(), "shop.v1.Refund", "{name}");
    }
    assert_eq!(text(Some("Order.Line")).unwrap().message_name(), "shop.v1.Order.Line");
    assert_eq!(text(Some("Money")).unwrap().message_name(), "common.Money");
    let candidates = ["shop.v1.Order.Line", "shop.v1.Refund.Line"].map(str::to_owned).to_vec();
    let message = "Line".to_owned();
    let error = text(Some("Line")).unwrap_err();
    assert_eq!(error, SchemaError::AmbiguousMessage { message, candidates });
    let error = text(Some("fund")).unwrap_err();
    assert!(matches!(&error, SchemaError::UnknownMessage { known, more: 0, .. }
        if known.contains(&"shop.v1.Refund".to_owned())
            && !known.iter().any(|name| name.contains("Entry") || name.contains("google"))));
}

#[test]
fn an_error_lists_twenty_messages_at_most() {
    let many: String = (0..50).map(|n| format!("message M{n:02} {{}}")).collect();
    let text = format!("syntax = \"proto3\"; {many}");
    let error = Schema::from_text(&text, &[], Some("X")).unwrap_err();
    assert!(error.to_string().ends_with("\"M19\"] and 30 more"), "{error}");
}

#[test]
fn messages_have_indexes() {
    let schema = text(None).unwrap();
    let paths: [(&[i32], &str); 6] = [
        (&[0], "Order"),
        (&[1], "Refund"),
        (&[0, 0], "Order.Line"),
        (&[0, 1], "Order.Other"),
        (&[0, 0, 0], "Order.Line.Deep"),
        (&[1, 0], "Refund.Line"),
    ];
    for (path, name) in paths {
        let found = schema.with_index(path).unwrap();
        assert_eq!(found.message_name(), format!("shop.v1.{name}"));
        assert_eq!(found.message_index().unwrap(), path);
    }
    for path in [&[2][..], &[-1], &[], &[0, 2], &[9, 0], &[0, 0, 0, 0]] {
        let error = schema.with_index(path).unwrap_err();
        assert!(matches!(error, SchemaError::Index { .. }), "{path:?}");
    }
    assert_eq!(schema.with_message("Refund").unwrap().message_index().unwrap(), [1]);
}

#[test]
fn an_imported_message_has_no_index() {
    let imported = "syntax = \"proto3\"; package p; message A {} message B {}";
    let main = "syntax = \"proto3\"; import \"p.proto\"; message M { p.B b = 1; message N {} }";
    let schema = Schema::from_text(main, &[("p.proto", imported)], Some("B")).unwrap();
    let error = schema.message_index().unwrap_err();
    let expected = SchemaError::Imported { message: "p.B".to_owned(), file: "p.proto".to_owned() };
    assert_eq!(error, expected);
    // Paths are those of the schema itself all the same.
    assert_eq!(schema.with_index(&[0, 0]).unwrap().message_name(), "M.N");
    assert_eq!(schema.with_message("N").unwrap().message_index().unwrap(), [0, 0]);
}

#[test]
fn a_set_says_which_message_only_when_there_is_one() {
    let one = Schema::from_text("syntax = \"proto3\"; message A { message B {} }", &[], None);
    let pool = one.unwrap().descriptor().parent_pool().clone();
    let schema = Schema::from_descriptor_set(&pool.encode_to_vec(), None).unwrap();
    assert_eq!(schema.message_name(), "A");
    let error = Schema::from_descriptor_set(&set(files()), None).unwrap_err();
    assert!(matches!(error, SchemaError::NoMessageNamed { .. }), "{error}");
    let error = Schema::from_text("syntax = \"proto3\"; enum E { A = 0; }", &[], None).unwrap_err();
    assert!(error.to_string().contains("has no messages"), "{error}");
}

#[test]
fn texts_with_errors_say_where() {
    let error = Schema::from_text("syntax = \"proto3\";\nmessage M { int32 a; }", &[], None);
    let error = error.unwrap_err();
    assert!(matches!(error, SchemaError::Text { .. }));
    assert!(error.to_string().contains(":2:"), "{error}");
    let error = Schema::from_text("syntax = \"proto3\"; message M { X a = 1; }", &[], None);
    assert!(matches!(error, Err(SchemaError::Invalid { detail }) if detail.contains("'X'")));
}

#[test]
fn options_of_fields_are_kept_where_they_matter() {
    let text = r#"syntax = "proto3"; import "google/protobuf/descriptor.proto";
        extend google.protobuf.FieldOptions { string note = 50000; }
        message M {
            repeated int32 a = 1;
            repeated int32 b = 2 [packed = false, (note) = "custom", deprecated = true];
            E c = 3;
        }
        enum E { option allow_alias = true; X = 0; Y = 0; }"#;
    let schema = Schema::from_text(text, &[], None).unwrap();
    let is_packed = |name| schema.descriptor().get_field_by_name(name).unwrap().is_packed();
    assert!(is_packed("a") && !is_packed("b"));
}

#[test]
fn cycles_are_found() {
    let a = r#"syntax = "proto3"; import public "b.proto"; message A {}"#;
    let b = r#"syntax = "proto3"; import public "a.proto"; message B {}"#;
    let main = r#"syntax = "proto3"; import "a.proto"; message M {}"#;
    let error = Schema::from_text(main, &[("a.proto", a), ("b.proto", b)], None).unwrap_err();
    assert!(matches!(&error, SchemaError::ImportCycle { files } if files.len() == 3), "{error}");
    let own = r#"syntax = "proto3"; import public "a.proto"; message A {}"#;
    let error = Schema::from_text(main, &[("a.proto", own)], None).unwrap_err();
    assert!(matches!(error, SchemaError::ImportCycle { .. }), "{error}");
}

#[test]
fn two_files_of_one_name_must_be_the_same() {
    let a = "syntax = \"proto3\"; message A {}";
    let b = "syntax = \"proto3\"; message B {}";
    let main = r#"syntax = "proto3"; import "a.proto"; message M {}"#;
    assert!(Schema::from_text(main, &[("a.proto", a), ("a.proto", a)], None).is_ok());
    let error = Schema::from_text(main, &[("a.proto", a), ("a.proto", b)], None).unwrap_err();
    assert_eq!(error, SchemaError::DuplicateFile { file: "a.proto".to_owned() });
}

#[test]
fn identifiers_are_those_of_the_grammar() {
    assert!(["a", "_", "A1_b"].iter().all(|name| is_identifier(name)));
    assert!(!["", "1a", "a-b", "a.b", "ä", "a b"].iter().any(|name| is_identifier(name)));
}
