//! What a command is an answer to, and what it refuses.

use std::fmt;

use super::messages::{BaseCommand, TransactionResponse, code, kind};

/// A code of an error, and what the broker says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A broker may add the trace of its stack, which nobody here has a use for.
        let text = self.text.lines().next().unwrap_or_default();
        match text {
            "" => write!(f, "error {}", self.code),
            text => write!(f, "{text} (error {})", self.code),
        }
    }
}

impl BaseCommand {
    /// An empty command of a kind.
    pub(crate) fn of(kind: i32) -> Self {
        Self { kind, ..Self::default() }
    }

    /// The request that this answers, if it is an answer.
    pub(crate) fn answers(&self) -> Option<u64> {
        let id = match self.kind {
            kind::SUCCESS => self.success.as_ref()?.request_id,
            kind::ERROR => self.error.as_ref()?.request_id,
            kind::PRODUCER_SUCCESS => self.producer_success.as_ref()?.request_id,
            kind::PARTITIONED_METADATA_RESPONSE => {
                self.partition_metadata_response.as_ref()?.request_id
            }
            kind::LOOKUP_RESPONSE => self.lookup_topic_response.as_ref()?.request_id,
            kind::GET_LAST_MESSAGE_ID_RESPONSE => {
                self.get_last_message_id_response.as_ref()?.request_id
            }
            kind::GET_TOPICS_OF_NAMESPACE_RESPONSE => {
                self.get_topics_of_namespace_response.as_ref()?.request_id
            }
            kind::TC_CLIENT_CONNECT_RESPONSE => {
                self.tc_client_connect_response.as_ref()?.request_id
            }
            _ => self.transaction_response()?.request_id,
        };
        Some(id)
    }

    fn transaction_response(&self) -> Option<&TransactionResponse> {
        match self.kind {
            kind::NEW_TXN_RESPONSE => self.new_txn_response.as_ref(),
            kind::ADD_PARTITION_TO_TXN_RESPONSE => self.add_partition_to_txn_response.as_ref(),
            kind::END_TXN_RESPONSE => self.end_txn_response.as_ref(),
            _ => None,
        }
    }

    /// What is wrong, if this is an answer that says so.
    pub(crate) fn refusal(&self) -> Option<Said> {
        let said = |code: Option<i32>, text: &Option<String>| {
            let text = text.clone().unwrap_or_default();
            Said { code: code.unwrap_or(code::UNKNOWN), text }
        };
        match self.kind {
            kind::ERROR => {
                let error = self.error.as_ref()?;
                Some(Said { code: error.error, text: error.message.clone() })
            }
            kind::PARTITIONED_METADATA_RESPONSE => {
                let answer = self.partition_metadata_response.as_ref()?;
                (answer.response == Some(1)).then(|| said(answer.error, &answer.message))
            }
            kind::LOOKUP_RESPONSE => {
                let answer = self.lookup_topic_response.as_ref()?;
                (answer.response == Some(2)).then(|| said(answer.error, &answer.message))
            }
            kind::TC_CLIENT_CONNECT_RESPONSE => {
                let answer = self.tc_client_connect_response.as_ref()?;
                answer.error.map(|code| said(Some(code), &answer.message))
            }
            _ => {
                let answer = self.transaction_response()?;
                answer.error.map(|code| said(Some(code), &answer.message))
            }
        }
    }
}
