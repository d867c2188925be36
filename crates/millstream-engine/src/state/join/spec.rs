//! What a join of two streams consists of.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;

use super::trues;
use crate::state::keyed::as_key;
use crate::state::shard::ShardSpec;

/// Which rows a join gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and rows of the left side without a partner.
    Left,
    /// Pairs, and rows of the right side without a partner.
    Right,
    /// Pairs, and rows of both sides without a partner.
    Full,
    /// Rows of the left side that have a partner.
    LeftSemi,
}

impl JoinKind {
    /// Whether rows of a side, 0 for the left one, are published without a partner.
    pub fn keeps(self, side: usize) -> bool {
        match self {
            Self::Inner | Self::LeftSemi => false,
            Self::Left => side == 0,
            Self::Right => side == 1,
            Self::Full => true,
        }
    }

    /// Whether what is published of a side's row follows from whether it has met a partner.
    pub(super) fn asks_for_marks(self, side: usize) -> bool {
        self.keeps(side) || (self == Self::LeftSemi && side == 0)
    }
}

/// The columns of a side's rows. After the side's own columns come the join keys, the event times
/// where there are any, microseconds since the epoch, and last the mark of rows that have met a
/// partner.
pub struct SideSpec {
    /// The schema of the rows.
    pub input: SchemaRef,
    /// How many columns the side has.
    pub columns: usize,
    /// The columns of the join keys.
    pub keys: Range<usize>,
    /// The column by which rows are late.
    pub late: Option<usize>,
    /// When rows are evicted; `None` for never.
    pub evict: Option<Evict>,
    /// The column that says in a snapshot whether a row has met a partner.
    pub mark: usize,
}

/// Rows are evicted when the watermark plus `offset_us` has reached the time in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evict {
    /// The column.
    pub column: usize,
    /// Microseconds that are added to the watermark.
    pub offset_us: i64,
}

impl Evict {
    /// The time at or before which rows are evicted.
    pub fn bound_us(self, evict_us: i64) -> i64 {
        evict_us.saturating_add(self.offset_us)
    }
}

/// A join of two streams.
pub struct JoinSpec {
    /// Left and right.
    pub sides: [SideSpec; 2],
    /// Which rows it gives.
    pub kind: JoinKind,
    /// The rest of the condition, which is no equality of keys, over the columns of both sides.
    pub residual: Option<Arc<dyn PhysicalExpr>>,
    /// The columns of both sides.
    pub both: SchemaRef,
    /// The columns of the output.
    pub output: SchemaRef,
}

impl JoinSpec {
    /// The columns of both sides, left ones first, from rows that begin with them.
    pub(super) fn joined(&self, rows: [&[ArrayRef]; 2]) -> Result<RecordBatch> {
        let columns = rows.into_iter().zip(&self.sides);
        let columns = columns.flat_map(|(rows, side)| rows[..side.columns].iter().cloned());
        let count = rows[0].first().or(rows[1].first()).map_or(0, |column| column.len());
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let (schema, columns) = (Arc::clone(&self.both), columns.collect());
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    /// Which pairs meet the rest of the condition; `None` for all.
    pub(super) fn meets(&self, joined: &RecordBatch) -> Result<Option<Vec<bool>>> {
        let Some(residual) = &self.residual else { return Ok(None) };
        let meets = residual.evaluate(joined)?.into_array(joined.num_rows())?;
        Ok(Some(trues(&meets)))
    }

    /// The output's columns of joined rows.
    pub(super) fn output_of(&self, joined: &RecordBatch) -> Result<RecordBatch> {
        let columns = joined.columns()[..self.output.fields().len()].to_vec();
        let options = RecordBatchOptions::new().with_row_count(Some(joined.num_rows()));
        let output = Arc::clone(&self.output);
        Ok(RecordBatch::try_new_with_options(output, columns, &options)?)
    }
}

impl ShardSpec for JoinSpec {
    fn name(&self) -> &'static str {
        "symmetricHashJoin"
    }

    fn inputs(&self) -> Vec<SchemaRef> {
        self.sides.iter().map(|side| Arc::clone(&side.input)).collect()
    }

    fn keys(&self, input: usize, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        self.sides[input].key_columns(columns)
    }
}

impl SideSpec {
    /// The keys among a side's columns.
    pub(super) fn key_columns(&self, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        columns[self.keys.clone()].iter().map(as_key).collect()
    }

    /// The schema of the keys.
    pub(super) fn key_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.input.fields()[self.keys.clone()].to_vec()))
    }
}
