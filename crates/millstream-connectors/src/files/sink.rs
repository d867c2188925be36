//! The sink: gathers micro-batches, and has a commit of its directory made of them.
//!
//! Rows are encoded as they come ([`crate::gather`]), into files that nobody sees; when a commit is
//! due they are made visible together ([`super::directory`]). A micro-batch is acknowledged when
//! the commit it is in is made, and after a crash the last commit says how far the query came.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::FlowContext;
use millstream_engine::api::sink::{
    Acknowledgement, Delivery, Failure, Output, PieceWriter, Published, Sink,
};

use super::directory::Directory;
use super::options::WriteOptions;
use super::target::Target;
use super::uri;
use crate::gather::Gather;

/// Writes micro-batches to a directory.
pub struct FilesSink {
    target: Target,
    gather: Option<Gather>,
}

impl FilesSink {
    /// A sink for rows of `schema`.
    pub fn new(options: WriteOptions, schema: SchemaRef, context: &FlowContext) -> Self {
        let path = crate::paths::resolve(&context.base_dir, &options.path);
        let path = std::path::absolute(&path).unwrap_or(path);
        let (query_id, env) = (context.query_id.clone(), context.env.clone());
        let target = Target { path, options: Arc::new(options), schema, query_id, env };
        Self { target, gather: None }
    }
}

#[async_trait]
impl Sink for FilesSink {
    fn description(&self) -> String {
        format!("FileSink[{}]", uri::encode(&self.target.path))
    }

    fn delivery(&self) -> Delivery {
        Delivery::Transactional
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        // What is gathered is published before somebody asks what was.
        self.close().await?;
        let target = self.target.clone();
        let open = move || Directory::open(target);
        let (directory, published) =
            self.target.env.spawn_blocking("files-open", open).join().await?;
        let pacing = self.target.options.pacing;
        self.gather = Some(Gather::start(Arc::new(directory), pacing, &self.target.env));
        Ok(published)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        if let Some(gather) = &mut self.gather {
            gather.ready().await;
        }
        Ok(())
    }

    fn micro_batches_in_flight_max(&self) -> Option<usize> {
        self.target.options.pacing.micro_batches_in_flight_max()
    }

    fn piece_writer(&mut self) -> Option<&mut dyn PieceWriter> {
        Some(self)
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let gather = self.gather.as_mut().expect("the driver opens a sink before it uses it");
        Ok(gather.publish(output).await)
    }

    async fn flush(&mut self) {
        if let Some(gather) = &self.gather {
            gather.flush().await;
        }
    }

    async fn close(&mut self) -> Result<(), Failure> {
        let gather = self.gather.take();
        self.target.env.spawn_blocking("files-close", move || drop(gather)).join().await;
        Ok(())
    }
}

#[async_trait]
impl PieceWriter for FilesSink {
    async fn write(&mut self, _partition: usize, rows: RecordBatch) -> Result<(), Failure> {
        let gather = self.gather.as_mut().expect("the driver opens a sink before it uses it");
        gather.write(rows).await
    }
}
