//! Taking joins with look-up tables out of an optimised plan.
//!
//! Below a join, what stands over a look-up table may be filters, projections and names. They are
//! said anew over the columns of the node that looks up, together with the join's own condition:
//!
//! ```text
//! inner      Filter(found AND conditions)            Projection(the join's columns)
//! left       Projection(match := found AND ...)      Projection(..., CASE WHEN match THEN ... END)
//! left semi  Filter(found AND conditions)            Projection(the stream's columns)
//! left anti  Filter(NOT match)                       Projection(the stream's columns)
//! ```
//!
//! What cannot be said so is refused: the table has no other way to be read.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, Result};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Extension, Join, LogicalPlan, LogicalPlanBuilder, Operator,
    TableScan, lit, when,
};
use millstream_sql::plan::short_circuit;
use millstream_sql::types::spark_type;
use thiserror::Error;

use super::node::{LookUpNode, found_column, table_column};
use super::table::PlannedLookup;
use crate::plan::stream_scan::StreamTable;

/// A use of a look-up table that no look-ups can serve.
#[derive(Debug, Error)]
#[error("{problem}")]
pub struct LookupRefused {
    /// The table's name.
    pub table: String,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub help: String,
}

impl LookupRefused {
    /// The refusal in an error of DataFusion.
    pub fn of(error: &DataFusionError) -> Option<&Self> {
        match error.find_root() {
            DataFusionError::External(inner) => inner.downcast_ref(),
            _ => None,
        }
    }
}

impl From<LookupRefused> for DataFusionError {
    fn from(refused: LookupRefused) -> Self {
        Self::External(Box::new(refused))
    }
}

/// `plan`, which is optimised, with nodes that look up in the place of its joins with look-up
/// tables.
///
/// # Errors
/// [`LookupRefused`]: a look-up table is used otherwise.
pub fn replace_joins(plan: LogicalPlan) -> Result<LogicalPlan> {
    if lookup_in(&plan)?.is_none() {
        return Ok(plan);
    }
    let mut joins = 0;
    let replaced = plan.transform_up(|node| {
        let LogicalPlan::Join(join) = &node else { return Ok(Transformed::no(node)) };
        let Some(lookup_join) = LookupJoin::of(join, joins)? else {
            return Ok(Transformed::no(node));
        };
        joins += 1;
        lookup_join.plan().map(Transformed::yes)
    })?;
    if let Some(left_over) = lookup_in(&replaced.data)? {
        return Err(otherwise(&left_over, "it is used here in another way").into());
    }
    // Conditions were put together anew.
    short_circuit::plan(replaced.data)
}

/// A look-up table that `plan` scans, subqueries included.
fn lookup_in(plan: &LogicalPlan) -> Result<Option<Arc<PlannedLookup>>> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            found = lookup_of(scan);
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn lookup_of(scan: &TableScan) -> Option<Arc<PlannedLookup>> {
    let provider = source_as_provider(&scan.source).ok()?;
    (provider as Arc<dyn std::any::Any + Send + Sync>).downcast().ok()
}

/// Whether `plan` reads a stream, or an operator's output.
fn reads_stream(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(false) };
        let provider = source_as_provider(&scan.source);
        Ok(provider.is_ok_and(|provider| provider.downcast_ref::<StreamTable>().is_some()))
    })
}

fn otherwise(table: &PlannedLookup, why: &str) -> LookupRefused {
    let name = table.name();
    let key = table.key().iter().map(|column| table.columns().field(*column).name().as_str());
    let key: Vec<&str> = key.collect();
    let condition: Vec<String> = key.iter().map(|key| format!("s.{key} = {name}.{key}")).collect();
    LookupRefused {
        table: name.to_owned(),
        problem: format!(
            "'{name}' is asked for rows by its key ({}) and never read whole, and {why}",
            key.join(", ")
        ),
        help: format!(
            "join a stream with it, by equality on all of its key: FROM STREAM s [LEFT] JOIN \
             {name} ON {}",
            condition.join(" AND ")
        ),
    }
}

