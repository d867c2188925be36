//! A checkpoint in a local directory. Every call may block.
//!
//! A file is written under a temporary name in its own directory and then given its name, as
//! Spark does. Writing is the hot path: a log entry is `open`, `write`, `close`, `renameat2`.
//!
//! Old log entries are not simply deleted. ext4 avoids the inodes of files deleted within the last
//! minutes when it makes a file, and searches linearly for another: with some thousand deletions
//! behind it, making a file takes ten times as long as all the rest. So [`Directory::retire_many`]
//! empties old entries and keeps them under temporary names, and the next entries are written into
//! them. They are emptied first, so that an entry whose bytes a power cut took is an empty file
//! and not an old entry under a new number.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::rename::rename_if_absent;
use super::{Durability, PutError, StorageError};
use crate::env::Env;
use crate::error::Kind;

/// Bytes of a `PowerAside` file that are flushed at a time: some milliseconds' worth.
const PIECE_BYTES: usize = 512 << 10;
/// For the owner alone: a checkpoint holds rows of the query, and whoever may write it may make the
/// query skip or repeat others.
const DIRECTORY_MODE: u32 = 0o700;
pub(crate) const FILE_MODE: u32 = 0o600;
/// Emptied files kept per directory: what one purge sets free.
const SPARES_MAX: usize = 128;

/// A directory; clones share the spare files.
#[derive(Clone)]
pub(crate) struct Directory {
    inner: Arc<Inner>,
}

struct Inner {
    root: PathBuf,
    env: Env,
    /// Emptied files, by the directory they are in.
    spares: Mutex<HashMap<PathBuf, Vec<PathBuf>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        delete_all(std::mem::take(self.spares.get_mut()));
    }
}

impl Directory {
    pub(crate) fn new(root: &Path, env: &Env) -> Self {
        // A later change of the working directory must not move the checkpoint.
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        Self { inner: Arc::new(Inner { root, env: env.clone(), spares: Mutex::default() }) }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.inner.root
    }

    pub(crate) fn shown(&self, name: &str) -> String {
        if name.is_empty() {
            return self.inner.root.display().to_string();
        }
        self.inner.root.join(name).display().to_string()
    }

    /// Writes `name` whole unless it exists. All but `Process` flush the content; the name is
    /// flushed apart ([`Self::flush_names`]), so that many files can share that.
    pub(crate) fn put(
        &self,
        name: &str,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<(), PutError> {
        let path = self.inner.root.join(name);
        let failed = |error| put_error(&path, &error);
        let (temporary, mut file) = self.temporary(&path).map_err(failed)?;
        let mut write_flushed = |bytes| file.write_all(bytes).and_then(|()| file.sync_data());
        let written = match durability {
            Durability::Power => write_flushed(bytes),
            Durability::PowerAside => bytes.chunks(PIECE_BYTES).try_for_each(write_flushed),
            Durability::Process => file.write_all(bytes),
        };
        drop(file);
        written.and_then(|()| rename_if_absent(&temporary, &path)).map_err(|error| {
            // The temporary file is of no use; if deleting it fails too, the first error is
            // reported.
            let _ = std::fs::remove_file(&temporary);
            failed(error)
        })
    }

    /// Flushes the names in the directory of `name`.
    pub(crate) fn flush_names(&self, name: &str) -> Result<(), PutError> {
        let path = self.inner.root.join(name);
        let directory = path.parent().expect("a file of the checkpoint is in a directory");
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| put_error(&path, &error))
    }

