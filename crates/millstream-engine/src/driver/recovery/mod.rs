//! What a restart does, decided from the two logs and what the sinks themselves answer.
//!
//! With C the last commit entry, L the last intent, and P the last micro-batch that the sink says
//! it has published, of a query with one sink:
//! - nothing logged and nothing published: a new query, micro-batch 0 comes next;
//! - an intent above C and up to P: only its commit entry is missing;
//! - an intent above C and P: its micro-batch runs again over the same range, with the same number
//!   and batch time;
//! - P above L, from a sink that says how far it came: the logs were behind, as a sink does not
//!   wait for them. They are repaired: each number from L+1 to P gets both entries, all with the
//!   offsets of P. What was published is in them, as the range of the first;
//! - P above L, from a sink that does not say: refused, as the next numbers are taken;
//! - after those, the next number follows, and starts where the last intent ended.
//!
//! P below C is nothing unusual: micro-batches without rows leave no record in a sink, and another
//! program may have run the query for a while. The logs say where it goes on.
//!
//! Each of several sinks has a P of its own, and up to C all of them have everything. Then:
//! - an intent above C runs again for those sinks whose P is below it, and for no other;
//! - if the greatest P is above L, each sink that is not there gets one micro-batch under that
//!   number: from where it stands itself to where the foremost one stands. Only when all have
//!   acknowledged theirs are the logs repaired; a crash before finds the same situation again.
//!
//! A sink stands at its own record where that is above the intent before, else where that intent
//! ended: what came in between had no rows for it. A sink without a record, since it cannot answer
//! or is new, stands at the intent before too.

use millstream_store::error::{Classified, Kind};
use millstream_store::layout::BATCH_ID_MAX;
use millstream_store::log_writer::RETAINED_ENTRIES_MIN;
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::offset_log;
use millstream_store::recovery::Recovered;
use thiserror::Error;

use crate::api::sink::{EndOffsets, Published};

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
    /// Micro-batches that are published and stand in neither log, ascending.
    pub repair: Vec<(BatchId, offset_log::Entry)>,
    /// Micro-batches to run again, ascending; several of one number where sinks stand apart.
    pub replays: Vec<Replay>,
}

/// A micro-batch that was logged and not published, or not by all sinks.
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
    /// The sinks that get it, ascending.
    pub sinks: Vec<usize>,
}

