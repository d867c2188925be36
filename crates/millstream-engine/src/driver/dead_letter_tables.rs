//! Which tables a query's dead letters go to, as its checkpoint has it.
//!
//! What is not finished is given again after a crash: to each sink, by its name, what that lacks,
//! and letters out of the state log by their place in it. Were the tables others by then, letters
//! would be lost, or written once more in another table. So their names and columns are recorded
//! before the first micro-batch that may have letters, and unfinished work that misses a table
//! refuses. Where nothing is unfinished the tables may change.
//!
//! ```text
//! dead-letters/<N>    [{"name":"bad","columns":"payload BINARY, ..."}]; the highest N counts
//! ```
//!
//! The offset log has a place for settings, but that is Spark's, which writes it anew.

use millstream_store::checkpoint::Checkpoint;
use millstream_store::layout;
use millstream_store::offset::BatchId;
use millstream_store::storage::Durability;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::api::source::{Classified, Failure, Kind};

/// A table of dead letters, as the checkpoint records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedTable {
    /// Its name in lower case.
    pub name: String,
    /// The columns that letters have in it.
    pub columns: String,
}

/// What a restart has found of the work before.
#[derive(Clone, Copy, Debug)]
pub struct PriorWork {
    /// Whether all of it is published and logged.
    pub is_finished: bool,
    /// Whether letters are in a state log, where their place tells the table.
    pub has_state: bool,
}

/// Why a query cannot go on with its tables of dead letters.
#[derive(Debug, Error)]
pub enum DeadLetterTablesError {
    /// Unfinished work has letters for other tables.
    #[error(
        "the checkpoint {location} has micro-batches that are not finished, and {changed}. Their \
         letters would be lost, or written twice. Restore the declaration, run the flow until it \
         has caught up (--trigger availableNow), and change it then. A table that cannot be \
         written to any more may be at another place, under the same name"
    )]
    Changed {
        /// The checkpoint.
        location: String,
        /// What is different, in words.
        changed: String,
    },
    /// The record of the tables cannot be read.
    #[error(
        "{file} is damaged: {problem}. Restore it from a backup. If the flow sends dead letters to \
         the same tables as when it ran last, delete it"
    )]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl Classified for DeadLetterTablesError {
    fn kind(&self) -> Kind {
        match self {
            Self::Changed { .. } => Kind::Config,
            Self::Damaged { .. } => Kind::Data,
        }
    }
}

/// Compares the tables `own` with those of the checkpoint, and records them where they differ.
///
/// Errors: unfinished work that has letters for another table.
pub async fn settle(
    checkpoint: &Checkpoint,
    own: &[RecordedTable],
    found: PriorWork,
) -> Result<(), Failure> {
    let storage = checkpoint.storage();
    let ids = layout::batch_ids(&storage.list(layout::DEAD_LETTERS).await?);
    if let Some(id) = layout::out_of_reach(&ids) {
        let file = storage.path_of(&name(id));
        let problem = "no query comes to its number, so none has written it".to_owned();
        return Err(DeadLetterTablesError::Damaged { file, problem }.into());
    }
    let known = match ids.last() {
        Some(last) => read(checkpoint, *last).await?,
        None => Vec::new(),
    };
    if known == own {
        return Ok(());
    }
    if !found.is_finished
        && let Some(changed) = difference(&known, own, found.has_state)
    {
        let location = checkpoint.location();
        return Err(DeadLetterTablesError::Changed { location, changed }.into());
    }
    let next = ids.last().map_or(BatchId(0), |last| last.next());
    let bytes = serde_json::to_vec(own).expect("texts are JSON");
    storage.put_if_absent(&name(next), bytes, Durability::Power).await?;
    Ok(storage.delete_many(ids.into_iter().map(name).collect()).await?)
}

fn name(id: BatchId) -> String {
    format!("{}/{id}", layout::DEAD_LETTERS)
}

async fn read(checkpoint: &Checkpoint, id: BatchId) -> Result<Vec<RecordedTable>, Failure> {
    let (storage, name) = (checkpoint.storage(), name(id));
    let bytes = storage.get(&name).await?.unwrap_or_default();
    serde_json::from_slice(&bytes).map_err(|error| {
        let (file, problem) = (storage.path_of(&name), error.to_string());
        DeadLetterTablesError::Damaged { file, problem }.into()
    })
}

