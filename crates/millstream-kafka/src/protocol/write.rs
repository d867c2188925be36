//! Encodes Kafka's types as the flexible versions of requests have them: compact lengths, and
//! tagged fields at the end of each structure.

/// Bytes under construction.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What was written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// How much was written.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// A byte that is 1 or 0.
    pub fn bool(&mut self, value: bool) {
        self.i8(i8::from(value));
    }

    /// One byte.
    pub fn i8(&mut self, value: i8) {
        self.raw(&value.to_be_bytes());
    }

    /// Two bytes.
    pub fn i16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    /// Four bytes.
    pub fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    /// Eight bytes.
    pub fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An unsigned variable-length integer: seven bits a byte, the lowest first; the high bit says
    /// that another byte follows.
    pub fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// A signed variable-length integer, zigzag-encoded so that small negative numbers stay short.
    pub fn signed(&mut self, value: i64) {
        self.unsigned(((value << 1) ^ (value >> 63)) as u64);
    }

    /// The number of elements or bytes that follow, stored plus one: 0 would be null.
    pub fn count(&mut self, count: usize) {
        self.unsigned(count as u64 + 1);
    }

    /// A text.
    pub fn text(&mut self, text: &str) {
        self.count(text.len());
        self.raw(text.as_bytes());
    }

    /// A text, or null.
    pub fn text_or_null(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.unsigned(0),
        }
    }

    /// A text of an older version: its length has two bytes.
    pub fn short_text(&mut self, text: &str) {
        self.i16(text.len() as i16);
        self.raw(text.as_bytes());
    }

    /// The end of a structure: no tagged fields.
    pub fn end(&mut self) {
        self.unsigned(0);
    }

    /// Puts a number of four bytes where one stood.
    pub fn replace_i32(&mut self, at: usize, value: i32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
}

/// How many bytes `signed` writes.
pub fn signed_len(value: i64) -> usize {
    let zigzag = ((value << 1) ^ (value >> 63)) as u64;
    let bits = 64 - zigzag.leading_zeros() as usize;
    bits.max(1).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::read::ResponseReader;

    #[test]
    fn numbers_are_read_back() {
        for value in [0, 1, -1, 63, 64, -65, 300, 1 << 40, i64::MAX, i64::MIN] {
            let mut writer = Writer::default();
            writer.signed(value);
            assert_eq!(writer.len(), signed_len(value), "{value}");
            let bytes = writer.into_bytes();
            let zigzag = ResponseReader::new(&bytes).unsigned().unwrap();
            assert_eq!((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64), value);
        }
    }

    #[test]
    fn texts_have_their_length_and_one_more() {
        let mut writer = Writer::default();
        writer.text("ab");
        writer.text("");
        assert_eq!(writer.into_bytes(), [3, b'a', b'b', 1]);
    }
}
