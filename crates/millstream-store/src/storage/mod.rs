//! Where the bytes of a checkpoint go: a local directory or an object store.
//!
//! Files are written once and whole, and never replaced: [`Storage::put_if_absent`] makes a name
//! appear with all its bytes or fails because it is there already. That is what keeps a second
//! process from continuing the same checkpoint unnoticed.

mod disk;
mod local;
mod location;
mod object;
mod rename;
#[cfg(test)]
pub(crate) mod testing;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;

pub use self::disk::{Disk, DiskFile, DiskLock, make_directories};
pub(crate) use self::local::{Directory, storage_error};
pub use self::location::{LocationError, cloud_settings, is_cloud, parse};
pub use self::object::Latency;
pub(crate) use self::object::Prefix;
use crate::env::Env;
use crate::error::{Classified, Kind};

/// What a file must survive once it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process, also by `kill -9`. A power cut may lose the files of the last
    /// seconds, or leave them empty. Spark gives its logs the same.
    Process,
    /// A power cut: flushed to the disk. An object store always gives this.
    Power,
    /// A power cut, for a large file that nobody waits for: flushed piece by piece, because
    /// a flush of any other file waits for all bytes written since the last flush.
    PowerAside,
}

/// Why a file could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// The name is taken.
    #[error("{path} exists already")]
    AlreadyExists {
        /// The file.
        path: String,
    },
    /// The operating system or the object store does not allow it.
    #[error(
        "no permission to write {path} ({cause}). Allow it, or use another checkpoint location"
    )]
    NoPermission {
        /// The file.
        path: String,
        /// What the storage said.
        cause: String,
    },
    /// No space, or a quota is used up.
    #[error("no space left to write {path} ({cause}). Make space, then start the query again")]
    DiskFull {
        /// The file.
        path: String,
        /// What the storage said.
        cause: String,
    },
    /// Anything else: the disk is broken, the network is away.
    #[error("cannot write {path}: {cause}")]
    Other {
        /// The file.
        path: String,
        /// What the storage said.
        cause: String,
        /// What the caller should do.
        kind: Kind,
    },
}

impl Classified for PutError {
    fn kind(&self) -> Kind {
        match self {
            Self::AlreadyExists { .. } => Kind::Fenced,
            Self::NoPermission { .. } | Self::DiskFull { .. } => Kind::Config,
            Self::Other { kind, .. } => *kind,
        }
    }
}

/// Why a file or directory could not be read, listed, moved or deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action} {path}: {cause}")]
pub struct StorageError {
    /// What was tried, a verb.
    pub action: &'static str,
    /// The file or directory.
    pub path: String,
    /// What the storage said.
    pub cause: String,
    /// What the caller should do.
    pub kind: Kind,
}

impl Classified for StorageError {
    fn kind(&self) -> Kind {
        self.kind
    }
}

/// A place for the files of one checkpoint. Names are relative to it, with `/` between parts.
#[derive(Clone)]
pub enum Storage {
    /// A directory of a local file system.
    Local(LocalStorage),
    /// A prefix in an object store.
    Object(ObjectStorage),
}

/// A directory of a local file system.
#[derive(Clone)]
pub struct LocalStorage {
    pub(crate) directory: Directory,
    env: Env,
}

/// A prefix in an object store.
#[derive(Clone)]
pub struct ObjectStorage {
    pub(crate) prefix: Prefix,
}

fn in_memory() -> Prefix {
    let store = Arc::new(object_store::memory::InMemory::new());
    Prefix::new(store, object_store::path::Path::default(), "memory://checkpoint".to_owned())
}

impl Storage {
    /// The directory `root`, which is made when the first file is written.
    pub fn local(root: impl AsRef<Path>, env: &Env) -> Self {
        let directory = Directory::new(root.as_ref(), env);
        Self::Local(LocalStorage { directory, env: env.clone() })
    }

    /// The directory `root`, an absolute path, of a file system of the caller's own.
    pub fn local_on(disk: Arc<dyn Disk>, root: PathBuf, env: &Env) -> Self {
        let directory = Directory::on_disk(disk, root, env);
        Self::Local(LocalStorage { directory, env: env.clone() })
    }

