//! Finding the row of tables at rest with which a query fails.
//!
//! As over a stream, the error of an expression does not name the row. So when a query over
//! tables at rest fails, their records are read once more, and it runs over one piece of a table
//! after the other. The piece with which it fails is halved until a single row is left. A failure
//! that needs many rows, like a sum that overflows, has no such row.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, collect_partitioned};
use futures::StreamExt;
use millstream_sql::json;
use millstream_sql::plan::optimize;

use super::failing_expression::culprit_in;
use super::places::SqlText;
use super::row_error::{Culprit, InSql, Remedy, RowError};
use super::scanned_table::{Original, ScannedTable, TracedRows};
use crate::api::source::Failure;
use crate::failures::ComputeError;

/// About how many bytes of a table's rows are in memory at once.
const PIECE_BYTES: usize = 32 << 20;

/// The error that names the record of `tables` with which the query of `logical` fails and the part
/// that fails, where `failure` is that of an expression. The tables do not hold all of their rows
/// afterwards.
pub async fn explain(
    failure: Failure,
    (state, logical): (&SessionState, &LogicalPlan),
    tables: &[Arc<ScannedTable>],
    sql: &SqlText,
) -> Failure {
    let Some(computed) = failure.cause().downcast_ref::<ComputeError>() else { return failure };
    let Ok(logical) = optimize::optimize(state, logical) else { return failure };
    let query = Query { state, logical };
    let mut rows = Vec::new();
    for table in tables {
        if let Some(row) = query.narrow(table).await {
            rows.push((table, row));
        }
    }
    let culprit = query.culprit().await;
    if rows.is_empty() && culprit.is_none() {
        return failure;
    }
    // Of several tables the one that most of the expression's names belong to.
    let leaves = |table: &ScannedTable| {
        let leaves = culprit.iter().flat_map(|culprit| &culprit.leaves);
        leaves.filter(|leaf| table.has_column(leaf)).count()
    };
    let most = rows.iter().rev().max_by_key(|(table, _)| leaves(table));
    let place = most
        .and_then(|(_, row)| row.of.as_ref())
        .and_then(|(records, numbers)| records.letter(*numbers.first()?).ok()?.place);
    let row = most.filter(|_| place.is_none()).and_then(|(_, row)| json::row(&row.rows, 0).ok());
    RowError {
        problem: computed.problem.clone(),
        place,
        row,
        in_sql: culprit.as_ref().map(|culprit| {
            let text = || InSql { at: None, text: culprit.text.clone() };
            sql.place_of(culprit).unwrap_or_else(text)
        }),
        values: culprit.map(|culprit| culprit.values).unwrap_or_default(),
        remedy: Remedy::OfTablesAtRest,
    }
    .into()
}

/// A query over what its tables hold at the moment.
struct Query<'a> {
    state: &'a SessionState,
    logical: LogicalPlan,
}

impl Query<'_> {
    /// A new plan for each run, since a plan keeps the rows that it was made for.
    async fn physical(&self) -> Result<Arc<dyn ExecutionPlan>> {
        self.state.query_planner().create_physical_plan(&self.logical, self.state).await
    }

    async fn run(&self) -> Result<Vec<Vec<RecordBatch>>> {
        collect_partitioned(self.physical().await?, self.state.task_ctx()).await
    }

    /// Whether an expression fails.
    async fn fails(&self) -> bool {
        let ran = self.run().await;
        ran.is_err_and(|error| ComputeError::of(&error).is_some())
    }

    /// Leaves `table` one row with which the query fails. `None`, and all rows, where there is no
    /// such row.
    async fn narrow(&self, table: &ScannedTable) -> Option<TracedRows> {
        let original = table.original()?;
        let found = self.narrow_from(table, &original).await;
        if found.is_none() {
            table.restore(&original);
        }
        found
    }

    async fn narrow_from(&self, table: &ScannedTable, original: &Original) -> Option<TracedRows> {
        table.hold(Vec::new());
        if self.fails().await {
            return None;
        }
        let (mut piece, mut bytes) = (Vec::new(), 0);
        let mut traced = original.traced().await.ok()?;
        while let Some(rows) = traced.next().await {
            let rows = rows.ok()?;
            bytes += rows.iter().map(|of| of.rows.get_array_memory_size()).sum::<usize>();
            piece.extend(rows);
            if bytes >= PIECE_BYTES {
                bytes = 0;
                if let Some(row) = self.narrow_piece(table, mem::take(&mut piece)).await {
                    return Some(row);
                }
            }
        }
        self.narrow_piece(table, piece).await
    }

    /// Leaves `table` one row of `all` with which the query fails, if there is one.
    async fn narrow_piece(&self, table: &ScannedTable, all: Vec<TracedRows>) -> Option<TracedRows> {
        let of = |(at, of): (usize, &TracedRows)| (0..of.rows.num_rows()).map(move |row| (at, row));
        let rows: Vec<(usize, usize)> = all.iter().enumerate().flat_map(of).collect();
        let hold = |range: Range<usize>| {
            let pieces = rows[range].chunk_by(|one, next| *next == (one.0, one.1 + 1));
            let piece = |piece: &[(usize, usize)]| {
                let (at, first) = piece[0];
                all[at].rows.slice(first, piece.len())
            };
            table.hold(pieces.map(piece).collect());
        };
        hold(0..rows.len());
        if rows.is_empty() || !self.fails().await {
            return None;
        }
        let mut range = 0..rows.len();
        while range.len() > 1 {
            let middle = range.start + range.len() / 2;
            let mut found = None;
            for half in [range.start..middle, middle..range.end] {
                hold(half.clone());
                if self.fails().await {
                    found = Some(half);
                    break;
                }
            }
            range = found?;
        }
        let (at, row) = rows[range.start];
        let TracedRows { rows, of } = &all[at];
        let of = of.as_ref().map(|(records, numbers)| (Arc::clone(records), vec![numbers[row]]));
        Some(TracedRows { rows: rows.slice(row, 1), of })
    }

    async fn culprit(&self) -> Option<Culprit> {
        let physical = self.physical().await.ok()?;
        culprit_in(&physical, &self.state.task_ctx(), || {}).await
    }
}
