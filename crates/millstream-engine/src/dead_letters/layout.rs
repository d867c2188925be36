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

use super::letter::{Letter, Place};
use crate::sql::nearest;

/// What the names of our own headers begin with, in a table of records.
pub const OWN_HEADER_PREFIX: &str = "millstream.";

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
            return Ok(Self { schema: Arc::new(Schema::new(fields)), columns });
        };
        let columns = declared.fields().iter().map(|field| find(field, known));
        Ok(Self { columns: columns.collect::<Result<_, _>>()?, schema: Arc::clone(declared) })
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Letters as rows, in their order.
    pub fn rows(&self, groups: &[Group], stamp: Stamp<'_>) -> RecordBatch {
        let of_group = |group| move |letter| Row { group, letter, stamp };
        let rows = groups.iter().flat_map(|group| group.letters.iter().map(of_group(group)));
        let rows: Vec<Row<'_>> = rows.collect();
        let fields = self.schema.fields().iter().zip(&self.columns);
        let columns = fields.map(|(field, column)| column.array(&rows, field.data_type()));
        RecordBatch::try_new(Arc::clone(&self.schema), columns.collect())
            .expect("each column was made with its type, and none must be filled")
    }
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
        let shown: Vec<String> = types.iter().map(crate::sql::spark_type).collect();
        let found = crate::sql::spark_type(field.data_type());
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
            Column::Error => Some(letter.error.clone()),
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
            Place::Line { .. } => None,
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
        headers
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
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn letter(offset: i64) -> Letter {
        let header = |value: &str| ("h".to_owned(), Some(value.as_bytes().to_vec()));
        Letter {
            payload: Some(b"{bad".to_vec()),
            key: None,
            attributes: vec![header("first"), header("last")],
            error: "at byte 1: no".to_owned(),
            place: Some(Place::Record { topic: "in".into(), partition: 3, offset }),
            record_time_us: Some(1_000_000),
        }
    }

    fn rows(layout: &Layout) -> RecordBatch {
        let groups = [
            Group {
                source_table: Some("source".into()),
                constraint: None,
                letters: vec![letter(7), letter(8)],
            },
            Group {
                source_table: None,
                constraint: Some("c".into()),
                letters: vec![Letter::default()],
            },
        ];
        layout.rows(&groups, Stamp { flow: "f", found_ms: 2 })
    }

    #[test]
    fn without_declared_columns_a_table_gets_all() {
        let layout = Layout::new(None, Form::Table).unwrap();
        let rows = rows(&layout);
        assert_eq!((rows.num_rows(), rows.num_columns()), (3, TABLE.len()));
        let offsets = rows["offset"].as_primitive::<Int64Type>();
        assert_eq!(offsets.iter().collect::<Vec<_>>(), [Some(7), Some(8), None]);
        assert_eq!(rows["position"].as_string::<i32>().value(1), "in[3]@8");
        assert_eq!(rows["constraint_name"].as_string::<i32>().value(2), "c");
        assert!(rows["constraint_name"].is_null(0) && rows["source_table"].is_null(2));
        let attributes = rows["attributes"].as_map();
        assert_eq!((attributes.value_length(0), attributes.value_length(2)), (1, 0));
        assert_eq!(attributes.value(0).column(1).as_string::<i32>().value(0), "last");
    }

    #[test]
    fn declared_columns_are_filled_by_name() {
        let declared = |fields: Vec<Field>| Arc::new(Schema::new(fields));
        let declared = declared(vec![
            Field::new("Error", DataType::Utf8, true),
            Field::new("payload", DataType::Utf8, true),
            Field::new("attributes", DataType::Utf8, true),
        ]);
        let rows = rows(&Layout::new(Some(&declared), Form::Table).unwrap());
        assert_eq!(rows.schema(), declared);
        assert_eq!(rows["payload"].as_string::<i32>().value(0), "{bad");
        assert_eq!(rows["attributes"].as_string::<i32>().value(0), r#"{"h":"last"}"#);
    }

    #[test]
    fn columns_that_cannot_be_filled_are_named() {
        let refused = |field: Field, form| {
            let declared = Arc::new(Schema::new(vec![field]));
            Layout::new(Some(&declared), form).unwrap_err()
        };
        let unknown = refused(Field::new("eror", DataType::Utf8, true), Form::Table);
        assert!(unknown.help.contains("`error`"), "{unknown:?}");
        let unfit = refused(Field::new("offset", DataType::Utf8, true), Form::Table);
        assert!(unfit.help.contains("BIGINT"), "{unfit:?}");
        let strict = refused(Field::new("key", DataType::Binary, false), Form::Table);
        assert!(strict.help.contains("NOT NULL"), "{strict:?}");
        let payload = refused(Field::new("payload", DataType::Binary, true), Form::Record);
        assert!(payload.help.contains("value"), "{payload:?}");
    }

    #[test]
    fn a_record_keeps_its_headers_and_gets_ours() {
        let rows = rows(&Layout::new(None, Form::Record).unwrap());
        assert_eq!(rows["value"].as_binary::<i32>().value(0), b"{bad");
        let headers = rows["headers"].as_list::<i32>().value(0);
        let headers = headers.as_struct();
        let names: Vec<_> = headers.column(0).as_string::<i32>().iter().flatten().collect();
        assert_eq!(names[..2], ["h", "h"]);
        assert!(names.contains(&"millstream.position"), "{names:?}");
        let at = names.iter().position(|name| *name == "millstream.found_time").unwrap();
        let value = headers.column(1).as_binary::<i32>().value(at);
        assert_eq!(value, b"1970-01-01T00:00:00.002000Z");
    }
}
