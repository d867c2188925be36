//! The topic with the progress of a query, one for each: what was published, and that it was.
//!
//! ```text
//! {"version":1,"by":"9f2c...","barrier":"77ab..."}           a start has reached the end
//! {"version":1,"by":"9f2c...","begin":[3,41]}                transaction 41 of coordinator 3 began
//! {"version":1,"by":"9f2c...","progress":{"batchId":7,"batchTimeMs":...,"ends":["..."],"flow":"pii"}}
//! ```
//!
//! Progress is part of the transaction with the rows; the others are not part of any. A start takes
//! the topic for itself, which closes any other instance of the query out, writes a barrier, and
//! reads until it meets it: readers stop in front of open transactions, so by then each transaction
//! before it that has progress has ended. Those that were left open are aborted by their number;
//! without it they would end after their time. An instance that has to do so again, after a
//! connection was lost, stops if it meets the barrier of another one behind its own records.
//!
//! A durable subscription holds the last progress, and lets go of what is before it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use millstream_engine::api::contact::ContactWith;
use millstream_engine::api::sink::{BatchId, EndOffsets, Published, SourceOffset};
use serde::{Deserialize, Serialize};

use crate::client::consumer::{Consumer, Subscription};
use crate::client::producer::{Access, Producer};
use crate::client::transaction::{Coordinator, TransactionId};
use crate::client::{Client, Pauses};
use crate::error::PulsarError;
use crate::protocol::frame;
use crate::protocol::messages::{
    MessageIdData, MessageMetadata, code, initial_position, subscription_type,
};
use crate::protocol::payload::unpack;

const VERSION: u32 = 1;
const SUBSCRIPTION: &str = "millstream";
/// Records that may be on their way to a start.
const READ_AHEAD: u32 = 1_000;
/// A start that hears nothing for so long takes it that an open transaction is in its way.
const QUIET: Duration = Duration::from_millis(100);
/// Transactions that are aborted at once, and how long a start takes for all of them.
const ABORTS: usize = 16;
const ABORTS_PATIENCE: Duration = Duration::from_secs(30);
/// Micro-batches after which the subscription lets go of what is before the last one.
const LET_GO_EVERY: u32 = 100;
/// How long an instance that was killed may seem to be connected.
const BUSY_PATIENCE: Duration = Duration::from_secs(90);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Record {
    version: u32,
    /// The instance that has written it.
    by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    barrier: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begin: Option<(u64, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    batch_id: u64,
    batch_time_ms: i64,
    /// Where each source stood after it, exclusive.
    ends: Vec<Option<SourceOffset>>,
    flow: String,
}

impl Record {
    fn by(instance: &str) -> Self {
        let by = instance.to_owned();
        Self { version: VERSION, by, barrier: None, begin: None, progress: None }
    }

    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers are JSON")
    }

    fn read(bytes: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(bytes).map_err(|error| {
            format!("{error}: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(100)]))
        })?;
        match record.version {
            VERSION => Ok(record),
            version => Err(format!("its version is {version}, and this program knows {VERSION}")),
        }
    }
}

/// The topic, taken by this instance.
pub(super) struct ProgressTopic {
    pub(super) topic: String,
    flow: String,
    table: String,
    instance: String,
    client: Arc<Client>,
    producer: Producer,
    /// Where the last progress is that is published for certain.
    last: Option<MessageIdData>,
    /// Published since the subscription let go.
    held: u32,
}

/// What a start needs to know.
pub(super) struct Opening<'a> {
    pub(super) client: &'a Arc<Client>,
    /// The instance of the query, and whether it has had the topic before.
    pub(super) instance: &'a str,
    pub(super) is_again: bool,
    pub(super) topic: &'a str,
    pub(super) table: &'a str,
    pub(super) flow: &'a str,
    /// The number that this instance had the topic with before.
    pub(super) epoch: Option<u64>,
    /// How long transactions may be open.
    pub(super) lifetime: Duration,
    pub(super) contact: &'a ContactWith,
}

