//! Tables whose files any reader of Parquet reads right.

use delta_kernel::scan::state::ScanFile;
use delta_kernel::table_features::{ColumnMappingMode, TableFeature};

use super::{Predicate, TableReader, files};
use crate::bucket::Bucket;
use crate::error::TableError;

/// A data file of which every row is a row of the table, under the table's own column names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainFile {
    /// Where it is: an absolute URL.
    pub url: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, milliseconds since the epoch.
    pub modified_ms: i64,
    /// How many rows it has, where the log says so.
    pub rows: Option<u64>,
    /// By partition column, in the table's order, its value as the log has it; `None` for NULL.
    pub partition_values: Vec<Option<String>>,
    /// Its bucket, where a writer that clusters rows has written it.
    pub bucket: Option<Bucket>,
}

impl TableReader {
    /// The files that may have rows for which `predicate` holds. `None` where a reader of Parquet
    /// alone would read them wrong: some have deletion vectors, or the table maps its columns to
    /// other names, or has widened a column's type.
    ///
    /// Origin: protocol, "Deletion Vectors", "Column Mapping" and "Type Widening".
    pub fn plain_files(
        &self,
        predicate: Option<&Predicate>,
    ) -> Result<Option<Vec<PlainFile>>, TableError> {
        let snapshot = self.snapshot();
        let configuration = snapshot.table_configuration();
        let is_widened = configuration.is_feature_supported(&TableFeature::TypeWidening)
            || configuration.is_feature_supported(&TableFeature::TypeWideningPreview);
        if is_widened || configuration.column_mapping_mode() != ColumnMappingMode::None {
            return Ok(None);
        }
        let schema = snapshot.schema();
        let predicate = predicate.and_then(|predicate| predicate.to_kernel(&schema));
        let plan = files::plan(self, &schema, predicate)?;
        if plan.files.iter().any(|file| file.dv_info.has_vector()) {
            return Ok(None);
        }
        let partitions = self.partition_columns();
        let plain = |file| self.plain_file(file, &partitions);
        plan.files.iter().map(plain).collect::<Result<Vec<_>, _>>().map(Some)
    }

    fn plain_file(&self, file: &ScanFile, partitions: &[String]) -> Result<PlainFile, TableError> {
        let damaged = |problem: String| TableError::FileDamaged {
            table: self.store().shown(),
            file: file.path.clone(),
            problem,
        };
        let snapshot = self.snapshot();
        let root = snapshot.table_root();
        let url = root.join(&file.path).map_err(|error| damaged(error.to_string()))?;
        let bytes = u64::try_from(file.size);
        let bytes = bytes.map_err(|_| damaged("the log gives it a negative size".to_owned()))?;
        // The log may state an empty text, which stands for NULL.
        let value = |column: &String| file.partition_values.get(column).cloned();
        let value = |column| value(column).filter(|value| !value.is_empty());
        Ok(PlainFile {
            url: url.into(),
            bytes,
            modified_ms: file.modification_time,
            rows: file.stats.as_ref().map(|stats| stats.num_records),
            partition_values: partitions.iter().map(value).collect(),
            bucket: Bucket::of_path(&file.path),
        })
    }
}
