//! Parts of structs, maps and arrays that paths and generators take: `lines.sku` of an array of
//! structs is the array of their fields, and `explode` of a map makes rows of its entries.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, StructArray};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::define::{Arguments, Function, Param, call, known_by_name, literal_text};
use crate::types::spark_type;

use Param::Any;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "entries_of",
        &[Any],
        |args| entries_type(args, false),
        |args| entries(args, false),
    ),
    Function::new(
        "positions_of",
        &[Any],
        |args| entries_type(args, true),
        |args| entries(args, true),
    ),
];

/// `field_of(value, 'name')` and `part_of(struct, number)`, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let function = |name| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(PartOf { name, signature }))
    };
    vec![function(FIELD_OF), function("part_of")]
}

const FIELD_OF: &str = "field_of";

/// A field by its name, whatever its case, or by its number from 0.
struct PartOf {
    name: &'static str,
    signature: Signature,
}

known_by_name!(PartOf);

impl PartOf {
    /// Where the part is among the fields of a struct.
    fn at(&self, fields: &Fields, which: Option<&ScalarValue>) -> Result<usize> {
        if self.name == FIELD_OF {
            let name = literal_text(FIELD_OF, which)?;
            // Two fields may differ in case only, which says nothing of which of them is meant.
            let mut meant =
                (0..fields.len()).filter(|at| fields[*at].name().eq_ignore_ascii_case(name));
            let (found, other) = (meant.next(), meant.next());
            if other.is_some() {
                return plan_err!(
                    "several fields are called `{name}` (AMBIGUOUS_REFERENCE_TO_FIELDS); give \
                     them other names"
                );
            }
            return match found {
                Some(at) => Ok(at),
                None => {
                    let known: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
                    plan_err!("there is no field `{name}`; the fields are {}", known.join(", "))
                }
            };
        }
        let number = which.map(|which| which.cast_to(&DataType::UInt64)).transpose()?;
        match number {
            Some(ScalarValue::UInt64(Some(at))) if at < fields.len() as u64 => Ok(at as usize),
            _ => plan_err!("the generator's argument has only {} columns", fields.len()),
        }
    }

    fn type_of(&self, of: &DataType, which: Option<&ScalarValue>) -> Result<DataType> {
        match of {
            DataType::Struct(fields) => Ok(fields[self.at(fields, which)?].data_type().clone()),
            DataType::List(item) if self.name == FIELD_OF => {
                Ok(DataType::new_list(self.type_of(item.data_type(), which)?, true))
            }
            DataType::Map(entries, _) if self.name == FIELD_OF => match entries.data_type() {
                DataType::Struct(parts) if parts[0].data_type().is_string() => {
                    Ok(parts[1].data_type().clone())
                }
                DataType::Struct(parts) => plan_err!(
                    "the keys of the map are of the type {}, and a name is none of them",
                    spark_type(parts[0].data_type())
                ),
                other => plan_err!("a map cannot have entries of type {other}"),
            },
            other => plan_err!("{} has no fields", spark_type(other)),
        }
    }
}

