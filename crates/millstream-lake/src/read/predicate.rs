//! What a caller is looking for, and which files cannot have it.
//!
//! A predicate is turned into one of the protocol library, which holds it against partition values
//! and statistics. The turned one may be weaker, never stronger: what has no counterpart holds for
//! every row. As "weaker" turns around under a negation, negations are pushed down to the
//! comparisons first.

use delta_kernel::PredicateRef;
use delta_kernel::expressions::{Expression, Predicate as Theirs, Scalar};
use delta_kernel::schema::{DataType, DecimalType, PrimitiveType, StructType};

/// A value that a column is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// For whole numbers of any width, and for decimals.
    Integer(i64),
    /// For floating point numbers.
    Float(f64),
    /// For text.
    Text(String),
    /// For truth values.
    Boolean(bool),
    /// Days since the epoch.
    Date(i32),
    /// Microseconds since the epoch; for columns with and without a time zone.
    Timestamp(i64),
}

/// How a column is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// What must hold for a row, by SQL's three-valued logic: a comparison with null does not hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// A column against a value.
    Compare {
        /// The column, at the top level of the table.
        column: String,
        /// How.
        comparison: Comparison,
        /// With what.
        value: Value,
    },
    /// The column is null.
    IsNull(String),
    /// The column is not null.
    IsNotNull(String),
    /// The column is one of some values.
    In {
        /// The column, at the top level of the table.
        column: String,
        /// The values.
        values: Vec<Value>,
    },
    /// All hold.
    And(Vec<Predicate>),
    /// At least one holds.
    Or(Vec<Predicate>),
    /// It does not hold, and is not unknown either.
    Not(Box<Predicate>),
}

impl Comparison {
    fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }
}

impl Predicate {
    /// `column` compared with `value`.
    pub fn compare(column: &str, comparison: Comparison, value: Value) -> Self {
        Self::Compare { column: column.to_owned(), comparison, value }
    }

    /// The library's predicate, as strong as can be; `None` if it would hold for every row.
    pub(crate) fn to_kernel(&self, schema: &StructType) -> Option<PredicateRef> {
        self.weakened(schema, false).map(PredicateRef::new)
    }

    fn weakened(&self, schema: &StructType, is_negated: bool) -> Option<Theirs> {
        match self {
            Self::Compare { column, comparison, value } => {
                let comparison = if is_negated { comparison.negated() } else { *comparison };
                compared(schema, column, comparison, value)
            }
            Self::IsNull(column) => null_test(schema, column, !is_negated),
            Self::IsNotNull(column) => null_test(schema, column, is_negated),
            Self::In { column, values } => {
                let comparison = if is_negated { Comparison::NotEqual } else { Comparison::Equal };
                let each = values.iter().map(|value| compared(schema, column, comparison, value));
                if is_negated { all(each) } else { any(each) }
            }
            Self::And(parts) | Self::Or(parts) => {
                let each = parts.iter().map(|part| part.weakened(schema, is_negated));
                let is_and = matches!(self, Self::And(_));
                if is_and != is_negated { all(each) } else { any(each) }
            }
            Self::Not(inner) => inner.weakened(schema, !is_negated),
        }
    }
}

/// All of them; one that has no counterpart can be left out.
fn all(parts: impl Iterator<Item = Option<Theirs>>) -> Option<Theirs> {
    let parts: Vec<_> = parts.flatten().collect();
    (!parts.is_empty()).then(|| Theirs::and_from(parts))
}

/// One of them, which says nothing unless all have a counterpart.
fn any(parts: impl Iterator<Item = Option<Theirs>>) -> Option<Theirs> {
    let parts = parts.collect::<Option<Vec<_>>>()?;
    (!parts.is_empty()).then(|| Theirs::or_from(parts))
}

fn null_test(schema: &StructType, column: &str, is_null: bool) -> Option<Theirs> {
    primitive(schema, column)?;
    let column = Expression::column([column]);
    Some(if is_null { column.is_null() } else { column.is_not_null() })
}

fn compared(
    schema: &StructType,
    column: &str,
    comparison: Comparison,
    value: &Value,
) -> Option<Theirs> {
    let kind = primitive(schema, column)?;
    let value = scalar(kind, value)?;
    // Statistics leave NaN out, which is greater than every number to some engines.
    let is_float = matches!(kind, PrimitiveType::Float | PrimitiveType::Double);
    let (column, value) = (Expression::column([column]), Expression::literal(value));
    Some(match comparison {
        Comparison::Equal => column.eq(value),
        Comparison::Less => column.lt(value),
        Comparison::LessOrEqual => column.le(value),
        _ if is_float => return None,
        Comparison::NotEqual => column.ne(value),
        Comparison::Greater => column.gt(value),
        Comparison::GreaterOrEqual => column.ge(value),
    })
}

