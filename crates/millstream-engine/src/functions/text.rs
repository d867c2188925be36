//! Functions of strings, and some small ones of anything.

use arrow::array::builder::BinaryBuilder;
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Float64Type, Int32Type};
use datafusion::common::{Result, exec_err};
use md5::{Digest, Md5};
use std::sync::Arc;

use super::define::{
    Arguments, Function, Param, returns_boolean, returns_double, returns_int, returns_text,
};
use super::types::type_name;

use Param::{Any, Binary, Double, Int, Text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("locate", &[Text, Text, Int], returns_int, |args| locate(args, 0, 1))
        .aliases(&["position"])
        .required(2),
    Function::new("instr", &[Text, Text], returns_int, |args| locate(args, 1, 0)),
    Function::new("initcap", &[Text], returns_text, initcap),
    Function::new("startswith", &[Text, Text], returns_boolean, |args| {
        compare(args, |text, part| text.starts_with(part))
    }),
    Function::new("endswith", &[Text, Text], returns_boolean, |args| {
        compare(args, |text, part| text.ends_with(part))
    }),
    Function::new("contains", &[Text, Text], returns_boolean, |args| {
        compare(args, |text, part| text.contains(part))
    }),
    Function::new("md5", &[Binary], returns_text, md5),
    Function::new("encode", &[Text, Text], |_| Ok(DataType::Binary), encode),
    Function::new("decode", &[Binary, Text], returns_text, decode),
    Function::new("format_number", &[Double, Int], returns_text, format_number),
    Function::new("isnull", &[Any], returns_boolean, |args| is_null(args, true)),
    Function::new("isnotnull", &[Any], returns_boolean, |args| is_null(args, false)),
    Function::new("typeof", &[Any], returns_text, type_of),
    Function::new("divide", &[Double, Double], returns_double, |args| divide(args, true)),
    Function::new("try_divide", &[Double, Double], returns_double, |args| divide(args, false)),
];

/// Where the text argument `part` first stands in the text argument `whole`, in characters from 1;
/// 0 if nowhere. A third argument is the character to begin at.
fn locate(args: &Arguments, part: usize, whole: usize) -> Result<ArrayRef> {
    let (parts, wholes) = (args.text(part), args.text(whole));
    let starts = (args.len() > 2).then(|| args.int(2));
    args.primitives::<Int32Type>(|row| {
        let start = starts.as_ref().map_or(Some(1), |starts| starts.get(row));
        let (Some(part), Some(whole)) = (parts.get(row), wholes.get(row)) else { return Ok(None) };
        let Some(start) = start.filter(|start| *start >= 1) else { return Ok(Some(0)) };
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
                out.extend(char.to_uppercase());
            } else {
                out.extend(char.to_lowercase());
            }
            first = char == ' ';
        }
        Ok(true)
    })
}

fn compare(args: &Arguments, holds: fn(&str, &str) -> bool) -> Result<ArrayRef> {
    let (texts, parts) = (args.text(0), args.text(1));
    args.booleans(|row| match (texts.get(row), parts.get(row)) {
        (Some(text), Some(part)) => Ok(Some(holds(text, part))),
        _ => Ok(None),
    })
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

fn require_utf8(charset: &str) -> Result<()> {
    match charset.to_ascii_uppercase().as_str() {
        "UTF-8" | "US-ASCII" => Ok(()),
        _ => exec_err!("the character set {charset} is not supported; UTF-8 is"),
    }
}

fn encode(args: &Arguments) -> Result<ArrayRef> {
    let (texts, charsets) = (args.text(0), args.text(1));
    let mut out = BinaryBuilder::new();
    for row in 0..args.rows {
        match (texts.get(row), charsets.get(row)) {
            (Some(text), Some(charset)) => {
                require_utf8(charset)?;
                out.append_value(text);
            }
            _ => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

fn decode(args: &Arguments) -> Result<ArrayRef> {
    let (values, charsets) = (args.binary(0), args.text(1));
    args.write(|row, out| {
        let (Some(bytes), Some(charset)) = (values.get(row), charsets.get(row)) else {
            return Ok(false);
        };
        require_utf8(charset)?;
        out.push_str(&String::from_utf8_lossy(bytes));
        Ok(true)
    })
}

/// `#,###.##`, rounded half to even as Java's `DecimalFormat`.
fn format_number(args: &Arguments) -> Result<ArrayRef> {
    let (values, digits) = (args.primitive::<Float64Type>(0), args.int(1));
    args.write(|row, out| {
        let (Some(value), Some(digits)) = (values.get(row), digits.get(row)) else {
            return Ok(false);
        };
        let Ok(digits) = usize::try_from(digits) else { return Ok(false) };
        let text = format!("{:.digits$}", value.abs());
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        if value < 0.0 && text.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) {
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
        Ok(true)
    })
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

fn type_of(args: &Arguments) -> Result<ArrayRef> {
    let name = type_name(args.data_type(0)).to_lowercase();
    args.write(|_, out| {
        out.push_str(&name);
        Ok(true)
    })
}

/// What `/` is planned as, for all but decimals.
fn divide(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let (left, right) = (args.primitive::<Float64Type>(0), args.primitive::<Float64Type>(1));
    args.primitives::<Float64Type>(|row| match (left.get(row), right.get(row)) {
        (Some(_), Some(0.0)) if !strict => Ok(None),
        (Some(_), Some(0.0)) => {
            exec_err!("division by zero; use try_divide to get NULL instead")
        }
        (Some(left), Some(right)) => Ok(Some(left / right)),
        _ => Ok(None),
    })
}
