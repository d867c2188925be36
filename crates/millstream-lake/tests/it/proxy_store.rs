//! A store that counts requests, and fails them as a test says.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// As always.
    Pass,
    /// It never arrives.
    LostOnTheWay,
    /// It is carried out, and its answer never arrives.
    AnswerLost,
    /// It is carried out, and a repetition in the client gets the answer that the name is taken.
    RepeatedByTheClient,
    /// The answer is that the name is taken, and nothing can be read under the name.
    NameTakenByNothing,
    /// The store does not let this user do it.
    Forbidden,
    /// It is carried out once a task of the runtime has run, as connections over a network are.
    ByATask,
}

type Decide = Box<dyn FnMut(&str, &str) -> Fate + Send>;

/// What a test decides and sees.
#[derive(Default)]
pub struct Control {
    counts: Mutex<BTreeMap<&'static str, u64>>,
    decide: Mutex<Option<Decide>>,
    puts_in_flight: Mutex<(usize, usize)>,
    bytes_got: AtomicU64,
}

impl Control {
    /// The most puts that there were at one time.
    pub fn puts_in_flight_max(&self) -> usize {
        self.puts_in_flight.lock().1
    }

    /// Bytes of answers.
    pub fn bytes_got(&self) -> u64 {
        self.bytes_got.load(Ordering::Relaxed)
    }

    async fn in_flight<T>(&self, put: impl Future<Output = T>) -> T {
        {
            let mut puts = self.puts_in_flight.lock();
            puts.0 += 1;
            puts.1 = puts.1.max(puts.0);
        }
        let done = put.await;
        self.puts_in_flight.lock().0 -= 1;
        done
    }

    /// From now on, what happens to each request (`put`, `get`, ... and the file's name).
    pub fn decide(&self, decide: impl FnMut(&str, &str) -> Fate + Send + 'static) {
        *self.decide.lock() = Some(Box::new(decide));
    }

    /// Requests by kind since the last call.
    pub fn counted(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut *self.counts.lock())
    }

    fn arrive(&self, kind: &'static str, path: &Path) -> Fate {
        *self.counts.lock().entry(kind).or_default() += 1;
        let mut decide = self.decide.lock();
        decide.as_mut().map_or(Fate::Pass, |decide| decide(kind, path.filename().unwrap_or("")))
    }
}

/// The store that a [`Control`] controls.
pub struct ProxyStore {
    pub inner: Arc<dyn ObjectStore>,
    pub control: Arc<Control>,
}

impl fmt::Debug for ProxyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyStore")
    }
}

impl fmt::Display for ProxyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyStore")
    }
}

fn lost() -> Error {
    Error::Generic { store: "test", source: "the connection was cut".into() }
}

fn taken(path: &Path) -> Error {
    Error::AlreadyExists { path: path.to_string(), source: "the name is taken".into() }
}

/// The answer to a request that was met by `fate`.
async fn answered<T>(
    fate: Fate,
    path: &Path,
    request: impl Future<Output = Result<T>>,
) -> Result<T> {
    match fate {
        Fate::Pass => request.await,
        Fate::LostOnTheWay => Err(lost()),
        Fate::AnswerLost => request.await.and(Err(lost())),
        Fate::RepeatedByTheClient => request.await.and(Err(taken(path))),
        Fate::NameTakenByNothing => Err(taken(path)),
        Fate::ByATask => {
            tokio::runtime::Handle::current().spawn(async {}).await.expect("it does nothing");
            request.await
        }
        Fate::Forbidden => Err(Error::PermissionDenied {
            path: path.to_string(),
            source: "this user may not write".into(),
        }),
    }
}

#[async_trait]
impl ObjectStore for ProxyStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fate = self.control.arrive("put", path);
        let put = answered(fate, path, self.inner.put_opts(path, payload, options));
        self.control.in_flight(put).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.control.arrive("put", path);
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let fate = self.control.arrive("get", path);
        let is_head = options.head;
        let got = answered(fate, path, self.inner.get_opts(path, options)).await?;
        if !is_head {
            self.control.bytes_got.fetch_add(got.range.end - got.range.start, Ordering::Relaxed);
        }
        Ok(got)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.control.arrive("delete", &Path::default());
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.control.arrive("list", prefix.unwrap_or(&Path::default())) {
            Fate::Pass => self.inner.list(prefix),
            _ => futures::stream::iter([Err(lost())]).boxed(),
        }
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.control.arrive("list", offset) {
            Fate::Pass => self.inner.list_with_offset(prefix, offset),
            _ => futures::stream::iter([Err(lost())]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.control.arrive("list", prefix.unwrap_or(&Path::default()));
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let fate = self.control.arrive("copy", to);
        answered(fate, to, self.inner.copy_opts(from, to, options)).await
    }
}
