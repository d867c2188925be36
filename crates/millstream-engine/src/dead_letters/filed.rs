//! Letters read back from their table.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch, StringArray};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, SchemaRef, TimeUnit, TimestampMicrosecondType};
use datafusion::datasource::MemTable;
use thiserror::Error;

use super::layout::{Form, Group, Layout, OWN_HEADER_PREFIX, Stamp};
use super::letter::{Letter, Place};
use crate::functions::{self, BatchClock};
use crate::plan::session::streaming_config;
use crate::plan::stream_scan::from_datafusion;
use crate::source::{Classified, Failure, Kind};

/// A letter as it stands in its table.
#[derive(Clone, Debug)]
pub struct Filed {
    /// The table whose record it is, if the dead-letter table says so.
    pub source_table: Option<String>,
    /// Where the record was read: what tells it from others of the same source.
    pub position: String,
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
}

impl Classified for FiledError {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

/// The letters of `flow` among `rows`, which are all of a dead-letter table, that decoding
/// rejected and for which `condition` holds.
pub async fn filed(
    rows: Vec<RecordBatch>,
    schema: &SchemaRef,
    form: Form,
    flow: &str,
    condition: Option<&str>,
) -> Result<Vec<Filed>, Failure> {
    let (schema, rows) = match form {
        Form::Table => (Arc::clone(schema), rows),
        Form::Record => from_records(&rows)?,
    };
    for column in ["payload", "position"] {
        if schema.column_with_name(column).is_none() {
            return Err(FiledError::NoColumn { column }.into());
        }
    }
    let has = |column: &str| schema.column_with_name(column).is_some();
    let mut conditions = vec!["position IS NOT NULL".to_owned()];
    if has("constraint_name") {
        conditions.push("constraint_name IS NULL".to_owned());
    }
    if has("flow_name") {
        conditions.push(format!("flow_name = '{}'", flow.replace('\'', "''")));
    }
    conditions.extend(condition.map(|condition| format!("({condition})")));
    let wrong = |problem: String| FiledError::Condition {
        problem,
        columns: crate::sql::spark_schema(&schema),
    };
    let context = functions::session(streaming_config(), &BatchClock::default());
    let table = MemTable::try_new(Arc::clone(&schema), vec![rows]).map_err(from_datafusion)?;
    context.register_table("letters", Arc::new(table)).map_err(from_datafusion)?;
    let sql = format!("SELECT * FROM letters WHERE {}", conditions.join(" AND "));
    let chosen = context.sql(&sql).await.map_err(|error| wrong(error.message().into_owned()))?;
    let chosen = chosen.collect().await.map_err(|error| wrong(error.message().into_owned()))?;
    let mut filed = Vec::new();
    for rows in &chosen {
        of_rows(rows, &mut filed)?;
    }
    Ok(filed)
}

fn column(rows: &RecordBatch, name: &str, wanted: &DataType) -> Result<Option<ArrayRef>, Failure> {
    let Some(column) = rows.column_by_name(name) else { return Ok(None) };
    let cast = cast(column, wanted).map_err(|error| Failure::new(Kind::Data, error))?;
    Ok(Some(cast))
}

fn of_rows(rows: &RecordBatch, filed: &mut Vec<Filed>) -> Result<(), Failure> {
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
        filed.push(Filed {
            source_table: text_at(&source, row),
            position: text_at(&position, row).unwrap_or_default(),
            letter: Letter { payload, key, record_time_us, ..Letter::default() },
        });
    }
    Ok(())
}

/// Records of a dead-letter topic as rows of a dead-letter table.
fn from_records(rows: &[RecordBatch]) -> Result<(SchemaRef, Vec<RecordBatch>), Failure> {
    let layout = Layout::new(None, Form::Table).expect("nothing is declared");
    let mut tables = Vec::new();
    for rows in rows {
        let (key, value) = (column(rows, "key", &DataType::Binary)?, &rows["value"]);
        let headers = rows["headers"].as_list::<i32>();
        for row in 0..rows.num_rows() {
            let bytes = |column: &ArrayRef| {
                let column: &BinaryArray = column.as_binary();
                column.is_valid(row).then(|| column.value(row).to_vec())
            };
            let known = headers.is_valid(row).then(|| headers.value(row));
            let (own, attributes) = known.map(|known| sorted(&known)).unwrap_or_default();
            let own = |name: &str| {
                own.iter().find(|(known, _)| known == name).map(|(_, text)| text.clone())
            };
            let time = |name: &str| {
                let text = own(name)?;
                chrono::DateTime::parse_from_rfc3339(&text).ok().map(|time| time.timestamp_micros())
            };
            let letter = Letter {
                payload: bytes(value),
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
            tables.push(layout.rows(&[group], Stamp { flow: &flow, found_ms }));
        }
    }
    let schema = Arc::clone(layout.schema());
    let all = concat_batches(&schema, &tables).map_err(|error| Failure::new(Kind::Bug, error))?;
    Ok((schema, vec![all]))
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
        let filed = filed(vec![rows], layout.schema(), form, flow, condition).await.unwrap();
        let of = |filed: &Filed| {
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
            let second = found(form, "f", Some("`offset` > 1 AND topic = 'in'")).await;
            assert_eq!(second, ["in[0]@2 bad 2"], "{form:?}");
            assert_eq!(found(form, "other", None).await, [""; 0], "{form:?}");
        }
    }

    #[tokio::test]
    async fn a_condition_that_cannot_be_is_refused_with_the_columns() {
        let layout = Layout::new(None, Form::Table).unwrap();
        let rows = layout.rows(&groups(), Stamp { flow: "f", found_ms: 7 });
        let refused = filed(vec![rows], layout.schema(), Form::Table, "f", Some("nope = 1")).await;
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("nope") && text.contains("payload BINARY"), "{text}");
    }
}
