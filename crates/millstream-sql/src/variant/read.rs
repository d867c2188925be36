//! Reads a value. Nothing in its bytes is believed: a place outside of them is an error.

use super::error::VariantError;
use super::error::VariantError::Malformed;

/// The only version that there is.
pub(super) const VERSION: u8 = 1;
/// The longest value, and the longest list of names. As in Spark.
pub(super) const SIZE_MAX: usize = 128 << 20;
/// How deep values are read and written. JSON has up to 1000 levels, and a value of it may be put
/// into a few more.
const DEPTH_MAX: usize = 1_100;

/// What the two lowest bits of a value's first byte say.
pub(super) mod basic {
    pub const PRIMITIVE: u8 = 0;
    pub const SHORT_TEXT: u8 = 1;
    pub const OBJECT: u8 = 2;
    pub const ARRAY: u8 = 3;
}

/// What the six other bits say of a primitive value.
pub(super) mod primitive {
    pub const NULL: u8 = 0;
    pub const TRUE: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const INT8: u8 = 3;
    pub const INT16: u8 = 4;
    pub const INT32: u8 = 5;
    pub const INT64: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const DECIMAL4: u8 = 8;
    pub const DECIMAL8: u8 = 9;
    pub const DECIMAL16: u8 = 10;
    pub const DATE: u8 = 11;
    pub const TIMESTAMP: u8 = 12;
    pub const TIMESTAMP_NTZ: u8 = 13;
    pub const FLOAT: u8 = 14;
    pub const BINARY: u8 = 15;
    pub const TEXT: u8 = 16;
    pub const UUID: u8 = 20;
}

/// A value, and the names of the fields in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant<'a> {
    metadata: &'a [u8],
    /// The value, and perhaps what comes after it.
    bytes: &'a [u8],
}

