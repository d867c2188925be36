//! The columns of a dead-letter table, and letters as rows of it.
//!
//! A table that declares no columns gets all of them; one that does gets those, by name. A table
//! of records (Kafka's) gets the payload as value, so that a letter can be read like the record it
//! was, and the rest as headers.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, MapArray, RecordBatch, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use millstream_sql::nearest;

use super::{Letter, Place, fit};

/// What the names of our own headers begin with, in a table of records.
pub const OWN_HEADER_PREFIX: &str = "millstream.";

/// The header of our own that says how many bytes a payload had that is cut.
pub(crate) const PAYLOAD_BYTES: &str = "payload_bytes";

/// What a record has in bytes beside its key, its value and its headers, and for each header.
const RECORD_BYTES: usize = 128;
const HEADER_BYTES: usize = 10;

/// A record batch of letters ends when their bytes are that many: columns of texts and bytes have
/// offsets of 32 bits.
const BYTES_IN_RECORD_BATCH: usize = 64 << 20;
/// And when it has so many rows.
const ROWS_IN_RECORD_BATCH: usize = 8_192;

/// What kind of rows a connector's tables hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Rows of any columns.
    Table,
    /// Records with `key`, `value` and `headers`.
    Record,
}

/// Letters that have the same origin.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The table whose records they are; `None` for rows that broke a constraint.
    pub source_table: Option<Arc<str>>,
    /// The constraint that they broke; `None` for records that could not be decoded.
    pub constraint: Option<Arc<str>>,
    /// The letters, in the order in which they were read.
    pub letters: Vec<Letter>,
}

/// What all letters of a micro-batch share.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// The flow's name.
    pub flow: &'a str,
    /// The micro-batch's time, milliseconds since the epoch: a replay finds them at the same time.
    pub found_ms: i64,
}

/// A column of dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Payload,
    Key,
    Attributes,
    Error,
    SourceTable,
    Position,
    Topic,
    Partition,
    Offset,
    RecordTime,
    FoundTime,
    FlowName,
    ConstraintName,
    /// In a table of records: all of the above but payload and key.
    Headers,
}

const TABLE: &[(&str, Column)] = &[
    ("payload", Column::Payload),
    ("key", Column::Key),
    ("attributes", Column::Attributes),
    ("error", Column::Error),
    ("source_table", Column::SourceTable),
    ("position", Column::Position),
    ("topic", Column::Topic),
    ("partition", Column::Partition),
    ("offset", Column::Offset),
    ("record_time", Column::RecordTime),
    ("found_time", Column::FoundTime),
    ("flow_name", Column::FlowName),
    ("constraint_name", Column::ConstraintName),
];

const RECORD: &[(&str, Column)] =
    &[("value", Column::Payload), ("key", Column::Key), ("headers", Column::Headers)];

/// A declared column that dead letters cannot fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutError {
    /// The declared column.
    pub column: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to write instead.
    pub help: String,
}

/// Which columns a dead-letter table gets, in its order.
#[derive(Clone, Debug)]
pub struct Layout {
    schema: SchemaRef,
    columns: Vec<Column>,
    /// The largest record that the table takes, in bytes.
    bytes_max: Option<usize>,
}

/// The known column that `name` means, in any case.
pub(crate) fn spelling(name: &str) -> Option<&'static str> {
    let mut known = TABLE.iter().map(|(known, _)| *known);
    known.find(|known| known.eq_ignore_ascii_case(name))
}

impl Layout {
    /// The layout for a table of `form` that declares these columns, or none.
    ///
    /// Errors: a declared column that is not one of ours, or of a type that it cannot have.
    pub fn new(declared: Option<&SchemaRef>, form: Form) -> Result<Self, LayoutError> {
        let known = match form {
            Form::Table => TABLE,
            Form::Record => RECORD,
        };
        let Some(declared) = declared else {
            let field = |(name, column): &(&str, Column)| {
                Field::new(*name, column.data_types()[0].clone(), true)
            };
            let fields: Vec<Field> = known.iter().map(field).collect();
            let columns = known.iter().map(|(_, column)| *column).collect();
            return Ok(Self { schema: Arc::new(Schema::new(fields)), columns, bytes_max: None });
        };
        let columns = declared.fields().iter().map(|field| find(field, known));
        let (columns, schema) = (columns.collect::<Result<_, _>>()?, Arc::clone(declared));
        Ok(Self { columns, schema, bytes_max: None })
    }

