//! Rows of a result for one who reads texts of them: what the clocks of the session's zone show.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::common::{Result, plan_err};

use super::super::json_formats::Formats;
use super::super::session_zone::SessionZone;
use super::super::zone_letters::id_of;
use super::super::zones::{long_name, named};
use super::clocks::{clocks, has_moments_as_keys, holds_moment};

/// The rows, with TIMESTAMPs at which clocks of UTC show what those of the zone do, so that whoever
/// writes a TIMESTAMP in UTC without saying so writes what the zone's clocks show.
///
/// # Errors
/// A TIMESTAMP whose offset in the zone is not known.
pub fn shown_in(zone: &SessionZone, rows: &RecordBatch) -> Result<RecordBatch> {
    let zone = named(zone.name())?;
    with_columns(rows, &rows.schema(), |column| clocks(column, &zone))
}

/// The columns of [`recorded_in`].
///
/// # Errors
/// A MAP whose keys are TIMESTAMPs: their form is that of the record, and has no zone.
pub fn recorded_schema(zone: &SessionZone, schema: &SchemaRef) -> Result<SchemaRef> {
    if zone.is_utc() {
        return Ok(Arc::clone(schema));
    }
    if let Some(field) = schema.fields().iter().find(|of| has_moments_as_keys(of.data_type())) {
        return plan_err!(
            "`{}` is a MAP whose keys are TIMESTAMPs, which are not written where the session's \
             time zone is {}; cast it to STRING",
            field.name(),
            zone.name()
        );
    }
    let fields: Fields = schema.fields().iter().map(of_texts).collect();
    Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}

/// The rows, with the text of each TIMESTAMP as records have it, with its offset in the zone:
/// `2026-01-31T12:00:00.000+01:00`.
///
/// # Errors
/// As [`recorded_schema`]; and a TIMESTAMP whose offset in the zone is not known.
pub fn recorded_in(zone: &SessionZone, rows: &RecordBatch) -> Result<RecordBatch> {
    let (schema, name) = (recorded_schema(zone, &rows.schema())?, long_name(zone.name()));
    let formats = Formats::in_zone(named(name)?, id_of(name));
    with_columns(rows, &schema, |column| match holds_moment(column.data_type()) {
        true => formats.written(column),
        false => Ok(Arc::clone(column)),
    })
}

fn with_columns(
    rows: &RecordBatch,
    schema: &SchemaRef,
    change: impl Fn(&ArrayRef) -> Result<ArrayRef>,
) -> Result<RecordBatch> {
    let columns = rows.columns().iter().map(change).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// A field with STRINGs in the place of TIMESTAMPs.
fn of_texts(field: &FieldRef) -> FieldRef {
    if !holds_moment(field.data_type()) {
        return Arc::clone(field);
    }
    let data_type = match field.data_type() {
        DataType::List(item) => DataType::List(of_texts(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(of_texts).collect()),
        DataType::Map(entries, sorted) => DataType::Map(of_texts(entries), *sorted),
        _ => DataType::Utf8,
    };
    Arc::new(Field::clone(field).with_data_type(data_type))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, TimestampMicrosecondArray};

    use super::*;
    use crate::types::{list_of, timestamp};

    #[test]
    fn records_have_the_offset_of_the_zone() {
        let times = TimestampMicrosecondArray::from(vec![Some(0), None]).with_timezone("UTC");
        let fields = vec![Field::new("t", timestamp(), true)];
        let schema = Arc::new(Schema::new(fields));
        let rows = RecordBatch::try_new(schema, vec![Arc::new(times)]).expect("they are rows");
        let zone = SessionZone::parse("Europe/Berlin").expect("there is such a zone");
        let recorded = recorded_in(&zone, &rows).expect("they are written");
        let texts = recorded.column(0).as_string::<i32>();
        let texts: Vec<Option<&str>> = texts.iter().collect();
        assert_eq!(texts, [Some("1970-01-01T01:00:00.000+01:00"), None]);
        let shown = shown_in(&zone, &rows).expect("they are shown");
        assert_eq!(shown.schema(), rows.schema());
    }

    #[test]
    fn texts_take_the_place_of_times_within_values() {
        let zone = SessionZone::parse("+05:45").expect("there is such a zone");
        let fields = vec![Field::new("a", list_of(timestamp()), true)];
        let schema = Arc::new(Schema::new(fields));
        let recorded = recorded_schema(&zone, &schema).expect("there are no keys");
        assert_eq!(*recorded.field(0).data_type(), list_of(DataType::Utf8));
        let keys = crate::types::map_of(timestamp(), DataType::Int32);
        let schema = Arc::new(Schema::new(vec![Field::new("m", keys, true)]));
        assert!(recorded_schema(&zone, &schema).is_err());
    }
}
