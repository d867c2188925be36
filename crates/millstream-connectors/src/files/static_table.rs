//! All files at once: the static side of a join, or the input of a batch query.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::FlowContext;
use millstream_engine::api::source::{Failure, Records, StaticTable};
use millstream_store::env::Env;

use super::file_records::FileRecords;
use super::listing::{Found, Place};
use super::options::ReadOptions;
use super::read::Reader;
use super::uri;

/// The rows of all files in a directory.
pub struct FilesTable {
    reader: Reader,
    base_dir: PathBuf,
    env: Env,
}

impl FilesTable {
    /// The rows of the files that `options` name, which have the columns `schema`.
    pub fn new(options: ReadOptions, schema: SchemaRef, context: &FlowContext) -> Self {
        Self {
            reader: Reader::new(Arc::new(options), schema),
            base_dir: context.base_dir.clone(),
            env: context.env.clone(),
        }
    }

    async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Reader, &[Found]) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (reader, base_dir) = (self.reader.clone(), self.base_dir.clone());
        let work = move || {
            let (path, recursive) = (&reader.options.path, reader.options.recursive);
            let files = Place::new(&base_dir, path, recursive)?.list(&|_| true)?;
            work(&reader, &files)
        };
        self.env.spawn_blocking("files-table", work).join().await
    }
}

#[async_trait]
impl StaticTable for FilesTable {
    fn schema(&self) -> SchemaRef {
        self.reader.schema.clone()
    }

    async fn fingerprint(&self) -> Result<String, Failure> {
        self.in_background(|_, files| Ok(fingerprint(files))).await
    }

    async fn read(&self) -> Result<Vec<RecordBatch>, Failure> {
        self.in_background(|reader, files| {
            let all: Vec<usize> = (0..reader.schema.fields().len()).collect();
            let rows = files.iter().flat_map(|file| reader.read(file.clone(), &all));
            rows.collect()
        })
        .await
    }

    async fn records(&self) -> Result<Vec<Arc<dyn Records>>, Failure> {
        self.in_background(|reader, files| {
            let records = |file: &Found| -> Arc<dyn Records> {
                Arc::new(FileRecords { reader: reader.clone(), file: file.clone() })
            };
            Ok(files.iter().map(records).collect())
        })
        .await
    }
}

/// Names, sizes and times of all files.
fn fingerprint(files: &[Found]) -> String {
    let mut fingerprint = String::new();
    for Found { path, modified_ms, size } in files {
        let size = size.unwrap_or_default();
        let _ = writeln!(fingerprint, "{} {size} {modified_ms}", uri::encode(path));
    }
    fingerprint
}
