//! What is known of a checkpoint file without decoding it.
//!
//! A footer tells, per row group, how many files it adds and removes and when the oldest remove
//! happened. With the hashes of the paths in memory, 4 bytes for each, that is enough to say which
//! files of the last checkpoint a new one must change.

use std::sync::Arc;

use arrow::datatypes::Schema;
use parquet::arrow::ArrowSchemaConverter;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::statistics::Statistics;

use super::actions::{FILES, ROWS};
use super::error::{CheckpointError, damaged, store_error};
use crate::store::TableStore;

/// The key in a footer that marks files of ours, whose rows are where their hash says.
pub(super) const MARK: &str = "millstream.checkpoint";
/// The mark's value for rows placed as in a multi-part checkpoint.
pub(super) const MARK_VALUE: &str = "1";

/// Large enough for the footer of most files, so that one request does.
const FOOTER_BYTES_GUESSED: u64 = 256 << 10;

/// A row group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowGroupFacts {
    pub(super) rows: u64,
    pub(super) adds: u64,
    pub(super) removes: u64,
    /// The least `deletionTimestamp`; none if there is no remove.
    pub(super) oldest_remove_ms: Option<i64>,
}

impl RowGroupFacts {
    /// True if it is about no file.
    pub(super) fn is_other(&self) -> bool {
        self.adds + self.removes == 0
    }
}

/// A file of a checkpoint: a part, the only file of a classic one, or a sidecar.
#[derive(Clone, Debug)]
pub(super) struct CheckpointFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Milliseconds since the epoch.
    pub(super) modified_ms: i64,
    pub(super) row_groups: Vec<RowGroupFacts>,
    /// The hashes of all paths in it, or more of them; none if they were not needed yet.
    pub(super) hashes: Option<Arc<Vec<i32>>>,
    /// What its rows look like.
    pub(super) columns: Columns,
}

/// The columns of a checkpoint file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// Ours of a part or a classic checkpoint: row groups can be copied as bytes.
    Rows,
    /// Ours of a sidecar.
    Files,
    /// Another writer's; its facts may be unknown, and its rows anywhere.
    Foreign,
}

impl CheckpointFile {
    pub(super) fn rows(&self) -> u64 {
        self.row_groups.iter().map(|group| group.rows).sum()
    }

    pub(super) fn adds(&self) -> u64 {
        self.row_groups.iter().map(|group| group.adds).sum()
    }

    pub(super) fn removes(&self) -> u64 {
        self.row_groups.iter().map(|group| group.removes).sum()
    }

    /// True if it holds a remove from before `limit_ms`.
    pub(super) fn has_removes_before(&self, limit_ms: i64) -> bool {
        self.row_groups.iter().any(|group| group.oldest_remove_ms.is_some_and(|at| at < limit_ms))
    }

    /// What a footer says of the file.
    pub(super) fn of(name: &str, bytes: u64, modified_ms: i64, footer: &ParquetMetaData) -> Self {
        Self {
            name: name.to_owned(),
            bytes,
            modified_ms,
            row_groups: footer.row_groups().iter().map(facts).collect(),
            hashes: None,
            columns: columns(footer),
        }
    }
}

fn columns(footer: &ParquetMetaData) -> Columns {
    let marks = footer.file_metadata().key_value_metadata();
    let is_ours = marks.is_some_and(|marks| {
        marks.iter().any(|mark| mark.key == MARK && mark.value.as_deref() == Some(MARK_VALUE))
    });
    let has = |schema: &Schema| {
        parquet_schema(schema).root_schema() == footer.file_metadata().schema_descr().root_schema()
    };
    match is_ours {
        true if has(&ROWS) => Columns::Rows,
        true if has(&FILES) => Columns::Files,
        _ => Columns::Foreign,
    }
}

/// The Parquet form of our columns.
pub(super) fn parquet_schema(schema: &Schema) -> parquet::schema::types::SchemaDescriptor {
    let converter = ArrowSchemaConverter::new().schema_root("spark_schema");
    converter.convert(schema).expect("our columns have a Parquet form")
}

/// What the footer says of a row group; zero where it has no statistics, or no such column.
pub(super) fn facts(group: &RowGroupMetaData) -> RowGroupFacts {
    let rows = u64::try_from(group.num_rows()).unwrap_or(0);
    let present = |column: &str| {
        let nulls = statistics(group, column).and_then(Statistics::null_count_opt);
        nulls.map_or(0, |nulls| rows.saturating_sub(nulls))
    };
    let removes = present("remove.path");
    let oldest_remove_ms = match statistics(group, "remove.deletionTimestamp") {
        Some(Statistics::Int64(times)) if removes == present("remove.deletionTimestamp") => {
            times.min_opt().copied()
        }
        _ => None,
    };
    RowGroupFacts {
        rows,
        adds: present("add.path"),
        removes,
        // A remove without a time is as old as can be.
        oldest_remove_ms: (removes > 0).then(|| oldest_remove_ms.unwrap_or(0)),
    }
}

fn statistics<'a>(group: &'a RowGroupMetaData, column: &str) -> Option<&'a Statistics> {
    let column = group.columns().iter().find(|at| at.column_path().string() == column)?;
    column.statistics()
}

/// Reads a file's footer, which is at its end, and nothing else if it is not very long.
pub(super) fn read_footer(
    store: &TableStore,
    name: &str,
    bytes: u64,
) -> Result<ParquetMetaData, CheckpointError> {
    let mut wanted = FOOTER_BYTES_GUESSED.min(bytes);
    loop {
        let tail = store
            .get_range(name, bytes - wanted..bytes)
            .map_err(store_error("read the footer of", name))?;
        let mut reader = ParquetMetaDataReader::new();
        match reader.try_parse_sized(&tail, bytes) {
            Ok(()) => return reader.finish().map_err(damaged(name)),
            Err(ParquetError::NeedMoreData(more)) if wanted < bytes => {
                wanted = (more as u64).clamp(wanted + 1, bytes);
            }
            Err(error) => return Err(damaged(name)(error)),
        }
    }
}
