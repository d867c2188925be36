//! Which types values of several types have in common without ANSI mode.

use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, plan_datafusion_err};

use crate::types::spark_type;

/// What becomes of two values that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// The same as with ANSI mode.
    Same,
    /// One is cast to the type of the other ([`gives_way`]).
    Cast,
    /// It is not known to be the same.
    Unknown,
}

pub(super) fn compared(one: &DataType, other: &DataType) -> Beside {
    let is_same_of_text = |other: &DataType| {
        let is_exact = matches!(other, DataType::Float64 | DataType::Decimal128(..));
        let is_time = matches!(other, DataType::Date32 | DataType::Timestamp(..));
        is_exact || is_time || *other == DataType::Boolean
    };
    let (first, second) = (one.is_string(), other.is_string());
    match (first, second) {
        _ if one.is_null() || other.is_null() => Beside::Same,
        _ if gives_way(one, other) || gives_way(other, one) => Beside::Cast,
        (true, false) if is_same_of_text(other) => Beside::Same,
        (false, true) if is_same_of_text(one) => Beside::Same,
        _ if first == second && are_of_one_kind(one, other) => Beside::Same,
        _ => Beside::Unknown,
    }
}

/// Whether a value is cast to the type of the one beside it: a STRING to that of a number, and a
/// whole number to FLOAT.
pub(super) fn gives_way(of: &DataType, to: &DataType) -> bool {
    let is_float = *to == DataType::Float32;
    (of.is_string() && (is_float || to.is_signed_integer())) || (of.is_signed_integer() && is_float)
}

