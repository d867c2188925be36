//! What Redis has under some keys, as columns.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, SchemaRef};
use millstream_engine::api::error::ArrowBug;
use millstream_engine::api::sink::Failure;
use millstream_sql::json::{DecodeOptions, Decoder, ParseMode};
use millstream_sql::types::spark_type;

use super::options::LookupOptions;
use crate::redis::error::RedisProblem;
use crate::redis::options::Model;
use crate::redis::source::typed;

/// What a key has.
pub(super) enum Found {
    /// Of a hash, the values of the fields asked for.
    Fields(Vec<Option<Vec<u8>>>),
    /// A text.
    Text(Vec<u8>),
}

/// `columns` of a table's schema, as a record batch.
pub(super) fn batch(
    schema: &SchemaRef,
    columns: &[usize],
    values: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, Failure> {
    let schema = Arc::new(schema.project(columns).map_err(ArrowBug)?);
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, values, &options).map_err(ArrowBug)?)
}

/// The columns `values` of what was found, a row for each of `keys`.
pub(super) fn decode(
    options: &LookupOptions,
    keys: &[Vec<u8>],
    found: &[Option<Found>],
    values: &[usize],
) -> Result<RecordBatch, Failure> {
    if options.model == Model::Json {
        return decode_json(options, keys, found, values);
    }
    let column = |(at, column): (usize, &usize)| -> Result<ArrayRef, Failure> {
        let field = options.form.schema.field(*column);
        let texts: Vec<Option<&[u8]>> =
            found.iter().map(|found| found.as_ref().and_then(|found| found.value(at))).collect();
        if *field.data_type() == DataType::Binary {
            return Ok(Arc::new(texts.into_iter().collect::<BinaryArray>()));
        }
        let column = typed(texts.iter().copied(), field.data_type())?;
        if options.mode == ParseMode::FailFast {
            let is_malformed = |row: &usize| texts[*row].is_some() && column.is_null(*row);
            if let Some(row) = (0..texts.len()).find(is_malformed) {
                let wanted = spark_type(field.data_type()).to_string();
                return Err(malformed(options, &keys[row], field.name(), wanted));
            }
        }
        Ok(column)
    };
    let columns = values.iter().enumerate().map(column).collect::<Result<_, _>>()?;
    batch(&options.form.schema, values, columns, found.len())
}

impl Found {
    fn value(&self, at: usize) -> Option<&[u8]> {
        match self {
            Self::Fields(values) => values.get(at)?.as_deref(),
            Self::Text(text) => Some(text),
        }
    }
}

fn decode_json(
    options: &LookupOptions,
    keys: &[Vec<u8>],
    found: &[Option<Found>],
    values: &[usize],
) -> Result<RecordBatch, Failure> {
    let texts = found.iter().map(|found| found.as_ref().and_then(|found| found.value(0)));
    let texts: BinaryArray = texts.collect();
    let decoding = DecodeOptions {
        mode: options.mode,
        column_name_of_corrupt_record: None,
        ..DecodeOptions::default()
    };
    let unsupported =
        |problem: String| ArrowBug(arrow::error::ArrowError::NotYetImplemented(problem));
    let decoder = Decoder::new(&options.form.schema, values, decoding);
    let mut decoder = decoder.map_err(|error| unsupported(error.to_string()))?;
    let decoded = decoder.decode(&texts).map_err(|error| {
        malformed(options, &keys[error.row], "the text", "JSON of the table's columns".to_owned())
    })?;
    batch(&options.form.schema, values, decoded.rows.columns().to_vec(), found.len())
}

fn malformed(options: &LookupOptions, key: &[u8], field: &str, wanted: String) -> Failure {
    let (table, key) = (options.table.clone(), String::from_utf8_lossy(key).into_owned());
    RedisProblem::MalformedLookup { table, key, field: field.to_owned(), wanted }.into()
}