    /// The same, for a table that takes records of up to so many bytes.
    pub fn with_bytes_max(self, bytes_max: Option<usize>) -> Self {
        Self { bytes_max, ..self }
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Letters as rows, in their order, in record batches of some size.
    pub fn rows(&self, groups: &[Group], stamp: Stamp<'_>) -> Vec<RecordBatch> {
        let fitted: Vec<Option<Letter>> = match self.bytes_max {
            Some(bytes_max) => all(groups, stamp).map(|row| row.fitted(bytes_max)).collect(),
            None => Vec::new(),
        };
        let rows = all(groups, stamp).enumerate().map(|(index, row)| {
            let fitted = fitted.get(index).and_then(Option::as_ref);
            Row { letter: fitted.unwrap_or(row.letter), ..row }
        });
        let rows: Vec<Row<'_>> = rows.collect();
        let mut rest = &rows[..];
        let mut record_batches = Vec::new();
        while !rest.is_empty() {
            let (first, others) = rest.split_at(fitting(rest));
            record_batches.push(self.record_batch(first));
            rest = others;
        }
        record_batches
    }

    fn record_batch(&self, rows: &[Row<'_>]) -> RecordBatch {
        let fields = self.schema.fields().iter().zip(&self.columns);
        let columns = fields.map(|(field, column)| column.array(rows, field.data_type()));
        RecordBatch::try_new(Arc::clone(&self.schema), columns.collect())
            .expect("each column was made with its type, and none must be filled")
    }
}

/// All letters of `groups`, in their order.
fn all<'a>(groups: &'a [Group], stamp: Stamp<'a>) -> impl Iterator<Item = Row<'a>> {
    let of_group = move |group: &'a Group| {
        group.letters.iter().map(move |letter| Row { group, letter, stamp })
    };
    groups.iter().flat_map(of_group)
}

/// How many of `rows` go into one record batch: one at least.
fn fitting(rows: &[Row<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |row: &&Row<'_>| {
        bytes += row.letter.bytes();
        bytes <= BYTES_IN_RECORD_BATCH
    };
    rows.iter().take(ROWS_IN_RECORD_BATCH).take_while(fits).count().max(1)
}

fn find(field: &Field, known: &[(&str, Column)]) -> Result<Column, LayoutError> {
    let error =
        |problem: String, help: String| LayoutError { column: field.name().clone(), problem, help };
    let names = || known.iter().map(|(name, _)| *name);
    let named = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(field.name()));
    let Some((_, column)) = named else {
        let problem = format!("dead letters have no column `{}`", field.name());
        return Err(error(problem, nearest::suggest(field.name(), "columns", names())));
    };
    let types = column.data_types();
    let same = |known: &DataType| known.equals_datatype(&loose(field.data_type()));
    if !types.iter().any(same) {
        let shown: Vec<String> = types.iter().map(millstream_sql::types::spark_type).collect();
        let found = millstream_sql::types::spark_type(field.data_type());
        let problem = format!("column `{}` of dead letters cannot be {found}", field.name());
        return Err(error(problem, format!("declare it as {}", shown.join(" or "))));
    }
    // Any of them may be missing: a line of a file has no key.
    if !field.is_nullable() {
        let problem = format!("column `{}` of dead letters may be null", field.name());
        return Err(error(problem, "leave NOT NULL out".to_owned()));
    }
    Ok(*column)
}

/// A map of texts is the same whatever its inner fields are called.
fn loose(data_type: &DataType) -> DataType {
    let DataType::Map(entries, false) = data_type else { return data_type.clone() };
    let DataType::Struct(fields) = entries.data_type() else { return data_type.clone() };
    let are_texts = fields.iter().all(|field| *field.data_type() == DataType::Utf8);
    if are_texts { map_type() } else { data_type.clone() }
}

