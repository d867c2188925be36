//! Records that are taken as they are, in one column.

use arrow::array::{BinaryArray, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};

/// A record that is not UTF-8: which one, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUtf8(pub usize);

/// Record `i` is `bytes[offsets[i]..offsets[i + 1]]`; nothing is copied.
/// Errors: the first record that is not UTF-8.
pub fn strict(bytes: Vec<u8>, offsets: Vec<i32>) -> Result<StringArray, NotUtf8> {
    let valid = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    // Where the text ends too early the first end behind it is no boundary either.
    if let Some(row) = offsets[1..].iter().position(|end| !valid.is_char_boundary(*end as usize)) {
        return Err(NotUtf8(row));
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let texts = StringArray::try_new(offsets, Buffer::from_vec(bytes), None);
    Ok(texts.expect("each record is text between boundaries of characters"))
}

/// The values as text. As with Spark's CAST to STRING, bytes that are not UTF-8 are replaced.
pub fn lossy(values: &BinaryArray) -> StringArray {
    match StringArray::try_from_binary(values.clone()) {
        Ok(texts) => texts,
        Err(_) => values.iter().map(|value| value.map(String::from_utf8_lossy)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_record_that_is_no_text_is_named() {
        let strict = |records: &[&[u8]]| {
            let mut offsets = vec![0];
            let ends = records.iter().scan(0, |end, record| {
                *end += record.len() as i32;
                Some(*end)
            });
            offsets.extend(ends);
            strict(records.concat(), offsets)
        };
        let texts = strict(&[b"a", "ä".as_bytes(), b""]).unwrap();
        assert_eq!(texts.iter().flatten().collect::<Vec<_>>(), ["a", "ä", ""]);
        assert_eq!(strict(&[b"a", b"b\xffc", b"d"]), Err(NotUtf8(1)));
        assert_eq!(strict(&[b"a", b"b\xff"]), Err(NotUtf8(1)));
        assert_eq!(strict(&[b"\xc3", b"\xa4"]), Err(NotUtf8(0)), "halves of one character");
    }

    #[test]
    fn other_bytes_are_replaced_on_request() {
        let texts = lossy(&BinaryArray::from(vec![Some(&b"a\xffb"[..]), None]));
        assert_eq!(texts.value(0), "a\u{fffd}b");
    }
}
