//! The schema of `to_avro` where none is given: Spark derives it from the type of the value.
//!
//! What can be null is a union with null there, so the bytes depend on what the planner takes for
//! nullable, down to the fields of a STRUCT. DataFusion takes more for nullable than Spark does:
//! all results of most functions. So the schema is derived only where there is one answer, of
//! literals, columns of tables, structs of those and what `from_json` and its like return. Anything
//! else is refused, with a schema to write.
//!
//! A column that can be null has one answer only if nothing in the query looks at its values to
//! drop rows: above and below such a filter Spark takes it for not nullable, and Spark moves
//! filters down. And a column declared NOT NULL is nullable in Spark in most tables of files.

use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use millstream_records::avro::Schema;

use super::super::rules::rewrite;
use super::super::windows::{SESSION, WINDOW};
use super::prepared::plain;
use crate::json::nullable;

/// Gives each `to_avro` without a schema the one that Spark derives.
#[derive(Debug)]
pub(crate) struct AvroSchemas;

impl AnalyzerRule for AvroSchemas {
    fn name(&self) -> &str {
        "avro_schemas"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let drops_rows = drops_rows(&plan)?;
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            let mut is_meant = false;
            for expr in plan.expressions() {
                is_meant |= expr.exists(|part| Ok(value_of(part).is_some()))?;
            }
            if !is_meant {
                return Ok(Transformed::no(plan));
            }
            let inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
            rewrite(plan, |expr, schema| {
                with_schema(expr, Place { inputs: &inputs, schema, drops_rows })
            })
        });
        rewritten.map(|plan| plan.data)
    }
}

/// What a `to_avro` without a schema encodes.
fn value_of(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(call) if call.name() == "to_avro" => match &call.args[..] {
            [value] => Some(value),
            [value, Expr::Literal(schema, _)] if schema.is_null() => Some(value),
            _ => None,
        },
        _ => None,
    }
}

