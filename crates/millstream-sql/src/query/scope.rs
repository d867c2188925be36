//! Finds the columns that an expression can see, so that names are spelled as declared.
//!
//! Spark ignores the case of names, DataFusion does not. So names are looked up here, and spelled
//! as the column, alias or table they can only mean. A name that is not found, or that could mean
//! two things, stays unchanged: DataFusion then reports it.

use std::collections::{HashMap, HashSet};

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, LateralView, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, Values,
    WildcardAdditionalOptions,
};

use super::ast::{generator, item_expr, one_part};
use super::frame::{Column, Frame, Relation};
use super::naming::item_name;
use super::wildcards::{excepted, replacement};
use super::{
    file_metadata, generators, grouping, shapes, stars, twins, using, window_calls, words,
};

/// The columns of the tables that a query can name.
pub(crate) struct Scopes {
    tables: HashMap<String, SchemaRef>,
    /// Visible common table expressions, innermost last.
    pub(crate) ctes: Vec<(String, Option<Vec<Column>>)>,
    /// How many names were made.
    numbers: usize,
    /// Names in backticks are patterns.
    patterns: bool,
    /// Some of the tables have hidden columns.
    pub(crate) has_files: bool,
}

impl Scopes {
    /// `tables` are the columns of what is read, by registered name; `patterns` says whether names
    /// in backticks are patterns.
    pub(crate) fn new(tables: HashMap<String, SchemaRef>, patterns: bool) -> Self {
        let has_files = tables.values().any(|schema| file_metadata::is_in(schema));
        Self { tables, ctes: Vec::new(), numbers: 0, patterns, has_files }
    }

    /// A number for names that no query has, another one each time.
    pub(crate) fn next_number(&mut self) -> usize {
        self.numbers += 1;
        self.numbers
    }

    /// The relations of a FROM clause.
    pub(crate) fn relations(&mut self, from: &[TableWithJoins]) -> Vec<Relation> {
        let mut relations = Vec::new();
        for tables in from {
            self.add_tables(tables, &mut relations);
        }
        relations
    }

    fn add_tables(&mut self, tables: &TableWithJoins, relations: &mut Vec<Relation>) {
        self.add(&tables.relation, relations);
        for join in &tables.joins {
            self.add(&join.relation, relations);
        }
    }

