//! Joins and set operations as DataFusion has them: a join without a condition joins all rows with
//! all, and MINUS is EXCEPT. A join with a name, `(a JOIN b ON ...) AS j`, is a subquery.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, JoinConstraint, JoinOperator, Query, Select, SelectItem, SetExpr, SetOperator,
    TableFactor, TableWithJoins, Value, ValueWithSpan, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::rows::query_of;

/// Gives each join of `query` a condition, or makes it a CROSS JOIN.
pub(crate) fn complete(query: &mut Query) {
    let _: ControlFlow<()> = VisitMut::visit(query, &mut Complete);
}

/// Makes a subquery of each join of `query` that has a name. To DataFusion the second of two
/// columns of one name would have another name there; of a subquery it is known that either could
/// be meant.
pub(super) fn name(query: &mut Query) {
    let _: ControlFlow<()> = VisitMut::visit(query, &mut Name);
}

struct Name;

impl VisitorMut for Name {
    type Break = ();

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
            // Spark takes a condition here, too.
            JoinOperator::CrossJoin(constraint) if *constraint != JoinConstraint::None => {
                *operator = JoinOperator::Inner(constraint.clone());
            }
            operator => {
                if let Some(constraint) = join_constraint!(operator)
                    && *constraint == JoinConstraint::None
                {
                    let value = Value::Boolean(true);
                    let always = Expr::Value(ValueWithSpan { value, span: Span::empty() });
                    *constraint = JoinConstraint::On(always);
                }
            }
        }
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
