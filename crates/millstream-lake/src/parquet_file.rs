//! Parquet files in a store, read in large pieces.
//!
//! The reader asks for a page or a column at a time. Over a network each of these would be a round
//! trip, so a file is fetched in blocks, and a block stays until the reader is past it. A small
//! file is one block.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use object_store::Error;
use parking_lot::Mutex;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use crate::store::TableStore;

/// Up to this size a file is fetched whole.
const WHOLE_BYTES: u64 = 16 << 20;
/// What is fetched at once of a larger file.
const BLOCK_BYTES: u64 = 4 << 20;
/// Blocks kept: a reader goes through the columns of a row group side by side.
const BLOCKS_MAX: usize = 16;

/// A Parquet file in a store. Clones share the fetched blocks.
#[derive(Clone)]
pub(crate) struct RemoteFile {
    inner: Arc<Inner>,
}

struct Inner {
    store: TableStore,
    name: String,
    size: u64,
    /// Blocks by their number, oldest first.
    blocks: Mutex<VecDeque<(u64, Bytes)>>,
    block_bytes: u64,
    /// What the store said last: the reader passes on no more than a text.
    refusal: Mutex<Option<Error>>,
}

impl RemoteFile {
    /// The file `name`, of `size` bytes as listed.
    pub(crate) fn open(
        store: &TableStore,
        name: &str,
        size: u64,
    ) -> std::result::Result<Self, Error> {
        let block_bytes = if size <= WHOLE_BYTES { size.max(1) } else { BLOCK_BYTES };
        let (store, name) = (store.clone(), name.to_owned());
        let file = Self {
            inner: Arc::new(Inner {
                store,
                name,
                size,
                blocks: Mutex::default(),
                block_bytes,
                refusal: Mutex::default(),
            }),
        };
        if size <= WHOLE_BYTES {
            let whole = file.inner.store.get(&file.inner.name)?;
            file.inner.blocks.lock().push_back((0, whole));
        }
        Ok(file)
    }

    /// Relative to the table's directory.
    pub(crate) fn name(&self) -> &str {
        &self.inner.name
    }

    /// Why the store gave no bytes, if that is what went wrong.
    pub(crate) fn take_refusal(&self) -> Option<Error> {
        self.inner.refusal.lock().take()
    }

    fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.inner.store.get_range(&self.inner.name, range);
        bytes.map_err(|error| {
            let shown = ParquetError::External(error.to_string().into());
            *self.inner.refusal.lock() = Some(error);
            shown
        })
    }

    fn block(&self, number: u64) -> Result<Bytes> {
        let Inner { size, blocks, block_bytes, .. } = &*self.inner;
        if let Some((_, block)) = blocks.lock().iter().find(|(found, _)| *found == number) {
            return Ok(block.clone());
        }
        let start = number * block_bytes;
        let block = self.fetch(start..(start + block_bytes).min(*size))?;
        let mut blocks = blocks.lock();
        if blocks.len() == BLOCKS_MAX {
            blocks.pop_front();
        }
        blocks.push_back((number, block.clone()));
        Ok(block)
    }

    /// What is there from `start` on, to the end of its block.
    fn piece(&self, start: u64) -> Result<Bytes> {
        if start >= self.inner.size {
            return Ok(Bytes::new());
        }
        let block = self.block(start / self.inner.block_bytes)?;
        let skipped = (start % self.inner.block_bytes) as usize;
        if skipped > block.len() {
            return Err(ParquetError::EOF(format!("{} is shorter than listed", self.inner.name)));
        }
        Ok(block.slice(skipped..))
    }
}

impl Length for RemoteFile {
    fn len(&self) -> u64 {
        self.inner.size
    }
}

impl ChunkReader for RemoteFile {
    type T = Pieces;

    fn get_read(&self, start: u64) -> Result<Pieces> {
        Ok(Pieces { file: self.clone(), at: start, piece: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start + length as u64;
        let first = self.piece(start)?;
        if first.len() >= length {
            return Ok(first.slice(..length));
        }
        if length as u64 > self.inner.block_bytes {
            // Larger than a block: one request of its own.
            return self.fetch(start..end);
        }
        let mut joined = Vec::with_capacity(length);
        joined.extend_from_slice(&first);
        while joined.len() < length {
            let piece = self.piece(start + joined.len() as u64)?;
            if piece.is_empty() {
                return Err(ParquetError::EOF(format!("{} ends early", self.inner.name)));
            }
            let wanted = (length - joined.len()).min(piece.len());
            joined.extend_from_slice(&piece[..wanted]);
        }
        Ok(joined.into())
    }
}

/// A file's bytes from some place on.
pub(crate) struct Pieces {
    file: RemoteFile,
    at: u64,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            self.piece = self.file.piece(self.at).map_err(io::Error::other)?;
        }
        let length = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..length]);
        self.at += length as u64;
        Ok(length)
    }
}
