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

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile, RealDisk, make_directory};
use super::{Durability, PutError, StorageError};
use crate::env::Env;
use crate::error::Kind;

/// Bytes of a `PowerAside` file that are flushed at a time: some milliseconds' worth.
const PIECE_BYTES: usize = 512 << 10;
/// Emptied files kept per directory: what one purge sets free.
const SPARES_MAX: usize = 128;

/// A directory; clones share the spare files.
#[derive(Clone)]
pub(crate) struct Directory {
    inner: Arc<Inner>,
}

struct Inner {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    env: Env,
    /// Directories whose own names are flushed, as those of all above them up to the root.
    found: Mutex<BTreeSet<PathBuf>>,
    /// Emptied files, by the directory they are in.
    spares: Mutex<BTreeMap<PathBuf, Vec<PathBuf>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        delete_all(&*self.disk, std::mem::take(self.spares.get_mut()));
    }
}

impl Directory {
    pub(crate) fn new(root: &Path, env: &Env) -> Self {
        // A later change of the working directory must not move the checkpoint.
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        Self::on_disk(Arc::new(RealDisk::PRIVATE), root, env)
    }

    /// The directory `root`, an absolute path, of `disk`.
    pub(crate) fn on_disk(disk: Arc<dyn Disk>, root: PathBuf, env: &Env) -> Self {
        let (env, found, spares) = (env.clone(), Mutex::default(), Mutex::default());
        Self { inner: Arc::new(Inner { disk, root, env, found, spares }) }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.inner.root
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.inner.disk
    }

    /// Makes the directory itself, if it is missing.
    pub(crate) fn make(&self) -> Result<(), StorageError> {
        let root = &self.inner.root;
        if self.disk().is_directory(root) {
            // Whoever made it may have been killed before its name was flushed. A parent that may
            // not be read belongs to somebody else, who made this directory long ago.
            if let Some(above) = root.parent() {
                let _ = self.disk().flush_names(above);
            }
            return Ok(());
        }
        let made = make_directory(self.disk(), root);
        made.map_err(|error| storage_error("make the directory", root, &error))
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
        let mut write_flushed = |bytes| file.write(bytes).and_then(|()| file.flush());
        let written = match durability {
            Durability::Power => write_flushed(bytes),
            Durability::PowerAside => bytes.chunks(PIECE_BYTES).try_for_each(write_flushed),
            Durability::Process => file.write(bytes),
        };
        drop(file);
        let disk = self.disk();
        written.and_then(|()| disk.rename_if_absent(&temporary, &path)).map_err(|error| {
            // The temporary file is of no use; if deleting it fails too, the first error is
            // reported.
            let _ = disk.delete(&temporary);
            failed(error)
        })
    }

