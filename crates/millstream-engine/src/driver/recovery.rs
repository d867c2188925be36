//! What a restart does, decided from the two logs and the sink's own answer.
//!
//! With L the last intent and C the last commit (Spark: `populateStartOffsets`):
//! - no L: a new query, micro-batch 0 comes next;
//! - C = L: micro-batch L+1 comes next, and starts where L ended;
//! - C < L, and the sink says it has published L: only the commit entry is missing;
//! - C < L otherwise: L runs again over the same range, with the same number and batch time.

use millstream_store::recovery::Recovered;
use millstream_store::error::{Classified, Kind};
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::offset_log;
use thiserror::Error;

/// What the driver does before its first new micro-batch.
#[derive(Debug, PartialEq)]
pub struct Resume {
    /// The number of the first new micro-batch.
    pub next_id: BatchId,
    /// Where each source stands after everything that was logged.
    pub positions: Vec<Option<SourceOffset>>,
    /// The settings that stand in the log; kept, so that Spark finds them unchanged.
    pub conf: Vec<(String, String)>,
    /// A micro-batch to run again.
    pub replay: Option<Replay>,
    /// A micro-batch that is published and lacks its commit entry.
    pub commit_only: Option<BatchId>,
}

/// A micro-batch that was logged and not published.
#[derive(Debug, PartialEq)]
pub struct Replay {
    /// Its number.
    pub id: BatchId,
    /// Where it starts, by source; `None` at the source's initial offset.
    pub starts: Vec<Option<SourceOffset>>,
    /// Where it ends, by source; `None` where the source had nothing.
    pub ends: Vec<Option<SourceOffset>>,
    /// Its time, milliseconds since the epoch.
    pub batch_time_ms: i64,
}

/// Why a checkpoint cannot be continued by this query.
#[derive(Debug, Error, PartialEq)]
pub enum ResumeError {
    /// The query has other sources than the one that wrote the checkpoint.
    #[error(
        "the checkpoint has offsets of {in_checkpoint} source(s) but the query reads {in_query}: a \
         checkpoint goes on only with the same sources in the same order; use a new checkpoint"
    )]
    SourcesChanged {
        /// Sources in the last offset log entry.
        in_checkpoint: usize,
        /// Sources of the query.
        in_query: usize,
    },
}

impl Classified for ResumeError {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

/// Decides what a restart does. `published` is the sink's answer, `None` if it cannot answer.
pub fn decide(
    recovered: Recovered,
    published: Option<BatchId>,
    sources: usize,
) -> Result<Resume, ResumeError> {
    let Some((last_id, last)) = recovered.last_intent else {
        return Ok(Resume {
            next_id: BatchId(0),
            positions: vec![None; sources],
            conf: offset_log::default_conf(),
            replay: None,
            commit_only: None,
        });
    };
    if last.offsets.len() != sources {
        let in_checkpoint = last.offsets.len();
        return Err(ResumeError::SourcesChanged { in_checkpoint, in_query: sources });
    }
    let committed = recovered.last_commit.is_some_and(|(id, _)| id >= last_id);
    let published = published.is_some_and(|id| id >= last_id);
    let starts = match recovered.previous_intent {
        Some((_, previous)) => previous.offsets,
        None => vec![None; sources],
    };
    let replay = Replay {
        id: last_id,
        starts,
        ends: last.offsets.clone(),
        batch_time_ms: last.batch_timestamp_ms,
    };
    Ok(Resume {
        next_id: last_id.next(),
        positions: last.offsets,
        conf: last.conf,
        replay: (!committed && !published).then_some(replay),
        commit_only: (!committed && published).then_some(last_id),
    })
}

#[cfg(test)]
mod tests {
    use millstream_store::commit_log;

    use super::*;

    fn entry(offset: u64) -> offset_log::Entry {
        let offsets = vec![Some(SourceOffset::new(offset.to_string()))];
        offset_log::Entry { batch_watermark_ms: 0, batch_timestamp_ms: 7, conf: vec![], offsets }
    }

    fn recovered(previous: Option<u64>, last: Option<u64>, commit: Option<u64>) -> Recovered {
        Recovered {
            previous_intent: previous.map(|id| (BatchId(id), entry(id * 10))),
            last_intent: last.map(|id| (BatchId(id), entry(id * 10))),
            last_commit: commit.map(|id| (BatchId(id), commit_log::Entry::default())),
        }
    }

    #[test]
    fn a_new_query_starts_at_zero() {
        let resume = decide(recovered(None, None, None), None, 1).unwrap();
        assert_eq!(resume.next_id, BatchId(0));
        assert_eq!(resume.replay, None);
        assert!(!resume.conf.is_empty(), "Spark's settings are written from the start");
    }

    #[test]
    fn after_a_commit_the_next_micro_batch_follows() {
        let resume = decide(recovered(Some(3), Some(4), Some(4)), None, 1).unwrap();
        assert_eq!((resume.next_id, resume.replay), (BatchId(5), None));
        assert_eq!(resume.positions, vec![Some(SourceOffset::new("40"))]);
    }

    #[test]
    fn an_intent_without_commit_runs_again_over_the_same_range() {
        let replay = decide(recovered(Some(3), Some(4), Some(3)), None, 1).unwrap().replay.unwrap();
        assert_eq!(replay.id, BatchId(4));
        assert_eq!(replay.starts, vec![Some(SourceOffset::new("30"))]);
        assert_eq!(replay.ends, vec![Some(SourceOffset::new("40"))]);
        assert_eq!(replay.batch_time_ms, 7);
    }

    #[test]
    fn what_the_sink_has_published_is_not_run_again() {
        let resume = decide(recovered(Some(3), Some(4), Some(3)), Some(BatchId(4)), 1).unwrap();
        assert_eq!((resume.replay, resume.commit_only), (None, Some(BatchId(4))));
        let behind = decide(recovered(Some(3), Some(4), Some(3)), Some(BatchId(3)), 1).unwrap();
        assert!(behind.replay.is_some());
    }

    #[test]
    fn another_number_of_sources_is_refused() {
        let refused = decide(recovered(None, Some(0), None), None, 2).unwrap_err();
        assert_eq!(refused, ResumeError::SourcesChanged { in_checkpoint: 1, in_query: 2 });
    }
}
