//! Which columns an expression can see, to spell names as they are declared.
//!
//! Spark ignores the case of names, DataFusion does not. So names are looked up here, and spelled
//! as the column, alias or table they can only mean. A name that is not found, or that could mean
//! two things, stays as it is: DataFusion then says what is wrong with it.

use std::collections::HashMap;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, LateralView, ObjectName, ObjectNamePart, Query,
    Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor,
    TableWithJoins, WildcardAdditionalOptions,
};

use super::generators;
use super::naming::item_name;
use super::rewrite::generator;
use super::shapes;
use super::types::list_of;
use super::window_calls;

/// A column by name; its type where it is known, to look into structs.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) data_type: Option<DataType>,
}

/// Something in FROM.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    pub(super) name: Option<String>,
    /// `None` where the columns cannot be told from the text.
    pub(super) columns: Option<Vec<Column>>,
    /// The relation whose column it has become, for a lateral view.
    pub(super) within: Option<String>,
}

/// What one part of a query sees.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub(super) relations: Vec<Relation>,
    /// Names that the SELECT list gives.
    pub(super) aliases: Vec<String>,
    /// The names of the result come before the relations' columns, as for ORDER BY.
    pub(super) result_first: bool,
    /// Columns that joins make one of; `None` where they cannot be told (NATURAL JOIN).
    pub(super) merged: Option<Vec<String>>,
    /// The window of event time that the block groups by, as a call.
    pub(super) window: Option<Expr>,
}

/// A name as declared.
pub(super) struct Resolved {
    /// The parts, spelled as declared.
    pub(super) parts: Vec<String>,
    /// It goes into a struct, so its last part is a field, not a column.
    pub(super) is_field: bool,
    /// Its type, where known.
    pub(super) data_type: Option<DataType>,
    /// The first part that is no field of what comes before, and the type of that.
    pub(super) wrong_field: Option<(usize, DataType)>,
    /// How many parts name an array of structs, where the next one is a field of its elements.
    pub(super) array_at: Option<usize>,
}

/// Columns of what a query can name.
pub(super) struct Scopes {
    tables: HashMap<String, SchemaRef>,
    /// Common table expressions in sight, innermost last.
    pub(super) ctes: Vec<(String, Option<Vec<Column>>)>,
}

impl Scopes {
    /// `tables` are the columns of what is read, by registered name.
    pub(super) fn new(tables: HashMap<String, SchemaRef>) -> Self {
        Self { tables, ctes: Vec::new() }
    }

    /// The relations of a FROM clause.
    pub(super) fn relations(&mut self, from: &[TableWithJoins]) -> Vec<Relation> {
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
        relations.push(aliased(name, alias.as_ref(), columns));
    }

    fn table(&self, name: &str) -> Option<Vec<Column>> {
        let cte = self.ctes.iter().rev().find(|(known, _)| known == name);
        if let Some((_, columns)) = cte {
            return columns.clone();
        }
        let columns = self.tables.get(name)?.fields().iter().map(|field| Column {
            name: field.name().clone(),
            data_type: Some(field.data_type().clone()),
        });
        Some(columns.collect())
    }

    /// Adds the columns of a common table expression.
    pub(super) fn add_cte(&mut self, alias: &TableAlias, query: &Query) {
        let columns = self.columns_of_query(query);
        let relation = aliased(None, Some(alias), columns);
        self.ctes.push((alias.name.value.clone(), relation.columns));
    }

    /// The columns of a query's result, where they can be told from its text.
    pub(super) fn columns_of_query(&mut self, query: &Query) -> Option<Vec<Column>> {
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
            SetExpr::SetOperation { left, .. } => self.columns_of_body(left),
            _ => None,
        }
    }

    fn columns_of_select(&mut self, select: &Select) -> Option<Vec<Column>> {
        let frame = self.frame(select);
        let mut columns = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(options) => {
                    // The columns of a lateral view are its relation's already, or come last.
                    for relation in &frame.relations {
                        let all = relation.columns.as_ref()?;
                        columns.extend(all.iter().filter(|one| !excepted(options, one)).cloned());
                    }
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    options,
                ) => {
                    let all = frame.wildcard(name)?;
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
                    columns.push(Column { name: item_name(item)?, data_type });
                }
            }
        }
        Some(columns)
    }

    /// What the expressions of a SELECT see.
    pub(super) fn frame(&mut self, select: &Select) -> Frame {
        let relations = self.relations(&select.from);
        let window = window_calls::grouped_window(select);
        let merged = merged(&select.from);
        let mut frame = Frame { relations, merged, window, ..Frame::default() };
        for view in &select.lateral_views {
            let relation = lateral_relation(&frame, view, None);
            frame.relations.push(relation);
        }
        let names = |item: &SelectItem| match generated(&frame, item) {
            Some(columns) => columns.into_iter().map(|column| column.name).collect(),
            None => Vec::from_iter(item_name(item)),
        };
        frame.aliases = select.projection.iter().flat_map(names).collect();
        frame
    }

    /// What ORDER BY sees: the first SELECT's relations and the names of the result.
    pub(super) fn frame_of_body(&mut self, body: &SetExpr) -> Frame {
        match body {
            SetExpr::Select(select) => Frame { result_first: true, ..self.frame(select) },
            SetExpr::Query(query) => {
                let columns = self.columns_of_query(query).unwrap_or_default();
                let aliases = columns.into_iter().map(|column| column.name).collect();
                Frame { aliases, ..Frame::default() }
            }
            SetExpr::SetOperation { left, .. } => {
                let aliases = self.frame_of_body(left).aliases;
                Frame { aliases, ..Frame::default() }
            }
            _ => Frame::default(),
        }
    }
}

