//! What one part of a query sees: relations, their columns, and the names of its own result.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{Expr, Ident, ObjectName};

use super::ast::one_part;
use super::file_metadata;
use crate::types::{is_variant, list_of};

/// A column by name; its type where it is known, to look into structs.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) data_type: Option<DataType>,
    /// It is the same column as one before it, selected again under its name, so that the name can
    /// only mean that one.
    pub(crate) is_again: bool,
}

impl Column {
    /// A column that is no other one again.
    pub(crate) fn new(name: String, data_type: Option<DataType>) -> Self {
        Self { name, data_type, is_again: false }
    }
}

/// Something in FROM.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    pub(crate) name: Option<String>,
    /// `None` where the text does not determine the columns.
    pub(crate) columns: Option<Vec<Column>>,
    /// The relation whose column it has become, for a lateral view.
    pub(crate) within: Option<String>,
    /// It has hidden columns that say of which file a row is.
    pub(crate) has_files: bool,
}

/// A column that a name alone, or `*`, stands for.
#[derive(Clone, Debug)]
pub(crate) struct Visible {
    /// Its name and type.
    pub(crate) column: Column,
    /// What it is.
    pub(crate) value: Expr,
    /// Whether a join has made it of two.
    pub(crate) is_merged: bool,
}

/// What one part of a query sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    pub(crate) relations: Vec<Relation>,
    /// Names that the SELECT list gives.
    pub(crate) aliases: Vec<String>,
    /// Those that it gives to several columns, which are not the same one. For a SELECT they are
    /// put in by the rewriter of a batch query, as nothing else asks for them.
    pub(crate) doubled: Vec<String>,
    /// True where names of the result override the relations' columns, as in ORDER BY.
    pub(crate) result_first: bool,
    /// Columns that joins merge; `None` where the text does not determine them (NATURAL JOIN).
    pub(crate) merged: Option<Vec<String>>,
    /// What names and `*` stand for, where joins make columns that DataFusion would not.
    pub(crate) visible: Option<Vec<Visible>>,
    /// What the block groups by, where that is several sets of columns.
    pub(crate) grouping: Option<Vec<Expr>>,
    /// The window of event time that the block groups by, as a call.
    pub(crate) window: Option<Expr>,
    /// It is what a LATERAL subquery sees of the query that it is in.
    pub(crate) is_before_lateral: bool,
}

/// A name as declared.
pub(crate) struct Resolved {
    /// The parts, spelled as declared.
    pub(crate) parts: Vec<String>,
    /// True where its last part is a field of a struct, not a column.
    pub(crate) is_field: bool,
    /// Its type, where known.
    pub(crate) data_type: Option<DataType>,
    /// The first part that is no field of what comes before, and the type of that.
    pub(crate) wrong_field: Option<(usize, DataType)>,
    /// How many parts name an array of structs, where the next one is a field of its elements.
    pub(crate) array_at: Option<usize>,
}

impl Frame {
    /// What a LATERAL subquery sees behind `count` relations.
    pub(crate) fn before(&self, count: usize) -> Self {
        let relations = self.relations.iter().take(count).cloned().collect();
        let (merged, visible) = (self.merged.clone(), self.visible.clone());
        Self { relations, merged, visible, is_before_lateral: true, ..Self::default() }
    }

