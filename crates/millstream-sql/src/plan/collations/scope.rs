//! What the columns in an expression mean.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};

use super::Resolved;
use super::leaves::Leaves;

/// The columns of a node's inputs, and of the nodes around the subquery that it is in.
pub(super) struct Scope<'a> {
    schema: DFSchema,
    inputs: Vec<(DFSchemaRef, &'a [Leaves])>,
    around: Option<&'a Scope<'a>>,
}

impl<'a> Scope<'a> {
    /// The columns of these inputs.
    pub fn of(inputs: &[&'a Resolved], around: Option<&'a Scope<'a>>) -> Self {
        let plans: Vec<&LogicalPlan> = inputs.iter().map(|input| &input.plan).collect();
        let schema = merge_schema(&plans);
        let columns =
            |input: &&'a Resolved| (Arc::clone(input.plan.schema()), input.columns.as_slice());
        Self { schema, inputs: inputs.iter().map(columns).collect(), around }
    }

    /// What a column has.
    pub fn leaves_of(&self, column: &Column) -> Result<Leaves> {
        match self.find(column) {
            Some(leaves) => Ok(leaves),
            None => internal_err!("there is no column {column} to find collations of"),
        }
    }

    /// What a column of a query around has.
    pub fn outer_leaves_of(&self, column: &Column) -> Result<Leaves> {
        let mut around = self.around;
        while let Some(scope) = around {
            if let Some(leaves) = scope.find(column) {
                return Ok(leaves);
            }
            around = scope.around;
        }
        internal_err!("there is no outer column {column} to find collations of")
    }

    fn find(&self, column: &Column) -> Option<Leaves> {
        self.inputs.iter().find_map(|(schema, columns)| {
            let at = schema.maybe_index_of_column(column)?;
            columns.get(at).cloned()
        })
    }

    /// The type of an expression.
    pub fn type_of(&self, expr: &Expr) -> Result<DataType> {
        expr.get_type(&self.schema)
    }
}
