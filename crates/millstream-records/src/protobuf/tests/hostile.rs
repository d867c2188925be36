//! Records and schemas that are broken on purpose.

use arrow::array::RecordBatch;
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, MessageOptions,
};

use super::super::wire::{MAX_DEPTH, WireError};
use super::super::{Decoder, Encoder, Fault, Options, Plan, Schema, SchemaError};
use super::oracle::{Choices, message, schemas};
use super::roundtrip::fields;
use super::{all, decode_one, proto2, proto3, raw};

/// A record with about every kind of field, but not too long to be broken in every place.
fn record(schema: &Schema) -> Vec<u8> {
    let choices: Vec<u8> =
        (0..4000u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    let record = message(schema.descriptor(), &mut Choices(choices.iter())).encode_to_vec();
    assert!(record.len() > 60, "{}", record.len());
    record
}

/// Appends broken records, each between whole ones. The whole ones must all be the same.
fn check_neighbours(schema: &Schema, whole: &[u8], broken: impl Iterator<Item = Vec<u8>>) {
    let columns = schema.columns(&Options::default()).unwrap();
    let projection = all(&columns);
    let plan = Plan::new(schema, &Options::default(), &columns, &projection).unwrap();
    let mut decoder = Decoder::new(&columns, &projection).unwrap();
    decoder.append(&plan, whole).unwrap();
    let expected = decoder.finish();
    let mut wholes = Vec::new();
    let mut refused = 0;
    let check = |decoder: &mut Decoder, wholes: &mut Vec<usize>| {
        let batch: RecordBatch = decoder.finish();
        for at in wholes.drain(..) {
            assert_eq!(batch.slice(at, 1).columns(), expected.columns());
        }
    };
    for record in broken {
        wholes.push(decoder.rows());
        decoder.append(&plan, whole).unwrap();
        let rows = decoder.rows();
        match decoder.append(&plan, &record) {
            Ok(()) => assert_eq!(decoder.rows(), rows + 1),
            Err(_) => {
                refused += 1;
                assert_eq!(decoder.rows(), rows);
            }
        }
        if wholes.len() == 200 {
            check(&mut decoder, &mut wholes);
        }
    }
    check(&mut decoder, &mut wholes);
    assert!(refused > 0);
}

#[test]
fn neighbours_of_cut_off_records_are_whole() {
    for schema in schemas() {
        let whole = record(&schema);
        let cut = (0..whole.len()).map(|end| whole[..end].to_vec());
        check_neighbours(&schema, &whole, cut);
    }
}

#[test]
fn neighbours_of_changed_records_are_whole() {
    for schema in schemas() {
        // Not more than a hundred bytes or so, but fields of all kinds.
        let fields = fields(&record(&schema));
        let short = |field: &&(u32, Vec<u8>)| field.0 == 1 || field.1.len() <= 12;
        let stride = fields.iter().filter(short).count().div_ceil(10);
        let whole: Vec<u8> = fields
            .iter()
            .filter(short)
            .step_by(stride)
            .flat_map(|(_, bytes)| bytes.iter().copied())
            .collect();
        let changed = (0..whole.len()).flat_map(|at| {
            let whole = whole.clone();
            (1..=255u8).map(move |change| {
                let mut record = whole.clone();
                record[at] ^= change;
                record
            })
        });
        check_neighbours(&schema, &whole, changed);
    }
}

#[test]
fn lengths_are_not_believed() {
    let schema = proto3(
        "message M { string a = 1; repeated double b = 2; M2 c = 3; }
        message M2 { int32 x = 1; }",
    );
    for number in 1..=3 {
        let mut record = vec![number << 3 | 2];
        record.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        let error = decode_one(&schema, &Options::default(), &record).unwrap_err();
        assert_eq!(error.fault, Fault::Wire(WireError::Truncated));
    }
}

#[test]
fn nesting_does_not_overflow() {
    let schema = proto3("message M { int32 a = 1; }");
    let groups = [0x13u8].repeat(1_000_000);
    let error = decode_one(&schema, &Options::default(), &groups).unwrap_err();
    assert_eq!(error.fault, Fault::Wire(WireError::Depth));
    let mut fine = [0x13].repeat(MAX_DEPTH);
    fine.extend([0x14].repeat(MAX_DEPTH));
    assert!(decode_one(&schema, &Options::default(), &fine).is_ok());
}

#[test]
fn merging_takes_no_more_than_its_share_of_time() {
    // Each message occurs twice in the one around it, and the second occurrence is almost nothing.
    let mut text = "message M0 { int32 a = 1; }".to_owned();
    let mut record = raw().int(1, 1);
    for level in 1..60 {
        text = format!("message M{level} {{ M{} m = 1; }} {text}", level - 1);
        record = raw().nested(1, record).nested(1, raw());
    }
    assert!(decode_one(&proto3(&text), &Options::default(), &record.0).is_ok());
}

/// What comes of a record in a batch of 64 KiB.
fn limited(schema: &Schema, record: &[u8]) -> (String, Fault) {
    let columns = schema.columns(&Options::default()).unwrap();
    let plan = Plan::new(schema, &Options::default(), &columns, &all(&columns)).unwrap();
    let mut decoder = Decoder::new(&columns, &all(&columns)).unwrap().limited(1 << 16);
    let error = decoder.append(&plan, record).unwrap_err();
    // The next record has the batch for itself again.
    decoder.append(&plan, &[]).unwrap();
    (error.path.join("."), error.fault)
}

#[test]
fn short_records_cannot_fill_the_memory() {
    let name = "N".repeat(1000);
    let schema = proto3(&format!("message M {{ repeated E a = 1; }} enum E {{ {name} = 0; }}"));
    let record = raw().bytes(1, vec![0; 70]);
    assert_eq!(limited(&schema, &record.0), ("a".to_owned(), Fault::TooLarge));

    let fields: String = (1..=200).map(|n| format!("optional int64 f{n} = {n};")).collect();
    let schema = proto2(&format!("message M {{ repeated N n = 1; }} message N {{ {fields} }}"));
    assert_eq!(limited(&schema, &[0x0a, 0].repeat(50)), ("n".to_owned(), Fault::TooLarge));

    let map = format!("message M {{ map<int32, N> n = 1; }} message N {{ {} }}", fields);
    let schema = proto2(&map);
    let entries = (0..50).fold(raw(), |record, key| record.nested(1, raw().int(1, key)));
    assert_eq!(limited(&schema, &entries.0), ("n".to_owned(), Fault::TooLarge));

    let text = "t".repeat(1000);
    let schema = proto2(&format!(
        r#"message M {{ repeated N n = 1; }}
        message N {{ optional string s = 1 [default = "{text}"]; }}"#
    ));
    assert_eq!(limited(&schema, &[0x0a, 0].repeat(70)), ("n.s".to_owned(), Fault::TooLarge));
}

/// Whatever can be done with a schema.
fn use_schema(schema: &Schema) {
    let options = Options { recursive_fields_max_depth: 3, ..Options::default() };
    if let Ok(index) = schema.message_index() {
        let _ = schema.with_index(&index);
    }
    let Ok(columns) = schema.columns(&options) else { return };
    let plan = Plan::new(schema, &options, &columns, &all(&columns));
    let _ = Encoder::new(schema, &columns);
    if let (Ok(plan), Ok(mut decoder)) = (plan, Decoder::new(&columns, &all(&columns))) {
        let _ = decoder.append(&plan, &[8, 1, 18, 1, 65, 26, 2, 8, 1]);
        decoder.finish();
    }
}

fn descriptor_set() -> Vec<u8> {
    let schema = Schema::from_text(
        r#"syntax = "proto2"; package p.q; message M { required int32 a = 1 [default = 5];
            optional string b = 2; optional N n = 3; repeated E e = 4 [packed = true];
            map<string, N> m = 5; oneof o { int32 x = 6; group G = 7 { optional M m = 1; } }
            message N { optional int32 a = 1; } }
        enum E { option allow_alias = true; A = 0; B = 1; C = 1; }"#,
        &[],
        None,
    );
    schema.unwrap().descriptor().parent_pool().encode_to_vec()
}

