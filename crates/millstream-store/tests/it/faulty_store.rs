//! An object store in memory that fails or holds puts on request, holds deletions, and keeps a
//! record of puts.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use millstream_store::env::Env;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Which way a put fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The network is away.
    Network,
    /// No permission.
    Permission,
    /// The object is written, but its answer is lost and the repetition finds it there.
    LostAnswer,
}

/// See the module.
#[derive(Debug, Default)]
pub struct FaultyStore {
    objects: Arc<InMemory>,
    fault: Mutex<Option<Fault>>,
    held: watch::Sender<HashSet<String>>,
    begun: watch::Sender<Vec<String>>,
    deletions: watch::Sender<Deletions>,
}

#[derive(Debug, Default)]
struct Deletions {
    are_held: bool,
    under_way: usize,
}

impl FaultyStore {
    /// From now on, puts fail like this, or not.
    pub fn set_fault(&self, fault: Option<Fault>) {
        *self.fault.lock() = fault;
    }

    /// Holds puts of `name` until it is released.
    pub fn hold(&self, name: &str) {
        self.held.send_modify(|held| {
            held.insert(name.to_owned());
        });
    }

    /// Lets puts of `name` go on.
    pub fn release(&self, name: &str) {
        self.held.send_modify(|held| {
            held.remove(name);
        });
    }

    /// Holds deletions until they are released.
    pub fn hold_deletions(&self) {
        self.deletions.send_modify(|deletions| deletions.are_held = true);
    }

    /// Lets deletions go on, and waits until those that were held are done.
    pub async fn release_deletions(&self) {
        let mut deletions = self.deletions.subscribe();
        assert!(deletions.borrow().under_way > 0, "no deletion is held");
        self.deletions.send_modify(|deletions| deletions.are_held = false);
        let done = |deletions: &Deletions| deletions.under_way == 0;
        deletions.wait_for(done).await.expect("the sender is here");
    }

    /// All puts that were begun, in order.
    pub fn begun(&self) -> Vec<String> {
        self.begun.borrow().clone()
    }

    /// Waits until the put of `name` is begun.
    pub async fn has_begun(&self, name: &str) {
        let mut begun = self.begun.subscribe();
        let known = |begun: &Vec<String>| begun.iter().any(|known| known == name);
        begun.wait_for(known).await.expect("the sender is here");
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty store")
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let name = location.to_string();
        self.begun.send_modify(|begun| begun.push(name.clone()));
        let mut held = self.held.subscribe();
        let _ = held.wait_for(|held| !held.contains(&name)).await;
        let fault = *self.fault.lock();
        match fault {
            None => self.objects.put_opts(location, payload, options).await,
            Some(Fault::Network) => {
                Err(Error::Generic { store: "faulty", source: "the network is away".into() })
            }
            Some(Fault::Permission) => {
                Err(Error::PermissionDenied { path: name, source: "the key may only read".into() })
            }
            Some(Fault::LostAnswer) => {
                self.objects.put_opts(location, payload, options).await?;
                Err(Error::AlreadyExists { path: name, source: "the repetition found it".into() })
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (objects, deletions) = (Arc::clone(&self.objects), self.deletions.clone());
        deletions.send_modify(|deletions| deletions.under_way += 1);
        // The request is sent: whether somebody still waits for its answer makes no difference.
        let work = Env::real().spawn("deletion", async move {
            let mut changed = deletions.subscribe();
            let _ = changed.wait_for(|deletions| !deletions.are_held).await;
            let deleted: Vec<_> = objects.delete_stream(locations).collect().await;
            deletions.send_modify(|deletions| deletions.under_way -= 1);
            deleted
        });
        let answers = async { futures::stream::iter(work.join().await) };
        futures::stream::once(answers).flatten().boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

/// A faulty store, and the storage of a checkpoint in it.
pub fn storage() -> (Arc<FaultyStore>, millstream_store::storage::Storage) {
    let store = Arc::new(FaultyStore::default());
    let storage = millstream_store::storage::Storage::object(
        store.clone(),
        Path::default(),
        "faulty://checkpoint",
    );
    (store, storage)
}
