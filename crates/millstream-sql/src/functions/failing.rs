//! Which expressions can fail with some value: divide by zero, overflow, or find no number in a
//! text.
//!
//! Only what surely cannot is listed. Whoever asks may then compute it for rows that do not need
//! it; anything else is computed for no more rows than the query asks for.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::expr::{BinaryExpr, Cast, ScalarFunction};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator};

use super::cast::SparkCast;

/// Functions that have a result, or NULL, for all values.
const TOTAL: &[&str] = &[
    "__apart",
    "__dated",
    "__half_up",
    "__if_any",
    "__java_decimal",
    "__java_digits",
    "__java_exponent",
    "__one_nan",
    "__one_zero",
    "__sorted_maps",
    "array_contains",
    "ascii",
    "bit_length",
    "btrim",
    "character_length",
    "coalesce",
    "concat",
    "concat_ws",
    "contains",
    "date_part",
    "day",
    "dayofmonth",
    "dayofweek",
    "dayofyear",
    "ends_with",
    "endswith",
    "get_field",
    "get_json_object",
    "greatest",
    "hash",
    "hour",
    "initcap",
    "instr",
    "isnan",
    "isnotnull",
    "isnull",
    "least",
    "left",
    "length",
    "levenshtein",
    "lower",
    "ltrim",
    "md5",
    "minute",
    "month",
    "nanvl",
    "nvl",
    "nvl2",
    "octet_length",
    "position",
    "quarter",
    "replace",
    "reverse",
    "right",
    "rtrim",
    "second",
    "sha2",
    "size",
    "spark_try_cast",
    "starts_with",
    "startswith",
    "substr",
    "substring",
    "substring_index",
    "translate",
    "trim",
    "upper",
    "weekday",
    "weekofyear",
    "xxhash64",
    "year",
];

/// Whether `expr`, over columns of `schema`, fails with some values.
pub(crate) fn can_fail(expr: &Expr, schema: &DFSchema) -> bool {
    expr.exists(|part| Ok(part_can_fail(part, schema))).unwrap_or(true)
}

fn part_can_fail(part: &Expr, schema: &DFSchema) -> bool {
    let type_of = |expr: &Expr| expr.get_type(schema).unwrap_or(DataType::Null);
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, .. }) => match op {
            Operator::Plus | Operator::Minus | Operator::Multiply => !type_of(left).is_floating(),
            operator => operator.is_numerical_operators(),
        },
        Expr::Negative(of) => !type_of(of).is_floating(),
        Expr::Cast(Cast { expr, field }) => !keeps(&type_of(expr), field.data_type()),
        Expr::ScalarFunction(function) => call_can_fail(function, type_of),
        Expr::HigherOrderFunction(_) => true,
        _ => false,
    }
}

fn call_can_fail(call: &ScalarFunction, type_of: impl Fn(&Expr) -> DataType) -> bool {
    if let Some(cast) = call.func.inner().downcast_ref::<SparkCast>() {
        let from = call.args.first().map_or(DataType::Null, type_of);
        return call.name() == "spark_cast" && !keeps(&from, cast.to());
    }
    match (call.name(), &call.args[..]) {
        // It casts what it compares.
        ("nullif", [value, other]) => type_of(value) != type_of(other),
        (name, _) => TOTAL.binary_search(&name).is_err(),
    }
}

/// Whether each value of one type has a counterpart in another.
fn keeps(from: &DataType, to: &DataType) -> bool {
    let whole_digits = |of: &DataType| match of {
        DataType::Int8 => Some(3),
        DataType::Int16 => Some(5),
        DataType::Int32 => Some(10),
        DataType::Int64 => Some(19),
        DataType::Decimal128(precision, scale) => Some(i32::from(*precision) - i32::from(*scale)),
        _ => None,
    };
    let scale = |of: &DataType| match of {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    match (from, to) {
        (from, to) if from == to || from.is_null() => true,
        (_, DataType::Utf8) => true,
        (from, to) if from.is_string() => to.is_string(),
        (DataType::Date32, DataType::Timestamp(..))
        | (DataType::Timestamp(..), DataType::Date32) => true,
        (from, to) if to.is_floating() => from.is_numeric(),
        (from, to) => match (whole_digits(from), whole_digits(to)) {
            (Some(digits), Some(room)) => {
                // Not all numbers with as many digits as the greatest INT are INTs.
                let room = room - i32::from(from.is_decimal() && to.is_integer());
                digits <= room && scale(from) <= scale(to)
            }
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_keeps_what_fits_it() {
        let decimal = |precision| DataType::Decimal128(precision, 0);
        let widths = [
            (DataType::Int8, 2),
            (DataType::Int16, 4),
            (DataType::Int32, 9),
            (DataType::Int64, 18),
        ];
        for (at, (whole, digits)) in widths.iter().enumerate() {
            assert!(keeps(&decimal(*digits), whole) && !keeps(&decimal(*digits + 1), whole));
            assert!(keeps(whole, &decimal(*digits + 1)) && !keeps(whole, &decimal(*digits)));
            for (other, (wider, _)) in widths.iter().enumerate() {
                assert_eq!(keeps(whole, wider), at <= other);
            }
        }
        assert!(keeps(&DataType::Decimal128(5, 2), &DataType::Decimal128(7, 3)));
        assert!(!keeps(&DataType::Decimal128(5, 2), &DataType::Decimal128(7, 1)));
        assert!(
            !keeps(&DataType::Utf8, &DataType::Int32) && keeps(&DataType::Int32, &DataType::Utf8)
        );
    }

    #[test]
    fn functions_are_found_by_name() {
        assert!(TOTAL.is_sorted(), "they are searched");
    }
}