#[test]
fn broken_descriptors_are_refused_or_used() {
    let whole = descriptor_set();
    assert!(Schema::from_descriptor_set(&whole, Some("p.q.M")).is_ok());
    let mut broken: Vec<Vec<u8>> = (0..whole.len()).map(|end| whole[..end].to_vec()).collect();
    for at in 0..whole.len() {
        for change in [1, 2, 4, 8, 0x20, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            broken.push(bytes);
        }
    }
    let mut used = 0;
    for bytes in broken {
        for message in [Some("M"), None] {
            if let Ok(schema) = Schema::from_descriptor_set(&bytes, message) {
                use_schema(&schema);
                used += 1;
            }
        }
    }
    assert!(used > 0);
}

#[test]
fn garbage_is_refused() {
    let garbage = [0xff; 40];
    let error = Schema::from_descriptor_set(&garbage, None).unwrap_err();
    assert!(matches!(error, SchemaError::NotADescriptorSet { .. }), "{error}");
    let error = Schema::from_file_descriptor(&garbage, &[], None).unwrap_err();
    assert!(matches!(error, SchemaError::NotAFileDescriptor { .. }), "{error}");
    let main = FileDescriptorProto::default().encode_to_vec();
    let error = Schema::from_file_descriptor(&main, &[&garbage], None).unwrap_err();
    assert!(error.to_string().starts_with("dependency 1 of the schema is no"), "{error}");
    assert!(Schema::from_descriptor_set(&[], None).is_err());
    for text in ["\0", "message", "message M {", "{{{{", "syntax = \"proto9\";", "\u{feff}"] {
        assert!(Schema::from_text(text, &[], None).is_err(), "{text:?}");
    }
    let deep = "message M {".repeat(100_000);
    assert!(Schema::from_text(&deep, &[], None).is_err());
    let aggregate = format!("option (x) = {}", "{ a ".repeat(100_000));
    assert!(Schema::from_text(&aggregate, &[], None).is_err());
}

