//! Columns of rows that become records: `key`, `value`, `topic`, `partition` and `headers`, with
//! Spark's names, types and rules. Other columns are left out of the record, as Spark does, unless
//! a format makes the value of them.

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, RecordBatch, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Schema};
use millstream_engine::api::options::OptionError;
use millstream_formats::schema::{NotEncoded, SchemaEncoder, WriteFailure};

use crate::error::SinkError;

/// What a record's key or value is made of.
#[derive(Clone, Debug)]
pub enum RecordPart {
    /// The text or bytes of one column.
    Column(usize),
    /// The part's name, and columns that are encoded by a schema.
    Encoded(&'static str, Vec<usize>, SchemaEncoder),
}

/// The places of a record's parts among a query's columns.
#[derive(Clone, Debug)]
pub struct SinkColumns {
    key: Option<RecordPart>,
    value: RecordPart,
    topic: Option<usize>,
    partition: Option<usize>,
    headers: Option<usize>,
}

impl SinkColumns {
    /// Finds the columns in `schema`. `has_topic` says whether the option `topic` is set.
    /// Errors: a column that is missing or of another type.
    #[cfg(test)]
    pub fn find(schema: &Schema, has_topic: bool) -> Result<Self, OptionError> {
        Self::with(schema, has_topic, None, None)
    }

    /// The same, where a key or a value may be made of other columns than those of that name.
    ///
    /// # Errors
    /// A column that is missing or of another type.
    pub fn with(
        schema: &Schema,
        has_topic: bool,
        key: Option<RecordPart>,
        value: Option<RecordPart>,
    ) -> Result<Self, OptionError> {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let find = |wanted: &str| names.iter().position(|name| *name == wanted);
        // Where the option says the topic, a column of that name is one of the value's.
        let has_topic_column = value.is_none() || !has_topic;
        let Some(value) = value.or_else(|| find("value").map(RecordPart::Column)) else {
            let problem =
                format!("a Kafka table needs a column 'value', but the query has {}", list(&names));
            let help = "Name one column so: SELECT to_json(struct(*)) AS value";
            return Err(OptionError::table(problem, Some(help.to_owned())));
        };
        let columns = Self {
            key: key.or_else(|| find("key").map(RecordPart::Column)),
            value,
            topic: find("topic").filter(|_| has_topic_column),
            partition: find("partition"),
            headers: find("headers"),
        };
        if columns.topic.is_none() && !has_topic {
            let help = "Set 'topic' in the table's OPTIONS, or select a column 'topic'";
            return Err(OptionError::table("no topic to write to", Some(help.to_owned())));
        }
        columns.check_types(schema)?;
        Ok(columns)
    }

    /// Asks schema registries whether rows can be written.
    ///
    /// # Errors
    /// They cannot.
    pub fn check(&self) -> Result<(), OptionError> {
        self.encoders().try_for_each(SchemaEncoder::check)
    }

    /// Whether something has to be [opened](Self::open).
    pub fn have_schemas(&self) -> bool {
        self.encoders().next().is_some()
    }

    /// Finds the schemas that rows are written by, and registers them. Blocks.
    ///
    /// # Errors
    /// A registry does not give or take one.
    pub fn open(&self) -> Result<(), WriteFailure> {
        self.encoders().try_for_each(SchemaEncoder::open)
    }

    fn encoders(&self) -> impl Iterator<Item = &SchemaEncoder> {
        self.key.iter().chain([&self.value]).filter_map(|part| match part {
            RecordPart::Column(_) => None,
            RecordPart::Encoded(_, _, encoder) => Some(encoder),
        })
    }

