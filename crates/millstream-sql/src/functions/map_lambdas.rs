//! Functions that take a function, of maps and of two collections: `transform_keys`,
//! `transform_values`, `map_filter`, `map_zip_with`, `zip_with`, and the conditions `exists` and
//! `forall`.
//!
//! As in [`super::lambdas`], a function is evaluated over the elements of all rows of a record
//! batch at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, MapArray, StructArray, UInt32Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{concat, filter, take, take_arrays};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature,
    HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda,
    Volatility,
};

use super::common_types::common_type;
use super::define::{Param, known_by_name};
use super::lambdas::element;
use super::one_zero::ones;
use crate::types::{map_of, spark_type};

use ValueOrLambda::{Lambda, Value};

/// All of them.
pub(super) fn functions() -> Vec<Arc<HigherOrderUDF>> {
    let of = |kind, name| {
        let signature = HigherOrderSignature::user_defined(Volatility::Immutable);
        Arc::new(HigherOrderUDF::new_from_impl(OfEntries { kind, name, signature }))
    };
    vec![
        of(Kind::Exists, "exists"),
        of(Kind::ForAll, "forall"),
        of(Kind::ZipWith, "zip_with"),
        of(Kind::TransformKeys, "transform_keys"),
        of(Kind::TransformValues, "transform_values"),
        of(Kind::MapFilter, "map_filter"),
        of(Kind::MapZipWith, "map_zip_with"),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Exists,
    ForAll,
    ZipWith,
    TransformKeys,
    TransformValues,
    MapFilter,
    MapZipWith,
}

impl Kind {
    /// How a call looks.
    fn example(self) -> &'static str {
        match self {
            Self::Exists => "exists(array, x -> x > 1)",
            Self::ForAll => "forall(array, x -> x > 1)",
            Self::ZipWith => "zip_with(array, array, (x, y) -> x + y)",
            Self::TransformKeys => "transform_keys(map, (k, v) -> k + 1)",
            Self::TransformValues => "transform_values(map, (k, v) -> v + 1)",
            Self::MapFilter => "map_filter(map, (k, v) -> v > 1)",
            Self::MapZipWith => "map_zip_with(map, map, (k, v1, v2) -> v1 + v2)",
        }
    }

    fn is_condition(self) -> bool {
        matches!(self, Self::Exists | Self::ForAll | Self::MapFilter)
    }
}

struct OfEntries {
    kind: Kind,
    name: &'static str,
    signature: HigherOrderSignature,
}

known_by_name!(OfEntries);

/// The fields of a map's keys and values.
pub(super) fn entry_fields(map: &DataType) -> Result<[FieldRef; 2]> {
    if let DataType::Map(entries, _) = map
        && let DataType::Struct(fields) = entries.data_type()
        && let [key, value] = &fields[..]
    {
        return Ok([Arc::clone(key), Arc::clone(value)]);
    }
    plan_err!("expected a MAP, found {}", spark_type(map))
}

/// The same field, of which a value may be missing.
fn nullable(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_nullable(true))
}

impl OfEntries {
    fn refused<T>(&self) -> Result<T> {
        plan_err!("`{}` is called like this: {}", self.name, self.kind.example())
    }

    /// What the function is given for each element.
    fn parameters(&self, types: &[&DataType]) -> Result<Vec<FieldRef>> {
        Ok(match (self.kind, types) {
            (Kind::Exists | Kind::ForAll, [list]) => vec![element(list)?],
            (Kind::ZipWith, [left, right]) => {
                vec![nullable(&element(left)?), nullable(&element(right)?)]
            }
            (Kind::MapZipWith, [left, right]) => {
                let ([key, left], [_, right]) = (entry_fields(left)?, entry_fields(right)?);
                vec![key, nullable(&left), nullable(&right)]
            }
            (_, [map]) => entry_fields(map)?.to_vec(),
            _ => return self.refused(),
        })
    }

