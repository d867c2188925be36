//! Forms of queries that DataFusion takes and gives another meaning than Spark. They are refused,
//! with what to write instead, since an answer that is wrong is worse than none.
//!
//! Several generators in one SELECT list multiply their rows; a window over them sees those rows.
//! Over a stream, KLL sketches would be others each time the same rows are read.
//! Others have no answer in Spark: USING and NATURAL beside LATERAL, two ways to order the rows,
//! IGNORE NULLS where a function does not take it, and calls of what is no such function.
//!
//! Subqueries of a query over a stream are left to DataFusion, since the plan's joins for them
//! (`plan::subqueries`) read the rows around a subquery twice:
//!
//! - NOT IN, and IN below anything but AND and OR, is neither true nor false where NULLs are met.
//! - EXISTS counts after OFFSET, and an aggregate over no rows is a row all the same.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, GroupByExpr, JoinConstraint, JoinOperator, LimitClause, NullTreatment,
    Query, Select, SelectItem, SetExpr, Spanned, TableFactor, UnaryOperator, Value, ValueWithSpan,
    Visit, Visitor,
};
use datafusion::sql::sqlparser::tokenizer;

use super::ast::{any, function_name, generator, one_part};
use super::prepared::{ReadMode, TableRead};
use super::routines::built_in;
use super::several_generators;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::syntax::lexer::Lexed;

/// Refuses what would be answered wrongly.
pub(crate) fn check(lexed: &Lexed, query: &Query, reads: &[TableRead]) -> Result<(), Diagnostics> {
    let is_stream = reads.iter().any(|read| read.mode == ReadMode::Stream);
    let mut check = Check { lexed, is_stream, found: Diagnostics::default() };
    let _: ControlFlow<()> = query.visit(&mut check);
    check.found.into_result()
}

/// What the functions are called whose result is another one when rows are read again, as they are
/// after a crash.
const RANDOM_SKETCHES: [&str; 3] = ["kll_sketch_agg_", "kll_merge_agg_", "kll_sketch_merge_"];

/// The functions that take IGNORE NULLS.
const PASS_OVER_NULLS: [&str; 11] = [
    "any_value",
    "array_agg",
    "collect_list",
    "collect_set",
    "first",
    "first_value",
    "lag",
    "last",
    "last_value",
    "lead",
    "nth_value",
];

struct Check<'a> {
    lexed: &'a Lexed,
    is_stream: bool,
    found: Diagnostics,
}

