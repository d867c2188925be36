//! Columns of rows that become messages, with Spark's names.

use arrow::array::{Array, AsArray, BinaryArray, Int64Array, MapArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, Schema, TimeUnit};
use millstream_engine::api::options::OptionError;

use crate::columns::{EVENT_TIME, KEY, PROPERTIES, TOPIC, VALUE, is_map_of_texts, timestamp};
use crate::error::PulsarError;
use crate::protocol::messages::KeyValue;
use crate::protocol::payload::{Added, MessageBatch, key_text};

/// The places of a message's parts among a query's columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SinkColumns {
    value: usize,
    key: Option<usize>,
    topic: Option<usize>,
    event_time: Option<usize>,
    properties: Option<usize>,
}

impl SinkColumns {
    /// Finds the columns. `has_topic` says whether the table's options name one.
    ///
    /// # Errors
    /// A column that is missing, of another type, or that no message has.
    pub(crate) fn find(schema: &Schema, has_topic: bool) -> Result<Self, OptionError> {
        let find = |name: &str| schema.fields().iter().position(|field| field.name() == name);
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let Some(value) = find(VALUE) else {
            let problem = format!(
                "a Pulsar table needs a column '{VALUE}', and the query has {}",
                names.join(", ")
            );
            let help = "name one column so: SELECT to_json(struct(*)) AS value".to_owned();
            return Err(OptionError::table(problem, Some(help)));
        };
        let known = [VALUE, KEY, TOPIC, EVENT_TIME, PROPERTIES];
        if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
            let problem = format!("a message of Pulsar has no '{unknown}'");
            let help = format!(
                "its columns are {}; put others into the value: to_json(struct(...)) AS value",
                known.join(", ")
            );
            return Err(OptionError::table(problem, Some(help)));
        }
        let columns = Self {
            value,
            key: find(KEY),
            topic: find(TOPIC),
            event_time: find(EVENT_TIME),
            properties: find(PROPERTIES),
        };
        if columns.topic.is_none() && !has_topic {
            let help = format!("set 'topic', or select a column '{TOPIC}'");
            return Err(OptionError::table("there is no topic to write to", Some(help)));
        }
        columns.check(schema)?;
        Ok(columns)
    }

    fn check(&self, schema: &Schema) -> Result<(), OptionError> {
        let wanted: [(_, fn(&DataType) -> _, _); 5] = [
            (Some(self.value), is_bytes, "STRING or BINARY"),
            (self.key, is_bytes, "STRING or BINARY"),
            (self.topic, is_text, "STRING"),
            (self.event_time, is_time, "TIMESTAMP"),
            (self.properties, is_map_of_texts, "MAP<STRING, STRING>"),
        ];
        for (index, fits, wanted) in wanted {
            let Some(field) = index.map(|index| schema.field(index)) else { continue };
            if !fits(field.data_type()) {
                let (name, found) = (field.name(), field.data_type());
                let problem = format!("the column '{name}' is {found}, and has to be {wanted}");
                let help = format!("use CAST, or to_json({name}) for a STRUCT");
                return Err(OptionError::table(problem, Some(help)));
            }
        }
        Ok(())
    }

    /// The columns of a record batch.
    ///
    /// # Errors
    /// `Bug` for columns of other types than the schema had.
    pub(crate) fn of(&self, rows: &RecordBatch) -> Result<SinkRows, PulsarError> {
        let as_type = |index: usize, wanted: &DataType, shown: &'static str| {
            let column = rows.column(index);
            cast(column, wanted).map_err(|_| {
                let found = column.data_type().to_string();
                PulsarError::Column { found, wanted: shown }
            })
        };
        let bytes = |index| -> Result<BinaryArray, PulsarError> {
            Ok(as_type(index, &DataType::Binary, "BINARY")?.as_binary().clone())
        };
        let topic = |index| -> Result<StringArray, PulsarError> {
            Ok(as_type(index, &DataType::Utf8, "STRING")?.as_string().clone())
        };
        let event_time = |index| -> Result<Int64Array, PulsarError> {
            let millis = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
            let time = as_type(index, &millis, "TIMESTAMP")?;
            let number = cast(&time, &DataType::Int64).map_err(|_| PulsarError::Column {
                found: time.data_type().to_string(),
                wanted: "TIMESTAMP",
            })?;
            Ok(number.as_primitive::<Int64Type>().clone())
        };
        let properties = self.properties.map(|index| Properties::new(rows.column(index).as_map()));
        Ok(SinkRows {
            rows: rows.num_rows(),
            value: bytes(self.value)?,
            key: self.key.map(bytes).transpose()?,
            topic: self.topic.map(topic).transpose()?,
            event_time: self.event_time.map(event_time).transpose()?,
            properties: properties.transpose()?,
        })
    }
}

