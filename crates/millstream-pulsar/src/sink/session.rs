//! One transaction after the other, as long as nothing goes wrong. After any failure the session is
//! given up, and the next one finds out what was published.
//!
//! While a transaction is committed the next one begins, with the topics that this one has: both
//! take a broker about as long as the rest. One that nothing was written to stands in nobody's way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use millstream_engine::api::contact::ContactWith;
use millstream_engine::api::sink::{BatchId, EndOffsets, Published};
use millstream_store::crash_points::{self, Step};

use super::encode::{self, Encoder, Entry, Partitions};
use super::options::SinkOptions;
use super::progress::{self, Opening, ProgressTopic};
use crate::client::Client;
use crate::client::producer::{Access, Producer};
use crate::client::transaction::{Coordinator, TransactionId};
use crate::error::PulsarError;

/// A topic may get more partitions; they are looked for so often.
const PARTITIONS_AGE: Duration = Duration::from_secs(30);
/// How long the end of a transaction is waited for that is not needed.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);
/// Producers that are kept; with more, rows choose among more topics than are worth it.
const PRODUCERS_MAX: usize = 1_000;

/// What a session is made with.
pub(super) struct Terms {
    pub(super) options: SinkOptions,
    pub(super) query_id: String,
    pub(super) flow: String,
    /// A name of this instance, which no other has.
    pub(super) instance: String,
    pub(super) contact: ContactWith,
}

/// A writer's connections.
pub(super) struct Session {
    client: Arc<Client>,
    /// `None` where rows may be written again.
    exactly_once: Option<ExactlyOnce>,
    producers: HashMap<String, Producer>,
    partitions: Partitions,
    /// When they were asked for, on the monotonic clock.
    partitions_at: Duration,
    turn: usize,
}

struct ExactlyOnce {
    coordinator: Coordinator,
    progress: ProgressTopic,
    lifetime: Duration,
    begun: Option<Begun>,
    /// When the last transaction began to be committed, on the monotonic clock.
    committed_at: Option<Duration>,
}

/// A transaction that nothing was written to yet.
struct Begun {
    id: TransactionId,
    /// The topics that take part, in order.
    partitions: Vec<String>,
    /// On the monotonic clock.
    at: Duration,
}

/// What one transaction publishes: rows of one or several micro-batches, of which the last one is
/// named.
pub(super) struct Work<'a> {
    pub(super) batch_id: BatchId,
    pub(super) end_offsets: &'a EndOffsets,
    pub(super) rows: &'a [RecordBatch],
}

impl Session {
    /// Connects, and says what was published last. `epoch` is [`Self::epoch`] of the session
    /// before, if `is_again` says that there was one.
    ///
    /// # Errors
    /// What a broker refuses.
    pub(super) async fn open(
        client: &Arc<Client>,
        terms: &Terms,
        epoch: Option<u64>,
        is_again: bool,
    ) -> Result<(Self, Option<Published>), PulsarError> {
        let options = &terms.options;
        let (mut exactly_once, mut published) = (None, None);
        if options.is_exactly_once {
            let coordinator = Coordinator::find(client, client.env.random_u64()).await?;
            let topic = options.progress_topic(&terms.query_id);
            let opening = Opening {
                client,
                instance: &terms.instance,
                is_again,
                topic: &topic,
                table: &options.table,
                flow: &terms.flow,
                epoch,
                lifetime: options.lifetime,
                contact: &terms.contact,
            };
            let (progress, found) = ProgressTopic::open(opening).await?;
            published = found;
            let lifetime = options.lifetime;
            let (begun, committed_at) = (None, None);
            exactly_once =
                Some(ExactlyOnce { coordinator, progress, lifetime, begun, committed_at });
        }
        let mut session = Self {
            client: Arc::clone(client),
            exactly_once,
            producers: HashMap::new(),
            partitions: Partitions::new(),
            partitions_at: client.env.monotonic(),
            turn: 0,
        };
        // What is wrong with the table's own topic is found before a row is read.
        if let Some(topic) = &options.topic {
            session.find_partitions(vec![topic.clone()]).await?;
            for partition in session.partitions[topic].clone() {
                session.open_producer(&partition).await?;
            }
        }
        Ok((session, published))
    }

