//! A task's answer on its way from the files of a runner to the files of a node.
//!
//! Neither end has it in memory as a whole. The runner computes the checksums ([`Written`]) and
//! then reads the files once more while it sends them. The node writes what arrives as it arrives,
//! under hidden names ([`Receiver`]). All files of an answer appear together when its last byte
//! is there and right ([`Received::publish`]); otherwise they are removed.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ballista_core::serde::protobuf::ShuffleWritePartition;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::output::{OutputReader, Piece};
use super::task::{self, Delivery, OutputHeader, WrittenFile, WrittenPartition};

/// How much of a file is in memory at one time.
const PIECE_BYTES: usize = 256 << 10;

/// The message that a task has made: its files stay where they are until this is dropped.
pub struct Written {
    /// All of the message but the files.
    head: Bytes,
    files: Vec<PathBuf>,
    bytes: u64,
    _directory: WorkDirectory,
}

/// A directory of a task's own, which is gone with it.
pub(super) struct WorkDirectory(pub(super) PathBuf);

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // What is left is removed with the runner's directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Written {
    /// The files below `root`, which is within `directory`. Reads all of them for the checksums.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn gather(
        directory: WorkDirectory,
        root: &Path,
        partitions: Vec<ShuffleWritePartition>,
        metrics: Vec<String>,
    ) -> io::Result<Self> {
        let (mut described, mut files) = (Vec::new(), Vec::new());
        gather(root, root, &mut described, &mut files)?;
        let partitions = partitions.into_iter().map(|partition| WrittenPartition {
            partition: partition.partition_id,
            record_batches: partition.num_batches,
            rows: partition.num_rows,
            bytes: partition.num_bytes,
            file: partition.file_id,
            is_sorted: partition.is_sort_shuffle,
        });
        let in_files: u64 = described.iter().map(|file| file.bytes).sum();
        let partitions = partitions.collect();
        let delivery = Delivery::Inline;
        let header = OutputHeader { delivery, partitions, files: described, metrics };
        let head = task::message(&header, [])?;
        let bytes = in_files + head.len() as u64;
        Ok(Self { head, files, bytes, _directory: directory })
    }

    /// The length of the message, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The message, piece by piece.
    pub fn pieces(self: &Arc<Self>) -> BoxStream<'static, io::Result<Bytes>> {
        let head = self.head.clone();
        let files =
            stream::try_unfold((Arc::clone(self), 0, None), |(written, next, open)| async move {
                let (mut next, mut open): (usize, Option<File>) = (next, open);
                loop {
                    if let Some(file) = &mut open {
                        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
                        if file.read_buf(&mut piece).await? > 0 {
                            return Ok(Some((piece.freeze(), (written, next, open))));
                        }
                    }
                    let Some(path) = written.files.get(next) else { return Ok(None) };
                    open = Some(File::open(path).await?);
                    next += 1;
                }
            });
        stream::once(async { Ok(head) }).chain(files).boxed()
    }

    /// The message as a whole, for one that is known to be small.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub async fn whole(self: &Arc<Self>) -> io::Result<Bytes> {
        let mut pieces = self.pieces();
        let mut whole = BytesMut::with_capacity(usize::try_from(self.bytes).unwrap_or_default());
        while let Some(piece) = pieces.next().await {
            whole.extend_from_slice(&piece?);
        }
        Ok(whole.freeze())
    }
}

fn gather(
    root: &Path,
    directory: &Path,
    described: &mut Vec<WrittenFile>,
    files: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // A task without rows writes nothing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            gather(root, &path, described, files)?;
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let (bytes, checksum) = checked(&path)?;
        described.push(WrittenFile { path: name, bytes, checksum });
        files.push(path);
    }
    Ok(())
}

/// The length of a file, and the CRC-32 of its bytes.
fn checked(path: &Path) -> io::Result<(u64, u32)> {
    let (mut file, mut piece) = (fs::File::open(path)?, vec![0; PIECE_BYTES]);
    let (mut length, mut checksum) = (0, crc32fast::Hasher::new());
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((length, checksum.finalize())),
            read => {
                checksum.update(&piece[..read]);
                length += read as u64;
            }
        }
    }
}

/// Writes an answer to files as it arrives.
pub struct Receiver {
    reader: OutputReader,
    hidden: Hidden,
    /// The stage's directory.
    directory: PathBuf,
    /// Tells the files of this answer from those of another one.
    unique: u64,
    open: Option<File>,
}

/// Files under hidden names, each with the name that it is to have. Those that have not got it are
/// removed with this.
#[derive(Default)]
struct Hidden(Vec<(PathBuf, PathBuf)>);

impl Drop for Hidden {
    fn drop(&mut self) {
        for (hidden, _) in &self.0 {
            if let Err(error) = fs::remove_file(hidden)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(file = %hidden.display(), %error, "a file cannot be removed");
            }
        }
    }
}

impl Receiver {
    /// Files go to `directory`; `unique` is a number that no other answer has.
    pub fn new(directory: PathBuf, unique: u64) -> Self {
        let (reader, hidden) = (OutputReader::default(), Hidden::default());
        Self { reader, hidden, directory, unique, open: None }
    }

    /// Takes the next bytes of the message.
    ///
    /// # Errors
    /// Bytes that are not of a message ([`io::ErrorKind::InvalidData`]), and what the disk fails
    /// with.
    pub async fn take(&mut self, bytes: Bytes) -> io::Result<()> {
        self.reader.take(bytes);
        while let Some(piece) = self.reader.piece()? {
            match piece {
                Piece::Begin(path) => self.begin(&path).await?,
                Piece::Bytes(bytes) => {
                    if let Some(file) = &mut self.open {
                        file.write_all(&bytes).await.map_err(|error| self.unwritten(&error))?;
                    }
                }
                Piece::End => self.end().await?,
            }
        }
        Ok(())
    }