fn is_text(found: &DataType) -> bool {
    match found {
        DataType::Dictionary(_, values) => is_text(values),
        found => matches!(
            found,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null
        ),
    }
}

fn is_bytes(found: &DataType) -> bool {
    match found {
        DataType::Dictionary(_, values) => is_bytes(values),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        found => is_text(found),
    }
}

fn is_time(found: &DataType) -> bool {
    *found == timestamp()
}

/// A record batch, seen as messages.
pub(crate) struct SinkRows {
    /// How many there are.
    pub(crate) rows: usize,
    value: BinaryArray,
    key: Option<BinaryArray>,
    topic: Option<StringArray>,
    event_time: Option<Int64Array>,
    properties: Option<Properties>,
}

impl SinkRows {
    fn value(&self, row: usize) -> Option<&[u8]> {
        self.value.is_valid(row).then(|| self.value.value(row))
    }

    fn key(&self, row: usize) -> Option<&[u8]> {
        let keys = self.key.as_ref()?;
        keys.is_valid(row).then(|| keys.value(row))
    }

    /// The bytes that the row takes in a batch.
    pub(crate) fn bytes(&self, row: usize) -> usize {
        MessageBatch::default().add(self.message(row))
    }

    /// The row as a message.
    pub(crate) fn message(&self, row: usize) -> Added<'_> {
        Added {
            key: self.key(row).map(key_text),
            value: self.value(row),
            properties: self.properties(row),
            event_time: self.event_time(row),
        }
    }

    /// The row's own topic, as it is written.
    pub(crate) fn topic(&self, row: usize) -> Option<&str> {
        let topics = self.topic.as_ref()?;
        topics.is_valid(row).then(|| topics.value(row)).filter(|topic| !topic.is_empty())
    }

    /// Milliseconds since the epoch. Pulsar has no times before that.
    fn event_time(&self, row: usize) -> Option<u64> {
        let times = self.event_time.as_ref()?;
        let time = times.is_valid(row).then(|| times.value(row))?;
        u64::try_from(time).ok().filter(|time| *time > 0)
    }

    fn properties(&self, row: usize) -> Vec<KeyValue> {
        self.properties.as_ref().map(|properties| properties.of(row)).unwrap_or_default()
    }
}

struct Properties {
    maps: MapArray,
    keys: StringArray,
    values: StringArray,
}

impl Properties {
    fn new(maps: &MapArray) -> Result<Self, PulsarError> {
        let text = |column: &dyn Array| -> Result<StringArray, PulsarError> {
            let text = cast(column, &DataType::Utf8).map_err(|_| PulsarError::Column {
                found: column.data_type().to_string(),
                wanted: "STRING",
            })?;
            Ok(text.as_string().clone())
        };
        let (keys, values) = (text(maps.keys())?, text(maps.values())?);
        Ok(Self { maps: maps.clone(), keys, values })
    }

    /// A property without a value is left out: Pulsar has none.
    fn of(&self, row: usize) -> Vec<KeyValue> {
        if self.maps.is_null(row) {
            return Vec::new();
        }
        let offsets = self.maps.value_offsets();
        let range = offsets[row] as usize..offsets[row + 1] as usize;
        let pair = |at: usize| KeyValue {
            key: self.keys.value(at).to_owned(),
            value: self.values.value(at).to_owned(),
        };
        range.filter(|at| self.values.is_valid(*at)).map(pair).collect()
    }
}
