//! A producer of one topic. Entries are sent without waiting, and waited for together.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::connection::{Connection, ToProducer, within};
use super::transaction::TransactionId;
use crate::error::PulsarError;
use crate::protocol::frame;
use crate::protocol::messages::{
    BaseCommand, CommandCloseProducer, CommandProducer, CommandSend, MessageIdData,
    MessageMetadata, access_mode, kind,
};

/// Entries on their way, at most.
const UNDER_WAY_MAX: usize = 256;

/// Who else may write to the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anybody.
    Shared,
    /// Nobody: whoever does is closed out. With the number of an earlier producer of ours this
    /// fails where somebody else has closed that one out meanwhile.
    Alone(Option<u64>),
}

/// A producer.
pub(crate) struct Producer {
    connection: Arc<Connection>,
    topic: String,
    id: u64,
    /// Its name, which the broker has made.
    name: String,
    /// The number of its time alone with the topic.
    pub(crate) epoch: Option<u64>,
    next: u64,
    /// Entries that were sent and are not stored yet.
    under_way: usize,
    /// Where the last entry is stored.
    last: Option<MessageIdData>,
    answers: mpsc::UnboundedReceiver<ToProducer>,
}

impl Producer {
    /// Makes a producer at the broker that has `topic`.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) async fn open(
        connection: Arc<Connection>,
        topic: &str,
        access: Access,
        in_transactions: bool,
    ) -> Result<Self, PulsarError> {
        let id = connection.new_id();
        let answers = connection.add_producer(id);
        let (mode, topic_epoch) = match access {
            Access::Shared => (access_mode::SHARED, None),
            Access::Alone(epoch) => (access_mode::EXCLUSIVE_WITH_FENCING, epoch),
        };
        let topic = topic.to_owned();
        let (name, next, under_way) = (String::new(), 0, 0);
        // Made before the broker has answered: an answer that nobody waits for any more would
        // leave a producer there for as long as the connection lasts.
        let mut producer =
            Self { connection, topic, id, name, epoch: None, next, under_way, last: None, answers };
        let (connection, topic) = (&producer.connection, &producer.topic);
        let asked = connection.ask(
            || format!("to write to {topic}"),
            |request_id| BaseCommand {
                producer: Some(CommandProducer {
                    topic: topic.clone(),
                    producer_id: id,
                    request_id,
                    producer_name: None,
                    user_provided_producer_name: Some(false),
                    producer_access_mode: Some(mode),
                    topic_epoch,
                    txn_enabled: Some(in_transactions),
                }),
                ..BaseCommand::of(kind::PRODUCER)
            },
        );
        let answer = asked.await?.producer_success.unwrap_or_default();
        producer.name = answer.producer_name;
        producer.epoch = answer.topic_epoch;
        Ok(producer)
    }

    /// `HOST:PORT` of its broker.
    pub(crate) fn broker(&self) -> &str {
        self.connection.broker()
    }

    /// The largest entry that its broker takes.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.connection.message_bytes_max()
    }

    /// Sends an entry, of which `metadata` is complete but for names and numbers.
    ///
    /// # Errors
    /// An entry before it is refused, or the connection is broken.
    pub(crate) async fn send(
        &mut self,
        mut metadata: MessageMetadata,
        payload: &[u8],
        transaction: Option<TransactionId>,
    ) -> Result<(), PulsarError> {
        while self.under_way >= UNDER_WAY_MAX {
            self.next_stored().await?;
        }
        // A broker that has closed the producer and is sent something closes the connection.
        while let Ok(answer) = self.answers.try_recv() {
            self.take(answer)?;
        }
        let sequence_id = self.next;
        let messages = metadata.num_messages_in_batch.unwrap_or(1);
        self.next += 1;
        metadata.producer_name.clone_from(&self.name);
        metadata.sequence_id = sequence_id;
        metadata.publish_time = now_ms(&self.connection);
        metadata.txnid_least_bits = transaction.map(|id| id.least);
        metadata.txnid_most_bits = transaction.map(|id| id.most);
        let send = CommandSend {
            producer_id: self.id,
            sequence_id,
            num_messages: Some(messages),
            txnid_least_bits: transaction.map(|id| id.least),
            txnid_most_bits: transaction.map(|id| id.most),
            highest_sequence_id: None,
        };
        let command = BaseCommand { send: Some(send), ..BaseCommand::of(kind::SEND) };
        let frame = frame::command_with_entry(&command, &metadata, payload);
        self.under_way += 1;
        self.connection.send(frame).await
    }

    /// Waits until all entries are stored. Gives where the last one is.
    ///
    /// # Errors
    /// An entry is refused, or the connection is broken.
    pub(crate) async fn stored(&mut self) -> Result<Option<MessageIdData>, PulsarError> {
        while self.under_way > 0 {
            self.next_stored().await?;
        }
        Ok(self.last)
    }

    async fn next_stored(&mut self) -> Result<(), PulsarError> {
        let (env, patience) = self.connection.patience();
        let (env, broker) = (env.clone(), self.broker().to_owned());
        let what = format!("a message to {}", self.topic);
        let answers = &mut self.answers;
        let answer = async { Ok(answers.recv().await.unwrap_or(ToProducer::Closed)) };
        let answer = within(&env, patience, &broker, &what, answer).await?;
        self.take(answer)
    }

    fn take(&mut self, answer: ToProducer) -> Result<(), PulsarError> {
        let broker = || self.connection.broker().to_owned();
        match answer {
            ToProducer::Stored(place) => {
                self.under_way = self.under_way.saturating_sub(1);
                self.last = place;
                Ok(())
            }
            ToProducer::Refused(said) => {
                let what = format!("a message to {}", self.topic);
                Err(PulsarError::Refused { broker: broker(), what, said })
            }
            ToProducer::Closed => {
                let problem = format!("the broker has closed {}", self.topic);
                Err(PulsarError::Away { broker: broker(), problem })
            }
        }
    }
}

fn now_ms(connection: &Connection) -> u64 {
    u64::try_from(connection.patience().0.now_ms()).unwrap_or(0)
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.connection.remove_producer(self.id);
        let close =
            CommandCloseProducer { producer_id: self.id, request_id: self.connection.new_id() };
        let command =
            BaseCommand { close_producer: Some(close), ..BaseCommand::of(kind::CLOSE_PRODUCER) };
        self.connection.try_send(frame::command(&command));
    }
}
