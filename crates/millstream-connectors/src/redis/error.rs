//! What can go wrong with Redis, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use millstream_engine::api::sink::{BatchId, Classified, Kind};
use redis::{ErrorKind, RedisError};
use thiserror::Error;

/// An error of the connector.
#[derive(Debug, Error)]
pub(super) enum RedisProblem {
    /// The client refuses the settings.
    #[error("{server}: {error}")]
    Settings { server: String, error: RedisError },
    /// A file of TLS cannot be read.
    #[error("{}: {error}", path.display())]
    Certificate { path: PathBuf, error: io::Error },
    /// The server does not answer, or not now.
    #[error("Redis at {server} did not answer for {} s: {error}", waited.as_secs())]
    Away { server: String, waited: Duration, error: RedisError },
    /// The server refuses, and will refuse again.
    #[error("Redis at {server} refuses: {error}")]
    Refused { server: String, error: RedisError },
    /// Too few replicas have the rows.
    #[error(
        "only {found} of {wanted} replicas of Redis at {server} had the rows after {} ms \
         ('wait.replicas')",
        waited.as_millis()
    )]
    Replicas { server: String, wanted: u32, found: u32, waited: Duration },
    /// Another instance of the query has taken over.
    #[error(
        "another instance of this query writes to '{table}' in Redis at {server}: it has \
         taken over, and this one stops"
    )]
    Fenced { server: String, table: String },
    /// The server knows less than it had acknowledged.
    #[error(
        "Redis at {server} had acknowledged micro-batch {acknowledged} of '{table}' and now has \
         {found}: it was restarted without its data, or flushed, or a replica took over that \
         lacked the newest writes. Restore its data, or set 'failOnDataLoss' = 'false' to go on \
         without the rows that it has lost"
    )]
    Lost { server: String, table: String, acknowledged: BatchId, found: String },
    /// The record of progress is not one.
    #[error(
        "the record of progress in Redis at {server} cannot be read: {problem}. Delete the fields \
         that begin with '{query}' of the hash '{key}' to continue from the checkpoint, which may \
         write rows twice"
    )]
    Record { server: String, key: String, query: String, problem: String },
    /// A key holds something else.
    #[error("the key '{key}' holds a {found}, and '{table}' writes a {wanted}")]
    WrongType { table: String, key: String, found: String, wanted: &'static str },
    /// A row without a key.
    #[error("a row of '{table}' has no key: {column} is NULL")]
    NoKey { table: String, column: String },
    /// A row without a value, where the model has no form for that.
    #[error("a row of '{table}' has no value: {column} is NULL, which a {model} cannot hold")]
    NoValue { table: String, column: String, model: &'static str },
    /// Replicas are waited for by one connection to one server.
    #[error(
        "Redis at {server} is part of a cluster, where 'wait.replicas' cannot be waited for; leave \
         it out"
    )]
    Cluster { server: String },
    /// Several streams of a cluster cannot be asked for at once.
    #[error(
        "Redis at {server} is part of a cluster, whose streams cannot be read; read from a single \
         server"
    )]
    ClusterSource { server: String },
    /// The offset log holds an offset of some other source, or of other streams.
    #[error(
        "the checkpoint's offset '{offset}' is not one of the streams in 'stream.keys': use the \
         streams that the checkpoint was made with, or a new checkpoint"
    )]
    ForeignOffset { offset: String },
    /// The checkpoint lacks where the query began.
    #[error(
        "the checkpoint has no file 0 in its sources/ directory, which says where the streams were \
         begun: restore that file, or use a new checkpoint"
    )]
    NoInitial,
    /// Entries were trimmed, or the stream was deleted, before they were read.
    #[error(
        "'{table}': entries of the stream '{stream}' behind {after} are gone{}: it was trimmed, or \
         deleted, before they were read. Let it keep more (MAXLEN, MINID); set 'failOnDataLoss' = \
         'false' to go on with what is left",
        counted(*entries)
    )]
    EntriesLost { table: String, stream: String, after: String, entries: u64 },
    /// A key that is read is not a stream.
    #[error("the key '{key}' holds a {found}, and '{table}' reads a stream")]
    NoStream { table: String, key: String, found: String },
    /// A field does not read as its column's type.
    #[error("entry {id} of the stream '{stream}': the field '{field}' is not a {wanted}")]
    Malformed { stream: String, id: String, field: String, wanted: String },
    /// A key that is looked up holds something else.
    #[error(
        "the key '{key}' holds a {found}, and '{table}' looks up a {wanted}: set its 'model' to \
         what the key holds, or its 'table' to other keys"
    )]
    WrongLookup { table: String, key: String, found: String, wanted: &'static str },
    /// What is looked up does not read as its column's type.
    #[error(
        "'{table}': under the key '{key}', {field} is not {wanted}; repair it, or set 'mode' = \
         'PERMISSIVE' to have NULL in its place"
    )]
    MalformedLookup { table: String, key: String, field: String, wanted: String },
    /// The answer is not one that was asked for.
    #[error("Redis at {server} gave an answer that was not expected: {answer}")]
    Answer { server: String, answer: String },
    /// The task that writes has ended after a failure that was reported before.
    #[error("writing to Redis has ended with a failure")]
    Ended,
}

