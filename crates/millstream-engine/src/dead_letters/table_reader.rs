//! Letters read back from their table.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, RecordBatch, StringArray};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{
    DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ident, lit};
use datafusion::prelude::SessionContext;
use millstream_sql::diagnostic::Diagnostics;
use millstream_sql::functions::BatchClock;
use millstream_sql::session::session;
use thiserror::Error;

use crate::api::dead_letter::{
    Form, Group, Layout, Letter, OWN_HEADER_PREFIX, PAYLOAD_BYTES, Place, Stamp, spelling,
};
use crate::api::error::ArrowBug;
use crate::api::source::{Classified, Failure, Kind};
use crate::failures::from_datafusion;
use crate::plan::session::streaming_config;

/// A letter as it stands in its table.
#[derive(Clone, Debug)]
pub struct StoredLetter {
    /// The table whose record it is, if the dead-letter table says so.
    pub source_table: Option<String>,
    /// Where the record was read: what tells it from others of the same source.
    pub position: String,
    /// Whether the payload is the record as it was read, as far as the table tells.
    pub is_whole: bool,
    /// The letter, without its place.
    pub letter: Letter,
}

/// Why letters cannot be taken from a table.
#[derive(Debug, Error)]
pub enum FiledError {
    /// It has no column that is needed.
    #[error(
        "the dead-letter table has no column `{column}`, without which its letters cannot be \
         replayed; declare it among the columns, or declare none"
    )]
    NoColumn {
        /// The column.
        column: &'static str,
    },
    /// `--where` is no condition on the table's columns.
    #[error("--where: {problem}. The columns are {columns}")]
    Condition {
        /// What is wrong with it.
        problem: String,
        /// The columns that it may name.
        columns: String,
    },
    /// A column has values that are none of its type.
    #[error("the column `{column}` of the dead-letter table cannot be read: {error}")]
    Column {
        /// The column.
        column: &'static str,
        /// What Arrow says.
        error: ArrowError,
    },
    /// Letters are more than columns can hold.
    #[error("the letters of the dead-letter topic cannot be put into columns: {error}")]
    Letters {
        /// What Arrow says.
        error: ArrowError,
    },
}

impl Classified for FiledError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoColumn { .. } | Self::Condition { .. } => Kind::Config,
            Self::Column { .. } | Self::Letters { .. } => Kind::Data,
        }
    }
}

/// Whether the payload is the record as it was read; ours, beside the table's columns.
const IS_WHOLE: &str = "__is_whole";

/// The letters of `flow` among `rows`, which are all of a dead-letter table, that decoding
/// rejected and for which `condition` holds.
pub async fn stored_letters(
    rows: Vec<RecordBatch>,
    schema: &SchemaRef,
    form: Form,
    flow: &str,
    condition: Option<&str>,
) -> Result<Vec<StoredLetter>, Failure> {
    let schema = match form {
        Form::Table => spelled(schema),
        Form::Record => {
            let layout = Layout::new(None, Form::Table).expect("nothing is declared");
            Arc::clone(layout.schema())
        }
    };
    for column in ["payload", "position"] {
        if schema.column_with_name(column).is_none() {
            return Err(FiledError::NoColumn { column }.into());
        }
    }
    let context = session(streaming_config(), &BatchClock::default());
    let chosen = chosen(&context, &schema, flow, condition)?;
    let mut filed = Vec::new();
    // One after the other: together, the payloads might be more than one column can hold.
    for rows in rows {
        let table = match form {
            Form::Table => table_rows(&rows, &schema)?,
            Form::Record => record_rows(&rows)?,
        };
        let filtered = context.read_batch(table).and_then(|all| all.filter(chosen.clone()));
        let found = filtered.map_err(from_datafusion)?.collect().await;
        for rows in found.map_err(|error| wrong(error.message().into_owned(), &schema))? {
            push_letters(&rows, &mut filed)?;
        }
    }
    Ok(filed)
}

