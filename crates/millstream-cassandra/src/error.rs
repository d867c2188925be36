//! What can go wrong with Cassandra, and what to do about it.

#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::time::Duration;

use millstream_engine::api::sink::{Classified, Kind};
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, MetadataFetchErrorKind, NewSessionError, PrepareError, RequestAttemptError,
};
use thiserror::Error;

use crate::types::read::ReadProblem;
use crate::types::{Mismatch, ValueProblem};

/// What Cassandra says when it cannot look users up now, with the code of a wrong password.
const UNDECIDED: &str = "Unable to perform authentication";

/// An error of the connector.
#[derive(Debug, Error)]
pub(crate) enum CassandraProblem {
    /// The server cannot be had at the start.
    #[error("Cassandra at {server} cannot be connected to: {}", said(error))]
    Unconnected { server: String, error: Box<NewSessionError> },
    /// The user or the password is refused.
    #[error(
        "Cassandra at {server} refuses the user: {reason}. Check 'spark.cassandra.auth.username' \
         and 'spark.cassandra.auth.password'"
    )]
    Login { server: String, reason: String },
    /// A file of TLS cannot be used.
    #[cfg(feature = "tls")]
    #[error("{}: {problem}", path.display())]
    Certificate { path: PathBuf, problem: String },
    /// The data center is not one of the cluster.
    #[error(
        "no node of Cassandra at {server} is in the data center '{wanted}': \
         'spark.cassandra.connection.localDC' should be one of {known}"
    )]
    DataCenter { server: String, wanted: String, known: String },
    /// There is no such keyspace.
    #[error(
        "Cassandra at {server} has no keyspace '{keyspace}': create it, or correct 'keyspace'; \
         names have case"
    )]
    NoKeyspace { server: String, keyspace: String },
    /// There is no such table.
    #[error(
        "the keyspace '{keyspace}' of Cassandra at {server} has no table '{table}': create it, or \
         correct 'table'; names have case{known}"
    )]
    NoTable { server: String, keyspace: String, table: String, known: String },
    /// The name is that of a view.
    #[error("{table} is a materialized view, which Cassandra fills itself: use {base}")]
    View { table: String, base: String },
    /// A column of the query and the table do not fit.
    #[error("column {column} of {table}: {}; {}", mismatch.problem, mismatch.remedy)]
    Column { table: String, column: String, mismatch: Mismatch },
    /// The server refuses what is asked, and will refuse it again.
    #[error("Cassandra at {server} refuses to {what}: {}", why(error))]
    Refused { server: String, what: &'static str, error: Box<ExecutionError> },
    /// The server refuses to prepare a statement.
    #[error("Cassandra at {server} refuses to prepare a statement: {error}")]
    Unprepared { server: String, error: Box<PrepareError> },
    /// What may pass did not.
    #[error(
        "Cassandra at {server} has taken no rows of {table} for {} s: {}",
        waited.as_secs(),
        why(error)
    )]
    Away { server: String, table: String, waited: Duration, error: Box<ExecutionError> },
    /// What may pass did not, of a look-up.
    #[error(
        "Cassandra at {server} has given no rows of {table} for {} s: {}",
        waited.as_secs(),
        why(error)
    )]
    Silent { server: String, table: String, waited: Duration, error: Box<ExecutionError> },
    /// An answer is none.
    #[error("the answer of Cassandra at {server} about {table} cannot be read: {problem}")]
    Unread { server: String, table: String, problem: String },
    /// A value that was looked up does not fit the declared column.
    #[error("a row of {table} cannot be read: {column}: {problem}")]
    Read { table: String, column: String, problem: ReadProblem },
    /// A row cannot be written.
    #[error("a row of {table} cannot be written: {column}: {problem}")]
    Value { table: String, column: String, problem: ValueProblem },
    /// A value is out of the range of what its column is cast to.
    #[error("a row of {table} cannot be written: {column}: {error}")]
    Cast { table: String, column: String, error: arrow::error::ArrowError },
    /// A row without its key.
    #[error(
        "a row of {table} has no key: {column} is NULL. Leave such rows out, as with WHERE \
         {column} IS NOT NULL"
    )]
    NoKey { table: String, column: String },
    /// A key that Cassandra cannot have.
    #[error("a row of {table} has a key of {bytes} bytes, and Cassandra takes 1 to {bytes_max}")]
    KeyBytes { table: String, bytes: usize, bytes_max: usize },
    /// The sink's part of the checkpoint is not one.
    #[error(
        "{location} cannot be read: {problem}. Restore it from a copy of the checkpoint, or remove \
         it: then micro-batches that a crash interrupted are written again under a new time"
    )]
    Record { location: String, problem: String },
    /// The task that writes has ended after a failure that was reported before.
    #[error("writing to Cassandra has ended with a failure")]
    Ended,
}

