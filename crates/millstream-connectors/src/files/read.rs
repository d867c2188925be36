//! One file to record batches.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_engine::api::dead_letter::Letter;
use millstream_engine::api::options::OptionError;
use millstream_engine::api::source::{Failure, RecordBatches};
use millstream_formats::{RecordDecoder, RecordFormat, Values, text};
use parking_lot::Mutex;

use super::error::FileError;
use super::file_rows::{FileRows, project, record_batch};
use super::lines::{Block, Lines, Skip};
use super::listing::FileStatus;
use super::options::{Format, ReadOptions};
use super::parquet;

/// What was seen in all files so far.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) rows_malformed: AtomicU64,
    pub(super) files_skipped: AtomicU64,
}

/// Reads files of one table. Cheap to clone.
#[derive(Clone)]
pub(super) struct FileReader {
    pub(super) options: Arc<ReadOptions>,
    /// All columns of the table, as [`schema`] gives them.
    pub(super) schema: SchemaRef,
    /// How lines are decoded, where they may be malformed.
    records: Option<RecordFormat>,
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
    if let Some(format) = record_format(declared, options)? {
        return Ok(format.schema().clone());
    }
    if options.format == Format::Text {
        let columns = declared.fields();
        if columns.len() != 1 || *columns[0].data_type() != DataType::Utf8 {
            return Err(OptionError::table(
                "a table of text files has one column, value STRING",
                Some("leave the columns out".into()),
            ));
        }
    }
    let nullable = |field: &Arc<Field>| Field::clone(field).with_nullable(true);
    Ok(Arc::new(Schema::new(declared.fields().iter().map(nullable).collect::<Vec<_>>())))
}

/// How lines are decoded, where they may be malformed.
/// Errors: columns that the format does not have.
fn record_format(
    columns: &Schema,
    options: &ReadOptions,
) -> Result<Option<RecordFormat>, OptionError> {
    match options.format {
        Format::Json => RecordFormat::json(columns, &options.malformed).map(Some),
        Format::Csv => {
            RecordFormat::csv(columns, &options.malformed, options.csv.clone()).map(Some)
        }
        Format::Text | Format::Parquet => Ok(None),
    }
}

impl FileReader {
    pub(super) fn new(options: Arc<ReadOptions>, schema: SchemaRef) -> Self {
        let records = record_format(&schema, &options).expect("the columns were checked");
        Self { options, schema, records, counters: Arc::default(), rejected: None }
    }

    /// The same reader for one split, and where it puts malformed records.
    pub(super) fn apart(&self) -> (Self, Rejected) {
        let rejected = Rejected::default();
        (Self { rejected: Some(Arc::clone(&rejected)), ..self.clone() }, rejected)
    }

    /// How many rows `file` has, before any is dropped as malformed; reads all of it unless its
    /// format says the number.
    pub(super) fn count(&self, file: &FileStatus) -> Result<u64, FileError> {
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
    pub(super) fn read(&self, file: FileStatus, projection: &[usize]) -> RecordBatches {
        let reading = Reading {
            reader: self.clone(),
            file,
            projection: projection.to_vec(),
            rows: None,
            has_ended: false,
        };
        Box::new(reading)
    }

    fn rows(&self, file: &FileStatus, projection: &[usize]) -> Result<(File, FileRows), FileError> {
        let opened = open(file)?;
        let watched = opened.try_clone().map_err(|e| FileError::reading(&file.path, e))?;
        let path = file.path.clone();
        let rows: FileRows = match self.options.format {
            Format::Parquet => parquet::rows(opened, path, &self.schema, projection)?,
            format => {
                let mut decoder = self.decoder(projection);
                blocks(self.lines(opened), path, format, move |block, path| {
                    decoder.decode(block, path)
                })
            }
        };
        Ok((watched, rows))
    }

    /// The lines of `file`. An error if it is not what it was when found.
    pub(super) fn lines_of(&self, file: &FileStatus) -> Result<Lines, FileError> {
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

    pub(super) fn line_error(&self, file: &FileStatus, error: std::io::Error) -> FileError {
        line_error(&file.path, self.options.format, error)
    }

    /// What makes rows of blocks of lines.
    pub(super) fn decoder(&self, projection: &[usize]) -> BlockDecoder {
        BlockDecoder {
            records: self.records.as_ref().map(|format| format.decoder(projection)),
            projected: project(&self.schema, projection),
            reader: self.clone(),
        }
    }
}

/// Makes rows of blocks of lines.
pub(super) struct BlockDecoder {
    /// `None` for lines that are taken as they are.
    records: Option<RecordDecoder>,
    projected: SchemaRef,
    reader: FileReader,
}

impl BlockDecoder {
    /// The rows of `block`, from the file `path`. Malformed lines go where the reader puts them.
    pub(super) fn decode(&mut self, block: Block, path: &Path) -> Result<RecordBatch, FileError> {
        let Some(records) = &mut self.records else {
            return text_rows(block, path, &self.projected);
        };
        let values = Values::new(&block.bytes, &block.offsets, None);
        let decoded = match &self.reader.rejected {
            Some(rejected) => {
                let mut rejected = rejected.lock();
                let file: Arc<str> = path.display().to_string().into();
                records.decode_apart(values, &mut |row, problem| {
                    rejected.push(block.letter(&file, row, problem));
                })
            }
            None => records.decode(values).map_err(|record| FileError::Malformed {
                path: path.to_owned(),
                line: block.numbers[record.row],
                problem: record.problem,
            })?,
        };
        self.reader.counters.rows_malformed.fetch_add(decoded.malformed, Ordering::Relaxed);
        Ok(decoded.rows)
    }
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

/// The lines of a block as one column, however often it is wanted; without copying them.
fn text_rows(block: Block, path: &Path, wanted: &SchemaRef) -> Result<RecordBatch, FileError> {
    let (rows, numbers) = (block.len(), block.numbers);
    let values = text::strict(block.bytes, block.offsets).map_err(|text::NotUtf8(row)| {
        FileError::Corrupt {
            path: path.to_owned(),
            format: Format::Text.name(),
            problem: format!("line {} is not UTF-8", numbers[row]),
        }
    })?;
    let columns = vec![Arc::new(values) as ArrayRef; wanted.fields().len()];
    Ok(record_batch(wanted, columns, rows).expect("one column of text"))
}

fn open(file: &FileStatus) -> Result<File, FileError> {
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

fn is_unchanged(file: &FileStatus, opened: &File) -> bool {
    opened.metadata().is_ok_and(|now| file.is_unchanged(&now))
}

fn changed(file: &FileStatus) -> FileError {
    FileError::Changed { path: file.path.clone() }
}

/// A file being read; opened when the first rows are asked for.
struct Reading {
    reader: FileReader,
    file: FileStatus,
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
