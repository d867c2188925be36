//! Functions of strings, and some small ones of anything.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, FieldRef, Float64Type, Int32Type};
use datafusion::common::{Result, exec_err, plan_err};
use md5::{Digest, Md5};

use super::decimals::rounded_text;
use super::define::{Arguments, Function, Param, returns_boolean, returns_int, returns_text};
use super::number_patterns;
use crate::types::{is_variant, part_type, spark_type};

use Param::{Any, Binary, Int, Text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("locate", &[Text, Text, Int], returns_int, |args| locate(args, 0, 1))
        .aliases(&["position"])
        .required(2),
    Function::new("instr", &[Text, Text], returns_int, |args| locate(args, 1, 0)),
    Function::new("initcap", &[Text], returns_text, initcap),
    Function::new("md5", &[Binary], returns_text, md5),
    Function::new("replace", &[Text, Text, Text], returns_text, replace).required(2),
    Function::new("format_number", &[Any, Any], number_text_type, format_number),
    Function::new("isnull", &[Any], returns_boolean, |args| is_null(args, true)),
    Function::new("isnotnull", &[Any], returns_boolean, |args| is_null(args, false)),
    Function::new("typeof", &[Any], returns_text, type_of),
];

/// The first place of the text argument `part` in the text argument `whole`, in characters from 1;
/// 0 if nowhere. A third argument is the character to begin at.
fn locate(args: &Arguments, part: usize, whole: usize) -> Result<ArrayRef> {
    let (parts, wholes) = (args.text(part), args.text(whole));
    let starts = (args.len() > 2).then(|| args.int(2));
    args.primitives::<Int32Type>(|row| {
        let start = starts.as_ref().map_or(Some(1), |starts| starts.get(row));
        let (Some(part), Some(whole)) = (parts.get(row), wholes.get(row)) else { return Ok(None) };
        let Some(start) = start.filter(|start| *start >= 1) else { return Ok(Some(0)) };
        if part.is_empty() {
            return Ok(Some(1));
        }
        let begin = whole.char_indices().map(|(at, _)| at).chain([whole.len()]);
        let Some(begin) = begin.clone().nth(start as usize - 1) else { return Ok(Some(0)) };
        let found = whole[begin..].find(part);
        let number = |at: usize| whole[..begin + at].chars().count() as i32 + 1;
        Ok(Some(found.map_or(0, number)))
    })
}

/// Words are what stands between spaces.
fn initcap(args: &Arguments) -> Result<ArrayRef> {
    let texts = args.text(0);
    args.write(|row, out| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let mut first = true;
        for char in text.chars() {
            if first {
                push_title(char, out);
            } else {
                out.extend(char.to_lowercase());
            }
            first = char == ' ';
        }
        Ok(true)
    })
}

/// Of a letter that is several, such as `ß`, only the first one becomes large.
fn push_title(char: char, out: &mut String) {
    match char {
        // Letters of two that have a form for this.
        '\u{1c4}'..='\u{1c6}' => out.push('\u{1c5}'),
        '\u{1c7}'..='\u{1c9}' => out.push('\u{1c8}'),
        '\u{1ca}'..='\u{1cc}' => out.push('\u{1cb}'),
        '\u{1f1}'..='\u{1f3}' => out.push('\u{1f2}'),
        char => {
            let mut large = char.to_uppercase();
            out.extend(large.next());
            out.extend(large.flat_map(char::to_lowercase));
        }
    }
}

fn md5(args: &Arguments) -> Result<ArrayRef> {
    let values = args.binary(0);
    args.write(|row, out| {
        let Some(bytes) = values.get(row) else { return Ok(false) };
        for byte in Md5::digest(bytes) {
            for digit in [byte >> 4, byte & 15] {
                out.extend(char::from_digit(u32::from(digit), 16));
            }
        }
        Ok(true)
    })
}

/// Without a third argument what is found goes away; an empty text is found nowhere.
fn replace(args: &Arguments) -> Result<ArrayRef> {
    let (texts, parts) = (args.text(0), args.text(1));
    let others = (args.len() > 2).then(|| args.text(2));
    args.write(|row, out| {
        let other = others.as_ref().map_or(Some(""), |others| others.get(row));
        let (Some(text), Some(part), Some(other)) = (texts.get(row), parts.get(row), other) else {
            return Ok(false);
        };
        match part {
            "" => out.push_str(text),
            part => out.push_str(&text.replace(part, other)),
        }
        Ok(true)
    })
}

