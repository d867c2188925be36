//! Writes a value as JSON, as Spark's `to_json` and its shell show it.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::error::VariantError;
use super::read::{Items, Value, Variant, Walk};
use crate::values::calendar::{write_date, write_timestamp};
use crate::values::java_text::{write_decimal, write_double, write_float};
use crate::values::json_text::quote;

/// No column can have a longer text. Names that fields share make a text longer than its value.
const LENGTH_MAX: usize = i32::MAX as usize;

/// Appends a value as JSON. Infinities and NaN, which JSON lacks, are texts.
pub(crate) fn to_json(value: Variant<'_>, out: &mut String) -> Result<(), VariantError> {
    part(value, &mut Walk::of(value), out)
}

fn part(value: Variant<'_>, walk: &mut Walk, out: &mut String) -> Result<(), VariantError> {
    match walk.enter(value)? {
        Value::Object(items) => listed(&items, ['{', '}'], out, |at, out| {
            quote(items.key(at)?, out);
            out.push(':');
            part(items.item(at)?, walk, out)
        })?,
        Value::Array(items) => {
            listed(&items, ['[', ']'], out, |at, out| part(items.item(at)?, walk, out))?;
        }
        leaf => write_leaf(leaf, out),
    }
    walk.leave();
    Ok(())
}

fn listed(
    items: &Items<'_>,
    [open, close]: [char; 2],
    out: &mut String,
    mut write: impl FnMut(usize, &mut String) -> Result<(), VariantError>,
) -> Result<(), VariantError> {
    out.push(open);
    for at in 0..items.len() {
        out.push_str(if at > 0 { "," } else { "" });
        write(at, out)?;
        if out.len() > LENGTH_MAX {
            return Err(VariantError::TooLarge);
        }
    }
    out.push(close);
    Ok(())
}

fn write_leaf(value: Value<'_>, out: &mut String) {
    match value {
        Value::Null | Value::Object(_) | Value::Array(_) => out.push_str("null"),
        Value::Boolean(value) => out.push_str(if value { "true" } else { "false" }),
        Value::Long(value) => write!(out, "{value}").expect("a String takes everything"),
        Value::Float(value) if !value.is_finite() => quoted(out, |out| write_float(value, out)),
        Value::Float(value) => write_float(value, out),
        Value::Double(value) if !value.is_finite() => quoted(out, |out| write_double(value, out)),
        Value::Double(value) => write_double(value, out),
        Value::Decimal(unscaled, scale) => {
            write_decimal(unscaled, i8::try_from(scale).unwrap_or(i8::MAX), out);
        }
        Value::Text(text) => quote(text, out),
        Value::Binary(bytes) => quoted(out, |out| STANDARD.encode_string(bytes, out)),
        Value::Date(days) => quoted(out, |out| write_date(days, out)),
        Value::Timestamp(us) => quoted(out, |out| {
            write_timestamp(us, out);
            out.push_str("+00:00");
        }),
        Value::TimestampNtz(us) => quoted(out, |out| write_timestamp(us, out)),
        Value::Uuid(bytes) => quoted(out, |out| write_uuid(&bytes, out)),
    }
}

fn quoted(out: &mut String, write: impl FnOnce(&mut String)) {
    out.push('"');
    write(out);
    out.push('"');
}

/// Appends a UUID in groups of 8, 4, 4, 4 and 12 digits.
pub(crate) fn write_uuid(bytes: &[u8; 16], out: &mut String) {
    for (at, byte) in bytes.iter().enumerate() {
        out.push_str(if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" });
        write!(out, "{byte:02x}").expect("a String takes everything");
    }
}