    /// Makes the file `name`, to be appended to under that name, and its directory.
    pub(crate) fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, PutError> {
        let path = self.inner.root.join(name);
        let create = || self.disk().create(&path);
        let created = match create() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let directory = path.parent().expect("a file of the checkpoint is in a directory");
                make_directory(self.disk(), directory).and_then(|()| create())
            }
            created => created,
        };
        created.map_err(|error| put_error(&path, &error))
    }

    /// Appends to the open file `name`, and flushes it.
    pub(crate) fn append(
        &self,
        name: &str,
        file: &mut dyn DiskFile,
        bytes: &[u8],
    ) -> Result<(), PutError> {
        let written = file.write(bytes).and_then(|()| file.flush());
        written.map_err(|error| put_error(&self.inner.root.join(name), &error))
    }

    /// Flushes the names in the directory of `name`.
    pub(crate) fn flush_names(&self, name: &str) -> Result<(), PutError> {
        let path = self.inner.root.join(name);
        let directory = path.parent().expect("a file of the checkpoint is in a directory");
        let flushed = self.disk().flush_names(directory);
        flushed.and_then(|()| self.flush_above(directory)).map_err(|error| put_error(&path, &error))
    }

    /// Flushes files that were written without.
    pub(crate) fn flush(&self, names: &[String]) -> Result<(), StorageError> {
        for name in names {
            let path = self.inner.root.join(name);
            let flushed = self.disk().open(&path).and_then(|mut file| file.flush());
            flushed.map_err(|error| storage_error("flush", &path, &error))?;
        }
        let mut above: Vec<&Path> =
            names.iter().filter_map(|name| Path::new(name).parent()).collect();
        above.dedup();
        for above in above {
            let directory = self.inner.root.join(above);
            let flushed = self.disk().flush_names(&directory);
            flushed
                .and_then(|()| self.flush_above(&directory))
                .map_err(|error| storage_error("flush", &directory, &error))?;
        }
        Ok(())
    }

    /// Flushes the name of `directory` and of those above it that are inside the root: a process
    /// that ended early may have made them and flushed nothing.
    fn flush_above(&self, directory: &Path) -> io::Result<()> {
        let root = &self.inner.root;
        let inside = |directory: &&Path| directory.starts_with(root) && *directory != *root;
        for directory in directory.ancestors().take_while(inside) {
            if self.inner.found.lock().contains(directory) {
                break;
            }
            let above = directory.parent().expect("it is inside the root");
            self.disk().flush_names(above)?;
            self.inner.found.lock().insert(directory.to_owned());
        }
        Ok(())
    }

    /// An empty file to be renamed to `path`: a spare one, or a new one.
    fn temporary(&self, path: &Path) -> io::Result<(PathBuf, Box<dyn DiskFile>)> {
        let directory = path.parent().expect("a file of the checkpoint is in a directory");
        let spare = self.inner.spares.lock().get_mut(directory).and_then(Vec::pop);
        if let Some(spare) = spare
            && let Ok(file) = self.disk().open(&spare)
        {
            return Ok((spare, file));
        }
        let temporary = self.temporary_path(path);
        let create = || self.disk().create(&temporary);
        // The directory is made only when a file in it cannot be: the hot path saves the question.
        let file = match create() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make_directory(self.disk(), directory)?;
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
        match self.disk().read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(storage_error("read", &path, &error)),
        }
    }

    pub(crate) fn list(&self, name: &str) -> Result<Vec<String>, StorageError> {
        let path = self.inner.root.join(name);
        match self.disk().list(&path) {
            Ok(names) => Ok(names),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(storage_error("list", &path, &error)),
        }
    }

    pub(crate) fn delete_many(&self, names: &[String]) -> Result<(), StorageError> {
        let mut result = Ok(());
        for name in names {
            let path = self.inner.root.join(name);
            result = result.and(self.delete(&path));
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
                None => result = result.and(self.delete(&path)),
            }
        }
        result
    }

    /// Renames a file to a temporary name and empties it. `None`, with the file still there,
    /// where that does not go: the caller deletes it.
    fn empty(&self, path: &Path) -> Option<PathBuf> {
        let mut file = self.disk().open(path).ok()?;
        if !file.has_one_name() {
            return None;
        }
        let temporary = self.temporary_path(path);
        // Renamed before it is emptied: an empty file under an entry's name would look like a torn
        // entry.
        self.disk().rename_if_absent(path, &temporary).ok()?;
        if file.empty().is_err() {
            let _ = self.disk().delete(&temporary);
            return None;
        }
        Some(temporary)
    }

    /// Deletes the files kept for entries to come.
    pub(crate) fn delete_spares(&self) {
        delete_all(self.disk(), std::mem::take(&mut *self.inner.spares.lock()));
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        let (from, to) = (self.inner.root.join(from), self.inner.root.join(to));
        let renamed = self.disk().rename_if_absent(&from, &to);
        renamed.map_err(|error| storage_error("move", &from, &error))
    }

    fn delete(&self, path: &Path) -> Result<(), StorageError> {
        match self.disk().delete(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(storage_error("delete", path, &error))
            }
            _ => Ok(()),
        }
    }
}

/// What cannot be deleted now is deleted as temporary when the checkpoint is next recovered.
fn delete_all(disk: &dyn Disk, spares: BTreeMap<PathBuf, Vec<PathBuf>>) {
    for path in spares.into_values().flatten() {
        let _ = disk.delete(&path);
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
