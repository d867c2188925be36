//! Where a table's files are: a prefix of an object store, or a local directory.
//!
//! All of the crate goes through [`TableStore`]. It is asynchronous inside and blocking outside:
//! the protocol library is synchronous, and so is everything that encodes or decodes, so all work
//! on a table runs on threads that may block, and waits there for the store.
//!
//! What the rest relies on:
//! - a file appears whole or not at all, under a name that nothing else is written to;
//! - [`TableStore::put_new`] fails if the name is taken: that is how a version is claimed;
//! - on a local disk, what was put survives a loss of power.

mod disk_priority;
mod local;
mod location;

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use millstream_store::env::Env;
use millstream_store::secrets::redacted;
use millstream_store::storage::make_directories;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
};
use url::Url;

use disk_priority::DiskPriority;
pub(crate) use disk_priority::Turn;
pub use location::{CREDENTIALS, LocationError};

/// Copies and reads under way at once. Enough to hide an object store's round trip.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 32;

/// A table's files. Names are relative to the table's directory, with `/` between parts, not
/// encoded. Clones share everything. Its methods block; not to be called from asynchronous code.
#[derive(Clone)]
pub struct TableStore {
    inner: Arc<Inner>,
    disk_priority: Arc<DiskPriority>,
    /// Gives way to what is under way in the foreground.
    gives_way: bool,
}

struct Inner {
    store: Arc<dyn ObjectStore>,
    root: Path,
    /// Ends with `/`.
    url: Url,
    env: Env,
}

impl std::fmt::Debug for TableStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableStore({})", self.shown())
    }
}

/// A file's facts, and its bytes if they were few enough.
pub(crate) type Small = (Listed, Option<Bytes>);

/// A file as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Relative to the table's directory.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Milliseconds since the epoch.
    pub modified_ms: i64,
}

impl TableStore {
    /// The table at `location`: a path, or a URL (`file:`, `s3:`, `gs:`, `az:` and their variants,
    /// whose credentials come from the usual environment variables). Nothing is touched yet.
    pub fn parse(location: &str, env: &Env) -> Result<Self, LocationError> {
        location::parse(location, env)
    }

    /// The objects of `store` below `root`; `url` is what that is called in messages.
    pub fn new(store: Arc<dyn ObjectStore>, root: Path, mut url: Url, env: &Env) -> Self {
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        let inner = Arc::new(Inner { store, root, url, env: env.clone() });
        Self { inner, disk_priority: Arc::default(), gives_way: false }
    }

    /// The same table for what is done beside the stream: its writes give way to
    /// [`Self::in_foreground`]. Only on a local disk, where they are in each other's way.
    pub(crate) fn in_background(&self) -> Self {
        Self { gives_way: self.local_directory().is_some(), ..self.clone() }
    }