    fn add(&mut self, factor: &TableFactor, relations: &mut Vec<Relation>) {
        let (name, alias, columns) = match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let name = one_part(name);
                (name.clone(), alias, name.and_then(|name| self.table(&name)))
            }
            TableFactor::Derived { subquery, alias, .. } => {
                (None, alias, self.columns_of_query(subquery))
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                return self.add_tables(table_with_joins, relations);
            }
            TableFactor::Table { alias, .. }
            | TableFactor::NestedJoin { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::Pivot { alias, .. }
            | TableFactor::Unpivot { alias, .. } => (None, alias, None),
            _ => (None, &None, None),
        };
        let relation = aliased(name, alias.as_ref(), columns);
        relations.push(Relation { has_files: self.is_of_files(factor), ..relation });
    }

    /// Whether the rows of a relation are those of files that the query asks for.
    fn is_of_files(&self, factor: &TableFactor) -> bool {
        let TableFactor::Table { name, args: None, .. } = factor else { return false };
        let Some(name) = one_part(name) else { return false };
        let is_table = self.has_files && !self.ctes.iter().any(|(known, _)| *known == name);
        is_table && self.tables.get(&name).is_some_and(|schema| file_metadata::is_in(schema))
    }

    fn table(&self, name: &str) -> Option<Vec<Column>> {
        let cte = self.ctes.iter().rev().find(|(known, _)| known == name);
        if let Some((_, columns)) = cte {
            return columns.clone();
        }
        let columns = self
            .tables
            .get(name)?
            .fields()
            .iter()
            .filter(|field| file_metadata::field_of(field.name()).is_none())
            .map(|field| Column::new(field.name().clone(), Some(field.data_type().clone())));
        Some(columns.collect())
    }

    /// Adds the columns of a common table expression.
    pub(crate) fn add_cte(&mut self, alias: &TableAlias, query: &Query) {
        let columns = self.columns_of_query(query);
        let relation = aliased(None, Some(alias), columns);
        self.ctes.push((alias.name.value.clone(), relation.columns));
    }

    /// The columns of a query's result, where its text determines them.
    pub(crate) fn columns_of_query(&mut self, query: &Query) -> Option<Vec<Column>> {
        let known = self.ctes.len();
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.add_cte(&cte.alias, &cte.query);
        }
        let columns = self.columns_of_body(&query.body);
        self.ctes.truncate(known);
        columns
    }

    fn columns_of_body(&mut self, body: &SetExpr) -> Option<Vec<Column>> {
        match body {
            SetExpr::Select(select) => self.columns_of_select(select),
            SetExpr::Query(query) => self.columns_of_query(query),
            SetExpr::SetOperation { left, right, .. } => {
                let columns = self.columns_of_body(left)?;
                Some(self.again_in_both(columns, right))
            }
            SetExpr::Values(values) => Some(columns_of_values(values)),
            _ => None,
        }
    }

    /// The columns of a set operation: those of its left side, of which one is another one again
    /// where it is so on the right side, too.
    fn again_in_both(&mut self, mut columns: Vec<Column>, right: &SetExpr) -> Vec<Column> {
        if columns.iter().any(|column| column.is_again) {
            let right = self.columns_of_body(right).unwrap_or_default();
            for (at, column) in columns.iter_mut().enumerate() {
                column.is_again &= right.get(at).is_some_and(|column| column.is_again);
            }
        }
        columns
    }

    fn columns_of_select(&mut self, select: &Select) -> Option<Vec<Column>> {
        let frame = self.frame(select);
        let (mut columns, mut plain) = (Vec::new(), HashSet::new());
        for item in &select.projection {
            match item {
                // The columns come with the visit of the SELECT itself.
                item if stars::is_several(item, self.patterns) => return None,
                SelectItem::Wildcard(options) if using::merges(&select.from) => {
                    let all = using::joined(&select.from, &frame.relations)?.columns;
                    let kept = all.iter().map(|one| &one.column);
                    let kept = kept.filter(|one| !excepted(options, one));
                    columns.extend(kept.map(|one| replaced(options, &frame, one)));
                }
                SelectItem::Wildcard(options) => {
                    // The columns of a lateral view are its relation's already, or come last.
                    for relation in twins::shown_relations(select, &frame.relations)? {
                        let all = relation.columns.as_ref()?;
                        let kept = all.iter().filter(|one| !excepted(options, one));
                        columns.extend(kept.map(|one| replaced(options, &frame, one)));
                    }
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    options,
                ) => {
                    let table = one_part(name);
                    let joined = table
                        .and_then(|table| using::of_table(&select.from, &frame.relations, &table));
                    let joined = joined.filter(|columns| !columns.is_empty());
                    let all = joined.or_else(|| frame.wildcard(name))?;
                    columns.extend(all.into_iter().filter(|one| !excepted(options, one)));
                }
                SelectItem::QualifiedWildcard(..) => return None,
                SelectItem::ExprWithAliases { expr, aliases } => {
                    columns.extend(generators::columns(&frame, expr, aliases)?);
                }
                item if item_expr(item).is_some_and(|expr| generator(expr).is_some()) => {
                    columns.extend(generated(&frame, item)?);
                }
                item => {
                    let data_type = item_expr(item).and_then(|expr| frame.data_type(expr));
                    let is_again = !plain.insert(twins::plain_column(item, &frame, columns.len()));
                    columns.push(Column { name: item_name(item)?, data_type, is_again });
                }
            }
        }
        Some(columns)
    }

    /// The frame that the expressions of a SELECT see.
    pub(crate) fn frame(&mut self, select: &Select) -> Frame {
        let relations = self.relations(&select.from);
        let window = window_calls::grouped_window(select);
        let merged = merged(&select.from);
        let visible = using::read_otherwise(select, &relations);
        let grouping = grouping::columns(select);
        let mut frame = Frame { relations, merged, visible, grouping, window, ..Frame::default() };
        for view in &select.lateral_views {
            let relation = lateral_relation(&frame, view, None);
            frame.relations.push(relation);
        }
        let names = |item: &SelectItem| match generated(&frame, item) {
            Some(columns) => columns.into_iter().map(|column| column.name).collect(),
            None if words::is_alone(item) => Vec::new(),
            None => Vec::from_iter(item_name(item)),
        };
        frame.aliases = select.projection.iter().flat_map(names).collect();
        frame
    }

    /// The frame that ORDER BY sees: the first SELECT's relations and the names of the result.
    pub(crate) fn frame_of_body(&mut self, body: &SetExpr) -> Frame {
        match body {
            SetExpr::Select(select) => Frame { result_first: true, ..self.frame(select) },
            SetExpr::Query(query) => {
                let columns = self.columns_of_query(query).unwrap_or_default();
                let aliases: Vec<String> = columns.into_iter().map(|column| column.name).collect();
                let doubled = twins::repeated(&aliases);
                Frame { aliases, doubled, ..Frame::default() }
            }
            SetExpr::SetOperation { left, .. } => {
                let mut frame = self.frame_of_body(left);
                if let SetExpr::Select(select) = left.as_ref() {
                    frame.doubled = twins::doubled(select, &frame);
                }
                let Frame { aliases, mut doubled, .. } = frame;
                doubled.extend(twins::repeated(&aliases));
                Frame { aliases, doubled, ..Frame::default() }
            }
            _ => Frame::default(),
        }
    }
}