/// What a value is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Null,
    Boolean(bool),
    Long(i64),
    Float(f32),
    Double(f64),
    /// Unscaled, with the digits behind the point, of which the last is not 0.
    Decimal(i128, u8),
    Text(&'a str),
    Binary(&'a [u8]),
    /// Days since 1970.
    Date(i32),
    /// Microseconds since 1970.
    Timestamp(i64),
    TimestampNtz(i64),
    Uuid([u8; 16]),
    Object(Items<'a>),
    Array(Items<'a>),
}

/// The fields of an object, sorted by their keys, or the elements of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items<'a> {
    of: Variant<'a>,
    size: usize,
    /// Where the keys' numbers begin, and how many bytes each has; none for an array.
    ids: usize,
    id_width: usize,
    /// Where the items' places begin, and how many bytes each has.
    places: usize,
    place_width: usize,
    /// Where the items begin.
    data: usize,
}

impl<'a> Variant<'a> {
    /// # Errors
    /// The version is unknown, or there are more bytes than a value may have.
    pub(crate) fn new(metadata: &'a [u8], bytes: &'a [u8]) -> Result<Self, VariantError> {
        let is_known = metadata.first().is_some_and(|first| first & 0x0F == VERSION);
        if !is_known || bytes.is_empty() {
            return Err(Malformed);
        }
        if metadata.len() > SIZE_MAX || bytes.len() > SIZE_MAX {
            return Err(VariantError::TooLarge);
        }
        Ok(Self { metadata, bytes })
    }

    /// What it is.
    pub(crate) fn get(self) -> Result<Value<'a>, VariantError> {
        let (kind, info) = self.head()?;
        match kind {
            basic::SHORT_TEXT => self.text(1, usize::from(info)),
            basic::OBJECT => Ok(Value::Object(self.items(info, true)?)),
            basic::ARRAY => Ok(Value::Array(self.items(info, false)?)),
            _ => self.primitive(info),
        }
    }

    /// The bytes of the value alone.
    pub(crate) fn bytes(self) -> Result<&'a [u8], VariantError> {
        self.bytes.get(..self.size()?).ok_or(Malformed)
    }

    /// The two parts of the first byte.
    fn head(self) -> Result<(u8, u8), VariantError> {
        let first = *self.bytes.first().ok_or(Malformed)?;
        Ok((first & 0x03, first >> 2))
    }

    fn size(self) -> Result<usize, VariantError> {
        let (kind, info) = self.head()?;
        Ok(match kind {
            basic::SHORT_TEXT => 1 + usize::from(info),
            basic::OBJECT | basic::ARRAY => {
                let items = self.items(info, kind == basic::OBJECT)?;
                items.data + items.place(items.size)?
            }
            _ => match info {
                primitive::NULL | primitive::TRUE | primitive::FALSE => 1,
                primitive::INT8 => 2,
                primitive::INT16 => 3,
                primitive::INT32 | primitive::DATE | primitive::FLOAT => 5,
                primitive::INT64
                | primitive::DOUBLE
                | primitive::TIMESTAMP
                | primitive::TIMESTAMP_NTZ => 9,
                primitive::DECIMAL4 => 6,
                primitive::DECIMAL8 => 10,
                primitive::DECIMAL16 => 18,
                primitive::BINARY | primitive::TEXT => 5 + unsigned(self.bytes, 1, 4)?,
                primitive::UUID => 17,
                _ => return Err(Malformed),
            },
        })
    }

    fn primitive(self, info: u8) -> Result<Value<'a>, VariantError> {
        let run = || -> Result<&'a [u8], VariantError> {
            let length = unsigned(self.bytes, 1, 4)?;
            self.bytes.get(5..5 + length).ok_or(Malformed)
        };
        Ok(match info {
            primitive::NULL => Value::Null,
            primitive::TRUE => Value::Boolean(true),
            primitive::FALSE => Value::Boolean(false),
            primitive::INT8 => Value::Long(i8::from_le_bytes(self.array(1)?).into()),
            primitive::INT16 => Value::Long(i16::from_le_bytes(self.array(1)?).into()),
            primitive::INT32 => Value::Long(i32::from_le_bytes(self.array(1)?).into()),
            primitive::INT64 => Value::Long(i64::from_le_bytes(self.array(1)?)),
            primitive::FLOAT => Value::Float(f32::from_le_bytes(self.array(1)?)),
            primitive::DOUBLE => Value::Double(f64::from_le_bytes(self.array(1)?)),
            primitive::DECIMAL4 => self.decimal(i32::from_le_bytes(self.array(2)?).into(), 9)?,
            primitive::DECIMAL8 => self.decimal(i64::from_le_bytes(self.array(2)?).into(), 18)?,
            primitive::DECIMAL16 => self.decimal(i128::from_le_bytes(self.array(2)?), 38)?,
            primitive::DATE => Value::Date(i32::from_le_bytes(self.array(1)?)),
            primitive::TIMESTAMP => Value::Timestamp(i64::from_le_bytes(self.array(1)?)),
            primitive::TIMESTAMP_NTZ => Value::TimestampNtz(i64::from_le_bytes(self.array(1)?)),
            primitive::BINARY => Value::Binary(run()?),
            primitive::TEXT => {
                let length = run()?.len();
                self.text(5, length)?
            }
            primitive::UUID => Value::Uuid(self.array(1)?),
            _ => return Err(Malformed),
        })
    }

    fn text(self, start: usize, length: usize) -> Result<Value<'a>, VariantError> {
        let bytes = self.bytes.get(start..start + length).ok_or(Malformed)?;
        str::from_utf8(bytes).map(Value::Text).map_err(|_| Malformed)
    }

    /// A decimal without zeros at its end, as Spark takes it out.
    fn decimal(self, mut unscaled: i128, digits_max: u32) -> Result<Value<'a>, VariantError> {
        let mut scale = *self.bytes.get(1).ok_or(Malformed)?;
        let is_long = unscaled.unsigned_abs() >= 10_u128.pow(digits_max);
        if is_long || u32::from(scale) > digits_max {
            return Err(Malformed);
        }
        while scale > 0 && unscaled % 10 == 0 {
            unscaled /= 10;
            scale -= 1;
        }
        Ok(Value::Decimal(unscaled, scale))
    }

    fn array<const LENGTH: usize>(self, start: usize) -> Result<[u8; LENGTH], VariantError> {
        let bytes = self.bytes.get(start..start + LENGTH).ok_or(Malformed)?;
        bytes.try_into().map_err(|_| Malformed)
    }

    fn items(self, info: u8, is_object: bool) -> Result<Items<'a>, VariantError> {
        let (is_large, id_width) = match is_object {
            true => (info >> 4 & 1 == 1, usize::from(info >> 2 & 3) + 1),
            false => (info >> 2 & 1 == 1, 0),
        };
        let place_width = usize::from(info & 3) + 1;
        let size_width = if is_large { 4 } else { 1 };
        let size = unsigned(self.bytes, 1, size_width)?;
        let ids = 1 + size_width;
        let places = ids + size * id_width;
        let data = places + (size + 1) * place_width;
        // With that there are no more items than bytes.
        if data > self.bytes.len() {
            return Err(Malformed);
        }
        Ok(Items { of: self, size, ids, id_width, places, place_width, data })
    }
}

