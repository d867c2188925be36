//! What is in a value, and what is common to several.

use super::error::VariantError;
use super::read::{Value, Variant, Walk};
use crate::types::quoted;

/// The type of a value, of which STRUCTs are OBJECTs, since their fields have no order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Schema {
    #[default]
    Void,
    /// A type without parts, in Spark's words.
    Simple(&'static str),
    Decimal(u8, u8),
    Array(Box<Schema>),
    /// Fields, sorted by their names.
    Object(Vec<(String, Schema)>),
}

const LONG: Schema = Schema::Simple("BIGINT");
const DOUBLE: Schema = Schema::Simple("DOUBLE");
const FLOAT: Schema = Schema::Simple("FLOAT");
const DATE: Schema = Schema::Simple("DATE");
const TIMESTAMP: Schema = Schema::Simple("TIMESTAMP");
const TIMESTAMP_NTZ: Schema = Schema::Simple("TIMESTAMP_NTZ");
/// What values have in common that have nothing in common.
const VARIANT: Schema = Schema::Simple("VARIANT");
/// The digits of a DECIMAL for each BIGINT.
const LONG_DIGITS: Schema = Schema::Decimal(20, 0);
const DIGITS_MAX: u8 = 38;

impl Schema {
    /// The type of a value.
    pub(crate) fn of(value: Variant<'_>) -> Result<Self, VariantError> {
        of_part(value, &mut Walk::of(value))
    }

    /// The type of this and of `other`.
    pub(crate) fn merged(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Void, other) | (other, Self::Void) => other,
            (Self::Array(one), Self::Array(other)) => Self::Array(Box::new(one.merged(*other))),
            (Self::Object(one), Self::Object(other)) => Self::Object(merged_fields(one, other)),
            (Self::Decimal(precision, scale), Self::Decimal(digits, behind)) => {
                let scale_max = scale.max(behind);
                let before = (precision - scale).max(digits - behind);
                match before + scale_max {
                    all if all > DIGITS_MAX => DOUBLE,
                    all => Self::Decimal(all, scale_max),
                }
            }
            (decimal @ Self::Decimal(..), LONG) | (LONG, decimal @ Self::Decimal(..)) => {
                decimal.merged(LONG_DIGITS)
            }
            (Self::Decimal(..), DOUBLE | FLOAT) | (DOUBLE | FLOAT, Self::Decimal(..)) => DOUBLE,
            (DOUBLE, LONG | FLOAT) | (LONG | FLOAT, DOUBLE) => DOUBLE,
            (FLOAT, LONG) | (LONG, FLOAT) => FLOAT,
            (TIMESTAMP, DATE | TIMESTAMP_NTZ) | (DATE | TIMESTAMP_NTZ, TIMESTAMP) => TIMESTAMP,
            (TIMESTAMP_NTZ, DATE) | (DATE, TIMESTAMP_NTZ) => TIMESTAMP_NTZ,
            _ => VARIANT,
        }
    }

    /// How many bytes it keeps.
    pub(crate) fn size(&self) -> usize {
        let within = match self {
            Self::Void | Self::Simple(_) | Self::Decimal(..) => 0,
            Self::Array(element) => element.size(),
            Self::Object(fields) => {
                fields.iter().map(|(name, of)| size_of_val(name) + name.len() + of.size()).sum()
            }
        };
        size_of_val(self) + within
    }

    /// Appends the type as Spark writes it.
    pub(crate) fn write(&self, out: &mut String) {
        match self {
            Self::Void => out.push_str("VOID"),
            Self::Simple(name) => out.push_str(name),
            Self::Decimal(precision, scale) => {
                out.push_str(&format!("DECIMAL({precision},{scale})"));
            }
            Self::Array(element) => {
                out.push_str("ARRAY<");
                element.write(out);
                out.push('>');
            }
            Self::Object(fields) => {
                out.push_str("OBJECT<");
                for (at, (name, of)) in fields.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    out.push_str(&quoted(name));
                    out.push_str(": ");
                    of.write(out);
                }
                out.push('>');
            }
        }
    }
}

/// Checks that all of a value can be read.
pub(crate) fn check_all(value: Variant<'_>) -> Result<(), VariantError> {
    check_part(value, &mut Walk::of(value))
}

fn check_part(part: Variant<'_>, walk: &mut Walk) -> Result<(), VariantError> {
    match walk.enter(part)? {
        Value::Object(items) => {
            let mut last: Option<&str> = None;
            for at in 0..items.len() {
                let name = items.key(at)?;
                if last.is_some_and(|last| !is_before(last, name)) {
                    return Err(VariantError::Malformed);
                }
                last = Some(name);
                check_part(items.item(at)?, walk)?;
            }
        }
        Value::Array(items) => {
            for at in 0..items.len() {
                check_part(items.item(at)?, walk)?;
            }
        }
        _ => {}
    }
    walk.leave();
    Ok(())
}

fn of_part(part: Variant<'_>, walk: &mut Walk) -> Result<Schema, VariantError> {
    let schema = match walk.enter(part)? {
        Value::Object(items) => {
            let mut fields: Vec<(String, Schema)> = Vec::with_capacity(items.len());
            for at in 0..items.len() {
                let name = items.key(at)?.to_owned();
                let is_sorted = fields.last().is_none_or(|(last, _)| is_before(last, &name));
                if !is_sorted {
                    return Err(VariantError::Malformed);
                }
                fields.push((name, of_part(items.item(at)?, walk)?));
            }
            Schema::Object(fields)
        }
        Value::Array(items) => {
            let mut element = Schema::Void;
            for at in 0..items.len() {
                element = element.merged(of_part(items.item(at)?, walk)?);
            }
            Schema::Array(Box::new(element))
        }
        Value::Null => Schema::Void,
        Value::Boolean(_) => Schema::Simple("BOOLEAN"),
        Value::Long(_) => LONG,
        Value::Float(_) => FLOAT,
        Value::Double(_) => DOUBLE,
        Value::Decimal(unscaled, scale) => {
            let digits = unscaled.unsigned_abs().checked_ilog10().unwrap_or(0) as u8 + 1;
            Schema::Decimal(digits.max(scale), scale)
        }
        Value::Text(_) => Schema::Simple("STRING"),
        Value::Binary(_) => Schema::Simple("BINARY"),
        Value::Date(_) => DATE,
        Value::Timestamp(_) => TIMESTAMP,
        Value::TimestampNtz(_) => TIMESTAMP_NTZ,
        Value::Uuid(_) => Schema::Simple("UUID"),
    };
    walk.leave();
    Ok(schema)
}

/// Whether a name comes before another in Java's order.
fn is_before(name: &str, other: &str) -> bool {
    name.encode_utf16().lt(other.encode_utf16())
}

/// The fields of both, each with the type that it has in both.
fn merged_fields(
    one: Vec<(String, Schema)>,
    other: Vec<(String, Schema)>,
) -> Vec<(String, Schema)> {
    let mut fields = Vec::with_capacity(one.len().max(other.len()));
    let (mut one, mut other) = (one.into_iter().peekable(), other.into_iter().peekable());
    while let (Some((name, _)), Some((beside, _))) = (one.peek(), other.peek()) {
        if name == beside {
            let (Some((name, left)), Some((_, right))) = (one.next(), other.next()) else { break };
            fields.push((name, left.merged(right)));
        } else if is_before(name, beside) {
            fields.extend(one.next());
        } else {
            fields.extend(other.next());
        }
    }
    fields.extend(one);
    fields.extend(other);
    fields
}
