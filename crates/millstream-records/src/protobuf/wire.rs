//! The wire format: tags, varints, lengths and groups.
//!
//! A record is a run of fields, each a tag (field number and wire type) and a value. Every
//! function here takes what it reads from the front of a slice and fails on what is missing, so
//! that no length is trusted before the bytes are there.
//! See <https://protobuf.dev/programming-guides/encoding/>.

/// Wire types (section "Message Structure").
pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const DELIMITED: u8 = 2;
pub(super) const START_GROUP: u8 = 3;
pub(super) const END_GROUP: u8 = 4;
pub(super) const FIXED32: u8 = 5;

/// How deep messages and groups may nest; the limit of the official parsers.
pub(super) const MAX_DEPTH: usize = 100;

/// Bytes that are not the wire format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A value, or a length, goes past the end.
    #[error("the bytes end in the middle of a value")]
    Truncated,
    /// More than ten bytes.
    #[error("a varint has more than 10 bytes")]
    Varint,
    /// Zero, or above 2^29 - 1.
    #[error("a tag has the invalid field number {0}")]
    FieldNumber(u64),
    /// Six or seven.
    #[error("a tag has the invalid wire type {0}")]
    WireType(u8),
    /// The end of a group that was not begun.
    #[error("group {0} ends without having begun")]
    EndGroup(u32),
    /// Nested too deep.
    #[error("messages or groups are nested deeper than {MAX_DEPTH}")]
    Depth,
}

/// Takes a varint. Bits above the 64th are dropped, as the official parsers do.
#[inline]
pub(super) fn varint(rest: &mut &[u8]) -> Result<u64, WireError> {
    match *rest {
        [byte, tail @ ..] if *byte < 0x80 => {
            *rest = tail;
            Ok(u64::from(*byte))
        }
        [low, high, tail @ ..] if *high < 0x80 => {
            *rest = tail;
            Ok(u64::from(low & 0x7f) | u64::from(*high) << 7)
        }
        _ => long_varint(rest),
    }
}

fn long_varint(rest: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0;
    for (at, byte) in rest.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            *rest = &rest[at + 1..];
            return Ok(value);
        }
    }
    Err(if rest.len() < 10 { WireError::Truncated } else { WireError::Varint })
}

/// Takes a tag: the field number and the wire type.
#[inline]
pub(super) fn tag(rest: &mut &[u8]) -> Result<(u32, u8), WireError> {
    let key = varint(rest)?;
    let number = key >> 3;
    if number == 0 || number >= 1 << 29 {
        return Err(WireError::FieldNumber(number));
    }
    Ok((number as u32, (key & 7) as u8))
}

/// Takes eight bytes, little-endian.
#[inline]
pub(super) fn fixed64(rest: &mut &[u8]) -> Result<u64, WireError> {
    let (bytes, tail) = rest.split_first_chunk().ok_or(WireError::Truncated)?;
    *rest = tail;
    Ok(u64::from_le_bytes(*bytes))
}

/// Takes four bytes, little-endian.
#[inline]
pub(super) fn fixed32(rest: &mut &[u8]) -> Result<u32, WireError> {
    let (bytes, tail) = rest.split_first_chunk().ok_or(WireError::Truncated)?;
    *rest = tail;
    Ok(u32::from_le_bytes(*bytes))
}

/// Takes a length and as many bytes.
#[inline]
pub(super) fn delimited<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], WireError> {
    let length = usize::try_from(varint(rest)?).map_err(|_| WireError::Truncated)?;
    let (bytes, tail) = rest.split_at_checked(length).ok_or(WireError::Truncated)?;
    *rest = tail;
    Ok(bytes)
}

/// Takes the rest of a group whose start tag was taken: what is in it, without the end tag.
pub(super) fn group<'a>(number: u32, rest: &mut &'a [u8]) -> Result<&'a [u8], WireError> {
    let start = *rest;
    skip_group(number, rest, 1)?;
    // The end tag has the number of the start tag, but may be encoded in more bytes than needed:
    // the length of the contents is found by going through them once more.
    let mut inside = start;
    loop {
        let at = start.len() - inside.len();
        match tag(&mut inside)? {
            (_, END_GROUP) => return Ok(&start[..at]),
            (number, wire) => skip(number, wire, &mut inside)?,
        }
    }
}

