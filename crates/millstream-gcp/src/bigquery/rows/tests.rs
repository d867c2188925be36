use arrow::array::{
    Decimal128Array, DictionaryArray, Int32Array, Int64Array, MapBuilder, NullArray, StringArray,
    StringBuilder, TimestampSecondArray,
};
use arrow::datatypes::{Decimal256Type, Int32Type, Int64Type, Schema, TimestampMicrosecondType};

use super::super::columns::{Column, Kind, Mode};
use super::super::mapping::{column_for, map};
use super::*;

/// Rows of these columns, for a table made for them.
fn converted_for(fields: Vec<Field>, columns: Vec<ArrayRef>) -> Result<RecordBatch, RowProblem> {
    let table: Vec<Column> =
        fields.iter().map(|field| column_for(field).expect("it can be")).collect();
    let schema = Arc::new(Schema::new(fields));
    let mapping = map(&schema, &table).expect("it fits");
    convert(&mapping, &RecordBatch::try_new(schema, columns).expect("they are rows"))
}

fn one(array: ArrayRef) -> Result<ArrayRef, RowProblem> {
    let field = Field::new("c", array.data_type().clone(), true);
    converted_for(vec![field], vec![array]).map(|rows| Arc::clone(rows.column(0)))
}

fn lists(lists: Vec<Option<Vec<Option<i32>>>>) -> ArrayRef {
    Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
}

#[test]
fn plain_values_become_those_of_the_table() {
    let words: DictionaryArray<Int32Type> = vec!["a", "b", "a"].into_iter().collect();
    let words = one(Arc::new(words)).expect("they can be");
    assert_eq!(words.as_string::<i32>(), &StringArray::from(vec!["a", "b", "a"]));
    let numbers = one(Arc::new(Int32Array::from(vec![Some(1), None]))).expect("they can be");
    assert_eq!(numbers.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(1), None]));
    let decimals = Decimal128Array::from(vec![12_345]);
    let decimals = decimals.with_precision_and_scale(38, 20).expect("it fits");
    let decimals = one(Arc::new(decimals)).expect("they can be");
    let decimal = decimals.as_primitive::<Decimal256Type>().value(0);
    // Scale 38 instead of 20.
    assert_eq!(decimal, arrow::datatypes::i256::from_i128(12_345 * 10_i128.pow(18)));
    let seconds = TimestampSecondArray::from(vec![7]).with_timezone("+01:00");
    let micros = one(Arc::new(seconds)).expect("they can be");
    assert_eq!(micros.as_primitive::<TimestampMicrosecondType>().value(0), 7_000_000);
}

#[test]
fn arrays_that_are_null_become_empty_and_null_elements_are_refused() {
    let all = lists(vec![Some(vec![Some(1), Some(2)]), None, Some(vec![]), Some(vec![Some(3)])]);
    let sent = one(Arc::clone(&all)).expect("they can be");
    let sent = sent.as_list::<i32>();
    let lengths: Vec<usize> = (0..4).map(|row| sent.value(row).len()).collect();
    assert_eq!((lengths, sent.null_count()), (vec![2, 0, 0, 1], 0));
    // A slice begins in the middle of the values.
    let sent = one(all.slice(2, 2)).expect("they can be");
    assert_eq!(sent.as_list::<i32>().value(1).as_primitive::<Int64Type>().value(0), 3);
    let refused = one(lists(vec![Some(vec![Some(1), None])])).expect_err("it has a NULL");
    assert!(refused.to_string().contains("filter(c, x -> x IS NOT NULL)"), "{refused}");
}

#[test]
fn values_behind_an_array_that_is_null_are_not_sent() {
    let values = Int32Array::from(vec![Some(1), None, Some(3)]);
    let offsets = OffsetBuffer::<i32>::from_lengths([1, 1, 1]);
    let nulls = NullBuffer::from(vec![true, false, true]);
    let element = Arc::new(Field::new("element", DataType::Int32, true));
    let all = ListArray::new(element, offsets, Arc::new(values), Some(nulls));
    let sent = one(Arc::new(all)).expect("the NULL is behind a NULL");
    let sent = sent.as_list::<i32>();
    assert_eq!(sent.values().as_primitive::<Int64Type>(), &Int64Array::from(vec![1, 3]));
    assert_eq!(sent.value(2).as_primitive::<Int64Type>().value(0), 3);
}

