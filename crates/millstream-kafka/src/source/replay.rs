//! Reading a range again, for recovery: the same rows under the same offsets.
//!
//! A consumer of its own reads each partition from its start up to its end exactly. The range is
//! complete when every partition has come to its end, by a record at or past it or by the end of
//! the partition: the last offsets of a range may be transaction markers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millstream_store::env::Env;

use super::chunk::Chunk;
use super::read_ahead::{Arrival, cut};
use super::reader::{Inbox, Verdict};
use crate::client::cluster::{Cluster, serve_events};
use crate::client::native::MessageQueue;
use crate::client::subscription::Subscription;
use crate::error::{DataLoss, SourceError};
use crate::offsets::{EARLIEST, PartitionId, PerPartition};

/// How long nothing may come before the replay gives up.
const STALLED: Duration = Duration::from_secs(60);
/// The longest wait for a message.
const WAIT: Duration = Duration::from_millis(100);

/// What to read again.
pub struct Range {
    /// Where each partition starts; a partition that only `end` has starts at the earliest offset.
    pub start: PerPartition,
    /// Where each partition ends, exclusive.
    pub end: PerPartition,
    /// Whether missing records are an error.
    pub fail_on_data_loss: bool,
    /// Whether headers are kept.
    pub include_headers: bool,
}

struct Progress {
    read: i64,
    end: i64,
    chunks: Vec<Chunk>,
}

/// Reads `range` through `queue`. Blocks.
/// Errors: `Data` if records are gone; `Retry` if nothing came for a minute.
pub fn replay(
    range: &Range,
    cluster: &Cluster,
    mut queue: MessageQueue,
    env: &Env,
) -> Result<Vec<(PartitionId, Vec<Chunk>)>, SourceError> {
    let mut partitions = prepare(range, cluster)?;
    for (id, progress) in partitions.iter().filter(|(_, progress)| !progress.done()) {
        start(&mut queue, id, progress.read)?;
    }
    let mut inbox = Inbox::new(range.include_headers);
    let mut came_at = env.monotonic();
    while let Some((id, stuck)) = partitions.iter().find(|(_, progress)| !progress.done()) {
        let waited = env.monotonic().saturating_sub(came_at);
        if waited > STALLED {
            let (id, read, end) = (id.clone(), stuck.read, stuck.end);
            return Err(SourceError::ReplayStalled { id, read, end, waited });
        }
        if queue.drain(WAIT, |message| inbox.add(message)) == 0 {
            serve_events(queue.client());
            continue;
        }
        for (id, arrival) in inbox.empty(env.now_us()) {
            came_at = env.monotonic();
            if let Some(progress) = partitions.get_mut(&id) {
                progress.advance(arrival);
            }
        }
        for trouble in std::mem::take(&mut inbox.troubles) {
            match Verdict::of(trouble.code) {
                Verdict::Passing => {}
                Verdict::Hopeless(kind) => {
                    let (id, offset, text) = (trouble.id, trouble.offset, trouble.text);
                    return Err(SourceError::Read { id, offset, text, kind });
                }
                Verdict::OutOfRange => {
                    let id = trouble.id;
                    let loss = DataLoss::out_of_range(queue.client(), id.clone(), trouble.offset);
                    report(loss, range.fail_on_data_loss)?;
                    queue.stop(&id.topic, id.partition);
                    start(&mut queue, &id, EARLIEST)?;
                }
            }
        }
    }
    let chunks = partitions.into_iter().map(|(id, progress)| (id, progress.chunks));
    Ok(chunks.filter(|(_, chunks)| !chunks.is_empty()).collect())
}

/// Where each partition is read from, checked against what there is.
fn prepare(
    range: &Range,
    cluster: &Cluster,
) -> Result<BTreeMap<PartitionId, Progress>, SourceError> {
    let wanted: BTreeSet<PartitionId> = range.end.keys().cloned().collect();
    let subscription = Subscription::Partitions(wanted.clone());
    let found = cluster.partitions(&subscription, crate::client::cluster::QUESTION_PATIENCE)?.found;
    let (earliest, latest) = (cluster.earliest(&found)?, cluster.latest(&found)?);
    let mut partitions = BTreeMap::new();
    for (id, end) in &range.end {
        let start = range.start.get(id).copied();
        let (Some(earliest), Some(latest)) = (earliest.get(id), latest.get(id)) else {
            let position = start.unwrap_or(0);
            report(DataLoss::Gone { id: id.clone(), position }, range.fail_on_data_loss)?;
            continue;
        };
        let mut read = start.unwrap_or(*earliest);
        if read < *earliest && read < *end {
            let (id, position, earliest) = (id.clone(), read, *earliest);
            report(DataLoss::AgedOut { id, position, earliest }, range.fail_on_data_loss)?;
            read = earliest;
        }
        let mut end = *end;
        if end > *latest {
            let (id, position, latest) = (id.clone(), end, *latest);
            report(DataLoss::Shrunk { id, position, latest }, range.fail_on_data_loss)?;
            end = latest;
        }
        // Where a partition was made anew or cut back, a micro-batch goes back without a row of it:
        // what is there is the next one's.
        read = read.min(end);
        partitions.insert(id.clone(), Progress { read, end, chunks: Vec::new() });
    }
    Ok(partitions)
}

/// An error, or a warning, as `failOnDataLoss` says.
pub fn report(loss: DataLoss, fail_on_data_loss: bool) -> Result<(), SourceError> {
    if fail_on_data_loss {
        return Err(SourceError::DataLoss { loss });
    }
    tracing::warn!("{loss}; continuing without the missing records");
    Ok(())
}

fn start(queue: &mut MessageQueue, id: &PartitionId, offset: i64) -> Result<(), SourceError> {
    queue.start(&id.topic, id.partition, offset).map_err(|code| SourceError::Read {
        id: id.clone(),
        offset,
        text: code.to_string(),
        kind: millstream_store::error::Kind::Config,
    })
}

impl Progress {
    fn done(&self) -> bool {
        self.read >= self.end
    }

    fn advance(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::End(offset) => self.read = self.read.max(offset),
            Arrival::Rows(chunk) => {
                self.read = chunk.end_offset();
                self.chunks.extend(cut(chunk, self.end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::chunk::ChunkBuilder;

    fn rows(offsets: std::ops::Range<i64>) -> Arrival {
        let mut builder = ChunkBuilder::new(false);
        offsets.for_each(|offset| builder.push(None, None, offset, 0, 0));
        Arrival::Rows(builder.finish(0))
    }

    #[test]
    fn a_partition_is_read_to_its_end_exactly() {
        let mut progress = Progress { read: 3, end: 7, chunks: Vec::new() };
        progress.advance(rows(3..5));
        assert!(!progress.done());
        progress.advance(rows(5..9));
        assert!(progress.done());
        let offsets: Vec<i64> =
            progress.chunks.iter().flat_map(|chunk| chunk.offset.values().to_vec()).collect();
        assert_eq!(offsets, [3, 4, 5, 6]);
    }

    #[test]
    fn the_end_of_the_partition_counts() {
        let mut progress = Progress { read: 3, end: 7, chunks: Vec::new() };
        progress.advance(rows(3..6));
        progress.advance(Arrival::End(6));
        assert!(!progress.done());
        progress.advance(Arrival::End(7));
        assert!(progress.done());
    }
}
