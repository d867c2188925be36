//! An object store whose files are read through a cache of blocks.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use millstream_store::env::Env;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::BLOCK_BYTES;
use super::blocks::BlockCache;

/// `store`, read through `cache`. Which version a file has is asked once: make one for each task.
pub struct CachedStore {
    env: Env,
    store: Arc<dyn ObjectStore>,
    /// The store's URL, which tells its files from those of others.
    url: String,
    cache: Arc<BlockCache>,
    versions: Mutex<HashMap<Path, Arc<OnceCell<Version>>>>,
}

/// A file as the store has it now.
#[derive(Clone)]
struct Version {
    meta: ObjectMeta,
    /// What the keys of its blocks begin with.
    key: Arc<str>,
}

impl CachedStore {
    /// The files of `store`, which has the URL `url`.
    pub fn new(env: Env, store: Arc<dyn ObjectStore>, url: &str, cache: Arc<BlockCache>) -> Self {
        Self { env, store, url: url.to_owned(), cache, versions: Mutex::default() }
    }

    async fn version(&self, location: &Path) -> Result<Version> {
        let cell = Arc::clone(self.versions.lock().entry(location.clone()).or_default());
        let ask = || async {
            let meta = self.store.head(location).await?;
            let tag = meta.e_tag.as_deref().unwrap_or_default();
            let version = meta.version.as_deref().unwrap_or_default();
            let modified = meta.last_modified.timestamp_micros();
            let (url, size) = (&self.url, meta.size);
            let key = format!("{url}\n{location}\n{tag}\n{version}\n{size}\n{modified}\n").into();
            Ok(Version { meta, key })
        };
        cell.get_or_try_init(ask).await.cloned()
    }

    /// The bytes `range` of a file, in the parts that its blocks have of it.
    async fn read(&self, version: &Version, range: Range<u64>) -> Result<Vec<Bytes>> {
        let numbers = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let mut blocks = self.cached(version, numbers.clone()).await;
        let mut at = 0;
        while at < blocks.len() {
            if blocks[at].is_some() {
                at += 1;
                continue;
            }
            // All that are missing side by side are one request.
            let run = blocks[at..].iter().take_while(|block| block.is_none()).count();
            let first = numbers.start + at as u64;
            let read = self.fetch(version, first..first + run as u64).await?;
            for block in read {
                blocks[at] = Some(block);
                at += 1;
            }
        }
        let part = |(number, block): (u64, Option<Bytes>)| {
            let (block, begin) = (block.unwrap_or_default(), number * BLOCK_BYTES);
            let from = range.start.saturating_sub(begin).min(block.len() as u64);
            let to = (range.end - begin).min(block.len() as u64);
            block.slice(from as usize..to as usize)
        };
        Ok(numbers.zip(blocks).map(part).collect())
    }

    /// The blocks that are there, by their numbers.
    async fn cached(&self, version: &Version, numbers: Range<u64>) -> Vec<Option<Bytes>> {
        let (cache, key, size) =
            (Arc::clone(&self.cache), Arc::clone(&version.key), version.meta.size);
        let look = move || {
            let look = |number: u64| {
                let expected = BLOCK_BYTES.min(size - number * BLOCK_BYTES);
                let block = cache.get(&format!("{key}{number}"));
                let block = block.filter(|block| block.len() as u64 == expected);
                let counts = &cache.counts;
                match &block {
                    Some(block) => {
                        counts.hits.fetch_add(1, Ordering::Relaxed);
                        counts.bytes_from_cache.fetch_add(block.len() as u64, Ordering::Relaxed);
                    }
                    None => {
                        counts.misses.fetch_add(1, Ordering::Relaxed);
                    }
                }
                block
            };
            numbers.map(look).collect()
        };
        self.env.spawn_blocking("cache-get", look).join().await
    }

    /// Reads blocks from the store, and keeps them.
    async fn fetch(&self, version: &Version, numbers: Range<u64>) -> Result<Vec<Bytes>> {
        let meta = &version.meta;
        let range = numbers.start * BLOCK_BYTES..(numbers.end * BLOCK_BYTES).min(meta.size);
        // A file that is replaced meanwhile is refused: it would be mixed with what it was.
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: meta.e_tag.clone(),
            ..GetOptions::default()
        };
        let read = self.store.get_opts(&meta.location, options).await?.bytes().await?;
        if read.len() as u64 != range.end - range.start {
            let (found, expected) = (read.len(), range.end - range.start);
            let source = format!("the store has sent {found} bytes of {expected}").into();
            return Err(object_store::Error::Generic { store: "cache", source });
        }
        self.cache.counts.bytes_from_store.fetch_add(read.len() as u64, Ordering::Relaxed);
        let (cache, key) = (Arc::clone(&self.cache), Arc::clone(&version.key));
        let keep = move || {
            let cut = numbers.map(|number| {
                let from = number * BLOCK_BYTES - range.start;
                let to = (from + BLOCK_BYTES).min(read.len() as u64);
                let block = read.slice(from as usize..to as usize);
                cache.put(&format!("{key}{number}"), &block);
                block
            });
            cut.collect()
        };
        Ok(self.env.spawn_blocking("cache-put", keep).join().await)
    }
}

