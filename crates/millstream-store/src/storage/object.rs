//! A checkpoint in an object store.
//!
//! A put is one request with the condition that the object is not there yet. An object store is
//! durable once it answers, so [`Durability`](super::Durability) makes no difference here.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::{PutError, StorageError};
use crate::env::Env;
use crate::error::Kind;

/// All objects below one path.
#[derive(Clone)]
pub(crate) struct Prefix {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    shown: String,
    /// How long requests are made to take.
    latency: Option<(Env, Latency)>,
}

/// How long requests are made to take beyond what they take, as over a network; for benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// A put.
    pub put: Duration,
    /// A listing of a directory.
    pub list: Duration,
    /// A deletion of however many files: object stores take a thousand in one request.
    pub delete: Duration,
}

impl Prefix {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, prefix: Path, shown: String) -> Self {
        Self { store, prefix, shown: shown.trim_end_matches('/').to_owned(), latency: None }
    }

    /// Makes requests take as long as over a network.
    pub(crate) fn with_latency(self, env: &Env, latency: Latency) -> Self {
        Self { latency: Some((env.clone(), latency)), ..self }
    }

    async fn delay(&self, of: fn(&Latency) -> Duration) {
        let Some((env, latency)) = &self.latency else { return };
        let time = of(latency);
        if !time.is_zero() {
            env.sleep(time).await;
        }
    }

    pub(crate) fn shown(&self, name: &str) -> String {
        if name.is_empty() { self.shown.clone() } else { format!("{}/{name}", self.shown) }
    }

    fn path(&self, name: &str) -> Path {
        name.split('/')
            .filter(|part| !part.is_empty())
            .fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Writes `name` unless it exists.
    ///
    /// A request whose answer was lost is repeated by the client, and the repetition finds the
    /// object it wrote itself. So an object with exactly these bytes counts as written. Another
    /// process would have to write the same bytes to pass as us: an intent holds the time in
    /// milliseconds, so its next intent at the latest tells it apart.
    pub(crate) async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), PutError> {
        let path = self.path(name);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let payload = PutPayload::from(bytes::Bytes::from(bytes));
        self.delay(|latency| latency.put).await;
        let Err(error) = self.store.put_opts(&path, payload.clone(), options).await else {
            return Ok(());
        };
        if matches!(error, Error::AlreadyExists { .. })
            && let Ok(Some(there)) = self.get(name).await
            && there == bytes::Bytes::from(payload)
        {
            return Ok(());
        }
        Err(self.put_error(name, &error))
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StorageError> {
        let got = async { self.store.get(&self.path(name)).await?.bytes().await };
        match got.await {
            Ok(bytes) => Ok(Some(bytes.to_vec())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.error("read", name, &error)),
        }
    }

    pub(crate) async fn list(&self, name: &str) -> Result<Vec<String>, StorageError> {
        self.delay(|latency| latency.list).await;
        let listed = self.store.list_with_delimiter(Some(&self.path(name))).await;
        let listed = listed.map_err(|error| self.error("list", name, &error))?;
        let file_name = |path: &Path| path.filename().unwrap_or_default().to_owned();
        let files = listed.objects.iter().map(|object| file_name(&object.location));
        let directories = listed.common_prefixes.iter().map(|path| format!("{}/", file_name(path)));
        Ok(files.chain(directories).collect())
    }

    pub(crate) async fn delete_many(&self, names: Vec<String>) -> Result<(), StorageError> {
        let Some(first) = names.first().cloned() else { return Ok(()) };
        self.delay(|latency| latency.delete).await;
        let paths: Vec<_> = names.iter().map(|name| Ok(self.path(name))).collect();
        let results: Vec<_> =
            self.store.delete_stream(stream::iter(paths).boxed()).into_stream().collect().await;
        // An object that is gone already is what was wanted.
        let failed = results.into_iter().find_map(|result| match result {
            Ok(_) | Err(Error::NotFound { .. }) => None,
            Err(error) => Some(error),
        });
        failed.map_or(Ok(()), |error| Err(self.error("delete", &first, &error)))
    }

    /// A copy and a deletion: object stores have no renaming. The copy may replace, which does
    /// not happen, because new names are random.
    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        let renamed = self.store.rename(&self.path(from), &self.path(to)).await;
        renamed.map_err(|error| self.error("move", from, &error))
    }

    fn put_error(&self, name: &str, error: &Error) -> PutError {
        let (path, cause) = (self.shown(name), error.to_string());
        match error {
            Error::AlreadyExists { .. } => PutError::AlreadyExists { path },
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                PutError::NoPermission { path, cause }
            }
            _ => PutError::Other { path, cause, kind: kind(error) },
        }
    }

    fn error(&self, action: &'static str, name: &str, error: &Error) -> StorageError {
        let (path, cause) = (self.shown(name), error.to_string());
        StorageError { action, path, cause, kind: kind(error) }
    }
}

/// The client has already repeated what it could within the call. Network trouble that remains may
/// pass later; what is refused stays refused.
fn kind(error: &Error) -> Kind {
    match error {
        Error::Generic { .. } | Error::JoinError { .. } => Kind::Retry,
        _ => Kind::Config,
    }
}
