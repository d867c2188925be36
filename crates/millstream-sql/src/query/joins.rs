//! Joins and set operations as DataFusion has them: a join without a condition joins all rows with
//! all, SEMI JOIN is LEFT SEMI JOIN, and MINUS is EXCEPT. A join with a name, `(a JOIN b ON ...) AS
//! j`, is a subquery, and `a, b JOIN c` joins `c` with all that stands before it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Join, JoinConstraint, JoinOperator, Query, Select, SelectItem, SetExpr, SetOperator,
    TableFactor, TableWithJoins, Value, ValueWithSpan, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::rows::query_of;
use super::{laterals, using};

/// Gives each join of `query` a condition, or makes it a CROSS JOIN.
pub(crate) fn complete(query: &mut Query) {
    let _: ControlFlow<()> = VisitMut::visit(query, &mut Complete);
}

/// Makes a subquery of each join of `query` that has a name. To DataFusion the second of two
/// columns of one name would have another name there; of a subquery it is known that either could
/// be meant.
///
/// Commas become joins where other joins follow: Spark joins from the left, and DataFusion would
/// join what stands behind a comma first. And the sides of joins that make one column of two get
/// names, by which the columns are told apart.
pub(super) fn name(query: &mut Query) {
    let _: ControlFlow<()> = VisitMut::visit(query, &mut Name);
}

struct Name;

impl VisitorMut for Name {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if laterals::has_lateral(&select.from) || makes_rows(&select.from) {
            return ControlFlow::Continue(());
        }
        let merges = using::merges(&select.from);
        if merges || select.from.iter().skip(1).any(|tables| !tables.joins.is_empty()) {
            into_one_chain(&mut select.from);
        }
        if merges {
            laterals::name_subqueries(select);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin { table_with_joins, alias: Some(alias) } = factor {
            let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
            let subquery = query_of(vec![all], vec![table_with_joins.as_ref().clone()]);
            *factor = TableFactor::Derived {
                lateral: false,
                subquery: Box::new(subquery),
                alias: Some(alias.clone()),
                sample: None,
            };
        }
        ControlFlow::Continue(())
    }
}

/// Whether a relation is a function that may make rows of those before it.
fn makes_rows(from: &[TableWithJoins]) -> bool {
    let is_function = |factor: &TableFactor| {
        matches!(
            factor,
            TableFactor::Function { .. }
                | TableFactor::TableFunction { .. }
                | TableFactor::UNNEST { .. }
        )
    };
    from.iter().any(|tables| {
        is_function(&tables.relation) || tables.joins.iter().any(|join| is_function(&join.relation))
    })
}

/// Joins relations in the order in which they are written.
fn into_one_chain(from: &mut Vec<TableWithJoins>) {
    let mut rest = from.drain(..);
    let Some(mut first) = rest.next() else { return };
    for TableWithJoins { relation, joins } in rest {
        let join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
        first.joins.push(Join { relation, global: false, join_operator });
        first.joins.extend(joins);
    }
    from.push(first);
}

struct Complete;

impl VisitorMut for Complete {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        set_operators(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        select.from.iter_mut().for_each(complete_joins);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            complete_joins(table_with_joins);
        }
        ControlFlow::Continue(())
    }
}

fn complete_joins(tables: &mut TableWithJoins) {
    for join in &mut tables.joins {
        let operator = &mut join.join_operator;
        match operator {
            JoinOperator::Join(JoinConstraint::None)
            | JoinOperator::Inner(JoinConstraint::None) => {
                *operator = JoinOperator::CrossJoin(JoinConstraint::None);
            }
            JoinOperator::Semi(constraint) => {
                *operator = JoinOperator::LeftSemi(always_unless_written(constraint));
            }
            JoinOperator::Anti(constraint) => {
                *operator = JoinOperator::LeftAnti(always_unless_written(constraint));
            }
            // Spark takes a condition here, too.
            JoinOperator::CrossJoin(constraint) if *constraint != JoinConstraint::None => {
                *operator = JoinOperator::Inner(constraint.clone());
            }
            operator => {
                if let Some(constraint) = join_constraint!(operator)
                    && *constraint == JoinConstraint::None
                {
                    *constraint = always_unless_written(constraint);
                }
            }
        }
    }
}

/// The condition of a join that may have none, and then is about all rows.
fn always_unless_written(constraint: &JoinConstraint) -> JoinConstraint {
    match constraint {
        JoinConstraint::None => {
            let (value, span) = (Value::Boolean(true), Span::empty());
            JoinConstraint::On(Expr::Value(ValueWithSpan { value, span }))
        }
        written => written.clone(),
    }
}

fn set_operators(body: &mut SetExpr) {
    if let SetExpr::SetOperation { op, left, right, .. } = body {
        if *op == SetOperator::Minus {
            *op = SetOperator::Except;
        }
        set_operators(left);
        set_operators(right);
    }
}
