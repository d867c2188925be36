//! Writes each micro-batch as one file per partition, and a manifest entry that makes it count.
//!
//! Micro-batch N becomes visible in these steps:
//!
//! 1. the rows of each partition go to `.part-N-P.json` and are forced to the disk. Readers ignore
//!    names that start with a dot;
//! 2. the files are renamed to `part-N-P.json`, each whole in one step;
//! 3. the entry N of the manifest `_spark_metadata` lists them. From now on N is published.
//!
//! A crash before 3 leaves files of N without an entry. `open` removes them, and the replay of N,
//! which has the same rows, writes them again under the same names. So at any moment between
//! restarts each row stands in exactly one whole file, and a reader that goes by names, like our
//! own source, reads each once, even if it saw a file before the crash. Spark goes by the manifest
//! instead and never sees a micro-batch in part.
//!
//! Manifest entry N, the file `_spark_metadata/N`, has a line per file; every tenth is called
//! `N.compact` and repeats all before it:
//!
//! ```text
//! v1
//!
//! {"path":"file:///out/part-...","size":9,"isDir":false,"modificationTime":1767225600000,"blockReplication":1,"blockSize":33554432,"action":"add"}
//! ```
//!
//! Origin: Spark's `FileStreamSinkLog`. `_millstream/query_id` is ours: a directory belongs to one
//! query, because the batch ids of another would be taken for repeats.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::connector::FlowContext;
use millstream_engine::sink::{
    Acknowledgement, BatchId, Delivery, Failure, Output, Published, Sink,
};
use millstream_store::env::Env;
use serde::Serialize;

use super::error::FileError;
use super::listing::modified_ms;
use super::options::WriteOptions;
use super::{log, uri, write};

const MANIFEST: &str = "_spark_metadata";
const VERSION: &str = "v1";
/// What Hadoop says of a local file; nobody reads it.
const LOCAL_BLOCK_BYTES: u64 = 33_554_432;

/// Writes micro-batches to a directory.
pub struct FilesSink {
    directory: Arc<Directory>,
    env: Env,
    /// The last micro-batch in the manifest.
    last: Option<BatchId>,
    /// Whether the directory may hold a micro-batch in part.
    is_open: bool,
}

struct Directory {
    path: PathBuf,
    options: WriteOptions,
    schema: SchemaRef,
    query_id: String,
}

impl FilesSink {
    /// A sink for rows of `schema`.
    pub fn new(options: WriteOptions, schema: SchemaRef, context: &FlowContext) -> Self {
        let path = crate::paths::resolve(&context.base_dir, &options.path);
        let path = std::path::absolute(&path).unwrap_or(path);
        let query_id = context.query_id.clone();
        let directory = Arc::new(Directory { path, options, schema, query_id });
        Self { directory, env: context.env.clone(), last: None, is_open: false }
    }
}

#[async_trait]
impl Sink for FilesSink {
    fn description(&self) -> String {
        format!("FileSink[{}]", uri::encode(&self.directory.path))
    }

    fn delivery(&self) -> Delivery {
        Delivery::IdempotentById
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        let directory = self.directory.clone();
        let open = move || directory.open();
        self.last = self.env.spawn_blocking("files-open", open).join().await?;
        self.is_open = true;
        Ok(self.last.map(|batch_id| Published { batch_id, reached: None }))
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        if !self.is_open {
            self.open().await?;
        }
        let batch_id = output.batch_id;
        if self.last.is_some_and(|last| batch_id <= last) {
            return Ok(Acknowledgement::Done);
        }
        let (directory, last) = (self.directory.clone(), self.last);
        let publish = move || directory.publish(last, batch_id, &output.partitions);
        // An error may leave files of this micro-batch: another attempt starts with `open`.
        self.is_open = false;
        self.env.spawn_blocking("files-publish", publish).join().await?;
        self.is_open = true;
        self.last = Some(batch_id);
        Ok(Acknowledgement::Done)
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// A line of the manifest.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    path: String,
    size: u64,
    is_dir: bool,
    modification_time: i64,
    block_replication: u32,
    block_size: u64,
    action: &'static str,
}

impl Directory {
    fn manifest(&self) -> PathBuf {
        self.path.join(MANIFEST)
    }