fn map_type() -> DataType {
    DataType::Map(map_entries(), false)
}

fn map_entries() -> FieldRef {
    let fields =
        vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)];
    Arc::new(Field::new("entries", DataType::Struct(Fields::from(fields)), false))
}

fn header_item() -> FieldRef {
    let fields =
        vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)];
    Arc::new(Field::new("element", DataType::Struct(Fields::from(fields)), true))
}

/// A letter with all that is said about it.
#[derive(Clone, Copy)]
struct Row<'a> {
    group: &'a Group,
    letter: &'a Letter,
    stamp: Stamp<'a>,
}

impl<'a> Row<'a> {
    fn text(&self, column: Column) -> Option<String> {
        let Self { group, letter, stamp } = self;
        let owned = |text: &Arc<str>| text.to_string();
        match column {
            Column::Error => Some(fit::error(letter)),
            Column::SourceTable => group.source_table.as_ref().map(owned),
            Column::Position => letter.place.as_ref().map(Place::to_string),
            Column::Topic => self.record().map(|(topic, ..)| topic.to_owned()),
            Column::Partition => self.record().map(|(_, partition, _)| partition.to_string()),
            Column::Offset => self.record().map(|(.., offset)| offset.to_string()),
            Column::RecordTime => letter.record_time_us.map(time_text),
            Column::FoundTime => Some(time_text(stamp.found_ms * 1_000)),
            Column::FlowName => Some(stamp.flow.to_owned()),
            Column::ConstraintName => group.constraint.as_ref().map(owned),
            Column::Payload | Column::Key | Column::Attributes | Column::Headers => None,
        }
    }

    fn record(&self) -> Option<(&'a str, i32, i64)> {
        match self.letter.place.as_ref()? {
            Place::Record { topic, partition, offset } => Some((topic, *partition, *offset)),
            Place::Line { .. } | Place::Entry { .. } | Place::Row { .. } => None,
        }
    }

    fn bytes(&self, column: Column) -> Option<&'a [u8]> {
        match column {
            Column::Key => self.letter.key.as_deref(),
            _ => self.letter.payload.as_deref(),
        }
    }

    /// The record's headers, each name once: the last one holds, as in Spark's maps.
    fn attributes(&self) -> Vec<(&'a str, Option<String>)> {
        let mut entries: Vec<(&str, Option<String>)> = Vec::new();
        for (name, value) in &self.letter.attributes {
            let value = value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned());
            match entries.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = value,
                None => entries.push((name, value)),
            }
        }
        entries
    }

    /// The record's headers as they were, and what else is known as headers of our own.
    fn headers(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let mut headers = self.letter.attributes.clone();
        // A letter that comes here for the second time brings what was said the first time.
        headers.retain(|(name, _)| !name.starts_with(OWN_HEADER_PREFIX));
        for (name, column) in TABLE {
            if let Some(text) = self.text(*column) {
                headers.push((format!("{OWN_HEADER_PREFIX}{name}"), Some(text.into_bytes())));
            }
        }
        if let Some(bytes) = self.letter.payload_bytes {
            let name = format!("{OWN_HEADER_PREFIX}{PAYLOAD_BYTES}");
            headers.push((name, Some(bytes.to_string().into_bytes())));
        }
        headers
    }

    /// The letter as a record of at most `bytes_max` bytes; `None` where it is one.
    fn fitted(&self, bytes_max: usize) -> Option<Letter> {
        fit::fitted(self.letter, bytes_max, |letter| {
            let headers = Row { letter, ..*self }.headers();
            let header = |(name, value): &(String, Option<Vec<u8>>)| {
                name.len() + value.as_ref().map_or(0, Vec::len) + HEADER_BYTES
            };
            let bytes = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
            let headers: usize = headers.iter().map(header).sum();
            RECORD_BYTES + headers + bytes(&letter.payload) + bytes(&letter.key)
        })
    }
}

/// A time as text, in UTC: `2026-11-22T13:00:00.123456Z`.
fn time_text(micros: i64) -> String {
    let moment = chrono::DateTime::from_timestamp_micros(micros).unwrap_or_default();
    moment.to_rfc3339_opts(chrono::SecondsFormat::Micros, true)
}

