//! The types of `sequence`: that of its elements, which its start, its end and a number as the step
//! are cast to.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::{cast_to, common_type};
use crate::types::{list_of, spark_type, timestamp};

/// The type of a sequence from and to values of these types, by steps of the third.
pub(in crate::functions) fn sequence_list(types: &[DataType]) -> Result<DataType> {
    match item_type(types) {
        Some(item) => Ok(list_of(item)),
        None => {
            let given: Vec<String> = types.iter().map(spark_type).collect();
            plan_err!(
                "sequence takes two whole numbers and a number as the step, or two dates or times \
                 and an INTERVAL, not ({}); cast them, as in CAST('2026-01-01' AS DATE)",
                given.join(", ")
            )
        }
    }
}

/// The type of the elements, to which the start, the end and a number as the step are cast; `None`
/// if Spark refuses such arguments.
fn item_type(types: &[DataType]) -> Option<DataType> {
    let ends = types.get(..2)?;
    let span = types.get(2).is_some_and(is_span);
    let common = common_type(if span { ends } else { types })?;
    let is_stepped_by_days = span || types.len() == 2;
    let is_time = |of: &DataType| matches!(of, DataType::Date32 | DataType::Timestamp(..));
    match common {
        DataType::Date32 if is_stepped_by_days => Some(DataType::Date32),
        DataType::Timestamp(_, Some(_)) if is_stepped_by_days => Some(timestamp()),
        DataType::Timestamp(_, None) if is_stepped_by_days => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, None))
        }
        whole if whole.is_signed_integer() && !span && !types.iter().any(is_time) => Some(whole),
        _ => None,
    }
}

fn is_span(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Duration(_)
            | DataType::Interval(IntervalUnit::YearMonth | IntervalUnit::MonthDayNano)
    )
}

/// A call whose arguments are of the type of its elements, but for an INTERVAL as the step.
pub(super) fn with_sequence_types(call: ScalarFunction, schema: &DFSchema) -> Result<Expr> {
    let types = call.args.iter().map(|arg| arg.get_type(schema)).collect::<Result<Vec<_>>>()?;
    let Some(item) = item_type(&types) else {
        // It says what is wrong.
        sequence_list(&types)?;
        return Ok(Expr::ScalarFunction(call));
    };
    let ScalarFunction { func, args } = call;
    let args = args.into_iter().zip(&types).map(|(arg, of)| match of {
        of if is_span(of) => Ok(arg),
        of => cast_to(arg, of, &item),
    });
    Ok(Expr::ScalarFunction(ScalarFunction { func, args: args.collect::<Result<_>>()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_that_of_all_numbers_or_of_both_ends() {
        let (byte, int, day) = (DataType::Int8, DataType::Int32, DataType::Date32);
        let month = DataType::Interval(IntervalUnit::YearMonth);
        let cases = [
            (vec![byte.clone(), byte.clone()], Some(byte.clone())),
            (vec![byte.clone(), byte.clone(), int.clone()], Some(int.clone())),
            (vec![day.clone(), DataType::Utf8], Some(day.clone())),
            (vec![day.clone(), timestamp(), month.clone()], Some(timestamp())),
            (vec![day.clone(), day.clone(), int.clone()], None),
            (vec![day.clone(), day.clone(), DataType::Null], None),
            (vec![int.clone(), int.clone(), month], None),
            (vec![DataType::Null, DataType::Null], None),
            (vec![DataType::Utf8, DataType::Utf8], None),
        ];
        for (types, wanted) in cases {
            assert_eq!(item_type(&types), wanted, "{types:?}");
        }
    }
}
