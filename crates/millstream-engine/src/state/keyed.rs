//! Rows by key, the last one of each key: state that is read and replaced key by key.
//!
//! Rows stay in the record batches in which they came; an index says where each key's row is. Rows
//! that were replaced or removed are dropped once they outnumber the others. Keys are in arrow's
//! row format: bytes that are equal where the keys are.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::{DataType, Float32Type, Float64Type, SchemaRef};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::Result;

/// Fewer rows than this are not worth tidying.
const TIDY_ROWS_MIN: usize = 4_096;

/// The most rows that are gathered in one record batch: the offsets of a column of texts have 32
/// bits, so all rows together might not fit.
pub const ROWS_TOGETHER: usize = 65_536;

/// A key's bytes.
pub type Key = Box<[u8]>;

/// Where a row is: its record batch, and its place there.
pub type Place = (usize, usize);

/// Turns key columns into keys.
pub struct KeyFormat(Option<RowConverter>);

/// A key column in which -0.0 is 0.0 and every NaN has the same bits: Spark takes them for equal,
/// and keys are compared as bytes.
pub fn as_key(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float32 => {
            let key = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(key))
        }
        DataType::Float64 => {
            let key = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
            Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(key))
        }
        _ => Arc::clone(column),
    }
}

/// The keys of some rows.
pub struct Keys {
    rows: Option<Rows>,
    count: usize,
}

impl KeyFormat {
    /// For key columns of the types in `schema`.
    pub fn new(schema: &SchemaRef) -> Result<Self> {
        if schema.fields().is_empty() {
            return Ok(Self(None));
        }
        let field =
            |field: &Arc<arrow::datatypes::Field>| SortField::new(field.data_type().clone());
        Ok(Self(Some(RowConverter::new(schema.fields().iter().map(field).collect())?)))
    }

    /// The key columns of `keys`.
    pub fn columns<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        let Some(converter) = &self.0 else { return Ok(Vec::new()) };
        let parser = converter.parser();
        Ok(converter.convert_rows(keys.map(|key| parser.parse(key)))?)
    }

    /// The keys of `count` rows with these key columns.
    pub fn keys(&self, columns: &[ArrayRef], count: usize) -> Result<Keys> {
        let rows = self.0.as_ref().map(|converter| converter.convert_columns(columns));
        Ok(Keys { rows: rows.transpose()?, count })
    }
}

impl Keys {
    /// The key of the row at `place`.
    pub fn at(&self, place: usize) -> &[u8] {
        self.rows.as_ref().map_or(&[], |rows| rows.row(place).data())
    }

    /// All keys in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count).map(|place| self.at(place))
    }
}

/// See the module's head.
pub struct Keyed {
    schema: SchemaRef,
    record_batches: Vec<RecordBatch>,
    index: HashMap<Key, Place>,
    /// Rows in the record batches, replaced and removed ones included.
    stored: usize,
    /// Bytes of all keys.
    key_bytes: usize,
}

impl Keyed {
    /// No rows yet; they will have `schema`.
    pub fn new(schema: SchemaRef) -> Self {
        let (record_batches, index) = (Vec::new(), HashMap::new());
        Self { schema, record_batches, index, stored: 0, key_bytes: 0 }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Memory of the rows and their index, about, in bytes.
    pub fn bytes(&self) -> usize {
        let rows = self.record_batches.iter().map(RecordBatch::get_array_memory_size);
        let index = self.index.capacity() * (size_of::<(Key, Place)>() + 1);
        rows.sum::<usize>() + index + self.key_bytes
    }

    /// The rows of those of `keys` that are there, with the place of each in `keys`.
    pub fn rows_of<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(RecordBatch, Vec<usize>)> {
        let found = keys.enumerate();
        let found = found.filter_map(|(at, key)| Some((at, *self.index.get(key)?)));
        let (at, places): (Vec<usize>, Vec<Place>) = found.unzip();
        Ok((self.gather(&places)?, at))
    }

    /// All rows, in the order in which they came.
    pub fn all(&self) -> Result<Vec<RecordBatch>> {
        let mut places: Vec<Place> = self.index.values().copied().collect();
        // The order of a hash table differs from run to run; output must not.
        places.sort_unstable();
        places.chunks(ROWS_TOGETHER).map(|places| self.gather(places)).collect()
    }

    fn gather(&self, places: &[Place]) -> Result<RecordBatch> {
        if places.is_empty() {
            Ok(RecordBatch::new_empty(Arc::clone(&self.schema)))
        } else {
            gather(places, |of| &self.record_batches[of])
        }
    }

    /// The bytes of a key, about.
    pub fn mean_key_bytes(&self) -> usize {
        self.key_bytes / self.index.len().max(1)
    }

    /// Puts a row for each of `keys`, which are different, in the place of the one there. Calls
    /// `new` with the places of keys that were not there.
    pub fn put(
        &mut self,
        keys: &Keys,
        rows: RecordBatch,
        mut new: impl FnMut(usize),
    ) -> Result<()> {
        let record_batch = self.record_batches.len();
        for (at, key) in keys.iter().enumerate() {
            let place = (record_batch, at);
            match self.index.get_mut(key) {
                Some(known) => *known = place,
                None => {
                    self.key_bytes += key.len();
                    self.index.insert(key.into(), place);
                    new(at);
                }
            }
        }
        self.stored += rows.num_rows();
        self.record_batches.push(rows);
        self.tidy_if_due()
    }

    /// Removes a key and its row; whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let removed = self.index.remove(key).is_some();
        if removed {
            self.key_bytes -= key.len();
        }
        removed
    }

