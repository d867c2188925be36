//! State that does not fit into memory, in a file.
//!
//! The file has no name, so nothing is left of it however the process ends. It holds only a copy:
//! after a crash the state is rebuilt from the state log.

use std::fs::File;
use std::io::{Error, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use millstream_store::error::{Classified, Kind};

use super::codec;
use crate::failures::into_datafusion;

/// Rows of an operator's inputs in a file.
pub struct SpillFile {
    file: File,
    /// By step, by input, the bytes of its rows.
    steps: Vec<Vec<usize>>,
    bytes: u64,
}

impl SpillFile {
    /// A file without rows, in the directory for temporary files.
    pub fn new() -> Result<Self> {
        let file = tempfile::tempfile().map_err(failed)?;
        Ok(Self { file, steps: Vec::new(), bytes: 0 })
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds rows by input, as one step.
    pub fn add_all(&mut self, schemas: &[SchemaRef], inputs: &[Vec<RecordBatch>]) -> Result<()> {
        let mut step = Vec::with_capacity(inputs.len());
        for (schema, rows) in schemas.iter().zip(inputs) {
            let encoded = codec::encode(schema, rows)?;
            self.file.write_all(&encoded).map_err(failed)?;
            self.bytes += encoded.len() as u64;
            step.push(encoded.len());
        }
        self.steps.push(step);
        Ok(())
    }

    /// Gives each step's number and rows, by input, to `each`, in the order in which they came.
    pub fn read(
        mut self,
        mut each: impl FnMut(usize, Vec<Vec<RecordBatch>>) -> Result<()>,
    ) -> Result<()> {
        self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        for (step, bytes) in self.steps.into_iter().enumerate() {
            let mut inputs = Vec::with_capacity(bytes.len());
            for bytes in bytes {
                let mut encoded = vec![0; bytes];
                self.file.read_exact(&mut encoded).map_err(failed)?;
                inputs.push(codec::decode(&encoded)?);
            }
            each(step, inputs)?;
        }
        Ok(())
    }
}

fn failed(error: Error) -> DataFusionError {
    into_datafusion(SpillError { directory: std::env::temp_dir(), error }.into())
}

/// The file cannot be made, written or read.
#[derive(Debug, thiserror::Error)]
#[error(
    "state beyond 'memoryLimit' cannot be kept in {}: {error}. Make room there, name another \
     directory with TMPDIR, or raise 'memoryLimit'",
    directory.display()
)]
struct SpillError {
    directory: PathBuf,
    error: Error,
}

impl Classified for SpillError {
    fn kind(&self) -> Kind {
        Kind::Retry
    }
}
