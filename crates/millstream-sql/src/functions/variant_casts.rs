//! Casts to and from VARIANT.
//!
//! A value becomes another type as its own type does by `TRY_CAST`: values of a column may be of
//! several types, each of which is cast as a column of its own. What cannot be cast is an error or
//! NULL, and a VARIANT null is NULL in any type but VARIANT.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array,
    Float32Array, Float64Array, Int64Array, ListArray, MapArray, StringArray, StructArray,
    TimestampMicrosecondArray, new_empty_array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast as arrow_cast, interleave};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, FieldRef, Fields, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{DataFusionError, Result, exec_err};

use super::cast_rules;
use crate::types::{is_variant, spark_type, timestamp};
use crate::values::calendar::SECOND_US;
use crate::variant::{
    Builder, Entry, Items, Value, Variant, VariantError, Variants, VariantsBuilder, to_json,
    write_uuid,
};

/// Casts values, of which those that cannot be cast are errors if it is strict.
pub(super) type Cast = fn(&ArrayRef, &DataType, bool) -> Result<ArrayRef>;

/// Whether such a cast is done here.
pub(super) fn casts(from: &DataType, to: &DataType) -> bool {
    is_variant(from) != is_variant(to)
}

/// Does the casts that [`casts`] accepts.
pub(super) fn cast_variant(
    values: &ArrayRef,
    to: &DataType,
    strict: bool,
    cast: Cast,
) -> Result<ArrayRef> {
    if values.data_type().is_null() {
        return Ok(new_null_array(to, values.len()));
    }
    if is_variant(to) {
        return to_variants(values);
    }
    let variants = Variants::of(values);
    let found = (0..values.len()).map(|row| variants.get(row).map_err(failed));
    let found = found.collect::<Result<Vec<Option<Variant<'_>>>>>()?;
    let target = Target { strict, cast, items_max: variants.length() };
    target.values(&found, to)
}

