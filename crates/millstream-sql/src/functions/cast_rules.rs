//! Which casts there are: with ANSI mode on, Spark refuses a cast between types whose values have
//! nothing to do with each other, whether the query asks for it or a common type needs it.
//!
//! DataFusion knows more casts: days as a number, the bytes of a number. A query that Spark refuses
//! must not get an answer here.

use arrow::datatypes::DataType;

use super::interval_casts::is_interval;
use super::variant_types::can_be_variant;
use crate::types::{TIME, TIME_HELP, is_variant, spark_type};

/// The kinds of types between which a cast is allowed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Boolean,
    Bytes,
    Date,
    Time,
    LocalTime,
    TimeOfDay,
}

fn kind(of: &DataType) -> Option<Kind> {
    Some(match of {
        of if of.is_string() => Kind::Text,
        of if of.is_numeric() => Kind::Number,
        DataType::Boolean => Kind::Boolean,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Kind::Bytes,
        DataType::Date32 => Kind::Date,
        DataType::Timestamp(_, Some(_)) => Kind::Time,
        DataType::Timestamp(_, None) => Kind::LocalTime,
        of if *of == TIME => Kind::TimeOfDay,
        _ => return None,
    })
}

/// Whether Spark casts `from` to `to`. Types that it does not have are left to DataFusion.
fn is_allowed(from: &DataType, to: &DataType) -> bool {
    if is_variant(from) {
        return can_be_variant(to, true);
    }
    if is_variant(to) {
        return from.is_null() || can_be_variant(from, false);
    }
    match (from, to) {
        (DataType::Dictionary(_, values), to) => return is_allowed(values, to),
        (DataType::List(from), DataType::List(to)) => {
            return is_allowed(from.data_type(), to.data_type());
        }
        (DataType::Map(from, _), DataType::Map(to, _)) => {
            return is_allowed(from.data_type(), to.data_type());
        }
        (DataType::Struct(from), DataType::Struct(to)) => {
            let mut pairs = from.iter().zip(to);
            return from.len() == to.len()
                && pairs.all(|(from, to)| is_allowed(from.data_type(), to.data_type()));
        }
        _ => {}
    }
    match (is_interval(from), is_interval(to)) {
        (true, true) => return is_of_months(from) == is_of_months(to),
        (true, false) if kind(to).is_some() => return is_text_or_exact(to),
        (false, true) if kind(from).is_some() => return is_text_or_exact(from),
        _ => {}
    }
    let nested =
        |of: &DataType| matches!(of, DataType::List(_) | DataType::Map(..) | DataType::Struct(_));
    match (kind(from), kind(to)) {
        (Some(Kind::TimeOfDay), Some(Kind::Number)) if to.is_floating() => false,
        (Some(from), Some(to)) => between(from, to),
        (Some(_), None) => !nested(to),
        (None, Some(to)) => !nested(from) || to == Kind::Text,
        (None, None) => !(nested(from) && nested(to)),
    }
}

fn is_of_months(of: &DataType) -> bool {
    matches!(of, DataType::Interval(_))
}

/// What is cast to an INTERVAL, and what that is cast to.
fn is_text_or_exact(of: &DataType) -> bool {
    of.is_string() || of.is_integer() || matches!(of, DataType::Decimal128(..))
}

fn between(from: Kind, to: Kind) -> bool {
    if from == to {
        return true;
    }
    match from {
        Kind::Text => to != Kind::TimeOfDay,
        Kind::Number => matches!(to, Kind::Text | Kind::Boolean | Kind::Time),
        Kind::Boolean => matches!(to, Kind::Text | Kind::Number),
        Kind::Bytes => to == Kind::Text,
        Kind::Date => matches!(to, Kind::Text | Kind::Time | Kind::LocalTime),
        Kind::Time => matches!(to, Kind::Text | Kind::Number | Kind::Date | Kind::LocalTime),
        Kind::LocalTime => matches!(to, Kind::Text | Kind::Date | Kind::Time),
        Kind::TimeOfDay => matches!(to, Kind::Text | Kind::Number),
    }
}

/// Whether `try_cast` would make NULLs of keys of a MAP, which cannot be any: Spark refuses it.
pub(super) fn loses_keys(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::List(from), DataType::List(to)) => loses_keys(from.data_type(), to.data_type()),
        (DataType::Struct(from), DataType::Struct(to)) => {
            let mut pairs = from.iter().zip(to);
            pairs.any(|(from, to)| loses_keys(from.data_type(), to.data_type()))
        }
        (DataType::Map(from, _), DataType::Map(to, _)) => {
            let (DataType::Struct(from), DataType::Struct(to)) = (from.data_type(), to.data_type())
            else {
                return false;
            };
            let mut pairs = from.iter().zip(to);
            let keys = pairs.next();
            keys.is_some_and(|(from, to)| may_be_null(from.data_type(), to.data_type()))
                || pairs.any(|(from, to)| loses_keys(from.data_type(), to.data_type()))
        }
        _ => false,
    }
}

