//! Makes librdkafka's clients, with their first token where they need one: a client asks for its
//! token by an event, which nobody sees before the first question is asked.

use rdkafka::admin::AdminClient;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaResult;
use rdkafka::producer::Producer as _;

use super::context::Context;
use super::delivery_reports::Deliveries;
use super::native::{ConsumerClient, ProducerClient};

/// A client that may need tokens.
pub trait LogsIn: FromClientConfigAndContext<Self::Events> {
    /// What gets its events.
    type Events: rdkafka::ClientContext;

    /// Gives it a token, if the last one has become old. Blocks while somebody is asked for one.
    fn renew_token(&self);
}

/// Makes a client; it connects in the background. Blocks while somebody is asked for a token.
///
/// # Errors
/// Settings that contradict each other.
pub fn create<C: LogsIn>(config: &ClientConfig, events: C::Events) -> KafkaResult<C> {
    let client: C = config.create_with_context(events)?;
    client.renew_token();
    Ok(client)
}

impl LogsIn for ConsumerClient {
    type Events = Context;

    fn renew_token(&self) {
        self.context().renew_token(self.client());
    }
}

impl LogsIn for ProducerClient {
    type Events = Deliveries;

    fn renew_token(&self) {
        self.context().context().renew_token(self.client());
    }
}

impl LogsIn for AdminClient<Context> {
    type Events = Context;

    fn renew_token(&self) {
        self.inner().context().renew_token(self.inner());
    }
}
