//! A source that is read once from its beginning to its end, as a table at rest.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::stream::{self, StreamExt};

use super::filter::Filter;
use super::snapshot::{RowStream, Snapshot, SnapshotPart};
use super::source::{Failure, ReadLimit, RecordBatches, Records, Source, SourceLog, Split};

/// Makes the source, anew for each reading.
type Open = dyn Fn() -> Result<Box<dyn Source>, Failure> + Send + Sync;

/// The rows that a source has, from its beginning to the end that it has when it is read.
pub struct DrainedSource(Arc<Opened>);

struct Opened(Box<Open>);

impl DrainedSource {
    /// The rows of the source that `open` makes.
    pub fn new(
        open: impl Fn() -> Result<Box<dyn Source>, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Opened(Box::new(open))))
    }
}

#[async_trait]
impl Snapshot for DrainedSource {
    async fn parts(&self, _filters: &[Filter]) -> Result<Vec<Arc<dyn SnapshotPart>>, Failure> {
        Ok(vec![Arc::clone(&self.0) as Arc<dyn SnapshotPart>])
    }

    fn is_repeatable(&self) -> bool {
        false
    }
}

impl SnapshotPart for Opened {
    fn read(&self, projection: &[usize]) -> RowStream {
        let projection = projection.to_vec();
        let source = (self.0)();
        let rows = async move {
            let drain = Drain::start(source?).await?;
            let rows = Rows { drain, decoding: None, projection };
            Ok::<_, Failure>(stream::try_unfold(rows, Rows::next))
        };
        let flat = |opened| match opened {
            Ok(rows) => StreamExt::boxed(rows),
            Err(failure) => stream::iter([Err(failure)]).boxed(),
        };
        stream::once(rows).flat_map(flat).boxed()
    }
}

/// The records of all rows that `source` has now.
pub async fn records_to_end(source: Box<dyn Source>) -> Result<Vec<Arc<dyn Records>>, Failure> {
    let mut drain = Drain::start(source).await?;
    let mut records = Vec::new();
    while let Some(split) = drain.next().await? {
        records.extend(split.records());
    }
    Ok(records)
}

/// A source on the way to its end.
struct Drain {
    source: Box<dyn Source>,
    /// Handed over by the source, and not decoded yet.
    splits: VecDeque<Box<dyn Split>>,
}

impl Drain {
    async fn start(mut source: Box<dyn Source>) -> Result<Self, Failure> {
        let start = source.open(None, SourceLog::in_memory()).await?;
        source.start(&start).await?;
        source.fix_end().await?;
        Ok(Self { source, splits: VecDeque::new() })
    }

    /// The next split. Closes the source at its end.
    async fn next(&mut self) -> Result<Option<Box<dyn Split>>, Failure> {
        loop {
            if let Some(split) = self.splits.pop_front() {
                return Ok(Some(split));
            }
            if self.source.at_end() {
                self.source.close().await;
                return Ok(None);
            }
            self.source.data_available().await;
            if let Some(taken) = self.source.poll(ReadLimit::AllAvailable)? {
                self.splits.extend(taken.splits);
            }
        }
    }
}

struct Rows {
    drain: Drain,
    decoding: Option<RecordBatches>,
    projection: Vec<usize>,
}

impl Rows {
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>, Failure> {
        loop {
            if let Some(rows) = self.decoding.as_mut().and_then(Iterator::next) {
                return Ok(Some((rows?, self)));
            }
            let Some(split) = self.drain.next().await? else { return Ok(None) };
            self.decoding = Some(split.read(&self.projection));
        }
    }
}
