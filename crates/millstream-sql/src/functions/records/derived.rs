//! The schema of `to_avro` where none is given: Spark derives it from the type of the value.
//!
//! What can be null is a union with null there, so the bytes depend on what the planner takes for
//! nullable, down to the fields of a STRUCT. DataFusion takes more for nullable than Spark does:
//! all results of most functions. So the schema is derived only where there is one answer, of
//! literals, columns of tables, structs of those and what `from_json` and its like return. Anything
//! else is refused, with a schema to write.

use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use millstream_records::avro::Schema;

use super::super::rules::rewrite;
use super::prepared::plain;

/// Gives each `to_avro` without a schema the one that Spark derives.
#[derive(Debug)]
pub(crate) struct AvroSchemas;

impl AnalyzerRule for AvroSchemas {
    fn name(&self) -> &str {
        "avro_schemas"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            let mut is_meant = false;
            for expr in plan.expressions() {
                is_meant |= expr.exists(|part| Ok(value_of(part).is_some()))?;
            }
            if !is_meant {
                return Ok(Transformed::no(plan));
            }
            let inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
            rewrite(plan, |expr, schema| with_schema(expr, &inputs, schema))
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

fn with_schema(expr: Expr, inputs: &[LogicalPlan], schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some(value) = value_of(&expr) else { return Ok(Transformed::no(expr)) };
    let wrong = |error| plan_datafusion_err!("to_avro: {error}");
    let Some((data_type, nullable)) = known(value, inputs, schema) else {
        let all = crate::json::nullable(&plain(&value.get_type(schema)?));
        let written = Schema::of(&all, false).map_err(wrong)?;
        return plan_err!(
            "to_avro: without a schema the bytes depend on what in {value} can be NULL, which is \
             known only of literals, columns of tables, structs of them, and what from_json \
             returns; write the schema, for example to_avro({value}, '{}')",
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
fn known(expr: &Expr, inputs: &[LogicalPlan], schema: &DFSchema) -> Option<(DataType, bool)> {
    let is_flat = |data_type: &DataType| !data_type.is_nested();
    match expr {
        Expr::Alias(alias) => known(&alias.expr, inputs, schema),
        Expr::Literal(value, _) => {
            let data_type = value.data_type();
            is_flat(&data_type).then(|| (data_type, value.is_null()))
        }
        Expr::Column(column) => inputs.iter().find_map(|input| known_column(column, input)),
        Expr::Cast(Cast { expr, field }) => {
            let (from, nullable) = known(expr, inputs, schema)?;
            let to = field.data_type().clone();
            (is_flat(&from) && is_flat(&to)).then_some((to, nullable))
        }
        Expr::ScalarFunction(call) => known_call(expr, call, inputs, schema),
        _ => None,
    }
}

fn known_call(
    expr: &Expr,
    call: &ScalarFunction,
    inputs: &[LogicalPlan],
    schema: &DFSchema,
) -> Option<(DataType, bool)> {
    let text = |expr: &Expr| match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
        _ => None,
    };
    match call.name() {
        "from_json" | "from_avro" | "from_protobuf" => Some((expr.get_type(schema).ok()?, true)),
        "named_struct" => {
            let (pairs, _) = call.args.as_chunks::<2>();
            let field = |[name, value]: &[Expr; 2]| {
                let (data_type, nullable) = known(value, inputs, schema)?;
                Some(Field::new(text(name)?, data_type, nullable))
            };
            let fields = pairs.iter().map(field).collect::<Option<Fields>>()?;
            Some((DataType::Struct(fields), false))
        }
        "get_field" => {
            let (base, names) = call.args.split_first()?;
            let mut found = known(base, inputs, schema)?;
            for name in names {
                let name = text(name)?;
                let DataType::Struct(fields) = &found.0 else { return None };
                let (_, field) = fields.find(&name)?;
                found = (field.data_type().clone(), found.1 || field.is_nullable());
            }
            Some(found)
        }
        "spark_cast" => {
            let (from, nullable) = known(call.args.first()?, inputs, schema)?;
            let to = expr.get_type(schema).ok()?;
            (!from.is_nested() && !to.is_nested()).then_some((to, nullable))
        }
        _ => None,
    }
}

fn known_column(column: &Column, plan: &LogicalPlan) -> Option<(DataType, bool)> {
    let at = plan.schema().maybe_index_of_column(column)?;
    known_output(at, plan)
}

/// A column that a node has, by its place.
fn known_output(at: usize, plan: &LogicalPlan) -> Option<(DataType, bool)> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let field = scan.projected_schema.field(at);
            Some((field.data_type().clone(), field.is_nullable()))
        }
        LogicalPlan::SubqueryAlias(alias) => known_output(at, &alias.input),
        LogicalPlan::Filter(filter) => known_output(at, &filter.input),
        LogicalPlan::Sort(sort) => known_output(at, &sort.input),
        LogicalPlan::Limit(limit) => known_output(at, &limit.input),
        LogicalPlan::Distinct(Distinct::All(input)) => known_output(at, input),
        LogicalPlan::Projection(projection) => {
            let input = std::slice::from_ref(projection.input.as_ref());
            known(projection.expr.get(at)?, input, projection.input.schema())
        }
        _ => None,
    }
}
