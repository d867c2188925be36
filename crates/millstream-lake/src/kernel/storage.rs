//! Listing and whole files.

use std::sync::Arc;

use bytes::Bytes;
use delta_kernel::{
    FileMeta, FileSlice, KernelError, KernelResult, KernelResultIteratorStatic, StorageHandler,
};
use url::Url;

use super::faults::Faults;
use super::{kernel_error, name_of};
use crate::store::{Listed, TableStore};

pub(super) struct Storage {
    pub(super) store: TableStore,
    pub(super) faults: Arc<Faults>,
}

impl Storage {
    fn meta(&self, file: Listed) -> FileMeta {
        FileMeta {
            location: self.store.file_url(&file.name),
            last_modified: file.modified_ms,
            size: file.size,
        }
    }
}

fn is_hidden(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.starts_with('.'))
}

impl StorageHandler for Storage {
    fn list_from(&self, path: &Url) -> KernelResult<KernelResultIteratorStatic<FileMeta>> {
        let name = name_of(&self.store, path)?;
        let (directory, after) = match name.rsplit_once('/') {
            Some((directory, "")) => (directory, None),
            Some((directory, _)) => (directory, Some(name.as_str())),
            None if path.path().ends_with('/') => (name.as_str(), None),
            None => ("", Some(name.as_str())),
        };
        let files = self.store.list(directory, after).map_err(|error| kernel_error(path, error))?;
        // What a crash left half-written is no file of the log: a table is not there by that alone.
        let is_seen = |name: &str| !is_hidden(name) && !self.faults.hides(name);
        let files = files.into_iter().filter(|file| is_seen(&file.name));
        let files: Vec<_> = files.map(|file| Ok(self.meta(file))).collect();
        Ok(Box::new(files.into_iter()))
    }

    fn read_files(&self, files: Vec<FileSlice>) -> KernelResult<KernelResultIteratorStatic<Bytes>> {
        let (store, faults) = (self.store.clone(), Arc::clone(&self.faults));
        Ok(Box::new(files.into_iter().map(move |(url, range)| {
            let name = name_of(&store, &url)?;
            if faults.hides(&name) {
                return Err(KernelError::FileNotFound(url.to_string()));
            }
            let bytes = match range {
                Some(range) => store.get_range(&name, range),
                None => store.get(&name),
            };
            bytes.map_err(|error| kernel_error(&url, error))
        })))
    }

    fn copy_atomic(&self, from: &Url, to: &Url) -> KernelResult<()> {
        let bytes = self.store.get(&name_of(&self.store, from)?);
        let bytes = bytes.map_err(|error| kernel_error(from, error))?;
        self.put(to, bytes, false)
    }

    fn put(&self, path: &Url, data: Bytes, overwrite: bool) -> KernelResult<()> {
        let name = name_of(&self.store, path)?;
        let put =
            if overwrite { self.store.put(&name, data) } else { self.store.put_new(&name, data) };
        put.map_err(|error| kernel_error(path, error))
    }

    fn head(&self, path: &Url) -> KernelResult<FileMeta> {
        let file = self.store.head(&name_of(&self.store, path)?);
        Ok(self.meta(file.map_err(|error| kernel_error(path, error))?))
    }

    fn delete(&self, path: &Url) -> KernelResult<()> {
        let name = name_of(&self.store, path)?;
        self.store.delete_many(&[name]).map_err(|error| kernel_error(path, error))
    }
}
