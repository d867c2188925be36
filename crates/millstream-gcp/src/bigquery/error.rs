//! What can go wrong with BigQuery, and what to do about it.

use std::time::Duration;

use googleapis_tonic_google_cloud_bigquery_storage_v1::google::cloud::bigquery::storage::v1;
use googleapis_tonic_google_cloud_bigquery_storage_v1::google::rpc;
use millstream_engine::api::sink::{Classified, Kind};
use prost::Message as _;
use thiserror::Error;
use tonic::{Code, Status};
use v1::storage_error::StorageErrorCode;

use super::mapping::Mismatch;
use super::rows::RowProblem;

/// An error of the connector.
#[derive(Debug, Error)]
pub(super) enum BigQueryProblem {
    /// There is no such table.
    #[error(
        "BigQuery has no table {table}: create it, or set 'createDisposition' = 'CREATE_IF_NEEDED'"
    )]
    NoTable { table: String },
    /// A column of the query and the table do not fit.
    #[error("column {} of {table}: {}; {}", mismatch.column, mismatch.problem, mismatch.remedy)]
    Column { table: String, mismatch: Mismatch },
    /// The service refuses, and will refuse again.
    #[error("BigQuery refuses to {what}: {said}{}", remedy(*code, said))]
    Refused { what: String, code: Code, said: String },
    /// The service does not answer, or not now.
    #[error("BigQuery did not {what} for {} s: {said}", waited.as_secs())]
    Away { what: String, waited: Duration, said: String },
    /// A stream that rows were written to takes no more. What was not committed is written again.
    #[error(
        "the write stream {stream} has ended ({said}); what was appended to it and not committed \
         is written again to another one"
    )]
    StreamLost { stream: String, said: String },
    /// Rows count as published, and nobody can say whether they are visible.
    #[error(
        "rows were to be made visible, and BigQuery does not know the stream any more, or takes no \
         orders for it: {}. Whether they are visible cannot be asked. Compare the table with the \
         source up to {upto}, and set 'failOnDataLoss' = 'false' to go on behind them",
        listed(streams)
    )]
    Unflushed { streams: Vec<Unflushed>, upto: String },
    /// The sink's part of the checkpoint is not one.
    #[error(
        "{location} cannot be read: {problem}. Restore it from a copy of the checkpoint; without \
         it rows would be written twice"
    )]
    Record { location: String, problem: String },
    /// A row cannot be written.
    #[error("a row of {table} cannot be sent: {problem}")]
    Row { table: String, problem: RowProblem },
    /// The service refuses a row.
    #[error("BigQuery refuses a row of {table}: {said}")]
    RowRefused { table: String, said: String },
    /// The answer is not one that was asked for.
    #[error("BigQuery gave an answer that was not expected: {answer}")]
    Answer { answer: String },
    /// The client cannot be made.
    #[error("the client of BigQuery's REST interface cannot be made: {problem}")]
    Client { problem: String },
    /// The task that writes has ended after a failure that was reported before.
    #[error("writing to BigQuery has ended with a failure")]
    Ended,
}

/// A stream whose rows may not be visible.
#[derive(Clone, Debug)]
pub(super) struct Unflushed {
    pub(super) stream: String,
    /// Rows that count as published.
    pub(super) rows: i64,
    /// What the service says of it.
    pub(super) said: String,
}

fn listed(streams: &[Unflushed]) -> String {
    let one = |Unflushed { stream, rows, said }: &Unflushed| {
        format!("the first {rows} rows of the write stream {stream} ({said})")
    };
    streams.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What helps where the service refuses.
fn remedy(code: Code, said: &str) -> &'static str {
    match code {
        // It names the role that the account lacks in the project that is billed.
        Code::PermissionDenied if said.contains("serviceusage") => "",
        Code::PermissionDenied => {
            ". The account needs the role BigQuery Data Editor (roles/bigquery.dataEditor) on the \
             table's dataset"
        }
        _ => "",
    }
}

