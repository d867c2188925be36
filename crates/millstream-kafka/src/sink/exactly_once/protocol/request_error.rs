//! Why a question to the brokers has no good answer.

use std::fmt;
use std::io;

use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

use crate::protocol::error_code::ErrorCode;

/// What went wrong.
#[derive(Debug)]
pub enum RequestError {
    /// The connection, or making one.
    Lost(io::Error),
    /// The broker said no.
    Refused(ErrorCode),
}

impl RequestError {
    /// The same may be asked again.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Lost(error) => error.kind() != io::ErrorKind::InvalidData,
            Self::Refused(code) => code.may_pass(),
        }
    }

    /// The broker's error.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Lost(_) => None,
            Self::Refused(code) => Some(*code),
        }
    }

    /// The nearest of librdkafka's errors, which the sink's own errors speak of.
    pub fn as_librdkafka(&self) -> RDKafkaErrorCode {
        match self {
            Self::Lost(_) => RDKafkaErrorCode::BrokerTransportFailure,
            Self::Refused(code) => as_librdkafka(*code),
        }
    }
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(error) => error.fmt(f),
            Self::Refused(code) => {
                let name = code.name().map(|name| format!(", {name}")).unwrap_or_default();
                write!(f, "{} (Kafka's error {}{name})", as_librdkafka(*code), code.0)
            }
        }
    }
}

/// The same error under librdkafka's name.
pub fn as_librdkafka(code: ErrorCode) -> RDKafkaErrorCode {
    let known = RDKafkaRespErr::try_from(i32::from(code.0));
    known.map_or(RDKafkaErrorCode::Fail, RDKafkaErrorCode::from)
}
