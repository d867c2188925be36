//! Payloads, smaller. The size before is in the metadata of each entry.

use std::io::{Read as _, Write as _};

use bytes::Bytes;

use super::frame::WireError;

/// How a payload is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Compression {
    #[default]
    None,
    /// A block of LZ4, without a frame.
    Lz4,
    Zlib,
    Zstd,
    /// A block of Snappy, without a frame.
    Snappy,
}

/// Fast, and nearly as small as the higher levels on what messages are made of.
const ZSTD_LEVEL: i32 = 3;

impl Compression {
    pub(crate) const ALL: [Self; 5] = [Self::None, Self::Lz4, Self::Zlib, Self::Zstd, Self::Snappy];

    /// Its name in `pulsar.producer.compressionType`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Lz4 => "LZ4",
            Self::Zlib => "ZLIB",
            Self::Zstd => "ZSTD",
            Self::Snappy => "SNAPPY",
        }
    }

    /// Its number in metadata.
    pub(crate) fn number(self) -> i32 {
        self as i32
    }

    /// The compression with a number, if it is one of these.
    pub(crate) fn of(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| compression.number() == number)
    }

    /// Makes `payload` smaller.
    pub(crate) fn compress(self, payload: Vec<u8>) -> Vec<u8> {
        match self {
            Self::None => payload,
            Self::Lz4 => lz4_flex::block::compress(&payload),
            Self::Zlib => {
                let level = flate2::Compression::default();
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                let written = encoder.write_all(&payload).and_then(|()| encoder.finish());
                written.expect("a vector takes all bytes")
            }
            Self::Zstd => {
                zstd::bulk::compress(&payload, ZSTD_LEVEL).expect("there is room for the result")
            }
            Self::Snappy => {
                snap::raw::Encoder::new().compress_vec(&payload).expect("it is less than 4 GB")
            }
        }
    }

    /// The payload that became `compressed`; it had `size` bytes, which the caller has checked.
    ///
    /// # Errors
    /// The bytes are damaged, or were more or fewer.
    pub(crate) fn decompress(self, compressed: Bytes, size: usize) -> Result<Bytes, WireError> {
        let damaged = |problem: String| WireError::Payload {
            problem: format!("not compressed as it says, by {}: {problem}", self.name()),
        };
        let payload = match self {
            Self::None => return Ok(compressed),
            Self::Lz4 => lz4_flex::block::decompress(&compressed, size)
                .map_err(|error| damaged(error.to_string()))?,
            Self::Zlib => {
                let mut payload = Vec::with_capacity(size);
                // One byte more than there should be shows that there are too many.
                let mut decoder =
                    flate2::read::ZlibDecoder::new(&compressed[..]).take(size as u64 + 1);
                let read = decoder.read_to_end(&mut payload);
                read.map_err(|error| damaged(error.to_string()))?;
                payload
            }
            Self::Zstd => zstd::bulk::decompress(&compressed, size)
                .map_err(|error| damaged(error.to_string()))?,
            Self::Snappy => {
                let claimed = snap::raw::decompress_len(&compressed).unwrap_or(usize::MAX);
                if claimed != size {
                    return Err(damaged(format!("{claimed} bytes instead of {size}")));
                }
                let payload = snap::raw::Decoder::new().decompress_vec(&compressed);
                payload.map_err(|error| damaged(error.to_string()))?
            }
        };
        if payload.len() != size {
            return Err(damaged(format!("{} bytes instead of {size}", payload.len())));
        }
        Ok(payload.into())
    }
}