    /// The type of the result, of the types of the values and of what the function makes.
    fn result(&self, types: &[&DataType], made: &DataType) -> Result<DataType> {
        if self.kind.is_condition() && *made != DataType::Boolean && !made.is_null() {
            let (name, made) = (self.name, spark_type(made));
            return plan_err!("the function of {name} must be a condition, and it gives {made}");
        }
        Ok(match self.kind {
            Kind::Exists | Kind::ForAll => DataType::Boolean,
            Kind::ZipWith => DataType::new_list(made.clone(), true),
            Kind::MapFilter => types[0].clone(),
            Kind::TransformKeys => {
                refuse_key_type(made)?;
                map_of(made.clone(), entry_fields(types[0])?[1].data_type().clone())
            }
            Kind::TransformValues | Kind::MapZipWith => {
                map_of(entry_fields(types[0])?[0].data_type().clone(), made.clone())
            }
        })
    }
}

/// The types of the values and the type of the function's result.
fn split(fields: &[ValueOrLambda<FieldRef, FieldRef>]) -> Option<(Vec<&DataType>, &DataType)> {
    let (Lambda(made), values) = fields.split_last()? else { return None };
    let values = values.iter().map(|field| match field {
        Value(field) => Some(field.data_type()),
        Lambda(_) => None,
    });
    Some((values.collect::<Option<_>>()?, made.data_type()))
}

impl HigherOrderUDFImpl for OfEntries {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match (self.kind, given) {
            (Kind::Exists | Kind::ForAll, [list]) => Ok(vec![Param::Array.coerced(list)?]),
            (Kind::ZipWith, [left, right]) => {
                Ok(vec![Param::Array.coerced(left)?, Param::Array.coerced(right)?])
            }
            (Kind::MapZipWith, [left, right]) => {
                let ([a, left], [b, right]) = (entry_fields(left)?, entry_fields(right)?);
                let keys = [a.data_type().clone(), b.data_type().clone()];
                let Some(key) = common_key(&keys) else {
                    let [a, b] = keys.each_ref().map(spark_type);
                    return plan_err!(
                        "map_zip_with takes two maps with keys of the same type, not {a} and {b}"
                    );
                };
                let of = |value: &Field| map_of(key.clone(), value.data_type().clone());
                Ok(vec![of(&left), of(&right)])
            }
            (Kind::ZipWith | Kind::MapZipWith, _) => self.refused(),
            (_, [map]) => entry_fields(map).map(|_| vec![map.clone()]),
            _ => self.refused(),
        }
    }

    fn lambda_parameters(
        &self,
        _: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let Some((Lambda(_), values)) = fields.split_last() else { return self.refused() };
        let types = values.iter().map(|field| match field {
            Value(field) => Some(field.data_type()),
            Lambda(_) => None,
        });
        let Some(types) = types.collect::<Option<Vec<_>>>() else { return self.refused() };
        Ok(LambdaParametersProgress::Complete(vec![self.parameters(&types)?]))
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs<'_>) -> Result<FieldRef> {
        let Some((types, made)) = split(args.arg_fields) else { return self.refused() };
        Ok(Arc::new(Field::new("", self.result(&types, made)?, true)))
    }

    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let result = match (self.kind, args.args.as_slice()) {
            (Kind::ZipWith, [Value(left), Value(right), Lambda(function)]) => zipped(
                &Parts::of(left, rows)?,
                &Parts::of(right, rows)?,
                function,
                args.return_type(),
            ),
            (Kind::MapZipWith, [Value(left), Value(right), Lambda(function)]) => {
                let (left, right) = (Parts::of(left, rows)?, Parts::of(right, rows)?);
                maps_zipped(&left, &right, function, args.return_type())
            }
            (kind, [Value(value), Lambda(function)]) => {
                let parts = Parts::of(value, rows)?;
                match kind {
                    Kind::Exists => parts.holds(function, true),
                    Kind::ForAll => parts.holds(function, false),
                    Kind::MapFilter => parts.filtered(function, args.return_type()),
                    Kind::TransformKeys => {
                        let keys = parts.mapped(function)?;
                        let lengths = parts.lengths();
                        refuse_keys(&keys, &lengths)?;
                        let columns = vec![keys, Arc::clone(parts.column(1)?)];
                        as_map(args.return_type(), lengths, columns, parts.nulls.clone())
                    }
                    _ => {
                        let columns = vec![Arc::clone(parts.column(0)?), parts.mapped(function)?];
                        as_map(args.return_type(), parts.lengths(), columns, parts.nulls.clone())
                    }
                }
            }
            _ => return self.refused(),
        }?;
        Ok(ColumnarValue::Array(result))
    }
}

