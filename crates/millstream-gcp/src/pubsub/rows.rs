//! Messages as columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, Int64Builder, MapBuilder, MapFieldNames, RecordBatch,
    RecordBatchOptions, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use googleapis_tonic_google_pubsub_v1::google::pubsub::v1::PubsubMessage;
use millstream_engine::api::connector::Table;
use millstream_engine::api::dead_letter::{Letter, Place};
use millstream_engine::api::error::ArrowBug;
use millstream_engine::api::options::OptionError;
use millstream_engine::api::source::{
    Failure, RecordBatches, Records, SourcePartition, Split, Traced,
};
use millstream_sql::types::spark_type;
use prost::Message as _;

use super::buffer::Waiting;
use super::error::PubsubError;

/// Rows of one record batch.
const RECORD_BATCH_ROWS: usize = 8_192;

/// The columns that there are.
const MESSAGE_ID: &str = "messageId";
const PAYLOAD: &str = "payload";
const ATTRIBUTES: &str = "attributes";
const PUBLISHED_MS: &str = "publishTimestampInMillis";
const PUBLISHED: &str = "publishTimestamp";
const ORDERING_KEY: &str = "orderingKey";

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The columns of a table: all, or those that are declared.
pub(super) fn columns(table: &Table) -> Result<SchemaRef, OptionError> {
    let Some(declared) = &table.columns else {
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        return Ok(Arc::new(Schema::new(vec![
            field(MESSAGE_ID, DataType::Utf8),
            field(PAYLOAD, DataType::Binary),
            field(ATTRIBUTES, DataType::Utf8),
            field(PUBLISHED_MS, DataType::Int64),
            field(PUBLISHED, timestamp()),
            field(ORDERING_KEY, DataType::Utf8),
        ])));
    };
    let mut fields = Vec::new();
    for field in declared.fields() {
        let (name, wanted) = match (field.name().as_str(), field.data_type()) {
            (MESSAGE_ID | ORDERING_KEY | PAYLOAD | ATTRIBUTES, DataType::Utf8)
            | (PAYLOAD, DataType::Binary)
            | (PUBLISHED_MS, DataType::Int64) => {
                fields.push(field.as_ref().clone().with_nullable(true));
                continue;
            }
            (PUBLISHED, found) if *found == timestamp() => {
                fields.push(field.as_ref().clone().with_nullable(true));
                continue;
            }
            (ATTRIBUTES, found) if is_map_of_texts(found) => {
                fields.push(field.as_ref().clone().with_nullable(true));
                continue;
            }
            (name @ (MESSAGE_ID | ORDERING_KEY), _) => (name, "STRING"),
            (PAYLOAD, _) => (PAYLOAD, "BINARY or STRING"),
            (ATTRIBUTES, _) => (ATTRIBUTES, "STRING or MAP<STRING, STRING>"),
            (PUBLISHED_MS, _) => (PUBLISHED_MS, "BIGINT"),
            (PUBLISHED, _) => (PUBLISHED, "TIMESTAMP"),
            (name, _) => {
                let problem = format!("messages have no column '{name}'");
                let help = format!(
                    "the columns are {MESSAGE_ID}, {PAYLOAD}, {ATTRIBUTES}, {PUBLISHED_MS}, \
                     {PUBLISHED} and {ORDERING_KEY}; read the payload in the query, for example \
                     from_json(CAST({PAYLOAD} AS STRING), 'id BIGINT')"
                );
                return Err(OptionError::table(problem, Some(help)));
            }
        };
        let problem = format!("column {name} is {}", spark_type(field.data_type()));
        return Err(OptionError::table(problem, Some(format!("declare it as {wanted}"))));
    }
    Ok(Arc::new(Schema::new(fields)))
}

fn is_map_of_texts(data_type: &DataType) -> bool {
    let DataType::Map(entries, _) = data_type else { return false };
    let DataType::Struct(fields) = entries.data_type() else { return false };
    fields.iter().all(|field| *field.data_type() == DataType::Utf8)
}

/// Decodes what is in the journal.
pub(super) fn message(waiting: &Waiting) -> Result<PubsubMessage, PubsubError> {
    let decoded = PubsubMessage::decode(waiting.content.clone());
    decoded.map_err(|_| PubsubError::NoMessage { position: waiting.position })
}

fn published_us(message: &PubsubMessage) -> Option<i64> {
    let time = message.publish_time.as_ref()?;
    time.seconds.checked_mul(1_000_000)?.checked_add(i64::from(time.nanos) / 1_000)
}

/// Attributes as JSON, in the order of their names.
fn attributes_text(message: &PubsubMessage) -> String {
    let sorted: BTreeMap<&String, &String> = message.attributes.iter().collect();
    serde_json::to_string(&sorted).expect("texts are JSON")
}

