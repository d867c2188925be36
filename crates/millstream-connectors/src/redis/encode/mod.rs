//! Rows as pieces: what one script writes, packed by MessagePack.
//!
//! A piece says all that is needed to write it, so that one that was staged by an earlier run is
//! applied as it was meant then, whatever the options are now:
//!
//! ```text
//! [model, seconds to live or false, columns of a row, [names of fields], [cells of all rows]]
//! ```
//!
//! Each row is its key and its cells, as bytes; NULL is `false`, which Lua can have in a table. All
//! lengths are written with 32 bits, so that one that is known later can be put in its place.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch, StringArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};
use millstream_engine::api::error::ArrowBug;
use millstream_engine::api::sink::{Failure, RefusedRow};
use millstream_sql::json::{self, EncodeOptions};

use super::error::RedisProblem;
use super::options::{Model, SinkOptions};

/// Rows of one piece: a script with so many takes a server a few milliseconds, in which nobody else
/// is served.
const ROWS_MAX: u32 = 1_000;
/// Bytes of one piece, about.
const BYTES_MAX: usize = 1 << 20;

const ARRAY_32: u8 = 0xdd;
const STRING_32: u8 = 0xdb;
const UNSIGNED_32: u8 = 0xce;
const FALSE: u8 = 0xc2;
/// An array of five.
const PIECE: u8 = 0x95;

/// Makes pieces of rows.
#[derive(Clone)]
pub(super) struct Encoder {
    options: Arc<SinkOptions>,
    schema: SchemaRef,
}

/// Cells of one column.
pub(super) enum Column {
    Text(StringArray),
    Bytes(BinaryArray),
}

impl Column {
    fn get(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Text(texts) => texts.is_valid(row).then(|| texts.value(row).as_bytes()),
            Self::Bytes(bytes) => bytes.is_valid(row).then(|| bytes.value(row)),
        }
    }
}

/// The cells of a record batch, key and values apart.
struct Cells {
    key: Vec<Column>,
    values: Vec<Column>,
}

impl Encoder {
    pub(super) fn new(options: Arc<SinkOptions>, schema: SchemaRef) -> Self {
        Self { options, schema }
    }

    /// Appends `rows` to the last of `pieces`, and begins others where that is full.
    ///
    /// # Errors
    /// A row that this table cannot hold, as one that the sink refuses.
    pub(super) fn encode(
        &self,
        rows: &RecordBatch,
        pieces: &mut Vec<PieceBuilder>,
    ) -> Result<(), Failure> {
        let cells = self.cells(rows)?;
        let mut key = Vec::new();
        for row in 0..rows.num_rows() {
            key.clear();
            if let Err(problem) = self.key(&cells, row, &mut key) {
                return Err(self.refused(problem, |cell| cell.key.is_none()));
            }
            if let Err(problem) = self.check_values(&cells, row) {
                return Err(self.refused(problem, |cell| cell.lacks_value));
            }
            if pieces.last().is_none_or(PieceBuilder::is_full) {
                pieces.push(self.piece());
            }
            let piece = pieces.last_mut().expect("one was pushed");
            piece.cell(Some(&key));
            cells.values.iter().for_each(|column| piece.cell(column.get(row)));
            piece.rows += 1;
        }
        Ok(())
    }

    /// The failure of a key that holds something else, as a row that the sink refuses.
    pub(super) fn wrong_type(&self, key: Vec<u8>, found: String) -> Failure {
        let problem = RedisProblem::WrongType {
            table: self.options.name.clone(),
            key: String::from_utf8_lossy(&key).into_owned(),
            found,
            wanted: self.options.model.stored(),
        };
        self.refused(problem, move |cell| cell.key == Some(&*key))
    }

