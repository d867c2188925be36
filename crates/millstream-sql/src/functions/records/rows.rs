//! Decoded columns as the results of a function.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, RecordBatch, StructArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Fields, Schema};
use datafusion::common::{Result, internal_err};

/// The same columns, each of which can be null: a row without a record has nulls in them, under
/// the NULL of the whole.
pub(super) fn nullable_columns(columns: &Schema) -> Schema {
    let fields = columns.fields().iter();
    let fields: Fields = fields.map(|field| field.as_ref().clone().with_nullable(true)).collect();
    Schema::new(fields)
}

/// What each row became.
#[derive(Default)]
pub(super) struct Outcomes {
    are_present: Vec<bool>,
    malformed: Vec<usize>,
}

impl Outcomes {
    /// The next row is NULL.
    pub fn null(&mut self) {
        self.are_present.push(false);
    }

    /// The next row was decoded.
    pub fn decoded(&mut self) {
        self.are_present.push(true);
    }

    /// The next row was malformed, and is nulls now.
    pub fn malformed(&mut self) {
        self.malformed.push(self.are_present.len());
        self.are_present.push(true);
    }

    /// Decoded columns as the fields of a STRUCT of the type `to`.
    pub fn into_structs(self, rows: &RecordBatch, to: &DataType) -> Result<ArrayRef> {
        let DataType::Struct(fields) = to else {
            return internal_err!("a record becomes a STRUCT");
        };
        let nulls = NullBuffer::from(self.are_present);
        let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        structs(fields, rows.columns(), nulls, rows.num_rows())
    }

    /// A decoded column as values of the type `to`. In Spark a malformed record that would be a
    /// STRUCT is one of nulls, whatever else is null.
    pub fn into_values(self, values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
        let values = relabeled(values, to)?;
        let DataType::Struct(fields) = to else { return Ok(values) };
        if self.malformed.is_empty() {
            return Ok(values);
        }
        let of = values.as_struct();
        let mut is_malformed = vec![false; of.len()];
        self.malformed.iter().for_each(|&row| is_malformed[row] = true);
        let is_present = BooleanBuffer::from_iter(
            (0..of.len()).map(|row| of.is_valid(row) || is_malformed[row]),
        );
        structs(fields, of.columns(), Some(NullBuffer::new(is_present)), of.len())
    }
}

fn structs(
    fields: &Fields,
    columns: &[ArrayRef],
    nulls: Option<NullBuffer>,
    rows: usize,
) -> Result<ArrayRef> {
    let columns = fields.iter().zip(columns);
    let columns = columns.map(|(field, column)| relabeled(column, field.data_type()));
    let columns = columns.collect::<Result<_>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows)?))
}

/// The same values under a type that differs in what can be null.
fn relabeled(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    match to {
        DataType::Struct(fields) if array.as_struct_opt().is_some() => {
            let from = array.as_struct();
            structs(fields, from.columns(), from.nulls().cloned(), from.len())
        }
        DataType::List(item) if array.as_list_opt::<i32>().is_some() => {
            let from = array.as_list::<i32>();
            let values = relabeled(from.values(), item.data_type())?;
            let (offsets, nulls) = (from.offsets().clone(), from.nulls().cloned());
            Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
        }
        DataType::Map(entries, sorted) if array.as_map_opt().is_some() => {
            let from = array.as_map();
            let DataType::Struct(fields) = entries.data_type() else {
                return internal_err!("the entries of a map are a STRUCT");
            };
            let pairs = from.entries();
            let pairs = structs(fields, pairs.columns(), pairs.nulls().cloned(), pairs.len())?;
            let (offsets, nulls) = (from.offsets().clone(), from.nulls().cloned());
            let pairs = pairs.as_struct().clone();
            Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, *sorted)?))
        }
        _ => internal_err!("{} cannot be taken for {to}", array.data_type()),
    }
}
