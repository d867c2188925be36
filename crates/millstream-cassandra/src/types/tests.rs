//! The driver's own reader of values is what encoded ones are compared with.

use std::borrow::Cow;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Int32Array, Int64Array,
    ListArray, MapBuilder, NullArray, StringArray, StringBuilder, StringViewArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{Float32Type, Int32Type};
use millstream_sql::types::parse_schema_ddl;
use proptest::prelude::*;
use scylla::deserialize::FrameSlice;
use scylla::deserialize::value::DeserializeValue;
use scylla::frame::response::result::UserDefinedType;
use scylla::value::{CqlDate, CqlDecimal, CqlTime, CqlTimestamp, CqlValue, CqlVarint};

use super::*;

type Typ = ColumnType<'static>;

fn native(native: NativeType) -> Typ {
    ColumnType::Native(native)
}

fn list(element: Typ) -> Typ {
    ColumnType::Collection { frozen: true, typ: CollectionType::List(Box::new(element)) }
}

/// The first value of `array`, written for a column of type `typ` and read by the driver.
fn written(array: ArrayRef, typ: &Typ) -> Result<Option<CqlValue>, ValueProblem> {
    let Fit { cast: to, encoding } = fit(array.data_type(), typ).expect("it fits");
    let array = cast(&array, &to).expect("it can be cast");
    let mut bytes = Vec::new();
    append_cell(&encoding, &array, 0, -1, &mut bytes)?;
    let (length, value) = bytes.split_first_chunk::<4>().expect("a length");
    let length = i32::from_be_bytes(*length);
    if length < 0 {
        assert!(value.is_empty());
        return Ok(None);
    }
    assert_eq!(usize::try_from(length), Ok(value.len()));
    let slice = FrameSlice::new_borrowed(value);
    Ok(Some(CqlValue::deserialize(typ, Some(slice)).expect("the driver reads it")))
}

fn one(array: ArrayRef, typ: &Typ) -> CqlValue {
    written(array, typ).expect("it can be written").expect("it is not NULL")
}

fn text(text: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![text]))
}

#[test]
fn values_are_those_that_the_driver_reads() {
    use NativeType as Cql;
    let int = |value| -> ArrayRef { Arc::new(Int32Array::from(vec![value])) };
    assert_eq!(one(int(7), &native(Cql::Int)), CqlValue::Int(7));
    assert_eq!(one(int(-7), &native(Cql::BigInt)), CqlValue::BigInt(-7));
    let yes: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
    assert_eq!(one(yes, &native(Cql::Boolean)), CqlValue::Boolean(true));
    let half: ArrayRef = Arc::new(Float32Array::from(vec![0.5]));
    assert_eq!(one(Arc::clone(&half), &native(Cql::Float)), CqlValue::Float(0.5));
    assert_eq!(one(half, &native(Cql::Double)), CqlValue::Double(0.5));
    let view: ArrayRef = Arc::new(StringViewArray::from(vec!["a text beyond twelve bytes"]));
    let wanted = CqlValue::Text("a text beyond twelve bytes".to_owned());
    assert_eq!(one(view, &native(Cql::Text)), wanted);
    assert_eq!(one(text("a"), &native(Cql::Ascii)), CqlValue::Ascii("a".to_owned()));
    let address = "2001:db8::1".parse().expect("an address");
    assert_eq!(one(text("2001:db8::1"), &native(Cql::Inet)), CqlValue::Inet(address));
    let uuid = uuid::Uuid::from_u128(7);
    assert_eq!(one(text(&uuid.to_string()), &native(Cql::Uuid)), CqlValue::Uuid(uuid));
    let day: ArrayRef = Arc::new(Date32Array::from(vec![-1]));
    assert_eq!(one(day, &native(Cql::Date)), CqlValue::Date(CqlDate((1 << 31) - 1)));
    // Before 1970 a part of a millisecond counts downwards, too.
    let micros: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![-1]));
    assert_eq!(one(micros, &native(Cql::Timestamp)), CqlValue::Timestamp(CqlTimestamp(-1)));
    let noon: ArrayRef = Arc::new(Int64Array::from(vec![43_200_000_000_000]));
    assert_eq!(one(noon, &native(Cql::Time)), CqlValue::Time(CqlTime(43_200_000_000_000)));
    let price = Decimal128Array::from(vec![-12_345]).with_precision_and_scale(10, 2);
    let price: ArrayRef = Arc::new(price.expect("it fits"));
    let wanted = CqlDecimal::from_signed_be_bytes_slice_and_exponent(&[0xCF, 0xC7], 2);
    assert_eq!(one(price, &native(Cql::Decimal)), CqlValue::Decimal(wanted));
    assert_eq!(written(Arc::new(NullArray::new(1)), &native(Cql::Int)), Ok(None));
    assert_eq!(written(Arc::new(StringArray::new_null(1)), &native(Cql::Text)), Ok(None));
}

