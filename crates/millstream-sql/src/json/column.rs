//! Phase 2 of decoding: appends values to Arrow columns, each by its column's type.
//!
//! Every append adds exactly one row, whatever the value is, so that columns stay aligned and
//! nothing ever has to be removed again.

use std::str::FromStr;
use std::sync::Arc;

use arrow::array::builder::{
    BinaryBuilder, BooleanBuilder, PrimitiveBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow::array::{ArrayRef, ListArray, MapArray, NullBufferBuilder, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Field, FieldRef, Fields, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimeUnit,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::keys::{Elements, Keys, MatchedValues, Members, key_text};
use super::lenient::NAN;
use super::readers::{Reader, Reading};
use super::scalar::{parse_decimal, special_double, timestamp_of_number};
use super::scan::{Kind, Span};
use super::text::{compact, rewritten, unescape};
use crate::values::calendar::{DAY_US, parse_date, parse_timestamp, parse_timestamp_ntz};
use crate::values::time_of_day::parse_time;

/// How well a value fitted its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// The value, or a null of the text itself, was appended.
    Whole,
    /// Something within the value became null.
    Partly,
    /// The value became null.
    Not,
}

impl Fit {
    fn whole_if(fits: bool) -> Self {
        if fits { Self::Whole } else { Self::Not }
    }
}

/// A builder for one column, of any type.
pub(super) enum Column {
    Boolean(BooleanBuilder),
    Int8(PrimitiveBuilder<Int8Type>),
    Int16(PrimitiveBuilder<Int16Type>),
    Int32(PrimitiveBuilder<Int32Type>),
    Int64(PrimitiveBuilder<Int64Type>),
    Float32(PrimitiveBuilder<Float32Type>),
    Float64(PrimitiveBuilder<Float64Type>),
    Text(StringBuilder),
    /// A STRING, for which values that are none are written as Spark's parser writes them.
    Rewritten(StringBuilder),
    Binary(BinaryBuilder),
    Date {
        builder: PrimitiveBuilder<Date32Type>,
        reader: Option<Reader>,
    },
    TimeOfDay {
        builder: PrimitiveBuilder<Time64MicrosecondType>,
        reader: Option<Reader>,
    },
    Timestamp {
        builder: TimestampMicrosecondBuilder,
        /// Whether numbers are read, as seconds.
        takes_numbers: bool,
        parse: fn(&str) -> Option<i64>,
        reader: Option<Reader>,
    },
    Decimal {
        builder: PrimitiveBuilder<Decimal128Type>,
        precision: u8,
        scale: i8,
    },
    List(Box<ListColumn>),
    Map(Box<MapColumn>),
    Struct(Box<StructColumn>),
}

impl Column {
    /// A column of `data_type`, or the type that JSON cannot be decoded into.
    pub fn new(data_type: &DataType, reading: &Reading) -> Result<Self, DataType> {
        Ok(match data_type {
            DataType::Boolean => Self::Boolean(BooleanBuilder::new()),
            DataType::Int8 => Self::Int8(PrimitiveBuilder::new()),
            DataType::Int16 => Self::Int16(PrimitiveBuilder::new()),
            DataType::Int32 => Self::Int32(PrimitiveBuilder::new()),
            DataType::Int64 => Self::Int64(PrimitiveBuilder::new()),
            DataType::Float32 => Self::Float32(PrimitiveBuilder::new()),
            DataType::Float64 => Self::Float64(PrimitiveBuilder::new()),
            DataType::Utf8 if reading.readers.lenient.is_some() => {
                Self::Rewritten(StringBuilder::new())
            }
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            DataType::Binary => Self::Binary(BinaryBuilder::new()),
            DataType::Date32 => {
                let reader = reading.readers.date.clone();
                Self::Date { builder: PrimitiveBuilder::new(), reader }
            }
            DataType::Time64(TimeUnit::Microsecond) => {
                let reader = reading.readers.time.clone();
                Self::TimeOfDay { builder: PrimitiveBuilder::new(), reader }
            }
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Self::Timestamp {
                builder: PrimitiveBuilder::new().with_data_type(data_type.clone()),
                takes_numbers: zone.is_some(),
                parse: if zone.is_some() { parse_timestamp } else { parse_timestamp_ntz },
                reader: match zone {
                    Some(_) => reading.readers.timestamp.clone(),
                    None => reading.readers.timestamp_ntz.clone(),
                },
            },
            DataType::Decimal128(precision, scale) => Self::Decimal {
                builder: PrimitiveBuilder::new().with_data_type(data_type.clone()),
                precision: *precision,
                scale: *scale,
            },
            DataType::List(item) => Self::List(Box::new(ListColumn::new(item, reading)?)),
            DataType::Map(entries, sorted) => {
                Self::Map(Box::new(MapColumn::new(entries, *sorted, reading)?))
            }
            DataType::Struct(fields) => Self::Struct(Box::new(StructColumn::new(fields, reading)?)),
            other => return Err(other.clone()),
        })
    }

    /// Appends the value of a key that an object has several times, the field number `at` of
    /// `found`, in a column whose type and rules are given.
    ///
    /// Spark reads every one of the values, and the last that fits stays. One that does not fit
    /// makes the record malformed, also where a later one fits. A column takes nothing back, so
    /// which values fit is tried in a column of its own; objects have a key twice so seldom that
    /// this costs nothing.
    #[cold]
    pub fn append_repeated(
        &mut self,
        (found, at): (&MatchedValues, usize),
        (data_type, reading): (&DataType, &Reading),
        record: &str,
        scratch: &mut String,
    ) -> Fit {
        let mut trial = Self::new(data_type, reading).expect("there is a column of the type");
        let (mut last, mut worst) = (None, Fit::Whole);
        for span in found.earlier(at).chain(std::iter::once(found.get(at))) {
            let fit = trial.append(record, span, scratch);
            worst = worst.max(fit);
            if fit != Fit::Not {
                last = Some(span);
            }
        }
        let fit = self.append(record, last.unwrap_or(found.get(at)), scratch);
        // The value is there, but the record is malformed.
        if fit == Fit::Not { fit } else { worst.min(Fit::Partly) }
    }

    /// Appends a null.
    pub fn append_null(&mut self) {
        match self {
            Self::Boolean(builder) => builder.append_null(),
            Self::Int8(builder) => builder.append_null(),
            Self::Int16(builder) => builder.append_null(),
            Self::Int32(builder) => builder.append_null(),
            Self::Int64(builder) => builder.append_null(),
            Self::Float32(builder) => builder.append_null(),
            Self::Float64(builder) => builder.append_null(),
            Self::Text(builder) | Self::Rewritten(builder) => builder.append_null(),
            Self::Binary(builder) => builder.append_null(),
            Self::Date { builder, .. } => builder.append_null(),
            Self::TimeOfDay { builder, .. } => builder.append_null(),
            Self::Timestamp { builder, .. } => builder.append_null(),
            Self::Decimal { builder, .. } => builder.append_null(),
            Self::List(list) => list.bounds.close(false),
            Self::Map(map) => map.bounds.close(false),
            Self::Struct(columns) => columns.append_null(),
        }
    }

    /// Appends `text` to a column of type STRING.
    pub fn append_text(&mut self, text: &str) {
        match self {
            Self::Text(builder) | Self::Rewritten(builder) => builder.append_value(text),
            _ => unreachable!("only a STRING column takes raw text"),
        }
    }

    /// Appends the value at `span` of `record`.
    #[inline]
    pub fn append(&mut self, record: &str, span: Span, scratch: &mut String) -> Fit {
        if matches!(span.kind, Kind::Null | Kind::Missing) {
            self.append_null();
            return Fit::Whole;
        }
        match self {
            Self::Boolean(builder) => {
                let value = match span.kind {
                    Kind::True => Some(true),
                    Kind::False => Some(false),
                    _ => None,
                };
                builder.append_option(value);
                Fit::whole_if(value.is_some())
            }
            Self::Int8(builder) => put(builder, byte(record, span)),
            Self::Int16(builder) => integer(builder, record, span),
            Self::Int32(builder) => integer(builder, record, span),
            Self::Int64(builder) => integer(builder, record, span),
            Self::Float32(builder) => put(builder, float(record, span, |value| value as f32)),
            Self::Float64(builder) => put(builder, float(record, span, |value| value)),
            Self::Text(builder) => {
                builder.append_value(text_of(record, span, scratch));
                Fit::Whole
            }
            Self::Rewritten(builder) => {
                builder.append_value(rewritten_of(record, span, scratch));
                Fit::Whole
            }
            Self::Binary(builder) => binary(builder, record, span, scratch),
            Self::Date { builder, reader } => {
                let value = string_of(record, span, scratch).and_then(|text| match &*reader {
                    Some(reader) => i32::try_from(reader.read(text)?.div_euclid(DAY_US)).ok(),
                    None => parse_date(text),
                });
                put(builder, value)
            }
            Self::TimeOfDay { builder, reader } => {
                let value = string_of(record, span, scratch).and_then(|text| match &*reader {
                    Some(reader) => reader.read(text),
                    None => parse_time(text),
                });
                put(builder, value)
            }
            Self::Timestamp { builder, takes_numbers, parse, reader } => {
                let value = match span.kind {
                    Kind::Integer | Kind::Fraction if *takes_numbers => {
                        timestamp_of_number(span.of(record))
                    }
                    _ => string_of(record, span, scratch).and_then(|text| match &*reader {
                        Some(reader) => reader.read(text),
                        None => (*parse)(text),
                    }),
                };
                put(builder, value)
            }
            Self::Decimal { builder, precision, scale } => {
                let text = match span.kind {
                    Kind::Integer | Kind::Fraction => Some(span.of(record)),
                    _ => string_of(record, span, scratch),
                };
                let value = text.and_then(|text| parse_decimal(text, *precision, *scale));
                put(builder, value)
            }
            Self::List(list) => list.append(record, span, scratch),
            Self::Map(map) => map.append(record, span, scratch),
            Self::Struct(columns) => columns.append(record, span, scratch),
        }
    }

    /// The column built so far; the builder starts anew.
    pub fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Boolean(builder) => Arc::new(builder.finish()),
            Self::Int8(builder) => Arc::new(builder.finish()),
            Self::Int16(builder) => Arc::new(builder.finish()),
            Self::Int32(builder) => Arc::new(builder.finish()),
            Self::Int64(builder) => Arc::new(builder.finish()),
            Self::Float32(builder) => Arc::new(builder.finish()),
            Self::Float64(builder) => Arc::new(builder.finish()),
            Self::Text(builder) | Self::Rewritten(builder) => Arc::new(builder.finish()),
            Self::Binary(builder) => Arc::new(builder.finish()),
            Self::Date { builder, .. } => Arc::new(builder.finish()),
            Self::TimeOfDay { builder, .. } => Arc::new(builder.finish()),
            Self::Timestamp { builder, .. } => Arc::new(builder.finish()),
            Self::Decimal { builder, .. } => Arc::new(builder.finish()),
            Self::List(list) => list.finish(),
            Self::Map(map) => map.finish(),
            Self::Struct(columns) => columns.finish(),
        }
    }
}

