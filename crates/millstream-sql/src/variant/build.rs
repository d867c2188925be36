//! Makes a value, from its leaves to its root.
//!
//! What an object or an array holds is written first; then its head, with the places of the items,
//! is put before that.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Known;

use super::error::VariantError;
use super::read::{SIZE_MAX, VERSION, Value, Variant, Walk, basic, primitive};

/// The longest text whose length is in the first byte.
const SHORT_TEXT_MAX: usize = 63;

/// A field of an object that is being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The number of its key.
    pub(crate) key: u32,
    /// Where its value begins, from the start of the object.
    pub(crate) place: usize,
}

/// Makes one value after the other.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    numbers: HashMap<String, u32>,
    names: Vec<String>,
    metadata: Vec<u8>,
}

impl Builder {
    /// Forgets what was made.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.numbers.clear();
        self.names.clear();
    }

    /// Where the next value begins.
    pub(crate) fn place(&self) -> usize {
        self.bytes.len()
    }

    /// # Errors
    /// There are more bytes already than a value may have.
    pub(crate) fn check(&self) -> Result<(), VariantError> {
        if self.bytes.len() > SIZE_MAX { Err(VariantError::TooLarge) } else { Ok(()) }
    }

    fn primitive(&mut self, kind: u8, content: &[u8]) {
        self.bytes.push(kind << 2 | basic::PRIMITIVE);
        self.bytes.extend_from_slice(content);
    }

    pub(crate) fn null(&mut self) {
        self.primitive(primitive::NULL, &[]);
    }

    pub(crate) fn boolean(&mut self, value: bool) {
        self.primitive(if value { primitive::TRUE } else { primitive::FALSE }, &[]);
    }

    /// A whole number, in as few bytes as it needs.
    pub(crate) fn long(&mut self, value: i64) {
        let bytes = value.to_le_bytes();
        let (kind, width) = if i8::try_from(value).is_ok() {
            (primitive::INT8, 1)
        } else if i16::try_from(value).is_ok() {
            (primitive::INT16, 2)
        } else if i32::try_from(value).is_ok() {
            (primitive::INT32, 4)
        } else {
            (primitive::INT64, 8)
        };
        self.primitive(kind, &bytes[..width]);
    }

    pub(crate) fn float(&mut self, value: f32) {
        self.primitive(primitive::FLOAT, &value.to_le_bytes());
    }

    pub(crate) fn double(&mut self, value: f64) {
        self.primitive(primitive::DOUBLE, &value.to_le_bytes());
    }

    /// A decimal of at most 38 digits, in as few bytes as it needs.
    pub(crate) fn decimal(&mut self, unscaled: i128, scale: u8) {
        let fits =
            |digits: u8| scale <= digits && unscaled.unsigned_abs() < 10_u128.pow(digits.into());
        let (kind, width) = match () {
            () if fits(9) => (primitive::DECIMAL4, 4),
            () if fits(18) => (primitive::DECIMAL8, 8),
            () => (primitive::DECIMAL16, 16),
        };
        self.primitive(kind, &[scale]);
        self.bytes.extend_from_slice(&unscaled.to_le_bytes()[..width]);
    }

    pub(crate) fn date(&mut self, days: i32) {
        self.primitive(primitive::DATE, &days.to_le_bytes());
    }

    pub(crate) fn timestamp(&mut self, us: i64) {
        self.primitive(primitive::TIMESTAMP, &us.to_le_bytes());
    }

    pub(crate) fn timestamp_ntz(&mut self, us: i64) {
        self.primitive(primitive::TIMESTAMP_NTZ, &us.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        match u8::try_from(text.len()) {
            Ok(length) if text.len() <= SHORT_TEXT_MAX => {
                self.bytes.push(length << 2 | basic::SHORT_TEXT);
                self.bytes.extend_from_slice(text.as_bytes());
            }
            _ => self.run(primitive::TEXT, text.as_bytes()),
        }
    }

    pub(crate) fn binary(&mut self, bytes: &[u8]) {
        self.run(primitive::BINARY, bytes);
    }

    /// Bytes behind their count. Too many of them are refused at the end.
    fn run(&mut self, kind: u8, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.primitive(kind, &length.to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }

    /// The number of a key.
    pub(crate) fn key(&mut self, key: &str) -> u32 {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        // There are fewer names than bytes, and the bytes are counted.
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(key.to_owned());
        match self.numbers.entry(key.to_owned()) {
            Known::Vacant(entry) => *entry.insert(number),
            Known::Occupied(entry) => *entry.get(),
        }
    }

    /// Makes an object of what was made since `start`.
    ///
    /// # Errors
    /// A key is there twice, or the value is too long.
    pub(crate) fn object(
        &mut self,
        start: usize,
        mut fields: Vec<Entry>,
    ) -> Result<(), VariantError> {
        self.check()?;
        let names = &self.names;
        let name = |entry: &Entry| names[entry.key as usize].as_str();
        // In Java's order of texts, as Spark looks for them.
        fields.sort_by(|one, other| name(one).encode_utf16().cmp(name(other).encode_utf16()));
        let mut pairs = fields.windows(2);
        if let Some(twice) = pairs.find(|pair| pair[0].key == pair[1].key) {
            return Err(VariantError::DuplicateKey(name(&twice[0]).to_owned()));
        }
        let length = self.bytes.len() - start;
        let is_large = fields.len() > usize::from(u8::MAX);
        let id_max = fields.iter().map(|field| field.key).max().unwrap_or(0);
        let (id_width, place_width) = (width_of(id_max as usize), width_of(length));
        let flags = u8::from(is_large) << 4 | (id_width as u8 - 1) << 2 | (place_width as u8 - 1);
        let mut head = vec![flags << 2 | basic::OBJECT];
        put(&mut head, fields.len(), if is_large { 4 } else { 1 });
        fields.iter().for_each(|field| put(&mut head, field.key as usize, id_width));
        fields.iter().for_each(|field| put(&mut head, field.place, place_width));
        put(&mut head, length, place_width);
        drop(self.bytes.splice(start..start, head));
        self.check()
    }

    /// Makes an array of what was made since `start`; `places` are those of its elements from
    /// there.
    ///
    /// # Errors
    /// The value is too long.
    pub(crate) fn array(&mut self, start: usize, places: &[usize]) -> Result<(), VariantError> {
        self.check()?;
        let length = self.bytes.len() - start;
        let is_large = places.len() > usize::from(u8::MAX);
        let width = width_of(length);
        let flags = u8::from(is_large) << 2 | (width as u8 - 1);
        let mut head = vec![flags << 2 | basic::ARRAY];
        put(&mut head, places.len(), if is_large { 4 } else { 1 });
        places.iter().for_each(|place| put(&mut head, *place, width));
        put(&mut head, length, width);
        drop(self.bytes.splice(start..start, head));
        self.check()
    }

    /// A copy of a value, with the names of its own fields only.
    ///
    /// # Errors
    /// It is malformed, nested too deep or too long.
    pub(crate) fn variant(&mut self, value: Variant<'_>) -> Result<(), VariantError> {
        self.part(value, &mut Walk::of(value))
    }

    fn part(&mut self, part: Variant<'_>, walk: &mut Walk) -> Result<(), VariantError> {
        let start = self.place();
        match walk.enter(part)? {
            Value::Object(items) => {
                let mut fields = Vec::with_capacity(items.len());
                for at in 0..items.len() {
                    let (key, place) = (self.key(items.key(at)?), self.place() - start);
                    fields.push(Entry { key, place });
                    self.part(items.item(at)?, walk)?;
                }
                self.object(start, fields)?;
            }
            Value::Array(items) => {
                let mut places = Vec::with_capacity(items.len());
                for at in 0..items.len() {
                    places.push(self.place() - start);
                    self.part(items.item(at)?, walk)?;
                }
                self.array(start, &places)?;
            }
            _ => self.bytes.extend_from_slice(part.bytes()?),
        }
        walk.leave();
        Ok(())
    }

    /// The names and the bytes of the value that was made.
    ///
    /// # Errors
    /// One of both is too long.
    pub(crate) fn finish(&mut self) -> Result<(&[u8], &[u8]), VariantError> {
        self.check()?;
        let length: usize = self.names.iter().map(String::len).sum();
        let count = self.names.len();
        if length.max(count) > SIZE_MAX {
            return Err(VariantError::TooLarge);
        }
        let width = width_of(length.max(count));
        self.metadata.clear();
        self.metadata.push(VERSION | (width as u8 - 1) << 6);
        put(&mut self.metadata, count, width);
        let mut place = 0;
        for name in &self.names {
            put(&mut self.metadata, place, width);
            place += name.len();
        }
        put(&mut self.metadata, place, width);
        self.names.iter().for_each(|name| self.metadata.extend_from_slice(name.as_bytes()));
        if self.metadata.len() > SIZE_MAX {
            return Err(VariantError::TooLarge);
        }
        Ok((&self.metadata, &self.bytes))
    }
}

/// How many bytes a number needs, which is below four of them.
fn width_of(number: usize) -> usize {
    match number {
        0..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0xFF_FFFF => 3,
        _ => 4,
    }
}

fn put(out: &mut Vec<u8>, number: usize, width: usize) {
    out.extend_from_slice(&number.to_le_bytes()[..width]);
}
