//! Windows of event time in a plan: from calls in GROUP BY to plain columns.
//!
//! A query block that groups by `window(ts, ...)` or `session_window(ts, ...)`, or selects it, gets
//! the window from a projection below it, as the column `__window` (or `__session_window`).
//! Everything above then only names a column:
//!
//! - windows that do not overlap are a call of `window` in that projection;
//! - windows that overlap are a call of `windows`, the list of them, and an Unnest above it;
//! - sessions are a call of `session_window`. Over a stream there stays one for each row, since
//!   only state can merge sessions across micro-batches; over a batch a window function merges
//!   those that overlap, with the other group expressions as the key.
//!
//! Rows without a window, like those without a time, are filtered out. [`WindowCall`] reads the
//! call back. The blocks keep the names and types of their columns, so nothing above changes.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, internal_err, plan_err};
use datafusion::functions::core::expr_ext::FieldAccessor;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprFunctionExt, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder,
    Projection, Window, lit,
};

use super::zeros;
use crate::functions::sessions::merged_sessions;
use crate::functions::windows::{LIST, SESSION, TIME, WINDOW, function};

/// The column of a window in a lowered plan; without a relation, as Unnest takes that away.
const WINDOW_COLUMN: &str = "__window";
/// The column of a session in a lowered plan.
const SESSION_COLUMN: &str = "__session_window";

/// The kind of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// One window for each row: a call of `window`.
    Tumbling,
    /// Several windows for each row: a call of `windows`, which gives a list.
    Sliding,
    /// From each row to a gap after it: a call of `session_window`.
    Session,
}

/// A call that defines a window, in a lowered plan.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowCall {
    /// What the window is made of.
    pub kind: WindowKind,
    /// The event time: TIMESTAMP or TIMESTAMP_NTZ.
    pub time: Expr,
    /// How long windows are, in microseconds; 0 for sessions.
    pub size_us: i64,
    /// How far the starts of windows are apart, in microseconds; 0 for sessions.
    pub slide_us: i64,
    /// Where windows start after the epoch, in microseconds.
    pub start_us: i64,
    /// The gap of a session: a literal BIGINT of microseconds, an interval, or text of one. For
    /// other windows the literal 0.
    pub gap: Expr,
}

impl WindowCall {
    /// Reads a call of a lowered plan, under an alias or not; none for any other expression.
    pub fn read(expr: &Expr) -> Option<Self> {
        let expr = match expr {
            Expr::Alias(alias) => alias.expr.as_ref(),
            other => other,
        };
        let Expr::ScalarFunction(call) = expr else { return None };
        let kind = match call.name() {
            WINDOW => WindowKind::Tumbling,
            LIST => WindowKind::Sliding,
            SESSION => WindowKind::Session,
            _ => return None,
        };
        let time = call.args.first()?.clone();
        if kind == WindowKind::Session {
            let gap = call.args.get(1)?.clone();
            return Some(Self { kind, time, size_us: 0, slide_us: 0, start_us: 0, gap });
        }
        let size_us = literal_us(call.args.get(1)?)?;
        let slide_us = call.args.get(2).map_or(Some(size_us), literal_us)?;
        let start_us = call.args.get(3).map_or(Some(0), literal_us)?;
        let kind = if size_us == slide_us { kind } else { WindowKind::Sliding };
        Some(Self { kind, time, size_us, slide_us, start_us, gap: lit(0_i64) })
    }

    /// The definition of `column`, a window's, in the plan that `input` begins; none where it is
    /// not defined by a call, as that of a session over a batch.
    pub fn of_column(input: &LogicalPlan, column: &Column) -> Option<Self> {
        match input {
            LogicalPlan::Filter(filter) => Self::of_column(&filter.input, column),
            LogicalPlan::Unnest(unnest) => Self::of_column(&unnest.input, column),
            LogicalPlan::Projection(projection) => {
                let at = projection.schema.maybe_index_of_column(column)?;
                Self::read(&projection.expr[at])
            }
            _ => None,
        }
    }

    /// The window's column.
    fn column(&self) -> Column {
        Column::from_name(match self.kind {
            WindowKind::Session => SESSION_COLUMN,
            WindowKind::Tumbling | WindowKind::Sliding => WINDOW_COLUMN,
        })
    }

