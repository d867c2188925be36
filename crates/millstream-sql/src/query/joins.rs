//! Joins and set operations as DataFusion has them: a join without a condition joins all rows with
//! all, and MINUS is EXCEPT.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, JoinConstraint, JoinOperator, Query, Select, SetExpr, SetOperator, TableFactor,
    TableWithJoins, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

/// Gives each join of `query` a condition, or makes it a CROSS JOIN.
pub(crate) fn complete(query: &mut Query) {
    let _: ControlFlow<()> = VisitMut::visit(query, &mut Complete);
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
