//! Which columns follow from which others, of which nothing is believed.
//!
//! DataFusion remembers that the columns of a GROUP BY or of a DISTINCT decide all others of its
//! result, and leaves out what follows: of `ORDER BY u, v` and `GROUP BY u, v` the second column
//! where `u` decides `v`, a join whose other side has a row for each key. But it goes on to believe
//! it where it is no longer so: behind a join that repeats rows, once they are grouped again, and
//! behind `explode`. So `SELECT u, v ... GROUP BY u, v ORDER BY u, v` over a join with a table of
//! distinct `u` was ordered by `u` alone, and a count of such groups counted too few. It also adds
//! columns to a GROUP BY that it takes to follow, which Spark never does.
//!
//! So that knowledge is taken away, from what stands in FROM while a query is planned
//! ([`Forgetful`]), and from all nodes before each rule that asks for it ([`Forget`]).

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchemaRef, FunctionalDependencies, Result};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Distinct, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::sql::sqlparser::ast::TableFactor;

use crate::functions::settled;

/// The rules that ask which columns decide others.
pub(super) const RULES: [&str; 4] = [
    "eliminate_duplicated_expr",
    "eliminate_join",
    "optimize_projections",
    "replace_distinct_aggregate",
];

thread_local! {
    /// Whether the relation that is planned next is one that has been asked for here.
    static IS_ASKED_FOR: Cell<bool> = const { Cell::new(false) };
}

/// Plans what stands in FROM as DataFusion does, and forgets which of its columns decide others.
/// Its columns have their types, which DataFusion would only find later on.
#[derive(Debug)]
pub(crate) struct Forgetful;

impl RelationPlanner for Forgetful {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        // What is asked for below comes here first.
        if IS_ASKED_FOR.replace(false) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        IS_ASKED_FOR.set(true);
        let plan = forgotten(settled::relation(context.plan(relation)?)?).data;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

/// Forgets, in each node, which columns decide others.
#[derive(Debug)]
pub(super) struct Forget;

impl OptimizerRule for Forget {
    fn name(&self) -> &'static str {
        "forget_dependencies"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        Ok(forgotten(plan))
    }
}

/// The node with a schema that says of no column that it decides others.
fn forgotten(mut plan: LogicalPlan) -> Transformed<LogicalPlan> {
    if plan.schema().functional_dependencies().is_empty() {
        return Transformed::no(plan);
    }
    match &mut plan {
        LogicalPlan::Aggregate(node) => clear(&mut node.schema),
        LogicalPlan::Join(node) => clear(&mut node.schema),
        LogicalPlan::Projection(node) => clear(&mut node.schema),
        LogicalPlan::SubqueryAlias(node) => clear(&mut node.schema),
        LogicalPlan::TableScan(node) => clear(&mut node.projected_schema),
        LogicalPlan::Union(node) => clear(&mut node.schema),
        LogicalPlan::Unnest(node) => clear(&mut node.schema),
        LogicalPlan::Values(node) => clear(&mut node.schema),
        LogicalPlan::Window(node) => clear(&mut node.schema),
        // These have their input's schema.
        LogicalPlan::Filter(node) => forget_in(&mut node.input),
        LogicalPlan::Limit(node) => forget_in(&mut node.input),
        LogicalPlan::Repartition(node) => forget_in(&mut node.input),
        LogicalPlan::Sort(node) => forget_in(&mut node.input),
        LogicalPlan::Distinct(Distinct::All(input)) => forget_in(input),
        _ => return Transformed::no(plan),
    }
    Transformed::yes(plan)
}

fn clear(schema: &mut DFSchemaRef) {
    let bare = schema.as_ref().clone();
    if let Ok(bare) = bare.with_functional_dependencies(FunctionalDependencies::empty()) {
        *schema = Arc::new(bare);
    }
}

fn forget_in(input: &mut Arc<LogicalPlan>) {
    let plan = Arc::unwrap_or_clone(std::mem::take(input));
    *input = Arc::new(forgotten(plan).data);
}