/// Appends a value, or NULL where there is none.
fn put<T: ArrowPrimitiveType>(builder: &mut PrimitiveBuilder<T>, value: Option<T::Native>) -> Fit {
    builder.append_option(value);
    Fit::whole_if(value.is_some())
}

/// The number at `span` of `record`, or what its text says of NaN and the infinities, made by
/// `special`. Each width is parsed from the text, since a double cut short rounds twice.
fn float<T: FromStr>(record: &str, span: Span, special: fn(f64) -> T) -> Option<T> {
    match span.kind {
        Kind::Integer | Kind::Fraction => span.of(record).parse().ok(),
        Kind::Text => special_double(span.of(record)).map(special),
        Kind::EscapedText if span.of(record) == NAN => Some(special(f64::NAN)),
        _ => None,
    }
}

fn integer<T>(builder: &mut PrimitiveBuilder<T>, record: &str, span: Span) -> Fit
where
    T: ArrowPrimitiveType,
    T::Native: std::str::FromStr,
{
    let value = match span.kind {
        Kind::Integer => span.of(record).parse().ok(),
        _ => None,
    };
    builder.append_option(value);
    Fit::whole_if(value.is_some())
}

/// Spark's parser takes bytes with and without a sign: 128 to 255 are those from -128 to -1.
fn byte(record: &str, span: Span) -> Option<i8> {
    let number: i16 = match span.kind {
        Kind::Integer => span.of(record).parse().ok()?,
        _ => return None,
    };
    match number {
        -128..=255 => Some(number as i8),
        _ => None,
    }
}

