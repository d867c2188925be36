//! The forms of dates and times in JSON that the options of `to_json` and `from_json` say:
//! `dateFormat`, `timeFormat`, `timestampFormat` and `timestampNTZFormat`, and with `timeZone` the
//! zone of TIMESTAMPs.
//!
//! What is written becomes text before it becomes JSON, in which it is a string anyhow.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::builder::StringBuilder;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, MapArray, StructArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{DataType, Date32Type, Field, FieldRef, Fields, Int64Type, TimeUnit};
use datafusion::common::{Result, exec_err};

use super::define::within_column;
use super::time_pattern::TimePattern;
use super::zone_letters::{self, WrittenZone};
use super::zones;
use crate::json::{Reader, Readers};
use crate::types::{is_variant, spark_type};
use crate::values::calendar::{DAY_US, parse_timestamp_in, write_date_time};
use crate::values::zone::Zone;

/// The letters of what a DATE does not have, a TIME, and a TIMESTAMP_NTZ.
const NOT_OF_DATE: &str = "HhKkmsSaXxZzVO";
const NOT_OF_TIME: &str = "yMLEFQqDdGXxZzVO";
const NOT_OF_LOCAL: &str = "XxZzVO";

/// The patterns; where there is none, the usual form.
#[derive(Default)]
pub(super) struct Formats {
    /// The session's time zone and its name, if that is not UTC.
    zone: Option<(Zone, String)>,
    date: Option<TimePattern>,
    time: Option<TimePattern>,
    timestamp: Option<TimePattern>,
    timestamp_ntz: Option<TimePattern>,
}

impl Formats {
    /// The usual forms in a session of a zone, which is called `id`.
    pub fn in_zone(zone: Zone, id: String) -> Self {
        Self { zone: Some((zone, id)), ..Self::default() }
    }

    /// Takes an option, whose name is in lower case; false if it is none of these.
    ///
    /// # Errors
    /// The pattern is none, or has letters that such values have nothing for; or there is no such
    /// zone.
    pub fn set(&mut self, key: &str, pattern: &str) -> Result<bool> {
        if key == "timezone" {
            let name = zones::long_name(pattern);
            self.zone = Some((zones::named(name)?, zone_letters::id_of(name)));
            return Ok(true);
        }
        let (place, refused) = match key {
            "dateformat" => (&mut self.date, NOT_OF_DATE),
            "timeformat" => (&mut self.time, NOT_OF_TIME),
            "timestampformat" => (&mut self.timestamp, ""),
            "timestampntzformat" => (&mut self.timestamp_ntz, NOT_OF_LOCAL),
            _ => return Ok(false),
        };
        let found = TimePattern::parse(pattern)?;
        if let Some(letter) = found.first_of(refused) {
            return exec_err!("the option {key} has the letter {letter}, which is of no use there");
        }
        *place = Some(found);
        Ok(true)
    }

    fn is_empty(&self) -> bool {
        let Self { zone, date, time, timestamp, timestamp_ntz } = self;
        zone.is_none() && [date, time, timestamp, timestamp_ntz].into_iter().all(Option::is_none)
    }

    /// Refuses patterns by which nothing can be read.
    ///
    /// # Errors
    /// A pattern has letters that are only written.
    pub fn check_to_read(&self) -> Result<()> {
        let Self { date, time, timestamp, timestamp_ntz, zone: _ } = self;
        let patterns = [date, time, timestamp, timestamp_ntz].into_iter().flatten();
        patterns.map(TimePattern::to_read).try_for_each(|pattern| pattern.map(|_| ()))
    }

    /// The patterns for reading.
    pub fn readers(self) -> Readers {
        let reader = |pattern: Option<TimePattern>| {
            pattern.map(|pattern| Reader::new(move |text: &str| pattern.read(text)))
        };
        let timestamp = match (self.zone, self.timestamp) {
            (None, pattern) => reader(pattern),
            (Some((zone, _)), Some(pattern)) => {
                Some(Reader::new(move |text: &str| pattern.read_in(text, &zone)))
            }
            (Some((zone, _)), None) => {
                Some(Reader::new(move |text: &str| parse_timestamp_in(text, &zone)))
            }
        };
        Readers {
            date: reader(self.date),
            time: reader(self.time),
            timestamp,
            timestamp_ntz: reader(self.timestamp_ntz),
            lenient: None,
        }
    }

    /// Values in which dates and times are texts, where there is a pattern for them.
    pub fn written(&self, values: &ArrayRef) -> Result<ArrayRef> {
        if self.is_empty() {
            return Ok(Arc::clone(values));
        }
        let pattern = match values.data_type() {
            DataType::Date32 => self.date.as_ref(),
            DataType::Time64(_) => self.time.as_ref(),
            DataType::Timestamp(_, Some(_)) if self.zone.is_some() => return self.moments(values),
            DataType::Timestamp(_, Some(_)) => self.timestamp.as_ref(),
            DataType::Timestamp(_, None) => self.timestamp_ntz.as_ref(),
            DataType::List(item) => return self.list(values.as_list::<i32>(), item),
            DataType::Map(entries, sorted) => return self.map(values.as_map(), entries, *sorted),
            of if is_variant(of) => None,
            DataType::Struct(_) => return self.structure(values.as_struct()),
            of if of.is_nested() => {
                return exec_err!("to_json takes no forms of dates in a {}", spark_type(of));
            }
            _ => None,
        };
        match pattern {
            Some(pattern) => texts(values, |us, out| Ok(pattern.write(us, out))),
            None => Ok(Arc::clone(values)),
        }
    }

