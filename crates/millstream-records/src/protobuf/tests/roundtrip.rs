//! Random messages: what prost-reflect encodes is decoded to the same row, and what is encoded
//! here is the same message for prost-reflect.

use arrow::array::RecordBatch;
use proptest::collection::vec;
use proptest::prelude::*;
use prost_reflect::DynamicMessage;
use prost_reflect::prost::Message as _;

use super::super::{Encoder, Options, Schema, wire};
use super::oracle::{Choices, message, row_of, schemas};
use super::{decode, decode_one, row};

fn options(choices: &mut Choices<'_>) -> Options {
    let mut flag = || choices.below(2) == 1;
    Options {
        enums_as_ints: flag(),
        upcast_unsigned_ints: flag(),
        unwrap_primitive_wrapper_types: flag(),
        emit_default_values: flag(),
        ..Options::default()
    }
}

/// The fields of a record, each with its tag.
pub(super) fn fields(record: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut rest = record;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let start = rest;
        let (number, wire) = wire::tag(&mut rest).unwrap();
        wire::skip(number, wire, &mut rest).unwrap();
        fields.push((number, start[..start.len() - rest.len()].to_vec()));
    }
    fields
}

/// The same fields in another order, some of them twice, and some messages in two halves.
fn scattered(record: &[u8], choices: &mut Choices<'_>) -> Vec<u8> {
    let mut fields = fields(record);
    for _ in 0..choices.below(8) {
        if fields.is_empty() {
            break;
        }
        let at = choices.below(fields.len());
        let other = choices.below(fields.len());
        match choices.below(3) {
            0 => fields.swap(at, other),
            1 => fields.insert(at, fields[other].clone()),
            _ => fields.insert(other, fields[at].clone()),
        }
    }
    fields.into_iter().flat_map(|(_, bytes)| bytes).collect()
}

fn check_decoding(schema: &Schema, options: &Options, record: &[u8]) {
    let message = DynamicMessage::decode(schema.descriptor().clone(), record).unwrap();
    let decoded = decode_one(schema, options, record).unwrap();
    let expected = row_of(&message, options);
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&decoded[name], value, "{name}, {options:?}, {record:?}");
    }
    assert_eq!(decoded, expected);
}

/// Rows encoded, and the messages that prost-reflect finds in them.
fn encoded(schema: &Schema, batch: &RecordBatch) -> Vec<(Vec<u8>, DynamicMessage)> {
    let records = Encoder::new(schema, &batch.schema()).unwrap().encode(batch, &[]).unwrap();
    let record = |bytes: Option<&[u8]>| {
        let bytes = bytes.unwrap().to_vec();
        let message = DynamicMessage::decode(schema.descriptor().clone(), bytes.as_slice());
        (bytes, message.unwrap())
    };
    records.iter().map(record).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn records_become_the_rows_of_their_messages(bytes in vec(any::<u8>(), 0..2500)) {
        let mut choices = Choices(bytes.iter());
        let options = options(&mut choices);
        for schema in schemas() {
            let record = message(schema.descriptor(), &mut choices).encode_to_vec();
            check_decoding(&schema, &options, &record);
        }
    }

    #[test]
    fn fields_may_be_scattered(
        seed in vec(any::<u8>(), 0..40),
        bytes in vec(any::<u8>(), 0..2500),
    ) {
        let mut choices = Choices(bytes.iter());
        let mut seed = Choices(seed.iter());
        let options = options(&mut seed);
        for schema in schemas() {
            // Two messages one after the other are merged.
            let one = message(schema.descriptor(), &mut choices).encode_to_vec();
            let two = message(schema.descriptor(), &mut choices).encode_to_vec();
            check_decoding(&schema, &options, &[one.clone(), two.clone()].concat());
            check_decoding(&schema, &options, &scattered(&[one, two].concat(), &mut seed));
        }
    }

    #[test]
    fn rows_become_the_messages_that_they_came_from(bytes in vec(any::<u8>(), 0..4000)) {
        let mut choices = Choices(bytes.iter());
        let mut options = options(&mut choices);
        // With this option the rows no longer tell whether a field was there.
        options.emit_default_values = false;
        for schema in schemas() {
            // An open enum has numbers without a name, which only integers lead back to.
            options.enums_as_ints |= schema.descriptor().get_field_by_name("rcolor").is_some();
            let messages: Vec<_> =
                (0..3).map(|_| message(schema.descriptor(), &mut choices)).collect();
            let records: Vec<_> = messages.iter().map(DynamicMessage::encode_to_vec).collect();
            let batch = decode(&schema, &options, &records);
            for (at, (record, back)) in encoded(&schema, &batch).into_iter().enumerate() {
                prop_assert_eq!(row_of(&back, &options), row_of(&messages[at], &options));
                prop_assert_eq!(row(&decode(&schema, &options, &[record]), 0), row(&batch, at));
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        for schema in schemas() {
            let _ = decode_one(&schema, &Options::default(), &bytes);
        }
    }
}
