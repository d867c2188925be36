//! Blocks of files in a directory, up to a number of bytes; those used longest ago go first.
//!
//! A block is a file of its own. It is written under another name and renamed when it is whole, and
//! has a checksum, so that neither a process that is killed nor a machine that is switched off
//! leaves a wrong one. What a process has left is used by the next.
//!
//! ```text
//! "MSBLOCK1" | key length | data length | CRC-32 of the rest (4 bytes each, big endian) | key | data
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use millstream_store::env::Env;
use millstream_store::error::{Classified, Kind};
use parking_lot::Mutex;
use thiserror::Error;

use super::hash::stable_hash;

const MAGIC: &[u8; 8] = b"MSBLOCK1";
const HEADER_BYTES: usize = 20;
const SUFFIX: &str = ".block";
/// The file whose lock one process has.
const LOCK: &str = "lock";
/// The file that has the cache's name.
const NAME: &str = "name";
/// What a new file system has in its root.
const LOST_AND_FOUND: &str = "lost+found";
/// What the name of a half-written file begins with; 16 digits follow.
const HALF_WRITTEN: char = '.';
/// How long nothing is written after the disk has refused a block.
const PAUSE: Duration = Duration::from_secs(60);

/// Why a directory cannot be a cache.
#[derive(Debug, Error)]
pub enum CacheError {
    /// Another process uses it.
    #[error("the cache {path} is in use by another process; each node needs one of its own")]
    InUse {
        /// The directory.
        path: String,
    },
    /// There are files in it that are not a cache's.
    #[error(
        "the directory {path} is not empty and is no cache; name a directory that is empty, or \
         one that does not exist and will be made"
    )]
    Foreign {
        /// The directory.
        path: String,
    },
    /// The operating system refuses.
    #[error("the directory {path} cannot be a cache: {error}")]
    Directory {
        /// The directory.
        path: String,
        /// What the operating system says.
        error: io::Error,
    },
}

impl Classified for CacheError {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

/// What a cache has done.
#[derive(Debug, Default)]
pub struct CacheCounts {
    /// Blocks that were there.
    pub hits: AtomicU64,
    /// Blocks that were not, and were read from the store.
    pub misses: AtomicU64,
    /// Bytes asked for that came from blocks that were there.
    pub bytes_from_cache: AtomicU64,
    /// Bytes that were read from the store: whole blocks.
    pub bytes_from_store: AtomicU64,
    /// Blocks that were removed to make room.
    pub evicted: AtomicU64,
    /// Blocks that the disk had no room for.
    pub refused: AtomicU64,
}

/// Blocks in a directory.
#[derive(Debug)]
pub struct BlockCache {
    env: Env,
    directory: PathBuf,
    bytes_max: u64,
    name: String,
    index: Mutex<Index>,
    /// Nothing is written before this moment of the monotonic clock.
    paused_until: Mutex<Duration>,
    /// What it has done.
    pub counts: CacheCounts,
    /// Locked as long as it is open.
    _lock: File,
}

/// Which blocks there are, by the hash of their keys.
#[derive(Debug, Default)]
struct Index {
    blocks: HashMap<u64, Block>,
    /// By the moment of their last use.
    by_use: BTreeMap<u64, u64>,
    uses: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    used: u64,
}

impl Index {
    fn add(&mut self, hash: u64, bytes: u64) {
        self.remove(hash);
        self.uses += 1;
        self.blocks.insert(hash, Block { bytes, used: self.uses });
        self.by_use.insert(self.uses, hash);
        self.bytes += bytes;
    }

    fn remove(&mut self, hash: u64) {
        if let Some(block) = self.blocks.remove(&hash) {
            self.by_use.remove(&block.used);
            self.bytes -= block.bytes;
        }
    }