impl ScalarUDFImpl for PartOf {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [_, _] => Ok(given.to_vec()),
            _ => plan_err!("{} takes 2 arguments and got {}", self.name, given.len()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of {} depends on its arguments' values", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let of = self.type_of(args.arg_fields[0].data_type(), args.scalar_arguments[1])?;
        Ok(Arc::new(Field::new(self.name, of, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| {
            let (which, _) = arguments.array(1);
            let which = ScalarValue::try_from_array(which, 0)?;
            self.part(&arguments.expanded(0)?, &which)
        })
    }
}

impl PartOf {
    fn part(&self, values: &ArrayRef, which: &ScalarValue) -> Result<ArrayRef> {
        match values.data_type() {
            DataType::Struct(fields) => {
                let at = self.at(fields, Some(which))?;
                part_of_struct(values.as_struct(), at)
            }
            DataType::List(_) => {
                let list = values.as_list::<i32>();
                let items = self.part(list.values(), which)?;
                let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
                let offsets = list.offsets().clone();
                Ok(Arc::new(ListArray::try_new(item, offsets, items, list.nulls().cloned())?))
            }
            DataType::Map(..) => value_of_map(values, which),
            other => exec_err!("{} has no fields", spark_type(other)),
        }
    }
}

/// A field, which is NULL where the struct is.
fn part_of_struct(values: &StructArray, at: usize) -> Result<ArrayRef> {
    let part = values.column(at);
    // Below a NULL struct its column may hold any value.
    let Some(nulls) = values.nulls() else { return Ok(Arc::clone(part)) };
    let rows = (0..values.len()).map(|row| nulls.is_valid(row).then_some(row as u32));
    let rows: arrow::array::UInt32Array = rows.collect();
    Ok(take(part, &rows, None)?)
}

fn value_of_map(values: &ArrayRef, key: &ScalarValue) -> Result<ArrayRef> {
    let map = values.as_map();
    let Some(Some(key)) = key.try_as_str() else { return exec_err!("a key must be a literal") };
    let keys = arrow::compute::cast(map.keys(), &DataType::Utf8)?;
    let keys = keys.as_string::<i32>();
    let offsets = map.value_offsets();
    let find = |row: usize| {
        let mut entries = offsets[row] as usize..offsets[row + 1] as usize;
        entries.find(|at| map.is_valid(row) && keys.is_valid(*at) && keys.value(*at) == key)
    };
    let rows = (0..map.len()).map(|row| find(row).map(|at| at as u32));
    let rows: arrow::array::UInt32Array = rows.collect();
    Ok(take(map.values(), &rows, None)?)
}

/// The struct of an entry: its position, where wanted, and an element, or a key and a value.
fn entry_fields(of: &DataType, positions: bool) -> Result<Fields> {
    let nullable = |name: &str, of: &DataType| Field::new(name, of.clone(), true);
    let mut fields = Vec::new();
    if positions {
        fields.push(nullable("pos", &DataType::Int32));
    }
    match of {
        DataType::List(item) if positions => fields.push(nullable("col", item.data_type())),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) => {
                fields.push(nullable("key", parts[0].data_type()));
                fields.push(nullable("value", parts[1].data_type()));
            }
            other => return plan_err!("a map cannot have entries of type {other}"),
        },
        DataType::List(_) => {
            return plan_err!("explode of an ARRAY has one column; a MAP has a key and a value");
        }
        other => return plan_err!("explode takes an ARRAY or a MAP, not {}", spark_type(other)),
    }
    Ok(fields.into())
}

fn entries_type(args: &[DataType], positions: bool) -> Result<DataType> {
    Ok(DataType::new_list(DataType::Struct(entry_fields(&args[0], positions)?), true))
}

fn entries(args: &Arguments, positions: bool) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let (offsets, mut columns) = match (values.as_list_opt::<i32>(), values.as_map_opt()) {
        (Some(list), _) => (list.offsets().clone(), vec![Arc::clone(list.values())]),
        (_, Some(map)) => {
            let columns = vec![Arc::clone(map.keys()), Arc::clone(map.values())];
            (map.offsets().clone(), columns)
        }
        _ => return exec_err!("explode takes an ARRAY or a MAP"),
    };
    if positions {
        let mut position = vec![0; columns[0].len()];
        for row in offsets.windows(2) {
            let elements = &mut position[row[0] as usize..row[1] as usize];
            elements.iter_mut().enumerate().for_each(|(at, element)| *element = at as i32);
        }
        columns.insert(0, Arc::new(Int32Array::from(position)));
    }
    let fields = entry_fields(values.data_type(), positions)?;
    let items = StructArray::try_new(fields, columns, None)?;
    let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    let nulls = values.nulls().cloned();
    Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(items), nulls)?))
}
