//! Reads Avro's primitive values from a record's bytes (section "Binary Encoding").

use super::error::RecordProblem;

/// What stops a record in the middle. Boxed, so that results are small where all is well.
#[derive(Debug)]
pub(super) struct Fault {
    pub problem: Problem,
    pub at: usize,
    /// From the innermost field outwards.
    pub path: Vec<Box<str>>,
}

#[derive(Debug)]
pub(super) enum Problem {
    Record(RecordProblem),
    /// The batch has no room for it.
    Full,
}

pub(super) type Outcome<T = ()> = Result<T, Box<Fault>>;

impl Fault {
    #[cold]
    pub fn within(mut self: Box<Self>, field: &str) -> Box<Self> {
        self.path.push(field.into());
        self
    }
}

/// How many items that take no bytes (nulls, records without fields) a record may have: their
/// count alone says how many there are, so that eight bytes could stand for 2^60 of them.
pub(super) const MAX_IDLE: usize = 1 << 16;

/// How deep values may be nested.
pub(super) const MAX_LEVELS: usize = 500;

/// A place in a record.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many bytes, that are not the record's own, the batch has room for.
    pub room: usize,
    pub idle: usize,
    pub levels: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], room: usize) -> Self {
        Self { bytes, at: 0, room, idle: MAX_IDLE, levels: MAX_LEVELS }
    }

    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[cold]
    pub fn fault(&self, at: usize, problem: RecordProblem) -> Box<Fault> {
        Box::new(Fault { problem: Problem::Record(problem), at, path: Vec::new() })
    }

    #[cold]
    fn truncated(&self, at: usize, need: u64) -> Box<Fault> {
        let have = self.bytes.len();
        let need = usize::try_from(need).unwrap_or(usize::MAX) - (have - at);
        self.fault(at, RecordProblem::Truncated { have, need })
    }

    /// Takes what is no byte of the record out of the batch's room.
    #[inline]
    pub fn spend(&mut self, bytes: usize) -> Outcome {
        match self.room.checked_sub(bytes) {
            Some(room) => {
                self.room = room;
                Ok(())
            }
            None => Err(Box::new(Fault { problem: Problem::Full, at: self.at, path: Vec::new() })),
        }
    }

    /// An item is over that began at `before`.
    #[inline]
    pub fn item_done(&mut self, before: usize) -> Outcome {
        if self.at > before {
            return Ok(());
        }
        self.spend(1)?;
        match self.idle.checked_sub(1) {
            Some(idle) => {
                self.idle = idle;
                Ok(())
            }
            None => Err(self.fault(before, RecordProblem::Idle(MAX_IDLE))),
        }
    }

    #[inline(always)]
    pub fn take(&mut self, count: usize) -> Outcome<&'a [u8]> {
        match self.bytes[self.at..].get(..count) {
            Some(taken) => {
                self.at += count;
                Ok(taken)
            }
            None => Err(self.truncated(self.at, count as u64)),
        }
    }

    #[inline(always)]
    pub fn array<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        match self.bytes[self.at..].first_chunk::<N>() {
            Some(taken) => {
                self.at += N;
                Ok(*taken)
            }
            None => Err(self.truncated(self.at, N as u64)),
        }
    }

    #[inline]
    pub fn boolean(&mut self) -> Outcome<bool> {
        let [byte] = self.array()?;
        match byte {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.fault(self.at - 1, RecordProblem::Boolean(other))),
        }
    }

    /// A long: seven bits a byte, the lowest first, zigzag.
    ///
    /// Up to eight bytes are read as one number, whose high bits say where the varint ends. So
    /// there is no branch by its length, which the processor could not foresee in most columns.
    #[inline(always)]
    pub fn long(&mut self) -> Outcome<i64> {
        if let Some(word) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) {
            let word = u64::from_le_bytes(*word);
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                let last = ends.trailing_zeros();
                self.at += (last as usize + 1) / 8;
                return Ok(unzigzag(squeeze(word & (u64::MAX >> (63 - last)))));
            }
        }
        self.long_varint()
    }

    /// A long that hardly ever has more than one byte: a length, a branch, a count.
    #[inline(always)]
    pub fn short(&mut self) -> Outcome<i64> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(unzigzag(byte.into()))
            }
            _ => self.long_varint(),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Outcome<i64> {
        let rest = &self.bytes[self.at..];
        let mut value: u64 = 0;
        for (index, &byte) in rest.iter().take(10).enumerate() {
            // Of the tenth byte only one bit is left.
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.at += index + 1;
                return Ok(unzigzag(value));
            }
        }
        match rest.len() {
            ..10 => Err(self.truncated(self.at, rest.len() as u64 + 1)),
            _ => Err(self.fault(self.at, RecordProblem::Varint(64))),
        }
    }

    #[inline(always)]
    pub fn int(&mut self) -> Outcome<i32> {
        let at = self.at;
        let value = self.long()?;
        i32::try_from(value).map_err(|_| self.fault(at, RecordProblem::Varint(32)))
    }

    /// Bytes or a string: a length and so many bytes.
    #[inline(always)]
    pub fn counted(&mut self) -> Outcome<&'a [u8]> {
        let at = self.at;
        let length = self.short()?;
        match usize::try_from(length) {
            Ok(length) => self.take(length),
            Err(_) => Err(self.fault(at, RecordProblem::Length(length))),
        }
    }

    /// A string.
    #[inline]
    pub fn text(&mut self) -> Outcome<&'a [u8]> {
        let at = self.at;
        let text = self.counted()?;
        match is_ascii(text) || std::str::from_utf8(text).is_ok() {
            true => Ok(text),
            false => Err(self.fault(at, RecordProblem::Utf8)),
        }
    }

    /// The beginning of a block of an array or a map: how many items, and of how many bytes, if
    /// the writer says so. No items: the end.
    pub fn block(&mut self) -> Outcome<(u64, Option<usize>)> {
        let count = self.short()?;
        if count >= 0 {
            return Ok((count as u64, None));
        }
        let at = self.at;
        let size = self.short()?;
        match usize::try_from(size) {
            Ok(size) => Ok((count.unsigned_abs(), Some(size))),
            Err(_) => Err(self.fault(at, RecordProblem::Length(size))),
        }
    }
}

