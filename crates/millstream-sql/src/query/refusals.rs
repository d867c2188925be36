//! Forms of queries that DataFusion takes and gives another meaning than Spark. They are refused,
//! with what to write instead, since an answer that is wrong is worse than none.
//!
//! - EXCEPT ALL and INTERSECT ALL count rows in Spark; DataFusion keeps or drops all equal ones.
//! - The key of a RIGHT or FULL join USING a column, or NATURAL, is that of the side that has it.
//! - Numbers in GROUPING SETS are places in the SELECT list.
//! - Several generators in one SELECT list multiply their rows; a window over them sees those rows.
//! - NOT IN, and IN below anything but AND and OR, is neither true nor false where NULLs are met.
//! - EXISTS counts after OFFSET, and a count over no rows is a row with 0.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, GroupByExpr, GroupByWithModifier, JoinConstraint, JoinOperator,
    LimitClause, Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier, Spanned,
    TableFactor, TableWithJoins, UnaryOperator, Value, ValueWithSpan, Visit, Visitor, WindowType,
};
use datafusion::sql::sqlparser::tokenizer;

use super::ast::{function_name, generator};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::syntax::lexer::Lexed;

/// Refuses what would be answered wrongly.
pub(crate) fn check(lexed: &Lexed, query: &Query) -> Result<(), Diagnostics> {
    let mut check = Check { lexed, found: Diagnostics::default() };
    let _: ControlFlow<()> = query.visit(&mut check);
    check.found.into_result()
}

struct Check<'a> {
    lexed: &'a Lexed,
    found: Diagnostics,
}

impl Visitor for Check<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.set_operations(&query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        select.from.iter().for_each(|tables| self.joins(tables));
        self.groups(&select.group_by);
        self.generators(&select.projection);
        for condition in select.selection.iter().chain(&select.having) {
            self.condition(condition);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Exists { subquery, .. } => self.exists(expr, subquery),
            Expr::InSubquery { subquery, .. } if counts(subquery) => self.refuse(
                expr.span(),
                "a count with a condition in the subquery of IN",
                "join with a subquery that counts BY the columns of the condition",
            ),
            Expr::Function(Function { over: Some(WindowType::WindowSpec(window)), .. })
                if window.window_name.is_some()
                    && !(window.partition_by.is_empty()
                        && window.order_by.is_empty()
                        && window.window_frame.is_none()) =>
            {
                let help = "write the whole window in the OVER clause";
                self.refuse(expr.span(), "a window that continues one with a name", help);
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

    fn set_operations(&mut self, body: &SetExpr) {
        let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return };
        let all = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
        if all && *op != SetOperator::Union {
            self.refuse(
                right.span(),
                &format!("{op} ALL"),
                "number equal rows on both sides, with row_number() OVER (PARTITION BY all columns \
                 ORDER BY one of them), and use it without ALL",
            );
        }
        self.set_operations(left);
        self.set_operations(right);
    }

    fn joins(&mut self, tables: &TableWithJoins) {
        let joins = tables.joins.iter();
        for join in joins.clone() {
            let (JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)) = &join.join_operator
            else {
                continue;
            };
            if matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural) {
                self.refuse(
                    join.relation.span(),
                    "a RIGHT or FULL join with USING or NATURAL",
                    "write ON a.k = b.k, and coalesce(a.k, b.k) for the key",
                );
            }
        }
        let factors = std::iter::once(&tables.relation).chain(joins.map(|join| &join.relation));
        for factor in factors {
            if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
                self.joins(table_with_joins);
            }
        }
    }

    fn groups(&mut self, group_by: &GroupByExpr) {
        let GroupByExpr::Expressions(groups, modifiers) = group_by else { return };
        let is_number = |expr: &&Expr| {
            matches!(expr, Expr::Value(ValueWithSpan { value: Value::Number(..), .. }))
        };
        let modified = modifiers.iter().filter_map(|modifier| match modifier {
            GroupByWithModifier::GroupingSets(sets) => Some(sets),
            _ => None,
        });
        let in_sets = groups.iter().chain(modified).flat_map(sets).flatten();
        // WITH ROLLUP and WITH CUBE make sets of all keys.
        let of_sets = groups.iter().filter(|_| !modifiers.is_empty());
        if let Some(number) = in_sets.chain(of_sets).find(is_number) {
            let what = "a number in GROUPING SETS, ROLLUP or CUBE";
            self.refuse(number.span(), what, "write the expression that it stands for");
        }
    }

    fn generators(&mut self, items: &[SelectItem]) {
        let expr = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr)
            | SelectItem::ExprWithAlias { expr, .. }
            | SelectItem::ExprWithAliases { expr, .. } => Some(expr.clone()),
            _ => None,
        };
        let exprs: Vec<Expr> = items.iter().filter_map(expr).collect();
        let mut generators = exprs.iter().filter(|expr| generator(expr).is_some());
        if generators.next().is_none() {
            return;
        }
        if let Some(second) = generators.next() {
            let help = "write the second one as LATERAL VIEW, or in a query around this one";
            self.refuse(second.span(), "more than one generator in a SELECT list", help);
        }
        let is_windowed =
            |expr: &&Expr| any(expr, |it| matches!(it, Expr::Function(it) if it.over.is_some()));
        if let Some(windowed) = exprs.iter().find(is_windowed) {
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
                        "NOT IN (SELECT ...) below OR, and IN (SELECT ...) below NOT or another \
                         operator than AND and OR,",
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
            self.refuse(expr.span(), "OFFSET in the subquery of EXISTS", help);
        }
        if counts(subquery) {
            let help = "without GROUP BY there is always one row; leave EXISTS out, or add HAVING";
            self.refuse(expr.span(), "a count without GROUP BY in the subquery of EXISTS", help);
        }
    }
}

/// Whether an expression is IN (SELECT ...) alone, negated or not.
fn is_in(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_in(inner),
        other => matches!(other, Expr::InSubquery { .. }),
    }
}

/// The sets of a key of GROUP BY that has some.
fn sets(group: &Expr) -> &[Vec<Expr>] {
    match group {
        Expr::GroupingSets(sets) | Expr::Rollup(sets) | Expr::Cube(sets) => sets,
        _ => &[],
    }
}

/// Whether a part of an expression is as `is` says. The queries in it are looked at by themselves.
fn any(expr: &Expr, is: impl Fn(&Expr) -> bool) -> bool {
    let mut search = Search { is, queries: 0 };
    expr.visit(&mut search).is_break()
}

struct Search<F> {
    is: F,
    /// In how many queries the visit is.
    queries: usize,
}

impl<F: Fn(&Expr) -> bool> Visitor for Search<F> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match self.queries == 0 && (self.is)(expr) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Whether a subquery counts the rows that meet a condition, without GROUP BY: over no rows that is
/// a row of its own.
fn counts(subquery: &Query) -> bool {
    let SetExpr::Select(select) = &*subquery.body else { return false };
    let is_grouped = match &select.group_by {
        GroupByExpr::Expressions(groups, modifiers) => !groups.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let is_count = |expr: &Expr| matches!(expr, Expr::Function(call) if function_name(call) == "count" && call.over.is_none());
    let items = select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    !is_grouped
        && select.selection.is_some()
        && items.chain(&select.having).any(|expr| any(expr, is_count))
}
