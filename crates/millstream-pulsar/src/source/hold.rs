//! The durable subscription: what was not published yet is kept by the broker.
//!
//! It is told about what is published, a moment later, and holds the last message that was read:
//! by that a start sees that nothing is missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::contact::ContactWith;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::position::{Position, Positions};
use crate::client::Client;
use crate::client::consumer::{Consumer, Subscription};
use crate::error::PulsarError;
use crate::protocol::messages::{MessageIdData, subscription_type};

/// Between two acknowledgements, at least.
const EVERY: Duration = Duration::from_secs(1);

/// The subscription to all partitions of a table.
pub(super) struct Hold {
    client: Arc<Client>,
    name: String,
    /// A batch query needs nothing to be kept for it.
    keeps: bool,
    /// By partition; a consumer that is closed is made again when it is needed.
    consumers: tokio::sync::Mutex<BTreeMap<String, Consumer>>,
    published: Mutex<Positions>,
    acknowledged: Mutex<Positions>,
    changed: Notify,
}

impl Hold {
    /// The subscription called `name`; nothing is subscribed to yet. Unless it `keeps` what is not
    /// published, nothing is left of it afterwards.
    pub(super) fn new(client: Arc<Client>, name: String, keeps: bool) -> Arc<Self> {
        Arc::new(Self {
            client,
            name,
            keeps,
            consumers: tokio::sync::Mutex::default(),
            published: Mutex::default(),
            acknowledged: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Subscribes to a partition, if that is not done yet. A subscription that is new holds what
    /// `initial_position` says.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(super) async fn add(
        &self,
        partition: &str,
        initial_position: i32,
    ) -> Result<(), PulsarError> {
        let mut consumers = self.consumers.lock().await;
        let known = consumers.get(partition);
        if known.is_some_and(|known| !known.is_closed()) {
            return Ok(());
        }
        consumers.remove(partition);
        let connection = self.client.to_topic(partition).await?;
        let subscription = Subscription {
            name: self.name.clone(),
            // Several instances may hold the same messages for a moment.
            kind: subscription_type::FAILOVER,
            is_durable: self.keeps,
            start: (!self.keeps).then_some(MessageIdData {
                ledger_id: u64::MAX,
                entry_id: u64::MAX,
                ..MessageIdData::default()
            }),
            initial_position,
            makes_topic: false,
        };
        let consumer = Consumer::subscribe(connection, partition, subscription).await?;
        consumers.insert(partition.to_owned(), consumer);
        Ok(())
    }

    /// The last message of a partition that was added.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(super) async fn last_message(&self, partition: &str) -> Result<MessageIdData, PulsarError> {
        use crate::protocol::messages::initial_position::EARLIEST;
        self.add(partition, EARLIEST).await?;
        let consumers = self.consumers.lock().await;
        consumers.get(partition).ok_or(PulsarError::NotOpen)?.last_message().await
    }

    /// Everything up to `positions` is published.
    pub(super) fn published(&self, positions: Positions) {
        *self.published.lock() = positions;
        self.changed.notify_one();
    }

    /// Acknowledges what is published until the task is stopped.
    pub(super) async fn run(self: Arc<Self>, contact: ContactWith) {
        loop {
            self.changed.notified().await;
            self.client.env.sleep(EVERY).await;
            if let Err(error) = self.acknowledge().await {
                tracing::debug!(subscription = self.name, %error, "acknowledging again");
                contact.unanswered(self.client.env.now_ms());
                self.changed.notify_one();
            } else {
                contact.answered();
            }
        }
    }

    /// Acknowledges what is published and was not acknowledged.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(super) async fn acknowledge(&self) -> Result<(), PulsarError> {
        use crate::protocol::messages::initial_position::EARLIEST;
        if !self.keeps {
            return Ok(());
        }
        let published = self.published.lock().clone();
        for (partition, position) in published {
            if self.acknowledged.lock().get(&partition) == Some(&position) {
                continue;
            }
            // An entry that was read in part is needed as a whole.
            if let Position::After { index: None, .. } = position
                && let Some((ledger, entry)) = position.needed()
                && let Some(before) = entry.checked_sub(1)
            {
                self.add(&partition, EARLIEST).await?;
                let consumers = self.consumers.lock().await;
                let consumer = consumers.get(&partition).ok_or(PulsarError::NotOpen)?;
                consumer.acknowledge(ledger, before).await?;
            }
            self.acknowledged.lock().insert(partition, position);
        }
        Ok(())
    }

    /// Lets go of the connections; the subscription stays.
    pub(super) async fn close(&self) {
        self.consumers.lock().await.clear();
    }
}
