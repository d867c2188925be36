//! The sink as the driver sees it.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Table};
use millstream_engine::api::sink::{Acknowledgement, Delivery, Failure, Output, Published, Sink};
use millstream_store::env::Task;
use tokio::sync::{mpsc, oneshot};

use super::options::SinkOptions;
use super::session::Terms;
use super::writer::{Request, Writer};
use crate::client::Client;
use crate::error::PulsarError;

/// Micro-batches that wait for the writer; while there are more, the next one grows.
const WAITING_MAX: usize = 2;

/// Writes micro-batches to topics.
pub(crate) struct PulsarSink {
    options: SinkOptions,
    context: FlowContext,
    running: Option<(mpsc::Sender<Request>, Task<()>)>,
}

impl PulsarSink {
    /// A sink of a table that was checked; nothing is connected yet.
    pub(crate) fn new(
        table: &Table,
        schema: &SchemaRef,
        base_dir: &Path,
        context: &FlowContext,
    ) -> Result<Self, Failure> {
        let table = table.fresh()?;
        let options = SinkOptions::parse(&table, schema, base_dir)?;
        Ok(Self { options, context: context.clone(), running: None })
    }
}

#[async_trait]
impl Sink for PulsarSink {
    fn description(&self) -> String {
        let topic = self.options.topic.as_deref().unwrap_or("the topic of each row");
        format!("Pulsar[{topic}]")
    }

    fn delivery(&self) -> Delivery {
        match self.options.is_exactly_once {
            true => Delivery::Transactional,
            false => Delivery::AtLeastOnce,
        }
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        let env = &self.context.env;
        let client = Client::new(self.options.settings.clone(), env);
        let contact = format!("Pulsar at {}", self.options.settings.shown());
        let terms = Terms {
            options: self.options.clone(),
            query_id: self.context.query_id.clone(),
            flow: self.context.flow.clone(),
            instance: env.secret(),
            contact: self.context.contacts.with(contact),
        };
        let (writer, published) =
            Writer::open(client, terms, self.context.sink_log.clone()).await?;
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        self.running = Some((sender, env.spawn("pulsar-writer", writer.run(receiver))));
        Ok(published)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        let (sender, _) = self.running.as_ref().ok_or(PulsarError::NotOpen)?;
        // The acknowledgements say why it has ended.
        let _ = sender.reserve().await;
        Ok(())
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let (sender, _) = self.running.as_ref().ok_or(PulsarError::NotOpen)?;
        let Output { batch_id, partitions, end_offsets } = output;
        let rows: Vec<RecordBatch> = partitions.into_iter().flatten().collect();
        let (done, is_done) = oneshot::channel();
        let request = Request { batch_id, end_offsets, rows, done };
        // If it is not taken, `done` is dropped and the acknowledgement fails.
        let _ = sender.send(request).await;
        Ok(Acknowledgement::Later(Box::pin(async move {
            is_done.await.unwrap_or_else(|_| Err(PulsarError::Ended.into()))
        })))
    }

    async fn close(&mut self) -> Result<(), Failure> {
        if let Some((sender, task)) = self.running.take() {
            drop(sender);
            task.join().await;
        }
        Ok(())
    }
}
