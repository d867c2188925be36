//! Micro-batches, published one transaction after the other, and tried again where that may help.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use millstream_engine::api::sink::{BatchId, EndOffsets, Published, RefusedRow};
use millstream_store::error::{Classified as _, Failure, Kind};
use millstream_store::sink_log::SinkLog;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::session::{Session, Terms, Work};
use crate::client::{Client, Pauses};
use crate::error::PulsarError;

/// How long a micro-batch is tried again; after that the flow is started again.
const PATIENCE: Duration = Duration::from_secs(60);
/// How far the checkpoint's record may be behind what is published.
const RECORD_EVERY: Duration = Duration::from_secs(1);
/// Rows of one transaction, where several micro-batches wait.
const ROWS_MAX: usize = 200_000;

/// A micro-batch.
pub(super) struct Request {
    pub(super) batch_id: BatchId,
    pub(super) end_offsets: EndOffsets,
    pub(super) rows: Vec<RecordBatch>,
    /// Gets the moment it was published, microseconds since the epoch.
    pub(super) done: oneshot::Sender<Result<i64, Failure>>,
}

/// What the checkpoint knows of Pulsar: the last micro-batch that it had acknowledged. A topic that
/// has lost its messages is noticed by it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    place: String,
    batch_id: u64,
}

/// Writes what it is sent until nothing is left.
pub(super) struct Writer {
    client: Arc<Client>,
    terms: Terms,
    log: Option<SinkLog>,
    session: Option<Session>,
    epoch: Option<u64>,
    /// Whether there was a session.
    is_again: bool,
    /// The last micro-batch that is published, and whether the checkpoint's record says it.
    published: Option<BatchId>,
    recorded: Option<BatchId>,
    recorded_at: Duration,
}

impl Writer {
    /// Connects, and says what was published last.
    ///
    /// # Errors
    /// What a broker refuses; [`PulsarError::ProgressLost`].
    pub(super) async fn open(
        client: Arc<Client>,
        terms: Terms,
        log: Option<SinkLog>,
    ) -> Result<(Self, Option<Published>), Failure> {
        let (mut writer, began) = (
            Self {
                client: Arc::clone(&client),
                terms,
                log,
                session: None,
                epoch: None,
                is_again: false,
                published: None,
                recorded: None,
                recorded_at: client.env.monotonic(),
            },
            client.env.monotonic(),
        );
        let mut pauses = Pauses::default();
        let published = loop {
            match writer.connect().await {
                Ok(published) => break published,
                Err(error) if error.may_pass() && !writer.is_over(began) => {
                    writer.wait(&error, &mut pauses).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        writer.check(published.as_ref()).await?;
        Ok((writer, published))
    }

    async fn connect(&mut self) -> Result<Option<Published>, PulsarError> {
        let opened = Session::open(&self.client, &self.terms, self.epoch, self.is_again).await;
        let (session, published) = opened?;
        self.is_again = true;
        self.epoch = session.epoch().or(self.epoch);
        self.session = Some(session);
        self.terms.contact.answered();
        Ok(published)
    }

    fn is_over(&self, began: Duration) -> bool {
        self.client.env.monotonic().saturating_sub(began) > PATIENCE
    }

    async fn wait(&self, error: &PulsarError, pauses: &mut Pauses) {
        self.terms.contact.unanswered(self.client.env.now_ms());
        tracing::debug!(table = self.terms.options.table, %error, "trying again");
        self.client.env.sleep(pauses.next()).await;
    }

    /// Compares what Pulsar says with what the checkpoint knows.
    async fn check(&mut self, published: Option<&Published>) -> Result<(), Failure> {
        if !self.terms.options.is_exactly_once {
            return Ok(());
        }
        let Some(log) = &self.log else { return Ok(()) };
        let Some((_, bytes)) = log.last().await? else { return Ok(()) };
        let topic = self.terms.options.progress_topic(&self.terms.query_id);
        let known: Option<Known> = serde_json::from_slice(&bytes).ok();
        let known = known.filter(|known| known.place == topic).map(|known| known.batch_id);
        let found = published.map(|published| published.batch_id.0);
        let Some(known) = known.filter(|known| found.is_none_or(|found| found < *known)) else {
            return Ok(());
        };
        let table = self.terms.options.table.clone();
        let found = found.map_or_else(|| "none".to_owned(), |found| found.to_string());
        let error = PulsarError::ProgressLost { table, topic, known, found };
        if self.terms.options.fails_on_loss {
            return Err(error.into());
        }
        tracing::warn!(%error, "going on behind what is there");
        Ok(())
    }

    /// Publishes what comes until nothing comes any more.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(first) = requests.recv().await {
            let mut group = vec![first];
            let rows = |group: &[Request]| -> usize {
                group.iter().flat_map(|it| &it.rows).map(RecordBatch::num_rows).sum()
            };
            while rows(&group) < ROWS_MAX
                && let Ok(next) = requests.try_recv()
            {
                group.push(next);
            }
            if let Err(error) = self.publish(&mut group).await {
                let kind = error.kind();
                tracing::debug!(table = self.terms.options.table, ?kind, "writing ends");
                let columns = self.terms.options.columns.clone();
                for request in group {
                    let _ = request.done.send(Err(refused(&error, &columns)));
                }
                // What comes after it must not be published without it.
                requests.close();
                break;
            }
            let at_us = self.client.env.now_us();
            if let Some(last) = group.last() {
                self.published = Some(last.batch_id);
            }
            for request in group {
                let _ = request.done.send(Ok(at_us));
            }
            if self.client.env.monotonic().saturating_sub(self.recorded_at) >= RECORD_EVERY {
                self.record().await;
            }
        }
        self.record().await;
        if let Some(session) = self.session.take() {
            session.close().await;
        }
        self.client.close();
    }

    /// Publishes all of `group` in one transaction; what turns out to be published is taken out of
    /// the next try.
    async fn publish(&mut self, group: &mut [Request]) -> Result<(), PulsarError> {
        let began = self.client.env.monotonic();
        let mut pauses = Pauses::default();
        let mut done: Option<BatchId> = None;
        loop {
            let result = self.try_to_publish(group, &mut done).await;
            match result {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.session = None;
                    if !error.may_pass() || self.is_over(began) {
                        return Err(error);
                    }
                    self.wait(&error, &mut pauses).await;
                }
            }
        }
    }

