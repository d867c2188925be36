//! A local disk, with the promise that object stores make: what was put is there after a power cut.
//!
//! A file is written under a hidden temporary name, flushed, and only then given its own name: by a
//! link if the name must be free, which is the local form of put-if-absent, else by a rename. Last
//! the directory is flushed. The rest is `object_store`'s.
//!
//! What is written in the background is flushed in pieces, and gives way between them: a flush of
//! any file has to wait for what others have written since the last one.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use millstream_store::env::Env;
use millstream_store::storage::make_directories;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::disk_priority::DiskPriority;

const STORE: &str = "local disk";
/// Bytes that are flushed together in the background: some milliseconds' worth.
const PIECE_BYTES: usize = 512 << 10;

/// The local file system from its root on.
#[derive(Debug)]
pub(super) struct LocalDisk {
    files: LocalFileSystem,
    env: Env,
}

impl LocalDisk {
    pub(super) fn new(env: &Env) -> Self {
        Self { files: LocalFileSystem::new(), env: env.clone() }
    }
}

impl fmt::Display for LocalDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(STORE)
    }
}

#[async_trait]
impl ObjectStore for LocalDisk {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let path = self.files.path_to_filesystem(location)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", self.env.random_uuid()));
        let is_new = options.mode == PutMode::Create;
        let disk_priority = options.extensions.get::<Arc<DiskPriority>>().cloned();
        let write = move || {
            put(&temporary, &path, &payload, is_new, disk_priority.as_deref()).map_err(|error| {
                let _ = fs::remove_file(&temporary);
                store_error(&path, error)
            })
        };
        self.env.spawn_blocking("lake-put", write).join().await?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.files.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path = self.files.path_to_filesystem(location)?;
        // Opening a pipe would wait for somebody at its other end, and some devices have no end.
        if fs::metadata(&path).is_ok_and(|facts| !facts.is_file() && !facts.is_dir()) {
            let problem = format!("{} is no file", path.display());
            let source = Box::new(io::Error::new(ErrorKind::InvalidInput, problem));
            return Err(Error::Generic { store: STORE, source });
        }
        self.files.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }
}

fn put(
    temporary: &FilePath,
    path: &FilePath,
    bytes: &PutPayload,
    is_new: bool,
    gives_way_to: Option<&DiskPriority>,
) -> io::Result<()> {
    let mut file = create(temporary)?;
    for bytes in bytes {
        match gives_way_to {
            None => file.write_all(bytes)?,
            Some(disk_priority) => write_in_pieces(&mut file, bytes, disk_priority)?,
        }
    }
    file.sync_data()?;
    drop(file);
    if let Some(disk_priority) = gives_way_to {
        disk_priority.give_way();
    }
    if is_new {
        // Unlike a rename, a link does not replace another writer's file.
        fs::hard_link(temporary, path)?;
        fs::remove_file(temporary)?;
    } else {
        forget_checksum(path)?;
        fs::rename(temporary, path)?;
    }
    flush_directory(path)
}

fn write_in_pieces(file: &mut File, bytes: &[u8], disk_priority: &DiskPriority) -> io::Result<()> {
    for piece in bytes.chunks(PIECE_BYTES) {
        file.write_all(piece)?;
        // The last one is flushed by the caller.
        if bytes.len() > PIECE_BYTES {
            file.sync_data()?;
            disk_priority.give_way();
        }
    }
    Ok(())
}

/// Removes the checksum that Hadoop's local file system keeps beside a file it wrote: Spark would
/// hold the new content against it, and read again for seconds before it gives up.
fn forget_checksum(path: &FilePath) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match fs::remove_file(path.with_file_name(format!(".{name}.crc"))) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn create(path: &FilePath) -> io::Result<File> {
    let create = || OpenOptions::new().write(true).create_new(true).open(path);
    match create() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = path.parent().unwrap_or(path);
            make_directories(directory)?;
            create()
        }
        result => result,
    }
}

/// Flushes the directory that `path` is in.
fn flush_directory(path: &FilePath) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

fn store_error(path: &FilePath, error: io::Error) -> Error {
    let path: PathBuf = path.to_owned();
    let (shown, source) = (path.display().to_string(), Box::new(error) as Box<io::Error>);
    match source.kind() {
        ErrorKind::AlreadyExists => Error::AlreadyExists { path: shown, source },
        ErrorKind::NotFound => Error::NotFound { path: shown, source },
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Error::PermissionDenied { path: shown, source }
        }
        _ => Error::Generic { store: STORE, source },
    }
}
