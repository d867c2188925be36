//! Why a request to the brokers failed.

use std::fmt;
use std::io;

use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

use crate::protocol::error_code::ErrorCode;

/// The reason of a failed request.
#[derive(Debug)]
pub enum RequestError {
    /// The connection was lost, or could not be made.
    Lost(io::Error),
    /// The broker answered with an error.
    Refused(ErrorCode),
}

impl RequestError {
    /// True if the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        match self {
            // An answer that does not follow the protocol would come again, and so would a refusal.
            Self::Lost(error) => !matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied
            ),
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
            Self::Lost(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                RDKafkaErrorCode::Authentication
            }
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
