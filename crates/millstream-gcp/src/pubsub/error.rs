//! What can go wrong with Pub/Sub, and what to do about it.

use millstream_store::error::{Classified, Kind};
use thiserror::Error;
use tonic::{Code, Status};

/// An error of the source.
#[derive(Clone, Debug, Error)]
pub enum PubsubError {
    /// There is no such subscription.
    #[error(
        "there is no subscription {subscription}: {said}. Create it; or name its topic with \
         'topicId', and it is created for a query that has not read anything yet"
    )]
    NoSubscription {
        /// Its full name.
        subscription: String,
        /// What the service said.
        said: String,
    },
    /// The subscription cannot be created.
    #[error("the subscription {subscription} of {topic} cannot be created: {said}")]
    NotCreated {
        /// Its full name.
        subscription: String,
        /// The topic's.
        topic: String,
        /// What the service said.
        said: String,
    },
    /// There is no topic to subscribe to.
    #[error(
        "the subscription {subscription} cannot be created, since there is no topic {topic}: \
         {said}. Create the topic, or name another with 'topicId'"
    )]
    NoTopic {
        /// The subscription's full name.
        subscription: String,
        /// The topic's.
        topic: String,
        /// What the service said.
        said: String,
    },
    /// The account may not create it.
    #[error(
        "Pub/Sub does not let {account} create {subscription}: {said}. Give the account the \
         permissions pubsub.subscriptions.create in the project and \
         pubsub.topics.attachSubscription on {topic}, or create the subscription yourself"
    )]
    MayNotCreate {
        /// Who asked.
        account: String,
        /// The subscription.
        subscription: String,
        /// The topic.
        topic: String,
        /// What the service said.
        said: String,
    },
    /// A run that ends cannot know whether it has read all.
    #[error(
        "Pub/Sub has not answered for {waited_s} s, so nobody knows whether {subscription} has \
         more: {problem}"
    )]
    NoAnswer {
        /// The subscription.
        subscription: String,
        /// For how long, seconds.
        waited_s: u64,
        /// What became of the last call.
        problem: String,
    },
    /// The account may not read it.
    #[error(
        "Pub/Sub does not let {account} read {subscription}: {said}. Give the account the role \
         roles/pubsub.subscriber"
    )]
    Denied {
        /// Who asked.
        account: String,
        /// The subscription.
        subscription: String,
        /// What the service said.
        said: String,
    },
    /// The credentials are not taken.
    #[error("Pub/Sub does not take the credentials of {account}: {said}")]
    Unauthenticated {
        /// Who asked.
        account: String,
        /// What the service said.
        said: String,
    },
    /// The service refuses, and will refuse again.
    #[error("Pub/Sub refuses to give messages of {subscription}: {said}")]
    Refused {
        /// The subscription.
        subscription: String,
        /// What the service said.
        said: String,
    },
    /// What is in the journal is no message.
    #[error("the record at position {position} of the journal is no message of Pub/Sub")]
    NoMessage {
        /// Where it is.
        position: u64,
    },
    /// The source is asked for what it has not begun with.
    #[error("the source was not opened")]
    NotOpen,
}

impl Classified for PubsubError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoSubscription { .. }
            | Self::NotCreated { .. }
            | Self::NoTopic { .. }
            | Self::Refused { .. } => Kind::Config,
            Self::Denied { .. } | Self::MayNotCreate { .. } | Self::Unauthenticated { .. } => {
                Kind::Credentials
            }
            Self::NoAnswer { .. } => Kind::Retry,
            Self::NoMessage { .. } => Kind::Data,
            Self::NotOpen => Kind::Bug,
        }
    }
}

impl PubsubError {
    /// What an answer means; `None` if the same call may work soon.
    pub(super) fn of(status: &Status, subscription: &str, account: &str) -> Option<Self> {
        let said = status.message().to_owned();
        let (subscription, account) = (subscription.to_owned(), account.to_owned());
        match status.code() {
            Code::NotFound => Some(Self::NoSubscription { subscription, said }),
            Code::PermissionDenied => Some(Self::Denied { account, subscription, said }),
            Code::Unauthenticated => Some(Self::Unauthenticated { account, said }),
            Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented => Some(Self::Refused { subscription, said }),
            _ => None,
        }
    }

    /// What an answer to the creation of a subscription means; `None` if the same call may work
    /// soon.
    pub(super) fn of_creation(
        status: &Status,
        (subscription, topic): (&str, &str),
        account: &str,
    ) -> Option<Self> {
        let (subscription, topic) = (subscription.to_owned(), topic.to_owned());
        let (account, said) = (account.to_owned(), status.message().to_owned());
        match status.code() {
            Code::NotFound => Some(Self::NoTopic { subscription, topic, said }),
            Code::PermissionDenied => {
                Some(Self::MayNotCreate { account, subscription, topic, said })
            }
            Code::Unauthenticated => Some(Self::Unauthenticated { account, said }),
            Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable => None,
            _ => Some(Self::NotCreated { subscription, topic, said }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_subscription_from_being_created_is_named() {
        let of = |code| {
            let status = Status::new(code, "so");
            PubsubError::of_creation(&status, ("projects/p/subscriptions/s", "topics/t"), "me")
        };
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Internal] {
            assert!(of(code).is_none(), "it may work soon");
        }
        let denied = of(Code::PermissionDenied).expect("it is final");
        assert_eq!(denied.kind(), Kind::Credentials);
        for said in ["me", "pubsub.subscriptions.create", "pubsub.topics.attachSubscription"] {
            assert!(denied.to_string().contains(said), "{denied}");
        }
        let none = of(Code::NotFound).expect("it is final").to_string();
        assert!(none.contains("there is no topic topics/t"), "{none}");
    }
}
