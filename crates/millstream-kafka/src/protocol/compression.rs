//! How the records of a batch are compressed, in the forms that Kafka's Java client reads and
//! writes.
//!
//! The whole of a batch's records is compressed, behind its header. Sources: KIP-98 (the
//! attributes' lowest three bits), KIP-57 (LZ4 in the frame format, with independent blocks), and
//! the framing of Snappy that Java's `SnappyOutputStream` writes.

use std::io::{self, Read as _, Write as _};

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

/// How large the records of a batch may be: the limit of Kafka's own lengths is 2 GiB, and what
/// needs half of that was not written by anybody.
pub const DECOMPRESSED_MAX: usize = 1 << 30;

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

    /// What the lowest bits of a batch's attributes say; `None` for a way that is not known.
    pub fn of_attribute(bits: i16) -> Option<Self> {
        Some(match bits {
            0 => Self::None,
            1 => Self::Gzip,
            2 => Self::Snappy,
            3 => Self::Lz4,
            4 => Self::Zstd,
            _ => return None,
        })
    }

    /// What was compressed to `records`.
    ///
    /// # Errors
    /// It is none of what brokers keep, or has more than [`DECOMPRESSED_MAX`] bytes.
    pub fn decompress(self, records: &[u8]) -> io::Result<Vec<u8>> {
        let whole = |from: &mut dyn io::Read| {
            let mut read = Vec::with_capacity(records.len().saturating_mul(4).min(1 << 20));
            from.take(DECOMPRESSED_MAX as u64 + 1).read_to_end(&mut read)?;
            if read.len() > DECOMPRESSED_MAX { Err(too_large()) } else { Ok(read) }
        };
        match self {
            Self::None => Ok(records.to_vec()),
            Self::Gzip => whole(&mut MultiGzDecoder::new(records)),
            Self::Snappy => unpack_snappy(records),
            Self::Lz4 => whole(&mut FrameDecoder::new(records)),
            Self::Zstd => whole(&mut zstd::stream::read::Decoder::with_buffer(records)?),
        }
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

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "more than a record batch can have")
}

/// Blocks behind the header of Java's stream, or one block alone, as clients in other languages
/// write it.
fn unpack_snappy(records: &[u8]) -> io::Result<Vec<u8>> {
    let Some(mut rest) = records.strip_prefix(&SNAPPY_HEADER[..8]) else {
        return unpack_block(records, DECOMPRESSED_MAX);
    };
    // The versions.
    rest = rest.get(8..).ok_or(io::ErrorKind::UnexpectedEof)?;
    let mut read = Vec::new();
    while !rest.is_empty() {
        let (length, more) = rest.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (block, more) = more.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        read.extend(unpack_block(block, DECOMPRESSED_MAX - read.len())?);
        rest = more;
    }
    Ok(read)
}

fn unpack_block(block: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    // Snappy makes at most a 21st of what it is given; a length beyond that is not true, and would
    // be allocated.
    let length = snap::raw::decompress_len(block)?;
    if length > bytes_max || length / 64 > block.len() {
        return Err(too_large());
    }
    Ok(snap::raw::Decoder::new().decompress_vec(block)?)
}

#[cfg(test)]
mod tests {

    use super::*;

    fn records() -> Vec<u8> {
        (0..100_000_u32).flat_map(|number| (number % 1_000).to_be_bytes()).collect()
    }

    #[test]
    fn what_is_compressed_can_be_read_again() {
        let records = records();
        let compressed = |way: Compression| way.compress(&records).unwrap();
        assert_eq!(compressed(Compression::None), records);
        for way in ["none", "gzip", "snappy", "lz4", "zstd"] {
            let way = Compression::named(way).unwrap();
            assert_eq!(Compression::of_attribute(way.attribute()), Some(way));
            let packed = compressed(way);
            assert!(way.decompress(&packed).unwrap() == records, "{way:?}");
            let cut = way.decompress(&packed[..packed.len() / 2]);
            assert!(way == Compression::None || cut.is_err(), "{way:?}");
        }
        let block = snap::raw::Encoder::new().compress_vec(&records).unwrap();
        assert!(Compression::Snappy.decompress(&block).unwrap() == records);
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
