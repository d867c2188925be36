//! The rows of a query on standard output.

use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::StreamWriter;
use millstream_connectors::console::show;
use millstream_engine::api::options::{OptionError, Options};
use millstream_formats::RecordEncoder;
use millstream_formats::csv::CsvOptions;
use millstream_query::error::QueryError;
use millstream_query::session::PlannedQuery;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::cli::Format;

/// The columns of a query's rows as a format has them.
///
/// # Errors
/// TIMESTAMPs that have no text in the session's time zone.
pub fn schema(format: Format, planned: &PlannedQuery) -> Result<SchemaRef, QueryError> {
    match format {
        Format::Json | Format::Csv => planned.recorded_schema(),
        Format::Table | Format::Parquet | Format::Arrow => Ok(planned.schema()),
    }
}

/// Rows as a format has them.
///
/// # Errors
/// A TIMESTAMP that has no text in the session's time zone.
pub fn rows(
    format: Format,
    planned: &PlannedQuery,
    rows: RecordBatch,
) -> Result<RecordBatch, QueryError> {
    match format {
        Format::Table => planned.drawn(rows),
        Format::Json | Format::Csv => planned.recorded(rows),
        Format::Parquet | Format::Arrow => Ok(rows),
    }
}

/// Rows that are drawn as one table; a longer result is several, each with a header.
const ROWS_PER_TABLE: usize = 10_000;

/// Writes rows as they come.
pub enum Output<W: Write + Send> {
    /// Rows of one table are held, since the widths of its columns depend on all of them.
    Table {
        schema: SchemaRef,
        held: Vec<RecordBatch>,
        rows: usize,
        is_drawn: bool,
        out: W,
    },
    /// A line per row.
    Lines {
        encoder: RecordEncoder,
        out: W,
    },
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<StreamWriter<W>>),
}

impl<W: Write + Send> Output<W> {
    /// Begins the output of rows of `schema`.
    ///
    /// # Errors
    /// A column that the format cannot hold, or what the operating system refuses.
    pub fn begin(format: Format, schema: &SchemaRef, mut out: W) -> io::Result<Self> {
        let refused =
            |error: OptionError| io::Error::new(io::ErrorKind::InvalidInput, error.problem);
        let line = |encoder: RecordEncoder, out: &mut W| {
            encoder.check(schema).map_err(refused)?;
            encoder.begin(schema, out)?;
            Ok::<_, io::Error>(encoder)
        };
        Ok(match format {
            Format::Table => {
                let (schema, held) = (SchemaRef::clone(schema), Vec::new());
                Self::Table { schema, held, rows: 0, is_drawn: false, out }
            }
            Format::Json => {
                let encoder = line(RecordEncoder::Json { ignore_null_fields: false }, &mut out)?;
                Self::Lines { encoder, out }
            }
            Format::Csv => {
                let header = Options::new([("header".to_owned(), "true".to_owned())]);
                let options = CsvOptions::parse(&header).map_err(refused)?;
                let encoder = line(RecordEncoder::Csv(options), &mut out)?;
                Self::Lines { encoder, out }
            }
            Format::Parquet => {
                let properties =
                    WriterProperties::builder().set_compression(Compression::SNAPPY).build();
                let writer = ArrowWriter::try_new(out, SchemaRef::clone(schema), Some(properties));
                Self::Parquet(Box::new(writer.map_err(io::Error::other)?))
            }
            Format::Arrow => {
                let writer = StreamWriter::try_new(out, schema).map_err(io::Error::other)?;
                Self::Arrow(Box::new(writer))
            }
        })
    }

    /// Writes some rows.
    pub fn write(&mut self, rows: RecordBatch) -> io::Result<()> {
        match self {
            Self::Table { held, rows: count, .. } => {
                *count += rows.num_rows();
                held.push(rows);
                if *count >= ROWS_PER_TABLE { self.draw() } else { Ok(()) }
            }
            Self::Lines { encoder, out } => encoder.write(&rows, out),
            Self::Parquet(writer) => writer.write(&rows).map_err(io::Error::other),
            Self::Arrow(writer) => writer.write(&rows).map_err(io::Error::other),
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let Self::Table { schema, held, rows, is_drawn, out } = self else { return Ok(()) };
        let table = show(schema, held, None).map_err(io::Error::other)?;
        held.clear();
        (*rows, *is_drawn) = (0, true);
        out.write_all(table.as_bytes())
    }

    /// Writes what is left. Without it a file in Parquet or Arrow is not one.
    pub fn finish(mut self) -> io::Result<()> {
        if let Self::Table { rows, is_drawn, .. } = &self
            && (*rows > 0 || !is_drawn)
        {
            self.draw()?;
        }
        match self {
            Self::Table { mut out, .. } | Self::Lines { mut out, .. } => out.flush(),
            Self::Parquet(writer) => writer.close().map(drop).map_err(io::Error::other),
            Self::Arrow(mut writer) => writer.finish().map_err(io::Error::other),
        }
    }
}
