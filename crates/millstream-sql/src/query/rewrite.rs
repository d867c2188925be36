//! Rewrites Spark's expressions as DataFusion has them.
//!
//! Names get the spelling of the column or table that they mean ([`super::scope`]); `struct(...)`
//! becomes `named_struct` with Spark's field names; `explode` becomes `unnest`; and every column of
//! a SELECT list without an alias gets the name Spark would give it.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    CeilFloorKind, Expr, Function, Ident, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Spanned, TableFactor, UnaryOperator, VisitMut,
    VisitorMut, WildcardAdditionalOptions, With,
};

use super::ast::{
    arguments, arguments_mut, function_name, generator_name, nested_calls, one_part, quoted_ident,
    rename, take,
};
use super::casts::as_int;
use super::frame::{Frame, Resolved};
use super::naming::expr_name;
use super::operators::{KEEPS_TYPES, collated, rlike, rounded, trimmed_last};
use super::prepared::{ReadMode, TableRead};
use super::scope::Scopes;
use super::settings::Settings;
use super::{
    aggregates, blocks, cast_twins, casts, commuted, generators, hidden_sides, in_sight,
    interval_columns, intervals, lambda_calls, lateral, lateral_alias, lateral_values, laterals,
    like, listagg, nearest_sides, offsets, operators, outer_aggregates, paths, percentiles,
    result_names, rows, same_names, schema_calls, schema_names, several_generators, sorting, stars,
    structs, time_literals, twins, uncovered, units, using, variant_paths, wildcards, window_calls,
    words, wrong_fields,
};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::functions::collections::NO_ENTRIES;
use crate::recursion::levels;
use crate::syntax::lexer::Lexed;

/// Rewrites `query` in place.
pub(crate) fn rewrite(
    lexed: &Lexed,
    query: &mut Query,
    reads: &[TableRead],
    settings: Settings,
) -> Result<(), Diagnostics> {
    let tables = reads.iter().map(|read| (read.registered_as.clone(), read.schema.clone()));
    let is_batch = reads.iter().all(|read| read.mode == ReadMode::Batch);
    rewrite_over(lexed, query, tables.collect(), is_batch, settings)
}

/// Rewrites `query` over `tables`, which are columns by name, in place.
pub(crate) fn rewrite_over(
    lexed: &Lexed,
    query: &mut Query,
    tables: HashMap<String, SchemaRef>,
    is_batch: bool,
    settings: Settings,
) -> Result<(), Diagnostics> {
    let mut rewriter = Rewriter {
        lexed,
        is_batch,
        settings,
        depth: 0,
        is_one_select: false,
        scopes: Scopes::new(tables, settings.names_are_patterns),
        frames: Vec::new(),
        hidden: Vec::new(),
        taken: Vec::new(),
        found: Diagnostics::default(),
        parameters: Vec::new(),
        visited: Vec::new(),
        put_in: Cell::default(),
    };
    let _: ControlFlow<()> = VisitMut::visit(query, &mut rewriter);
    rewriter.found.into_result()
}

struct Rewriter<'a> {
    lexed: &'a Lexed,
    /// No table is read as a stream.
    is_batch: bool,
    settings: Settings,
    /// How many queries the visit is in.
    depth: usize,
    /// The outermost query is one SELECT.
    is_one_select: bool,
    scopes: Scopes,
    /// The frames of the queries being visited, innermost last.
    frames: Vec<Frame>,
    /// Which of them are of a SELECT in whose FROM a subquery is being visited: what stands beside
    /// a subquery is not seen in it. A LATERAL one has a frame of what stands before it instead.
    hidden: Vec<usize>,
    /// WITH clauses taken out of the queries being visited, and how many names were visible.
    taken: Vec<(Option<With>, usize)>,
    found: Diagnostics,
    /// The parameters of the functions `x -> ...` being visited, innermost last.
    parameters: Vec<Vec<String>>,
    /// By SELECT being visited, how many relations of its FROM clause have been.
    visited: Vec<usize>,
    /// How many expressions were put in for aliases.
    put_in: Cell<usize>,
}

