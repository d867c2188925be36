//! How the records of a batch are compressed, in the forms that Kafka's Java client reads and
//! writes.
//!
//! The whole of a batch's records is compressed, behind its header. Sources: KIP-98 (the
//! attributes' lowest three bits), KIP-57 (LZ4 in the frame format, with independent blocks), and
//! the framing of Snappy that Java's `SnappyOutputStream` writes.

use std::io::{self, Write as _};

use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

/// What `SnappyOutputStream` begins with: its name, then its version and the oldest one that can
/// read it.
const SNAPPY_HEADER: [u8; 16] =
    [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
/// Bytes of one block before compression, as Java's stream has them.
const SNAPPY_BLOCK: usize = 32 << 10;

/// A way to compress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Blocks of Snappy.
    Snappy,
    /// The frame format of LZ4.
    Lz4,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// By the name that `compression.type` gives it.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.trim().to_ascii_lowercase().as_str() {
            "none" => Self::None,
            "gzip" => Self::Gzip,
            "snappy" => Self::Snappy,
            "lz4" => Self::Lz4,
            "zstd" => Self::Zstd,
            _ => return None,
        })
    }

    /// The bits of a batch's attributes.
    pub fn attribute(self) -> i16 {
        self as i16
    }

    /// `records`, compressed.
    ///
    /// # Errors
    /// A library's. None of them is known for bytes in memory.
    pub fn compress(self, records: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::None => Ok(records.to_vec()),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(records)?;
                encoder.finish()
            }
            Self::Snappy => snappy(records),
            Self::Lz4 => {
                // Java's client refuses blocks that depend on each other.
                let frame = FrameInfo::new()
                    .block_mode(BlockMode::Independent)
                    .block_size(BlockSize::Max64KB);
                let mut encoder = FrameEncoder::with_frame_info(frame, Vec::new());
                encoder.write_all(records)?;
                encoder.finish().map_err(io::Error::other)
            }
            Self::Zstd => zstd::bulk::compress(records, zstd::DEFAULT_COMPRESSION_LEVEL),
        }
    }
}

fn snappy(records: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressed = SNAPPY_HEADER.to_vec();
    let mut encoder = snap::raw::Encoder::new();
    for block in records.chunks(SNAPPY_BLOCK) {
        let block = encoder.compress_vec(block)?;
        compressed.extend_from_slice(&(block.len() as u32).to_be_bytes());
        compressed.extend_from_slice(&block);
    }
    Ok(compressed)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn records() -> Vec<u8> {
        (0..100_000_u32).flat_map(|number| (number % 1_000).to_be_bytes()).collect()
    }

    #[test]
    fn what_is_compressed_can_be_read_again() {
        let records = records();
        let compressed = |way: Compression| way.compress(&records).unwrap();
        assert_eq!(compressed(Compression::None), records);
        let mut read = Vec::new();
        flate2::read::GzDecoder::new(&*compressed(Compression::Gzip))
            .read_to_end(&mut read)
            .unwrap();
        assert_eq!(read, records);
        let mut read = Vec::new();
        lz4_flex::frame::FrameDecoder::new(&*compressed(Compression::Lz4))
            .read_to_end(&mut read)
            .unwrap();
        assert_eq!(read, records);
        let zstd = zstd::bulk::decompress(&compressed(Compression::Zstd), records.len());
        assert_eq!(zstd.unwrap(), records);
        let snappy = compressed(Compression::Snappy);
        let (header, mut rest) = snappy.split_at(16);
        assert_eq!(header, SNAPPY_HEADER);
        let mut read = Vec::new();
        while let Some((length, more)) = rest.split_first_chunk::<4>() {
            let (block, more) = more.split_at(u32::from_be_bytes(*length) as usize);
            read.extend(snap::raw::Decoder::new().decompress_vec(block).unwrap());
            rest = more;
        }
        assert_eq!(read, records);
    }

    #[test]
    fn attributes_are_those_of_the_format() {
        let named = |name| Compression::named(name).map(Compression::attribute);
        let all = ["none", "gzip", "Snappy", "lz4", "zstd", "brotli"].map(named);
        assert_eq!(all, [Some(0), Some(1), Some(2), Some(3), Some(4), None]);
    }
}
