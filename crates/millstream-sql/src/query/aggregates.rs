//! Calls of Spark's aggregates that are rewritten as other calls.
//!
//! - `count_if(c)` counts where `c` is true; `count(DISTINCT a, b)` counts pairs;
//! - the second argument of `first`, `last` and `any_value` says IGNORE NULLS;
//! - `listagg` needs no delimiter, joins texts, and has its order in WITHIN GROUP;
//! - `approx_count_distinct`, `regr_count` and `grouping_id` give a BIGINT, `grouping` a TINYINT.

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CaseWhen, DuplicateTreatment, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentClause, FunctionArguments, NullTreatment, Spanned, Value,
    ValueWithSpan, helpers::attached_token::AttachedToken,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{arguments, binary, call, cast, function_name, one_part, qualified, text};
use super::frame::{Column, Frame};
use super::star_tokens::ALL_COLUMNS;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// The relative error of the sketch behind `approx_count_distinct`: a smaller one cannot be met.
const RSD_LEAST: f64 = 0.0082;

/// Rewrites a call where it is one of these.
pub(crate) fn rewrite(lexed: &Lexed, expr: &mut Expr) -> Result<(), Diagnostic> {
    let Expr::Function(function) = expr else { return Ok(()) };
    check_stars(lexed, function)?;
    let args: Vec<Expr> = arguments(function).cloned().collect();
    named_for_frames(function);
    match (function_name(function).as_str(), args.as_slice()) {
        ("count", []) if has_no_arguments(function) => {
            let span = lexed.span(function.name.span());
            let diagnostic = Diagnostic::nowhere("`count` takes at least 1 argument");
            return Err(Diagnostic { span, ..diagnostic }.help("write count(*) for all rows"));
        }
        ("count_if", [condition]) => {
            let condition = match is_null(condition) {
                // A CASE takes no condition without a type.
                true => cast(condition.clone(), ast::DataType::Boolean),
                false => condition.clone(),
            };
            rename(function, "count", vec![one_if(condition)]);
        }
        ("count", [_, _, ..]) if is_distinct(function) => {
            set_arguments(function, vec![row_of(args)]);
        }
        ("first" | "first_value" | "last" | "last_value" | "any_value", [value, ignore]) => {
            let Some(ignore_nulls) = boolean(ignore) else {
                let message = "whether nulls are ignored must be true or false";
                return Err(wrong(lexed, ignore, message));
            };
            set_arguments(function, vec![value.clone()]);
            if ignore_nulls {
                function.null_treatment = Some(NullTreatment::IgnoreNulls);
            }
        }
        ("listagg" | "string_agg", [value, delimiter @ ..]) if delimiter.len() < 2 => {
            let none = || text(String::new(), Span::empty());
            let delimiter = delimiter.first().filter(|delimiter| !is_null(delimiter));
            let delimiter = delimiter.cloned().unwrap_or_else(none);
            let value = cast(value.clone(), ast::DataType::String(None));
            rename(function, "string_agg", vec![value, delimiter]);
            order_within(function);
        }
        ("approx_count_distinct", [value, rsd @ ..]) if rsd.len() < 2 => {
            for rsd in rsd {
                check_rsd(lexed, rsd)?;
            }
            rename(function, "approx_distinct", vec![value.clone()]);
            *expr = cast(expr.clone(), ast::DataType::BigInt(None));
        }
        ("grouping", [_]) if !function.name.to_string().starts_with('`') => {
            quote(function);
            *expr = cast(expr.clone(), ast::DataType::TinyInt(None));
        }
        ("grouping_id", [_, ..]) => {
            rename(function, "grouping", args);
            quote(function);
            *expr = cast(expr.clone(), ast::DataType::BigInt(None));
        }
        ("mode", [_, rest @ ..]) => check_mode(lexed, function, rest)?,
        ("regr_count", _) if !function.name.to_string().starts_with('`') => {
            // The quotation marks show that the call has been rewritten already.
            quote(function);
            *expr = cast(expr.clone(), ast::DataType::BigInt(None));
        }
        _ => {}
    }
    Ok(())
}

/// Refuses stars in `count` that are not the one of `count(*)`: DataFusion would count rows.
fn check_stars(lexed: &Lexed, function: &Function) -> Result<(), Diagnostic> {
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    let is_star = |arg: &FunctionArg| {
        let FunctionArg::Unnamed(arg) = arg else { return false };
        match arg {
            FunctionArgExpr::QualifiedWildcard(_) => true,
            FunctionArgExpr::Wildcard => is_distinct(function),
            // That of a SELECT list has become columns.
            FunctionArgExpr::Expr(Expr::Identifier(name)) => name.value == ALL_COLUMNS,
            _ => false,
        }
    };
    if function_name(function) != "count" || !list.args.iter().any(is_star) {
        return Ok(());
    }
    let span = lexed.span(function.name.span());
    let diagnostic = Diagnostic::nowhere("`count` does not take the columns of a star here");
    let help = "write count(*) for all rows, or name the columns: count(DISTINCT a, b)";
    Err(Diagnostic { span, ..diagnostic }.help(help))
}

