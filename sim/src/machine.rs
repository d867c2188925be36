//! The machine that a query with a local checkpoint runs on: its file system as one process uses
//! it, and what becomes of everything when it fails.

use std::any::Any;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::Env;
use millstream_store::storage::{self, DiskFile, DiskLock, Storage};

use crate::mutation::Mutation;
use crate::process::Process;
use crate::store::without_watermark;
use crate::world::State;

/// Where the checkpoint is. Nothing of it is there at the beginning.
const CHECKPOINT: &str = "/queries/query/checkpoint";

/// What was on the disk for so long is not lost with younger entries: while old ones are deleted,
/// the newest are flushed once a second.
const LOST_MAX: Duration = Duration::from_millis(1_100);

/// The name of a checkpoint's file, relative to the checkpoint, unless it is temporary.
fn name_of(path: &Path) -> Option<String> {
    let name = path.strip_prefix(CHECKPOINT).ok()?.to_str()?;
    let is_hidden = name.rsplit('/').next().is_some_and(|file| file.starts_with('.'));
    (!is_hidden).then(|| name.to_owned())
}

impl State {
    /// How long a piece of work on the disk waits.
    pub fn draw_disk_wait(&mut self) -> Duration {
        let way = self.scenario.disk.as_ref().filter(|_| !self.calm).map(|disk| disk.way);
        self.chance.up_to(way.unwrap_or_default())
    }

    /// The machine fails: what was not flushed may be lost.
    pub fn machine_fails(&mut self) {
        let Some(traits) = self.scenario.disk.clone() else { return };
        self.note(None, format_args!("THE MACHINE FAILS"));
        let written_back = self.now.saturating_sub(traits.writeback.max(LOST_MAX));
        self.disk.fail(self.now, &traits, &self.chance);
        let left = self.disk.files_below(Path::new(CHECKPOINT));
        let left = left
            .into_iter()
            .filter(|(name, _)| name_of(&Path::new(CHECKPOINT).join(name)).is_some());
        let left = left.map(|(name, bytes)| (name, bytes.into())).collect();
        for name in self.objects.replace_all(left, written_back) {
            self.note(None, format_args!("{name} is not what it was"));
        }
    }
}

/// The file system as a process reaches it.
pub struct ModelDisk {
    process: Process,
}

impl ModelDisk {
    /// The checkpoint's storage as `process` sees it.
    pub fn storage(process: &Process, env: &Env) -> Storage {
        let disk = Arc::new(Self { process: process.clone() });
        Storage::local_on(disk, PathBuf::from(CHECKPOINT), env)
    }

    /// Does something, unless the process is gone.
    fn step<T>(
        &self,
        what: std::fmt::Arguments<'_>,
        work: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        if !self.process.try_step(what) {
            return Err(Error::from(ErrorKind::Interrupted));
        }
        self.process.with(work)
    }

    fn file(&self, path: &Path, inode: usize) -> Box<dyn DiskFile> {
        let log = path.parent().and_then(Path::file_name).and_then(|log| log.to_str());
        let skipped = match log {
            Some("offsets") => Some(Mutation::FlushesNoIntents),
            Some("state") => Some(Mutation::FlushesNoState),
            _ => None,
        };
        let is_flushed = skipped.is_none_or(|mutation| !self.process.is_mutated(mutation));
        let disk = Self { process: self.process.clone() };
        Box::new(ModelFile { disk, inode, length: 0, is_flushed })
    }
}

impl storage::Disk for ModelDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>> {
        let made = |state: &mut State| state.disk.create(state.now, path, false);
        self.step(format_args!("makes a file in {}", shown(path)), made)
            .map(|inode| self.file(path, inode))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn DiskFile>> {
        self.process.with(|state| state.disk.open(path)).map(|inode| self.file(path, inode))
    }

