//! Strings as JSON writes them.

/// Appends `text` as a JSON string with its quotation marks.
pub(crate) fn quote(text: &str, out: &mut String) {
    out.push('"');
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x8 => "\\b",
            0xc => "\\f",
            0..=0x1f => "",
            _ => continue,
        };
        out.push_str(&text[start..at]);
        start = at + 1;
        if short.is_empty() {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.push_str("\\u00");
            out.push(HEX[usize::from(byte >> 4)] as char);
            out.push(HEX[usize::from(byte & 15)] as char);
        } else {
            out.push_str(short);
        }
    }
    out.push_str(&text[start..]);
    out.push('"');
}
