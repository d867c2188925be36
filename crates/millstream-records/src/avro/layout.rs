//! Which columns of a table are decoded.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema as ArrowSchema, SchemaRef, TimeUnit};

use super::error::LayoutError;

/// The columns of a table and which of them are decoded. Plans are made for a layout, and any
/// number of decoders may have the same one. Cheap to clone.
#[derive(Clone)]
pub struct Layout {
    inner: Arc<Inner>,
}

struct Inner {
    columns: ArrowSchema,
    projection: Vec<usize>,
    projected: SchemaRef,
}

impl Layout {
    /// A layout of these columns, of which those of `projection` are decoded, in its order.
    ///
    /// # Errors
    /// A type that Avro values cannot become, even if the column is not decoded; a projection
    /// with a column twice or without one.
    pub fn new(columns: &ArrowSchema, projection: &[usize]) -> Result<Self, LayoutError> {
        let count = columns.fields().len();
        let is_wrong =
            |(at, column): (usize, &usize)| *column >= count || projection[..at].contains(column);
        if projection.iter().enumerate().any(is_wrong) {
            let projection = projection.to_vec();
            return Err(LayoutError::Projection { projection, columns: count });
        }
        for field in columns.fields() {
            check(field.data_type()).map_err(|data_type| LayoutError::Type {
                column: field.name().clone(),
                data_type,
            })?;
        }
        let fields: Vec<_> =
            projection.iter().map(|&at| Arc::clone(&columns.fields()[at])).collect();
        let projected = Arc::new(ArrowSchema::new(fields));
        let projection = projection.to_vec();
        let columns = columns.clone();
        Ok(Self { inner: Arc::new(Inner { columns, projection, projected }) })
    }

    /// All columns of the table.
    pub fn columns(&self) -> &ArrowSchema {
        &self.inner.columns
    }

    /// The columns that are decoded, in their order.
    pub fn projected(&self) -> &SchemaRef {
        &self.inner.projected
    }

    /// Where a column of the table is among the decoded ones.
    pub(super) fn place(&self, column: usize) -> Option<u32> {
        let place = self.inner.projection.iter().position(|&at| at == column)?;
        Some(place as u32)
    }

    /// True if it is this layout or a clone of it: equal columns are not enough.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

/// Checks what a column cannot be made of, or what the arrays in the end would not hold.
fn check(data_type: &DataType) -> Result<(), DataType> {
    match data_type {
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Utf8
        | DataType::Binary
        | DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(()),
        DataType::Decimal128(1..=38, 0..) => Ok(()),
        DataType::List(item) => check(item.data_type()),
        DataType::Struct(fields) => fields.iter().try_for_each(|field| check(field.data_type())),
        DataType::Map(entries, false) => match entries.data_type() {
            DataType::Struct(fields) if !entries.is_nullable() && fields.len() == 2 => {
                match fields[0].data_type() {
                    DataType::Utf8 => check(fields[1].data_type()),
                    other => Err(other.clone()),
                }
            }
            _ => Err(data_type.clone()),
        },
        other => Err(other.clone()),
    }
}
