//! Rows to the bytes of files.
//!
//! Timestamps in JSON end at the millisecond, as Spark writes them; in the other formats they are
//! whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use arrow::array::{Array, AsArray, RecordBatch, StringArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use millstream_engine::api::options::OptionError;
use millstream_engine::api::sink::Failure;
use millstream_sql::json::{self, EncodeOptions};
use millstream_sql::types::spark_type;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::csv::write_value;
use super::directory::Target;
use super::error::FileError;
use super::options::{Format, WriteOptions};
use super::record::Part;
use crate::gather::RowWriter;

/// A row group of a Parquet file is closed when its encoded columns have reached this.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// Errors if files of the format cannot hold rows of `schema`.
pub(super) fn check(options: &WriteOptions, schema: &Schema) -> Result<(), OptionError> {
    let fields = schema.fields();
    match options.format {
        Format::Parquet => Ok(()),
        Format::Text => {
            if fields.len() == 1 && is_text(fields[0].data_type()) {
                return Ok(());
            }
            let columns: Vec<String> = fields
                .iter()
                .map(|field| format!("{} {}", field.name(), spark_type(field.data_type())))
                .collect();
            Err(OptionError::table(
                format!(
                    "text files hold one STRING column, and the query has {}",
                    columns.join(", ")
                ),
                Some("build one text column, for example with concat_ws, or write json".into()),
            ))
        }
        Format::Csv => {
            for field in fields {
                let data_type = field.data_type();
                let wanted = spark_type(data_type);
                if data_type.is_nested() || wanted == "BINARY" || json::check(data_type).is_err() {
                    return Err(OptionError::table(
                        format!("column {}: csv cannot hold {wanted}", field.name()),
                        Some("convert it to STRING in the query, or write json".into()),
                    ));
                }
            }
            Ok(())
        }
        Format::Json => {
            for field in fields {
                json::check(field.data_type()).map_err(|error| {
                    OptionError::table(format!("column {}: {error}", field.name()), None)
                })?;
            }
            Ok(())
        }
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Encodes rows into files with hidden names, flushed to the disk when they are finished.
pub(super) struct PartWriter {
    target: Target,
    next_name: Box<dyn FnMut() -> String + Send>,
    begun: Option<Begun>,
    finished: Vec<Part>,
}

struct Begun {
    name: String,
    out: Encoder,
}

enum Encoder {
    Lines(Counted),
    Parquet(Box<ArrowWriter<BufWriter<File>>>),
}

/// Counts what goes into a file.
struct Counted {
    out: BufWriter<File>,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl PartWriter {
    /// A writer of files in the target's directory, called as `next_name` says.
    pub(super) fn new(target: Target, next_name: Box<dyn FnMut() -> String + Send>) -> Self {
        Self { target, next_name, begun: None, finished: Vec::new() }
    }

    fn failed(&self, name: &str, error: io::Error) -> FileError {
        FileError::writing(self.target.path.join(name), error)
    }

    fn begin(&mut self) -> Result<(), FileError> {
        let name = (self.next_name)();
        let out = Encoder::new(&self.target.path.join(&name), &self.target);
        let out = out.map_err(|error| self.failed(&name, error))?;
        self.begun = Some(Begun { name, out });
        Ok(())
    }

    fn finish_file(&mut self) -> Result<(), FileError> {
        let Some(Begun { name, out }) = self.begun.take() else { return Ok(()) };
        let modified_ms = self.target.env.now_ms();
        match out.finish(modified_ms) {
            Ok(size) => {
                let (written, name) = (name, String::new());
                self.finished.push(Part { written, name, size, modified_ms });
                Ok(())
            }
            Err(error) => Err(self.failed(&name, error)),
        }
    }
}

impl RowWriter for PartWriter {
    type File = Part;

    fn write(&mut self, rows: &RecordBatch) -> Result<(), Failure> {
        if self.begun.is_none() {
            self.begin()?;
        }
        let begun = self.begun.as_mut().expect("it was begun");
        if let Err(error) = begun.out.write(&self.target.options, rows) {
            let name = begun.name.clone();
            return Err(self.failed(&name, error).into());
        }
        if begun.out.bytes() >= self.target.options.target_file_bytes {
            self.finish_file()?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let finished: u64 = self.finished.iter().map(|part| part.size).sum();
        finished + self.begun.as_ref().map_or(0, |begun| begun.out.bytes())
    }

    fn finish(&mut self) -> Result<Vec<Part>, Failure> {
        self.finish_file()?;
        Ok(std::mem::take(&mut self.finished))
    }

    fn abandon(&mut self) {
        let begun = self.begun.take().map(|begun| begun.name);
        let finished = self.finished.drain(..).map(|part| part.written);
        for name in begun.into_iter().chain(finished) {
            // The next start removes what stays.
            let _ = fs::remove_file(self.target.path.join(name));
        }
    }
}

impl Encoder {
    fn new(path: &Path, target: &Target) -> io::Result<Self> {
        let out = BufWriter::new(File::create(path)?);
        if target.options.format == Format::Parquet {
            let properties =
                WriterProperties::builder().set_compression(Compression::SNAPPY).build();
            let writer = ArrowWriter::try_new(out, target.schema.clone(), Some(properties));
            return Ok(Self::Parquet(Box::new(writer.map_err(io::Error::from)?)));
        }
        let mut out = Counted { out, bytes: 0 };
        if target.options.format == Format::Csv && target.options.csv.header {
            write_header(&mut out, &target.options, &target.schema)?;
        }
        Ok(Self::Lines(out))
    }

    fn write(&mut self, options: &WriteOptions, rows: &RecordBatch) -> io::Result<()> {
        match (self, options.format) {
            (Self::Parquet(out), _) => {
                out.write(rows).map_err(io::Error::from)?;
                if out.in_progress_size() >= ROW_GROUP_BYTES {
                    out.flush().map_err(io::Error::from)?;
                }
                Ok(())
            }
            (Self::Lines(out), Format::Csv) => write_csv(out, options, rows),
            (Self::Lines(out), Format::Text) => write_lines(out, &text(rows, 0)?),
            (Self::Lines(out), _) => write_json(out, options, rows),
        }
    }

    /// Bytes so far; what is not compressed yet is estimated.
    fn bytes(&self) -> u64 {
        match self {
            Self::Lines(out) => out.bytes,
            Self::Parquet(out) => (out.bytes_written() + out.in_progress_size()) as u64,
        }
    }

    /// Forces it to the disk; gives its size.
    fn finish(self, modified_ms: i64) -> io::Result<u64> {
        let out = match self {
            Self::Lines(out) => out.out,
            Self::Parquet(out) => out.into_inner().map_err(io::Error::from)?,
        };
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.set_modified(UNIX_EPOCH + Duration::from_millis(modified_ms.unsigned_abs()))?;
        file.sync_all()?;
        Ok(file.metadata()?.len())
    }
}

fn write_json(out: &mut impl Write, options: &WriteOptions, rows: &RecordBatch) -> io::Result<()> {
    let encode_options = EncodeOptions { ignore_null_fields: options.ignore_null_fields };
    let objects = StructArray::from(rows.clone());
    write_lines(out, &json::encode(&objects, encode_options).map_err(io::Error::other)?)
}

fn write_lines(out: &mut impl Write, lines: &StringArray) -> io::Result<()> {
    for line in lines {
        out.write_all(line.unwrap_or_default().as_bytes())?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn write_header(out: &mut impl Write, options: &WriteOptions, schema: &Schema) -> io::Result<()> {
    let mut line = String::new();
    for (index, field) in schema.fields().iter().enumerate() {
        if index > 0 {
            line.push(char::from(options.csv.separator));
        }
        write_value(Some(field.name()), &options.csv, &mut line);
    }
    line.push('\n');
    out.write_all(line.as_bytes())
}

fn write_csv(out: &mut impl Write, options: &WriteOptions, rows: &RecordBatch) -> io::Result<()> {
    let mut line = String::new();
    let columns = rows.columns().iter().map(json::plain_texts);
    let columns = columns.collect::<Result<Vec<StringArray>, _>>().map_err(io::Error::other)?;
    for row in 0..rows.num_rows() {
        line.clear();
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                line.push(char::from(options.csv.separator));
            }
            let value = column.is_valid(row).then(|| column.value(row));
            write_value(value, &options.csv, &mut line);
        }
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

fn text(rows: &RecordBatch, column: usize) -> io::Result<StringArray> {
    let text = cast(rows.column(column), &DataType::Utf8).map_err(io::Error::other)?;
    Ok(text.as_string::<i32>().clone())
}
