//! The files of a directory as a table at rest: all rows at once, as the static side of a join, or
//! file by file, as the input of a batch query.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::FlowContext;
use millstream_engine::api::filter::Filter;
use millstream_engine::api::snapshot::{
    DataFile, DataFiles, RowStream, Snapshot, SnapshotPart, read_on_a_thread,
};
use millstream_engine::api::source::{Failure, Records, StaticTable};
use millstream_store::env::Env;
use url::Url;

use super::file_records::FileRecords;
use super::listing::{FileStatus, Place};
use super::options::{Format, ReadOptions};
use super::read::FileReader;
use super::{parquet, uri};

/// About how many bytes a row has in a file; the number of rows is guessed from it.
const BYTES_PER_ROW: u64 = 64;

/// About how many rows files of so many bytes have.
pub(super) fn rows_estimate(bytes: u64) -> u64 {
    bytes / BYTES_PER_ROW
}

/// The rows of all files in a directory.
pub struct FilesTable {
    reader: FileReader,
    base_dir: PathBuf,
    env: Env,
}

impl FilesTable {
    /// The rows of the files that `options` name, which have the columns `schema`.
    pub fn new(options: ReadOptions, schema: SchemaRef, context: &FlowContext) -> Self {
        Self {
            reader: FileReader::new(Arc::new(options), schema),
            base_dir: context.base_dir.clone(),
            env: context.env.clone(),
        }
    }

    async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FileReader, &[FileStatus]) -> Result<T, Failure> + Send + 'static,
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
            let records = |file: &FileStatus| -> Arc<dyn Records> {
                Arc::new(FileRecords { reader: reader.clone(), file: file.clone() })
            };
            Ok(files.iter().map(records).collect())
        })
        .await
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>, Failure> {
        let env = self.env.clone();
        self.in_background(move |reader, files| {
            let bytes: u64 = files.iter().filter_map(|file| file.size).sum();
            let part = |file: &FileStatus| -> Arc<dyn SnapshotPart> {
                let (reader, file, env) = (reader.clone(), file.clone(), env.clone());
                Arc::new(FilePart { reader, file, env })
            };
            let parts = files.iter().map(part).collect();
            let (reader, files) = (reader.clone(), files.to_vec());
            Ok(Arc::new(FoundFiles { parts, bytes, reader, files, env }) as Arc<dyn Snapshot>)
        })
        .await
    }
}

/// The files that a directory had at one moment.
struct FoundFiles {
    parts: Vec<Arc<dyn SnapshotPart>>,
    bytes: u64,
    reader: FileReader,
    files: Vec<FileStatus>,
    env: Env,
}

/// The files themselves, where they are Parquet and each has the table's columns under exactly the
/// names of the table: others are found without regard to case, which is this crate's work.
fn plain_parquet(reader: &FileReader, files: &[FileStatus]) -> Result<Option<DataFiles>, Failure> {
    let options = &reader.options;
    let passes_over_files = options.ignore_corrupt_files || options.ignore_missing_files;
    if options.format != Format::Parquet || passes_over_files {
        return Ok(None);
    }
    let mut found = DataFiles::default();
    for file in files {
        let Some(plain) = parquet::plain(&file.path, &reader.schema)? else { return Ok(None) };
        let Ok(url) = Url::from_file_path(&file.path) else { return Ok(None) };
        found.files.push(DataFile {
            url: url.into(),
            bytes: plain.bytes,
            modified_ms: file.modified_ms,
            e_tag: None,
            rows: Some(plain.rows),
            partition_values: Vec::new(),
            bucket: None,
        });
    }
    Ok(Some(found))
}

#[async_trait]
impl Snapshot for FoundFiles {
    async fn parts(&self, _filters: &[Filter]) -> Result<Vec<Arc<dyn SnapshotPart>>, Failure> {
        Ok(self.parts.clone())
    }

    async fn data_files(&self, _filters: &[Filter]) -> Result<Option<DataFiles>, Failure> {
        let (reader, files) = (self.reader.clone(), self.files.clone());
        let look = move || plain_parquet(&reader, &files);
        self.env.spawn_blocking("files-footers", look).join().await
    }

    fn rows_estimate(&self) -> Option<u64> {
        Some(rows_estimate(self.bytes))
    }
}

/// A file of a table.
struct FilePart {
    reader: FileReader,
    file: FileStatus,
    env: Env,
}

impl SnapshotPart for FilePart {
    fn read(&self, projection: &[usize]) -> RowStream {
        let (reader, file, projection) =
            (self.reader.clone(), self.file.clone(), projection.to_vec());
        let open = move || Ok(reader.read(file, &projection));
        read_on_a_thread(&self.env, "files-read", open)
    }
}

/// Names, sizes and times of all files.
fn fingerprint(files: &[FileStatus]) -> String {
    let mut fingerprint = String::new();
    for FileStatus { path, modified_ms, size } in files {
        let size = size.unwrap_or_default();
        let _ = writeln!(fingerprint, "{} {size} {modified_ms}", uri::encode(path));
    }
    fingerprint
}
