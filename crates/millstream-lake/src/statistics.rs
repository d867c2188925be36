//! Per-file statistics: rows, nulls, and the least and greatest value of each column.
//!
//! They are taken from the footer that the Parquet writer has just made, so no row is looked at
//! twice. Origin: protocol, "Per-file Statistics".
//!
//! A NaN is greater than every number to Spark and left out by Parquet, so a column with one has no
//! bounds here: whoever asks for what is above a bound would pass over a file that has it.

use std::collections::{BTreeSet, HashMap};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema, SchemaRef};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::statistics::Statistics;
use serde_json::{Map, Value, json};

/// Columns of `rows` that hold a NaN, by index.
pub(crate) fn columns_with_nan(rows: &RecordBatch) -> impl Iterator<Item = usize> {
    let columns = rows.columns().iter().enumerate();
    columns.filter(|(_, column)| has_nan(column)).map(|(index, _)| index)
}

/// What stands under a null may be anything; taken for a NaN it costs a bound and no more.
fn has_nan(column: &dyn Array) -> bool {
    match column.data_type() {
        DataType::Float32 => {
            column.as_primitive::<Float32Type>().values().iter().any(|value| value.is_nan())
        }
        DataType::Float64 => {
            column.as_primitive::<Float64Type>().values().iter().any(|value| value.is_nan())
        }
        _ => false,
    }
}

/// What a file's rows have, as an object with `numRecords`, `nullCount`, `minValues`, `maxValues`.
/// `with_nan` are the columns of `schema` that hold a NaN; of those inside others it is not known.
pub(crate) fn of_file(
    footer: &ParquetMetaData,
    schema: &SchemaRef,
    columns: &[Vec<String>],
    with_nan: &BTreeSet<usize>,
) -> Value {
    let mut bounds: HashMap<Vec<String>, Bounds> = HashMap::new();
    for row_group in footer.row_groups() {
        for chunk in row_group.columns() {
            let path = chunk.column_path().parts().to_vec();
            if columns.contains(&path) {
                let kind = type_of(schema, &path);
                let kind =
                    kind.filter(|kind| !kind.is_floating() || is_pure(schema, &path, with_nan));
                bounds.entry(path).or_default().add(chunk, kind);
            }
        }
    }
    let (mut nulls, mut least, mut greatest) = (Map::new(), Map::new(), Map::new());
    for path in columns {
        let Some(bounds) = bounds.remove(path) else { continue };
        if let Some(count) = bounds.nulls {
            insert(&mut nulls, path, json!(count));
        }
        // Without both for every row group a bound says nothing.
        if let (false, Some(min), Some(max)) = (bounds.is_partial, bounds.min, bounds.max) {
            insert(&mut least, path, min.value);
            insert(&mut greatest, path, max.value);
        }
    }
    json!({
        "numRecords": footer.file_metadata().num_rows(),
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
        "tightBounds": true,
    })
}

fn insert(object: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [name] => {
            object.insert(name.clone(), value);
        }
        [name, rest @ ..] => {
            let inner = object.entry(name.clone()).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// False where a NaN is among the values, or may be.
fn is_pure(schema: &Schema, path: &[String], with_nan: &BTreeSet<usize>) -> bool {
    let [name] = path else { return false };
    schema.index_of(name).is_ok_and(|index| !with_nan.contains(&index))
}

fn type_of<'a>(schema: &'a Schema, path: &[String]) -> Option<&'a DataType> {
    let (first, rest) = path.split_first()?;
    let mut kind = schema.field_with_name(first).ok()?.data_type();
    for name in rest {
        let DataType::Struct(fields) = kind else { return None };
        kind = fields.find(name)?.1.data_type();
    }
    Some(kind)
}

/// Bounds of one column over the row groups of a file.
#[derive(Default)]
struct Bounds {
    nulls: Option<u64>,
    min: Option<Bound>,
    max: Option<Bound>,
    is_partial: bool,
}

/// A value with what orders it.
struct Bound {
    order: Order,
    value: Value,
}

#[derive(PartialEq, PartialOrd)]
enum Order {
    Number(i128),
    Float(f64),
    Text(String),
}

impl Bounds {
    fn add(&mut self, chunk: &ColumnChunkMetaData, kind: Option<&DataType>) {
        let Some(statistics) = chunk.statistics() else {
            self.is_partial = true;
            return;
        };
        if let Some(nulls) = statistics.null_count_opt() {
            self.nulls = Some(self.nulls.unwrap_or(0) + nulls);
            if i64::try_from(nulls) == Ok(chunk.num_values()) {
                // Nothing but nulls: no bound, and no want of one.
                return;
            }
        }
        let (Some(kind), Some((min, max))) = (kind, raw(statistics)) else {
            self.is_partial = true;
            return;
        };
        match (bound(&min, kind, Side::Least), bound(&max, kind, Side::Greatest)) {
            (Some(min), Some(max)) => {
                if self.min.as_ref().is_none_or(|found| min.order < found.order) {
                    self.min = Some(min);
                }
                if self.max.as_ref().is_none_or(|found| max.order > found.order) {
                    self.max = Some(max);
                }
            }
            _ => self.is_partial = true,
        }
    }
}

