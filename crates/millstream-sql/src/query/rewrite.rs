//! Rewrites Spark's expressions as DataFusion has them.
//!
//! Names get the spelling of the column or table that they mean ([`super::scope`]); `struct(...)`
//! becomes `named_struct` with Spark's field names; `RLIKE` becomes `rlike`; `explode` becomes
//! `unnest`; and every column of a SELECT list without an alias gets the name Spark would give it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, CeilFloorKind, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, OneOrManyWithParens, Query,
    Select, SelectItem, SelectItemQualifiedWildcardKind, Spanned, TableFactor, UnaryOperator,
    Value, ValueWithSpan, VisitMut, VisitorMut, WildcardAdditionalOptions, With,
};
use datafusion::sql::sqlparser::tokenizer;

use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::sql::sqlparser::ast;

use super::ast::{call, function_name, generator, generator_name, one_part, quoted_ident, text};
use super::frame::{Frame, Relation, Resolved};
use super::naming::expr_name;
use super::operators::{conditional, rlike, rounded};
use super::prepared::TableRead;
use super::scope::{Scopes, excepts};
use super::streams::ALL_COLUMNS;
use super::{aggregates, generators, grouping, lateral, laterals, sorting, window_calls};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::nearest::suggest;
use crate::syntax::lexer::Lexed;
use crate::types::spark_type;

/// Rewrites `query` in place.
pub(crate) fn rewrite(
    lexed: &Lexed,
    query: &mut Query,
    reads: &[TableRead],
) -> Result<(), Diagnostics> {
    let tables = reads.iter().map(|read| (read.registered_as.clone(), read.schema.clone()));
    rewrite_over(lexed, query, tables.collect())
}

/// Rewrites `query` over `tables`, which are columns by name, in place.
pub(crate) fn rewrite_over(
    lexed: &Lexed,
    query: &mut Query,
    tables: HashMap<String, SchemaRef>,
) -> Result<(), Diagnostics> {
    let mut rewriter = Rewriter {
        lexed,
        scopes: Scopes::new(tables),
        frames: Vec::new(),
        taken: Vec::new(),
        found: Diagnostics::default(),
        parameters: Vec::new(),
        visited: Vec::new(),
        laterals: Vec::new(),
    };
    let _: ControlFlow<()> = VisitMut::visit(query, &mut rewriter);
    rewriter.found.into_result()
}

struct Rewriter<'a> {
    lexed: &'a Lexed,
    scopes: Scopes,
    /// The frames of the queries being visited, innermost last.
    frames: Vec<Frame>,
    /// WITH clauses taken out of the queries being visited, and how many names were visible.
    taken: Vec<(Option<With>, usize)>,
    found: Diagnostics,
    /// The parameters of the functions `x -> ...` being visited, innermost last.
    parameters: Vec<Vec<String>>,
    /// By SELECT being visited, how many relations of its FROM clause have been.
    visited: Vec<usize>,
    /// By relation being visited, whether it is a LATERAL subquery, which has a frame of its own.
    laterals: Vec<bool>,
}