    /// What the next session of this instance is opened with.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.exactly_once.as_ref()?.progress.epoch()
    }

    /// Publishes `work`. After an error nobody knows whether it is.
    ///
    /// # Errors
    /// What a broker refuses; a row that is too large.
    pub(super) async fn publish(
        &mut self,
        options: &SinkOptions,
        work: Work<'_>,
    ) -> Result<(), PulsarError> {
        let entries = self.encode(options, work.rows).await?;
        crash_points::reached(Step::BeforeBegin);
        let now = self.client.env.monotonic();
        let Some(exactly_once) = &mut self.exactly_once else {
            self.send(entries, None).await?;
            crash_points::reached(Step::AfterProduce);
            return self.stored().await;
        };
        let mut partitions: Vec<String> =
            entries.iter().map(|entry| entry.partition.clone()).collect();
        partitions.push(exactly_once.progress.topic.clone());
        partitions.sort_unstable();
        partitions.dedup();
        let id = exactly_once.begin(&partitions, now).await?;
        let written = self.write(id, &work, entries).await;
        let exactly_once = self.exactly_once.as_mut().ok_or(PulsarError::NotOpen)?;
        let place = match written {
            Ok(place) => place,
            Err(error) => {
                // Readers need not wait until it ends by itself.
                abort(&self.client, id).await;
                return Err(error);
            }
        };
        crash_points::reached(Step::BeforeCommit);
        exactly_once.commit(id, partitions, self.client.env.monotonic()).await?;
        crash_points::reached(Step::AfterCommit);
        exactly_once.progress.is_published(place).await;
        Ok(())
    }

    /// Ends what has begun and is not needed.
    pub(super) async fn close(mut self) {
        if let Some(exactly_once) = &mut self.exactly_once
            && let Some(begun) = exactly_once.begun.take()
        {
            abort(&self.client, begun.id).await;
        }
    }

    async fn encode(
        &mut self,
        options: &SinkOptions,
        rows: &[RecordBatch],
    ) -> Result<Vec<Entry>, PulsarError> {
        let topic = options.topic.as_deref();
        let topics = encode::topics(&options.columns, topic, rows)?;
        self.find_partitions(topics).await?;
        let known = self.producers.values().next();
        let (broker, message_bytes_max) = match known {
            Some(producer) => (producer.broker().to_owned(), producer.message_bytes_max()),
            // Rows choose their topics, and none was written to yet.
            None => (options.settings.shown(), 5 << 20),
        };
        let (columns, compression) = (&options.columns, options.compression);
        let broker = broker.as_str();
        let encoder = Encoder { columns, topic, compression, message_bytes_max, broker };
        let (partitions, turn) = (&self.partitions, &mut self.turn);
        self.client.env.blocking(|| encoder.encode(rows, partitions, turn))
    }

    async fn find_partitions(&mut self, topics: Vec<String>) -> Result<(), PulsarError> {
        let now = self.client.env.monotonic();
        if now.saturating_sub(self.partitions_at) > PARTITIONS_AGE {
            self.partitions.clear();
            self.partitions_at = now;
        }
        for topic in topics {
            if !self.partitions.contains_key(&topic) {
                let found = self.client.partitions(&topic, true).await?;
                self.partitions.insert(topic, found);
            }
        }
        Ok(())
    }

    async fn open_producer(&mut self, partition: &str) -> Result<(), PulsarError> {
        if !self.producers.contains_key(partition) {
            if self.producers.len() >= PRODUCERS_MAX {
                self.producers.clear();
            }
            let connection = self.client.to_topic(partition).await?;
            let in_transactions = self.exactly_once.is_some();
            let producer =
                Producer::open(connection, partition, Access::Shared, in_transactions).await?;
            self.producers.insert(partition.to_owned(), producer);
        }
        Ok(())
    }

    /// Everything of a transaction but its end. Gives where the progress is.
    async fn write(
        &mut self,
        id: TransactionId,
        work: &Work<'_>,
        entries: Vec<Entry>,
    ) -> Result<Option<crate::protocol::messages::MessageIdData>, PulsarError> {
        self.send(entries, Some(id)).await?;
        crash_points::reached(Step::AfterProduce);
        let exactly_once = self.exactly_once.as_mut().ok_or(PulsarError::NotOpen)?;
        exactly_once.progress.progresses(work.batch_id, work.end_offsets, id).await?;
        crash_points::reached(Step::AfterOffsets);
        let place = exactly_once.progress.stored().await?;
        self.stored().await?;
        Ok(place)
    }

    async fn send(
        &mut self,
        entries: Vec<Entry>,
        transaction: Option<TransactionId>,
    ) -> Result<(), PulsarError> {
        for Entry { partition, metadata, payload } in entries {
            self.open_producer(&partition).await?;
            let producer = self.producers.get_mut(&partition).ok_or(PulsarError::NotOpen)?;
            producer.send(metadata, &payload, transaction).await?;
        }
        Ok(())
    }

    async fn stored(&mut self) -> Result<(), PulsarError> {
        for producer in self.producers.values_mut() {
            producer.stored().await?;
        }
        Ok(())
    }
}