/// The relation of a lateral view; `within` is the relation that has its column.
pub(super) fn lateral_relation(
    frame: &Frame,
    view: &LateralView,
    within: Option<String>,
) -> Relation {
    let names = view.lateral_col_alias.as_slice();
    let columns = generators::columns(frame, &view.lateral_view, names).unwrap_or_else(|| {
        let names = names.iter().map(|name| name.value.clone());
        names.map(|name| Column { name, data_type: None }).collect()
    });
    Relation { name: one_part(&view.lateral_view_name), columns: Some(columns), within }
}

impl Frame {
    /// The relation called `name`, whatever its case.
    pub(super) fn relation(&self, name: &str) -> Option<&Relation> {
        let own = |relation: &&Relation| {
            relation.name.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(name))
        };
        self.relations.iter().find(own)
    }

    /// Looks a name of one or more parts up.
    pub(super) fn resolve(&self, parts: &[Ident]) -> Option<Resolved> {
        let (first, rest) = parts.split_first()?;
        if let (Some(relation), Some((column, fields))) =
            (self.relation(&first.value), rest.split_first())
        {
            let found = spelled(relation.columns.iter().flatten(), &column.value);
            let qualifier = relation.within.as_ref().or(relation.name.as_ref())?;
            return match found {
                Some(found) => Some(into_fields(vec![qualifier.clone()], found, fields)),
                None if relation.columns.is_none() || relation.within.is_none() => {
                    let rest = rest.iter().map(|part| part.value.clone());
                    let parts = std::iter::once(qualifier.clone()).chain(rest).collect();
                    let is_field = !fields.is_empty();
                    let (data_type, wrong_field, array_at) = (None, None, None);
                    Some(Resolved { parts, is_field, data_type, wrong_field, array_at })
                }
                None => None,
            };
        }
        let all = self.relations.iter().flat_map(|relation| relation.columns.iter().flatten());
        let found = spelled(all, &first.value)?;
        Some(into_fields(Vec::new(), found, rest))
    }

    /// The columns of `name.*`: of a relation, or of a struct.
    fn wildcard(&self, name: &ObjectName) -> Option<Vec<Column>> {
        if let Some(relation) = one_part(name).and_then(|name| self.relation(&name)) {
            return relation.columns.clone();
        }
        let parts: Vec<Ident> = name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
        let DataType::Struct(fields) = self.resolve(&parts)?.data_type? else { return None };
        let fields = fields.iter().map(|field| Column {
            name: field.name().clone(),
            data_type: known(field.data_type().clone()),
        });
        Some(fields.collect())
    }

    /// The relations that have a column called `name`, where a name alone can mean any of them.
    pub(super) fn ambiguous(&self, name: &str) -> Vec<String> {
        let named = |own: &str| own.eq_ignore_ascii_case(name);
        if self.merged.as_ref().is_none_or(|merged| merged.iter().any(|one| named(one))) {
            return Vec::new();
        }
        let has = |relation: &&Relation| {
            relation.columns.iter().flatten().any(|column| named(&column.name))
        };
        let having: Vec<&Relation> = self.relations.iter().filter(has).collect();
        match having.len() {
            0 | 1 => Vec::new(),
            _ => having.iter().filter_map(|relation| relation.name.clone()).collect(),
        }
    }

    /// The alias of the SELECT list called `name`, whatever its case.
    pub(super) fn alias(&self, name: &str) -> Option<&str> {
        unique(self.aliases.iter().map(String::as_str), name)
    }

    /// The window that the block groups by, where the name `parts` means it.
    pub(super) fn group_window(&self, parts: &[Ident]) -> Option<&Expr> {
        let window = self.window.as_ref()?;
        let name = window_calls::window_name(window)?;
        let is_meant = parts.first()?.value.eq_ignore_ascii_case(name);
        (is_meant && self.resolve(parts).is_none()).then_some(window)
    }

    /// The type of a column, a field or a window, where it is known.
    pub(super) fn data_type(&self, expr: &Expr) -> Option<DataType> {
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
        match constraint(&join.join_operator) {
            Some(JoinConstraint::Using(columns)) => {
                names.extend(columns.iter().filter_map(one_part))
            }
            Some(JoinConstraint::Natural) => return None,
            _ => {}
        }
    }
    Some(names)
}