impl Visitor for Check<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.orders(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.generators(select);
        self.lateral_joins(select);
        if self.is_stream {
            for condition in select.selection.iter().chain(&select.having) {
                self.condition(condition);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(args), .. } = factor
            && one_part(name).is_some_and(|name| name.eq_ignore_ascii_case("range"))
            && args.args.iter().any(is_null_argument)
        {
            self.wrong(name.span(), "`range` takes whole numbers, and NULL is none", "");
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) => self.call(function),
            Expr::Exists { subquery, .. } if self.is_stream => self.exists(expr, subquery),
            Expr::InSubquery { subquery, negated, .. }
                if self.is_stream && aggregates(subquery) && (*negated || !is_null(subquery)) =>
            {
                self.refuse(
                    expr.span(),
                    "over a stream an aggregate with a condition in the subquery of IN",
                    "join with a subquery that is grouped by the columns of the condition",
                );
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Check<'_> {
    fn refuse(&mut self, span: tokenizer::Span, what: &str, help: &str) {
        let span = self.lexed.span(span);
        let message = format!("{what} is not supported yet");
        self.found.0.push(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
    }

    fn wrong(&mut self, span: tokenizer::Span, message: &str, help: &str) {
        let span = self.lexed.span(span);
        let diagnostic = Diagnostic::nowhere(message);
        let diagnostic = if help.is_empty() { diagnostic } else { diagnostic.help(help) };
        self.found.0.push(Diagnostic { span, ..diagnostic });
    }

    /// To Spark ORDER BY and CLUSTER BY stand alone; only DISTRIBUTE BY and SORT BY are together.
    fn orders(&mut self, query: &Query) {
        let SetExpr::Select(select) = &*query.body else { return };
        let cluster = select.cluster_by.first();
        let sort = select.sort_by.first().map(|key| &key.expr);
        let others = select.distribute_by.first().or(sort);
        if query.order_by.is_some()
            && let Some(other) = cluster.or(others)
        {
            let message = "ORDER BY stands beside none of SORT BY, DISTRIBUTE BY and CLUSTER BY \
                           (PARSE_SYNTAX_ERROR)";
            self.wrong(other.span(), message, "leave it out: ORDER BY sorts all rows");
        } else if let (Some(cluster), Some(_)) = (cluster, others) {
            let message = "CLUSTER BY stands beside neither SORT BY nor DISTRIBUTE BY \
                           (UNSUPPORTED_FEATURE.COMBINATION_QUERY_RESULT_CLAUSES)";
            self.wrong(cluster.span(), message, "write DISTRIBUTE BY and SORT BY");
        }
    }

    fn lateral_joins(&mut self, select: &Select) {
        for join in select.from.iter().flat_map(|tables| &tables.joins) {
            let is_lateral = matches!(
                join.relation,
                TableFactor::Derived { lateral: true, .. }
                    | TableFactor::Function { lateral: true, .. }
            );
            let constraint = join_constraint!(&join.join_operator);
            let merges =
                matches!(constraint, Some(JoinConstraint::Using(_) | JoinConstraint::Natural));
            if is_lateral && merges {
                let message = "a join with LATERAL takes neither USING nor NATURAL";
                self.wrong(join.relation.span(), message, "write ON, or WHERE in the subquery");
            }
        }
    }

    fn call(&mut self, function: &Function) {
        let name = function_name(function);
        if !function.within_group.is_empty() && built_in::is_no_aggregate(&name) {
            let message = format!("`{name}` takes no WITHIN GROUP, which is for aggregates");
            self.wrong(function.name.span(), &message, "");
        }
        if ignores_nulls(function) && !PASS_OVER_NULLS.contains(&name.as_str()) {
            let message = format!(
                "`{name}` takes no IGNORE NULLS \
                 (INVALID_SQL_SYNTAX.FUNCTION_WITH_UNSUPPORTED_SYNTAX)"
            );
            let help = "leave it out; first, last, any_value, nth_value, lag, lead, collect_list \
                        and collect_set take it";
            self.wrong(function.name.span(), &message, help);
        }
        if self.is_stream && RANDOM_SKETCHES.iter().any(|begin| name.starts_with(begin)) {
            let what = format!("over a stream `{name}`, which keeps some values by chance,");
            let help = "write percentile_approx(x, share), or make the sketch in a batch query";
            self.refuse(function.name.span(), &what, help);
        }
        if name == "range" {
            let message = "`range` makes rows: it stands in FROM";
            self.wrong(function.name.span(), message, "write sequence(0, n - 1) for an array");
        }
    }

    fn generators(&mut self, select: &Select) {
        let exprs = select.projection.iter().filter_map(|item| match item {
            SelectItem::UnnamedExpr(expr)
            | SelectItem::ExprWithAlias { expr, .. }
            | SelectItem::ExprWithAliases { expr, .. } => Some(expr),
            _ => None,
        });
        let exprs: Vec<&Expr> = exprs.collect();
        let mut generators = exprs.iter().filter(|expr| generator(expr).is_some());
        if generators.next().is_none() {
            return;
        }
        if !self.is_stream && several_generators::can_be_views(select) {
            return;
        }
        if let Some(second) = generators.next() {
            let help = "write the second one as LATERAL VIEW, or in a query around this one";
            self.refuse(second.span(), "more than one generator in a SELECT list", help);
        }
        let is_windowed =
            |expr: &&Expr| any(expr, |it| matches!(it, Expr::Function(it) if it.over.is_some()));
        if let Some(windowed) = exprs.into_iter().find(is_windowed) {
            let help = "write the generator in a subquery";
            self.refuse(windowed.span(), "a window function beside a generator", help);
        }
    }

    /// A WHERE or HAVING, whose parts are joined by AND.
    fn condition(&mut self, condition: &Expr) {
        match condition {
            Expr::Nested(inner) => self.condition(inner),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                self.condition(left);
                self.condition(right);
            }
            // These become joins, which know of NULLs.
            other if is_in(other) => {}
            Expr::UnaryOp { op: UnaryOperator::Not, expr } if is_in(expr) => {}
            other => self.within(other),
        }
    }

    /// What is left of a condition: IN below OR is taken for false where it is NULL, which makes no
    /// difference there.
    fn within(&mut self, expr: &Expr) {
        match expr {
            Expr::Nested(inner) => self.within(inner),
            Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
                self.within(left);
                self.within(right);
            }
            Expr::InSubquery { negated: false, .. } => {}
            other => {
                if any(other, |it| matches!(it, Expr::InSubquery { .. })) {
                    self.refuse(
                        other.span(),
                        "over a stream NOT IN (SELECT ...) below OR, and IN (SELECT ...) below NOT \
                         or another operator than AND and OR,",
                        "write NOT EXISTS, or a UNION of two queries",
                    );
                }
            }
        }
    }

    fn exists(&mut self, expr: &Expr, subquery: &Query) {
        let has_offset = match &subquery.limit_clause {
            Some(LimitClause::LimitOffset { offset, .. }) => offset.is_some(),
            Some(LimitClause::OffsetCommaLimit { .. }) => true,
            None => false,
        };
        if has_offset {
            let help = "number the rows in a subquery and compare the number";
            self.refuse(expr.span(), "over a stream OFFSET in the subquery of EXISTS", help);
        }
        if aggregates(subquery) {
            let help =
                "without GROUP BY there is always one row; leave EXISTS out, or add GROUP BY";
            let what = "over a stream an aggregate without GROUP BY in the subquery of EXISTS";
            self.refuse(expr.span(), what, help);
        }
    }
}

/// Whether a call says IGNORE NULLS, behind its arguments or within the parentheses.
fn ignores_nulls(function: &Function) -> bool {
    let within = match &function.args {
        FunctionArguments::List(list) => list.clauses.as_slice(),
        _ => &[],
    };
    let is_said = |clause: &FunctionArgumentClause| {
        matches!(clause, FunctionArgumentClause::IgnoreOrRespectNulls(NullTreatment::IgnoreNulls))
    };
    function.null_treatment == Some(NullTreatment::IgnoreNulls) || within.iter().any(is_said)
}

fn is_null_argument(argument: &FunctionArg) -> bool {
    matches!(
        argument,
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(ValueWithSpan {
            value: Value::Null,
            ..
        })))
    )
}