fn counted(entries: u64) -> String {
    match entries {
        0 => String::new(),
        1 => " (1 entry)".to_owned(),
        more => format!(" ({more} entries)"),
    }
}

impl Classified for RedisProblem {
    fn kind(&self) -> Kind {
        match self {
            Self::Settings { .. }
            | Self::Certificate { .. }
            | Self::Cluster { .. }
            | Self::ClusterSource { .. }
            | Self::NoStream { .. } => Kind::Config,
            Self::Away { .. } | Self::Replicas { .. } | Self::Ended => Kind::Retry,
            Self::Refused { error, .. } if is_about_credentials(error) => Kind::Credentials,
            Self::Refused { .. } => Kind::Config,
            Self::Fenced { .. } => Kind::Fenced,
            Self::Lost { .. }
            | Self::Record { .. }
            | Self::WrongType { .. }
            | Self::ForeignOffset { .. }
            | Self::NoInitial
            | Self::EntriesLost { .. }
            | Self::Malformed { .. }
            | Self::WrongLookup { .. }
            | Self::MalformedLookup { .. }
            | Self::NoKey { .. }
            | Self::NoValue { .. } => Kind::Data,
            Self::Answer { .. } => Kind::Bug,
        }
    }
}

/// Whether the same call may work soon. The codes are those of Redis' own errors: a server that
/// loads its data, is full, cannot save, runs a long script, or is a replica for a while.
pub(super) fn may_pass(error: &RedisError) -> bool {
    const CODES: &[&str] = &[
        "OOM",
        "MISCONF",
        "BUSY",
        "NOREPLICAS",
        "LOADING",
        "MASTERDOWN",
        "TRYAGAIN",
        "READONLY",
        "UNBLOCKED",
        "CLUSTERDOWN",
        "NOSCRIPT",
    ];
    let is_known = code(error).is_some_and(|code| CODES.contains(&code));
    is_known || is_broken(error) || is_wait_at_replica(error)
}

/// Whether the connection is to be made anew before the next try.
pub(super) fn needs_connection(error: &RedisError) -> bool {
    // A server that became a replica stays one; its name may lead to another server by now.
    let is_replica = matches!(code(error), Some("READONLY" | "UNBLOCKED"));
    is_replica || is_broken(error) || is_wait_at_replica(error)
}

/// Whether there is no connection, or what comes from it makes no sense.
fn is_broken(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse | ErrorKind::ClusterConnectionNotFound)
}

/// The code of what Redis says. Redis 6 and earlier wrap what a command in a script says:
/// `ERR Error running script (call to f_...): @user_script:9: @user_script: 9: -OOM command ...`.
fn code(error: &RedisError) -> Option<&str> {
    let wrapped = || {
        let (_, script) = error.detail()?.split_once("Error running script")?;
        let (_, said) = script.split_once(": -")?;
        said.split(' ').next()
    };
    wrapped().or_else(|| error.code())
}

/// What WAIT says to a server that has become a replica; the error has no code of its own.
fn is_wait_at_replica(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.starts_with("WAIT cannot be used with replica"))
}

/// Whether a command is not for what the key holds.
pub(super) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

fn is_about_credentials(error: &RedisError) -> bool {
    let is_code = matches!(error.code(), Some("NOAUTH" | "WRONGPASS"));
    is_code || error.kind() == ErrorKind::AuthenticationFailed
}

#[cfg(test)]
mod tests {
    use redis::ServerErrorKind;

    use super::*;

    #[test]
    fn what_a_script_says_is_known_where_it_is_wrapped() {
        let said =
            |kind: ErrorKind, detail: &str| RedisError::from((kind, "said", detail.to_owned()));
        let general = ErrorKind::Server(ServerErrorKind::ResponseError);
        let wrap = |said: &str| {
            format!("Error running script (call to f_0a): @user_script:9: @user_script: 9: {said}")
        };
        let full = said(general, &wrap("-OOM command not allowed"));
        assert_eq!(code(&full), Some("OOM"));
        assert!(may_pass(&full) && !needs_connection(&full));
        let replica = said(general, &wrap("-READONLY You can't write"));
        assert!(may_pass(&replica) && needs_connection(&replica));
        let wrong = said(general, &wrap("a mistake"));
        assert_eq!(code(&wrong), Some("ERR"));
        assert!(!may_pass(&wrong));
        assert!(may_pass(&said(ErrorKind::Server(ServerErrorKind::NoScript), "")));
        let unconnected = said(ErrorKind::ClusterConnectionNotFound, "");
        assert!(may_pass(&unconnected) && needs_connection(&unconnected));
    }
}
