//! What `* EXCEPT (a, t.b, s.c)` leaves out, where a name has several parts: a column of a table,
//! or a field of a column, which is then made anew without it.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{Expr, Ident, WildcardAdditionalOptions};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{call, quoted_ident, text};
use super::star_tokens::PART;

/// A column that a star stands for.
#[derive(Debug)]
pub(super) struct Found {
    /// Its name.
    pub(super) name: String,
    /// The table that has it, where it is one's.
    pub(super) table: Option<String>,
    /// What it is.
    pub(super) value: Expr,
    /// Its type, where it is known.
    pub(super) data_type: Option<DataType>,
    /// Whether it is no column of its table any more, as it has lost fields.
    pub(super) is_changed: bool,
}

/// The names behind EXCEPT.
pub(super) fn left_out_names(options: &WildcardAdditionalOptions) -> impl Iterator<Item = &Ident> {
    options.opt_except.iter().flat_map(|except| {
        std::iter::once(&except.first_element).chain(&except.additional_elements)
    })
}

/// Whether one of them has several parts.
pub(super) fn names_parts(options: &WildcardAdditionalOptions) -> bool {
    left_out_names(options).any(|name| name.value.contains(PART))
}

/// The fields of each column that are left out, as paths; an empty one is the column itself.
type Paths<'a> = Vec<Vec<Vec<&'a str>>>;

/// The columns without those that are left out.
///
/// # Errors
/// A name is no column or field, or is within another one.
pub(super) fn without(found: Vec<Found>, left_out: &[Ident]) -> Result<Vec<Found>, String> {
    if left_out.is_empty() {
        return Ok(found);
    }
    let mut paths: Paths<'_> = vec![Vec::new(); found.len()];
    for name in left_out {
        let parts: Vec<&str> = name.value.split(PART).collect();
        let (at, used) = column(&found, &parts)?;
        paths[at].push(parts[used..].to_vec());
    }
    let mut kept = Vec::with_capacity(found.len());
    for (one, paths) in found.into_iter().zip(paths) {
        if overlap(&paths) {
            return Err(format!("EXCEPT leaves out parts of `{}` twice", one.name));
        }
        match paths.iter().any(Vec::is_empty) {
            true => {}
            false if paths.is_empty() => kept.push(one),
            false => kept.push(without_fields(one, &paths)?),
        }
    }
    match kept.is_empty() {
        true => Err("EXCEPT leaves out all columns".to_owned()),
        false => Ok(kept),
    }
}

/// The only column that a name begins with, and how many of its parts are that.
fn column(found: &[Found], parts: &[&str]) -> Result<(usize, usize), String> {
    let is_called = |one: &Found, name: &str| one.name.eq_ignore_ascii_case(name);
    let is_of_table = |one: &Found| {
        let table = one.table.as_deref().is_some_and(|table| table.eq_ignore_ascii_case(parts[0]));
        table && parts.get(1).is_some_and(|name| one.name.eq_ignore_ascii_case(name))
    };
    let places = |is: &dyn Fn(&Found) -> bool| {
        let all = found.iter().enumerate();
        all.filter(|(_, one)| is(one)).map(|(at, _)| at).collect::<Vec<_>>()
    };
    let name = || parts.join(".");
    for (places, used) in [(places(&is_of_table), 2), (places(&|one| is_called(one, parts[0])), 1)]
    {
        match places.as_slice() {
            [] => {}
            [only] => return Ok((*only, used)),
            _ => return Err(format!("`{}` is more than one column here", name())),
        }
    }
    Err(format!("there is no column `{}` to leave out", name()))
}

/// Whether one of the paths is another one, or leads into it.
fn overlap(paths: &[Vec<&str>]) -> bool {
    let lower =
        |path: &Vec<&str>| -> Vec<String> { path.iter().map(|part| part.to_lowercase()).collect() };
    let mut sorted: Vec<Vec<String>> = paths.iter().map(lower).collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[1].starts_with(&pair[0]))
}

/// A column without some of its fields.
fn without_fields(one: Found, paths: &[Vec<&str>]) -> Result<Found, String> {
    let mut path = match &one.value {
        Expr::CompoundIdentifier(parts) => parts.clone(),
        Expr::Identifier(name) => vec![name.clone()],
        _ => return Err(format!("`{}` is no column of one table", one.name)),
    };
    // A table could have the name of its column, and the field's name another of its columns.
    if let (1, Some(table)) = (path.len(), &one.table) {
        path.insert(0, quoted_ident(table.clone(), Span::empty()));
    }
    let Some(data_type) = one.data_type.as_ref() else {
        return Err(format!("the type of `{}` is not known here", one.name));
    };
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    let value = made_anew(&path, data_type, &paths)?;
    Ok(Found { value, is_changed: true, ..one })
}

/// `named_struct('b', s.b)`, the struct at `path` without some fields. As in Spark, one that is
/// NULL becomes one of NULLs.
fn made_anew(path: &[Ident], data_type: &DataType, paths: &[&[&str]]) -> Result<Expr, String> {
    let name = path.last().map_or("", |last| last.value.as_str());
    let DataType::Struct(fields) = data_type else {
        return Err(format!("`{name}` is no STRUCT, and has no fields to leave out"));
    };
    let is_field = |path: &&&[&str]| {
        path.first()
            .is_some_and(|first| fields.iter().any(|of| of.name().eq_ignore_ascii_case(first)))
    };
    if let Some(wrong) = paths.iter().find(|path| !is_field(path)) {
        return Err(format!("`{name}` has no field `{}`", wrong.first().unwrap_or(&"")));
    }
    let mut args = Vec::with_capacity(2 * fields.len());
    for field in fields {
        let own = paths.iter().filter(|path| path[0].eq_ignore_ascii_case(field.name()));
        let own: Vec<&[&str]> = own.map(|path| &path[1..]).collect();
        if own.iter().any(|rest| rest.is_empty()) {
            continue;
        }
        let mut inner = path.to_vec();
        inner.push(quoted_ident(field.name().clone(), Span::empty()));
        args.push(text(field.name().clone(), Span::empty()));
        args.push(match own.is_empty() {
            true => Expr::CompoundIdentifier(inner),
            false => made_anew(&inner, field.data_type(), &own)?,
        });
    }
    if args.is_empty() {
        return Err(format!("no field of `{name}` would be left, and a STRUCT has at least one"));
    }
    Ok(call("named_struct", args, Span::empty()))
}