/// The side of a join that is looked up.
struct LookupSide {
    table: Arc<PlannedLookup>,
    /// The table's columns that are scanned.
    scanned: Vec<usize>,
    /// By column of the side, what it is over the columns of the node that looks up.
    columns: Vec<Expr>,
    /// What rows of the side have to be, over the same columns.
    conditions: Vec<Expr>,
    /// The node's number.
    number: usize,
}

impl LookupSide {
    /// The side, where it is a look-up table with nothing but filters, projections and names over
    /// it.
    fn of(plan: &LogicalPlan, number: usize) -> Result<Option<Self>> {
        match plan {
            LogicalPlan::TableScan(scan) => Ok(Self::of_scan(scan, number)),
            LogicalPlan::SubqueryAlias(alias) => Self::of(&alias.input, number),
            LogicalPlan::Filter(filter) => {
                let Some(mut side) = Self::of(&filter.input, number)? else { return Ok(None) };
                let condition = side.say(filter.predicate.clone(), filter.input.schema())?;
                side.conditions.push(condition);
                Ok(Some(side))
            }
            LogicalPlan::Projection(projection) => {
                let Some(side) = Self::of(&projection.input, number)? else { return Ok(None) };
                let say = |expr: &Expr| side.say(expr.clone(), projection.input.schema());
                let columns = projection.expr.iter().map(say).collect::<Result<_>>()?;
                Ok(Some(Self { columns, ..side }))
            }
            _ => Ok(None),
        }
    }

    fn of_scan(scan: &TableScan, number: usize) -> Option<Self> {
        let table = lookup_of(scan)?;
        if scan.fetch.is_some() || !scan.filters.is_empty() {
            return None;
        }
        let all = || (0..table.columns().fields().len()).collect();
        let scanned: Vec<usize> = scan.projection.clone().unwrap_or_else(all);
        let column = |column: &usize| Expr::Column(table_column(number, *column));
        let columns = scanned.iter().map(column).collect();
        Some(Self { table, scanned, columns, conditions: Vec::new(), number })
    }

    /// `expr` with what the side's columns of `schema` are in their place; other columns stay.
    fn say(&self, expr: Expr, schema: &DFSchema) -> Result<Expr> {
        let own = schema.columns();
        let said = expr.transform(|part| {
            let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
            // By their whole names: the other side may have a column of the same one.
            let is_it =
                |own: &Column| (&own.relation, &own.name) == (&column.relation, &column.name);
            match own.iter().position(is_it) {
                Some(at) => Ok(Transformed::yes(self.columns[at].clone().unalias())),
                None => Ok(Transformed::no(part)),
            }
        })?;
        Ok(said.data.unalias())
    }

    /// The place in the key of the column that `expr` is, with the type that it is compared as.
    fn key_part(&self, expr: &Expr) -> Option<KeyPart> {
        let (column, compared_as) = match expr {
            Expr::Column(column) => (column, None),
            Expr::Cast(Cast { expr, field }) => match &**expr {
                Expr::Column(column) => (column, Some(field.data_type().clone())),
                _ => return None,
            },
            _ => return None,
        };
        let is_it = |key: &usize| table_column(self.number, *key) == *column;
        let place = self.table.key().iter().position(is_it)?;
        let field = self.table.columns().field(self.table.key()[place]);
        let name = field.name().clone();
        Some(KeyPart { place, name, data_type: field.data_type().clone(), compared_as })
    }
}

/// A column of the key in a condition.
struct KeyPart {
    place: usize,
    name: String,
    data_type: DataType,
    /// The type that a cast gives it for the comparison.
    compared_as: Option<DataType>,
}

