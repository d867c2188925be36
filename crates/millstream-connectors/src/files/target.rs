//! What a sink of files is opened with: the directory, the options, the columns and the query.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_store::env::Env;

use super::options::WriteOptions;

/// Where a directory is, and what is written into it.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) options: Arc<WriteOptions>,
    pub(super) schema: SchemaRef,
    /// Empty for a query that runs once.
    pub(super) query_id: String,
    pub(super) env: Env,
}