/// What letters for `known` would miss in `own`, in words. A table that was added misses nothing:
/// it gets what no table got before.
fn difference(known: &[RecordedTable], own: &[RecordedTable], by_place: bool) -> Option<String> {
    for (place, table) in known.iter().enumerate() {
        let RecordedTable { name, columns } = table;
        let Some(at) = own.iter().position(|own| own.name == *name) else {
            return Some(format!(
                "sent dead letters to the table '{name}', to which the flow sends none any more"
            ));
        };
        if by_place && own[at].columns != *columns {
            let now = &own[at].columns;
            return Some(format!(
                "sent dead letters to the table '{name}', whose columns were ({columns}) and are \
                 ({now}) now"
            ));
        }
        if by_place && at != place {
            return Some(format!(
                "sent dead letters to the table '{name}' as number {}, which is number {} of the \
                 flow's now",
                place + 1,
                at + 1
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use millstream_store::env::Env;

    use super::*;

    fn tables(names: &[&str]) -> Vec<RecordedTable> {
        let table = |name: &&str| RecordedTable {
            name: name.trim_end_matches('+').to_owned(),
            columns: format!("payload {}", if name.ends_with('+') { "STRING" } else { "BINARY" }),
        };
        names.iter().map(table).collect()
    }

    const STATELESS: PriorWork = PriorWork { is_finished: false, has_state: false };
    const STATEFUL: PriorWork = PriorWork { is_finished: false, has_state: true };
    const FINISHED: PriorWork = PriorWork { is_finished: true, has_state: true };

    /// Settles on `before`, and then on `after` with what was found.
    async fn settled(before: &[&str], after: &[&str], found: PriorWork) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        let location = directory.path().to_str().unwrap();
        let checkpoint = Checkpoint::open(location, &Env::real()).await.unwrap();
        settle(&checkpoint, &tables(before), FINISHED).await.unwrap();
        settle(&checkpoint, &tables(after), found).await.map_err(|error| {
            assert_eq!(error.kind(), Kind::Config);
            error.to_string()
        })?;
        let names = checkpoint.storage().list(layout::DEAD_LETTERS).await.unwrap();
        assert!(names.len() <= 1, "{names:?}");
        settle(&checkpoint, &tables(after), STATEFUL).await.unwrap();
        Ok(())
    }

    #[tokio::test]
    async fn with_nothing_unfinished_tables_may_change() {
        for (before, after) in [(["a"], ["b"]), (["a"], ["a+"])] {
            settled(&before, &after, FINISHED).await.unwrap();
        }
        settled(&["a", "b"], &["b", "a"], FINISHED).await.unwrap();
        settled(&["a"], &[], FINISHED).await.unwrap();
    }

    #[tokio::test]
    async fn unfinished_work_refuses_to_miss_a_table() {
        for found in [STATELESS, STATEFUL] {
            for after in [&["b"][..], &[]] {
                let refused = settled(&["a"], after, found).await.unwrap_err();
                assert!(refused.contains("'a'") && refused.contains("availableNow"), "{refused}");
            }
            for (before, after) in [(&[][..], &["a"][..]), (&["a"], &["a", "b"])] {
                settled(before, after, found).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn places_and_columns_count_only_where_letters_are_in_the_state_log() {
        for after in [["b", "a"], ["a+", "b"]] {
            settled(&["a", "b"], &after, STATELESS).await.unwrap();
            let refused = settled(&["a", "b"], &after, STATEFUL).await.unwrap_err();
            assert!(refused.contains("'a'"), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_damaged_record_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let location = directory.path().to_str().unwrap();
        let checkpoint = Checkpoint::open(location, &Env::real()).await.unwrap();
        std::fs::create_dir(directory.path().join("dead-letters")).unwrap();
        std::fs::write(directory.path().join("dead-letters/3"), "[{").unwrap();
        let refused = settle(&checkpoint, &tables(&["a"]), FINISHED).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Data);
        assert!(refused.to_string().contains("dead-letters/3"), "{refused}");
    }
}
