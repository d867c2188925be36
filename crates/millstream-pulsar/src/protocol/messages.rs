//! Messages of Pulsar's binary protocol, version 19 and later: those that are used, with the fields
//! that are used. Names and numbers are those of `PulsarApi.proto` of Pulsar 4.2; fields that are
//! left out here are skipped when they arrive. Enumerations are numbers, see [`kind`] and
//! [`code`].

use prost::Message;

pub(crate) use super::numbers::{
    CUMULATIVE, access_mode, action, code, initial_position, kind, subscription_type,
};

/// The place of a message in a topic.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct MessageIdData {
    #[prost(uint64, required, tag = "1")]
    pub(crate) ledger_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) entry_id: u64,
    #[prost(int32, optional, tag = "3")]
    pub(crate) partition: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) batch_index: Option<i32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, required, tag = "1")]
    pub(crate) key: String,
    #[prost(string, required, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct EncryptionKeys {
    #[prost(string, required, tag = "1")]
    pub(crate) key: String,
}

/// What stands before the payload of an entry: of one message, or of a batch of them.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MessageMetadata {
    #[prost(string, required, tag = "1")]
    pub(crate) producer_name: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) sequence_id: u64,
    /// Milliseconds since the epoch.
    #[prost(uint64, required, tag = "3")]
    pub(crate) publish_time: u64,
    #[prost(message, repeated, tag = "4")]
    pub(crate) properties: Vec<KeyValue>,
    #[prost(string, optional, tag = "6")]
    pub(crate) partition_key: Option<String>,
    #[prost(int32, optional, tag = "8")]
    pub(crate) compression: Option<i32>,
    #[prost(uint32, optional, tag = "9")]
    pub(crate) uncompressed_size: Option<u32>,
    /// There where the payload is a batch, even of one.
    #[prost(int32, optional, tag = "11")]
    pub(crate) num_messages_in_batch: Option<i32>,
    /// Milliseconds since the epoch.
    #[prost(uint64, optional, tag = "12")]
    pub(crate) event_time: Option<u64>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) encryption_keys: Vec<EncryptionKeys>,
    #[prost(bool, optional, tag = "17")]
    pub(crate) partition_key_b64_encoded: Option<bool>,
    #[prost(uint64, optional, tag = "22")]
    pub(crate) txnid_least_bits: Option<u64>,
    #[prost(uint64, optional, tag = "23")]
    pub(crate) txnid_most_bits: Option<u64>,
    #[prost(uint64, optional, tag = "24")]
    pub(crate) highest_sequence_id: Option<u64>,
    #[prost(bool, optional, tag = "25")]
    pub(crate) null_value: Option<bool>,
    /// What the chunks of one message have in common.
    #[prost(string, optional, tag = "26")]
    pub(crate) uuid: Option<String>,
    #[prost(int32, optional, tag = "27")]
    pub(crate) num_chunks_from_msg: Option<i32>,
    /// Bytes of all chunks together, compressed as they are.
    #[prost(int32, optional, tag = "28")]
    pub(crate) total_chunk_msg_size: Option<i32>,
    #[prost(int32, optional, tag = "29")]
    pub(crate) chunk_id: Option<i32>,
}

/// What stands before each message of a batch.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SingleMessageMetadata {
    #[prost(message, repeated, tag = "1")]
    pub(crate) properties: Vec<KeyValue>,
    #[prost(string, optional, tag = "2")]
    pub(crate) partition_key: Option<String>,
    #[prost(int32, required, tag = "3")]
    pub(crate) payload_size: i32,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) event_time: Option<u64>,
    #[prost(bool, optional, tag = "6")]
    pub(crate) partition_key_b64_encoded: Option<bool>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) sequence_id: Option<u64>,
    #[prost(bool, optional, tag = "9")]
    pub(crate) null_value: Option<bool>,
}

