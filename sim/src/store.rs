//! The model object store: requests that take their time, puts that fail in all the ways they can,
//! and the checks of what is written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use millstream_store::state_log::Facts;
use millstream_store::state_log::file::{Encoder, decode};
use millstream_store::storage::Storage;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};

use crate::flaw::Flaw;
use crate::mutation::Mutation;
use crate::process::Process;
use crate::world::{State, Way};

/// What the store holds.
#[derive(Default)]
pub struct Objects {
    by_name: BTreeMap<String, Bytes>,
    /// Every log entry there ever was: what the checks compare with.
    pub ever: crate::checks::Ever,
    last_put: Option<String>,
}

impl Objects {
    /// Whether there is such an object.
    pub fn is_there(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Takes note of an object that is written at `now`.
    pub fn add(&mut self, name: String, bytes: Bytes, now: Duration) {
        self.ever.written(&name, now);
        self.by_name.insert(name, bytes);
    }

    /// Takes note of one that is gone. False if there was none.
    pub fn remove(&mut self, name: &str) -> bool {
        self.by_name.remove(name).is_some()
    }

    /// Takes note of what is `left` when all that was written since `written_back` may be lost.
    /// Gives what is lost or damaged.
    pub fn replace_all(
        &mut self,
        left: BTreeMap<String, Bytes>,
        written_back: Duration,
    ) -> Vec<String> {
        self.ever.survives(written_back);
        let before = std::mem::replace(&mut self.by_name, left);
        let is_lost = |(name, bytes): (String, Bytes)| {
            (self.by_name.get(&name) != Some(&bytes)).then_some(name)
        };
        let lost: Vec<_> = before.into_iter().filter_map(is_lost).collect();
        for name in &lost {
            self.ever.lost(name);
        }
        lost
    }

    /// How many entries the log of the entry `name` has up to the last commit entry.
    pub fn committed_beside(&self, name: &str) -> usize {
        let (log, _) = name.split_once('/').expect("an entry is in a log");
        let committed = self.last_id("commits/");
        let ids =
            self.by_name.keys().filter_map(|name| name.strip_prefix(log)?.get(1..)?.parse().ok());
        ids.filter(|id: &u64| Some(*id) <= committed).count()
    }

    /// The oldest entry of the log that `name` was an entry of.
    fn oldest_beside(&self, name: &str) -> Option<String> {
        let (log, _) = name.split_once('/')?;
        let number = |name: &&String| name.strip_prefix(log)?.get(1..)?.parse::<u64>().ok();
        let entries = self.by_name.keys().filter(|name| number(name).is_some());
        entries.min_by_key(|name| number(name)).cloned()
    }

    /// The highest number among the objects of a log, named as `offsets/`.
    pub fn last_id(&self, log: &str) -> Option<u64> {
        let number = |name: &String| name.strip_prefix(log)?.parse().ok();
        self.by_name.keys().filter_map(number).max()
    }
}

/// What goes wrong with a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// It is not done.
    NotDone,
    /// It is done, and the answer is lost.
    NotAnswered,
    /// It is done, the answer is lost, and the client's own repetition finds it there.
    Repeated,
}

/// How one put goes.
struct Fate {
    there: Duration,
    back: Duration,
    fault: Fault,
}

impl State {
    fn draw_fate(&mut self) -> Fate {
        let traits = self.scenario.store.clone();
        if self.calm {
            return Fate { there: Duration::ZERO, back: Duration::ZERO, fault: Fault::None };
        }
        let slow =
            if self.chance.percent(traits.slow) { Duration::from_secs(1) } else { traits.way };
        let (there, back) = (self.chance.up_to(slow), self.chance.up_to(traits.way));
        let faults = [Fault::NotDone, Fault::NotAnswered, Fault::Repeated];
        let drawn = faults.iter().zip(traits.failed).find(|(_, rate)| self.chance.percent(*rate));
        let fault = drawn.map_or(Fault::None, |(fault, _)| *fault);
        self.faulty |= fault != Fault::None;
        Fate { there, back, fault }
    }

