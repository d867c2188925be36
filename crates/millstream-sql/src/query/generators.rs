//! Functions that make several rows of one: `explode`, `posexplode`, `inline`, `stack`,
//! `variant_explode`, and their `_outer` forms; and `json_tuple`, which makes several columns.
//!
//! All become DataFusion's `unnest` of an array. Where a generator has several columns the array is
//! one of structs, unnested once, and each column takes its part: `explode(m) AS (k, v)` becomes
//! `part_of(unnest(entries_of(m)), 0) AS k, part_of(unnest(entries_of(m)), 1) AS v`.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, Ident, Select, SelectItem, Spanned, UnaryOperator, Value,
    ValueWithSpan,
};

use super::ast::{arguments, call, function_name, generator_name, quoted_ident, text};
use super::frame::{Column, Frame};
use crate::diagnostic::Diagnostic;
use crate::functions::variants::ENTRIES;
use crate::syntax::lexer::Lexed;
use crate::types::planner::spark_type_of;
use crate::types::{spark_type, variant};

/// What makes the rows, and the columns that they have.
struct Generator<'a> {
    /// The name without `_outer`.
    name: &'a str,
    /// A row without elements stays, with NULLs.
    outer: bool,
    args: Vec<&'a Expr>,
    columns: Vec<Column>,
}

/// Why a generator cannot be used so, and what to do.
type Refused = (String, String);

/// The columns of a generator, named by `names` where there are any.
pub(crate) fn columns(frame: &Frame, expr: &Expr, names: &[Ident]) -> Option<Vec<Column>> {
    let Expr::Function(function) = expr else { return None };
    let name = generator_name(function)?;
    read(frame, &name, function, names).ok().map(|generator| generator.columns)
}

/// Refuses a generator within an expression.
pub(super) fn not_alone(lexed: &Lexed, function: &Function, name: &str) -> Diagnostic {
    let message = format!("`{name}` must be alone in the SELECT list");
    let help = format!("write SELECT {name}(x) in a subquery, or LATERAL VIEW {name}(x) t AS ...");
    let span = lexed.span(function.name.0[0].span());
    Diagnostic { span, ..Diagnostic::nowhere(message).help(help) }
}

/// GROUP BY finds no column of a generator, which has rows only when the groups are made.
pub(crate) fn as_key(lexed: &Lexed, select: &Select, frame: &Frame) -> Option<Diagnostic> {
    let GroupByExpr::Expressions(groups, _) = &select.group_by else { return None };
    if frame.relations.iter().any(|relation| relation.columns.is_none()) {
        return None;
    }
    let generated = select.projection.iter().flat_map(|item| {
        let columns = match item {
            SelectItem::ExprWithAlias { expr, alias } => {
                columns(frame, expr, std::slice::from_ref(alias))
            }
            SelectItem::ExprWithAliases { expr, aliases } => columns(frame, expr, aliases),
            _ => None,
        };
        columns.unwrap_or_default()
    });
    let names: Vec<String> = generated.map(|column| column.name).collect();
    let key = groups.iter().find_map(|group| match group {
        Expr::Identifier(key) => {
            let is_generated = names.iter().any(|name| name.eq_ignore_ascii_case(&key.value));
            (is_generated && frame.resolve(std::slice::from_ref(key)).is_none()).then_some(key)
        }
        _ => None,
    })?;
    let message = format!("GROUP BY finds no column `{}`, which a generator makes", key.value);
    let help = "write the generator in a subquery in FROM";
    Some(Diagnostic { span: lexed.span(key.span), ..Diagnostic::nowhere(message).help(help) })
}

/// The items of a SELECT list that `expr`, a generator, stands for.
pub(crate) fn items(
    lexed: &Lexed,
    frame: &Frame,
    expr: &Expr,
    names: &[Ident],
) -> Result<Vec<SelectItem>, Diagnostic> {
    let span = expr.span();
    let refused = |(message, help): Refused| Diagnostic {
        span: lexed.span(span),
        ..Diagnostic::nowhere(message).help(help)
    };
    let Expr::Function(function) = expr else { return Ok(Vec::new()) };
    let name = function_name(function);
    let generator = read(frame, &name, function, names).map_err(refused)?;
    let unnest = if generator.outer { "unnest_outer" } else { "unnest" };
    let array = array(&generator);
    let value = |at: usize| match &array {
        Some(array) => {
            let row = call(unnest, vec![array.clone()], span);
            call("part_of", vec![row, number(at)], span)
        }
        None => call(unnest, generator.args.iter().map(|&arg| arg.clone()).collect(), span),
    };
    let columns = generator.columns.iter().enumerate();
    Ok(columns
        .map(|(at, column)| SelectItem::ExprWithAlias {
            expr: value(at),
            alias: names
                .get(at)
                .cloned()
                .unwrap_or_else(|| quoted_ident(column.name.clone(), span)),
        })
        .collect())
}

