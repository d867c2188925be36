//! The commands of golden scripts.
//!
//! ```text
//! storage faulty          the checkpoint is in a store that can fail (default: a local directory)
//! fault network|permission|lost-answer|none
//! hold NAME|deletions     puts of NAME, or all deletions, wait until they are released
//! release NAME|deletions  (deletions: and waits until they are done)
//! open | close | abandon | recover | flush | failure | show
//! open again              while it is open: a second time
//! intent N OFFSET...      each written before the next command; - for no offset
//! commit N [WATERMARK]
//! log A..B                intents and commit entries of B-A micro-batches
//! run A..B                the same, and waits for a purge that is due
//! offer A..B              intents of B-A micro-batches, as far as the writer takes them at once
//! step N                  every Nth only, as asynchronous progress tracking does
//! file NAME TEXT          writes a file behind the engine's back; \n, \0 as in Rust
//! delete NAME | cat NAME | ls NAME | count NAME
//! hidden NAME             what `ls` shows that begins with a dot
//! bounded NAME            `count`, where purging may have just been or just be due
//! ```

use std::sync::Arc;

use futures::FutureExt;
use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::{Clock, Env, SeededRng};
use millstream_store::error::Classified;
use millstream_store::log_writer::{LogWriter, Settings, WriteError};
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::recovery::Recovered;
use millstream_store::storage::{Durability, Storage};
use millstream_store::{commit_log, inspect, layout, offset_log};

