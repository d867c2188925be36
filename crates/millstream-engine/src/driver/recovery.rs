//! What a restart does, decided from the two logs and the sink's own answer.
//!
//! With C the last commit:
//! - nothing logged: a new query, micro-batch 0 comes next;
//! - an intent above C that the sink says it has published: only its commit entry is missing;
//! - any other intent above C: its micro-batch runs again over the same range, with the same number
//!   and batch time;
//! - after those, the next number follows, and starts where the last intent ended.

use millstream_store::error::{Classified, Kind};
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::offset_log;
use millstream_store::recovery::Recovered;
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
    /// Micro-batches that are published and lack their commit entry, ascending.
    pub commit_only: Vec<BatchId>,
    /// Micro-batches to run again, ascending.
    pub replays: Vec<Replay>,
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
        "the checkpoint has offsets of {} but the query reads {}: a checkpoint goes on only with the \
         same sources in the same order; use a new checkpoint",
        counted(*in_checkpoint),
        counted(*in_query)
    )]
    SourcesChanged {
        /// Sources in the last offset log entry.
        in_checkpoint: usize,
        /// Sources of the query.
        in_query: usize,
    },
}

fn counted(sources: usize) -> String {
    if sources == 1 { "1 source".to_owned() } else { format!("{sources} sources") }
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
            commit_only: Vec::new(),
            replays: Vec::new(),
        });
    };
    let in_checkpoint = last.offsets.len();
    if in_checkpoint != sources {
        return Err(ResumeError::SourcesChanged { in_checkpoint, in_query: sources });
    }
    let finished = recovered.finished_intent.map(|(_, entry)| entry.offsets);
    let mut starts = finished.unwrap_or_else(|| vec![None; sources]);
    let (mut commit_only, mut replays) = (Vec::new(), Vec::new());
    for (id, entry) in recovered.unfinished {
        let ends = entry.offsets.clone();
        if published.is_some_and(|published| published >= id) {
            commit_only.push(id);
        } else {
            let batch_time_ms = entry.batch_timestamp_ms;
            replays.push(Replay { id, starts, ends: entry.offsets, batch_time_ms });
        }
        starts = ends;
    }
    Ok(Resume {
        next_id: last_id.next(),
        positions: last.offsets,
        conf: last.conf,
        commit_only,
        replays,
    })
}

#[cfg(test)]
mod tests {
    use millstream_store::commit_log;

    use super::*;

    fn entry(id: u64) -> (BatchId, offset_log::Entry) {
        let offsets = vec![offset(id * 10)];
        let entry =
            offset_log::Entry { batch_watermark_ms: 0, batch_timestamp_ms: 7, conf: vec![], offsets };
        (BatchId(id), entry)
    }

    fn offset(at: u64) -> Option<SourceOffset> {
        Some(SourceOffset::new(at.to_string()))
    }

    /// Intents up to `last`, commits up to `commit`.
    fn recovered(last: u64, commit: Option<u64>) -> Recovered {
        let first_open = commit.map_or(0, |commit| commit + 1);
        Recovered {
            previous_intent: last.checked_sub(1).map(entry),
            last_intent: Some(entry(last)),
            last_commit: commit.map(|id| (BatchId(id), commit_log::Entry::default())),
            unfinished: (first_open..=last).map(entry).collect(),
            finished_intent: commit.map(entry),
        }
    }

    #[test]
    fn a_new_query_starts_at_zero() {
        let resume = decide(Recovered::default(), None, 1).unwrap();
        assert_eq!((resume.next_id, resume.replays), (BatchId(0), vec![]));
        assert!(!resume.conf.is_empty(), "Spark's settings are written from the start");
    }

    #[test]
    fn after_a_commit_the_next_micro_batch_follows() {
        let resume = decide(recovered(4, Some(4)), None, 1).unwrap();
        assert_eq!((resume.next_id, resume.replays), (BatchId(5), vec![]));
        assert_eq!(resume.positions, vec![offset(40)]);
    }

    #[test]
    fn intents_without_commit_run_again_over_the_same_ranges() {
        let replays = decide(recovered(5, Some(3)), None, 1).unwrap().replays;
        let ranges = replays.into_iter().map(|replay| (replay.id.0, replay.starts, replay.ends));
        let expected = vec![
            (4, vec![offset(30)], vec![offset(40)]),
            (5, vec![offset(40)], vec![offset(50)]),
        ];
        assert_eq!(ranges.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_first_micro_batch_runs_again_from_the_initial_offset() {
        let replays = decide(recovered(0, None), None, 1).unwrap().replays;
        assert_eq!((replays[0].starts.clone(), replays[0].batch_time_ms), (vec![None], 7));
    }

    #[test]
    fn what_the_sink_has_published_is_not_run_again() {
        let resume = decide(recovered(5, Some(3)), Some(BatchId(4)), 1).unwrap();
        assert_eq!(resume.commit_only, vec![BatchId(4)]);
        assert_eq!(resume.replays.len(), 1);
        assert_eq!(resume.replays[0].starts, vec![offset(40)]);
        let behind = decide(recovered(5, Some(3)), Some(BatchId(3)), 1).unwrap();
        assert_eq!(behind.replays.len(), 2);
    }

    #[test]
    fn another_number_of_sources_is_refused() {
        let refused = decide(recovered(0, None), None, 2).unwrap_err();
        assert_eq!(refused, ResumeError::SourcesChanged { in_checkpoint: 1, in_query: 2 });
    }
}
