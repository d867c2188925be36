//! What a process does to files, recorded, and what a power cut at any moment leaves of them.
//!
//! The record is made by `disk_recorder.c`, a library that is loaded into the process before all
//! others. It needs Linux and a C compiler, which building librdkafka needs too.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const RECORDER: &str = include_str!("disk_recorder.c");

/// Has what a process does to files below a directory recorded.
pub struct Recorder {
    root: PathBuf,
    library: PathBuf,
    log: PathBuf,
    found: Found,
}

/// Files below a directory; `None` for directories.
pub type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// What was there before, with inode numbers. All of it survives.
type Found = Vec<(PathBuf, u64, Option<Vec<u8>>)>;

/// Something that was done: to a file, which its inode number names, or to names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named after what they are")]
pub enum Step {
    /// A file was made.
    Create { inode: u64, path: PathBuf },
    /// A directory was made.
    MakeDirectory { path: PathBuf },
    /// Bytes were written.
    Write { inode: u64, at: usize, bytes: Vec<u8> },
    /// A file was made shorter or longer.
    Resize { inode: u64, size: usize },
    /// The content of a file was flushed.
    Flush { inode: u64 },
    /// The names in a directory were flushed.
    FlushNames { path: PathBuf },
    /// A file got another name.
    Rename { from: PathBuf, to: PathBuf },
    /// A file got one more name.
    Link { from: PathBuf, to: PathBuf },
    /// A name was removed.
    Remove { path: PathBuf },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { inode, path } => write!(f, "make file {inode}, {}", path.display()),
            Self::MakeDirectory { path } => write!(f, "make directory {}", path.display()),
            Self::Write { inode, at, bytes } => {
                write!(f, "write {} bytes at {at} of file {inode}", bytes.len())
            }
            Self::Resize { inode, size } => write!(f, "give file {inode} {size} bytes"),
            Self::Flush { inode } => write!(f, "flush file {inode}"),
            Self::FlushNames { path } => write!(f, "flush the names in {}", path.display()),
            Self::Rename { from, to } => write!(f, "rename {} to {}", from.display(), to.display()),
            Self::Link { from, to } => write!(f, "link {} to {}", to.display(), from.display()),
            Self::Remove { path } => write!(f, "remove {}", path.display()),
        }
    }
}

/// Everything that was done, in order.
pub struct Record {
    root: PathBuf,
    found: Found,
    steps: Vec<Step>,
}

/// What survives a power cut: what was flushed, and of the rest what the system has happened to
/// write by then. Names are taken to survive in the order of their changes, as file systems with a
/// journal have it, but for those in directories that were flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// What was flushed: content, and names in flushed directories.
    Flushed,
    /// All names, and content that was flushed. The rest is empty.
    Names,
    /// All names, content that was flushed, and of the content of some other files everything or a
    /// beginning; the number chooses.
    Some(u64),
    /// Everything.
    All,
}

impl Recorder {
    /// Records what happens below `root`; keeps its own files in `directory`.
    ///
    /// # Panics
    /// Without a C compiler.
    pub fn new(root: &Path, directory: &Path) -> Self {
        let (source, library) = (directory.join("recorder.c"), directory.join("recorder.so"));
        fs::write(&source, RECORDER).expect("the directory is writable");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]).arg("-lpthread");
        let status = compiler.status().expect("there is a C compiler");
        assert!(status.success(), "the recorder cannot be compiled");
        Self { root: root.to_owned(), library, log: directory.join("record"), found: Vec::new() }
    }

    /// Has `command` recorded, which is about to start, and nothing that was recorded before.
    ///
    /// # Panics
    /// Where the root cannot be read.
    pub fn watch(&mut self, command: &mut Command) {
        let _ = fs::remove_file(&self.log);
        let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
        let found = read(&self.root).into_iter();
        self.found = found.map(|(path, content)| (path.clone(), inode(&path), content)).collect();
        command.env("LD_PRELOAD", &self.library);
        command.env("DISK_RECORDER_ROOT", &self.root);
        command.env("DISK_RECORDER_LOG", &self.log);
    }

    /// What was recorded.
    ///
    /// # Panics
    /// Where the record is not one, or what is there now does not follow from it.
    pub fn record(&self) -> Record {
        let bytes = fs::read(&self.log).expect("a process was recorded");
        let (mut rest, mut steps) = (&bytes[..], Vec::new());
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = std::str::from_utf8(&rest[..end]).expect("paths are text").to_owned();
            let fields: Vec<&str> = line.split('\t').collect();
            let [what, inode, path, other, length] = fields[..] else { panic!("a line {line:?}") };
            let length: usize = length.parse().expect("a length");
            let (content, behind) = rest[end + 1..].split_at(length);
            steps.push(step(what, inode.parse().expect("a number"), path, other, content));
            rest = behind;
        }
        let record = Record { root: self.root.clone(), found: self.found.clone(), steps };
        record.assert_complete();
        record
    }
}