    /// Takes out those used longest ago, until `bytes` are left at most.
    fn shrink(&mut self, bytes: u64) -> Vec<u64> {
        let mut out = Vec::new();
        while self.bytes > bytes {
            let Some((_, hash)) = self.by_use.pop_first() else { break };
            if let Some(block) = self.blocks.remove(&hash) {
                self.bytes -= block.bytes;
            }
            out.push(hash);
        }
        out
    }
}

impl BlockCache {
    /// The cache in `directory`, which is made if it is not there, of up to `bytes_max` bytes.
    ///
    /// # Errors
    /// A directory that cannot be used, that another process uses, or that has files of others.
    pub fn open(env: Env, directory: &Path, bytes_max: u64) -> Result<Self, CacheError> {
        let path = || directory.display().to_string();
        let failed = |error| CacheError::Directory { path: path(), error };
        fs::create_dir_all(directory).map_err(failed)?;
        if is_foreign(directory).map_err(failed)? {
            return Err(CacheError::Foreign { path: path() });
        }
        let lock = File::options().create(true).append(true).open(directory.join(LOCK));
        let lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(CacheError::InUse { path: path() }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let name = name(&env, directory).map_err(failed)?;
        let index = Mutex::new(found(directory).map_err(failed)?);
        let cache = Self {
            env,
            directory: directory.to_owned(),
            bytes_max,
            name,
            index,
            paused_until: Mutex::default(),
            counts: CacheCounts::default(),
            _lock: lock,
        };
        cache.make_room(0);
        Ok(cache)
    }

    /// A name that stays with the directory, 16 digits.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.index.lock().bytes
    }

    fn path(&self, hash: u64) -> PathBuf {
        self.directory.join(format!("{hash:016x}{SUFFIX}"))
    }

    /// The block of `key`, if it is there and whole. Blocks.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        let hash = stable_hash([key.as_bytes()]);
        let bytes = {
            let mut index = self.index.lock();
            let bytes = index.blocks.get(&hash)?.bytes;
            index.add(hash, bytes);
            bytes
        };
        let file = fs::read(self.path(hash)).ok().filter(|file| file.len() as u64 == bytes);
        let data = file.and_then(|file| data(&file.into(), key));
        if data.is_none() {
            self.forget(hash);
        }
        data
    }

    /// Counts the block no more, and removes its file: one that was evicted while it was put again
    /// would stay without being counted.
    fn forget(&self, hash: u64) {
        self.index.lock().remove(hash);
        // A file that stays is replaced by the next block of its name.
        let _ = fs::remove_file(self.path(hash));
    }

    /// Keeps the block of `key`. Blocks. What cannot be kept is left out, with a warning at most
    /// once a minute.
    pub fn put(&self, key: &str, data: &[u8]) {
        if self.env.monotonic() < *self.paused_until.lock() {
            return;
        }
        let hash = stable_hash([key.as_bytes()]);
        let file = file(key, data);
        let bytes = file.len() as u64;
        if bytes > self.bytes_max {
            return;
        }
        self.make_room(bytes);
        let hidden = self.directory.join(format!("{HALF_WRITTEN}{:016x}", self.env.random_u64()));
        let written = fs::write(&hidden, &file).and_then(|()| fs::rename(&hidden, self.path(hash)));
        match written {
            Ok(()) => {
                self.index.lock().add(hash, bytes);
                // Others may have put blocks into the same room meanwhile.
                self.make_room(0);
            }
            Err(error) => {
                let _ = fs::remove_file(&hidden);
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                *self.paused_until.lock() = self.env.monotonic() + PAUSE;
                let path = self.directory.display();
                tracing::warn!(%path, %error, "the cache cannot be written to, and is not filled \
                    for a minute; queries go on");
            }
        }
    }

    /// Removes blocks until there is room for `bytes` more.
    fn make_room(&self, bytes: u64) {
        let out = self.index.lock().shrink(self.bytes_max.saturating_sub(bytes));
        self.counts.evicted.fetch_add(out.len() as u64, Ordering::Relaxed);
        for hash in out {
            let _ = fs::remove_file(self.path(hash));
        }
    }
}