fn binary(builder: &mut BinaryBuilder, record: &str, span: Span, scratch: &mut String) -> Fit {
    let value = string_of(record, span, scratch).and_then(|text| STANDARD.decode(text).ok());
    builder.append_option(value.as_deref());
    Fit::whole_if(value.is_some())
}

/// The text of a JSON string; `None` for other values.
#[inline]
fn string_of<'a>(record: &'a str, span: Span, scratch: &'a mut String) -> Option<&'a str> {
    match span.kind {
        Kind::Text => Some(span.of(record)),
        Kind::EscapedText => Some(key_text(record, span, scratch)),
        _ => None,
    }
}

/// What a STRING column gets: a string's text, and the JSON text of everything else.
#[inline]
fn text_of<'a>(record: &'a str, span: Span, scratch: &'a mut String) -> &'a str {
    let raw = span.of(record);
    let write = match span.kind {
        Kind::EscapedText => unescape,
        Kind::Array | Kind::Object => compact,
        _ => return raw,
    };
    scratch.clear();
    write(raw, scratch);
    scratch
}

/// The same as Spark's parser writes it.
fn rewritten_of<'a>(record: &'a str, span: Span, scratch: &'a mut String) -> &'a str {
    let raw = span.of(record);
    match span.kind {
        Kind::EscapedText if raw == NAN => "\"NaN\"",
        Kind::Integer | Kind::Fraction | Kind::Array | Kind::Object => {
            scratch.clear();
            rewritten(raw, scratch);
            scratch
        }
        _ => text_of(record, span, scratch),
    }
}

