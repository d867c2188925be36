//! The sink itself: turns micro-batches into work for the rotation.
//!
//! A micro-batch without rows makes no transaction: its record would say only that nothing is to
//! be published, and repeating it publishes nothing. Most micro-batches of a query for alerts are
//! like that.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use millstream_engine::api::connector::FlowContext;
use millstream_engine::api::sink::{Acknowledgement, Failure, OtherQuery, Output, Published};
use millstream_store::env::{Env, Task};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::librdkafka::TransactionalClient;
use super::opening::{Groups, NotOpened, Opening};
use super::progress::Origin;
use super::protocol::{ProtocolClient, ProtocolSettings};
use super::protocol_support::ProtocolSupport;
use super::rotation::{Content, Rotation, Transactor, Work};
use super::{IDS, Names, ROWS_AHEAD};
use crate::brokers::throttling::Throttling;
use crate::client::settings::ClientSettings;
use crate::error::SinkError;
use crate::sink::columns::{SinkColumns, SinkRows};
use crate::sink::refused::{convert_errors, refused};
use crate::sink::topic::{brokers_of, check_topic};

/// A Kafka table that is written exactly once.
pub struct ExactlyOnceSink {
    opening: Opening,
    columns: SinkColumns,
    env: Env,
    /// A permit for each row that may wait for its transaction. While there are too few the driver
    /// waits, and the next micro-batch grows.
    room: Arc<Semaphore>,
    rotation: Option<Rotation>,
    /// Present while librdkafka writes because a broker is away.
    protocol_watch: Option<ProtocolWatch>,
}

/// Checks in the background whether the protocol client can write again.
struct ProtocolWatch {
    found: Arc<Mutex<Option<ProtocolSettings>>>,
    looking: Task<()>,
}

