//! Answers that are too long for the way back, by way of an object store.
//!
//! For a runner that cannot reach its node. The query names a directory of an object store
//! ([`RemoteOptions::spill`]); the node makes a name for each attempt, and the runner cuts the
//! message into objects of that name, each put by a single request. So neither end keeps a whole
//! answer in memory, and there are no multipart uploads that somebody has to abort.
//!
//! The node removes the objects once it has read them, and those of an attempt that came to nothing
//! ([`Spilled`]): at once, and again until the runner has given up as well. What a node that was
//! killed has left is removed a day later by any that uses the directory ([`sweep`]).
//!
//! [`RemoteOptions::spill`]: super::settings::RemoteOptions::spill

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use datafusion::execution::runtime_env::RuntimeEnv;
use futures::{StreamExt as _, TryStreamExt as _};
use millstream_store::env::Env;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
use parking_lot::Mutex;
use tokio::time::timeout;
use url::Url;

use super::answer::{Received, Receiver, Written};
use super::task::SpillTarget;

/// The length of an object; the last one of an answer is shorter.
const OBJECT_BYTES: usize = 8 << 20;
/// How long one request may take.
const REQUEST_PATIENCE: Duration = Duration::from_secs(60);
/// How long after its time a runner may still be about to write.
const LATE: Duration = Duration::from_secs(120);
/// What the names of all objects begin with.
const NAME: &str = "millstream-answer-";
/// After this time an object is one that a killed node has left.
const LEFT_AFTER_S: i64 = 24 * 60 * 60;
/// A directory that is in use is swept once in this time.
const SWEEP_INTERVAL: Duration = Duration::from_secs(6 * 60 * 60);

/// A directory of an object store.
#[derive(Clone)]
pub struct Place {
    store: Arc<dyn ObjectStore>,
    directory: Path,
}

impl Place {
    /// The directory at `url`, in a store that `runtime` opens.
    ///
    /// # Errors
    /// No URL, or of a store that is not known.
    pub fn open(url: &str, runtime: &RuntimeEnv) -> io::Result<Self> {
        let failed = |problem: String| {
            let problem = format!("answers cannot be spilled to {url}: {problem}");
            io::Error::new(io::ErrorKind::InvalidInput, problem)
        };
        let parsed = Url::parse(url).map_err(|error| failed(error.to_string()))?;
        let store = runtime.object_store_registry.get_store(&parsed);
        let store = store.map_err(|error| failed(error.to_string()))?;
        let directory = Path::from_url_path(parsed.path());
        let directory = directory.map_err(|error| failed(error.to_string()))?;
        Ok(Self { store, directory })
    }

    fn object(&self, name: &str, number: u32) -> Path {
        self.directory.clone().join(format!("{name}-{number:05}"))
    }