    /// The call that defines the column.
    pub fn definition(&self) -> Expr {
        let (name, literals) = match self.kind {
            WindowKind::Tumbling => (WINDOW, vec![self.size_us, self.slide_us, self.start_us]),
            WindowKind::Sliding => (LIST, vec![self.size_us, self.slide_us, self.start_us]),
            WindowKind::Session => (SESSION, vec![]),
        };
        let mut args = vec![self.time.clone()];
        args.extend(literals.into_iter().map(lit));
        if self.kind == WindowKind::Session {
            args.push(self.gap.clone());
        }
        Expr::ScalarFunction(ScalarFunction::new_udf(function(name), args))
    }

    /// Reads a call of the query. Where the query gives a window as the time, its `window_time` is
    /// taken.
    fn of_query(call: &Expr, schema: &DFSchema) -> Result<Self> {
        let Some(mut read) = Self::read(call) else {
            return plan_err!("function 'window' needs literals for its size, slide and start");
        };
        if matches!(read.time.get_type(schema)?, DataType::Struct(_)) {
            let time = ScalarFunction::new_udf(function(TIME), vec![read.time]);
            read.time = Expr::ScalarFunction(time);
        }
        if let Some(us) = literal_us(&read.gap) {
            read.gap = lit(us);
        } else if read.gap.get_type(schema)?.is_integer() {
            return plan_err!(
                "function 'session_window' needs an interval as its gap, such as '5 minutes'"
            );
        }
        Ok(read)
    }
}

/// A constant number, through casts that the analyser put in.
fn literal_us(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(value, _) if value.data_type().is_integer() => {
            match value.cast_to(&DataType::Int64).ok()? {
                ScalarValue::Int64(us) => us,
                _ => None,
            }
        }
        Expr::Cast(Cast { expr, .. }) => literal_us(expr),
        Expr::Negative(inner) => literal_us(inner)?.checked_neg(),
        _ => None,
    }
}

/// Makes columns of the windows of an analysed plan. `is_stream` says of a part of it whether it
/// reads a stream.
///
/// # Errors
/// Two windows in one query block; windows that make several rows of one in a place where no rows
/// can be made; arguments that are no literals.
pub(crate) fn lower(plan: LogicalPlan, is_stream: fn(&LogicalPlan) -> bool) -> Result<LogicalPlan> {
    let lowered = plan.transform_up_with_subqueries(|plan| {
        let Some(call) = only_call(&plan)? else { return Ok(Transformed::no(plan)) };
        match plan {
            LogicalPlan::Aggregate(node) => aggregate(node, &call, is_stream),
            LogicalPlan::Projection(node) => projection(node, &call),
            other => one_row_each(other, &call),
        }
    });
    lowered.map(|plan| plan.data)
}

fn is_window(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if [WINDOW, SESSION].contains(&call.name()))
}

/// The one window that a node calls, however often.
fn only_call(plan: &LogicalPlan) -> Result<Option<Expr>> {
    let mut calls = HashSet::new();
    for expr in plan.expressions() {
        expr.apply(|expr| {
            if is_window(expr) {
                calls.insert(expr.clone());
                return Ok(TreeNodeRecursion::Jump);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    if calls.len() > 1 {
        return plan_err!(
            "function 'window' together with another window of time in one SELECT would multiply \
             rows; put one of them in a subquery"
        );
    }
    Ok(calls.into_iter().next())
}

/// `expr` with the column in the place of the call.
fn replaced(expr: Expr, call: &Expr, column: &Column) -> Result<Expr> {
    let replaced = expr.transform_down(|expr| {
        if expr == *call {
            return Ok(Transformed::new(
                Expr::Column(column.clone()),
                true,
                TreeNodeRecursion::Jump,
            ));
        }
        Ok(Transformed::no(expr))
    });
    replaced.map(|expr| expr.data)
}

/// `input` with the window as one more column, and only rows that have one.
fn with_window(input: Arc<LogicalPlan>, window: &WindowCall) -> Result<LogicalPlan> {
    let mut columns = columns_of(&input);
    columns.push(window.definition().alias(window.column().name));
    if window.kind == WindowKind::Session {
        let sessions = LogicalPlan::Projection(Projection::try_new(columns, input)?);
        let is_there = Expr::Column(window.column()).is_not_null();
        return Ok(LogicalPlan::Filter(Filter::try_new(is_there, Arc::new(sessions))?));
    }
    // On the time rather than the window, so that the filter can be pushed down to the source.
    let timed = Filter::try_new(window.time.clone().is_not_null(), input)?;
    let timed = Arc::new(LogicalPlan::Filter(timed));
    let windows = LogicalPlan::Projection(Projection::try_new(columns, timed)?);
    match window.kind {
        WindowKind::Sliding => {
            LogicalPlanBuilder::from(windows).unnest_column(window.column())?.build()
        }
        _ => Ok(windows),
    }
}

fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

fn aggregate(
    node: Aggregate,
    call: &Expr,
    is_stream: fn(&LogicalPlan) -> bool,
) -> Result<Transformed<LogicalPlan>> {
    let window = WindowCall::of_query(call, node.input.schema())?;
    let column = window.column();
    let merges = window.kind == WindowKind::Session && !is_stream(&node.input);
    let mut input = with_window(node.input, &window)?;
    if merges {
        let keys = node.group_expr.iter().filter(|key| !is_call(key, call)).cloned().collect();
        input = merged(input, &column, keys)?;
    }
    let replace = |exprs: Vec<Expr>| {
        let exprs = exprs.into_iter().map(|expr| replaced(expr, call, &column));
        exprs.collect::<Result<Vec<_>>>()
    };
    let (groups, values) = (replace(node.group_expr)?, replace(node.aggr_expr)?);
    let grouped = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), groups, values)?);
    renamed(grouped, &node.schema).map(Transformed::yes)
}

fn is_call(expr: &Expr, call: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_call(&alias.expr, call),
        other => other == call,
    }
}