impl KeyPart {
    /// What the table is asked for, where the key has to equal `value`; `None` where rows with
    /// different keys could equal it, or ones that have no such key.
    fn asked(&self, value: Expr) -> Option<Expr> {
        match &self.compared_as {
            None => Some(value),
            // Layouts of one type.
            Some(wide) if is_text(wide) && is_text(&self.data_type) => Some(value),
            Some(wide) if is_bytes(wide) && is_bytes(&self.data_type) => Some(value),
            // A number that the key's type does not have equals no key.
            Some(wide) if is_wider_integer(wide, &self.data_type) => {
                Some(Expr::TryCast(TryCast::new(Box::new(value), self.data_type.clone())))
            }
            Some(_) => None,
        }
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

fn is_wider_integer(wide: &DataType, narrow: &DataType) -> bool {
    wide.is_signed_integer()
        && narrow.is_signed_integer()
        && wide.primitive_width() >= narrow.primitive_width()
}

/// A join that look-ups serve.
struct LookupJoin<'a> {
    join: &'a Join,
    stream: &'a Arc<LogicalPlan>,
    side: LookupSide,
    kind: Kind,
    /// By key column, what is asked for.
    keys: Vec<Expr>,
    /// What has to hold besides, over the columns of the node.
    conditions: Vec<Expr>,
}

/// What comes of a stream's row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Itself with the table's, where there is one.
    Inner,
    /// Itself with the table's, or with NULLs.
    Outer,
    /// Itself, where the table has one.
    Semi,
    /// Itself, where the table has none.
    Anti,
}

impl<'a> LookupJoin<'a> {
    /// `None` for a join of other tables.
    fn of(join: &'a Join, number: usize) -> Result<Option<Self>> {
        let sides = (LookupSide::of(&join.left, number)?, LookupSide::of(&join.right, number)?);
        let (side, stream, is_right) = match sides {
            (None, None) => return Ok(None),
            (Some(side), Some(_)) => {
                return Err(otherwise(&side.table, "both sides of a join are such tables").into());
            }
            (None, Some(side)) => (side, &join.left, true),
            (Some(side), None) => (side, &join.right, false),
        };
        if !reads_stream(stream)? {
            let why = "the other side of its join reads no stream";
            return Err(otherwise(&side.table, why).into());
        }
        let kind = kind_of(join, is_right).ok_or_else(|| {
            let why = format!("a {} JOIN with it on this side needs all rows", join.join_type);
            otherwise(&side.table, &why)
        })?;
        let (keys, conditions) = condition(join, &side, is_right)?;
        Ok(Some(Self { join, stream, side, kind, keys, conditions }))
    }

    /// What takes the join's place.
    fn plan(self) -> Result<LogicalPlan> {
        let Self { join, stream, side, kind, keys, conditions } = self;
        let (number, of_stream) = (side.number, stream.schema().columns());
        let (table, scanned) = (Arc::clone(&side.table), side.scanned.clone());
        let node = LookUpNode::new(stream.as_ref().clone(), keys, table, scanned, number)?;
        let node = LogicalPlan::Extension(Extension { node: Arc::new(node) });
        let found = Expr::Column(found_column(number));
        let has_conditions = !conditions.is_empty();
        let is_match = conjunction([found].into_iter().chain(conditions)).expect("there is one");
        let builder = LogicalPlanBuilder::from(node);
        let (builder, is_match) = match kind {
            Kind::Inner | Kind::Semi => (builder.filter(is_match)?, None),
            Kind::Anti => (builder.filter(is_match.is_not_true())?, None),
            // A row that is not found is all NULL by itself.
            Kind::Outer if !has_conditions && side.has_plain_columns() => (builder, None),
            Kind::Outer => {
                let name = format!("__lookup_{number}_match");
                let mut columns: Vec<Expr> = of_stream.iter().cloned().map(Expr::Column).collect();
                let of_table = side.scanned.iter().map(|column| table_column(number, *column));
                columns.extend(of_table.map(Expr::Column));
                columns.push(is_match.alias(&name));
                let is_match = Expr::Column(Column::new_unqualified(name));
                (builder.project(columns)?, Some(is_match))
            }
        };
        let lookup_columns = side.columns.iter().map(|column| match &is_match {
            Some(is_match) => {
                let data_type = column.get_type(builder.schema())?;
                let null = lit(datafusion::common::ScalarValue::try_from(&data_type)?);
                when(is_match.clone(), column.clone()).otherwise(null)
            }
            None => Ok(column.clone()),
        });
        let lookup_columns = lookup_columns.collect::<Result<Vec<_>>>()?;
        let stream_columns: Vec<Expr> = of_stream.into_iter().map(Expr::Column).collect();
        let columns = match kind {
            Kind::Semi | Kind::Anti => stream_columns,
            _ if Arc::ptr_eq(stream, &join.left) => [stream_columns, lookup_columns].concat(),
            _ => [lookup_columns, stream_columns].concat(),
        };
        let named =
            columns.into_iter().zip(join.schema.iter()).map(|(column, (relation, field))| {
                column.alias_qualified(relation.cloned(), field.name())
            });
        builder.project(named.collect::<Vec<_>>())?.build()
    }
}