#[test]
fn values_with_parts_are_those_that_the_driver_reads() {
    use NativeType as Cql;
    let numbers = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), Some(2)])]);
    let numbers: ArrayRef = Arc::new(numbers);
    let wanted = vec![CqlValue::BigInt(1), CqlValue::BigInt(2)];
    let longs = list(native(Cql::BigInt));
    assert_eq!(one(Arc::clone(&numbers), &longs), CqlValue::List(wanted));

    let mut map = MapBuilder::new(None, StringBuilder::new(), Int64Array::builder(1));
    map.keys().append_value("k");
    map.values().append_value(7);
    map.append(true).expect("both have one");
    let typ = CollectionType::Map(Box::new(native(Cql::Text)), Box::new(native(Cql::BigInt)));
    let typ = ColumnType::Collection { frozen: false, typ };
    let wanted = vec![(CqlValue::Text("k".to_owned()), CqlValue::BigInt(7))];
    assert_eq!(one(Arc::new(map.finish()), &typ), CqlValue::Map(wanted));

    let halves = ListArray::from_iter_primitive::<Float32Type, _, _>([Some([Some(0.5), Some(1.)])]);
    let halves: ArrayRef = Arc::new(halves);
    let vector = |dimensions| ColumnType::Vector { typ: Box::new(native(Cql::Float)), dimensions };
    let wanted = vec![CqlValue::Float(0.5), CqlValue::Float(1.)];
    assert_eq!(one(Arc::clone(&halves), &vector(2)), CqlValue::Vector(wanted));
    let problem = written(halves, &vector(3)).expect_err("it is too short");
    assert_eq!(problem, ValueProblem::Length { found: 2, wanted: 3 });

    let fields = [("Street", text("Main")), ("number", numbers)];
    let fields = fields.map(|(name, column)| {
        (Arc::new(Field::new(name, column.data_type().clone(), true)), column)
    });
    let address: ArrayRef = Arc::new(StructArray::from(fields.to_vec()));
    let definition = UserDefinedType {
        name: "address".into(),
        keyspace: "k".into(),
        field_types: vec![
            (Cow::Borrowed("number"), list(native(Cql::Int))),
            (Cow::Borrowed("city"), native(Cql::Text)),
            (Cow::Borrowed("street"), native(Cql::Text)),
        ],
    };
    let typ = ColumnType::UserDefinedType { frozen: true, definition: Arc::new(definition) };
    let CqlValue::UserDefinedType { fields, .. } = one(address, &typ) else { panic!("it is one") };
    let numbers = CqlValue::List(vec![CqlValue::Int(1), CqlValue::Int(2)]);
    let street = CqlValue::Text("Main".to_owned());
    let values: Vec<Option<CqlValue>> = fields.into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, [Some(numbers), None, Some(street)]);
}

#[test]
fn values_that_do_not_fit_are_named() {
    use NativeType as Cql;
    let problem =
        |array: ArrayRef, typ: Typ| written(array, &typ).expect_err("it does not fit").to_string();
    assert_eq!(problem(text("x"), native(Cql::Uuid)), "'x' is not a UUID");
    let random = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    assert!(problem(text(random), native(Cql::Timeuuid)).contains("version 1"));
    assert_eq!(problem(text("1.2.3"), native(Cql::Inet)), "'1.2.3' is not an IP address");
    assert_eq!(problem(text("ä"), native(Cql::Ascii)), "'ä' is not ASCII");
    let late: ArrayRef = Arc::new(Int64Array::from(vec![86_400_000_000_000]));
    assert!(problem(late, native(Cql::Time)).contains("not a time of day"));
    let gap = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None])]);
    assert!(problem(Arc::new(gap), list(native(Cql::Int))).contains("x IS NOT NULL"));
}

