//! The columns that `*` stands for where DataFusion does not know it: among values, as in
//! `coalesce(*)` and `5 IN (t.*)`, in parentheses, and with fields behind EXCEPT.
//!
//! [`super::star_tokens`] has made names and calls of such stars. Here they become the columns, in
//! SELECT lists and in WHERE, as in Spark: `SELECT coalesce(* EXCEPT (a)) FROM t` is `SELECT
//! coalesce(b, c) FROM t`, and `SELECT * EXCEPT (s.a) FROM t` makes `s` anew without its field. So
//! what comes later knows only columns, over streams as over tables.
//!
//! Where tables have hidden columns ([`super::file_metadata`]), `*` and `t.*` become those that
//! they show. A name in backticks can be a pattern for names ([`super::patterns`]), if a setting
//! says so.

use std::collections::HashMap;
use std::ops::ControlFlow;

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, Spanned, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{any, arguments, item_expr, qualified, quoted_ident};
use super::frame::{Column, Frame, Relation, Visible};
use super::left_out::{Found, left_out_names, names_parts, without};
use super::patterns;
use super::star_tokens::ALL_COLUMNS;
use super::wildcards::replacement;
use super::{twins, using};
use crate::diagnostic::Diagnostic;
use crate::nearest::suggest;
use crate::syntax::lexer::Lexed;

/// What is said where the columns are not known.
const UNKNOWN: &str = "the columns of `*` are not known here";

/// A star among values, or one that stands for the names that a pattern matches.
struct Star {
    qualifier: Vec<Ident>,
    left_out: Vec<Ident>,
    pattern: Option<String>,
}

/// Whether `select` has something for [`expand`]; `patterns` are read where a setting says so.
pub(super) fn are_in(select: &Select, patterns: bool) -> bool {
    let is_one = |expr: &Expr| star(expr, patterns).is_some();
    let has_one = |item: &SelectItem| {
        is_several(item, patterns) || item_expr(item).is_some_and(|expr| any(expr, is_one))
    };
    select.projection.iter().any(has_one)
        || select.selection.as_ref().is_some_and(|filter| any(filter, is_star))
}

/// Whether an item of a SELECT list stands for columns that [`expand`] puts in its place.
pub(super) fn is_several(item: &SelectItem, patterns: bool) -> bool {
    match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
            names_parts(options)
        }
        SelectItem::UnnamedExpr(expr) => star(in_parentheses(expr), patterns).is_some(),
        _ => false,
    }
}

/// What stands within the parentheses that an expression is.
fn in_parentheses(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// Puts the columns in the places of stars. `frame` is what `select` sees, and `around` are the
/// frames around it, innermost first.
///
/// # Errors
/// The columns are not known, a name is none of them, or a star stands where no list is.
pub(super) fn expand(
    lexed: &Lexed,
    select: &mut Select,
    frame: &Frame,
    around: &[&Frame],
    patterns: bool,
) -> Result<(), Diagnostic> {
    let relations = twins::shown_relations(select, &frame.relations);
    let joined = using::merges(&select.from)
        .then(|| using::joined(&select.from, &frame.relations).map(|joined| joined.columns));
    let sight = Sight { frame, around, relations, joined, counts: counts(frame) };
    let refused = |span: Span, message: String| {
        let help = "write the columns themselves: f(a, b)";
        Diagnostic { span: lexed.span(span), ..Diagnostic::nowhere(message).help(help) }
    };
    // What is refused stays as it is, and is refused again when the SELECT itself is visited.
    let mut items = Vec::with_capacity(select.projection.len());
    for mut item in select.projection.clone() {
        let span = item.span();
        let found = sight.of_item(&item, patterns).map_err(|message| refused(span, message))?;
        match found {
            Some(found) => items.extend(found.into_iter().map(into_item)),
            None => {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } =
                    &mut item
                {
                    sight.put_in(expr, patterns).map_err(|message| refused(span, message))?;
                }
                items.push(item);
            }
        }
    }
    select.projection = items;
    if let Some(filter) = &mut select.selection {
        let span = filter.span();
        sight.put_in(filter, false).map_err(|message| refused(span, message))?;
    }
    Ok(())
}

fn into_item(found: Found) -> SelectItem {
    match found.is_changed {
        false => SelectItem::UnnamedExpr(found.value),
        true => {
            let alias = quoted_ident(found.name, Span::empty());
            SelectItem::ExprWithAlias { expr: found.value, alias }
        }
    }
}

/// How many columns of each name there are, by the name in lower case.
fn counts(frame: &Frame) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for column in frame.relations.iter().flat_map(|relation| relation.columns.iter().flatten()) {
        *counts.entry(column.name.to_lowercase()).or_default() += 1;
    }
    counts
}

/// What the stars of a SELECT can stand for.
struct Sight<'a> {
    frame: &'a Frame,
    around: &'a [&'a Frame],
    /// The relations whose columns `*` has.
    relations: Option<Vec<&'a Relation>>,
    /// The columns of `*` where joins make one of two.
    joined: Option<Option<Vec<Visible>>>,
    counts: HashMap<String, usize>,
}

