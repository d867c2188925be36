//! Which casts depend on the session's time zone.

use arrow::datatypes::DataType;

use crate::functions::zoned::holds_moment;
use crate::types::holds_variant;

/// What a zone changes about a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// It is computed in the zone.
    Zone,
    /// It is not known; what is cast.
    Unknown(&'static str),
}

/// What a zone changes about the cast from one type to another.
pub(super) fn change(from: &DataType, to: &DataType) -> Change {
    use DataType::{Date32, List, Map, Null, Struct, Timestamp};
    match (from, to) {
        // Without times in them VARIANTs are the same in any zone, and texts in them are none.
        (from, to) if holds_variant(to) && !holds_variant(from) && holds_time(from) => {
            Change::Unknown("a VARIANT of a date or a time")
        }
        (from, to) if holds_variant(from) && !holds_variant(to) && holds_moment(to) => {
            Change::Unknown("a cast of a VARIANT to a TIMESTAMP")
        }
        (from, to) if !holds_moment(from) && !holds_moment(to) => Change::None,
        (Null, _) => Change::None,
        (List(from), List(to)) | (Map(from, _), Map(to, _)) => {
            change(from.data_type(), to.data_type())
        }
        (Struct(from), Struct(to)) if from.len() == to.len() => {
            let pairs = from.iter().zip(to);
            let has_same_order =
                pairs.clone().all(|(from, to)| from.name().eq_ignore_ascii_case(to.name()));
            let mut changes = pairs.map(|(from, to)| change(from.data_type(), to.data_type()));
            // Fields in another order would be cast by their names.
            let changed = changes.find(|change| *change != Change::None);
            match changed {
                None | Some(Change::Unknown(_)) => changed.unwrap_or(Change::None),
                Some(_) if has_same_order => Change::Zone,
                Some(_) => Change::Unknown("a cast of a STRUCT with TIMESTAMPs to other fields"),
            }
        }
        (Timestamp(_, Some(_)), Timestamp(_, Some(_))) => Change::None,
        (Timestamp(_, Some(_)), to) if to.is_numeric() => Change::None,
        (from, Timestamp(_, Some(_))) if from.is_numeric() => Change::None,
        (Timestamp(_, Some(_)), Date32 | Timestamp(_, None))
        | (Date32 | Timestamp(_, None), Timestamp(_, Some(_))) => Change::Zone,
        (_, to) if to.is_string() => Change::Zone,
        (from, Timestamp(_, Some(_))) if from.is_string() => Change::Zone,
        _ => Change::Unknown("a cast of a TIMESTAMP to another type"),
    }
}

/// Whether a value of the type has a date or a time in it.
pub(super) fn holds_time(of: &DataType) -> bool {
    match of {
        DataType::Date32 | DataType::Timestamp(..) => true,
        DataType::List(item) | DataType::Map(item, _) => holds_time(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_time(field.data_type())),
        _ => false,
    }
}
