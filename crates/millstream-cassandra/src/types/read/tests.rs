use arrow::array::AsArray;
use arrow::util::pretty::pretty_format_columns;
use scylla::value::{CqlDate, CqlDecimal, CqlTimestamp, CqlVarint};

use super::*;

const fn native(native: NativeType) -> ColumnType<'static> {
    ColumnType::Native(native)
}

fn list(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", element, true)))
}

/// The values as they are shown, NULL as nothing.
fn read(values: &[Option<CqlValue>], declared: &DataType) -> Result<Vec<String>, ReadProblem> {
    let values: Vec<Value<'_>> = values.iter().map(Option::as_ref).collect();
    let column = column(&values, declared)?;
    assert_eq!(column.data_type(), declared);
    let table = pretty_format_columns("v", &[column]).expect("it can be shown").to_string();
    let cells = table.lines().skip(3).filter(|line| line.starts_with('|'));
    Ok(cells.map(|line| line.trim_matches(['|', ' ']).to_owned()).collect())
}

#[test]
fn a_wider_type_reads_a_narrower_one_and_never_the_other_way() {
    use NativeType as Cql;
    let reads = |declared: &DataType, found| check_readable(declared, &native(found)).is_ok();
    let whole = [DataType::Int8, DataType::Int16, DataType::Int32, DataType::Int64];
    for (at, found) in [Cql::TinyInt, Cql::SmallInt, Cql::Int, Cql::BigInt].into_iter().enumerate()
    {
        for (declared, own) in whole.iter().enumerate() {
            assert_eq!(reads(own, found.clone()), declared >= at, "{own} of {found:?}");
        }
    }
    assert!(reads(&DataType::Float64, Cql::Float) && !reads(&DataType::Float32, Cql::Double));
    assert!(reads(&DataType::Decimal128(38, 0), Cql::Varint));
    assert!(!reads(&DataType::Utf8, Cql::Int) && !reads(&DataType::Int64, Cql::Counter));
    assert!(!reads(&DataType::Utf8, Cql::Duration));
    let refused = check_readable(&DataType::Int32, &native(Cql::BigInt)).unwrap_err();
    assert_eq!(refused.problem, "it is declared INT and bigint in the table");
    assert_eq!(refused.remedy, "declare it BIGINT");
}

#[test]
fn plain_values_are_those_of_the_table() {
    let some = |value| Some(value);
    let wide = [some(CqlValue::TinyInt(-3)), None, some(CqlValue::BigInt(1 << 40))];
    assert_eq!(read(&wide, &DataType::Int64).unwrap(), ["-3", "", "1099511627776"]);
    // What has no bytes, which only old tables have, is NULL.
    assert_eq!(read(&[Some(CqlValue::Empty)], &DataType::Int32).unwrap(), [""]);
    let days =
        [(1 << 31) - 1, 1 << 31, (1 << 31) + 20_454].map(|day| Some(CqlValue::Date(CqlDate(day))));
    let shown = ["1969-12-31", "1970-01-01", "2026-01-01"];
    assert_eq!(read(&days, &DataType::Date32).unwrap(), shown);
    let texts = [
        some(CqlValue::Uuid("00000000-0000-4000-8000-00000000000a".parse().unwrap())),
        some(CqlValue::Inet("::1".parse().unwrap())),
        some(CqlValue::Ascii("a".to_owned())),
    ];
    let shown = ["00000000-0000-4000-8000-00000000000a", "::1", "a"];
    assert_eq!(read(&texts, &DataType::Utf8).unwrap(), shown);
    let ntz = DataType::Timestamp(TimeUnit::Microsecond, None);
    let moment = |ms| [Some(CqlValue::Timestamp(CqlTimestamp(ms)))];
    assert_eq!(read(&moment(-1), &ntz).unwrap(), ["1969-12-31T23:59:59.999"]);
    let milliseconds = i64::MAX;
    let refused = read(&moment(milliseconds), &ntz).unwrap_err();
    assert_eq!(refused, ReadProblem::Moment { milliseconds });
    let changed = read(&[some(CqlValue::Text("a".to_owned()))], &DataType::Int32).unwrap_err();
    assert_eq!(changed, ReadProblem::Changed { wanted: "INT".to_owned() });
}

#[test]
fn a_decimal_is_exact_or_refused() {
    let decimal = |bytes: &[u8], scale| {
        Some(CqlValue::Decimal(CqlDecimal::from_signed_be_bytes_slice_and_exponent(bytes, scale)))
    };
    let two = DataType::Decimal128(5, 2);
    let values = [
        decimal(&[5], 1),
        decimal(&[0xFF, 0x6A], 2),
        // Of more places those that are 0 are no loss.
        decimal(&[0x30, 0x39, 0x00], 2),
        decimal(&[100], 4),
        decimal(&[3], -2),
        decimal(&[0], 300),
        decimal(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7], 2),
    ];
    let wide = DataType::Decimal128(10, 2);
    let shown = ["0.50", "-1.50", "31603.20", "0.01", "300.00", "0.00", "0.07"];
    assert_eq!(read(&values, &wide).unwrap(), shown);
    for value in [decimal(&[1], 3), decimal(&[0x01, 0x86, 0xA0], 2), decimal(&[1; 17], 0)] {
        let refused = read(&[value], &two).unwrap_err();
        assert_eq!(refused, ReadProblem::Digits { wanted: "DECIMAL(5,2)".to_owned() });
    }
    let largest = i128::MIN.to_be_bytes();
    assert_eq!(whole(&largest), Some(i128::MIN));
    assert_eq!(whole(&[&[0], &largest[..]].concat()), None, "it is 2^127");
    assert_eq!(whole(&[]), Some(0));
    let varint = Some(CqlValue::Varint(CqlVarint::from_signed_bytes_be_slice(&[0xFE])));
    assert_eq!(read(&[varint], &DataType::Decimal128(38, 0)).unwrap(), ["-2"]);
}

#[test]
fn values_within_values_are_read_by_name_or_in_order() {
    let text = |text: &str| CqlValue::Text(text.to_owned());
    let numbers = [Some(CqlValue::Set(vec![CqlValue::Int(1), CqlValue::Int(2)])), None];
    assert_eq!(read(&numbers, &list(DataType::Int64)).unwrap(), ["[1, 2]", ""]);
    let fields = Fields::from(vec![
        Field::new("Y", DataType::Utf8, true),
        Field::new("x", DataType::Int32, true),
    ]);
    let both = DataType::Struct(fields);
    let point = CqlValue::UserDefinedType {
        keyspace: "k".to_owned(),
        name: "point".to_owned(),
        fields: vec![("x".to_owned(), Some(CqlValue::Int(3))), ("y".to_owned(), None)],
    };
    let pair = CqlValue::Tuple(vec![Some(text("a")), Some(CqlValue::Int(4))]);
    let shown = read(&[Some(point), None, Some(pair)], &both).unwrap();
    assert_eq!(shown, ["{Y: , x: 3}", "", "{Y: a, x: 4}"]);
    let entry = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", list(DataType::Int32), true),
    ]);
    let entries = Field::new("entries", DataType::Struct(entry), false);
    let map = DataType::Map(Arc::new(entries), false);
    let value = CqlValue::Map(vec![(text("a"), CqlValue::List(vec![CqlValue::Int(1)]))]);
    let values = [Some(&value), None];
    let column = column(&values, &map).unwrap();
    let pairs = column.as_map().value(0);
    assert_eq!(pairs.column(0).as_string::<i32>().value(0), "a");
    assert!(column.is_null(1));
}
