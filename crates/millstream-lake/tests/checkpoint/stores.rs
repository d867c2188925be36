//! A store that counts requests, and that can be made to die.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Requests since they were last taken.
#[derive(Debug, Default)]
pub struct Requests {
    pub gets: AtomicU64,
    pub puts: AtomicU64,
    pub lists: AtomicU64,
    pub copies: AtomicU64,
    pub deletes: AtomicU64,
    /// Requests until all fail, as if the process had died; none dies at the maximum.
    left: AtomicU64,
}

impl Requests {
    pub fn new(left: u64) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(left), ..Self::default() })
    }

    pub fn take(&self) -> [u64; 5] {
        [&self.gets, &self.puts, &self.lists, &self.copies, &self.deletes]
            .map(|count| count.swap(0, Ordering::Relaxed))
    }

    pub fn die_after(&self, left: u64) {
        self.left.store(left, Ordering::Relaxed);
    }

    pub fn has_died(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn count(&self, counter: &AtomicU64) -> Result<()> {
        counter.fetch_add(1, Ordering::Relaxed);
        let less = |left: u64| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let died = |_| Error::Generic { store: "dead", source: "the process has died".into() };
        left.map(drop).map_err(died)
    }
}

#[derive(Debug)]
pub struct Counted {
    pub store: Arc<dyn ObjectStore>,
    pub requests: Arc<Requests>,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "counted {}", self.store)
    }
}

#[async_trait]
impl ObjectStore for Counted {
    async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.requests.count(&self.requests.puts)?;
        self.store.put_opts(to, bytes, how).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(to, how).await
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        self.requests.count(&self.requests.gets)?;
        self.store.get_opts(from, how).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        match self.requests.count(&self.requests.deletes) {
            Ok(()) => self.store.delete_stream(paths),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.requests.count(&self.requests.lists) {
            Ok(()) => self.store.list(prefix),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.requests.count(&self.requests.lists)?;
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.requests.count(&self.requests.copies)?;
        self.store.copy_opts(from, to, how).await
    }
}