/// Why a checkpoint cannot be continued by this query.
#[derive(Debug, Error, PartialEq)]
pub enum ResumeError {
    /// The query has other sources than the one that wrote the checkpoint.
    #[error(
        "the checkpoint has offsets of {} but the query reads {}: a checkpoint can be continued only with the same sources in the same order; use a new checkpoint",
        counted(*in_checkpoint),
        counted(*in_query)
    )]
    SourcesChanged {
        /// Sources in the last offset log entry.
        in_checkpoint: usize,
        /// Sources of the query.
        in_query: usize,
    },
    /// The sink's record has other sources than the query.
    #[error(
        "the sink's record of micro-batch {batch_id} has offsets of {} but the query reads {}: a query can be continued only with the same sources in the same order; use a new checkpoint",
        counted(*in_record),
        counted(*in_query)
    )]
    RecordOfOthers {
        /// The micro-batch that the sink has published last.
        batch_id: BatchId,
        /// Sources in its record.
        in_record: usize,
        /// Sources of the query.
        in_query: usize,
    },
    /// The sink's record has a number that no query comes to.
    #[error(
        "the sink's record says that micro-batch {batch_id} is published, a number that no query comes to. The record is damaged; delete it (the connector's page says where it is) to continue from the checkpoint, which may publish rows twice"
    )]
    OutOfReach {
        /// The number.
        batch_id: BatchId,
    },
    /// The log and the sink tell different things of one micro-batch.
    #[error(
        "the checkpoint and the sink disagree about micro-batch {batch_id}: entry {batch_id} of the \
         offset log ends at {logged}, but the sink has published it up to {published}. Another \
         program has probably run this checkpoint after a crash. To continue from the sink's record, \
         delete offsets/{batch_id} and the entries above it. To continue from the checkpoint, which \
         may publish rows twice, delete the sink's record (the connector's page says where it is)"
    )]
    Disagreement {
        /// The micro-batch.
        batch_id: BatchId,
        /// Where it ends in the offset log.
        logged: String,
        /// Where it ended when the sink published it.
        published: String,
    },
    /// The sink is ahead of the logs and does not say how far.
    #[error(
        "the sink has published micro-batch {published}, but the checkpoint {known}, and the sink's \
         record does not say which offsets that one ended at. New micro-batches would get numbers that the sink treats as published, and their rows would be lost. Was the checkpoint restored from a copy? Restore the newer one, or write to another place"
    )]
    Ahead {
        /// The micro-batch that the sink has published last.
        published: BatchId,
        /// What the checkpoint has, in words.
        known: String,
    },
    /// Two sinks have published different things under one number.
    #[error(
        "two sinks of the query disagree about micro-batch {batch_id}: one has published it up to \
         {one}, the other up to {other}. Another program has probably written to one of them with \
         a copy of this checkpoint. To continue from the checkpoint, which may publish rows twice, \
         delete both sinks' records (the connectors' pages say where they are)"
    )]
    SinksDisagree {
        /// The micro-batch.
        batch_id: BatchId,
        /// Where one sink says it ended.
        one: String,
        /// Where the other says it did.
        other: String,
    },
}

fn shown(ends: &[Option<SourceOffset>]) -> String {
    let texts = ends.iter().map(|end| end.as_ref().map_or("-", SourceOffset::as_str));
    texts.collect::<Vec<_>>().join(", ")
}

fn counted(sources: usize) -> String {
    if sources == 1 { "1 source".to_owned() } else { format!("{sources} sources") }
}

impl Classified for ResumeError {
    fn kind(&self) -> Kind {
        match self {
            Self::SourcesChanged { .. } | Self::RecordOfOthers { .. } => Kind::Config,
            Self::OutOfReach { .. }
            | Self::Disagreement { .. }
            | Self::SinksDisagree { .. }
            | Self::Ahead { .. } => Kind::Data,
        }
    }
}

/// Decides what a restart does. `published` has each sink's answer, `None` if it has none.
pub fn decide(
    mut recovered: Recovered,
    published: &[Option<Published>],
    sources: usize,
) -> Result<Resume, ResumeError> {
    let mut resume = Resume {
        next_id: BatchId(0),
        positions: vec![None; sources],
        conf: offset_log::default_conf(),
        commit_only: Vec::new(),
        repair: Vec::new(),
        replays: Vec::new(),
    };
    let last_intent = recovered.last_intent.take().map(|(id, last)| {
        (resume.positions, resume.conf) = (last.offsets, last.conf);
        resume.next_id = id.next();
        id
    });
    if last_intent.is_some() && resume.positions.len() != sources {
        let in_checkpoint = resume.positions.len();
        return Err(ResumeError::SourcesChanged { in_checkpoint, in_query: sources });
    }
    let mut numbers = published.iter().flatten().map(|of_sink| of_sink.batch_id);
    if let Some(batch_id) = numbers.find(|id| *id > BATCH_ID_MAX) {
        return Err(ResumeError::OutOfReach { batch_id });
    }
    let foremost = foremost(published);
    for published in published.iter().flatten() {
        check_record(&recovered, published, foremost, sources)?;
    }
    resume.sort_unfinished(recovered, published);
    if let Some((id, end_offsets)) = foremost
        && id >= resume.next_id
    {
        check_agreement(published, id, end_offsets)?;
        resume.catch_up(last_intent, published, id, end_offsets);
        resume.repair(id, end_offsets);
    }
    let mut records = published.iter().flatten().map(|of_sink| of_sink.batch_id);
    match records.find(|id| *id >= resume.next_id) {
        Some(id) => Err(resume.is_behind(id)),
        None => Ok(resume),
    }
}