    /// TIMESTAMPs in the session's zone.
    fn moments(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let utc = Zone::UTC;
        let (zone, id) = match &self.zone {
            Some((zone, id)) => (zone, id.as_str()),
            None => (&utc, "UTC"),
        };
        match &self.timestamp {
            Some(pattern) => texts(values, |us, out| pattern.write_in(us, (zone, id), out)),
            None => texts(values, |us, out| Ok(write_usual(us, (zone, id), out))),
        }
    }

    fn list(&self, list: &ListArray, item: &FieldRef) -> Result<ArrayRef> {
        let items = self.written(list.values())?;
        let item = Arc::new(of_type(item, &items));
        let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
        Ok(Arc::new(ListArray::try_new(item, offsets, items, nulls)?))
    }

    /// Keys keep their form.
    fn map(&self, map: &MapArray, entries: &FieldRef, sorted: bool) -> Result<ArrayRef> {
        let pairs = map.entries();
        let values = self.written(map.values())?;
        let fields = vec![pairs.fields()[0].as_ref().clone(), of_type(&pairs.fields()[1], &values)];
        let fields = Fields::from(fields);
        let columns = vec![Arc::clone(map.keys()), values];
        let pairs = StructArray::try_new(fields.clone(), columns, None)?;
        let entry = Arc::new(Field::new(entries.name(), DataType::Struct(fields), false));
        let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
        Ok(Arc::new(MapArray::try_new(entry, offsets, pairs, nulls, sorted)?))
    }

    fn structure(&self, of: &StructArray) -> Result<ArrayRef> {
        let columns = of.columns().iter().map(|column| self.written(column));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let fields = of.fields().iter().zip(&columns);
        let fields: Fields = fields.map(|(field, column)| of_type(field, column)).collect();
        let (nulls, length) = (of.nulls().cloned(), of.len());
        Ok(Arc::new(StructArray::try_new_with_length(fields, columns, nulls, length)?))
    }
}

/// Appends milliseconds and the offset, `2026-01-31T12:00:00.000+01:00`; false where that is not
/// known.
fn write_usual(us: i64, (zone, id): (&Zone, &str), out: &mut String) -> bool {
    let Some(offset_us) = zone.offset_at(us) else { return false };
    let Some(local) = us.checked_add(offset_us) else { return false };
    let fraction = write_date_time(local, 'T', out);
    let _ = write!(out, ".{:03}", fraction / 1000);
    zone_letters::write('X', 3, WrittenZone { id, offset_us }, out);
    true
}

/// A field for values that have become others.
fn of_type(field: &FieldRef, values: &ArrayRef) -> Field {
    field.as_ref().clone().with_data_type(values.data_type().clone())
}

fn texts(values: &ArrayRef, write: impl Fn(i64, &mut String) -> Result<bool>) -> Result<ArrayRef> {
    let mut out = StringBuilder::new();
    let (mut text, mut total) = (String::new(), 0);
    for us in &microseconds(values)? {
        text.clear();
        let Some(us) = us else {
            out.append_null();
            continue;
        };
        if !write(us, &mut text)? {
            return exec_err!("{us} microseconds since 1970 are in no calendar");
        }
        within_column(&mut total, text.len())?;
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

fn microseconds(values: &ArrayRef) -> Result<Int64Array> {
    let us = match values.data_type() {
        DataType::Date32 => {
            let days = values.as_primitive::<Date32Type>();
            return Ok(days.unary::<_, Int64Type>(|days| i64::from(days).saturating_mul(DAY_US)));
        }
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        _ => DataType::Time64(TimeUnit::Microsecond),
    };
    let numbers = arrow_cast(&arrow_cast(values, &us)?, &DataType::Int64)?;
    Ok(numbers.as_primitive::<Int64Type>().clone())
}

#[cfg(test)]
mod tests {
    use arrow::array::Date32Array;

    use super::*;

    #[test]
    fn a_form_has_letters_of_its_type() {
        let set = |key: &str, pattern: &str| Formats::default().set(key, pattern);
        assert!(matches!(set("timeformat", "HH:mm[:ss]"), Ok(true)));
        assert!(matches!(set("mode", "FAILFAST"), Ok(false)));
        for (key, pattern) in [
            ("dateformat", "yyyy HH"),
            ("timeformat", "HH:mm[ XXX]"),
            ("timestampntzformat", "yyyy VV"),
            ("timestampformat", "YYYY"),
        ] {
            assert!(set(key, pattern).is_err(), "{pattern} as {key}");
        }
    }

    #[test]
    fn values_without_a_form_stay_as_they_are() {
        let mut formats = Formats::default();
        assert!(formats.set("timestampformat", "yyyy").is_ok());
        let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(0), None]));
        let written = formats.written(&days).expect("there is nothing to do");
        assert_eq!(*written.data_type(), DataType::Date32);
        assert!(formats.set("dateformat", "dd/MM yyyy").is_ok());
        let written = formats.written(&days).expect("they can be written");
        assert_eq!((written.as_string::<i32>().value(0), written.is_null(1)), ("01/01 1970", true));
    }
}