    fn check_types(&self, schema: &Schema) -> Result<(), OptionError> {
        let column = |part: &RecordPart| match part {
            RecordPart::Column(index) => Some(*index),
            RecordPart::Encoded(..) => None,
        };
        let (key, value) = (self.key.as_ref().and_then(column), column(&self.value));
        let wanted = [
            (key, is_bytes as fn(&DataType) -> bool, "STRING or BINARY"),
            (value, is_bytes, "STRING or BINARY"),
            (self.topic, is_text, "STRING"),
            (self.partition, |found| *found == DataType::Int32, "INT"),
            (self.headers, is_headers, "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
        ];
        for (index, fits, wanted) in wanted {
            let Some(field) = index.map(|index| schema.field(index)) else { continue };
            if !fits(field.data_type()) {
                let name = field.name();
                let problem = format!("the column '{name}' must be {wanted} for a Kafka table");
                let found = field.data_type();
                let help = match wanted {
                    "STRING" => format!("It is {found}. Use CAST({name} AS STRING)"),
                    "STRING or BINARY" => format!(
                        "It is {found}. Use CAST({name} AS STRING), or to_json for a STRUCT"
                    ),
                    _ => format!(
                        "It is {found}. Cast it to {wanted}, or give the column another name if it \
                         is not the record's {name}"
                    ),
                };
                return Err(OptionError::table(problem, Some(help)));
            }
        }
        Ok(())
    }

    /// The columns of one record batch.
    /// Errors: a row that its schema does not allow; `Bug` for columns of other types than the
    /// schema had.
    pub fn of(&self, rows: &RecordBatch) -> Result<SinkRows, SinkError> {
        let headers = self.headers.map(|index| Headers::new(rows.column(index))).transpose()?;
        let partition = self.partition.map(|index| rows.column(index).as_primitive::<Int32Type>());
        Ok(SinkRows {
            rows: rows.num_rows(),
            key: self.key.as_ref().map(|part| part.of(rows)).transpose()?,
            value: self.value.of(rows)?,
            topic: self.topic.map(|index| Bytes::new(rows.column(index))).transpose()?,
            partition: partition.cloned(),
            headers,
        })
    }
}

impl RecordPart {
    fn of(&self, rows: &RecordBatch) -> Result<Bytes, SinkError> {
        let (part, columns, encoder) = match self {
            Self::Column(index) => return Bytes::new(rows.column(*index)),
            Self::Encoded(part, columns, encoder) => (*part, columns, encoder),
        };
        let rows = rows.project(columns);
        let rows = rows.map_err(|error| SinkError::Rows { problem: error.to_string() })?;
        let encoded = encoder.encode(&rows).map_err(|error| match error {
            row @ NotEncoded::Row { .. } => SinkError::NotEncoded { part, row },
            NotEncoded::Rows { problem } => SinkError::Rows { problem },
        })?;
        Ok(Bytes::Binary(encoded))
    }
}

fn list(names: &[&str]) -> String {
    match names {
        [] => "no columns".to_owned(),
        names => names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", "),
    }
}

fn is_text(found: &DataType) -> bool {
    match found {
        DataType::Dictionary(_, values) => is_text(values),
        found => matches!(found, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

fn is_bytes(found: &DataType) -> bool {
    match found {
        DataType::Dictionary(_, values) => is_bytes(values),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        found => is_text(found) || *found == DataType::Null,
    }
}

fn is_headers(found: &DataType) -> bool {
    let DataType::List(item) = found else { return false };
    let DataType::Struct(fields) = item.data_type() else { return false };
    matches!(fields.as_ref(), [key, value]
        if key.name() == "key" && is_text(key.data_type())
            && value.name() == "value" && is_bytes(value.data_type()))
}

/// One record batch, seen as records.
pub struct SinkRows {
    /// How many there are.
    pub rows: usize,
    key: Option<Bytes>,
    value: Bytes,
    topic: Option<Bytes>,
    partition: Option<Int32Array>,
    headers: Option<Headers>,
}

impl SinkRows {
    /// A row's key.
    pub fn key(&self, row: usize) -> Option<&[u8]> {
        self.key.as_ref()?.get(row)
    }

    /// A row's value.
    pub fn value(&self, row: usize) -> Option<&[u8]> {
        self.value.get(row)
    }

    /// A row's topic, if the query has that column.
    pub fn topic(&self, row: usize) -> Option<&str> {
        std::str::from_utf8(self.topic.as_ref()?.get(row)?).ok()
    }

    /// A row's partition, if the query has that column.
    pub fn partition(&self, row: usize) -> Option<i32> {
        let partitions = self.partition.as_ref()?;
        partitions.is_valid(row).then(|| partitions.value(row))
    }

    /// True if records have headers.
    pub fn have_headers(&self) -> bool {
        self.headers.is_some()
    }

    /// A row's headers, in order.
    pub fn headers(&self, row: usize) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.headers.iter().flat_map(move |headers| headers.of(row))
    }
}

/// A column of texts or bytes, whatever Arrow's layout.
enum Bytes {
    Binary(arrow::array::BinaryArray),
    LargeBinary(arrow::array::LargeBinaryArray),
    BinaryView(arrow::array::BinaryViewArray),
    Utf8(arrow::array::StringArray),
    LargeUtf8(arrow::array::LargeStringArray),
    Utf8View(arrow::array::StringViewArray),
    Null,
}

impl Bytes {
    fn new(column: &ArrayRef) -> Result<Self, SinkError> {
        Ok(match column.data_type() {
            DataType::Binary => Self::Binary(column.as_binary().clone()),
            DataType::LargeBinary => Self::LargeBinary(column.as_binary().clone()),
            DataType::BinaryView => Self::BinaryView(column.as_binary_view().clone()),
            DataType::Utf8 => Self::Utf8(column.as_string().clone()),
            DataType::LargeUtf8 => Self::LargeUtf8(column.as_string().clone()),
            DataType::Utf8View => Self::Utf8View(column.as_string_view().clone()),
            DataType::Null => Self::Null,
            DataType::Dictionary(_, values) => {
                let plain = cast(column, values)
                    .map_err(|error| SinkError::Rows { problem: error.to_string() })?;
                Self::new(&plain)?
            }
            other => {
                let problem = format!("a column for Kafka came as {other}");
                return Err(SinkError::Rows { problem });
            }
        })
    }

    fn get(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Binary(array) => array.is_valid(row).then(|| array.value(row)),
            Self::LargeBinary(array) => array.is_valid(row).then(|| array.value(row)),
            Self::BinaryView(array) => array.is_valid(row).then(|| array.value(row)),
            Self::Utf8(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
            Self::LargeUtf8(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
            Self::Utf8View(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
            Self::Null => None,
        }
    }
}

struct Headers {
    lists: ListArray,
    items: StructArray,
    key: Bytes,
    value: Bytes,
}

impl Headers {
    fn new(column: &ArrayRef) -> Result<Self, SinkError> {
        let lists = column.as_list::<i32>().clone();
        let items = lists.values().as_struct().clone();
        let (key, value) = (Bytes::new(items.column(0))?, Bytes::new(items.column(1))?);
        Ok(Self { lists, items, key, value })
    }

    fn of(&self, row: usize) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        let offsets = self.lists.value_offsets();
        let range = if self.lists.is_valid(row) {
            offsets[row] as usize..offsets[row + 1] as usize
        } else {
            0..0
        };
        range.filter(|item| self.items.is_valid(*item)).map(|item| {
            let name = self.key.get(item).and_then(|name| std::str::from_utf8(name).ok());
            (name.unwrap_or_default(), self.value.get(item))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryArray, NullArray, StringArray, StringViewArray};
    use arrow::datatypes::Field;

    use super::*;
    use crate::source::chunk::{ChunkBuilder, headers_type};

    fn schema(columns: &[(&str, DataType)]) -> Schema {
        let field = |(name, kind): &(&str, DataType)| Field::new(*name, kind.clone(), true);
        Schema::new(columns.iter().map(field).collect::<Vec<_>>())
    }

    fn problem(columns: &[(&str, DataType)], has_topic: bool) -> String {
        SinkColumns::find(&schema(columns), has_topic).unwrap_err().problem
    }

    #[test]
    fn a_missing_value_names_the_columns_there_are() {
        let text = problem(&[("key", DataType::Utf8), ("Value", DataType::Utf8)], true);
        assert!(text.contains("'value'") && text.contains("'key', 'Value'"), "{text}");
    }

    #[test]
    fn unfit_columns_are_refused() {
        let value = ("value", DataType::Utf8);
        assert!(problem(&[("value", DataType::Int32)], true).contains("STRING or BINARY"));
        assert!(SinkColumns::find(&schema(&[value.clone(), ("n", DataType::Int64)]), true).is_ok());
        assert!(problem(&[value.clone(), ("partition", DataType::Int64)], true).contains("INT"));
        assert!(problem(&[value.clone(), ("headers", DataType::Utf8)], true).contains("ARRAY"));
        assert!(problem(std::slice::from_ref(&value), false).contains("no topic"));
        let with_topic = [value, ("topic", DataType::Utf8View), ("headers", headers_type())];
        assert!(SinkColumns::find(&schema(&with_topic), false).is_ok());
    }

    #[test]
    fn a_remedy_has_the_type_that_is_wanted() {
        let help = |column: (&str, DataType)| {
            let columns = schema(&[("value", DataType::Utf8), column]);
            SinkColumns::find(&columns, false).unwrap_err().help.unwrap()
        };
        let topic = ("topic", DataType::Int32);
        assert!(help(topic).contains("CAST(topic AS STRING)"));
        let columns = |kind| {
            schema(&[("value", DataType::Utf8), ("topic", DataType::Utf8), ("partition", kind)])
        };
        let refused = SinkColumns::find(&columns(DataType::Int64), false).unwrap_err();
        let help = refused.help.unwrap();
        assert!(help.contains("Cast it to INT") && !help.contains("STRING"), "{help}");
    }

    #[test]
    fn rows_are_read_whatever_the_layout() {
        let mut builder = ChunkBuilder::new(true);
        builder.push(None, None, 0, 0, 0);
        builder.push_header("a", Some(b"1"));
        builder.push_header("b", None);
        builder.end_headers();
        builder.push(None, None, 1, 0, 0);
        builder.end_headers();
        let headers = builder.finish(0).headers.unwrap();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("headers", Arc::new(headers)),
            ("value", Arc::new(StringViewArray::from(vec![Some("v"), None]))),
            ("key", Arc::new(BinaryArray::from(vec![None, Some(&b"k"[..])]))),
            ("topic", Arc::new(StringArray::from(vec![Some("out"), None]))),
            ("partition", Arc::new(Int32Array::from(vec![None, Some(3)]))),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, column)| (name, column, true)),
        )
        .unwrap();
        let columns = SinkColumns::find(&batch.schema(), false).unwrap();
        let rows = columns.of(&batch).unwrap();
        assert_eq!((rows.value(0), rows.value(1)), (Some(&b"v"[..]), None));
        assert_eq!((rows.key(0), rows.key(1)), (None, Some(&b"k"[..])));
        assert_eq!((rows.topic(0), rows.topic(1)), (Some("out"), None));
        assert_eq!((rows.partition(0), rows.partition(1)), (None, Some(3)));
        let first: Vec<_> = rows.headers(0).collect();
        assert_eq!(first, [("a", Some(&b"1"[..])), ("b", None)]);
        assert_eq!(rows.headers(1).count(), 0);
    }

    #[test]
    fn a_literal_null_is_a_value() {
        let column: ArrayRef = Arc::new(NullArray::new(2));
        let batch = RecordBatch::try_from_iter_with_nullable([("value", column, true)]).unwrap();
        let columns = SinkColumns::find(&batch.schema(), true).unwrap();
        assert_eq!(columns.of(&batch).unwrap().value(1), None);
    }
}
