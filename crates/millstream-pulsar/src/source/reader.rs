//! Reads one partition, from a position on, without gaps.
//!
//! The reading itself is not kept by the broker, so any number of instances may read. It begins
//! *with* the last message that was read before: as the subscription holds that one, it is still
//! there unless messages were lost, and that is how a loss is noticed, at a start and whenever a
//! connection was lost.

use std::sync::Arc;

use bytes::Bytes;
use millstream_engine::api::contact::ContactWith;

use super::buffer::Entry;
use super::chunks::{self, ChunkError, Chunks};
use super::permits::Permits;
use super::position::{Position, last_entry};
use crate::client::consumer::{Consumer, Subscription};
use crate::client::{Client, Pauses};
use crate::error::PulsarError;
use crate::protocol::frame;
use crate::protocol::messages::{
    MessageIdData, MessageMetadata, initial_position, subscription_type,
};
use crate::protocol::payload;

/// What reads one partition.
pub(super) struct Reader {
    pub(super) client: Arc<Client>,
    pub(super) table: String,
    pub(super) partition: String,
    /// The subscription that holds what is not read yet, for messages.
    pub(super) subscription: String,
    pub(super) fails_on_loss: bool,
    /// Where the partition has been read to.
    pub(super) position: Position,
    pub(super) contact: ContactWith,
    /// The connection, while there is one.
    reading: Option<Reading>,
}

/// What an entry completes.
struct Completed {
    messages: usize,
    /// What they are made of.
    payload: Bytes,
    /// The first entry of what is not complete.
    from: Option<(u64, u64)>,
}

struct Reading {
    consumer: Consumer,
    /// The entry that has to be the first.
    anchor: Option<(u64, u64)>,
    permits: Permits,
    chunks: Chunks,
}

impl Reader {
    pub(super) fn new(
        client: Arc<Client>,
        (table, partition, subscription): (&str, &str, &str),
        fails_on_loss: bool,
        position: Position,
        contact: ContactWith,
    ) -> Self {
        let (table, partition) = (table.to_owned(), partition.to_owned());
        let subscription = subscription.to_owned();
        let reading = None;
        Self { client, table, partition, subscription, fails_on_loss, position, contact, reading }
    }