/// The columns under the names that they have without a declaration: declared, each may be spelled
/// in any case.
fn spelled(schema: &SchemaRef) -> SchemaRef {
    let field = |field: &FieldRef| {
        let known = spelling(field.name());
        known.map_or(Arc::clone(field), |name| Arc::new(field.as_ref().clone().with_name(name)))
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

fn wrong(problem: String, schema: &Schema) -> FiledError {
    FiledError::Condition { problem, columns: millstream_sql::types::spark_schema(schema) }
}

/// Which rows of a table with the columns `schema` are asked for.
fn chosen(
    context: &SessionContext,
    schema: &SchemaRef,
    flow: &str,
    condition: Option<&str>,
) -> Result<Expr, Failure> {
    let has = |column: &str| schema.column_with_name(column).is_some();
    let mut chosen = ident("position").is_not_null();
    if has("constraint_name") {
        chosen = chosen.and(ident("constraint_name").is_null());
    }
    if has("flow_name") {
        chosen = chosen.and(ident("flow_name").eq(lit(flow)));
    }
    if let Some(condition) = condition {
        let columns = DFSchema::try_from(schema.as_ref().clone()).map_err(from_datafusion)?;
        let condition = millstream_sql::plan::condition::condition(
            &context.state(),
            condition,
            &columns,
            "--where",
        );
        let first = |wrong: Diagnostics| wrong.0.into_iter().next().map(|first| first.message);
        let condition = condition.map_err(|found| wrong(first(found).unwrap_or_default(), schema));
        chosen = chosen.and(condition?);
    }
    Ok(chosen)
}

/// Rows of a dead-letter table, and whether each payload is whole. A column of texts holds nothing
/// but UTF-8: what was not shows in the character that stands for it.
fn table_rows(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Failure> {
    let payload = rows.column(schema.index_of("payload").map_err(ArrowBug)?);
    let is_whole: BooleanArray = match payload.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let cast = cast(payload, &DataType::Utf8);
            let texts = cast.map_err(|error| FiledError::Column { column: "payload", error })?;
            let whole = |text: Option<&str>| {
                Some(text.is_none_or(|text| !text.contains(char::REPLACEMENT_CHARACTER)))
            };
            texts.as_string::<i32>().iter().map(whole).collect()
        }
        _ => std::iter::repeat_n(Some(true), rows.num_rows()).collect(),
    };
    with_is_whole(schema, rows.columns().to_vec(), is_whole)
}

fn with_is_whole(
    schema: &SchemaRef,
    mut columns: Vec<ArrayRef>,
    is_whole: BooleanArray,
) -> Result<RecordBatch, Failure> {
    let own = Arc::new(Field::new(IS_WHOLE, DataType::Boolean, false));
    let fields = schema.fields().iter().cloned().chain([own]);
    columns.push(Arc::new(is_whole));
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns);
    rows.map_err(|error| ArrowBug(error).into())
}

fn column(
    rows: &RecordBatch,
    name: &'static str,
    wanted: &DataType,
) -> Result<Option<ArrayRef>, FiledError> {
    let Some(column) = rows.column_by_name(name) else { return Ok(None) };
    cast(column, wanted).map(Some).map_err(|error| FiledError::Column { column: name, error })
}

fn push_letters(rows: &RecordBatch, filed: &mut Vec<StoredLetter>) -> Result<(), Failure> {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let bytes = |name| column(rows, name, &DataType::Binary);
    let texts = |name| column(rows, name, &DataType::Utf8);
    let (payload, key) = (bytes("payload")?, bytes("key")?);
    let (position, source) = (texts("position")?, texts("source_table")?);
    let times = column(rows, "record_time", &time)?;
    let bytes_at = |column: &Option<ArrayRef>, row: usize| {
        let column: &BinaryArray = column.as_ref()?.as_binary();
        column.is_valid(row).then(|| column.value(row).to_vec())
    };
    let text_at = |column: &Option<ArrayRef>, row: usize| {
        let column: &StringArray = column.as_ref()?.as_string();
        column.is_valid(row).then(|| column.value(row).to_owned())
    };
    for row in 0..rows.num_rows() {
        let record_time_us = times.as_ref().and_then(|times| {
            let times = times.as_primitive::<TimestampMicrosecondType>();
            times.is_valid(row).then(|| times.value(row))
        });
        let (payload, key) = (bytes_at(&payload, row), bytes_at(&key, row));
        filed.push(StoredLetter {
            source_table: text_at(&source, row),
            position: text_at(&position, row).unwrap_or_default(),
            is_whole: rows[IS_WHOLE].as_boolean().value(row),
            letter: Letter { payload, key, record_time_us, ..Letter::default() },
        });
    }
    Ok(())
}