#[inline(always)]
fn unzigzag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

/// Puts the seven low bits of each of eight bytes side by side.
#[inline(always)]
fn squeeze(word: u64) -> u64 {
    let word = word & 0x7f7f_7f7f_7f7f_7f7f;
    let word = (word & 0x007f_007f_007f_007f) | ((word & 0x7f00_7f00_7f00_7f00) >> 1);
    let word = (word & 0x0000_3fff_0000_3fff) | ((word & 0x3fff_0000_3fff_0000) >> 2);
    (word & 0x0fff_ffff) | ((word & 0x0fff_ffff_0000_0000) >> 4)
}

/// True of most strings, and found out faster than whether they are UTF-8.
#[inline]
fn is_ascii(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().fold(0, |all, word| all | u64::from_le_bytes(*word));
    let rest = rest.iter().fold(0, |all, byte| all | byte);
    words & 0x8080_8080_8080_8080 == 0 && rest < 0x80
}

/// A decimal's unscaled value: two's complement, the highest byte first, of any length.
pub(super) fn unscaled(bytes: &[u8]) -> Option<i128> {
    let negative = bytes.first().is_some_and(|&byte| byte >= 0x80);
    let fill = if negative { 0xff } else { 0 };
    let (extra, low) = bytes.split_at(bytes.len().saturating_sub(16));
    let mut whole = [fill; 16];
    whole[16 - low.len()..].copy_from_slice(low);
    let value = i128::from_be_bytes(whole);
    // What is beyond sixteen bytes may only repeat the sign.
    let fits = extra.iter().all(|&byte| byte == fill) && (value < 0) == negative;
    fits.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: i64) -> Vec<u8> {
        let mut raw = ((value << 1) ^ (value >> 63)) as u64;
        let mut bytes = Vec::new();
        while raw >= 0x80 {
            bytes.push(raw as u8 | 0x80);
            raw >>= 7;
        }
        bytes.push(raw as u8);
        bytes
    }

    #[test]
    fn longs_of_every_length_whatever_follows() {
        for shift in 0..64 {
            for value in [1i64 << shift, (1i64 << shift).wrapping_sub(1), -(1i64 << (shift / 2))] {
                for value in [value, value.wrapping_neg()] {
                    let bytes = encoded(value);
                    for extra in [&[][..], &[0xff; 12], &[0; 12]] {
                        let bytes = [bytes.as_slice(), extra].concat();
                        let mut cursor = Cursor::new(&bytes, 0);
                        assert_eq!(cursor.long().unwrap(), value);
                        assert_eq!(cursor.left(), extra.len());
                    }
                    for cut in 0..bytes.len() {
                        let fault = Cursor::new(&bytes[..cut], 0).long().unwrap_err();
                        let expected = RecordProblem::Truncated { have: cut, need: 1 };
                        assert!(matches!(fault.problem, Problem::Record(p) if p == expected));
                    }
                }
            }
        }
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_none() {
        for bytes in [&[0xff; 20][..], &[0xff, 255, 255, 255, 255, 255, 255, 255, 255, 2]] {
            let fault = Cursor::new(bytes, 0).long().unwrap_err();
            assert!(matches!(fault.problem, Problem::Record(RecordProblem::Varint(64))));
        }
        let fault = Cursor::new(&encoded(1 << 31), 0).int().unwrap_err();
        assert!(matches!(fault.problem, Problem::Record(RecordProblem::Varint(32))));
    }

    #[test]
    fn unscaled_values_have_any_number_of_bytes() {
        assert_eq!(unscaled(&[]), Some(0));
        assert_eq!(unscaled(&[0xff]), Some(-1));
        assert_eq!(unscaled(&[0x00, 0x80]), Some(128));
        assert_eq!(unscaled(&[0xff; 40]), Some(-1));
        let mut long = [0u8; 20];
        long[4..].copy_from_slice(&i128::MAX.to_be_bytes());
        assert_eq!(unscaled(&long), Some(i128::MAX));
        long[3] = 1;
        assert_eq!(unscaled(&long), None);
        long[3] = 0;
        long[4] = 0x80;
        assert_eq!(unscaled(&long), None, "the sign is the first byte's");
    }

    #[test]
    fn ascii_is_found_in_every_place() {
        for length in 0..40 {
            let mut bytes = vec![b'a'; length];
            assert!(is_ascii(&bytes));
            for at in 0..length {
                bytes[at] = 0x80;
                assert!(!is_ascii(&bytes));
                bytes[at] = b'a';
            }
        }
    }
}
