//! Whether the protocol client or librdkafka writes: it depends on the settings of the client, on
//! what the brokers support, and on whether the topic of the record can be made.

use super::opening::Opening;
use super::protocol::{self, BrokerSupport, ProtocolSettings};
use super::record_topic::RecordTopic;
use crate::error::SinkError;

/// Whether the protocol client writes.
pub enum ProtocolSupport {
    /// It writes, with these settings.
    Available(ProtocolSettings),
    /// It cannot write now but may later, because a broker is away.
    NotNow(String),
    /// It cannot write, so librdkafka has to.
    Never,
}

impl Opening {
    /// How the protocol client is to write, if it can. Blocks.
    pub fn protocol_support(&self) -> Result<ProtocolSupport, SinkError> {
        let Some(settings) = ProtocolSettings::of(&self.settings) else {
            return Ok(ProtocolSupport::Never);
        };
        match protocol::broker_support(self, &settings) {
            BrokerSupport::Yes => {}
            BrokerSupport::Never => return Ok(ProtocolSupport::Never),
            BrokerSupport::NotNow(reason) => return Ok(ProtocolSupport::NotNow(reason)),
        }
        Ok(match self.make_record_topic()? {
            RecordTopic::Made => ProtocolSupport::Available(settings),
            RecordTopic::Refused => ProtocolSupport::Never,
            RecordTopic::NotNow(reason) => ProtocolSupport::NotNow(reason),
        })
    }
}