impl LookupSide {
    fn has_plain_columns(&self) -> bool {
        self.columns.iter().all(|column| matches!(column, Expr::Column(_)))
    }
}

fn kind_of(join: &Join, is_right: bool) -> Option<Kind> {
    if join.null_equality == NullEquality::NullEqualsNull || join.null_aware {
        return None;
    }
    match (join.join_type, is_right) {
        (JoinType::Inner, _) => Some(Kind::Inner),
        (JoinType::Left, true) | (JoinType::Right, false) => Some(Kind::Outer),
        (JoinType::LeftSemi, true) | (JoinType::RightSemi, false) => Some(Kind::Semi),
        (JoinType::LeftAnti, true) | (JoinType::RightAnti, false) => Some(Kind::Anti),
        _ => None,
    }
}

/// The condition of `join`: by key column what is asked for, and what has to hold besides.
fn condition(join: &Join, side: &LookupSide, is_right: bool) -> Result<(Vec<Expr>, Vec<Expr>)> {
    let schema = if is_right { join.right.schema() } else { join.left.schema() };
    let mut keys = vec![None; side.table.key().len()];
    let (mut conditions, mut cast_key) = (side.conditions.clone(), None);
    for condition in join.filter.clone().into_iter().flat_map(split_conjunction_owned) {
        conditions.push(side.say(condition, schema)?);
    }
    for (left, right) in &join.on {
        let (value, column) = if is_right { (left, right) } else { (right, left) };
        let column = side.say(column.clone(), schema)?;
        if let Some(part) = side.key_part(&column)
            && keys[part.place].is_none()
        {
            if let Some(asked) = part.asked(value.clone()) {
                keys[part.place] = Some(asked);
                continue;
            }
            cast_key = Some(part);
        }
        conditions.push(value.clone().eq(column));
    }
    for condition in conditions.iter().flat_map(split_conjunction) {
        if let Some((part, asked)) = constant_key(side, condition) {
            keys[part.place].get_or_insert(asked);
        }
    }
    let keys: Option<Vec<Expr>> = keys.into_iter().collect();
    Ok((keys.ok_or_else(|| without_key(&side.table, cast_key))?, conditions))
}

/// The key column that `condition` says a constant of. The condition stays: it holds for the rows
/// that are found.
fn constant_key(side: &LookupSide, condition: &Expr) -> Option<(KeyPart, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else {
        return None;
    };
    let pairs = [(left, right), (right, left)];
    pairs.into_iter().find_map(|(column, value)| {
        let part = side.key_part(column).filter(|_| matches!(**value, Expr::Literal(..)))?;
        let asked = part.asked(value.as_ref().clone())?;
        Some((part, asked))
    })
}

fn without_key(table: &PlannedLookup, cast_key: Option<KeyPart>) -> LookupRefused {
    let Some(KeyPart { name, data_type, compared_as: Some(wide), .. }) = cast_key else {
        return otherwise(table, "this join has no equality on all of it");
    };
    let (own, other) = (spark_type(&data_type).to_string(), spark_type(&wide).to_string());
    LookupRefused {
        table: table.name().to_owned(),
        problem: format!(
            "the key column '{name}' of '{}' is {own} and would be compared as {other}, so that \
             different keys could be equal",
            table.name()
        ),
        help: format!("write a cast on the other side: ON CAST(... AS {own}) = {name}"),
    }
}
