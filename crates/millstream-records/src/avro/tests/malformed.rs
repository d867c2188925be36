//! Records that are cut, changed or made to hurt: the rows beside them stay whole.

use super::*;

/// A record of every kind of value.
const EVERYTHING: &str = r#"{"type": "record", "name": "R", "fields": [
    {"name": "flag", "type": "boolean"}, {"name": "int", "type": "int"},
    {"name": "maybe", "type": ["null", "string"]}, {"name": "float", "type": "float"},
    {"name": "double", "type": "double"}, {"name": "raw", "type": "bytes"},
    {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 3}},
    {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6}},
    {"name": "list", "type": {"type": "array", "items": {"type": "record", "name": "I", "fields": [
        {"name": "x", "type": "long"}, {"name": "y", "type": ["string", "null"]}]}}},
    {"name": "map", "type": {"type": "map", "values": "int"}},
    {"name": "union", "type": ["int", "string", "I", "null"]}]}"#;

fn record() -> Vec<u8> {
    let list = [long(-1), long(6), long(300), long(0), text("é"), long(1), long(4), long(1)];
    let map = [long(1), text("k"), long(9), long(0)];
    let fields = [
        vec![1],
        long(-70_000),
        long(1),
        text("hello"),
        1.5f32.to_le_bytes().to_vec(),
        2.5f64.to_le_bytes().to_vec(),
        text("raw"),
        vec![1, 2, 3],
        long(1),
        long(1_700_000_000_000),
        vec![4, 0xff, 0x00],
        list.concat(),
        long(0),
        map.concat(),
        long(2),
        long(7),
        long(1),
    ];
    fields.concat()
}

/// All columns, and a projection without most of them.
fn projections() -> [Vec<usize>; 2] {
    [(0..13).collect(), vec![12, 1]]
}

fn decoder(projection: &[usize]) -> (Decoder, Plan) {
    let schema = parse(EVERYTHING);
    let decoder = Decoder::new(&schema.columns(0).unwrap(), projection).unwrap();
    let target = Target::Reader { schema: &schema, recursion: 0 };
    let plan = Plan::new(&schema, target, decoder.layout()).unwrap();
    (decoder, plan)
}

#[test]
fn every_truncation_is_an_error_that_leaves_the_neighbours_whole() {
    let record = record();
    for projection in projections() {
        let (mut decoder, plan) = decoder(&projection);
        decoder.append(&plan, &record).unwrap();
        let expected = rows(&decoder.finish()).remove(0);
        for cut in 0..record.len() {
            decoder.append(&plan, &record).unwrap();
            let error = decoder.append(&plan, &record[..cut]).unwrap_err();
            let RecordError::Malformed { problem, at, field } = error else { panic!("{error}") };
            let truncated = matches!(problem, RecordProblem::Truncated { have, .. } if have == cut);
            assert!(truncated && at <= cut && !field.is_empty(), "{cut}: {problem} {at} {field}");
            decoder.append(&plan, &record).unwrap();
            assert_eq!(rows(&decoder.finish()), [expected.clone(), expected.clone()], "{cut}");
        }
        let error = decoder.append(&plan, &[&record[..], &[0]].concat()).unwrap_err().to_string();
        assert!(error.contains("1 bytes are left over"), "{error}");
    }
}

#[test]
fn every_changed_byte_leaves_the_neighbours_whole() {
    let record = record();
    for projection in projections() {
        let (mut decoder, plan) = decoder(&projection);
        decoder.append(&plan, &record).unwrap();
        let expected = rows(&decoder.finish()).remove(0);
        let mut refused = 0;
        for at in 0..record.len() {
            for change in 1..=255u8 {
                let mut changed = record.clone();
                changed[at] ^= change;
                decoder.append(&plan, &record).unwrap();
                let rows_before = decoder.rows();
                let is_row = decoder.append(&plan, &changed).is_ok();
                refused += usize::from(!is_row);
                assert_eq!(decoder.rows(), rows_before + usize::from(is_row));
                decoder.append(&plan, &record).unwrap();
                let batch = decoder.finish();
                let rows = rows(&batch);
                assert_eq!(rows.len(), if is_row { 3 } else { 2 });
                assert_eq!((rows.first(), rows.last()), (Some(&expected), Some(&expected)));
            }
        }
        assert!(refused > record.len() * 50, "{refused} of {}", record.len() * 255);
    }
}

#[test]
fn errors_say_which_byte_of_which_field() {
    let (mut decoder, plan) = decoder(&projections()[0]);
    let record = record();
    let mut bad = record.clone();
    let at = record.windows(5).position(|window| window == b"hello").unwrap();
    bad[at] = 0xff;
    let error = decoder.append(&plan, &bad).unwrap_err().to_string();
    let expected = format!("a string that is not UTF-8, at byte {} in field `maybe`", at - 1);
    assert!(error.contains(&expected), "{error}");
    let e = record.windows(2).position(|window| window == "é".as_bytes()).unwrap();
    let error = decoder.append(&plan, &record[..=e]).unwrap_err().to_string();
    assert!(error.contains("1 more are needed") && error.contains("`list.element.y`"), "{error}");
    let error = decoder.append(&plan, &[2]).unwrap_err().to_string();
    assert!(error.contains("a boolean of 2, at byte 0 in field `flag`"), "{error}");
}

