//! Arguments of `format_string` as Java writes them.
//!
//! With `%.2f` it rounds the digits that a double is shown with, half up, so that 1.005 becomes
//! 1.01. The double itself is a little less than 1.005, and would become 1.00. With `%s` doubles
//! and decimals have Java's texts, and `%g` has as many digits as it says. So what such a directive
//! takes is rounded, or made a text, before.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Field, Float64Type};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable as _, ScalarUDF, lit};

use super::cast::cast_expr;
use super::define::{Arguments, Function, Param, returns_double, returns_text};
use crate::values::java_text::{write_big_decimal, write_double};

/// The digits after the point that `%f` writes, and all digits of `%g`.
const PLACES: u32 = 6;

const HALF_UP: Function =
    Function::new("__half_up", &[Param::Double, Param::Long], returns_double, half_up_all);

const DIGITS: Function =
    Function::new("__java_digits", &[Param::Double, Param::Long], returns_text, digits_all);

const EXPONENT: Function =
    Function::new("__java_exponent", &[Param::Double, Param::Long], returns_text, exponents_all);

const DECIMAL_TEXT: Function =
    Function::new("__java_decimal", &[Param::Any], returns_text, decimal_texts);

/// The functions that such arguments become calls of.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [HALF_UP, DIGITS, EXPONENT, DECIMAL_TEXT].map(Function::udf).to_vec()
}

/// One `%...` of a format that takes an argument.
struct Directive<'f> {
    /// The number of the argument, from 1.
    argument: usize,
    /// How the number is written, if it is.
    index: &'f str,
    /// What stands between that and the letter.
    spec: &'f str,
    letter: char,
    place: Range<usize>,
}

impl Directive<'_> {
    /// How many digits are asked for.
    fn places(&self) -> Option<u32> {
        let (_, places) = self.spec.split_once('.')?;
        Some(places.parse().unwrap_or(PLACES))
    }

    fn is_text(&self) -> bool {
        matches!(self.letter, 's' | 'S')
    }

    /// The same as a text, if that has all that is asked for.
    fn as_text(&self) -> Option<String> {
        let (width, _) = self.spec.split_once('.').unwrap_or((self.spec, ""));
        let is_plain = width.strip_prefix('-').unwrap_or(width).bytes().all(|b| b.is_ascii_digit());
        let letter = if self.letter.is_ascii_uppercase() { 'S' } else { 's' };
        (is_plain && !width.starts_with('0')).then(|| format!("%{}{width}{letter}", self.index))
    }
}

/// The directives of a format that take arguments; none if it has one that is no directive.
fn directives(format: &str) -> Vec<Directive<'_>> {
    let (mut found, mut from, mut next) = (Vec::<Directive<'_>>::new(), 0, 0);
    while let Some(start) = format[from..].find('%').map(|at| from + at) {
        let directive = &format[start + 1..];
        let is_end = |letter: char| letter.is_ascii_alphabetic() || letter == '%';
        let Some(end) = directive.find(is_end) else { break };
        let (spec, letter) = (&directive[..end], char::from(directive.as_bytes()[end]));
        from = start + end + 2;
        if matches!(letter, '%' | 'n') {
            continue;
        }
        let last = found.last().map(|last| last.argument);
        let (argument, index, spec) = match (spec.strip_prefix('<'), spec.find('$')) {
            // `%<f` writes the argument of the directive before once more.
            (Some(after), _) => (last, "<", after),
            (_, Some(at)) => (spec[..at].parse().ok(), &spec[..=at], &spec[at + 1..]),
            _ => {
                next += 1;
                (Some(next), "", spec)
            }
        };
        let Some(argument) = argument else { return Vec::new() };
        found.push(Directive { argument, index, spec, letter, place: start..from });
    }
    found
}

/// A call of `format_string`, whose arguments are what its format makes texts of.
///
/// # Errors
/// A DECIMAL where Java takes none.
pub(super) fn adapted(mut call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some(Expr::Literal(ScalarValue::Utf8(Some(format)), metadata)) = call.args.first().cloned()
    else {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    };
    let mut by_argument: HashMap<usize, Vec<Directive<'_>>> = HashMap::new();
    for directive in directives(&format) {
        by_argument.entry(directive.argument).or_default().push(directive);
    }
    let (mut changed, mut replaced) = (false, Vec::new());
    for (at, uses) in by_argument {
        let Some(value) = call.args.get_mut(at) else { continue };
        if let Some(better) = as_java(value, &uses, schema, &mut replaced)? {
            (*value, changed) = (better, true);
        }
    }
    // From the end on, so that the places before stay where they are.
    replaced.sort_by_key(|(place, _): &(Range<usize>, String)| std::cmp::Reverse(place.start));
    if !replaced.is_empty() {
        let mut text = format.clone();
        replaced.into_iter().for_each(|(place, other)| text.replace_range(place, &other));
        call.args[0] = Expr::Literal(ScalarValue::Utf8(Some(text)), metadata);
    }
    Ok(Transformed::new_transformed(Expr::ScalarFunction(call), changed))
}

