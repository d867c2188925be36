//! Parquet files in an object store, as a table at rest.
//!
//! Queries read the rows of such files themselves; what is read here are the listing and the
//! footers, and rows only of files that others read differently. Other formats, and streams, are
//! for local files.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::{Buf as _, Bytes};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use millstream_engine::api::filter::Filter;
use millstream_engine::api::options::OptionError;
use millstream_engine::api::snapshot::{
    DataFile, DataFiles, RowStream, Snapshot, SnapshotPart, read_all, read_on_a_thread,
};
use millstream_engine::api::source::{Failure, StaticTable};
use millstream_store::env::Env;
use millstream_store::storage::cloud_settings;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use url::Url;

use super::error::FileError;
use super::options::ReadOptions;
use super::parquet as format;
use super::static_table::rows_estimate;

/// How much is read at a time where the end is not known: page headers, mostly.
const WINDOW_BYTES: u64 = 256 << 10;
/// Footers that are read at one time.
const FOOTERS_AT_ONCE: usize = 16;

/// A directory in an object store.
#[derive(Clone)]
struct Place {
    env: Env,
    store: Arc<dyn ObjectStore>,
    /// As written.
    url: Url,
    prefix: Path,
    recursive: bool,
}

impl Place {
    fn new(options: &ReadOptions, env: &Env) -> Result<Self, FileError> {
        let path = &options.path;
        let failed = |problem: String| unreadable(path, io::Error::other(problem));
        let url = Url::parse(path).map_err(|error| failed(error.to_string()))?;
        let opened = object_store::parse_url_opts(&url, cloud_settings());
        let (store, prefix) = opened.map_err(|error| failed(error.to_string()))?;
        let (env, store) = (env.clone(), Arc::from(store));
        Ok(Self { env, store, url, prefix, recursive: options.recursive })
    }

    fn failed(&self, error: object_store::Error) -> FileError {
        unreadable(self.url.as_str(), error.into())
    }