#[test]
fn maps_become_records_of_key_and_value() {
    let mut maps = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    maps.keys().append_value("k");
    maps.values().append_null();
    maps.append(true).expect("a key for each value");
    maps.append(false).expect("a key for each value");
    let sent = one(Arc::new(maps.finish())).expect("they can be");
    let sent = sent.as_list::<i32>();
    assert_eq!([sent.value(0).len(), sent.value(1).len()], [1, 0]);
    let entries = sent.values().as_struct();
    assert_eq!(entries.column_names(), ["key", "value"]);
    assert_eq!(entries.column(0).as_string::<i32>().value(0), "k");
    assert!(entries.column(1).is_null(0));
}

#[test]
fn a_value_that_must_be_there_is() {
    let field = Field::new("c", DataType::Int32, false);
    let schema = Arc::new(Schema::new(vec![field.clone().with_nullable(true)]));
    let required = column_for(&field).expect("it can be");
    assert_eq!(required.mode, Mode::Required);
    let mapping = map(&schema, &[required]).expect("it fits");
    let rows = |numbers: Vec<Option<i32>>| {
        let numbers: ArrayRef = Arc::new(Int32Array::from(numbers));
        RecordBatch::try_new(Arc::clone(&schema), vec![numbers]).expect("they are rows")
    };
    assert!(convert(&mapping, &rows(vec![Some(1)])).is_ok());
    let refused = convert(&mapping, &rows(vec![Some(1), None])).expect_err("one is NULL");
    assert!(refused.to_string().starts_with("c is NULL"), "{refused}");
    // A field of a record counts where the record is there.
    let inner = Arc::new(Field::new("x", DataType::Int32, true));
    let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let records = |valid: Vec<bool>| -> ArrayRef {
        let fields = vec![Arc::clone(&inner)].into();
        let nulls = Some(NullBuffer::from(valid));
        Arc::new(StructArray::new(fields, vec![Arc::clone(&values)], nulls))
    };
    let x = Column { mode: Mode::Required, ..Column::nullable("x", Kind::Int64) };
    let table = [Column { fields: vec![x], ..Column::nullable("r", Kind::Record) }];
    let field = Field::new("r", records(vec![true, true]).data_type().clone(), true);
    let schema = Arc::new(Schema::new(vec![field]));
    let mapping = map(&schema, &table).expect("it fits");
    let sent = |valid| {
        let rows = RecordBatch::try_new(Arc::clone(&schema), vec![records(valid)]);
        convert(&mapping, &rows.expect("they are rows"))
    };
    assert!(sent(vec![true, false]).is_ok(), "the record is NULL");
    let refused = sent(vec![true, true]).expect_err("the field is NULL");
    assert!(refused.to_string().starts_with("r.x is NULL"), "{refused}");
}

#[test]
fn a_value_that_does_not_fit_is_refused_and_not_null() {
    let table = [Column::nullable("c", Kind::Numeric)];
    let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Int64, true)]));
    let mapping = map(&schema, &table).expect("it fits");
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX]));
    let rows = RecordBatch::try_new(schema, vec![rows]).expect("they are rows");
    assert!(convert(&mapping, &rows).is_ok(), "NUMERIC has 29 digits before the point");
    let void: ArrayRef = Arc::new(NullArray::new(2));
    let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Null, true)]));
    let mapping = map(&schema, &table).expect("it fits");
    let rows = RecordBatch::try_new(schema, vec![void]).expect("they are rows");
    assert_eq!(convert(&mapping, &rows).expect("they can be").column(0).null_count(), 2);
}