fn primitive<'a>(schema: &'a StructType, column: &str) -> Option<&'a PrimitiveType> {
    match schema.field(column)?.data_type() {
        DataType::Primitive(kind) => Some(kind),
        _ => None,
    }
}

/// The value in the column's type, if it is exactly the same there.
fn scalar(kind: &PrimitiveType, value: &Value) -> Option<Scalar> {
    Some(match (kind, value) {
        (PrimitiveType::Byte, Value::Integer(value)) => Scalar::Byte((*value).try_into().ok()?),
        (PrimitiveType::Short, Value::Integer(value)) => Scalar::Short((*value).try_into().ok()?),
        (PrimitiveType::Integer, Value::Integer(value)) => {
            Scalar::Integer((*value).try_into().ok()?)
        }
        (PrimitiveType::Long, Value::Integer(value)) => Scalar::Long(*value),
        (PrimitiveType::Decimal(kind), Value::Integer(value)) => decimal(kind, *value)?,
        (PrimitiveType::Double, Value::Integer(value)) => float(kind, *value as f64)
            .filter(|_| value.unsigned_abs() < 1 << f64::MANTISSA_DIGITS)?,
        (PrimitiveType::Float | PrimitiveType::Double, Value::Float(value)) => float(kind, *value)?,
        (PrimitiveType::String, Value::Text(value)) => Scalar::String(value.clone()),
        (PrimitiveType::Boolean, Value::Boolean(value)) => Scalar::Boolean(*value),
        (PrimitiveType::Date, Value::Date(days)) => Scalar::Date(*days),
        (PrimitiveType::Timestamp, Value::Timestamp(micros)) => Scalar::Timestamp(*micros),
        (PrimitiveType::TimestampNtz, Value::Timestamp(micros)) => Scalar::TimestampNtz(*micros),
        _ => return None,
    })
}

fn decimal(kind: &DecimalType, value: i64) -> Option<Scalar> {
    let bits = i128::from(value).checked_mul(10_i128.checked_pow(kind.scale().into())?)?;
    Scalar::decimal(bits, kind.precision(), kind.scale()).ok()
}

/// Not zero, of which there are two that some engines tell apart, and not NaN.
fn float(kind: &PrimitiveType, value: f64) -> Option<Scalar> {
    if value == 0.0 || value.is_nan() {
        return None;
    }
    match kind {
        PrimitiveType::Float if f64::from(value as f32) == value => {
            Some(Scalar::Float(value as f32))
        }
        PrimitiveType::Double => Some(Scalar::Double(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use delta_kernel::schema::StructField;

    use super::*;

    fn shown(predicate: &Predicate) -> Option<String> {
        let schema = StructType::try_new([
            StructField::nullable("n", DataType::INTEGER),
            StructField::nullable("t", DataType::STRING),
            StructField::nullable("f", DataType::DOUBLE),
        ]);
        let schema = schema.expect("three columns");
        predicate.to_kernel(&schema).map(|predicate| predicate.to_string())
    }

    fn n(comparison: Comparison, value: i64) -> Predicate {
        Predicate::compare("n", comparison, Value::Integer(value))
    }

    #[test]
    fn what_has_no_counterpart_weakens() {
        let plain = n(Comparison::Less, 5);
        let odd = n(Comparison::Less, 1 << 40);
        let expected = shown(&plain);
        assert!(expected.is_some());
        assert_eq!(shown(&odd), None);
        assert_eq!(shown(&Predicate::compare("x", Comparison::Equal, Value::Integer(1))), None);
        assert_eq!(shown(&Predicate::compare("n", Comparison::Equal, Value::Date(1))), None);
        assert_eq!(shown(&Predicate::And(vec![plain.clone(), odd.clone()])), expected);
        assert_eq!(shown(&Predicate::Or(vec![plain.clone(), odd.clone()])), None);
        let not = |inner| Predicate::Not(Box::new(inner));
        assert_eq!(shown(&not(Predicate::And(vec![plain.clone(), odd.clone()]))), None);
        let negated = shown(&n(Comparison::GreaterOrEqual, 5));
        assert_eq!(shown(&not(Predicate::Or(vec![plain, odd]))), negated);
    }

    #[test]
    fn nan_is_not_ruled_out() {
        let float = |comparison| Predicate::compare("f", comparison, Value::Float(1.5));
        assert!(shown(&float(Comparison::Less)).is_some());
        assert_eq!(shown(&float(Comparison::Greater)), None);
        assert_eq!(shown(&Predicate::Not(Box::new(float(Comparison::Less)))), None);
        let zero = Predicate::compare("f", Comparison::LessOrEqual, Value::Float(0.0));
        assert_eq!(shown(&zero), None);
    }
}