/// The condition of a join that has one.
fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::Semi(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::Anti(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightAnti(constraint) => Some(constraint),
        _ => None,
    }
}

fn aliased(
    name: Option<String>,
    alias: Option<&TableAlias>,
    mut columns: Option<Vec<Column>>,
) -> Relation {
    let Some(alias) = alias else { return Relation { name, columns, within: None } };
    if !alias.columns.is_empty() {
        let types = columns.unwrap_or_default();
        let names = alias.columns.iter().enumerate();
        let renamed = names.map(|(index, column)| Column {
            name: column.name.value.clone(),
            data_type: types.get(index).and_then(|column| column.data_type.clone()),
        });
        columns = Some(renamed.collect());
    }
    Relation { name: Some(alias.name.value.clone()), columns, within: None }
}

/// The column that `name` can only mean.
fn spelled<'a>(columns: impl Iterator<Item = &'a Column>, name: &str) -> Option<&'a Column> {
    let near: Vec<&Column> =
        columns.filter(|column| column.name.eq_ignore_ascii_case(name)).collect();
    let exact = near.iter().find(|column| column.name == name);
    let first = near.first()?;
    let same = near.iter().all(|column| column.name == first.name);
    exact.or(same.then_some(first)).copied()
}

fn unique<'a>(names: impl Iterator<Item = &'a str> + Clone, name: &str) -> Option<&'a str> {
    let mut near = names.clone().filter(|known| known.eq_ignore_ascii_case(name));
    let first = near.next()?;
    let exact = names.clone().find(|known| *known == name);
    exact.or(near.all(|other| other == first).then_some(first))
}

/// Goes on from a column into the fields of its struct.
fn into_fields(mut parts: Vec<String>, column: &Column, fields: &[Ident]) -> Resolved {
    parts.push(column.name.clone());
    let mut data_type = column.data_type.clone().and_then(known);
    let (mut wrong_field, mut array_at) = (None, None);
    for field in fields {
        // A field of an array of structs is the array of their fields.
        let structs = match &data_type {
            Some(DataType::List(item)) if matches!(item.data_type(), DataType::Struct(_)) => {
                array_at.get_or_insert(parts.len());
                Some(item.data_type().clone())
            }
            _ => None,
        };
        let is_array = structs.is_some();
        let of = structs.or(data_type.take());
        let found = match &of {
            Some(DataType::Struct(known)) => {
                let names = known.iter().map(|field| field.name().as_str());
                let name = unique(names, &field.value).map(str::to_owned);
                name.and_then(|name| known.find(&name).map(|(_, field)| field.clone()))
            }
            _ => None,
        };
        // A map's values are found by name as well.
        if found.is_none()
            && wrong_field.is_none()
            && let Some(known) = of.filter(|it| !matches!(it, DataType::Map(..)))
        {
            wrong_field = Some((parts.len(), known));
        }
        parts.push(found.as_ref().map_or(field.value.clone(), |found| found.name().clone()));
        let found = found.map(|found| found.data_type().clone());
        data_type = found.map(|found| if is_array { list_of(found) } else { found });
        data_type = data_type.and_then(known);
    }
    Resolved { parts, is_field: !fields.is_empty(), data_type, wrong_field, array_at }
}

/// A type, unless the text does not tell it.
fn known(data_type: DataType) -> Option<DataType> {
    let is_unknown = match &data_type {
        DataType::List(item) => item.data_type().is_null(),
        other => other.is_null(),
    };
    (!is_unknown).then_some(data_type)
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

fn excepted(options: &WildcardAdditionalOptions, column: &Column) -> bool {
    options.opt_except.as_ref().is_some_and(|except| {
        std::iter::once(&except.first_element)
            .chain(&except.additional_elements)
            .any(|name| name.value.eq_ignore_ascii_case(&column.name))
    })
}

pub(super) fn item_expr(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

pub(super) fn one_part(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Some(ident.value.clone()),
        _ => None,
    }
}
