//! The model of a machine's file system, which loses what was not flushed when the machine fails.
//!
//! What is written is seen by every process at once and is on the disk later: when it is flushed,
//! or when the system has had it for longer than [`DiskTraits::writeback`]. Until then a failure of
//! the machine may lose it. The content of a file may then be what was flushed, or a beginning of
//! what was written since, or as long as it was and zeros. Names that were made, changed or removed
//! survive in the order of these changes, except that those of a flushed directory all do, and
//! those of a flushed file before. To rename a file and to empty it survive in order, as file
//! systems with a journal have it, and what is written afterwards survives only with both. A file
//! or a directory is gone if the name of any directory above it is.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::chance::Chance;
use crate::scenario::DiskTraits;

/// A machine's file system.
#[derive(Default)]
pub struct Disk {
    inodes: Vec<Inode>,
    /// As processes see them.
    names: BTreeMap<PathBuf, usize>,
    /// As a failure of the machine leaves them, if nothing else survives.
    names_on_disk: BTreeMap<PathBuf, usize>,
    name_changes: Vec<NameChange>,
    /// How many changes there were.
    count: u64,
    /// Locks that are taken.
    pub locks: BTreeMap<PathBuf, usize>,
}

#[derive(Default)]
struct Inode {
    is_directory: bool,
    bytes: Vec<u8>,
    on_disk: Vec<u8>,
    changes: Vec<ContentChange>,
}

struct ContentChange {
    number: u64,
    at: Duration,
    /// `None` where all content was removed.
    written: Option<(usize, Vec<u8>)>,
}

struct NameChange {
    number: u64,
    at: Duration,
    inode: usize,
    gone: Option<PathBuf>,
    new: Option<PathBuf>,
}

impl NameChange {
    fn is_in(&self, directory: &Path) -> bool {
        let path = self.new.as_ref().or(self.gone.as_ref());
        path.and_then(|path| path.parent()) == Some(directory)
    }

    fn apply(self, names: &mut BTreeMap<PathBuf, usize>) {
        if let Some(gone) = self.gone {
            names.remove(&gone);
        }
        if let Some(new) = self.new {
            names.insert(new, self.inode);
        }
    }
}

impl Inode {
    fn change(bytes: &mut Vec<u8>, written: &Option<(usize, Vec<u8>)>) {
        match written {
            None => bytes.clear(),
            Some((at, written)) => {
                bytes.resize(bytes.len().max(at + written.len()), 0);
                bytes[*at..at + written.len()].copy_from_slice(written);
            }
        }
    }

    /// The name change `number` survives: so does the last emptying before.
    fn settle(&mut self, number: u64) {
        let is_before = |change: &ContentChange| change.number < number && change.written.is_none();
        if let Some(emptied) = self.changes.iter().rposition(is_before) {
            self.changes.drain(..=emptied);
            self.on_disk.clear();
        }
    }

    /// What is left of the content when the machine fails.
    fn fail(&mut self, written_back: Duration, chance: &Chance) {
        for change in self.changes.extract_if(.., |change| change.at <= written_back) {
            Self::change(&mut self.on_disk, &change.written);
        }
        if !self.changes.is_empty() {
            let (flushed, whole) = (self.on_disk.len(), self.changes.len() as u64);
            let surviving = match chance.among(0..=4) {
                0 => 0,
                1 => chance.among(0..=whole - 1),
                _ => whole,
            };
            let torn = self.changes.drain(..).enumerate().filter(|(n, _)| *n as u64 <= surviving);
            for (n, mut change) in torn {
                if n as u64 == surviving {
                    let Some((_, bytes)) = &mut change.written else { continue };
                    bytes.truncate(chance.among(0..=bytes.len() as u64) as usize);
                }
                Self::change(&mut self.on_disk, &change.written);
            }
            if chance.percent(20) {
                // Its length has arrived, and its content has not.
                let kept = flushed.min(self.on_disk.len());
                self.on_disk[kept..].fill(0);
            }
        }
        self.bytes.clone_from(&self.on_disk);
    }
}