/// Records of a dead-letter topic as rows of a dead-letter table.
fn record_rows(rows: &RecordBatch) -> Result<RecordBatch, Failure> {
    let layout = Layout::new(None, Form::Table).expect("nothing is declared");
    let (mut tables, mut is_whole) = (Vec::new(), Vec::with_capacity(rows.num_rows()));
    let (key, value) = (column(rows, "key", &DataType::Binary)?, &rows["value"]);
    let headers = rows["headers"].as_list::<i32>();
    for row in 0..rows.num_rows() {
        let bytes = |column: &ArrayRef| {
            let column: &BinaryArray = column.as_binary();
            column.is_valid(row).then(|| column.value(row).to_vec())
        };
        let known = headers.is_valid(row).then(|| headers.value(row));
        let (own, attributes) = known.map(|known| sorted(&known)).unwrap_or_default();
        let own =
            |name: &str| own.iter().find(|(known, _)| known == name).map(|(_, text)| text.clone());
        let time = |name: &str| {
            let text = own(name)?;
            chrono::DateTime::parse_from_rfc3339(&text).ok().map(|time| time.timestamp_micros())
        };
        is_whole.push(own(PAYLOAD_BYTES).is_none());
        let letter = Letter {
            payload: bytes(value),
            payload_bytes: None,
            key: key.as_ref().and_then(&bytes),
            attributes,
            error: own("error").unwrap_or_default(),
            place: place(&own),
            record_time_us: time("record_time"),
        };
        let group = Group {
            source_table: own("source_table").map(Into::into),
            constraint: own("constraint_name").map(Into::into),
            letters: vec![letter],
        };
        let flow = own("flow_name").unwrap_or_default();
        let found_ms = time("found_time").unwrap_or_default() / 1_000;
        tables.extend(layout.rows(&[group], Stamp { flow: &flow, found_ms }));
    }
    let schema = layout.schema();
    let all = concat_batches(schema, &tables).map_err(|error| FiledError::Letters { error })?;
    with_is_whole(schema, all.columns().to_vec(), is_whole.into())
}

type Own = Vec<(String, String)>;
type Attributes = Vec<(String, Option<Vec<u8>>)>;

/// Our own headers, without what their names begin with, and the others.
fn sorted(headers: &ArrayRef) -> (Own, Attributes) {
    let headers = headers.as_struct();
    let names = headers.column(0).as_string::<i32>().iter();
    let values = headers.column(1).as_binary::<i32>().iter();
    let (mut own, mut attributes) = (Own::new(), Attributes::new());
    for (name, value) in names.zip(values) {
        let name = name.unwrap_or_default();
        match name.strip_prefix(OWN_HEADER_PREFIX) {
            Some(name) => {
                let text = String::from_utf8_lossy(value.unwrap_or_default());
                own.push((name.to_owned(), text.into_owned()));
            }
            None => attributes.push((name.to_owned(), value.map(<[u8]>::to_vec))),
        }
    }
    (own, attributes)
}

