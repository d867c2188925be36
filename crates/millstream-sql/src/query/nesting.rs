//! How often planning looks at an expression, which doubles where CASEs are nested: what a query
//! costs is counted with that before anything is planned.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};

/// An expression within others.
#[derive(Clone, Copy)]
pub(super) struct Nested {
    /// How often planning asks for its type, compared with the outermost expression.
    pub(super) times: usize,
    /// It is an argument within a CASE.
    in_call: bool,
    in_case: bool,
}

impl Nested {
    /// DataFusion asks a call for the types of its arguments, and a CASE for its type and, apart
    /// from that, for whether it can be null. So the calls within a CASE are asked twice, and four
    /// times where a call in a CASE has a CASE with a call as its argument. Operators that compute
    /// are calls, too, since they fail where Spark's do.
    pub(super) fn new(outer: Option<&Self>, expr: &Expr) -> Self {
        let outer = outer.copied().unwrap_or(Self { times: 1, in_call: false, in_case: false });
        match expr {
            Expr::Case { .. } => Self {
                times: outer.times.saturating_mul(if outer.in_call { 2 } else { 1 }),
                in_call: false,
                in_case: true,
            },
            Expr::BinaryOp { op, .. } if !computes(op) => outer,
            Expr::UnaryOp { op: UnaryOperator::Not, .. } | Expr::Nested(_) | Expr::Cast { .. } => {
                outer
            }
            _ => Self { in_call: outer.in_case, ..outer },
        }
    }
}

fn computes(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Divide, Minus, Modulo, Multiply, MyIntegerDivide, Plus, StringConcat};
    matches!(op, Plus | Minus | Multiply | Divide | MyIntegerDivide | Modulo | StringConcat)
}
