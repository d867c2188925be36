//! Text and the bytes that it writes, by the name of a form: `to_binary`, `try_to_binary`, and
//! `to_char` of bytes, of times and of numbers.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::builder::BinaryBuilder;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, TimestampMicrosecondType};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use datafusion::common::{Result, exec_err, plan_err};

use super::datetime::LastPattern;
use super::define::{Arguments, Function, Param, returns_text, within_column};
use super::number_forms;
use crate::types::{spark_type, timestamp};

use Param::{Any, Text, TextOrBinary};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("to_binary", &[Text, Text], returns_binary, |args| to_binary(args, true))
        .required(1),
    Function::new("try_to_binary", &[Text, Text], returns_binary, |args| to_binary(args, false))
        .required(1),
    Function::new("validate_utf8", &[TextOrBinary], returns_text, |args| validated(args, true)),
    Function::new("try_validate_utf8", &[TextOrBinary], returns_text, |args| {
        validated(args, false)
    }),
    Function::new(TEXT_OF_BYTES, &[Any], type_of_text, |args| {
        super::cast::cast(&args.expanded(0)?, &args.returns, true)
    }),
    Function::new("to_char", &[Any, Text], type_of_char, to_char).aliases(&["to_varchar"]),
];

/// Gives a STRING for BINARY, and any other value as it is.
pub(crate) const TEXT_OF_BYTES: &str = "text_of_bytes";

fn type_of_text(args: &[DataType]) -> Result<DataType> {
    Ok(match &args[0] {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DataType::Utf8,
        other => other.clone(),
    })
}

fn returns_binary(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Binary)
}

/// As in Java, bits that belong to no byte are ignored.
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::RequireNone)
    .with_decode_allow_trailing_bits(true);

/// The form of bytes as text.
#[derive(Clone, Copy)]
enum Form {
    Hex,
    Base64,
    Utf8,
}

impl Form {
    fn of(name: &str) -> Option<Self> {
        let known = [
            ("hex", Self::Hex),
            ("base64", Self::Base64),
            ("utf-8", Self::Utf8),
            ("utf8", Self::Utf8),
        ];
        let found = known.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
        found.map(|(_, form)| form)
    }

    fn read(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => of_hex(text),
            Self::Base64 => of_base64(text),
            Self::Utf8 => Some(text.as_bytes().to_vec()),
        }
    }
}

/// Two digits a byte; the first byte may have one.
pub(crate) fn of_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8));
    let digits = digits.collect::<Option<Vec<u8>>>()?;
    let (first, pairs) = digits.split_at(digits.len() % 2);
    let pairs = pairs.chunks(2).map(|pair| pair[0] << 4 | pair[1]);
    Some(first.iter().copied().chain(pairs).collect())
}

/// White space may stand anywhere but within the padding, which may be left out.
fn of_base64(text: &str) -> Option<Vec<u8>> {
    let end = text.trim_end();
    let digits = end.trim_end_matches('=');
    let padding = end.len() - digits.len();
    let digits: String = digits.chars().filter(|char| !char.is_whitespace()).collect();
    let fits = match padding {
        0 => digits.len() % 4 != 1,
        _ => padding <= 2 && (digits.len() + padding).is_multiple_of(4),
    };
    if fits { BASE64.decode(digits).ok() } else { None }
}

fn to_binary(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let texts = args.text(0);
    let forms = (args.len() > 1).then(|| args.text(1));
    let mut out = BinaryBuilder::new();
    let mut total = 0;
    for row in 0..args.rows {
        let form = forms.as_ref().map_or(Some("hex"), |forms| forms.get(row));
        let (Some(name), text) = (form, texts.get(row)) else {
            out.append_null();
            continue;
        };
        let form = Form::of(name);
        if form.is_none() && strict {
            return exec_err!("to_binary knows the forms hex, base64 and utf-8, not '{name}'");
        }
        let bytes = form.zip(text).and_then(|(form, text)| form.read(text));
        if let (None, Some(text), true) = (&bytes, text, strict) {
            return exec_err!(
                "the value '{text}' is not {name}; use try_to_binary to get NULL instead"
            );
        }
        within_column(&mut total, bytes.as_ref().map_or(0, Vec::len))?;
        out.append_option(bytes);
    }
    Ok(Arc::new(out.finish()))
}

/// Bytes as text. What is text already can be nothing else.
fn validated(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    if args.data_type(0).is_string() {
        return args.expanded(0);
    }
    let values = args.binary(0);
    args.write(|row, out| {
        let Some(bytes) = values.get(row) else { return Ok(false) };
        match std::str::from_utf8(bytes) {
            Ok(text) => out.push_str(text),
            Err(_) if strict => {
                return exec_err!("the value is not UTF-8; try_validate_utf8 gives NULL instead");
            }
            Err(_) => return Ok(false),
        }
        Ok(true)
    })
}

fn type_of_char(args: &[DataType]) -> Result<DataType> {
    match &args[0] {
        DataType::Timestamp(..) | DataType::Date32 | DataType::Binary => returns_text(args),
        number if number_forms::written_as(number).is_some() => returns_text(args),
        other => {
            plan_err!("to_char takes a number, a date, a time or BINARY, not {}", spark_type(other))
        }
    }
}

fn to_char(args: &Arguments) -> Result<ArrayRef> {
    if let Some(decimal) = number_forms::written_as(args.data_type(0)) {
        return number_forms::write(args, &decimal);
    }
    let forms = args.text(1);
    if let Some(bytes) = args.array(0).0.as_binary_opt::<i32>() {
        let constant = args.array(0).1;
        return args.write(|row, out| {
            let at = if constant { 0 } else { row };
            let (Some(name), true) = (forms.get(row), bytes.is_valid(at)) else {
                return Ok(false);
            };
            match Form::of(name) {
                Some(Form::Hex) => {
                    for byte in bytes.value(at) {
                        let _ = write!(out, "{byte:02X}");
                    }
                }
                Some(Form::Base64) => BASE64.encode_string(bytes.value(at), out),
                Some(Form::Utf8) => match std::str::from_utf8(bytes.value(at)) {
                    Ok(text) => out.push_str(text),
                    Err(_) => return exec_err!("to_char: the value is not UTF-8"),
                },
                None => {
                    return exec_err!(
                        "to_char knows the forms hex, base64 and utf-8, not '{name}'"
                    );
                }
            }
            Ok(true)
        });
    }
    let times = super::cast::cast(&args.expanded(0)?, &timestamp(), true)?;
    let times = times.as_primitive::<TimestampMicrosecondType>();
    let mut last = LastPattern::default();
    args.write(|row, out| match forms.get(row) {
        Some(pattern) if times.is_valid(row) => Ok(last.get(pattern)?.write(times.value(row), out)),
        _ => Ok(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_stands_together() {
        assert_eq!(of_base64(" ab c="), Some(vec![0x69, 0xB7]));
        assert_eq!(of_base64(" ab cdef= = "), None);
        assert_eq!(of_base64("abcd="), None);
        assert_eq!(of_base64("a"), None);
    }
}
