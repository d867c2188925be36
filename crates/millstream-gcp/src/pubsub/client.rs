//! Calls to Pub/Sub.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use googleapis_tonic_google_pubsub_v1::google::pubsub::v1 as pb;
use millstream_engine::api::contact::ContactWith;
use millstream_engine::api::source::Failure;
use millstream_store::env::Env;
use pb::subscriber_client::SubscriberClient;
use prost::Message as _;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use super::error::PubsubError;
use crate::service::Connection;

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// What leases are extended by where there are none, seconds: the least that there is.
const ASKED_LEASE_S: i32 = 10;
/// The most that an answer may have; the service sends less.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Between two tries.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A service may refuse a token that has just been replaced; this often in a row it means it.
const REFUSALS_MAX: u32 = 3;

/// A subscription, and whoever reads it.
pub(super) struct Client {
    connection: Connection,
    /// Its full name.
    pub(super) subscription: String,
    topic: Option<String>,
    contact: ContactWith,
    pub(super) env: Env,
}

/// What became of acknowledgements.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// To be tried again.
    pub(super) again: Vec<String>,
    /// They will never count: their messages come again.
    pub(super) invalid: Vec<String>,
}

/// The tries of one thing, one after the other.
#[derive(Default)]
pub(super) struct Tries {
    failed: u32,
    refused: u32,
    since_ms: Option<i64>,
}

impl Client {
    pub(super) fn new(
        connection: Connection,
        (subscription, topic): (String, Option<String>),
        contact: ContactWith,
        env: Env,
    ) -> Arc<Self> {
        Arc::new(Self { connection, subscription, topic, contact, env })
    }