/// What a function makes of its parameters, of which there is one value for each of `rows`; these
/// are asked for only if the function uses other columns too.
fn evaluated(
    function: &LambdaArgument,
    parameters: &[ArrayRef],
    rows: impl FnOnce() -> UInt32Array,
) -> Result<ArrayRef> {
    let given: Vec<_> = parameters
        .iter()
        .map(|column| move || -> Result<ArrayRef> { Ok(Arc::clone(column)) })
        .collect();
    let given: Vec<&dyn Fn() -> Result<ArrayRef>> =
        given.iter().map(|column| column as &dyn Fn() -> Result<ArrayRef>).collect();
    let result = function.evaluate(&given, |columns| Ok(take_arrays(columns, &rows(), None)?))?;
    result.into_array(parameters[0].len())
}

/// A map of the given keys and values, cast to what the type says.
pub(super) fn as_map(
    returns: &DataType,
    lengths: Vec<usize>,
    columns: Vec<ArrayRef>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let DataType::Map(entries, _) = returns else { return exec_err!("a map has entries") };
    let DataType::Struct(fields) = entries.data_type() else {
        return exec_err!("a map has entries");
    };
    let columns = columns.iter().zip(fields);
    let columns = columns.map(|(column, field)| super::cast::cast(column, field.data_type(), true));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let parts = StructArray::try_new(fields.clone(), columns, None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, parts, nulls, false)?))
}

/// The elements of the arrays, or the keys and values of the maps, of a record batch; none of those
/// that lie under a NULL.
pub(super) struct Parts {
    nulls: Option<NullBuffer>,
    /// By row, where its elements begin, and at last where all end.
    offsets: Vec<usize>,
    columns: Vec<ArrayRef>,
}

impl Parts {
    pub(super) fn of(value: &ColumnarValue, rows: usize) -> Result<Self> {
        let array = value.to_array(rows)?;
        let (starts, columns) = if let Some(list) = array.as_list_opt::<i32>() {
            (list.value_offsets(), vec![list.values()])
        } else if let Some(map) = array.as_map_opt() {
            (map.value_offsets(), vec![map.keys(), map.values()])
        } else {
            return exec_err!(
                "expected an ARRAY or a MAP, found {}",
                spark_type(array.data_type())
            );
        };
        if array.null_count() == 0 {
            let first = starts[0];
            let offsets: Vec<usize> = starts.iter().map(|start| (start - first) as usize).collect();
            let columns = columns.into_iter();
            let columns = columns.map(|column| column.slice(first as usize, offsets[rows]));
            return Ok(Self { nulls: None, columns: columns.collect(), offsets });
        }
        let range = |row: usize| match array.is_valid(row) {
            true => starts[row] as u32..starts[row + 1] as u32,
            false => 0..0,
        };
        let mut offsets = vec![0];
        let mut places = Vec::new();
        for row in 0..rows {
            places.extend(range(row));
            offsets.push(places.len());
        }
        let places = UInt32Array::from(places);
        let taken = columns.into_iter().map(|column| take(column, &places, None));
        let columns = taken.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(Self { nulls: array.nulls().cloned(), offsets, columns })
    }

    fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(super) fn column(&self, at: usize) -> Result<&ArrayRef> {
        match self.columns.get(at) {
            Some(column) => Ok(column),
            None => exec_err!("expected a MAP"),
        }
    }

    fn lengths(&self) -> Vec<usize> {
        self.offsets.windows(2).map(|at| at[1] - at[0]).collect()
    }

    pub(super) fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row]..self.offsets[row + 1]
    }

    pub(super) fn is_valid(&self, row: usize) -> bool {
        self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
    }

    fn mapped(&self, function: &LambdaArgument) -> Result<ArrayRef> {
        evaluated(function, &self.columns, || {
            let of_row = |row: usize| std::iter::repeat_n(row as u32, self.range(row).len());
            UInt32Array::from_iter_values((0..self.rows()).flat_map(of_row))
        })
    }

    /// What a condition says of each element.
    fn conditions(&self, function: &LambdaArgument) -> Result<BooleanArray> {
        let found = super::cast::cast(&self.mapped(function)?, &DataType::Boolean, true)?;
        Ok(found.as_boolean().clone())
    }

    /// Whether a condition holds for one element, if `wanted`, or for all of them. One of which it
    /// is not known leaves it open.
    fn holds(&self, function: &LambdaArgument, wanted: bool) -> Result<ArrayRef> {
        let found = self.conditions(function)?;
        let of_row = |row: usize| {
            if !self.is_valid(row) {
                return None;
            }
            let decides = |at: usize| found.is_valid(at) && found.value(at) == wanted;
            if self.range(row).any(decides) {
                return Some(wanted);
            }
            self.range(row).all(|at| found.is_valid(at)).then_some(!wanted)
        };
        Ok(Arc::new((0..self.rows()).map(of_row).collect::<BooleanArray>()))
    }

    fn filtered(&self, function: &LambdaArgument, returns: &DataType) -> Result<ArrayRef> {
        let found = self.conditions(function)?;
        let is_kept = |at: &usize| found.is_valid(*at) && found.value(*at);
        let lengths = (0..self.rows()).map(|row| self.range(row).filter(is_kept).count());
        let columns = self.columns.iter().map(|column| filter(column, &found));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        as_map(returns, lengths.collect(), columns, self.nulls.clone())
    }
}

/// # Errors
/// A key of the maps with so many entries each that is NULL or there twice.
pub(super) fn refuse_keys(keys: &ArrayRef, lengths: &[usize]) -> Result<()> {
    if keys.logical_null_count() > 0 {
        return exec_err!("a map cannot have NULL as a key");
    }
    let rows = rows_of(&[keys])?;
    let mut start = 0;
    for length in lengths {
        let mut seen = HashSet::new();
        if !(start..start + length).all(|at| seen.insert(rows[0].row(at))) {
            return exec_err!("a map cannot have the same key twice");
        }
        start += length;
    }
    Ok(())
}

/// The type of the keys of several maps. No text is read to make another key of it.
pub(super) fn common_key(types: &[DataType]) -> Option<DataType> {
    let common = common_type(types)?;
    let is_read = |of: &DataType| of.is_string() && !common.is_string();
    (!types.iter().any(is_read)).then_some(common)
}

/// # Errors
/// The type has a MAP in it, whose values cannot be compared.
pub(super) fn refuse_key_type(of: &DataType) -> Result<()> {
    match of {
        DataType::Map(..) => plan_err!(
            "a MAP cannot be a key of a map, nor a part of one (DATATYPE_MISMATCH), as MAPs have no \
             order; use to_json or map_entries of it as the key"
        ),
        DataType::List(item) => refuse_key_type(item.data_type()),
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|field| refuse_key_type(field.data_type()))
        }
        _ => Ok(()),
    }
}

