//! Columns under construction that can be cut back to a row.
//!
//! Arrow's own builders only grow. Here a record is appended field by field while it is decoded,
//! and when it turns out malformed in the middle, [`Column::truncate`] takes all of it away again,
//! whatever was appended where.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, ListArray, MapArray, NullBufferBuilder,
    PrimitiveArray, StringArray, StructArray, UInt32Array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, FieldRef, Fields, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};

/// A column of any type that a record can have.
pub enum Column {
    /// BOOLEAN.
    Boolean(Flat<bool>),
    /// TINYINT.
    Int8(Flat<i8>),
    /// SMALLINT.
    Int16(Flat<i16>),
    /// INT.
    Int32(Flat<i32>),
    /// BIGINT.
    Int64(Flat<i64>),
    /// FLOAT.
    Float32(Flat<f32>),
    /// DOUBLE.
    Float64(Flat<f64>),
    /// DATE: days since the epoch.
    Date(Flat<i32>),
    /// TIMESTAMP or, without a zone, TIMESTAMP_NTZ: microseconds since the epoch.
    Timestamp(Flat<i64>, Option<Arc<str>>),
    /// DECIMAL: the unscaled value, precision and scale.
    Decimal(Flat<i128>, u8, i8),
    /// STRING. What is appended must be UTF-8.
    Text(Bytes),
    /// BINARY.
    Binary(Bytes),
    /// ARRAY.
    List(Box<List>),
    /// MAP.
    Map(Box<Map>),
    /// STRUCT.
    Struct(Box<Struct>),
}

