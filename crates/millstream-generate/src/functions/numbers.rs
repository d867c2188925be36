//! Numbers, truth values, and texts of random letters, which are a random length first.

use crate::error::Problem;
use crate::functions::Action;
use crate::java::format::Format;
use crate::java::{decimal, parse_f32, parse_f64, parse_i32, parse_i64, push_integer};
use crate::letters::{self, Alphabet};
use crate::random::Random;

/// A number to draw, and how it is written.
#[derive(Debug)]
pub(crate) enum Number {
    Integer { min: i32, bound: u32 },
    Long { min: i64, max: i64 },
    Float { min: f32, max: f32, format: Option<Format> },
    Double { min: f64, max: f64, format: Option<Format> },
    Chance { probability: f64, words: [&'static str; 2] },
    Letters { alphabet: Alphabet, min: u32, bound: u32 },
}

impl Number {
    #[inline]
    pub(crate) fn write(&self, random: &mut Random, out: &mut Vec<u8>) {
        match self {
            Self::Integer { min, bound } => {
                let above = random.below(u64::from(*bound)) as i32;
                push_integer(i64::from(min.wrapping_add(above)), out);
            }
            Self::Long { min, max } => push_integer(long_between(*min, *max, random), out),
            Self::Float { min, max, format } => {
                let value = min + (max - min) * random.unit_f32();
                let text = || decimal::float_text(value);
                write_formatted(format.as_ref(), f64::from(value), text, out);
            }
            Self::Double { min, max, format } => {
                let value = min + (max - min) * random.unit();
                let text = || decimal::double_text(value);
                write_formatted(format.as_ref(), value, text, out);
            }
            Self::Chance { probability, words } => {
                let is_first = random.unit() < *probability;
                out.extend_from_slice(words[usize::from(!is_first)].as_bytes());
            }
            Self::Letters { alphabet, min, bound } => {
                let more = if *bound == 1 { 0 } else { random.below(u64::from(*bound)) };
                letters::append(*alphabet, *min as usize + more as usize, random, out);
            }
        }
    }
}

fn long_between(min: i64, max: i64, random: &mut Random) -> i64 {
    // The distance of two `i64` may need 64 bits; the whole range is one more than fits.
    let span = (max as u64).wrapping_sub(min as u64);
    match span.checked_add(1) {
        Some(bound) => min.wrapping_add(random.below(bound) as i64),
        None => random.next() as i64,
    }
}

fn write_formatted(
    format: Option<&Format>,
    value: f64,
    text: impl FnOnce() -> decimal::Text,
    out: &mut Vec<u8>,
) {
    let text = text();
    match format {
        Some(format) => format.write(value, text.as_str(), out),
        None => out.extend_from_slice(text.as_str().as_bytes()),
    }
}

pub(crate) fn integer<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let (min, max) = (parse_i32(arguments[0])?, parse_i32(arguments[1])?);
    Ok(Action::Number(Number::Integer { min, bound: bound(min, max)? }))
}

/// How many integers there are from `min` to `max`, without `max`. Java's arithmetic wraps, so a
/// range of more than 2^31 numbers has none.
fn bound(min: i32, max: i32) -> Result<u32, Problem> {
    let bound = max.wrapping_sub(min);
    if bound > 0 {
        return Ok(bound.unsigned_abs());
    }
    let what = format!("no integer is at least {min} and below {max}");
    Err(Problem::new(what, "write the smaller number first, at most 2147483647 apart"))
}

pub(crate) fn long<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let (min, max) = (long_of(arguments[0])?, long_of(arguments[1])?);
    if min >= max {
        let what = format!("{min} is not less than {max}");
        return Err(Problem::new(what, "write the smaller number first"));
    }
    Ok(Action::Number(Number::Long { min, max }))
}

/// `5L` is 5; a negative number with an `L` is none, as in the original.
fn long_of(text: &str) -> Result<i64, Problem> {
    let digits = text
        .strip_suffix('L')
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()));
    parse_i64(digits.unwrap_or(text))
}

pub(crate) fn float<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let (min, max) = (parse_f32(arguments[0])?, parse_f32(arguments[1])?);
    let format = arguments.get(2).map(|format| Format::parse(format)).transpose()?;
    Ok(Action::Number(Number::Float { min, max, format }))
}

pub(crate) fn double<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let (min, max) = (parse_f64(arguments[0])?, parse_f64(arguments[1])?);
    let format = arguments.get(2).map(|format| Format::parse(format)).transpose()?;
    Ok(Action::Number(Number::Double { min, max, format }))
}

pub(crate) fn bool<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let probability = arguments.first().map_or(Ok(0.5), |p| parse_f32(p))?;
    Ok(chance(probability, ["true", "false"]))
}

/// With a probability the original gives truth values instead of words.
pub(crate) fn gender<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    match arguments.first() {
        Some(probability) => Ok(chance(parse_f32(probability)?, ["true", "false"])),
        None => Ok(chance(0.5, ["male", "female"])),
    }
}

fn chance(probability: f32, words: [&'static str; 2]) -> Action<'static> {
    Action::Number(Number::Chance { probability: f64::from(probability), words })
}

pub(crate) fn alpha<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    letters(Alphabet::Alpha, arguments)
}

pub(crate) fn alpha_numeric<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    letters(Alphabet::AlphaNumeric, arguments)
}

fn letters<'a>(alphabet: Alphabet, arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let (min, bound) = match arguments {
        [] => (10, 10),
        [length] => (parse_i32(length)?, 1),
        [min, max, ..] => {
            let (min, max) = (parse_i32(min)?, parse_i32(max)?);
            (min, bound(min, max)?)
        }
    };
    let Ok(min) = u32::try_from(min) else {
        return Err(Problem::new(format!("{min} is no length"), "lengths are 0 or more"));
    };
    Ok(Action::Number(Number::Letters { alphabet, min, bound }))
}

/// The number in a repetition, both ends included.
pub(crate) fn repeat<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let low = parse_i32(arguments[0])?;
    let high = arguments.get(1).map_or(Ok(low), |high| parse_i32(high))?;
    if low == high {
        return Ok(Action::Number(Number::Integer { min: low, bound: 1 }));
    }
    let bound = high.wrapping_sub(low).wrapping_add(1);
    if low > high || bound <= 0 {
        let what = format!("{low} is not less than {high}");
        return Err(Problem::new(what, "write the smaller number of repetitions first"));
    }
    Ok(Action::Number(Number::Integer { min: low, bound: bound.unsigned_abs() }))
}
