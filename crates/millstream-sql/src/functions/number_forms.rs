//! Numbers as text in a form such as `$99,999.99S`: `to_number`, `try_to_number`, and `to_char` of
//! numbers.
//!
//! A form is, in this order and each part optional: a sign (`S`, or `MI` for a minus only), `$`,
//! digits with separators (`,` or `G`), the decimal point (`.` or `D`), digits, and a sign or `PR`,
//! angle brackets around what is negative. The form says the DECIMAL that `to_number` makes, so it
//! is a constant.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::define::{Arguments, call, known_by_name, literal_text};

/// How many digits a DECIMAL has at most.
const DIGITS_MAX: usize = 38;

/// `to_number` and `try_to_number`, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let function = |(name, strict)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(ToNumber { name, strict, signature }))
    };
    [("to_number", true), ("try_to_number", false)].into_iter().map(function).collect()
}

struct ToNumber {
    name: &'static str,
    /// Whether a text of another form is an error.
    strict: bool,
    signature: Signature,
}

known_by_name!(ToNumber);

impl ScalarUDFImpl for ToNumber {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            // A cast of NULL would hide that it is one.
            [_, form] if form.is_null() => Ok(vec![DataType::Utf8, DataType::Null]),
            [_, _] => Ok(vec![DataType::Utf8; 2]),
            _ => plan_err!("{} takes 2 arguments and got {}", self.name, given.len()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of {} depends on its second argument's value", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let form = args.scalar_arguments[1];
        let returns = match form {
            Some(form) if form.is_null() => DataType::Decimal128(10, 0),
            _ => NumberForm::parse(literal_text(self.name, form)?)?.decimal()?,
        };
        Ok(Arc::new(Field::new(self.name, returns, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| {
            if arguments.data_type(1).is_null() {
                return Ok(new_null_array(&arguments.returns, arguments.rows));
            }
            let form = NumberForm::parse(arguments.text(1).get(0).unwrap_or_default())?;
            let texts = arguments.text(0);
            arguments.primitives::<Decimal128Type>(|row| {
                let Some(text) = texts.get(row) else { return Ok(None) };
                let number = form.number(text)?;
                if number.is_none() && self.strict {
                    return exec_err!(
                        "the value '{text}' has not the form '{}' of a number; use \
                         try_to_number to get NULL instead",
                        form.text
                    );
                }
                Ok(number)
            })
        })
    }
}

/// The type to cast a number to before it is written; none of what is no number.
pub(super) fn written_as(of: &DataType) -> Option<DataType> {
    Some(match of {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Null => {
            DataType::Decimal128(20, 0)
        }
        DataType::Float32 => DataType::Decimal128(14, 7),
        DataType::Float64 => DataType::Decimal128(30, 15),
        DataType::Utf8 => DataType::Decimal128(38, 18),
        DataType::Decimal128(..) => of.clone(),
        _ => return None,
    })
}

/// `to_char` of numbers, which are cast to `decimal`.
pub(super) fn write(args: &Arguments, decimal: &DataType) -> Result<ArrayRef> {
    let (_, constant) = args.array(1);
    if !constant {
        return exec_err!("to_char of a number takes a constant as its form");
    }
    let Some(form) = args.text(1).get(0) else {
        return Ok(new_null_array(&args.returns, args.rows));
    };
    let form = NumberForm::parse(form)?;
    let numbers = super::cast::cast(&args.expanded(0)?, decimal, true)?;
    let numbers = numbers.as_primitive::<Decimal128Type>();
    let scale = numbers.scale().max(0) as usize;
    args.write(|row, out| {
        if numbers.is_null(row) {
            return Ok(false);
        }
        form.write(numbers.value(row), scale, out);
        Ok(true)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// `S`: a plus or a minus.
    Either,
    /// `MI`: a minus, or a space.
    Minus,
}

/// Digits between two separators.
#[derive(Debug)]
struct Run {
    digits: usize,
    /// Whether it starts with 0: then there are as many digits, padded with zeros.
    exact: bool,
}

#[derive(Debug)]
struct NumberForm {
    text: String,
    first: Option<Sign>,
    dollar: bool,
    whole: Vec<Run>,
    point: bool,
    /// How many digits there are after the point.
    fraction: usize,
    last: Option<Sign>,
    brackets: bool,
}

impl NumberForm {
    fn parse(text: &str) -> Result<Self> {
        match Self::read(text) {
            Some(form) => Ok(form),
            None => plan_err!(
                "'{text}' is not the form of a number: [S or MI][$]digits[.digits][S, MI or PR] \
                 with digits of 0, 9 and separators (,)"
            ),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let upper = text.to_uppercase();
        let mut rest = upper.as_str();
        let first = sign(&mut rest);
        let dollar = took(&mut rest, "$");
        let whole = runs(&mut rest)?;
        let point = took(&mut rest, ".") || took(&mut rest, "D");
        let fraction = digits(&mut rest);
        let last = sign(&mut rest);
        let brackets = last.is_none() && took(&mut rest, "PR");
        let repeated = first.is_some() && first == last;
        let has_digits = fraction > 0 || !whole.is_empty();
        let text = text.to_owned();
        (rest.is_empty() && !repeated && has_digits).then_some(Self {
            text,
            first,
            dollar,
            whole,
            point,
            fraction,
            last,
            brackets,
        })
    }

    /// How many digits there are before the point.
    fn before_point(&self) -> usize {
        self.whole.iter().map(|run| run.digits).sum()
    }

    /// The type of what is read in this form.
    fn decimal(&self) -> Result<DataType> {
        let digits = self.before_point() + self.fraction;
        if digits > DIGITS_MAX {
            return plan_err!(
                "a DECIMAL has up to {DIGITS_MAX} digits, and the form '{}' has {digits}",
                self.text
            );
        }
        Ok(DataType::Decimal128(digits as u8, self.fraction as i8))
    }

    /// The unscaled value of `text`; none if it has another form.
    fn number(&self, text: &str) -> Result<Option<i128>> {
        // Java's digits of other scripts.
        if let Some(other) = text.chars().find(|char| char.is_numeric() && !char.is_ascii()) {
            return exec_err!("to_number reads the digits 0 to 9, not '{other}'");
        }
        let mut rest = text;
        let (mut whole, mut fraction) = (String::new(), String::new());
        let opened = self.brackets && took(&mut rest, "<");
        let mut negative = is_minus(self.first, &mut rest);
        if self.dollar && !rest.is_empty() && !took(&mut rest, "$") {
            return Ok(None);
        }
        if !self.whole.is_empty() && !fits(&groups(&mut rest, &mut whole), &self.whole) {
            return Ok(None);
        }
        let after_point = self.point && took(&mut rest, ".");
        if self.fraction > 0 {
            // Without a point in the text these digits are those of a whole number.
            let into = if after_point { &mut fraction } else { &mut whole };
            let run = Run { digits: self.fraction, exact: false };
            if !fits(&groups(&mut rest, into), &[run]) {
                return Ok(None);
            }
        }
        negative ^= is_minus(self.last, &mut rest);
        let closed = self.brackets && took(&mut rest, ">");
        if !rest.is_empty() || opened != closed {
            return Ok(None);
        }
        if whole.is_empty() && fraction.is_empty() {
            return Ok(None);
        }
        self.unscaled(&whole, &fraction, negative != closed).map(Some)
    }

    fn unscaled(&self, whole: &str, fraction: &str, negative: bool) -> Result<i128> {
        let digits = format!("{whole}{fraction:0<width$}", width = self.fraction);
        let significant = digits.trim_start_matches('0');
        if significant.len() > self.before_point() + self.fraction {
            return exec_err!("{whole} has more digits before the point than '{}'", self.text);
        }
        let value =
            significant.bytes().fold(0, |value: i128, digit| value * 10 + i128::from(digit - b'0'));
        Ok(if negative { -value } else { value })
    }

    /// Writes a number in this form, with `#` for digits that do not fit.
    fn write(&self, unscaled: i128, scale: usize, out: &mut String) {
        let negative = unscaled < 0;
        let (whole, fraction) = self.filled(unscaled, scale);
        if self.brackets && negative {
            out.push('<');
        }
        match self.first {
            Some(_) if negative => out.push('-'),
            Some(Sign::Either) => out.push('+'),
            Some(Sign::Minus) => out.push(' '),
            None => {}
        }
        if self.dollar {
            out.push('$');
        }
        self.write_whole(&whole, out);
        if self.point {
            if out.ends_with(' ') {
                out.pop();
                out.push('0');
            }
            out.push('.');
        }
        out.push_str(&fraction);
        self.write_end(negative, out);
        without_lone_point(out);
    }

    /// The digits before the point, padded with spaces, and those after it, with zeros.
    fn filled(&self, unscaled: i128, scale: usize) -> (String, String) {
        let digits = format!("{:0>scale$}", unscaled.unsigned_abs());
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let (before, after) = (self.before_point(), self.fraction);
        if whole.len() > before || fraction.len() > after {
            return ("#".repeat(before), "#".repeat(after));
        }
        let spaces = " ".repeat(before - whole.len());
        let zeros = "0".repeat(after - fraction.len());
        (spaces + whole, fraction.to_owned() + &zeros)
    }

    fn write_whole(&self, whole: &str, out: &mut String) {
        let mut digits = whole.chars();
        for (at, run) in self.whole.iter().enumerate() {
            if at > 0 {
                if out.ends_with(|last: char| last.is_ascii_digit()) {
                    out.push(',');
                } else {
                    push_space(out);
                }
            }
            for digit in digits.by_ref().take(run.digits) {
                match digit {
                    ' ' if run.exact => out.push('0'),
                    ' ' => push_space(out),
                    digit => out.push(digit),
                }
            }
        }
    }

    fn write_end(&self, negative: bool, out: &mut String) {
        // A minus that is none is a space, before which a point stays.
        if self.last == Some(Sign::Minus) && !negative {
            out.push(' ');
            return;
        }
        if self.last.is_none() && !self.brackets {
            return;
        }
        without_lone_point(out);
        match (self.brackets, negative) {
            (true, true) => push_sign(out, '>'),
            (true, false) => out.push_str("  "),
            (false, true) => push_sign(out, '-'),
            (false, false) => push_sign(out, '+'),
        }
    }
}

/// Takes `part` from the start of `rest`, if it is there.
fn took(rest: &mut &str, part: &str) -> bool {
    match rest.strip_prefix(part) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    }
}

fn sign(form: &mut &str) -> Option<Sign> {
    if took(form, "S") {
        return Some(Sign::Either);
    }
    took(form, "MI").then_some(Sign::Minus)
}

/// How many digits of a form start `rest`, which are taken.
fn digits(rest: &mut &str) -> usize {
    let after = rest.trim_start_matches(['0', '9']);
    let digits = rest.len() - after.len();
    *rest = after;
    digits
}

/// Digits and the separators between them; none if a separator is not between digits.
fn runs(form: &mut &str) -> Option<Vec<Run>> {
    let mut runs = Vec::new();
    loop {
        let exact = form.starts_with('0');
        let digits = digits(form);
        if digits == 0 {
            return runs.is_empty().then_some(runs);
        }
        runs.push(Run { digits, exact });
        if !took(form, ",") && !took(form, "G") {
            return Some(runs);
        }
    }
}

/// Takes the sign of a number; true for a minus.
fn is_minus(sign: Option<Sign>, rest: &mut &str) -> bool {
    if sign == Some(Sign::Either) && took(rest, "+") {
        return false;
    }
    sign.is_some() && took(rest, "-")
}

/// Takes digits, separators and white space: how many digits each group has, from the last one.
fn groups(rest: &mut &str, digits: &mut String) -> Vec<usize> {
    let (mut groups, mut group) = (Vec::new(), 0);
    let is_part = |char: char| char.is_ascii_digit() || char == ',' || is_white(char);
    let after = rest.trim_start_matches(is_part);
    for char in rest[..rest.len() - after.len()].chars() {
        if char == ',' {
            groups.push(std::mem::take(&mut group));
        } else if char.is_ascii_digit() {
            digits.push(char);
            group += 1;
        }
    }
    groups.push(group);
    groups.reverse();
    *rest = after;
    groups
}

/// Java's white space.
fn is_white(char: char) -> bool {
    match char {
        '\u{1C}'..='\u{1F}' => true,
        '\u{85}' | '\u{A0}' | '\u{2007}' | '\u{202F}' => false,
        char => char.is_whitespace(),
    }
}

/// Whether groups, from the last one, have the digits of `runs`; the first ones may be missing.
fn fits(groups: &[usize], runs: &[Run]) -> bool {
    let fits = |(at, run): (usize, &Run)| {
        let digits = groups.get(at).copied().unwrap_or(0);
        if run.exact { digits == run.digits } else { digits <= run.digits }
    };
    groups.len() <= runs.len() && runs.iter().rev().enumerate().all(fits)
}

/// A space, before a sign that stands right of it.
fn push_space(out: &mut String) {
    let at = out.trim_end_matches(['+', '-', '<']).len();
    out.insert(at, ' ');
}

/// A sign, before spaces that stand left of it.
fn push_sign(out: &mut String, sign: char) {
    let at = out.trim_end_matches(' ').len();
    out.insert(at, sign);
}

/// A point with nothing after it becomes a space.
fn without_lone_point(out: &mut String) {
    if let Some(at) = out.find('.')
        && matches!(out.as_bytes().get(at + 1), None | Some(b' '))
    {
        out.replace_range(at..=at, " ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, form: &str) -> Option<i128> {
        NumberForm::parse(form).unwrap().number(text).unwrap()
    }

    fn written(unscaled: i128, scale: usize, form: &str) -> String {
        let mut out = String::new();
        NumberForm::parse(form).unwrap().write(unscaled, scale, &mut out);
        out
    }

    #[test]
    fn numbers_are_read() {
        assert_eq!(read("454", "000"), Some(454));
        assert_eq!(read("45", "000"), None);
        assert_eq!(read("12,454", "00,000"), Some(12454));
        assert_eq!(read("34,50", "999,99"), Some(3450));
        assert_eq!(read("$78.12", "$99.99"), Some(7812));
        assert_eq!(read("12,454.8-", "00,000.9MI"), Some(-124_548));
        assert_eq!(read("<00,454.8>", "00,000.9pr"), Some(-4548));
        assert_eq!(read("<1", "9PR"), None);
        assert_eq!(read(" . 1", "9.9"), Some(1));
        assert_eq!(read("0.00001-", "9.999999S"), Some(-10));
        assert_eq!(read("1x", "99"), None);
    }

    #[test]
    fn numbers_are_written() {
        assert_eq!(written(454, 0, "999"), "454");
        assert_eq!(written(12454, 0, "99G999"), "12,454");
        assert_eq!(written(-124_548, 1, "99G999D9S"), "12,454.8-");
        assert_eq!(written(5, 0, "9,999"), "    5");
        assert_eq!(written(5, 0, "S9,999"), "    +5");
        assert_eq!(written(5, 0, "0,000"), "0,005");
        assert_eq!(written(-5, 0, "99PR"), " <5>");
        assert_eq!(written(5, 0, "99PR"), " 5  ");
        assert_eq!(written(5, 1, "9.99"), "0.50");
        assert_eq!(written(1234, 0, "999"), "###");
        assert_eq!(written(5, 0, "9."), "5 ");
    }

    #[test]
    fn other_forms_are_refused() {
        for form in ["", "S", "9,", ",9", "9,,9", "9.9,9", "9$", "S9S", "9x", "9.9.9", "PR9"] {
            assert!(NumberForm::parse(form).is_err(), "{form}");
        }
    }
}