impl VisitorMut for Rewriter<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        sorting::into_order(query);
        let known = self.scopes.ctes.len();
        let mut with = query.with.take();
        for cte in with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            // Columns are named after the text as written, so names are taken before it is
            // rewritten.
            let (alias, before) = (cte.alias.clone(), cte.query.clone());
            VisitMut::visit(&mut cte.query, self)?;
            self.scopes.add_cte(&alias, &before);
        }
        self.taken.push((with, known));
        let frame = self.scopes.frame_of_body(&query.body);
        self.frames.push(frame);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.frames.pop();
        if let Some((with, known)) = self.taken.pop() {
            query.with = with;
            self.scopes.ctes.truncate(known);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        grouping::modifiers_into_sets(select);
        let mut frame = self.scopes.frame(select);
        if !select.lateral_views.is_empty() {
            match lateral::into_subquery(self.lexed, select, &mut frame) {
                Ok(()) => {}
                Err(diagnostic) => self.found.0.push(diagnostic),
            }
        }
        self.using_columns(select, &frame);
        self.frames.push(frame);
        self.visited.push(0);
        let items = std::mem::take(&mut select.projection);
        for item in items {
            match self.item(item) {
                Ok(items) => select.projection.extend(items),
                Err(diagnostic) => self.found.0.push(diagnostic),
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        laterals::name_subqueries(select);
        self.frames.pop();
        self.visited.pop();
        ControlFlow::Continue(())
    }

    /// A LATERAL subquery sees the relations before it, and not its own columns.
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let is_lateral = matches!(factor, TableFactor::Derived { lateral: true, .. });
        if let (true, Some(before), Some(frame)) =
            (is_lateral, self.visited.last(), self.frames.last())
        {
            let relations = frame.relations.iter().take(*before).cloned().collect();
            let merged = frame.merged.clone();
            self.frames.push(Frame { relations, merged, ..Frame::default() });
        }
        if let (false, Some(visited)) =
            (matches!(factor, TableFactor::NestedJoin { .. }), self.visited.last_mut())
        {
            *visited += 1;
        }
        self.laterals.push(is_lateral);
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, _factor: &mut TableFactor) -> ControlFlow<()> {
        if self.laterals.pop() == Some(true) {
            self.frames.pop();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Lambda(lambda) = expr {
            let parameters = match &mut lambda.params {
                OneOrManyWithParens::One(parameter) => std::slice::from_mut(parameter),
                OneOrManyWithParens::Many(parameters) => parameters.as_mut_slice(),
            };
            // DataFusion knows parameters by their names in lower case.
            let names = parameters.iter_mut().map(|parameter| {
                parameter.name.value = parameter.name.value.to_lowercase();
                parameter.name.value.clone()
            });
            self.parameters.push(names.collect());
            as_int(&mut lambda.body);
        }
        if let Err(diagnostic) = self.expression(expr) {
            self.found.0.push(diagnostic);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Lambda(_) = expr {
            self.parameters.pop();
        }
        ControlFlow::Continue(())
    }
}

impl Rewriter<'_> {
    /// Gives the columns of `JOIN ... USING (...)` their declared spelling.
    fn using_columns(&self, select: &mut Select, frame: &Frame) {
        let joins = select.from.iter_mut().flat_map(|tables| &mut tables.joins);
        for join in joins {
            let Some(JoinConstraint::Using(names)) = join_constraint!(&mut join.join_operator)
            else {
                continue;
            };
            for part in names.iter_mut().flat_map(|name| &mut name.0) {
                if let ObjectNamePart::Identifier(ident) = part
                    && let Some(found) = frame.resolve(std::slice::from_ref(ident))
                {
                    ident.value = found.parts[0].clone();
                }
            }
        }
    }

    fn frame(&self) -> &Frame {
        self.frames.last().expect("an item of a SELECT list is in a SELECT")
    }

    /// Gives an item of a SELECT list Spark's name; `struct_column.*` becomes several items.
    fn item(&mut self, item: SelectItem) -> Result<Vec<SelectItem>, Diagnostic> {
        let (expr, alias) = match item {
            SelectItem::UnnamedExpr(expr) if generator(&expr).is_some() => {
                return generators::items(self.lexed, self.frame(), &expr, &[]);
            }
            SelectItem::ExprWithAlias { expr, alias } if generator(&expr).is_some() => {
                return generators::items(self.lexed, self.frame(), &expr, &[alias]);
            }
            SelectItem::ExprWithAliases { expr, aliases } if generator(&expr).is_some() => {
                return generators::items(self.lexed, self.frame(), &expr, &aliases);
            }
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
            SelectItem::Wildcard(mut options) => {
                self.excepted(&mut options);
                return Ok(vec![SelectItem::Wildcard(options)]);
            }
            SelectItem::QualifiedWildcard(kind, options) => {
                return Ok(self.qualified_wildcard(kind, options));
            }
            SelectItem::ExprWithAliases { expr, aliases } => {
                let span = aliases.first().and_then(|alias| self.lexed.span(alias.span));
                let message = format!("`{expr}` cannot have several names");
                return Err(Diagnostic { span, ..Diagnostic::nowhere(message) });
            }
        };
        let alias = alias.or_else(|| {
            let name = expr_name(&expr);
            let keeps_its_name = match &expr {
                Expr::Identifier(ident) => self.resolved_name(std::slice::from_ref(ident)) == name,
                Expr::CompoundIdentifier(parts) => self.resolved_name(parts) == name,
                _ => false,
            };
            (!keeps_its_name).then(|| quoted_ident(name, expr.span()))
        });
        let mut expr = expr;
        as_int(&mut expr);
        Ok(vec![match alias {
            Some(alias) => SelectItem::ExprWithAlias { expr, alias },
            None => SelectItem::UnnamedExpr(expr),
        }])
    }

    /// The name that DataFusion gives a column after the rewrite; empty for other expressions.
    fn resolved_name(&self, parts: &[Ident]) -> String {
        match self.frame().resolve(parts) {
            None if self.frame().group_window(parts).is_some() => String::new(),
            Some(found) if found.is_field => String::new(),
            Some(found) => found.parts.last().cloned().unwrap_or_default(),
            // DataFusion names a column of an outer query otherwise.
            None if self.outer(parts).is_some() => String::new(),
            None => parts.last().map(|part| part.value.clone()).unwrap_or_default(),
        }
    }

    /// What a name means in the queries around this one.
    fn outer(&self, parts: &[Ident]) -> Option<Resolved> {
        let outer = self.frames.split_last().map_or(&[][..], |(_, outer)| outer);
        outer.iter().rev().find_map(|frame| frame.resolve(parts))
    }

    fn qualified_wildcard(
        &mut self,
        kind: SelectItemQualifiedWildcardKind,
        mut options: WildcardAdditionalOptions,
    ) -> Vec<SelectItem> {
        self.excepted(&mut options);
        let SelectItemQualifiedWildcardKind::ObjectName(mut name) = kind else {
            return vec![SelectItem::QualifiedWildcard(kind, options)];
        };
        let parts: Vec<Ident> = name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
        if let Some(relation) = one_part(&name).and_then(|name| self.frame().relation(&name)) {
            if let Some(spelled) = &relation.name {
                name = ObjectName(vec![ObjectNamePart::Identifier(Ident {
                    value: spelled.clone(),
                    ..parts[0].clone()
                })]);
            }
        } else if let Some(DataType::Struct(fields)) =
            self.frame().resolve(&parts).and_then(|found| found.data_type)
        {
            let is_kept = |field: &&FieldRef| !excepts(&options, field.name());
            let items = fields.iter().filter(is_kept).map(|field| {
                let name = quoted_ident(field.name().clone(), parts[0].span);
                let mut path = parts.clone();
                path.push(name.clone());
                SelectItem::ExprWithAlias { expr: Expr::CompoundIdentifier(path), alias: name }
            });
            return items.collect();
        } else if let Some(items) = laterals::columns_of(&self.frames, &name) {
            return items;
        }
        let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
        vec![SelectItem::QualifiedWildcard(kind, options)]
    }

    /// Gives the columns of `* EXCEPT (...)` their declared spelling.
    fn excepted(&self, options: &mut WildcardAdditionalOptions) {
        for item in options.opt_replace.iter_mut().flat_map(|replace| &mut replace.items) {
            if let Some(found) = self.frame().resolve(std::slice::from_ref(&item.column_name)) {
                item.column_name.value = found.parts[0].clone();
            }
            as_int(&mut item.expr);
        }
        let Some(except) = &mut options.opt_except else { return };
        let names =
            std::iter::once(&mut except.first_element).chain(&mut except.additional_elements);
        for name in names {
            if let Some(found) = self.frame().resolve(std::slice::from_ref(name)) {
                name.value = found.parts[0].clone();
            }
        }
    }

    fn expression(&mut self, expr: &mut Expr) -> Result<(), Diagnostic> {
        if let Some(frame) = self.frames.last() {
            window_calls::put_in(self.lexed, frame, expr)?;
            window_calls::fields_of_values(self.lexed, expr)?;
        }
        aggregates::rewrite(self.lexed, expr)?;
        match expr {
            Expr::Identifier(ident) => self.identifier(ident)?,
            Expr::CompoundIdentifier(parts) => {
                if let Some(path) = self.compound(parts)? {
                    *expr = path;
                }
            }
            Expr::UnaryOp { op: op @ UnaryOperator::BangNot, .. } => *op = UnaryOperator::Not,
            Expr::Case { conditions, else_result, .. } => {
                conditions.iter_mut().for_each(|when| as_int(&mut when.result));
                else_result.iter_mut().for_each(|result| as_int(result));
            }
            Expr::RLike { .. } => take(expr, rlike),
            Expr::Ceil { field: CeilFloorKind::Scale(_), .. }
            | Expr::Floor { field: CeilFloorKind::Scale(_), .. } => take(expr, rounded),
            Expr::Struct { values, fields } if fields.is_empty() => {
                let span = self
                    .lexed
                    .span(values.first().map_or(tokenizer::Span::empty(), |value| value.span()));
                let named = self.named_struct(std::mem::take(values));
                match named {
                    Ok(call) => *expr = call,
                    Err(message) => {
                        let help = "name the columns: struct(a, b)";
                        return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
                    }
                }
            }
            Expr::Function(function) => {
                if let Some(name) = generator_name(function) {
                    let span = self.lexed.span(function.name.0[0].span());
                    let message = format!("`{name}` must be alone in the SELECT list");
                    let help = format!(
                        "write SELECT {name}(x) in a subquery, or LATERAL VIEW {name}(x) t AS ..."
                    );
                    return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
                }
                window_calls::normalise(self.lexed, function)?;
                trimmed_last(function);
                let name = function_name(function);
                if KEEPS_TYPES.contains(&name.as_str()) {
                    arguments_mut(function).for_each(as_int);
                }
                if name == "if" && function.over.is_none() {
                    take(expr, conditional);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The parameter of a function `x -> ...` that `name` means.
    fn parameter(&self, name: &str) -> Option<&String> {
        let name = name.to_lowercase();
        self.parameters.iter().rev().flatten().find(|parameter| **parameter == name)
    }

    fn identifier(&self, ident: &mut Ident) -> Result<(), Diagnostic> {
        if let Some(spelled) = self.parameter(&ident.value) {
            ident.value.clone_from(spelled);
            return Ok(());
        }
        for frame in self.frames.iter().rev() {
            let alias = frame.alias(&ident.value);
            if frame.result_first
                && let Some(alias) = alias
            {
                ident.value = alias.to_owned();
                return Ok(());
            }
            if let [first, second, ..] = frame.ambiguous(&ident.value).as_slice() {
                let name = &ident.value;
                let message = format!("`{name}` is a column of both `{first}` and `{second}`");
                let help = format!("say which: {first}.{name} or {second}.{name}");
                let span = self.lexed.span(ident.span);
                return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
            }
            let found = frame.resolve(std::slice::from_ref(ident));
            let found = found.map(|found| found.parts[0].clone());
            if let Some(spelled) = found.or_else(|| alias.map(str::to_owned)) {
                ident.value = spelled;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Gives a path its declared spelling; one through an array of structs becomes calls of
    /// `field_of`.
    fn compound(&self, parts: &mut Vec<Ident>) -> Result<Option<Expr>, Diagnostic> {
        if let Some(spelled) = self.parameter(&parts[0].value) {
            let fields = parts.split_off(1);
            let parameter = Expr::Identifier(quoted_ident(spelled.clone(), parts[0].span));
            return Ok(Some(fields.into_iter().fold(parameter, |of, field| {
                let span = field.span;
                call("get_field", vec![of, text(field.value, span)], span)
            })));
        }
        let found = self.frames.iter().rev().find_map(|frame| frame.resolve(parts));
        let Some(found) = found else { return Ok(None) };
        if let Some((at, known)) = &found.wrong_field {
            let (field, span) = (&parts[*at].value, self.lexed.span(parts[*at].span));
            let before = found.parts[*at - 1].as_str();
            let diagnostic = match known {
                DataType::Struct(fields) => {
                    let names = fields.iter().map(|field| field.name().as_str());
                    Diagnostic::nowhere(format!("`{before}` has no field `{field}`"))
                        .help(suggest(field, "fields", names))
                }
                other => Diagnostic::nowhere(format!(
                    "`{before}` has no fields: it is {}",
                    spark_type(other)
                )),
            };
            return Err(Diagnostic { span, ..diagnostic });
        }
        for (part, spelled) in parts.iter_mut().zip(found.parts) {
            part.value = spelled;
        }
        let Some(at) = found.array_at else { return Ok(None) };
        let fields = parts.split_off(at);
        let array = match parts.as_slice() {
            [only] => Expr::Identifier(only.clone()),
            several => Expr::CompoundIdentifier(several.to_vec()),
        };
        Ok(Some(fields.into_iter().fold(array, |of, field| {
            let span = field.span;
            call("field_of", vec![of, text(field.value, span)], span)
        })))
    }

    /// `struct(a, b.c, d + 1, e AS f)` with Spark's field names: a, c, col3 and f.
    fn named_struct(&self, values: Vec<Expr>) -> Result<Expr, String> {
        let span = values.first().map_or(tokenizer::Span::empty(), Spanned::span);
        let mut args = Vec::new();
        for (index, value) in values.into_iter().enumerate() {
            let (name, value) = match value {
                Expr::Named { expr, name } => (name.value, *expr),
                Expr::Identifier(ident) if ident.value == ALL_COLUMNS => {
                    args.extend(self.all_columns(None)?);
                    continue;
                }
                Expr::CompoundIdentifier(parts)
                    if parts.last().is_some_and(|part| part.value == ALL_COLUMNS) =>
                {
                    args.extend(self.all_columns(Some(&parts[..parts.len() - 1]))?);
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
        Ok(call("named_struct", args, span))
    }

    /// Names and values for `struct(*)` and `struct(t.*)`.
    fn all_columns(&self, qualifier: Option<&[Ident]>) -> Result<Vec<Expr>, String> {
        let frame = self.frames.last().ok_or("`*` has no columns here")?;
        let relations: Vec<&Relation> = match qualifier {
            None => frame.relations.iter().collect(),
            Some(parts) => {
                let name = parts.last().map_or("", |part| part.value.as_str());
                let found = frame.relation(name).ok_or_else(|| {
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
}

/// Replaces an expression by the result of `make`.
fn take(expr: &mut Expr, make: impl FnOnce(Expr) -> Expr) {
    let null = Expr::Value(ValueWithSpan { value: Value::Null, span: tokenizer::Span::empty() });
    let before = std::mem::replace(expr, null);
    *expr = make(before);
}

fn arguments_mut(function: &mut Function) -> impl Iterator<Item = &mut Expr> {
    let args = match &mut function.args {
        FunctionArguments::List(list) => list.args.as_mut_slice(),
        _ => &mut [],
    };
    args.iter_mut().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    })
}

/// `ltrim(what, text)` and `rtrim(what, text)` name the text last, unlike DataFusion's.
fn trimmed_last(function: &mut Function) {
    if matches!(function_name(function).as_str(), "ltrim" | "rtrim")
        && let FunctionArguments::List(list) = &mut function.args
        && list.args.len() == 2
    {
        list.args.reverse();
    }
}

/// Functions whose result has the type of their arguments.
const KEEPS_TYPES: &[&str] = &[
    "aggregate",
    "array",
    "coalesce",
    "greatest",
    "if",
    "ifnull",
    "least",
    "map",
    "named_struct",
    "nvl",
    "nvl2",
    "reduce",
];

/// A whole number that fits is an INT in Spark; DataFusion makes it a BIGINT.
///
/// Only where the number's type is the result's: elsewhere (`LIMIT 1`, `GROUP BY 1`, a position in
/// a string) a number must stay a plain literal.
fn as_int(expr: &mut Expr) {
    let digits = match &*expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => expr.as_ref(),
        other => other,
    };
    if let Expr::Value(ValueWithSpan { value: Value::Number(digits, false), .. }) = digits
        && digits.parse::<i32>().is_ok()
    {
        take(expr, |number| Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(number),
            data_type: ast::DataType::Int(None),
            array: false,
            format: None,
        });
    }
}
