//! What becomes of the cast from one type to another.

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::Expr;

use super::{Query, refused};
use crate::functions::holds_moment;
use crate::functions::without_ansi::{self, is_another_order, is_short_text};
use crate::types::is_variant;

/// How values are cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Each has a counterpart.
    Total,
    /// What has none is an error, in both modes or in this one at least.
    Strict,
    /// What has none is NULL.
    OrNull,
    /// As [`cast`](without_ansi::cast) does it, which never fails.
    Wrapping,
    /// It is not known.
    Unknown,
}

impl Form {
    /// The form of a value with parts of both forms.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Total, form) | (form, Self::Total) => form,
            (one, other) if one == other => one,
            (Self::OrNull, Self::Wrapping) | (Self::Wrapping, Self::OrNull) => Self::Wrapping,
            _ => Self::Unknown,
        }
    }
}

/// How a value of one type is cast to another.
pub(super) fn form(from: &DataType, to: &DataType) -> Form {
    use DataType::{Boolean, Date32, Decimal128, List, Map, Struct, Timestamp};
    match (from, to) {
        (from, to) if from == to || from.is_null() => Form::Total,
        (from, to) if is_variant(from) || is_variant(to) => Form::Strict,
        (List(from), List(to)) | (Map(from, _), Map(to, _)) => {
            form(from.data_type(), to.data_type())
        }
        (Struct(from), Struct(to)) if from.len() == to.len() => {
            let pairs = from.iter().zip(to);
            let forms = pairs.map(|(from, to)| form(from.data_type(), to.data_type()));
            match forms.fold(Form::Total, Form::with) {
                form @ (Form::Total | Form::Strict) => form,
                // Its fields are found by their names.
                _ if is_another_order(from, to) => Form::Unknown,
                form => form,
            }
        }
        (from, to) if to.is_string() => to_text(from),
        (from, to) if to.is_signed_integer() => to_whole(from, to),
        (from, Decimal128(..)) if from.is_string() || from.is_numeric() => Form::OrNull,
        (Boolean | Timestamp(..), Decimal128(..)) => Form::OrNull,
        (from, to) if from.is_string() => match to {
            Boolean | Date32 | Timestamp(..) => Form::OrNull,
            to if to.is_floating() => Form::OrNull,
            to if to.is_binary() => Form::Total,
            _ => Form::Strict,
        },
        (from, Timestamp(..)) if from.is_floating() => Form::OrNull,
        (Boolean | Timestamp(..), to) if to.is_floating() => Form::Total,
        (from, to) if from.is_numeric() && (to.is_floating() || *to == Boolean) => Form::Total,
        _ => Form::Strict,
    }
}

fn to_text(from: &DataType) -> Form {
    match from {
        DataType::Decimal128(_, scale) if is_short_text(*scale) => Form::Wrapping,
        from if has_short_texts(from) => Form::Unknown,
        _ => Form::Total,
    }
}

/// Whether there are decimals in a value whose texts may have an exponent.
pub(super) fn has_short_texts(of: &DataType) -> bool {
    match of {
        DataType::Decimal128(_, scale) => is_short_text(*scale),
        DataType::List(item) | DataType::Map(item, _) => has_short_texts(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_short_texts(field.data_type())),
        _ => false,
    }
}

fn to_whole(from: &DataType, to: &DataType) -> Form {
    match from {
        from if from.is_signed_integer() => match from.primitive_width() <= to.primitive_width() {
            true => Form::Total,
            false => Form::Wrapping,
        },
        from if from.is_string() || from.is_floating() => Form::Wrapping,
        DataType::Decimal128(_, scale) if *scale >= 0 => Form::Wrapping,
        DataType::Boolean => Form::Total,
        DataType::Timestamp(_, Some(_)) => Form::OrNull,
        _ => Form::Strict,
    }
}

impl Query<'_> {
    /// A cast to a type; `original` makes the one of ANSI mode.
    pub(super) fn cast(
        &self,
        expr: Expr,
        to: &DataType,
        original: impl FnOnce(Expr) -> Expr,
    ) -> Result<Transformed<Expr>> {
        let from = self.type_of(&expr)?;
        match form(&from, to) {
            Form::Total | Form::Strict => Ok(Transformed::no(original(expr))),
            Form::OrNull => Ok(Transformed::yes(without_ansi::try_cast(expr, to))),
            // Its TIMESTAMPs are those of UTC.
            Form::Wrapping if from.is_nested() && (holds_moment(&from) || holds_moment(to)) => {
                Err(refused("a cast of a value with TIMESTAMPs and whole numbers in it"))
            }
            Form::Wrapping => Ok(Transformed::yes(without_ansi::cast(expr, to)?)),
            Form::Unknown => Err(refused("this cast of a value with several parts")),
        }
    }
}
