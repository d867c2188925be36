//! A variable of a session as a query sees it: a name and a value.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::ScalarValue;

use crate::syntax::limits::RESERVED;
use crate::types::field_type;
use crate::values::java_text::{write_big_decimal, write_double, write_float};

/// Begins the names of the functions that give values of variables.
pub(crate) const FUNCTION_PREFIX: &str = "__variable_";

/// Begins what is shown of a variable that is no marker.
pub(crate) const SCHEMA: &str = "system.session.";

/// Characters of a value in the name of a column.
const SHOWN_MAX: usize = 1_000;
/// Bytes of one value, and of all values in a query: each use of a variable is a copy.
pub const BYTES_MAX: usize = 64 << 20;

/// A variable.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its type.
    pub field: FieldRef,
    /// What it is now.
    pub value: ScalarValue,
    /// It is what `EXECUTE IMMEDIATE` puts in the place of a marker: in Spark a literal.
    pub is_marker: bool,
}

/// The name of the function that gives the value of the variable at this place of those that are
/// known.
pub fn function_of(at: usize) -> String {
    format!("{FUNCTION_PREFIX}{at}")
}

/// Where each variable is, by its name in lower case; of two of one name the last one is meant.
pub(crate) fn places(variables: &[Arc<Variable>]) -> HashMap<String, usize> {
    let names = variables.iter().enumerate();
    names.map(|(at, variable)| (variable.name.to_lowercase(), at)).collect()
}

impl Variable {
    /// Whether a name means it: the case makes no difference.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.to_lowercase() == name.to_lowercase()
    }

    /// Its text, where it is a STRING that is not NULL.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            ScalarValue::Utf8(text)
            | ScalarValue::LargeUtf8(text)
            | ScalarValue::Utf8View(text) => text.as_deref(),
            _ => None,
        }
    }

    /// What Spark writes of it in the name of a column, where that is not very long.
    pub(crate) fn shown(&self) -> String {
        let literal = match self.is_marker {
            true if self.value.is_null() => "NULL".to_owned(),
            true => self.number().unwrap_or_else(|| self.literal()),
            false => self.literal(),
        };
        let literal = literal.chars().filter(|ch| *ch != RESERVED).take(SHOWN_MAX);
        let literal: String = literal.collect();
        match self.is_marker {
            true => literal,
            false => format!("{SCHEMA}{}={literal}", self.name.to_lowercase()),
        }
    }

    /// A number, without what tells its type.
    fn number(&self) -> Option<String> {
        let mut number = String::new();
        match &self.value {
            ScalarValue::Float32(Some(value)) => write_float(*value, &mut number),
            ScalarValue::Float64(Some(value)) => write_double(*value, &mut number),
            ScalarValue::Decimal128(Some(value), _, scale) => {
                write_big_decimal(*value, *scale, &mut number);
            }
            whole if whole.data_type().is_signed_integer() => return Some(whole.to_string()),
            _ => return None,
        }
        Some(number)
    }

    fn literal(&self) -> String {
        if self.value.is_null() {
            return match self.field.data_type().is_null() {
                true => "NULL".to_owned(),
                false => format!("CAST(NULL AS {})", field_type(&self.field)),
            };
        }
        if let Some(text) = self.text() {
            return quoted_text(text);
        }
        if let Some(number) = self.number() {
            return match &self.value {
                ScalarValue::Int8(_) => number + "Y",
                ScalarValue::Int16(_) => number + "S",
                ScalarValue::Int64(_) => number + "L",
                ScalarValue::Float32(_) => format!("CAST('{number}' AS FLOAT)"),
                ScalarValue::Float64(_) => number + "D",
                ScalarValue::Decimal128(..) => number + "BD",
                _ => number,
            };
        }
        match &self.value {
            ScalarValue::Binary(Some(bytes)) => {
                let digits = bytes.iter().take(SHOWN_MAX).map(|byte| format!("{byte:02X}"));
                format!("X'{}'", digits.collect::<String>())
            }
            ScalarValue::Date32(Some(_)) => format!("DATE '{}'", self.value),
            other => other.to_string(),
        }
    }
}

/// A text as a literal of Spark's.
pub fn quoted_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
