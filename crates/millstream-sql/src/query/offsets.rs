//! `lag(x, 1, y)` and `lead(x, 1, y)` where `y` is no constant, which DataFusion asks for.
//!
//! Whether there is such a row says `lag(TRUE, 1, FALSE)`, so that the call becomes a CASE: `CASE
//! WHEN lag(TRUE, 1, FALSE) OVER w THEN lag(x, 1) OVER w ELSE y END`.

use datafusion::sql::sqlparser::ast::{
    CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Spanned, Value,
    ValueWithSpan, helpers::attached_token::AttachedToken,
};

use super::ast::{any, arguments, function_name};

/// The expression for such a call; `None` for others, and for those that pass over NULLs.
pub(super) fn with_default_of_row(expr: &Expr) -> Option<Expr> {
    let Expr::Function(function) = expr else { return None };
    let is_meant = matches!(function_name(function).as_str(), "lag" | "lead")
        && function.over.is_some()
        && function.null_treatment.is_none();
    let args: Vec<&Expr> = arguments(function).collect();
    let [value, offset, default] = args.as_slice() else { return None };
    let is_column = |part: &Expr| matches!(part, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    if !is_meant || has_clauses(function) || !any(default, is_column) {
        return None;
    }
    let span = function.name.span();
    let truth = |value: bool| Expr::Value(ValueWithSpan { value: Value::Boolean(value), span });
    let is_there = with_arguments(function, vec![truth(true), (*offset).clone(), truth(false)]);
    let there = with_arguments(function, vec![(*value).clone(), (*offset).clone()]);
    Some(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: is_there, result: there }],
        else_result: Some(Box::new((*default).clone())),
    })
}

fn has_clauses(function: &Function) -> bool {
    matches!(&function.args, FunctionArguments::List(list) if !list.clauses.is_empty())
}

fn with_arguments(function: &Function, args: Vec<Expr>) -> Expr {
    let mut function = function.clone();
    if let FunctionArguments::List(list) = &mut function.args {
        let args = args.into_iter().map(FunctionArgExpr::Expr);
        list.args = args.map(FunctionArg::Unnamed).collect();
    }
    Expr::Function(function)
}
