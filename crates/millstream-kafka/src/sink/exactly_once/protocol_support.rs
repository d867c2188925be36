//! Whether the protocol client or librdkafka writes: it depends on the settings of the client, on
//! what the brokers support, and on whether the topic of the record can be made.

use super::opening::Opening;
use super::protocol::{self, BrokerSupport, ProtocolSettings};
use super::record_topic::RecordTopic;
use crate::error::SinkError;

/// Whether the protocol client writes.
pub enum ProtocolSupport {
    /// It writes, with these settings.
    Available(Box<ProtocolSettings>),
    /// It cannot write now but may later, because a broker is away.
    NotNow(String),
    /// It cannot write, so librdkafka has to. Why, unless the options say so.
    Never(Option<String>),
}

impl Opening {
    /// How the protocol client is to write, if it can. Blocks.
    pub fn protocol_support(&self) -> Result<ProtocolSupport, SinkError> {
        let settings = match ProtocolSettings::of(&self.settings, self.settings.transactions()) {
            Ok(settings) => settings,
            Err(not_spoken) => return Ok(ProtocolSupport::Never(not_spoken.reason())),
        };
        match protocol::broker_support(self, &settings) {
            BrokerSupport::Yes => {}
            BrokerSupport::Never(reason) => return Ok(ProtocolSupport::Never(Some(reason))),
            BrokerSupport::NotNow(reason) => return Ok(ProtocolSupport::NotNow(reason)),
        }
        Ok(match self.make_record_topic()? {
            RecordTopic::Made => ProtocolSupport::Available(Box::new(settings)),
            RecordTopic::Refused => ProtocolSupport::Never(Some(format!(
                "the brokers do not let this user create the topic {}; create it with one \
                 partition, or allow CREATE on it",
                self.names.topic()
            ))),
            RecordTopic::NotNow(reason) => ProtocolSupport::NotNow(reason),
        })
    }
}
