//! Which columns of Cassandra a declared column reads, and values as arrays: [`fit`](super::fit)
//! in reverse. A wider type reads a narrower one, and nothing is rounded or cut off.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, ListArray, MapArray, NullArray,
    PrimitiveArray, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, FieldRef, Fields, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use millstream_sql::types::spark_type;
use scylla::cluster::metadata::{CollectionType, ColumnType, NativeType};
use scylla::value::CqlValue;
use thiserror::Error;

use super::{Mismatch, shown, spark_name};

/// A value that the declared type cannot hold.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ReadProblem {
    /// A number with more digits than DECIMAL has.
    #[error("a number has more digits than {wanted} holds; declare a larger DECIMAL")]
    Digits { wanted: String },
    /// A moment out of the range of TIMESTAMP.
    #[error("{milliseconds} ms since 1970 are out of the range of TIMESTAMP")]
    Moment { milliseconds: i64 },
    /// The table's column has been changed to another type.
    #[error("it is no longer what reads as {wanted}: the table was changed; start again")]
    Changed { wanted: String },
}

/// Checks that values of a column of type `found` read as the declared type.
///
/// # Errors
/// They do not, or not all of them.
pub(crate) fn check_readable(declared: &DataType, found: &ColumnType<'_>) -> Result<(), Mismatch> {
    let does = match (found, declared) {
        (ColumnType::Native(native), _) => reads_native(declared, native),
        (ColumnType::Collection { typ, .. }, _) => match (typ, declared) {
            (
                CollectionType::List(element) | CollectionType::Set(element),
                DataType::List(field),
            ) => return check_readable(field.data_type(), element),
            (CollectionType::Map(key, value), DataType::Map(entries, _)) => {
                let (key_field, value_field) = entry_fields(entries);
                check_readable(key_field.data_type(), key)?;
                return check_readable(value_field.data_type(), value);
            }
            _ => false,
        },
        (ColumnType::Vector { typ, .. }, DataType::List(field)) => {
            return check_readable(field.data_type(), typ);
        }
        (ColumnType::UserDefinedType { definition, .. }, DataType::Struct(fields)) => {
            for field in fields {
                let mut parts = definition.field_types.iter();
                let Some((_, typ)) = parts.find(|(name, _)| same_name(name, field)) else {
                    let problem = format!("{} has no field '{}'", shown(found), field.name());
                    return Err(Mismatch::new(problem, "leave that field out of the STRUCT"));
                };
                check_readable(field.data_type(), typ)?;
            }
            true
        }
        (ColumnType::Tuple(types), DataType::Struct(fields)) if types.len() == fields.len() => {
            for (field, typ) in fields.iter().zip(types) {
                check_readable(field.data_type(), typ)?;
            }
            true
        }
        _ => false,
    };
    if does {
        return Ok(());
    }
    let problem =
        format!("it is declared {} and {} in the table", spark_type(declared), shown(found));
    Err(Mismatch::new(problem, remedy(found)))
}

fn reads_native(declared: &DataType, found: &NativeType) -> bool {
    use DataType as Spark;
    use NativeType as Cql;
    match found {
        Cql::Boolean => *declared == Spark::Boolean,
        Cql::TinyInt => declared.is_signed_integer(),
        Cql::SmallInt => matches!(declared, Spark::Int16 | Spark::Int32 | Spark::Int64),
        Cql::Int => matches!(declared, Spark::Int32 | Spark::Int64),
        Cql::BigInt | Cql::Time => *declared == Spark::Int64,
        Cql::Float => matches!(declared, Spark::Float32 | Spark::Float64),
        Cql::Double => *declared == Spark::Float64,
        Cql::Varint | Cql::Decimal => matches!(declared, Spark::Decimal128(..)),
        Cql::Text | Cql::Ascii | Cql::Uuid | Cql::Timeuuid | Cql::Inet => *declared == Spark::Utf8,
        Cql::Blob => *declared == Spark::Binary,
        Cql::Date => *declared == Spark::Date32,
        Cql::Timestamp => matches!(declared, Spark::Timestamp(TimeUnit::Microsecond, _)),
        _ => false,
    }
}

fn remedy(found: &ColumnType<'_>) -> String {
    let spark = match found {
        ColumnType::Native(NativeType::Decimal) => "DECIMAL(38,18), or another scale",
        ColumnType::Native(native) => match spark_name(native) {
            Some(name) => name,
            None => return "leave the column out; that type cannot be read".to_owned(),
        },
        ColumnType::Collection { typ: CollectionType::Map(..), .. } => "a MAP of its types",
        ColumnType::Collection { .. } | ColumnType::Vector { .. } => {
            "an ARRAY of its elements' type"
        }
        _ => "a STRUCT with fields of its types",
    };
    format!("declare it {spark}")
}

/// The key and the value of a map's entries.
fn entry_fields(entries: &FieldRef) -> (&FieldRef, &FieldRef) {
    match entries.data_type() {
        DataType::Struct(fields) if fields.len() == 2 => (&fields[0], &fields[1]),
        other => unreachable!("the entries of a map are a struct of two, and not {other}"),
    }
}

