//! What a benchmark's record carries: text, so that any engine and any tool can look at it.
//!
//! ```text
//! 1732224000123456 000000004711 xxxxxxxx...
//! when it was due  its number   padding to the size wanted
//! ```
//!
//! The time is microseconds since the epoch. A probe, sent ahead of the measurement to see whether
//! records come through, has `probe` and the partition it was sent to in place of the number. What
//! follows the number is not looked at, so an engine may append to a record.

/// Digits of the time.
const DUE_DIGITS: usize = 16;
/// Digits of the number.
const NUMBER_DIGITS: usize = 12;
/// The smallest record there can be.
pub const SIZE_MIN: usize = DUE_DIGITS + 1 + NUMBER_DIGITS;

const PROBE: &[u8] = b"probe";

/// What a record says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A measured record.
    Record {
        /// When it was due to be sent, microseconds since the epoch.
        due_us: i64,
        /// Its number, from 0 without gaps.
        number: u64,
    },
    /// A record that only shows that a partition is being read.
    Probe {
        /// The partition it was sent to.
        partition: i32,
    },
}

/// Writes `payload` into `buffer`, filled up to `size` bytes.
pub fn encode(payload: Payload, size: usize, buffer: &mut Vec<u8>) {
    buffer.clear();
    match payload {
        Payload::Record { due_us, number } => {
            put_digits(buffer, due_us.unsigned_abs(), DUE_DIGITS);
            buffer.push(b' ');
            put_digits(buffer, number, NUMBER_DIGITS);
        }
        Payload::Probe { partition } => {
            put_digits(buffer, 0, DUE_DIGITS);
            buffer.push(b' ');
            buffer.extend_from_slice(PROBE);
            let digits = NUMBER_DIGITS - PROBE.len();
            put_digits(buffer, u64::from(partition.unsigned_abs()), digits);
        }
    }
    if buffer.len() < size {
        buffer.push(b' ');
        buffer.resize(size, b'x');
    }
}

/// Reads the head of a record; `None` if it is not one of ours.
pub fn decode(bytes: &[u8]) -> Option<Payload> {
    let due = digits(bytes.get(..DUE_DIGITS)?)?;
    if bytes.get(DUE_DIGITS) != Some(&b' ') {
        return None;
    }
    let number = bytes.get(DUE_DIGITS + 1..SIZE_MIN)?;
    if let Some(partition) = number.strip_prefix(PROBE) {
        return Some(Payload::Probe { partition: i32::try_from(digits(partition)?).ok()? });
    }
    Some(Payload::Record { due_us: i64::try_from(due).ok()?, number: digits(number)? })
}

fn put_digits(buffer: &mut Vec<u8>, mut value: u64, count: usize) {
    let start = buffer.len();
    buffer.resize(start + count, b'0');
    for place in buffer[start..].iter_mut().rev() {
        *place = b'0' + (value % 10) as u8;
        value /= 10;
    }
    assert!(value == 0, "the value has more than {count} digits");
}

fn digits(bytes: &[u8]) -> Option<u64> {
    bytes.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_at_every_size() {
        let record = Payload::Record { due_us: 1_732_224_000_123_456, number: 4_711 };
        let probe = Payload::Probe { partition: 31 };
        let mut buffer = Vec::new();
        for size in SIZE_MIN..200 {
            for payload in [record, probe] {
                encode(payload, size, &mut buffer);
                assert_eq!(buffer.len(), size);
                assert_eq!(decode(&buffer), Some(payload));
            }
        }
        encode(record, 40, &mut buffer);
        assert_eq!(buffer, b"1732224000123456 000000004711 xxxxxxxxxx");
    }

    #[test]
    fn an_engine_may_append() {
        let record = Payload::Record { due_us: 1_732_224_000_123_456, number: 0 };
        let mut buffer = Vec::new();
        encode(record, SIZE_MIN, &mut buffer);
        buffer.extend_from_slice(b"|x");
        assert_eq!(decode(&buffer), Some(record));
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        for bytes in [
            &b""[..],
            b"1732224000123456",
            b"1732224000123456 00000000471",
            b"{\"a\":1}",
            b"1732224000123456-000000004711",
            b"1732224000123456 0000000047ab",
        ] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
    }
}