impl VisitorMut for Rewriter<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        sorting::into_order(query);
        self.depth += 1;
        let known = self.scopes.ctes.len();
        let mut with = query.with.take();
        for cte in with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            // Columns are named after the text as it was before it is rewritten.
            let (alias, before) = (cte.alias.clone(), cte.query.clone());
            let reads_itself = levels(&alias.name.value).is_some();
            if reads_itself {
                self.scopes.add_cte(&alias, &before);
            }
            VisitMut::visit(&mut cte.query, self)?;
            if !reads_itself {
                self.scopes.add_cte(&alias, &before);
            }
        }
        self.taken.push((with, known));
        if self.is_batch {
            same_names::separate(query);
            commuted::as_keys(query);
            outer_aggregates::into_conditions(query, &mut self.scopes);
        }
        if self.depth == 1 {
            self.is_one_select = matches!(query.body.as_ref(), SetExpr::Select(_));
        }
        if self.is_batch && self.depth == 1 {
            uncovered::name_apart(query, &mut self.scopes);
        }
        if let SetExpr::Select(select) = query.body.as_mut() {
            // What is refused is said where the SELECT itself is visited.
            let _ = self.expand_stars(select);
        }
        let mut frame = self.scopes.frame_of_body(&query.body);
        if let SetExpr::Select(select) = query.body.as_ref() {
            self.complete(select, &mut frame);
        }
        self.found.0.extend(sorting::by_all(self.lexed, query, &frame, &mut self.scopes).err());
        self.frames.push(frame);
        let order = query.order_by.as_ref();
        let order = order.map(|order| blocks::check_order(self.lexed, order, &self.frames));
        self.found.0.extend(order.and_then(Result::err));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        casts::keep_in_values(&mut query.body);
        interval_columns::alike(&mut query.body);
        cast_twins::tell_apart(query);
        self.frames.pop();
        self.depth -= 1;
        if let Some((with, known)) = self.taken.pop() {
            query.with = with;
            self.scopes.ctes.truncate(known);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.found.0.extend(intervals::frames_of(self.lexed, &mut select.named_window));
        let expanded = self.expand_stars(select);
        self.found.0.extend(expanded.err());
        if self.is_batch {
            let made = several_generators::into_views(self.lexed, select, &mut self.scopes);
            self.found.0.extend(made.err());
        }
        let mut frame = self.scopes.frame(select);
        self.complete(select, &mut frame);
        let (result, size) = (self.is_outermost(), &self.put_in);
        self.found.0.extend(lateral_values::put_in(self.lexed, select, &frame, result, size));
        let around: Vec<&Frame> = self.visible().filter(|around| !around.result_first).collect();
        let alias = lateral_alias::check(self.lexed, select, &frame, &around);
        let side = nearest_sides::check(self.lexed, select, &frame, &around);
        self.found.0.extend(alias);
        self.found.0.extend(side);
        self.found.0.extend(self.settings.check_grouping(self.lexed, select, &frame));
        self.found.0.extend(blocks::into_read_form(self.lexed, select, &frame));
        if !select.lateral_views.is_empty() {
            let moved = lateral::into_subquery(self.lexed, select, &mut frame);
            self.found.0.extend(moved.err());
        }
        using::spell_columns(select, &frame);
        using::spell_stars(select, &frame);
        if self.is_batch {
            self.found.0.extend(result_names::check(self.lexed, select, &frame));
            result_names::settle(select, &frame);
            select.having.iter_mut().for_each(blocks::as_condition);
            blocks::having_of_all_rows(select);
            self.found.0.extend(twins::check(self.lexed, select, &frame));
            self.found.0.extend(hidden_sides::check(self.lexed, select, &frame));
            self.found.0.extend(generators::as_key(self.lexed, select, &frame));
            if !self.is_outermost() {
                twins::expand(select, &frame);
            }
        }
        self.frames.push(frame);
        self.visited.push(0);
        let items = std::mem::take(&mut select.projection);
        for item in items {
            match self.item(item) {
                Ok(items) => select.projection.extend(items),
                Err(diagnostic) => self.found.0.push(diagnostic),
            }
        }
        if self.is_batch {
            twins::separate(select, self.frame(), self.is_outermost());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if self.is_batch {
            laterals::name_subqueries(select);
        }
        self.frames.pop();
        self.visited.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { lateral, .. } = factor {
            let before = lateral.then(|| self.before());
            self.hidden.push(self.frames.len().saturating_sub(1));
            self.frames.extend(before);
        }
        // The tables of a join in parentheses are counted one by one.
        let is_one = !matches!(factor, TableFactor::NestedJoin { .. });
        if let Some(visited) = self.visited.last_mut() {
            *visited += usize::from(is_one);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { lateral, .. } = factor {
            self.hidden.pop();
            if *lateral {
                self.frames.pop();
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Lambda(lambda) = expr {
            self.parameters.push(lambda_calls::parameters(lambda));
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
    /// Lets the frame of `select` know what only the rewriter asks of it.
    fn complete(&self, select: &Select, frame: &mut Frame) {
        if self.is_batch {
            frame.doubled = twins::doubled(select, frame);
            let visible = frame.visible.take();
            frame.visible = visible.or_else(|| hidden_sides::visible(select, &frame.relations));
        }
        if self.is_batch || self.is_within() {
            using::merge_columns(select, frame, self.is_within());
        }
    }

    /// Puts columns in the places of `*` where DataFusion does not know it.
    fn expand_stars(&mut self, select: &mut Select) -> Result<(), Diagnostic> {
        let patterns = self.settings.names_are_patterns;
        if !self.scopes.has_files && !stars::are_in(select, patterns) {
            return Ok(());
        }
        let frame = self.scopes.frame(select);
        let around: Vec<&Frame> = self.visible().filter(|around| !around.result_first).collect();
        stars::expand(self.lexed, select, &frame, &around, patterns)
    }

    /// Whether the SELECT being visited makes the rows of the result.
    fn is_outermost(&self) -> bool {
        self.depth == 1 && self.is_one_select
    }

    /// The frames whose columns can be meant, innermost first.
    fn visible(&self) -> impl Iterator<Item = &Frame> {
        // Before the frame of a SELECT stands that of its query.
        let hidden = &self.hidden;
        let is_hidden = move |at: usize| hidden.iter().any(|of| *of == at || *of == at + 1);
        let all = self.frames.iter().enumerate().rev();
        all.filter(move |(at, _)| !is_hidden(*at)).map(|(_, frame)| frame)
    }

    /// What a LATERAL subquery sees of the SELECT in whose FROM it is.
    fn before(&self) -> Frame {
        let count = self.visited.last().copied().unwrap_or(0);
        self.frames.last().map(|frame| frame.before(count)).unwrap_or_default()
    }

    /// Whether a query around the one being visited has columns that a name in it can mean.
    fn is_within(&self) -> bool {
        self.visible().any(|frame| !frame.result_first && !frame.relations.is_empty())
    }

    fn frame(&self) -> &Frame {
        self.frames.last().expect("an item of a SELECT list is in a SELECT")
    }

    /// What a generator's argument is a column of; without FROM, of the query around.
    fn generating(&self) -> &Frame {
        let own = self.frame();
        let around = self.visible().find(|frame| !frame.relations.is_empty());
        around.filter(|_| own.relations.is_empty()).unwrap_or(own)
    }

    /// Gives an item of a SELECT list Spark's name; `struct_column.*` becomes several items.
    fn item(&mut self, item: SelectItem) -> Result<Vec<SelectItem>, Diagnostic> {
        if let Some((expr, names)) = several_generators::generator_of(&item) {
            return generators::items(self.lexed, self.generating(), expr, names);
        }
        let (mut expr, alias) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
            SelectItem::Wildcard(mut options) => {
                wildcards::spell(self.lexed, self.frame(), &mut options)?;
                let all = self.frame().all_items(&options);
                return Ok(all.unwrap_or_else(|| vec![SelectItem::Wildcard(options)]));
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
        structs::of_tuple(self.lexed, self.frames.last(), &mut expr, self.is_batch)?;
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
            _ if parts.len() == 1 && self.frame().stands_for_other(&parts[0]) => String::new(),
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
            let (frame, is_inner) = (self.frame(), self.is_batch && !self.is_outermost());
            let joined = || wildcards::of_natural_join(frame, relation, &options);
            let viewed = wildcards::of_lateral_view(frame, relation, &options, self.is_batch);
            if let Some(items) = viewed.or_else(|| joined().filter(|_| is_inner)) {
                return Ok(items);
            }
            if let Some(spelled) = &relation.name {
                let spelled = Ident { value: spelled.clone(), ..parts[0].clone() };
                name = ObjectName::from(vec![spelled]);
            }
        } else if let Some(DataType::Struct(fields)) =
            self.frame().resolve(&parts).and_then(|found| found.data_type)
        {
            return Ok(wildcards::of_struct(&parts, &fields, &options));
        } else if let Some(items) = laterals::columns_of(&self.frames, &name, &options) {
            return Ok(items);
        } else if let Some(DataType::Struct(fields)) =
            self.outer(&parts).and_then(|found| found.data_type)
        {
            return Ok(wildcards::of_struct(&parts, &fields, &options));
        }
        let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
        Ok(vec![SelectItem::QualifiedWildcard(kind, options)])
    }

    fn expression(&mut self, expr: &mut Expr) -> Result<(), Diagnostic> {
        if let Some(frame) = self.frames.last() {
            in_sight::rewrite(self.lexed, frame, self.settings, expr)?;
        }
        rows::into_structs(expr);
        variant_paths::rewrite(self.lexed, expr)?;
        if let (true, Some(joined)) = (self.is_batch, listagg::distinct_in_order(expr)) {
            *expr = joined;
        }
        if let (true, Some(found)) = (self.is_batch, offsets::with_default_of_row(expr)) {
            *expr = found;
        }
        aggregates::rewrite(self.lexed, expr)?;
        intervals::rewrite(self.lexed, expr, self.is_batch)?;
        time_literals::rewrite(self.lexed, expr, self.is_batch)?;
        lambda_calls::rewrite(self.lexed, expr)?;
        like::rewrite(self.lexed, expr, self.is_batch)?;
        percentiles::rewrite(self.lexed, expr, self.is_batch)?;
        units::rewrite(self.lexed, expr)?;
        operators::of_bits(expr);
        structs::of_tuples(self.lexed, self.frames.last(), expr, self.is_batch)?;
        structs::of_zipped(expr, self.is_batch);
        casts::rewrite(self.lexed, expr)?;
        match expr {
            Expr::Identifier(ident) => match self.merged_value(ident) {
                Some(value) => *expr = value,
                None => match self.below_result(ident)? {
                    Some(column) => *expr = column,
                    None => self.identifier(ident)?,
                },
            },
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
            Expr::Collate { .. } => take(expr, collated),
            Expr::UnaryOp { op: UnaryOperator::Plus | UnaryOperator::Minus, .. } => {
                take(expr, casts::signed);
            }
            Expr::Ceil { field: CeilFloorKind::Scale(_), .. }
            | Expr::Floor { field: CeilFloorKind::Scale(_), .. } => take(expr, rounded),
            Expr::Struct { values, fields } if fields.is_empty() => {
                let values = std::mem::take(values);
                *expr = structs::named_struct(self.lexed, self.frames.last(), values)?;
            }
            Expr::Function(function) if casts::is_bare_column(self.frames.last(), function) => {
                if let Some(mut name) = casts::bare_name(function).cloned() {
                    self.identifier(&mut name)?;
                    *expr = Expr::Identifier(name);
                }
            }
            Expr::Function(function) => {
                self.call(function)?;
                operators::in_other_words(self.lexed, expr, self.is_batch)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn call(&self, function: &mut Function) -> Result<(), Diagnostic> {
        if let Some(name) = generator_name(function) {
            return Err(generators::not_alone(self.lexed, function, &name));
        }
        if function_name(function) == "map" && arguments(function).next().is_none() {
            rename(function, NO_ENTRIES);
        }
        schema_calls::write_out(function);
        intervals::frame_of_call(self.lexed, function)?;
        window_calls::normalise(self.lexed, function)?;
        trimmed_last(function);
        let name = function_name(function);
        if KEEPS_TYPES.contains(&name.as_str()) {
            arguments_mut(function).for_each(as_int);
        }
        Ok(())
    }

    /// What a column that a join has made of two stands for.
    fn merged_value(&self, ident: &Ident) -> Option<Expr> {
        let is_special = |frame: &Frame| frame.visible.is_some() || frame.is_before_lateral;
        if !self.frames.iter().any(is_special) || self.parameter(&ident.value).is_some() {
            return None;
        }
        if let Some(column) = laterals::nearest(self.visible(), ident) {
            return Some(column);
        }
        let knows = |frame: &&Frame| {
            frame.merged_value(&ident.value).is_some()
                || frame.resolve(std::slice::from_ref(ident)).is_some()
                || frame.alias(&ident.value).is_some()
        };
        let frame = self.visible().find(knows)?;
        let is_alias = frame.result_first && frame.alias(&ident.value).is_some();
        frame.merged_value(&ident.value).filter(|_| !is_alias).cloned()
    }

    /// The parameter of a function `x -> ...` that `name` means.
    fn parameter(&self, name: &str) -> Option<&String> {
        let name = name.to_lowercase();
        self.parameters.iter().rev().flatten().find(|parameter| **parameter == name)
    }

    /// The column of FROM that a name in ORDER BY means, since the result has several of the name.
    fn below_result(&self, ident: &Ident) -> Result<Option<Expr>, Diagnostic> {
        match self.frames.last() {
            Some(frame) if self.is_batch && self.parameter(&ident.value).is_none() => {
                twins::below_result(self.lexed, frame, ident)
            }
            _ => Ok(None),
        }
    }

    fn identifier(&self, ident: &mut Ident) -> Result<(), Diagnostic> {
        if let Some(spelled) = self.parameter(&ident.value) {
            ident.value.clone_from(spelled);
            return Ok(());
        }
        words::check(self.lexed, &self.frames, ident)?;
        for frame in self.frames.iter().rev() {
            let alias = frame.alias(&ident.value);
            if self.is_batch && frame.could_be_twins(ident) {
                return Err(twins::ambiguous(self.lexed, std::slice::from_ref(ident)));
            }
            if let Some(alias) = alias.filter(|_| frame.result_first) {
                ident.value = alias.to_owned();
                return Ok(());
            }
            if let [first, second, ..] = frame.ambiguous(&ident.value).as_slice() {
                return Err(twins::of_both(self.lexed, ident, [first, second]));
            }
            let found = frame.resolve(std::slice::from_ref(ident)).map(|it| it.parts[0].clone());
            if let Some(spelled) = found.or_else(|| alias.map(str::to_owned)) {
                ident.value = spelled;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Gives a path its declared spelling; one that DataFusion does not read becomes calls.
    fn compound(&self, parts: &mut Vec<Ident>) -> Result<Option<Expr>, Diagnostic> {
        if let Some(spelled) = self.parameter(&parts[0].value) {
            let parameter = Expr::Identifier(quoted_ident(spelled.clone(), parts[0].span));
            return Ok(Some(nested_calls("get_field", parameter, parts.split_off(1))));
        }
        let mut frames = self.frames.iter().rev();
        let found = frames.find_map(|frame| frame.resolve(parts).map(|found| (frame, found)));
        let Some((frame, found)) = found else {
            let own = schema_names::before(self.lexed, &self.frames, parts)?;
            parts.drain(..own);
            return if own > 0 { self.compound(parts) } else { Ok(None) };
        };
        if self.is_batch && frame.means_twins(parts) {
            return Err(twins::ambiguous(self.lexed, parts));
        }
        if let Some((at, known)) = &found.wrong_field {
            let (part, of) = (&parts[*at], &found.parts[*at - 1]);
            return Err(wrong_fields::refused(self.lexed, part, of, known));
        }
        // The name of a column that says of which file a row is has fewer parts.
        parts.truncate(found.parts.len());
        for (part, spelled) in parts.iter_mut().zip(found.parts) {
            part.value = spelled;
        }
        Ok(paths::in_calls(&self.frames, frame, parts, found.array_at))
    }
}
