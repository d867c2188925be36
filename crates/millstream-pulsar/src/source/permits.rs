//! How many messages a broker may send before it is asked for more.
//!
//! It counts messages, and sends entries as a whole; what is held in memory is counted in bytes. So
//! as many messages are allowed as have about the bytes that may be on their way.

/// The first message says how large they are.
const FIRST: u32 = 1;
/// Messages that may be on their way, however small they are.
const MAX: u64 = 10_000;
/// Old messages say little about the size of new ones.
const REMEMBERED: u64 = 100_000;

/// What a broker may still send to one reader.
pub(super) struct Permits {
    /// As the broker counts it: less than none after an entry with more than were allowed.
    allowed: i64,
    /// Of entries so far.
    messages: u64,
    bytes: u64,
}

impl Permits {
    /// What a reader begins with, and how many that are.
    pub(super) fn first() -> (Self, u32) {
        (Self { allowed: i64::from(FIRST), messages: 0, bytes: 0 }, FIRST)
    }

    /// An entry of so many messages has arrived. Gives how many more to allow, so that about
    /// `bytes_max` bytes are on their way.
    pub(super) fn arrived(
        &mut self,
        messages: usize,
        bytes: usize,
        bytes_max: usize,
    ) -> Option<u32> {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        self.allowed -= i64::from(messages);
        self.messages += u64::from(messages);
        self.bytes += bytes as u64;
        if self.messages > REMEMBERED {
            (self.messages, self.bytes) = (self.messages / 2, self.bytes / 2);
        }
        let average = (self.bytes / self.messages.max(1)).max(1);
        let fits = (bytes_max as u64 / average).clamp(1, MAX).cast_signed();
        if self.allowed > fits / 2 {
            return None;
        }
        let more = u32::try_from(fits - self.allowed).unwrap_or(u32::MAX);
        self.allowed += i64::from(more);
        Some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broker that sends entries as long as it is allowed anything.
    fn entries_sent(messages: usize, bytes: usize, bytes_max: usize) -> usize {
        let (mut permits, first) = Permits::first();
        let (mut allowed, mut sent) = (i64::from(first), 0);
        while allowed > 0 && sent < 1_000 {
            sent += 1;
            allowed -= messages as i64;
            allowed += permits.arrived(messages, bytes, bytes_max).map_or(0, i64::from);
            assert!(allowed <= 10_000);
        }
        sent
    }

    #[test]
    fn a_broker_is_never_left_without() {
        for messages in [1, 63, 64, 65, 1_000, 20_000] {
            for bytes in [messages, messages * 1_000, 5_000_000] {
                for bytes_max in [1, 500_000, 64 << 20] {
                    let sent = entries_sent(messages, bytes, bytes_max);
                    assert_eq!(sent, 1_000, "{messages} messages, {bytes} bytes, {bytes_max}");
                }
            }
        }
    }

    #[test]
    fn large_messages_come_one_by_one() {
        let (mut permits, _) = Permits::first();
        assert_eq!(permits.arrived(1, 5_000_000, 6_000_000), Some(1));
        assert_eq!(permits.arrived(1, 5_000_000, 6_000_000), Some(1));
        assert_eq!(permits.arrived(1, 5_000_000, 64 << 20), Some(13));
        assert_eq!(permits.arrived(1, 5_000_000, 64 << 20), None);
    }
}
