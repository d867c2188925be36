//! Decodes Kafka's types. All that does not follow the protocol is one error, after which the
//! connection cannot be used: nobody knows where the next answer begins.

use std::io;
use std::time::Duration;

/// What is left of an answer.
pub struct ResponseReader<'a> {
    rest: &'a [u8],
    throttle_ms: i32,
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer that does not follow Kafka's protocol")
}

impl<'a> ResponseReader<'a> {
    /// Reads `bytes` from the beginning.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, throttle_ms: 0 }
    }

    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many bytes were taken"))
    }

    /// Reads for how long the broker reads nothing more from the connection, since a quota is used
    /// up (KIP-219).
    pub fn throttle(&mut self) -> io::Result<()> {
        self.throttle_ms = self.i32()?;
        Ok(())
    }

    /// What [`throttle`](Self::throttle) has read.
    pub fn throttled(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.throttle_ms).unwrap_or(0))
    }

    /// How many bytes were not read yet.
    #[cfg(test)]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Skips bytes.
    pub fn skip(&mut self, count: usize) -> io::Result<()> {
        self.take(count).map(drop)
    }

    /// The id of a topic.
    pub fn id(&mut self) -> io::Result<[u8; 16]> {
        self.array()
    }

    /// Two bytes.
    pub fn i16(&mut self) -> io::Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn i32(&mut self) -> io::Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn i64(&mut self) -> io::Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// An unsigned variable-length integer: seven bits a byte, the lowest first; a set high bit
    /// says that another byte follows.
    pub fn unsigned(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed())
    }

    /// How many elements or bytes follow, or `None` for null. Compact types store the count plus
    /// one, and 0 for null.
    fn count(&mut self) -> io::Result<Option<usize>> {
        let count = usize::try_from(self.unsigned()?).map_err(|_| malformed())?;
        // Each element has at least one byte, so a larger count is malformed. The check keeps a bad
        // answer from allocating gigabytes.
        match count.checked_sub(1) {
            Some(count) if count > self.rest.len() => Err(malformed()),
            count => Ok(count),
        }
    }

    /// Bytes that may be null.
    pub fn bytes_or_null(&mut self) -> io::Result<Option<&'a [u8]>> {
        let Some(count) = self.count()? else { return Ok(None) };
        self.take(count).map(Some)
    }

    /// A text that may be null.
    pub fn text_or_null(&mut self) -> io::Result<Option<String>> {
        let Some(count) = self.count()? else { return Ok(None) };
        let text = std::str::from_utf8(self.take(count)?).map_err(|_| malformed())?;
        Ok(Some(text.to_owned()))
    }

    /// A text that stays where it is.
    pub fn text_in_place(&mut self) -> io::Result<&'a str> {
        let bytes = self.bytes_or_null()?.ok_or_else(malformed)?;
        std::str::from_utf8(bytes).map_err(|_| malformed())
    }

    /// A text.
    pub fn text(&mut self) -> io::Result<String> {
        self.text_or_null()?.ok_or_else(malformed)
    }

    /// A text of an older version: its length has two bytes, and is negative for null.
    pub fn short_text(&mut self) -> io::Result<String> {
        let count = usize::try_from(self.i16()?).unwrap_or(0);
        let text = std::str::from_utf8(self.take(count)?).map_err(|_| malformed())?;
        Ok(text.to_owned())
    }

    /// Elements, each read by `each`; null is none.
    pub fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> io::Result<T>,
    ) -> io::Result<Vec<T>> {
        let count = self.count()?.unwrap_or(0);
        (0..count).map(|_| each(self)).collect()
    }

    /// The tagged fields at the end of a structure; `each` gets number and content.
    pub fn tagged(
        &mut self,
        mut each: impl FnMut(u64, &mut ResponseReader<'a>) -> io::Result<()>,
    ) -> io::Result<()> {
        for _ in 0..self.unsigned()? {
            let tag = self.unsigned()?;
            let size = usize::try_from(self.unsigned()?).map_err(|_| malformed())?;
            each(tag, &mut ResponseReader::new(self.take(size)?))?;
        }
        Ok(())
    }

    /// The end of a structure whose tagged fields do not matter.
    pub fn end(&mut self) -> io::Result<()> {
        self.tagged(|_, _| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_is_an_error() {
        assert!(ResponseReader::new(&[0, 0, 1]).i32().is_err());
        assert!(ResponseReader::new(&[9, b'a']).text().is_err());
        assert!(ResponseReader::new(&[0x80; 11]).unsigned().is_err());
        assert!(ResponseReader::new(&[0]).text().is_err());
        assert!(ResponseReader::new(&[1, 7, 3, 0]).end().is_err());
    }

    #[test]
    fn tagged_fields_are_found() {
        let mut found = Vec::new();
        let mut reader = ResponseReader::new(&[2, 0, 1, 5, 3, 2, 0, 9, 8]);
        let note = |tag, field: &mut ResponseReader<'_>| {
            found.push((tag, field.rest.len()));
            Ok(())
        };
        reader.tagged(note).unwrap();
        assert_eq!((found, reader.rest), (vec![(0, 1), (3, 2)], &[8][..]));
    }
}
