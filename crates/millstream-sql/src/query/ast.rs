//! Parts of sqlparser's tree that are made and looked at in many places.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, SelectItem,
    Spanned, TableAlias, Value, ValueWithSpan, Visit, Visitor,
};
use datafusion::sql::sqlparser::tokenizer;

/// The plain arguments of a call.
pub(crate) fn arguments(function: &Function) -> impl Iterator<Item = &Expr> {
    let args = match &function.args {
        FunctionArguments::List(list) => list.args.as_slice(),
        _ => &[],
    };
    args.iter().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    })
}

/// The plain arguments of a call, to be changed.
pub(crate) fn arguments_mut(function: &mut Function) -> impl Iterator<Item = &mut Expr> {
    let args = match &mut function.args {
        FunctionArguments::List(list) => list.args.as_mut_slice(),
        _ => &mut [],
    };
    args.iter_mut().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    })
}

/// Replaces an expression by the result of `make`.
pub(crate) fn take(expr: &mut Expr, make: impl FnOnce(Expr) -> Expr) {
    let null = Expr::Value(ValueWithSpan { value: Value::Null, span: tokenizer::Span::empty() });
    let before = std::mem::replace(expr, null);
    *expr = make(before);
}

pub(crate) fn function_name(function: &Function) -> String {
    one_part(&function.name).unwrap_or_default().to_lowercase()
}

const GENERATORS: &[&str] = &[
    "explode",
    "explode_outer",
    "posexplode",
    "posexplode_outer",
    "inline",
    "inline_outer",
    "json_tuple",
    "stack",
    "variant_explode",
    "variant_explode_outer",
];

/// The name of a function that makes several rows of one.
pub(crate) fn generator_name(function: &Function) -> Option<String> {
    let name = function_name(function);
    GENERATORS.contains(&name.as_str()).then_some(name)
}

pub(crate) fn generator(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Function(function) => generator_name(function),
        _ => None,
    }
}

/// A call of a function.
pub(crate) fn call(name: &str, args: Vec<Expr>, span: tokenizer::Span) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)));
    let args = FunctionArgumentList {
        duplicate_treatment: None,
        args: args.collect(),
        clauses: Vec::new(),
    };
    let name = Ident { value: name.to_owned(), quote_style: None, span };
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(args),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Calls of a function for each of `fields`, each around that of the field before.
pub(crate) fn nested_calls(name: &str, of: Expr, fields: Vec<Ident>) -> Expr {
    fields.into_iter().fold(of, |of, field| {
        let span = field.span;
        call(name, vec![of, text(field.value, span)], span)
    })
}

/// A value of a type.
pub(crate) fn cast(value: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(value),
        data_type,
        array: false,
        format: None,
    }
}

pub(crate) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// A column with the name of its table.
pub(crate) fn qualified(table: &str, column: &str) -> Expr {
    let ident = |value: &str| quoted_ident(value.to_owned(), tokenizer::Span::empty());
    Expr::CompoundIdentifier(vec![ident(table), ident(column)])
}

/// Gives a call another function.
pub(crate) fn rename(function: &mut Function, name: &str) {
    let name = Ident { value: name.to_owned(), quote_style: None, span: function.name.span() };
    function.name = ObjectName(vec![ObjectNamePart::Identifier(name)]);
}

pub(crate) fn text(content: String, span: tokenizer::Span) -> Expr {
    Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(content), span })
}

pub(crate) fn quoted_ident(value: String, span: tokenizer::Span) -> Ident {
    Ident { value, quote_style: Some('`'), span }
}

pub(crate) fn plain_alias(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: Vec::new(), at: None }
}

pub(crate) fn item_expr(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

pub(crate) fn one_part(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Some(ident.value.clone()),
        _ => None,
    }
}

/// In a visitor that may change what it visits: counts in `queries` in how many it is.
macro_rules! counting_queries {
    () => {
        fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
            self.queries += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
            self.queries -= 1;
            ControlFlow::Continue(())
        }
    };
}
pub(crate) use counting_queries;

/// Whether a part of an expression is as `is` says. The queries in it are looked at by themselves.
pub(crate) fn any(expr: &Expr, is: impl FnMut(&Expr) -> bool) -> bool {
    let mut search = Search { is, queries: 0 };
    expr.visit(&mut search).is_break()
}

struct Search<F> {
    is: F,
    /// In how many queries the visit is.
    queries: usize,
}

impl<F: FnMut(&Expr) -> bool> Visitor for Search<F> {
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
