//! Writing one file of a checkpoint: old row groups as the bytes they are, and new rows.
//!
//! Encoding is what costs, so a row group that stays as it is goes over without being decoded. Each
//! file is built in memory, as the store takes files whole; a part has a bounded number of rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::Compression;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{KeyValue, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::ChunkReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::actions::{FILES, ROWS};
use super::error::{CheckpointError, encode_error};
use super::facts::{CheckpointFile, Columns, MARK, MARK_VALUE, parquet_schema};

/// Rows of a row group: what a reader holds at once.
pub(super) const ROW_GROUP_ROWS_MAX: usize = 50_000;

/// A file being written.
pub(super) struct PartWriter {
    file: SerializedFileWriter<Vec<u8>>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    columns: Columns,
    open: Option<OpenRowGroup>,
    /// Hashes of the paths so far; none once rows went over whose hashes are not known.
    hashes: Option<Vec<i32>>,
}

struct OpenRowGroup {
    columns: Vec<ArrowColumnWriter>,
    rows: usize,
}

impl PartWriter {
    /// A file with `columns`, which are ours.
    pub(super) fn new(columns: Columns) -> Result<Self, CheckpointError> {
        let schema = Arc::clone(if columns == Columns::Files { &FILES } else { &ROWS });
        let root = parquet_schema(&schema).root_schema_ptr();
        let file = SerializedFileWriter::new(Vec::new(), root, Arc::new(properties()));
        let file = file.map_err(encode_error)?;
        let factory = ArrowRowGroupWriterFactory::new(&file, Arc::clone(&schema));
        Ok(Self { file, factory, schema, columns, open: None, hashes: Some(Vec::new()) })
    }

    /// Copies a row group of `file`, which has the same columns.
    pub(super) fn copy_row_group(
        &mut self,
        file: &impl ChunkReader,
        group: &RowGroupMetaData,
    ) -> Result<(), CheckpointError> {
        let mut copy = self.file.next_row_group().map_err(encode_error)?;
        for column in group.columns() {
            let close = ColumnCloseResult {
                bytes_written: column.compressed_size().unsigned_abs(),
                rows_written: group.num_rows().unsigned_abs(),
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            copy.append_column(file, close).map_err(encode_error)?;
        }
        copy.close().map(drop).map_err(encode_error)
    }

    /// Adds the hashes of rows that went over as bytes; none if they are not known.
    pub(super) fn add_hashes(&mut self, hashes: Option<&[i32]>) {
        match (&mut self.hashes, hashes) {
            (Some(known), Some(more)) => known.extend_from_slice(more),
            (known, _) => *known = None,
        }
    }

    /// Writes rows, whose columns may be some of the file's; the others are null.
    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<(), CheckpointError> {
        let mut start = 0;
        while start < rows.num_rows() {
            let open_rows = self.open.as_ref().map_or(0, |open| open.rows);
            let count = (rows.num_rows() - start).min(ROW_GROUP_ROWS_MAX - open_rows);
            self.encode(&rows.slice(start, count))?;
            start += count;
            if open_rows + count == ROW_GROUP_ROWS_MAX {
                self.end_row_group()?;
            }
        }
        Ok(())
    }

    fn encode(&mut self, rows: &RecordBatch) -> Result<(), CheckpointError> {
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let columns =
                    self.factory.create_column_writers(self.file.flushed_row_groups().len());
                none.insert(OpenRowGroup { columns: columns.map_err(encode_error)?, rows: 0 })
            }
        };
        let mut writers = open.columns.iter_mut();
        for field in self.schema.fields() {
            let column: ArrayRef = match rows.column_by_name(field.name()) {
                Some(column) => Arc::clone(column),
                None => new_null_array(field.data_type(), rows.num_rows()),
            };
            for leaf in compute_leaves(field, &column).map_err(encode_error)? {
                let writer = writers.next().expect("a writer for every leaf");
                writer.write(&leaf).map_err(encode_error)?;
            }
        }
        open.rows += rows.num_rows();
        Ok(())
    }

    /// Ends the row group: what comes next is in one of its own.
    pub(super) fn end_row_group(&mut self) -> Result<(), CheckpointError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let mut group = self.file.next_row_group().map_err(encode_error)?;
        for column in open.columns {
            let chunk = column.close().map_err(encode_error)?;
            chunk.append_to_row_group(&mut group).map_err(encode_error)?;
        }
        group.close().map(drop).map_err(encode_error)
    }

    /// The file, and what is known of it; it has no name and no time yet.
    pub(super) fn finish(mut self) -> Result<(Bytes, CheckpointFile), CheckpointError> {
        self.end_row_group()?;
        let footer = self.file.finish().map_err(encode_error)?;
        let bytes = Bytes::from(std::mem::take(self.file.inner_mut()));
        let mut part = CheckpointFile::of("", bytes.len() as u64, 0, &footer);
        part.columns = self.columns;
        part.hashes = self.hashes.map(Arc::new);
        Ok((bytes, part))
    }
}

fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(vec![KeyValue::new(MARK.to_owned(), MARK_VALUE.to_owned())]));
    // Each row has a value of its own here: a dictionary would only be built to be given up.
    for column in ["add.path", "add.stats", "add.size", "remove.path", "remove.size"] {
        let path = ColumnPath::new(column.split('.').map(str::to_owned).collect());
        properties = properties.set_column_dictionary_enabled(path, false);
    }
    properties.build()
}
