//! The node of a plan that adds rows of a look-up table to those of its input.
//!
//! Its columns are those of the input, then those of the table, all NULL where a key has no row,
//! then whether it has one.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use parking_lot::Mutex;

use super::cache::Cache;
use super::exec::{LookUp, LookUpExec};
use super::table::PlannedLookup;

/// The node.
#[derive(Clone)]
pub(super) struct LookUpNode {
    input: LogicalPlan,
    /// By key column of the table, what it is compared with, over the input's columns.
    keys: Vec<Expr>,
    table: Arc<PlannedLookup>,
    /// What is asked of the table, as indices into its columns.
    columns: Vec<usize>,
    /// Tells it from the others of a plan.
    number: usize,
    cache: Option<Arc<Mutex<Cache>>>,
    schema: DFSchemaRef,
}

impl LookUpNode {
    pub(super) fn new(
        input: LogicalPlan,
        keys: Vec<Expr>,
        table: Arc<PlannedLookup>,
        columns: Vec<usize>,
        number: usize,
    ) -> Result<Self> {
        let cache = table.cache().map(|limits| Arc::new(Mutex::new(Cache::new(limits))));
        let schema = schema(&input, &table, &columns, number)?;
        Ok(Self { input, keys, table, columns, number, cache, schema })
    }
}

/// The column that has the table's column `column` in the node `number`.
pub(super) fn table_column(number: usize, column: usize) -> Column {
    Column::new_unqualified(format!("__lookup_{number}_{column}"))
}

/// The column that says whether a row was found.
pub(super) fn found_column(number: usize) -> Column {
    Column::new_unqualified(format!("__lookup_{number}_found"))
}

fn schema(
    input: &LogicalPlan,
    table: &PlannedLookup,
    columns: &[usize],
    number: usize,
) -> Result<DFSchemaRef> {
    let of_table = |column: &usize| {
        let data_type = table.columns().field(*column).data_type().clone();
        Field::new(table_column(number, *column).name, data_type, true)
    };
    let mut added: Vec<Field> = columns.iter().map(of_table).collect();
    added.push(Field::new(found_column(number).name, DataType::Boolean, false));
    let added = DFSchema::try_from(Schema::new(added))?;
    Ok(Arc::new(input.schema().join(&added)?))
}

impl fmt::Debug for LookUpNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        UserDefinedLogicalNodeCore::fmt_for_explain(self, f)
    }
}

impl PartialEq for LookUpNode {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
            && (self.number, &self.columns) == (other.number, &other.columns)
            && self.keys == other.keys
            && self.input == other.input
    }
}

impl Eq for LookUpNode {}

impl Hash for LookUpNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.number, &self.columns, &self.keys).hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for LookUpNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let by = (self.number, &self.columns).partial_cmp(&(other.number, &other.columns));
        by.filter(|by| *by != Ordering::Equal || self == other)
    }
}

impl UserDefinedLogicalNodeCore for LookUpNode {
    fn name(&self) -> &str {
        "LookUp"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.keys.clone()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.table.key().iter().zip(&self.keys).map(|(column, expr)| {
            format!("{} = {expr}", self.table.columns().field(*column).name())
        });
        let key: Vec<String> = key.collect();
        write!(f, "LookUp: {} by {}", self.table.name(), key.join(", "))
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let input = inputs.into_iter().next().unwrap_or_else(|| self.input.clone());
        let schema = schema(&input, &self.table, &self.columns, self.number)?;
        Ok(Self { input, keys: exprs, schema, ..self.clone() })
    }
}

/// Makes the physical node.
pub(super) struct Planner;

#[async_trait]
impl ExtensionPlanner for Planner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        planning: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<LookUpNode>() else { return Ok(None) };
        let [input] = inputs else {
            return Err(DataFusionError::Internal("a look-up has one input".to_owned()));
        };
        let below = node.input.schema();
        let key = |key: &Expr| planner.create_physical_expr(key, below, session, planning);
        let look_up = LookUp {
            keys: node.keys.iter().map(key).collect::<Result<_>>()?,
            table: Arc::clone(&node.table),
            columns: node.columns.clone(),
            cache: node.cache.clone(),
        };
        let schema = Arc::clone(node.schema.inner());
        Ok(Some(Arc::new(LookUpExec::new(Arc::clone(input), look_up, schema))))
    }
}