    fn put_object(&mut self, from: usize, name: String, bytes: Bytes, fault: Fault) -> Result<()> {
        let taken = self.objects.is_there(&name) && !self.has(Flaw::PutReplaces);
        let outcome = match (fault, taken) {
            (Fault::NotDone, _) => "fails",
            (_, true) => "finds it there",
            (Fault::None, _) => "is done",
            (Fault::NotAnswered, _) => "is done and not answered",
            (Fault::Repeated, _) => "is done twice",
        };
        self.note(Some(from), format_args!("put {name} {outcome}"));
        let lost = || Err(Error::Generic { store: "model", source: "the network is away".into() });
        if fault == Fault::NotDone {
            return lost();
        }
        let exists = Error::AlreadyExists { path: name.clone(), source: "it is there".into() };
        if taken {
            return if fault == Fault::NotAnswered { lost() } else { Err(exists) };
        }
        self.check_put(from, &name, &bytes);
        self.objects.add(name.clone(), bytes, self.now);
        self.objects.last_put = Some(name);
        match fault {
            Fault::Repeated => Err(exists),
            Fault::NotAnswered => lost(),
            _ => Ok(()),
        }
    }

    fn delete_object(&mut self, from: usize, name: &str) {
        let found = self.objects.remove(name);
        self.note(Some(from), format_args!("{name} is deleted: {found}"));
        if self.is_mutated(Mutation::PurgesTooMuch) {
            for _ in 0..2 {
                if let Some(oldest) = self.objects.oldest_beside(name) {
                    self.objects.remove(&oldest);
                }
            }
        }
        self.check_purged(name);
    }

    /// What [`Flaw::ForgetsTheLastPut`] does.
    pub fn forget_the_last_put(&mut self) {
        if let Some(name) = self.objects.last_put.take() {
            self.note(None, format_args!("the store has lost {name}"));
            self.objects.by_name.remove(&name);
        }
    }
}

/// The store as one process reaches it.
#[derive(Clone)]
pub struct ModelStore {
    process: Process,
}

impl ModelStore {
    /// The checkpoint's storage as `process` sees it.
    pub fn storage(process: &Process) -> Storage {
        let store = Arc::new(Self { process: process.clone() });
        Storage::object(store, Path::default(), "model://checkpoint")
    }

    /// Asks for something that is not a put.
    async fn ask<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> T {
        let way = self
            .process
            .with(|state| if state.calm { Duration::ZERO } else { state.scenario.store.way });
        let (there, back) =
            self.process.with(|state| (state.chance.up_to(way), state.chance.up_to(way)));
        self.process.send(Way::Store, there, back, effect).await
    }
}

impl ModelStore {
    /// Whether a mutated driver does not wait for an object, and writes it later.
    fn is_late(&self, name: &str) -> bool {
        let is = |mutation, prefix| self.process.is_mutated(mutation) && name.starts_with(prefix);
        is(Mutation::LogsIntentAfterPublishing, "offsets/")
            || is(Mutation::LogsStateAfterPublishing, "state/changes-")
    }

    /// Whether a mutated driver does not write an object at all.
    fn leaves_out(&self, name: &str) -> bool {
        let id = name.strip_prefix("commits/").and_then(|id| id.parse::<u64>().ok());
        let is_left_out = id.is_some_and(|id| id % 4 == 3);
        is_left_out && self.process.is_mutated(Mutation::LeavesOutCommitEntries)
    }
}

/// How much later a mutated driver writes what it does not wait for.
const LATE: Duration = Duration::from_millis(300);

/// The entries of a file of the state log, changed.
fn changed(bytes: &Bytes, change: impl Fn(&mut Facts)) -> Bytes {
    let mut encoder = Encoder::default();
    for mut entry in decode(bytes).expect("it was written whole") {
        change(&mut entry.facts);
        encoder.add(&entry);
    }
    encoder.finish().into()
}

