//! Which columns of a plan are event times.
//!
//! A watermark belongs to a column of a stream. Wherever that column is passed on unchanged it is
//! still an event time; a window of it is one by its end, and `window_time` of such a window again.
//! Anything else that is computed from it is an ordinary value, as in Spark.

use std::collections::HashMap;

use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr, LogicalPlan};
use millstream_sql::functions::windows::TIME;
use millstream_sql::plan::windows::{WindowCall, WindowKind};

use super::{OperatorTable, Watermarked};

/// What an event time column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTime {
    /// A timestamp.
    Instant,
    /// A window of this length.
    Window {
        /// Microseconds.
        size_us: i64,
    },
    /// A session, of any length.
    Session,
    /// A session of a time without watermark: its rows become one, and it never ends.
    EndlessSession,
}

impl EventTime {
    /// This event time, if a watermark says when it is over.
    pub fn with_end(self) -> Option<Self> {
        (self != Self::EndlessSession).then_some(self)
    }
}

/// Finds event times; see the module's head.
pub struct Lineage<'a> {
    /// By the name of a stream or a subquery in the plan, its watermark.
    pub streams: &'a HashMap<String, Watermarked>,
    /// By the name of an operator in the plan, what is known of its rows.
    pub operators: &'a HashMap<String, OperatorTable>,
}

impl Lineage<'_> {
    /// The event time that `expr` over the rows of `input` is, if a watermark says when it is over;
    /// `None` for an ordinary value.
    pub fn of(&self, input: &LogicalPlan, expr: &Expr) -> Option<EventTime> {
        self.grouped(input, expr)?.with_end()
    }

    /// As [`Self::of`], for a GROUP BY expression. There a session counts even without a watermark:
    /// its rows are merged in any case.
    pub fn grouped(&self, input: &LogicalPlan, expr: &Expr) -> Option<EventTime> {
        match expr {
            Expr::Column(column) => self.of_column(input, index_of(input.schema(), column)?),
            Expr::Alias(alias) => self.grouped(input, &alias.expr),
            Expr::ScalarFunction(call) if call.name() == TIME => {
                match self.of(input, call.args.first()?)? {
                    EventTime::Window { .. } | EventTime::Session => Some(EventTime::Instant),
                    EventTime::Instant | EventTime::EndlessSession => None,
                }
            }
            Expr::ScalarFunction(_) => {
                let window = WindowCall::read(expr)?;
                let is_instant = self.of(input, &window.time) == Some(EventTime::Instant);
                match window.kind {
                    WindowKind::Session if is_instant => Some(EventTime::Session),
                    WindowKind::Session => Some(EventTime::EndlessSession),
                    _ => is_instant.then_some(EventTime::Window { size_us: window.size_us }),
                }
            }
            _ => None,
        }
    }

    fn of_column(&self, plan: &LogicalPlan, index: usize) -> Option<EventTime> {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let name = scan.table_name.table();
                if let Some(operator) = self.operators.get(name) {
                    let index = scan.projection.as_ref().map_or(index, |columns| columns[index]);
                    return operator.times.get(index).copied().flatten();
                }
                let time = &self.streams.get(name)?.column;
                let (_, field) = plan.schema().qualified_field(index);
                field.name().eq_ignore_ascii_case(time).then_some(EventTime::Instant)
            }
            LogicalPlan::Projection(projection) => {
                self.grouped(&projection.input, projection.expr.get(index)?)
            }
            LogicalPlan::Unnest(unnest) => {
                self.of_column(&unnest.input, *unnest.dependency_indices.get(index)?)
            }
            LogicalPlan::Join(join) => {
                let left = join.left.schema().fields().len();
                match index.checked_sub(left) {
                    None => self.of_column(&join.left, index),
                    Some(index) => self.of_column(&join.right, index),
                }
            }
            LogicalPlan::Union(union) => {
                let mut all = union.inputs.iter().map(|input| self.of_column(input, index));
                let first = all.next()??;
                all.all(|other| other == Some(first)).then_some(first)
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let watermark = self.streams.get(alias.alias.table());
                let (_, field) = plan.schema().qualified_field(index);
                match watermark.filter(|time| field.name().eq_ignore_ascii_case(&time.column)) {
                    Some(_) => Some(EventTime::Instant),
                    None => self.of_column(&alias.input, index),
                }
            }
            LogicalPlan::Filter(filter) => self.of_column(&filter.input, index),
            _ => None,
        }
    }
}

fn index_of(schema: &DFSchema, column: &Column) -> Option<usize> {
    schema.maybe_index_of_column(column)
}