fn decode(
    schema: &SchemaRef,
    messages: &[Waiting],
    projection: &[usize],
) -> Result<RecordBatch, Failure> {
    let schema = Arc::new(schema.project(projection).map_err(ArrowBug)?);
    let messages = messages.iter().map(message).collect::<Result<Vec<_>, _>>()?;
    let columns = schema.fields().iter().map(|field| column(field, &messages));
    let columns = columns.collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(messages.len()));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options).map_err(ArrowBug)?)
}

fn column(field: &FieldRef, messages: &[PubsubMessage]) -> Result<ArrayRef, Failure> {
    let count = messages.len();
    let texts = |text: &dyn Fn(&PubsubMessage) -> Option<String>| -> ArrayRef {
        let mut builder = StringBuilder::with_capacity(count, count * 16);
        messages.iter().for_each(|message| builder.append_option(text(message)));
        Arc::new(builder.finish())
    };
    Ok(match (field.name().as_str(), field.data_type()) {
        (MESSAGE_ID, _) => texts(&|message| Some(message.message_id.clone())),
        (ORDERING_KEY, _) => {
            texts(&|message| Some(message.ordering_key.clone()).filter(|key| !key.is_empty()))
        }
        (PAYLOAD, DataType::Utf8) => {
            let bytes = messages.iter().map(|message| message.data.len()).sum();
            let mut builder = StringBuilder::with_capacity(count, bytes);
            // What is no text is NULL.
            let text = |message: &'_ PubsubMessage| std::str::from_utf8(&message.data).is_ok();
            for message in messages {
                builder
                    .append_option(text(message).then(|| String::from_utf8_lossy(&message.data)));
            }
            Arc::new(builder.finish())
        }
        (PAYLOAD, _) => {
            let bytes = messages.iter().map(|message| message.data.len()).sum();
            let mut builder = BinaryBuilder::with_capacity(count, bytes);
            messages.iter().for_each(|message| builder.append_value(&message.data));
            Arc::new(builder.finish())
        }
        (ATTRIBUTES, DataType::Utf8) => texts(&|message| Some(attributes_text(message))),
        (ATTRIBUTES, map) => attributes_map(map, messages)?,
        (PUBLISHED_MS, _) => {
            let mut builder = Int64Builder::with_capacity(count);
            let each = messages.iter().map(published_us);
            each.for_each(|us| builder.append_option(us.map(|us| us.div_euclid(1_000))));
            Arc::new(builder.finish())
        }
        _ => {
            let mut builder = TimestampMicrosecondBuilder::with_capacity(count);
            messages.iter().for_each(|message| builder.append_option(published_us(message)));
            Arc::new(builder.finish().with_timezone("UTC"))
        }
    })
}

/// A map in the exact type that the table declares.
fn attributes_map(declared: &DataType, messages: &[PubsubMessage]) -> Result<ArrayRef, Failure> {
    let names = MapFieldNames::default();
    let mut builder = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for message in messages {
        let sorted: BTreeMap<&String, &String> = message.attributes.iter().collect();
        for (name, value) in sorted {
            builder.keys().append_value(name);
            builder.values().append_value(value);
        }
        builder.append(true).map_err(ArrowBug)?;
    }
    let map: ArrayRef = Arc::new(builder.finish());
    Ok(arrow::compute::cast(&map, declared).map_err(ArrowBug)?)
}

/// Messages of one micro-batch, in order.
#[derive(Clone)]
pub(super) struct MessageSplit {
    pub(super) schema: SchemaRef,
    /// The subscription, for dead letters.
    pub(super) of: Arc<str>,
    pub(super) messages: Vec<Waiting>,
}

impl Split for MessageSplit {
    fn rows(&self) -> u64 {
        self.messages.len() as u64
    }

    fn partition(&self) -> Option<SourcePartition> {
        Some(0)
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let projection = projection.to_vec();
        let chunks = (0..self.messages.len()).step_by(RECORD_BATCH_ROWS);
        Box::new(chunks.map(move |start| {
            let end = self.messages.len().min(start + RECORD_BATCH_ROWS);
            decode(&self.schema, &self.messages[start..end], &projection)
        }))
    }

    fn records(&self) -> Vec<Arc<dyn Records>> {
        vec![Arc::new(self.clone())]
    }
}

impl Records for MessageSplit {
    fn partition(&self) -> Option<SourcePartition> {
        Split::partition(self)
    }

    fn read(&self, projection: &[usize], _: bool) -> Result<Vec<Traced>, Failure> {
        Traced::all_in_order(Split::read(Box::new(self.clone()), projection), 0)
    }

