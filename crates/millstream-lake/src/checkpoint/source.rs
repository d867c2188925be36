//! Rows of existing checkpoints, a row group at a time.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use parking_lot::Mutex;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::RowGroupMetaData;
use parquet::schema::types::SchemaDescriptor;

use super::actions::FILES;
use super::conform::conform;
use super::error::{CheckpointError, damaged, store_error};
use super::facts::CheckpointFile;
use super::placement::spark_hash;
use crate::parquet_file::RemoteFile;
use crate::store::TableStore;

/// Rows decoded at once.
const RECORD_BATCH_ROWS: usize = 16_384;

/// A file of a checkpoint, opened when its first row is wanted.
pub(super) struct SourceFile {
    store: TableStore,
    pub(super) part: CheckpointFile,
    opened: Mutex<Option<Opened>>,
}

/// Its bytes and its footer.
#[derive(Clone)]
pub(super) struct Opened {
    pub(super) file: RemoteFile,
    pub(super) metadata: ArrowReaderMetadata,
}

impl SourceFile {
    pub(super) fn new(store: &TableStore, part: &CheckpointFile) -> Self {
        Self { store: store.clone(), part: part.clone(), opened: Mutex::default() }
    }

    /// Opens the file, if that has not been done.
    pub(super) fn open(&self) -> Result<Opened, CheckpointError> {
        let mut opened = self.opened.lock();
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        let CheckpointFile { name, bytes, .. } = &self.part;
        let file =
            RemoteFile::open(&self.store, name, *bytes).map_err(store_error("read", name))?;
        // The writer's Arrow types do not matter: all rows end up in ours.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::load(&file, options).map_err(damaged(name))?;
        Ok(opened.insert(Opened { file, metadata }).clone())
    }

    /// Lets go of the bytes.
    pub(super) fn close(&self) {
        *self.opened.lock() = None;
    }

    /// The rows of a row group in `schema`, where columns are at most those of `schema`.
    pub(super) fn rows(
        &self,
        row_group: usize,
        schema: &SchemaRef,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, CheckpointError>>, CheckpointError> {
        let Opened { file, metadata } = self.open()?;
        let group = metadata.metadata().row_group(row_group);
        let mask = projection(metadata.parquet_schema(), group, schema);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_row_groups(vec![row_group])
            .with_projection(mask)
            .with_batch_size(RECORD_BATCH_ROWS)
            .build()
            .map_err(damaged(&self.part.name))?;
        let (schema, name) = (Arc::clone(schema), self.part.name.clone());
        Ok(reader.map(move |rows| {
            let rows = rows.and_then(|rows| conform(&rows, &schema));
            rows.map_err(damaged(&name))
        }))
    }

    /// The hashes of all its paths.
    pub(super) fn hashes(&self) -> Result<Vec<i32>, CheckpointError> {
        let mut hashes = Vec::with_capacity(usize::try_from(self.part.rows()).unwrap_or(0));
        let paths = paths_only();
        for row_group in 0..self.part.row_groups.len() {
            for rows in self.rows(row_group, &paths)? {
                let rows = rows?;
                for action in rows.columns() {
                    let action = super::actions::as_struct(action);
                    let paths = super::actions::as_text(action.column(0));
                    hashes.extend(paths.iter().flatten().map(|path| spark_hash(path.as_bytes())));
                }
            }
        }
        Ok(hashes)
    }
}

/// The columns of file actions, with nothing but their paths.
fn paths_only() -> SchemaRef {
    let fields = FILES.fields().iter().map(|action| {
        let DataType::Struct(fields) = action.data_type() else {
            unreachable!("an action is a struct")
        };
        let path: arrow::datatypes::Fields = fields.iter().take(1).cloned().collect();
        action.as_ref().clone().with_data_type(DataType::Struct(path))
    });
    Arc::new(arrow::datatypes::Schema::new(fields.collect::<Vec<_>>()))
}

/// The leaves that `schema` has and that are not null throughout.
///
/// Only where a leaf cannot be repeated do null counts tell that: an empty map counts as null too.
fn projection(
    columns: &SchemaDescriptor,
    group: &RowGroupMetaData,
    schema: &SchemaRef,
) -> ProjectionMask {
    let rows = group.num_rows().unsigned_abs();
    let wanted = columns.columns().iter().enumerate().filter(|(leaf, column)| {
        let nulls = group.column(*leaf).statistics().and_then(|facts| facts.null_count_opt());
        let is_null = column.max_rep_level() == 0 && nulls == Some(rows);
        !is_null && has_field(schema, column.path().parts())
    });
    let leaves: Vec<_> = wanted.map(|(leaf, _)| leaf).collect();
    ProjectionMask::leaves(columns, leaves)
}

fn has_field(schema: &SchemaRef, path: &[String]) -> bool {
    let [action, name, ..] = path else { return false };
    let Ok(action) = schema.field_with_name(action) else { return false };
    match action.data_type() {
        DataType::Struct(fields) => fields.find(name).is_some(),
        _ => false,
    }
}
