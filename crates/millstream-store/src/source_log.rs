//! A source's private part of the checkpoint.

use crate::error::Failure;
use crate::layout;
use crate::storage::{Durability, Storage};

/// A source's private directory in the checkpoint, `sources/<id>/`.
///
/// A source keeps here what it must remember from its first start on, for example the offsets a
/// query began at. The meaning of the bytes is the source's own.
#[derive(Clone)]
pub struct SourceLog {
    storage: Storage,
    directory: String,
    /// The source's place in the plan.
    id: usize,
}

impl SourceLog {
    /// The directory of source `id`, its place in the plan, in `storage`.
    pub(crate) fn new(storage: Storage, id: usize) -> Self {
        Self { storage, directory: format!("{}/{id}", layout::SOURCES), id }
    }

    /// A directory that ends with its last clone, for batch queries and tests.
    pub fn in_memory() -> Self {
        Self::new(Storage::in_memory(), 0)
    }

    /// The bytes of the file `name`, or `None` if there is no such file.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.storage.get(&self.name(name)).await?)
    }

    /// Writes the file `name` whole, flushed to the disk.
    ///
    /// Errors: `Fenced` if the file exists, because then another process writes this checkpoint;
    /// `Config` if there is no space or no permission.
    pub async fn put_if_absent(&self, name: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        Ok(self.storage.put_if_absent(&self.name(name), bytes, Durability::Power).await?)
    }

    /// Deletes the files `names`; those that are gone already are no error.
    pub async fn delete(&self, names: &[String]) -> Result<(), Failure> {
        let names = names.iter().map(|name| self.name(name)).collect();
        Ok(self.storage.delete_many(names).await?)
    }

    /// The names of all files, sorted as text.
    pub async fn list(&self) -> Result<Vec<String>, Failure> {
        let mut names = self.storage.list(&self.directory).await?;
        names.retain(|name| !name.starts_with('.') && !name.ends_with('/'));
        names.sort_unstable();
        Ok(names)
    }

    /// The checkpoint's storage, the directory in it, and the source's place in the plan.
    pub(crate) fn place(&self) -> (Storage, String, usize) {
        (self.storage.clone(), self.directory.clone(), self.id)
    }

    fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }
}