impl Classified for CassandraProblem {
    fn kind(&self) -> Kind {
        match self {
            Self::Unconnected { .. } | Self::Away { .. } | Self::Silent { .. } | Self::Ended => {
                Kind::Retry
            }
            Self::Login { .. } => Kind::Credentials,
            #[cfg(feature = "tls")]
            Self::Certificate { .. } => Kind::Config,
            Self::DataCenter { .. }
            | Self::NoKeyspace { .. }
            | Self::NoTable { .. }
            | Self::View { .. }
            | Self::Column { .. }
            | Self::Refused { .. }
            | Self::Unprepared { .. } => Kind::Config,
            Self::Unread { .. } => Kind::Bug,
            Self::Value { .. }
            | Self::Read { .. }
            | Self::Cast { .. }
            | Self::NoKey { .. }
            | Self::KeyBytes { .. }
            | Self::Record { .. } => Kind::Data,
        }
    }
}

/// Whether the same call may work soon: nobody is there, or not enough are, or they have too much
/// to do. After a request that was not answered nobody knows whether its rows are written, and
/// writing them again under the same time changes nothing.
pub(crate) fn may_pass(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::EmptyPlan
        | ExecutionError::ConnectionPoolError(_)
        | ExecutionError::RequestTimeout(_)
        | ExecutionError::SchemaAgreementError(_)
        | ExecutionError::MetadataError(_) => !is_login_of_execution(error),
        ExecutionError::PrepareError(error) => may_prepare_later(error),
        ExecutionError::LastAttemptError(error) => attempt_may_pass(error),
        _ => false,
    }
}

/// The same of a statement that is prepared.
pub(crate) fn may_prepare_later(error: &PrepareError) -> bool {
    match error {
        PrepareError::ConnectionPoolError(_) => true,
        PrepareError::AllAttemptsFailed { first_attempt } => attempt_may_pass(first_attempt),
        _ => false,
    }
}

fn attempt_may_pass(error: &RequestAttemptError) -> bool {
    match error {
        RequestAttemptError::UnableToAllocStreamId
        | RequestAttemptError::BrokenConnectionError(_) => true,
        RequestAttemptError::DbError(error, _) => matches!(
            error,
            DbError::Unavailable { .. }
                | DbError::Overloaded
                | DbError::IsBootstrapping
                | DbError::TruncateError
                | DbError::ReadTimeout { .. }
                | DbError::WriteTimeout { .. }
                | DbError::ReadFailure { .. }
                | DbError::WriteFailure { .. }
                | DbError::Unprepared { .. }
                | DbError::ServerError
                | DbError::RateLimitReached { .. }
        ),
        _ => false,
    }
}

/// What a server says that does not let the user in; `None` for anything else.
pub(crate) fn login_refusal(error: &NewSessionError) -> Option<String> {
    let NewSessionError::MetadataError(error) = error else { return None };
    match error {
        MetadataError::ConnectionPoolError(error) => refusal_of_pool(error),
        MetadataError::FetchError(error) => match &error.error {
            MetadataFetchErrorKind::PrepareError(RequestAttemptError::DbError(
                DbError::Unauthorized | DbError::AuthenticationError,
                reason,
            )) => Some(reason.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn is_login_of_execution(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::ConnectionPoolError(error) => refusal_of_pool(error).is_some(),
        _ => false,
    }
}

/// What a server says that does not let the user in any more.
pub(crate) fn later_refusal(error: &ExecutionError) -> Option<String> {
    match error {
        ExecutionError::ConnectionPoolError(error) => refusal_of_pool(error),
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::AuthenticationError,
            reason,
        )) => Some(reason.clone()),
        _ => None,
    }
}

fn refusal_of_pool(error: &ConnectionPoolError) -> Option<String> {
    let ConnectionPoolError::Broken { last_connection_error } = error else { return None };
    let ConnectionError::ConnectionSetupRequestError(error) = last_connection_error else {
        return None;
    };
    match error.get_error() {
        ConnectionSetupRequestErrorKind::DbError(
            DbError::AuthenticationError | DbError::Unauthorized,
            reason,
        ) if !reason.starts_with(UNDECIDED) => Some(reason.clone()),
        ConnectionSetupRequestErrorKind::MissingAuthentication => {
            Some("it asks for a user and a password".to_owned())
        }
        _ => None,
    }
}

/// What the server said, or why there is no answer; not the driver's whole story.
fn why(error: &ExecutionError) -> String {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, reason)) => {
            if reason.is_empty() { error.to_string() } else { reason.clone() }
        }
        ExecutionError::RequestTimeout(after) => {
            format!("no answer within {} ms", after.as_millis())
        }
        ExecutionError::ConnectionPoolError(ConnectionPoolError::Broken {
            last_connection_error,
        }) => last_connection_error.to_string(),
        other => other.to_string(),
    }
}

fn said(error: &NewSessionError) -> String {
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
            ConnectionPoolError::Broken { last_connection_error },
        )) => last_connection_error.to_string(),
        NewSessionError::FailedToResolveAnyHostname(_) => {
            "its name does not resolve to an address".to_owned()
        }
        other => other.to_string(),
    }
}