impl Sight<'_> {
    /// The columns that an item of a SELECT list stands for, if DataFusion would not know them.
    fn of_item(&self, item: &SelectItem, patterns: bool) -> Result<Option<Vec<Found>>, String> {
        let (qualifier, options) = match item {
            SelectItem::Wildcard(options) => (Vec::new(), options),
            SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                options,
            ) => (name.0.iter().filter_map(ObjectNamePart::as_ident).cloned().collect(), options),
            SelectItem::UnnamedExpr(expr) => {
                let star = star(in_parentheses(expr), patterns);
                return star.map(|star| self.columns(&star)).transpose();
            }
            _ => return Ok(None),
        };
        self.of_wildcard(qualifier, options)
    }

    fn of_wildcard(
        &self,
        qualifier: Vec<Ident>,
        options: &WildcardAdditionalOptions,
    ) -> Result<Option<Vec<Found>>, String> {
        let hides = self.frame.relations.iter().any(|relation| relation.has_files);
        if !names_parts(options) && !hides {
            return Ok(None);
        }
        let left_out = left_out_names(options).cloned().collect();
        let found = self.columns(&Star { qualifier, left_out, pattern: None })?;
        let found = found.into_iter().map(|one| match replacement(options, &one.name) {
            Some(value) => Found { value: value.clone(), is_changed: true, ..one },
            None => one,
        });
        Ok(Some(found.collect()))
    }

    fn columns(&self, star: &Star) -> Result<Vec<Found>, String> {
        let all = match star.qualifier.split_last() {
            None => self.all()?,
            Some((table, before)) => self.of_table(table, before)?,
        };
        let all = without(all, &star.left_out)?;
        let Some(pattern) = &star.pattern else { return Ok(all) };
        let matches = patterns::compile(pattern)?;
        let found: Vec<Found> = all.into_iter().filter(|one| matches.is_match(&one.name)).collect();
        match found.is_empty() {
            true => Err(format!("no column has a name that matches `{pattern}`")),
            false => Ok(found),
        }
    }

    /// The columns of `*`.
    fn all(&self) -> Result<Vec<Found>, String> {
        if let Some(joined) = &self.joined {
            let joined = joined.as_ref().ok_or(UNKNOWN)?;
            return Ok(joined.iter().map(of_visible).collect());
        }
        let relations = self.relations.as_ref().ok_or(UNKNOWN)?;
        let mut all = Vec::new();
        for relation in relations {
            all.extend(self.of_relation(relation, true)?);
        }
        Ok(all)
    }

    /// The columns of `t.*`, or the fields of `s.*`.
    fn of_table(&self, table: &Ident, before: &[Ident]) -> Result<Vec<Found>, String> {
        if before.is_empty() {
            if let Some(relation) = self.frame.relation(&table.value) {
                return self.of_relation(relation, true);
            }
            let mut around = self.around.iter();
            if let Some(relation) = around.find_map(|frame| frame.relation(&table.value)) {
                return self.of_relation(relation, false);
            }
        }
        let path: Vec<Ident> = before.iter().chain([table]).cloned().collect();
        let found = self.frame.resolve(&path).and_then(|found| found.data_type);
        let Some(DataType::Struct(fields)) = found else {
            let known = self.frame.relations.iter().filter_map(|known| known.name.as_deref());
            let help = suggest(&table.value, "tables", known);
            return Err(format!("there is no table `{}` here; {help}", table.value));
        };
        let fields = fields.iter().map(|field| {
            let own = [quoted_ident(field.name().clone(), table.span)];
            Found {
                name: field.name().clone(),
                table: None,
                value: Expr::CompoundIdentifier(path.iter().cloned().chain(own).collect()),
                data_type: Some(field.data_type().clone()),
                is_changed: false,
            }
        });
        Ok(fields.collect())
    }

    /// The columns of a relation, which is one of the SELECT's `own` or one around it.
    fn of_relation(&self, relation: &Relation, own: bool) -> Result<Vec<Found>, String> {
        let columns = relation.columns.as_ref().ok_or(UNKNOWN)?;
        columns.iter().map(|column| self.of_column(relation, column, own)).collect()
    }

    /// A column is named without its table where it can be: so are calls of it in the result.
    fn of_column(&self, relation: &Relation, column: &Column, own: bool) -> Result<Found, String> {
        let is_alone = own && self.counts.get(&column.name.to_lowercase()) == Some(&1);
        let value = match &relation.name {
            _ if is_alone => Expr::Identifier(Ident::new(column.name.clone())),
            Some(table) => qualified(table, &column.name),
            None => return Err(format!("`{}` is more than one column here", column.name)),
        };
        Ok(Found {
            name: column.name.clone(),
            table: relation.name.clone(),
            value,
            data_type: column.data_type.clone(),
            is_changed: false,
        })
    }

    /// Puts the columns of the stars in `expr` into the lists that have these.
    fn put_in(&self, expr: &mut Expr, patterns: bool) -> Result<(), String> {
        let mut lists = Lists { sight: self, patterns, depth: 0, of_structs: 0, wrong: None };
        let _: ControlFlow<()> = VisitMut::visit(expr, &mut lists);
        lists.wrong.map_or(Ok(()), Err)
    }
}

