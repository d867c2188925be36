//! Messages as columns: those that every message has, and those decoded from its value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{
    ArrayRef, BinaryArray, BinaryBuilder, BooleanArray, MapBuilder, RecordBatch,
    RecordBatchOptions, StringArray, StringBuilder, TimestampMicrosecondArray,
};
use arrow::compute::{cast, filter};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_engine::api::connector::Table;
use millstream_engine::api::dead_letter::{self, Letter, Payloads, Place};
use millstream_engine::api::error::ArrowBug;
use millstream_engine::api::options::OptionError;
use millstream_engine::api::source::Failure;
use millstream_formats::csv::CsvOptions;
use millstream_formats::{Malformed, RecordFormat, text};
use millstream_sql::json::ParseMode;
use millstream_sql::types::{map_of, spark_type};
use prost::Message as _;

use crate::columns::{
    EVENT_TIME, KEY, MESSAGE_ID, PROPERTIES, PUBLISH_TIME, TOPIC, VALUE, is_map_of_texts, timestamp,
};
use crate::error::PulsarError;
use crate::protocol::messages::MessageIdData;
use crate::protocol::payload::Message;

/// Columns that every message has.
const OWN: [&str; 6] = [KEY, TOPIC, MESSAGE_ID, PUBLISH_TIME, EVENT_TIME, PROPERTIES];

/// How a column is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Making {
    /// It is one of [`OWN`], or the value as it is.
    Own,
    /// It is this column of the decoded value.
    Decoded(usize),
}

/// The columns of a table and how they are made; shared by all splits.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) schema: SchemaRef,
    making: Vec<Making>,
    format: Option<RecordFormat>,
    /// What is malformed is left out.
    leaves_out: bool,
    /// Malformed messages so far.
    malformed: AtomicU64,
}

/// A message with its place.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) message: Message,
    pub(super) id: MessageIdData,
    /// Milliseconds since the epoch.
    pub(super) publish_time: u64,
}

impl Placed {
    /// `LEDGER:ENTRY`, and in a batch the index.
    pub(super) fn place(&self) -> String {
        match self.id.batch_index {
            None => format!("{}:{}", self.id.ledger_id, self.id.entry_id),
            Some(index) => format!("{}:{}:{index}", self.id.ledger_id, self.id.entry_id),
        }
    }

    /// The message as a dead letter.
    pub(super) fn letter(&self, topic: &str, error: String) -> Letter {
        let properties = self.message.properties.iter();
        let attributes =
            properties.map(|pair| (pair.key.clone(), Some(pair.value.clone().into_bytes())));
        Letter {
            payload: self.message.value.as_ref().map(|value| value.to_vec()),
            payload_bytes: None,
            key: self.message.key.as_ref().map(|key| key.to_vec()),
            attributes: attributes.collect(),
            error,
            place: Some(Place::Entry { of: topic.into(), id: self.place().into() }),
            record_time_us: Some(micros(self.publish_time)),
        }
    }
}

fn micros(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX).saturating_mul(1_000)
}

