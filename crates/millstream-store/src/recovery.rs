//! Where a query stopped, read from the ends of both logs.
//!
//! With L the last intent and C the last commit entry:
//!
//! - C = L: everything logged is published; go on behind L.
//! - C < L: the intents above C are logged and perhaps not published; run them again over the same
//!   ranges. The first starts where the highest intent up to C ends.
//! - no L: a new query.
//!
//! Ids may have gaps: Spark's asynchronous progress tracking logs some micro-batches only. So "the
//! one before" is the highest id below that is there.
//!
//! A crash of the process leaves whole files or none. A power cut can leave any file that was not
//! flushed empty or torn, on a local disk: entries are flushed together with others or not at all,
//! and the system writes them back in any order. Such files are moved aside, and the query goes on
//! from the last micro-batch whose entries are both whole: a lost commit entry means that a
//! micro-batch is run again, a lost intent that its rows are taken anew. That repeats rows only for
//! a sink that was promised no more. One that relies on intents has them flushed, and the driver
//! compares what a sink has published with what is left here. Damage that a crash cannot explain is
//! reported and left alone.
//!
//! Of a query with state, the state log says where it stands and what is to be run again. So the
//! two logs may begin anywhere then, as they do after power cuts have torn the entries before.

use crate::checkpoint::Checkpoint;
use crate::codec::DecodeError;
use crate::error::{Classified, Kind};
use crate::offset::BatchId;
use crate::storage::{Storage, StorageError};
use crate::{commit_log, layout, offset_log};

/// Where a query stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The intent before the last one; `last_intent` starts where it ends. `None` for the first
    /// micro-batch, and for one of a query with state whose entry before was lost.
    pub previous_intent: Option<(BatchId, offset_log::Entry)>,
    /// The last intent; `None` for a new query.
    pub last_intent: Option<(BatchId, offset_log::Entry)>,
    /// The last commit entry.
    pub last_commit: Option<(BatchId, commit_log::Entry)>,
    /// All intents above the last commit entry, ascending: to be run again, in this order. Its
    /// last is `last_intent`. Spark runs again only that last one.
    pub unfinished: Vec<(BatchId, offset_log::Entry)>,
    /// The highest intent that is committed: where the first of `unfinished` starts, or the query
    /// goes on if there is none. `None` if nothing is committed.
    pub finished_intent: Option<(BatchId, offset_log::Entry)>,
}

/// Why the place where a query stopped cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// A log entry that is needed cannot be read, and no crash explains it.
    #[error("{file} is damaged: {problem}. Restore the file from a backup. {otherwise}")]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
        /// What to do without a backup.
        otherwise: String,
    },
    /// An entry has a number that no query reaches.
    #[error(
        "{file} has an impossible number, so no query has written it. Move it out of the log, then start the query again"
    )]
    OutOfReach {
        /// The file.
        file: String,
    },
    /// The entry ends before the one before it.
    #[error(
        "{file} ends at {end}, which is before the end of {before}, {before_end}: an older entry was written over it, or a copy was restored. Rows that are published would be read and published again. Restore the file from a backup. {otherwise}"
    )]
    Backwards {
        /// The file.
        file: String,
        /// Where it ends, by source.
        end: String,
        /// The entry before it.
        before: String,
        /// Where that ends.
        before_end: String,
        /// What to do without a backup.
        otherwise: String,
    },
    /// An intent must be run again, and the entry that says where it starts is gone.
    #[error(
        "{file} is to be run again and starts where the entry before it ends, but there is none below it in {log}. Restore the missing file from a backup, or use a new checkpoint directory (the query then begins anew)"
    )]
    PreviousMissing {
        /// The file of the intent to be run again.
        file: String,
        /// The offset log's directory.
        log: String,
    },
    /// The commit log is ahead of the offset log.
    #[error(
        "{file} says that micro-batch {commit} is published, but {log} {last}. Restore the missing files of the offset log from a backup, or delete the commit entries above it (those micro-batches are then run again)"
    )]
    CommitAhead {
        /// The file of the last commit entry.
        file: String,
        /// The last commit's micro-batch.
        commit: BatchId,
        /// The offset log's directory.
        log: String,
        /// Where the offset log ends, in words: "ends at 4".
        last: String,
    },
    /// An entry was written by a newer release, or in a form that is not supported.
    #[error("{file} cannot be read: {problem}. Use the program that wrote it, or a newer one")]
    NotSupported {
        /// The file.
        file: String,
        /// What is not supported.
        problem: DecodeError,
    },
    /// An entry was there a moment ago: another process has purged it.
    #[error(
        "another process is writing this checkpoint: it has just deleted entries ({file}). Run the query in one process only"
    )]
    Purged {
        /// The file, or its log.
        file: String,
    },
    /// A file cannot be read at all.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Classified for RecoverError {
    fn kind(&self) -> Kind {
        match self {
            Self::Damaged { .. }
            | Self::OutOfReach { .. }
            | Self::Backwards { .. }
            | Self::PreviousMissing { .. }
            | Self::CommitAhead { .. } => Kind::Data,
            Self::NotSupported { .. } => Kind::Config,
            Self::Purged { .. } => Kind::Fenced,
            Self::Storage(error) => error.kind(),
        }
    }
}