    fn open(&self) -> Result<Option<BatchId>, FileError> {
        let manifest = self.manifest();
        fs::create_dir_all(&manifest).map_err(|error| FileError::writing(&manifest, error))?;
        let entries = self.entries()?;
        let last = entries.last_key_value().map(|(entry, _)| BatchId(*entry));
        self.claim(last.is_some())?;
        self.remove_unpublished(last)?;
        sync_directory(&self.path)?;
        Ok(last)
    }

    /// The manifest's entries and their file names.
    fn entries(&self) -> Result<BTreeMap<u64, String>, FileError> {
        let names = names(&self.manifest())?;
        let entry = |name: String| {
            let (entry, _) = log::parse_name(&name)?;
            Some((u64::try_from(entry).ok()?, name))
        };
        Ok(names.into_iter().filter_map(entry).collect())
    }

    /// Makes the directory this query's own, or errors if micro-batches of another are in it.
    fn claim(&self, is_used: bool) -> Result<(), FileError> {
        let directory = self.path.join("_millstream");
        let path = directory.join("query_id");
        match fs::read_to_string(&path) {
            Ok(found) if found.trim() == self.query_id => return Ok(()),
            Ok(found) if is_used => {
                let (path, found) = (self.path.clone(), found.trim().to_owned());
                return Err(FileError::OtherQuery { path, found, ours: self.query_id.clone() });
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(FileError::Unreadable { path, error }),
        }
        let claim = || {
            fs::create_dir_all(&directory)?;
            let temporary = directory.join(".query_id.tmp");
            write_synced(&temporary, self.query_id.as_bytes())?;
            fs::rename(&temporary, &path)
        };
        claim().map_err(|error| FileError::writing(&path, error))?;
        sync_directory(&directory)
    }

    /// Removes temporary files, and files of micro-batches after `last`.
    fn remove_unpublished(&self, last: Option<BatchId>) -> Result<(), FileError> {
        let is_unpublished = |name: &str| {
            let Some(batch_id) = part_batch_id(name.trim_start_matches('.')) else { return false };
            name.starts_with('.') || last.is_none_or(|last| batch_id > last)
        };
        for name in names(&self.path)?.iter().filter(|name| is_unpublished(name)) {
            remove(&self.path.join(name))?;
        }
        let manifest = self.manifest();
        for name in names(&manifest)?.iter().filter(|name| name.starts_with(".millstream-")) {
            remove(&manifest.join(name))?;
        }
        Ok(())
    }

    fn publish(
        &self,
        last: Option<BatchId>,
        batch_id: BatchId,
        partitions: &[Vec<RecordBatch>],
    ) -> Result<(), FileError> {
        // Only the link below decides; this spares the files of a micro-batch that is published.
        let entry = self.manifest().join(log::name(signed(batch_id.0)));
        if entry.exists() {
            return Err(FileError::Occupied { path: entry });
        }
        let mut written = Vec::new();
        for (partition, rows) in partitions.iter().enumerate() {
            if rows.iter().all(|rows| rows.num_rows() == 0) {
                continue;
            }
            let name = self.part_name(batch_id, partition);
            let temporary = self.path.join(format!(".{name}"));
            write::write(&temporary, &self.options, &self.schema, rows)
                .map_err(|error| FileError::writing(&temporary, error))?;
            written.push((temporary, self.path.join(name)));
        }
        let mut lines = String::new();
        for (temporary, path) in &written {
            let renamed = fs::rename(temporary, path).and_then(|()| manifest_line(path));
            lines.push_str(&renamed.map_err(|error| FileError::writing(path, error))?);
        }
        if !written.is_empty() {
            sync_directory(&self.path)?;
        }
        self.fill_gap(last, batch_id)?;
        self.append(batch_id.0, &lines)
    }

    fn part_name(&self, batch_id: BatchId, partition: usize) -> String {
        let extension = self.options.format.extension();
        format!("part-{:020}-{partition:05}.{extension}", batch_id.0)
    }

    /// Writes empty entries where a directory is used from a later micro-batch on: Spark reads the
    /// manifest from its last compact entry to its end and stops at a missing one.
    fn fill_gap(&self, last: Option<BatchId>, batch_id: BatchId) -> Result<(), FileError> {
        let next = last.map_or(0, |last| last.next().0);
        let compact = (next..batch_id.0).rev().find(|entry| is_compact(*entry));
        (compact.unwrap_or(next)..batch_id.0).try_for_each(|entry| self.append(entry, ""))
    }

    /// Writes the entry `entry` of the manifest.
    fn append(&self, entry: u64, lines: &str) -> Result<(), FileError> {
        let mut content = VERSION.to_owned();
        if is_compact(entry) {
            content.push_str(&self.lines_before(entry)?);
        }
        content.push_str(lines);
        let manifest = self.manifest();
        let name = log::name(signed(entry));
        let (temporary, path) = (manifest.join(format!(".millstream-{name}")), manifest.join(name));
        let put = || {
            write_synced(&temporary, content.as_bytes())?;
            // Unlike a rename, a link does not replace the entry of another writer.
            fs::hard_link(&temporary, &path)?;
            fs::remove_file(&temporary)
        };
        match put() {
            Ok(()) => sync_directory(&manifest),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(FileError::Occupied { path })
            }
            Err(error) => Err(FileError::writing(&path, error)),
        }
    }