impl Column {
    /// An empty column.
    ///
    /// # Errors
    /// The type, or the part of it, that no record has.
    pub fn new(data_type: &DataType) -> Result<Self, DataType> {
        Ok(match data_type {
            DataType::Boolean => Self::Boolean(Flat::default()),
            DataType::Int8 => Self::Int8(Flat::default()),
            DataType::Int16 => Self::Int16(Flat::default()),
            DataType::Int32 => Self::Int32(Flat::default()),
            DataType::Int64 => Self::Int64(Flat::default()),
            DataType::Float32 => Self::Float32(Flat::default()),
            DataType::Float64 => Self::Float64(Flat::default()),
            DataType::Date32 => Self::Date(Flat::default()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                Self::Timestamp(Flat::default(), zone.clone())
            }
            DataType::Decimal128(precision, scale) => {
                Self::Decimal(Flat::default(), *precision, *scale)
            }
            DataType::Utf8 => Self::Text(Bytes::default()),
            DataType::Binary => Self::Binary(Bytes::default()),
            DataType::List(item) => Self::List(Box::new(List {
                items: Self::new(item.data_type())?,
                item: Arc::clone(item),
                bounds: Bounds::default(),
            })),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(fields) => Self::Map(Box::new(Map {
                    keys: Self::new(fields[0].data_type())?,
                    values: Self::new(fields[1].data_type())?,
                    entries: Arc::clone(entries),
                    bounds: Bounds::default(),
                    has_repeats: false,
                })),
                _ => return Err(data_type.clone()),
            },
            DataType::Struct(fields) => {
                let columns = fields.iter().map(|field| Self::new(field.data_type()));
                Self::Struct(Box::new(Struct {
                    fields: fields.clone(),
                    columns: columns.collect::<Result<_, _>>()?,
                    validity: Validity::default(),
                }))
            }
            other => return Err(other.clone()),
        })
    }

    /// Rows so far.
    pub fn len(&self) -> usize {
        match self {
            Self::Boolean(flat) => flat.len(),
            Self::Int8(flat) => flat.len(),
            Self::Int16(flat) => flat.len(),
            Self::Int32(flat) | Self::Date(flat) => flat.len(),
            Self::Int64(flat) | Self::Timestamp(flat, _) => flat.len(),
            Self::Float32(flat) => flat.len(),
            Self::Float64(flat) => flat.len(),
            Self::Decimal(flat, ..) => flat.len(),
            Self::Text(bytes) | Self::Binary(bytes) => bytes.len(),
            Self::List(list) => list.bounds.len(),
            Self::Map(map) => map.bounds.len(),
            Self::Struct(structs) => structs.len(),
        }
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a null.
    pub fn append_null(&mut self) {
        match self {
            Self::Boolean(flat) => flat.append_null(),
            Self::Int8(flat) => flat.append_null(),
            Self::Int16(flat) => flat.append_null(),
            Self::Int32(flat) | Self::Date(flat) => flat.append_null(),
            Self::Int64(flat) | Self::Timestamp(flat, _) => flat.append_null(),
            Self::Float32(flat) => flat.append_null(),
            Self::Float64(flat) => flat.append_null(),
            Self::Decimal(flat, ..) => flat.append_null(),
            Self::Text(bytes) | Self::Binary(bytes) => bytes.append_null(),
            Self::List(list) => list.close(false),
            Self::Map(map) => map.close(false),
            Self::Struct(structs) => structs.append_null(),
        }
    }

    /// Takes away all rows but the first `rows`, with whatever was begun after them.
    pub fn truncate(&mut self, rows: usize) {
        match self {
            Self::Boolean(flat) => flat.truncate(rows),
            Self::Int8(flat) => flat.truncate(rows),
            Self::Int16(flat) => flat.truncate(rows),
            Self::Int32(flat) | Self::Date(flat) => flat.truncate(rows),
            Self::Int64(flat) | Self::Timestamp(flat, _) => flat.truncate(rows),
            Self::Float32(flat) => flat.truncate(rows),
            Self::Float64(flat) => flat.truncate(rows),
            Self::Decimal(flat, ..) => flat.truncate(rows),
            Self::Text(bytes) | Self::Binary(bytes) => bytes.truncate(rows),
            Self::List(list) => {
                list.bounds.truncate(rows);
                list.items.truncate(list.bounds.end());
            }
            Self::Map(map) => {
                map.bounds.truncate(rows);
                map.keys.truncate(map.bounds.end());
                map.values.truncate(map.bounds.end());
            }
            Self::Struct(structs) => {
                structs.columns.iter_mut().for_each(|column| column.truncate(rows));
                structs.validity.truncate(rows);
            }
        }
    }

    /// The column built so far; the next one starts empty.
    pub fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Boolean(flat) => {
                let (values, nulls) = flat.finish();
                Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls))
            }
            Self::Int8(flat) => Arc::new(primitive::<Int8Type>(flat)),
            Self::Int16(flat) => Arc::new(primitive::<Int16Type>(flat)),
            Self::Int32(flat) => Arc::new(primitive::<Int32Type>(flat)),
            Self::Int64(flat) => Arc::new(primitive::<Int64Type>(flat)),
            Self::Float32(flat) => Arc::new(primitive::<Float32Type>(flat)),
            Self::Float64(flat) => Arc::new(primitive::<Float64Type>(flat)),
            Self::Date(flat) => Arc::new(primitive::<Date32Type>(flat)),
            Self::Timestamp(flat, zone) => {
                let array = primitive::<TimestampMicrosecondType>(flat);
                Arc::new(array.with_timezone_opt(zone.clone()))
            }
            Self::Decimal(flat, precision, scale) => {
                let array = primitive::<Decimal128Type>(flat);
                let data_type = DataType::Decimal128(*precision, *scale);
                Arc::new(array.with_data_type(data_type))
            }
            Self::Text(bytes) => {
                let (offsets, bytes, nulls) = bytes.finish();
                Arc::new(StringArray::new(offsets, bytes.into(), nulls))
            }
            Self::Binary(bytes) => {
                let (offsets, bytes, nulls) = bytes.finish();
                Arc::new(BinaryArray::new(offsets, bytes.into(), nulls))
            }
            Self::List(list) => {
                let (offsets, nulls) = list.bounds.finish();
                let items = list.items.finish();
                Arc::new(ListArray::new(Arc::clone(&list.item), offsets, items, nulls))
            }
            Self::Map(map) => map.finish(),
            Self::Struct(structs) => structs.finish(),
        }
    }
}

fn primitive<T: ArrowPrimitiveType>(flat: &mut Flat<T::Native>) -> PrimitiveArray<T> {
    let (values, nulls) = flat.finish();
    PrimitiveArray::new(values.into(), nulls)
}

/// Values up to which each is compared with each.
const FEW: usize = 16;

/// The entries that stay where of each key in a row the last one does, and the rows' new bounds.
fn last_of_each(
    keys: &StringArray,
    offsets: &OffsetBuffer<i32>,
) -> (UInt32Array, OffsetBuffer<i32>) {
    let mut kept: Vec<u32> = Vec::with_capacity(keys.len());
    let mut lengths = Vec::with_capacity(offsets.len());
    for bounds in offsets.windows(2) {
        let start = kept.len();
        let mut known = HashSet::new();
        let row = (bounds[0]..bounds[1]).rev();
        kept.extend(row.filter(|at| known.insert(keys.value(*at as usize))).map(|at| at as u32));
        kept[start..].reverse();
        lengths.push(kept.len() - start);
    }
    (kept.into(), OffsetBuffer::from_lengths(lengths))
}

/// Which rows are not null. Costs nothing while none is.
#[derive(Default)]
pub struct Validity {
    rows: usize,
    nulls: Option<NullBufferBuilder>,
}

