//! A sink's private part of the checkpoint.

use std::fmt;

use thiserror::Error;

use crate::directory_name::directory_name;
use crate::error::{Classified, Failure, Kind};
use crate::layout;
use crate::offset::BatchId;
use crate::storage::{Durability, PutError, Storage};

/// An entry has a number that no query comes to.
#[derive(Debug, Error)]
#[error(
    "{file} has an impossible number, so no query has written it. Move it away, then start the \
     query again"
)]
struct OutOfReach {
    file: String,
}

impl Classified for OutOfReach {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

/// Another process writes to the same place.
#[derive(Debug, Error)]
#[error(
    "another instance of this query has written to {directory}: it has taken over, and this one \
     stops"
)]
struct TakenOver {
    directory: String,
}

impl Classified for TakenOver {
    fn kind(&self) -> Kind {
        Kind::Fenced
    }
}

/// A sink's private directory in the checkpoint, `sinks/<name>/`, for what it has to remember of
/// the place it writes to. Of its entries the one with the highest number counts.
#[derive(Clone)]
pub struct SinkLog {
    storage: Storage,
    directory: String,
}

impl fmt::Debug for SinkLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SinkLog({})", self.directory)
    }
}

impl SinkLog {
    /// The directory of the sink `name` in `storage`.
    pub(crate) fn new(storage: Storage, name: &str) -> Self {
        Self { storage, directory: format!("{}/{}", layout::SINKS, directory_name(name)) }
    }

    /// What was remembered last, and the number of its entry.
    ///
    /// # Errors
    /// `Data` for a number that no query reaches.
    pub async fn last(&self) -> Result<Option<(BatchId, Vec<u8>)>, Failure> {
        let ids = self.ids().await?;
        if let Some(id) = layout::out_of_reach(&ids) {
            return Err(OutOfReach { file: self.storage.path_of(&self.name(id)) }.into());
        }
        let Some(id) = ids.last() else { return Ok(None) };
        Ok(self.storage.get(&self.name(*id)).await?.map(|bytes| (*id, bytes)))
    }

    /// Remembers `bytes` in place of what was there.
    pub async fn replace(&self, bytes: Vec<u8>) -> Result<(), Failure> {
        let ids = self.ids().await?;
        let next = ids.last().map_or(BatchId(0), |last| last.next());
        // The new entry is written before the old ones are deleted: after a crash in between the
        // highest number still counts. It is flushed, since a power cut must not leave it empty
        // when the old ones are gone.
        self.storage.put_if_absent(&self.name(next), bytes, Durability::Power).await?;
        let old = ids.into_iter().map(|id| self.name(id)).collect();
        Ok(self.storage.delete_many(old).await?)
    }

    /// Remembers `bytes` behind the entry `last`, which this process has read or written last, and
    /// gives the number of the new entry. Of two processes that take turns so, one is refused.
    ///
    /// # Errors
    /// `Fenced`: there is a newer entry than `last`, of another process.
    pub async fn append(&self, last: Option<BatchId>, bytes: Vec<u8>) -> Result<BatchId, Failure> {
        let next = last.map_or(BatchId(0), |last| last.next());
        let put = self.storage.put_if_absent(&self.name(next), bytes, Durability::Power).await;
        put.map_err(|error| match error {
            PutError::AlreadyExists { .. } => self.taken_over(),
            other => other.into(),
        })?;
        // A name is free again where another process has gone past it and tidied up; but then there
        // is a higher one.
        let ids = self.ids().await?;
        if ids.last() != Some(&next) {
            return Err(self.taken_over());
        }
        let old = ids.into_iter().filter(|id| *id != next).map(|id| self.name(id)).collect();
        self.storage.delete_many(old).await?;
        Ok(next)
    }

    /// Checks that `last` is still the last entry.
    ///
    /// # Errors
    /// `Fenced`: there is a newer one, of another process.
    pub async fn check(&self, last: Option<BatchId>) -> Result<(), Failure> {
        match self.ids().await?.last() == last.as_ref() {
            true => Ok(()),
            false => Err(self.taken_over()),
        }
    }

    fn taken_over(&self) -> Failure {
        TakenOver { directory: self.location() }.into()
    }

    /// Where it is, for messages.
    pub fn location(&self) -> String {
        self.storage.path_of(&self.directory)
    }

    async fn ids(&self) -> Result<Vec<BatchId>, Failure> {
        Ok(layout::batch_ids(&self.storage.list(&self.directory).await?))
    }

    fn name(&self, id: BatchId) -> String {
        format!("{}/{id}", self.directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_entry_counts() {
        let log = SinkLog::new(Storage::in_memory(), "a/b");
        assert!(log.location().ends_with("sinks/a%2Fb"));
        assert_eq!(log.last().await.expect("readable"), None);
        for content in ["one", "two"] {
            log.replace(content.into()).await.expect("written");
        }
        let (id, content) = log.last().await.expect("readable").expect("there");
        assert_eq!((id, content), (BatchId(1), b"two".to_vec()));
        assert_eq!(log.ids().await.expect("readable"), [BatchId(1)]);
    }

    #[tokio::test]
    async fn of_two_processes_one_is_refused() {
        let log = SinkLog::new(Storage::in_memory(), "table");
        let first = log.append(None, b"one".to_vec()).await.expect("written");
        assert_eq!(first, BatchId(0));
        // The second process reads that entry, and goes on.
        let second = log.append(Some(first), b"two".to_vec()).await.expect("written");
        let taken = log.append(Some(first), b"late".to_vec()).await.expect_err("it is there");
        assert_eq!(taken.kind(), Kind::Fenced);
        assert!(log.check(Some(first)).await.is_err() && log.check(Some(second)).await.is_ok());
        log.append(Some(second), b"three".to_vec()).await.expect("written");
        // By now the name is free again.
        let taken = log.append(Some(first), b"late".to_vec()).await.expect_err("there are newer");
        assert_eq!(taken.kind(), Kind::Fenced, "{taken}");
        let last = log.last().await.expect("readable");
        assert_eq!(last, Some((BatchId(2), b"three".to_vec())));
    }

    #[tokio::test]
    async fn of_two_that_a_crash_left_the_newer_counts() {
        let storage = Storage::in_memory();
        let log = SinkLog::new(storage.clone(), "table");
        for (id, content) in [(0, "one"), (1, "two")] {
            let (name, bytes) = (log.name(BatchId(id)), content.into());
            storage.put_if_absent(&name, bytes, Durability::Process).await.expect("written");
        }
        let last = log.last().await.expect("readable");
        assert_eq!(last, Some((BatchId(1), b"two".to_vec())));
        log.replace(b"three".to_vec()).await.expect("written");
        assert_eq!(log.ids().await.expect("readable"), [BatchId(2)]);
    }
}
