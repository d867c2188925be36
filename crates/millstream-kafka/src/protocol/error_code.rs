//! The error codes of answers, and which of them are transient.

/// An error code as the brokers send it; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub i16);

/// A transient error: the same request may succeed later.
pub struct Passing {
    /// Its number.
    pub code: i16,
    /// Its name in Kafka.
    pub name: &'static str,
    /// True if the leader or coordinator may have moved, so that it has to be looked up again.
    pub is_misplaced: bool,
}

const fn waits(code: i16, name: &'static str) -> Passing {
    Passing { code, name, is_misplaced: false }
}

const fn moved(code: i16, name: &'static str) -> Passing {
    Passing { code, name, is_misplaced: true }
}

/// The errors after which Kafka's own client asks again: those of its `Errors` whose exception is a
/// `RetriableException`, as of Kafka 4.3. Misplaced are those whose exception is an
/// `InvalidMetadataException`, and those about coordinators, controllers and leaders' epochs. The
/// last one is not among them; it is transient because a broker that is away may come back.
pub const PASSING: [Passing; 33] = [
    waits(2, "CORRUPT_MESSAGE"),
    moved(3, "UNKNOWN_TOPIC_OR_PARTITION"),
    moved(5, "LEADER_NOT_AVAILABLE"),
    moved(6, "NOT_LEADER_OR_FOLLOWER"),
    waits(7, "REQUEST_TIMED_OUT"),
    moved(9, "REPLICA_NOT_AVAILABLE"),
    moved(13, "NETWORK_EXCEPTION"),
    waits(14, "COORDINATOR_LOAD_IN_PROGRESS"),
    moved(15, "COORDINATOR_NOT_AVAILABLE"),
    moved(16, "NOT_COORDINATOR"),
    waits(19, "NOT_ENOUGH_REPLICAS"),
    waits(20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    moved(41, "NOT_CONTROLLER"),
    waits(51, "CONCURRENT_TRANSACTIONS"),
    moved(56, "KAFKA_STORAGE_ERROR"),
    waits(70, "FETCH_SESSION_ID_NOT_FOUND"),
    waits(71, "INVALID_FETCH_SESSION_EPOCH"),
    moved(72, "LISTENER_NOT_FOUND"),
    moved(74, "FENCED_LEADER_EPOCH"),
    moved(75, "UNKNOWN_LEADER_EPOCH"),
    waits(78, "OFFSET_NOT_AVAILABLE"),
    moved(80, "PREFERRED_LEADER_NOT_AVAILABLE"),
    moved(83, "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
    moved(84, "ELECTION_NOT_NEEDED"),
    waits(88, "UNSTABLE_OFFSET_COMMIT"),
    waits(89, "THROTTLING_QUOTA_EXCEEDED"),
    moved(100, "UNKNOWN_TOPIC_ID"),
    moved(103, "INCONSISTENT_TOPIC_ID"),
    waits(106, "FETCH_SESSION_TOPIC_ID_ERROR"),
    waits(122, "SHARE_SESSION_NOT_FOUND"),
    waits(123, "INVALID_SHARE_SESSION_EPOCH"),
    waits(133, "SHARE_SESSION_LIMIT_REACHED"),
    moved(8, "BROKER_NOT_AVAILABLE"),
];

impl ErrorCode {
    pub const NONE: Self = Self(0);
    pub const OFFSET_OUT_OF_RANGE: Self = Self(1);
    pub const UNKNOWN_TOPIC_OR_PARTITION: Self = Self(3);
    pub const LEADER_NOT_AVAILABLE: Self = Self(5);
    pub const MESSAGE_TOO_LARGE: Self = Self(10);
    pub const COORDINATOR_NOT_AVAILABLE: Self = Self(15);
    pub const RECORD_LIST_TOO_LARGE: Self = Self(18);
    pub const GROUP_AUTHORIZATION: Self = Self(30);
    pub const CLUSTER_AUTHORIZATION: Self = Self(31);
    pub const UNSUPPORTED_SASL_MECHANISM: Self = Self(33);
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
        self.passing().is_some()
    }

    /// The request belongs to another broker, which has to be looked up.
    pub fn is_misplaced(self) -> bool {
        self.passing().is_some_and(|passing| passing.is_misplaced)
    }

    /// Kafka's name for an error that passes.
    pub fn name(self) -> Option<&'static str> {
        self.passing().map(|passing| passing.name)
    }

    fn passing(self) -> Option<&'static Passing> {
        PASSING.iter().find(|passing| passing.code == self.0)
    }

    /// The brokers no longer accept the producer: another one has taken its id over, or they have
    /// aborted its transaction.
    pub fn is_turned_away(self) -> bool {
        matches!(self, Self::INVALID_PRODUCER_EPOCH | Self::PRODUCER_FENCED)
    }

    /// A row is at fault and not the transaction: too large, for a topic that may not be written
    /// to, or of a time or form that the topic does not take.
    pub fn is_about_rows(self) -> bool {
        // MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TOPIC_EXCEPTION,
        // TOPIC_AUTHORIZATION_FAILED, INVALID_TIMESTAMP, POLICY_VIOLATION, INVALID_RECORD.
        matches!(self.0, 10 | 18 | 17 | 29 | 32 | 44 | 87)
    }

    /// The broker does not know the session of a reader any more (KIP-227).
    pub fn is_about_session(self) -> bool {
        // FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        matches!(self.0, 70 | 71 | 106)
    }

    /// What a broker keeps of a partition cannot be read.
    pub fn is_about_data(self) -> bool {
        // CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD.
        matches!(self.0, 2 | 76 | 87)
    }

    /// The brokers do not know the writer any more, or not what it has written: a new one is
    /// needed.
    ///
    /// A broker says so from memory. One that stood still, or that has not heard of an election
    /// yet, speaks of what was before.
    pub fn is_about_writer(self) -> bool {
        // OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID.
        self.is_lost_transaction() || matches!(self.0, 45 | 59)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_that_passes_is_asked_again() {
        for Passing { code, name, is_misplaced } in &PASSING {
            let code = ErrorCode(*code);
            assert!(code.may_pass(), "{name}");
            assert_eq!(code.is_misplaced(), *is_misplaced, "{name}");
            // Those are about something else than when to ask.
            assert!(!code.is_turned_away() && !code.is_not_allowed(), "{name}");
        }
        let mut codes: Vec<i16> = PASSING.iter().map(|passing| passing.code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), PASSING.len(), "one of them stands there twice");
    }

    #[test]
    fn what_does_not_pass_is_told() {
        // None, unknown, too large, permissions, versions, fencing, lost transactions.
        for code in [0, -1, 10, 17, 18, 29, 30, 31, 35, 44, 46, 47, 48, 49, 53, 87, 90] {
            assert!(!ErrorCode(code).may_pass(), "{code}");
        }
    }
}
