//! What nodes keep on disk of files in object stores.
//!
//! A file is read in blocks of [`BLOCK_BYTES`]. [`store::CachedStore`] stands in front of a store
//! and asks [`blocks::BlockCache`] for each block first. A block belongs to one version of its
//! file: each task asks the store once which version a file has, and a block of another version is
//! not looked at, so that a file that was replaced is never answered from what it was.
//!
//! Whatever goes wrong with the cache costs speed and nothing else: a block that is damaged, or was
//! cut off by a crash, is read from the store again, and a disk that is full ends the filling.

pub mod blocks;
pub mod hash;
pub mod store;

/// The unit of reading: large enough for a store, whose answers take tens of milliseconds, small
/// enough for columns of which a query reads few.
pub const BLOCK_BYTES: u64 = 1 << 20;
