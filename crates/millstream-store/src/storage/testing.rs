//! The machine's own disk, watched by a test.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::disk::{Disk, DiskFile, DiskLock, RealDisk};

const REAL: RealDisk = RealDisk::PRIVATE;

type Watch = Arc<dyn Fn(&str) + Send + Sync>;

/// Says what it is asked to do before it does it: `write`, `flush`, `name 7`, `flush names in
/// offsets`, `list offsets`, `delete 7`. Other requests are not told.
pub(crate) struct WatchedDisk(Watch);

impl WatchedDisk {
    pub(crate) fn new(watch: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(watch))
    }

    fn tell(&self, what: &str, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        (self.0)(&format!("{what} {name}"));
    }

    fn watched(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(WatchedFile(Arc::clone(&self.0), file))
    }
}

impl Disk for WatchedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        REAL.create(path).map(|file| self.watched(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        REAL.open(path).map(|file| self.watched(file))
    }

    fn rename_if_absent(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.tell("name", to);
        REAL.rename_if_absent(from, to)
    }

    fn flush_names(&self, directory: &Path) -> io::Result<()> {
        self.tell("flush names in", directory);
        REAL.flush_names(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        REAL.create_directory(path)
    }

    fn is_directory(&self, path: &Path) -> bool {
        REAL.is_directory(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        REAL.read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.tell("list", directory);
        REAL.list(directory)
    }

    fn delete(&self, path: &Path) -> io::Result<()> {
        self.tell("delete", path);
        REAL.delete(path)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<DiskLock> {
        REAL.lock(path, holder)
    }
}

struct WatchedFile(Watch, Box<dyn DiskFile>);

impl DiskFile for WatchedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        (self.0)("write");
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (self.0)("flush");
        self.1.flush()
    }

    fn has_one_name(&self) -> bool {
        self.1.has_one_name()
    }

    fn empty(&mut self) -> io::Result<()> {
        self.1.empty()
    }
}
