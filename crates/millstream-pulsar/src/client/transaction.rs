//! Transactions: what is written in one becomes visible in one step, or never.
//!
//! A coordinator, of which there are several, gives a transaction its number and is told which
//! topics take part. Readers of a topic stop in front of the first message of a transaction that is
//! open, and one that is not ended is aborted after its time.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use super::connection::Connection;
use crate::error::PulsarError;
use crate::protocol::messages::{
    BaseCommand, CommandAddPartitionToTxn, CommandEndTxn, CommandNewTxn,
    CommandTcClientConnectRequest, TransactionResponse, action, code, kind,
};

/// The topic whose partitions say where the coordinators are.
const COORDINATORS: &str = "persistent://pulsar/system/transaction_coordinator_assign";

/// The number of a transaction: of its coordinator, and at that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TransactionId {
    pub(crate) most: u64,
    pub(crate) least: u64,
}

/// One of the coordinators.
pub(crate) struct Coordinator {
    connection: Arc<Connection>,
    number: u64,
}

impl Coordinator {
    /// Connects to the coordinator that `chance` chooses.
    ///
    /// # Errors
    /// [`PulsarError::NoTransactions`], and what the broker refuses.
    pub(crate) async fn find(client: &Client, chance: u64) -> Result<Self, PulsarError> {
        let broker = || client.settings.shown();
        let none = |said: String| PulsarError::NoTransactions { broker: broker(), said };
        let coordinators = match client.partitions(COORDINATORS, false).await {
            Err(PulsarError::NoTopic { .. }) => {
                return Err(none("there are no coordinators".to_owned()));
            }
            found => found?,
        };
        let number = chance % coordinators.len() as u64;
        Self::at(client, number).await.map_err(|error| match &error {
            PulsarError::Refused { said, .. }
                if matches!(said.code, code::NOT_ALLOWED | code::UNSUPPORTED_VERSION)
                    || said.text.contains("not enabled") =>
            {
                none(said.to_string())
            }
            _ => error,
        })
    }

    /// Connects to the coordinator with a number.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) async fn at(client: &Client, number: u64) -> Result<Self, PulsarError> {
        let partition = u32::try_from(number).unwrap_or(u32::MAX);
        let topic = crate::topic::partition(COORDINATORS, partition);
        let connection = client.to_topic(&topic).await?;
        let asked = connection.ask(
            || "the coordinator of transactions".to_owned(),
            |request_id| BaseCommand {
                tc_client_connect_request: Some(CommandTcClientConnectRequest {
                    request_id,
                    tc_id: number,
                }),
                ..BaseCommand::of(kind::TC_CLIENT_CONNECT_REQUEST)
            },
        );
        asked.await?;
        Ok(Self { connection, number })
    }

    /// Begins a transaction that is aborted unless it ends within `lifetime`.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) async fn begin(&self, lifetime: Duration) -> Result<TransactionId, PulsarError> {
        let asked = self.connection.ask(
            || "a transaction".to_owned(),
            |request_id| BaseCommand {
                new_txn: Some(CommandNewTxn {
                    request_id,
                    // The name is wrong: brokers take it for milliseconds.
                    txn_ttl_seconds: Some(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX)),
                    tc_id: Some(self.number),
                }),
                ..BaseCommand::of(kind::NEW_TXN)
            },
        );
        let TransactionResponse { txnid_most_bits, txnid_least_bits, .. } =
            asked.await?.new_txn_response.unwrap_or_default();
        Ok(TransactionId {
            most: txnid_most_bits.unwrap_or(0),
            least: txnid_least_bits.unwrap_or(0),
        })
    }

    /// Topics take part, each of which is a partition or has none.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) async fn add(
        &self,
        id: TransactionId,
        partitions: Vec<String>,
    ) -> Result<(), PulsarError> {
        let asked = self.connection.ask(
            || "topics of a transaction".to_owned(),
            |request_id| BaseCommand {
                add_partition_to_txn: Some(CommandAddPartitionToTxn {
                    request_id,
                    txnid_least_bits: Some(id.least),
                    txnid_most_bits: Some(id.most),
                    partitions,
                }),
                ..BaseCommand::of(kind::ADD_PARTITION_TO_TXN)
            },
        );
        asked.await.map(drop)
    }

    /// Makes all of it visible. After an error nobody knows whether it is.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) async fn commit(&self, id: TransactionId) -> Result<(), PulsarError> {
        self.end(id, action::COMMIT).await
    }

    /// Makes none of it visible, if it has not ended yet.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) async fn abort(&self, id: TransactionId) -> Result<(), PulsarError> {
        self.end(id, action::ABORT).await
    }

    async fn end(&self, id: TransactionId, action: i32) -> Result<(), PulsarError> {
        let asked = self.connection.ask(
            || "the end of a transaction".to_owned(),
            |request_id| BaseCommand {
                end_txn: Some(CommandEndTxn {
                    request_id,
                    txnid_least_bits: Some(id.least),
                    txnid_most_bits: Some(id.most),
                    txn_action: Some(action),
                }),
                ..BaseCommand::of(kind::END_TXN)
            },
        );
        asked.await.map(drop)
    }
}