    fn rename_if_absent(&self, from: &Path, to: &Path) -> Result<()> {
        let from_process = self.process.id;
        let rename = |state: &mut State| {
            let bytes = state.disk.rename_if_absent(state.now, from, to)?;
            if let Some(name) = name_of(from) {
                state.objects.remove(&name);
                if to.extension().is_some_and(|extension| extension == "tmp") {
                    state.check_purged(&name);
                }
            }
            if let Some(name) = name_of(to) {
                state.check_put(from_process, &name, &bytes);
                state.objects.add(name, bytes.into(), state.now);
            }
            Ok(())
        };
        self.step(format_args!("renames {} to {}", shown(from), shown(to)), rename)
    }

    fn flush_names(&self, directory: &Path) -> Result<()> {
        let flush = |state: &mut State| {
            if !state.is_mutated(Mutation::FlushesNoNames) {
                state.disk.flush_names(directory);
            }
            Ok(())
        };
        self.step(format_args!("flushes the names in {}", directory.display()), flush)
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        let made = |state: &mut State| state.disk.create(state.now, path, true).map(drop);
        self.step(format_args!("makes {}", path.display()), made)
    }

    fn is_directory(&self, path: &Path) -> bool {
        self.process.with(|state| state.disk.is_directory(path))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let bytes = self.process.with(|state| state.disk.read(path))?;
        match name_of(path) {
            Some(name) if self.process.is_mutated(Mutation::ForgetsTheWatermark) => {
                Ok(without_watermark(&name, bytes.into()).to_vec())
            }
            _ => Ok(bytes),
        }
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        self.process.with(|state| state.disk.list(directory))
    }

    fn delete(&self, path: &Path) -> Result<()> {
        let delete = |state: &mut State| {
            state.disk.delete(state.now, path)?;
            if let Some(name) = name_of(path) {
                state.objects.remove(&name);
                state.check_purged(&name);
            }
            Ok(())
        };
        self.step(format_args!("deletes {}", shown(path)), delete)
    }

    fn lock(&self, path: &Path, _: &str) -> Result<DiskLock> {
        let (id, path) = (self.process.id, path.to_owned());
        self.process.with(|state| match state.disk.locks.get(&path) {
            Some(holder) => Ok(DiskLock::Held(format!("process #{holder}"))),
            None => {
                state.disk.locks.insert(path.clone(), id);
                let process = self.process.clone();
                Ok(DiskLock::Taken(Box::new(Held { process, path }) as Box<dyn Any + Send + Sync>))
            }
        })
    }
}

/// Temporary names have something random in them, which would only lengthen the trace.
fn shown(path: &Path) -> String {
    match name_of(path) {
        Some(name) => name,
        None => format!("{}/.*", path.parent().unwrap_or(path).display()),
    }
}

struct ModelFile {
    disk: ModelDisk,
    inode: usize,
    length: usize,
    is_flushed: bool,
}

impl DiskFile for ModelFile {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let (inode, at) = (self.inode, self.length);
        self.length += bytes.len();
        self.disk.step(format_args!("writes {} bytes", bytes.len()), |state| {
            state.disk.write(state.now, inode, Some((at, bytes.to_vec())));
            Ok(())
        })
    }

    fn flush(&mut self) -> Result<()> {
        let (inode, is_flushed) = (self.inode, self.is_flushed);
        self.disk.step(format_args!("flushes a file"), |state| {
            if is_flushed {
                state.disk.flush(inode);
            }
            Ok(())
        })
    }

    fn has_one_name(&self) -> bool {
        true
    }

    fn empty(&mut self) -> Result<()> {
        let inode = self.inode;
        self.disk.step(format_args!("empties a file"), |state| {
            state.disk.write(state.now, inode, None);
            Ok(())
        })
    }
}

/// A lock, which ends with its process.
struct Held {
    process: Process,
    path: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        let id = self.process.id;
        self.process.with(|state| {
            if state.disk.locks.get(&self.path) == Some(&id) {
                state.disk.locks.remove(&self.path);
            }
        });
    }
}
