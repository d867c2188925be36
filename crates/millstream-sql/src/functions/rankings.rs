//! Places of rows in a window: `row_number`, `rank`, `dense_rank` and `ntile`.
//!
//! They are DataFusion's, whose results are unsigned 64-bit numbers; Spark has no such type, and
//! no table either. Here they are INT, as in Spark.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, SortOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_window::{ntile, rank, row_number};
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    LimitEffect, PartitionEvaluator, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;

/// All of them.
pub(super) fn functions() -> Vec<Arc<WindowUDF>> {
    let wide = [
        row_number::row_number_udwf(),
        rank::rank_udwf(),
        rank::dense_rank_udwf(),
        ntile::ntile_udwf(),
    ];
    wide.into_iter().map(|wide| Arc::new(WindowUDF::from(Ranking { wide }))).collect()
}

/// A function whose numbers are made narrower.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Ranking {
    wide: Arc<WindowUDF>,
}

impl WindowUDFImpl for Ranking {
    fn name(&self) -> &str {
        self.wide.name()
    }

    fn signature(&self) -> &Signature {
        self.wide.signature()
    }

    fn expressions(&self, args: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        self.wide.expressions(args)
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let wide = self.wide.partition_evaluator_factory(args)?;
        Ok(Box::new(Narrow { wide }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let wide = self.wide.field(args)?;
        Ok(Arc::new(wide.as_ref().clone().with_data_type(DataType::Int32)))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.wide.sort_options()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.wide.inner().limit_effect(args)
    }
}

/// What the function does over one partition; a number that does not fit is an error.
#[derive(Debug)]
struct Narrow {
    wide: Box<dyn PartitionEvaluator>,
}

impl PartitionEvaluator for Narrow {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.wide.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.wide.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.wide.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        narrow(&self.wide.evaluate_all(values, rows)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.wide.evaluate(values, range)?.cast_to(&DataType::Int32)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        narrow(&self.wide.evaluate_all_with_rank(rows, ranks)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.wide.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.wide.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.wide.include_rank()
    }
}

fn narrow(wide: &ArrayRef) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(wide, &DataType::Int32, &options)?)
}