/// Whether a value has no counterpart in every case, to go by the types.
fn may_be_null(from: &DataType, to: &DataType) -> bool {
    match (kind(from), kind(to)) {
        (Some(Kind::Text), Some(to)) => !matches!(to, Kind::Text | Kind::Bytes),
        (Some(Kind::Number), Some(Kind::Number)) => {
            let is_whole = from.is_signed_integer();
            !is_whole && to.is_signed_integer()
        }
        _ => false,
    }
}

/// What is wrong with a cast from `from` to `to`; `None` if Spark does it.
pub(super) fn problem(from: &DataType, to: &DataType) -> Option<String> {
    if is_allowed(from, to) {
        return None;
    }
    if *to == TIME {
        return Some(format!("{} cannot be cast to TIME: {TIME_HELP}", spark_type(from)));
    }
    let help = match (kind(from), kind(to)) {
        (Some(Kind::Number), Some(Kind::Date)) => "; write date_from_unix_date(days)",
        (Some(Kind::Date), Some(Kind::Number)) => "; write unix_date(date)",
        (Some(Kind::Number), Some(Kind::Bytes)) => "; write CAST(CAST(x AS STRING) AS BINARY)",
        (Some(Kind::LocalTime), Some(Kind::Number))
        | (Some(Kind::Number), Some(Kind::LocalTime)) => "; cast to TIMESTAMP first",
        _ if is_interval(from) || is_interval(to) => "; cast to a DECIMAL first",
        _ if is_variant(to) && can_be_variant(from, true) => "; write to_variant_object(x)",
        _ => "",
    };
    let (from, to) = (spark_type(from), spark_type(to));
    Some(format!("{from} cannot be cast to {to} (DATATYPE_MISMATCH){help}"))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{IntervalUnit, TimeUnit};

    use super::*;
    use crate::types::{list_of, map_of, timestamp, variant};

    #[test]
    fn casts_are_those_of_ansi_mode() {
        let local = DataType::Timestamp(TimeUnit::Microsecond, None);
        let allowed = [
            (DataType::Utf8, DataType::Date32),
            (DataType::Int32, timestamp()),
            (timestamp(), DataType::Int64),
            (DataType::Boolean, DataType::Int8),
            (DataType::Binary, DataType::Utf8),
            (DataType::Null, DataType::Date32),
            (list_of(DataType::Int32), list_of(DataType::Utf8)),
            (list_of(DataType::Int32), DataType::Utf8),
            (TIME, DataType::Int8),
            (TIME, DataType::Utf8),
            (DataType::Duration(TimeUnit::Microsecond), DataType::Decimal128(10, 2)),
            (DataType::Utf8, DataType::Interval(IntervalUnit::YearMonth)),
            (variant(), DataType::Int32),
            (variant(), map_of(DataType::Utf8, DataType::Date32)),
            (list_of(DataType::Float64), variant()),
            (DataType::Null, variant()),
        ];
        for (from, to) in allowed {
            assert_eq!(problem(&from, &to), None, "{from} to {to}");
        }
        let refused = [
            (DataType::Int32, DataType::Date32),
            (DataType::Date32, DataType::Int64),
            (DataType::Int32, DataType::Binary),
            (DataType::Int64, local.clone()),
            (local, DataType::Int64),
            (DataType::Boolean, timestamp()),
            (DataType::Utf8, TIME),
            (timestamp(), TIME),
            (TIME, timestamp()),
            (TIME, DataType::Float64),
            (DataType::Utf8, list_of(DataType::Utf8)),
            (list_of(DataType::Int32), list_of(DataType::Date32)),
            (list_of(DataType::Int32), map_of(DataType::Int32, DataType::Int32)),
            (DataType::Duration(TimeUnit::Second), DataType::Float64),
            (DataType::Boolean, DataType::Duration(TimeUnit::Second)),
            (DataType::Duration(TimeUnit::Second), DataType::Interval(IntervalUnit::YearMonth)),
            (variant(), map_of(DataType::Int32, DataType::Int32)),
            (variant(), DataType::Duration(TimeUnit::Second)),
            (variant(), TIME),
            (map_of(DataType::Utf8, DataType::Int32), variant()),
        ];
        for (from, to) in refused {
            assert!(problem(&from, &to).is_some(), "{from} to {to}");
        }
    }
}