    fn stub(&self) -> SubscriberClient<Channel> {
        let stub = SubscriberClient::new(self.connection.channel.clone());
        stub.max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// A request for a stream of messages, which is asked with `requests`.
    pub(super) async fn stream_request(
        &self,
        requests: UnboundedReceiver<pb::StreamingPullRequest>,
    ) -> Result<Request<UnboundedReceiver<pb::StreamingPullRequest>>, CallError> {
        Ok(self.connection.stream_request(requests).await?)
    }

    /// Opens a stream. The service says nothing before the first message, so this may take as long
    /// as that.
    pub(super) async fn stream(
        &self,
        request: Request<UnboundedReceiver<pb::StreamingPullRequest>>,
    ) -> Result<Streaming<pb::StreamingPullResponse>, CallError> {
        Ok(self.stub().streaming_pull(request).await?.into_inner())
    }

    /// Extends the leases of messages by `seconds`.
    pub(super) async fn extend(&self, ack_ids: Vec<String>, seconds: i32) -> Result<(), CallError> {
        let subscription = self.subscription.clone();
        let message =
            pb::ModifyAckDeadlineRequest { subscription, ack_ids, ack_deadline_seconds: seconds };
        let request = self.connection.request(message, PATIENCE).await?;
        let mut stub = self.stub();
        self.connection.within(PATIENCE, stub.modify_ack_deadline(request)).await?;
        Ok(())
    }

    /// Asks for nothing, to see whether the service answers: the leases of no messages are
    /// extended, which it may refuse.
    pub(super) async fn ask(&self) -> Result<(), CallError> {
        match self.extend(Vec::new(), ASKED_LEASE_S).await {
            Err(CallError::Status(status)) => match status.code() {
                Code::InvalidArgument | Code::FailedPrecondition | Code::Unimplemented => Ok(()),
                _ => {
                    self.connection.refused(&status);
                    Err(CallError::Status(status))
                }
            },
            answer => answer,
        }
    }

    /// Acknowledges messages, once.
    pub(super) async fn acknowledge(&self, ack_ids: Vec<String>) -> Result<Outcome, CallError> {
        let subscription = self.subscription.clone();
        let message = pb::AcknowledgeRequest { subscription, ack_ids: ack_ids.clone() };
        let request = self.connection.request(message, PATIENCE).await?;
        let mut stub = self.stub();
        match self.connection.within(PATIENCE, stub.acknowledge(request)).await {
            Ok(_) => Ok(Outcome::default()),
            Err(status) => match outcome(&status, ack_ids) {
                Some(outcome) => Ok(outcome),
                None => Err(status.into()),
            },
        }
    }

    /// Creates the subscription, if its topic is known. Gives whether there is one now.
    async fn create(&self) -> Result<bool, CallError> {
        let Some(topic) = &self.topic else { return Ok(false) };
        let message = pb::Subscription {
            name: self.subscription.clone(),
            topic: topic.clone(),
            ack_deadline_seconds: 60,
            ..pb::Subscription::default()
        };
        let request = self.connection.request(message, PATIENCE).await?;
        let mut stub = self.stub();
        match self.connection.within(PATIENCE, stub.create_subscription(request)).await {
            Ok(_) => {
                tracing::info!(subscription = self.subscription, topic, "subscription created");
                Ok(true)
            }
            Err(status) if status.code() == Code::AlreadyExists => Ok(true),
            Err(status) => {
                let (names, account) = ((&*self.subscription, &**topic), self.connection.account());
                match PubsubError::of_creation(&status, names, &account) {
                    Some(error) => Err(CallError::Failure(error.into())),
                    None => Err(status.into()),
                }
            }
        }
    }

    /// The service has been heard of.
    pub(super) fn heard(&self) {
        self.contact.answered();
    }

    /// What was asked has been answered.
    pub(super) fn answered(&self, tries: &mut Tries) {
        *tries = Tries::default();
        self.contact.answered();
    }

    /// A call has failed: waits as long as it should before the next. Where there is no
    /// subscription it is created, if it `may_create` one.
    ///
    /// # Errors
    /// The next would fail too.
    pub(super) async fn wait(
        &self,
        tries: &mut Tries,
        error: CallError,
        may_create: bool,
    ) -> Result<(), Failure> {
        let now_ms = self.env.now_ms();
        let since_ms = *tries.since_ms.get_or_insert(now_ms);
        tries.failed += 1;
        let status = match error {
            CallError::Failure(failure) => return Err(failure),
            CallError::Away(problem) => {
                tracing::debug!(problem, "Pub/Sub cannot be called now");
                None
            }
            CallError::Status(status) => Some(status),
        };
        if let Some(status) = status {
            tracing::debug!(%status, "a call of Pub/Sub has failed");
            self.connection.refused(&status);
            let code = status.code();
            tries.refused += u32::from(code == Code::Unauthenticated);
            let may_pass = code == Code::Unauthenticated && tries.refused < REFUSALS_MAX;
            let error = PubsubError::of(&status, &self.subscription, &self.connection.account());
            if let Some(error) = error.filter(|_| !may_pass) {
                let is_missing = matches!(error, PubsubError::NoSubscription { .. });
                let creates = is_missing && may_create;
                match if creates { self.create().await } else { Ok(false) } {
                    Ok(true) => {}
                    Ok(false) => return Err(error.into()),
                    Err(CallError::Failure(failure)) => return Err(failure),
                    Err(_) => {}
                }
            }
        }
        self.contact.unanswered(since_ms);
        let pause = PAUSE_FIRST.saturating_mul(1 << tries.failed.min(10)).min(PAUSE_MAX);
        // Many that wait for the same thing do not come back at the same moment.
        let jitter = self.env.random_u64() % 512;
        self.env.sleep(pause.mul_f64(0.75 + jitter as f64 / 1024.0)).await;
        Ok(())
    }
}

/// Why a call has failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// What the service said, or the transport.
    Status(Box<Status>),
    /// There is no token now.
    Away(String),
    /// It is final.
    Failure(Failure),
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{}: {}", status.code(), status.message()),
            Self::Away(problem) => f.write_str(problem),
            Self::Failure(failure) => write!(f, "{failure}"),
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl From<crate::credentials::CredentialsError> for CallError {
    fn from(error: crate::credentials::CredentialsError) -> Self {
        use millstream_store::error::{Classified as _, Kind};
        match error.kind() {
            Kind::Retry => Self::Away(error.to_string()),
            _ => Self::Failure(error.into()),
        }
    }
}

/// `google.rpc.Status`, as far as it is needed.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.ErrorInfo`, as far as it is needed.
#[derive(Clone, PartialEq, prost::Message)]
struct ErrorInfo {
    #[prost(map = "string, string", tag = "3")]
    metadata: HashMap<String, String>,
}

/// What a failed call says of each acknowledgement, if it does: a subscription with exactly-once
/// delivery reports those that it has not taken, and why.
fn outcome(status: &Status, ack_ids: Vec<String>) -> Option<Outcome> {
    let details = RpcStatus::decode(status.details()).ok()?.details;
    let info = details.iter().find(|any| any.type_url.ends_with("/google.rpc.ErrorInfo"))?;
    let said = ErrorInfo::decode(&*info.value).ok()?.metadata;
    if !ack_ids.iter().any(|id| said.contains_key(id)) {
        return None;
    }
    let mut outcome = Outcome::default();
    for id in ack_ids {
        match said.get(&id) {
            Some(why) if why.starts_with("PERMANENT_FAILURE_INVALID_ACK_ID") => {
                outcome.invalid.push(id);
            }
            // For another reason, or because of an earlier one of its key. What nothing is said of
            // may have been taken or not; to acknowledge it twice does no harm.
            Some(_) | None => outcome.again.push(id),
        }
    }
    Some(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_each_acknowledgement_is_understood() {
        let reasons = [
            ("a", "PERMANENT_FAILURE_INVALID_ACK_ID"),
            ("b", "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"),
            ("c", "TRANSIENT_FAILURE_UNORDERED_ACK_ID"),
        ];
        let own = |text: &str| text.to_owned();
        let metadata = reasons.map(|(id, reason)| (own(id), own(reason))).into();
        let value = ErrorInfo { metadata }.encode_to_vec();
        let type_url = own("type.googleapis.com/google.rpc.ErrorInfo");
        let details = RpcStatus { details: vec![Any { type_url, value }] }.encode_to_vec();
        let code = Code::FailedPrecondition;
        let status = Status::with_details(code, "some failed", details.into());
        let found = outcome(&status, ["a", "b", "c", "d"].map(own).to_vec());
        let again = ["b", "c", "d"].map(own).to_vec();
        assert_eq!(found, Some(Outcome { again, invalid: vec![own("a")] }));
        assert_eq!(outcome(&status, vec![own("d")]), None, "it is about others");
        assert_eq!(outcome(&Status::new(code, "detached"), vec![own("a")]), None);
    }
}