    /// The next entry, however long that takes; `share` is how many bytes may be on their way.
    ///
    /// # Errors
    /// What trying again does not help against.
    pub(super) async fn next(&mut self, share: usize) -> Result<Entry, PulsarError> {
        let mut pauses = Pauses::default();
        loop {
            match self.try_next(share).await {
                Ok(Some(entry)) => {
                    self.position = Position::with_incomplete(entry.id, entry.from);
                    return Ok(entry);
                }
                Ok(None) => {}
                Err(error) if error.may_pass() => {
                    self.reading = None;
                    tracing::debug!(partition = self.partition, %error, "reading again");
                    self.contact.unanswered(self.client.env.now_ms());
                    self.client.env.sleep(pauses.next()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// `None` for an entry that was read before.
    async fn try_next(&mut self, share: usize) -> Result<Option<Entry>, PulsarError> {
        if self.reading.is_none() {
            self.reading = Some(self.begin().await?);
            self.contact.answered();
        }
        let reading = self.reading.as_mut().ok_or(PulsarError::NotOpen)?;
        let (id, entry) = reading.consumer.next().await?;
        let Some(id) = last_entry(&id) else { return Ok(None) };
        let arrival_us = self.client.env.now_us();
        let (metadata, payload) = parse(&self.partition, id, entry)?;
        let messages = payload::count(&metadata);
        if let Some(more) = reading.permits.arrived(messages, payload.len(), share) {
            reading.consumer.allow(more).await?;
        }
        let anchor = reading.anchor.take();
        if let Some(anchor) = anchor.filter(|anchor| id > *anchor) {
            self.lost(anchor, format!("the next one is {}:{}", id.0, id.1))?;
        }
        let Completed { messages, payload, from } = self.complete(id, &metadata, payload)?;
        let skip = match self.position {
            // The rest of an entry in whose middle the query begins.
            Position::After { ledger, entry, index: Some(index), .. } if id == (ledger, entry) => {
                // A chunk that is not the last of its message has nothing to skip.
                (index as usize + 1).min(messages)
            }
            position if position.entry().is_some_and(|last| id <= last) => return Ok(None),
            _ => 0,
        };
        if messages > 0 && skip >= messages {
            return Ok(None);
        }
        Ok(Some(Entry { id, metadata, payload, messages, skip, from, arrival_us }))
    }

    fn complete(
        &mut self,
        id: (u64, u64),
        metadata: &MessageMetadata,
        payload: Bytes,
    ) -> Result<Completed, PulsarError> {
        let chunks = &mut self.reading.as_mut().ok_or(PulsarError::NotOpen)?.chunks;
        let given_up = chunks.reach(metadata, payload.len());
        if given_up > 0 {
            tracing::warn!(
                partition = self.partition,
                messages = given_up,
                "messages in chunks were not completed by their producers, though much has come \
                 since, and are left out"
            );
        }
        if !chunks::is_chunk(metadata) {
            let (messages, from) = (payload::count(metadata), chunks.first());
            return Ok(Completed { messages, payload, from });
        }
        let whole = match chunks.take(id, metadata, &payload) {
            Ok(whole) => whole,
            Err(error) => {
                let error = self.unreadable(id, error);
                if self.fails_on_loss {
                    return Err(error);
                }
                tracing::warn!(%error, "going on without this message");
                None
            }
        };
        let chunks = &self.reading.as_ref().ok_or(PulsarError::NotOpen)?.chunks;
        let (messages, from) = (usize::from(whole.is_some()), chunks.first());
        Ok(Completed { messages, payload: whole.unwrap_or_default(), from })
    }

    fn unreadable(&self, id: (u64, u64), error: ChunkError) -> PulsarError {
        let (what, remedy) = match error {
            ChunkError::TooLarge => (
                "the beginning of a message in chunks that has more than 256 MB",
                "Let producers send smaller messages; to go on without this one, set \
                 'failOnDataLoss' = 'false'",
            ),
            ChunkError::Inconsistent => (
                "a chunk that does not fit to what its producer says of it",
                "Correct its producer; to go on without this message, set 'failOnDataLoss' = \
                 'false'",
            ),
        };
        let (topic, position) = (self.partition.clone(), format!("{}:{}", id.0, id.1));
        PulsarError::Unreadable { topic, position, what, remedy }
    }

    async fn begin(&self) -> Result<Reading, PulsarError> {
        let connection = self.client.to_topic(&self.partition).await?;
        let anchor = self.position.needed();
        // An index asks for the message itself, and not for what is behind it.
        let start = match anchor {
            None => MessageIdData {
                ledger_id: u64::MAX,
                entry_id: u64::MAX,
                ..MessageIdData::default()
            },
            Some((ledger_id, entry_id)) => {
                MessageIdData { ledger_id, entry_id, partition: None, batch_index: Some(0) }
            }
        };
        let subscription = Subscription {
            name: format!("millstream-reader-{}", self.client.env.secret()),
            kind: subscription_type::EXCLUSIVE,
            is_durable: false,
            start: Some(start),
            initial_position: initial_position::EARLIEST,
            makes_topic: false,
        };
        let consumer = Consumer::subscribe(connection, &self.partition, subscription).await?;
        let mut anchor = anchor;
        if let Some(wanted) = anchor {
            // Where nothing is left nothing would come to show it.
            let last = last_entry(&consumer.last_message().await?);
            if last.is_none_or(|last| last < wanted) {
                let found = match last {
                    None => "the topic is empty".to_owned(),
                    Some((ledger, entry)) => format!("the last one is {ledger}:{entry}"),
                };
                self.lost(wanted, found)?;
                anchor = None;
            }
        }
        let (permits, first) = Permits::first();
        consumer.allow(first).await?;
        Ok(Reading { consumer, anchor, permits, chunks: Chunks::default() })
    }

    fn lost(&self, (ledger, entry): (u64, u64), found: String) -> Result<(), PulsarError> {
        let error = PulsarError::MessagesLost {
            table: self.table.clone(),
            topic: self.partition.clone(),
            position: format!("{ledger}:{entry}"),
            found,
            subscription: self.subscription.clone(),
        };
        if self.fails_on_loss {
            return Err(error);
        }
        tracing::warn!(%error, "going on with what is left");
        Ok(())
    }
}

/// An entry, without unpacking it.
fn parse(
    partition: &str,
    id: (u64, u64),
    entry: Bytes,
) -> Result<(MessageMetadata, Bytes), PulsarError> {
    let position = || format!("{}:{}", id.0, id.1);
    let topic = || partition.to_owned();
    let parsed = frame::entry(entry);
    let (metadata, payload) = parsed.map_err(|error| PulsarError::Entry {
        topic: topic(),
        position: position(),
        error,
    })?;
    if !metadata.encryption_keys.is_empty() {
        let what = "encrypted by its producer";
        let remedy = "Encryption end to end is not supported; use TLS";
        return Err(PulsarError::Unreadable { topic: topic(), position: position(), what, remedy });
    }
    Ok((metadata, payload))
}
