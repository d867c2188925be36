//! `__zipped`, which `arrays_zip` is where the names of its fields are known: each array comes
//! behind the name of its elements.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::define::{Arguments, Param, call, known_by_name, literal_text};
use crate::types::list_of;

/// What the function is called.
pub(crate) const ZIPPED: &str = "__zipped";

/// The function.
pub(super) fn zipped() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(Zipped { signature }))
}

struct Zipped {
    signature: Signature,
}

known_by_name!(Zipped);

impl ScalarUDFImpl for Zipped {
    fn name(&self) -> &str {
        ZIPPED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let coerced = given.iter().enumerate().map(|(at, of)| {
            if at.is_multiple_of(2) { Ok(DataType::Utf8) } else { Param::Array.coerced(of) }
        });
        coerced.collect()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("arrays_zip has its type from return_field_from_args")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let (pairs, []) = args.arg_fields.as_chunks::<2>() else {
            return plan_err!("arrays_zip takes arrays");
        };
        let field = |(at, [_, array]): (usize, &[FieldRef; 2])| {
            let name = literal_text("arrays_zip", args.scalar_arguments[2 * at])?;
            match array.data_type() {
                DataType::List(item) => Ok(Field::new(name, item.data_type().clone(), true)),
                _ => Ok(Field::new(name, DataType::Null, true)),
            }
        };
        let fields: Fields = pairs.iter().enumerate().map(field).collect::<Result<_>>()?;
        Ok(Arc::new(Field::new(self.name(), list_of(DataType::Struct(fields)), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, of_arrays)
    }
}

/// NULL where an array is; the shorter arrays are filled up with NULLs.
fn of_arrays(args: &Arguments) -> Result<ArrayRef> {
    let DataType::List(item) = &args.returns else { return exec_err!("a list has items") };
    let DataType::Struct(fields) = item.data_type() else {
        return exec_err!("arrays_zip makes structs");
    };
    let arrays = (1..args.len()).step_by(2).map(|at| args.expanded(at));
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let lists: Vec<&ListArray> = arrays.iter().map(|array| array.as_list::<i32>()).collect();
    let nulls = lists.iter().fold(None, |nulls: Option<NullBuffer>, list| {
        NullBuffer::union(nulls.as_ref(), list.nulls())
    });
    let length = |row: usize| {
        let is_valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let longest = lists.iter().map(|list| list.value_length(row)).max();
        if is_valid { longest.unwrap_or(0) as usize } else { 0 }
    };
    let lengths: Vec<usize> = (0..args.rows).map(length).collect();
    let column = |list: &&ListArray| -> Result<ArrayRef> {
        let mut places: Vec<Option<u32>> = Vec::new();
        for (row, length) in lengths.iter().enumerate() {
            let start = list.value_offsets()[row] as usize;
            let own = list.value_length(row) as usize;
            places.extend((0..*length).map(|at| (at < own).then_some((start + at) as u32)));
        }
        Ok(take(list.values(), &UInt32Array::from(places), None)?)
    };
    let columns = lists.iter().map(column).collect::<Result<Vec<_>>>()?;
    let count = lengths.iter().sum();
    let structs = StructArray::try_new_with_length(fields.clone(), columns, None, count)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, Arc::new(structs), nulls)?))
}
