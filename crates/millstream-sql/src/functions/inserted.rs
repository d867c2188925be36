//! Functions that stand in plans and in no registry: arithmetic and casts with Spark's meaning, put
//! where a text has operators.
//!
//! Whoever sends a plan to another process sends these as [`Inserted`], not by their names alone:
//! `try_add` of decimals has a name that a registered function has, too.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::logical_expr::{Expr, Operator, ScalarUDF};

use super::cast::{self, SparkCast};
use super::decimals::{DecimalOperation, Operation, decimal_operation};
use super::operators::{Checked, checked};

/// What such a function is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// Its name.
    pub name: String,
    /// For a cast, the type that it casts to.
    pub to: Option<DataType>,
}

impl Inserted {
    /// What `function` is made of; `None` for one that is registered under its name.
    pub fn of(function: &ScalarUDF) -> Option<Self> {
        let (inner, name) = (function.inner(), function.name().to_owned());
        if let Some(cast) = inner.downcast_ref::<SparkCast>() {
            return Some(Self { name, to: Some(cast.to().clone()) });
        }
        let is_inserted = inner.is::<Checked>() || inner.is::<DecimalOperation>();
        is_inserted.then_some(Self { name, to: None })
    }

    /// The function; `None` if there is none of this name.
    pub fn function(&self) -> Option<Arc<ScalarUDF>> {
        let argument = || Expr::Literal(datafusion::common::ScalarValue::Null, None);
        let call = match (self.name.as_str(), &self.to) {
            (name @ ("spark_cast" | "spark_try_cast"), Some(to)) => {
                let to = Arc::new(Field::new("", to.clone(), true));
                cast::cast_expr(argument(), to, name == "spark_cast")
            }
            (_, Some(_)) => return None,
            ("checked_add", None) => checked(argument(), Operator::Plus, argument()),
            ("checked_subtract", None) => checked(argument(), Operator::Minus, argument()),
            ("checked_multiply", None) => checked(argument(), Operator::Multiply, argument()),
            (name, None) => {
                let (operation, manner) = Operation::of_function(name)?;
                decimal_operation(argument(), operation, argument(), manner)
            }
        };
        match call {
            Expr::ScalarFunction(call) if call.func.name() == self.name => Some(call.func),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_the_same_again() {
        let names = [
            "checked_add",
            "checked_subtract",
            "checked_multiply",
            "decimal_add",
            "decimal_subtract",
            "decimal_multiply",
            "decimal_divide",
            "decimal_remainder",
            "decimal_pmod",
            "decimal_try_pmod",
            "try_add",
            "try_subtract",
            "try_multiply",
            "try_divide",
            "try_mod",
            "kept_decimal_multiply",
            "kept_decimal_pmod",
            "kept_try_divide",
        ];
        let named = names.map(|name| Inserted { name: name.to_owned(), to: None });
        let casts = ["spark_cast", "spark_try_cast"];
        let casts = casts
            .map(|name| Inserted { name: name.to_owned(), to: Some(DataType::Decimal128(10, 2)) });
        for inserted in named.into_iter().chain(casts) {
            let function = inserted.function();
            let function = function.unwrap_or_else(|| panic!("there is no {}", inserted.name));
            assert_eq!(Inserted::of(&function).as_ref(), Some(&inserted));
            assert_eq!(inserted.function().as_ref(), Some(&function));
        }
        let unknown = Inserted { name: "length".to_owned(), to: None };
        assert_eq!(unknown.function(), None);
    }
}