/// Whether values of both types have the same common type in both modes.
fn are_of_one_kind(one: &DataType, other: &DataType) -> bool {
    use DataType::{Date32, Duration, Float32, Interval, List, Map, Struct, Timestamp};
    let is_time = |of: &DataType| matches!(of, Date32 | Timestamp(..));
    let is_span = |of: &DataType| matches!(of, Duration(_) | Interval(_));
    match (one, other) {
        (one, other) if one == other || one.is_null() || other.is_null() => true,
        (Float32, whole) | (whole, Float32) if whole.is_signed_integer() => false,
        (List(one), List(other)) | (Map(one, _), Map(other, _)) => {
            are_of_one_kind(one.data_type(), other.data_type())
        }
        (Struct(one), Struct(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len()
                && pairs.all(|(one, other)| are_of_one_kind(one.data_type(), other.data_type()))
        }
        (one, other) => {
            let both = |is: &dyn Fn(&DataType) -> bool| is(one) && is(other);
            both(&DataType::is_numeric)
                || both(&DataType::is_string)
                || both(&DataType::is_binary)
                || both(&is_time)
                || both(&is_span)
        }
    }
}

/// Whether values of these types become STRINGs where they are beside each other: some are STRINGs,
/// and the others numbers or times.
fn become_texts(types: &[DataType]) -> bool {
    let is_written = |of: &DataType| {
        let is_time = matches!(of, DataType::Date32 | DataType::Timestamp(..));
        of.is_numeric() || is_time || of.is_string() || of.is_null()
    };
    let is_text = |of: &DataType| of.is_string() || of.is_null();
    types.iter().any(DataType::is_string)
        && types.iter().all(is_written)
        && !types.iter().all(is_text)
}

/// What values of these types become where they are values of one column, argument or list; `None`
/// where it is the same as with ANSI mode.
pub(super) fn common(types: &[DataType]) -> Result<Option<DataType>> {
    if become_texts(types) {
        return Ok(Some(DataType::Utf8));
    }
    let are_all = |is: &dyn Fn(&DataType) -> bool| types.iter().all(|of| of.is_null() || is(of));
    let is_wide = |of: &DataType| matches!(of, DataType::Float64 | DataType::Decimal128(..));
    if are_all(&DataType::is_numeric) && types.iter().any(is_wide) {
        return Ok(None);
    }
    let is_whole_or_float = |of: &DataType| of.is_signed_integer() || *of == DataType::Float32;
    if are_all(&is_whole_or_float) && types.contains(&DataType::Float32) {
        return Ok(Some(DataType::Float32));
    }
    check_kind(types)?;
    Ok(None)
}

/// What is beside each other and not of one kind.
pub(super) fn refused(one: &DataType, other: &DataType) -> DataFusionError {
    plan_datafusion_err!(
        "{} beside {} is not supported where spark.sql.ansi.enabled is false; cast one to the type \
         of the other, CAST(x AS {}), or write SET spark.sql.ansi.enabled = true",
        spark_type(one),
        spark_type(other),
        spark_type(if one.is_string() { other } else { one })
    )
}

/// Refuses types that are not all of one kind.
pub(crate) fn check_kind<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Result<()> {
    let mut known = types.into_iter().filter(|of| !of.is_null());
    let Some(first) = known.next() else { return Ok(()) };
    let mut seen = vec![first];
    for of in known {
        // Of three numbers the first may be a DOUBLE, which hides a FLOAT from the others.
        if let Some(one) = seen.iter().find(|one| !are_of_one_kind(one, of)) {
            return Err(refused(one, of));
        }
        if !seen.contains(&of) {
            seen.push(of);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{list_of, timestamp};

    #[test]
    fn a_text_is_compared_as_the_value_beside_it() {
        for (other, expected) in [
            (DataType::Utf8, Beside::Same),
            (DataType::Null, Beside::Same),
            (DataType::Date32, Beside::Same),
            (timestamp(), Beside::Same),
            (DataType::Float64, Beside::Same),
            (DataType::Decimal128(3, 1), Beside::Same),
            (DataType::Int32, Beside::Cast),
            (DataType::Float32, Beside::Cast),
            (DataType::Binary, Beside::Unknown),
            (list_of(DataType::Utf8), Beside::Unknown),
        ] {
            assert_eq!(compared(&DataType::Utf8, &other), expected, "{other}");
            assert_eq!(compared(&other, &DataType::Utf8), expected, "{other}");
        }
    }

    #[test]
    fn numbers_and_times_become_texts_beside_texts() {
        let text = DataType::Utf8;
        for (other, expected) in [
            (DataType::Int64, true),
            (DataType::Date32, true),
            (timestamp(), true),
            (DataType::Boolean, false),
            (DataType::Binary, false),
            (list_of(DataType::Utf8), false),
            (DataType::Null, false),
            (DataType::Utf8, false),
        ] {
            assert_eq!(become_texts(&[text.clone(), other.clone()]), expected, "{other}");
        }
        assert!(become_texts(&[DataType::Float32, DataType::Int32, text]));
        assert!(!become_texts(&[DataType::Int64, DataType::Date32]));
    }

    #[test]
    fn whole_numbers_become_floats_beside_floats() {
        use DataType::{Boolean, Float32, Float64, Int64, Null};
        let common = |types: &[DataType]| common(types).map_err(|found| found.to_string());
        assert_eq!(common(&[Int64, Null, Float32]), Ok(Some(Float32)));
        assert_eq!(common(&[Int64, Float32, Float64]), Ok(None));
        assert_eq!(common(&[Int64, DataType::Decimal128(3, 1)]), Ok(None));
        assert_eq!(common(&[Int64, Null]), Ok(None));
        assert!(common(&[Int64, Boolean]).is_err());
        assert_eq!(compared(&Int64, &Float32), Beside::Cast);
        assert!(gives_way(&Int64, &Float32) && !gives_way(&Float32, &Int64));
    }

    #[test]
    fn floats_and_whole_numbers_are_not_of_one_kind() {
        let float = DataType::Float32;
        assert!(!are_of_one_kind(&float, &DataType::Int64));
        assert!(!are_of_one_kind(&list_of(DataType::Int8), &list_of(float.clone())));
        assert!(are_of_one_kind(&float, &DataType::Float64));
        assert!(are_of_one_kind(&float, &DataType::Decimal128(3, 1)));
        assert!(are_of_one_kind(&DataType::Int8, &DataType::Decimal128(3, 1)));
        assert!(are_of_one_kind(&DataType::Date32, &timestamp()));
        assert!(!are_of_one_kind(&DataType::Date32, &DataType::Utf8));
        assert!(check_kind([&DataType::Float64, &float, &DataType::Int64]).is_err());
        assert!(check_kind([&DataType::Null, &float]).is_ok());
    }
}