/// The columns of an inline table, with the types of those that are structs alike in all rows, or
/// arrays of such structs.
fn columns_of_values(values: &Values) -> Vec<Column> {
    let frame = Frame::default();
    let width = values.rows.first().map_or(0, |row| row.content.len());
    let columns = (0..width).map(|at| {
        let types = values.rows.iter().map(|row| frame.data_type(row.content.get(at)?));
        let mut types = types.map(|data_type| data_type.filter(|of| of.is_nested()));
        let first = types.next().flatten();
        let is_one = match &first {
            Some(DataType::Struct(_)) => types.all(|of| of == first),
            Some(DataType::List(item)) if matches!(item.data_type(), DataType::Struct(_)) => {
                types.all(|of| of == first || is_without_items(of.as_ref()))
            }
            _ => false,
        };
        Column::new(format!("col{}", at + 1), first.filter(|_| is_one))
    });
    columns.collect()
}

/// Whether a value in a column of arrays is `array()`, or not known to have items, as NULL is.
fn is_without_items(data_type: Option<&DataType>) -> bool {
    match data_type {
        None => true,
        Some(DataType::List(item)) => item.data_type().is_null(),
        Some(_) => false,
    }
}

/// The relation of a lateral view; `within` is the relation that has its column.
pub(crate) fn lateral_relation(
    frame: &Frame,
    view: &LateralView,
    within: Option<String>,
) -> Relation {
    let names = view.lateral_col_alias.as_slice();
    let columns = generators::columns(frame, &view.lateral_view, names).unwrap_or_else(|| {
        let names = names.iter().map(|name| name.value.clone());
        names.map(|name| Column::new(name, None)).collect()
    });
    let name = one_part(&view.lateral_view_name);
    Relation { name, columns: Some(columns), within, has_files: false }
}

impl Frame {
    /// The window that the block groups by, where the name `parts` means it.
    pub(crate) fn group_window(&self, parts: &[Ident]) -> Option<&Expr> {
        let window = self.window.as_ref()?;
        let name = window_calls::window_name(window)?;
        let is_meant = parts.first()?.value.eq_ignore_ascii_case(name);
        (is_meant && self.resolve(parts).is_none()).then_some(window)
    }

    /// The type of a column, a field or a window, where it is known.
    pub(crate) fn data_type(&self, expr: &Expr) -> Option<DataType> {
        match expr {
            Expr::Identifier(ident) => match self.resolve(std::slice::from_ref(ident)) {
                Some(found) => found.data_type,
                None => {
                    window_calls::type_of(self.group_window(std::slice::from_ref(ident))?, self)
                }
            },
            Expr::CompoundIdentifier(parts) => self.resolve(parts)?.data_type,
            Expr::Nested(inner) => self.data_type(inner),
            Expr::Function(_) => {
                window_calls::type_of(expr, self).or_else(|| shapes::type_of(self, expr))
            }
            other => shapes::type_of(self, other),
        }
    }
}

/// The columns that USING makes one of.
fn merged(from: &[TableWithJoins]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for join in from.iter().flat_map(|tables| &tables.joins) {
        match join_constraint!(&join.join_operator) {
            Some(JoinConstraint::Using(columns)) => {
                names.extend(columns.iter().filter_map(one_part))
            }
            Some(JoinConstraint::Natural) => return None,
            _ => {}
        }
    }
    Some(names)
}

fn aliased(
    name: Option<String>,
    alias: Option<&TableAlias>,
    mut columns: Option<Vec<Column>>,
) -> Relation {
    let Some(alias) = alias else { return plain_relation(name, columns) };
    if !alias.columns.is_empty() {
        let types = columns.unwrap_or_default();
        let names = alias.columns.iter().enumerate();
        let renamed = names.map(|(index, column)| {
            let data_type = types.get(index).and_then(|column| column.data_type.clone());
            Column::new(column.name.value.clone(), data_type)
        });
        columns = Some(renamed.collect());
    }
    plain_relation(Some(alias.name.value.clone()), columns)
}

/// A relation as it stands in FROM, called `name` if it has a name.
fn plain_relation(name: Option<String>, columns: Option<Vec<Column>>) -> Relation {
    Relation { name, columns, within: None, has_files: false }
}

/// The columns of an item that is a generator.
fn generated(frame: &Frame, item: &SelectItem) -> Option<Vec<Column>> {
    match item {
        SelectItem::UnnamedExpr(expr) => generators::columns(frame, expr, &[]),
        SelectItem::ExprWithAlias { expr, alias } => {
            generators::columns(frame, expr, std::slice::from_ref(alias))
        }
        SelectItem::ExprWithAliases { expr, aliases } => generators::columns(frame, expr, aliases),
        _ => None,
    }
}

/// A column of `*`, with another type where an expression takes its place.
fn replaced(options: &WildcardAdditionalOptions, frame: &Frame, column: &Column) -> Column {
    match replacement(options, &column.name) {
        Some(expr) => Column::new(column.name.clone(), frame.data_type(expr)),
        None => column.clone(),
    }
}
