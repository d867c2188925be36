//! Numbers that stand for something: the enumerations of `PulsarApi.proto`, as far as they are
//! used.

/// Kinds of commands.
pub(crate) mod kind {
    pub(crate) const CONNECT: i32 = 2;
    pub(crate) const SUBSCRIBE: i32 = 4;
    pub(crate) const PRODUCER: i32 = 5;
    pub(crate) const SEND: i32 = 6;
    pub(crate) const SEND_RECEIPT: i32 = 7;
    pub(crate) const SEND_ERROR: i32 = 8;
    pub(crate) const MESSAGE: i32 = 9;
    pub(crate) const ACK: i32 = 10;
    pub(crate) const FLOW: i32 = 11;
    pub(crate) const SUCCESS: i32 = 13;
    pub(crate) const ERROR: i32 = 14;
    pub(crate) const CLOSE_PRODUCER: i32 = 15;
    pub(crate) const CLOSE_CONSUMER: i32 = 16;
    pub(crate) const PRODUCER_SUCCESS: i32 = 17;
    pub(crate) const PING: i32 = 18;
    pub(crate) const PONG: i32 = 19;
    pub(crate) const PARTITIONED_METADATA: i32 = 21;
    pub(crate) const PARTITIONED_METADATA_RESPONSE: i32 = 22;
    pub(crate) const LOOKUP: i32 = 23;
    pub(crate) const LOOKUP_RESPONSE: i32 = 24;
    pub(crate) const GET_LAST_MESSAGE_ID: i32 = 29;
    pub(crate) const GET_LAST_MESSAGE_ID_RESPONSE: i32 = 30;
    pub(crate) const GET_TOPICS_OF_NAMESPACE: i32 = 32;
    pub(crate) const GET_TOPICS_OF_NAMESPACE_RESPONSE: i32 = 33;
    pub(crate) const AUTH_CHALLENGE: i32 = 36;
    pub(crate) const AUTH_RESPONSE: i32 = 37;
    pub(crate) const NEW_TXN: i32 = 50;
    pub(crate) const NEW_TXN_RESPONSE: i32 = 51;
    pub(crate) const ADD_PARTITION_TO_TXN: i32 = 52;
    pub(crate) const ADD_PARTITION_TO_TXN_RESPONSE: i32 = 53;
    pub(crate) const END_TXN: i32 = 56;
    pub(crate) const END_TXN_RESPONSE: i32 = 57;
    pub(crate) const TC_CLIENT_CONNECT_REQUEST: i32 = 62;
    pub(crate) const TC_CLIENT_CONNECT_RESPONSE: i32 = 63;
}

/// What a broker says is wrong. A code that is not here has no meaning of its own for us.
pub(crate) mod code {
    pub(crate) const UNKNOWN: i32 = 0;
    pub(crate) const AUTHENTICATION: i32 = 3;
    pub(crate) const AUTHORIZATION: i32 = 4;
    pub(crate) const CONSUMER_BUSY: i32 = 5;
    pub(crate) const UNSUPPORTED_VERSION: i32 = 10;
    pub(crate) const TOPIC_NOT_FOUND: i32 = 11;
    pub(crate) const SUBSCRIPTION_NOT_FOUND: i32 = 12;
    pub(crate) const TOPIC_TERMINATED: i32 = 15;
    pub(crate) const INVALID_TOPIC_NAME: i32 = 17;
    pub(crate) const INCOMPATIBLE_SCHEMA: i32 = 18;
    pub(crate) const INVALID_TRANSACTION_STATUS: i32 = 21;
    pub(crate) const NOT_ALLOWED: i32 = 22;
    pub(crate) const TRANSACTION_NOT_FOUND: i32 = 24;
    pub(crate) const PRODUCER_FENCED: i32 = 25;
}

/// Which messages a subscription gives to whom.
pub(crate) mod subscription_type {
    pub(crate) const EXCLUSIVE: i32 = 0;
    pub(crate) const FAILOVER: i32 = 2;
}

/// Where a new subscription begins.
pub(crate) mod initial_position {
    pub(crate) const LATEST: i32 = 0;
    pub(crate) const EARLIEST: i32 = 1;
}

/// Who else may write to the topic of a producer.
pub(crate) mod access_mode {
    pub(crate) const SHARED: i32 = 0;
    pub(crate) const EXCLUSIVE_WITH_FENCING: i32 = 3;
}

/// How a transaction ends.
pub(crate) mod action {
    pub(crate) const COMMIT: i32 = 0;
    pub(crate) const ABORT: i32 = 1;
}

/// How an acknowledgement counts: the message, and all before it.
pub(crate) const CUMULATIVE: i32 = 1;