fn step(what: &str, inode: u64, path: &str, other: &str, content: &[u8]) -> Step {
    // Paths are compared, so there is one way to write each.
    let plain = |text: &str| Path::new(text).components().collect::<PathBuf>();
    let number = || other.parse().expect("a number");
    let path = plain(path);
    match what {
        "create" => Step::Create { inode, path },
        "mkdir" => Step::MakeDirectory { path },
        "write" => Step::Write { inode, at: number(), bytes: content.to_vec() },
        "size" => Step::Resize { inode, size: number() },
        "flush" => Step::Flush { inode },
        "names" => Step::FlushNames { path },
        "rename" => Step::Rename { from: path, to: plain(other) },
        "link" => Step::Link { from: path, to: plain(other) },
        "remove" => Step::Remove { path },
        _ => panic!("a record says {what:?}"),
    }
}

/// A file's content, or a directory.
#[derive(Clone, Default)]
struct Node {
    is_directory: bool,
    written: Vec<u8>,
    flushed: Vec<u8>,
}

impl Node {
    fn some(&self, chance: u64) -> &[u8] {
        match chance % 3 {
            0 => &self.flushed,
            1 => &self.written,
            // As far as it was flushed, nothing is lost.
            _ if self.written.starts_with(&self.flushed) => {
                &self.written[..self.written.len().midpoint(self.flushed.len())]
            }
            _ => &self.flushed,
        }
    }
}

/// What there is after some steps.
#[derive(Default)]
struct Disk {
    nodes: Vec<Node>,
    by_inode: HashMap<u64, usize>,
    names: BTreeMap<PathBuf, usize>,
    flushed_names: BTreeMap<PathBuf, usize>,
}

impl Disk {
    fn new(found: &Found) -> Self {
        let mut disk = Self::default();
        for (path, inode, content) in found {
            let node = disk.add(path, content.is_none());
            disk.by_inode.insert(*inode, node);
            let content = content.clone().unwrap_or_default();
            (disk.nodes[node].written, disk.nodes[node].flushed) = (content.clone(), content);
        }
        disk.flushed_names.clone_from(&disk.names);
        disk
    }

