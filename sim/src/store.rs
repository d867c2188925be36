//! The model object store: requests that take their time, puts that fail in all the ways they can,
//! and the checks of what is written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use millstream_store::storage::Storage;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};

use crate::flaw::Flaw;
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
        let taken = self.objects.is_there(&name) && self.flaw != Some(Flaw::PutReplaces);
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
        self.objects.by_name.insert(name.clone(), bytes);
        self.objects.last_put = Some(name);
        match fault {
            Fault::Repeated => Err(exists),
            Fault::NotAnswered => lost(),
            _ => Ok(()),
        }
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
        let put = move |state: &mut State| state.put_object(from, name, bytes, fault);
        self.process.send(Way::Store, there, back, put).await?;
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
                let delete = move |state: &mut State| {
                    let found = state.objects.by_name.remove(&name).is_some();
                    state.note(Some(id), format_args!("{name} is deleted: {found}"));
                };
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
