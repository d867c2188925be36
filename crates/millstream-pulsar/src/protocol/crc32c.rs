//! The checksum of messages: CRC-32C (Castagnoli), eight bytes a step.

/// The polynomial with its bits reversed: the lowest bit of a byte goes first.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// `TABLES[n][b]` is what the byte `b` does to the sum when `n` bytes follow it in its step.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bits) = (byte as u32, 8);
        while bits > 0 {
            let is_odd = sum & 1 == 1;
            sum >>= 1;
            if is_odd {
                sum ^= POLYNOMIAL;
            }
            bits -= 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut at = 256;
    while at < 8 * 256 {
        let (row, byte) = (at / 256, at % 256);
        let before = tables[row - 1][byte];
        tables[row][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
        at += 1;
    }
    tables
}

/// A checksum that is computed piece by piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crc32c(u32);

impl Crc32c {
    pub(crate) fn new() -> Self {
        Self(u32::MAX)
    }

    /// The sum with `bytes` behind what it is of.
    pub(crate) fn with(self, bytes: &[u8]) -> Self {
        let mut sum = self.0;
        let (steps, rest) = bytes.as_chunks::<8>();
        for step in steps {
            let [a, b, c, d, e, f, g, h] =
                (u64::from_le_bytes(*step) ^ u64::from(sum)).to_le_bytes();
            let of = |row: usize, byte: u8| TABLES[row][usize::from(byte)];
            sum = of(7, a)
                ^ of(6, b)
                ^ of(5, c)
                ^ of(4, d)
                ^ of(3, e)
                ^ of(2, f)
                ^ of(1, g)
                ^ of(0, h);
        }
        for byte in rest {
            sum = (sum >> 8) ^ TABLES[0][(sum as u8 ^ byte) as usize];
        }
        Self(sum)
    }

    pub(crate) fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        // RFC 3720, appendix B.4, and the usual check value.
        let sum = |bytes: &[u8]| Crc32c::new().with(bytes).value();
        assert_eq!(sum(b""), 0);
        assert_eq!(sum(b"123456789"), 0xE306_9283);
        assert_eq!(sum(&[0; 32]), 0x8A91_36AA);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(sum(&ascending), 0x46DD_794E);
        let pieces = Crc32c::new().with(&ascending[..5]).with(&ascending[5..]);
        assert_eq!(pieces.value(), 0x46DD_794E);
    }
}
