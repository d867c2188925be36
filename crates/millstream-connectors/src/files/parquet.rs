//! Apache Parquet: columns by name, cast where nothing can be lost.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Type as PhysicalType;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::error::FileError;
use super::file_rows::{FileRows, project, record_batch};

const RECORD_BATCH_ROWS: usize = 8_192;

/// A file that is asked for no more than it has: the library allocates whatever a footer says that
/// there is.
struct Bounded<R>(R);

impl<R: Length> Length for Bounded<R> {
    fn len(&self) -> u64 {
        Length::len(&self.0)
    }
}

impl<R: ChunkReader> ChunkReader for Bounded<R> {
    type T = R::T;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.0.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        match start.checked_add(length as u64) {
            Some(end) if end <= Length::len(&self.0) => self.0.get_bytes(start, length),
            _ => Err(ParquetError::EOF("the file is shorter than its footer says".to_owned())),
        }
    }
}

type Builder<R> = ParquetRecordBatchReaderBuilder<Bounded<R>>;

fn open<R: ChunkReader + 'static>(file: R, path: &Path) -> Result<Builder<R>, FileError> {
    guarded(path, || Builder::try_new(Bounded(file)))?.map_err(|error| corrupt(path, &error))
}

/// Runs a step of the library, which panics at some damaged files, and at types that it lacks.
fn guarded<T>(path: &Path, step: impl FnOnce() -> T) -> Result<T, FileError> {
    catch_unwind(AssertUnwindSafe(step)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        corrupt(path, &text.unwrap_or("the library cannot read it"))
    })
}

fn corrupt(path: &Path, error: &dyn std::fmt::Display) -> FileError {
    let problem = error.to_string();
    FileError::Corrupt { path: path.to_owned(), format: "parquet", problem }
}

/// The rows that the file's footer says it has.
pub(super) fn count(file: File, path: &Path) -> Result<u64, FileError> {
    let rows = open(file, path)?.metadata().file_metadata().num_rows();
    u64::try_from(rows).map_err(|_| corrupt(path, &"it says it has a negative number of rows"))
}

/// The columns in the file's footer, in the types that queries work on.
pub(super) fn columns(
    file: impl ChunkReader + 'static,
    path: &Path,
) -> Result<SchemaRef, FileError> {
    let builder = open(file, path)?;
    let fields = builder
        .schema()
        .fields()
        .iter()
        .map(|field| Field::new(field.name(), plain_type(field.data_type()), true));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// A file that any reader of Parquet reads as [`rows`] does.
pub(super) struct Plain {
    pub(super) bytes: u64,
    pub(super) rows: u64,
}

/// The file, if its columns have the names of `schema` to the letter and types that others read and
/// cast as this module does. `None` for another, which is to be read here.
pub(super) fn plain(path: &Path, schema: &SchemaRef) -> Result<Option<Plain>, FileError> {
    let unreadable = |error| FileError::Unreadable { path: path.to_owned(), error };
    let file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    plain_of(file, bytes, path, schema)
}

/// As [`plain`], of a file that is open.
pub(super) fn plain_of(
    file: impl ChunkReader + 'static,
    bytes: u64,
    path: &Path,
    schema: &SchemaRef,
) -> Result<Option<Plain>, FileError> {
    let builder = open(file, path)?;
    let in_file = builder.schema();
    let sources = sources(path, in_file, schema)?;
    let mut found = schema.fields().iter().zip(sources);
    let is_exact = found.all(|(wanted, source)| match source {
        Some(source) => in_file.field(source).name() == wanted.name(),
        None => true,
    });
    let mut columns = builder.parquet_schema().columns().iter();
    // The readers differ in what they make of these outside the years 1678 to 2262.
    let has_old_timestamps = columns.any(|column| column.physical_type() == PhysicalType::INT96);
    if !is_exact || has_old_timestamps {
        return Ok(None);
    }
    let rows = builder.metadata().file_metadata().num_rows();
    let rows = u64::try_from(rows);
    let rows = rows.map_err(|_| corrupt(path, &"it says it has a negative number of rows"))?;
    Ok(Some(Plain { bytes, rows }))
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::Timestamp(_, zone) => {
            let zone = zone.as_ref().map(|_| "UTC".into());
            DataType::Timestamp(TimeUnit::Microsecond, zone)
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            DataType::List(Arc::new(plain_field(item)))
        }
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(|field| plain_field(field)).collect())
        }
        other => other.clone(),
    }
}

fn plain_field(field: &Field) -> Field {
    Field::new(field.name(), plain_type(field.data_type()), field.is_nullable())
}

