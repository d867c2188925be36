//! Running a plan that is a straight line of filters and projections over one stream.
//!
//! DataFusion runs a plan as a stack of streams, each with its counters and buffers. For a
//! micro-batch of a few rows making those costs several times what the expressions do, so plans of
//! this common shape are run here, node by node, with the same expressions over whole record
//! batches. Large micro-batches take DataFusion's way, which uses all cores.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;

use super::stream_scan::StreamScan;

/// A plan of this shape.
pub struct StraightLine {
    scan: Arc<dyn ExecutionPlan>,
    /// Filters and projections, from the scan upwards.
    steps: Vec<Step>,
}

enum Step {
    Filter { predicate: Arc<dyn PhysicalExpr>, columns: Option<Vec<usize>> },
    Project { expressions: Vec<Arc<dyn PhysicalExpr>>, schema: SchemaRef },
}

impl StraightLine {
    /// The plan as a straight line, `None` if it is none.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let (mut node, mut steps) = (plan, Vec::new());
        loop {
            if let Some(filter) = node.downcast_ref::<FilterExec>()
                && filter.fetch().is_none()
            {
                let predicate = Arc::clone(filter.predicate());
                let columns = filter.projection().as_ref().map(|columns| columns.to_vec());
                steps.push(Step::Filter { predicate, columns });
                node = filter.input();
            } else if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
                let expressions = projection.expr().iter().map(|column| Arc::clone(&column.expr));
                let (expressions, schema) = (expressions.collect(), projection.schema());
                steps.push(Step::Project { expressions, schema });
                node = projection.input();
            } else if let Some(cooperative) = node.downcast_ref::<CooperativeExec>() {
                node = cooperative.input();
            } else if node.is::<StreamScan>() {
                steps.reverse();
                return Some(Self { scan: Arc::clone(node), steps });
            } else {
                return None;
            }
        }
    }

    /// Runs the plan over the splits of the scan's first partition. No empty record batches.
    pub fn run(&self) -> Result<Vec<RecordBatch>> {
        let scan = self.scan.downcast_ref::<StreamScan>().expect("`of` found it");
        let mut results = Vec::new();
        for rows in scan.record_batches(0) {
            let result = self.steps.iter().try_fold(rows?, |rows, step| step.run(rows))?;
            if result.num_rows() > 0 {
                results.push(result);
            }
        }
        Ok(results)
    }
}

impl Step {
    fn run(&self, rows: RecordBatch) -> Result<RecordBatch> {
        match self {
            // Nothing is computed for no rows: an expression may fail on columns it never sees.
            _ if rows.num_rows() == 0 => Ok(RecordBatch::new_empty(self.schema(&rows)?)),
            Self::Filter { predicate, columns } => {
                let kept = predicate.evaluate(&rows)?.into_array(rows.num_rows())?;
                let rows = match columns {
                    Some(columns) => rows.project(columns)?,
                    None => rows,
                };
                Ok(filter_record_batch(&rows, kept.as_boolean())?)
            }
            Self::Project { expressions, schema } => {
                let of = |expression: &Arc<dyn PhysicalExpr>| {
                    expression.evaluate(&rows)?.into_array(rows.num_rows())
                };
                let columns = expressions.iter().map(of).collect::<Result<_>>()?;
                // Without columns there is nothing to count the rows by.
                let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
                let schema = Arc::clone(schema);
                Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
            }
        }
    }

    fn schema(&self, rows: &RecordBatch) -> Result<SchemaRef> {
        match self {
            Self::Filter { columns: Some(columns), .. } => {
                Ok(Arc::new(rows.schema_ref().project(columns)?))
            }
            Self::Filter { columns: None, .. } => Ok(rows.schema()),
            Self::Project { schema, .. } => Ok(Arc::clone(schema)),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_plan::collect;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::plan::session::streaming_config;
    use crate::plan::stateful_plan::InMemory;
    use crate::plan::stream_scan::{Slots, StreamTable};

    fn input() -> RecordBatch {
        let v: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(30), Some(4)]));
        let s: ArrayRef = Arc::new(StringArray::from(vec!["a", "bb", "", "dddd"]));
        let fields =
            vec![Field::new("v", DataType::Int64, true), Field::new("s", DataType::Utf8, true)];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![v, s]).unwrap()
    }

    async fn plan(query: &str) -> (SessionContext, Arc<Slots>, Arc<dyn ExecutionPlan>) {
        let (slots, context) = (Slots::new(2), SessionContext::new_with_config(streaming_config()));
        let table = StreamTable::new("t".to_owned(), input().schema(), Arc::clone(&slots));
        context.register_table("t", Arc::new(table)).unwrap();
        let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
        (context, slots, plan)
    }

    fn fill(slots: &Slots) {
        slots.fill(vec![
            Box::new(InMemory(vec![input()], Arc::default())),
            Box::new(InMemory(vec![input().slice(1, 2)], Arc::default())),
        ]);
    }

    #[tokio::test]
    async fn the_rows_are_those_of_datafusion() {
        for query in [
            "SELECT * FROM t",
            "SELECT s, v + 1 AS w FROM t WHERE v > 1",
            "SELECT s FROM t WHERE v > 1 AND length(s) < 3",
            "SELECT 7 AS seven FROM t WHERE s <> ''",
            "SELECT v FROM t WHERE v > 1000",
            "SELECT upper(s) AS u FROM (SELECT s, v * 2 AS w FROM t WHERE v IS NOT NULL) WHERE w < 9",
        ] {
            let (context, slots, plan) = plan(query).await;
            let straight = StraightLine::of(&plan).unwrap_or_else(|| panic!("{query}"));
            fill(&slots);
            let ours = straight.run().unwrap();
            assert!(ours.iter().all(|rows| rows.num_rows() > 0), "{query}");
            fill(&slots);
            let theirs = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
            let whole = |rows: &[RecordBatch]| {
                arrow::compute::concat_batches(&plan.schema(), rows).unwrap()
            };
            assert_eq!(whole(&ours), whole(&theirs), "{query}");
        }
    }

    #[tokio::test]
    async fn other_shapes_are_left_to_datafusion() {
        for query in ["SELECT v FROM t UNION ALL SELECT v FROM t", "SELECT max(v) FROM t"] {
            assert!(StraightLine::of(&plan(query).await.2).is_none(), "{query}");
        }
    }
}
