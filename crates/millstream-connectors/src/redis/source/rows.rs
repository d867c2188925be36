//! Entries as columns: `_id` and `_key`, and a field of the entry for every other column.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use millstream_engine::api::connector::Table;
use millstream_engine::api::dead_letter::{Letter, Place};
use millstream_engine::api::error::ArrowBug;
use millstream_engine::api::options::OptionError;
use millstream_engine::api::source::{
    Failure, RecordBatches, Records, SourcePartition, Split, Traced,
};
use millstream_sql::json::ParseMode;
use millstream_sql::types::spark_type;

use super::offsets::Id;
use crate::redis::error::RedisProblem;

/// The column with an entry's id.
const ID: &str = "_id";
/// The column with the name of its stream.
const KEY: &str = "_key";
/// Rows of one record batch.
const RECORD_BATCH_ROWS: usize = 8_192;

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: Id,
    /// How many entries were added to the stream up to this one.
    pub(super) rank: u64,
    /// Names and values, in the entry's order.
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// Bytes that it holds, about.
    pub(super) fn bytes(&self) -> usize {
        let field = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len() + 64;
        64 + self.fields.iter().map(field).sum::<usize>()
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().rev().find(|(field, _)| field == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }
}

/// The columns of a table.
pub(super) fn columns(table: &Table) -> Result<SchemaRef, OptionError> {
    let Some(columns) = &table.columns else {
        let help = "declare the fields of the entries, for example (_id STRING, price DOUBLE)";
        return Err(OptionError::table("the columns must be declared", Some(help.to_owned())));
    };
    for field in columns.fields() {
        let wanted = match (field.name().as_str(), field.data_type()) {
            (ID | KEY, DataType::Utf8) => continue,
            (ID | KEY, _) => "is a STRING",
            (_, data_type) if data_type.is_nested() => {
                "is a text in Redis: declare a STRING, and write from_json in the query"
            }
            _ => continue,
        };
        let problem = format!("column {} {}", field.name(), spark_type(field.data_type()));
        return Err(OptionError::table(problem, Some(format!("{} {wanted}", field.name()))));
    }
    // A field that an entry lacks is NULL.
    let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
    Ok(Arc::new(Schema::new(columns.fields().iter().map(nullable).collect::<Vec<_>>())))
}

/// How entries become rows.
pub(super) struct Rows {
    pub(super) schema: SchemaRef,
    pub(super) mode: ParseMode,
}

impl Rows {
    fn decode(
        &self,
        key: &str,
        entries: &[Entry],
        projection: &[usize],
    ) -> Result<RecordBatch, Failure> {
        let schema = Arc::new(self.schema.project(projection).map_err(ArrowBug)?);
        let column = |field: &FieldRef| self.column(field, key, entries);
        let columns = schema.fields().iter().map(column).collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(entries.len()));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options).map_err(ArrowBug)?)
    }

    fn column(&self, field: &FieldRef, key: &str, entries: &[Entry]) -> Result<ArrayRef, Failure> {
        let name = field.name().as_str();
        if name == ID {
            let ids = entries.iter().map(|entry| entry.id.to_string());
            return Ok(Arc::new(StringArray::from_iter_values(ids)));
        }
        if name == KEY {
            return Ok(Arc::new(StringArray::from_iter_values(entries.iter().map(|_| key))));
        }
        let values = entries.iter().map(|entry| entry.field(name));
        if *field.data_type() == DataType::Binary {
            return Ok(Arc::new(values.collect::<BinaryArray>()));
        }
        let column = typed(values, field.data_type())?;
        if self.mode != ParseMode::Permissive {
            let is_malformed =
                |row: &usize| entries[*row].field(name).is_some() && column.is_null(*row);
            if let Some(row) = (0..entries.len()).find(is_malformed) {
                let (stream, id) = (key.to_owned(), entries[row].id.to_string());
                let (field, wanted) = (name.to_owned(), spark_type(field.data_type()).to_string());
                return Err(RedisProblem::Malformed { stream, id, field, wanted }.into());
            }
        }
        Ok(column)
    }
}

