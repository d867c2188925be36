//! State that does not fit into memory, in a file.
//!
//! The file has no name, so nothing is left of it when the process ends, however it does. What is
//! in it is a copy: after a crash the state log gives the state anew.

use std::fs::File;
use std::io::{Error, Read, Seek, SeekFrom, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use millstream_store::error::Kind;

use super::codec;
use crate::plan::stream_scan::into_datafusion;
use crate::source::Failure;

/// Rows of an operator's inputs in a file.
pub struct SpillFile {
    file: File,
    pieces: Vec<Piece>,
    bytes: u64,
}

/// Rows of one input, in the order in which they came.
struct Piece {
    input: usize,
    bytes: usize,
}

impl SpillFile {
    /// A file without rows, in the directory for temporary files.
    pub fn new() -> Result<Self> {
        let file = tempfile::tempfile().map_err(failed)?;
        Ok(Self { file, pieces: Vec::new(), bytes: 0 })
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn add(&mut self, input: usize, schema: &SchemaRef, rows: &[RecordBatch]) -> Result<()> {
        let encoded = codec::encode(schema, rows)?;
        if encoded.is_empty() {
            return Ok(());
        }
        self.file.write_all(&encoded).map_err(failed)?;
        self.bytes += encoded.len() as u64;
        self.pieces.push(Piece { input, bytes: encoded.len() });
        Ok(())
    }

    /// Gives the rows to `each`, some of one input at a time, in the order in which they came.
    pub fn read(
        mut self,
        mut each: impl FnMut(usize, Vec<RecordBatch>) -> Result<()>,
    ) -> Result<()> {
        self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        for Piece { input, bytes } in self.pieces {
            let mut encoded = vec![0; bytes];
            self.file.read_exact(&mut encoded).map_err(failed)?;
            each(input, codec::decode(&encoded)?)?;
        }
        Ok(())
    }

    /// Adds rows by input.
    pub fn add_all(&mut self, schemas: &[SchemaRef], snapshot: &[Vec<RecordBatch>]) -> Result<()> {
        for (input, (schema, rows)) in schemas.iter().zip(snapshot).enumerate() {
            self.add(input, schema, rows)?;
        }
        Ok(())
    }
}

fn failed(error: Error) -> DataFusionError {
    let directory = std::env::temp_dir();
    into_datafusion(Failure::new(
        Kind::Retry,
        format!(
            "state beyond 'memoryLimit' cannot be kept in {}: {error}. Make room there, name \
             another directory with TMPDIR, or raise 'memoryLimit'",
            directory.display()
        ),
    ))
}
