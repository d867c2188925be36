//! Casts between moments and what clocks show: dates, local times and texts.
//!
//! The type to cast to is that of the second argument, a NULL: where a plan is computed elsewhere
//! functions are known by their names.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Field, FieldRef, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::super::cast::cast;
use super::super::define::{call, invalid, known_by_name};
use super::super::nested_casts::cast_nested;
use super::clocks::{clocks, holds_moment, microseconds};
use super::{beyond, zone_of};
use crate::types::spark_type;
use crate::values::calendar::parse_timestamp_in;
use crate::values::zone::Zone;

const CAST: &str = "__cast_in_zone";
const TRY_CAST: &str = "__try_cast_in_zone";

/// The functions, for registration.
pub(super) fn functions() -> [Arc<ScalarUDF>; 2] {
    [true, false].map(function)
}

/// The cast that fails where there is no such value, or the one that gives NULL.
pub(super) fn function(strict: bool) -> Arc<ScalarUDF> {
    let name = if strict { CAST } else { TRY_CAST };
    let signature = Signature::any(3, Volatility::Immutable);
    Arc::new(ScalarUDF::from(ZonedCast { name, signature }))
}

/// What is cast, where a call is such a cast that fails where there is no such value.
pub(crate) fn source_of(call: &ScalarFunction) -> Option<&Expr> {
    call.args.first().filter(|_| call.name() == CAST)
}

struct ZonedCast {
    name: &'static str,
    signature: Signature,
}

known_by_name!(ZonedCast);

impl ZonedCast {
    fn is_strict(&self) -> bool {
        self.name == CAST
    }
}

impl ScalarUDFImpl for ZonedCast {
    fn name(&self) -> &str {
        self.name
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        let word = if self.is_strict() { "CAST" } else { "TRY_CAST" };
        let to = match &args[1] {
            Expr::Literal(value, _) => spark_type(&value.data_type()),
            other => other.to_string(),
        };
        Ok(format!("{word}({} AS {to} IN {})", args[0], args[2]))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        Ok(args[1].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = !self.is_strict() || args.arg_fields[0].is_nullable();
        Ok(Arc::new(Field::new(self.name, args.arg_fields[1].data_type().clone(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| {
            let (values, zone) = (arguments.expanded(0)?, zone_of(arguments)?);
            cast_in(&values, &arguments.returns, self.is_strict(), &zone)
        })
    }
}

/// Casts `values` in a session of `zone`.
fn cast_in(values: &ArrayRef, to: &DataType, strict: bool, zone: &Zone) -> Result<ArrayRef> {
    use DataType::{Date32, List, Map, Struct, Timestamp};
    let as_local = DataType::Timestamp(TimeUnit::Microsecond, None);
    match (values.data_type(), to) {
        (from, to) if !holds_moment(from) && !holds_moment(to) => cast(values, to, strict),
        (List(_), List(_)) | (Map(..), Map(..)) | (Struct(_), Struct(_)) => {
            cast_nested(values, to, strict, |values, to, strict| cast_in(values, to, strict, zone))
        }
        // What is shown does not depend on the zone any more.
        (from, to) if holds_moment(from) && to.is_string() => {
            cast(&clocks(values, zone)?, to, strict)
        }
        (Timestamp(_, Some(_)), Date32) => cast(&clocks(values, zone)?, to, strict),
        (Timestamp(_, Some(_)), Timestamp(_, None)) => {
            let shown = microseconds(&clocks(values, zone)?)?.with_data_type(as_local);
            cast(&(Arc::new(shown) as ArrayRef), to, strict)
        }
        (Timestamp(_, None), Timestamp(_, Some(_))) => {
            let locals = microseconds(values)?;
            let moments = moments(&locals, strict, |local| zone.moment_of(local))?;
            cast(&moments, to, strict)
        }
        (Date32, Timestamp(_, Some(_))) => {
            let days = values.as_primitive::<Date32Type>();
            let moments = moments(days, strict, |day| zone.start_of_day(day))?;
            cast(&moments, to, strict)
        }
        (from, Timestamp(_, Some(_))) if from.is_string() => {
            let texts = cast(values, &DataType::Utf8, strict)?;
            let read = |text: &str| match parse_timestamp_in(text, zone) {
                None if strict => invalid(text, "TIMESTAMP"),
                found => Ok(found),
            };
            let texts = texts.as_string::<i32>().iter();
            let read: Result<Vec<Option<i64>>> =
                texts.map(|text| text.map_or(Ok(None), read)).collect();
            let read: PrimitiveArray<TimestampMicrosecondType> = read?.into_iter().collect();
            cast(&(Arc::new(read.with_timezone("UTC")) as ArrayRef), to, strict)
        }
        _ => cast(values, to, strict),
    }
}

/// TIMESTAMPs of what clocks show; of what has none an error if `strict`, else NULL.
fn moments<T: ArrowPrimitiveType>(
    shown: &PrimitiveArray<T>,
    strict: bool,
    moment: impl Fn(T::Native) -> Option<i64>,
) -> Result<ArrayRef> {
    let moments = shown.unary_opt::<_, TimestampMicrosecondType>(moment);
    if strict && moments.null_count() > shown.null_count() {
        return Err(beyond());
    }
    Ok(Arc::new(moments.with_timezone("UTC")))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ListArray, StringArray};
    use arrow::buffer::OffsetBuffer;

    use super::*;
    use crate::types::{list_of, timestamp};

    #[test]
    fn texts_within_arrays_are_read_in_the_zone() {
        let texts = StringArray::from(vec!["1970-01-01 01:00:00", "1970-01-01 01:00:00Z"]);
        let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
        let lists = ListArray::new(item, OffsetBuffer::from_lengths([2]), Arc::new(texts), None);
        let lists: ArrayRef = Arc::new(lists);
        let zone = Zone::named("Europe/Berlin").expect("there is such a zone");
        let wanted = list_of(timestamp());
        let read = cast_in(&lists, &wanted, true, &zone).expect("they are times");
        assert_eq!(*read.data_type(), wanted);
        let items = read.as_list::<i32>().values();
        let items = items.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(items.values().to_vec(), [0, 3_600_000_000]);
        let back = cast_in(&read, &DataType::Utf8, true, &zone).expect("they are written");
        let shown = "[1970-01-01 01:00:00, 1970-01-01 02:00:00]";
        assert_eq!(back.as_string::<i32>().value(0), shown);
    }

    #[test]
    fn a_time_without_a_moment_is_null_or_an_error() {
        let days: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![i32::MAX, 0]));
        let zone = Zone::named("Asia/Kolkata").expect("there is such a zone");
        assert!(cast_in(&days, &timestamp(), true, &zone).is_err());
        let tried = cast_in(&days, &timestamp(), false, &zone).expect("one is a time");
        let tried = tried.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(tried.iter().collect::<Vec<_>>(), [None, Some(-19_800_000_000)]);
    }
}