/// A snapshot as that of the next micro-batch; anything else as it is.
fn one_later(name: String, bytes: Bytes) -> (String, Bytes) {
    let Some(id) = name.strip_prefix("state/snapshot-").and_then(|id| id.parse::<u64>().ok())
    else {
        return (name, bytes);
    };
    (format!("state/snapshot-{}", id + 1), changed(&bytes, |facts| facts.batch_id += 1))
}

/// A file of changes without the watermarks that follow from it; anything else as it is.
pub fn without_watermark(name: &str, bytes: Bytes) -> Bytes {
    if !name.starts_with("state/changes-") {
        return bytes;
    }
    changed(&bytes, |facts| {
        facts.next_watermark_ms = 0;
        facts.seen_ms.fill(None);
    })
}

impl fmt::Debug for ModelStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelStore")
    }
}

impl fmt::Display for ModelStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("model store")
    }
}

fn meta(name: &str, size: usize) -> ObjectMeta {
    ObjectMeta {
        location: Path::from(name),
        last_modified: Default::default(),
        size: size as u64,
        e_tag: None,
        version: None,
    }
}

fn not_used<T>(operation: &'static str) -> Result<T> {
    Err(Error::NotSupported { source: format!("the model has no {operation}").into() })
}

#[async_trait]
impl ObjectStore for ModelStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        assert_eq!(options.mode, PutMode::Create, "nothing in a checkpoint is replaced");
        let (name, bytes) = (location.to_string(), Bytes::from(payload));
        self.process.step(format!("puts {name}")).await;
        let Fate { there, back, fault } = self.process.with(State::draw_fate);
        let from = self.process.id;
        if self.leaves_out(&name) {
            return Ok(PutResult { e_tag: None, version: None });
        }
        let (name, bytes) = match self.process.is_mutated(Mutation::TakesSnapshotsTooEarly) {
            true => one_later(name, bytes),
            false => (name, bytes),
        };
        let is_late = self.is_late(&name);
        let put = move |state: &mut State| state.put_object(from, name, bytes, fault);
        if is_late {
            drop(self.process.send(Way::Store, there + LATE, back, put));
        } else {
            self.process.send(Way::Store, there, back, put).await?;
        }
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        not_used("multipart upload")
    }

    async fn get_opts(&self, location: &Path, _: GetOptions) -> Result<GetResult> {
        let name = location.to_string();
        let wanted = name.clone();
        let bytes = self.ask(move |state| state.objects.by_name.get(&wanted).cloned()).await;
        let Some(bytes) = bytes else {
            return Err(Error::NotFound {
                path: name,
                source: "the model has no such object".into(),
            });
        };
        let bytes = match self.process.is_mutated(Mutation::ForgetsTheWatermark) {
            true => without_watermark(&name, bytes),
            false => bytes,
        };
        let (meta, range) = (meta(&name, bytes.len()), 0..bytes.len() as u64);
        let payload = GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed());
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |location: Result<Path>| {
            let store = store.clone();
            async move {
                let location = location?;
                let (name, id) = (location.to_string(), store.process.id);
                store.process.step(format!("deletes {name}")).await;
                let delete = move |state: &mut State| state.delete_object(id, &name);
                store.ask(delete).await;
                Ok(location)
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::iter([not_used("recursive listing")]).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.map(|prefix| format!("{prefix}/")).unwrap_or_default();
        let id = self.process.id;
        self.process.step(format!("lists {prefix}")).await;
        let list = move |state: &mut State| {
            let names = state.objects.by_name.range(prefix.clone()..);
            let below = names.take_while(|(name, _)| name.starts_with(&prefix));
            let direct = below.filter(|(name, _)| !name[prefix.len()..].contains('/'));
            let objects: Vec<_> = direct.map(|(name, bytes)| meta(name, bytes.len())).collect();
            state.note(Some(id), format_args!("{prefix} has {} objects", objects.len()));
            ListResult { common_prefixes: Vec::new(), objects }
        };
        Ok(self.ask(list).await)
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        not_used("copy: it would follow a torn entry, which this store does not have")
    }
}
