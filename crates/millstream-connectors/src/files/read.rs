//! One file to record batches.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use millstream_engine::api::dead_letter::Letter;
use millstream_engine::api::options::OptionError;
use millstream_engine::api::source::{Failure, RecordBatches};
use millstream_sql::json::{DecodeOptions, Decoder, Values};
use parking_lot::Mutex;

use super::csv::CsvRows;
use super::error::FileError;
use super::lines::{Block, Lines, Skip};
use super::listing::Found;
use super::options::{Format, ReadOptions};
use super::{csv, parquet};

/// Rows of one file, before it is known that the file stayed the same while it was read.
pub(super) type FileRows = Box<dyn Iterator<Item = Result<RecordBatch, FileError>> + Send>;

/// What was seen in all files so far.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) rows_malformed: AtomicU64,
    pub(super) files_skipped: AtomicU64,
}

/// Reads files of one table. Cheap to clone.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) options: Arc<ReadOptions>,
    /// All columns of the table, as [`schema`] gives them.
    pub(super) schema: SchemaRef,
    pub(super) counters: Arc<Counters>,
    /// Where malformed records go, if they are dead letters.
    pub(super) rejected: Option<Rejected>,
}

/// Dead letters found while reading.
pub(super) type Rejected = Arc<Mutex<Vec<Letter>>>;

/// The columns as they come out of files: those that may be null are nullable, whatever was
/// declared. Where malformed records are dead letters, one with a null in a column declared NOT
/// NULL is malformed. Errors if the format has no such columns.
pub(super) fn schema(declared: &Schema, options: &ReadOptions) -> Result<SchemaRef, OptionError> {
    let corrupt = &options.corrupt_record_column;
    match options.format {
        Format::Json => {
            let all: Vec<usize> = (0..declared.fields().len()).collect();
            let decoder = Decoder::new(declared, &all, decode_options(options));
            let decoder = decoder.map_err(|error| OptionError::table(error.to_string(), None))?;
            return Ok(decoder.schema().clone());
        }
        Format::Csv => csv::check(declared, corrupt)?,
        Format::Text => {
            let columns = declared.fields();
            if columns.len() != 1 || *columns[0].data_type() != DataType::Utf8 {
                return Err(OptionError::table(
                    "a table of text files has one column, value STRING",
                    Some("leave the columns out".into()),
                ));
            }
        }
        Format::Parquet => {}
    }
    let nullable = |field: &Arc<Field>| {
        let is_nullable = field.is_nullable() || !options.apart || field.name() == corrupt;
        Field::clone(field).with_nullable(is_nullable)
    };
    Ok(Arc::new(Schema::new(declared.fields().iter().map(nullable).collect::<Vec<_>>())))
}

fn decode_options(options: &ReadOptions) -> DecodeOptions {
    DecodeOptions {
        mode: options.mode,
        column_name_of_corrupt_record: Some(options.corrupt_record_column.clone()),
        ignore_case: true,
    }
}

/// Columns of `rows` rows, of which there may be none.
pub(super) fn record_batch(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
}

impl Reader {
    pub(super) fn new(options: Arc<ReadOptions>, schema: SchemaRef) -> Self {
        Self { options, schema, counters: Arc::default(), rejected: None }
    }

    /// The same reader for one split, and where it puts malformed records.
    pub(super) fn apart(&self) -> (Self, Rejected) {
        let rejected = Rejected::default();
        (Self { rejected: Some(Arc::clone(&rejected)), ..self.clone() }, rejected)
    }

    /// How many rows `file` has, before any is dropped as malformed; reads all of it unless its
    /// format says the number.
    pub(super) fn count(&self, file: &Found) -> Result<u64, FileError> {
        let opened = open(file)?;
        if self.options.format == Format::Parquet {
            return parquet::count(opened, &file.path);
        }
        let mut lines = self.lines(opened);
        let mut rows = 0;
        while let Some(block) = lines.next_block().map_err(|error| self.line_error(file, error))? {
            rows += block.len() as u64;
        }
        if is_unchanged(file, lines.file()) { Ok(rows) } else { Err(changed(file)) }
    }