/// An ARRAY column.
pub(super) struct ListColumn {
    item: FieldRef,
    items: Column,
    bounds: Bounds,
}

impl ListColumn {
    fn new(item: &FieldRef, reading: &Reading) -> Result<Self, DataType> {
        let items = Column::new(item.data_type(), reading)?;
        Ok(Self { item: Arc::clone(item), items, bounds: Bounds::default() })
    }

    fn append(&mut self, record: &str, span: Span, scratch: &mut String) -> Fit {
        if span.kind != Kind::Array {
            self.bounds.close(false);
            return Fit::Not;
        }
        let mut worst = Fit::Whole;
        for element in Elements::new(record, span) {
            worst = worst.max(self.items.append(record, element, scratch));
            self.bounds.items += 1;
        }
        // An element that does not fit takes the array with it, as in Spark. The elements stay
        // where they are, hidden behind the null.
        self.bounds.close(worst != Fit::Not);
        worst
    }

    fn finish(&mut self) -> ArrayRef {
        let (offsets, nulls) = self.bounds.finish();
        Arc::new(ListArray::new(Arc::clone(&self.item), offsets, self.items.finish(), nulls))
    }
}

/// Where the items of each array or map end, as Arrow's variable-length layouts have it.
struct Bounds {
    offsets: Vec<i32>,
    /// Items appended so far, those of values that became null included.
    items: usize,
    validity: NullBufferBuilder,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { offsets: vec![0], items: 0, validity: NullBufferBuilder::new(0) }
    }
}

impl Bounds {
    /// Ends a value at the items appended so far.
    fn close(&mut self, valid: bool) {
        let end = i32::try_from(self.items);
        self.offsets.push(end.expect("a chunk of records is far below 2^31 bytes"));
        self.validity.append(valid);
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
        let Self { offsets, validity, .. } = &mut std::mem::take(self);
        (OffsetBuffer::new(ScalarBuffer::from(std::mem::take(offsets))), validity.finish())
    }
}

/// A MAP column; its keys are strings in the text and may be of any type that strings convert to.
pub(super) struct MapColumn {
    entries: FieldRef,
    fields: Fields,
    sorted: bool,
    keys: Column,
    values: Column,
    bounds: Bounds,
}

impl MapColumn {
    fn new(entries: &FieldRef, sorted: bool, reading: &Reading) -> Result<Self, DataType> {
        let DataType::Struct(fields) = entries.data_type() else {
            return Err(entries.data_type().clone());
        };
        let (key, value) = (fields[0].data_type(), fields[1].data_type());
        if *key != DataType::Utf8 {
            return Err(key.clone());
        }
        Ok(Self {
            entries: Arc::clone(entries),
            fields: fields.clone(),
            sorted,
            keys: Column::new(key, reading)?,
            values: Column::new(value, reading)?,
            bounds: Bounds::default(),
        })
    }