/// Whether the directory has files, and none says that it is a cache: blocks among the files of
/// others would be removed with them one day, or the other way round. A start that was cut off
/// may have left the lock alone.
fn is_foreign(directory: &Path) -> io::Result<bool> {
    if known_name(directory).is_some() {
        return Ok(false);
    }
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let is_known = [LOCK, NAME, LOST_AND_FOUND].contains(&name.as_str());
        // A power cut may take the cache's name and leave its blocks.
        let is_ours = block_of(&name).is_some() || is_half_written(&name);
        if !is_known && !is_ours {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The name in the directory, if there is one.
fn known_name(directory: &Path) -> Option<String> {
    fs::read_to_string(directory.join(NAME)).ok().filter(|name| digits(name).is_some())
}

/// The number that 16 hexadecimal digits are.
fn digits(text: &str) -> Option<u64> {
    let are_digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    are_digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// Whether a file of this name is a block that was not written to its end.
fn is_half_written(name: &str) -> bool {
    name.strip_prefix(HALF_WRITTEN).and_then(digits).is_some()
}

/// The hash of the block whose file has this name.
fn block_of(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX).and_then(digits)
}

/// The name in the directory, which is made if there is none.
fn name(env: &Env, directory: &Path) -> io::Result<String> {
    if let Some(name) = known_name(directory) {
        return Ok(name);
    }
    let name = format!("{:016x}", env.random_u64());
    fs::write(directory.join(NAME), &name)?;
    Ok(name)
}

/// The blocks of a directory, as if they had been used when they were written. What was half
/// written is removed; files of other names are left alone.
fn found(directory: &Path) -> io::Result<Index> {
    let mut blocks = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_half_written(&name) {
            // A file that stays does no harm.
            let _ = fs::remove_file(entry.path());
        }
        if let Some(hash) = block_of(&name) {
            let metadata = entry.metadata()?;
            blocks.push((metadata.modified()?, hash, metadata.len()));
        }
    }
    blocks.sort_unstable();
    let mut index = Index::default();
    blocks.into_iter().for_each(|(_, hash, bytes)| index.add(hash, bytes));
    Ok(index)
}

fn file(key: &str, data: &[u8]) -> Bytes {
    let mut file = BytesMut::with_capacity(HEADER_BYTES + key.len() + data.len());
    file.put_slice(MAGIC);
    file.put_u32(key.len() as u32);
    file.put_u32(data.len() as u32);
    file.put_u32(checksum(key.as_bytes(), data));
    file.put_slice(key.as_bytes());
    file.put_slice(data);
    file.freeze()
}

fn checksum(key: &[u8], data: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(data);
    hasher.finalize()
}

/// The data in the file of a block, if it is whole and of this key.
fn data(file: &Bytes, key: &str) -> Option<Bytes> {
    let rest = file.strip_prefix(MAGIC.as_slice())?;
    let number = |at: usize| Some(u32::from_be_bytes(rest.get(at..at + 4)?.try_into().ok()?));
    let (key_bytes, data_bytes, sum) = (number(0)? as usize, number(4)? as usize, number(8)?);
    let body = file.get(HEADER_BYTES..)?;
    if body.len() != key_bytes.checked_add(data_bytes)? {
        return None;
    }
    let (its_key, its_data) = body.split_at(key_bytes);
    let is_whole = its_key == key.as_bytes() && checksum(its_key, its_data) == sum;
    is_whole.then(|| file.slice(HEADER_BYTES + key_bytes..))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(directory: &Path, bytes_max: u64) -> BlockCache {
        BlockCache::open(Env::real(), directory, bytes_max).expect("a cache")
    }

    fn block(number: u8) -> Vec<u8> {
        vec![number; 1_000]
    }

    #[test]
    fn blocks_survive_and_the_one_used_longest_ago_goes_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = open(directory.path(), 3_200);
        for number in 0..3 {
            cache.put(&format!("k{number}"), &block(number));
        }
        assert_eq!(cache.get("k0").expect("it is there"), block(0));
        cache.put("k3", &block(3));
        assert!(cache.get("k1").is_none(), "it was used longest ago");
        let name = cache.name().to_owned();
        drop(cache);
        let cache = open(directory.path(), 3_200);
        assert_eq!(cache.name(), name);
        for number in [0, 2, 3] {
            let there = cache.get(&format!("k{number}"));
            assert_eq!(there.expect("it has survived"), block(number));
        }
        let smaller = {
            drop(cache);
            open(directory.path(), 1_100)
        };
        assert!(smaller.bytes() <= 1_100);
        let files = fs::read_dir(directory.path()).expect("it is there").count();
        assert_eq!(files, 3, "a block, the lock and the name");
    }

    #[test]
    fn a_block_that_is_cut_off_or_changed_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = open(directory.path(), 1 << 20);
        let path = cache.path(stable_hash([&b"k"[..]]));
        cache.put("k", &block(1));
        let whole = fs::read(&path).expect("it is there");
        for at in 0..whole.len() {
            cache.put("k", &block(1));
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, changed).expect("written");
            assert!(cache.get("k").is_none(), "byte {at}");
        }
        for length in [0, 8, HEADER_BYTES, whole.len() - 1] {
            cache.put("k", &block(1));
            fs::write(&path, &whole[..length]).expect("written");
            // As after a start, when lengths are those that files have.
            cache.index.lock().add(stable_hash([&b"k"[..]]), length as u64);
            assert!(cache.get("k").is_none(), "{length} bytes");
        }
        assert!(cache.get("another").is_none());
    }

    #[test]
    fn what_was_half_written_is_gone_after_a_start() {
        let directory = tempfile::tempdir().expect("a directory");
        open(directory.path(), 1 << 20).put("k", &block(1));
        fs::write(directory.path().join(".0123456789abcdef"), b"half").expect("written");
        let cache = open(directory.path(), 1 << 20);
        assert!(!directory.path().join(".0123456789abcdef").exists());
        assert_eq!(cache.get("k").expect("it is there"), block(1));
    }

    #[test]
    fn a_cache_whose_name_a_power_cut_took_is_gone_on_with() {
        let directory = tempfile::tempdir().expect("a directory");
        open(directory.path(), 1 << 20).put("k", &block(1));
        fs::write(directory.path().join(NAME), b"").expect("written");
        fs::write(directory.path().join(".0123456789abcdef"), b"half").expect("written");
        let cache = open(directory.path(), 1 << 20);
        assert_eq!(cache.get("k").expect("it is there"), block(1));
    }

    #[test]
    fn files_of_others_are_neither_removed_nor_joined() {
        let directory = tempfile::tempdir().expect("a directory");
        let foreign = || {
            fs::write(directory.path().join(".bashrc"), b"alias").expect("written");
            fs::create_dir(directory.path().join(".d")).expect("made");
        };
        foreign();
        let refused = BlockCache::open(Env::real(), directory.path(), 1_000);
        assert!(matches!(refused, Err(CacheError::Foreign { .. })));
        let there = fs::read_dir(directory.path()).expect("it is there").count();
        assert_eq!(there, 2, "nothing was added or removed");
        fs::remove_file(directory.path().join(".bashrc")).expect("removed");
        fs::remove_dir(directory.path().join(".d")).expect("removed");
        drop(open(directory.path(), 1_000));
        // Files that come later do not end the cache.
        foreign();
        drop(open(directory.path(), 1_000));
        assert!(directory.path().join(".bashrc").exists());
        assert!(directory.path().join(".d").exists());
    }

    #[test]
    fn a_start_that_was_cut_off_and_a_new_file_system_are_no_hindrance() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("lost+found")).expect("made");
        fs::write(directory.path().join("lock"), b"").expect("written");
        fs::write(directory.path().join("name"), b"").expect("written");
        drop(open(directory.path(), 1_000));
    }

    #[test]
    fn two_cannot_share_a_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = open(directory.path(), 1_000);
        let second = BlockCache::open(Env::real(), directory.path(), 1_000);
        assert!(matches!(second, Err(CacheError::InUse { .. })));
        drop(first);
        drop(open(directory.path(), 1_000));
    }
}