    async fn try_to_publish(
        &mut self,
        group: &[Request],
        done: &mut Option<BatchId>,
    ) -> Result<(), PulsarError> {
        if self.session.is_none() {
            let published = self.connect().await?;
            // A commit whose answer was lost may have counted.
            *done = published.map(|published| published.batch_id);
        }
        let is_left = |request: &&Request| done.is_none_or(|done| request.batch_id > done);
        let left: Vec<&Request> = group.iter().filter(is_left).collect();
        let Some(last) = left.last() else { return Ok(()) };
        let rows: Vec<RecordBatch> = left.iter().flat_map(|it| it.rows.iter().cloned()).collect();
        let session = self.session.as_mut().ok_or(PulsarError::NotOpen)?;
        let work = Work { batch_id: last.batch_id, end_offsets: &last.end_offsets, rows: &rows };
        session.publish(&self.terms.options, work).await
    }

    async fn record(&mut self) {
        self.recorded_at = self.client.env.monotonic();
        let (Some(log), Some(published)) = (&self.log, self.published) else { return };
        if self.recorded == Some(published) || !self.terms.options.is_exactly_once {
            return;
        }
        let place = self.terms.options.progress_topic(&self.terms.query_id);
        let known = Known { place, batch_id: published.0 };
        let bytes = serde_json::to_vec(&known).expect("a text and a number");
        match log.replace(bytes).await {
            Ok(()) => self.recorded = Some(published),
            Err(error) => {
                let place = log.location();
                tracing::warn!(place, %error, "what Pulsar has acknowledged was not recorded; if \
                                               its topic loses messages, a restart may not notice");
            }
        }
    }
}

/// `error`, as a refused row where it is about one.
fn refused(error: &PulsarError, columns: &super::columns::SinkColumns) -> Failure {
    let (error, columns) = (error.clone(), columns.clone());
    let max = match &error {
        PulsarError::TooLarge { max, .. } => Some(*max),
        PulsarError::NullTopic | PulsarError::TopicName { .. } => None,
        _ => return error.into(),
    };
    debug_assert_eq!(error.kind(), Kind::Data);
    let is_among = move |rows: &RecordBatch| {
        let Ok(rows) = columns.of(rows) else { return false };
        (0..rows.rows).any(|row| match max {
            Some(max) => rows.bytes(row) > max,
            None => rows.topic(row).is_none_or(|topic| crate::topic::full_name(topic).is_err()),
        })
    };
    RefusedRow::new(error, is_among).into()
}
