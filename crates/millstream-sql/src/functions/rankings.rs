//! Places of rows in a window: `row_number`, `rank`, `dense_rank`, `percent_rank` and `ntile`.
//!
//! They are DataFusion's, whose results are unsigned 64-bit numbers but for shares; Spark has no
//! such type, and no table either. Here they are INT, as in Spark. What depends on the order alone
//! takes arguments in Spark, and does not look at them.

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
    LimitEffect, PartitionEvaluator, Signature, TypeSignature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;

/// All of them.
pub(super) fn functions() -> Vec<Arc<WindowUDF>> {
    let all = [
        row_number::row_number_udwf(),
        rank::rank_udwf(),
        rank::dense_rank_udwf(),
        rank::percent_rank_udwf(),
        ntile::ntile_udwf(),
    ];
    all.into_iter().map(|inner| Arc::new(WindowUDF::from(Ranking::of(inner)))).collect()
}

const PERCENT_RANK: &str = "percent_rank";

/// Functions whose arguments have no effect.
const OF_ORDER: [&str; 3] = ["rank", "dense_rank", PERCENT_RANK];

/// A function whose numbers are made narrower, unless it gives shares.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Ranking {
    inner: Arc<WindowUDF>,
    signature: Signature,
}

impl Ranking {
    fn of(inner: Arc<WindowUDF>) -> Self {
        let signature = match OF_ORDER.contains(&inner.name()) {
            true => Signature::one_of(
                vec![TypeSignature::Nullary, TypeSignature::VariadicAny],
                Volatility::Immutable,
            ),
            false => inner.signature().clone(),
        };
        Self { inner, signature }
    }

    fn is_narrow(&self) -> bool {
        self.inner.name() != PERCENT_RANK
    }
}

impl WindowUDFImpl for Ranking {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn expressions(&self, args: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        match OF_ORDER.contains(&self.name()) {
            true => Vec::new(),
            false => self.inner.expressions(args),
        }
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(args)?;
        if !self.is_narrow() {
            return Ok(inner);
        }
        Ok(Box::new(Narrow { wide: inner }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.inner.field(args)?;
        if !self.is_narrow() {
            return Ok(field);
        }
        Ok(Arc::new(field.as_ref().clone().with_data_type(DataType::Int32)))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
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