    async fn remove(&self, path: &Path) -> io::Result<()> {
        match self.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the objects that `choose` wants; gives how many.
    async fn remove_where(&self, choose: impl Fn(&ObjectMeta) -> bool) -> io::Result<usize> {
        let mut listed = self.store.list(Some(&self.directory));
        let mut removed = 0;
        while let Some(object) = listed.try_next().await? {
            if choose(&object) {
                self.remove(&object.location).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Whether an object's name begins so.
fn is_named(object: &ObjectMeta, name: &str) -> bool {
    object.location.filename().is_some_and(|file| file.starts_with(name))
}

/// Writes `written` to `place`, as a runner does, in the time until `end` on the monotonic clock;
/// gives how many objects it has become.
///
/// # Errors
/// What the store fails with, and the end of the time. Nothing is left then.
pub async fn spill(
    env: &Env,
    place: &Place,
    target: &SpillTarget,
    written: &Arc<Written>,
    end: Duration,
) -> io::Result<u32> {
    let (mut pieces, mut object, mut number) = (written.pieces(), BytesMut::new(), 0);
    let spilled = async {
        loop {
            let piece = pieces.next().await.transpose()?;
            let is_last = piece.is_none();
            object.extend_from_slice(&piece.unwrap_or_default());
            while object.len() >= OBJECT_BYTES || (is_last && !object.is_empty()) {
                if env.monotonic() >= end {
                    let problem = "nobody waits for the answer any more";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
                }
                let length = object.len().min(OBJECT_BYTES);
                let bytes = object.split_to(length).freeze();
                number += 1;
                put(place, &place.object(&target.name, number - 1), bytes).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    };
    match spilled.await {
        Ok(()) => Ok(number),
        Err(error) => {
            for number in 0..number {
                // The node does so, too.
                let _ = place.remove(&place.object(&target.name, number)).await;
            }
            Err(error)
        }
    }
}

async fn put(place: &Place, path: &Path, bytes: Bytes) -> io::Result<()> {
    let putting = place.store.put(path, bytes.into());
    let slow = |_| io::Error::new(io::ErrorKind::TimedOut, "the object store does not answer");
    timeout(REQUEST_PATIENCE, putting).await.map_err(slow)??;
    Ok(())
}

/// What an attempt may have spilled, which is removed with this.
pub struct Spilled {
    env: Env,
    place: Place,
    /// What the runner gets.
    pub target: SpillTarget,
    /// When the runner gives up, on the monotonic clock.
    end: Duration,
    is_removed: bool,
}

impl Spilled {
    /// For an attempt that ends in `patience`. `key` is a word that no other attempt has.
    pub fn new(env: &Env, place: Place, url: &str, key: &str, patience: Duration) -> Self {
        let target = SpillTarget { url: url.to_owned(), name: format!("{NAME}{key}") };
        let end = env.monotonic() + patience + LATE;
        Self { env: env.clone(), place, target, end, is_removed: false }
    }

    /// Reads an answer of so many objects into `receiver`, and removes them.
    ///
    /// # Errors
    /// An object that is missing, or is not what it was.
    pub async fn read(mut self, objects: u32, mut receiver: Receiver) -> io::Result<Received> {
        for number in 0..objects {
            let path = self.place.object(&self.target.name, number);
            let mut bytes = self.place.store.get(&path).await?.into_stream();
            while let Some(bytes) = bytes.try_next().await? {
                receiver.take(bytes).await?;
            }
        }
        let received = receiver.finish()?;
        self.is_removed = true;
        for number in 0..objects {
            let removed = self.place.remove(&self.place.object(&self.target.name, number)).await;
            // The answer is good all the same; the objects are tried again.
            self.is_removed &= removed.is_ok();
        }
        Ok(received)
    }

    /// Notes that the runner has spilled nothing, and will not.
    pub fn unused(mut self) {
        self.is_removed = true;
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        if self.is_removed {
            return;
        }
        let (env, place, end) = (self.env.clone(), self.place.clone(), self.end);
        let name = self.target.name.clone();
        let removing = async move {
            let mut pause = Duration::from_millis(500);
            loop {
                let is_last = env.monotonic() >= end;
                match place.remove_where(|object| is_named(object, &name)).await {
                    Err(error) if is_last => {
                        tracing::warn!(%error, %name, "answers cannot be removed");
                    }
                    _ => {}
                }
                if is_last {
                    return;
                }
                env.sleep(pause.min(end.saturating_sub(env.monotonic()))).await;
                pause *= 2;
            }
        };
        // The runtime of the tasks ends with the connection to the coordinator.
        drop(self.env.spawn_on_cores("spill-removal", removing));
    }
}

/// The directories that were swept lately.
#[derive(Default)]
pub struct Sweeps {
    /// When each was swept last, on the monotonic clock.
    last: Mutex<HashMap<String, Duration>>,
}

impl Sweeps {
    /// Whether the directory at `url`, which is used `now`, on the monotonic clock, is to be swept.
    /// If so it is noted as swept.
    pub fn begin(&self, url: &str, now: Duration) -> bool {
        let mut last = self.last.lock();
        last.retain(|_, swept| now.saturating_sub(*swept) < SWEEP_INTERVAL);
        if last.contains_key(url) {
            return false;
        }
        last.insert(url.to_owned(), now);
        true
    }
}

/// Removes what killed nodes have left in `place`.
///
/// # Errors
/// What the store fails with.
pub async fn sweep(env: &Env, place: &Place) -> io::Result<usize> {
    let oldest = env.now_ms() / 1_000 - LEFT_AFTER_S;
    let is_left =
        |object: &ObjectMeta| is_named(object, NAME) && object.last_modified.timestamp() < oldest;
    place.remove_where(is_left).await
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use millstream_store::env::{Clock, SeededRng};
    use object_store::memory::InMemory;

    use super::*;
    use crate::cluster::answer::samples::{expect, files_in, receiver, written};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn place() -> Place {
        let directory = Path::from("some/place");
        Place { store: Arc::new(InMemory::new()), directory }
    }

    fn attempt(env: &Env, place: &Place) -> Spilled {
        Spilled::new(env, place.clone(), "memory:///some/place", "key", PATIENCE)
    }

    async fn objects(place: &Place) -> usize {
        place.store.list(None).count().await
    }

    /// Waits until `place` has so many objects.
    async fn wait_for(env: &Env, place: &Place, count: usize) {
        for _ in 0..200 {
            if objects(place).await == count {
                return;
            }
            env.sleep(Duration::from_millis(20)).await;
        }
        panic!("{} objects are left", objects(place).await);
    }

    #[tokio::test]
    async fn an_answer_is_read_from_its_objects_which_are_then_gone() {
        let (env, place) = (Env::real(), place());
        for lengths in [&[OBJECT_BYTES * 2 + 5, 0, 7][..], &[1], &[]] {
            let (written, files) = written(lengths);
            let (directory, receiver) = receiver();
            let spilled = attempt(&env, &place);
            let end = env.monotonic() + PATIENCE;
            let count = spill(&env, &place, &spilled.target, &written, end).await;
            let count = count.expect("it is spilled");
            assert_eq!(count as usize, written.bytes().div_ceil(OBJECT_BYTES as u64) as usize);
            assert_eq!(objects(&place).await, count as usize);
            let received = spilled.read(count, receiver).await.expect("it is there");
            assert_eq!(objects(&place).await, 0);
            expect(received, directory.path(), &files);
        }
    }

    #[tokio::test]
    async fn an_answer_with_a_lost_object_is_none_and_leaves_nothing() {
        let (env, place) = (Env::real(), place());
        let (written, _) = written(&[OBJECT_BYTES * 3]);
        for lost in 0..4 {
            let (directory, receiver) = receiver();
            let spilled = attempt(&env, &place);
            let end = env.monotonic() + PATIENCE;
            let count = spill(&env, &place, &spilled.target, &written, end).await;
            assert_eq!(count.expect("it is spilled"), 4);
            place.remove(&place.object(&spilled.target.name, lost)).await.expect("removed");
            assert!(spilled.read(4, receiver).await.is_err(), "without object {lost}");
            assert_eq!(files_in(directory.path()), 0);
            wait_for(&env, &place, 0).await;
        }
    }

    #[tokio::test]
    async fn a_runner_that_is_late_leaves_nothing() {
        let (env, place) = (Env::real(), place());
        let (written, _) = written(&[OBJECT_BYTES * 3]);
        let spilled = attempt(&env, &place);
        let late = spill(&env, &place, &spilled.target, &written, Duration::ZERO).await;
        assert_eq!(late.expect_err("it is late").kind(), io::ErrorKind::TimedOut);
        assert_eq!(objects(&place).await, 0);
        // One that is about to write when the node has removed what was there.
        let target = spilled.target.clone();
        let write = async |number| {
            let bytes = Bytes::from_static(b"x");
            put(&place, &place.object(&target.name, number), bytes).await.expect("it is put");
        };
        write(0).await;
        drop(spilled);
        wait_for(&env, &place, 0).await;
        write(1).await;
        wait_for(&env, &place, 0).await;
    }

    #[test]
    fn a_directory_in_use_is_swept_every_six_hours() {
        let (sweeps, hour) = (Sweeps::default(), Duration::from_secs(3_600));
        assert!(sweeps.begin("memory:///a", hour));
        assert!(!sweeps.begin("memory:///a", hour * 6));
        assert!(sweeps.begin("memory:///b", hour * 6));
        assert!(sweeps.begin("memory:///a", hour * 7));
        assert!(!sweeps.begin("memory:///a", hour * 8));
        assert!(sweeps.begin("memory:///c", hour * 20));
        assert_eq!(sweeps.last.lock().len(), 1, "others are forgotten");
    }

    /// A clock that is some days ahead.
    struct Ahead(i64);

    impl Clock for Ahead {
        fn now_us(&self) -> i64 {
            Env::real().now_us() + self.0 * 24 * 60 * 60 * 1_000_000
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
            Env::real().sleep(duration)
        }
    }

    #[tokio::test]
    async fn what_a_killed_node_has_left_is_removed_a_day_later() {
        let place = place();
        let env = |days| Env::new(Arc::new(Ahead(days)), Arc::new(SeededRng::new(1)));
        let bytes = Bytes::from_static(b"x");
        for name in [&format!("{NAME}abc-00000"), "somebody's"] {
            put(&place, &place.directory.clone().join(name), bytes.clone()).await.expect("put");
        }
        assert_eq!(sweep(&env(0), &place).await.expect("listed"), 0);
        assert_eq!(sweep(&env(2), &place).await.expect("listed"), 1);
        assert_eq!(objects(&place).await, 1, "what others have put there stays");
    }
}