/// What a client can do.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct FeatureFlags {
    #[prost(bool, optional, tag = "1")]
    pub(crate) supports_auth_refresh: Option<bool>,
    /// Of brokers: a question for partitions need not create a topic.
    #[prost(bool, optional, tag = "5")]
    pub(crate) supports_get_partitioned_metadata_without_auto_creation: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandConnect {
    #[prost(string, required, tag = "1")]
    pub(crate) client_version: String,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) auth_data: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) protocol_version: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub(crate) auth_method_name: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub(crate) proxy_to_broker_url: Option<String>,
    #[prost(message, optional, tag = "10")]
    pub(crate) feature_flags: Option<FeatureFlags>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandConnected {
    #[prost(string, required, tag = "1")]
    pub(crate) server_version: String,
    #[prost(int32, optional, tag = "2")]
    pub(crate) protocol_version: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) max_message_size: Option<i32>,
    #[prost(message, optional, tag = "4")]
    pub(crate) feature_flags: Option<FeatureFlags>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AuthData {
    #[prost(string, optional, tag = "1")]
    pub(crate) auth_method_name: Option<String>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) auth_data: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandAuthResponse {
    #[prost(string, optional, tag = "1")]
    pub(crate) client_version: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub(crate) response: Option<AuthData>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) protocol_version: Option<i32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandAuthChallenge {
    #[prost(string, optional, tag = "1")]
    pub(crate) server_version: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandSubscribe {
    #[prost(string, required, tag = "1")]
    pub(crate) topic: String,
    #[prost(string, required, tag = "2")]
    pub(crate) subscription: String,
    #[prost(int32, required, tag = "3")]
    pub(crate) sub_type: i32,
    #[prost(uint64, required, tag = "4")]
    pub(crate) consumer_id: u64,
    #[prost(uint64, required, tag = "5")]
    pub(crate) request_id: u64,
    #[prost(string, optional, tag = "6")]
    pub(crate) consumer_name: Option<String>,
    #[prost(bool, optional, tag = "8")]
    pub(crate) durable: Option<bool>,
    #[prost(message, optional, tag = "9")]
    pub(crate) start_message_id: Option<MessageIdData>,
    #[prost(int32, optional, tag = "13")]
    pub(crate) initial_position: Option<i32>,
    #[prost(bool, optional, tag = "15")]
    pub(crate) force_topic_creation: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandPartitionedTopicMetadata {
    #[prost(string, required, tag = "1")]
    pub(crate) topic: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) request_id: u64,
    #[prost(bool, optional, tag = "6")]
    pub(crate) metadata_auto_creation_enabled: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandPartitionedTopicMetadataResponse {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) partitions: Option<u32>,
    #[prost(uint64, required, tag = "2")]
    pub(crate) request_id: u64,
    /// 0 for success, 1 for a failure.
    #[prost(int32, optional, tag = "3")]
    pub(crate) response: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) error: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub(crate) message: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandLookupTopic {
    #[prost(string, required, tag = "1")]
    pub(crate) topic: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) request_id: u64,
    #[prost(bool, optional, tag = "3")]
    pub(crate) authoritative: Option<bool>,
    #[prost(string, optional, tag = "7")]
    pub(crate) advertised_listener_name: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandLookupTopicResponse {
    #[prost(string, optional, tag = "1")]
    pub(crate) broker_service_url: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) broker_service_url_tls: Option<String>,
    /// 0 to ask elsewhere, 1 to connect, 2 for a failure.
    #[prost(int32, optional, tag = "3")]
    pub(crate) response: Option<i32>,
    #[prost(uint64, required, tag = "4")]
    pub(crate) request_id: u64,
    #[prost(bool, optional, tag = "5")]
    pub(crate) authoritative: Option<bool>,
    #[prost(int32, optional, tag = "6")]
    pub(crate) error: Option<i32>,
    #[prost(string, optional, tag = "7")]
    pub(crate) message: Option<String>,
    #[prost(bool, optional, tag = "8")]
    pub(crate) proxy_through_service_url: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandProducer {
    #[prost(string, required, tag = "1")]
    pub(crate) topic: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) producer_id: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) request_id: u64,
    #[prost(string, optional, tag = "4")]
    pub(crate) producer_name: Option<String>,
    #[prost(bool, optional, tag = "9")]
    pub(crate) user_provided_producer_name: Option<bool>,
    #[prost(int32, optional, tag = "10")]
    pub(crate) producer_access_mode: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) topic_epoch: Option<u64>,
    #[prost(bool, optional, tag = "12")]
    pub(crate) txn_enabled: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandSend {
    #[prost(uint64, required, tag = "1")]
    pub(crate) producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) sequence_id: u64,
    #[prost(int32, optional, tag = "3")]
    pub(crate) num_messages: Option<i32>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) txnid_least_bits: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) txnid_most_bits: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) highest_sequence_id: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandSendReceipt {
    #[prost(uint64, required, tag = "1")]
    pub(crate) producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) sequence_id: u64,
    #[prost(message, optional, tag = "3")]
    pub(crate) message_id: Option<MessageIdData>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandSendError {
    #[prost(uint64, required, tag = "1")]
    pub(crate) producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) sequence_id: u64,
    #[prost(int32, required, tag = "3")]
    pub(crate) error: i32,
    #[prost(string, required, tag = "4")]
    pub(crate) message: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandMessage {
    #[prost(uint64, required, tag = "1")]
    pub(crate) consumer_id: u64,
    #[prost(message, required, tag = "2")]
    pub(crate) message_id: MessageIdData,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandAck {
    #[prost(uint64, required, tag = "1")]
    pub(crate) consumer_id: u64,
    #[prost(int32, required, tag = "2")]
    pub(crate) ack_type: i32,
    #[prost(message, repeated, tag = "3")]
    pub(crate) message_id: Vec<MessageIdData>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandFlow {
    #[prost(uint64, required, tag = "1")]
    pub(crate) consumer_id: u64,
    #[prost(uint32, required, tag = "2")]
    pub(crate) message_permits: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandCloseProducer {
    #[prost(uint64, required, tag = "1")]
    pub(crate) producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) request_id: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandCloseConsumer {
    #[prost(uint64, required, tag = "1")]
    pub(crate) consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) request_id: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandSuccess {
    #[prost(uint64, required, tag = "1")]
    pub(crate) request_id: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandProducerSuccess {
    #[prost(uint64, required, tag = "1")]
    pub(crate) request_id: u64,
    #[prost(string, required, tag = "2")]
    pub(crate) producer_name: String,
    #[prost(int64, optional, tag = "3")]
    pub(crate) last_sequence_id: Option<i64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) topic_epoch: Option<u64>,
    #[prost(bool, optional, tag = "6")]
    pub(crate) producer_ready: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandError {
    #[prost(uint64, required, tag = "1")]
    pub(crate) request_id: u64,
    #[prost(int32, required, tag = "2")]
    pub(crate) error: i32,
    #[prost(string, required, tag = "3")]
    pub(crate) message: String,
}

/// A ping and a pong have nothing in them.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Nothing {}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandGetLastMessageId {
    #[prost(uint64, required, tag = "1")]
    pub(crate) consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) request_id: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandGetLastMessageIdResponse {
    #[prost(message, required, tag = "1")]
    pub(crate) last_message_id: MessageIdData,
    #[prost(uint64, required, tag = "2")]
    pub(crate) request_id: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandGetTopicsOfNamespace {
    #[prost(uint64, required, tag = "1")]
    pub(crate) request_id: u64,
    #[prost(string, required, tag = "2")]
    pub(crate) namespace: String,
    /// 0 for those that are kept on disk.
    #[prost(int32, optional, tag = "3")]
    pub(crate) mode: Option<i32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandGetTopicsOfNamespaceResponse {
    #[prost(uint64, required, tag = "1")]
    pub(crate) request_id: u64,
    #[prost(string, repeated, tag = "2")]
    pub(crate) topics: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandTcClientConnectRequest {
    #[prost(uint64, required, tag = "1")]
    pub(crate) request_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) tc_id: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandTcClientConnectResponse {
    #[prost(uint64, required, tag = "1")]
    pub(crate) request_id: u64,
    #[prost(int32, optional, tag = "2")]
    pub(crate) error: Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub(crate) message: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandNewTxn {
    #[prost(uint64, required, tag = "1")]
    pub(crate) request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) txn_ttl_seconds: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) tc_id: Option<u64>,
}

/// The answer to each of the commands of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TransactionResponse {
    #[prost(uint64, required, tag = "1")]
    pub(crate) request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) txnid_least_bits: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) txnid_most_bits: Option<u64>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) error: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub(crate) message: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CommandAddPartitionToTxn {
    #[prost(uint64, required, tag = "1")]
    pub(crate) request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) txnid_least_bits: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) txnid_most_bits: Option<u64>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) partitions: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CommandEndTxn {
    #[prost(uint64, required, tag = "1")]
    pub(crate) request_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) txnid_least_bits: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) txnid_most_bits: Option<u64>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) txn_action: Option<i32>,
}