    fn append(&mut self, record: &str, span: Span, scratch: &mut String) -> Fit {
        if span.kind != Kind::Object {
            self.bounds.close(false);
            return Fit::Not;
        }
        let mut worst = Fit::Whole;
        for (key, value) in Members::new(record, span) {
            self.keys.append(record, key, scratch);
            worst = worst.max(self.values.append(record, value, scratch));
            self.bounds.items += 1;
        }
        self.bounds.close(worst != Fit::Not);
        worst
    }

    fn finish(&mut self) -> ArrayRef {
        let (offsets, nulls) = self.bounds.finish();
        let columns = vec![self.keys.finish(), self.values.finish()];
        let entries = StructArray::new(self.fields.clone(), columns, None);
        Arc::new(MapArray::new(Arc::clone(&self.entries), offsets, entries, nulls, self.sorted))
    }
}

/// A STRUCT column.
pub(super) struct StructColumn {
    fields: Fields,
    keys: Keys,
    found: MatchedValues,
    columns: Vec<Column>,
    validity: NullBufferBuilder,
    reading: Reading,
}

impl StructColumn {
    fn new(fields: &Fields, reading: &Reading) -> Result<Self, DataType> {
        let column = |field: &FieldRef| Column::new(field.data_type(), reading);
        let names = fields.iter().enumerate().map(|(at, field)| (at, field.name().as_str()));
        Ok(Self {
            fields: fields.clone(),
            keys: Keys::new(names, reading.ignore_case),
            found: MatchedValues::new(fields.len()),
            columns: fields.iter().map(column).collect::<Result<_, _>>()?,
            validity: NullBufferBuilder::new(0),
            reading: reading.clone(),
        })
    }

    fn append(&mut self, record: &str, span: Span, scratch: &mut String) -> Fit {
        if span.kind != Kind::Object {
            self.append_null();
            return Fit::Not;
        }
        self.keys.begin();
        self.found.clear();
        for (key, value) in Members::new(record, span) {
            if let Some(hit) = self.keys.find(key_text(record, key, scratch)) {
                self.found.put(hit, value);
            }
        }
        let mut worst = Fit::Whole;
        for (at, column) in self.columns.iter_mut().enumerate() {
            let fit = match self.found.is_repeated(at) {
                true => {
                    let rules = (self.fields[at].data_type(), &self.reading);
                    column.append_repeated((&self.found, at), rules, record, scratch)
                }
                false => column.append(record, self.found.get(at), scratch),
            };
            worst = worst.max(fit);
        }
        self.validity.append_non_null();
        // A field that does not fit becomes null by itself; unlike an array's element it does not
        // make the whole null, as in Spark.
        worst.min(Fit::Partly)
    }

    fn append_null(&mut self) {
        self.columns.iter_mut().for_each(Column::append_null);
        self.validity.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        let columns = self.columns.iter_mut().map(Column::finish).collect();
        // The row count is in the validity builder: a struct may have no fields.
        let rows = self.validity.len();
        let nulls = self.validity.finish();
        let array = StructArray::try_new_with_length(self.fields.clone(), columns, nulls, rows);
        Arc::new(array.expect("every append adds one row to every column"))
    }
}

/// `data_type` with nulls allowed everywhere within, since any part of a record may be missing.
pub(crate) fn nullable(data_type: &DataType) -> DataType {
    let field = |field: &FieldRef, can_be_null: bool| -> FieldRef {
        let field = field.as_ref().clone();
        let data_type = nullable(field.data_type());
        Arc::new(field.with_data_type(data_type).with_nullable(can_be_null))
    };
    match data_type {
        DataType::List(item) => DataType::List(field(item, true)),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(|part| field(part, true)).collect())
        }
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(fields) => {
                let parts = vec![field(&fields[0], false), field(&fields[1], true)];
                let entry = Field::new(entries.name(), DataType::Struct(parts.into()), false);
                DataType::Map(Arc::new(entry), *sorted)
            }
            _ => data_type.clone(),
        },
        _ => data_type.clone(),
    }
}
