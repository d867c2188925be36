//! Opening a journal: what a crash has left is read, checked and continued.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::keys::Keys;
use super::segment::{self, DecodeError, KeysFile, Segment};
use super::{
    Facts, Journal, JournalError, KEYS, SEGMENT, Settings, Shared, State, clean, segment_name,
    write,
};
use crate::env::Env;
use crate::layout;
use crate::source_log::SourceLog;
use crate::storage::Storage;

impl Journal {
    /// Opens the journal of a source, or begins one, and starts to write. `position` is where the
    /// query stands, if it has begun. Needs a tokio runtime.
    ///
    /// # Errors
    /// `Data`: files are damaged, or records from `position` on are missing.
    pub async fn open(
        log: &SourceLog,
        position: Option<u64>,
        settings: Settings,
        env: &Env,
    ) -> Result<Self, JournalError> {
        let (storage, directory, source) = log.place();
        let shared = Shared {
            storage,
            directory,
            source,
            env: env.clone(),
            settings,
            state: Mutex::new(State {
                queue: Vec::new(),
                queued_bytes: 0,
                next: 0,
                durable: 0,
                acknowledged: 0,
                released: 0,
                segments: Default::default(),
                keys: Keys::new(settings.key_window, settings.keys_max),
                expired: Vec::new(),
                failure: None,
                ends: false,
            }),
            work: Notify::new(),
            released: Notify::new(),
            changed: Notify::new(),
        };
        shared.read_files().await?;
        let (first, end) = {
            let state = shared.state.lock();
            (state.segments.front().map_or(0, |segment| segment.first), state.durable)
        };
        if let Some(position) = position {
            if position > end {
                return Err(shared.missing(end, position));
            }
            if position < first {
                return Err(shared.missing(position, first));
            }
        }
        let shared = Arc::new(shared);
        let writer = env.spawn("journal", write::run(Arc::clone(&shared)));
        let cleaner = env.spawn("journal cleaner", clean::run(Arc::clone(&shared)));
        Ok(Self { shared, tasks: Mutex::new(vec![writer, cleaner]) })
    }
}

impl Shared {
    /// Reads all files, one at a time.
    async fn read_files(&self) -> Result<(), JournalError> {
        let names = self.storage.list(&self.directory).await?;
        let firsts = numbers(&names, SEGMENT);
        for first in numbers(&names, KEYS) {
            let name = format!("{KEYS}{first}");
            if firsts.first().is_some_and(|oldest| *oldest <= first) {
                // Of segments that were about to be deleted, and are all there.
                self.storage.delete_many(vec![self.path(&name)]).await?;
                continue;
            }
            let Some(bytes) = self.get(&name).await? else { continue };
            let file = KeysFile::decode(&bytes);
            let file = file.map_err(|problem| self.damaged(&name, problem))?;
            self.state.lock().keys.add_file(first, file.end, file.newest_us, file.keys);
        }
        for (index, first) in firsts.iter().enumerate() {
            self.read_segment(*first, firsts.get(index + 1).copied()).await?;
        }
        let mut state = self.state.lock();
        let end = state.segments.back().map_or(0, |last| last.end);
        (state.next, state.durable) = (end, end);
        let (acknowledged, now_us) = (state.acknowledged, self.env.now_us());
        state.keys.renew(acknowledged, now_us);
        Ok(())
    }

    /// Reads the segment at `first`, which `next` follows.
    async fn read_segment(&self, first: u64, next: Option<u64>) -> Result<(), JournalError> {
        let facts = Facts { first, end: first, bytes: 0 };
        let name = facts.name();
        let is_local = matches!(self.storage, Storage::Local(_));
        if next.is_none() && is_local {
            // It may have been written by a process that was killed before it flushed it; what is
            // read now counts as safe.
            self.storage.flush(vec![self.path(&name)]).await?;
        }
        let Some(bytes) = self.get(&name).await? else {
            return Err(self.missing(first, next.unwrap_or(first + 1)));
        };
        let length = bytes.len() as u64;
        let segment = segment::decode(&bytes.into(), first);
        let mut segment = segment.map_err(|problem| self.damaged(&name, problem))?;
        if let Some(problem) = segment.rest.take() {
            self.check_rest(&segment, next, is_local, problem)?;
            if next.is_none() {
                let path = self.storage.path_of(&self.path(&name));
                tracing::warn!(
                    path,
                    end = segment.end(),
                    "a crash has torn the journal's last records, which were not acknowledged; \
                     going on before them"
                );
            }
        }
        if segment.frames.is_empty() && next.is_none() && is_local {
            // A crash came before its first record was whole. The next segment gets its name.
            let aside = self.path(&format!(".{name}.torn-{}", self.env.random_uuid()));
            return Ok(self.storage.rename(&self.path(&name), &aside).await?);
        }
        if let Some(next) = next.filter(|next| *next != segment.end()) {
            return Err(self.missing(segment.end(), next));
        }
        let mut state = self.state.lock();
        state.segments.push_back(Facts { end: segment.end(), bytes: length, ..facts });
        state.keys.begin(first);
        for frame in &segment.frames {
            state.acknowledged = state.acknowledged.max(frame.acknowledged);
            for (position, record) in (frame.position..).zip(&frame.records) {
                state.keys.add(record.key, position, frame.time_us);
            }
        }
        Ok(())
    }

    /// Whether a crash explains that the file of `segment` has bytes behind its last frame.
    fn check_rest(
        &self,
        segment: &Segment,
        next: Option<u64>,
        is_local: bool,
        problem: DecodeError,
    ) -> Result<(), JournalError> {
        // An object is there whole or not at all.
        let is_explained = is_local && next.is_none_or(|next| next == segment.end());
        if is_explained {
            return Ok(());
        }
        Err(self.damaged(&segment_name(segment.first), problem))
    }
}

/// The numbers behind `prefix` in `names`, ascending.
fn numbers(names: &[String], prefix: &str) -> Vec<u64> {
    let number = |name: &String| layout::batch_id(name.strip_prefix(prefix)?).map(|id| id.0);
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}
