//! Directories that are there after a power cut.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

/// Makes the directory `path` with all above it that are missing. The name of each is flushed to
/// the disk: else all that is flushed inside could be gone after a power cut.
pub fn make_directories(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = match path.parent() {
        None => return fs::create_dir(path),
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
    };
    make_directories(above)?;
    match fs::create_dir(path) {
        // Another process has made it meanwhile.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    File::open(above)?.sync_all()
}