fn file(messages: Vec<DescriptorProto>) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some("f.proto".to_owned()),
        message_type: messages,
        ..FileDescriptorProto::default()
    }
}

fn refused(file: FileDescriptorProto) -> SchemaError {
    Schema::from_file_descriptor(&file.encode_to_vec(), &[], None).unwrap_err()
}

#[test]
fn editions_are_refused() {
    let file = FileDescriptorProto { syntax: Some("editions".to_owned()), ..file(vec![]) };
    let error = refused(file);
    assert!(matches!(&error, SchemaError::Syntax { syntax, .. } if syntax == "editions"));
    assert!(error.to_string().contains("proto2 and proto3"), "{error}");
}

#[test]
fn types_that_are_no_types_are_refused() {
    let named = |name: &str| DescriptorProto { name: Some(name.to_owned()), ..Default::default() };
    assert!(matches!(refused(file(vec![named("a.b")])), SchemaError::Name { .. }));
    assert!(matches!(refused(file(vec![DescriptorProto::default()])), SchemaError::Name { .. }));
    assert!(matches!(refused(file(vec![named("A"), named("A")])), SchemaError::Invalid { .. }));

    let entry = DescriptorProto {
        options: Some(MessageOptions { map_entry: Some(true), ..Default::default() }),
        ..named("A")
    };
    let error = refused(file(vec![entry]));
    assert!(error.to_string().contains("A is marked as the entry of a map"), "{error}");

    let field = |change: fn(&mut FieldDescriptorProto)| {
        let mut field = FieldDescriptorProto {
            name: Some("a".to_owned()),
            number: Some(1),
            r#type: Some(5),
            ..Default::default()
        };
        change(&mut field);
        file(vec![DescriptorProto { field: vec![field], ..named("A") }])
    };
    assert!(Schema::from_file_descriptor(&field(|_| ()).encode_to_vec(), &[], None).is_ok());
    for change in [
        (|field| field.number = Some(-1)) as fn(&mut FieldDescriptorProto),
        |field| field.number = Some(19_500),
        |field| field.type_name = Some(".B".to_owned()),
        |field| field.oneof_index = Some(3),
        |field| field.r#type = Some(11),
        |field| field.default_value = Some("text".to_owned()),
    ] {
        let error = refused(field(change));
        assert!(matches!(error, SchemaError::Invalid { .. }), "{error}");
    }
    let empty = EnumDescriptorProto { name: Some("E".to_owned()), ..Default::default() };
    let file = FileDescriptorProto { enum_type: vec![empty], ..file(vec![]) };
    assert!(matches!(refused(file), SchemaError::Invalid { .. }));
}

#[test]
fn long_chains_of_files_are_linked_or_refused() {
    let chain = |count: usize| {
        let file = |at: usize| FileDescriptorProto {
            name: Some(format!("f{at}.proto")),
            dependency: (at > 0).then(|| format!("f{}.proto", at - 1)).into_iter().collect(),
            public_dependency: if at > 0 { vec![0] } else { vec![] },
            message_type: vec![DescriptorProto {
                name: Some(format!("M{at}")),
                ..Default::default()
            }],
            ..Default::default()
        };
        let set = FileDescriptorSet { file: (0..count).map(file).collect() };
        Schema::from_descriptor_set(&set.encode_to_vec(), Some("M0"))
    };
    assert!(chain(300).is_ok());
    assert!(matches!(chain(1001).unwrap_err(), SchemaError::TooManyFiles { .. }));
}