impl<'a> Items<'a> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.size
    }

    fn place(&self, at: usize) -> Result<usize, VariantError> {
        unsigned(self.of.bytes, self.places + at * self.place_width, self.place_width)
    }

    /// An item.
    pub(crate) fn item(&self, at: usize) -> Result<Variant<'a>, VariantError> {
        if at >= self.size {
            return Err(Malformed);
        }
        let bytes = self.of.bytes.get(self.data + self.place(at)?..).unwrap_or_default();
        if bytes.is_empty() {
            return Err(Malformed);
        }
        Ok(Variant { metadata: self.of.metadata, bytes })
    }

    /// The key of a field of an object.
    pub(crate) fn key(&self, at: usize) -> Result<&'a str, VariantError> {
        if at >= self.size || self.id_width == 0 {
            return Err(Malformed);
        }
        name(
            self.of.metadata,
            unsigned(self.of.bytes, self.ids + at * self.id_width, self.id_width)?,
        )
    }

    /// The field with a key.
    pub(crate) fn field(&self, key: &str) -> Result<Option<Variant<'a>>, VariantError> {
        for at in 0..self.size {
            if self.key(at)? == key {
                return self.item(at).map(Some);
            }
        }
        Ok(None)
    }

    /// How many bytes come before the first item.
    pub(super) fn head_length(&self) -> usize {
        self.data
    }
}

/// A name by its number.
fn name(metadata: &[u8], id: usize) -> Result<&str, VariantError> {
    let width = usize::from(metadata.first().ok_or(Malformed)? >> 6) + 1;
    let count = unsigned(metadata, 1, width)?;
    if id >= count {
        return Err(Malformed);
    }
    let texts = 1 + (count + 2) * width;
    let start = texts + unsigned(metadata, 1 + (id + 1) * width, width)?;
    let end = texts + unsigned(metadata, 1 + (id + 2) * width, width)?;
    let bytes = metadata.get(start..end).ok_or(Malformed)?;
    str::from_utf8(bytes).map_err(|_| Malformed)
}

/// A number of up to four bytes, the lowest first.
fn unsigned(bytes: &[u8], start: usize, width: usize) -> Result<usize, VariantError> {
    let bytes = bytes.get(start..start + width).ok_or(Malformed)?;
    Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// Bounds a walk through all of a value: parts of it may claim the same bytes, so that the walk
/// would not end, or may be in each other without end.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Bytes of the value that no part was found in.
    left: usize,
    depth: usize,
}

impl Walk {
    /// A walk through `value`.
    pub(crate) fn of(value: Variant<'_>) -> Self {
        Self { left: value.bytes.len(), depth: 0 }
    }

    /// Goes into a value; [`leave`](Self::leave) goes back.
    pub(crate) fn enter<'a>(&mut self, part: Variant<'a>) -> Result<Value<'a>, VariantError> {
        let value = part.get()?;
        let length = match &value {
            Value::Object(items) | Value::Array(items) => items.head_length(),
            _ => part.size()?,
        };
        self.left = self.left.checked_sub(length).ok_or(Malformed)?;
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(VariantError::TooDeep) } else { Ok(value) }
    }

    /// Goes back out of a value.
    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }
}
