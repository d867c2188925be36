//! Files that survive a loss of power, and of which there is one.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use super::error::FileError;

/// Writes the file `name` whole, flushed to the disk, and only if there is none. `instance` tells
/// it from what another process writes beside it.
///
/// Errors: `Occupied` if there is one.
pub(super) fn put_if_absent(
    directory: &Path,
    name: &str,
    instance: &str,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), FileError> {
    let (temporary, path) = (directory.join(temporary_name(name, instance)), directory.join(name));
    let put = || {
        let mut file = File::create(&temporary)?;
        write(&mut file)?;
        file.sync_all()?;
        // Unlike a rename, a link does not replace what another writer has put there.
        let linked = fs::hard_link(&temporary, &path);
        fs::remove_file(&temporary)?;
        linked
    };
    match put() {
        Ok(()) => sync_directory(directory),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(FileError::Occupied { path }),
        Err(error) => Err(FileError::writing(&path, error)),
    }
}

/// Writes the file `name` whole, whatever there was.
pub(super) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), FileError> {
    let path = directory.join(name);
    let put = || {
        let temporary = directory.join(temporary_name(name, "new"));
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    };
    put().map_err(|error| FileError::writing(&path, error))?;
    sync_directory(directory)
}

fn temporary_name(name: &str, instance: &str) -> String {
    format!("{TEMPORARY}{name}-{instance}")
}

/// What names of unfinished files begin with; readers pass over what begins with a dot.
pub(super) const TEMPORARY: &str = ".millstream-";

/// Makes what was created, renamed or removed in `directory` survive a loss of power.
pub(super) fn sync_directory(directory: &Path) -> Result<(), FileError> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| FileError::writing(directory, error))
}

/// The names in `directory`.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, FileError> {
    let unreadable = |error| FileError::Unreadable { path: directory.to_owned(), error };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        // Names that are not text are none of ours.
        names.extend(entry.map_err(unreadable)?.file_name().into_string());
    }
    Ok(names)
}

/// Removes a file that may be gone already.
pub(super) fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(FileError::writing(path, error)),
        _ => Ok(()),
    }
}
