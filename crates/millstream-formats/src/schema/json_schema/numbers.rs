//! Values as JSON Schema compares them: numbers by what they are, not by how they are written.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::{Number, Value};

/// Whole numbers below are exact as `i128`, whatever they were.
const WHOLE_MAX: f64 = (1_u128 << 126) as f64;

/// Which of two numbers is greater. None for NaN, which JSON does not have.
pub(super) fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(left), None) => beside(left, right.as_f64()?),
        (None, Some(right)) => beside(right, left.as_f64()?).map(Ordering::reverse),
        (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

/// A whole number beside a fraction, or beside one above all whole numbers. Never equal.
fn beside(whole: i128, other: f64) -> Option<Ordering> {
    if other.is_nan() {
        return None;
    }
    let is_less = match other.abs() < WHOLE_MAX {
        true => whole <= other.floor() as i128,
        false => other > 0.0,
    };
    Some(if is_less { Ordering::Less } else { Ordering::Greater })
}

fn whole(number: &Number) -> Option<i128> {
    if let Some(signed) = number.as_i64() {
        return Some(i128::from(signed));
    }
    if let Some(unsigned) = number.as_u64() {
        return Some(i128::from(unsigned));
    }
    let is_whole = |it: &f64| it.fract() == 0.0 && it.abs() < WHOLE_MAX;
    number.as_f64().filter(is_whole).map(|it| it as i128)
}

/// Whether two values are the same: 1 and 1.0 are, and so are objects whatever their order.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            compare(left, right) == Some(Ordering::Equal)
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| equal(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            let has = |(name, value): (&String, &Value)| {
                right.get(name).is_some_and(|other| equal(value, other))
            };
            left.len() == right.len() && left.iter().all(has)
        }
        _ => left == right,
    }
}

/// A text that values have in common if they are [`equal`], and only then.
pub(super) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, out: &mut String) {
    // Writing into a text cannot fail.
    match value {
        Value::Number(number) => {
            let _ = match whole(number) {
                Some(whole) => write!(out, "{whole}"),
                None => write!(out, "{number}"),
            };
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(object) => {
            let mut parts: Vec<(&String, &Value)> = object.iter().collect();
            parts.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in parts {
                let _ = write!(out, "{}:", Value::from(name.as_str()));
                write(value, out);
                out.push(',');
            }
            out.push('}');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn numbers_are_compared_by_what_they_are() {
        for (left, right, wanted) in [
            ("1", "1.0", Ordering::Equal),
            ("0", "-0.0", Ordering::Equal),
            ("9007199254740993", "9007199254740992", Ordering::Greater),
            ("9007199254740993", "9007199254740992.0", Ordering::Greater),
            ("18446744073709551615", "1e19", Ordering::Greater),
            ("-9223372036854775808", "-9223372036854775807", Ordering::Less),
            ("3", "2.5", Ordering::Greater),
            ("-3", "-2.5", Ordering::Less),
            ("-2", "-2.5", Ordering::Greater),
            ("9223372036854775807", "1e300", Ordering::Less),
            ("0.5", "0.25", Ordering::Greater),
            ("1e300", "1e301", Ordering::Less),
        ] {
            let (Value::Number(one), Value::Number(other)) = (parsed(left), parsed(right)) else {
                panic!("they are numbers")
            };
            assert_eq!(compare(&one, &other), Some(wanted), "{left} {right}");
            assert_eq!(compare(&other, &one), Some(wanted.reverse()), "{right} {left}");
        }
    }

    #[test]
    fn equal_values_have_one_text() {
        let one = json!({"a": [1, "x\"", null], "b": {"c": 2.5, "d": true}});
        let same = parsed(r#"{"b": {"d": true, "c": 25e-1}, "a": [1.0, "x\"", null]}"#);
        assert!(equal(&one, &same));
        assert_eq!(canonical(&one), canonical(&same));
        for other in [json!([1, "x"]), json!({"a": [1]}), json!("1"), json!(1), json!(null)] {
            assert!(!equal(&one, &other), "{other}");
            assert_ne!(canonical(&one), canonical(&other), "{other}");
        }
        assert_ne!(canonical(&json!(["a,b"])), canonical(&json!(["a", "b"])));
        assert_ne!(canonical(&json!(1)), canonical(&json!("1")));
    }
}