impl Classified for BigQueryProblem {
    fn kind(&self) -> Kind {
        match self {
            Self::NoTable { .. } | Self::Column { .. } | Self::Client { .. } => Kind::Config,
            Self::Refused { code: Code::Unauthenticated, .. } => Kind::Credentials,
            Self::Refused { .. } => Kind::Config,
            Self::Away { .. } | Self::StreamLost { .. } | Self::Ended => Kind::Retry,
            Self::Unflushed { .. }
            | Self::Record { .. }
            | Self::Row { .. }
            | Self::RowRefused { .. } => Kind::Data,
            Self::Answer { .. } => Kind::Bug,
        }
    }
}

/// What an answer means for what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The same may work soon: ask again.
    Passing,
    /// It was done before.
    Done,
    /// The stream is not there, takes no more, or does not have what was acknowledged.
    StreamGone,
    /// It will be refused again.
    Refused,
}

/// An answer that is an error, as a status or within a response.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) code: Code,
    pub(super) said: String,
    /// What the service says besides.
    storage: Option<StorageErrorCode>,
}

impl Answer {
    /// Says that nothing came at all.
    pub(super) fn nothing(said: impl Into<String>) -> Self {
        Self::of(Code::Unavailable, said)
    }

    /// An error of our own making.
    pub(super) fn of(code: Code, said: impl Into<String>) -> Self {
        Self { code, said: said.into(), storage: None }
    }

    /// Whether it was refused because of who asks.
    pub(super) fn is_about_credentials(&self) -> bool {
        self.code == Code::Unauthenticated
    }

    /// Whether it says of a stream whose rows are to be made visible that it is gone, or ended.
    /// (Of a stream that has ended the documentation says nothing; Google's own clients take an
    /// argument that is refused for that, since the request has no other one.)
    pub(super) fn is_about_stream(&self) -> bool {
        let codes =
            [Code::NotFound, Code::InvalidArgument, Code::FailedPrecondition, Code::OutOfRange];
        codes.contains(&self.code) || self.verdict() == Verdict::StreamGone
    }

    /// What it means.
    pub(super) fn verdict(&self) -> Verdict {
        match self.storage {
            Some(StorageErrorCode::OffsetAlreadyExists) => return Verdict::Done,
            Some(StorageErrorCode::StreamAlreadyCommitted) => return Verdict::Done,
            Some(
                StorageErrorCode::StreamNotFound
                | StorageErrorCode::StreamFinalized
                | StorageErrorCode::InvalidStreamState
                | StorageErrorCode::OffsetOutOfRange,
            ) => return Verdict::StreamGone,
            Some(
                StorageErrorCode::TableNotFound
                | StorageErrorCode::InvalidStreamType
                | StorageErrorCode::SchemaMismatchExtraFields,
            ) => return Verdict::Refused,
            _ => {}
        }
        match self.code {
            Code::Aborted
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Internal
            | Code::ResourceExhausted
            | Code::Unavailable
            | Code::Unknown => Verdict::Passing,
            Code::AlreadyExists => Verdict::Done,
            Code::FailedPrecondition | Code::NotFound | Code::OutOfRange => Verdict::StreamGone,
            _ => Verdict::Refused,
        }
    }

    /// As the error of `what` was asked.
    pub(super) fn refused(self, what: impl Into<String>) -> BigQueryProblem {
        BigQueryProblem::Refused { what: what.into(), code: self.code, said: self.said }
    }
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        let details = rpc::Status::decode(status.details()).ok();
        let storage = details.and_then(|details| storage_code(&details));
        Self { code: status.code(), said: status.message().to_owned(), storage }
    }
}

impl From<&rpc::Status> for Answer {
    fn from(status: &rpc::Status) -> Self {
        let (code, said) = (Code::from_i32(status.code), status.message.clone());
        Self { code, said, storage: storage_code(status) }
    }
}

fn storage_code(status: &rpc::Status) -> Option<StorageErrorCode> {
    let mut details = status.details.iter();
    let error = details.find(|any| any.type_url.ends_with("storage.v1.StorageError"))?;
    let error = v1::StorageError::decode(&error.value[..]).ok()?;
    Some(error.code()).filter(|code| *code != StorageErrorCode::Unspecified)
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.said.is_empty() {
            true => write!(f, "{:?}", self.code),
            false => write!(f, "{:?}: {}", self.code, self.said),
        }
    }
}
