//! Conditions that go down a physical plan by the names of columns.
//!
//! A join tells the scans below it which keys it can use, and a condition above other operators may
//! move below them. DataFusion finds the column of an input by the name that it has above: of two
//! columns of that name the first. So of `a JOIN b ... JOIN c ON b.k = c.k` the keys of `c` would
//! choose rows by `a.k`, and rows of the result would be missing. Where a plan has two columns of
//! one name below an operator, only those parts are changed that have not. Joins tell their sides
//! apart, so that `a JOIN b ON a.k = b.k` alone is no such plan.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{JoinType, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;

/// The names of DataFusion's rules.
pub(super) const RULES: [&str; 2] = ["FilterPushdown", "FilterPushdown(Post)"];

/// One of these rules, for plans in which a name is of one column.
#[derive(Debug)]
pub(super) struct OfUniqueNames(pub(super) Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for OfUniqueNames {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.part(plan, config)?.changed(self, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// A part of a plan, with all that is below it.
enum Part {
    /// The rule can change it, and has not yet.
    Unique(Arc<dyn ExecutionPlan>),
    /// The rule must not change it, and has changed what it may below.
    Done(Arc<dyn ExecutionPlan>),
}

impl Part {
    fn changed(
        self,
        rule: &OfUniqueNames,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            Self::Unique(plan) => rule.0.optimize(plan, config),
            Self::Done(plan) => Ok(plan),
        }
    }
}

impl OfUniqueNames {
    fn part(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Part> {
        let inputs = plan.children().into_iter().map(|input| self.part(Arc::clone(input), config));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        if inputs.iter().all(|input| matches!(input, Part::Unique(_))) && keeps_names(&plan) {
            return Ok(Part::Unique(plan));
        }
        let inputs = inputs.into_iter().map(|input| input.changed(self, config));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        replace_children_if_necessary(plan, inputs).map(Part::Done)
    }
}

/// Whether DataFusion finds the columns that are meant from this operator to its inputs.
fn keeps_names(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.is::<ProjectionExec>() {
        // It knows its columns by what it computes of its input.
        return are_unique(&plan.schema());
    }
    if !plan.children().iter().all(|input| are_unique(&input.schema())) {
        return false;
    }
    if let Some(union) = plan.downcast_ref::<UnionExec>() {
        return union.inputs().iter().all(|input| has_names_of(&input.schema(), &plan.schema()));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return finds_keys(join);
    }
    let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else { return true };
    let input = aggregate.input().schema();
    aggregate.group_expr().expr().iter().all(|(key, name)| is_found(&input, name, key))
}

/// A join knows which side a column is of. But one that keeps rows of one side hands conditions on
/// its keys to the other side, too, where the key may have another name, and another column its.
fn finds_keys(join: &HashJoinExec) -> bool {
    let (left, right) = (join.left().schema(), join.right().schema());
    join.on().iter().all(|(of_left, of_right)| {
        let (kept, other, key) = match join.join_type() {
            JoinType::LeftSemi => (of_left, &right, of_right),
            JoinType::RightSemi => (of_right, &left, of_left),
            _ => return true,
        };
        kept.downcast_ref::<Column>().is_none_or(|kept| is_found(other, kept.name(), key))
    })
}

/// Whether a column `name` of `input`, if there is one, is `meant`.
fn is_found(input: &Schema, name: &str, meant: &Arc<dyn PhysicalExpr>) -> bool {
    input.index_of(name).is_err()
        || meant.downcast_ref::<Column>().is_some_and(|column| column.name() == name)
}

fn are_unique(schema: &Schema) -> bool {
    let mut names = HashSet::new();
    schema.fields().iter().all(|field| names.insert(field.name()))
}

fn has_names_of(one: &Schema, other: &Schema) -> bool {
    let names = |schema: &Schema| -> Vec<String> {
        schema.fields().iter().map(|field| field.name().clone()).collect()
    };
    names(one) == names(other)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field};
    use datafusion::physical_plan::displayable;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::filter::FilterExec;
    use datafusion::physical_plan::limit::GlobalLimitExec;

    use super::*;

    /// Shows what it was asked to change.
    #[derive(Debug)]
    struct Marks;

    impl PhysicalOptimizerRule for Marks {
        fn optimize(
            &self,
            plan: Arc<dyn ExecutionPlan>,
            _: &ConfigOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            let all = datafusion::physical_expr::expressions::lit(true);
            Ok(Arc::new(FilterExec::try_new(all, plan)?))
        }

        fn name(&self) -> &str {
            "marks"
        }

        fn schema_check(&self) -> bool {
            true
        }
    }

    fn rows(names: &[&str]) -> Arc<dyn ExecutionPlan> {
        let fields: Vec<_> =
            names.iter().map(|name| Field::new(*name, DataType::Int32, true)).collect();
        Arc::new(EmptyExec::new(Arc::new(Schema::new(fields))))
    }

    fn marked(plan: Arc<dyn ExecutionPlan>) -> Vec<String> {
        let rule = OfUniqueNames(Arc::new(Marks));
        let plan = rule.optimize(plan, &ConfigOptions::default()).expect("it is valid");
        let text = displayable(plan.as_ref()).indent(false).to_string();
        text.lines().map(|line| line.trim().chars().take_while(|c| *c != ':').collect()).collect()
    }

    #[test]
    fn a_plan_of_unique_names_is_changed_as_a_whole() {
        let union = UnionExec::try_new(vec![rows(&["a", "b"]), rows(&["a", "b"])]);
        let found = marked(union.expect("it is valid"));
        assert_eq!(found, ["FilterExec", "UnionExec", "EmptyExec", "EmptyExec"]);
    }

    #[test]
    fn a_name_of_two_columns_is_not_looked_for() {
        let limit = GlobalLimitExec::new(rows(&["a", "a"]), 0, Some(1));
        assert_eq!(marked(Arc::new(limit)), ["GlobalLimitExec", "FilterExec", "EmptyExec"]);
    }

    #[test]
    fn parts_of_a_union_have_its_names() {
        let union = UnionExec::try_new(vec![rows(&["a", "b"]), rows(&["b", "a"])]);
        let found = marked(union.expect("it is valid"));
        // DataFusion itself names the columns of the second part.
        let expected = ["FilterExec", "UnionExec", "EmptyExec", "ProjectionExec", "EmptyExec"];
        assert_eq!(found, expected);
    }
}