impl Checkpoint {
    /// Finds where the query stopped, and tidies what a crash left behind.
    ///
    /// To be called before a [`LogWriter`](crate::log_writer::LogWriter) is started.
    pub async fn recover(&self) -> Result<Recovered, RecoverError> {
        let mut logs = Logs::list(self).await?;
        logs.check_numbers()?;
        let last_commit = logs.last_commit().await?;
        let committed = last_commit.as_ref().map(|(id, _)| *id);
        // Commit entries come first: an intent that is torn may be moved aside only if it is above
        // the last commit entry, because below it rows of its range are published.
        logs.pass_over_torn(committed).await?;
        let last_intent = logs.last_intent(committed).await?;
        logs.tidy().await?;
        logs.assemble(last_intent, last_commit).await
    }
}

/// What is on disk.
struct Logs<'a> {
    checkpoint: &'a Checkpoint,
    storage: &'a Storage,
    intents: Vec<BatchId>,
    commits: Vec<BatchId>,
    /// Names beside the entries, as `offsets/.1.crc`.
    others: Vec<String>,
}

impl<'a> Logs<'a> {
    async fn list(checkpoint: &'a Checkpoint) -> Result<Self, StorageError> {
        let storage = checkpoint.storage();
        let (mut ids, mut others) = (Vec::new(), Vec::new());
        // Another process may still be writing; it learns of this one only when it meets an entry
        // of ours. It writes an intent before the commit entry, so commits are listed first: then
        // each that is found has its intent in the later listing.
        for log in [layout::COMMITS, layout::OFFSETS] {
            let names = storage.list(log).await?;
            ids.push(layout::batch_ids(&names));
            others.extend(names.iter().map(|name| format!("{log}/{name}")));
        }
        let intents = ids.pop().unwrap_or_default();
        let commits = ids.pop().unwrap_or_default();
        Ok(Self { checkpoint, storage, intents, commits, others })
    }

    fn check_numbers(&self) -> Result<(), RecoverError> {
        let of = |ids, name: fn(BatchId) -> String| layout::out_of_reach(ids).map(name);
        let commit = of(&self.commits, layout::commit);
        match of(&self.intents, layout::intent).or(commit) {
            Some(name) => Err(RecoverError::OutOfReach { file: self.storage.path_of(&name) }),
            None => Ok(()),
        }
    }

    /// The last whole commit entry whose intent is not torn; those above it are moved aside. The
    /// intents are then above the last commit entry.
    async fn last_commit(&mut self) -> Result<Option<(BatchId, commit_log::Entry)>, RecoverError> {
        while let Some(&id) = self.commits.last() {
            let name = layout::commit(id);
            match self.read(&name, commit_log::Entry::decode).await? {
                Ok(entry) => match self.torn_intent_of(id).await? {
                    None => return Ok(Some((id, entry))),
                    Some(problem) => {
                        self.move_aside(layout::COMMITS, id, &problem).await?;
                        self.commits.pop();
                    }
                },
                Err(error) if error.is_torn() => {
                    self.move_aside(layout::COMMITS, id, &error).await?;
                    self.commits.pop();
                }
                Err(problem) => return Err(self.not_supported(&name, problem)),
            }
        }
        Ok(None)
    }

    /// What is wrong with the intent of the commit entry `id`, if a power cut can have torn it and
    /// there is a micro-batch before to go back to, or a state log that says where to go on.
    async fn torn_intent_of(&self, id: BatchId) -> Result<Option<DecodeError>, RecoverError> {
        let has_one_before = id == BatchId(0) || self.commits.first() < Some(&id);
        let may_go_back = has_one_before || self.checkpoint.has_state();
        if !self.may_be_torn() || !may_go_back || self.intents.binary_search(&id).is_err() {
            return Ok(None);
        }
        let entry = self.read(&layout::intent(id), offset_log::Entry::decode).await?;
        Ok(entry.err().filter(DecodeError::is_torn))
    }

