//! From undecoded columns to what the table says: Spark's Kafka columns, or columns decoded from
//! the record's value by `value.format`.
//!
//! This runs in a split, in parallel, and never on the reader thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{
    ArrayRef, BinaryArray, Int32Array, RecordBatch, RecordBatchOptions, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use millstream_engine::api::connector::Table;
use millstream_engine::api::dead_letter::{self, Letter};
use millstream_engine::api::options::OptionError;
use millstream_engine::api::source::Failure;
use millstream_formats::csv::CsvOptions;
use millstream_formats::schema::{
    self, NotDecoded, Part, Registries, SchemaDecoder, SchemaFormat, SchemaKind,
};
use millstream_formats::{Decoded, Malformed, MalformedRecord, RecordDecoder, RecordFormat, text};

use super::chunk::{Chunk, headers_type};
use crate::error::{MalformedValue, RowsError};
use crate::offsets::PartitionId;

/// How rows are made of records.
#[derive(Clone, Debug)]
pub enum Format {
    /// Spark's Kafka columns.
    Record,
    /// Columns decoded from the value, which is a record of this format.
    Value(RecordFormat),
    /// The same, by a schema.
    Schema(SchemaFormat),
    /// The value as it is, in one column.
    Raw,
}

/// The columns of a table and how they are made; shared by all splits.
#[derive(Debug)]
pub struct Rows {
    /// The columns a query sees.
    pub schema: SchemaRef,
    /// How they are made.
    pub format: Format,
    /// Malformed records so far.
    pub malformed: AtomicU64,
}

impl Rows {
    /// Checks the declared columns and the format's options.
    /// Errors: columns that the format cannot fill, or options that cannot be.
    pub fn from_table(
        table: &Table,
        include_headers: bool,
        topic: Option<&str>,
        registries: &Registries,
    ) -> Result<Self, OptionError> {
        let options = &table.options;
        let format = options.get("value.format").map(|text| text.trim().to_ascii_lowercase());
        if let Some(kind) = format.as_deref().and_then(SchemaKind::named) {
            let subject = topic.map(|topic| format!("{topic}-value"));
            let part = Part { options, name: "value", subject };
            let malformed = Malformed::parse(options)?;
            let columns = table.columns.as_ref();
            let format = SchemaFormat::parse(kind, &part, columns, malformed, registries)?;
            return Ok(Self::new(format.schema().clone(), Format::Schema(format)));
        }
        if let Some(option) = schema::OPTIONS.iter().find(|it| options.get(it.name).is_some()) {
            let problem = format!("'{}' is of formats that have schemas", option.name);
            let help = "set 'value.format' = 'avro', 'protobuf' or 'json-schema'";
            return Err(OptionError::of(option.name, problem, Some(help.to_owned())));
        }
        let decodes = table.columns.is_some() && format.as_deref() != Some("raw");
        if options.get(dead_letter::OPTION).is_some() && !decodes {
            let problem = "no record of this table can be malformed, so there are no dead letters";
            let help = "Declare the columns of the value, or leave 'deadLetter' out";
            return Err(OptionError::of(dead_letter::OPTION, problem, Some(help.to_owned())));
        }
        let Some(columns) = &table.columns else {
            return match format {
                Some(_) => {
                    let help = "Declare the columns of the value: CREATE TABLE name (a INT, ...)";
                    let problem = "'value.format' is set, but the table has no columns";
                    Err(OptionError::of("value.format", problem, Some(help.to_owned())))
                }
                None => Ok(Self::new(record_schema(include_headers), Format::Record)),
            };
        };
        let decoded =
            |format: RecordFormat| Self::new(format.schema().clone(), Format::Value(format));
        match format.as_deref() {
            None | Some("json") => {
                Ok(decoded(RecordFormat::json(columns, &Malformed::parse(options)?)?))
            }
            Some("csv") => {
                let csv = CsvOptions::parse(options)?;
                if csv.header {
                    let help =
                        "Each record is one line; a header line would be a record of its own";
                    let problem = "'header' cannot be true for a Kafka table";
                    return Err(OptionError::of("header", problem, Some(help.to_owned())));
                }
                Ok(decoded(RecordFormat::csv(columns, &Malformed::parse(options)?, csv)?))
            }
            Some("raw") => raw(columns),
            Some(_) => {
                let text = options.get("value.format").unwrap_or_default();
                let known = "'json', 'csv', 'avro', 'protobuf', 'json-schema' or 'raw'";
                Err(OptionError::invalid("value.format", text, known))
            }
        }
    }

    fn new(schema: SchemaRef, format: Format) -> Self {
        Self { schema, format, malformed: AtomicU64::new(0) }
    }

    /// How many records were malformed so far.
    pub fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// Takes back what was counted of records that are read once more.
    pub fn set_malformed(&self, malformed: u64) {
        self.malformed.store(malformed, Ordering::Relaxed);
    }

    /// A reader for the columns `projection`.
    pub fn reader(self: &Arc<Self>, projection: &[usize]) -> Result<ChunkDecoder, Failure> {
        let projected = self.schema.project(projection);
        let schema = Arc::new(projected.map_err(|error| RowsError::Projection { error })?);
        let decoding = match &self.format {
            Format::Record => Decoding::Record(projection.to_vec()),
            Format::Raw => Decoding::Raw,
            Format::Value(format) => Decoding::Value(Box::new(format.decoder(projection))),
            Format::Schema(format) => Decoding::Schema(Box::new(format.decoder(projection))),
        };
        Ok(ChunkDecoder { rows: self.clone(), schema, decoding })
    }
}

/// Makes record batches of chunks.
pub struct ChunkDecoder {
    rows: Arc<Rows>,
    schema: SchemaRef,
    decoding: Decoding,
}