/// Whether an expression is IN (SELECT ...) alone, negated or not.
fn is_in(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_in(inner),
        other => matches!(other, Expr::InSubquery { .. }),
    }
}

/// Aggregates that are NULL over no rows.
const NULL_OVER_NONE: &[&str] =
    &["any_value", "avg", "first", "last", "max", "max_by", "median", "min", "min_by", "sum"];

/// Whether a subquery that [`aggregates`] is NULL over no rows, which IN does not find.
fn is_null(subquery: &Query) -> bool {
    let SetExpr::Select(select) = &*subquery.body else { return false };
    match (select.projection.as_slice(), &select.having) {
        (
            [
                SelectItem::UnnamedExpr(Expr::Function(call))
                | SelectItem::ExprWithAlias { expr: Expr::Function(call), .. },
            ],
            None,
        ) => NULL_OVER_NONE.contains(&function_name(call).as_str()),
        _ => false,
    }
}

/// Whether a subquery aggregates the rows that meet a condition, without GROUP BY: over no rows
/// there is a row all the same.
fn aggregates(subquery: &Query) -> bool {
    let SetExpr::Select(select) = &*subquery.body else { return false };
    let is_grouped = match &select.group_by {
        GroupByExpr::Expressions(groups, modifiers) => !groups.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let is_aggregate = |expr: &Expr| match expr {
        Expr::Function(call) => call.over.is_none() && built_in::is_aggregate(&function_name(call)),
        _ => false,
    };
    let items = select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    !is_grouped
        && select.selection.is_some()
        && items.chain(&select.having).any(|expr| any(expr, is_aggregate))
}
