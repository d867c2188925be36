//! The type of a JSON text, as `schema_of_json` finds it.

use arrow::datatypes::{DataType, Field, Fields};

use super::keys::{Elements, Members, key_text};
use super::lenient::{Leniency, NAN};
use super::scan::{self, Kind, Problem, Span};
use crate::types::list_of;

/// How deep values may be nested: each level is walked through once for each level around it.
const DEPTH_MAX: usize = 100;

/// The type of `text`, of which `lenient` says what is taken beyond RFC 8259. Numbers and booleans
/// are texts if `primitives_are_texts`.
///
/// # Errors
/// The text is no JSON, or is nested too deeply.
pub(crate) fn infer(
    text: &str,
    primitives_are_texts: bool,
    lenient: Leniency,
) -> Result<DataType, String> {
    let problem = |(at, problem): (usize, Problem)| format!("{problem}, at byte {at} of the text");
    let strict;
    let (text, span) = match scan::record(text.as_bytes()) {
        Ok(span) => (text, span),
        Err(found) => {
            strict = lenient.strict(text).ok_or_else(|| problem(found))?;
            (strict.as_str(), scan::record(strict.as_bytes()).map_err(problem)?)
        }
    };
    let found = Inference { text, primitives_are_texts }.type_of(span, 0)?;
    Ok(known(&found).unwrap_or_else(|| of_no_fields(&found)))
}

struct Inference<'a> {
    text: &'a str,
    primitives_are_texts: bool,
}

impl Inference<'_> {
    fn type_of(&self, span: Span, depth: usize) -> Result<DataType, String> {
        if depth > DEPTH_MAX {
            return Err(format!("values are nested more than {DEPTH_MAX} deep"));
        }
        Ok(match span.kind {
            Kind::Missing | Kind::Null => DataType::Null,
            Kind::Text if span.start == span.end => DataType::Null,
            Kind::EscapedText if span.of(self.text) == NAN && !self.primitives_are_texts => {
                DataType::Float64
            }
            Kind::Text | Kind::EscapedText => DataType::Utf8,
            Kind::True | Kind::False | Kind::Integer | Kind::Fraction
                if self.primitives_are_texts =>
            {
                DataType::Utf8
            }
            Kind::True | Kind::False => DataType::Boolean,
            Kind::Integer => integer(span.of(self.text)),
            Kind::Fraction => DataType::Float64,
            Kind::Array => {
                let mut item = DataType::Null;
                for element in Elements::new(self.text, span) {
                    item = common(item, self.type_of(element, depth + 1)?);
                }
                list_of(item)
            }
            Kind::Object => DataType::Struct(self.fields(span, depth)?.into()),
        })
    }

    /// The fields of an object in the order of their names, as Java has it.
    fn fields(&self, object: Span, depth: usize) -> Result<Vec<Field>, String> {
        let mut fields = Vec::new();
        let mut scratch = String::new();
        for (key, value) in Members::new(self.text, object) {
            let name = key_text(self.text, key, &mut scratch).to_owned();
            fields.push(Field::new(name, self.type_of(value, depth + 1)?, true));
        }
        fields.sort_by(|one, other| in_order(one.name(), other.name()));
        Ok(fields)
    }
}

fn in_order(one: &str, other: &str) -> std::cmp::Ordering {
    one.encode_utf16().cmp(other.encode_utf16())
}

/// The type of a whole number: BIGINT as long as it fits.
fn integer(digits: &str) -> DataType {
    if digits.parse::<i64>().is_ok() {
        return DataType::Int64;
    }
    match u8::try_from(digits.trim_start_matches('-').len()) {
        Ok(precision @ ..=38) => DataType::Decimal128(precision, 0),
        _ => DataType::Float64,
    }
}

