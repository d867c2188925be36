//! The rows of a scan of the log, as they are before the protocol library makes files of them.

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::scan::ScanMetadata;
use delta_kernel::{KernelError, KernelResult};

/// The rows of `metadata`, and the paths in them. Not all are live files: see [`is_file`].
pub(crate) fn scanned_rows(metadata: &ScanMetadata) -> KernelResult<(&RecordBatch, &StringArray)> {
    let data = metadata.scan_files.data().any_ref();
    let Some(data) = data.downcast_ref::<ArrowEngineData>() else {
        return Err(KernelError::generic("a scan gives rows that are not Arrow's"));
    };
    let rows = data.record_batch();
    let paths = rows.column_by_name("path").ok_or_else(|| KernelError::missing_column("path"))?;
    Ok((rows, paths.as_string::<i32>()))
}

/// Whether row `row` of [`scanned_rows`] is a live file.
pub(crate) fn is_file(metadata: &ScanMetadata, paths: &StringArray, row: usize) -> bool {
    let selected = metadata.scan_files.selection_vector();
    selected.get(row).copied().unwrap_or(true) && paths.is_valid(row)
}
