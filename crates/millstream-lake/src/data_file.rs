//! A data file that is written but not in the table's log yet, and its `add` action.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Int64Array, MapBuilder, MapFieldNames, RecordBatch, StringArray,
    StringBuilder, StructArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema};
use arrow_json::ReaderBuilder;
use delta_kernel::KernelError;
use delta_kernel::engine::arrow_conversion::TryFromKernel;
use delta_kernel::schema::StructType;

/// A file that is written and not committed yet.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFile {
    /// Relative to the table's directory, not encoded.
    pub name: String,
    /// As the log has it: relative and encoded as in a URL.
    pub path: String,
    /// By physical column name; `None` for null.
    pub partition_values: Vec<(String, Option<String>)>,
    /// Bytes.
    pub size: u64,
    /// Milliseconds since the epoch.
    pub modified_ms: i64,
    /// Rows in it.
    pub rows: u64,
    /// Its statistics, an object as the log has it.
    pub statistics: serde_json::Value,
}

/// Files' facts in the columns that the protocol library takes.
pub(crate) fn add_actions(
    files: &[DataFile],
    statistics_schema: &StructType,
) -> Result<RecordBatch, KernelError> {
    let mut values = MapBuilder::new(
        Some(MapFieldNames { entry: "key_value".into(), key: "key".into(), value: "value".into() }),
        StringBuilder::new(),
        StringBuilder::new(),
    );
    for file in files {
        for (column, value) in &file.partition_values {
            values.keys().append_value(column);
            values.values().append_option(value.as_deref());
        }
        values.append(true)?;
    }
    let values = values.finish();
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("path", Arc::new(StringArray::from_iter_values(files.iter().map(|file| &file.path)))),
        ("partitionValues", Arc::new(values)),
        (
            "size",
            Arc::new(Int64Array::from_iter_values(files.iter().map(|file| signed(file.size)))),
        ),
        (
            "modificationTime",
            Arc::new(Int64Array::from_iter_values(files.iter().map(|file| file.modified_ms))),
        ),
        ("stats", Arc::new(statistics_column(files, statistics_schema)?)),
    ];
    let fields = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), *name == "stats"));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new(schema, columns.into_iter().map(|(_, column)| column).collect())?)
}

fn statistics_column(files: &[DataFile], schema: &StructType) -> Result<StructArray, KernelError> {
    let schema = Arc::new(Schema::try_from_kernel(schema)?);
    let mut lines = Vec::new();
    for file in files {
        serde_json::to_writer(&mut lines, &file.statistics)
            .map_err(|error| KernelError::generic(format!("statistics are no JSON: {error}")))?;
        lines.push(b'\n');
    }
    let reader = ReaderBuilder::new(Arc::clone(&schema)).build(Cursor::new(lines))?;
    let rows = reader.collect::<Result<Vec<_>, _>>()?;
    Ok(StructArray::from(concat_batches(&schema, &rows)?))
}