/// What is wrong with a VARIANT ends the query.
pub(super) fn failed(error: VariantError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// How VARIANTs become another type.
pub(super) struct Target {
    pub strict: bool,
    pub cast: Cast,
    /// How many items the arrays and objects of a column can have: each has a byte of its own.
    pub items_max: usize,
}

impl Target {
    /// Values of the type `to`.
    pub(super) fn values(&self, found: &[Option<Variant<'_>>], to: &DataType) -> Result<ArrayRef> {
        match to {
            to if is_variant(to) => copies(found),
            DataType::List(item) => self.list(found, item, to),
            DataType::Map(entries, sorted) => self.map(found, entries, *sorted, to),
            DataType::Struct(fields) => self.structure(found, fields, to),
            DataType::Utf8View | DataType::LargeUtf8 => {
                Ok(arrow_cast(&self.values(found, &DataType::Utf8)?, to)?)
            }
            _ => self.leaves(found, to),
        }
    }

    /// NULL for what cannot be cast, or an error.
    fn invalid<T>(&self, value: Variant<'_>, to: &DataType) -> Result<Option<T>> {
        if !self.strict {
            return Ok(None);
        }
        let mut text = String::new();
        to_json(value, &mut text).map_err(failed)?;
        let shown: String = text.chars().take(100).collect();
        exec_err!(
            "the VARIANT {shown} cannot be cast to {} (INVALID_VARIANT_CAST); use try_cast or \
             try_variant_get to get NULL instead",
            spark_type(to)
        )
    }

    fn add<'a>(&self, items: &mut Vec<Option<Variant<'a>>>, item: Variant<'a>) -> Result<()> {
        if items.len() >= self.items_max {
            return Err(failed(VariantError::Malformed));
        }
        items.push(Some(item));
        Ok(())
    }

    fn list(
        &self,
        found: &[Option<Variant<'_>>],
        item: &FieldRef,
        to: &DataType,
    ) -> Result<ArrayRef> {
        let (mut items, mut lengths, mut is_there) = (Vec::new(), Vec::new(), Vec::new());
        for value in found {
            let before = items.len();
            let array = match value.map(Variant::get).transpose().map_err(failed)? {
                Some(Value::Array(array)) => Some(array),
                None | Some(Value::Null) => None,
                Some(_) => match value {
                    Some(value) => self.invalid(*value, to)?,
                    None => None,
                },
            };
            if let Some(array) = &array {
                for at in 0..array.len() {
                    self.add(&mut items, array.item(at).map_err(failed)?)?;
                }
            }
            lengths.push(items.len() - before);
            is_there.push(array.is_some());
        }
        let items = self.values(&items, item.data_type())?;
        let (offsets, nulls) = (OffsetBuffer::from_lengths(lengths), NullBuffer::from(is_there));
        Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, Some(nulls))?))
    }

    fn map(
        &self,
        found: &[Option<Variant<'_>>],
        entries: &FieldRef,
        sorted: bool,
        to: &DataType,
    ) -> Result<ArrayRef> {
        let DataType::Struct(parts) = entries.data_type() else {
            return exec_err!("a MAP has a key and a value");
        };
        let (mut keys, mut items) = (Vec::new(), Vec::new());
        let (mut lengths, mut is_there) = (Vec::new(), Vec::new());
        for value in found {
            let object = self.object(*value, to)?;
            let before = items.len();
            if let Some(object) = &object {
                for at in 0..object.len() {
                    keys.push(object.key(at).map_err(failed)?);
                    self.add(&mut items, object.item(at).map_err(failed)?)?;
                }
            }
            lengths.push(items.len() - before);
            is_there.push(object.is_some());
        }
        let keys: ArrayRef = Arc::new(StringArray::from(keys));
        let keys = arrow_cast(&keys, parts[0].data_type())?;
        let items = self.values(&items, parts[1].data_type())?;
        let pairs = StructArray::try_new(parts.clone(), vec![keys, items], None)?;
        let (offsets, nulls) = (OffsetBuffer::from_lengths(lengths), NullBuffer::from(is_there));
        let map = MapArray::try_new(Arc::clone(entries), offsets, pairs, Some(nulls), sorted)?;
        Ok(Arc::new(map))
    }

    fn structure(
        &self,
        found: &[Option<Variant<'_>>],
        fields: &Fields,
        to: &DataType,
    ) -> Result<ArrayRef> {
        let mut columns = vec![vec![None; found.len()]; fields.len()];
        let mut is_there = Vec::with_capacity(found.len());
        for (row, value) in found.iter().enumerate() {
            let object = self.object(*value, to)?;
            if let Some(object) = &object {
                for at in 0..object.len() {
                    let key = object.key(at).map_err(failed)?;
                    if let Some(column) = fields.iter().position(|field| field.name() == key) {
                        columns[column][row] = Some(object.item(at).map_err(failed)?);
                    }
                }
            }
            is_there.push(object.is_some());
        }
        let columns = columns.iter().zip(fields);
        let columns = columns.map(|(column, field)| self.values(column, field.data_type()));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let nulls = Some(NullBuffer::from(is_there));
        let (fields, length) = (fields.clone(), found.len());
        Ok(Arc::new(StructArray::try_new_with_length(fields, columns, nulls, length)?))
    }

    fn object<'a>(&self, value: Option<Variant<'a>>, to: &DataType) -> Result<Option<Items<'a>>> {
        let Some(value) = value else { return Ok(None) };
        match value.get().map_err(failed)? {
            Value::Object(object) => Ok(Some(object)),
            Value::Null => Ok(None),
            _ => self.invalid(value, to),
        }
    }

    /// Values without parts: those of one type are cast together.
    fn leaves(&self, found: &[Option<Variant<'_>>], to: &DataType) -> Result<ArrayRef> {
        let leaves = found.iter().map(|value| match value {
            Some(value) => leaf(*value, to.is_string()),
            None => Ok(Leaf::Null),
        });
        let leaves = leaves.collect::<Result<Vec<Leaf<'_>>, _>>().map_err(failed)?;
        let mut types: Vec<DataType> = Vec::new();
        for of in leaves.iter().filter_map(Leaf::data_type) {
            if !types.contains(&of) {
                types.push(of);
            }
        }
        if found.is_empty() {
            return Ok(new_empty_array(to));
        }
        let mut arrays = vec![new_null_array(to, 1)];
        for of in &types {
            arrays.push(self.of_type(&leaves, of, to)?);
        }
        let mut places = Vec::with_capacity(found.len());
        for (row, (value, leaf)) in found.iter().zip(&leaves).enumerate() {
            let of = leaf.data_type();
            let array = of.and_then(|of| types.iter().position(|known| *known == of));
            let place = array.map_or((0, 0), |array| (array + 1, row));
            if let Some(value) = value
                && !matches!(leaf, Leaf::Null)
                && arrays[place.0].is_null(place.1)
            {
                self.invalid::<()>(*value, to)?;
            }
            places.push(place);
        }
        let arrays: Vec<&dyn Array> = arrays.iter().map(|array| array.as_ref()).collect();
        Ok(interleave(&arrays, &places)?)
    }

    /// The values of the type `of` among others, cast; NULL in the place of the others.
    fn of_type(&self, leaves: &[Leaf<'_>], of: &DataType, to: &DataType) -> Result<ArrayRef> {
        if cast_rules::problem(of, to).is_some() {
            return Ok(new_null_array(to, leaves.len()));
        }
        let mine = leaves.iter().map(|leaf| leaf.data_type().is_some_and(|found| found == *of));
        let mine: Vec<bool> = mine.collect();
        if let (DataType::Decimal128(_, scale), DataType::Timestamp(_, Some(_))) = (of, to) {
            return Ok(Arc::new(moments(leaves, &mine, *scale).with_data_type(to.clone())));
        }
        (self.cast)(&column(leaves, &mine, of), to, false)
    }
}

/// Seconds with a fraction as times, of which anything below a microsecond is cut off.
fn moments(leaves: &[Leaf<'_>], mine: &[bool], scale: i8) -> TimestampMicrosecondArray {
    let unit = 10_i128.pow(u32::from(scale.unsigned_abs()));
    let us = |(leaf, mine): (&Leaf<'_>, &bool)| match leaf {
        Leaf::Decimal(unscaled, _) if *mine => {
            // Whole seconds and the rest apart, so that neither is too large on the way.
            let second = i128::from(SECOND_US);
            let whole = (unscaled / unit).checked_mul(second)?;
            let rest = (unscaled % unit)
                .checked_mul(second)
                .map_or_else(|| unscaled % unit / (unit / second), |rest| rest / unit);
            i64::try_from(whole + rest).ok()
        }
        _ => None,
    };
    leaves.iter().zip(mine).map(us).collect()
}

/// A value without parts, or the text of one with parts.
enum Leaf<'a> {
    Null,
    Boolean(bool),
    Long(i64),
    Float(f32),
    Double(f64),
    Decimal(i128, u8),
    Text(Cow<'a, str>),
    Binary(&'a [u8]),
    Date(i32),
    Timestamp(i64),
    TimestampNtz(i64),
    /// What is cast to nothing.
    Other,
}

impl Leaf<'_> {
    /// The type of such values; none for those that are not cast.
    fn data_type(&self) -> Option<DataType> {
        Some(match self {
            Self::Null | Self::Other => return None,
            Self::Boolean(_) => DataType::Boolean,
            Self::Long(_) => DataType::Int64,
            Self::Float(_) => DataType::Float32,
            Self::Double(_) => DataType::Float64,
            Self::Decimal(_, scale) => {
                DataType::Decimal128(38, i8::try_from(*scale).unwrap_or(i8::MAX))
            }
            Self::Text(_) => DataType::Utf8,
            Self::Binary(_) => DataType::Binary,
            Self::Date(_) => DataType::Date32,
            Self::Timestamp(_) => timestamp(),
            Self::TimestampNtz(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
        })
    }
}

fn leaf(value: Variant<'_>, to_text: bool) -> Result<Leaf<'_>, VariantError> {
    Ok(match value.get()? {
        Value::Null => Leaf::Null,
        Value::Boolean(value) => Leaf::Boolean(value),
        Value::Long(value) => Leaf::Long(value),
        Value::Float(value) => Leaf::Float(value),
        Value::Double(value) => Leaf::Double(value),
        Value::Decimal(unscaled, scale) => Leaf::Decimal(unscaled, scale),
        Value::Text(text) => Leaf::Text(Cow::Borrowed(text)),
        Value::Binary(bytes) => Leaf::Binary(bytes),
        Value::Date(days) => Leaf::Date(days),
        Value::Timestamp(us) => Leaf::Timestamp(us),
        Value::TimestampNtz(us) => Leaf::TimestampNtz(us),
        Value::Object(_) | Value::Array(_) if to_text => {
            let mut text = String::new();
            to_json(value, &mut text)?;
            Leaf::Text(Cow::Owned(text))
        }
        Value::Uuid(bytes) if to_text => {
            let mut text = String::new();
            write_uuid(&bytes, &mut text);
            Leaf::Text(Cow::Owned(text))
        }
        Value::Object(_) | Value::Array(_) | Value::Uuid(_) => Leaf::Other,
    })
}

/// The values of one type, NULL in the place of others.
fn column(leaves: &[Leaf<'_>], mine: &[bool], of: &DataType) -> ArrayRef {
    let rows = || leaves.iter().zip(mine).map(|(leaf, mine)| mine.then_some(leaf));
    macro_rules! collected {
        ($array:ty, $pattern:pat => $value:expr) => {
            rows()
                .map(|leaf| match leaf {
                    Some($pattern) => Some($value),
                    _ => None,
                })
                .collect::<$array>()
        };
    }
    match of {
        DataType::Boolean => Arc::new(collected!(BooleanArray, Leaf::Boolean(value) => *value)),
        DataType::Int64 => Arc::new(collected!(Int64Array, Leaf::Long(value) => *value)),
        DataType::Float32 => Arc::new(collected!(Float32Array, Leaf::Float(value) => *value)),
        DataType::Float64 => Arc::new(collected!(Float64Array, Leaf::Double(value) => *value)),
        DataType::Binary => Arc::new(collected!(BinaryArray, Leaf::Binary(value) => *value)),
        DataType::Date32 => Arc::new(collected!(Date32Array, Leaf::Date(value) => *value)),
        DataType::Timestamp(_, None) => {
            Arc::new(collected!(TimestampMicrosecondArray, Leaf::TimestampNtz(value) => *value))
        }
        DataType::Timestamp(..) => {
            let times = collected!(TimestampMicrosecondArray, Leaf::Timestamp(value) => *value);
            Arc::new(times.with_data_type(of.clone()))
        }
        DataType::Decimal128(..) => {
            let numbers = collected!(Decimal128Array, Leaf::Decimal(value, _) => *value);
            Arc::new(numbers.with_data_type(of.clone()))
        }
        _ => Arc::new(collected!(StringArray, Leaf::Text(text) => &**text)),
    }
}

/// Copies of parts of VARIANTs, without the names that they do not have.
fn copies(found: &[Option<Variant<'_>>]) -> Result<ArrayRef> {
    let (mut builder, mut out) = (Builder::default(), VariantsBuilder::default());
    for value in found {
        let Some(value) = value else {
            out.append_null();
            continue;
        };
        builder.clear();
        builder.variant(*value).map_err(failed)?;
        out.append(&mut builder).map_err(failed)?;
    }
    Ok(out.finish())
}

/// Values of any type as VARIANTs.
pub(super) fn to_variants(values: &ArrayRef) -> Result<ArrayRef> {
    let (mut builder, mut out) = (Builder::default(), VariantsBuilder::default());
    for row in 0..values.len() {
        if values.is_null(row) {
            out.append_null();
            continue;
        }
        builder.clear();
        append(&mut builder, values, row)?;
        out.append(&mut builder).map_err(failed)?;
    }
    Ok(out.finish())
}

fn append(builder: &mut Builder, values: &ArrayRef, row: usize) -> Result<()> {
    if values.is_null(row) {
        builder.null();
        return Ok(());
    }
    match values.data_type() {
        DataType::Null => builder.null(),
        DataType::Boolean => builder.boolean(values.as_boolean().value(row)),
        DataType::Int8 => builder.long(values.as_primitive::<Int8Type>().value(row).into()),
        DataType::Int16 => builder.long(values.as_primitive::<Int16Type>().value(row).into()),
        DataType::Int32 => builder.long(values.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => builder.long(values.as_primitive::<Int64Type>().value(row)),
        DataType::Float32 => builder.float(values.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => builder.double(values.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(_, scale) => {
            let unscaled = values.as_primitive::<Decimal128Type>().value(row);
            builder.decimal(unscaled, scale.unsigned_abs());
        }
        DataType::Utf8 => builder.text(values.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => builder.text(values.as_string::<i64>().value(row)),
        DataType::Utf8View => builder.text(values.as_string_view().value(row)),
        DataType::Binary => builder.binary(values.as_binary::<i32>().value(row)),
        DataType::Date32 => builder.date(values.as_primitive::<Date32Type>().value(row)),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let us = values.as_primitive::<TimestampMicrosecondType>().value(row);
            if zone.is_some() { builder.timestamp(us) } else { builder.timestamp_ntz(us) }
        }
        of if is_variant(of) => {
            if let Some(value) = Variants::of(values).get(row).map_err(failed)? {
                builder.variant(value).map_err(failed)?;
            }
        }
        DataType::List(_) => return append_list(builder, values.as_list::<i32>(), row),
        DataType::Map(..) => return append_map(builder, values.as_map(), row),
        DataType::Struct(_) => return append_struct(builder, values.as_struct(), row),
        other => return exec_err!("{} does not become a VARIANT", spark_type(other)),
    }
    builder.check().map_err(failed)
}

fn append_list(builder: &mut Builder, list: &ListArray, row: usize) -> Result<()> {
    let offsets = list.value_offsets();
    let (start, mut places) = (builder.place(), Vec::new());
    for item in offsets[row] as usize..offsets[row + 1] as usize {
        places.push(builder.place() - start);
        append(builder, list.values(), item)?;
    }
    builder.array(start, &places).map_err(failed)
}

fn append_map(builder: &mut Builder, map: &MapArray, row: usize) -> Result<()> {
    let offsets = map.value_offsets();
    let (start, mut fields) = (builder.place(), Vec::new());
    let keys = arrow_cast(map.keys(), &DataType::Utf8)?;
    let keys = keys.as_string::<i32>();
    for entry in offsets[row] as usize..offsets[row + 1] as usize {
        let (key, place) = (builder.key(keys.value(entry)), builder.place() - start);
        fields.push(Entry { key, place });
        append(builder, map.values(), entry)?;
    }
    builder.object(start, fields).map_err(failed)
}

fn append_struct(builder: &mut Builder, of: &StructArray, row: usize) -> Result<()> {
    let (start, mut fields) = (builder.place(), Vec::new());
    for (field, column) in of.fields().iter().zip(of.columns()) {
        let (key, place) = (builder.key(field.name()), builder.place() - start);
        fields.push(Entry { key, place });
        append(builder, column, row)?;
    }
    builder.object(start, fields).map_err(failed)
}
