//! `conv`: a whole number in digits of another base.

use arrow::array::ArrayRef;
use datafusion::common::{Result, exec_err};

use super::define::{Arguments, Function, Param, returns_text};

use Param::{Int, Text};

pub(super) const FUNCTIONS: &[Function] =
    &[Function::new("conv", &[Text, Int, Int], returns_text, conv)];

fn conv(args: &Arguments) -> Result<ArrayRef> {
    numbers(args, true)
}

/// `conv` without ANSI mode: a number of more than 64 bits has all of them set.
pub(super) fn conv_of_64_bits(args: &Arguments) -> Result<ArrayRef> {
    numbers(args, false)
}

fn numbers(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let (texts, from, to) = (args.text(0), args.int(1), args.int(2));
    args.write(|row, out| {
        let (Some(text), Some(from), Some(to)) = (texts.get(row), from.get(row), to.get(row))
        else {
            return Ok(false);
        };
        converted(text.trim_matches(' '), (from, to), strict, out)
    })
}

/// Writes the number that the digits at the beginning of `text` make. A negative one has 64 bits
/// without a sign, unless `to` is negative. More bits are an error if `strict`, else all are set.
fn converted(text: &str, (from, to): (i32, i32), strict: bool, out: &mut String) -> Result<bool> {
    let base = to.unsigned_abs();
    if !(2..=36).contains(&from) || !(2..=36).contains(&base) || text.is_empty() {
        return Ok(false);
    }
    let (mut negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let mut value: u64 = 0;
    for digit in digits.chars().map_while(|digit| digit.to_digit(from as u32)) {
        let next = value.checked_mul(from as u64);
        match next.and_then(|next| next.checked_add(u64::from(digit))) {
            Some(next) => value = next,
            None if strict => return exec_err!("conv: the number {text} has more than 64 bits"),
            None => {
                value = u64::MAX;
                break;
            }
        }
    }
    if negative && to > 0 {
        value = if (value as i64) < 0 { u64::MAX } else { value.wrapping_neg() };
    }
    if to < 0 && (value as i64) < 0 {
        value = value.wrapping_neg();
        negative = true;
    }
    if negative && to < 0 {
        out.push('-');
    }
    write(value, u64::from(base), out);
    Ok(true)
}

const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

fn write(mut value: u64, base: u64, out: &mut String) {
    // One for each bit, if the base is two.
    let mut digits = [0; 64];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = DIGITS[(value % base) as usize];
        value /= base;
        if value == 0 {
            break;
        }
    }
    out.extend(digits[first..].iter().copied().map(char::from));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, from: i32, to: i32) -> Option<String> {
        let mut out = String::new();
        converted(text, (from, to), true, &mut out).ok()?.then_some(out)
    }

    #[test]
    fn numbers_have_64_bits() {
        assert_eq!(of("100", 2, 10).as_deref(), Some("4"));
        assert_eq!(of("-10", 16, -10).as_deref(), Some("-16"));
        assert_eq!(of("-10", 16, 10).as_deref(), Some("18446744073709551600"));
        assert_eq!(of("9223372036854775808", 10, 16).as_deref(), Some("8000000000000000"));
        assert_eq!(of("FFFFFFFFFFFFFFFFF", 16, 10), None);
        assert_eq!(of("1", 1, 10), None);
        let mut out = String::new();
        assert!(converted("-FFFFFFFFFFFFFFFFF", (16, -10), false, &mut out).is_ok_and(|it| it));
        assert_eq!(out, "-1");
    }
}