fn number(number: usize) -> Expr {
    let value = Value::Number(number.to_string(), false);
    Expr::Value(ValueWithSpan { value, span: datafusion::sql::sqlparser::tokenizer::Span::empty() })
}

fn read<'a>(
    frame: &Frame,
    name: &'a str,
    function: &'a Function,
    names: &[Ident],
) -> Result<Generator<'a>, Refused> {
    let (name, outer) = match name.strip_suffix("_outer") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let args: Vec<&Expr> = arguments(function).collect();
    let mut columns = match (name, args.as_slice()) {
        ("stack", [rows, values @ ..]) => stacked(frame, rows, values)?,
        ("json_tuple", [_, keys @ ..]) if !keys.is_empty() => {
            let texts = (0..keys.len()).map(|at| format!("c{at}"));
            texts.map(|name| column(&name, Some(DataType::Utf8))).collect()
        }
        ("variant_explode", [_]) => vec![
            column("pos", Some(DataType::Int32)),
            column("key", Some(DataType::Utf8)),
            column("value", Some(variant())),
        ],
        ("stack" | "json_tuple", _) | (_, [] | [_, _, ..]) => {
            let example = match name {
                "stack" => "stack(2, a, b)",
                "json_tuple" => "a text and keys: json_tuple(text, 'a', 'b')",
                _ => "one argument",
            };
            return Err((format!("`{name}` takes {example}"), String::new()));
        }
        (name, [of]) => of_array(name, frame.data_type(of), names)?,
    };
    if !names.is_empty() && names.len() != columns.len() {
        let (given, wanted) = (names.len(), columns.len());
        let listed: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        return Err((
            format!("`{name}` has {wanted} columns here, but there are names for {given}"),
            format!("name all of them: AS ({})", listed.join(", ")),
        ));
    }
    for (column, name) in columns.iter_mut().zip(names) {
        column.name.clone_from(&name.value);
    }
    Ok(Generator { name, outer, args, columns })
}

fn column(name: &str, data_type: Option<DataType>) -> Column {
    Column::new(name.to_owned(), data_type)
}

/// The columns of `explode`, `posexplode` and `inline` of a value of a type, where it is known;
/// else as many as there are names.
fn of_array(
    generator: &str,
    of: Option<DataType>,
    names: &[Ident],
) -> Result<Vec<Column>, Refused> {
    let item = match &of {
        Some(DataType::List(item)) => Some(item.data_type().clone()),
        _ => None,
    };
    if generator == "inline" {
        return match item {
            Some(DataType::Struct(fields)) => {
                let known =
                    |data_type: &DataType| (!data_type.is_null()).then(|| data_type.clone());
                let fields = fields.iter();
                Ok(fields.map(|field| column(field.name(), known(field.data_type()))).collect())
            }
            _ if !names.is_empty() => {
                Ok(names.iter().map(|name| column(&name.value, None)).collect())
            }
            _ => Err((
                "the columns of `inline` cannot be derived from its argument".to_owned(),
                "name them: inline(x) AS (a, b)".to_owned(),
            )),
        };
    }
    if let Some(DataType::Struct(_)) = of {
        let message = format!("`{generator}` takes an ARRAY or a MAP, and this is a STRUCT");
        return Err((message, "write inline(array(s)) for its fields as columns".to_owned()));
    }
    let positions = usize::from(generator == "posexplode");
    let is_map = match &of {
        Some(DataType::Map(..)) => true,
        Some(DataType::List(_)) => false,
        _ => names.len() == positions + 2,
    };
    let mut columns = Vec::new();
    if positions > 0 {
        columns.push(column("pos", Some(DataType::Int32)));
    }
    match (is_map, &of) {
        (false, _) => columns.push(column("col", item.filter(|item| !item.is_null()))),
        (true, Some(DataType::Map(entries, _))) => {
            let DataType::Struct(parts) = entries.data_type() else { return Ok(columns) };
            columns.push(column("key", Some(parts[0].data_type().clone())));
            columns.push(column("value", Some(parts[1].data_type().clone())));
        }
        (true, _) => columns.extend([column("key", None), column("value", None)]),
    }
    Ok(columns)
}

/// More rows than a query has a use for, but few enough to be planned one by one.
const STACK_MAX: usize = 1_000;

fn stacked(frame: &Frame, rows: &Expr, values: &[&Expr]) -> Result<Vec<Column>, Refused> {
    let count = row_count(rows).filter(|_| !values.is_empty()).ok_or_else(|| {
        let message =
            format!("`stack` takes a number of rows up to {STACK_MAX}, a literal, and values");
        (message, "write stack(2, a, b, c, d) for two rows of two columns".to_owned())
    })?;
    let width = values.len().div_ceil(count);
    (0..width).map(|at| stacked_column(frame, at, values, width)).collect()
}

