//! `struct(a, b.c, d + 1, e AS f)`, or `(a, b.c, d + 1)`, as `named_struct` with Spark's field
//! names: a, c, col3 and f.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Spanned};
use datafusion::sql::sqlparser::tokenizer;

use super::ast::{arguments, arguments_mut, call, function_name, quoted_ident, text};
use super::casts::as_int;
use super::frame::{Frame, Relation};
use super::shapes::zipped_name;
use super::star_tokens::ALL_COLUMNS;
use crate::diagnostic::Diagnostic;
use crate::functions::zipped::ZIPPED;
use crate::nearest::suggest;
use crate::syntax::lexer::Lexed;

/// The call for `struct(...)` of `values`, where names mean what `frame` says.
pub(super) fn named_struct(
    lexed: &Lexed,
    frame: Option<&Frame>,
    values: Vec<Expr>,
) -> Result<Expr, Diagnostic> {
    let first = values.first().map_or(tokenizer::Span::empty(), Spanned::span);
    let args = named(frame, values, first).map_err(|message| {
        let diagnostic = Diagnostic::nowhere(message).help("name the columns: struct(a, b)");
        Diagnostic { span: lexed.span(first), ..diagnostic }
    })?;
    Ok(call("named_struct", args, first))
}

/// `(a, b)` where it is a value is `struct(a, b)`. Over a stream it keeps the names that it had.
pub(super) fn of_tuple(
    lexed: &Lexed,
    frame: Option<&Frame>,
    expr: &mut Expr,
    is_batch: bool,
) -> Result<(), Diagnostic> {
    if let (true, Expr::Tuple(values)) = (is_batch, &mut *expr) {
        let values = std::mem::take(values);
        *expr = named_struct(lexed, frame, values)?;
    }
    Ok(())
}

/// Such values among the arguments of a call, as that of a lambda function, and on both sides of
/// `IN`, where the names of fields decide which types go together.
pub(super) fn of_tuples(
    lexed: &Lexed,
    frame: Option<&Frame>,
    expr: &mut Expr,
    is_batch: bool,
) -> Result<(), Diagnostic> {
    match expr {
        Expr::Function(call) => {
            arguments_mut(call).try_for_each(|value| of_tuple(lexed, frame, value, is_batch))
        }
        Expr::Lambda(lambda) => of_tuple(lexed, frame, &mut lambda.body, is_batch),
        Expr::InList { expr, list, .. } => std::iter::once(expr.as_mut())
            .chain(list)
            .try_for_each(|value| of_tuple(lexed, frame, value, is_batch)),
        _ => Ok(()),
    }
}

/// `arrays_zip(a, b.c)` with the names of the fields of its structs: those of columns and fields,
/// and the number of anything else. Over a stream they keep the names that they had.
pub(super) fn of_zipped(expr: &mut Expr, is_batch: bool) {
    let Expr::Function(function) = &*expr else { return };
    if !is_batch || function_name(function) != "arrays_zip" {
        return;
    }
    let span = function.name.span();
    let named = arguments(function).enumerate().flat_map(|(at, array)| {
        let name = zipped_name(at, array);
        [text(name, span), array.clone()]
    });
    let named = named.collect();
    *expr = call(ZIPPED, named, span);
}

/// Names and values in turn.
fn named(
    frame: Option<&Frame>,
    values: Vec<Expr>,
    span: tokenizer::Span,
) -> Result<Vec<Expr>, String> {
    let mut args = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let (name, value) = match value {
            Expr::Named { expr, name } => (name.value, *expr),
            Expr::Identifier(ident) if ident.value == ALL_COLUMNS => {
                args.extend(all_columns(frame, None)?);
                continue;
            }
            Expr::CompoundIdentifier(parts)
                if parts.last().is_some_and(|part| part.value == ALL_COLUMNS) =>
            {
                args.extend(all_columns(frame, Some(&parts[..parts.len() - 1]))?);
                continue;
            }
            Expr::Identifier(ident) => (ident.value.clone(), Expr::Identifier(ident)),
            Expr::CompoundIdentifier(parts) => {
                let name = parts.last().map(|part| part.value.clone()).unwrap_or_default();
                (name, Expr::CompoundIdentifier(parts))
            }
            other => (format!("col{}", index + 1), other),
        };
        args.push(text(name, span));
        args.push(value);
        args.last_mut().into_iter().for_each(as_int);
    }
    Ok(args)
}

/// Names and values for `struct(s.*)` of a column that is a struct.
fn all_fields(frame: &Frame, parts: &[Ident]) -> Option<Vec<Expr>> {
    let DataType::Struct(fields) = frame.resolve(parts)?.data_type? else { return None };
    let span = parts.first()?.span;
    let named = fields.iter().flat_map(|field| {
        let mut path = parts.to_vec();
        path.push(quoted_ident(field.name().clone(), span));
        [text(field.name().clone(), span), Expr::CompoundIdentifier(path)]
    });
    Some(named.collect())
}

/// Names and values for `struct(*)`, `struct(t.*)` and `struct(s.*)`.
fn all_columns(frame: Option<&Frame>, qualifier: Option<&[Ident]>) -> Result<Vec<Expr>, String> {
    let frame = frame.ok_or("`*` has no columns here")?;
    let relations: Vec<&Relation> = match qualifier {
        None => frame.relations.iter().collect(),
        Some(parts) => {
            let name = parts.last().map_or("", |part| part.value.as_str());
            let relation = frame.relation(name);
            if relation.is_none()
                && let Some(fields) = all_fields(frame, parts)
            {
                return Ok(fields);
            }
            let found = relation.ok_or_else(|| {
                let known = frame.relations.iter().filter_map(|known| known.name.as_deref());
                format!("there is no table `{name}` here; {}", suggest(name, "tables", known))
            })?;
            vec![found]
        }
    };
    let mut args = Vec::new();
    for relation in relations.into_iter().filter(|relation| relation.within.is_none()) {
        let columns = relation.columns.as_ref();
        let columns = columns.ok_or("the columns of `*` are not known here")?;
        for column in columns {
            let span = tokenizer::Span::empty();
            let mut path: Vec<Ident> =
                relation.name.iter().map(|name| quoted_ident(name.clone(), span)).collect();
            path.push(quoted_ident(column.name.clone(), span));
            args.push(text(column.name.clone(), span));
            args.push(match path.len() {
                1 => Expr::Identifier(path.remove(0)),
                _ => Expr::CompoundIdentifier(path),
            });
        }
    }
    Ok(args)
}
