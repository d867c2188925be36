//! Partitioned tables: rows sorted by the values of their partition columns.
//!
//! Values are text in the log and in directory names (protocol, "Partition Value Serialization");
//! directories are called as Hive calls them, although no reader goes by that.

use std::collections::{BTreeMap, HashMap};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};

const NULL_DIRECTORY: &str = "__HIVE_DEFAULT_PARTITION__";

/// A partition column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Where it stands in the table's columns.
    pub(crate) index: usize,
    /// What the log calls it.
    pub(crate) physical_name: String,
}

/// The values of the partition columns, in their order; `None` for null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PartitionKey(Vec<Option<String>>);

impl PartitionKey {
    /// Of `values` by the columns' names in the log; one that is not there is null.
    pub(crate) fn of(values: &BTreeMap<String, String>, columns: &[Column]) -> Self {
        Self(columns.iter().map(|column| values.get(&column.physical_name).cloned()).collect())
    }

    pub(crate) fn values(&self, columns: &[Column]) -> Vec<(String, Option<String>)> {
        let names = columns.iter().map(|column| column.physical_name.clone());
        names.zip(self.0.iter().cloned()).collect()
    }

    /// The directory of its files, with a `/` at the end; empty without partition columns.
    pub(crate) fn directory(&self, columns: &[Column]) -> String {
        let mut directory = String::new();
        for (column, value) in columns.iter().zip(&self.0) {
            let value = value.as_deref().map_or(NULL_DIRECTORY.to_owned(), escaped);
            directory.push_str(&format!("{}={value}/", escaped(&column.physical_name)));
        }
        directory
    }
}

/// Characters that Hive writes as `%XX` in directory names.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\0'..='\x1f'
            | '\x7f'
            | '"'
            | '#'
            | '%'
            | '\''
            | '*'
            | '/'
            | ':'
            | '='
            | '?'
            | '\\'
            | '{'
            | '['
            | ']'
            | '^' => escaped.push_str(&format!("%{:02X}", character as u32)),
            character => escaped.push(character),
        }
    }
    escaped
}

/// The rows of each partition, in the order of each one's first row.
pub(crate) fn split(
    rows: &RecordBatch,
    columns: &[Column],
) -> Result<Vec<(PartitionKey, RecordBatch)>, String> {
    let texts = columns.iter().map(|column| text(rows.column(column.index)));
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    let mut order: Vec<(PartitionKey, Vec<u32>)> = Vec::new();
    let mut places: HashMap<PartitionKey, usize> = HashMap::new();
    let mut last: Option<usize> = None;
    for row in 0..rows.num_rows() {
        let value = |text: &StringArray| {
            // The protocol has no empty text: it reads as null.
            (text.is_valid(row) && !text.value(row).is_empty()).then(|| text.value(row).to_owned())
        };
        let same = last.filter(|place| {
            let PartitionKey(values) = &order[*place].0;
            values.iter().zip(&texts).all(|(found, text)| match found {
                Some(found) => text.is_valid(row) && text.value(row) == found,
                None => text.is_null(row) || text.value(row).is_empty(),
            })
        });
        let place = same.unwrap_or_else(|| {
            let key = PartitionKey(texts.iter().map(value).collect());
            *places.entry(key.clone()).or_insert_with(|| {
                order.push((key, Vec::new()));
                order.len() - 1
            })
        });
        order[place].1.push(u32::try_from(row).map_err(|error| error.to_string())?);
        last = Some(place);
    }
    if let [(_, only)] = &order[..]
        && only.len() == rows.num_rows()
    {
        let (key, _) = order.remove(0);
        return Ok(vec![(key, rows.clone())]);
    }
    let taken = order.into_iter().map(|(key, indices)| {
        let rows = take_record_batch(rows, &UInt32Array::from(indices));
        Ok((key, rows.map_err(|error| error.to_string())?))
    });
    taken.collect()
}

fn text(column: &ArrayRef) -> Result<StringArray, String> {
    if let DataType::Timestamp(TimeUnit::Microsecond, _) = column.data_type() {
        let moments = column.as_primitive::<TimestampMicrosecondType>();
        return Ok(moments.iter().map(|micros| micros.and_then(moment)).collect());
    }
    let text = cast(column, &DataType::Utf8).map_err(|error| error.to_string())?;
    Ok(text.as_string::<i32>().clone())
}

fn moment(micros: i64) -> Option<String> {
    let moment = chrono::DateTime::from_timestamp_micros(micros)?;
    Some(moment.format("%Y-%m-%d %H:%M:%S%.6f").to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, StringViewArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    #[test]
    fn rows_are_split_by_value() {
        let schema = Schema::new(vec![
            Field::new("day", DataType::Utf8View, true),
            Field::new("n", DataType::Int32, true),
        ]);
        let days = StringViewArray::from(vec![Some("a"), Some(""), Some("a"), None, Some("b/c")]);
        let rows = RecordBatch::try_new(
            Arc::new(schema),
            vec![Arc::new(days), Arc::new(Int32Array::from(vec![1, 2, 3, 4, 5]))],
        )
        .expect("two columns");
        let columns = vec![Column { index: 0, physical_name: "day".into() }];
        let parts = split(&rows, &columns).expect("they split");
        let shown = parts.iter().map(|(key, rows)| (key.directory(&columns), rows.num_rows()));
        let expected = [("day=a/", 2), (&format!("day={NULL_DIRECTORY}/"), 2), ("day=b%2Fc/", 1)];
        let expected = expected.map(|(directory, rows)| (directory.to_owned(), rows));
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        assert_eq!(parts[1].0.values(&columns), [("day".to_owned(), None)]);
    }
}