/// The columns `projection` of `schema`; a column that the file lacks is null.
pub(super) fn rows<R: ChunkReader<T: Send> + 'static>(
    file: R,
    path: PathBuf,
    schema: &SchemaRef,
    projection: &[usize],
) -> Result<FileRows, FileError> {
    let builder = open(file, &path)?;
    let projected = project(schema, projection);
    let sources = sources(&path, builder.schema(), &projected)?;
    let mask = ProjectionMask::roots(builder.parquet_schema(), sources.iter().flatten().copied());
    let builder = builder.with_projection(mask).with_batch_size(RECORD_BATCH_ROWS);
    let reader = guarded(&path, || builder.build())?.map_err(|error| corrupt(&path, &error))?;
    let mut reader = Some(reader);
    let rows = std::iter::from_fn(move || {
        let next = guarded(&path, || reader.as_mut()?.next());
        // After a panic nobody knows what the reader is in the middle of.
        reader = reader.take().filter(|_| next.is_ok());
        let rows = next.transpose()?.and_then(|rows| rows.map_err(|error| corrupt(&path, &error)));
        Some(rows.and_then(|rows| {
            convert(&rows, &sources, &projected).map_err(|error| corrupt(&path, &error))
        }))
    });
    Ok(Box::new(rows))
}

/// For each wanted column, which column of the file it is.
fn sources(path: &Path, file: &Schema, wanted: &Schema) -> Result<Vec<Option<usize>>, FileError> {
    let source = |wanted: &Arc<Field>| {
        let names = || file.fields().iter().map(|field| field.name());
        let exact = names().position(|name| name == wanted.name());
        let found = exact.or_else(|| {
            names().position(|name| name.to_lowercase() == wanted.name().to_lowercase())
        });
        let Some(found) = found else { return Ok(None) };
        let found_type = file.field(found).data_type();
        if !widens(found_type, wanted.data_type()) {
            return Err(FileError::ColumnType {
                path: path.to_owned(),
                column: wanted.name().clone(),
                found: found_type.to_string(),
                wanted: wanted.data_type().to_string(),
            });
        }
        Ok(Some(found))
    };
    wanted.fields().iter().map(source).collect()
}

/// Whether every value of `from` is one of `to`.
fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Date32, Decimal128, Dictionary, FixedSizeBinary, Float32, Float64,
        Int8, Int16, Int32, Int64, LargeBinary, LargeList, LargeUtf8, List, Map, Struct, Timestamp,
        UInt8, UInt16, UInt32, Utf8, Utf8View,
    };
    match (from, to) {
        (from, to) if from == to => true,
        (Int8, Int16 | Int32 | Int64) | (Int16, Int32 | Int64) | (Int32, Int64) => true,
        (UInt8, Int16 | Int32 | Int64) | (UInt16, Int32 | Int64) | (UInt32, Int64) => true,
        (Float32 | Int8 | Int16 | Int32, Float64) => true,
        (Utf8View | LargeUtf8, Utf8) => true,
        (BinaryView | LargeBinary | FixedSizeBinary(_), Binary) => true,
        (Dictionary(_, values), to) => widens(values, to),
        // Spark's old timestamps have no zone in the file and mean UTC.
        (Timestamp(_, _), Timestamp(_, Some(_))) | (Timestamp(_, None), Timestamp(_, None)) => true,
        (Date32, Timestamp(_, None)) => true,
        (Decimal128(p, s), Decimal128(precision, scale)) => {
            scale >= s && i16::from(*precision) - i16::from(*scale) >= i16::from(*p) - i16::from(*s)
        }
        (List(from) | LargeList(from), List(to)) => widens(from.data_type(), to.data_type()),
        (Struct(from), Struct(to)) => {
            from.len() == to.len()
                && from.iter().zip(to).all(|(from, to)| {
                    from.name() == to.name() && widens(from.data_type(), to.data_type())
                })
        }
        (Map(from, _), Map(to, _)) => match (from.data_type(), to.data_type()) {
            (Struct(from), Struct(to)) => {
                from.iter().zip(to).all(|(from, to)| widens(from.data_type(), to.data_type()))
            }
            _ => false,
        },
        _ => false,
    }
}

fn convert(
    rows: &RecordBatch,
    sources: &[Option<usize>],
    wanted: &SchemaRef,
) -> Result<RecordBatch, arrow::error::ArrowError> {
    // The reader gives the columns it was asked for in the order of the file.
    let mut in_file: Vec<usize> = sources.iter().flatten().copied().collect();
    in_file.sort_unstable();
    in_file.dedup();
    let column = |(source, field): (&Option<usize>, &Arc<Field>)| -> Result<ArrayRef, _> {
        let Some(source) = source else {
            return Ok(new_null_array(field.data_type(), rows.num_rows()));
        };
        let column = rows.column(in_file.binary_search(source).expect("it was asked for"));
        if column.data_type() == field.data_type() {
            return Ok(column.clone());
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(column, field.data_type(), &options)
    };
    let columns = sources.iter().zip(wanted.fields()).map(column).collect::<Result<Vec<_>, _>>()?;
    record_batch(wanted, columns, rows.num_rows())
}
