//! Where a name stands in an expression, and what takes the place of one.

use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, Expr, Ident, UnaryOperator, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::tokenizer;

use super::ast::{cast, function_name, take};
use super::casts::as_int;
use super::routines::built_in;
use super::units;

/// Where the visit of an expression is.
#[derive(Default)]
pub(super) struct Place {
    /// The parameters of the functions `x -> ...` around it, in lower case.
    functions: Vec<Vec<String>>,
    /// By call around it, whether that makes one value of several rows.
    calls: Vec<bool>,
    /// How many queries are around it.
    queries: usize,
    /// Words that are no columns: fields and units of time.
    words: Vec<tokenizer::Span>,
}

impl Place {
    pub(super) fn enter_query(&mut self) {
        self.queries += 1;
    }

    pub(super) fn leave_query(&mut self) {
        self.queries -= 1;
    }

    pub(super) fn enter(&mut self, expr: &Expr) {
        match expr {
            Expr::Lambda(lambda) => {
                let parameters = lambda.params.iter();
                let names = parameters.map(|parameter| parameter.name.value.to_lowercase());
                self.functions.push(names.collect());
            }
            Expr::Function(function) => {
                let is_aggregate = built_in::is_aggregate(&function_name(function));
                self.calls.push(function.over.is_some() || is_aggregate);
                self.words.extend(units::unit(function).map(|unit| unit.span));
            }
            Expr::CompoundFieldAccess { access_chain, .. } => {
                self.words.extend(access_chain.iter().filter_map(|access| match access {
                    AccessExpr::Dot(Expr::Identifier(field)) => Some(field.span),
                    _ => None,
                }));
            }
            _ => {}
        }
    }

    pub(super) fn leave(&mut self, expr: &Expr) {
        match expr {
            Expr::Lambda(_) => {
                self.functions.pop();
            }
            Expr::Function(_) => {
                self.calls.pop();
            }
            _ => {}
        }
    }

    /// Whether a name here can be a column of the SELECT that the expression is in.
    pub(super) fn is_of_select(&self, name: &Ident) -> bool {
        let lower = name.value.to_lowercase();
        self.queries == 0
            && !self.words.contains(&name.span)
            && !self.functions.iter().flatten().any(|parameter| *parameter == lower)
    }

    /// Whether an aggregate or a call over a window is around.
    pub(super) fn is_over_rows(&self) -> bool {
        self.calls.contains(&true)
    }

    /// Whether a function `x -> ...` is around.
    pub(super) fn is_in_function(&self) -> bool {
        !self.functions.is_empty()
    }
}

/// A name of one or more parts.
pub(super) fn parts_of(expr: &Expr) -> Option<&[Ident]> {
    match expr {
        Expr::Identifier(name) => Some(std::slice::from_ref(name)),
        Expr::CompoundIdentifier(parts) if !parts.is_empty() => Some(parts.as_slice()),
        _ => None,
    }
}

/// What takes the place of the name of a column: its value, and fields of that.
pub(super) fn path(value: Expr, fields: &[Ident]) -> Expr {
    let value = enclosed(typed(value));
    if fields.is_empty() {
        return value;
    }
    let fields = fields.iter().map(|field| AccessExpr::Dot(Expr::Identifier(field.clone())));
    Expr::CompoundFieldAccess { root: Box::new(value), access_chain: fields.collect() }
}

/// A number with its type: the column that a literal makes is one of its type, and no literal.
pub(super) fn typed(mut value: Expr) -> Expr {
    as_int(&mut value);
    let digits = match &value {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => expr.as_ref(),
        other => other,
    };
    if let Expr::Value(ValueWithSpan { value: Value::Number(digits, false), .. }) = digits
        && digits.parse::<i64>().is_ok()
    {
        take(&mut value, |number| cast(number, ast::DataType::BigInt(None)));
    }
    value
}

/// An expression in parentheses where it has operators.
fn enclosed(value: Expr) -> Expr {
    match value {
        Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::CompoundFieldAccess { .. }
        | Expr::Function(_)
        | Expr::Value(_)
        | Expr::Cast { .. }
        | Expr::Struct { .. }
        | Expr::Nested(_) => value,
        other => Expr::Nested(Box::new(other)),
    }
}