/// Whether something in a query may drop rows by their values. In Spark a JOIN and an `explode`
/// do so as well, and a window of time. Nodes that are not known here count as such.
fn drops_rows(plan: &LogicalPlan) -> Result<bool> {
    let is_window = |expr: &Expr| match expr {
        Expr::ScalarFunction(call) => [WINDOW, SESSION].contains(&call.name()),
        _ => false,
    };
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        let keeps_all = match node {
            LogicalPlan::TableScan(scan) => scan.filters.is_empty(),
            LogicalPlan::Projection(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::Distinct(Distinct::All(_))
            | LogicalPlan::Values(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Dml(_) => true,
            _ => false,
        };
        found = !keeps_all;
        node.apply_expressions(|expr| {
            found |= expr.exists(|part| Ok(is_window(part)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Where an expression stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    inputs: &'a [LogicalPlan],
    schema: &'a DFSchema,
    /// Of the whole query.
    drops_rows: bool,
}

fn with_schema(expr: Expr, place: Place<'_>) -> Result<Transformed<Expr>> {
    let Some(value) = value_of(&expr) else { return Ok(Transformed::no(expr)) };
    // NULL is no value, whatever the schema.
    if value.get_type(place.schema)?.is_null() {
        return Ok(Transformed::yes(Expr::Literal(ScalarValue::Binary(None), None)));
    }
    let wrong = |error| plan_datafusion_err!("to_avro: {error}");
    let Some((data_type, nullable)) = known(value, place) else {
        let all = nullable(&plain(&value.get_type(place.schema)?));
        let written = Schema::of(&all, false).map_err(wrong)?;
        return plan_err!(
            "to_avro: without a schema the bytes depend on what in {value} can be NULL, which is \
             known only of literals, structs of them and what from_json returns, and, in a query \
             without WHERE, JOIN, GROUP BY and their like, of columns that are not declared NOT \
             NULL; write the schema, for example to_avro({value}, '{}')",
            written.text()
        );
    };
    let written = Schema::of(&plain(&data_type), nullable).map_err(wrong)?;
    let Expr::ScalarFunction(ScalarFunction { func, mut args }) = expr else {
        return Ok(Transformed::no(expr));
    };
    args.truncate(1);
    args.push(Expr::Literal(ScalarValue::from(written.text()), None));
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
}

/// The type of an expression, with what can be null in it, as Spark has them.
fn known(expr: &Expr, place: Place<'_>) -> Option<(DataType, bool)> {
    match expr {
        Expr::Alias(alias) => known(&alias.expr, place),
        Expr::Literal(value, _) => {
            let data_type = value.data_type();
            (!data_type.is_nested()).then(|| (data_type, value.is_null()))
        }
        Expr::Column(column) => {
            let found = place.inputs.iter().find_map(|input| {
                let at = input.schema().maybe_index_of_column(column)?;
                known_output(at, input, place.drops_rows)
            });
            let has_nulls =
                |(data_type, nullable): &(DataType, bool)| *nullable || data_type.is_nested();
            found.filter(|found| !(place.drops_rows && has_nulls(found)))
        }
        Expr::Cast(Cast { expr, field }) => known_cast(known(expr, place)?, field.data_type()),
        Expr::ScalarFunction(call) => known_call(expr, call, place),
        _ => None,
    }
}

fn known_cast((from, nullable): (DataType, bool), to: &DataType) -> Option<(DataType, bool)> {
    let is_flat = !from.is_nested() && !to.is_nested();
    (is_flat && (nullable || is_never_null(&plain(&from), &plain(to))))
        .then(|| (to.clone(), nullable))
}

/// Whether Spark takes a cast for not nullable if its value is not. Most casts are nullable there,
/// though a value that has no counterpart ends the query; as are those of text that stand for
/// literals here, as `DATE'2020-01-01'`. This knows the plain ones.
fn is_never_null(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (from, to) if from == to => true,
        (DataType::Utf8, to) => *to == DataType::Binary,
        (_, DataType::Utf8) => true,
        (from, to) if from.is_signed_integer() => to.is_signed_integer() || to.is_floating(),
        (from, to) => from.is_floating() && to.is_floating(),
    }
}

fn known_call(expr: &Expr, call: &ScalarFunction, place: Place<'_>) -> Option<(DataType, bool)> {
    let text = |expr: &Expr| match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
        _ => None,
    };
    match call.name() {
        "from_json" | "from_avro" | "from_protobuf" => {
            Some((expr.get_type(place.schema).ok()?, true))
        }
        "named_struct" => {
            let (pairs, _) = call.args.as_chunks::<2>();
            let field = |[name, value]: &[Expr; 2]| {
                let (data_type, nullable) = known(value, place)?;
                Some(Field::new(text(name)?, data_type, nullable))
            };
            let fields = pairs.iter().map(field).collect::<Option<Fields>>()?;
            Some((DataType::Struct(fields), false))
        }
        "get_field" => {
            let (base, names) = call.args.split_first()?;
            let mut found = known(base, place)?;
            for name in names {
                let name = text(name)?;
                let DataType::Struct(fields) = &found.0 else { return None };
                let (_, field) = fields.find(&name)?;
                found = (field.data_type().clone(), found.1 || field.is_nullable());
            }
            Some(found)
        }
        "spark_cast" => {
            let from = known(call.args.first()?, place)?;
            known_cast(from, &expr.get_type(place.schema).ok()?)
        }
        _ => None,
    }
}

/// A column that a node has, by its place.
fn known_output(at: usize, plan: &LogicalPlan, drops_rows: bool) -> Option<(DataType, bool)> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let field = scan.projected_schema.field(at);
            let data_type = plain(field.data_type());
            let can_be_null = field.is_nullable() && data_type == nullable(&data_type);
            can_be_null.then_some((data_type, true))
        }
        LogicalPlan::SubqueryAlias(alias) => known_output(at, &alias.input, drops_rows),
        LogicalPlan::Filter(filter) => known_output(at, &filter.input, drops_rows),
        LogicalPlan::Sort(sort) => known_output(at, &sort.input, drops_rows),
        LogicalPlan::Limit(limit) => known_output(at, &limit.input, drops_rows),
        LogicalPlan::Distinct(Distinct::All(input)) => known_output(at, input, drops_rows),
        LogicalPlan::Projection(projection) => {
            let inputs = std::slice::from_ref(projection.input.as_ref());
            let schema = projection.input.schema();
            known(projection.expr.get(at)?, Place { inputs, schema, drops_rows })
        }
        _ => None,
    }
}
