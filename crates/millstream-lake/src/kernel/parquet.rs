//! Checkpoints and data files.

use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::ParquetMetaDataReader;
use delta_kernel::engine::arrow_conversion::TryFromArrow;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::engine::arrow_utils::{
    RowIndexBuilder, fixup_parquet_read, ordering_needs_row_indexes, parquet_read_plan,
};
use delta_kernel::engine::parquet_row_group_skipping::ParquetRowGroupSkipping;
use delta_kernel::engine::{reader_options, writer_options};
use delta_kernel::schema::{SchemaRef, StructType};
use delta_kernel::{
    EngineData, FileDataReadResultIterator, FileMeta, FileSize, KernelError, KernelResult,
    KernelResultIteratorStatic, ParquetFooter, ParquetHandler, PredicateRef,
};
use url::Url;

use super::faults::{Faults, unreadable};
use super::read_ahead::{self, Rows};
use super::{kernel_error, name_of};
use crate::parquet_file::RemoteFile;
use crate::store::{Listed, TableStore};

/// What is fetched of a file for its footer, which seldom is larger.
const FOOTER_BYTES: u64 = 64 << 10;
/// Rows decoded at once.
const RECORD_BATCH_ROWS: usize = 8_192;

pub(super) struct Parquet {
    pub(super) store: TableStore,
    pub(super) faults: Arc<Faults>,
}

impl Parquet {
    /// How many rows a file has, by its footer, which is all that is fetched of it.
    pub(super) fn rows_in(&self, file: &FileMeta) -> KernelResult<u64> {
        let name = name_of(&self.store, &file.location)?;
        if file.size == 0 {
            return Err(unreadable(&name, &"it is empty"));
        }
        let mut tail_bytes = FOOTER_BYTES;
        loop {
            let begin = file.size.saturating_sub(tail_bytes);
            let tail = self.store.get_range(&name, begin..file.size);
            let tail = tail.map_err(|error| {
                let is_short = |there: Listed| there.size < file.size;
                match self.store.head(&name).is_ok_and(is_short) {
                    true => unreadable(&name, &"it has fewer bytes than the log says"),
                    false => kernel_error(&file.location, error),
                }
            })?;
            let mut reader = ParquetMetaDataReader::new();
            match reader.try_parse_sized(&tail, file.size) {
                Ok(()) => {
                    let metadata = reader.finish().map_err(|error| unreadable(&name, &error))?;
                    let rows = metadata.file_metadata().num_rows();
                    let negative = |_| unreadable(&name, &"it has fewer than no rows");
                    return u64::try_from(rows).map_err(negative);
                }
                Err(ParquetError::NeedMoreData(bytes)) if bytes as u64 > tail_bytes => {
                    tail_bytes = bytes as u64;
                }
                Err(error) => return Err(unreadable(&name, &error)),
            }
        }
    }
}

impl ParquetHandler for Parquet {
    fn read_parquet_files(
        &self,
        files: &[FileMeta],
        physical_schema: SchemaRef,
        predicate: Option<PredicateRef>,
    ) -> KernelResult<FileDataReadResultIterator> {
        let (store, faults) = (self.store.clone(), Arc::clone(&self.faults));
        let read = move |file: &FileMeta| {
            let rows = match read_file(&store, file, &physical_schema, predicate.as_ref()) {
                Ok(rows) => rows,
                Err(error) => Box::new(std::iter::once(Err(error))) as Rows,
            };
            let (name, faults) = (store.name_of(&file.location), Arc::clone(&faults));
            Box::new(rows.inspect(move |rows| {
                if let (Some(name), Err(error)) = (&name, rows) {
                    faults.note(name, error);
                }
            })) as Rows
        };
        Ok(read_ahead::in_order(self.store.env(), files.to_vec(), read))
    }

    fn write_parquet_file(
        &self,
        location: Url,
        data: KernelResultIteratorStatic<Box<dyn EngineData>>,
    ) -> KernelResult<FileSize> {
        let mut writer: Option<ArrowWriter<Vec<u8>>> = None;
        for rows in data {
            let rows = ArrowEngineData::try_from_engine_data(rows?)?;
            let rows = rows.record_batch();
            let writer = match &mut writer {
                Some(writer) => writer,
                none => {
                    let schema = rows.schema();
                    none.insert(ArrowWriter::try_new_with_options(
                        Vec::new(),
                        schema,
                        writer_options(),
                    )?)
                }
            };
            writer.write(rows)?;
        }
        let Some(writer) = writer else {
            return Err(KernelError::generic("a Parquet file needs at least a schema"));
        };
        let bytes = writer.into_inner()?;
        let size = bytes.len() as FileSize;
        let put = self.store.put(&name_of(&self.store, &location)?, bytes.into());
        put.map(|()| size).map_err(|error| kernel_error(&location, error))
    }

    fn read_parquet_footer(&self, file: &FileMeta) -> KernelResult<ParquetFooter> {
        let metadata = open(&self.store, file).and_then(|remote| {
            let metadata = ArrowReaderMetadata::load(&remote, reader_options());
            metadata.map_err(|error| failure(&remote, file, error.into()))
        });
        if let (Err(error), Some(name)) = (&metadata, self.store.name_of(&file.location)) {
            self.faults.note(&name, error);
        }
        let metadata = metadata?;
        let schema = Arc::new(StructType::try_from_arrow(metadata.schema().as_ref())?);
        Ok(ParquetFooter { schema })
    }
}

fn open(store: &TableStore, file: &FileMeta) -> KernelResult<RemoteFile> {
    let name = name_of(store, &file.location)?;
    RemoteFile::open(store, &name, file.size).map_err(|error| kernel_error(&file.location, error))
}

/// Why a file cannot be read: the store's own error if the store failed.
fn failure(remote: &RemoteFile, file: &FileMeta, error: KernelError) -> KernelError {
    match remote.take_refusal() {
        Some(refusal) => kernel_error(&file.location, refusal),
        None => unreadable(remote.name(), &error),
    }
}

fn read_file(
    store: &TableStore,
    file: &FileMeta,
    schema: &SchemaRef,
    predicate: Option<&PredicateRef>,
) -> KernelResult<Rows> {
    let remote = open(store, file)?;
    let metadata = ArrowReaderMetadata::load(&remote, reader_options())
        .map_err(|error| failure(&remote, file, error.into()))?;
    let (order, mask) = parquet_read_plan(schema, &metadata)?;
    let mut row_indexes = ordering_needs_row_indexes(&order)
        .then(|| RowIndexBuilder::new(metadata.metadata().row_groups()));
    let source = remote.clone();
    let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(remote, metadata)
        .with_batch_size(RECORD_BATCH_ROWS);
    if let Some(mask) = mask {
        builder = builder.with_projection(mask);
    }
    if let Some(predicate) = predicate {
        builder = builder.with_row_group_filter(predicate, row_indexes.as_mut());
    }
    let mut row_indexes = row_indexes.map(RowIndexBuilder::build).transpose()?;
    let reader: ParquetRecordBatchReader = builder.build()?;
    let (location, schema) = (file.location.to_string(), Arc::clone(schema));
    let file = file.clone();
    Ok(Box::new(reader.map(move |rows| {
        let rows = rows.map_err(|error| failure(&source, &file, error.into()))?;
        let rows =
            fixup_parquet_read(rows, &order, row_indexes.as_mut(), Some(&location), Some(&schema));
        Ok(Box::new(rows?) as Box<dyn EngineData>)
    })))
}
