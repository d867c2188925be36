//! The way between values and the columns that hold them.

use std::sync::Arc;

use arrow::array::builder::BinaryBuilder;
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use super::build::Builder;
use super::error::VariantError;
use super::read::Variant;
use super::text::to_json;
use crate::types::variant;

/// The longest column, whose offsets have 32 bits.
const LENGTH_MAX: usize = i32::MAX as usize;

/// The values of a column.
pub(crate) struct Variants<'a> {
    rows: &'a StructArray,
    metadata: &'a BinaryArray,
    values: &'a BinaryArray,
}

impl<'a> Variants<'a> {
    /// The values of an array of the type VARIANT.
    pub(crate) fn of(array: &'a dyn Array) -> Self {
        let rows = array.as_struct();
        let [values, metadata] = [0, 1].map(|at| rows.column(at).as_binary::<i32>());
        Self { rows, metadata, values }
    }

    /// How many bytes all values have.
    pub(crate) fn length(&self) -> usize {
        self.values.value_data().len()
    }

    /// The value in a row, which may be NULL.
    pub(crate) fn get(&self, row: usize) -> Result<Option<Variant<'a>>, VariantError> {
        if self.rows.is_null(row) {
            return Ok(None);
        }
        if self.values.is_null(row) || self.metadata.is_null(row) {
            return Err(VariantError::Malformed);
        }
        Variant::new(self.metadata.value(row), self.values.value(row)).map(Some)
    }
}

/// Makes a column.
#[derive(Debug, Default)]
pub(crate) struct VariantsBuilder {
    values: BinaryBuilder,
    metadata: BinaryBuilder,
    lengths: [usize; 2],
    is_there: Vec<bool>,
}

impl VariantsBuilder {
    /// Adds the value that a builder has made.
    ///
    /// # Errors
    /// The value, or the column with it, is too long.
    pub(crate) fn append(&mut self, made: &mut Builder) -> Result<(), VariantError> {
        self.append_made(made.finish()?)
    }

    /// Adds a value that was made: the names in it, and the value.
    ///
    /// # Errors
    /// The column with it is too long.
    pub(crate) fn append_made(
        &mut self,
        (metadata, value): (&[u8], &[u8]),
    ) -> Result<(), VariantError> {
        self.lengths[0] += value.len();
        self.lengths[1] += metadata.len();
        if self.lengths.iter().any(|length| *length > LENGTH_MAX) {
            return Err(VariantError::TooLarge);
        }
        self.values.append_value(value);
        self.metadata.append_value(metadata);
        self.is_there.push(true);
        Ok(())
    }

    /// Adds NULL.
    pub(crate) fn append_null(&mut self) {
        self.values.append_null();
        self.metadata.append_null();
        self.is_there.push(false);
    }

    /// The column.
    pub(crate) fn finish(mut self) -> ArrayRef {
        let DataType::Struct(fields) = variant() else { unreachable!("VARIANT is a STRUCT") };
        let columns: Vec<ArrayRef> =
            vec![Arc::new(self.values.finish()), Arc::new(self.metadata.finish())];
        let nulls = NullBuffer::from(self.is_there);
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        Arc::new(StructArray::new(fields, columns, nulls))
    }
}

/// All values as JSON; NULL stays NULL.
pub(crate) fn texts(array: &dyn Array) -> Result<StringArray, VariantError> {
    let values = Variants::of(array);
    let mut length = 0;
    let text = |row: usize| {
        let Some(value) = values.get(row)? else { return Ok(None) };
        let mut text = String::new();
        to_json(value, &mut text)?;
        length += text.len();
        if length > LENGTH_MAX { Err(VariantError::TooLarge) } else { Ok(Some(text)) }
    };
    (0..array.len()).map(text).collect()
}

/// The value in a row as JSON; `None` for NULL.
///
/// # Errors
/// Its bytes are no value.
pub fn text_of(array: &dyn Array, row: usize) -> Result<Option<String>, VariantError> {
    let Some(value) = Variants::of(array).get(row)? else { return Ok(None) };
    let mut text = String::new();
    to_json(value, &mut text)?;
    Ok(Some(text))
}
