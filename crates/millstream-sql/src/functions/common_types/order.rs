//! What Spark does not compare: types that have no common one, and a type whose values have no
//! order. DataFusion would compare the texts of the former and the parts of the latter.

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::Operator;

use super::nested::mix_text;
use crate::types::spark_type;

/// Refuses a comparison of values of such types.
pub(super) fn check(op: Operator, [left, right]: &[DataType; 2]) -> Result<()> {
    // How long the months of such an INTERVAL are is not known.
    let has_no_order = |of: &DataType| *of == DataType::Interval(IntervalUnit::MonthDayNano);
    if has_no_order(left) || has_no_order(right) {
        return plan_err!(
            "`{op}` cannot compare INTERVALs of months, days and seconds, which have no order \
             (DATATYPE_MISMATCH); write make_dt_interval or make_ym_interval, or add them to a \
             date and compare the sums"
        );
    }
    if mix_text(left, right) {
        return plan_err!(
            "`{op}` cannot compare {} with {} (DATATYPE_MISMATCH); cast one of them",
            spark_type(left),
            spark_type(right)
        );
    }
    Ok(())
}