/// The greatest of the micro-batches that sinks have published and say how far they came with.
fn foremost(published: &[Option<Published>]) -> Option<(BatchId, &EndOffsets)> {
    let records = published.iter().flatten();
    let records =
        records.filter_map(|of_sink| Some((of_sink.batch_id, of_sink.end_offsets.as_ref()?)));
    records.max_by_key(|(id, _)| *id)
}

/// Holds a sink's record against the query and the offset log.
fn check_record(
    recovered: &Recovered,
    published: &Published,
    foremost: Option<(BatchId, &EndOffsets)>,
    sources: usize,
) -> Result<(), ResumeError> {
    let Published { batch_id, end_offsets: Some(EndOffsets { ends, .. }) } = published else {
        return check_logged(recovered, published.batch_id);
    };
    let batch_id = *batch_id;
    if ends.len() != sources {
        let in_record = ends.len();
        return Err(ResumeError::RecordOfOthers { batch_id, in_record, in_query: sources });
    }
    let mut entries = recovered.unfinished.iter();
    let Some(at) = entries.position(|(id, _)| *id == batch_id) else { return Ok(()) };
    let of = |index: usize| recovered.unfinished.get(index).map(|(_, entry)| &entry.offsets);
    let finished = recovered.finished_intent.as_ref().map(|(_, entry)| &entry.offsets);
    let before = at.checked_sub(1).map_or(finished, of);
    // An entry that was repaired from another sink's record says where that one was, as do those
    // beside it. Without repairing, no micro-batch ends where the one before did.
    let ahead = foremost.filter(|(id, _)| *id > batch_id).map(|(_, end_offsets)| &end_offsets.ends);
    let logged = &recovered.unfinished[at].1.offsets;
    let repaired = [before, of(at + 1), ahead].contains(&Some(logged));
    if logged == ends || repaired {
        return Ok(());
    }
    let (logged, published) = (shown(logged), shown(ends));
    Err(ResumeError::Disagreement { batch_id, logged, published })
}

/// Refuses logs in which the entry of `published` is gone, of a sink that does not say where that
/// micro-batch ended: its rows would be in the range of the next one.
fn check_logged(recovered: &Recovered, published: BatchId) -> Result<(), ResumeError> {
    let finished = recovered.finished_intent.as_ref().map(|(id, _)| *id);
    let mut unfinished = recovered.unfinished.iter().map(|(id, _)| *id);
    let is_below_the_last = unfinished.clone().any(|id| id > published);
    if finished >= Some(published) || unfinished.any(|id| id == published) || !is_below_the_last {
        return Ok(());
    }
    Err(ResumeError::Ahead { published, known: "has no entry for it".to_owned() })
}

/// Holds the records of all sinks that published `batch_id` last against each other.
fn check_agreement(
    published: &[Option<Published>],
    batch_id: BatchId,
    foremost: &EndOffsets,
) -> Result<(), ResumeError> {
    let others = published.iter().flatten().filter(|other| other.batch_id == batch_id);
    let mut ends = others.filter_map(|other| other.end_offsets.as_ref()).map(|other| &other.ends);
    match ends.find(|ends| **ends != foremost.ends) {
        None => Ok(()),
        Some(other) => {
            let (one, other) = (shown(&foremost.ends), shown(other));
            Err(ResumeError::SinksDisagree { batch_id, one, other })
        }
    }
}

/// Where a sink stands that has everything up to the intent `before`, which ended at `ends`.
fn stands(
    published: Option<&Published>,
    before: Option<BatchId>,
    ends: &[Option<SourceOffset>],
) -> Vec<Option<SourceOffset>> {
    match published {
        Some(Published { batch_id, end_offsets: Some(end_offsets) })
            if Some(*batch_id) > before =>
        {
            end_offsets.ends.clone()
        }
        _ => ends.to_vec(),
    }
}