impl Validity {
    /// Appends a row.
    #[inline]
    pub fn append(&mut self, is_valid: bool) {
        if !is_valid && self.nulls.is_none() {
            let mut nulls = NullBufferBuilder::new(self.rows + 1);
            nulls.append_n_non_nulls(self.rows);
            self.nulls = Some(nulls);
        }
        if let Some(nulls) = &mut self.nulls {
            nulls.append(is_valid);
        }
        self.rows += 1;
    }

    fn truncate(&mut self, rows: usize) {
        if let Some(nulls) = &mut self.nulls {
            nulls.truncate(rows);
        }
        self.rows = self.rows.min(rows);
    }

    fn finish(&mut self) -> Option<NullBuffer> {
        self.rows = 0;
        self.nulls.take().and_then(|mut nulls| nulls.finish())
    }
}

/// Values of a fixed size.
pub struct Flat<T> {
    values: Vec<T>,
    validity: Validity,
}

impl<T> Default for Flat<T> {
    fn default() -> Self {
        Self { values: Vec::new(), validity: Validity::default() }
    }
}

impl<T: Copy + Default> Flat<T> {
    fn len(&self) -> usize {
        self.values.len()
    }

    /// Appends a value.
    #[inline]
    pub fn append(&mut self, value: T) {
        self.values.push(value);
        self.validity.append(true);
    }

    /// Appends a null.
    #[inline]
    pub fn append_null(&mut self) {
        self.values.push(T::default());
        self.validity.append(false);
    }

    fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
        self.validity.truncate(rows);
    }

    fn finish(&mut self) -> (Vec<T>, Option<NullBuffer>) {
        let next = Vec::with_capacity(self.values.len());
        (std::mem::replace(&mut self.values, next), self.validity.finish())
    }
}

/// Values of any length.
#[derive(Default)]
pub struct Bytes {
    bytes: Vec<u8>,
    bounds: Bounds,
}

impl Bytes {
    fn len(&self) -> usize {
        self.bounds.len()
    }

    /// Appends a value.
    #[inline]
    pub fn append(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.bounds.close(self.bytes.len(), true);
    }

    /// Appends a null.
    pub fn append_null(&mut self) {
        self.bounds.close(self.bytes.len(), false);
    }

    fn value(&self, row: usize) -> &[u8] {
        &self.bytes[self.bounds.offsets[row] as usize..self.bounds.offsets[row + 1] as usize]
    }

    /// Whether two values from row `from` on are the same.
    fn has_repeats(&self, from: usize) -> bool {
        let rows = from..self.len();
        if rows.len() <= FEW {
            return rows.clone().any(|row| (from..row).any(|at| self.value(at) == self.value(row)));
        }
        let mut known = HashSet::with_capacity(rows.len());
        !rows.clone().all(|row| known.insert(self.value(row)))
    }

    fn truncate(&mut self, rows: usize) {
        self.bounds.truncate(rows);
        self.bytes.truncate(self.bounds.end());
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Vec<u8>, Option<NullBuffer>) {
        let (offsets, nulls) = self.bounds.finish();
        let next = Vec::with_capacity(self.bytes.len());
        (offsets, std::mem::replace(&mut self.bytes, next), nulls)
    }
}

/// Where each value of a variable length ends.
pub struct Bounds {
    offsets: Vec<i32>,
    validity: Validity,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { offsets: vec![0], validity: Validity::default() }
    }
}

impl Bounds {
    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn end(&self) -> usize {
        self.offsets[self.offsets.len() - 1] as usize
    }

    #[inline]
    fn close(&mut self, end: usize, is_valid: bool) {
        let end = i32::try_from(end).expect("records are decoded in chunks far below 2 GiB");
        self.offsets.push(end);
        self.validity.append(is_valid);
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.validity.truncate(rows);
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
        let mut next = Vec::with_capacity(self.offsets.len());
        next.push(0);
        let offsets = std::mem::replace(&mut self.offsets, next);
        (OffsetBuffer::new(ScalarBuffer::from(offsets)), self.validity.finish())
    }
}

/// Arrays. The items of a row are appended to [`items`](Self::items), then [`close`](Self::close)
/// ends it.
pub struct List {
    item: FieldRef,
    /// The items of all rows.
    pub items: Column,
    bounds: Bounds,
}

impl List {
    /// Ends a row at the items appended so far.
    pub fn close(&mut self, is_valid: bool) {
        self.bounds.close(self.items.len(), is_valid);
    }
}

/// Maps. The entries of a row are appended to [`keys`](Self::keys) and [`values`](Self::values),
/// then [`close`](Self::close) ends it.
pub struct Map {
    entries: FieldRef,
    /// The keys of all rows.
    pub keys: Column,
    /// The values of all rows.
    pub values: Column,
    bounds: Bounds,
    /// Whether the same key may be in a row twice.
    has_repeats: bool,
}

impl Map {
    /// Ends a row at the entries appended so far.
    pub fn close(&mut self, is_valid: bool) {
        self.bounds.close(self.keys.len(), is_valid);
    }

