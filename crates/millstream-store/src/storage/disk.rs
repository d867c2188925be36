//! The file system below a local checkpoint: the few operations that one needs.
//!
//! There is one implementation for real directories. The other is the simulation's, which loses
//! what was not flushed when its machine fails.

use std::any::Any;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::rename::rename_if_absent;

/// For the owner alone: a checkpoint holds rows of the query, and whoever may write it may make the
/// query skip or repeat others.
const DIRECTORY_MODE: u32 = 0o700;
/// As other programs make directories: the process's mask says who may not.
const SHARED_DIRECTORY_MODE: u32 = 0o777;
const FILE_MODE: u32 = 0o600;

/// What a local checkpoint needs of a file system. Paths are absolute; every call may block.
pub trait Disk: Send + Sync {
    /// Makes a file for its owner alone. `NotFound` if its directory is missing.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file to write to its beginning.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Gives `from` the name `to`; `AlreadyExists` if there is such a file.
    fn rename_if_absent(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Has the names in `directory` survive a power cut.
    fn flush_names(&self, directory: &Path) -> io::Result<()>;

    /// Makes a directory; that above it must be there.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Whether `path` is a directory.
    fn is_directory(&self, path: &Path) -> bool;

    /// The bytes of a file. A pipe or a device is refused without waiting for it.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// What is in a directory, in no order: names, those of directories with a `/` behind.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Deletes a file.
    fn delete(&self, path: &Path) -> io::Result<()>;

    /// Takes the lock `path`, which says of its owner what `holder` does.
    fn lock(&self, path: &Path, holder: &str) -> io::Result<DiskLock>;
}

/// A file that is open for writing.
pub trait DiskFile: Send {
    /// Writes behind what was written through this.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Has what was written survive a power cut, if the file's name does.
    fn flush(&mut self) -> io::Result<()>;

    /// Whether the file has no other name: a backup of hard links must not change with it.
    fn has_one_name(&self) -> bool;

    /// Removes all content.
    fn empty(&mut self) -> io::Result<()>;
}

/// What came of taking a lock.
pub enum DiskLock {
    /// It is taken until this is dropped.
    Taken(Box<dyn Any + Send + Sync>),
    /// Another process has it, which says this of itself.
    Held(String),
    /// The file system has no locks.
    Unsupported(io::Error),
}

/// The file system of this machine.
pub(super) struct RealDisk {
    directory_mode: u32,
}

impl RealDisk {
    /// Whose directories are for their owner alone.
    pub(super) const PRIVATE: Self = Self { directory_mode: DIRECTORY_MODE };
    /// Whose directories are for whoever reads what a query writes.
    const SHARED: Self = Self { directory_mode: SHARED_DIRECTORY_MODE };
}

/// Makes the directory `path` with all above it that are missing, as far as the process's mask
/// lets others use them. The name of each is flushed to the disk: else all that is flushed inside
/// could be gone after a power cut.
pub fn make_directories(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    if path.is_dir() { Ok(()) } else { make_directory(&RealDisk::SHARED, &path) }
}

/// Makes a directory with all above it that are missing. The name of each is flushed, so that what
/// is flushed inside can be found after a power cut.
pub(super) fn make_directory(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let create = || match disk.create_directory(path) {
        // Another process may have made it meanwhile.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && disk.is_directory(path) => Ok(()),
        created => created,
    };
    let Some(above) = path.parent() else { return create() };
    match create() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make_directory(disk, above)?;
            create()?;
        }
        created => created?,
    }
    disk.flush_names(above)
}

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(FILE_MODE).open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        Ok(Box::new(options.write(true).custom_flags(libc::O_NONBLOCK).open(path)?))
    }

    fn rename_if_absent(&self, from: &Path, to: &Path) -> io::Result<()> {
        rename_if_absent(from, to)
    }

    fn flush_names(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(self.directory_mode).create(path)
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
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

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let mut name = entry.file_name().to_string_lossy().into_owned();
            if is_directory {
                name.push('/');
            }
            names.push(name);
        }
        Ok(names)
    }

    fn delete(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<DiskLock> {
        let mut options = File::options();
        // Not truncated when it is opened: until the lock is ours the content is the holder's, and
        // the message quotes it.
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
        let mut file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut other = String::new();
                let _ = file.read_to_string(&mut other);
                return Ok(DiskLock::Held(other));
            }
            Err(TryLockError::Error(error)) if is_unsupported(&error) => {
                return Ok(DiskLock::Unsupported(error));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(holder.as_bytes())?;
        Ok(DiskLock::Taken(Box::new(file)))
    }
}

impl DiskFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn has_one_name(&self) -> bool {
        self.metadata().is_ok_and(|facts| facts.is_file() && facts.nlink() == 1)
    }

    fn empty(&mut self) -> io::Result<()> {
        self.set_len(0)
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOLCK | libc::ENOTSUP | libc::ENOSYS))
}
