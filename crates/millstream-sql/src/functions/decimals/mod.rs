//! DECIMAL as in Spark: precision and scale of results, arithmetic, rounding.
//!
//! DataFusion's own rules give other types (`DECIMAL(38,18) * DECIMAL(38,18)` has 36 digits after
//! the point) and do not always notice what does not fit them. The common
//! type of two decimals is found in [`super::common_types`].

mod arithmetic;
mod casts;
mod keeping;
mod narrow;
mod rounding;
mod types;
mod unscaled;
mod whole_division;

pub(super) use arithmetic::{DecimalOperation, decimal_operation};
pub(super) use casts::{cast_decimal, casts as casts_decimals};
pub use keeping::KeepsDigits;
pub(super) use keeping::as_wanted;
pub(super) use rounding::functions as rounding_functions;
pub(super) use types::{Manner, Operation, digits_of, type_of, wider};
pub(super) use unscaled::rounded_text;
pub(super) use whole_division::{whole_division, wrapping_quotients};
