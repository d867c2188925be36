//! Calls of functions without ANSI mode.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions::core::coalesce;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, lit};

use super::casts::has_short_texts;
use super::{Query, classes, refused};
use crate::functions::known_as;
use crate::functions::without_ansi::{
    self, ABS, ADD, CONV, DIV, ELT, MAKE_DATE, MULTIPLY, NEXT_DAY, SUBTRACT,
};
use crate::functions::zoned::{DEFAULT_PATTERN, as_cast};

/// What `size` of NULL is.
const SIZE_OF_NULL: i32 = -1;
/// A DECIMAL that all whole numbers fit.
const WHOLE: DataType = DataType::Decimal128(20, 0);

impl Query<'_> {
    /// A call whose arguments are what they mean already.
    pub(super) fn call(&self, mut call: ScalarFunction) -> Result<Transformed<Expr>> {
        match as_cast(&call) {
            Some((to, true)) => {
                let value = call.args.remove(0);
                let function = call.func;
                return self.cast(value, &to, |value| {
                    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![value]))
                });
            }
            Some((_, false)) => return Ok(Transformed::no(Expr::ScalarFunction(call))),
            None => {}
        }
        if let Some(meant) = without_ansi::decimals_or_null(&call) {
            return Ok(Transformed::yes(meant));
        }
        let types = call.args.iter().map(|arg| self.type_of(arg)).collect::<Result<Vec<_>>>()?;
        if let Some(meant) = self.number(&call, &types)? {
            return Ok(Transformed::yes(meant));
        }
        if let Some(meant) = self.time(&call, &types)? {
            return Ok(Transformed::yes(meant));
        }
        if let Some(meant) = self.part(&call, &types)? {
            return Ok(Transformed::yes(meant));
        }
        let is_written = classes::writes_decimals(call.name());
        if is_written && types.iter().any(has_short_texts) {
            return Err(refused("a text of a value with DECIMALs in it"));
        }
        match classes::is_known(call.name()) {
            true => Ok(Transformed::no(Expr::ScalarFunction(call))),
            false => Err(refused(&format!("function `{}`", known_as(call.name())))),
        }
    }

    /// The function called `name`, of these arguments.
    fn named(&self, name: &str, args: Vec<Expr>) -> Result<Expr> {
        match self.state.scalar_functions().get(name) {
            Some(function) => {
                Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args)))
            }
            None => internal_err!("there is no function {name}"),
        }
    }

    /// Arithmetic that would fail.
    fn number(&self, call: &ScalarFunction, types: &[DataType]) -> Result<Option<Expr>> {
        let is_whole = types.first().is_some_and(DataType::is_signed_integer);
        let args = || call.args.clone();
        let wrapping = match call.name() {
            "checked_add" => Some(ADD),
            "checked_subtract" => Some(SUBTRACT),
            "checked_multiply" => Some(MULTIPLY),
            "abs" if is_whole => Some(ABS),
            "conv" => Some(CONV),
            _ => None,
        };
        if let Some(name) = wrapping {
            return Ok(Some(without_ansi::call(name, args())));
        }
        let is_of_numbers = is_whole || matches!(types.first(), Some(DataType::Decimal128(..)));
        match (call.name(), call.args.as_slice()) {
            ("negative", [value]) if is_whole => Ok(Some(self.negative(value.clone())?.data)),
            ("round" | "bround", [_, places]) if is_whole && is_before_point(places) => {
                rounded(call, &types[0]).map(Some)
            }
            ("div", [left, right]) if is_of_numbers => {
                let right = self.nonzero(right.clone())?;
                Ok(Some(without_ansi::call(DIV, vec![left.clone(), right])))
            }
            ("divide" | "div" | "mod" | "pmod", [left, right]) => {
                let right = self.nonzero(right.clone())?;
                let function = Arc::clone(&call.func);
                let args = vec![left.clone(), right];
                Ok(Some(Expr::ScalarFunction(ScalarFunction::new_udf(function, args))))
            }
            _ => Ok(None),
        }
    }

    /// Dates and times of texts and numbers that make none.
    fn time(&self, call: &ScalarFunction, types: &[DataType]) -> Result<Option<Expr>> {
        let is_text = types.first().is_some_and(DataType::is_string);
        let args = || call.args.clone();
        match (call.name(), call.args.as_slice()) {
            ("make_date", _) => Ok(Some(without_ansi::call(MAKE_DATE, args()))),
            ("next_day", _) => Ok(Some(without_ansi::call(NEXT_DAY, args()))),
            ("make_timestamp", _) => self.named("try_make_timestamp", args()).map(Some),
            ("make_timestamp_ntz", _) => self.named("try_make_timestamp_ntz", args()).map(Some),
            ("to_date", _) if is_text => self.named("try_to_date", args()).map(Some),
            ("to_timestamp", _) if is_text => self.named("try_to_timestamp", args()).map(Some),
            ("to_timestamp_ntz", [text]) if is_text => {
                let local = DataType::Timestamp(TimeUnit::Microsecond, None);
                Ok(Some(without_ansi::try_cast(text.clone(), &local)))
            }
            ("unix_timestamp" | "to_unix_timestamp", [text, rest @ ..]) if is_text => {
                let pattern = rest.first().cloned().unwrap_or_else(|| lit(DEFAULT_PATTERN));
                let moment = self.named("try_to_timestamp", vec![text.clone(), pattern])?;
                let function = Arc::clone(&call.func);
                Ok(Some(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![moment]))))
            }
            _ => Ok(None),
        }
    }

    /// Parts of arrays, maps and addresses that are not there, and texts that are joined.
    fn part(&self, call: &ScalarFunction, types: &[DataType]) -> Result<Option<Expr>> {
        let args = || call.args.clone();
        match call.name() {
            "at_index" => self.named("get", args()).map(Some),
            "element_at" => self.named("try_element_at", args()).map(Some),
            "elt" => Ok(Some(without_ansi::call(ELT, args()))),
            "parse_url" => self.named("try_parse_url", args()).map(Some),
            "size" => {
                let size = Expr::ScalarFunction(call.clone());
                let args = vec![size, lit(SIZE_OF_NULL)];
                Ok(Some(Expr::ScalarFunction(ScalarFunction::new_udf(coalesce(), args))))
            }
            "concat" if types.iter().any(has_short_texts) => self.joined(call, types),
            _ => Ok(None),
        }
    }

    /// A call that joins texts, which decimals become.
    fn joined(&self, call: &ScalarFunction, types: &[DataType]) -> Result<Option<Expr>> {
        if types.iter().any(|of| matches!(of, DataType::List(_))) {
            return Ok(None);
        }
        let args = call.args.iter().zip(types).map(|(arg, of)| match of {
            of if !has_short_texts(of) => Ok(arg.clone()),
            DataType::Decimal128(..) => without_ansi::cast(arg.clone(), &DataType::Utf8),
            _ => Err(refused("a text of a value with DECIMALs in it")),
        });
        let args = args.collect::<Result<Vec<_>>>()?;
        let function = Arc::clone(&call.func);
        Ok(Some(Expr::ScalarFunction(ScalarFunction::new_udf(function, args))))
    }
}

/// Whether a whole number may be rounded to another one.
fn is_before_point(places: &Expr) -> bool {
    let Expr::Literal(places, _) = places else { return true };
    !matches!(places.cast_to(&DataType::Int64), Ok(ScalarValue::Int64(Some(0..))))
}

/// The call that rounds a whole number of the type `of`, of whose result the low bits are kept.
fn rounded(call: &ScalarFunction, of: &DataType) -> Result<Expr> {
    let mut args = call.args.clone();
    args[0] = without_ansi::try_cast(std::mem::take(&mut args[0]), &WHOLE);
    let rounded = ScalarFunction::new_udf(Arc::clone(&call.func), args);
    without_ansi::cast(Expr::ScalarFunction(rounded), of)
}
