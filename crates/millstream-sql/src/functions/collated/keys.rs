//! Keys that STRINGs with a collation are compared, grouped and sorted by.

use std::sync::Arc;

use arrow::array::builder::BinaryBuilder;
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, ListArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};

use super::super::define::{Arguments, Function, Param, within_column};
use super::keys_of;
use crate::types::list_of;
use crate::values::collated_text::Keys;

/// The key of a text.
pub(crate) const KEY: &str = "__collation_key";
/// The keys of the texts in an array.
pub(crate) const KEYS: &str = "__collation_keys";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(KEY, &[Param::Text, Param::Text], |_| Ok(DataType::Binary), of_texts),
    Function::new(KEYS, &[Param::Array, Param::Text], |_| Ok(list_of(DataType::Binary)), of_arrays),
];

fn of_texts(args: &Arguments) -> Result<ArrayRef> {
    let texts = args.text(0);
    let keys = column((0..args.rows).map(|row| texts.get(row)), &keys_of(args)?)?;
    Ok(Arc::new(keys))
}

fn of_arrays(args: &Arguments) -> Result<ArrayRef> {
    let arrays = args.expanded(0)?;
    let arrays = arrays.as_list::<i32>();
    let texts = cast(arrays.values(), &DataType::Utf8)?;
    let keys = column(texts.as_string::<i32>().iter(), &keys_of(args)?)?;
    let DataType::List(item) = &args.returns else {
        return internal_err!("{KEYS} gives arrays");
    };
    let (offsets, nulls) = (arrays.offsets().clone(), arrays.nulls().cloned());
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, Arc::new(keys), nulls)?))
}

fn column<'a>(texts: impl Iterator<Item = Option<&'a str>>, keys: &Keys) -> Result<BinaryArray> {
    let (mut column, mut total) = (BinaryBuilder::new(), 0);
    for text in texts {
        match text {
            None => column.append_null(),
            Some(text) => {
                let key = keys.key(text);
                within_column(&mut total, key.len())?;
                column.append_value(&key);
            }
        }
    }
    Ok(column.finish())
}