/// `input` with overlapping sessions merged, for each value of `keys`.
fn merged(input: LogicalPlan, column: &Column, mut keys: Vec<Expr>) -> Result<LogicalPlan> {
    let mut plain = keys.iter().map(|key| !matches!(key, Expr::GroupingSet(_)));
    if !plain.all(|plain| plain) {
        return plan_err!(
            "function 'session_window' is not allowed in a GROUP BY with ROLLUP, CUBE or sets"
        );
    }
    let session = Expr::Column(column.clone());
    let by_start = session.clone().field("start").sort(true, false);
    let merge = WindowFunction::new(merged_sessions(), vec![session]);
    let mut over = Expr::WindowFunction(Box::new(merge)).order_by(vec![by_start]);
    if !keys.is_empty() {
        // Unlike groups, the partitions of a window tell the two zeros apart.
        zeros::ones(&mut keys, input.schema());
        over = over.partition_by(keys);
    }
    let over = over.build()?;
    let mut columns = columns_of(&input);
    let (relation, name) = over.qualified_name();
    let merged = Expr::Column(Column::new(relation, name));
    let Some(last) = columns.last_mut().filter(|last| **last == Expr::Column(column.clone()))
    else {
        return internal_err!("a session is the last column of its projection");
    };
    *last = merged.alias(SESSION_COLUMN);
    let windowed = LogicalPlan::Window(Window::try_new(vec![over], Arc::new(input))?);
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(windowed))?))
}

/// `plan` with the names that its columns had `before`.
fn renamed(plan: LogicalPlan, before: &DFSchema) -> Result<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().zip(before.iter());
    let columns = columns.map(|(column, (relation, field))| {
        if column.relation.as_ref() == relation && column.name == *field.name() {
            return Expr::Column(column);
        }
        Expr::Column(column).alias_qualified(relation.cloned(), field.name())
    });
    let columns = columns.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}

fn projection(node: Projection, call: &Expr) -> Result<Transformed<LogicalPlan>> {
    let window = WindowCall::of_query(call, node.input.schema())?;
    let names = NamePreserver::new_for_projection();
    let exprs = node.expr.into_iter().map(|expr| {
        let name = names.save(&expr);
        Ok(name.restore(replaced(expr, call, &window.column())?))
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    let input = Arc::new(with_window(node.input, &window)?);
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, input)?)))
}

/// In other nodes a window is an ordinary function, unless it makes several rows of one.
fn one_row_each(plan: LogicalPlan, call: &Expr) -> Result<Transformed<LogicalPlan>> {
    let kind = WindowCall::read(call).map(|window| window.kind);
    if kind != Some(WindowKind::Tumbling) {
        return plan_err!(
            "function 'window' with windows that overlap, and 'session_window', can stand only in \
             GROUP BY and in the SELECT list; select it in a subquery"
        );
    }
    Ok(Transformed::no(plan))
}