    /// Drops rows that were replaced or removed, where they outnumber the others or are spread over
    /// too many record batches.
    fn tidy_if_due(&mut self) -> Result<()> {
        let dead = self.stored - self.index.len();
        // Many micro-batches of few rows: a record batch has a cost of its own, whatever its rows.
        let is_scattered = self.record_batches.len() > 64
            && self.stored / self.record_batches.len() < TIDY_ROWS_MIN / 8;
        if (dead <= self.index.len() || self.stored < TIDY_ROWS_MIN) && !is_scattered {
            return Ok(());
        }
        let mut places: Vec<(Place, &mut Place)> =
            self.index.values_mut().map(|place| (*place, place)).collect();
        // Rows keep their order, so `all` gives the same before and after.
        places.sort_unstable_by_key(|(place, _)| *place);
        let order: Vec<Place> = places.iter().map(|(place, _)| *place).collect();
        for (at, (_, place)) in places.into_iter().enumerate() {
            *place = (at / ROWS_TOGETHER, at % ROWS_TOGETHER);
        }
        let tidied = order.chunks(ROWS_TOGETHER).map(|places| self.gather(places));
        self.record_batches = tidied.collect::<Result<_>>()?;
        self.stored = order.len();
        Ok(())
    }
}

/// The rows at `places`, of which there is at least one, in record batches that `at` knows.
pub fn gather<'a>(places: &[Place], at: impl Fn(usize) -> &'a RecordBatch) -> Result<RecordBatch> {
    // Only the record batches asked for are interleaved: there may be many more.
    let mut asked: Vec<usize> = places.iter().map(|(of, _)| *of).collect();
    asked.sort_unstable();
    asked.dedup();
    let place = |(of, at): &Place| (asked.partition_point(|other| other < of), *at);
    let places: Vec<Place> = places.iter().map(place).collect();
    let asked: Vec<&RecordBatch> = asked.iter().map(|of| at(*of)).collect();
    Ok(interleave_record_batch(&asked, &places)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{Field, Int64Type, Schema};

    use super::*;

    fn schema() -> SchemaRef {
        let fields =
            [Field::new("k", DataType::Utf8, true), Field::new("v", DataType::Int64, true)];
        Arc::new(Schema::new(fields.to_vec()))
    }

    fn rows(rows: &[(&str, i64)]) -> RecordBatch {
        let keys = StringArray::from_iter_values(rows.iter().map(|(key, _)| key));
        let values = Int64Array::from_iter_values(rows.iter().map(|(_, value)| *value));
        RecordBatch::try_new(schema(), vec![Arc::new(keys), Arc::new(values)]).unwrap()
    }

    fn keys(format: &KeyFormat, rows: &RecordBatch) -> Keys {
        format.keys(&rows.columns()[..1], rows.num_rows()).unwrap()
    }

    fn values(rows: &RecordBatch) -> Vec<i64> {
        rows.column(1).as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn the_last_row_of_a_key_counts() {
        let key_schema = Arc::new(schema().project(&[0]).unwrap());
        let (format, mut keyed) = (KeyFormat::new(&key_schema).unwrap(), Keyed::new(schema()));
        let mut new = Vec::new();
        for some in [rows(&[("a", 1), ("b", 2)]), rows(&[("b", 20), ("c", 30)])] {
            keyed.put(&keys(&format, &some), some, |at| new.push(at)).unwrap();
        }
        assert_eq!((new, keyed.len()), (vec![0, 1, 1], 3));
        let asked = rows(&[("c", 0), ("x", 0), ("b", 0)]);
        let (found, at) = keyed.rows_of(keys(&format, &asked).iter()).unwrap();
        assert_eq!((values(&found), at), (vec![30, 20], vec![0, 2]));
        assert!(keyed.remove(keys(&format, &asked).at(2)) && !keyed.remove(b"x"));
        assert_eq!(values(&keyed.all().unwrap()[0]), [1, 30]);
    }

    #[test]
    fn what_was_replaced_does_not_stay_in_memory() {
        let key_schema = Arc::new(schema().project(&[0]).unwrap());
        let (format, mut keyed) = (KeyFormat::new(&key_schema).unwrap(), Keyed::new(schema()));
        let names: Vec<String> = (0..100).map(|key| format!("key{key}")).collect();
        let mut after_first = 0;
        for round in 0..500 {
            let of_round: Vec<_> = names.iter().map(|name| (name.as_str(), round)).collect();
            let some = rows(&of_round);
            keyed.put(&keys(&format, &some), some, |_| {}).unwrap();
            if round == 0 {
                after_first = keyed.bytes();
            }
        }
        assert!(keyed.bytes() < after_first * 100, "{} from {after_first}", keyed.bytes());
        assert_eq!(values(&keyed.all().unwrap()[0]), vec![499; 100]);
    }
}
