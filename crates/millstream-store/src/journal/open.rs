//! Opening a journal: what a crash has left is read, checked and continued.
//!
//! Where segments were about to be deleted, some may be gone and some not, in any order. They are
//! known by a file of keys in their place, or by a gap behind them, and by the commit log, which is
//! past them; what is left of them is deleted.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::keys::Keys;
use super::segment::{self, KeysFile, Segment};
use super::{
    Facts, Journal, JournalError, KEYS, SEGMENT, Settings, Shared, State, clean, numbers,
    segment_name, write,
};
use crate::env::Env;
use crate::source_log::SourceLog;
use crate::storage::Storage;

/// Requests of an object store at a time; each answer is in memory.
const READS: usize = 8;
/// What is behind the name of a segment that a crash has torn before its first record was whole.
const TORN: &str = ".torn-";

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
                stored_bytes: 0,
                keys: Keys::new(settings.key_window, settings.keys_max),
                expired: Vec::new(),
                failure: None,
                ends: false,
                alone_at: (env.monotonic(), env.now_us()),
            }),
            work: Notify::new(),
            released: Notify::new(),
            changed: Notify::new(),
        };
        let torn = shared.read_files().await?;
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
        shared.put_aside(torn, first).await?;
        let shared = Arc::new(shared);
        let writer = env.spawn("journal", write::run(Arc::clone(&shared)));
        let cleaner = env.spawn("journal cleaner", clean::run(Arc::clone(&shared)));
        Ok(Self { shared, tasks: Mutex::new(vec![writer, cleaner]) })
    }
}

impl Shared {
    /// Reads all files. Gives where the last segment begins if a crash has torn it before its first
    /// record was whole.
    async fn read_files(&self) -> Result<Option<u64>, JournalError> {
        let names = self.storage.list(&self.directory).await?;
        let mut firsts = numbers(&names, SEGMENT);
        self.read_keys(numbers(&names, KEYS), &mut firsts).await?;
        let reads = if self.is_local() { 1 } else { READS };
        let last = firsts.last().copied();
        let read = |first| self.get_segment(first, Some(first) == last);
        let mut reading = stream::iter(firsts.clone()).map(read).buffered(reads);
        let mut nexts = firsts.iter().skip(1).map(|next| Some(*next)).chain([None]);
        let mut torn = None;
        while let (Some(segment), Some(next)) = (reading.next().await, nexts.next()) {
            let (first, bytes) = segment?;
            torn = self.read_segment(first, next, bytes).await?;
        }
        let mut state = self.state.lock();
        let end = state.segments.back().map_or(0, |last| last.end);
        (state.next, state.durable) = (end, end);
        // Of the others nobody knows whether, and until when, the acknowledgement is confirmed.
        let (acknowledged, now_us) = (state.acknowledged, self.env.now_us());
        state.keys.confirmed(acknowledged, u64::MAX, now_us);
        Ok(torn)
    }

    fn is_local(&self) -> bool {
        matches!(self.storage, Storage::Local(_))
    }

    /// Reads the files of keys. Segments whose keys are in one are deleted, and not among `firsts`
    /// any more.
    async fn read_keys(
        &self,
        numbers: Vec<u64>,
        firsts: &mut Vec<u64>,
    ) -> Result<(), JournalError> {
        let read = async |first| {
            let name = format!("{KEYS}{first}");
            let bytes = self.get(&name).await;
            (first, name, bytes)
        };
        let mut reading = stream::iter(numbers).map(read).buffered(READS);
        while let Some((first, name, bytes)) = reading.next().await {
            let Some(bytes) = bytes? else { continue };
            let file = KeysFile::decode(&bytes);
            let file = file.map_err(|problem| self.damaged(&name, problem))?;
            let is_superseded = |of: &u64| (first..file.end).contains(of);
            let superseded: Vec<u64> = firsts.iter().copied().filter(is_superseded).collect();
            if !superseded.is_empty() {
                if !self.is_committed(file.end).await? {
                    // The logs are older than the file: the segments count.
                    self.storage.delete_many(vec![self.path(&name)]).await?;
                    continue;
                }
                firsts.retain(|of| !is_superseded(of));
                self.delete_segments(superseded).await?;
            }
            let mut state = self.state.lock();
            state.keys.add_file(first, file);
            let expired = state.keys.limit();
            state.expired.extend(expired);
        }
        Ok(())
    }

    async fn delete_segments(&self, firsts: Vec<u64>) -> Result<(), JournalError> {
        let paths = firsts.into_iter().map(|first| self.path(&segment_name(first))).collect();
        Ok(self.storage.delete_many(paths).await?)
    }