    /// Moves intents aside that are torn, above the last commit entry. One above them that is whole
    /// then begins where the last whole one ends; where that would be the query's beginning and the
    /// entry of it is torn, nothing tells so, and all of them are moved aside.
    async fn pass_over_torn(&mut self, committed: Option<BatchId>) -> Result<(), RecoverError> {
        if !self.may_be_torn() {
            return Ok(());
        }
        let (finished, open): (Vec<BatchId>, Vec<BatchId>) =
            self.intents.iter().partition(|id| Some(**id) <= committed);
        for &id in &open {
            let entry = self.read(&layout::intent(id), offset_log::Entry::decode).await?;
            let Some(problem) = entry.err().filter(DecodeError::is_torn) else { continue };
            if finished.is_empty() && id == BatchId(0) {
                // From the end, so that a crash in between finds the same situation.
                for &id in open.iter().rev() {
                    self.move_intent_aside(id, &problem).await?;
                }
                return Ok(());
            }
            self.move_intent_aside(id, &problem).await?;
        }
        Ok(())
    }

    async fn move_intent_aside(
        &mut self,
        id: BatchId,
        problem: &DecodeError,
    ) -> Result<(), RecoverError> {
        self.move_aside(layout::OFFSETS, id, problem).await?;
        self.intents.retain(|intent| *intent != id);
        Ok(())
    }

    /// Whether a power cut tears files here. An object is whole or not there.
    fn may_be_torn(&self) -> bool {
        matches!(self.storage, Storage::Local(_))
    }

    /// The last whole intent; torn ones above the last commit entry are moved aside.
    async fn last_intent(
        &mut self,
        committed: Option<BatchId>,
    ) -> Result<Option<(BatchId, offset_log::Entry)>, RecoverError> {
        while let Some(&id) = self.intents.last() {
            let name = layout::intent(id);
            match self.read(&name, offset_log::Entry::decode).await? {
                Ok(entry) => return Ok(Some((id, entry))),
                Err(error) if error.is_torn() && committed < Some(id) => {
                    self.move_aside(layout::OFFSETS, id, &error).await?;
                    self.intents.pop();
                }
                Err(error) => return Err(self.refused(id, error)),
            }
        }
        Ok(None)
    }

    /// An intent that must be there and whole.
    async fn intent(&self, id: BatchId) -> Result<(BatchId, offset_log::Entry), RecoverError> {
        match self.read(&layout::intent(id), offset_log::Entry::decode).await? {
            Ok(entry) => Ok((id, entry)),
            Err(error) => Err(self.refused(id, error)),
        }
    }

    async fn assemble(
        &self,
        last_intent: Option<(BatchId, offset_log::Entry)>,
        last_commit: Option<(BatchId, commit_log::Entry)>,
    ) -> Result<Recovered, RecoverError> {
        let committed = last_commit.as_ref().map(|(id, _)| *id);
        let last = last_intent.as_ref().map(|(id, _)| *id);
        if let Some(commit) = committed
            && committed > last
        {
            return Err(self.commit_ahead(commit, last));
        }
        let Some((last_id, last_entry)) = last_intent else { return Ok(Recovered::default()) };

        // Ids are ascending, and `None` is below every id: without a commit entry all are
        // unfinished.
        let split = self.intents.partition_point(|id| Some(*id) <= committed);
        let (finished, unfinished_ids) = self.intents.split_at(split);
        if let Some(&first) = unfinished_ids.first()
            && finished.is_empty()
            && first != BatchId(0)
            && !self.checkpoint.has_state()
        {
            return Err(self.previous_missing(first).await?);
        }
        let mut unfinished = Vec::with_capacity(unfinished_ids.len());
        for &id in unfinished_ids.iter().filter(|id| **id != last_id) {
            unfinished.push(self.intent(id).await?);
        }
        let last_intent = (last_id, last_entry);
        let (finished_intent, previous_intent) = if unfinished_ids.is_empty() {
            (Some(last_intent.clone()), self.optional_intent_below(last_id).await?)
        } else {
            let finished_intent = match finished.last() {
                Some(&id) => Some(self.intent(id).await?),
                None => None,
            };
            let previous = unfinished.last().cloned().or_else(|| finished_intent.clone());
            unfinished.push(last_intent.clone());
            (finished_intent, previous)
        };
        let last_two = previous_intent.iter().chain([&last_intent]);
        self.check_order(last_two)?;
        self.check_order(finished_intent.iter().chain(&unfinished))?;
        Ok(Recovered {
            previous_intent,
            last_intent: Some(last_intent),
            last_commit,
            unfinished,
            finished_intent,
        })
    }