    /// The objects of `store` below `prefix`. `shown` is the location in messages.
    pub fn object(
        store: Arc<dyn ObjectStore>,
        prefix: object_store::path::Path,
        shown: impl Into<String>,
    ) -> Self {
        Self::Object(ObjectStorage { prefix: Prefix::new(store, prefix, shown.into()) })
    }

    /// A storage that ends with its last clone, for tests and batch queries.
    pub fn in_memory() -> Self {
        Self::Object(ObjectStorage { prefix: in_memory() })
    }

    /// As [`in_memory`](Self::in_memory), with requests that take as long as over a network.
    pub fn in_memory_with_latency(env: &Env, latency: Latency) -> Self {
        Self::Object(ObjectStorage { prefix: in_memory().with_latency(env, latency) })
    }

    /// The same where only puts take some time.
    pub fn in_memory_with_put_latency(env: &Env, put: Duration) -> Self {
        Self::in_memory_with_latency(env, Latency { put, ..Latency::default() })
    }

    /// Where this is, for messages.
    pub fn location(&self) -> String {
        self.path_of("")
    }

    /// Where the file `name` is, for messages.
    pub fn path_of(&self, name: &str) -> String {
        match self {
            Self::Local(local) => local.directory.shown(name),
            Self::Object(object) => object.prefix.shown(name),
        }
    }

    /// Writes the file `name` whole, unless there is one.
    pub async fn put_if_absent(
        &self,
        name: &str,
        bytes: Vec<u8>,
        durability: Durability,
    ) -> Result<(), PutError> {
        match self {
            Self::Local(local) => {
                let name = name.to_owned();
                local
                    .blocking(move |directory| {
                        directory.put(&name, &bytes, durability)?;
                        match durability {
                            Durability::Process => Ok(()),
                            Durability::Power | Durability::PowerAside => {
                                directory.flush_names(&name)
                            }
                        }
                    })
                    .await
            }
            Self::Object(object) => object.prefix.put(name, bytes).await,
        }
    }

    /// The bytes of `name`, or `None` if there is no such file.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StorageError> {
        match self {
            Self::Local(local) => {
                let name = name.to_owned();
                local.blocking(move |directory| directory.get(&name)).await
            }
            Self::Object(object) => object.prefix.get(name).await,
        }
    }

    /// What is directly in the directory `name` (`""` is the root): files by their names,
    /// directories with a `/` behind theirs, in no order. Nothing if there is no such directory.
    pub async fn list(&self, name: &str) -> Result<Vec<String>, StorageError> {
        match self {
            Self::Local(local) => {
                let name = name.to_owned();
                local.blocking(move |directory| directory.list(&name)).await
            }
            Self::Object(object) => object.prefix.list(name).await,
        }
    }

    /// Deletes files; those that are gone already are no error. Goes on after an error and
    /// returns the first.
    pub async fn delete_many(&self, names: Vec<String>) -> Result<(), StorageError> {
        match self {
            Self::Local(local) => {
                local.blocking(move |directory| directory.delete_many(&names)).await
            }
            Self::Object(object) => object.prefix.delete_many(names).await,
        }
    }

    /// Has files that were written with [`Durability::Process`] survive a power cut too; their
    /// directories one after the other, in the order of `names`.
    pub(crate) async fn flush(&self, names: Vec<String>) -> Result<(), StorageError> {
        match self {
            Self::Local(local) => local.blocking(move |directory| directory.flush(&names)).await,
            Self::Object(_) => Ok(()),
        }
    }

    /// Deletes log entries that are not needed any more. Like [`Self::delete_many`], except that a
    /// local directory keeps the emptied files for entries to come.
    pub(crate) async fn retire_many(&self, names: Vec<String>) -> Result<(), StorageError> {
        match self {
            Self::Local(local) => {
                local.blocking(move |directory| directory.retire_many(&names)).await
            }
            Self::Object(object) => object.prefix.delete_many(names).await,
        }
    }

    /// Gives the file `from` the name `to`, which must be free.
    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        match self {
            Self::Local(local) => {
                let (from, to) = (from.to_owned(), to.to_owned());
                local.blocking(move |directory| directory.rename(&from, &to)).await
            }
            Self::Object(object) => object.prefix.rename(from, to).await,
        }
    }
}

impl LocalStorage {
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Directory) -> T + Send + 'static,
    ) -> T {
        let directory = self.directory.clone();
        self.env.spawn_blocking("checkpoint storage", move || work(&directory)).join().await
    }
}