    /// Whether the query is past `position`, as its commit log says.
    async fn is_committed(&self, position: u64) -> Result<bool, JournalError> {
        Ok(self.committed().await?.is_some_and(|committed| committed >= position))
    }

    async fn get_segment(
        &self,
        first: u64,
        is_last: bool,
    ) -> Result<(u64, Option<Vec<u8>>), JournalError> {
        let name = segment_name(first);
        if is_last && self.is_local() {
            // It may have been written by a process that was killed before it flushed it; what is
            // read now counts as safe.
            self.storage.flush(vec![self.path(&name)]).await?;
        }
        Ok((first, self.get(&name).await?))
    }

    /// Takes up the segment at `first`, which `next` follows. Gives `first` if there is no whole
    /// record in it.
    async fn read_segment(
        &self,
        first: u64,
        next: Option<u64>,
        bytes: Option<Vec<u8>>,
    ) -> Result<Option<u64>, JournalError> {
        let length = bytes.as_ref().map_or(0, Vec::len) as u64;
        let name = segment_name(first);
        let segment = bytes.map(|bytes| segment::decode(&bytes.into(), first)).transpose();
        let segment = segment.map_err(|problem| self.damaged(&name, problem))?;
        let end = segment.as_ref().map_or(first, Segment::end);
        if let Some(next) = next.filter(|next| *next != end)
            && self.is_committed(next).await?
        {
            // It was about to be deleted with others; or it is an object that a process wrote after
            // another had taken over.
            self.drop_read(first).await?;
            return Ok(None);
        }
        let Some(mut segment) = segment else {
            return Err(self.missing(first, next.unwrap_or(first + 1)));
        };
        self.check_end(&mut segment, next)?;
        if segment.frames.is_empty() && next.is_none() && self.is_local() {
            return Ok(Some(first));
        }
        let mut state = self.state.lock();
        state.segments.push_back(Facts { first, end: segment.end(), bytes: length });
        state.stored_bytes += length;
        state.keys.begin(first);
        for frame in &segment.frames {
            state.acknowledged(frame.acknowledged, frame.time_us);
            for (position, record) in (frame.position..).zip(&frame.records) {
                state.keys.add(record.key, position, frame.time_us);
            }
        }
        let expired = state.keys.limit();
        state.expired.extend(expired);
        Ok(None)
    }

    /// Whether `segment` goes as far as it should: to `next`, or to where a crash has torn it.
    fn check_end(&self, segment: &mut Segment, next: Option<u64>) -> Result<(), JournalError> {
        let (name, end) = (segment_name(segment.first), segment.end());
        if let Some(problem) = segment.rest.take() {
            // An object is there whole or not at all.
            let is_torn = self.is_local() && next.is_none_or(|next| next == end);
            if !is_torn {
                return Err(self.damaged(&name, problem));
            }
            if next.is_none() {
                let path = self.storage.path_of(&self.path(&name));
                tracing::warn!(
                    path,
                    end,
                    "a crash has torn the journal's last records, which were not acknowledged; \
                     going on before them"
                );
            }
        }
        match next.filter(|next| *next != end) {
            Some(next) => Err(self.missing(end, next)),
            None => Ok(()),
        }
    }

    /// Deletes the segment at `first` and those before it, and forgets what they say.
    async fn drop_read(&self, first: u64) -> Result<(), JournalError> {
        let segments = {
            let mut state = self.state.lock();
            state.stored_bytes = 0;
            state.keys.forget_segments();
            std::mem::take(&mut state.segments)
        };
        let firsts = segments.iter().map(|segment| segment.first).chain([first]).collect();
        self.delete_segments(firsts).await
    }

    /// The next segment gets the name of the one at `torn`, which has no whole record and is kept
    /// under another name for whoever wants to look. What earlier crashes have left is deleted,
    /// this time or when the journal begins behind it, with `first`.
    async fn put_aside(&self, torn: Option<u64>, first: u64) -> Result<(), JournalError> {
        let below = if torn.is_some() { u64::MAX } else { first };
        let names = self.storage.list(&self.directory).await?;
        let old = names.into_iter().filter(|name| torn_at(name).is_some_and(|at| at < below));
        self.storage.delete_many(old.map(|name| self.path(&name)).collect()).await?;
        let Some(torn) = torn else { return Ok(()) };
        let name = segment_name(torn);
        let aside = self.path(&format!(".{name}{TORN}{}", self.env.random_uuid()));
        Ok(self.storage.rename(&self.path(&name), &aside).await?)
    }
}

/// Where the torn segment began that was put aside under `name`.
fn torn_at(name: &str) -> Option<u64> {
    let (segment, _) = name.strip_prefix('.')?.split_once(TORN)?;
    segment.strip_prefix(SEGMENT)?.parse().ok()
}
