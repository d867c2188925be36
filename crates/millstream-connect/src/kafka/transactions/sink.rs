//! The sink itself: turns micro-batches into work for the rotation.
//!
//! A micro-batch without rows makes no transaction: its record would say only that nothing is to
//! be published, and repeating it publishes nothing. Most micro-batches of an alert are such.

use std::sync::Arc;

use futures::future::try_join_all;
use millstream_engine::connector::FlowContext;
use millstream_engine::sink::{Acknowledgement, Failure, Kind, Output, Published};
use millstream_store::env::Env;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::super::error::SinkError;
use super::super::settings::ClientSettings;
use super::super::sink::check_topic;
use super::super::sink_columns::{SinkColumns, SinkRows};
use super::opening::{Groups, NotOpened, Opening};
use super::own::{OwnClient, OwnSettings};
use super::rotation::{Content, Rotation, Transactor, Work};
use super::{IDS, Names, ROWS_AHEAD};

/// A Kafka table that is written exactly once.
pub struct ExactlyOnceSink {
    opening: Opening,
    columns: SinkColumns,
    env: Env,
    /// A permit for each row that may wait for its transaction. While there are too few the driver
    /// waits, and the next micro-batch grows.
    room: Arc<Semaphore>,
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
            room: Arc::new(Semaphore::new(ROWS_AHEAD as usize)),
            rotation: None,
        }
    }

    /// Takes the transactional ids over and tells what was published last.
    pub async fn open(&mut self) -> Result<Option<Published>, NotOpened> {
        let opening = self.opening.clone();
        let checking = move || opening.check().and_then(|()| opening.own());
        let own = self.env.spawn_blocking("kafka-open", checking).join().await?;
        let has_topic = own.is_some();
        let clients = match own {
            Some(settings) => self.own_clients(settings).await?,
            None => self.librdkafka_clients().await?,
        };
        let opening = self.opening.clone();
        let asking = move || opening.published(has_topic);
        let published = self.env.spawn_blocking("kafka-open", asking).join().await?;
        self.rotation = Some(Rotation::start(&self.env, clients));
        Ok(published)
    }

    async fn own_clients(
        &self,
        settings: OwnSettings,
    ) -> Result<Vec<Box<dyn Transactor>>, NotOpened> {
        let opening = self.opening.clone();
        let checking = move || opening.check_topic();
        self.env.spawn_blocking("kafka-open", checking).join().await?;
        let clients = (0..IDS).map(|index| {
            let (opening, settings) = (self.opening.clone(), settings.clone());
            let open = move || OwnClient::open(&opening, &settings, index);
            self.env.spawn_blocking("kafka-open", open).join()
        });
        tracing::debug!(table = self.opening.table, "transactions are written without librdkafka");
        Ok(boxed(try_join_all(clients).await?))
    }

    async fn librdkafka_clients(&self) -> Result<Vec<Box<dyn Transactor>>, NotOpened> {
        let groups = Arc::new(Mutex::new(Groups::new(self.opening.clone())?));
        let clients = (0..IDS).map(|index| {
            let (opening, groups) = (self.opening.clone(), groups.clone());
            self.env.spawn_blocking("kafka-open", move || opening.client(index, &groups)).join()
        });
        let mut clients = try_join_all(clients).await?;
        let opening = self.opening.clone();
        let preparing = move || {
            let Opening { settings, table, topic, env, .. } = &opening;
            if let Some(topic) = topic {
                check_topic(settings, env, table, Some(topic), clients[0].outbox().client())?;
                clients.iter_mut().try_for_each(|client| client.outbox().prepare(topic))?;
            }
            Ok::<_, SinkError>(boxed(clients))
        };
        Ok(self.env.spawn_blocking("kafka-open", preparing).join().await?)
    }

    /// Waits until there is room for more rows.
    pub async fn ready(&self) {
        drop(self.room.acquire().await);
    }

    /// Hands one micro-batch over; waits while too many rows are under way.
    pub async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let with_rows = output.record_batches().filter(|rows| rows.num_rows() > 0);
        let rows = with_rows.map(|rows| self.columns.of(rows));
        let rows = rows.collect::<Result<Vec<SinkRows>, SinkError>>()?;
        if rows.is_empty() {
            return Ok(Acknowledgement::Done);
        }
        let count = rows.iter().map(|rows| rows.rows).sum::<usize>();
        // One that is larger goes when no other waits.
        let count = u32::try_from(count).unwrap_or(ROWS_AHEAD).min(ROWS_AHEAD);
        let room = Arc::clone(&self.room).acquire_many_owned(count);
        let permit = room.await.expect("it is never closed");
        let (done, published) = oneshot::channel();
        let content = Content { batch_id: output.batch_id, rows, reached: output.reached };
        let work = Work { content, permit, done };
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

fn boxed<C: Transactor + 'static>(clients: Vec<C>) -> Vec<Box<dyn Transactor>> {
    clients.into_iter().map(|client| Box::new(client) as Box<dyn Transactor>).collect()
}
