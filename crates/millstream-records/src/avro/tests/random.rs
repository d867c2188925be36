//! Random schemas and values, written and read by another implementation.

use std::collections::HashMap;

use apache_avro::types::Value;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Kind {
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Text,
    Bytes,
    Date,
    Millis,
    Micros,
    LocalMicros,
    Decimal,
    FixedDecimal,
    Fixed,
    Enum,
    Array(Box<Kind>),
    Map(Box<Kind>),
    Record(Vec<Kind>),
    Nullable(Box<Kind>, bool),
    /// A boolean, a string or a record.
    Union(Vec<Kind>, bool),
}

fn kinds() -> impl Strategy<Value = Kind> {
    use Kind::{
        Boolean, Bytes, Date, Decimal, Double, Enum, Fixed, FixedDecimal, Float, Int, LocalMicros,
        Long, Micros, Millis, Text,
    };
    let leaves = [
        Boolean,
        Int,
        Long,
        Float,
        Double,
        Text,
        Bytes,
        Date,
        Millis,
        Micros,
        LocalMicros,
        Decimal,
        FixedDecimal,
        Fixed,
        Enum,
    ];
    proptest::sample::select(leaves.to_vec()).prop_recursive(4, 24, 4, |inner| {
        let no_union = inner.clone().prop_filter("no union in a union", |kind| {
            !matches!(kind, Kind::Nullable(..) | Kind::Union(..))
        });
        prop_oneof![
            inner.clone().prop_map(|kind| Kind::Array(Box::new(kind))),
            inner.clone().prop_map(|kind| Kind::Map(Box::new(kind))),
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Kind::Record),
            (no_union, any::<bool>())
                .prop_map(|(kind, first)| Kind::Nullable(Box::new(kind), first)),
            (proptest::collection::vec(inner, 0..3), any::<bool>())
                .prop_map(|(kinds, null)| Kind::Union(kinds, null)),
        ]
    })
}

/// Random numbers, so that values need no strategies of their own.
struct Source(u64);

impl Source {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A long of a random number of bits.
    fn long(&mut self) -> i64 {
        (self.next() as i64) >> self.below(64)
    }

    fn text(&mut self) -> String {
        let chars = ['a', 'Z', ' ', 'é', '中', '🦀', '0', '\u{0}'];
        (0..self.below(20)).map(|_| chars[self.below(8) as usize]).collect()
    }
}

fn schema(kind: &Kind, names: &mut u32) -> Json {
    let mut name = || {
        *names += 1;
        format!("N{names}")
    };
    let long = |logical: &str| json!({"type": "long", "logicalType": logical});
    match kind {
        Kind::Boolean => json!("boolean"),
        Kind::Int => json!("int"),
        Kind::Long => json!("long"),
        Kind::Float => json!("float"),
        Kind::Double => json!("double"),
        Kind::Text => json!("string"),
        Kind::Bytes => json!("bytes"),
        Kind::Date => json!({"type": "int", "logicalType": "date"}),
        Kind::Millis => long("timestamp-millis"),
        Kind::Micros => long("timestamp-micros"),
        Kind::LocalMicros => long("local-timestamp-micros"),
        Kind::Decimal => {
            json!({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3})
        }
        Kind::FixedDecimal => json!({"type": {"type": "fixed", "name": name(), "size": 9,
            "logicalType": "decimal", "precision": 20, "scale": 3}}),
        Kind::Fixed => json!({"type": "fixed", "name": name(), "size": 5}),
        Kind::Enum => json!({"type": "enum", "name": name(), "symbols": ["A", "B", "C"]}),
        Kind::Array(item) => json!({"type": "array", "items": schema(item, names)}),
        Kind::Map(value) => json!({"type": "map", "values": schema(value, names)}),
        Kind::Record(kinds) => {
            let name = name();
            let fields = kinds.iter().enumerate();
            let fields: Vec<_> = fields
                .map(|(at, k)| json!({"name": field(at), "type": schema(k, names)}))
                .collect();
            json!({"type": "record", "name": name, "fields": fields})
        }
        Kind::Nullable(kind, true) => json!(["null", schema(kind, names)]),
        Kind::Nullable(kind, false) => json!([schema(kind, names), "null"]),
        Kind::Union(kinds, null) => {
            let record = schema(&Kind::Record(kinds.clone()), names);
            match null {
                true => json!(["boolean", "null", "string", record]),
                false => json!(["boolean", "string", record]),
            }
        }
    }
}

fn field(at: usize) -> String {
    format!("f{at}")
}