    /// The files that are there, in the order of their names; a path may also be that of one.
    async fn list(&self) -> Result<Vec<StoredFile>, FileError> {
        let listed: Vec<ObjectMeta> = if self.recursive {
            self.store.list(Some(&self.prefix)).try_collect().await.map_err(|e| self.failed(e))?
        } else {
            let listed = self.store.list_with_delimiter(Some(&self.prefix)).await;
            listed.map_err(|error| self.failed(error))?.objects
        };
        let mut found: Vec<ObjectMeta> =
            listed.into_iter().filter(|meta| self.is_data(meta)).collect();
        if found.is_empty() {
            match self.store.head(&self.prefix).await {
                Ok(meta) => found.push(meta),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        if found.is_empty() {
            return Err(FileError::NoSuchPath { path: self.url.as_str().into() });
        }
        found.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        let file =
            |meta| StoredFile { env: self.env.clone(), store: Arc::clone(&self.store), meta };
        Ok(found.into_iter().map(file).collect())
    }

    /// Whether a file below the directory is one of the table's: none of whose names is hidden.
    fn is_data(&self, meta: &ObjectMeta) -> bool {
        let below = meta.location.prefix_match(&self.prefix);
        let is_hidden = |part: &str| part.starts_with(['.', '_']);
        below.is_some_and(|mut parts| !parts.any(|part| is_hidden(part.as_ref()))) && meta.size > 0
    }

    fn url_of(&self, file: &StoredFile) -> String {
        let mut url = self.url.clone();
        // A URL's path is escaped but for what looks as if it were.
        url.set_path(&file.meta.location.as_ref().replace('%', "%25"));
        url.into()
    }
}

fn unreadable(url: &str, error: io::Error) -> FileError {
    FileError::Unreadable { path: PathBuf::from(url), error }
}

/// A file in a store, read on threads that may block.
#[derive(Clone)]
struct StoredFile {
    env: Env,
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
}

impl StoredFile {
    fn read(&self, start: u64, length: u64) -> Result<Bytes, object_store::Error> {
        let end = start.saturating_add(length).min(self.meta.size);
        // A file that was replaced meanwhile is refused: pages would not be those of its footer.
        let options = GetOptions {
            range: Some(GetRange::Bounded(start..end)),
            if_match: self.meta.e_tag.clone(),
            ..GetOptions::default()
        };
        let read = async { self.store.get_opts(&self.meta.location, options).await?.bytes().await };
        self.env.block_on_cores(read)
    }
}

impl Length for StoredFile {
    fn len(&self) -> u64 {
        self.meta.size
    }
}

impl ChunkReader for StoredFile {
    type T = Window;

    fn get_read(&self, start: u64) -> Result<Window, ParquetError> {
        Ok(Window { file: self.clone(), at: start, read: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.read(start, length as u64).map_err(|error| ParquetError::External(Box::new(error)))
    }
}

/// What follows in a file from some place on.
struct Window {
    file: StoredFile,
    at: u64,
    read: Bytes,
}

impl Read for Window {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.read.is_empty() && self.at < self.file.meta.size {
            self.read = self.file.read(self.at, WINDOW_BYTES)?;
            self.at += self.read.len() as u64;
        }
        let length = into.len().min(self.read.len());
        self.read.copy_to_slice(&mut into[..length]);
        Ok(length)
    }
}

/// The columns that the first file has.
pub(super) fn columns(options: &ReadOptions) -> Result<SchemaRef, OptionError> {
    let env = Env::real();
    let columns = env.blocking(|| {
        let place = Place::new(options, &env)?;
        let first = env.block_on_cores(place.list())?.swap_remove(0);
        let path = PathBuf::from(place.url_of(&first));
        format::columns(first, &path)
    });
    columns.map_err(|error: FileError| {
        let problem = format!("the columns cannot be read from the files: {error}");
        OptionError::of("path", problem, None)
    })
}

/// The Parquet files below a URL.
pub struct StoredTable {
    options: ReadOptions,
    schema: SchemaRef,
    env: Env,
}

impl StoredTable {
    /// The files that `options` name, which have the columns `schema`.
    pub fn new(options: ReadOptions, schema: SchemaRef, env: &Env) -> Self {
        Self { options, schema, env: env.clone() }
    }
}

#[async_trait]
impl StaticTable for StoredTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn fingerprint(&self) -> Result<String, Failure> {
        let files = Place::new(&self.options, &self.env)?.list().await?;
        let line = |StoredFile { meta, .. }: &StoredFile| {
            let modified = meta.last_modified.timestamp_micros();
            format!("{} {} {modified}\n", meta.location, meta.size)
        };
        Ok(files.iter().map(line).collect())
    }

    async fn read(&self) -> Result<Vec<RecordBatch>, Failure> {
        let snapshot = self.snapshot().await?;
        read_all(snapshot.as_ref(), self.schema.fields().len()).await
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>, Failure> {
        let place = Place::new(&self.options, &self.env)?;
        let files = place.list().await?;
        let schema = Arc::clone(&self.schema);
        Ok(Arc::new(FoundFiles { place, files, schema }))
    }
}

/// The files that were there at one moment.
struct FoundFiles {
    place: Place,
    files: Vec<StoredFile>,
    schema: SchemaRef,
}

#[async_trait]
impl Snapshot for FoundFiles {
    async fn parts(&self, _filters: &[Filter]) -> Result<Vec<Arc<dyn SnapshotPart>>, Failure> {
        let part = |file: &StoredFile| -> Arc<dyn SnapshotPart> {
            let (file, schema) = (file.clone(), Arc::clone(&self.schema));
            Arc::new(StoredPart { path: self.place.url_of(&file).into(), file, schema })
        };
        Ok(self.files.iter().map(part).collect())
    }

    async fn data_files(&self, _filters: &[Filter]) -> Result<Option<DataFiles>, Failure> {
        let look = |file: &StoredFile| {
            let (file, schema) = (file.clone(), Arc::clone(&self.schema));
            let (url, env) = (self.place.url_of(&file), self.place.env.clone());
            async move {
                let (bytes, modified_ms) =
                    (file.meta.size, file.meta.last_modified.timestamp_millis());
                let (path, e_tag) = (PathBuf::from(&url), file.meta.e_tag.clone());
                let look = move || format::plain_of(file, bytes, &path, &schema);
                let plain = env.spawn_blocking("files-footers", look).join().await?;
                let found = plain.map(|plain| DataFile {
                    url,
                    bytes,
                    modified_ms,
                    e_tag,
                    rows: Some(plain.rows),
                    partition_values: Vec::new(),
                    bucket: None,
                });
                Ok::<_, Failure>(found)
            }
        };
        let looks = stream::iter(self.files.iter().map(look).collect::<Vec<_>>());
        let found: Vec<Option<DataFile>> = looks.buffered(FOOTERS_AT_ONCE).try_collect().await?;
        let files: Option<Vec<DataFile>> = found.into_iter().collect();
        Ok(files.map(|files| DataFiles { files, ..DataFiles::default() }))
    }

    fn rows_estimate(&self) -> Option<u64> {
        Some(rows_estimate(self.files.iter().map(|file| file.meta.size).sum()))
    }
}

struct StoredPart {
    file: StoredFile,
    path: PathBuf,
    schema: SchemaRef,
}

impl SnapshotPart for StoredPart {
    fn read(&self, projection: &[usize]) -> RowStream {
        let (file, path, schema) = (self.file.clone(), self.path.clone(), Arc::clone(&self.schema));
        let projection = projection.to_vec();
        let open = move || {
            let rows = format::rows(file, path, &schema, &projection)?;
            Ok(rows.map(|rows| Ok(rows?)))
        };
        read_on_a_thread(&self.file.env, "files-read", open)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn a_file_that_was_replaced_is_not_mixed_with_what_it_was() {
        let (store, path, env) = (Arc::new(InMemory::new()), Path::from("file"), Env::real());
        store.put(&path, vec![0; 9].into()).await.expect("written");
        let meta = store.head(&path).await.expect("it is there");
        let file = StoredFile { env: env.clone(), store: Arc::clone(&store) as _, meta };
        let read = || {
            let file = file.clone();
            env.spawn_blocking("reader", move || file.get_bytes(3, 4)).join()
        };
        assert_eq!(read().await.expect("it is there"), vec![0; 4]);
        store.put(&path, vec![1; 9].into()).await.expect("written");
        assert!(read().await.is_err());
    }
}
