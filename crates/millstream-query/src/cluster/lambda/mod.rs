//! Runners that are functions of AWS Lambda.
//!
//! The node calls a function over the Invoke API ([`invoke`]); in the function the runner asks the
//! runtime API for one event after the other ([`runtime`]). An event is JSON with a task's message
//! in base64, and so is what the function gives back:
//!
//! ```text
//! {"task": "AAAB...", "authorization": "Bearer TOKEN"}    {"answer": "AAAC..."}
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub mod function;
pub mod invoke;
pub mod runtime;

/// The longest event, and the longest result, of a function that is waited for, in bytes.
/// Origin: AWS Lambda's quotas, 6 MB, as the runtime emulator enforces them.
pub const PAYLOAD_BYTES_MAX: usize = 6_291_556;
/// The longest message that fits into a payload, in base64 and with what is around it.
pub const MESSAGE_BYTES_MAX: usize = (PAYLOAD_BYTES_MAX - 1024) / 4 * 3;

/// The type of the error of an answer that fits nowhere.
pub(super) const TOO_LONG: &str = "Millstream.AnswerTooLong";

/// What a function is given.
#[derive(Serialize, Deserialize)]
struct Event {
    /// A task's message, in base64.
    task: String,
    /// What a request over HTTP has in the header of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorization: Option<String>,
}

/// What a function gives back.
#[derive(Serialize, Deserialize)]
struct Outcome {
    /// The answer's message, in base64.
    answer: String,
}

/// What a function gives back that has failed.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FunctionError {
    #[serde(default)]
    error_type: String,
    #[serde(default)]
    error_message: String,
}

fn encoded(message: &[u8]) -> String {
    STANDARD.encode(message)
}

fn decoded(text: &str) -> Result<Bytes, base64::DecodeError> {
    Ok(STANDARD.decode(text)?.into())
}