/// A column of joins. One that is made of two is called by its name, as its joins decide.
fn of_visible(visible: &Visible) -> Found {
    let name = visible.column.name.clone();
    let (table, value) = match &visible.value {
        _ if visible.is_merged => (None, Expr::Identifier(Ident::new(name.clone()))),
        Expr::CompoundIdentifier(parts) => {
            (parts.first().map(|table| table.value.clone()), visible.value.clone())
        }
        other => (None, other.clone()),
    };
    Found { name, table, value, data_type: visible.column.data_type.clone(), is_changed: false }
}

/// Whether an expression is a star among values.
fn is_star(expr: &Expr) -> bool {
    star(expr, false).is_some()
}

/// The star that an expression is; with `patterns`, one for names that match.
fn star(expr: &Expr, patterns: bool) -> Option<Star> {
    if patterns && let Some((table, pattern)) = patterns::of(expr) {
        let qualifier = table.into_iter().cloned().collect();
        let pattern = Some(pattern.to_owned());
        return Some(Star { qualifier, left_out: Vec::new(), pattern });
    }
    let last = match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        Expr::Function(call) => call.name.0.last().and_then(ObjectNamePart::as_ident),
        _ => None,
    };
    if last.is_none_or(|last| last.value != ALL_COLUMNS) {
        return None;
    }
    let (parts, left_out): (Vec<Ident>, Vec<Ident>) = match expr {
        Expr::Identifier(name) => (vec![name.clone()], Vec::new()),
        Expr::CompoundIdentifier(parts) => (parts.clone(), Vec::new()),
        Expr::Function(call) => {
            let parts = call.name.0.iter().filter_map(ObjectNamePart::as_ident).cloned();
            let names = arguments(call).filter_map(|name| match name {
                Expr::Identifier(name) => Some(name.clone()),
                _ => None,
            });
            (parts.collect(), names.collect())
        }
        _ => return None,
    };
    let (_, qualifier) = parts.split_last()?;
    Some(Star { qualifier: qualifier.to_vec(), left_out, pattern: None })
}

/// The lists of values in an expression, but not those of queries in it.
struct Lists<'a> {
    sight: &'a Sight<'a>,
    patterns: bool,
    /// How many queries and functions `x -> ...` the visit is in.
    depth: usize,
    /// How many stars are left to [`super::structs`].
    of_structs: usize,
    wrong: Option<String>,
}

impl Lists<'_> {
    fn list(&mut self, list: &mut Vec<Expr>, is_struct: bool) {
        let is_left = |value: &Expr| {
            is_struct && matches!(value, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        };
        let mut values = Vec::with_capacity(list.len());
        for value in std::mem::take(list) {
            match star(&value, self.patterns) {
                Some(star) if star.pattern.is_none() && is_left(&value) => {
                    self.of_structs += 1;
                    values.push(value);
                }
                Some(star) => match self.sight.columns(&star) {
                    Ok(found) => values.extend(found.into_iter().map(|one| {
                        let name = quoted_ident(one.name, Span::empty());
                        match is_struct && one.is_changed {
                            true => Expr::Named { expr: Box::new(one.value), name },
                            false => one.value,
                        }
                    })),
                    Err(message) => {
                        self.wrong = Some(message);
                        values.push(value);
                    }
                },
                None => values.push(value),
            }
        }
        *list = values;
    }

    fn arguments(&mut self, args: &mut Vec<FunctionArg>) {
        let is_one = |arg: &FunctionArg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => {
                star(expr, self.patterns).is_some()
            }
            _ => false,
        };
        if !args.iter().any(is_one) {
            return;
        }
        let mut values = Vec::with_capacity(args.len());
        for arg in std::mem::take(args) {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => {
                    let mut list = vec![expr];
                    self.list(&mut list, false);
                    let list = list.into_iter().map(FunctionArgExpr::Expr);
                    values.extend(list.map(FunctionArg::Unnamed));
                }
                other => values.push(other),
            }
        }
        *args = values;
    }
}

impl VisitorMut for Lists<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        // A parameter of `x -> ...` would hide a column of its name.
        self.depth += usize::from(matches!(expr, Expr::Lambda(_)));
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        if is_star(expr) {
            match self.of_structs.checked_sub(1) {
                Some(left) => self.of_structs = left,
                None => self.wrong = Some("`*` cannot stand here".to_owned()),
            }
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Function(call) => {
                if let FunctionArguments::List(list) = &mut call.args {
                    self.arguments(&mut list.args);
                }
            }
            Expr::InList { list, .. } | Expr::Tuple(list) => self.list(list, false),
            Expr::Struct { values, .. } => self.list(values, true),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.depth -= usize::from(matches!(expr, Expr::Lambda(_)));
        ControlFlow::Continue(())
    }
}
