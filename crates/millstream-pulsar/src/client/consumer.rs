//! A consumer of one topic: it is given entries, and can say up to where they are done with.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::connection::{Connection, ToConsumer};
use crate::error::PulsarError;
use crate::protocol::frame;
use crate::protocol::messages::{
    BaseCommand, CUMULATIVE, CommandAck, CommandFlow, CommandGetLastMessageId, CommandSubscribe,
    MessageIdData, kind,
};

/// What a consumer reads, and how.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    /// Its name.
    pub(crate) name: String,
    /// One of [`subscription_type`](crate::protocol::messages::subscription_type).
    pub(crate) kind: i32,
    /// The broker keeps it, and what it has not done with.
    pub(crate) is_durable: bool,
    /// Where one that is not kept begins: behind this message, or with it where it names a message
    /// of a batch.
    pub(crate) start: Option<MessageIdData>,
    /// Where one that is kept begins when it is new.
    pub(crate) initial_position: i32,
    /// A topic that is not there is made, if the broker allows it.
    pub(crate) makes_topic: bool,
}

/// A subscription in use, until it is dropped.
pub(crate) struct Consumer {
    pub(crate) connection: Arc<Connection>,
    topic: String,
    id: u64,
    entries: mpsc::UnboundedReceiver<ToConsumer>,
}

impl Consumer {
    /// Subscribes to `topic` at the broker that has it.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) async fn subscribe(
        connection: Arc<Connection>,
        topic: &str,
        subscription: Subscription,
    ) -> Result<Self, PulsarError> {
        let id = connection.new_id();
        let entries = connection.add_consumer(id);
        let topic = topic.to_owned();
        // Made before the broker has answered: an answer that nobody waits for any more would
        // leave a subscription in use for as long as the connection lasts.
        let consumer = Self { connection, topic, id, entries };
        let (connection, topic) = (&consumer.connection, &consumer.topic);
        let asked = connection.ask(
            || format!("the subscription {} of {topic}", subscription.name),
            |request_id| BaseCommand {
                subscribe: Some(CommandSubscribe {
                    topic: topic.clone(),
                    subscription: subscription.name.clone(),
                    sub_type: subscription.kind,
                    consumer_id: id,
                    request_id,
                    consumer_name: Some("millstream".to_owned()),
                    durable: Some(subscription.is_durable),
                    start_message_id: subscription.start,
                    initial_position: Some(subscription.initial_position),
                    force_topic_creation: Some(subscription.makes_topic),
                }),
                ..BaseCommand::of(kind::SUBSCRIBE)
            },
        );
        asked.await?;
        Ok(consumer)
    }

    /// Allows so many more messages; an entry has at least one, and comes as a whole.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) async fn allow(&self, messages: u32) -> Result<(), PulsarError> {
        let flow = CommandFlow { consumer_id: self.id, message_permits: messages };
        let command = BaseCommand { flow: Some(flow), ..BaseCommand::of(kind::FLOW) };
        self.connection.send(frame::command(&command)).await
    }

    /// The next entry. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The broker gives the topic up, or the connection is broken.
    pub(crate) async fn next(&mut self) -> Result<(MessageIdData, Bytes), PulsarError> {
        match self.entries.recv().await {
            Some(ToConsumer::Entry(id, entry)) => Ok((id, entry)),
            Some(ToConsumer::Closed) | None => Err(self.closed()),
        }
    }

    /// Whether nothing comes any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.entries.is_closed() || self.connection.is_broken()
    }

    fn closed(&self) -> PulsarError {
        let problem = format!("the broker has closed {}", self.topic);
        PulsarError::Away { broker: self.connection.broker().to_owned(), problem }
    }

    /// The last message of the topic that can be read; its entry is -1 where there is none.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) async fn last_message(&self) -> Result<MessageIdData, PulsarError> {
        let asked = self.connection.ask(
            || format!("the last message of {}", self.topic),
            |request_id| BaseCommand {
                get_last_message_id: Some(CommandGetLastMessageId {
                    consumer_id: self.id,
                    request_id,
                }),
                ..BaseCommand::of(kind::GET_LAST_MESSAGE_ID)
            },
        );
        Ok(asked.await?.get_last_message_id_response.unwrap_or_default().last_message_id)
    }

    /// The subscription is done with this entry and all before it. Nobody answers that.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) async fn acknowledge(&self, ledger: u64, entry: u64) -> Result<(), PulsarError> {
        let id = MessageIdData { ledger_id: ledger, entry_id: entry, ..MessageIdData::default() };
        let ack = CommandAck { consumer_id: self.id, ack_type: CUMULATIVE, message_id: vec![id] };
        let command = BaseCommand { ack: Some(ack), ..BaseCommand::of(kind::ACK) };
        self.connection.send(frame::command(&command)).await
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        use crate::protocol::messages::CommandCloseConsumer;
        self.connection.remove_consumer(self.id);
        let close =
            CommandCloseConsumer { consumer_id: self.id, request_id: self.connection.new_id() };
        let command =
            BaseCommand { close_consumer: Some(close), ..BaseCommand::of(kind::CLOSE_CONSUMER) };
        self.connection.try_send(frame::command(&command));
    }
}
