//! Letters made to fit: what a table cannot take whole is cut, and the letter says so.
//!
//! A record that could just be read would be too large as a letter, which tells more of it. The
//! flow must not stop for that.

use super::Letter;

/// The longest `error` of a letter, in bytes.
const ERROR_BYTES_MAX: usize = 1_024;

/// The beginning of `text`, of at most `bytes_max` bytes; dots stand for what is left out.
fn beginning(text: &str, bytes_max: usize) -> String {
    const DOTS: &str = "...";
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes_max.saturating_sub(DOTS.len()));
    format!("{}{DOTS}", &text[..end])
}

/// What is wrong with a letter, in not too many words.
pub(super) fn error(letter: &Letter) -> String {
    beginning(&letter.error, ERROR_BYTES_MAX)
}

/// `letter` as a record of at most `bytes_max` bytes; `None` where it is one. `size` tells the
/// bytes of a record. Payload, headers and key are given up in this order.
pub(super) fn fitted(
    letter: &Letter,
    bytes_max: usize,
    size: impl Fn(&Letter) -> usize,
) -> Option<Letter> {
    if size(letter) <= bytes_max {
        return None;
    }
    let payload = letter.payload.as_deref().unwrap_or_default();
    let without = |attributes: &Letter, key: Option<Vec<u8>>, left_out: &str| {
        let mut cut = Letter {
            payload: letter.payload.is_some().then(Vec::new),
            payload_bytes: Some(payload.len()),
            key,
            attributes: attributes.attributes.clone(),
            error: String::new(),
            place: letter.place.clone(),
            record_time_us: letter.record_time_us,
        };
        cut.error = noted(&letter.error, payload.len(), payload.len(), bytes_max, left_out);
        let kept = bytes_max.checked_sub(size(&cut))?.min(payload.len());
        cut.error = noted(&letter.error, kept, payload.len(), bytes_max, left_out);
        cut.payload = letter.payload.as_ref().map(|payload| payload[..kept].to_vec());
        Some(cut)
    };
    let none = Letter::default();
    without(letter, letter.key.clone(), "")
        .or_else(|| without(&none, letter.key.clone(), ", without its headers"))
        .or_else(|| without(&none, None, ", without its headers and its key"))
}

/// `error`, with what was done to the letter.
fn noted(error: &str, kept: usize, of: usize, bytes_max: usize, left_out: &str) -> String {
    let note = format!(
        "; the payload is cut to {kept} of {of} bytes{left_out}: a record of this table has at \
         most {bytes_max} bytes"
    );
    beginning(error, ERROR_BYTES_MAX.saturating_sub(note.len())) + &note
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many bytes as there are, and ten for what else a record has.
    fn size(letter: &Letter) -> usize {
        let attributes = letter.attributes.iter();
        let attributes =
            attributes.map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len));
        let bytes = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let own = bytes(&letter.payload) + bytes(&letter.key) + letter.error.len() + 10;
        own + attributes.sum::<usize>()
    }

    fn letter(payload: usize, header: usize, key: usize) -> Letter {
        Letter {
            payload: Some(vec![b'p'; payload]),
            attributes: vec![("h".to_owned(), Some(vec![b'h'; header]))],
            key: Some(vec![b'k'; key]),
            error: "at byte 1: no".to_owned(),
            ..Letter::default()
        }
    }

    #[test]
    fn errors_are_short_and_end_between_characters() {
        let long = Letter { error: "\u{e4}".repeat(1_000), ..Letter::default() };
        let short = error(&long);
        assert!(short.len() <= ERROR_BYTES_MAX && short.ends_with("\u{e4}..."), "{short}");
        assert_eq!(error(&letter(0, 0, 0)), "at byte 1: no");
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        let whole = letter(100, 10, 10);
        assert_eq!(fitted(&whole, size(&whole), size), None);
    }

    #[test]
    fn the_payload_is_cut_first_and_the_error_says_so() {
        let cut = fitted(&letter(5_000, 10, 10), 1_000, size).unwrap();
        let kept = cut.payload.as_ref().unwrap().len();
        assert!(size(&cut) <= 1_000 && kept > 700, "{kept}");
        assert_eq!((cut.payload_bytes, cut.key.unwrap().len()), (Some(5_000), 10));
        let says = format!("at byte 1: no; the payload is cut to {kept} of 5000 bytes:");
        assert!(cut.error.starts_with(&says), "{}", cut.error);
        assert_eq!(cut.attributes.len(), 1);
    }

    #[test]
    fn headers_and_key_go_where_they_alone_are_too_much() {
        let cut = fitted(&letter(5_000, 2_000, 10), 1_000, size).unwrap();
        assert!(cut.attributes.is_empty() && cut.key.is_some() && size(&cut) <= 1_000);
        let cut = fitted(&letter(5_000, 2_000, 2_000), 1_000, size).unwrap();
        assert!(cut.key.is_none() && cut.error.contains("without its headers and its key"));
    }

    #[test]
    fn a_long_error_leaves_room_for_the_note() {
        let long = Letter { error: "e".repeat(5_000), ..letter(5_000, 0, 0) };
        let cut = fitted(&long, 2_000, size).unwrap();
        assert!(cut.error.len() <= ERROR_BYTES_MAX && cut.error.contains("is cut to"));
    }
}