    /// Says that somebody is waiting for the store, until the answer is dropped. Nobody waits for
    /// what is done in the background.
    pub(crate) fn in_foreground(&self) -> Option<Turn<'_>> {
        (!self.gives_way).then(|| self.disk_priority.begin())
    }

    fn give_way(&self) {
        if self.gives_way {
            self.disk_priority.give_way();
        }
    }

    /// The same table behind another store, one that counts or delays requests say.
    #[must_use]
    pub fn wrapped(&self, wrap: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>) -> Self {
        let Inner { store, root, url, env } = &*self.inner;
        let wrapped = Self::new(wrap(Arc::clone(store)), root.clone(), url.clone(), env);
        Self {
            disk_priority: Arc::clone(&self.disk_priority),
            gives_way: self.gives_way,
            ..wrapped
        }
    }

    /// The table's directory; ends with `/`.
    pub fn url(&self) -> &Url {
        &self.inner.url
    }

    /// Clock, chance and tasks.
    pub fn env(&self) -> &Env {
        &self.inner.env
    }

    /// The location for people: a path where it is local.
    pub fn shown(&self) -> String {
        self.shown_file("")
    }

    /// A file's location for people.
    pub fn shown_file(&self, name: &str) -> String {
        match self.local_directory() {
            Some(path) if name.is_empty() => path.display().to_string(),
            Some(path) => path.join(name).display().to_string(),
            None => redacted(&format!("{}{name}", self.inner.url)).into_owned(),
        }
    }

    /// The table's directory, where it is local.
    fn local_directory(&self) -> Option<std::path::PathBuf> {
        let url = &self.inner.url;
        (url.scheme() == "file").then(|| url.to_file_path().ok()).flatten()
    }

    /// False where the table is local and has no directory; object stores have none either way.
    pub(crate) fn may_exist(&self) -> bool {
        self.local_directory().is_none_or(|directory| directory.exists())
    }

    /// Whether the file `name` is there, where the table is local; costs no request.
    pub(crate) fn has_on_disk(&self, name: &str) -> Option<bool> {
        self.local_directory().map(|directory| directory.join(name).exists())
    }

    /// Makes the table's directory, where it is local.
    pub(crate) fn make_directory(&self) -> std::io::Result<()> {
        self.local_directory().map_or(Ok(()), |directory| make_directories(&directory))
    }

    /// The bytes of the file `name`. Errors: `NotFound` if there is none.
    pub fn get(&self, name: &str) -> Result<Bytes, Error> {
        let path = self.path(name)?;
        self.wait(async { self.inner.store.get(&path).await?.bytes().await })
    }

    /// The bytes of several files, in their order, several under way at once.
    pub fn get_many(&self, names: &[String]) -> Result<Vec<Bytes>, Error> {
        let paths = names.iter().map(|name| self.path(name)).collect::<Result<Vec<_>, _>>()?;
        let store = &self.inner.store;
        let reads = futures::stream::iter(paths)
            .map(|path| async move { store.get(&path).await?.bytes().await });
        self.wait(reads.buffered(REQUESTS_IN_FLIGHT_MAX).try_collect())
    }

    /// By file, its facts and its bytes, the latter if it has no more than the number beside its
    /// name; `None` for a file that is not there. All are asked for at one time.
    pub(crate) fn get_small(
        &self,
        files: &[(String, u64)],
    ) -> Result<Vec<Result<Option<Small>, Error>>, Error> {
        let paths = files.iter().map(|(name, bytes_max)| Ok((self.path(name)?, *bytes_max)));
        let paths = paths.collect::<Result<Vec<_>, Error>>()?;
        let reads = paths.iter().map(|(path, bytes_max)| self.get_if_small(path, *bytes_max));
        self.wait(async { Ok(futures::future::join_all(reads).await) })
    }

    async fn get_if_small(&self, path: &Path, bytes_max: u64) -> Result<Option<Small>, Error> {
        let options = GetOptions { head: bytes_max == 0, ..GetOptions::default() };
        let found = match self.inner.store.get_opts(path, options).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let file = self.listed(found.meta.clone());
        let is_small = bytes_max > 0 && file.size <= bytes_max;
        let bytes = if is_small { Some(found.bytes().await?) } else { None };
        Ok(Some((file, bytes)))
    }

    /// Part of a file's bytes.
    pub fn get_range(&self, name: &str, range: std::ops::Range<u64>) -> Result<Bytes, Error> {
        let path = self.path(name)?;
        self.wait(self.inner.store.get_range(&path, range))
    }

    /// A file's size and time.
    pub fn head(&self, name: &str) -> Result<Listed, Error> {
        let path = self.path(name)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let meta =
            self.wait(async { Ok(self.inner.store.get_opts(&path, options).await?.meta) })?;
        Ok(self.listed(meta))
    }

    /// Writes a file unless there is one. Errors: `AlreadyExists` if there is, which after a
    /// repeated request may be the caller's own.
    pub fn put_new(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        self.put_with(name, bytes, PutMode::Create)
    }

    /// Writes a file, in place of the one that was there.
    pub fn put(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        self.put_with(name, bytes, PutMode::Overwrite)
    }

    /// Writes files, several at one time, in place of those that were there.
    pub fn put_many(&self, files: Vec<(String, Bytes)>) -> Result<(), Error> {
        let files = files.into_iter().map(|(name, bytes)| Ok((self.path(&name)?, bytes)));
        let files = files.collect::<Result<Vec<_>, Error>>()?;
        let store = &self.inner.store;
        self.give_way();
        let puts = futures::stream::iter(files).map(|(path, bytes)| async move {
            let options = self.put_options(PutMode::Overwrite);
            store.put_opts(&path, bytes.into(), options).await.map(drop)
        });
        // All are waited for: one that is dropped half-way may still write its file.
        let puts = puts.buffer_unordered(REQUESTS_IN_FLIGHT_MAX).collect::<Vec<_>>();
        self.wait(async { puts.await.into_iter().collect() })
    }

    fn put_with(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<(), Error> {
        let path = self.path(name)?;
        let options = self.put_options(mode);
        self.give_way();
        self.wait(self.inner.store.put_opts(&path, bytes.into(), options)).map(drop)
    }

    fn put_options(&self, mode: PutMode) -> PutOptions {
        let mut options = PutOptions { mode, ..PutOptions::default() };
        if self.gives_way {
            options.extensions.insert(Arc::clone(&self.disk_priority));
        }
        options
    }

    /// Copies files within the store (a hard link on a local disk), in place of what was there.
    pub fn copy_many(&self, from_to: &[(String, String)]) -> Result<(), Error> {
        let paths = from_to
            .iter()
            .map(|(from, to)| Ok((self.path(from)?, self.path(to)?)))
            .collect::<Result<Vec<_>, Error>>()?;
        let store = &self.inner.store;
        self.give_way();
        let copies = futures::stream::iter(paths).map(|(from, to)| async move {
            store.copy_opts(&from, &to, CopyOptions::default()).await
        });
        self.wait(copies.buffer_unordered(REQUESTS_IN_FLIGHT_MAX).try_collect())
    }

    /// Deletes files; one that is not there is deleted already.
    pub fn delete_many(&self, names: &[String]) -> Result<(), Error> {
        let paths = names.iter().map(|name| self.path(name)).collect::<Result<Vec<_>, _>>()?;
        let store = &self.inner.store;
        self.give_way();
        let deletes = futures::stream::iter(paths).map(|path| async move {
            match store.delete(&path).await {
                Err(Error::NotFound { .. }) => Ok(()),
                other => other,
            }
        });
        self.wait(deletes.buffer_unordered(REQUESTS_IN_FLIGHT_MAX).try_collect())
    }

    /// The files below the directory `directory` (empty: the table's), in the order of their names.
    /// With `after`, only those whose name is greater.
    pub fn list(&self, directory: &str, after: Option<&str>) -> Result<Vec<Listed>, Error> {
        let prefix = self.path(directory)?;
        let listing = match after {
            Some(after) => self.inner.store.list_with_offset(Some(&prefix), &self.path(after)?),
            None => self.inner.store.list(Some(&prefix)),
        };
        let metas: Vec<ObjectMeta> = self.wait(listing.try_collect())?;
        let mut files: Vec<_> = metas.into_iter().map(|meta| self.listed(meta)).collect();
        files.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    fn listed(&self, meta: ObjectMeta) -> Listed {
        let name = self.relative(&meta.location).unwrap_or_default();
        Listed { name, size: meta.size, modified_ms: meta.last_modified.timestamp_millis() }
    }

    /// A file's URL.
    pub fn file_url(&self, name: &str) -> Url {
        let mut url = self.inner.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(name.split('/'));
        }
        url
    }

    /// The name of the file at `url`, if it is below the table's directory.
    pub fn name_of(&self, url: &Url) -> Option<String> {
        let path = Path::from_url_path(url.path()).ok()?;
        let root = Path::from_url_path(self.inner.url.path()).ok()?;
        let mut name =
            path.as_ref().strip_prefix(root.as_ref())?.trim_start_matches('/').to_owned();
        if url.path().ends_with('/') && !name.is_empty() {
            name.push('/');
        }
        Some(name)
    }

    fn relative(&self, location: &Path) -> Option<String> {
        let rest = location.as_ref().strip_prefix(self.inner.root.as_ref())?;
        Some(rest.trim_start_matches('/').to_owned())
    }

    fn path(&self, name: &str) -> Result<Path, Error> {
        let (root, name) = (self.inner.root.as_ref(), name.trim_end_matches('/'));
        let separator = if root.is_empty() || name.is_empty() { "" } else { "/" };
        Ok(Path::parse(format!("{root}{separator}{name}"))?)
    }

    fn wait<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        // Not on the cores: all of them may wait for what a thread reads here.
        self.inner.env.block_on_io(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_in_pieces_is_whole() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let _inside = runtime.enter();
        let directory = tempfile::tempdir().expect("a directory");
        let location = directory.path().display().to_string();
        let store = TableStore::parse(&location, &Env::real()).expect("a path").in_background();
        for bytes in [0, 1, (512 << 10) - 1, 512 << 10, (512 << 10) + 1, 3_000_000] {
            let written: Bytes = (0..bytes).map(|at: u32| (at % 251) as u8).collect();
            store.put("some/file", written.clone()).expect("written");
            assert_eq!(store.get("some/file").expect("it is there"), written, "{bytes} bytes");
        }
    }
}
