//! Lines of a commit, as far as a stream of the table looks at them.

use std::collections::HashMap;

use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A line of a commit with what a file's rows need.
#[derive(Deserialize)]
pub(super) struct FileLine {
    pub(super) add: Option<FileAction>,
    pub(super) remove: Option<FileAction>,
    pub(super) cdc: Option<FileAction>,
}

/// A file that a commit adds or removes, or one that holds its changes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileAction {
    /// As the log has it: encoded as in a URL.
    pub(super) path: String,
    pub(super) data_change: bool,
    /// A `remove` need not say it.
    pub(super) partition_values: Option<HashMap<String, Option<String>>>,
    pub(super) size: Option<i64>,
    #[serde(default)]
    pub(super) modification_time: i64,
    pub(super) stats: Option<String>,
    pub(super) deletion_vector: Option<DeletionVectorDescriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statistics {
    num_records: Option<u64>,
}

impl FileAction {
    /// Rows that are in the file, deleted ones among them, if the statistics tell.
    pub(super) fn rows_in_file(&self) -> Option<u64> {
        let statistics: Statistics = serde_json::from_str(self.stats.as_deref()?).ok()?;
        statistics.num_records
    }
}

/// A line of a commit with what decides about the commit as a whole.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GlanceLine {
    pub(super) add: Option<FileGlance>,
    pub(super) remove: Option<FileGlance>,
    pub(super) cdc: Option<IgnoredAny>,
    pub(super) meta_data: Option<Metadata>,
    pub(super) protocol: Option<IgnoredAny>,
    pub(super) commit_info: Option<CommitInfo>,
}

/// A file action without the facts of its file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileGlance {
    pub(super) path: String,
    pub(super) data_change: bool,
    pub(super) deletion_vector: Option<IgnoredAny>,
}

/// The table's schema and properties from a version on.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) id: String,
    pub(super) schema_string: String,
    #[serde(default)]
    pub(super) partition_columns: Vec<String>,
    #[serde(default)]
    pub(super) configuration: HashMap<String, Option<String>>,
}

/// The property that makes a table record its changes.
const CHANGE_FEED: &str = "delta.enableChangeDataFeed";

impl Metadata {
    pub(super) fn has_change_feed(&self) -> bool {
        let property = self.configuration.iter().find(|(key, _)| key.as_str() == CHANGE_FEED);
        property.is_some_and(|(_, value)| is_true(value.as_deref()))
    }
}

/// Whether the properties `configuration` make a table record its changes.
pub(super) fn has_change_feed(configuration: &HashMap<String, String>) -> bool {
    is_true(configuration.get(CHANGE_FEED).map(String::as_str))
}

fn is_true(value: Option<&str>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommitInfo {
    pub(super) operation: Option<String>,
    operation_metrics: Option<HashMap<String, serde_json::Value>>,
    pub(super) in_commit_timestamp: Option<i64>,
}

impl CommitInfo {
    /// A MERGE that says it has changed no row, and has written files anew nevertheless.
    pub(super) fn is_merge_of_nothing(&self) -> bool {
        let is_none = |metric: &str| {
            let metrics = self.operation_metrics.as_ref();
            let value = metrics.and_then(|metrics| metrics.get(metric));
            value.is_some_and(|value| value.as_str() == Some("0") || value.as_u64() == Some(0))
        };
        self.operation.as_deref() == Some("MERGE")
            && ["numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"]
                .into_iter()
                .all(is_none)
    }
}
