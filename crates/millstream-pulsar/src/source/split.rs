//! One partition's part of a micro-batch.

use std::sync::Arc;

use arrow::array::RecordBatch;
use millstream_engine::api::dead_letter::Letter;
use millstream_engine::api::source::{
    Failure, RecordBatches, Records, SourcePartition, Split, Traced,
};

use super::buffer::{Entry, number_of};
use super::rows::{Placed, Rows};
use crate::error::PulsarError;
use crate::protocol::messages::MessageIdData;
use crate::protocol::payload::unpack;

/// Rows of one record batch, about: an entry is not divided.
const RECORD_BATCH_ROWS: usize = 8_192;

/// Entries of one partition, in order, not unpacked yet.
#[derive(Clone)]
pub(super) struct PulsarSplit {
    /// Its full name.
    pub(super) partition: Arc<str>,
    pub(super) entries: Vec<Entry>,
    pub(super) rows: Arc<Rows>,
}

impl PulsarSplit {
    /// Entries that become one record batch, one group after the other.
    fn groups(&self) -> Vec<std::ops::Range<usize>> {
        let (mut groups, mut start, mut rows) = (Vec::new(), 0, 0);
        for (at, entry) in self.entries.iter().enumerate() {
            if rows > 0 && rows + entry.rows() > RECORD_BATCH_ROWS {
                groups.push(start..at);
                (start, rows) = (at, 0);
            }
            rows += entry.rows();
        }
        groups.push(start..self.entries.len());
        groups
    }

    fn messages(&self, group: std::ops::Range<usize>) -> Result<Vec<Placed>, PulsarError> {
        let mut messages = Vec::new();
        for entry in &self.entries[group] {
            let (ledger_id, entry_id) = entry.id;
            let unpacked = unpack(&entry.metadata, entry.payload.clone());
            let unpacked = unpacked.map_err(|error| PulsarError::Entry {
                topic: self.partition.to_string(),
                position: format!("{ledger_id}:{entry_id}"),
                error,
            })?;
            let is_batch = entry.metadata.num_messages_in_batch.is_some();
            let publish_time = entry.metadata.publish_time;
            for (index, message) in unpacked.into_iter().enumerate().skip(entry.skip) {
                let batch_index = is_batch.then(|| i32::try_from(index).unwrap_or(i32::MAX));
                let id = MessageIdData { ledger_id, entry_id, partition: None, batch_index };
                messages.push(Placed { message, id, publish_time });
            }
        }
        Ok(messages)
    }
}

impl Split for PulsarSplit {
    fn rows(&self) -> u64 {
        self.entries.iter().map(|entry| entry.rows() as u64).sum()
    }

    fn partition(&self) -> Option<SourcePartition> {
        Some(number_of(&self.partition))
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let projection = projection.to_vec();
        Box::new(self.groups().into_iter().map(move |group| {
            let messages = self.messages(group)?;
            let (rows, partition) = (&self.rows, &self.partition);
            let read = rows.rows(partition, &messages, &projection, false, &mut |_, _| {})?;
            Ok(read.0)
        }))
    }

    fn read_with_letters(
        self: Box<Self>,
        projection: &[usize],
        letters: &mut Vec<Letter>,
    ) -> Result<Vec<RecordBatch>, Failure> {
        let mut batches = Vec::new();
        for group in self.groups() {
            let messages = self.messages(group)?;
            let mut reject = |row: usize, error: String| {
                letters.push(messages[row].letter(&self.partition, error));
            };
            let read = self.rows.rows(&self.partition, &messages, projection, true, &mut reject)?;
            batches.push(read.0);
        }
        Ok(batches)
    }

    fn records(&self) -> Vec<Arc<dyn Records>> {
        vec![Arc::new(self.clone())]
    }
}

/// The records of a split are numbered from 0.
impl Records for PulsarSplit {
    fn partition(&self) -> Option<SourcePartition> {
        Split::partition(self)
    }

    fn read(&self, projection: &[usize], apart: bool) -> Result<Vec<Traced>, Failure> {
        let malformed = self.rows.malformed();
        let (mut traced, mut first) = (Vec::new(), 0);
        for group in self.groups() {
            let messages = self.messages(group)?;
            let count = messages.len() as u64;
            let (rows, kept) =
                self.rows.rows(&self.partition, &messages, projection, apart, &mut |_, _| {})?;
            let numbers = match kept {
                None => (first..first + count).collect(),
                Some(kept) => {
                    let all = (first..).zip(kept);
                    all.filter(|(_, is_kept)| *is_kept).map(|(number, _)| number).collect()
                }
            };
            traced.push(Traced { rows, numbers });
            first += count;
        }
        self.rows.set_malformed(malformed);
        Ok(traced)
    }

    fn letter(&self, number: u64) -> Result<Letter, Failure> {
        let messages = self.messages(0..self.entries.len())?;
        let found = usize::try_from(number).ok().and_then(|number| messages.get(number));
        let found = found.ok_or(PulsarError::NotOpen)?;
        Ok(found.letter(&self.partition, String::new()))
    }
}
