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
use super::position::{Position, last_entry};
use crate::client::consumer::{Consumer, Subscription};
use crate::client::{Client, Pauses};
use crate::error::PulsarError;
use crate::protocol::frame;
use crate::protocol::messages::{MessageIdData, initial_position, subscription_type};
use crate::protocol::payload;

/// Messages that may be on their way, at first; later as many as their size allows.
const ALLOWED_FIRST: u32 = 64;
const ALLOWED_MAX: usize = 10_000;

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

struct Reading {
    consumer: Consumer,
    /// The entry that has to be the first.
    anchor: Option<(u64, u64)>,
    /// Messages that may still come.
    allowed: u32,
    /// The average of entries so far, for how many may be on their way.
    messages: u64,
    bytes: u64,
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
                    self.position = Position::after(entry.id);
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
        let mut entry = parse(&self.partition, id, entry, arrival_us)?;
        reading.counts(&entry, share).await?;
        let skip = match (reading.anchor.take(), self.position) {
            (Some(anchor), _) if id == anchor => match self.position {
                // The rest of an entry in whose middle the query begins.
                Position::After { index: Some(index), .. } => index as usize + 1,
                _ => return Ok(None),
            },
            (Some(anchor), _) if id > anchor => {
                let found = format!("the next one is {}:{}", id.0, id.1);
                self.lost(anchor, found)?;
                0
            }
            _ if self.position.entry().is_some_and(|last| id <= last) => return Ok(None),
            _ => 0,
        };
        if skip >= entry.messages {
            return Ok(None);
        }
        entry.skip = skip;
        Ok(Some(entry))
    }

    async fn begin(&self) -> Result<Reading, PulsarError> {
        let connection = self.client.to_topic(&self.partition).await?;
        let anchor = self.position.entry();
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
        consumer.allow(ALLOWED_FIRST).await?;
        Ok(Reading { consumer, anchor, allowed: ALLOWED_FIRST, messages: 0, bytes: 0 })
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

impl Reading {
    /// An entry has arrived: as many more may come as leave about `share` bytes on their way.
    async fn counts(&mut self, entry: &Entry, share: usize) -> Result<(), PulsarError> {
        let messages = u32::try_from(entry.messages).unwrap_or(u32::MAX);
        self.allowed = self.allowed.saturating_sub(messages);
        self.messages += u64::from(messages);
        self.bytes += entry.payload.len() as u64;
        // Old messages say little about the size of new ones.
        if self.messages > 100_000 {
            (self.messages, self.bytes) = (self.messages / 2, self.bytes / 2);
        }
        let average = (self.bytes / self.messages.max(1)).max(1);
        let fits = (share as u64 / average).clamp(1, ALLOWED_MAX as u64);
        let fits = u32::try_from(fits).unwrap_or(1);
        if self.allowed <= fits / 2 {
            let more = fits - self.allowed;
            self.consumer.allow(more).await?;
            self.allowed += more;
        }
        Ok(())
    }
}

/// An entry, without unpacking it.
fn parse(
    partition: &str,
    id: (u64, u64),
    entry: Bytes,
    arrival_us: i64,
) -> Result<Entry, PulsarError> {
    let position = || format!("{}:{}", id.0, id.1);
    let topic = || partition.to_owned();
    let parsed = frame::entry(entry);
    let (metadata, payload) = parsed.map_err(|error| PulsarError::Entry {
        topic: topic(),
        position: position(),
        error,
    })?;
    let unreadable = |what, remedy| PulsarError::Unreadable {
        topic: topic(),
        position: position(),
        what,
        remedy,
    };
    if metadata.num_chunks_from_msg.is_some_and(|chunks| chunks > 1) {
        let remedy = "Let its producer send without chunks: a message may have maxMessageSize \
                      bytes, which brokers can raise";
        return Err(unreadable("part of a message in chunks", remedy));
    }
    if !metadata.encryption_keys.is_empty() {
        let remedy = "Encryption end to end is not supported; use TLS";
        return Err(unreadable("encrypted by its producer", remedy));
    }
    let messages = payload::count(&metadata);
    Ok(Entry { id, metadata, payload, messages, skip: 0, arrival_us })
}