/// Texts of Redis as a column; NULL where there is none, or one that does not read as the type.
pub(in crate::redis) fn typed<'a>(
    values: impl Iterator<Item = Option<&'a [u8]>>,
    data_type: &DataType,
) -> Result<ArrayRef, Failure> {
    // Bytes that are no text are malformed, whatever the column's type.
    let texts = values.map(|value| value.and_then(|bytes| std::str::from_utf8(bytes).ok()));
    let texts: StringArray = texts.collect();
    let options = CastOptions { safe: true, ..CastOptions::default() };
    Ok(cast_with_options(&texts, data_type, &options).map_err(ArrowBug)?)
}

/// Entries of one stream.
#[derive(Clone)]
pub(super) struct EntrySplit {
    pub(super) rows: Arc<Rows>,
    /// The stream's place among those of the table.
    pub(super) stream: usize,
    /// Its key.
    pub(super) key: String,
    pub(super) entries: Vec<Entry>,
}

impl Split for EntrySplit {
    fn rows(&self) -> u64 {
        self.entries.len() as u64
    }

    fn partition(&self) -> Option<SourcePartition> {
        Some(self.stream as u64)
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let projection = projection.to_vec();
        let chunks = (0..self.entries.len()).step_by(RECORD_BATCH_ROWS);
        Box::new(chunks.map(move |start| {
            let end = self.entries.len().min(start + RECORD_BATCH_ROWS);
            self.rows.decode(&self.key, &self.entries[start..end], &projection)
        }))
    }

    fn records(&self) -> Vec<Arc<dyn Records>> {
        vec![Arc::new(self.clone())]
    }
}

impl Records for EntrySplit {
    fn partition(&self) -> Option<SourcePartition> {
        Split::partition(self)
    }

    fn read(&self, projection: &[usize], _: bool) -> Result<Vec<Traced>, Failure> {
        Traced::all_in_order(Split::read(Box::new(self.clone()), projection), 0)
    }

    fn letter(&self, number: u64) -> Result<Letter, Failure> {
        let of = format!("redis stream {}", self.key);
        let entry = usize::try_from(number).ok().and_then(|number| self.entries.get(number));
        let place =
            entry.map(|entry| Place::Entry { of: of.into(), id: entry.id.to_string().into() });
        Ok(Letter { place, ..Letter::default() })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn the_place_of_an_entry_has_its_id() {
        let entry = |id: &str| Entry { id: id.parse().unwrap(), rank: 0, fields: Vec::new() };
        let rows = Rows { schema: Arc::new(Schema::empty()), mode: ParseMode::Permissive };
        let entries = vec![entry("7-0"), entry("7-1")];
        let split = EntrySplit { rows: Arc::new(rows), stream: 0, key: "s".to_owned(), entries };
        let place = split.letter(1).unwrap().place.map(|place| place.to_string());
        assert_eq!(place.as_deref(), Some("redis stream s#7-1"));
    }

    #[test]
    fn bytes_that_are_no_text_are_malformed() {
        let schema = Arc::new(Schema::new(vec![Field::new("name", DataType::Utf8, true)]));
        let entry = |value: &[u8]| {
            let fields = vec![(b"name".to_vec(), value.to_vec())];
            Entry { id: Id::default(), rank: 0, fields }
        };
        let entries = [entry(b"x"), entry(b"\xff")];
        let rows = |mode| Rows { schema: Arc::clone(&schema), mode };
        let read = rows(ParseMode::Permissive).decode("s", &entries, &[0]).unwrap();
        let names: Vec<Option<&str>> = read.column(0).as_string::<i32>().iter().collect();
        assert_eq!(names, [Some("x"), None]);
        let refused = rows(ParseMode::FailFast).decode("s", &entries, &[0]).unwrap_err();
        let text = "entry 0-0 of the stream 's': the field 'name' is not a STRING";
        assert_eq!(refused.to_string(), text);
    }
}