    fn refused(
        &self,
        problem: RedisProblem,
        is_it: impl Fn(Seen<'_>) -> bool + Send + Sync + 'static,
    ) -> Failure {
        let encoder = self.clone();
        let is_among = move |rows: &RecordBatch| {
            let Ok(cells) = encoder.cells(rows) else { return false };
            (0..rows.num_rows()).any(|row| {
                let mut key = Vec::new();
                let has_key = encoder.key(&cells, row, &mut key).is_ok();
                let lacks_value = encoder.check_values(&cells, row).is_err();
                is_it(Seen { key: has_key.then_some(&key), lacks_value })
            })
        };
        RefusedRow::new(problem, is_among).into()
    }

    fn piece(&self) -> PieceBuilder {
        let values = if self.options.model.has_fields() { &*self.options.values } else { &[] };
        let name = |index: &usize| self.schema.field(*index).name().as_str();
        let names: Vec<&str> = values.iter().map(name).collect();
        PieceBuilder::new(self.options.model, self.options.ttl_s, self.width(), &names)
    }

    /// Cells of one row, its key among them.
    fn width(&self) -> u32 {
        if !self.options.model.has_fields() {
            return 2;
        }
        u32::try_from(self.options.values.len() + 1).expect("columns are few")
    }

    fn cells(&self, rows: &RecordBatch) -> Result<Cells, Failure> {
        let options = &self.options;
        let column = |index: &usize| column(rows.column(*index));
        let key = options.key.iter().map(column).collect::<Result<_, _>>()?;
        let is_text = options.model != Model::Json && options.values.len() == 1;
        let values = match options.model.has_fields() || is_text {
            true => options.values.iter().map(column).collect::<Result<_, _>>()?,
            false => vec![Column::Text(objects(rows, &options.values)?)],
        };
        Ok(Cells { key, values })
    }

    /// Appends the key of a row.
    fn key(&self, cells: &Cells, row: usize, key: &mut Vec<u8>) -> Result<(), RedisProblem> {
        write_key(&self.options.prefix, &cells.key, row, key).map_err(|at| {
            let (table, index) = (self.options.name.clone(), self.options.key[at]);
            RedisProblem::NoKey { table, column: self.schema.field(index).name().clone() }
        })
    }

    /// A hash without fields is no key, and a text that is NULL removes the key; the others have no
    /// form for a row without a value.
    fn check_values(&self, cells: &Cells, row: usize) -> Result<(), RedisProblem> {
        let model = self.options.model;
        let has_value = cells.values.iter().any(|column| column.get(row).is_some());
        if has_value || matches!(model, Model::Hash | Model::String | Model::Json) {
            return Ok(());
        }
        let table = self.options.name.clone();
        let names = self.options.values.iter().map(|index| self.schema.field(*index).name());
        let names: Vec<&str> = names.map(String::as_str).collect();
        Err(RedisProblem::NoValue { table, column: names.join(", "), model: model.name() })
    }
}

/// Appends the key of the row `row`, whose parts `parts` have.
///
/// # Errors
/// The place of a part that is NULL.
pub(super) fn write_key(
    prefix: &str,
    parts: &[Column],
    row: usize,
    key: &mut Vec<u8>,
) -> Result<(), usize> {
    key.extend_from_slice(prefix.as_bytes());
    let is_composed = parts.len() > 1;
    for (at, column) in parts.iter().enumerate() {
        let part = column.get(row).ok_or(at)?;
        key.push(b':');
        for byte in part {
            // So that ('a:b', 'c') and ('a', 'b:c') have different keys.
            if is_composed && matches!(byte, b':' | b'\\') {
                key.push(b'\\');
            }
            key.push(*byte);
        }
    }
    Ok(())
}

/// What is looked at in a row to recognize it.
struct Seen<'a> {
    key: Option<&'a [u8]>,
    lacks_value: bool,
}

/// BINARY as it is, everything else as the text that it is in CSV files.
pub(super) fn column(values: &ArrayRef) -> Result<Column, Failure> {
    match values.data_type() {
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let bytes = cast(values, &DataType::Binary).map_err(ArrowBug)?;
            Ok(Column::Bytes(bytes.as_binary().clone()))
        }
        _ => Ok(Column::Text(json::plain_texts(values).map_err(not_checked)?)),
    }
}

/// The columns `values` as one JSON object for each row.
fn objects(rows: &RecordBatch, values: &[usize]) -> Result<StringArray, Failure> {
    let rows = rows.project(values).map_err(ArrowBug)?;
    json::encode(&StructArray::from(rows), EncodeOptions::default()).map_err(not_checked)
}

fn not_checked(error: json::UnsupportedType) -> Failure {
    let error = arrow::error::ArrowError::NotYetImplemented(error.to_string());
    ArrowBug(error).into()
}

/// A piece that rows are appended to.
pub(super) struct PieceBuilder {
    bytes: Vec<u8>,
    /// Where the number of cells stands.
    count_at: usize,
    cells: u32,
    rows: u32,
}

impl PieceBuilder {
    fn new(model: Model, ttl_s: Option<u32>, width: u32, names: &[&str]) -> Self {
        let mut piece = Self { bytes: vec![PIECE], count_at: 0, cells: 0, rows: 0 };
        piece.text(model.stored().as_bytes());
        match ttl_s {
            Some(ttl_s) => piece.number(UNSIGNED_32, ttl_s),
            None => piece.bytes.push(FALSE),
        }
        piece.number(UNSIGNED_32, width);
        piece.number(ARRAY_32, u32::try_from(names.len()).expect("columns are few"));
        names.iter().for_each(|name| piece.text(name.as_bytes()));
        piece.count_at = piece.bytes.len() + 1;
        piece.number(ARRAY_32, 0);
        piece
    }

    /// Whether no more rows are to be appended.
    pub(super) fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.bytes.len() >= BYTES_MAX
    }

    /// Appends the rows of `other`, which is of the same table, unless they would be too many for
    /// one piece.
    pub(super) fn append(&mut self, other: Self) -> Result<(), Self> {
        if self.rows + other.rows > ROWS_MAX || self.bytes.len() + other.bytes.len() > BYTES_MAX {
            return Err(other);
        }
        let cells_at = other.count_at + size_of::<u32>();
        self.bytes.extend_from_slice(&other.bytes[cells_at..]);
        self.cells += other.cells;
        self.rows += other.rows;
        Ok(())
    }

    /// Its bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let count = self.cells.to_be_bytes();
        self.bytes[self.count_at..self.count_at + count.len()].copy_from_slice(&count);
        self.bytes
    }

    fn cell(&mut self, cell: Option<&[u8]>) {
        self.cells += 1;
        match cell {
            Some(cell) => self.text(cell),
            None => self.bytes.push(FALSE),
        }
    }

    fn text(&mut self, text: &[u8]) {
        // Arrow's own offsets have no more bits.
        self.number(STRING_32, u32::try_from(text.len()).expect("a value is smaller than 4 GB"));
        self.bytes.extend_from_slice(text);
    }

    fn number(&mut self, tag: u8, number: u32) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