    /// Whether an error is passed over by the options; counts it if so.
    pub(super) fn skips(&self, error: &FileError) -> bool {
        let skips = error.is_corrupt() && self.options.ignore_corrupt_files
            || error.is_vanished() && self.options.ignore_missing_files;
        if skips {
            self.counters.files_skipped.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("file skipped: {error}");
        }
        skips
    }

    /// The columns `projection` of all rows of `file`. An error if the file is not, or does not
    /// stay, what it was when found.
    pub(super) fn read(&self, file: Found, projection: &[usize]) -> RecordBatches {
        let reading = Reading {
            reader: self.clone(),
            file,
            projection: projection.to_vec(),
            rows: None,
            has_ended: false,
        };
        Box::new(reading)
    }

    fn rows(&self, file: &Found, projection: &[usize]) -> Result<(File, FileRows), FileError> {
        let opened = open(file)?;
        let watched = opened.try_clone().map_err(|e| FileError::reading(&file.path, e))?;
        let path = file.path.clone();
        let rows: FileRows = match self.options.format {
            Format::Parquet => parquet::rows(opened, path, &self.schema, projection)?,
            Format::Csv => Box::new(CsvRows::new(self.lines(opened), path, self, projection)),
            Format::Text => self.text_rows(self.lines(opened), path, projection),
            Format::Json => {
                let mut decoder = self.json(projection);
                blocks(self.lines(opened), path, Format::Json, move |block, path| {
                    decoder.decode(&block, path)
                })
            }
        };
        Ok((watched, rows))
    }

    /// The lines of `file`. An error if it is not what it was when found.
    pub(super) fn lines_of(&self, file: &Found) -> Result<Lines, FileError> {
        Ok(self.lines(open(file)?))
    }

    fn lines(&self, file: File) -> Lines {
        let format = self.options.format;
        let skip = Skip {
            blank: format != Format::Text,
            header: format == Format::Csv && self.options.csv.header,
        };
        Lines::new(file, skip)
    }

    pub(super) fn line_error(&self, file: &Found, error: std::io::Error) -> FileError {
        line_error(&file.path, self.options.format, error)
    }

    fn text_rows(&self, lines: Lines, path: PathBuf, projection: &[usize]) -> FileRows {
        let (reader, projection) = (self.clone(), projection.to_vec());
        blocks(lines, path, Format::Text, move |block, path| {
            text_rows(&reader, block, path, &projection)
        })
    }

    /// What makes rows of blocks of JSON.
    pub(super) fn json(&self, projection: &[usize]) -> JsonRows {
        let decoder = Decoder::new(&self.schema, projection, decode_options(&self.options));
        let decoder = decoder.expect("the columns were checked with the table's options");
        JsonRows { decoder, reader: self.clone() }
    }
}

/// Blocks of lines that are JSON objects.
pub(super) struct JsonRows {
    decoder: Decoder,
    reader: Reader,
}

impl JsonRows {
    pub(super) fn decode(&mut self, block: &Block, path: &Path) -> Result<RecordBatch, FileError> {
        let values = Values::new(&block.bytes, &block.offsets, None);
        let decoded = match &self.reader.rejected {
            Some(rejected) => {
                let mut rejected = rejected.lock();
                let file: Arc<str> = path.display().to_string().into();
                self.decoder.decode_apart(values, |record| {
                    rejected.push(block.letter(&file, record.row, record.in_short()));
                })
            }
            None => self.decoder.decode(values).map_err(|error| FileError::Malformed {
                path: path.to_owned(),
                line: block.numbers[error.row],
                problem: error.to_string(),
            })?,
        };
        self.reader.counters.rows_malformed.fetch_add(decoded.malformed, Ordering::Relaxed);
        Ok(decoded.rows)
    }
}

/// The same columns, all of them nullable: what they are before malformed records are left out.
pub(super) fn loose(schema: &Schema) -> SchemaRef {
    let nullable = |field: &Arc<Field>| Field::clone(field).with_nullable(true);
    Arc::new(Schema::new(schema.fields().iter().map(nullable).collect::<Vec<_>>()))
}

/// The schema with the columns `projection` only.
pub(super) fn project(schema: &SchemaRef, projection: &[usize]) -> SchemaRef {
    Arc::new(schema.project(projection).expect("a projection names columns of the table"))
}

