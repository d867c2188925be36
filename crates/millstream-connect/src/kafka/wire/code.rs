//! The error codes of answers, and which of them pass.

/// An error code as the brokers send it; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub i16);

impl Code {
    pub const NONE: Self = Self(0);
    pub const UNKNOWN_TOPIC_OR_PARTITION: Self = Self(3);
    pub const LEADER_NOT_AVAILABLE: Self = Self(5);
    pub const MESSAGE_TOO_LARGE: Self = Self(10);
    pub const COORDINATOR_NOT_AVAILABLE: Self = Self(15);
    pub const RECORD_LIST_TOO_LARGE: Self = Self(18);
    pub const GROUP_AUTHORIZATION: Self = Self(30);
    pub const CLUSTER_AUTHORIZATION: Self = Self(31);
    pub const UNSUPPORTED_VERSION: Self = Self(35);
    pub const DUPLICATE_SEQUENCE: Self = Self(46);
    pub const INVALID_PRODUCER_EPOCH: Self = Self(47);
    pub const INVALID_TRANSACTION_STATE: Self = Self(48);
    pub const INVALID_PRODUCER_ID_MAPPING: Self = Self(49);
    pub const CONCURRENT_TRANSACTIONS: Self = Self(51);
    pub const TRANSACTIONAL_ID_AUTHORIZATION: Self = Self(53);
    pub const PRODUCER_FENCED: Self = Self(90);

    /// An error that may be gone when the same is asked again, here or at another broker.
    pub fn may_pass(self) -> bool {
        self == Self::CONCURRENT_TRANSACTIONS || self.is_misplaced() || self.is_busy()
    }

    /// What was asked belongs to another broker: find out which.
    pub fn is_misplaced(self) -> bool {
        // Unknown topic or partition, no leader, not the leader, not there, no replica; the
        // coordinator is not available, or another; old or unknown leader's epoch; unknown topic.
        matches!(self.0, 3 | 5 | 6 | 8 | 9 | 15 | 16 | 74 | 75 | 100)
    }

    /// The broker cannot just now: too slow, network, loading, too few replicas, a disk that fails.
    fn is_busy(self) -> bool {
        matches!(self.0, 2 | 7 | 13 | 14 | 19 | 20 | 56 | 89)
    }

    /// The brokers do not know the writer any more: somebody else has its id, or they gave its
    /// transaction up.
    pub fn is_turned_away(self) -> bool {
        matches!(self, Self::INVALID_PRODUCER_EPOCH | Self::PRODUCER_FENCED)
    }

    /// Not the transaction is at fault but a row: too large, for a topic that may not be written
    /// to, or of a time or form that the topic does not take.
    pub fn is_about_rows(self) -> bool {
        // Too large twice, no such topic, not allowed, time, policy, invalid.
        matches!(self.0, 10 | 18 | 17 | 29 | 32 | 44 | 87)
    }

    /// The brokers do not know the transaction any more, or its writer.
    pub fn is_lost_transaction(self) -> bool {
        self.is_turned_away()
            || matches!(self, Self::INVALID_TRANSACTION_STATE | Self::INVALID_PRODUCER_ID_MAPPING)
    }

    /// The user may not do this.
    pub fn is_not_allowed(self) -> bool {
        matches!(
            self,
            Self::GROUP_AUTHORIZATION
                | Self::CLUSTER_AUTHORIZATION
                | Self::UNSUPPORTED_VERSION
                | Self::TRANSACTIONAL_ID_AUTHORIZATION
        )
    }
}