impl Rows {
    /// Checks the declared columns and the options of the format.
    ///
    /// # Errors
    /// Columns that cannot be filled.
    pub(crate) fn from_table(table: &Table) -> Result<Self, OptionError> {
        let options = &table.options;
        let format = options.get("value.format").map(|text| text.trim().to_ascii_lowercase());
        let Some(declared) = &table.columns else {
            let own = OWN.iter().map(|name| Field::new(*name, own_type(name), true));
            let value = Field::new(VALUE, DataType::Binary, true);
            if format.is_some() {
                let problem = "'value.format' is set, but the table has no columns";
                let help = "declare the columns of the value: CREATE TABLE name (a INT, ...)";
                return Err(OptionError::of("value.format", problem, Some(help.to_owned())));
            }
            refuse_letters(table)?;
            let schema = Schema::new(std::iter::once(value).chain(own).collect::<Vec<_>>());
            let making = vec![Making::Own; schema.fields().len()];
            return Ok(Self::new(Arc::new(schema), making, None, false));
        };
        let is_own = |field: &Field| OWN.contains(&field.name().as_str());
        for field in declared.fields().iter().filter(|field| is_own(field)) {
            check_own(field)?;
        }
        let of_value: Vec<Field> = declared
            .fields()
            .iter()
            .filter(|field| !is_own(field))
            .map(|field| field.as_ref().clone())
            .collect();
        if format.as_deref() == Some("raw") || of_value.is_empty() {
            return raw(table, declared, &of_value);
        }
        let columns = Schema::new(of_value);
        let malformed = Malformed::parse(options)?;
        let format = match format.as_deref() {
            None | Some("json") => RecordFormat::json(&columns, &malformed)?,
            Some("csv") => {
                let csv = CsvOptions::parse(options)?;
                if csv.header {
                    let problem = "'header' cannot be true for a Pulsar table";
                    let help = "each message is one line; a header would be one of its own";
                    return Err(OptionError::of("header", problem, Some(help.to_owned())));
                }
                RecordFormat::csv(&columns, &malformed, csv)?
            }
            Some(other) => {
                return Err(OptionError::invalid("value.format", other, "json, csv or raw"));
            }
        };
        let decoded = Arc::clone(format.schema());
        let mut fields = Vec::new();
        let mut making = Vec::new();
        for field in declared.fields() {
            if is_own(field) {
                fields.push(field.as_ref().clone().with_nullable(true));
                making.push(Making::Own);
            } else {
                let at = making.iter().filter(|making| **making != Making::Own).count();
                fields.push(decoded.field(at).clone());
                making.push(Making::Decoded(at));
            }
        }
        let leaves_out = malformed.mode == ParseMode::DropMalformed;
        Ok(Self::new(Arc::new(Schema::new(fields)), making, Some(format), leaves_out))
    }

    fn new(
        schema: SchemaRef,
        making: Vec<Making>,
        format: Option<RecordFormat>,
        leaves_out: bool,
    ) -> Self {
        Self { schema, making, format, leaves_out, malformed: AtomicU64::new(0) }
    }

    /// How many messages were malformed so far.
    pub(super) fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// Takes back what was counted of messages that are read once more.
    pub(super) fn set_malformed(&self, malformed: u64) {
        self.malformed.store(malformed, Ordering::Relaxed);
    }

