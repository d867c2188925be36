//! The checksum of record batches: CRC-32C (Castagnoli), eight bytes a step.

/// Castagnoli's polynomial with its bits reversed, as the lowest bit is processed first.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// Table N holds the checksum of each byte followed by N zero bytes ("slicing by 8", Intel 2006).
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of `bytes`.
pub fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word) ^ u64::from(crc);
        // The first byte of a word has seven bytes after it, so it is looked up in the last table.
        crc = (0..8).fold(0, |sum, at| sum ^ TABLES[7 - at][(word >> (8 * at)) as usize & 0xff]);
    }
    for byte in rest {
        crc = (crc >> 8) ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        // RFC 3720, B.4, and the usual check value.
        assert_eq!(checksum(&[0; 32]), 0x8A91_36AA);
        assert_eq!(checksum(&[0xff; 32]), 0x62A8_AB43);
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
        assert_eq!(checksum(b""), 0);
    }
}
