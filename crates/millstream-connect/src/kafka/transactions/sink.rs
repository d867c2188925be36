//! The sink itself: turns micro-batches into work for the rotation.
//!
//! A micro-batch without rows makes no transaction: its record would say only that nothing is to
//! be published, and repeating it publishes nothing. Most micro-batches of an alert are such.

use std::sync::Arc;

use futures::future::try_join_all;
use millstream_engine::connector::FlowContext;
use millstream_engine::sink::{Acknowledgement, Failure, Kind, Output, Published};
use millstream_store::env::Env;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::super::error::SinkError;
use super::super::settings::ClientSettings;
use super::super::sink::check_topic;
use super::super::sink_columns::{SinkColumns, SinkRows};
use super::opening::{Groups, NotOpened, Opening};
use super::rotation::{Rotation, Work};
use super::{IDS, Names, progress};

/// A Kafka table that is written exactly once.
pub struct ExactlyOnceSink {
    opening: Opening,
    columns: SinkColumns,
    env: Env,
    /// One permit: who holds it may hand a micro-batch over. While it is missing the driver waits,
    /// and the next micro-batch grows.
    turn: Arc<Semaphore>,
    /// The permit, once [`ready`](Self::ready) has it.
    held: Option<OwnedSemaphorePermit>,
    rotation: Option<Rotation>,
}

impl ExactlyOnceSink {
    /// A sink that is not connected yet.
    pub fn new(
        settings: ClientSettings,
        columns: SinkColumns,
        topic: Option<&str>,
        table: &str,
        context: &FlowContext,
    ) -> Self {
        let (env, table) = (context.env.clone(), table.to_owned());
        let names = Names::new(&context.flow, &context.query_id);
        Self {
            opening: Opening {
                settings,
                names,
                table,
                topic: topic.map(Arc::from),
                env: env.clone(),
            },
            columns,
            env,
            turn: Arc::new(Semaphore::new(1)),
            held: None,
            rotation: None,
        }
    }

    /// Takes the transactional ids over and tells what was published last.
    pub async fn open(&mut self) -> Result<Option<Published>, NotOpened> {
        let opening = self.opening.clone();
        self.env.spawn_blocking("kafka-open", move || opening.check()).join().await?;
        let clients = (0..IDS).map(|index| {
            let opening = self.opening.clone();
            self.env.spawn_blocking("kafka-open", move || opening.client(index)).join()
        });
        let mut clients = try_join_all(clients).await?;
        let opening = self.opening.clone();
        let asking = move || {
            let Opening { settings, table, topic, env, .. } = &opening;
            if let Some(topic) = topic {
                check_topic(settings, env, table, Some(topic), clients[0].outbox().client())?;
                clients.iter_mut().try_for_each(|client| client.outbox().prepare(topic))?;
            }
            let published = opening.published()?;
            Ok::<_, NotOpened>((clients, Groups::new(opening)?, published))
        };
        let asked = self.env.spawn_blocking("kafka-open", asking).join().await;
        let (clients, groups, published) = asked?;
        let topic = self.opening.topic.clone();
        self.rotation = Some(Rotation::start(&self.env, clients, topic, groups));
        Ok(published)
    }

    /// Waits until the micro-batch before is with the brokers.
    pub async fn ready(&mut self) {
        if self.held.is_none() {
            let turn = Arc::clone(&self.turn);
            self.held = Some(turn.acquire_owned().await.expect("it is never closed"));
        }
    }

    /// Hands one micro-batch over; waits until the one before is with the brokers.
    pub async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let with_rows = output.record_batches().filter(|rows| rows.num_rows() > 0);
        let rows = with_rows.map(|rows| self.columns.of(rows));
        let rows = rows.collect::<Result<Vec<SinkRows>, SinkError>>()?;
        if rows.is_empty() {
            return Ok(Acknowledgement::Done);
        }
        self.ready().await;
        let permit = self.held.take().expect("`ready` has waited for it");
        let (done, published) = oneshot::channel();
        let record = progress::encode(&output.reached);
        let work = Work { batch_id: output.batch_id, rows, record, permit, done };
        self.rotation.as_ref().expect("the driver opens a sink before it uses it").publish(work);
        Ok(Acknowledgement::Later(Box::pin(async move {
            let lost = || Failure::new(Kind::Bug, "a Kafka transaction was dropped unfinished");
            published.await.unwrap_or_else(|_| Err(lost()))
        })))
    }

    /// Ends what is in hand, and lets go of the clients.
    pub async fn close(&mut self) {
        let rotation = self.rotation.take();
        self.env.spawn_blocking("kafka-close", move || drop(rotation)).join().await;
    }
}