/// `count(t.*, u.*)` as a count of all these columns: of rows in which none is NULL. That of one
/// table means this where it is `alone` allowed to; else Spark takes it for an oversight.
pub(crate) fn columns_of_tables(frame: &Frame, function: &mut Function, alone: bool) {
    if function_name(function) != "count" {
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else { return };
    if list.args.len() < 2 && !alone {
        return;
    }
    let columns = |arg: &FunctionArg| {
        let FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) = arg else {
            return None;
        };
        let relation = frame.relation(&one_part(name)?)?;
        let (table, columns) = (relation.name.as_ref()?, relation.columns.as_ref()?);
        let column = |column: &Column| {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(qualified(table, &column.name)))
        };
        Some(columns.iter().map(column).collect::<Vec<_>>())
    };
    let args = std::mem::take(&mut list.args).into_iter();
    list.args = args.flat_map(|arg| columns(&arg).unwrap_or_else(|| vec![arg])).collect();
}

fn has_no_arguments(function: &Function) -> bool {
    matches!(&function.args, FunctionArguments::List(list) if list.args.is_empty())
}

/// Over frames DataFusion has `first_value` and `last_value` alone.
fn named_for_frames(function: &mut Function) {
    let name = match function_name(function).as_str() {
        "first" | "any_value" => "first_value",
        "last" => "last_value",
        _ => return,
    };
    if function.over.is_some()
        && let Expr::Function(other) = call(name, Vec::new(), function.name.0[0].span())
    {
        function.name = other.name;
    }
}

fn wrong(lexed: &Lexed, at: &Expr, message: &str) -> Diagnostic {
    Diagnostic { span: lexed.span(at.span()), ..Diagnostic::nowhere(message) }
}

fn is_distinct(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    list.duplicate_treatment == Some(DuplicateTreatment::Distinct)
}

/// Puts other plain arguments in the place of a call's; DISTINCT stays.
fn set_arguments(function: &mut Function, args: Vec<Expr>) {
    let span = function.name.span();
    let Expr::Function(other) = call("", args, span) else { return };
    if let (FunctionArguments::List(list), FunctionArguments::List(other)) =
        (&mut function.args, other.args)
    {
        list.args = other.args;
    }
}

fn rename(function: &mut Function, name: &str, args: Vec<Expr>) {
    if let Expr::Function(other) = call(name, Vec::new(), function.name.0[0].span()) {
        function.name = other.name;
    }
    set_arguments(function, args);
}

fn quote(function: &mut Function) {
    for part in &mut function.name.0 {
        if let ast::ObjectNamePart::Identifier(ident) = part {
            ident.value = ident.value.to_lowercase();
            ident.quote_style = Some('`');
        }
    }
}

/// `CASE WHEN condition THEN 1 END`
fn one_if(condition: Expr) -> Expr {
    let one = Value::Number("1".into(), false);
    let result = Expr::Value(ValueWithSpan { value: one, span: Span::empty() });
    when(condition, result)
}

fn when(condition: Expr, result: Expr) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition, result }],
        else_result: None,
    }
}

/// All values as one, null where any is.
fn row_of(values: Vec<Expr>) -> Expr {
    let there = values.iter().map(|value| Expr::IsNotNull(Box::new(value.clone())));
    let all = there.reduce(|left, right| binary(left, BinaryOperator::And, right));
    let named = values
        .into_iter()
        .enumerate()
        .flat_map(|(at, value)| [text(format!("col{}", at + 1), Span::empty()), value]);
    let row = call("named_struct", named.collect(), Span::empty());
    match all {
        Some(all) => when(all, row),
        None => row,
    }
}

/// `f(...) WITHIN GROUP (ORDER BY x)` as `f(... ORDER BY x)`.
fn order_within(function: &mut Function) {
    let order = std::mem::take(&mut function.within_group);
    if let (FunctionArguments::List(list), false) = (&mut function.args, order.is_empty()) {
        list.clauses.push(FunctionArgumentClause::OrderBy(order));
    }
}

/// `mode(x)` and `mode(x, true)`.
fn check_mode(lexed: &Lexed, function: &Function, rest: &[Expr]) -> Result<(), Diagnostic> {
    if is_distinct(function) {
        let message = "`mode` of DISTINCT values has no meaning: each occurs once";
        let span = lexed.span(function.name.span());
        return Err(Diagnostic { span, ..Diagnostic::nowhere(message) });
    }
    match rest.iter().find(|argument| boolean(argument).is_none()) {
        Some(other) => Err(wrong(lexed, other, "the second argument of `mode` is true or false")),
        None => Ok(()),
    }
}

fn boolean(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Boolean(value), .. }) => Some(*value),
        _ => None,
    }
}

fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_null(inner),
        other => matches!(other, Expr::Value(ValueWithSpan { value: Value::Null, .. })),
    }
}

fn check_rsd(lexed: &Lexed, rsd: &Expr) -> Result<(), Diagnostic> {
    let digits = match rsd {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => Some(digits),
        Expr::Cast { expr, .. } => match expr.as_ref() {
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(digits), .. }) => {
                Some(digits)
            }
            _ => None,
        },
        _ => None,
    };
    match digits.and_then(|digits| digits.parse::<f64>().ok()) {
        None => Err(wrong(lexed, rsd, "the error of an approximation must be a literal")
            .help("write approx_count_distinct(x, 0.05)")),
        Some(rsd_literal) if rsd_literal < RSD_LEAST => {
            let message = format!("the error of an approximation is at least {RSD_LEAST}");
            Err(wrong(lexed, rsd, &message).help("count(DISTINCT x) is exact"))
        }
        Some(_) => Ok(()),
    }
}
