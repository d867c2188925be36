//! What there is in a directory, or behind a glob pattern.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::error::FileError;
use crate::paths;

/// A file as it was when somebody looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileStatus {
    pub(super) path: PathBuf,
    /// When it was last changed, milliseconds since the epoch.
    pub(super) modified_ms: i64,
    /// In bytes; not known for files that stand in a log only.
    pub(super) size: Option<u64>,
}

impl FileStatus {
    /// Whether `now` is what the file looked like when it was found.
    pub(super) fn is_unchanged(&self, now: &Metadata) -> bool {
        self.modified_ms == modified_ms(now) && self.size.is_none_or(|size| size == now.len())
    }
}

/// When a file was last changed, milliseconds since the epoch.
pub(super) fn modified_ms(metadata: &Metadata) -> i64 {
    let Ok(modified) = metadata.modified() else { return 0 };
    match modified.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_millis() as i64,
        Err(before) => -(before.duration().as_millis() as i64),
    }
}

/// Where files are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    Directory { path: PathBuf, recursive: bool },
    Pattern { pattern: String, recursive: bool },
}

impl Place {
    /// What the option `path` means; errors if it is neither a pattern nor there.
    pub(super) fn new(base_dir: &Path, text: &str, recursive: bool) -> Result<Self, FileError> {
        let path = paths::resolve(base_dir, text);
        // The log has absolute paths, which stay true when the process starts elsewhere.
        let path = std::path::absolute(&path).unwrap_or(path);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => Ok(Self::Directory { path, recursive }),
            Ok(_) => Ok(Self::File(path)),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(FileError::Unreadable { path, error })
            }
            Err(_) => match path.to_str() {
                Some(pattern) if pattern.contains(['*', '?', '[']) => {
                    let pattern = pattern.to_owned();
                    Ok(Self::Pattern { pattern, recursive })
                }
                _ => Err(FileError::NoSuchPath { path }),
            },
        }
    }

    /// The directory whose time of change tells whether there can be anything new, if one does.
    pub(super) fn watched_directory(&self) -> Option<&Path> {
        match self {
            Self::Directory { path, recursive: false } => Some(path),
            _ => None,
        }
    }

    /// All files that `wanted` says yes to, oldest first and then by name. Names that start with a
    /// dot or an underscore, and names of unfinished copies, are left out.
    pub(super) fn list(
        &self,
        wanted: &dyn Fn(&Path) -> bool,
    ) -> Result<Vec<FileStatus>, FileError> {
        let mut files = Vec::new();
        match self {
            Self::File(path) => push_file(path, wanted, &mut files)?,
            Self::Directory { path, recursive } => {
                push_directory(path, *recursive, wanted, &mut files)?;
            }
            Self::Pattern { pattern, recursive } => {
                let paths = glob::glob(pattern).map_err(|error| FileError::Pattern {
                    pattern: pattern.clone(),
                    problem: error.to_string(),
                })?;
                for path in paths {
                    let path = path.map_err(|error| {
                        let path = error.path().to_owned();
                        FileError::Unreadable { path, error: error.into() }
                    })?;
                    if is_hidden(&path) {
                        continue;
                    }
                    if path.is_dir() {
                        push_directory(&path, *recursive, wanted, &mut files)?;
                    } else {
                        push_file(&path, wanted, &mut files)?;
                    }
                }
            }
        }
        files.sort_unstable_by(|a, b| (a.modified_ms, &a.path).cmp(&(b.modified_ms, &b.path)));
        Ok(files)
    }
}

fn push_directory(
    directory: &Path,
    recursive: bool,
    wanted: &dyn Fn(&Path) -> bool,
    files: &mut Vec<FileStatus>,
) -> Result<(), FileError> {
    let unreadable = |error| match std::io::Error::kind(&error) {
        ErrorKind::NotFound => FileError::NoSuchPath { path: directory.to_owned() },
        _ => FileError::Unreadable { path: directory.to_owned(), error },
    };
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = entry.path();
        if is_hidden(&path) || !wanted(&path) {
            continue;
        }
        // The type in the entry saves asking for each file, except behind a symbolic link.
        let is_directory = match entry.file_type() {
            Ok(file_type) if !file_type.is_symlink() => file_type.is_dir(),
            _ => path.is_dir(),
        };
        if !is_directory {
            push_file(&path, wanted, files)?;
        } else if recursive {
            push_directory(&path, recursive, wanted, files)?;
        }
    }
    Ok(())
}

fn push_file(
    path: &Path,
    wanted: &dyn Fn(&Path) -> bool,
    files: &mut Vec<FileStatus>,
) -> Result<(), FileError> {
    if !wanted(path) {
        return Ok(());
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            let size = Some(metadata.len());
            files.push(FileStatus {
                path: path.to_owned(),
                modified_ms: modified_ms(&metadata),
                size,
            });
            Ok(())
        }
        // Sockets and the like; and what was renamed or removed meanwhile.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(FileError::Unreadable { path: path.to_owned(), error }),
    }
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b".")
        || name.starts_with(b"_")
        || name.ends_with(b".tmp")
        || name.ends_with(b"._COPYING_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(place: &Place) -> Vec<String> {
        let files = place.list(&|_| true).unwrap();
        let name = |found: FileStatus| found.path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<String> = files.into_iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn hidden_and_unfinished_files_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.json", ".c.json", "_d", "e.tmp", "f._COPYING_", "a.json"] {
            fs::write(directory.path().join(name), "{}").unwrap();
        }
        fs::create_dir(directory.path().join("inner")).unwrap();
        fs::write(directory.path().join("inner/g.json"), "{}").unwrap();
        let base = directory.path();
        let flat = Place::new(base, ".", false).unwrap();
        assert_eq!(names(&flat), ["a.json", "b.json"]);
        assert_eq!(names(&Place::new(base, "", true).unwrap()), ["a.json", "b.json", "g.json"]);
        assert_eq!(names(&Place::new(base, "inner/g.json", false).unwrap()), ["g.json"]);
        assert_eq!(names(&Place::new(base, "[bx]*.json", false).unwrap()), ["b.json"]);
        assert_eq!(names(&Place::new(base, "in*", false).unwrap()), ["g.json"]);
    }

    #[test]
    fn older_files_come_first() {
        let directory = tempfile::tempdir().unwrap();
        for (name, seconds) in [("a", 30), ("b", 10), ("c", 20), ("d", 20)] {
            let file = fs::File::create(directory.path().join(name)).unwrap();
            file.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
        }
        let place = Place::new(directory.path(), "", false).unwrap();
        let files = place.list(&|_| true).unwrap();
        let order: Vec<_> = files.iter().map(|file| file.path.file_name().unwrap()).collect();
        assert_eq!(order, ["b", "c", "d", "a"]);
        assert_eq!(files[0].modified_ms, 10_000);
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = Place::new(Path::new("/nowhere"), "in", false).unwrap_err();
        assert!(error.to_string().contains("/nowhere/in"), "{error}");
    }
}
