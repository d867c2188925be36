//! Decimal digits of all scripts, which Java takes for digits where it reads numbers by characters.

/// The zeros of the scripts; their other digits follow them.
const ZEROS: [u32; 37] = [
    0x0030, 0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6,
    0x0D66, 0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80,
    0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0,
    0xFF10,
];

/// The value of a digit; `None` for anything else, and for digits that are two characters in Java.
pub(crate) fn digit(char: char) -> Option<u32> {
    let number = u32::from(char);
    let below = ZEROS.partition_point(|zero| *zero <= number);
    let value = number - ZEROS.get(below.checked_sub(1)?)?;
    (value < 10).then_some(value)
}

/// `text` with ASCII's digits in the place of others, if there are any.
pub(crate) fn in_ascii(text: &str) -> std::borrow::Cow<'_, str> {
    if text.is_ascii() {
        return text.into();
    }
    let ascii = |char: char| digit(char).and_then(|digit| char::from_digit(digit, 10));
    text.chars().map(|char| ascii(char).unwrap_or(char)).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_have_values() {
        assert_eq!(['0', '9', '१', '９'].map(digit), [Some(0), Some(9), Some(1), Some(9)]);
        assert_eq!(['/', ':', 'a', '²', '\u{1D7D8}'].map(digit), [None; 5]);
        assert!(ZEROS.is_sorted());
        assert_eq!(in_ascii("-१.5"), "-1.5");
    }
}