    /// The lines of all entries before `entry`, each with a line break before it.
    fn lines_before(&self, entry: u64) -> Result<String, FileError> {
        let entries = self.entries()?;
        let compact = entries.range(..entry).rev().find(|(entry, _)| is_compact(**entry));
        let first = compact.map_or(0, |(entry, _)| *entry);
        let mut lines = String::new();
        for name in entries.range(first..entry).map(|(_, name)| name) {
            let path = self.manifest().join(name);
            let text = fs::read_to_string(&path)
                .map_err(|error| FileError::Unreadable { path: path.clone(), error })?;
            match text.strip_prefix(VERSION) {
                Some(rest) => lines.push_str(rest.trim_end()),
                None => {
                    let problem = format!("its first line is not {VERSION}");
                    return Err(FileError::Log { name: path.display().to_string(), problem });
                }
            }
        }
        Ok(lines)
    }
}

fn signed(entry: u64) -> i64 {
    i64::try_from(entry).expect("batch ids are counted from 0")
}

fn is_compact(entry: u64) -> bool {
    log::is_compact(signed(entry))
}

/// The batch id in `part-<batch id>-<partition>.<extension>`.
fn part_batch_id(name: &str) -> Option<BatchId> {
    let (batch_id, rest) = name.strip_prefix("part-")?.split_once('-')?;
    let is_ours = batch_id.len() == 20 && rest.split_once('.')?.0.parse::<u32>().is_ok();
    Some(BatchId(batch_id.parse().ok().filter(|_| is_ours)?))
}

fn manifest_line(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    let line = Line {
        path: uri::encode(path),
        size: metadata.len(),
        is_dir: false,
        modification_time: modified_ms(&metadata),
        block_replication: 1,
        block_size: LOCAL_BLOCK_BYTES,
        action: "add",
    };
    Ok(format!("\n{}", serde_json::to_string(&line).expect("text and numbers")))
}

fn names(directory: &Path) -> Result<Vec<String>, FileError> {
    let unreadable = |error| FileError::Unreadable { path: directory.to_owned(), error };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        // Names that are not text are none of ours.
        names.extend(entry.map_err(unreadable)?.file_name().into_string());
    }
    Ok(names)
}

fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(FileError::writing(path, error)),
        _ => Ok(()),
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes what was created, renamed or removed in `directory` survive a loss of power.
fn sync_directory(directory: &Path) -> Result<(), FileError> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| FileError::writing(directory, error))
}
