//! What sinks that notify people and services share: messages that are delivered one by one.
//!
//! 1. Rows become messages, each under a key that a replay gives again ([`keys`]).
//! 2. A [`Courier`](courier::Courier) takes the messages of a micro-batch to its lanes. A lane
//!    delivers one message after the other; a message that waits holds back those behind it.
//! 3. One attempt is the [`Transport`]'s: it says what came of it ([`Outcome`]).
//! 4. What may work later is tried again, after a wait that grows ([`retries`]). What is refused
//!    for good is put [`aside`], in a file or as dead letters, or fails the query.
//!
//! A connector says what its messages are and how they travel ([`Channel`](sink::Channel)); the
//! [`NotifySink`](sink::NotifySink) is the same for all.
//!
//! The sink relies on getting the same range under the same number again, and remembers across a
//! restart only which messages of such a range are accepted already ([`accepted`]).

pub mod accepted;
pub mod aside;
pub mod courier;
pub mod error;
pub mod keys;
pub mod needs;
pub mod options;
pub mod refused_file;
pub mod retries;
pub mod rows;
pub mod sink;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use error::DeliveryError;

/// What is delivered in one attempt.
pub trait Message: Send + Sync + 'static {
    /// The same for every attempt and every replay, and another one for every other message.
    fn key(&self) -> &str;

    /// The rows that it was made of, each as a JSON object.
    fn rows(&self) -> &[Bytes];

    /// What is kept of it where it is refused, as a JSON value.
    fn content(&self) -> serde_json::Value;
}

/// What came of an attempt.
#[derive(Debug)]
pub enum Outcome {
    /// The receiver has taken responsibility for the message.
    Accepted,
    /// It may work later, not before the time that the receiver asks for.
    Later {
        /// What went wrong, a sentence without a full stop.
        problem: String,
        /// How long the receiver wants to be left alone.
        wait: Option<Duration>,
    },
    /// The receiver does not take this message, now or later: its answer.
    Refused(String),
    /// No message will be accepted before a person has changed something.
    Failed(DeliveryError),
}

/// One way to deliver messages.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// What it delivers.
    type Message: Message;

    /// The receiver, for messages to people, without any secret.
    fn receiver(&self) -> &str;

    /// One attempt; ends after a time limit of its own.
    async fn attempt(&self, message: &Self::Message) -> Outcome;
}
