//! Rewrites Spark's expressions as DataFusion has them.
//!
//! Names get the spelling of the column or table that they mean ([`super::scope`]); `struct(...)`
//! becomes `named_struct` with Spark's field names; `RLIKE` becomes `rlike`; `explode` becomes
//! `unnest`; and every column of a SELECT list without an alias gets the name Spark would give it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CeilFloorKind, Expr, Function, FunctionArguments, Ident, JoinConstraint, JoinOperator,
    ObjectName, ObjectNamePart, OneOrManyWithParens, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, Spanned, TableFactor, UnaryOperator, VisitMut, VisitorMut,
    WildcardAdditionalOptions, With,
};
use datafusion::sql::sqlparser::tokenizer;

use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::sql::sqlparser::ast;

use super::ast::{call, function_name, generator, generator_name, one_part, quoted_ident, text};
use super::frame::{Frame, Relation, Resolved};
use super::naming::expr_name;
use super::numbers::{as_int, keep_types, take};
use super::operators::{conditional, rlike, rounded};
use super::prepared::TableRead;
use super::scope::{Scopes, excepts};
use super::streams::ALL_COLUMNS;
use super::{
    aggregates, casts, generators, grouping, intervals, lateral, laterals, sorting, units,
    wildcards, window_calls,
};
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
        select.named_window.iter_mut().for_each(intervals::frame_of_window);
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
        let before = self.visited.last().filter(|_| is_lateral);
        let before = before.zip(self.frames.last()).map(|(before, frame)| {
            let relations = frame.relations.iter().take(*before).cloned().collect();
            Frame { relations, merged: frame.merged.clone(), ..Frame::default() }
        });
        self.laterals.push(before.is_some());
        self.frames.extend(before);
        // The tables of a join in parentheses are counted one by one.
        let is_one = !matches!(factor, TableFactor::NestedJoin { .. });
        if let Some(visited) = self.visited.last_mut() {
            *visited += usize::from(is_one);
        }
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
                wildcards::spell(self.lexed, self.frame(), &mut options)?;
                return Ok(vec![SelectItem::Wildcard(options)]);
            }
            SelectItem::QualifiedWildcard(kind, options) => {
                return self.qualified_wildcard(kind, options);
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
        &self,
        kind: SelectItemQualifiedWildcardKind,
        mut options: WildcardAdditionalOptions,
    ) -> Result<Vec<SelectItem>, Diagnostic> {
        wildcards::spell(self.lexed, self.frame(), &mut options)?;
        let SelectItemQualifiedWildcardKind::ObjectName(mut name) = kind else {
            return Ok(vec![SelectItem::QualifiedWildcard(kind, options)]);
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
            return Ok(items.collect());
        } else if let Some(items) = laterals::columns_of(&self.frames, &name, &options) {
            return Ok(items);
        }
        let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
        Ok(vec![SelectItem::QualifiedWildcard(kind, options)])
    }

    fn expression(&mut self, expr: &mut Expr) -> Result<(), Diagnostic> {
        if let Some(frame) = self.frames.last() {
            window_calls::put_in(self.lexed, frame, expr)?;
            window_calls::fields_of_values(self.lexed, expr)?;
        }
        aggregates::rewrite(self.lexed, expr)?;
        intervals::rewrite(self.lexed, expr)?;
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
            Expr::UnaryOp { op: UnaryOperator::Plus, .. } => take(expr, casts::positive),
            Expr::Ceil { field: CeilFloorKind::Scale(_), .. }
            | Expr::Floor { field: CeilFloorKind::Scale(_), .. } => take(expr, rounded),
            Expr::Struct { values, fields } if fields.is_empty() => {
                *expr = self.structure(values)?;
            }
            Expr::Function(function) if self.is_bare_column(function) => {
                if let Some(mut name) = casts::bare_name(function).cloned() {
                    self.identifier(&mut name)?;
                    *expr = Expr::Identifier(name);
                }
            }
            Expr::Function(function) if units::has_unit(function) => take(expr, units::with_text),
            Expr::Function(function) if casts::cast_argument(function).is_some() => {
                take(expr, casts::cast_call);
            }
            Expr::Function(function) => {
                self.call(function)?;
                if function_name(function) == "if" && function.over.is_none() {
                    take(expr, conditional);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn structure(&self, values: &mut Vec<Expr>) -> Result<Expr, Diagnostic> {
        let first = values.first().map_or(tokenizer::Span::empty(), |value| value.span());
        let span = self.lexed.span(first);
        self.named_struct(std::mem::take(values)).map_err(|message| {
            let help = "name the columns: struct(a, b)";
            Diagnostic { span, ..Diagnostic::nowhere(message).help(help) }
        })
    }

    fn call(&self, function: &mut ast::Function) -> Result<(), Diagnostic> {
        if let Some(name) = generator_name(function) {
            let span = self.lexed.span(function.name.0[0].span());
            let message = format!("`{name}` must be alone in the SELECT list");
            let help =
                format!("write SELECT {name}(x) in a subquery, or LATERAL VIEW {name}(x) t AS ...");
            return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
        }
        window_calls::by_name(function);
        intervals::frame_of_call(function);
        window_calls::normalise(self.lexed, function)?;
        trimmed_last(function);
        let name = function_name(function);
        if let FunctionArguments::List(list) = &mut function.args
            && name == "sequence"
        {
            intervals::calendar_step(&mut list.args);
        }
        keep_types(function);
        Ok(())
    }

    /// The parameter of a function `x -> ...` that `name` means.
    fn parameter(&self, name: &str) -> Option<&String> {
        let name = name.to_lowercase();
        self.parameters.iter().rev().flatten().find(|parameter| **parameter == name)
    }

    /// Whether a call without parentheses, `current_date`, has the name of a column.
    fn is_bare_column(&self, function: &Function) -> bool {
        let Some(name) = casts::bare_name(function) else { return false };
        self.frames.last().is_some_and(|frame| frame.resolve(std::slice::from_ref(name)).is_some())
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

/// `ltrim(what, text)` and `rtrim(what, text)` name the text last, unlike DataFusion's.
fn trimmed_last(function: &mut Function) {
    if matches!(function_name(function).as_str(), "ltrim" | "rtrim")
        && let FunctionArguments::List(list) = &mut function.args
        && list.args.len() == 2
    {
        list.args.reverse();
    }
}
