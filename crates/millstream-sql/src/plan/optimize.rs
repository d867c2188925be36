//! DataFusion's analyzer and optimizer, in a time that nested subqueries do not multiply.
//!
//! Both validate a plan against DataFusion's invariants before and after, and that visits what is
//! in a subquery twice: once as a part of the plan and once by itself. So each level of
//! `(SELECT ... (SELECT ...))` doubles the time. A plan with few levels takes them
//! unchanged; for one with more the same rules run in the same order without those checks.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::analyzer::function_rewrite::ApplyFunctionRewrites;
use datafusion::optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};

use super::short_circuit;

/// Levels of subqueries within expressions that DataFusion's own way is fast for.
const LEVELS_MAX: usize = 4;

/// Checks and coerces the types of `plan`, and gives it Spark's meaning.
pub fn analyze(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let (analyzer, options) = (state.analyzer(), state.config_options());
    if levels(&plan)? <= LEVELS_MAX {
        return analyzer.execute_and_check(plan, options, |_, _| {});
    }
    let mut plan = plan;
    if !analyzer.function_rewrites().is_empty() {
        let rewrites = ApplyFunctionRewrites::new(analyzer.function_rewrites().to_vec());
        plan = rewrites.analyze(plan, options)?;
    }
    for rule in &analyzer.rules {
        plan = rule.analyze(plan, options)?;
    }
    Ok(plan)
}

/// Analyzes and optimizes `plan`, and lets AND and OR compute no more than Spark does.
pub fn optimize(state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
    let without_pushdown;
    let state = if has_grouping_sets(plan)? {
        without_pushdown = without_leaf_pushdown(state);
        &without_pushdown
    } else {
        state
    };
    short_circuit::plan(computed_once(state, optimized(state, plan)?)?)
}

/// DataFusion's rule makes two columns of one name where a field of a struct, which is grouped by
/// in sets, is taken above a filter.
fn without_leaf_pushdown(state: &SessionState) -> SessionState {
    let mut state = state.clone();
    state.config_mut().options_mut().optimizer.enable_leaf_expression_pushdown = false;
    state
}

fn has_grouping_sets(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            found |= aggregate.group_expr.iter().any(|it| matches!(it, Expr::GroupingSet(_)));
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Gives each expression that occurs several times in a node a column of its own.
///
/// DataFusion does so, too, but then moves fields of structs down to where these are made. So of
/// `SELECT o.a, o.b FROM (SELECT from_json(value, ...) AS o ...)` each field would parse the text
/// again.
fn computed_once(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let rule: Arc<dyn OptimizerRule + Send + Sync> = Arc::new(CommonSubexprEliminate::new());
    Ok(apply(&rule, plan, state)?.data)
}

fn optimized(state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
    if levels(plan)? <= LEVELS_MAX {
        return state.optimize(plan);
    }
    let mut plan = analyze(state, plan.clone())?;
    for _ in 0..state.options().optimizer.max_passes {
        let before = plan.clone();
        for rule in state.optimizers() {
            plan = apply(rule, plan, state)?.data;
        }
        if plan == before {
            break;
        }
    }
    Ok(plan)
}

fn apply(
    rule: &Arc<dyn OptimizerRule + Send + Sync>,
    plan: LogicalPlan,
    state: &SessionState,
) -> Result<Transformed<LogicalPlan>> {
    match rule.apply_order() {
        Some(order) => plan.rewrite_with_subqueries(&mut ByRule { order, rule, state }),
        None => rule.rewrite(plan, state),
    }
}

/// Applies a rule to each node, before or after its inputs.
struct ByRule<'a> {
    order: ApplyOrder,
    rule: &'a Arc<dyn OptimizerRule + Send + Sync>,
    state: &'a SessionState,
}

impl TreeNodeRewriter for ByRule<'_> {
    type Node = LogicalPlan;

    fn f_down(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match self.order {
            ApplyOrder::TopDown => self.rule.rewrite(node, self.state),
            ApplyOrder::BottomUp => Ok(Transformed::no(node)),
        }
    }

    fn f_up(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match self.order {
            ApplyOrder::TopDown => Ok(Transformed::no(node)),
            ApplyOrder::BottomUp => self.rule.rewrite(node, self.state),
        }
    }
}

/// How many subqueries within expressions lie within each other.
fn levels(plan: &LogicalPlan) -> Result<usize> {
    let mut most = 0;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::Exists(Exists { subquery, .. })
                | Expr::InSubquery(InSubquery { subquery, .. })
                | Expr::SetComparison(SetComparison { subquery, .. })
                | Expr::ScalarSubquery(subquery) = expr
                {
                    most = most.max(1 + levels(&subquery.subquery)?);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(most)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::functions::core::expr_fn::get_field;
    use datafusion::logical_expr::{LogicalPlanBuilder, Volatility, col, create_udf, table_scan};
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn a_struct_is_made_once_for_all_its_fields() {
        let fields = ["a", "b", "c"].map(|name| Field::new(name, DataType::Utf8, true));
        let made = DataType::Struct(fields.into_iter().collect());
        let never = Arc::new(|_: &[_]| unreachable!("nothing is computed"));
        let types = vec![DataType::Utf8];
        let parse = create_udf("parse", types, made, Volatility::Immutable, never);
        let rows = Schema::new(vec![Field::new("value", DataType::Utf8, true)]);
        let parsed = parse.call(vec![col("value")]).alias("o");
        let inner = table_scan(Some("t"), &rows, None).and_then(|scan| scan.project([parsed]));
        let all = ["a", "b", "c"].map(|name| get_field(col("o"), name));
        let outer = inner.and_then(|inner| inner.project(all));
        let plan = outer.and_then(LogicalPlanBuilder::build).expect("it is valid");
        let plan = optimize(&SessionContext::new().state(), &plan).expect("it can be optimized");
        let text = plan.display_indent().to_string();
        assert_eq!(text.matches("parse(t.value)").count(), 1, "{text}");
    }
}