    /// The same, where keys are texts that may be there twice: the last entry of a key stays.
    pub fn close_distinct(&mut self) {
        if let Column::Text(keys) = &self.keys {
            self.has_repeats |= keys.has_repeats(self.bounds.end());
        }
        self.close(true);
    }

    fn finish(&mut self) -> ArrayRef {
        let (mut offsets, nulls) = self.bounds.finish();
        let mut columns = vec![self.keys.finish(), self.values.finish()];
        if std::mem::take(&mut self.has_repeats) {
            let (kept, bounds) = last_of_each(columns[0].as_string(), &offsets);
            let take = |column: &ArrayRef| arrow::compute::take(column, &kept, None);
            columns = columns.iter().map(take).collect::<Result<_, _>>().expect("within bounds");
            offsets = bounds;
        }
        let DataType::Struct(fields) = self.entries.data_type() else {
            unreachable!("checked when the column was made")
        };
        let entries = StructArray::new(fields.clone(), columns, None);
        Arc::new(MapArray::new(Arc::clone(&self.entries), offsets, entries, nulls, false))
    }
}

/// Structs. A value is appended to each of [`columns`](Self::columns), then [`close`](Self::close)
/// ends the row.
pub struct Struct {
    fields: Fields,
    /// The fields of all rows.
    pub columns: Vec<Column>,
    validity: Validity,
}

impl Struct {
    /// Rows so far.
    pub fn len(&self) -> usize {
        self.validity.rows
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends a row, each field of which has its value.
    pub fn close(&mut self) {
        self.validity.append(true);
    }

    /// Appends a null.
    pub fn append_null(&mut self) {
        self.columns.iter_mut().for_each(Column::append_null);
        self.validity.append(false);
    }

    fn finish(&mut self) -> ArrayRef {
        let columns = self.columns.iter_mut().map(Column::finish).collect();
        // A struct may have no fields, so that only the validity knows how many rows there are.
        let rows = self.validity.rows;
        let nulls = self.validity.finish();
        let array = StructArray::try_new_with_length(self.fields.clone(), columns, nulls, rows);
        Arc::new(array.expect("every row has a value in every field"))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::Field;

    use super::*;

    fn column() -> Column {
        let item = Arc::new(Field::new("element", DataType::Utf8, true));
        let fields = vec![
            Field::new("id", DataType::Int64, true),
            Field::new("tags", DataType::List(item), true),
        ];
        Column::new(&DataType::Struct(fields.into())).unwrap()
    }

    fn append(column: &mut Column, id: Option<i64>, tags: &[&str]) {
        let Column::Struct(row) = column else { panic!("a struct") };
        let [Column::Int64(ids), Column::List(list)] = row.columns.as_mut_slice() else {
            panic!("two fields")
        };
        match id {
            Some(id) => ids.append(id),
            None => ids.append_null(),
        }
        let Column::Text(texts) = &mut list.items else { panic!("texts") };
        tags.iter().for_each(|tag| texts.append(tag.as_bytes()));
        list.close(true);
        row.close();
    }

    #[test]
    fn what_was_begun_after_a_row_is_taken_away() {
        let mut column = column();
        append(&mut column, Some(1), &["a", "b"]);
        append(&mut column, None, &["c"]);
        // A third row that ends in the middle of its list.
        let Column::Struct(row) = &mut column else { panic!("a struct") };
        let Column::Int64(ids) = &mut row.columns[0] else { panic!("numbers") };
        ids.append(3);
        let Column::List(list) = &mut row.columns[1] else { panic!("a list") };
        let Column::Text(texts) = &mut list.items else { panic!("texts") };
        texts.append(b"lost");
        column.truncate(2);
        append(&mut column, Some(4), &["d"]);

        let array = column.finish();
        let rows = array.as_struct();
        let ids: Vec<_> = rows.column(0).as_primitive::<Int64Type>().iter().collect();
        assert_eq!(ids, [Some(1), None, Some(4)]);
        let tags = rows.column(1).as_list::<i32>();
        assert_eq!(tags.value_offsets(), [0, 2, 3, 4]);
        let texts: Vec<_> = tags.values().as_string::<i32>().iter().flatten().collect();
        assert_eq!(texts, ["a", "b", "c", "d"]);
        assert!(column.is_empty());
    }

    #[test]
    fn nulls_that_were_taken_away_leave_a_row_as_it_is() {
        let mut column = column();
        append(&mut column, Some(1), &[]);
        column.append_null();
        column.truncate(1);
        append(&mut column, Some(2), &["x"]);
        let array = column.finish();
        assert_eq!((array.len(), array.null_count()), (2, 0));
        assert_eq!(array.as_struct().column(0).null_count(), 0);
    }
}
