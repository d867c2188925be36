//! Rows to the bytes of files: lines, which a [`RecordEncoder`] makes, or Parquet.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use millstream_engine::api::options::OptionError;
use millstream_engine::api::sink::Failure;
use millstream_formats::RecordEncoder;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::commit_record::CommittedFile;
use super::error::FileError;
use super::options::WriteOptions;
use super::target::Target;
use crate::gather::RowWriter;

/// A row group of a Parquet file is closed when its encoded columns have reached this.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// Errors if files of the format cannot hold rows of `schema`.
pub(super) fn check(options: &WriteOptions, schema: &Schema) -> Result<(), OptionError> {
    options.encoder.as_ref().map_or(Ok(()), |encoder| encoder.check(schema))
}

/// Encodes rows into files with hidden names, flushed to the disk when they are finished.
pub(super) struct PartWriter {
    target: Target,
    next_name: Box<dyn FnMut() -> String + Send>,
    begun: Option<Begun>,
    finished: Vec<CommittedFile>,
}

struct Begun {
    name: String,
    out: Encoder,
}

enum Encoder {
    Lines(RecordEncoder, Counted),
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
                self.finished.push(CommittedFile { written, name, size, modified_ms });
                Ok(())
            }
            Err(error) => Err(self.failed(&name, error)),
        }
    }
}

impl RowWriter for PartWriter {
    type File = CommittedFile;

    fn write(&mut self, rows: &RecordBatch) -> Result<(), Failure> {
        if self.begun.is_none() {
            self.begin()?;
        }
        let begun = self.begun.as_mut().expect("it was begun");
        if let Err(error) = begun.out.write(rows) {
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

    fn finish(&mut self) -> Result<Vec<CommittedFile>, Failure> {
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
        let Some(encoder) = target.options.encoder.clone() else {
            let properties =
                WriterProperties::builder().set_compression(Compression::SNAPPY).build();
            let writer = ArrowWriter::try_new(out, target.schema.clone(), Some(properties));
            return Ok(Self::Parquet(Box::new(writer.map_err(io::Error::from)?)));
        };
        let mut out = Counted { out, bytes: 0 };
        encoder.begin(&target.schema, &mut out)?;
        Ok(Self::Lines(encoder, out))
    }

    fn write(&mut self, rows: &RecordBatch) -> io::Result<()> {
        match self {
            Self::Parquet(out) => {
                out.write(rows).map_err(io::Error::from)?;
                if out.in_progress_size() >= ROW_GROUP_BYTES {
                    out.flush().map_err(io::Error::from)?;
                }
                Ok(())
            }
            Self::Lines(encoder, out) => encoder.write(rows, out),
        }
    }

    /// Bytes so far; what is not compressed yet is estimated.
    fn bytes(&self) -> u64 {
        match self {
            Self::Lines(_, out) => out.bytes,
            Self::Parquet(out) => (out.bytes_written() + out.in_progress_size()) as u64,
        }
    }

    /// Forces it to the disk; gives its size.
    fn finish(self, modified_ms: i64) -> io::Result<u64> {
        let out = match self {
            Self::Lines(_, out) => out.out,
            Self::Parquet(out) => out.into_inner().map_err(io::Error::from)?,
        };
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.set_modified(UNIX_EPOCH + Duration::from_millis(modified_ms.unsigned_abs()))?;
        file.sync_all()?;
        Ok(file.metadata()?.len())
    }
}