impl Drop for ProtocolWatch {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

/// How often the watch checks whether a broker that was away at the start is back.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

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
        let throttling = Arc::new(Throttling::new(&table));
        let names = Names::new(&context.flow, &context.query_id);
        let origin = Arc::new(Origin {
            query: context.query_id.clone(),
            flow: context.flow.clone(),
            topic: topic.map(str::to_owned),
            table: table.clone(),
        });
        Self {
            opening: Opening {
                settings,
                names,
                table,
                topic: topic.map(Arc::from),
                origin,
                contact: Arc::new(context.contacts.with(brokers_of(topic))),
                throttling,
                env: env.clone(),
            },
            columns,
            env,
            room: Arc::new(Semaphore::new(ROWS_AHEAD as usize)),
            rotation: None,
            protocol_watch: None,
        }
    }

    /// Takes the transactional ids over and reads what was published last.
    pub async fn open(&mut self) -> Result<Option<Published>, NotOpened> {
        let opening = self.opening.clone();
        let checking = move || opening.check().and_then(|()| opening.protocol_support());
        let protocol = match self.env.spawn_blocking("kafka-open", checking).join().await? {
            ProtocolSupport::Available(settings) => Some(*settings),
            ProtocolSupport::Never(reason) => {
                if let Some(reason) = reason {
                    tracing::warn!(
                        table = self.opening.table,
                        reason,
                        "librdkafka writes transactions, which takes several times as long; \
                        'kafka.millstream.transactions' = 'librdkafka' says that this is meant"
                    );
                }
                None
            }
            ProtocolSupport::NotNow(reason) => {
                tracing::warn!(
                    table = self.opening.table,
                    reason,
                    "librdkafka writes transactions \
                    for now, which takes several times as long; that ends when it can be done \
                    without"
                );
                self.protocol_watch = Some(self.watch_for_protocol());
                None
            }
        };
        let has_topic = protocol.is_some();
        let clients = match protocol.clone() {
            Some(settings) => self.protocol_clients(settings).await?,
            None => self.librdkafka_clients().await?,
        };
        let published_formerly = self.take_former_ids_over(protocol).await?;
        let opening = self.opening.clone();
        let asking = move || opening.published(has_topic);
        let published = self.env.spawn_blocking("kafka-open", asking).join().await?;
        self.rotation = Some(Rotation::start(&self.env, clients));
        Ok(published
            .into_iter()
            .chain(published_formerly)
            .max_by_key(|published| published.batch_id))
    }

    fn watch_for_protocol(&self) -> ProtocolWatch {
        let found = Arc::new(Mutex::new(None));
        let (env, opening, task_found) = (self.env.clone(), self.opening.clone(), found.clone());
        let looking = self.env.spawn("kafka-protocol-watch", async move {
            loop {
                env.sleep(LOOK_INTERVAL).await;
                let opening = opening.clone();
                let asking = move || opening.protocol_support();
                let support = env.spawn_blocking("kafka-protocol-watch", asking).join().await;
                if let Ok(ProtocolSupport::Available(settings)) = support {
                    *task_found.lock() = Some(*settings);
                    return;
                }
            }
        });
        ProtocolWatch { found, looking }
    }

    /// Changes back to the protocol client, if the watch has found that to be possible.
    /// Transactions of librdkafka are finished before; after a crash the later of the two records
    /// counts.
    async fn return_to_protocol(&mut self) -> Result<(), Failure> {
        let settings = self.protocol_watch.as_ref().and_then(|watch| watch.found.lock().take());
        let Some(settings) = settings else { return Ok(()) };
        self.protocol_watch = None;
        let rotation = self.rotation.take();
        self.env.spawn_blocking("kafka-close", move || drop(rotation)).join().await;
        match self.protocol_clients(settings).await {
            Ok(clients) => self.rotation = Some(Rotation::start(&self.env, clients)),
            Err(NotOpened::NotAllowed(error) | NotOpened::Failed(error)) => {
                return Err(error.into());
            }
        }
        tracing::warn!(
            table = self.opening.table,
            "transactions are written without librdkafka \
            again"
        );
        Ok(())
    }

    /// Takes over the transactional ids that this query had while its flow had another name, and
    /// gives the last record of that time.
    async fn take_former_ids_over(
        &self,
        protocol: Option<ProtocolSettings>,
    ) -> Result<Option<Published>, NotOpened> {
        let opening = self.opening.clone();
        let taking_over = move || {
            let mut last = None;
            for names in opening.former_names(&opening.places()?) {
                tracing::info!(
                    table = opening.table,
                    ids = names.transactional_ids(),
                    "taking \
                    over what this query wrote while its flow had another name"
                );
                let former = opening.under(names);
                let groups = Arc::new(Mutex::new(Groups::new(former.clone())?));
                for index in 0..IDS {
                    match &protocol {
                        Some(settings) => drop(ProtocolClient::open(&former, settings, index)?),
                        None => drop(TransactionalClient::open(&former, index, &groups)?),
                    }
                }
                let published = former.published(false)?;
                last = last
                    .into_iter()
                    .chain(published)
                    .max_by_key(|record: &Published| record.batch_id);
            }
            Ok(last)
        };
        self.env.spawn_blocking("kafka-open", taking_over).join().await
    }

    /// The other queries that are known to write to the same topic.
    pub async fn other_queries(&self) -> Result<Vec<OtherQuery>, Failure> {
        let opening = self.opening.clone();
        let looking = move || opening.other_queries();
        Ok(self.env.spawn_blocking("kafka-open", looking).join().await?)
    }

    async fn protocol_clients(
        &self,
        settings: ProtocolSettings,
    ) -> Result<Vec<Box<dyn Transactor>>, NotOpened> {
        let opening = self.opening.clone();
        let checking = move || opening.check_topic();
        self.env.spawn_blocking("kafka-open", checking).join().await?;
        let clients = (0..IDS).map(|index| {
            let (opening, settings) = (self.opening.clone(), settings.clone());
            let open = move || ProtocolClient::open(&opening, &settings, index);
            self.env.spawn_blocking("kafka-open", open).join()
        });
        tracing::debug!(table = self.opening.table, "transactions are written without librdkafka");
        Ok(boxed(try_join_all(clients).await?))
    }

    async fn librdkafka_clients(&self) -> Result<Vec<Box<dyn Transactor>>, NotOpened> {
        let groups = Arc::new(Mutex::new(Groups::new(self.opening.clone())?));
        let clients = (0..IDS).map(|index| {
            let (opening, groups) = (self.opening.clone(), groups.clone());
            self.env
                .spawn_blocking("kafka-open", move || {
                    TransactionalClient::open(&opening, index, &groups)
                })
                .join()
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
        let rows = rows.collect::<Result<Vec<SinkRows>, SinkError>>();
        let rows = rows.map_err(|error| refused(error, &self.columns))?;
        if rows.is_empty() {
            return Ok(Acknowledgement::Done);
        }
        self.return_to_protocol().await?;
        let count = rows.iter().map(|rows| rows.rows).sum::<usize>();
        // A micro-batch larger than the whole room is sent when all of the room is free.
        let count = u32::try_from(count).unwrap_or(ROWS_AHEAD).min(ROWS_AHEAD);
        let room = Arc::clone(&self.room).acquire_many_owned(count);
        let permit = room.await.expect("it is never closed");
        let (done, published) = oneshot::channel();
        let content = Content { batch_id: output.batch_id, rows, end_offsets: output.end_offsets };
        let work = Work { content, permit, done };
        self.rotation.as_ref().expect("the driver opens a sink before it uses it").publish(work);
        let acknowledgement = Acknowledgement::Later(Box::pin(async move {
            published.await.unwrap_or_else(|_| Err(SinkError::TransactionDropped.into()))
        }));
        Ok(convert_errors(acknowledgement, &self.columns))
    }

    /// Finishes the transactions that are under way, and closes the clients.
    pub async fn close(&mut self) {
        self.protocol_watch = None;
        let rotation = self.rotation.take();
        self.env.spawn_blocking("kafka-close", move || drop(rotation)).join().await;
    }
}

fn boxed<C: Transactor + 'static>(clients: Vec<C>) -> Vec<Box<dyn Transactor>> {
    clients.into_iter().map(|client| Box::new(client) as Box<dyn Transactor>).collect()
}