    fn add(&mut self, path: &Path, is_directory: bool) -> usize {
        self.nodes.push(Node { is_directory, ..Node::default() });
        self.names.insert(path.to_owned(), self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    fn of(&mut self, inode: u64) -> &mut Node {
        &mut self.nodes[self.by_inode[&inode]]
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Create { inode, path } => {
                let node = self.add(path, false);
                // The number may have been that of a file that is gone.
                self.by_inode.insert(*inode, node);
            }
            Step::MakeDirectory { path } => {
                self.add(path, true);
            }
            Step::Write { inode, at, bytes } => {
                let written = &mut self.of(*inode).written;
                written.resize(written.len().max(at + bytes.len()), 0);
                written[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Step::Resize { inode, size } => self.of(*inode).written.resize(*size, 0),
            Step::Flush { inode } => {
                let node = self.of(*inode);
                node.flushed.clone_from(&node.written);
            }
            Step::FlushNames { path } => {
                let is_in = |name: &Path| name.parent() == Some(path);
                self.flushed_names.retain(|name, _| !is_in(name));
                let names = self.names.iter().filter(|(name, _)| is_in(name));
                self.flushed_names.extend(names.map(|(name, node)| (name.clone(), *node)));
            }
            Step::Rename { from, to } => {
                let node = self.names.remove(from).expect("it was there");
                self.names.insert(to.clone(), node);
            }
            Step::Link { from, to } => {
                let node = self.names[from];
                self.names.insert(to.clone(), node);
            }
            Step::Remove { path } => {
                self.names.remove(path);
            }
        }
    }

    fn left(&self, root: &Path, survives: Survives) -> Tree {
        let names = match survives {
            Survives::Flushed => &self.flushed_names,
            Survives::Names | Survives::Some(_) | Survives::All => &self.names,
        };
        let mut tree = Tree::new();
        // Sorted, so that a directory comes before what is in it.
        for (path, node) in names {
            let above = path.parent().expect("it is below the root");
            let node = &self.nodes[*node];
            let content = match survives {
                Survives::All => &node.written[..],
                Survives::Flushed | Survives::Names => &node.flushed,
                Survives::Some(choice) => node.some(chance(choice, path)),
            };
            if above == root || tree.get(above) == Some(&None) {
                tree.insert(path.clone(), (!node.is_directory).then(|| content.to_vec()));
            }
        }
        tree
    }
}

fn chance(choice: u64, path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    (choice, path).hash(&mut hasher);
    hasher.finish()
}

impl Record {
    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether nothing was done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The step after the first `steps`, for messages.
    pub fn step(&self, steps: usize) -> Option<&Step> {
        self.steps.get(steps)
    }

    /// What a power cut after the first `steps` leaves.
    pub fn left(&self, steps: usize, survives: Survives) -> Tree {
        let mut disk = Disk::new(&self.found);
        self.steps[..steps].iter().for_each(|step| disk.apply(step));
        disk.left(&self.root, survives)
    }

    /// What a power cut leaves after each step, the first being none at all.
    pub fn left_after_each(&self, survives: Survives) -> impl Iterator<Item = Tree> {
        let mut disk = Disk::new(&self.found);
        (0..=self.steps.len()).map(move |steps| {
            steps.checked_sub(1).into_iter().for_each(|last| disk.apply(&self.steps[last]));
            disk.left(&self.root, survives)
        })
    }

    /// What is there must follow from the record: else something was done in a way that the
    /// recorder does not see.
    fn assert_complete(&self) {
        let (recorded, found) = (self.left(self.len(), Survives::All), read(&self.root));
        let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&recorded), names(&found), "names that were recorded, and found");
        for (path, content) in &found {
            assert!(recorded[path] == *content, "{} was not recorded whole", path.display());
        }
    }

    /// Puts `tree` in the place of everything below the root.
    ///
    /// # Panics
    /// Where it cannot be written.
    pub fn restore(&self, tree: &Tree) {
        if self.root.exists() {
            fs::remove_dir_all(&self.root).expect("it can be removed");
        }
        fs::create_dir_all(&self.root).expect("it can be made");
        for (path, content) in tree {
            match content {
                None => fs::create_dir(path).expect("it can be made"),
                Some(content) => fs::write(path, content).expect("it can be written"),
            }
        }
    }
}

/// What is below `directory`.
fn read(directory: &Path) -> Tree {
    let mut tree = Tree::new();
    for entry in fs::read_dir(directory).expect("it can be listed") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            tree.append(&mut read(&path));
            tree.insert(path, None);
        } else {
            let content = fs::read(&path).expect("it can be read");
            tree.insert(path, Some(content));
        }
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_does_is_recorded_and_what_is_not_flushed_is_lost() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path().join("root");
        fs::create_dir(&root).expect("made");
        let mut recorder = Recorder::new(&root, directory.path());
        let mut shell = Command::new("sh");
        shell.args(["-c", "mkdir a && printf ab > a/b && sync a/b && printf c > a/c && sync a ."]);
        recorder.watch(&mut shell);
        assert!(shell.current_dir(&root).status().expect("there is a shell").success());

        let record = recorder.record();
        let tree = |survives| record.left(record.len(), survives);
        let of = |b: &[u8], c: &[u8]| -> Tree {
            let files = [("a/b", Some(b.to_vec())), ("a/c", Some(c.to_vec())), ("a", None)];
            files.map(|(name, content)| (root.join(name), content)).into()
        };
        assert_eq!(tree(Survives::All), of(b"ab", b"c"));
        assert_eq!(tree(Survives::Flushed), of(b"ab", b""));
        assert_eq!(record.left(record.len() - 1, Survives::Flushed), Tree::new(), "no name above");
        record.restore(&tree(Survives::Flushed));
        assert_eq!(fs::read(root.join("a/b")).expect("readable"), b"ab");
    }
}