enum Raw {
    Number(i128),
    Float(f64),
    Bytes(Vec<u8>),
}

fn raw(statistics: &Statistics) -> Option<(Raw, Raw)> {
    Some(match statistics {
        Statistics::Int32(found) => {
            (Raw::Number(i128::from(*found.min_opt()?)), Raw::Number(i128::from(*found.max_opt()?)))
        }
        Statistics::Int64(found) => {
            (Raw::Number(i128::from(*found.min_opt()?)), Raw::Number(i128::from(*found.max_opt()?)))
        }
        Statistics::Float(found) => {
            (Raw::Float(f64::from(*found.min_opt()?)), Raw::Float(f64::from(*found.max_opt()?)))
        }
        Statistics::Double(found) => (Raw::Float(*found.min_opt()?), Raw::Float(*found.max_opt()?)),
        Statistics::ByteArray(found) => (
            Raw::Bytes(found.min_opt()?.data().to_vec()),
            Raw::Bytes(found.max_opt()?.data().to_vec()),
        ),
        Statistics::FixedLenByteArray(found) => (
            Raw::Number(big_endian(found.min_opt()?.data())?),
            Raw::Number(big_endian(found.max_opt()?.data())?),
        ),
        Statistics::Boolean(_) | Statistics::Int96(_) => return None,
    })
}

/// A decimal's unscaled value.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let fill = if bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
    let mut wide = [fill; 16];
    wide[16_usize.checked_sub(bytes.len())?..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

/// Which bound, for values that the log has with less precision than the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Least,
    Greatest,
}

/// The bound as the log has it; `None` for types that have none there.
fn bound(raw: &Raw, kind: &DataType, side: Side) -> Option<Bound> {
    let order = match raw {
        Raw::Number(number) => Order::Number(*number),
        Raw::Float(number) if number.is_finite() => Order::Float(*number),
        Raw::Float(_) => return None,
        Raw::Bytes(bytes) => Order::Text(String::from_utf8(bytes.clone()).ok()?),
    };
    let value = match (&order, kind) {
        (
            Order::Number(number),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64,
        ) => json!(i64::try_from(*number).ok()?),
        (Order::Number(days), DataType::Date32) => {
            let day = chrono::DateTime::from_timestamp(i64::try_from(*days).ok()? * 86_400, 0)?;
            json!(day.format("%Y-%m-%d").to_string())
        }
        (Order::Number(micros), DataType::Timestamp(_, zone)) => {
            // The log has milliseconds; cut off, the greatest would lie below its own value.
            let up = if side == Side::Greatest { 999 } else { 0 };
            let ms = i64::try_from(*micros).ok()?.saturating_add(up).div_euclid(1_000);
            let moment = chrono::DateTime::from_timestamp_millis(ms)?;
            let suffix = if zone.is_some() { "Z" } else { "" };
            json!(format!("{}{suffix}", moment.format("%Y-%m-%dT%H:%M:%S%.3f")))
        }
        (Order::Number(unscaled), DataType::Decimal128(_, scale)) => {
            // As text: a JSON number would be read as a binary fraction.
            json!(decimal(*unscaled, u32::try_from(*scale).ok()?))
        }
        (Order::Float(number), DataType::Float32 | DataType::Float64) => json!(number),
        (Order::Text(text), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            json!(text)
        }
        _ => return None,
    };
    Some(Bound { order, value })
}

fn decimal(unscaled: i128, scale: u32) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let (digits, scale) = (unscaled.unsigned_abs().to_string(), scale as usize);
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    format!("{sign}{whole}.{part}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written_out() {
        assert_eq!(decimal(-5, 2), "-0.05");
        assert_eq!(decimal(12_345, 2), "123.45");
        assert_eq!(decimal(7, 0), "7");
        assert_eq!(big_endian(&[0xff, 0xfb]), Some(-5));
    }

    #[test]
    fn moments_are_bounded_in_whole_milliseconds() {
        let kind = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("UTC".into()));
        for (micros, least, greatest) in [
            (1_767_225_600_123_456, "2026-01-01T00:00:00.123Z", "2026-01-01T00:00:00.124Z"),
            (1_767_225_600_123_000, "2026-01-01T00:00:00.123Z", "2026-01-01T00:00:00.123Z"),
            (-1, "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z"),
        ] {
            let of = |side| bound(&Raw::Number(micros), &kind, side).expect("a moment").value;
            assert_eq!((of(Side::Least), of(Side::Greatest)), (json!(least), json!(greatest)));
        }
    }
}
