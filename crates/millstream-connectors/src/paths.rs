//! Local paths in options.

use std::path::{Path, PathBuf};

use millstream_engine::api::options::OptionError;
use millstream_store::storage::is_cloud;

/// The local path that an option means: `file:` URIs are unwrapped, relative paths are relative to
/// `base_dir`.
pub(crate) fn resolve(base_dir: &Path, text: &str) -> PathBuf {
    let local = text.strip_prefix("file:").map_or(text, |rest| {
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        rest.strip_prefix("localhost").unwrap_or(rest)
    });
    base_dir.join(local)
}

/// Whether a path is in an object store.
pub(crate) fn is_stored(path: &str) -> bool {
    path.split_once("://").is_some_and(|(scheme, _)| is_cloud(scheme))
}

/// Refuses paths on object stores and other file systems, which these connectors do not read.
pub(crate) fn check_local(key: &str, text: &str) -> Result<(), OptionError> {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    match scheme {
        None | Some("file") if !text.trim().is_empty() => Ok(()),
        None | Some("file") => Err(OptionError::invalid(key, text, "a local path")),
        Some(scheme) => Err(OptionError::of(
            key,
            format!("'{key}' is on '{scheme}://', but this connector reads and writes local files"),
            Some("copy the files to a local disk, or mount the store as a directory".into()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_below_the_base_directory() {
        let base = Path::new("/base");
        assert_eq!(resolve(base, "in/a.json"), Path::new("/base/in/a.json"));
        assert_eq!(resolve(base, "/in"), Path::new("/in"));
        assert_eq!(resolve(base, "file:/in"), Path::new("/in"));
        assert_eq!(resolve(base, "file:///in"), Path::new("/in"));
    }

    #[test]
    fn other_file_systems_are_refused() {
        assert!(check_local("path", "s3://bucket/in").is_err());
        assert!(check_local("path", "  ").is_err());
        assert!(check_local("path", "file:///in").is_ok());
        assert!(check_local("path", "in").is_ok());
        assert!(is_stored("s3://bucket/in") && !is_stored("file:///in") && !is_stored("in"));
    }
}