enum Decoding {
    Record(Vec<usize>),
    Value(Box<RecordDecoder>),
    Schema(Box<SchemaDecoder>),
    Raw,
}

impl ChunkDecoder {
    /// The rows of one chunk. Blocks where a schema has to be fetched.
    /// Errors: `Data` for a malformed record, if the mode is FAILFAST; those of schemas.
    pub fn read(&mut self, id: &PartitionId, chunk: &Chunk) -> Result<RecordBatch, Failure> {
        let malformed = |record: MalformedRecord| {
            MalformedValue::new(id, chunk.offset.value(record.row), record.problem)
        };
        let columns = match &mut self.decoding {
            Decoding::Record(projection) => record_columns(id, chunk, projection),
            Decoding::Raw => raw_columns(&self.schema, chunk),
            Decoding::Value(decoder) => {
                let decoded = decoder.decode(&chunk.value).map_err(malformed)?;
                return Ok(self.counted(decoded));
            }
            Decoding::Schema(decoder) => {
                let decoded = decoder.decode(&chunk.value).map_err(|error| match error {
                    NotDecoded::Malformed(record) => malformed(record).into(),
                    NotDecoded::Failed(failure) => failure,
                })?;
                return Ok(self.counted(decoded));
            }
        };
        self.rows_of(columns, chunk.rows())
    }

    /// The rows of one chunk, but for malformed records, which go to `letters`.
    pub fn read_with_letters(
        &mut self,
        id: &PartitionId,
        chunk: &Chunk,
        letters: &mut Vec<Letter>,
    ) -> Result<RecordBatch, Failure> {
        if let Decoding::Record(_) | Decoding::Raw = &self.decoding {
            return self.read(id, chunk);
        }
        let reject = |row, error| letters.push(chunk.letter(id, row, error));
        self.read_values(&chunk.value, reject)
    }

    /// The rows of `values`, but for malformed ones; `reject` hears which, and why.
    /// Errors: `Bug` for a table whose columns are not decoded from values.
    pub fn read_values(
        &mut self,
        values: &BinaryArray,
        mut reject: impl FnMut(usize, String),
    ) -> Result<RecordBatch, Failure> {
        match &mut self.decoding {
            Decoding::Record(_) | Decoding::Raw => Err(RowsError::NoValues.into()),
            Decoding::Value(decoder) => {
                let decoded = decoder.decode_apart(values, &mut reject);
                Ok(self.counted(decoded))
            }
            Decoding::Schema(decoder) => {
                let decoded = decoder.decode_apart(values, &mut reject)?;
                Ok(self.counted(decoded))
            }
        }
    }

    fn counted(&self, decoded: Decoded) -> RecordBatch {
        if decoded.malformed > 0 {
            self.rows.malformed.fetch_add(decoded.malformed, Ordering::Relaxed);
        }
        decoded.rows
    }

    fn rows_of(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, Failure> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| RowsError::Columns { error }.into())
    }
}

/// Spark's columns of a Kafka table.
fn record_schema(include_headers: bool) -> SchemaRef {
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let mut fields = vec![
        Field::new("key", DataType::Binary, true),
        Field::new("value", DataType::Binary, true),
        Field::new("topic", DataType::Utf8, true),
        Field::new("partition", DataType::Int32, true),
        Field::new("offset", DataType::Int64, true),
        Field::new("timestamp", timestamp, true),
        Field::new("timestampType", DataType::Int32, true),
    ];
    if include_headers {
        fields.push(Field::new("headers", headers_type(), true));
    }
    Arc::new(Schema::new(fields))
}

fn record_columns(id: &PartitionId, chunk: &Chunk, projection: &[usize]) -> Vec<ArrayRef> {
    let rows = chunk.rows();
    let column = |index: &usize| -> ArrayRef {
        match *index {
            0 => Arc::new(chunk.key.clone()),
            1 => Arc::new(chunk.value.clone()),
            2 => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&*id.topic, rows))),
            3 => Arc::new(Int32Array::from_value(id.partition, rows)),
            4 => Arc::new(chunk.offset.clone()),
            5 => {
                let micros: TimestampMicrosecondArray =
                    chunk.timestamp_ms.unary(|millis| millis.saturating_mul(1_000));
                Arc::new(micros.with_timezone("UTC"))
            }
            6 => Arc::new(chunk.timestamp_type.clone()),
            _ => Arc::new(chunk.headers.clone().expect("only tables with headers have an index 7")),
        }
    };
    projection.iter().map(column).collect()
}

/// The value as it is. As with Spark's CAST to STRING, bytes that are not UTF-8 are replaced.
fn raw_columns(schema: &SchemaRef, chunk: &Chunk) -> Vec<ArrayRef> {
    let column = |field: &Arc<Field>| -> ArrayRef {
        match field.data_type() {
            DataType::Binary => Arc::new(chunk.value.clone()),
            _ => Arc::new(text::lossy(&chunk.value)),
        }
    };
    schema.fields().iter().map(column).collect()
}

fn raw(columns: &SchemaRef) -> Result<Rows, OptionError> {
    let fields = columns.fields();
    let fits = matches!(fields.as_ref(), [one]
        if matches!(one.data_type(), DataType::Utf8 | DataType::Binary));
    if !fits {
        let problem = "'value.format' = 'raw' needs exactly one column, a STRING or BINARY";
        return Err(OptionError::of("value.format", problem, None));
    }
    let field = fields[0].as_ref().clone().with_nullable(true);
    Ok(Rows::new(Arc::new(Schema::new(vec![field])), Format::Raw))
}

#[cfg(test)]
mod tests;