    async fn begin(&mut self, path: &str) -> io::Result<()> {
        let path = self.directory.join(path);
        let parent = path.parent().unwrap_or(&self.directory);
        let made = tokio::fs::create_dir_all(parent).await;
        made.map_err(|error| self.unwritten(&error))?;
        let hidden = parent.join(format!(".{:016x}-{}", self.unique, self.hidden.0.len()));
        self.hidden.0.push((hidden.clone(), path));
        // Not in the background: a file made there after this is dropped would never be removed.
        let file = fs::File::create(hidden).map_err(|error| self.unwritten(&error))?;
        self.open = Some(File::from_std(file));
        Ok(())
    }

    async fn end(&mut self) -> io::Result<()> {
        let Some(mut file) = self.open.take() else { return Ok(()) };
        // What was written in the background fails here at the latest.
        file.flush().await.map_err(|error| self.unwritten(&error))
    }

    fn unwritten(&self, error: &io::Error) -> io::Error {
        let at = self.directory.display();
        io::Error::new(error.kind(), format!("the node cannot write to {at}: {error}"))
    }

    /// What has arrived, if all of it has.
    ///
    /// # Errors
    /// A message that is not whole.
    pub fn finish(self) -> io::Result<Received> {
        Ok(Received { header: self.reader.finish()?, hidden: self.hidden })
    }
}

/// An answer that is here as a whole, under hidden names.
pub struct Received {
    /// What it consists of.
    pub header: OutputHeader,
    hidden: Hidden,
}

impl Received {
    /// Has all files appear, and gives the partitions that they are of.
    ///
    /// # Errors
    /// What the disk fails with.
    pub fn publish(mut self) -> io::Result<Vec<WrittenPartition>> {
        while let Some((hidden, path)) = self.hidden.0.last() {
            fs::rename(hidden, path)?;
            self.hidden.0.pop();
        }
        Ok(self.header.partitions)
    }
}

/// Answers for the tests of those that carry them.
#[cfg(test)]
pub(super) mod samples {
    use tempfile::TempDir;

    use super::*;

    /// An answer of files of these lengths, and what they are.
    pub(in crate::cluster) fn written(lengths: &[usize]) -> (Arc<Written>, Vec<Vec<u8>>) {
        let root = tempfile::tempdir().expect("a directory").keep();
        let bytes = |length: &usize| (0..*length).map(|at| (at * 7 / 3) as u8).collect();
        let files: Vec<Vec<u8>> = lengths.iter().map(bytes).collect();
        for (number, bytes) in files.iter().enumerate() {
            fs::create_dir(root.join(number.to_string())).expect("it is new");
            fs::write(root.join(format!("{number}/data.arrow")), bytes).expect("written");
        }
        let directory = WorkDirectory(root.clone());
        let written =
            Written::gather(directory, &root, Vec::new(), Vec::new()).expect("they can be read");
        (Arc::new(written), files)
    }

    /// A directory, and what takes an answer in there.
    pub(in crate::cluster) fn receiver() -> (TempDir, Receiver) {
        let directory = tempfile::tempdir().expect("a directory");
        let receiver = Receiver::new(directory.path().to_owned(), 7);
        (directory, receiver)
    }

    /// How many files are below `directory`.
    pub(in crate::cluster) fn files_in(directory: &Path) -> usize {
        let entries = fs::read_dir(directory).expect("it is there");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.map(|path| if path.is_dir() { files_in(&path) } else { 1 }).sum()
    }

    /// Has the answer appear, and holds it against `files`.
    pub(in crate::cluster) fn expect(received: Received, at: &Path, files: &[Vec<u8>]) {
        assert!(!at.join("0/data.arrow").exists(), "nothing is there before all is");
        received.publish().expect("published");
        assert_eq!(files_in(at), files.len());
        for (number, bytes) in files.iter().enumerate() {
            let found = fs::read(at.join(format!("{number}/data.arrow"))).expect("it is there");
            assert!(found == *bytes, "file {number}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{expect, files_in, receiver, written};
    use super::*;

    #[tokio::test]
    async fn an_answer_goes_from_files_to_files() {
        let (written, files) = written(&[1, 0, 700_000]);
        let (directory, mut receiver) = receiver();
        let (mut pieces, mut bytes) = (written.pieces(), 0);
        while let Some(piece) = pieces.next().await {
            let piece = piece.expect("a piece");
            assert!(piece.len() <= 2 * PIECE_BYTES, "a piece of {} bytes", piece.len());
            bytes += piece.len() as u64;
            receiver.take(piece).await.expect("it is of the answer");
        }
        assert_eq!(bytes, written.bytes());
        expect(receiver.finish().expect("it is whole"), directory.path(), &files);
    }

    #[tokio::test]
    async fn of_an_answer_that_is_not_whole_nothing_is_left() {
        let (written, _) = written(&[10, 20]);
        let whole = written.whole().await.expect("it can be read");
        for end in [0, 3, whole.len() - 25, whole.len() - 1] {
            let (directory, mut receiver) = receiver();
            receiver.take(whole.slice(..end)).await.expect("it is of the answer");
            assert!(receiver.finish().is_err(), "{end} bytes");
            assert_eq!(files_in(directory.path()), 0, "{end} bytes");
        }
        // All of it has come, but nobody wants it any more.
        let (directory, mut receiver) = receiver();
        receiver.take(whole).await.expect("it is the answer");
        assert_eq!(files_in(directory.path()), 2);
        drop(receiver.finish().expect("it is whole"));
        assert_eq!(files_in(directory.path()), 0);
    }
}