fn row_count(rows: &Expr) -> Option<usize> {
    let Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) = rows else {
        return None;
    };
    digits.parse().ok().filter(|count| (1..=STACK_MAX).contains(count))
}

/// The type of a value, where its text alone tells all of it.
fn written_type(value: &Expr) -> Option<DataType> {
    match value {
        Expr::Value(ValueWithSpan { value, .. }) => match value {
            Value::SingleQuotedString(_) => Some(DataType::Utf8),
            Value::Boolean(_) => Some(DataType::Boolean),
            Value::Number(digits, _) => number_type(digits, false),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
                number_type(digits, true)
            }
            _ => None,
        },
        Expr::Nested(inner) => written_type(inner),
        Expr::Cast { data_type, .. } => spark_type_of(data_type).ok(),
        _ => None,
    }
}

/// The type of a number by its digits, behind a minus if it is `negative`.
fn number_type(digits: &str, negative: bool) -> Option<DataType> {
    if digits.contains(['e', 'E']) {
        return Some(DataType::Float64);
    }
    let Some((whole, fraction)) = digits.split_once('.') else {
        let sign = if negative { "-" } else { "" };
        let number: i64 = format!("{sign}{digits}").parse().ok()?;
        let is_int = i32::try_from(number).is_ok();
        return Some(if is_int { DataType::Int32 } else { DataType::Int64 });
    };
    let precision = (whole.trim_start_matches('0').len() + fraction.len()).max(1);
    let (precision, scale) = (u8::try_from(precision).ok()?, i8::try_from(fraction.len()).ok()?);
    (precision <= 38).then_some(DataType::Decimal128(precision, scale))
}

/// One column of `stack`. Spark converts none of its values.
fn stacked_column(
    frame: &Frame,
    at: usize,
    values: &[&Expr],
    width: usize,
) -> Result<Column, Refused> {
    let own = || values.iter().skip(at).step_by(width);
    let types = own().map(|value| written_type(value).or_else(|| frame.data_type(value)));
    let types: Vec<DataType> = types.flatten().filter(|of| !of.is_null()).collect();
    let written: Vec<DataType> = own().filter_map(|value| written_type(value)).collect();
    let is_text = |data_type: &DataType| *data_type == DataType::Utf8;
    // Of a column it may not be known whether it is an INT or a BIGINT.
    let different = |types: &[DataType], differ: &dyn Fn(&DataType, &DataType) -> bool| {
        let first = types.first()?;
        let other = types.iter().find(|&other| differ(first, other))?;
        Some((spark_type(first), spark_type(other)))
    };
    let found = different(&types, &|first, other| is_text(first) != is_text(other))
        .or_else(|| different(&written, &|first, other| first != other));
    if let Some((first, other)) = found {
        return Err((
            format!("column {} of `stack` has values of {first} and of {other}", at + 1),
            "convert them by CAST to one type".to_owned(),
        ));
    }
    Ok(column(&format!("col{at}"), frame.data_type(values[at]).filter(|of| !of.is_null())))
}

/// The array of structs to unnest; none where the argument is the array to unnest.
fn array(generator: &Generator<'_>) -> Option<Expr> {
    let first = generator.args.first()?;
    let span = first.span();
    let of_first = |name: &str| Some(call(name, vec![(*first).clone()], span));
    match (generator.name, generator.columns.len()) {
        ("explode", 1) => None,
        ("explode", _) => of_first("entries_of"),
        ("posexplode", _) => of_first("positions_of"),
        ("inline", _) => Some((*first).clone()),
        ("variant_explode", _) => of_first(ENTRIES),
        ("json_tuple", _) => {
            let members = generator.args[1..].iter().enumerate().flat_map(|(at, &key)| {
                let member = call("json_member", vec![(*first).clone(), key.clone()], span);
                [text(format!("c{at}"), span), member]
            });
            let row = call("named_struct", members.collect(), span);
            Some(call("array", vec![row], span))
        }
        _ => {
            let width = generator.columns.len();
            let null = Expr::Value(ValueWithSpan { value: Value::Null, span });
            let row = |values: &[&Expr]| {
                let values = (0..width).flat_map(|at| {
                    let value = values.get(at).map_or_else(|| null.clone(), |&value| value.clone());
                    [text(format!("col{at}"), span), value]
                });
                call("named_struct", values.collect(), span)
            };
            let rows = row_count(first).unwrap_or_default();
            let mut values = generator.args[1..].chunks(width);
            // Rows without values are NULLs.
            let rows = (0..rows).map(|_| row(values.next().unwrap_or_default()));
            Some(call("array", rows.collect(), span))
        }
    }
}
