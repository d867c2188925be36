//! Numbers that `format_string` writes with `%.2f`: Java rounds the digits that a double is shown
//! with, half up, so that 1.005 becomes 1.01. The double itself is a little less than 1.005, and
//! would become 1.00. So what such a directive takes is rounded before.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable as _, ScalarUDF, lit};

use super::define::{Arguments, Function, Param, returns_double};

/// The digits after the point that `%f` writes.
const PLACES: u32 = 6;

const HALF_UP: Function =
    Function::new("__half_up", &[Param::Double, Param::Long], returns_double, half_up_all);

/// The function that rounds.
pub(super) fn half_up_function() -> Arc<ScalarUDF> {
    HALF_UP.udf()
}

/// A call of `format_string`, whose doubles are rounded where its format says to how many places.
pub(super) fn rounded(mut call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let mut changed = false;
    if let Some(Expr::Literal(ScalarValue::Utf8(Some(format)), _)) = call.args.first() {
        for (at, places) in places_of(format) {
            let Some(value) = call.args.get_mut(at) else { continue };
            if matches!(value.get_type(schema), Ok(DataType::Float64)) {
                let places = lit(i64::from(places));
                *value = HALF_UP.udf().call(vec![std::mem::take(value), places]);
                changed = true;
            }
        }
    }
    Transformed::new_transformed(Expr::ScalarFunction(call), changed)
}

/// The places of the arguments that are written by `%f`, and by nothing else.
fn places_of(format: &str) -> Vec<(usize, u32)> {
    let mut uses: HashMap<usize, Vec<Option<u32>>> = HashMap::new();
    let (mut rest, mut next) = (format, 0);
    while let Some((_, directive)) = rest.split_once('%') {
        let is_end = |letter: char| letter.is_ascii_alphabetic() || letter == '%';
        let Some(end) = directive.find(is_end) else { break };
        let (spec, conversion) = (&directive[..end], &directive[end..=end]);
        rest = &directive[end + 1..];
        if matches!(conversion, "%" | "n") {
            continue;
        }
        // `%<f` writes the argument of the directive before once more.
        if spec.contains('<') {
            return Vec::new();
        }
        let (index, spec) = match spec.split_once('$') {
            Some((index, spec)) => (index.parse().ok(), spec),
            None => (None, spec),
        };
        let at = index.unwrap_or_else(|| {
            next += 1;
            next
        });
        let places = match spec.split_once('.') {
            Some((_, places)) => places.parse().unwrap_or(PLACES),
            None => PLACES,
        };
        uses.entry(at).or_default().push((conversion == "f").then_some(places));
    }
    let only = |(at, uses): (usize, Vec<Option<u32>>)| match uses.as_slice() {
        [Some(places)] => Some((at, *places)),
        _ => None,
    };
    uses.into_iter().filter_map(only).collect()
}

fn half_up_all(args: &Arguments) -> Result<ArrayRef> {
    let (values, places) = (args.primitive::<Float64Type>(0), args.long(1));
    args.primitives::<Float64Type>(|row| {
        let both = values.get(row).zip(places.get(row));
        Ok(both.map(|(value, places)| half_up(value, usize::try_from(places).unwrap_or(0))))
    })
}

/// `value` with so many places after the point. A zero keeps its sign, which Java writes.
fn half_up(value: f64, places: usize) -> f64 {
    let shown = value.abs().to_string();
    let Some((whole, fraction)) = shown.split_once('.') else { return value };
    if fraction.len() <= places {
        return value;
    }
    let mut digits = format!("{whole}{}", &fraction[..places]).into_bytes();
    if fraction.as_bytes()[places] >= b'5' {
        let nines = digits.iter().rev().take_while(|digit| **digit == b'9').count();
        let kept = digits.len() - nines;
        digits[kept..].fill(b'0');
        match kept.checked_sub(1) {
            Some(last) => digits[last] += 1,
            None => digits.insert(0, b'1'),
        }
    }
    digits.insert(digits.len() - places, b'.');
    let digits = String::from_utf8(digits).unwrap_or_default();
    digits.parse().map_or(value, |rounded: f64| rounded.copysign(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_that_are_shown_are_rounded() {
        assert_eq!(half_up(1.005, 2), 1.01);
        assert_eq!(half_up(0.25, 1), 0.3);
        assert_eq!(half_up(-2.5, 0), -3.0);
        assert_eq!(half_up(9.996, 2), 10.0);
        assert_eq!(half_up(99.5, 0), 100.0);
        assert_eq!(half_up(1.0e300, 2), 1.0e300);
        assert_eq!(half_up(0.1, 5), 0.1);
        assert!(half_up(-0.04, 1).is_sign_negative() && half_up(f64::NAN, 1).is_nan());
    }

    #[test]
    fn places_are_those_of_directives_of_numbers() {
        let places = |format: &str| {
            let mut found = places_of(format);
            found.sort_unstable();
            found
        };
        assert_eq!(places("%s %.2f %d%% %8.1f%n"), [(2, 2), (4, 1)]);
        assert_eq!(places("%f"), [(1, 6)]);
        assert_eq!(places("%2$.3f %1$s"), [(2, 3)]);
        for other in ["%1$.3f %1$s", "%.2f %<s", "100%"] {
            assert!(places(other).is_empty(), "{other}");
        }
    }
}