fn same_name(name: &str, field: &Field) -> bool {
    field.name().eq_ignore_ascii_case(name)
}

type Value<'a> = Option<&'a CqlValue>;

/// Values of one column as an array of the declared type, which passed [`check_readable`].
///
/// # Errors
/// A value that the type cannot hold.
pub(crate) fn column(values: &[Value<'_>], declared: &DataType) -> Result<ArrayRef, ReadProblem> {
    Ok(match declared {
        DataType::Boolean => {
            let of = |value: &CqlValue| value.as_boolean();
            Arc::new(each(values, declared, of)?.into_iter().collect::<BooleanArray>())
        }
        DataType::Int8 => integers::<Int8Type>(values, declared)?,
        DataType::Int16 => integers::<Int16Type>(values, declared)?,
        DataType::Int32 => integers::<Int32Type>(values, declared)?,
        DataType::Int64 => integers::<Int64Type>(values, declared)?,
        DataType::Float32 => {
            let of = |value: &CqlValue| value.as_float();
            primitive::<Float32Type>(each(values, declared, of)?, declared)
        }
        DataType::Float64 => {
            let of = |value: &CqlValue| value.as_double().or(value.as_float().map(f64::from));
            primitive::<Float64Type>(each(values, declared, of)?, declared)
        }
        DataType::Decimal128(precision, scale) => {
            let digits = || ReadProblem::Digits { wanted: spark_type(declared).to_string() };
            let of = |value: &Value<'_>| match value {
                None | Some(CqlValue::Empty) => Ok(None),
                Some(value) => {
                    unscaled(value, *precision, i32::from(*scale)).map(Some).ok_or_else(digits)
                }
            };
            let numbers = values.iter().map(of).collect::<Result<Vec<_>, _>>()?;
            primitive::<Decimal128Type>(numbers, declared)
        }
        DataType::Utf8 => {
            Arc::new(each(values, declared, text)?.into_iter().collect::<StringArray>())
        }
        DataType::Binary => {
            let of = |value: &CqlValue| value.as_blob().cloned();
            Arc::new(each(values, declared, of)?.into_iter().collect::<BinaryArray>())
        }
        DataType::Date32 => {
            // Cassandra counts days from 2^31 before 1970 on.
            let of = |value: &CqlValue| value.as_cql_date().map(|date| (date.0 ^ (1 << 31)) as i32);
            primitive::<Date32Type>(each(values, declared, of)?, declared)
        }
        DataType::Timestamp(..) => moments(values, declared)?,
        DataType::List(field) => lists(values, declared, field)?,
        DataType::Map(entries, is_sorted) => maps(values, declared, entries, *is_sorted)?,
        DataType::Struct(fields) => structs(values, declared, fields)?,
        _ => Arc::new(NullArray::new(values.len())),
    })
}

/// What `of` makes of each value; one without bytes, which old tables may have, is NULL.
fn each<'a, T>(
    values: &[Value<'a>],
    declared: &DataType,
    of: impl Fn(&'a CqlValue) -> Option<T>,
) -> Result<Vec<Option<T>>, ReadProblem> {
    let changed = || ReadProblem::Changed { wanted: spark_type(declared).to_string() };
    let one = |value: &Value<'a>| match value {
        None | Some(CqlValue::Empty) => Ok(None),
        Some(value) => of(value).map(Some).ok_or_else(changed),
    };
    values.iter().map(one).collect()
}

fn primitive<T: ArrowPrimitiveType>(
    values: Vec<Option<T::Native>>,
    declared: &DataType,
) -> ArrayRef {
    let array: PrimitiveArray<T> = values.into_iter().collect();
    Arc::new(array.with_data_type(declared.clone()))
}

