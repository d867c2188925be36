//! Long chains of AND and OR as trees of little depth.
//!
//! `a OR b OR c OR ...` is read as `((a OR b) OR c) OR ...`, as deep as it has operands; each pass
//! over it goes that deep, and those that ask for types look at all that is below at every level.
//! AND and OR mean the same however they are grouped, so long chains are grouped in halves. The
//! order of the operands stays.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

/// Chains up to here stay as they are: what they are called in messages and column names follows
/// from how they are grouped.
const OPERANDS_MAX: usize = 32;

/// Groups the long chains in `query`.
pub(crate) fn balance(query: &mut Query) {
    let _: ControlFlow<()> = VisitMut::visit(query, &mut Balance);
}

struct Balance;

impl VisitorMut for Balance {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(op) = chain(expr).filter(|op| operands(expr, op) > OPERANDS_MAX) {
            let operands = take_apart(expr, &op);
            *expr = put_together(operands, &op);
        }
        ControlFlow::Continue(())
    }
}

/// The operator of a chain.
fn chain(expr: &Expr) -> Option<BinaryOperator> {
    match expr {
        Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => {
            Some(op.clone())
        }
        _ => None,
    }
}

fn operands(mut expr: &Expr, of: &BinaryOperator) -> usize {
    let mut count = 1;
    while let Expr::BinaryOp { left, op, .. } = expr
        && op == of
    {
        count += 1;
        expr = left;
    }
    count
}

/// The operands of a chain in order; a loop, since a chain may be longer than the stack is deep.
fn take_apart(expr: &mut Expr, of: &BinaryOperator) -> Vec<Expr> {
    let null = Expr::Value(ValueWithSpan { value: Value::Null, span: Span::empty() });
    let mut rest = std::mem::replace(expr, null);
    let mut operands = Vec::new();
    loop {
        match rest {
            Expr::BinaryOp { left, op, right } if op == *of => {
                operands.push(*right);
                rest = *left;
            }
            first => {
                operands.push(first);
                operands.reverse();
                return operands;
            }
        }
    }
}

fn put_together(mut operands: Vec<Expr>, op: &BinaryOperator) -> Expr {
    while operands.len() > 1 {
        let mut pairs = Vec::with_capacity(operands.len().div_ceil(2));
        let mut rest = operands.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                None => left,
                Some(right) => {
                    Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) }
                }
            });
        }
        operands = pairs;
    }
    operands.pop().expect("a chain has operands")
}