use crate::faulty_store::{self, Fault, FaultyStore};

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now_us(&self) -> i64 {
        1_767_225_600_000_000
    }

    fn monotonic(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    fn sleep(&self, _: std::time::Duration) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The state of one script.
pub struct Script {
    env: Env,
    root: tempfile::TempDir,
    faulty: Option<Arc<FaultyStore>>,
    storage: Storage,
    step: usize,
    checkpoint: Option<Checkpoint>,
    writer: Option<LogWriter>,
}

impl Script {
    pub fn new() -> Self {
        let env = Env::new(Arc::new(Still), Arc::new(SeededRng::new(1)));
        let root = tempfile::tempdir().expect("a temporary directory");
        let storage = Storage::local(root.path(), &env);
        Self { env, root, faulty: None, storage, step: 1, checkpoint: None, writer: None }
    }

    /// Runs one command; returns what it prints.
    pub async fn run(&mut self, command: &str) -> String {
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        let printed = match (verb, words.as_slice()) {
            ("storage", ["faulty"]) => self.use_faulty_store(),
            ("fault", [fault]) => self.set_fault(fault),
            ("hold", ["deletions"]) => {
                self.faulty().hold_deletions();
                String::new()
            }
            ("hold", [name]) => {
                self.faulty().hold(name);
                String::new()
            }
            ("release", ["deletions"]) => {
                self.faulty().release_deletions().await;
                String::new()
            }
            ("release", [name]) => {
                self.faulty().release(name);
                String::new()
            }
            ("offer", [range]) => self.offer(range).await,
            ("abandon", []) => {
                (self.writer, self.checkpoint) = (None, None);
                String::new()
            }
            ("open", []) => self.open().await,
            ("open", ["again"]) => self.open_again().await,
            ("close", []) => self.close().await,
            ("recover", []) => self.recover().await,
            ("flush", []) => shown(self.writer().flush().await),
            ("failure", []) => match self.writer().failure() {
                None => "none".to_owned(),
                Some(failure) => error(&*failure),
            },
            ("show", []) => match inspect::inspect_in(&self.storage).await {
                Ok(inspection) => inspection.to_string(),
                Err(failed) => error(&failed),
            },
            ("intent", [id, offsets @ ..]) => self.intent(number(id), offsets).await,
            ("commit", [id]) => self.commit(number(id), 0).await,
            ("commit", [id, watermark]) => self.commit(number(id), number(watermark)).await,
            ("step", [step]) => {
                self.step = number(step);
                String::new()
            }
            ("log", [range]) => shown(self.log_range(range).await),
            ("run", [range]) => {
                let logged = self.log_range(range).await;
                shown(logged.and(self.writer().flush().await))
            }
            ("file", [name, ..]) => self.write_file(name, &rest[name.len()..]).await,
            ("delete", [name]) => {
                self.storage.delete_many(vec![name.to_string()]).await.expect("deleted");
                String::new()
            }
            ("cat", [name]) => self.cat(name).await,
            ("ls", names) => self.list(names.first().unwrap_or(&"")).await.join("\n"),
            ("count", [name]) => self.count(name).await,
            ("hidden", [name]) => {
                let mut names = self.list(name).await;
                names.retain(|name| name.starts_with('.'));
                names.join("\n")
            }
            ("bounded", [name]) => self.bounded(name).await,
            _ => panic!("no such command: {command}"),
        };
        self.masked(&printed)
    }

    fn use_faulty_store(&mut self) -> String {
        let (store, storage) = faulty_store::storage();
        (self.faulty, self.storage) = (Some(store), storage);
        String::new()
    }

    fn set_fault(&self, fault: &str) -> String {
        let fault = match fault {
            "network" => Some(Fault::Network),
            "permission" => Some(Fault::Permission),
            "lost-answer" => Some(Fault::LostAnswer),
            "none" => None,
            other => panic!("no such fault: {other}"),
        };
        self.faulty().set_fault(fault);
        String::new()
    }

    fn faulty(&self) -> &FaultyStore {
        self.faulty.as_ref().expect("`storage faulty` comes first")
    }

    async fn open(&mut self) -> String {
        match Checkpoint::open_in(self.storage.clone(), &self.env).await {
            Ok(checkpoint) => {
                let id = checkpoint.query_id().to_owned();
                self.checkpoint = Some(checkpoint);
                format!("query {id}")
            }
            Err(failed) => error(&failed),
        }
    }

    async fn open_again(&self) -> String {
        match Checkpoint::open_in(self.storage.clone(), &self.env).await {
            Ok(checkpoint) => format!("query {}", checkpoint.query_id()),
            Err(failed) => error(&failed),
        }
    }

    async fn close(&mut self) -> String {
        let result = match self.writer.take() {
            Some(writer) => writer.close().await,
            None => Ok(()),
        };
        self.checkpoint = None;
        shown(result)
    }

    async fn recover(&self) -> String {
        let checkpoint = self.checkpoint.as_ref().expect("`open` comes first");
        match checkpoint.recover().await {
            Ok(recovered) => recovered_text(&recovered),
            Err(failed) => error(&failed),
        }
    }

    fn writer(&mut self) -> &LogWriter {
        let checkpoint = self.checkpoint.as_ref().expect("`open` comes first");
        self.writer
            .get_or_insert_with(|| LogWriter::start(checkpoint, &self.env, Settings::default()))
    }

    async fn intent(&mut self, id: u64, offsets: &[&str]) -> String {
        let offsets = offsets.iter().map(|text| match *text {
            "-" => None,
            json => Some(SourceOffset::new(json)),
        });
        let entry = intent_entry(id, offsets.collect());
        let ticket = self.writer().intent(BatchId(id), entry, Durability::Power).await;
        shown(ticket.written().await)
    }

    async fn commit(&mut self, id: u64, next_batch_watermark_ms: i64) -> String {
        let entry = commit_log::Entry { next_batch_watermark_ms };
        shown(self.writer().commit(BatchId(id), entry).await.written().await)
    }

    /// A writer that takes an entry does so without waiting for anything.
    async fn offer(&mut self, range: &str) -> String {
        let (from, to) = ids(range);
        let writer = self.writer();
        for id in from..to {
            let entry = intent_entry(id, vec![Some(offset_of(id))]);
            let taken = writer.intent(BatchId(id), entry, Durability::Process).now_or_never();
            if taken.is_none() {
                return format!("{} taken, {id} waits", id - from);
            }
        }
        format!("{} taken", to - from)
    }

    async fn log_range(&mut self, range: &str) -> Result<(), WriteError> {
        let (from, to) = ids(range);
        let mut last = None;
        for id in (from..to).step_by(self.step) {
            let entry = intent_entry(id, vec![Some(offset_of(id))]);
            let writer = self.writer();
            writer.intent(BatchId(id), entry, Durability::Process).await;
            last = Some(writer.commit(BatchId(id), commit_log::Entry::default()).await);
        }
        last.expect("the range is not empty").written().await
    }

    async fn write_file(&self, name: &str, text: &str) -> String {
        self.storage.delete_many(vec![name.to_owned()]).await.expect("deleted");
        let bytes = text.trim_start().replace("\\n", "\n").replace("\\0", "\0").into_bytes();
        let written = self.storage.put_if_absent(name, bytes, Durability::Process).await;
        written.expect("written");
        String::new()
    }

    async fn cat(&self, name: &str) -> String {
        let bytes = self.storage.get(name).await.expect("readable").expect("there");
        String::from_utf8_lossy(&bytes).replace('\0', "\\0")
    }

    async fn list(&self, name: &str) -> Vec<String> {
        let mut names = self.storage.list(name).await.expect("listed");
        names.sort();
        names
    }

    async fn count(&self, name: &str) -> String {
        let names = self.list(name).await;
        let ids = layout::batch_ids(&names);
        match (ids.first(), ids.last()) {
            (Some(first), Some(last)) => format!("{} entries, {first} to {last}", ids.len()),
            _ => "no entries".to_owned(),
        }
    }

    async fn bounded(&self, name: &str) -> String {
        let ids = layout::batch_ids(&self.list(name).await);
        match (ids.len(), ids.last()) {
            (101..=200, Some(last)) => format!("101 to 200 entries, the last {last}"),
            _ => self.count(name).await,
        }
    }

    /// Takes out what differs from run to run.
    fn masked(&self, text: &str) -> String {
        let text = text.replace(&self.root.path().display().to_string(), "<dir>");
        let text = text.replace(&format!("process {}", std::process::id()), "process <pid>");
        mask_uuids(&text)
    }
}

fn intent_entry(id: u64, offsets: Vec<Option<SourceOffset>>) -> offset_log::Entry {
    let batch_timestamp_ms = 1_767_225_600_000 + i64::try_from(id).expect("a small id");
    offset_log::Entry { batch_watermark_ms: 0, batch_timestamp_ms, conf: Vec::new(), offsets }
}

fn ids(range: &str) -> (u64, u64) {
    let (from, to) = range.split_once("..").expect("a range A..B");
    (number(from), number(to))
}

/// Where the input stands after a micro-batch.
fn offset_of(id: u64) -> SourceOffset {
    SourceOffset::new(format!("{{\"in\":{{\"0\":{}}}}}", (id + 1) * 10))
}

fn recovered_text(recovered: &Recovered) -> String {
    let intent = |found: &Option<(BatchId, offset_log::Entry)>| match found {
        None => "none".to_owned(),
        Some((id, entry)) => {
            let offset = |offset: &Option<SourceOffset>| {
                offset.as_ref().map_or("-".to_owned(), ToString::to_string)
            };
            let offsets: Vec<String> = entry.offsets.iter().map(offset).collect();
            format!("{id} {}", offsets.join(" "))
        }
    };
    let commit = recovered.last_commit.as_ref().map_or("none".to_owned(), |(id, entry)| {
        format!("{id} watermark {}", entry.next_batch_watermark_ms)
    });
    let unfinished: Vec<String> =
        recovered.unfinished.iter().map(|(id, _)| id.to_string()).collect();
    format!(
        "previous intent {}\nlast intent {}\nlast commit {commit}\nunfinished [{}] from {}",
        intent(&recovered.previous_intent),
        intent(&recovered.last_intent),
        unfinished.join(" "),
        intent(&recovered.finished_intent),
    )
}

fn shown(result: Result<(), WriteError>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(failed) => error(&failed),
    }
}

fn error(failed: &dyn Classified) -> String {
    format!("{:?}: {failed}", failed.kind())
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().ok().unwrap_or_else(|| panic!("no number: {text}"))
}

fn mask_uuids(text: &str) -> String {
    let mut masked = text.to_owned();
    let starts = (0..text.len()).rev().filter(|start| text.is_char_boundary(*start));
    let mut end_of_free = text.len();
    for start in starts {
        let Some(candidate) = text.get(start..start + 36) else { continue };
        if start + 36 <= end_of_free && uuid::Uuid::try_parse(candidate).is_ok() {
            masked.replace_range(start..start + 36, "<uuid>");
            end_of_free = start;
        }
    }
    masked
}
