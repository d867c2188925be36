//! What the clocks of a zone show, in values of any type that have moments in them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, PrimitiveArray, StructArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{DataFusionError, Result, exec_err};

use super::super::define::{Function, Param};
use super::{beyond, zone_of};
use crate::types::spark_type;
use crate::values::zone::Zone;

/// TIMESTAMPs, also within other values, at which clocks of UTC show what those of the zone do at
/// the given ones.
pub(crate) const CLOCK: &str = "__clock_in_zone";

pub(super) const FUNCTIONS: &[Function] = &[Function::new(
    CLOCK,
    &[Param::Any, Param::Text],
    |args| Ok(args[0].clone()),
    |args| clocks(&args.expanded(0)?, &zone_of(args)?),
)
.keeps_nulls()];

/// Whether a value of the type has a TIMESTAMP in it.
pub fn holds_moment(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, zone) => zone.is_some(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => holds_moment(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_moment(field.data_type())),
        DataType::Dictionary(_, values) => holds_moment(values),
        DataType::RunEndEncoded(_, values) => holds_moment(values.data_type()),
        _ => false,
    }
}

/// Whether a value of the type has a MAP in it whose keys have a TIMESTAMP in them.
pub(crate) fn has_moments_as_keys(of: &DataType) -> bool {
    match of {
        DataType::List(item) => has_moments_as_keys(item.data_type()),
        DataType::Struct(fields) => {
            fields.iter().any(|field| has_moments_as_keys(field.data_type()))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) => {
                let keys = parts.first().is_some_and(|key| holds_moment(key.data_type()));
                keys || parts.iter().any(|part| has_moments_as_keys(part.data_type()))
            }
            _ => true,
        },
        _ => false,
    }
}

/// The values, with what the clocks of `zone` show in the place of moments.
pub(super) fn clocks(values: &ArrayRef, zone: &Zone) -> Result<ArrayRef> {
    let data_type = values.data_type();
    if !holds_moment(data_type) {
        return Ok(Arc::clone(values));
    }
    Ok(match data_type {
        DataType::Timestamp(..) => {
            let shown = moved(&microseconds(values)?, |us| zone.clock_at(us))?;
            arrow_cast(&(Arc::new(shown.with_timezone("UTC")) as ArrayRef), data_type)?
        }
        DataType::List(item) => {
            let list = values.as_list::<i32>();
            let items = clocks(list.values(), zone)?;
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, nulls)?)
        }
        DataType::Map(entry, sorted) => {
            let map = values.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            let entries = clocks(&entries, zone)?.as_struct().clone();
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Arc::new(MapArray::try_new(Arc::clone(entry), offsets, entries, nulls, *sorted)?)
        }
        DataType::Struct(fields) => {
            let of = values.as_struct();
            let columns = of.columns().iter().map(|column| clocks(column, zone));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let (nulls, length) = (of.nulls().cloned(), of.len());
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, length)?)
        }
        other => return exec_err!("{} is not shown in a time zone", spark_type(other)),
    })
}

/// Times of any unit as microseconds, of a clock or since the epoch.
pub(super) fn microseconds(times: &ArrayRef) -> Result<PrimitiveArray<TimestampMicrosecondType>> {
    let zone = match times.data_type() {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    let us = arrow_cast(times, &DataType::Timestamp(TimeUnit::Microsecond, zone))?;
    Ok(us.as_primitive::<TimestampMicrosecondType>().clone())
}

/// The times that `by` makes of times.
pub(super) fn moved(
    times: &PrimitiveArray<TimestampMicrosecondType>,
    by: impl Fn(i64) -> Option<i64>,
) -> Result<PrimitiveArray<TimestampMicrosecondType>> {
    times.try_unary::<_, TimestampMicrosecondType, DataFusionError>(|us| by(us).ok_or_else(beyond))
}

#[cfg(test)]
mod tests {
    use arrow::array::TimestampMicrosecondArray;
    use arrow::datatypes::{Field, Fields};

    use super::*;
    use crate::types::timestamp;

    #[test]
    fn moments_within_other_values_are_found() {
        let times = TimestampMicrosecondArray::from(vec![Some(0), None]).with_timezone("UTC");
        let times: ArrayRef = Arc::new(times);
        let field = Field::new("t", timestamp(), true);
        let of = Fields::from(vec![field, Field::new("n", DataType::Int32, true)]);
        let numbers: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![1, 2]));
        let rows: ArrayRef = Arc::new(StructArray::new(of, vec![times, numbers], None));
        let zone = Zone::Fixed(5);
        let shown = clocks(&rows, &zone).expect("they are times");
        assert_eq!(shown.data_type(), rows.data_type());
        let shown = shown.as_struct().column(0);
        let shown = shown.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(shown.iter().collect::<Vec<_>>(), [Some(5), None]);
        let far: ArrayRef =
            Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX]).with_timezone("UTC"));
        assert!(clocks(&far, &zone).is_err());
    }
}
