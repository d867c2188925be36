//! Moving window frames, for aggregates that cannot remove a row again.
//!
//! The rows of the frame are kept and aggregated anew for each result, as in Spark.

use std::fmt;
use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_plan::PhysicalExpr;

/// Makes an accumulator for a call.
type Make = Box<dyn Fn(AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> + Send + Sync>;

/// The rows of a frame.
pub(super) struct Frame {
    make: Make,
    call: Call,
    /// One array for each argument; none before the first row.
    rows: Vec<ArrayRef>,
    /// Rows that arrived after those, not joined to them yet.
    newer: Vec<Vec<ArrayRef>>,
}

impl Frame {
    /// A frame without rows; `make` makes what aggregates them.
    pub fn new(
        make: impl Fn(AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> + Send + Sync + 'static,
        args: &AccumulatorArgs<'_>,
    ) -> Self {
        let (rows, newer) = (Vec::new(), Vec::new());
        Self { make: Box::new(make), call: Call::of(args), rows, newer }
    }

    /// Makes one array of all rows for each argument.
    fn join(&mut self) -> Result<()> {
        let newer = std::mem::take(&mut self.newer);
        let mut parts: Vec<Vec<ArrayRef>> = Vec::with_capacity(newer.len() + 1);
        parts.extend((!self.rows.is_empty()).then(|| std::mem::take(&mut self.rows)));
        parts.extend(newer);
        self.rows = match parts.len() {
            0 | 1 => parts.pop().unwrap_or_default(),
            _ => (0..parts[0].len()).map(|at| column(&parts, at)).collect::<Result<_>>()?,
        };
        Ok(())
    }
}

fn column(parts: &[Vec<ArrayRef>], at: usize) -> Result<ArrayRef> {
    let arrays: Vec<&dyn Array> = parts.iter().map(|part| part[at].as_ref()).collect();
    Ok(concat(&arrays)?)
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Frame")
    }
}

impl Accumulator for Frame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.newer.extend((!values[0].is_empty()).then(|| values.to_vec()));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.join()?;
        let gone = values[0].len();
        for column in &mut self.rows {
            let Some(left) = column.len().checked_sub(gone) else {
                return internal_err!("a frame has {} rows and loses {gone}", column.len());
            };
            *column = column.slice(gone, left);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.join()?;
        let mut accumulator = (self.make)(self.call.args())?;
        if !self.rows.is_empty() {
            accumulator.update_batch(&self.rows)?;
        }
        accumulator.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a window frame that moves has no partial state")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("window frames that move are not merged")
    }

    fn size(&self) -> usize {
        let arrays = self.rows.iter().chain(self.newer.iter().flatten());
        size_of_val(self) + arrays.map(|array| array.get_array_memory_size()).sum::<usize>()
    }
}

/// An owned copy of [`AccumulatorArgs`], which borrows and so cannot be kept.
struct Call {
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl Call {
    fn of(args: &AccumulatorArgs<'_>) -> Self {
        Self {
            return_field: Arc::clone(&args.return_field),
            schema: args.schema.clone(),
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys.to_vec(),
            is_reversed: args.is_reversed,
            name: args.name.to_owned(),
            is_distinct: args.is_distinct,
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        }
    }

    fn args(&self) -> AccumulatorArgs<'_> {
        AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        }
    }
}