    /// Validates each of `entries` against the one before it: no source may go backwards.
    fn check_order<'e>(
        &self,
        entries: impl Iterator<Item = &'e (BatchId, offset_log::Entry)>,
    ) -> Result<(), RecoverError> {
        let mut before: Option<&(BatchId, offset_log::Entry)> = None;
        for own in entries {
            let is_back = |before: &&(BatchId, offset_log::Entry)| own.1.is_behind(&before.1);
            if let Some((before, ended)) = before.filter(is_back) {
                let (id, entry) = own;
                let file = self.storage.path_of(&layout::intent(*id));
                let otherwise = format!(
                    "Without one, and if the sink is Kafka or Delta, which know where micro-batch \
                     {id} ended, delete {file} and {}; with other sinks use a new checkpoint \
                     directory (the query then begins anew)",
                    self.storage.path_of(&layout::commit(*id))
                );
                return Err(RecoverError::Backwards {
                    file,
                    end: entry.shown(),
                    before: self.storage.path_of(&layout::intent(*before)),
                    before_end: ended.shown(),
                    otherwise,
                });
            }
            before = Some(own);
        }
        Ok(())
    }

    /// Why there is no entry below `first`: another process has purged it, if the commit log has
    /// grown since it was listed, or a person has deleted it.
    async fn previous_missing(&self, first: BatchId) -> Result<RecoverError, StorageError> {
        let file = self.storage.path_of(&layout::intent(first));
        let log = self.storage.path_of(layout::OFFSETS);
        let commits = layout::batch_ids(&self.storage.list(layout::COMMITS).await?);
        Ok(if commits.last() > self.commits.last() {
            RecoverError::Purged { file: log }
        } else {
            RecoverError::PreviousMissing { file, log }
        })
    }

    /// The intent below a committed one. Nothing depends on it, so damage is only logged as a
    /// warning.
    async fn optional_intent_below(
        &self,
        last: BatchId,
    ) -> Result<Option<(BatchId, offset_log::Entry)>, RecoverError> {
        let Some(&id) = self.intents.iter().rev().find(|id| **id < last) else { return Ok(None) };
        match self.intent(id).await {
            Ok(found) => Ok(Some(found)),
            Err(RecoverError::Storage(error)) => Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "an old entry cannot be read; it is not needed");
                Ok(None)
            }
        }
    }

    /// Reads an entry that was listed.
    async fn read<T>(
        &self,
        name: &str,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Result<T, DecodeError>, RecoverError> {
        match self.storage.get(name).await? {
            Some(bytes) => Ok(decode(&bytes)),
            None => Err(RecoverError::Purged { file: self.storage.path_of(name) }),
        }
    }

    /// Renames a torn entry to a name that is no entry's, so that its number can be written again
    /// and a person can still look at it.
    async fn move_aside(
        &self,
        log: &str,
        id: BatchId,
        problem: &DecodeError,
    ) -> Result<(), StorageError> {
        let aside = format!("{log}/.{id}.torn-{}", self.checkpoint.env().random_uuid());
        self.storage.rename(&format!("{log}/{id}"), &aside).await?;
        let (file, aside) = (format!("{log}/{id}"), self.storage.path_of(&aside));
        tracing::warn!(file, %problem, aside, "a log entry was torn by a crash; moved it aside");
        Ok(())
    }

    /// Deletes temporary files, and checksums whose entry is gone: Spark would check a new entry of
    /// that number against them and refuse it.
    async fn tidy(&self) -> Result<(), StorageError> {
        let is_left_over = |path: &&String| {
            let (log, name) = path.split_once('/').unwrap_or_default();
            let ids = if log == layout::OFFSETS { &self.intents } else { &self.commits };
            let stale = layout::sidecar_of(name)
                .and_then(layout::batch_id)
                .is_some_and(|id| ids.binary_search(&id).is_err());
            stale || layout::is_temporary(name)
        };
        let left_over: Vec<String> = self.others.iter().filter(is_left_over).cloned().collect();
        self.storage.delete_many(left_over).await
    }

    fn refused(&self, id: BatchId, problem: DecodeError) -> RecoverError {
        let name = layout::intent(id);
        if !problem.is_torn() {
            return self.not_supported(&name, problem);
        }
        let is_last = self.intents.last() == Some(&id);
        let otherwise = if is_last {
            format!(
                "To run micro-batch {id} again instead, over the rows since the one before, delete \
                 {} and {}",
                self.storage.path_of(&name),
                self.storage.path_of(&layout::commit(id)),
            )
        } else {
            "Without one, use a new checkpoint directory (the query then begins anew)".to_owned()
        };
        let file = self.storage.path_of(&name);
        RecoverError::Damaged { file, problem: problem.to_string(), otherwise }
    }

    fn not_supported(&self, name: &str, problem: DecodeError) -> RecoverError {
        RecoverError::NotSupported { file: self.storage.path_of(name), problem }
    }

    fn commit_ahead(&self, commit: BatchId, last: Option<BatchId>) -> RecoverError {
        RecoverError::CommitAhead {
            file: self.storage.path_of(&layout::commit(commit)),
            commit,
            log: self.storage.path_of(layout::OFFSETS),
            last: last.map_or("is empty".to_owned(), |id| format!("ends at {id}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::env::Env;
    use crate::offset::SourceOffset;
    use crate::storage::Durability;
    use crate::storage::testing::WatchedDisk;

    fn intent(end: u64) -> Vec<u8> {
        let offsets = vec![Some(SourceOffset::new(end.to_string()))];
        let (batch_watermark_ms, batch_timestamp_ms) = (0, 1);
        let conf = offset_log::default_conf();
        offset_log::Entry { batch_watermark_ms, batch_timestamp_ms, conf, offsets }.encode()
    }

    /// A checkpoint in a directory with these files, whose disk tells `watch` what it is asked.
    async fn checkpoint(
        directory: &Path,
        files: &[(&str, Vec<u8>)],
        watch: impl Fn(&str) + Send + Sync + 'static,
    ) -> Checkpoint {
        let (disk, env) = (Arc::new(WatchedDisk::new(watch)), Env::real());
        let storage = Storage::local_on(disk, directory.to_owned(), &env);
        let checkpoint = Checkpoint::open_in(storage, &env).await.unwrap();
        for (name, bytes) in files {
            let file = directory.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, bytes).unwrap();
        }
        checkpoint
    }

    fn commit() -> Vec<u8> {
        commit_log::Entry::default().encode()
    }

    #[tokio::test]
    async fn what_another_process_has_purged_is_no_loss() {
        for goes_on in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let next = directory.path().join("commits/5");
            // Between the listings of the two logs.
            let watch = move |what: &str| {
                if what == "list offsets" && goes_on {
                    // The logs are listed when the checkpoint is opened, too: not made yet then.
                    let _ = std::fs::write(&next, commit());
                }
            };
            let files =
                [("commits/4", commit()), ("offsets/5", intent(5)), ("offsets/6", intent(6))];
            let checkpoint = checkpoint(directory.path(), &files, watch).await;
            match (checkpoint.recover().await.unwrap_err(), goes_on) {
                (RecoverError::Purged { .. }, true)
                | (RecoverError::PreviousMissing { .. }, false) => {}
                (refused, _) => panic!("{goes_on}: {refused}"),
            }
        }
    }

    #[tokio::test]
    async fn a_torn_intent_with_others_behind_it_is_not_to_be_deleted() {
        let files =
            [("commits/4", commit()), ("offsets/4", b"v1".to_vec()), ("offsets/5", intent(5))];
        let directory = tempfile::tempdir().unwrap();
        let checkpoint = checkpoint(directory.path(), &files, |_| {}).await;
        let refused = checkpoint.recover().await.unwrap_err().to_string();
        assert!(refused.contains("offsets/4") && refused.contains("a new checkpoint"), "{refused}");
    }

    #[tokio::test]
    async fn an_object_that_is_no_whole_intent_is_moved_aside() {
        let (env, storage) = (Env::real(), Storage::in_memory());
        let checkpoint = Checkpoint::open_in(storage.clone(), &env).await.unwrap();
        let files =
            [("commits/0", commit()), ("offsets/0", intent(0)), ("offsets/1", b"v1".to_vec())];
        for (name, bytes) in files {
            storage.put_if_absent(name, bytes, Durability::Power).await.unwrap();
        }
        let recovered = checkpoint.recover().await.unwrap();
        assert_eq!(recovered.last_intent.map(|(id, _)| id), Some(BatchId(0)));
        let names = storage.list(layout::OFFSETS).await.unwrap();
        assert_eq!(layout::batch_ids(&names), [BatchId(0)], "{names:?}");
    }
}
