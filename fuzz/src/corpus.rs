//! The inputs that are kept: `tests/fuzz/corpus/<target>/`, a file each.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// The directory of `target`.
fn directory(target: &str) -> PathBuf {
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut above = Path::new(&here).ancestors();
    let root = above.find(|path| path.join("tests/fuzz/corpus").is_dir());
    root.expect("the repository has a corpus").join("tests/fuzz/corpus").join(target)
}

/// The entries of `target`, in the order of their names.
pub fn entries(target: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(directory(target)) else { return Vec::new() };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("an entry of the corpus is readable")).collect()
}

/// Keeps `input` for `target`; where.
pub fn save(target: &str, input: &[u8]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let directory = directory(target);
    let path = directory.join(format!("found-{:016x}", hasher.finish()));
    fs::create_dir_all(&directory).expect("the corpus is writable");
    fs::write(&path, input).expect("the corpus is writable");
    path
}