impl Resume {
    /// Whether all sinks have everything, and the logs say so.
    pub fn is_finished(&self) -> bool {
        self.commit_only.is_empty() && self.repair.is_empty() && self.replays.is_empty()
    }

    /// Tells intents without commit entry that are published from those to run again, and for
    /// which sinks.
    fn sort_unfinished(&mut self, recovered: Recovered, published: &[Option<Published>]) {
        let (mut before, mut starts) = match recovered.finished_intent {
            Some((id, entry)) => (Some(id), entry.offsets),
            None => (None, vec![None; self.positions.len()]),
        };
        for (id, entry) in recovered.unfinished {
            let lacks = |of_sink: &Option<Published>| {
                of_sink.as_ref().is_none_or(|published| published.batch_id < id)
            };
            if !published.iter().any(lacks) {
                self.commit_only.push(id);
            }
            for (sink, of_sink) in published.iter().enumerate().filter(|(_, sink)| lacks(sink)) {
                let starts = stands(of_sink.as_ref(), before, &starts);
                self.run_again(id, entry.batch_timestamp_ms, starts, &entry.offsets, sink);
            }
            (before, starts) = (Some(id), entry.offsets);
        }
    }

    /// Brings every sink to where the foremost one stands, after the last intent.
    fn catch_up(
        &mut self,
        last_intent: Option<BatchId>,
        published: &[Option<Published>],
        foremost: BatchId,
        end_offsets: &EndOffsets,
    ) {
        for (sink, of_sink) in published.iter().enumerate() {
            if of_sink.as_ref().is_some_and(|published| published.batch_id >= foremost) {
                continue;
            }
            let starts = stands(of_sink.as_ref(), last_intent, &self.positions);
            // A crash while the logs were repaired: it has caught up already.
            if starts != end_offsets.ends {
                self.run_again(
                    foremost,
                    end_offsets.batch_time_ms,
                    starts,
                    &end_offsets.ends,
                    sink,
                );
            }
        }
    }

    /// Sinks that stand at the same place share a replay.
    fn run_again(
        &mut self,
        id: BatchId,
        batch_time_ms: i64,
        starts: Vec<Option<SourceOffset>>,
        ends: &[Option<SourceOffset>],
        sink: usize,
    ) {
        let mut replays = self.replays.iter_mut();
        match replays.find(|replay| replay.id == id && replay.starts == starts) {
            Some(replay) => replay.sinks.push(sink),
            None => {
                let (ends, sinks) = (ends.to_vec(), vec![sink]);
                self.replays.push(Replay { id, starts, ends, batch_time_ms, sinks });
            }
        }
    }

    fn is_behind(&self, published: BatchId) -> ResumeError {
        let known = match self.next_id.0.checked_sub(1) {
            Some(last) => format!("ends with {last}"),
            None => "has none".to_owned(),
        };
        ResumeError::Ahead { published, known }
    }

    /// Makes the entries that are missing up to `published`; only those that a log would keep.
    fn repair(&mut self, published: BatchId, end_offsets: &EndOffsets) {
        let entry = offset_log::Entry {
            batch_watermark_ms: 0,
            batch_timestamp_ms: end_offsets.batch_time_ms,
            conf: self.conf.clone(),
            offsets: end_offsets.ends.clone(),
        };
        let kept = (published.0 + 1).saturating_sub(RETAINED_ENTRIES_MIN);
        let missing = self.next_id.0.max(kept)..=published.0;
        self.repair = missing.map(|id| (BatchId(id), entry.clone())).collect();
        self.next_id = published.next();
        self.positions.clone_from(&end_offsets.ends);
    }
}

#[cfg(test)]
mod tests;