    /// The rows of some messages of `topic`, with the columns `projection`, and which of the
    /// messages they are, unless they are all. `apart` leaves malformed ones out, whatever the mode
    /// is; `reject` hears of each that is left out.
    ///
    /// # Errors
    /// `Data` for a malformed message, if the mode is FAILFAST.
    pub(super) fn rows(
        &self,
        topic: &str,
        messages: &[Placed],
        projection: &[usize],
        apart: bool,
        reject: &mut dyn FnMut(usize, String),
    ) -> Result<(RecordBatch, Option<Vec<bool>>), Failure> {
        let decoded_columns: Vec<usize> = projection
            .iter()
            .filter_map(|index| match self.making[*index] {
                Making::Decoded(at) => Some(at),
                Making::Own => None,
            })
            .collect();
        let mut kept: Option<Vec<bool>> = None;
        let mut decoded: Option<RecordBatch> = None;
        if let Some(format) = &self.format
            && (!decoded_columns.is_empty() || self.leaves_out || apart)
        {
            let values: BinaryArray =
                messages.iter().map(|placed| placed.message.value.as_deref()).collect();
            let mut decoder = format.decoder(&decoded_columns);
            let rows = if self.leaves_out || apart {
                let mut is_kept = vec![true; messages.len()];
                let rows = decoder.decode_apart(&values, &mut |row, error| {
                    is_kept[row] = false;
                    reject(row, error);
                });
                kept = Some(is_kept).filter(|kept| kept.contains(&false));
                rows
            } else {
                decoder.decode(&values).map_err(|record| {
                    let position = messages[record.row].place();
                    let problem = record.problem;
                    PulsarError::Malformed { topic: topic.to_owned(), position, problem }
                })?
            };
            self.malformed.fetch_add(rows.malformed, Ordering::Relaxed);
            decoded = Some(rows.rows);
        }
        let mask = kept.as_ref().map(|kept| BooleanArray::from(kept.clone()));
        let count = mask.as_ref().map_or(messages.len(), BooleanArray::true_count);
        let schema = Arc::new(self.schema.project(projection).map_err(ArrowBug)?);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(projection.len());
        let mut next_decoded = 0;
        for (index, field) in projection.iter().zip(schema.fields()) {
            match (self.making[*index], &decoded) {
                (Making::Decoded(_), Some(rows)) => {
                    columns.push(Arc::clone(rows.column(next_decoded)));
                    next_decoded += 1;
                }
                (Making::Decoded(_), None) => return Err(PulsarError::NotOpen.into()),
                (Making::Own, _) => {
                    let column = own_column(field, topic, messages)?;
                    columns.push(match &mask {
                        None => column,
                        Some(mask) => filter(&column, mask).map_err(ArrowBug)?,
                    });
                }
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let rows =
            RecordBatch::try_new_with_options(schema, columns, &options).map_err(ArrowBug)?;
        Ok((rows, kept))
    }
}

fn own_type(name: &str) -> DataType {
    match name {
        TOPIC => DataType::Utf8,
        PUBLISH_TIME | EVENT_TIME => timestamp(),
        PROPERTIES => map_of(DataType::Utf8, DataType::Utf8),
        _ => DataType::Binary,
    }
}

fn check_own(field: &Field) -> Result<(), OptionError> {
    let (name, found) = (field.name().as_str(), field.data_type());
    let (fits, wanted) = match name {
        KEY => (matches!(found, DataType::Binary | DataType::Utf8), "BINARY or STRING"),
        MESSAGE_ID => (matches!(found, DataType::Binary | DataType::Utf8), "BINARY or STRING"),
        TOPIC => (*found == DataType::Utf8, "STRING"),
        PROPERTIES => (is_map_of_texts(found), "MAP<STRING, STRING>"),
        _ => (*found == timestamp(), "TIMESTAMP"),
    };
    if fits {
        return Ok(());
    }
    let problem = format!("column {name} is {}", spark_type(found));
    Err(OptionError::table(problem, Some(format!("declare it as {wanted}"))))
}

fn refuse_letters(table: &Table) -> Result<(), OptionError> {
    if table.options.get(dead_letter::OPTION).is_none() {
        return Ok(());
    }
    let problem = "no message of this table can be malformed, so there are no dead letters";
    let help = "declare the columns of the value, or leave 'deadLetter' out".to_owned();
    Err(OptionError::of(dead_letter::OPTION, problem, Some(help)))
}

/// A table whose value is one column, or none.
fn raw(table: &Table, declared: &SchemaRef, of_value: &[Field]) -> Result<Rows, OptionError> {
    let fits = match of_value {
        [] => true,
        [one] => matches!(one.data_type(), DataType::Utf8 | DataType::Binary),
        _ => false,
    };
    if !fits {
        let problem = "'value.format' = 'raw' needs one column for the value, STRING or BINARY";
        return Err(OptionError::of("value.format", problem, None));
    }
    refuse_letters(table)?;
    let fields: Vec<Field> =
        declared.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
    let making = vec![Making::Own; fields.len()];
    Ok(Rows::new(Arc::new(Schema::new(fields)), making, None, false))
}

fn own_column(field: &Field, topic: &str, messages: &[Placed]) -> Result<ArrayRef, Failure> {
    let bytes = |of: &dyn Fn(&Placed) -> Option<&[u8]>| -> ArrayRef {
        let array: BinaryArray = messages.iter().map(of).collect();
        match field.data_type() {
            DataType::Binary => Arc::new(array),
            // As with Spark's CAST to STRING, bytes that are no text are replaced.
            _ => Arc::new(text::lossy(&array)),
        }
    };
    let times = |of: &dyn Fn(&Placed) -> Option<u64>| -> ArrayRef {
        let array: TimestampMicrosecondArray =
            messages.iter().map(|placed| of(placed).map(micros)).collect();
        Arc::new(array.with_timezone("UTC"))
    };
    Ok(match field.name().as_str() {
        KEY => bytes(&|placed| placed.message.key.as_deref()),
        TOPIC => {
            Arc::new(StringArray::from_iter_values(std::iter::repeat_n(topic, messages.len())))
        }
        MESSAGE_ID => message_ids(field, messages),
        PUBLISH_TIME => times(&|placed| Some(placed.publish_time)),
        EVENT_TIME => times(&|placed| placed.message.event_time),
        PROPERTIES => properties(field.data_type(), messages)?,
        _ => bytes(&|placed| placed.message.value.as_deref()),
    })
}

/// As bytes these are what Java's client writes; as text `LEDGER:ENTRY:INDEX`.
fn message_ids(field: &Field, messages: &[Placed]) -> ArrayRef {
    if *field.data_type() == DataType::Utf8 {
        return Arc::new(StringArray::from_iter_values(messages.iter().map(Placed::place)));
    }
    let mut builder = BinaryBuilder::with_capacity(messages.len(), messages.len() * 16);
    for placed in messages {
        builder.append_value(placed.id.encode_to_vec());
    }
    Arc::new(builder.finish())
}

/// A map in the exact type that the table has. Of a name that is there twice the last one counts.
fn properties(declared: &DataType, messages: &[Placed]) -> Result<ArrayRef, Failure> {
    let mut builder = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for placed in messages {
        let pairs = &placed.message.properties;
        for (at, pair) in pairs.iter().enumerate() {
            if pairs[at + 1..].iter().all(|later| later.key != pair.key) {
                builder.keys().append_value(&pair.key);
                builder.values().append_value(&pair.value);
            }
        }
        builder.append(true).map_err(ArrowBug)?;
    }
    let map: ArrayRef = Arc::new(builder.finish());
    Ok(cast(&map, declared).map_err(ArrowBug)?)
}

/// Payloads of letters, decoded as the values of a table's messages are now.
pub(crate) struct ValuePayloads(pub(crate) Arc<Rows>);

impl Payloads for ValuePayloads {
    fn decode(
        &self,
        payloads: &[Option<&[u8]>],
        projection: &[usize],
        reject: &mut dyn FnMut(usize, String),
    ) -> Result<RecordBatch, Failure> {
        let messages: Vec<Placed> = payloads
            .iter()
            .map(|payload| Placed {
                message: Message {
                    value: payload.map(bytes::Bytes::copy_from_slice),
                    ..Message::default()
                },
                id: MessageIdData::default(),
                publish_time: 0,
            })
            .collect();
        let (rows, _) = self.0.rows("", &messages, projection, true, reject)?;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _};
    use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
    use millstream_engine::api::options::Options;

    use super::*;
    use crate::protocol::messages::KeyValue;

    fn table(columns: Option<Vec<(&str, DataType)>>, options: &[(&str, &str)]) -> Table {
        let field = |(name, data_type): (&str, DataType)| Field::new(name, data_type, true);
        let columns = columns.map(|columns| {
            Arc::new(Schema::new(columns.into_iter().map(field).collect::<Vec<_>>()))
        });
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let options = Options::new(options.iter().map(owned));
        Table { name: "t".to_owned(), columns, options }
    }

    fn placed(value: &str, index: i32) -> Placed {
        let pair =
            |key: &str, value: &str| KeyValue { key: key.to_owned(), value: value.to_owned() };
        let message = Message {
            key: Some(bytes::Bytes::from_static(b"k")),
            value: Some(value.to_owned().into()),
            properties: vec![pair("a", "1"), pair("b", "2"), pair("a", "3")],
            event_time: Some(7),
        };
        let id =
            MessageIdData { ledger_id: 1, entry_id: 2, partition: None, batch_index: Some(index) };
        Placed { message, id, publish_time: 1_000 }
    }

    fn read(rows: &Rows, messages: &[Placed]) -> RecordBatch {
        let all: Vec<usize> = (0..rows.schema.fields().len()).collect();
        rows.rows("t", messages, &all, false, &mut |_, _| {}).expect("they are read").0
    }

    #[test]
    fn a_message_has_sparks_columns() {
        let rows = Rows::from_table(&table(None, &[])).expect("there are no columns");
        let names: Vec<_> = rows.schema.fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names[0], VALUE);
        assert_eq!(names[1..], OWN);
        let batch = read(&rows, &[placed("tea", 0)]);
        assert_eq!(batch.column(0).as_binary::<i32>().value(0), b"tea");
        assert_eq!(batch.column(1).as_binary::<i32>().value(0), b"k");
        assert_eq!(batch.column(2).as_string::<i32>().value(0), "t");
        let id = MessageIdData::decode(batch.column(3).as_binary::<i32>().value(0)).unwrap();
        assert_eq!((id.ledger_id, id.entry_id, id.batch_index), (1, 2, Some(0)));
        assert_eq!(batch.column(4).as_primitive::<TimestampMicrosecondType>().value(0), 1_000_000);
        assert_eq!(batch.column(5).as_primitive::<TimestampMicrosecondType>().value(0), 7_000);
        assert_eq!(batch.column(6).as_map().value(0).len(), 2, "a name twice counts once");
    }

    #[test]
    fn what_is_malformed_takes_its_own_columns_along() {
        let columns =
            vec![(MESSAGE_ID, DataType::Utf8), ("n", DataType::Int64), (KEY, DataType::Utf8)];
        let messages = [placed(r#"{"n":1}"#, 0), placed("{", 1), placed(r#"{"n":3}"#, 2)];
        let permissive = Rows::from_table(&table(Some(columns.clone()), &[])).unwrap();
        let batch = read(&permissive, &messages);
        assert_eq!((batch.num_rows(), permissive.malformed()), (3, 1));
        assert!(batch.column(1).is_null(1));
        let drops = table(Some(columns.clone()), &[("mode", "DROPMALFORMED")]);
        let batch = read(&Rows::from_table(&drops).unwrap(), &messages);
        assert_eq!(batch.column(0).as_string::<i32>().value(1), "1:2:2");
        assert_eq!(batch.column(1).as_primitive::<Int64Type>().values(), &[1, 3]);
        let fails = table(Some(columns), &[("mode", "FAILFAST")]);
        let fails = Rows::from_table(&fails).unwrap();
        let error = fails.rows("t", &messages, &[1], false, &mut |_, _| {}).err().unwrap();
        assert!(error.to_string().contains("message 1:2:1"), "{error}");
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        for (columns, options, said) in [
            (vec![(KEY, DataType::Int64)], &[][..], "BINARY or STRING"),
            (vec![(PUBLISH_TIME, DataType::Utf8)], &[][..], "TIMESTAMP"),
            (vec![("a", DataType::Int64)], &[("value.format", "raw")][..], "raw"),
            (vec![("a", DataType::Int64)], &[("value.format", "xml")][..], "json, csv or raw"),
            (vec![(KEY, DataType::Utf8)], &[("deadLetter", "d")][..], "no message"),
        ] {
            let error = Rows::from_table(&table(Some(columns), options)).expect_err(said);
            assert!(error.to_string().contains(said), "{error}");
        }
        let raw = table(Some(vec![("v", DataType::Utf8)]), &[("value.format", "raw")]);
        let batch = read(&Rows::from_table(&raw).unwrap(), &[placed("tea", 0)]);
        assert_eq!(batch.column(0).as_string::<i32>().value(0), "tea");
    }
}
