//! What is known of a scan's rows before it is run: by this the planner orders joins and chooses
//! the side that is kept in memory.
//!
//! The footer of a Parquet file says how many rows it has and, by column, bytes, nulls and bounds.
//! A scan reads footers anyway, and the cache of metadata keeps them for it. Counts of rows are
//! exact, so `count(*)` reads no rows; all else is taken for an estimate, as writers cut bounds of
//! long texts and disagree about NaN.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use futures::{StreamExt, stream};
use object_store::ObjectStore;

/// Of more files the footers are not read while a query is planned.
const FOOTERS_MAX: usize = 64;
/// Footers that are read at one time.
const FOOTERS_AT_ONCE: usize = 8;

/// Gives the files what their footers say, unless they are many. From a store elsewhere, footers
/// are read only where the table's log does not count the rows: over a network they take longer
/// than a better order of joins saves. A footer that cannot be read makes no error here: the scan
/// will say what is wrong with the file.
pub(super) async fn add_footers(
    files: Vec<PartitionedFile>,
    schema: &SchemaRef,
    state: &dyn Session,
    (url, store): (&ObjectStoreUrl, &Arc<dyn ObjectStore>),
) -> Vec<PartitionedFile> {
    let is_here = url.as_str().starts_with("file:");
    let is_counted = files.iter().all(|file| file.statistics.is_some());
    if files.len() > FOOTERS_MAX || (is_counted && !is_here) {
        return files;
    }
    let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
    let with_footer = |file: PartitionedFile| {
        let cache = Arc::clone(&cache);
        async move {
            let footer = DFParquetMetadata::new(store.as_ref(), &file.object_meta)
                .with_file_metadata_cache(Some(cache));
            match footer.fetch_statistics(schema).await {
                Ok(found) => with_statistics(file, found),
                Err(_) => file,
            }
        }
    };
    stream::iter(files).map(with_footer).buffered(FOOTERS_AT_ONCE).collect().await
}

/// A file of so many rows, of whose columns nothing is known.
pub(super) fn with_rows(file: PartitionedFile, rows: u64, schema: &SchemaRef) -> PartitionedFile {
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    with_statistics(file, Statistics::new_unknown(schema).with_num_rows(Precision::Exact(rows)))
}

fn with_statistics(file: PartitionedFile, found: Statistics) -> PartitionedFile {
    let rows = found.num_rows;
    let estimates = Statistics { num_rows: rows, ..found.to_inexact() };
    let file = file.with_statistics(Arc::new(estimates));
    nulls_of_partitions(file, &rows)
}

/// DataFusion takes it that a partition's value is never null; Delta's may be.
fn nulls_of_partitions(mut file: PartitionedFile, rows: &Precision<usize>) -> PartitionedFile {
    if file.partition_values.iter().all(|value| !value.is_null()) {
        return file;
    }
    let Some(statistics) = file.statistics.take() else { return file };
    let mut statistics = Arc::unwrap_or_clone(statistics);
    let first = statistics.column_statistics.len() - file.partition_values.len();
    let columns = statistics.column_statistics[first..].iter_mut();
    let is_null = |(_, value): &(_, &ScalarValue)| value.is_null();
    for (column, _) in columns.zip(&file.partition_values).filter(is_null) {
        *column = ColumnStatistics { null_count: *rows, ..ColumnStatistics::new_unknown() };
    }
    file.statistics = Some(Arc::new(statistics));
    file
}

/// What is known of all the files' rows; nothing where nothing is known of one of them.
pub(super) fn of_all(files: &[PartitionedFile], schema: &SchemaRef) -> Result<Statistics> {
    let known: Option<Vec<&Statistics>> =
        files.iter().map(|file| file.statistics.as_deref()).collect();
    match known {
        Some(known) => Statistics::try_merge_iter(known, schema),
        None => Ok(Statistics::new_unknown(schema)),
    }
}
