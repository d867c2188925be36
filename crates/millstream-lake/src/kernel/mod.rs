//! What the protocol library asks of its host: storage, JSON, Parquet and expressions.
//!
//! The library's own default engine brings a second HTTP stack, buffers row groups of a million
//! rows and spawns tasks; this one is a thin layer over [`TableStore`].

mod faults;
mod json;
mod parquet;
pub mod probe;
mod read_ahead;
pub(crate) mod scanned;
mod snapshot;
mod storage;

use std::sync::Arc;

use delta_kernel::engine::arrow_expression::ArrowEvaluationHandler;
use delta_kernel::{
    Engine, EvaluationHandler, FileMeta, JsonHandler, KernelError, KernelResult, ParquetHandler,
    StorageHandler,
};
use object_store::Error;
use url::Url;

use crate::store::TableStore;
use faults::Faults;

/// The protocol library's host, for one table.
pub(crate) struct KernelEngine {
    store: TableStore,
    faults: Arc<Faults>,
    storage: Arc<storage::Storage>,
    json: Arc<json::Json>,
    parquet: Arc<parquet::Parquet>,
    evaluation: Arc<ArrowEvaluationHandler>,
}

impl KernelEngine {
    pub(crate) fn new(store: &TableStore) -> Self {
        let faults = Arc::new(Faults::default());
        let (shared, store) = (|| Arc::clone(&faults), store.clone());
        Self {
            storage: Arc::new(storage::Storage { store: store.clone(), faults: shared() }),
            json: Arc::new(json::Json { store: store.clone(), faults: shared() }),
            parquet: Arc::new(parquet::Parquet { store: store.clone(), faults: shared() }),
            faults: shared(),
            store,
            evaluation: Arc::new(ArrowEvaluationHandler {}),
        }
    }

    /// How many rows the Parquet file `file` has, by its footer.
    pub(crate) fn rows_in(&self, file: &FileMeta) -> KernelResult<u64> {
        self.parquet.rows_in(file)
    }
}

impl Engine for KernelEngine {
    fn evaluation_handler(&self) -> Arc<dyn EvaluationHandler> {
        self.evaluation.clone()
    }

    fn storage_handler(&self) -> Arc<dyn StorageHandler> {
        self.storage.clone()
    }

    fn json_handler(&self) -> Arc<dyn JsonHandler> {
        self.json.clone()
    }

    fn parquet_handler(&self) -> Arc<dyn ParquetHandler> {
        self.parquet.clone()
    }
}

/// The file at `url`, which must be one of the table's.
fn name_of(store: &TableStore, url: &Url) -> Result<String, KernelError> {
    store.name_of(url).ok_or_else(|| {
        KernelError::generic(format!("{url} is not below the table's directory {}", store.url()))
    })
}

fn kernel_error(url: &Url, error: Error) -> KernelError {
    match error {
        Error::NotFound { .. } => KernelError::FileNotFound(url.to_string()),
        Error::AlreadyExists { .. } => KernelError::FileAlreadyExists(url.to_string()),
        error => KernelError::ObjectStore(error),
    }
}