/// The argument for directives that use it, if it has to be another one; `replaced` gets the
/// directives that have to be others then.
fn as_java(
    value: &Expr,
    uses: &[Directive<'_>],
    schema: &DFSchema,
    replaced: &mut Vec<(Range<usize>, String)>,
) -> Result<Option<Expr>> {
    let Ok(of) = value.get_type(schema) else { return Ok(None) };
    let are_texts = uses.iter().all(Directive::is_text);
    let to = |of: DataType| cast_expr(value.clone(), Arc::new(Field::new("text", of, true)), true);
    Ok(match (&of, uses) {
        (DataType::Null, [first, ..]) => Some(to(match first.letter {
            'd' | 'o' | 'x' | 'X' | 'c' | 'C' => DataType::Int64,
            'f' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A' => DataType::Float64,
            'b' | 'B' => DataType::Boolean,
            _ => DataType::Utf8,
        })),
        (DataType::Boolean | DataType::Float32 | DataType::Float64, _) if are_texts => {
            Some(to(DataType::Utf8))
        }
        (DataType::Decimal128(..), _) if are_texts => {
            Some(DECIMAL_TEXT.udf().call(vec![value.clone()]))
        }
        (DataType::Decimal128(..), _) => {
            return plan_err!(
                "format_string writes DECIMALs with %s alone here; cast them to DOUBLE or BIGINT"
            );
        }
        (DataType::Float64, [only]) if only.letter == 'f' => {
            let places = lit(i64::from(only.places().unwrap_or(PLACES)));
            Some(HALF_UP.udf().call(vec![value.clone(), places]))
        }
        // DataFusion has none for zero.
        (DataType::Float64, [only]) if matches!(only.letter, 'e' | 'E') => {
            let Some(text) = only.as_text() else { return Ok(None) };
            replaced.push((only.place.clone(), text));
            let places = lit(i64::from(only.places().unwrap_or(PLACES)));
            Some(EXPONENT.udf().call(vec![value.clone(), places]))
        }
        (DataType::Float64, [only]) if matches!(only.letter, 'g' | 'G') => {
            let Some(text) = only.as_text() else {
                return plan_err!(
                    "format_string: %{} takes a width and digits here, and no flag but `-`",
                    only.letter
                );
            };
            replaced.push((only.place.clone(), text));
            let places = lit(only.places().map_or(-1, i64::from));
            Some(DIGITS.udf().call(vec![value.clone(), places]))
        }
        _ => None,
    })
}

fn decimal_texts(args: &Arguments) -> Result<ArrayRef> {
    let DataType::Decimal128(_, scale) = *args.data_type(0) else {
        return exec_err!("only a DECIMAL has the text of one");
    };
    let values = args.expanded(0)?;
    let values = values.as_primitive::<Decimal128Type>().iter().collect::<Vec<_>>();
    args.write(|row, out| {
        if let Some(value) = values[row] {
            write_big_decimal(value, scale, out);
        }
        Ok(values[row].is_some())
    })
}

/// What `%g` writes with so many digits; -1 are as many as it has without any number.
fn digits_all(args: &Arguments) -> Result<ArrayRef> {
    let (values, places) = (args.primitive::<Float64Type>(0), args.long(1));
    args.write(|row, out| {
        let places = places.get(row).and_then(|places| usize::try_from(places).ok());
        match values.get(row) {
            Some(value) => write_digits(value, places.unwrap_or(PLACES as usize), out),
            None => out.push_str(&"null"[..places.unwrap_or(4).min(4)]),
        }
        Ok(true)
    })
}

/// What `%e` writes with so many digits after the point.
fn exponents_all(args: &Arguments) -> Result<ArrayRef> {
    let (values, places) = (args.primitive::<Float64Type>(0), args.long(1));
    args.write(|row, out| {
        let places = places.get(row).and_then(|places| usize::try_from(places).ok());
        match values.get(row) {
            Some(value) if !value.is_finite() => write_double(value, out),
            Some(value) => {
                let (digits, exponent) = rounded_digits(value.abs(), places.unwrap_or(0) + 1);
                out.push_str(if value.is_sign_negative() { "-" } else { "" });
                write_exponent(&digits, exponent, out);
            }
            None => out.push_str("null"),
        }
        Ok(true)
    })
}

fn write_exponent(digits: &str, exponent: i32, out: &mut String) {
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(out, "{first}{point}{rest}e{sign}{:02}", exponent.unsigned_abs());
}

/// Writes so many digits, rounded half up, and with an exponent where the number is below 10^-4 or
/// has more digits before the point.
fn write_digits(value: f64, places: usize, out: &mut String) {
    if !value.is_finite() {
        return write_double(value, out);
    }
    let places = places.max(1);
    let (digits, exponent) = rounded_digits(value.abs(), places);
    if value.is_sign_negative() {
        out.push('-');
    }
    let before = match usize::try_from(exponent + 1) {
        Ok(before) if before <= places => before,
        // A few zeros behind the point.
        _ if (-4..0).contains(&exponent) => {
            let zeros = exponent.unsigned_abs() as usize - 1;
            let _ = write!(out, "0.{:0<zeros$}{digits}", "");
            return;
        }
        _ => {
            write_exponent(&digits, exponent, out);
            return;
        }
    };
    match before {
        0 => {
            let _ = write!(out, "0.{digits}");
        }
        before => {
            let (whole, fraction) = digits.split_at(before);
            let point = if fraction.is_empty() { "" } else { "." };
            let _ = write!(out, "{whole}{point}{fraction}");
        }
    }
}

/// So many digits of a number that is not negative, and the power of ten of the first one.
fn rounded_digits(value: f64, places: usize) -> (String, i32) {
    let shown = format!("{value:e}");
    let (mantissa, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
    let mut exponent: i32 = exponent.parse().unwrap_or(0);
    let mut digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    let goes_up = digits.get(places).is_some_and(|next| *next >= b'5');
    digits.resize(places, b'0');
    if goes_up && up(&mut digits) {
        digits.truncate(places);
        exponent += 1;
    }
    (String::from_utf8(digits).unwrap_or_default(), exponent)
}

/// Adds one to the last of some digits; whether there is a digit more then.
fn up(digits: &mut Vec<u8>) -> bool {
    let nines = digits.iter().rev().take_while(|digit| **digit == b'9').count();
    let kept = digits.len() - nines;
    digits[kept..].fill(b'0');
    match kept.checked_sub(1) {
        Some(last) => digits[last] += 1,
        None => digits.insert(0, b'1'),
    }
    kept == 0
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
        up(&mut digits);
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
    fn directives_say_which_argument_they_take() {
        let found = |format: &str| -> Vec<(usize, char, Option<u32>)> {
            let found = directives(format);
            found.iter().map(|it| (it.argument, it.letter, it.places())).collect()
        };
        let expected = [(1, 's', None), (2, 'f', Some(2)), (3, 'd', None), (4, 'f', Some(1))];
        assert_eq!(found("%s %.2f %d%% %8.1f%n"), expected);
        assert_eq!(found("%2$.3f %1$s"), [(2, 'f', Some(3)), (1, 's', None)]);
        assert_eq!(found("%.2f %<s"), [(1, 'f', Some(2)), (1, 's', None)]);
        assert!(found("100%").is_empty() && found("%<s").is_empty());
        let texts: Vec<_> =
            directives("%g %-9.3G %,g %09g").iter().map(|it| it.as_text()).collect();
        assert_eq!(texts, [Some("%s".to_owned()), Some("%-9S".to_owned()), None, None]);
    }

    #[test]
    fn numbers_have_as_many_digits_as_asked_for() {
        let of = |value: f64, places: usize| {
            let mut out = String::new();
            write_digits(value, places, &mut out);
            out
        };
        assert_eq!(of(0.0001, 6), "0.000100000");
        assert_eq!(of(123_456.0, 3), "1.23e+05");
        assert_eq!(of(12_345.678, 6), "12345.7");
        assert_eq!(of(-0.00001, 2), "-1.0e-05");
        assert_eq!(of(999_999.5, 6), "1.00000e+06");
        assert_eq!(of(123_456.0, 6), "123456");
        assert_eq!(of(0.0, 6), "0.00000");
        assert_eq!(of(0.25, 1), "0.3");
        assert_eq!(of(f64::NEG_INFINITY, 2), "-Infinity");
    }
}