/// A random value, as the other implementation has it and as the cell that it becomes.
fn value(kind: &Kind, source: &mut Source) -> (Value, Json) {
    let long = source.long();
    match kind {
        Kind::Boolean => (Value::Boolean(long & 1 == 1), json!(long & 1 == 1)),
        Kind::Int => (Value::Int(long as i32), json!(long as i32)),
        Kind::Long => (Value::Long(long), json!(long)),
        Kind::Float => {
            let float = long as f32 / 8.0;
            (Value::Float(float), json!(float.to_bits()))
        }
        Kind::Double => {
            let double = long as f64 / 8.0;
            (Value::Double(double), json!(double.to_bits()))
        }
        Kind::Text => {
            let text = source.text();
            (Value::String(text.clone()), json!(text))
        }
        Kind::Bytes => {
            let bytes = source.text().into_bytes();
            (Value::Bytes(bytes.clone()), hex(&bytes))
        }
        Kind::Date => (Value::Date(long as i32), json!(long as i32)),
        Kind::Millis => {
            let millis = long / 1000;
            (Value::TimestampMillis(millis), json!(millis * 1000))
        }
        Kind::Micros => (Value::TimestampMicros(long), json!(long)),
        Kind::LocalMicros => (Value::LocalTimestampMicros(long), json!(long)),
        Kind::Decimal => (Value::Decimal(long.to_be_bytes().into()), json!(long.to_string())),
        Kind::FixedDecimal => {
            let bytes = &i128::from(long).to_be_bytes()[7..];
            (Value::Decimal(bytes.into()), json!(long.to_string()))
        }
        Kind::Fixed => {
            let bytes = long.to_be_bytes()[3..].to_vec();
            (Value::Fixed(5, bytes.clone()), hex(&bytes))
        }
        Kind::Enum => {
            let at = source.below(3) as usize;
            let symbol = ["A", "B", "C"][at];
            (Value::Enum(at as u32, symbol.to_owned()), json!(symbol))
        }
        Kind::Array(item) => {
            let items = (0..source.below(4)).map(|_| value(item, source));
            let (values, cells): (Vec<_>, Vec<_>) = items.unzip();
            (Value::Array(values), Json::Array(cells))
        }
        Kind::Map(of) => {
            let (mut values, mut cells) = (HashMap::new(), Map::new());
            for _ in 0..source.below(4) {
                let (key, (value, cell)) = (source.text(), value(of, source));
                values.insert(key.clone(), value);
                cells.insert(key, cell);
            }
            (Value::Map(values), Json::Object(cells))
        }
        Kind::Record(kinds) => {
            let (mut values, mut cells) = (Vec::new(), Map::new());
            for (at, kind) in kinds.iter().enumerate() {
                let (value, cell) = value(kind, source);
                values.push((field(at), value));
                cells.insert(field(at), cell);
            }
            (Value::Record(values), Json::Object(cells))
        }
        Kind::Nullable(kind, first) => {
            let (value, cell) = value(kind, source);
            match source.below(2) {
                0 => (Value::Union(u32::from(!first), Box::new(Value::Null)), Json::Null),
                _ => (Value::Union(u32::from(*first), Box::new(value)), cell),
            }
        }
        Kind::Union(kinds, null) => {
            let branches = [Kind::Boolean, Kind::Text, Kind::Record(kinds.clone())];
            let at = source.below(4) as usize;
            if at == 3 && *null {
                return (Value::Union(1, Box::new(Value::Null)), Json::Null);
            }
            let at = at % 3;
            let (value, cell) = value(&branches[at], source);
            let branch = if *null && at > 0 { at + 1 } else { at };
            let cells = (0..3).map(|member| {
                (format!("member{member}"), if member == at { cell.clone() } else { Json::Null })
            });
            (Value::Union(branch as u32, Box::new(value)), Json::Object(cells.collect()))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn values_of_random_schemas_come_through_both_ways(
        kinds in proptest::collection::vec(kinds(), 1..6),
        seed in any::<u64>(),
    ) {
        let kind = Kind::Record(kinds);
        let text = schema(&kind, &mut 0).to_string();
        let apache = apache_avro::Schema::parse_str(&text).unwrap();
        let ours = parse(&text);
        let (mut decoder, plan) = reading(&ours, &ours).unwrap();
        let mut source = Source(seed);
        let (values, cells): (Vec<_>, Vec<_>) = (0..5).map(|_| value(&kind, &mut source)).unzip();
        let mut records = Vec::new();
        for value in &values {
            let record = apache_avro::to_avro_datum(&apache, value.clone()).unwrap();
            decoder.append(&plan, &record).unwrap();
            records.push(record);
        }
        let batch = decoder.finish();
        prop_assert_eq!(rows(&batch), cells);

        let encoder = Encoder::of_columns(&batch.schema(), Some(&ours)).unwrap();
        let encoded = encoder.encode_batch(&batch, &[]).unwrap();
        for (row, value) in values.iter().enumerate() {
            let mut record = encoded.value(row);
            let read = apache_avro::from_avro_datum(&apache, &mut record, None).unwrap();
            prop_assert_eq!(&read, value);
            prop_assert!(record.is_empty());
        }

        // Declared as the same columns, it is the same; and so is each column for itself.
        let (mut declared, plan) = declaring(&ours, &batch.schema()).unwrap();
        for record in &records {
            declared.append(&plan, record).unwrap();
        }
        prop_assert_eq!(&declared.finish(), &batch);
        for column in 0..batch.num_columns() {
            let mut one = Decoder::new(&batch.schema(), &[column]).unwrap();
            let plan = Plan::new(&ours, Target::Declared, one.layout()).unwrap();
            for record in &records {
                one.append(&plan, record).unwrap();
            }
            prop_assert_eq!(&one.finish(), &batch.project(&[column]).unwrap());
        }
    }

    #[test]
    fn resolution_is_as_the_other_implementations(
        kinds in proptest::collection::vec(leaf_pairs(), 1..6),
        seed in any::<u64>(),
    ) {
        let record = |kinds: &[Kind]| {
            let fields = kinds.iter().enumerate().rev().map(|(at, kind)| {
                json!({"name": field(at), "type": schema(kind, &mut 0)})
            });
            let extra = json!({"name": "extra", "type": "string", "default": "d"});
            json!({"type": "record", "name": "R", "fields":
                fields.chain([extra]).collect::<Vec<_>>()}).to_string()
        };
        let (written, read): (Vec<_>, Vec<_>) = kinds.into_iter().unzip();
        let writer_kind = Kind::Record(written);
        let writer_text = schema(&writer_kind, &mut 0).to_string();
        let reader_text = record(&read);
        let (value, _) = value(&writer_kind, &mut Source(seed));
        let apache = [&writer_text, &reader_text]
            .map(|text| apache_avro::Schema::parse_str(text).unwrap());
        let bytes = apache_avro::to_avro_datum(&apache[0], value).unwrap();
        let mut rest = bytes.as_slice();
        let expected = apache_avro::from_avro_datum(&apache[0], &mut rest, Some(&apache[1]));
        let found = super::read(&parse(&writer_text), &parse(&reader_text), &bytes);
        prop_assert_eq!(found, plain(&expected.unwrap()));
    }

    #[test]
    fn no_bytes_make_it_panic(
        kinds in proptest::collection::vec(kinds(), 1..5),
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let ours = parse(&schema(&Kind::Record(kinds), &mut 0).to_string());
        let (mut decoder, plan) = reading(&ours, &ours).unwrap();
        let is_row = decoder.append(&plan, &bytes).is_ok();
        prop_assert_eq!(decoder.finish().num_rows(), usize::from(is_row));
    }

    #[test]
    fn no_schema_text_makes_it_panic(text in r#"[\[\]{}",:a-z\\ .0-9]{0,60}"#) {
        let _ = Schema::parse(&text, &[]);
    }
}

/// A writer's type and one that reads it.
fn leaf_pairs() -> impl Strategy<Value = (Kind, Kind)> {
    use Kind::{Boolean, Bytes, Double, Float, Int, Long, Text};
    let null = |kind: Kind| Kind::Nullable(Box::new(kind), true);
    let pairs = vec![
        (Boolean, Boolean),
        (Int, Long),
        (Int, Double),
        (Int, Float),
        (Long, Double),
        (Long, Float),
        (Float, Double),
        (Text, Bytes),
        (Int, null(Int)),
        (Int, null(Long)),
        (null(Text), null(Text)),
        (Kind::Array(Box::new(Int)), Kind::Array(Box::new(Long))),
        (Kind::Map(Box::new(Float)), Kind::Map(Box::new(Double))),
    ];
    proptest::sample::select(pairs)
}

/// The cell that a resolved value should be.
fn plain(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Boolean(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Long(value) => json!(value),
        Value::Float(value) => json!(value.to_bits()),
        Value::Double(value) => json!(value.to_bits()),
        Value::String(value) => json!(value),
        Value::Bytes(value) => hex(value),
        Value::Union(_, value) => plain(value),
        Value::Array(items) => Json::Array(items.iter().map(plain).collect()),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        Value::Record(fields) => {
            Json::Object(fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect())
        }
        other => panic!("no cell of {other:?}"),
    }
}