impl Column {
    /// The types that the column may be declared with; the first is the one it has of itself.
    fn data_types(self) -> Vec<DataType> {
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        match self {
            Self::Payload | Self::Key => vec![DataType::Binary, DataType::Utf8],
            Self::Attributes => vec![map_type(), DataType::Utf8],
            Self::Partition => vec![DataType::Int32],
            Self::Offset => vec![DataType::Int64],
            Self::RecordTime | Self::FoundTime => vec![time],
            Self::Headers => vec![DataType::List(header_item())],
            _ => vec![DataType::Utf8],
        }
    }

    fn array(self, rows: &[Row<'_>], data_type: &DataType) -> ArrayRef {
        match (self, data_type) {
            (Self::Payload | Self::Key, DataType::Utf8) => {
                let texts = rows.iter().map(|row| row.bytes(self).map(String::from_utf8_lossy));
                Arc::new(texts.collect::<StringArray>())
            }
            (Self::Payload | Self::Key, _) => {
                Arc::new(rows.iter().map(|row| row.bytes(self)).collect::<BinaryArray>())
            }
            (Self::Attributes, DataType::Utf8) => {
                let object = |row: &Row<'_>| {
                    let object = row.attributes().into_iter();
                    let object = object.map(|(name, value)| (name.to_owned(), value.into()));
                    Some(serde_json::Value::Object(object.collect()).to_string())
                };
                Arc::new(rows.iter().map(object).collect::<StringArray>())
            }
            (Self::Attributes, data_type) => attributes(rows, data_type),
            (Self::Headers, _) => headers(rows),
            (Self::Partition, _) => {
                let partition = |row: &Row<'_>| row.record().map(|(_, partition, _)| partition);
                Arc::new(rows.iter().map(partition).collect::<Int32Array>())
            }
            (Self::Offset, _) => {
                let offset = |row: &Row<'_>| row.record().map(|(.., offset)| offset);
                Arc::new(rows.iter().map(offset).collect::<Int64Array>())
            }
            (Self::RecordTime, _) => times(rows.iter().map(|row| row.letter.record_time_us)),
            (Self::FoundTime, _) => times(rows.iter().map(|row| Some(row.stamp.found_ms * 1_000))),
            _ => Arc::new(rows.iter().map(|row| row.text(self)).collect::<StringArray>()),
        }
    }
}

fn times(times: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
}

fn attributes(rows: &[Row<'_>], data_type: &DataType) -> ArrayRef {
    let of_rows: Vec<_> = rows.iter().map(Row::attributes).collect();
    let offsets = OffsetBuffer::from_lengths(of_rows.iter().map(Vec::len));
    let (names, values): (Vec<&str>, Vec<Option<String>>) = of_rows.into_iter().flatten().unzip();
    // The names of inner fields are the declaration's.
    let DataType::Map(entries, _) = data_type else { unreachable!("the layout was checked") };
    let DataType::Struct(fields) = entries.data_type() else { unreachable!("maps have entries") };
    let columns: Vec<ArrayRef> =
        vec![Arc::new(StringArray::from(names)), Arc::new(StringArray::from(values))];
    let structs = StructArray::new(fields.clone(), columns, None);
    Arc::new(MapArray::new(Arc::clone(entries), offsets, structs, None, false))
}

fn headers(rows: &[Row<'_>]) -> ArrayRef {
    let of_rows: Vec<_> = rows.iter().map(Row::headers).collect();
    let offsets = OffsetBuffer::from_lengths(of_rows.iter().map(Vec::len));
    let all = || of_rows.iter().flatten();
    let names: StringArray = all().map(|(name, _)| Some(name)).collect();
    let values: BinaryArray = all().map(|(_, value)| value.as_deref()).collect();
    let item = header_item();
    let DataType::Struct(fields) = item.data_type() else { unreachable!("a header is a struct") };
    let structs = StructArray::new(fields.clone(), vec![Arc::new(names), Arc::new(values)], None);
    Arc::new(ListArray::new(Arc::clone(&item), offsets, Arc::new(structs), None))
}

#[cfg(test)]
mod tests;