fn place(own: &dyn Fn(&str) -> Option<String>) -> Option<Place> {
    if let (Some(topic), Some(partition), Some(offset)) =
        (own("topic"), own("partition"), own("offset"))
        && let (Ok(partition), Ok(offset)) = (partition.parse(), offset.parse::<i64>())
    {
        return Some(Place::Record { topic: topic.into(), partition, offset });
    }
    let position = own("position")?;
    let (file, line) = position.rsplit_once(':')?;
    Some(Place::Line { file: file.into(), line: line.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups() -> Vec<Group> {
        let letter = |offset: i64| Letter {
            payload: Some(format!("bad {offset}").into_bytes()),
            place: Some(Place::Record { topic: "in".into(), partition: 0, offset }),
            record_time_us: Some(5_000),
            attributes: vec![("h".to_owned(), Some(b"v".to_vec()))],
            ..Letter::default()
        };
        let source_table = Some("source".into());
        let broken =
            Group { constraint: Some("c".into()), letters: vec![letter(9)], ..Group::default() };
        vec![Group { source_table, constraint: None, letters: vec![letter(1), letter(2)] }, broken]
    }

    async fn found(form: Form, flow: &str, condition: Option<&str>) -> Vec<String> {
        let layout = Layout::new(None, form).unwrap();
        let rows = layout.rows(&groups(), Stamp { flow: "f", found_ms: 7 });
        let filed = stored_letters(rows, layout.schema(), form, flow, condition).await.unwrap();
        let of = |filed: &StoredLetter| {
            assert_eq!(filed.letter.record_time_us, Some(5_000));
            assert_eq!(filed.source_table.as_deref(), Some("source"));
            let payload = filed.letter.payload.clone().unwrap();
            format!("{} {}", filed.position, String::from_utf8(payload).unwrap())
        };
        filed.iter().map(of).collect()
    }

    #[tokio::test]
    async fn letters_come_back_from_tables_and_from_records() {
        for form in [Form::Table, Form::Record] {
            let all = found(form, "f", None).await;
            assert_eq!(all, ["in[0]@1 bad 1", "in[0]@2 bad 2"], "{form:?}");
            for condition in ["`offset` > 1 AND topic = 'in'", "`Offset` > 1 AND TOPIC = 'in'"] {
                let second = found(form, "f", Some(condition)).await;
                assert_eq!(second, ["in[0]@2 bad 2"], "{form:?}");
            }
            assert_eq!(found(form, "other", None).await, [""; 0], "{form:?}");
        }
    }

    #[tokio::test]
    async fn a_condition_that_cannot_be_is_refused_with_the_columns() {
        let layout = Layout::new(None, Form::Table).unwrap();
        let rows = layout.rows(&groups(), Stamp { flow: "f", found_ms: 7 });
        let refused =
            stored_letters(rows, layout.schema(), Form::Table, "f", Some("nope = 1")).await;
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("nope") && text.contains("payload BINARY"), "{text}");
    }
    /// What a table finds that declares these columns.
    async fn declared(fields: &[(&str, DataType)], groups: &[Group]) -> Vec<StoredLetter> {
        let fields =
            fields.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let layout = Layout::new(Some(&schema), Form::Table).unwrap();
        let rows = layout.rows(groups, Stamp { flow: "f", found_ms: 7 });
        stored_letters(rows, layout.schema(), Form::Table, "f", None).await.unwrap()
    }

    #[tokio::test]
    async fn columns_may_be_declared_in_any_case() {
        let text = DataType::Utf8;
        let names = ["Payload", "POSITION", "Flow_Name", "Constraint_Name"];
        let fields = names.map(|name| (name, text.clone()));
        let found = declared(&fields, &groups()).await;
        let positions: Vec<_> = found.iter().map(|filed| filed.position.as_str()).collect();
        assert_eq!(positions, ["in[0]@1", "in[0]@2"], "not that of the constraint");
    }

    #[tokio::test]
    async fn a_text_that_stands_for_other_bytes_is_not_the_record() {
        let mut groups = groups();
        groups[0].letters[1].payload = Some(b"\xff\xfe".to_vec());
        for (data_type, whole) in [(DataType::Utf8, [true, false]), (DataType::Binary, [true; 2])] {
            let fields = [("payload", data_type), ("position", DataType::Utf8)];
            let found = declared(&fields, &groups[..1]).await;
            assert_eq!(found.iter().map(|filed| filed.is_whole).collect::<Vec<_>>(), whole);
        }
    }

    #[tokio::test]
    async fn a_record_whose_payload_was_cut_is_not_the_record() {
        let layout = Layout::new(None, Form::Record).unwrap().with_bytes_max(Some(1_500));
        let mut groups = groups();
        groups[0].letters[0].payload = Some(vec![b'x'; 3_000]);
        let rows = layout.rows(&groups[..1], Stamp { flow: "f", found_ms: 7 });
        let found = stored_letters(rows, layout.schema(), Form::Record, "f", None).await.unwrap();
        assert_eq!(found.iter().map(|filed| filed.is_whole).collect::<Vec<_>>(), [false, true]);
    }
}