/// Columns of one type in a form in which values can be compared.
fn rows_of(columns: &[&ArrayRef]) -> Result<Vec<Rows>> {
    let of = columns.first().map_or(DataType::Null, |column| column.data_type().clone());
    let converter = RowConverter::new(vec![SortField::new(of)])?;
    let rows = columns.iter().map(|&column| Ok(converter.convert_columns(&[ones(column)?])?));
    rows.collect()
}

/// Where there is a NULL on one side, there is one in the result.
fn both(left: &Parts, right: &Parts) -> Option<NullBuffer> {
    NullBuffer::union(left.nulls.as_ref(), right.nulls.as_ref())
}

/// `zip_with`: the shorter array is filled up with NULLs.
fn zipped(
    left: &Parts,
    right: &Parts,
    function: &LambdaArgument,
    returns: &DataType,
) -> Result<ArrayRef> {
    let nulls = both(left, right);
    let mut rows = Vec::new();
    let mut places: [Vec<Option<u32>>; 2] = [Vec::new(), Vec::new()];
    let mut lengths = Vec::with_capacity(left.rows());
    for row in 0..left.rows() {
        let valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let sides = [left.range(row), right.range(row)];
        let length = if valid { sides[0].len().max(sides[1].len()) } else { 0 };
        for (places, side) in places.iter_mut().zip(sides) {
            places
                .extend((0..length).map(|at| (at < side.len()).then(|| (side.start + at) as u32)));
        }
        rows.extend(std::iter::repeat_n(row as u32, length));
        lengths.push(length);
    }
    let [of_left, of_right] = places.map(UInt32Array::from);
    let parameters =
        [take(left.column(0)?, &of_left, None)?, take(right.column(0)?, &of_right, None)?];
    let values = evaluated(function, &parameters, || UInt32Array::from(rows))?;
    let item = element(returns)?;
    let values = super::cast::cast(&values, item.data_type(), true)?;
    Ok(Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), values, nulls)?))
}

/// `map_zip_with`: the keys of the first map, then those that only the second one has.
fn maps_zipped(
    left: &Parts,
    right: &Parts,
    function: &LambdaArgument,
    returns: &DataType,
) -> Result<ArrayRef> {
    let nulls = both(left, right);
    let (left_keys, right_keys) = (left.column(0)?, right.column(0)?);
    let keys = rows_of(&[left_keys, right_keys])?;
    let mut rows = Vec::new();
    let mut key_places: Vec<u32> = Vec::new();
    let mut places: [Vec<Option<u32>>; 2] = [Vec::new(), Vec::new()];
    let mut lengths = Vec::with_capacity(left.rows());
    for row in 0..left.rows() {
        let before = rows.len();
        if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
            let by_key: HashMap<_, _> =
                right.range(row).map(|at| (keys[1].row(at), at as u32)).collect();
            let mut used = HashSet::new();
            for at in left.range(row) {
                let other = by_key.get(&keys[0].row(at)).copied();
                used.extend(other);
                key_places.push(at as u32);
                places[0].push(Some(at as u32));
                places[1].push(other);
            }
            for at in right.range(row).map(|at| at as u32).filter(|at| !used.contains(at)) {
                key_places.push(left_keys.len() as u32 + at);
                places[0].push(None);
                places[1].push(Some(at));
            }
            rows.resize(key_places.len(), row as u32);
        }
        lengths.push(rows.len() - before);
    }
    let all_keys = concat(&[left_keys.as_ref(), right_keys.as_ref()])?;
    let all_keys = take(&all_keys, &UInt32Array::from(key_places), None)?;
    let [of_left, of_right] = places.map(UInt32Array::from);
    let parameters = [
        Arc::clone(&all_keys),
        take(left.column(1)?, &of_left, None)?,
        take(right.column(1)?, &of_right, None)?,
    ];
    let values = evaluated(function, &parameters, || UInt32Array::from(rows))?;
    as_map(returns, lengths, vec![all_keys, values], nulls)
}
