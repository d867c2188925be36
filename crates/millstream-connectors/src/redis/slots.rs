//! Redis Cluster divides keys into slots, and a script writes in one slot only. So a piece of rows
//! is cut into parts by slot, each with a key of ours in the same slot that says what was written.

use std::collections::BTreeMap;
use std::sync::OnceLock;

const SLOTS: u16 = 16_384;

/// The slot of a key: of what stands between its first braces, if that is not empty.
///
/// Origin: the Redis Cluster specification, "Hash tags".
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').map(|close| &rest[..close])
    });
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key)) % SLOTS
}

/// A text that is in the slot `slot`, to be put between braces.
pub(super) fn tag_of(slot: u16) -> &'static str {
    static TAGS: OnceLock<Vec<String>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![String::new(); usize::from(SLOTS)];
        let mut left = SLOTS;
        for number in 0_u32.. {
            let tag = number.to_string();
            let place = &mut tags[usize::from(slot_of(tag.as_bytes()))];
            if place.is_empty() {
                *place = tag;
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        tags
    });
    &tags[usize::from(slot)]
}

/// CRC16 of the XMODEM protocol.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// The rows of one slot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// Their keys, each once.
    pub(super) keys: Vec<Vec<u8>>,
    /// A piece with these rows alone.
    pub(super) piece: Vec<u8>,
    cells: u32,
}

/// Cuts a [piece](super::encode) by slots; `None` for bytes that are not one.
pub(super) fn parts(piece: &[u8]) -> Option<BTreeMap<u16, Part>> {
    let mut reader = Reader { bytes: piece, at: 1 };
    reader.item()?; // the model
    reader.item()?; // seconds to live
    let width = reader.number()?;
    let names = reader.number()?;
    for _ in 0..names {
        reader.item()?;
    }
    let count_at = reader.at + 1;
    let cells = reader.number()?;
    let head = piece.get(..reader.at)?;
    let mut parts = BTreeMap::<u16, Part>::new();
    for _ in 0..cells.checked_div(width)? {
        let begin = reader.at;
        let key = reader.item()?;
        for _ in 1..width {
            reader.item()?;
        }
        let part = parts.entry(slot_of(key)).or_default();
        if part.piece.is_empty() {
            part.piece.extend_from_slice(head);
        }
        if !part.keys.iter().any(|known| known == key) {
            part.keys.push(key.to_owned());
        }
        part.piece.extend_from_slice(&piece[begin..reader.at]);
        part.cells += width;
    }
    for part in parts.values_mut() {
        let count = part.cells.to_be_bytes();
        part.piece[count_at..count_at + count.len()].copy_from_slice(&count);
    }
    Some(parts)
}

/// Reads what is written with 32 bits for each length.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// The number behind a tag.
    fn number(&mut self) -> Option<u32> {
        let number = self.bytes.get(self.at + 1..self.at + 5)?;
        self.at += 5;
        Some(u32::from_be_bytes(number.try_into().ok()?))
    }

    /// A text, a number or `false`: its bytes, if it has any.
    fn item(&mut self) -> Option<&'a [u8]> {
        match self.bytes.get(self.at)? {
            0xc2 => {
                self.at += 1;
                Some(&[])
            }
            0xce => self.number().map(|_| &[][..]),
            _ => {
                let length = self.number()? as usize;
                let text = self.bytes.get(self.at..self.at.checked_add(length)?)?;
                self.at += length;
                Some(text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // CLUSTER KEYSLOT of a real server.
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
        assert_ne!(slot_of(b"foo{}{bar}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        for slot in [0, 1, 8_191, SLOTS - 1] {
            assert_eq!(slot_of(tag_of(slot).as_bytes()), slot);
        }
    }

    #[test]
    fn bytes_that_are_no_piece_have_no_parts() {
        for bytes in [&b""[..], b"\x95", b"\x95\xdb\xff\xff\xff\xff", &[0; 40]] {
            assert_eq!(parts(bytes), None, "{bytes:?}");
        }
    }
}