impl ProgressTopic {
    /// Takes the topic, and says what was published last.
    ///
    /// # Errors
    /// [`PulsarError::Fenced`]; a message that is no record; what a broker refuses.
    pub(super) async fn open(
        opening: Opening<'_>,
    ) -> Result<(Self, Option<Published>), PulsarError> {
        // Before anything is written there is a subscription that holds it.
        let consumer = subscribe(&opening).await?;
        let connection = opening.client.to_topic(opening.topic).await?;
        let access = Access::Alone(opening.epoch);
        let opened = Producer::open(connection, opening.topic, access, true).await;
        let producer = opened.map_err(|error| fenced(error, opening.table, opening.topic))?;
        let mut opened = Self {
            topic: opening.topic.to_owned(),
            flow: opening.flow.to_owned(),
            table: opening.table.to_owned(),
            instance: opening.instance.to_owned(),
            client: Arc::clone(opening.client),
            producer,
            last: None,
            held: 0,
        };
        let published = opened.read(&opening, consumer).await?;
        Ok((opened, published))
    }

    /// The number that this instance has the topic with.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.producer.epoch
    }

    async fn read(
        &mut self,
        opening: &Opening<'_>,
        mut consumer: Consumer,
    ) -> Result<Option<Published>, PulsarError> {
        let env = &opening.client.env;
        let barrier = env.secret();
        let record = Record { barrier: Some(barrier.clone()), ..Record::by(&self.instance) };
        self.send(record, None).await?;
        self.producer.stored().await?;
        consumer.allow(READ_AHEAD).await?;
        let (began, began_ms) = (env.monotonic(), env.now_ms());
        // Open transactions end after their time, and a broker looks at that now and then.
        let patience = opening.lifetime * 2 + opening.client.settings.timeout;
        let mut published = None;
        // Whether another instance has taken the topic since this one had it.
        let (mut has_own, mut is_lost) = (false, false);
        let mut allowed = READ_AHEAD;
        let mut begun: HashSet<TransactionId> = HashSet::new();
        loop {
            let next = tokio::select! {
                next = consumer.next() => Some(next?),
                () = env.sleep(QUIET) => None,
            };
            let Some((id, entry)) = next else {
                abort_all(opening.client, begun.drain()).await;
                opening.contact.unanswered(began_ms);
                if env.monotonic().saturating_sub(began) > patience {
                    return Err(self.blocked());
                }
                continue;
            };
            let (record, transaction) = self.record(entry)?;
            allowed -= 1;
            if allowed < READ_AHEAD / 2 {
                consumer.allow(READ_AHEAD - allowed).await?;
                allowed = READ_AHEAD;
            }
            begun.extend(record.begin.map(|(most, least)| TransactionId { most, least }));
            if let Some(progress) = record.progress {
                if let Some(transaction) = transaction {
                    begun.remove(&transaction);
                }
                let (ends, batch_time_ms) = (progress.ends, progress.batch_time_ms);
                let end_offsets = Some(EndOffsets { ends, batch_time_ms });
                published = Some(Published { batch_id: BatchId(progress.batch_id), end_offsets });
                self.last = Some(id);
                let_go_before(&consumer, id).await?;
            }
            if record.barrier.as_ref() == Some(&barrier) {
                opening.contact.answered();
                if opening.is_again && (is_lost || !has_own) {
                    let (table, topic) = (self.table.clone(), self.topic.clone());
                    return Err(PulsarError::Fenced { table, topic });
                }
                // Their rows stand in the way of the readers of other topics. None of them can be
                // committed any more: progress that is not before the barrier is never stored.
                abort_all(opening.client, begun.into_iter()).await;
                return Ok(published);
            }
            match record.by == self.instance {
                true => has_own = true,
                false => is_lost |= has_own && record.barrier.is_some(),
            }
        }
    }

    fn blocked(&self) -> PulsarError {
        let broker = self.producer.broker().to_owned();
        let problem = format!("a transaction in {} does not end", self.topic);
        PulsarError::Away { broker, problem }
    }

    /// What an entry says, and the transaction that it was part of.
    fn record(&self, entry: bytes::Bytes) -> Result<(Record, Option<TransactionId>), PulsarError> {
        let wrong = |problem: String| PulsarError::Record { topic: self.topic.clone(), problem };
        let (metadata, payload) = frame::entry(entry).map_err(|error| wrong(error.to_string()))?;
        let messages = unpack(&metadata, payload).map_err(|error| wrong(error.to_string()))?;
        let value = messages.into_iter().next().and_then(|message| message.value);
        let record = Record::read(&value.unwrap_or_default()).map_err(wrong)?;
        let transaction = metadata.txnid_most_bits.zip(metadata.txnid_least_bits);
        Ok((record, transaction.map(|(most, least)| TransactionId { most, least })))
    }

    async fn send(
        &mut self,
        record: Record,
        transaction: Option<TransactionId>,
    ) -> Result<(), PulsarError> {
        self.producer.send(MessageMetadata::default(), &record.bytes(), transaction).await
    }

    /// Says that a transaction begins, without waiting.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub(super) async fn begins(&mut self, id: TransactionId) -> Result<(), PulsarError> {
        self.send(Record { begin: Some((id.most, id.least)), ..Record::by(&self.instance) }, None)
            .await
    }

    /// Makes what is published part of a transaction, without waiting.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub(super) async fn progresses(
        &mut self,
        batch_id: BatchId,
        end_offsets: &EndOffsets,
        id: TransactionId,
    ) -> Result<(), PulsarError> {
        let progress = Progress {
            batch_id: batch_id.0,
            batch_time_ms: end_offsets.batch_time_ms,
            ends: end_offsets.ends.clone(),
            flow: self.flow.clone(),
        };
        let record = Record { progress: Some(progress), ..Record::by(&self.instance) };
        self.send(record, Some(id)).await
    }

    /// Waits until all of that is stored. Gives where the progress is.
    ///
    /// # Errors
    /// [`PulsarError::Fenced`], and what the broker refuses.
    pub(super) async fn stored(&mut self) -> Result<Option<MessageIdData>, PulsarError> {
        self.producer.stored().await
    }

    /// The progress at `place` is published.
    pub(super) async fn is_published(&mut self, place: Option<MessageIdData>) {
        self.last = place.or(self.last);
        self.held += 1;
        if let Some(last) = self.last
            && self.held >= LET_GO_EVERY
        {
            self.held = 0;
            // Only for so long is the subscription in use: a start of another instance needs it.
            let letting_go = async {
                let connection = self.client.to_topic(&self.topic).await?;
                let consumer = Consumer::subscribe(connection, &self.topic, subscription()).await?;
                let_go_before(&consumer, last).await
            };
            if let Err(error) = letting_go.await {
                tracing::debug!(table = self.table, %error, "what is old is held for longer");
            }
        }
    }
}