    /// The relation called `name`, whatever its case.
    pub(crate) fn relation(&self, name: &str) -> Option<&Relation> {
        let own = |relation: &&Relation| {
            relation.name.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(name))
        };
        self.relations.iter().find(own)
    }

    /// Looks a name of one or more parts up.
    pub(crate) fn resolve(&self, parts: &[Ident]) -> Option<Resolved> {
        if let Some(found) = self.of_file(parts) {
            return Some(found);
        }
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

    /// The hidden column that `_metadata.file_name` or `t._metadata.file_name` means.
    fn of_file(&self, parts: &[Ident]) -> Option<Resolved> {
        let is_asked = |name: &Ident| name.value.eq_ignore_ascii_case(file_metadata::NAME);
        let (relation, field) = match parts {
            [name, field] if is_asked(name) => {
                let mut columns =
                    self.relations.iter().flat_map(|one| one.columns.iter().flatten());
                let mut of_files = self.relations.iter().filter(|one| one.has_files);
                let only = of_files.next().filter(|_| of_files.next().is_none())?;
                let is_other = columns.any(|one| one.name.eq_ignore_ascii_case(&name.value));
                (Some(only).filter(|_| !is_other)?, field)
            }
            [table, name, field] if is_asked(name) => {
                (self.relation(&table.value).filter(|one| one.has_files)?, field)
            }
            _ => return None,
        };
        let (column, data_type) = file_metadata::hidden(&field.value)?;
        let (parts, data_type) = (vec![relation.name.clone()?, column], Some(data_type));
        Some(Resolved { parts, is_field: true, data_type, wrong_field: None, array_at: None })
    }

    /// The columns of `name.*`: of a relation, or of a struct.
    pub(super) fn wildcard(&self, name: &ObjectName) -> Option<Vec<Column>> {
        if let Some(relation) = one_part(name).and_then(|name| self.relation(&name)) {
            return relation.columns.clone();
        }
        let parts: Vec<Ident> = name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
        let DataType::Struct(fields) = self.resolve(&parts)?.data_type? else { return None };
        let fields = fields
            .iter()
            .map(|field| Column::new(field.name().clone(), known(field.data_type().clone())));
        Some(fields.collect())
    }

    /// The relations that have a column called `name`, where a name alone can mean any of them.
    pub(crate) fn ambiguous(&self, name: &str) -> Vec<String> {
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

    /// What a column that a join has made of two stands for, where no other has its name.
    pub(crate) fn merged_value(&self, name: &str) -> Option<&Expr> {
        let visible = self.visible.iter().flatten();
        let mut named = visible.filter(|one| one.column.name.eq_ignore_ascii_case(name));
        let first = named.next().filter(|one| one.is_merged)?;
        named.next().is_none().then_some(&first.value)
    }

    /// The alias of the SELECT list called `name`, whatever its case.
    pub(crate) fn alias(&self, name: &str) -> Option<&str> {
        unique(self.aliases.iter().map(String::as_str), name)
    }
}

/// The column that `name` can only mean.
fn spelled<'a>(columns: impl Iterator<Item = &'a Column>, name: &str) -> Option<&'a Column> {
    let near: Vec<&Column> =
        columns.filter(|column| column.name.eq_ignore_ascii_case(name)).collect();
    let exact = near.iter().find(|column| column.name == name);
    let first = near.first()?;
    let same = near.iter().all(|column| column.is_again || column.name == first.name);
    exact.or(same.then_some(first)).copied()
}

fn unique<'a>(names: impl Iterator<Item = &'a str> + Clone, name: &str) -> Option<&'a str> {
    let mut near = names.clone().filter(|known| known.eq_ignore_ascii_case(name));
    let first = near.next()?;
    let exact = names.clone().find(|known| *known == name);
    exact.or(near.all(|other| other == first).then_some(first))
}

/// Resolves the parts after a column as fields of its struct.
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
                let is_one = |name: &&str| known.iter().filter(|of| of.name() == name).count() == 1;
                let name = unique(names, &field.value).filter(is_one).map(str::to_owned);
                name.and_then(|name| known.find(&name).map(|(_, field)| field.clone()))
            }
            _ => None,
        };
        // A map's values are found by name as well, if their keys are texts.
        if found.is_none()
            && wrong_field.is_none()
            && let Some(known) = of.filter(|of| !has_text_keys(of))
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

fn has_text_keys(data_type: &DataType) -> bool {
    let DataType::Map(entries, _) = data_type else { return false };
    match entries.data_type() {
        DataType::Struct(parts) => parts
            .first()
            .is_none_or(|key| matches!(key.data_type(), DataType::Utf8 | DataType::Null)),
        _ => true,
    }
}

/// A type, unless the text leaves it open.
pub(crate) fn known(data_type: DataType) -> Option<DataType> {
    let is_unknown = match &data_type {
        DataType::List(item) => item.data_type().is_null(),
        // The parts that Arrow's type has are none that a query could name.
        other => other.is_null() || is_variant(other),
    };
    (!is_unknown).then_some(data_type)
}