#[test]
fn types_that_do_not_fit_are_refused_with_a_remedy() {
    use NativeType as Cql;
    let refused = |ddl: &str, typ: Typ| {
        let schema = parse_schema_ddl(&format!("c {ddl}"));
        let schema = schema.unwrap_or_else(|_| panic!("{ddl} is a type"));
        let Mismatch { problem, remedy } =
            fit(schema[0].data_type(), &typ).expect_err("it does not fit");
        format!("{problem}; {remedy}")
    };
    for (ddl, typ, wanted) in [
        ("BIGINT", native(Cql::Int), "BIGINT in the query and int in the table; write CAST(... AS"),
        ("STRING", native(Cql::Int), "CAST(... AS INT)"),
        ("DOUBLE", native(Cql::Float), "CAST(... AS FLOAT)"),
        ("INT", native(Cql::Text), "CAST(... AS STRING)"),
        ("DECIMAL(10,2)", native(Cql::Varint), "DECIMAL(38,0)"),
        ("TIMESTAMP", native(Cql::Date), "CAST(... AS DATE)"),
        ("STRING", native(Cql::Duration), "leave the column out"),
        ("INT", list(native(Cql::Int)), "frozen<list<int>> in the table; select an ARRAY"),
        ("ARRAY<STRING>", list(native(Cql::Int)), "CAST(... AS INT)"),
        ("STRUCT<a: INT>", ColumnType::Tuple(vec![]), "select a STRUCT"),
    ] {
        let text = refused(ddl, typ);
        assert!(text.contains(wanted), "{ddl}: {text}");
    }
}

/// A number of two's complement bytes.
fn number(bytes: &[u8]) -> i128 {
    let sign = if bytes[0] & 0x80 != 0 { 0xFF } else { 0 };
    let mut all = [sign; 16];
    all[16 - bytes.len()..].copy_from_slice(bytes);
    i128::from_be_bytes(all)
}

proptest! {
    #[test]
    fn any_number_is_written_in_as_few_bytes_as_it_needs(
        value in -(10_i128.pow(38) - 1)..10_i128.pow(38), shift in 0_u32..127, scale in 0_i8..38,
    ) {
        let value = value >> shift;
        let array = Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale);
        let read = one(Arc::new(array.expect("it fits")), &native(NativeType::Decimal));
        let CqlValue::Decimal(read) = read else { panic!("it is one") };
        let (bytes, exponent) = read.as_signed_be_bytes_slice_and_exponent();
        prop_assert_eq!((number(bytes), exponent), (value, i32::from(scale)));
        let spare = bytes.len() > 1 && matches!((bytes[0], bytes[1] & 0x80), (0, 0) | (0xFF, 0x80));
        prop_assert!(!spare, "{:?}", bytes);
    }

    #[test]
    fn any_integer_is_the_same_in_every_larger_type(value: i32) {
        let array: ArrayRef = Arc::new(Int32Array::from(vec![value]));
        let long = one(Arc::clone(&array), &native(NativeType::BigInt));
        prop_assert_eq!(long, CqlValue::BigInt(i64::from(value)));
        let CqlValue::Varint(read) = one(array, &native(NativeType::Varint)) else { panic!() };
        let read: CqlVarint = read;
        prop_assert_eq!(number(read.as_signed_bytes_be_slice()), i128::from(value));
    }

    #[test]
    fn any_time_is_its_millisecond(micros: i64) {
        let array: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![micros]));
        let read = one(array, &native(NativeType::Timestamp));
        let CqlValue::Timestamp(read) = read else { panic!() };
        prop_assert!(i128::from(read.0) * 1_000 <= i128::from(micros));
        prop_assert!(i128::from(micros) < (i128::from(read.0) + 1) * 1_000);
    }

    #[test]
    fn any_text_is_read_or_refused(value: String) {
        for typ in [NativeType::Text, NativeType::Ascii, NativeType::Inet, NativeType::Timeuuid] {
            let typ = native(typ);
            match written(text(&value), &typ) {
                Ok(Some(CqlValue::Text(read) | CqlValue::Ascii(read))) => {
                    prop_assert_eq!(&read, &value);
                }
                Ok(Some(_)) | Err(ValueProblem::Text { .. }) => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
