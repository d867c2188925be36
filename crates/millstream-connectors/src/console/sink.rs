//! Prints micro-batches, each in one write.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::error::ArrowBug;
use millstream_engine::api::sink::{
    Acknowledgement, Classified, Delivery, Failure, Kind, Output, PieceWriter, Published, Sink,
};
use millstream_store::env::Env;
use parking_lot::Mutex;
use thiserror::Error;

use super::{ConsoleOptions, show};

const RULE: &str = "-------------------------------------------";

/// Whoever read the output has gone, as in `millstream run ... | head`.
///
/// Not a failure of the query: the binary looks for it as the cause and stops as if asked to. Its
/// kind is `Config` because repeating the write cannot help.
#[derive(Debug, Error)]
#[error("the reader of standard output has closed it")]
pub struct OutputClosed;

impl Classified for OutputClosed {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

/// The output takes nothing, though its reader is there.
#[derive(Debug, Error)]
#[error("standard output cannot be written: {error}")]
struct Unwritable {
    error: io::Error,
}

impl Classified for Unwritable {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

/// Prints micro-batches to `out`.
pub struct ConsoleSink {
    options: ConsoleOptions,
    schema: SchemaRef,
    out: Arc<Mutex<Box<dyn Write + Send>>>,
    env: Env,
    printed_any: bool,
    pieces: Pieces,
}

/// What is kept of the result of a batch query: the rows that are printed, if no partition before
/// theirs has enough.
#[derive(Default)]
struct Pieces {
    partitions: Vec<Vec<RecordBatch>>,
    /// How many rows there were, kept or not.
    rows: u64,
}

impl Pieces {
    fn add(&mut self, partition: usize, rows: &RecordBatch, rows_max: usize) {
        if self.partitions.len() <= partition {
            self.partitions.resize_with(partition + 1, Vec::new);
        }
        let kept = &mut self.partitions[partition];
        let missing = rows_max - kept.iter().map(RecordBatch::num_rows).sum::<usize>();
        if missing > 0 {
            kept.push(rows.slice(0, rows.num_rows().min(missing)));
        }
        self.rows += rows.num_rows() as u64;
    }
}

impl ConsoleSink {
    /// A sink that prints rows of `schema` to `out`.
    pub fn new(
        options: ConsoleOptions,
        schema: SchemaRef,
        out: Box<dyn Write + Send>,
        env: Env,
    ) -> Self {
        let (out, pieces) = (Arc::new(Mutex::new(out)), Pieces::default());
        Self { options, schema, out, env, printed_any: false, pieces }
    }

    /// The table of `output`, whose rows are the first of `all` rows.
    fn render(&self, output: &Output, all: u64) -> Result<String, Failure> {
        let rows_max = self.options.rows_max;
        let mut rows = Vec::new();
        let mut missing = rows_max;
        for record_batch in output.record_batches() {
            let taken = record_batch.num_rows().min(missing);
            rows.push(record_batch.slice(0, taken));
            missing -= taken;
        }
        let rows: Vec<RecordBatch> = rows.into_iter().filter(|rows| rows.num_rows() > 0).collect();
        let table =
            show(&self.schema, &rows, self.options.cell_characters_max).map_err(ArrowBug)?;
        let more = if all <= rows_max as u64 {
            String::new()
        } else {
            let noun = if rows_max == 1 { "row" } else { "rows" };
            format!("only showing top {rows_max} {noun}\n")
        };
        Ok(format!("{RULE}\nBatch: {}\n{RULE}\n{table}{more}\n", output.batch_id))
    }
}

#[async_trait]
impl Sink for ConsoleSink {
    fn description(&self) -> String {
        "console".into()
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        Ok(None)
    }

    fn piece_writer(&mut self) -> Option<&mut dyn PieceWriter> {
        Some(self)
    }

    async fn publish(&mut self, mut output: Output) -> Result<Acknowledgement, Failure> {
        let pieces = std::mem::take(&mut self.pieces);
        let all = output.rows() + pieces.rows;
        output.partitions.extend(pieces.partitions);
        if self.printed_any && all == 0 {
            return Ok(Acknowledgement::Done);
        }
        self.printed_any = true;
        let text = self.render(&output, all)?;
        // A terminal or a pipe may block for as long as its reader likes.
        let out = self.out.clone();
        let write = move || {
            let mut out = out.lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        };
        match self.env.spawn_blocking("console", write).join().await {
            Ok(()) => Ok(Acknowledgement::Done),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(OutputClosed.into()),
            Err(error) => Err(Unwritable { error }.into()),
        }
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[async_trait]
impl PieceWriter for ConsoleSink {
    async fn write(&mut self, partition: usize, rows: RecordBatch) -> Result<(), Failure> {
        self.pieces.add(partition, &rows, self.options.rows_max);
        Ok(())
    }
}
