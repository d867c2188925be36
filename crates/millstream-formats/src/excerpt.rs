//! The beginning of a value, for a message.

/// How much of a value a message shows.
const CHARACTERS_MAX: usize = 80;

/// `value` as text, cut where it is long.
pub fn excerpt(value: &[u8]) -> String {
    // A character has at most four bytes, so longer values are cut before they are decoded.
    let value = &value[..value.len().min(4 * (CHARACTERS_MAX + 1))];
    let text = String::from_utf8_lossy(value);
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(excerpt(b"short"), "short");
        let long = "\u{1f4a1}".repeat(200);
        assert_eq!(excerpt(long.as_bytes()), format!("{}...", "\u{1f4a1}".repeat(80)));
    }
}
