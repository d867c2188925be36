//! The names Spark gives to columns of a result that have no alias.
//!
//! A column keeps its name, with the spelling of the query; a field of a struct has the field's; a
//! cast column the column's; anything else is written out, `(a + 1)` or `upper(a)`.

use datafusion::sql::sqlparser::ast::{
    CastKind, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, SelectItem,
    UnaryOperator, Value,
};

use super::ast::{function_name, generator};
use super::casts::cast_argument;
use super::variables::known::{FUNCTION_PREFIX, SCHEMA};
use super::variant_paths;
use super::window_calls::{path_name, window_name};
use crate::functions::variant_get::GET;
use crate::types::planner::WRITTEN;

/// The name of a SELECT item's column, as Spark has it; none for a wildcard.
pub(crate) fn item_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        SelectItem::UnnamedExpr(expr) => Some(expr_name(expr)),
        _ => None,
    }
}

pub(crate) fn expr_name(expr: &Expr) -> String {
    match cast_by_call(expr) {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::CompoundIdentifier(parts) => {
            parts.last().map(|part| part.value.clone()).unwrap_or_default()
        }
        Expr::Nested(inner) => expr_name(inner),
        // Spark names a cast column after the column.
        Expr::Cast { expr: inner, .. }
            if matches!(**inner, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) =>
        {
            expr_name(inner)
        }
        Expr::JsonAccess { path, .. } => variant_paths::name(path).unwrap_or_else(|| pretty(expr)),
        // So it does with a part of a VARIANT.
        Expr::Cast { expr: inner, .. } if part_name(inner).is_some() => expr_name(inner),
        _ if generator(expr).is_some() => "col".into(),
        other => pretty(other),
    }
}

/// The name of a part of a VARIANT, `v:a.b`.
fn part_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::JsonAccess { path, .. } => variant_paths::name(path),
        _ => None,
    }
}

/// What a call like `int(x)` casts, since Spark leaves such a cast out of names; or `expr`.
fn cast_by_call(expr: &Expr) -> &Expr {
    match expr {
        Expr::Function(function) => cast_argument(function).map_or(expr, cast_by_call),
        _ => expr,
    }
}

/// An expression as Spark writes it in a column's name.
fn pretty(expr: &Expr) -> String {
    let expr = cast_by_call(expr);
    match expr {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::CompoundIdentifier(parts) => {
            parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".")
        }
        Expr::Nested(inner) => pretty(inner),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(content) => content.clone(),
            Value::Boolean(yes) => yes.to_string(),
            other => other.to_string(),
        },
        Expr::BinaryOp { left, op, right } => format!("({} {op} {})", pretty(left), pretty(right)),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => format!("(NOT {})", pretty(expr)),
        Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr } => format!("~{}", pretty(expr)),
        Expr::UnaryOp { op, expr } => format!("({op} {})", pretty(expr)),
        Expr::IsNull(inner) => format!("({} IS NULL)", pretty(inner)),
        Expr::IsNotNull(inner) => format!("({} IS NOT NULL)", pretty(inner)),
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } => {
            format!("CAST({} AS {})", pretty(expr), plain(data_type).trim_matches('`'))
        }
        Expr::JsonAccess { value, path } => {
            let steps = variant_paths::written(path).unwrap_or_else(|| path.to_string());
            let call = format!("{GET}({}, {steps})", pretty(value));
            match part_name(expr) {
                Some(name) => format!("{call} AS {name}"),
                None => call,
            }
        }
        Expr::Collate { expr, collation } => format!("collate({}, {collation})", pretty(expr)),
        Expr::RLike { negated, expr, pattern, .. } => {
            let call = format!("RLIKE({}, {})", pretty(expr), pretty(pattern));
            if *negated { format!("(NOT {call})") } else { call }
        }
        Expr::Struct { values, fields } if fields.is_empty() => {
            let values: Vec<String> = values
                .iter()
                .map(|value| match value {
                    Expr::Named { expr, name } => format!("{} AS {}", pretty(expr), name.value),
                    other => pretty(other),
                })
                .collect();
            format!("struct({})", values.join(", "))
        }
        Expr::Tuple(values) => tuple_name(values),
        Expr::Case { operand, conditions, else_result, .. } => {
            let mut out = String::from("CASE");
            if let Some(operand) = operand {
                out.push_str(&format!(" {}", pretty(operand)));
            }
            for when in conditions {
                let (condition, result) = (pretty(&when.condition), pretty(&when.result));
                out.push_str(&format!(" WHEN {condition} THEN {result}"));
            }
            if let Some(otherwise) = else_result {
                out.push_str(&format!(" ELSE {}", pretty(otherwise)));
            }
            out.push_str(" END");
            out
        }
        Expr::Function(function) => match window_name(expr) {
            Some(window) => window.to_owned(),
            None => pretty_call(function),
        },
        other => path_name(other, pretty).unwrap_or_else(|| plain(other)),
    }
}

