//! What a query asks of a table that is read whole, for connectors that can leave out files by it.
//!
//! A filter may be ignored, and rows that it excludes may be given all the same: the plan filters
//! them again. So conditions that have no counterpart here are left out.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

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

/// A value that a column is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// A whole number.
    Integer(i64),
    /// A floating point number.
    Float(f64),
    /// Text.
    Text(String),
    /// True or false.
    Boolean(bool),
    /// Days since the epoch.
    Date(i32),
    /// Microseconds since the epoch.
    Timestamp(i64),
}

/// A condition on the rows of one table.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// A column against a value.
    Compare {
        /// The column.
        column: String,
        /// How.
        comparison: Comparison,
        /// With what.
        value: Literal,
    },
    /// The column is null.
    IsNull(String),
    /// The column is not null.
    IsNotNull(String),
    /// The column is one of some values.
    In {
        /// The column.
        column: String,
        /// The values.
        values: Vec<Literal>,
    },
    /// All of them.
    And(Vec<Filter>),
    /// At least one of them.
    Or(Vec<Filter>),
    /// The contrary.
    Not(Box<Filter>),
}

impl Filter {
    /// The filter that says the same as `condition`; `None` if there is none.
    pub fn of(condition: &Expr) -> Option<Self> {
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => binary(left, *op, right),
            Expr::IsNull(inner) => Some(Self::IsNull(column(inner)?)),
            Expr::IsNotNull(inner) => Some(Self::IsNotNull(column(inner)?)),
            Expr::Not(inner) => Some(Self::Not(Box::new(Self::of(inner)?))),
            Expr::InList(InList { expr, list, negated }) => {
                let values = list.iter().map(literal).collect::<Option<Vec<_>>>()?;
                let filter = Self::In { column: column(expr)?, values };
                Some(if *negated { Self::Not(Box::new(filter)) } else { filter })
            }
            _ => None,
        }
    }
}

fn binary(left: &Expr, operator: Operator, right: &Expr) -> Option<Filter> {
    match operator {
        Operator::And => Some(Filter::And(vec![Filter::of(left)?, Filter::of(right)?])),
        Operator::Or => Some(Filter::Or(vec![Filter::of(left)?, Filter::of(right)?])),
        operator => {
            let comparison = comparison(operator)?;
            if let (Some(column), Some(value)) = (column(left), literal(right)) {
                return Some(Filter::Compare { column, comparison, value });
            }
            let (value, column) = (literal(left)?, column(right)?);
            Some(Filter::Compare { column, comparison: comparison.turned(), value })
        }
    }
}

impl Comparison {
    /// For the sides the other way round.
    fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }
}

fn comparison(operator: Operator) -> Option<Comparison> {
    Some(match operator {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn column(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Column(column) => Some(column.name.clone()),
        _ => None,
    }
}

fn literal(expression: &Expr) -> Option<Literal> {
    let Expr::Literal(value, _) = expression else { return None };
    Some(match value {
        ScalarValue::Int8(Some(value)) => Literal::Integer(i64::from(*value)),
        ScalarValue::Int16(Some(value)) => Literal::Integer(i64::from(*value)),
        ScalarValue::Int32(Some(value)) => Literal::Integer(i64::from(*value)),
        ScalarValue::Int64(Some(value)) => Literal::Integer(*value),
        ScalarValue::Float32(Some(value)) => Literal::Float(f64::from(*value)),
        ScalarValue::Float64(Some(value)) => Literal::Float(*value),
        ScalarValue::Utf8(Some(value))
        | ScalarValue::LargeUtf8(Some(value))
        | ScalarValue::Utf8View(Some(value)) => Literal::Text(value.clone()),
        ScalarValue::Boolean(Some(value)) => Literal::Boolean(*value),
        ScalarValue::Date32(Some(days)) => Literal::Date(*days),
        ScalarValue::TimestampMicrosecond(Some(micros), _) => Literal::Timestamp(*micros),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn conditions_on_columns_are_understood() {
        let filter = Filter::of(&lit(5_i32).lt(col("n")).and(col("s").eq(lit("x"))));
        let n = Filter::Compare {
            column: "n".into(),
            comparison: Comparison::Greater,
            value: Literal::Integer(5),
        };
        let s = Filter::Compare {
            column: "s".into(),
            comparison: Comparison::Equal,
            value: Literal::Text("x".into()),
        };
        assert_eq!(filter, Some(Filter::And(vec![n, s])));
        let listed = Filter::of(&col("n").in_list(vec![lit(1_i64)], true));
        let inner = Filter::In { column: "n".into(), values: vec![Literal::Integer(1)] };
        assert_eq!(listed, Some(Filter::Not(Box::new(inner))));
    }

    #[test]
    fn what_has_no_counterpart_is_left_out() {
        assert_eq!(Filter::of(&(col("n") + lit(1)).gt(lit(5))), None);
        assert_eq!(Filter::of(&col("n").gt(col("m"))), None);
        assert_eq!(Filter::of(&col("n").gt(lit(1)).or(col("n").lt(col("m")))), None);
    }
}