    /// An empty file to be renamed to `path`: a spare one, or a new one.
    fn temporary(&self, path: &Path) -> io::Result<(PathBuf, File)> {
        let directory = path.parent().expect("a file of the checkpoint is in a directory");
        let spare = self.inner.spares.lock().get_mut(directory).and_then(Vec::pop);
        if let Some(spare) = spare
            && let Ok(file) = OpenOptions::new().write(true).open(&spare)
        {
            return Ok((spare, file));
        }
        let temporary = self.temporary_path(path);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(FILE_MODE);
        let create = || options.open(&temporary);
        // The directory is made only when a file in it cannot be: the hot path saves the question.
        let file = match create() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make_directory(directory)?;
                create()?
            }
            result => result?,
        };
        Ok((temporary, file))
    }

    fn temporary_path(&self, path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!(".{name}.{}.tmp", self.inner.env.random_uuid()))
    }

    pub(crate) fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StorageError> {
        let path = self.inner.root.join(name);
        match read_file(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(storage_error("read", &path, &error)),
        }
    }

    pub(crate) fn list(&self, name: &str) -> Result<Vec<String>, StorageError> {
        let path = self.inner.root.join(name);
        let failed = |error: &io::Error| storage_error("list", &path, error);
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed(&error))?;
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let mut name = entry.file_name().to_string_lossy().into_owned();
            if is_directory {
                name.push('/');
            }
            names.push(name);
        }
        Ok(names)
    }

    pub(crate) fn delete_many(&self, names: &[String]) -> Result<(), StorageError> {
        let mut result = Ok(());
        for name in names {
            let path = self.inner.root.join(name);
            result = result.and(delete(&path));
        }
        result
    }

    /// Takes log entries out of the log, and keeps their files for entries to come.
    pub(crate) fn retire_many(&self, names: &[String]) -> Result<(), StorageError> {
        let mut result = Ok(());
        for name in names {
            let path = self.inner.root.join(name);
            let directory = path.parent().unwrap_or(&self.inner.root).to_owned();
            let kept = self.inner.spares.lock().get(&directory).map_or(0, Vec::len);
            let retired = if kept < SPARES_MAX { self.empty(&path) } else { None };
            match retired {
                Some(spare) => {
                    self.inner.spares.lock().entry(directory).or_default().push(spare);
                }
                None => result = result.and(delete(&path)),
            }
        }
        result
    }

    /// Renames a file to a temporary name and empties it. `None`, with the file still there,
    /// where that does not go: the caller deletes it.
    fn empty(&self, path: &Path) -> Option<PathBuf> {
        let mut options = OpenOptions::new();
        let file = options.write(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        if !only_name(&file) {
            return None;
        }
        let temporary = self.temporary_path(path);
        // Renamed before it is emptied: an empty file under an entry's name would look like a torn
        // entry.
        rename_if_absent(path, &temporary).ok()?;
        if file.set_len(0).is_err() {
            let _ = std::fs::remove_file(&temporary);
            return None;
        }
        Some(temporary)
    }

    /// Deletes the files kept for entries to come.
    pub(crate) fn delete_spares(&self) {
        delete_all(std::mem::take(&mut *self.inner.spares.lock()));
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        let (from, to) = (self.inner.root.join(from), self.inner.root.join(to));
        rename_if_absent(&from, &to).map_err(|error| storage_error("move", &from, &error))
    }
}

/// The bytes of a file. A pipe is opened without waiting for somebody at its other end, so that it
/// can be refused, and a device without an end is not read.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        let problem = "it is no file: move it away, or restore the file that should be there";
        return Err(io::Error::new(ErrorKind::InvalidInput, problem));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(facts.len()).unwrap_or_default());
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes a directory with all above it, those that are missing for the owner alone. Its name is
/// flushed, so that what is flushed inside it can be found after a power cut.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// What cannot be deleted now is deleted as temporary when the checkpoint is next recovered.
fn delete_all(spares: HashMap<PathBuf, Vec<PathBuf>>) {
    for path in spares.into_values().flatten() {
        let _ = std::fs::remove_file(path);
    }
}

/// False if the file has other names: a backup of hard links must not be emptied with it.
fn only_name(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|facts| facts.is_file() && facts.nlink() == 1)
}

fn delete(path: &Path) -> Result<(), StorageError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(storage_error("delete", path, &error))
        }
        _ => Ok(()),
    }
}

pub(crate) fn put_error(path: &Path, error: &io::Error) -> PutError {
    let (path, cause) = (path.display().to_string(), error.to_string());
    match error.kind() {
        ErrorKind::AlreadyExists => PutError::AlreadyExists { path },
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            PutError::NoPermission { path, cause }
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => PutError::DiskFull { path, cause },
        _ => PutError::Other { path, cause, kind: Kind::Config },
    }
}

pub(crate) fn storage_error(action: &'static str, path: &Path, error: &io::Error) -> StorageError {
    let (path, cause) = (path.display().to_string(), error.to_string());
    StorageError { action, path, cause, kind: Kind::Config }
}

#[cfg(test)]
mod tests;