/// The rows that `decode` makes of each block of lines.
fn blocks(
    mut lines: Lines,
    path: PathBuf,
    format: Format,
    mut decode: impl FnMut(Block, &Path) -> Result<RecordBatch, FileError> + Send + 'static,
) -> FileRows {
    Box::new(std::iter::from_fn(move || match lines.next_block() {
        Ok(None) => None,
        Ok(Some(block)) => Some(decode(block, &path)),
        Err(error) => Some(Err(line_error(&path, format, error))),
    }))
}

pub(super) fn line_error(path: &Path, format: Format, error: std::io::Error) -> FileError {
    if error.kind() == std::io::ErrorKind::InvalidData {
        let (path, format) = (path.to_owned(), format.name());
        return FileError::Corrupt { path, format, problem: error.to_string() };
    }
    FileError::reading(path, error)
}

/// The rows of a block of a table of text.
pub(super) fn text_rows(
    reader: &Reader,
    block: Block,
    path: &Path,
    projection: &[usize],
) -> Result<RecordBatch, FileError> {
    let rows = block.len();
    let values: ArrayRef = Arc::new(text(block, path)?);
    let projected = project(&reader.schema, projection);
    let columns = vec![values; projection.len()];
    Ok(record_batch(&projected, columns, rows).expect("one column of text"))
}

/// The lines of a block as one column, without copying them.
fn text(block: Block, path: &Path) -> Result<StringArray, FileError> {
    if let Err(error) = std::str::from_utf8(&block.bytes) {
        let line = block.offsets[1..].partition_point(|end| *end as usize <= error.valid_up_to());
        return Err(FileError::Corrupt {
            path: path.to_owned(),
            format: Format::Text.name(),
            problem: format!("line {} is not UTF-8", block.numbers[line]),
        });
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(block.offsets));
    let values = Buffer::from_vec(block.bytes);
    // Each line is UTF-8 because the whole is, and lines end where a line break was.
    Ok(StringArray::try_new(offsets, values, None).expect("lines are text"))
}

fn open(file: &Found) -> Result<File, FileError> {
    let opened = File::open(&file.path).map_err(|error| FileError::reading(&file.path, error))?;
    let is_compressed = file.path.extension().is_some_and(|extension| {
        ["gz", "bz2", "zst", "xz", "lz4", "snappy", "deflate"]
            .iter()
            .any(|known| extension == *known)
    });
    if is_compressed {
        return Err(FileError::Corrupt {
            path: file.path.clone(),
            format: "plain",
            problem: "compressed files are not supported".to_owned(),
        });
    }
    if is_unchanged(file, &opened) { Ok(opened) } else { Err(changed(file)) }
}

fn is_unchanged(file: &Found, opened: &File) -> bool {
    opened.metadata().is_ok_and(|now| file.is_unchanged(&now))
}

fn changed(file: &Found) -> FileError {
    FileError::Changed { path: file.path.clone() }
}

/// A file being read; opened when the first rows are asked for.
struct Reading {
    reader: Reader,
    file: Found,
    projection: Vec<usize>,
    rows: Option<(File, FileRows)>,
    has_ended: bool,
}

impl Reading {
    fn next_rows(&mut self) -> Result<Option<RecordBatch>, FileError> {
        let (watched, rows) = match &mut self.rows {
            Some(rows) => rows,
            None => self.rows.insert(self.reader.rows(&self.file, &self.projection)?),
        };
        let next = rows.next().transpose();
        // What a changing file does to its reader is not to be blamed on its content.
        let is_last = !matches!(next, Ok(Some(_)));
        if is_last && !is_unchanged(&self.file, watched) {
            return Err(changed(&self.file));
        }
        next
    }
}

impl Iterator for Reading {
    type Item = Result<RecordBatch, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        match self.next_rows() {
            Ok(Some(rows)) => Some(Ok(rows)),
            Ok(None) => {
                self.has_ended = true;
                None
            }
            Err(error) => {
                self.has_ended = true;
                if self.reader.skips(&error) { None } else { Some(Err(error.into())) }
            }
        }
    }
}