/// As it is written, where `12L` is a cast like others.
fn plain(part: &impl std::fmt::Display) -> String {
    part.to_string().replace(&format!("({WRITTEN})"), "")
}

/// `(a, 1)` as Spark names it: `named_struct(a, a, col2, 1)`.
fn tuple_name(values: &[Expr]) -> String {
    let fields = values.iter().enumerate().map(|(at, value)| {
        let name = match value {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => expr_name(value),
            _ => format!("col{}", at + 1),
        };
        format!("{name}, {}", pretty(value))
    });
    format!("named_struct({})", fields.collect::<Vec<_>>().join(", "))
}

fn pretty_call(function: &Function) -> String {
    let name = function_name(function);
    // Spark shows this default.
    let default = if name == "current_time" { "6" } else { "" };
    let FunctionArguments::List(list) = &function.args else {
        return format!("{name}({default})");
    };
    if function.over.is_some() {
        return plain(function);
    }
    let args = list.args.iter().enumerate().map(|(at, arg)| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) if is_key(&name, at, expr) => {
            "***".into()
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => pretty(expr),
        FunctionArg::Unnamed(FunctionArgExpr::Wildcard) if name == "count" => "1".into(),
        other => plain(other),
    });
    let args = args.collect::<Vec<_>>().join(", ");
    let args = if args.is_empty() { default.to_owned() } else { args };
    if name.starts_with(FUNCTION_PREFIX) {
        // The value of a marker is a literal in Spark.
        if !args.starts_with(SCHEMA) {
            return args;
        }
        return format!("variablereference({args})");
    }
    let distinct = if list.duplicate_treatment.is_some() { "DISTINCT " } else { "" };
    let filter = function.filter.as_ref();
    let filter = filter.map(|condition| format!(" FILTER (WHERE {})", pretty(condition)));
    format!("{name}({distinct}{args}){}", filter.unwrap_or_default())
}

/// Whether an argument is the key of a cipher, written out. Names of columns come into schemas and
/// messages; Spark has it in them.
fn is_key(function: &str, at: usize, arg: &Expr) -> bool {
    let is_column = matches!(arg, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    at == 1 && !is_column && matches!(function, "aes_encrypt" | "aes_decrypt" | "try_aes_decrypt")
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::DatabricksDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn name(sql: &str) -> String {
        let parser = Parser::new(&DatabricksDialect {}).try_with_sql(sql);
        let expr = parser.and_then(|mut parser| parser.parse_expr());
        expr_name(&expr.expect("it is an expression"))
    }

    #[test]
    fn names_have_no_keys() {
        assert_eq!(name("AES_ENCRYPT(x, 'the key', 'ECB')"), "aes_encrypt(x, ***, ECB)");
        assert_eq!(name("aes_decrypt(x, unhex('00'))"), "aes_decrypt(x, ***)");
        assert_eq!(name("aes_decrypt(x, t.k)"), "aes_decrypt(x, t.k)");
        assert_eq!(name("upper(x)"), "upper(x)");
    }

    #[test]
    fn names_have_the_digits_of_the_time() {
        let names = ["current_time", "CURRENT_TIME()", "current_time(3)", "current_date"].map(name);
        let wanted = ["current_time(6)", "current_time(6)", "current_time(3)", "current_date()"];
        assert_eq!(names, wanted);
    }
}