impl Disk {
    fn file(&self, path: &Path) -> Result<usize> {
        match self.names.get(path) {
            Some(inode) if !self.inodes[*inode].is_directory => Ok(*inode),
            Some(_) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn rename(&mut self, now: Duration, inode: usize, gone: Option<&Path>, new: Option<&Path>) {
        let (gone, new) = (gone.map(Path::to_owned), new.map(Path::to_owned));
        self.count += 1;
        let number = self.count;
        let change = |gone, new| NameChange { number, at: now, inode, gone, new };
        change(gone.clone(), new.clone()).apply(&mut self.names);
        self.name_changes.push(change(gone, new));
    }

    /// Makes a file or a directory; gives its inode.
    pub fn create(&mut self, now: Duration, path: &Path, is_directory: bool) -> Result<usize> {
        if self.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if !self.is_directory(path.parent().expect("no file is the root")) {
            return Err(ErrorKind::NotFound.into());
        }
        self.inodes.push(Inode { is_directory, ..Inode::default() });
        self.rename(now, self.inodes.len() - 1, None, Some(path));
        Ok(self.inodes.len() - 1)
    }

    /// The inode of a file that is there.
    pub fn open(&self, path: &Path) -> Result<usize> {
        self.file(path)
    }

    /// Writes into a file; `None` removes all content.
    pub fn write(&mut self, now: Duration, inode: usize, written: Option<(usize, Vec<u8>)>) {
        let file = &mut self.inodes[inode];
        Inode::change(&mut file.bytes, &written);
        self.count += 1;
        file.changes.push(ContentChange { number: self.count, at: now, written });
    }

    /// Has a file's content survive.
    pub fn flush(&mut self, inode: usize) {
        for change in self.name_changes.extract_if(.., |change| change.inode == inode) {
            change.apply(&mut self.names_on_disk);
        }
        // The content as a whole follows, so that nothing has to be settled.
        let file = &mut self.inodes[inode];
        file.changes.clear();
        file.on_disk.clone_from(&file.bytes);
    }

    /// Has the names in a directory survive.
    pub fn flush_names(&mut self, directory: &Path) {
        for change in self.name_changes.extract_if(.., |change| change.is_in(directory)) {
            self.inodes[change.inode].settle(change.number);
            change.apply(&mut self.names_on_disk);
        }
    }

    /// Gives a file another name in its directory, which must be free. Gives its content.
    pub fn rename_if_absent(&mut self, now: Duration, from: &Path, to: &Path) -> Result<Vec<u8>> {
        let inode = self.file(from)?;
        if self.names.contains_key(to) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        assert_eq!(from.parent(), to.parent(), "a checkpoint moves nothing between directories");
        self.rename(now, inode, Some(from), Some(to));
        Ok(self.inodes[inode].bytes.clone())
    }

    /// Removes a name.
    pub fn delete(&mut self, now: Duration, path: &Path) -> Result<()> {
        let inode = self.file(path)?;
        self.rename(now, inode, Some(path), None);
        Ok(())
    }

    /// Whether there is such a directory.
    pub fn is_directory(&self, path: &Path) -> bool {
        path.parent().is_none()
            || self.names.get(path).is_some_and(|inode| self.inodes[*inode].is_directory)
    }

    /// The content of a file.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        Ok(self.inodes[self.file(path)?].bytes.clone())
    }

    /// The names in a directory.
    pub fn list(&self, directory: &Path) -> Result<Vec<String>> {
        if !self.is_directory(directory) {
            return Err(Error::from(ErrorKind::NotFound));
        }
        let below = self.names.iter().filter(|(path, _)| path.parent() == Some(directory));
        let name = |(path, inode): (&PathBuf, &usize)| {
            let name = path.file_name().expect("it is in a directory").to_string_lossy();
            if self.inodes[*inode].is_directory { format!("{name}/") } else { name.into_owned() }
        };
        Ok(below.map(name).collect())
    }

    /// All files below `directory`, by their paths relative to it.
    pub fn files_below(&self, directory: &Path) -> BTreeMap<String, Vec<u8>> {
        let file = |(path, inode): (&PathBuf, &usize)| {
            let name = path.strip_prefix(directory).ok()?.to_string_lossy().into_owned();
            let inode = &self.inodes[*inode];
            (!inode.is_directory).then(|| (name, inode.bytes.clone()))
        };
        self.names.iter().filter_map(file).collect()
    }

    /// The machine fails.
    pub fn fail(&mut self, now: Duration, traits: &DiskTraits, chance: &Chance) {
        let written_back = now.saturating_sub(traits.writeback);
        let changes = &mut self.name_changes;
        let new = changes.iter().filter(|change| change.at > written_back).count() as u64;
        let lost = chance.among(0..=new) as usize;
        let surviving = changes.len() - lost;
        for change in changes.split_off(surviving) {
            if change.gone.is_some() {
                let inode = &mut self.inodes[change.inode];
                inode.changes.retain(|content| content.number < change.number);
            }
        }
        for change in changes.drain(..) {
            self.inodes[change.inode].settle(change.number);
            change.apply(&mut self.names_on_disk);
        }
        for inode in &mut self.inodes {
            inode.fail(written_back, chance);
        }
        let (names, inodes) = (&mut self.names_on_disk, &self.inodes);
        let found = |path: &Path, names: &BTreeMap<PathBuf, usize>| {
            path.parent().is_none() || names.get(path).is_some_and(|at| inodes[*at].is_directory)
        };
        let is_lost = |path: &Path, names: &BTreeMap<PathBuf, usize>| {
            path.ancestors().skip(1).any(|above| !found(above, names))
        };
        let lost: Vec<_> = names.keys().filter(|path| is_lost(path, names)).cloned().collect();
        for path in lost {
            names.remove(&path);
        }
        self.names.clone_from(names);
        self.locks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(60);

    fn fail(disk: &mut Disk, seed: u64) {
        let traits = DiskTraits { writeback: Duration::from_secs(1), way: Duration::ZERO };
        disk.fail(NOW, &traits, &Chance::new(seed));
    }

    /// What a failure leaves of `/a/b`, over many seeds, if `prepare` was done before.
    fn left(prepare: impl Fn(&mut Disk)) -> std::collections::BTreeSet<Option<Vec<u8>>> {
        let after = |seed| {
            let mut disk = Disk::default();
            prepare(&mut disk);
            fail(&mut disk, seed);
            disk.read(Path::new("/a/b")).ok()
        };
        (0..400).map(after).collect()
    }

    fn write(disk: &mut Disk, content: &[u8]) -> usize {
        disk.create(NOW, Path::new("/a"), true).expect("made");
        let file = disk.create(NOW, Path::new("/a/.b"), false).expect("made");
        disk.write(NOW, file, Some((0, content.to_vec())));
        file
    }

    #[test]
    fn what_is_flushed_survives_with_the_names_above_it() {
        let flush_all = |disk: &mut Disk| {
            let file = write(disk, b"ab");
            disk.flush(file);
            disk.rename_if_absent(NOW, Path::new("/a/.b"), Path::new("/a/b")).expect("renamed");
            disk.flush_names(Path::new("/a"));
            disk.flush_names(Path::new("/"));
        };
        assert_eq!(left(flush_all), [Some(b"ab".to_vec())].into());
    }

    #[test]
    fn what_is_not_flushed_is_lost_or_torn_or_zeros_or_survives() {
        let flush_names = |disk: &mut Disk| {
            write(disk, b"ab");
            disk.rename_if_absent(NOW, Path::new("/a/.b"), Path::new("/a/b")).expect("renamed");
            disk.flush_names(Path::new("/a"));
            disk.flush_names(Path::new("/"));
        };
        let expected = [&b""[..], b"a", b"ab", b"\0", b"\0\0"].map(|left| Some(left.to_vec()));
        assert_eq!(left(flush_names), expected.into());
    }

    #[test]
    fn a_renaming_may_be_undone() {
        let flush_content = |disk: &mut Disk| {
            let file = write(disk, b"ab");
            disk.flush(file);
            disk.flush_names(Path::new("/"));
            disk.rename_if_absent(NOW, Path::new("/a/.b"), Path::new("/a/b")).expect("renamed");
        };
        assert_eq!(left(flush_content), [None, Some(b"ab".to_vec())].into());
    }
}