    fn letter(&self, number: u64) -> Result<Letter, Failure> {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(waiting) = self.messages.get(index) else {
            return Err(PubsubError::NoMessage { position: number }.into());
        };
        let message = message(waiting)?;
        let record_time_us = published_us(&message);
        let sorted: BTreeMap<String, String> = message.attributes.into_iter().collect();
        let attributes = sorted.into_iter().map(|(name, value)| (name, Some(value.into_bytes())));
        let key = Some(message.ordering_key.into_bytes()).filter(|key| !key.is_empty());
        let place = Place::Row { of: Arc::clone(&self.of), row: waiting.position };
        Ok(Letter {
            payload: Some(message.data.to_vec()),
            key,
            attributes: attributes.collect(),
            place: Some(place),
            record_time_us,
            ..Letter::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _};
    use arrow::datatypes::Int64Type;
    use arrow::util::pretty::pretty_format_batches;
    use millstream_engine::api::options::Options;
    use millstream_sql::types::map_of;

    use super::*;

    fn table(columns: Option<Vec<(&str, DataType)>>) -> Table {
        let field = |(name, data_type): (&str, DataType)| Field::new(name, data_type, true);
        let columns = columns.map(|columns| {
            Arc::new(Schema::new(columns.into_iter().map(field).collect::<Vec<_>>()))
        });
        Table { name: "t".to_owned(), columns, options: Options::default() }
    }

    fn waiting(data: &[u8]) -> Waiting {
        let mut message = PubsubMessage {
            data: data.to_vec().into(),
            message_id: "7".to_owned(),
            ordering_key: "k".to_owned(),
            ..PubsubMessage::default()
        };
        for (name, value) in [("b", "2"), ("a", "\"1\"")] {
            message.attributes.insert(name.to_owned(), value.to_owned());
        }
        let time = message.publish_time.get_or_insert_default();
        (time.seconds, time.nanos) = (1_767_225_600, 123_456_789);
        Waiting { position: 0, content: message.encode_to_vec().into(), arrival_us: 0 }
    }

    #[test]
    fn a_message_has_sparks_columns() {
        let schema = columns(&table(None)).expect("they are the usual ones");
        let all: Vec<usize> = (0..6).collect();
        let rows = decode(&schema, &[waiting(b"hello")], &all).expect("it is a message");
        assert_eq!(rows.column(0).as_string::<i32>().value(0), "7");
        assert_eq!(rows.column(1).as_binary::<i32>().value(0), b"hello");
        assert_eq!(rows.column(2).as_string::<i32>().value(0), r#"{"a":"\"1\"","b":"2"}"#);
        assert_eq!(rows.column(3).as_primitive::<Int64Type>().value(0), 1_767_225_600_123);
        assert_eq!(rows.column(5).as_string::<i32>().value(0), "k");
        let text = pretty_format_batches(&[rows.slice(0, 1)]).expect("it can be shown").to_string();
        assert!(text.contains("2026-01-01T00:00:00.123456Z"), "{text}");
        let none = decode(&schema, &[waiting(b"")], &[]).expect("rows without columns");
        assert_eq!(none.num_rows(), 1);
    }

    #[test]
    fn declared_columns_have_their_types() {
        let map = map_of(DataType::Utf8, DataType::Utf8);
        let declared = vec![(PAYLOAD, DataType::Utf8), (ATTRIBUTES, map.clone())];
        let schema = columns(&table(Some(declared))).expect("they fit");
        let messages = [waiting(b"text"), waiting(b"\xff")];
        let rows = decode(&schema, &messages, &[0, 1]).expect("they are messages");
        let payload = rows.column(0).as_string::<i32>();
        assert_eq!((payload.value(0), payload.is_null(1)), ("text", true));
        assert_eq!(*rows.column(1).data_type(), map);
        assert_eq!(rows.column(1).as_map().value(0).len(), 2);
        for (name, data_type, said) in [
            ("id", DataType::Int64, "no column 'id'"),
            (PUBLISHED, DataType::Int64, "Declare it as TIMESTAMP"),
            (ATTRIBUTES, DataType::Int64, "MAP<STRING, STRING>"),
        ] {
            let error = columns(&table(Some(vec![(name, data_type)]))).expect_err("it is refused");
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn a_dead_letter_has_what_was_published() {
        let messages = vec![waiting(b"tea")];
        let schema = columns(&table(None)).expect("they are the usual ones");
        let letter =
            MessageSplit { schema, of: "s".into(), messages }.letter(0).expect("it is there");
        assert_eq!(letter.payload.as_deref(), Some(&b"tea"[..]));
        assert_eq!(letter.attributes[1], ("b".to_owned(), Some(b"2".to_vec())));
        assert_eq!(letter.key.as_deref(), Some(&b"k"[..]));
    }
}