/// The subscription lets go of what is before a message, but not of that.
async fn let_go_before(consumer: &Consumer, id: MessageIdData) -> Result<(), PulsarError> {
    match id.entry_id.checked_sub(1) {
        Some(before) => consumer.acknowledge(id.ledger_id, before).await,
        // The first of its ledger: the next one will do.
        None => Ok(()),
    }
}

fn subscription() -> Subscription {
    Subscription {
        name: SUBSCRIPTION.to_owned(),
        kind: subscription_type::EXCLUSIVE,
        is_durable: true,
        start: None,
        initial_position: initial_position::EARLIEST,
        makes_topic: true,
    }
}

/// `error` of a producer that wants the topic for itself.
fn fenced(error: PulsarError, table: &str, topic: &str) -> PulsarError {
    match error.code() {
        Some(code::PRODUCER_FENCED) => {
            PulsarError::Fenced { table: table.to_owned(), topic: topic.to_owned() }
        }
        _ => error,
    }
}

async fn subscribe(opening: &Opening<'_>) -> Result<Consumer, PulsarError> {
    let client = opening.client;
    let (began, began_ms) = (client.env.monotonic(), client.env.now_ms());
    let mut pauses = Pauses::default();
    loop {
        let connection = client.to_topic(opening.topic).await?;
        let subscribed =
            Consumer::subscribe(Arc::clone(&connection), opening.topic, subscription()).await;
        match subscribed {
            Err(error) if error.code() == Some(code::CONSUMER_BUSY) => {
                // The broker has not noticed yet that another instance is gone.
                if client.env.monotonic().saturating_sub(began) > BUSY_PATIENCE {
                    let (table, topic) = (opening.table.to_owned(), opening.topic.to_owned());
                    return Err(PulsarError::Fenced { table, topic });
                }
                opening.contact.unanswered(began_ms);
                client.env.sleep(pauses.next()).await;
            }
            subscribed => return subscribed,
        }
    }
}