fn integers<T: ArrowPrimitiveType>(
    values: &[Value<'_>],
    declared: &DataType,
) -> Result<ArrayRef, ReadProblem>
where
    T::Native: TryFrom<i64>,
{
    let of = |value: &CqlValue| {
        let number = match value {
            CqlValue::TinyInt(number) => i64::from(*number),
            CqlValue::SmallInt(number) => i64::from(*number),
            CqlValue::Int(number) => i64::from(*number),
            CqlValue::BigInt(number) => *number,
            CqlValue::Time(time) => time.0,
            _ => return None,
        };
        T::Native::try_from(number).ok()
    };
    Ok(primitive::<T>(each(values, declared, of)?, declared))
}

fn text(value: &CqlValue) -> Option<String> {
    match value {
        CqlValue::Text(text) | CqlValue::Ascii(text) => Some(text.clone()),
        CqlValue::Uuid(uuid) => Some(uuid.to_string()),
        CqlValue::Timeuuid(uuid) => Some(uuid.to_string()),
        CqlValue::Inet(address) => Some(address.to_string()),
        _ => None,
    }
}

fn moments(values: &[Value<'_>], declared: &DataType) -> Result<ArrayRef, ReadProblem> {
    let milliseconds = each(values, declared, |value| value.as_cql_timestamp().map(|at| at.0))?;
    let microseconds = milliseconds.into_iter().map(|at| {
        at.map(|at| at.checked_mul(1_000).ok_or(ReadProblem::Moment { milliseconds: at }))
            .transpose()
    });
    let microseconds = microseconds.collect::<Result<Vec<_>, _>>()?;
    Ok(primitive::<TimestampMicrosecondType>(microseconds, declared))
}

/// A number as digits of DECIMAL(precision, scale); `None` where it has more.
fn unscaled(value: &CqlValue, precision: u8, scale: i32) -> Option<i128> {
    let (bytes, own_scale) = match value {
        CqlValue::Decimal(decimal) => decimal.as_signed_be_bytes_slice_and_exponent(),
        CqlValue::Varint(number) => (number.as_signed_bytes_be_slice(), 0),
        _ => return None,
    };
    let number = whole(bytes)?;
    let factor = |digits: i32| 10_i128.checked_pow(u32::try_from(digits).ok()?);
    let shift = scale.checked_sub(own_scale)?;
    let number = match shift {
        _ if number == 0 => 0,
        0.. => number.checked_mul(factor(shift)?)?,
        _ => {
            let factor = factor(shift.checked_neg()?)?;
            (number % factor == 0).then_some(number / factor)?
        }
    };
    let limit = 10_u128.checked_pow(u32::from(precision))?;
    (number.unsigned_abs() < limit).then_some(number)
}

/// Two's complement, of any length.
fn whole(bytes: &[u8]) -> Option<i128> {
    let is_negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let sign = if is_negative { 0xFF } else { 0 };
    let mut all = [sign; 16];
    let start = bytes.iter().take_while(|byte| **byte == sign).count();
    let digits = &bytes[start..];
    all.get_mut(16_usize.checked_sub(digits.len())?..)?.copy_from_slice(digits);
    let number = i128::from_be_bytes(all);
    ((number < 0) == is_negative).then_some(number)
}

fn elements(value: &CqlValue) -> Option<&Vec<CqlValue>> {
    match value {
        CqlValue::List(all) | CqlValue::Set(all) | CqlValue::Vector(all) => Some(all),
        _ => None,
    }
}

fn lists(
    values: &[Value<'_>],
    declared: &DataType,
    field: &FieldRef,
) -> Result<ArrayRef, ReadProblem> {
    let all = each(values, declared, elements)?;
    let offsets = OffsetBuffer::from_lengths(all.iter().map(|all| all.map_or(0, Vec::len)));
    let nulls = NullBuffer::from_iter(all.iter().map(Option::is_some));
    let inner: Vec<Value<'_>> = all.into_iter().flatten().flatten().map(Some).collect();
    let inner = column(&inner, field.data_type())?;
    Ok(Arc::new(ListArray::new(Arc::clone(field), offsets, inner, Some(nulls))))
}

fn maps(
    values: &[Value<'_>],
    declared: &DataType,
    entries: &FieldRef,
    is_sorted: bool,
) -> Result<ArrayRef, ReadProblem> {
    let all = each(values, declared, |value| value.as_map())?;
    let offsets = OffsetBuffer::from_lengths(all.iter().map(|all| all.map_or(0, Vec::len)));
    let nulls = NullBuffer::from_iter(all.iter().map(Option::is_some));
    let pairs = || all.iter().copied().flatten().flatten();
    let keys: Vec<Value<'_>> = pairs().map(|(key, _)| Some(key)).collect();
    let inner: Vec<Value<'_>> = pairs().map(|(_, value)| Some(value)).collect();
    let (key_field, value_field) = entry_fields(entries);
    let columns =
        vec![column(&keys, key_field.data_type())?, column(&inner, value_field.data_type())?];
    let fields = Fields::from(vec![Arc::clone(key_field), Arc::clone(value_field)]);
    let pairs = StructArray::new(fields, columns, None);
    let map = MapArray::new(Arc::clone(entries), offsets, pairs, Some(nulls), is_sorted);
    Ok(Arc::new(map))
}

fn structs(
    values: &[Value<'_>],
    declared: &DataType,
    fields: &Fields,
) -> Result<ArrayRef, ReadProblem> {
    let is_struct =
        |value: &&CqlValue| matches!(value, CqlValue::UserDefinedType { .. } | CqlValue::Tuple(_));
    let all = each(values, declared, |value| Some(value).filter(is_struct))?;
    let mut columns = Vec::with_capacity(fields.len());
    for (at, field) in fields.iter().enumerate() {
        let inner = all.iter().map(|value| match value {
            Some(CqlValue::Tuple(parts)) => parts.get(at)?.as_ref(),
            Some(CqlValue::UserDefinedType { fields, .. }) => {
                fields.iter().find(|(name, _)| same_name(name, field))?.1.as_ref()
            }
            _ => None,
        });
        columns.push(column(&inner.collect::<Vec<_>>(), field.data_type())?);
    }
    let nulls = NullBuffer::from_iter(all.iter().map(Option::is_some));
    let array = StructArray::try_new_with_length(fields.clone(), columns, Some(nulls), all.len());
    Ok(Arc::new(array.expect("columns of the declared types, as many as there are values")))
}

#[cfg(test)]
mod tests;
