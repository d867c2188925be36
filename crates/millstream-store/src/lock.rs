//! One process per local checkpoint.
//!
//! The lock is the kernel's (`flock`), so it ends with the process, however that ends. The file
//! says who holds it, for the message that the second process gives.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::env::Env;
use crate::layout;
use crate::storage::{FILE_MODE, StorageError};
use crate::time_text;

/// Held until dropped.
pub(crate) struct Lock {
    _file: Option<File>,
}

/// Why the lock could not be taken.
pub(crate) enum LockError {
    /// Another process has it; what it wrote about itself, if that can be read.
    Held { holder: String },
    /// The file cannot be made or locked.
    Storage(StorageError),
}

/// Takes the lock of the checkpoint in the directory `root`, which must exist.
pub(crate) fn acquire(root: &Path, env: &Env) -> Result<Lock, LockError> {
    let path = root.join(layout::LOCK);
    let failed = |error: std::io::Error| {
        LockError::Storage(crate::storage::storage_error("lock", &path, &error))
    };
    let mut options = File::options();
    // Not truncated when it is opened: until the lock is ours the content is the holder's, and the
    // message quotes it.
    options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    let opened = options.open(&path);
    let mut file = opened.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let known = holder.trim();
            let holder = if known.is_empty() { "another process" } else { known };
            return Err(LockError::Held { holder: holder.to_owned() });
        }
        Err(TryLockError::Error(error)) if is_unsupported(&error) => {
            // Log entries are still put only where none is, so a second writer is found out then.
            tracing::warn!(path = %path.display(), %error, "this file system has no locks; \
                make sure that no other process uses the checkpoint");
            return Ok(Lock { _file: None });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let holder =
        format!("process {}, started {}\n", std::process::id(), time_text::utc(env.now_ms()));
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(holder.as_bytes()))
        .map_err(failed)?;
    Ok(Lock { _file: Some(file) })
}

fn is_unsupported(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOLCK | libc::ENOTSUP | libc::ENOSYS))
}