impl ExactlyOnce {
    /// A transaction in which `partitions` take part, which are in order.
    async fn begin(
        &mut self,
        partitions: &[String],
        now: Duration,
    ) -> Result<TransactionId, PulsarError> {
        // One that is old might end by itself before it is committed.
        let begun = self.begun.take();
        let begun = begun.filter(|begun| now.saturating_sub(begun.at) < self.lifetime / 2);
        let Some(begun) = begun else {
            let (coordinator, progress) = (&self.coordinator, &mut self.progress);
            let partitions = partitions.to_vec();
            return Ok(begin(coordinator, progress, partitions, self.lifetime, now).await?.id);
        };
        let is_missing = |partition: &&String| begun.partitions.binary_search(partition).is_err();
        let missing: Vec<String> = partitions.iter().filter(is_missing).cloned().collect();
        if !missing.is_empty() {
            self.coordinator.add(begun.id, missing).await?;
        }
        Ok(begun.id)
    }

    /// Makes all of a transaction visible, and begins the next one with the same topics if one is
    /// likely to come soon.
    async fn commit(
        &mut self,
        id: TransactionId,
        partitions: Vec<String>,
        now: Duration,
    ) -> Result<(), PulsarError> {
        let before = self.committed_at.replace(now);
        let is_busy = before.is_some_and(|before| now.saturating_sub(before) < self.lifetime / 4);
        if !is_busy {
            return self.coordinator.commit(id).await;
        }
        let (coordinator, progress) = (&self.coordinator, &mut self.progress);
        let next = begin(coordinator, progress, partitions, self.lifetime, now);
        let (committed, next) = tokio::join!(coordinator.commit(id), next);
        committed?;
        match next {
            Ok(begun) => self.begun = Some(begun),
            // The next one that is needed says it, if it lasts.
            Err(error) => tracing::debug!(%error, "no transaction begins ahead"),
        }
        Ok(())
    }
}

/// Aborts a transaction, if that does not take long: it would end by itself. The connections that
/// it was written with may be broken.
async fn abort(client: &Client, id: TransactionId) {
    tokio::select! {
        () = progress::abort(client, id) => {}
        () = client.env.sleep(ABORT_PATIENCE) => {}
    }
}

/// Begins a transaction, and says so where a start looks for it.
async fn begin(
    coordinator: &Coordinator,
    progress: &mut ProgressTopic,
    partitions: Vec<String>,
    lifetime: Duration,
    now: Duration,
) -> Result<Begun, PulsarError> {
    let id = coordinator.begin(lifetime).await?;
    progress.begins(id).await?;
    coordinator.add(id, partitions.clone()).await?;
    Ok(Begun { id, partitions, at: now })
}
