//! What can go wrong with Pub/Sub, and what to do about it.

use millstream_store::error::{Classified, Kind};
use thiserror::Error;
use tonic::{Code, Status};

/// An error of the source.
#[derive(Clone, Debug, Error)]
pub enum PubsubError {
    /// There is no such subscription.
    #[error(
        "there is no subscription {subscription}: {said}. Create it, or name its topic with \
         'topicId', and it is created"
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
            Self::NoSubscription { .. } | Self::NotCreated { .. } | Self::Refused { .. } => {
                Kind::Config
            }
            Self::Denied { .. } | Self::Unauthenticated { .. } => Kind::Credentials,
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
}
