//! One process per local checkpoint.
//!
//! The lock is the kernel's (`flock`), so it ends with the process, however that ends. The file
//! says who holds it, for the message that the second process gives.

use std::any::Any;
use std::path::Path;

use crate::env::Env;
use crate::layout;
use crate::storage::{Disk, DiskLock, StorageError, storage_error};
use crate::time_text;

/// Held until dropped.
pub(crate) struct Lock {
    _taken: Option<Box<dyn Any + Send + Sync>>,
}

/// Why the lock could not be taken.
pub(crate) enum LockError {
    /// Another process has it; what it wrote about itself, if that can be read.
    Held { holder: String },
    /// The file cannot be made or locked.
    Storage(StorageError),
}

/// Takes the lock of the checkpoint in the directory `root` of `disk`, which must exist.
pub(crate) fn acquire(disk: &dyn Disk, root: &Path, env: &Env) -> Result<Lock, LockError> {
    let path = root.join(layout::LOCK);
    let own = format!("process {}, started {}\n", std::process::id(), time_text::utc(env.now_ms()));
    let taken = disk.lock(&path, &own);
    match taken.map_err(|error| LockError::Storage(storage_error("lock", &path, &error)))? {
        DiskLock::Taken(taken) => Ok(Lock { _taken: Some(taken) }),
        DiskLock::Held(holder) => {
            let known = holder.trim();
            let holder = if known.is_empty() { "another process" } else { known };
            Err(LockError::Held { holder: holder.to_owned() })
        }
        DiskLock::Unsupported(error) => {
            // Log entries are still put only where none is, so a second writer is found out then.
            tracing::warn!(path = %path.display(), %error, "this file system has no locks; \
                make sure that no other process uses the checkpoint");
            Ok(Lock { _taken: None })
        }
    }
}