fn skip_group(number: u32, rest: &mut &[u8], depth: usize) -> Result<(), WireError> {
    if depth > MAX_DEPTH {
        return Err(WireError::Depth);
    }
    loop {
        if rest.is_empty() {
            return Err(WireError::Truncated);
        }
        match tag(rest)? {
            (end, END_GROUP) if end == number => return Ok(()),
            (inner, START_GROUP) => skip_group(inner, rest, depth + 1)?,
            (inner, wire) => skip(inner, wire, rest)?,
        }
    }
}

/// Takes a value of a field that is not wanted, whose tag was taken.
pub(super) fn skip(number: u32, wire: u8, rest: &mut &[u8]) -> Result<(), WireError> {
    match wire {
        VARINT => varint(rest).map(drop),
        FIXED64 => fixed64(rest).map(drop),
        DELIMITED => delimited(rest).map(drop),
        START_GROUP => skip_group(number, rest, 1),
        END_GROUP => Err(WireError::EndGroup(number)),
        FIXED32 => fixed32(rest).map(drop),
        other => Err(WireError::WireType(other)),
    }
}

/// The signed number that a zigzag varint stands for (section "Signed Integers").
#[inline]
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The varint that stands for a signed number.
#[inline]
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Appends a varint.
#[inline]
pub(super) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a tag.
#[inline]
pub(super) fn put_tag(number: u32, wire: u8, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | u64::from(wire), out);
}

/// Appends what `write` writes, with its length before it.
pub(super) fn put_delimited<E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    // Most values are shorter than 128 bytes: their length takes the one byte kept free here.
    out.push(0);
    write(out)?;
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
    } else {
        let mut prefix = Vec::with_capacity(10);
        put_varint(length as u64, &mut prefix);
        out.splice(start..=start, prefix);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_bounded() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            let mut rest = bytes.as_slice();
            assert_eq!(varint(&mut rest), Ok(value));
            assert!(rest.is_empty());
            assert_eq!(varint(&mut &bytes[..bytes.len() - 1]), Err(WireError::Truncated));
        }
        assert_eq!(varint(&mut [0x80; 10].as_slice()), Err(WireError::Varint));
        assert_eq!(varint(&mut [0x80; 9].as_slice()), Err(WireError::Truncated));
    }

    #[test]
    fn signs_go_back_and_forth() {
        assert_eq!([0, -1, 1, -2, i64::MIN].map(zigzag), [0, 1, 2, 3, u64::MAX]);
        for value in [0, -1, 1, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    #[test]
    fn tags_have_a_number_and_a_type() {
        assert_eq!(tag(&mut [0x12].as_slice()), Ok((2, DELIMITED)));
        assert_eq!(tag(&mut [0x02].as_slice()), Err(WireError::FieldNumber(0)));
        let mut large = Vec::new();
        put_varint(1 << 32, &mut large);
        assert_eq!(tag(&mut large.as_slice()), Err(WireError::FieldNumber(1 << 29)));
        assert_eq!(skip(1, 6, &mut [0].as_slice()), Err(WireError::WireType(6)));
        assert_eq!(skip(1, END_GROUP, &mut [].as_slice()), Err(WireError::EndGroup(1)));
    }

    #[test]
    fn a_length_past_the_end_is_refused() {
        let mut rest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1].as_slice();
        assert_eq!(delimited(&mut rest), Err(WireError::Truncated));
        assert_eq!(delimited(&mut [2, 1].as_slice()), Err(WireError::Truncated));
    }

    #[test]
    fn groups_end_where_they_began() {
        // Field 1 as a group that holds group 2 and a number, then one more number.
        let bytes = [0x13, 0x14, 0x18, 7, 0x0c, 0x20, 9];
        let mut rest = bytes.as_slice();
        assert_eq!(group(1, &mut rest), Ok(&bytes[..4]));
        assert_eq!(rest, [0x20, 9]);
        assert_eq!(group(1, &mut bytes[..4].as_ref()), Err(WireError::Truncated));
        assert_eq!(skip(1, START_GROUP, &mut [0x14].as_slice()), Err(WireError::EndGroup(2)));
        let deep = [0x0b].repeat(1_000_000);
        assert_eq!(skip(1, START_GROUP, &mut deep.as_slice()), Err(WireError::Depth));
    }

    #[test]
    fn lengths_are_put_before_what_they_count() {
        for length in [0, 127, 128, 20_000] {
            let mut out = b"before".to_vec();
            put_delimited(&mut out, |out| {
                out.extend(vec![7; length]);
                Ok::<_, WireError>(())
            })
            .unwrap();
            let mut rest = &out[6..];
            assert_eq!(delimited(&mut rest).unwrap(), vec![7; length]);
            assert!(rest.is_empty());
        }
    }
}