/// The range that is asked for, where nothing else is.
fn plain_range(options: &GetOptions) -> Option<Range<u64>> {
    let has_condition = options.if_match.is_some()
        || options.if_none_match.is_some()
        || options.if_modified_since.is_some()
        || options.if_unmodified_since.is_some();
    match &options.range {
        Some(GetRange::Bounded(range))
            if !has_condition && !options.head && options.version.is_none() =>
        {
            Some(range.clone())
        }
        _ => None,
    }
}

#[async_trait]
impl ObjectStore for CachedStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(asked) = plain_range(&options) else {
            return self.store.get_opts(location, options).await;
        };
        let version = self.version(location).await?;
        let range = asked.start..asked.end.min(version.meta.size);
        if range.start >= range.end {
            // Refused by the store in its own words.
            return self.store.get_opts(location, options).await;
        }
        let parts = self.read(&version, range.clone()).await?;
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::iter(parts.into_iter().map(Ok)).boxed()),
            meta: version.meta,
            range,
            attributes: Default::default(),
        })
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

impl fmt::Debug for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CachedStore({})", self.url)
    }
}

impl fmt::Display for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} through a cache", self.store)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    const SIZE: u64 = 3 * BLOCK_BYTES + 1_234;

    fn bytes(seed: u8) -> Vec<u8> {
        (0..SIZE).map(|at| (at % 251) as u8 ^ seed).collect()
    }

    fn cached(store: &Arc<InMemory>, cache: &Arc<BlockCache>) -> CachedStore {
        CachedStore::new(Env::real(), Arc::clone(store) as _, "memory://x", Arc::clone(cache))
    }

    fn cache(directory: &tempfile::TempDir) -> Arc<BlockCache> {
        let cache = BlockCache::open(Env::real(), directory.path(), 64 << 20);
        Arc::new(cache.expect("a cache"))
    }

    fn from_store(cache: &BlockCache) -> u64 {
        cache.counts.bytes_from_store.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn any_range_is_what_the_store_has_and_is_read_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, cache) = (Arc::new(InMemory::new()), cache(&directory));
        let (path, content) = (Path::from("a b/file"), bytes(0));
        store.put(&path, content.clone().into()).await.expect("written");
        let read = cached(&store, &cache);
        let edge = BLOCK_BYTES;
        for range in [
            0..8,
            SIZE - 8..SIZE,
            edge - 1..edge + 1,
            0..SIZE,
            edge..2 * edge,
            5..3 * edge + 9,
            SIZE - 1..SIZE + 99,
        ] {
            let expected = &content[range.start as usize..range.end.min(SIZE) as usize];
            let given = read.get_range(&path, range.clone()).await.expect("it is there");
            assert_eq!(given, expected, "{range:?}");
        }
        assert_eq!(from_store(&cache), SIZE, "each block was read once");
        let again = cached(&store, &cache);
        assert_eq!(again.get_range(&path, 0..SIZE).await.expect("it is there"), content);
        assert_eq!(from_store(&cache), SIZE);
        assert!(read.get_range(&path, SIZE + 1..SIZE + 2).await.is_err());
        assert!(read.get_range(&Path::from("none"), 0..1).await.is_err());
    }

    #[tokio::test]
    async fn a_file_that_was_replaced_is_read_anew_and_never_mixed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, cache) = (Arc::new(InMemory::new()), cache(&directory));
        let path = Path::from("file");
        store.put(&path, bytes(0).into()).await.expect("written");
        let before = cached(&store, &cache);
        before.get_range(&path, 0..9).await.expect("it is there");
        store.put(&path, bytes(7).into()).await.expect("written");
        let mixed = before.get_range(&path, 0..SIZE).await;
        assert!(matches!(mixed, Err(object_store::Error::Precondition { .. })), "{mixed:?}");
        let after = cached(&store, &cache);
        assert_eq!(after.get_range(&path, 0..SIZE).await.expect("it is there"), bytes(7));
    }
}