/// Any command: its kind, and the field of that kind.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct BaseCommand {
    #[prost(int32, required, tag = "1")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) connect: Option<CommandConnect>,
    #[prost(message, optional, tag = "3")]
    pub(crate) connected: Option<CommandConnected>,
    #[prost(message, optional, tag = "4")]
    pub(crate) subscribe: Option<CommandSubscribe>,
    #[prost(message, optional, tag = "5")]
    pub(crate) producer: Option<CommandProducer>,
    #[prost(message, optional, tag = "6")]
    pub(crate) send: Option<CommandSend>,
    #[prost(message, optional, tag = "7")]
    pub(crate) send_receipt: Option<CommandSendReceipt>,
    #[prost(message, optional, tag = "8")]
    pub(crate) send_error: Option<CommandSendError>,
    #[prost(message, optional, tag = "9")]
    pub(crate) message: Option<CommandMessage>,
    #[prost(message, optional, tag = "10")]
    pub(crate) ack: Option<CommandAck>,
    #[prost(message, optional, tag = "11")]
    pub(crate) flow: Option<CommandFlow>,
    #[prost(message, optional, tag = "13")]
    pub(crate) success: Option<CommandSuccess>,
    #[prost(message, optional, tag = "14")]
    pub(crate) error: Option<CommandError>,
    #[prost(message, optional, tag = "15")]
    pub(crate) close_producer: Option<CommandCloseProducer>,
    #[prost(message, optional, tag = "16")]
    pub(crate) close_consumer: Option<CommandCloseConsumer>,
    #[prost(message, optional, tag = "17")]
    pub(crate) producer_success: Option<CommandProducerSuccess>,
    #[prost(message, optional, tag = "18")]
    pub(crate) ping: Option<Nothing>,
    #[prost(message, optional, tag = "19")]
    pub(crate) pong: Option<Nothing>,
    #[prost(message, optional, tag = "21")]
    pub(crate) partition_metadata: Option<CommandPartitionedTopicMetadata>,
    #[prost(message, optional, tag = "22")]
    pub(crate) partition_metadata_response: Option<CommandPartitionedTopicMetadataResponse>,
    #[prost(message, optional, tag = "23")]
    pub(crate) lookup_topic: Option<CommandLookupTopic>,
    #[prost(message, optional, tag = "24")]
    pub(crate) lookup_topic_response: Option<CommandLookupTopicResponse>,
    #[prost(message, optional, tag = "29")]
    pub(crate) get_last_message_id: Option<CommandGetLastMessageId>,
    #[prost(message, optional, tag = "30")]
    pub(crate) get_last_message_id_response: Option<CommandGetLastMessageIdResponse>,
    #[prost(message, optional, tag = "32")]
    pub(crate) get_topics_of_namespace: Option<CommandGetTopicsOfNamespace>,
    #[prost(message, optional, tag = "33")]
    pub(crate) get_topics_of_namespace_response: Option<CommandGetTopicsOfNamespaceResponse>,
    #[prost(message, optional, tag = "36")]
    pub(crate) auth_challenge: Option<CommandAuthChallenge>,
    #[prost(message, optional, tag = "37")]
    pub(crate) auth_response: Option<CommandAuthResponse>,
    #[prost(message, optional, tag = "50")]
    pub(crate) new_txn: Option<CommandNewTxn>,
    #[prost(message, optional, tag = "51")]
    pub(crate) new_txn_response: Option<TransactionResponse>,
    #[prost(message, optional, tag = "52")]
    pub(crate) add_partition_to_txn: Option<CommandAddPartitionToTxn>,
    #[prost(message, optional, tag = "53")]
    pub(crate) add_partition_to_txn_response: Option<TransactionResponse>,
    #[prost(message, optional, tag = "56")]
    pub(crate) end_txn: Option<CommandEndTxn>,
    #[prost(message, optional, tag = "57")]
    pub(crate) end_txn_response: Option<TransactionResponse>,
    #[prost(message, optional, tag = "62")]
    pub(crate) tc_client_connect_request: Option<CommandTcClientConnectRequest>,
    #[prost(message, optional, tag = "63")]
    pub(crate) tc_client_connect_response: Option<CommandTcClientConnectResponse>,
}