/// The type that values of both types have.
fn common(one: DataType, other: DataType) -> DataType {
    use DataType::{Decimal128, Float64, Int64, List, Null, Struct, Utf8};
    match (one, other) {
        (one, other) if one == other => one,
        (Null, known) | (known, Null) => known,
        (Int64 | Decimal128(..), Float64) | (Float64, Int64 | Decimal128(..)) => Float64,
        // Both have no fraction here; a BIGINT has 19 digits, and a DECIMAL for it 20.
        (Decimal128(one, _), Decimal128(other, _)) => Decimal128(one.max(other), 0),
        (Int64, Decimal128(digits, _)) | (Decimal128(digits, _), Int64) => {
            Decimal128(digits.max(20), 0)
        }
        (List(one), List(other)) => {
            list_of(common(one.data_type().clone(), other.data_type().clone()))
        }
        (Struct(one), Struct(other)) => Struct(merged(&one, &other)),
        _ => Utf8,
    }
}

/// The fields of two objects, each in order.
fn merged(one: &Fields, other: &Fields) -> Fields {
    let (mut left, mut right) = (one.iter().peekable(), other.iter().peekable());
    let mut fields = Vec::new();
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some(one), Some(other)) => in_order(one.name(), other.name()),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return fields.into(),
        };
        let one = if order.is_le() { left.next() } else { None };
        let other = if order.is_ge() { right.next() } else { None };
        fields.extend(match (one, other) {
            (Some(one), Some(other)) => {
                let data_type = common(one.data_type().clone(), other.data_type().clone());
                Some(Field::new(one.name(), data_type, true))
            }
            (one, other) => one.or(other).map(|field| field.as_ref().clone()),
        });
    }
}

/// The type of a text in which nothing is left of the type `found`.
fn of_no_fields(found: &DataType) -> DataType {
    let nothing = || DataType::Struct(Fields::empty());
    match found {
        DataType::Struct(_) => nothing(),
        DataType::List(item) if matches!(item.data_type(), DataType::Struct(_)) => {
            list_of(nothing())
        }
        _ => DataType::Utf8,
    }
}

/// A type with texts for what was never a value; `None` where nothing is left of it.
fn known(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Null => Some(DataType::Utf8),
        DataType::List(item) => Some(list_of(known(item.data_type())?)),
        DataType::Struct(fields) => {
            let fields = fields.iter().filter(|field| !field.name().is_empty());
            let fields = fields.filter_map(|field| {
                Some(Field::new(field.name(), known(field.data_type())?, true))
            });
            let fields: Vec<Field> = fields.collect();
            (!fields.is_empty()).then(|| DataType::Struct(fields.into()))
        }
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::spark_type;

    #[test]
    fn types_are_those_of_the_values() {
        for (text, ddl) in [
            (r#"{"c1":0, "c2":[1]}"#, "STRUCT<c1: BIGINT, c2: ARRAY<BIGINT>>"),
            (r#"{"b": 1.5, "a": "x", "c": null}"#, "STRUCT<a: STRING, b: DOUBLE, c: STRING>"),
            (r#"[{"a": 1}, {"b": true}]"#, "ARRAY<STRUCT<a: BIGINT, b: BOOLEAN>>"),
            (r#"[{"a": 1, "b": []}, {"a": "x"}]"#, "ARRAY<STRUCT<a: STRING, b: ARRAY<STRING>>>"),
            ("[1, 2.5, null]", "ARRAY<DOUBLE>"),
            ("[12345678901234567890, 1]", "ARRAY<DECIMAL(20,0)>"),
            (r#"{"a": {}, "b": 1, "": 2}"#, "STRUCT<b: BIGINT>"),
            (r#"[1, [2]]"#, "ARRAY<STRING>"),
            ("{}", "STRUCT<>"),
            ("{'a': NaN}", "STRUCT<a: DOUBLE>"),
            ("[{}]", "ARRAY<STRUCT<>>"),
            ("[[{}]]", "STRING"),
        ] {
            assert_eq!(
                infer(text, false, Leniency::of_records()).map(|found| spark_type(&found)),
                Ok(ddl.into()),
                "{text}"
            );
        }
        let records = Leniency::of_records();
        let texts = infer(r#"{"a": 1, "b": false}"#, true, records);
        let texts = texts.map(|found| spark_type(&found));
        assert_eq!(texts, Ok("STRUCT<a: STRING, b: STRING>".into()));
    }

    #[test]
    fn what_has_no_type_is_refused() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for text in ["", "{", "01", deep.as_str()] {
            assert!(infer(text, false, Leniency::of_records()).is_err(), "{text}");
        }
    }
}
