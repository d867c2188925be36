//! Expressions as a stateful query is known again by.
//!
//! A checkpoint keeps what its state was made for, as a text that holds DataFusion's words for each
//! expression. Those words may change while the query means the same, and then the text must not:
//! a checkpoint of an earlier version would be refused.

use arrow::datatypes::{DataType, IntervalMonthDayNano};
use datafusion::common::ScalarValue;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Cast, Expr, lit};
use millstream_sql::types::INTERVAL_FIELDS;

const SECONDS_OF_A_DAY: i64 = 86_400;

/// The expression's words, in which intervals are written as they always were: as months, days and
/// nanoseconds, of whatever type the computation needs them.
pub fn in_words(expr: &Expr) -> String {
    let words = expr.clone().transform(|expr| Ok(with_former_intervals(expr)));
    words.map_or_else(|_| expr.to_string(), |words| words.data.to_string())
}

/// The operands of `expr` are done.
fn with_former_intervals(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Literal(value, metadata) => match interval(&value, metadata.as_ref()) {
            None => Transformed::no(Expr::Literal(value, metadata)),
            former => Transformed::yes(lit(ScalarValue::IntervalMonthDayNano(former))),
        },
        Expr::Cast(Cast { expr, field })
            if is_interval(&expr) && matches!(field.data_type(), DataType::Duration(_)) =>
        {
            Transformed::yes(*expr)
        }
        other => Transformed::no(other),
    }
}

fn is_interval(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(_)), _))
}

/// An interval's months, days and nanoseconds; `None` for what is no interval, and for what no
/// earlier version had.
fn interval(value: &ScalarValue, metadata: Option<&FieldMetadata>) -> Option<IntervalMonthDayNano> {
    metadata?.inner().get(INTERVAL_FIELDS)?;
    match value {
        ScalarValue::IntervalYearMonth(Some(months)) => {
            Some(IntervalMonthDayNano::new(*months, 0, 0))
        }
        ScalarValue::DurationSecond(Some(seconds)) => {
            let days = i32::try_from(seconds / SECONDS_OF_A_DAY).ok()?;
            Some(IntervalMonthDayNano::new(0, days, 0))
        }
        ScalarValue::DurationMicrosecond(Some(us)) => {
            Some(IntervalMonthDayNano::new(0, 0, us.checked_mul(1_000)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow::datatypes::TimeUnit;
    use datafusion::logical_expr::{cast, col};

    use super::*;

    fn literal(value: ScalarValue, fields: &str) -> Expr {
        let metadata = HashMap::from([(INTERVAL_FIELDS.to_owned(), fields.to_owned())]);
        Expr::Literal(value, Some(FieldMetadata::from(metadata)))
    }

    #[test]
    fn intervals_are_written_as_earlier_versions_did() {
        let cases = [
            (ScalarValue::DurationMicrosecond(Some(5_000_000)), "second", (0, 0, 5_000_000_000)),
            (ScalarValue::DurationSecond(Some(7 * SECONDS_OF_A_DAY)), "day", (0, 7, 0)),
            (ScalarValue::IntervalYearMonth(Some(14)), "year to month", (14, 0, 0)),
        ];
        for (value, fields, (months, days, nanoseconds)) in cases {
            let former = IntervalMonthDayNano::new(months, days, nanoseconds);
            let former = col("ts") + lit(ScalarValue::IntervalMonthDayNano(Some(former)));
            assert_eq!(in_words(&(col("ts") + literal(value.clone(), fields))), former.to_string());
            let duration = DataType::Duration(TimeUnit::Microsecond);
            let as_duration = cast(literal(value, fields), duration);
            assert_eq!(in_words(&(col("ts") + as_duration)), former.to_string());
        }
    }

    #[test]
    fn other_expressions_are_as_datafusion_writes_them() {
        let without_fields = lit(ScalarValue::DurationMicrosecond(Some(1)));
        let of_column = cast(col("a"), DataType::Duration(TimeUnit::Second));
        for expr in [col("a").gt(lit(1)), without_fields, of_column] {
            assert_eq!(in_words(&expr), expr.to_string());
        }
    }
}
