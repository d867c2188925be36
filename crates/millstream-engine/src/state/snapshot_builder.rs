//! Copies of a query's operators, from which snapshots of the state are made.
//!
//! The state of a running operator cannot be read without taking it away, and copying it would hold
//! up the query. So a snapshot is made from the state log: the snapshot before and the entries
//! since are applied to copies of the operators, on one thread that nobody waits for. It is
//! made in pieces, since all of it may be more than the query may keep in memory.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::common::Result;

use super::codec;
use super::micro_batch::{MicroBatchFacts, Snapshot};

/// The state of one operator, without its output.
pub trait SnapshotBuilder: Send {
    /// Applies the operator's input of a micro-batch, by input.
    fn apply(&mut self, facts: &MicroBatchFacts, inputs: Vec<Vec<RecordBatch>>) -> Result<()>;

    /// A piece of the state, as rows to apply to an operator without state with
    /// [`MicroBatchFacts::from_snapshot`]; `None` after the last. Nothing may be applied after the
    /// first piece is taken.
    fn next_piece(&mut self) -> Result<Option<Snapshot>>;
}

/// One operator's part of a query's replica.
pub struct OperatorReplica {
    /// Without state.
    pub snapshot_builder: Box<dyn SnapshotBuilder>,
    /// By input, the schema of its rows.
    pub schemas: Vec<SchemaRef>,
    /// By how much its input may be behind the query's watermark, microseconds.
    pub delay_us: i64,
}

/// All operators; see the module's head.
pub struct QueryReplica {
    parts: Vec<OperatorReplica>,
    /// The part whose pieces are given now.
    at: usize,
}

impl QueryReplica {
    /// Of operators in the order of the state log's sections.
    pub fn new(parts: Vec<OperatorReplica>) -> Self {
        Self { parts, at: 0 }
    }

    /// Applies an entry of the state log, or a piece of a snapshot.
    pub fn apply(&mut self, facts: &MicroBatchFacts, sections: &[Vec<u8>]) -> Result<()> {
        let mut sections = sections.iter();
        for part in &mut self.parts {
            let rows = sections.by_ref().take(part.schemas.len()).map(|bytes| codec::decode(bytes));
            let mut rows = rows.collect::<std::result::Result<Vec<_>, ArrowError>>()?;
            rows.resize(part.schemas.len(), Vec::new());
            let watermark = facts.watermark.before(part.delay_us);
            let facts = MicroBatchFacts { watermark, ..*facts }.for_state_alone();
            part.snapshot_builder.apply(&facts, rows)?;
        }
        Ok(())
    }

    /// The next piece of all state, as sections of an entry; `None` after the last.
    pub fn next_piece(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        while let Some(part) = self.parts.get_mut(self.at) {
            let Some(rows) = part.snapshot_builder.next_piece()? else {
                self.at += 1;
                continue;
            };
            let sections = part.schemas.iter().zip(&rows);
            let own = sections.map(|(schema, rows)| codec::encode(schema, rows));
            let own = own.collect::<std::result::Result<Vec<_>, ArrowError>>()?;
            let inputs =
                |parts: &[OperatorReplica]| parts.iter().map(|part| part.schemas.len()).sum();
            let mut all = vec![Vec::new(); inputs(&self.parts[..self.at])];
            all.extend(own);
            all.resize(inputs(&self.parts), Vec::new());
            return Ok(Some(all));
        }
        Ok(None)
    }
}