/// Aborts transactions that may have been left open, for some time at the most: those that are not
/// reached end by themselves. After a day of failures there may be thousands, and a broker of
/// theirs may be away.
async fn abort_all(client: &Client, open: impl Iterator<Item = TransactionId>) {
    let aborts = stream::iter(open).for_each_concurrent(ABORTS, |id| abort(client, id));
    tokio::select! {
        () = aborts => {}
        () = client.env.sleep(ABORTS_PATIENCE) => {}
    }
}

/// Aborts a transaction that may have been left open.
pub(super) async fn abort(client: &Client, id: TransactionId) {
    let aborted = async { Coordinator::at(client, id.most).await?.abort(id).await };
    // Most have ended long ago, which is an error; those that cannot be aborted end by themselves.
    if let Err(error) = aborted.await {
        tracing::debug!(most = id.most, least = id.least, %error, "not aborted");
    }
}

#[cfg(test)]
mod tests {
    use millstream_fuzz::Target;

    use super::*;

    #[test]
    fn records_are_read_back() {
        let ends = vec![Some(SourceOffset::new("{\"rows\":7}")), None];
        let progress = Progress { batch_id: 41, batch_time_ms: 5, ends, flow: "pii".to_owned() };
        let bytes = Record { progress: Some(progress), ..Record::by("i") }.bytes();
        let text = String::from_utf8(bytes.clone()).expect("JSON is text");
        assert_eq!(
            text,
            [
                r#"{"version":1,"by":"i","progress":{"batchId":41,"batchTimeMs":5,"#,
                r#""ends":["{\"rows\":7}",null],"flow":"pii"}}"#,
            ]
            .concat()
        );
        let read = Record::read(&bytes).expect("it was written").progress.expect("it is one");
        assert_eq!((read.batch_id, read.ends.len()), (41, 2));
        let begin = Record { begin: Some((3, 41)), ..Record::by("i") }.bytes();
        assert_eq!(begin, br#"{"version":1,"by":"i","begin":[3,41]}"#);
        let newer = text.replace("\"version\":1", "\"version\":2");
        assert!(
            Record::read(newer.as_bytes()).is_err_and(|problem| problem.contains("version is 2"))
        );
        assert!(Record::read(b"{}").is_err());
    }

    #[test]
    fn fuzzed_records() {
        let progress =
            Progress { batch_id: 1, batch_time_ms: 5, ends: vec![None], flow: "f".into() };
        let seed = Record { progress: Some(progress), ..Record::by("i") }.bytes();
        Target::text("pulsar_progress").seeds([seed]).run(|bytes| match Record::read(bytes) {
            Ok(record) => format!("{}", record.progress.is_some()),
            Err(problem) => problem.split(" at ").next().unwrap_or_default().to_owned(),
        });
    }
}