fn number_text_type(args: &[DataType]) -> Result<DataType> {
    match &args[1] {
        of if of.is_string() || of.is_numeric() || of.is_null() => returns_text(args),
        other => {
            plan_err!("format_number takes places or a pattern, not {}", spark_type(other))
        }
    }
}

/// `#,###.##`, rounded half to even as Java's `DecimalFormat`; whole numbers and decimals exactly.
/// The second argument is how many places there are, or a pattern.
fn format_number(args: &Arguments) -> Result<ArrayRef> {
    let (digits, same_digits) = args.array(1);
    let has_pattern = digits.data_type().is_string();
    let digits = match has_pattern {
        true => None,
        false => Some(super::cast::cast(digits, &DataType::Int32, true)?),
    };
    let places = |row: usize| {
        let digits = digits.as_ref()?.as_primitive::<Int32Type>();
        let at = if same_digits { 0 } else { row };
        digits.is_valid(at).then(|| u32::try_from(digits.value(at)).ok()).flatten()
    };
    let (values, constant) = args.array(0);
    let exact = match values.data_type() {
        DataType::Decimal128(precision, scale) => Some((*precision, *scale)),
        whole if whole.is_integer() => Some((20, 0)),
        _ => None,
    };
    let number =
        exact.map_or(DataType::Float64, |(digits, scale)| DataType::Decimal128(digits, scale));
    let values = super::cast::cast(values, &number, true)?;
    if has_pattern {
        return number_patterns::written(args, &values, constant);
    }
    args.write(|row, out| {
        let at = if constant { 0 } else { row };
        let Some(places) = places(row).filter(|_| values.is_valid(at)) else { return Ok(false) };
        let Some((_, scale)) = exact else {
            let value = values.as_primitive::<Float64Type>().value(at);
            let text = if value.is_infinite() {
                "\u{221e}".to_owned()
            } else if value.is_nan() {
                "NaN".to_owned()
            } else {
                number_patterns::in_places(value.abs(), places as usize)
            };
            grouped(&text, value.is_sign_negative() && !value.is_nan(), out);
            return Ok(true);
        };
        let value = values.as_primitive::<Decimal128Type>().value(at);
        match rounded_text(value, scale, places) {
            Some(text) => grouped(text.trim_start_matches('-'), value < 0, out),
            None => return exec_err!("format_number: {places} digits are too many"),
        }
        Ok(true)
    })
}

/// Writes a number with a comma after each third digit. A negative number that is rounded to zero
/// keeps its sign, as in Java.
fn grouped(text: &str, negative: bool, out: &mut String) {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if negative {
        out.push('-');
    }
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
}

fn is_null(args: &Arguments, wanted: bool) -> Result<ArrayRef> {
    let (values, constant) = args.array(0);
    let nulls = values.logical_nulls();
    args.booleans(|row| {
        let row = if constant { 0 } else { row };
        let found = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        Ok(Some(found == wanted))
    })
}

/// A type as `typeof` writes it: `array<struct<a:int>>`.
pub(super) fn short_name(data_type: &DataType) -> String {
    match data_type {
        of if is_variant(of) => "variant".to_owned(),
        DataType::List(item) => format!("array<{}>", short_name(item.data_type())),
        DataType::Struct(fields) => {
            let field = |field: &FieldRef| match field.data_type() {
                DataType::Time64(_) => {
                    format!("{}:{}", field.name(), part_type(field).to_lowercase())
                }
                other => format!("{}:{}", field.name(), short_name(other)),
            };
            format!("struct<{}>", fields.iter().map(field).collect::<Vec<_>>().join(","))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) if parts.len() == 2 => {
                let [key, value] = [0, 1].map(|at| short_name(parts[at].data_type()));
                format!("map<{key},{value}>")
            }
            other => spark_type(other).to_lowercase(),
        },
        other => spark_type(other).to_lowercase(),
    }
}

fn type_of(args: &Arguments) -> Result<ArrayRef> {
    let name = short_name(args.data_type(0));
    args.write(|_, out| {
        out.push_str(&name);
        Ok(true)
    })
}
