//! The messages of the benchmark: JSON of 1,005 bytes, `{ "logStreamId": "1234567", "message": "..." }`
//! with an id of seven digits below two million and 962 letters and digits. They are drawn from
//! their number, so that they can be made again.

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 1_005;
const IDS_FROM: u64 = 1_000_001;
/// Different ids.
const IDS: u64 = 999_999;
const TEXT_BYTES: usize = 962;
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// A byte of the draw each; 62 of 256 leaves some letters a little more frequent.
const LETTERS_A_DRAW: usize = 8;

/// The id of message `number`.
pub fn id(number: u64) -> u64 {
    IDS_FROM + mixed(number) % IDS
}

/// Writes message `number` into `buffer`.
pub fn write(number: u64, buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.extend_from_slice(b"{ \"logStreamId\": \"");
    buffer.extend_from_slice(id(number).to_string().as_bytes());
    buffer.extend_from_slice(b"\", \"message\": \"");
    let text_ends = buffer.len() + TEXT_BYTES;
    let mut seed = mixed(!number);
    while buffer.len() < text_ends {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let draw = mixed(seed).to_le_bytes();
        let wanted = LETTERS_A_DRAW.min(text_ends - buffer.len());
        buffer.extend(
            draw.iter().take(wanted).map(|byte| LETTERS[(usize::from(*byte) * LETTERS.len()) >> 8]),
        );
    }
    buffer.extend_from_slice(b"\" }");
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of the argument.
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_of_the_published_form() {
        let (mut buffer, mut again) = (Vec::new(), Vec::new());
        for number in [0, 1, 999_999_999] {
            write(number, &mut buffer);
            write(number, &mut again);
            assert_eq!(buffer, again);
            assert_eq!(buffer.len(), MESSAGE_BYTES);
            let message: serde_json::Value = serde_json::from_slice(&buffer).expect("JSON");
            assert_eq!(message["logStreamId"], id(number).to_string());
            let text = message["message"].as_str().expect("a text");
            assert!(text.len() == TEXT_BYTES && text.bytes().all(|c| c.is_ascii_alphanumeric()));
        }
        let ids = (0..10_000).map(id);
        assert!(ids.clone().all(|id| (IDS_FROM..IDS_FROM + IDS).contains(&id)));
        let different: std::collections::HashSet<_> = ids.collect();
        assert!(different.len() > 9_900, "evenly spread");
    }
}
