//! What is wrong with literal arguments, found before a row is there.
//!
//! Patterns of times and regular expressions are read when a function is first called with them,
//! since they may come from a column. Most stand in the query itself, and those are read here, so
//! that a query is refused before it runs.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{BinaryExpr, Exists, InSubquery, ScalarFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};

use super::time_pattern::TimePattern;
use super::{pattern, zones};

/// A literal that a function cannot use, or an operator that is none.
#[derive(Debug)]
pub(crate) struct Unusable {
    /// The name of the function, or an operator.
    pub function: String,
    /// The literal's text; empty where it is an operator.
    pub literal: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The literals of `plan` that its functions cannot use, and operators that nothing computes.
pub(crate) fn unusable(plan: &LogicalPlan) -> Vec<Unusable> {
    let mut found = Vec::new();
    look(plan, &mut found);
    found
}

fn look(plan: &LogicalPlan, found: &mut Vec<Unusable>) {
    let visited: Result<_> = plan.apply(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                match expr {
                    Expr::BinaryExpr(BinaryExpr { op, .. }) => found.extend(no_operator(*op)),
                    Expr::ScalarFunction(call) => found.extend(problem(call, &schema)),
                    Expr::Exists(Exists { subquery, .. })
                    | Expr::InSubquery(InSubquery { subquery, .. })
                    | Expr::ScalarSubquery(subquery) => look(&subquery.subquery, found),
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    debug_assert!(visited.is_ok(), "looking fails nowhere");
}

/// Operators that sqlparser reads and the planner plans, and that nothing computes.
fn no_operator(op: Operator) -> Option<Unusable> {
    use Operator as Op;
    let instead = match op {
        Op::Colon | Op::Arrow | Op::LongArrow | Op::HashArrow | Op::HashLongArrow => {
            "; a part of a JSON text is get_json_object(text, '$.order.id')"
        }
        Op::AtArrow | Op::ArrowAt => "; write array_contains(array, element)",
        Op::AtAt | Op::HashMinus | Op::AtQuestion | Op::Question => "",
        Op::QuestionAnd | Op::QuestionPipe => "",
        Op::IntegerDivide => "; write a DIV b",
        _ => return None,
    };
    let (function, literal) = (op.to_string(), String::new());
    let problem = format!("the operator `{op}` is not supported{instead}");
    Some(Unusable { function, literal, problem })
}

fn problem(call: &ScalarFunction, schema: &DFSchema) -> Option<Unusable> {
    let function = call.name();
    let plain = function.strip_prefix("__").and_then(|name| name.strip_suffix("_in_zone"));
    let function = plain.unwrap_or(function);
    let literal = text(call.args.get(1)?)?;
    let pattern_of_time = |literal: &str| TimePattern::parse(literal).map(|_| ());
    let read: fn(&str) -> Result<()> = match function {
        "date_format" | "from_unixtime" => pattern_of_time,
        "to_timestamp" | "to_timestamp_ntz" | "try_to_timestamp" | "to_date" | "try_to_date"
        | "unix_timestamp" | "to_unix_timestamp" => {
            |literal| TimePattern::parse(literal)?.to_read().map(|_| ())
        }
        "to_char" if is_time(&call.args[0], schema) => pattern_of_time,
        "rlike" | "regexp_replace" | "regexp_extract" | "regexp_extract_all" | "regexp_count"
        | "regexp_substr" | "regexp_instr" | "split" => {
            |literal| pattern::compile(literal).map(|_| ())
        }
        "to_utc_timestamp" | "from_utc_timestamp" | "convert_timezone" => zones::check,
        _ => return None,
    };
    let problem = read(literal).err()?.strip_backtrace();
    Some(Unusable { function: function.to_owned(), literal: literal.to_owned(), problem })
}

fn is_time(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Date32 | DataType::Timestamp(..)))
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(
            ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text),
            _,
        ) => text.as_deref(),
        Expr::Alias(alias) => text(&alias.expr),
        Expr::Cast(cast) => text(&cast.expr),
        _ => None,
    }
}