#[test]
fn huge_lengths_allocate_nothing() {
    let schema = record_of(
        r#"{"name": "t", "type": "string"},
           {"name": "l", "type": {"type": "array", "items": "long"}}"#,
    );
    let (mut decoder, plan) = reading(&schema, &schema).unwrap();
    for record in [
        long(i64::MAX),
        long(i64::MIN),
        long(-1),
        [text(""), long(i64::MAX), long(1)].concat(),
        [text(""), long(i64::MIN), long(i64::MAX), long(1)].concat(),
        [text(""), long(-1), long(-1)].concat(),
        vec![0xff; 100],
    ] {
        assert!(decoder.append(&plan, &record).is_err());
    }
    assert_eq!(decoder.finish().num_rows(), 0);
}

#[test]
fn items_without_bytes_are_limited() {
    let items =
        r#"{"type": "array", "items": {"type": "record", "name": "Nothing", "fields": []}}"#;
    let schema =
        record_of(&format!(r#"{{"name": "a", "type": "int"}}, {{"name": "l", "type": {items}}}"#));
    let columns = schema.columns(0).unwrap();
    for projection in [&[0, 1][..], &[0]] {
        let mut decoder = Decoder::new(&columns, projection).unwrap();
        let target = Target::Reader { schema: &schema, recursion: 0 };
        let plan = Plan::new(&schema, target, decoder.layout()).unwrap();
        let record = |count: i64| [long(1), long(count), long(0)].concat();
        let error = decoder.append(&plan, &record(1 << 60)).unwrap_err().to_string();
        assert!(error.contains("items that take no bytes"), "{error}");
        decoder.append(&plan, &record(1000)).unwrap();
        assert_eq!(decoder.finish().num_rows(), 1);
    }
}

#[test]
fn defaults_cannot_fill_the_memory() {
    let item = |fields: &str| {
        field_of(&format!(
            r#"{{"type": "array", "items": {{"type": "record", "name": "I", "fields": [
                {{"name": "x", "type": "boolean"}} {fields}]}}}}"#
        ))
    };
    let long_text = "x".repeat(60_000);
    let reader = item(&format!(r#", {{"name": "d", "type": "string", "default": "{long_text}"}}"#));
    let (mut decoder, plan) = reading(&item(""), &reader).unwrap();
    let count = 40_000;
    let record = [long(count), vec![0; count as usize], long(0)].concat();
    let error = decoder.append(&plan, &record).unwrap_err();
    assert!(matches!(error, RecordError::Full { rows: 0 }), "{error}");
    let small = [long(1), vec![0], long(0)].concat();
    decoder.append(&plan, &small).unwrap();
    assert_eq!(decoder.finish().num_rows(), 1);
}

#[test]
fn what_comes_after_a_record_is_an_error_or_ignored() {
    let mut longer = record();
    longer.extend([1, 2, 3]);
    for projection in projections() {
        let (mut decoder, plan) = decoder(&projection);
        decoder.append(&plan, &record()).unwrap();
        decoder.append(&plan, &longer).unwrap_err();
        decoder.append_beginning(&plan, &longer).unwrap();
        decoder.append_beginning(&plan, &record()[..9]).unwrap_err();
        let rows = decoder.finish();
        assert_eq!(rows.num_rows(), 2);
        assert_eq!(rows.slice(0, 1), rows.slice(1, 1));
    }
}

#[test]
fn of_a_key_that_a_map_has_twice_the_last_entry_stays() {
    let schema = parse(r#"{"type": "map", "values": "int"}"#);
    let mut decoder = Decoder::new(&schema.columns(0).unwrap(), &[0]).unwrap();
    let target = Target::Reader { schema: &schema, recursion: 0 };
    let plan = Plan::new(&schema, target, decoder.layout()).unwrap();
    let mut map = |keys: &[&str]| {
        let entry = |(at, key): (usize, &&str)| [text(key), long(at as i64)].concat();
        let entries = keys.iter().enumerate().map(entry).collect::<Vec<_>>().concat();
        let record = [long(keys.len() as i64), entries, long(0)].concat();
        decoder.append(&plan, &record).unwrap();
    };
    map(&["a", "b"]);
    map(&["a", "b", "a"]);
    let many: Vec<String> = (0..40).map(|at| format!("k{}", at % 20)).collect();
    map(&many.iter().map(String::as_str).collect::<Vec<_>>());
    map(&["b"]);
    let rows = decoder.finish();
    let maps = rows.column(0).as_map();
    let lengths: Vec<i32> = (0..4).map(|row| maps.value_length(row)).collect();
    assert_eq!(lengths, [2, 2, 20, 1]);
    let of = |row: usize| {
        let entries = maps.value(row);
        let keys = entries.column(0).as_string::<i32>().iter();
        let values = entries.column(1).as_primitive::<Int32Type>().iter();
        keys.zip(values)
            .map(|(key, value)| format!("{}{}", key.unwrap(), value.unwrap()))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!((of(0), of(1), of(3)), ("a0 b1".into(), "b1 a2".into(), "b0".into()));
    assert!(of(2).starts_with("k020 ") && of(2).ends_with(" k1939"), "{}", of(2));
}
