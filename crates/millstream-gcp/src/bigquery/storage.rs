//! The calls of the Storage Write API, asked again while that may help.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::channel::mpsc;
use googleapis_tonic_google_cloud_bigquery_storage_v1::google::cloud::bigquery::storage::v1;
use millstream_engine::api::contact::ContactWith;
use millstream_engine::api::sink::{Classified as _, Failure, Kind};
use millstream_store::env::Env;
use tonic::{Code, Request, Streaming};
use v1::big_query_write_client::BigQueryWriteClient;
use v1::write_stream::Type;

use super::error::{Answer, BigQueryProblem, Verdict};
use super::progress::StreamRows;
use crate::credentials::CredentialsError;
use crate::service::Connection;

/// How long one answer may take.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// How long the service may be away at the start and at the end of a run.
const SHORT_PATIENCE: Duration = Duration::from_secs(20);
/// How often something that is waited for is looked at: whether the run ends meanwhile, and whether
/// the silence is to be told.
pub(super) const LOOKED_AT: Duration = Duration::from_secs(1);
/// The wait before something is asked again; each further wait is twice as long.
const WAIT: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(10);
/// What is asked again and again is logged so often.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// How long a table that was just created may be unknown to the Storage Write API.
const NEW_TABLE_PATIENCE: Duration = Duration::from_secs(300);
/// The header that leads a call to the place where a stream or a table is.
const ROUTING: &str = "x-goog-request-params";
/// Since when the run is about to end, where it is not.
const NEVER: u64 = u64::MAX;

/// The service.
pub(super) struct Storage {
    connections: Vec<Connection>,
    /// Whether `FlushRows` takes a count, as one emulator has it, and not the last offset.
    flush_counts: bool,
    contact: ContactWith,
    /// Since when the service may be away for a short time only, milliseconds on the monotonic
    /// clock; [`NEVER`] where it may be for any time.
    hurried_since_ms: AtomicU64,
    /// Until when the table may be unknown, milliseconds on the monotonic clock.
    new_until_ms: AtomicU64,
    pub(super) env: Env,
}

/// One call of `AppendRows`: requests go in, answers come out in the same order.
pub(super) struct Appending {
    pub(super) requests: mpsc::UnboundedSender<v1::AppendRowsRequest>,
    pub(super) answers: Streaming<v1::AppendRowsResponse>,
}

/// Since when something is asked without an answer that helps, and how often it is asked again.
pub(super) struct Attempts {
    since: Duration,
    since_ms: i64,
    wait: Duration,
    logged: Option<Duration>,
}

impl Attempts {
    /// Something is asked for now.
    pub(super) fn begin(env: &Env) -> Self {
        Self { since: env.monotonic(), since_ms: env.now_ms(), wait: WAIT, logged: None }
    }
}

impl Storage {
    /// The service behind `connections`, which share the streams. `contact` learns when it does
    /// not answer.
    pub(super) fn new(
        connections: Vec<Connection>,
        flush_counts: bool,
        contact: ContactWith,
        env: Env,
    ) -> Self {
        let hurried_since_ms = AtomicU64::new(env.monotonic().as_millis() as u64);
        let new_until_ms = AtomicU64::new(0);
        Self { connections, flush_counts, contact, hurried_since_ms, new_until_ms, env }
    }

    /// The table was created so long ago, and may not be known everywhere yet.
    pub(super) fn has_table_of_age(&self, age: Duration) {
        let until = self.env.monotonic() + NEW_TABLE_PATIENCE.saturating_sub(age);
        self.new_until_ms.store(until.as_millis() as u64, Ordering::Relaxed);
    }

    /// Whether `answer` says of such a table that it is not there.
    pub(super) fn may_come(&self, answer: &Answer) -> bool {
        let now_ms = self.env.monotonic().as_millis() as u64;
        answer.code == Code::NotFound && now_ms < self.new_until_ms.load(Ordering::Relaxed)
    }

    /// From now on the service may be away for any time.
    pub(super) fn is_patient(&self) {
        self.hurried_since_ms.store(NEVER, Ordering::Relaxed);
    }

    /// The run ends: the service may be away for a short time only.
    pub(super) fn is_hurried(&self) {
        let now_ms = self.env.monotonic().as_millis() as u64;
        // The first time counts.
        let _ = self.hurried_since_ms.compare_exchange(
            NEVER,
            now_ms,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    fn connection(&self, lane: usize) -> &Connection {
        &self.connections[lane % self.connections.len()]
    }

    /// To be called every second while `what` is waited for: tells that it lasts.
    ///
    /// # Errors
    /// `Retry`: the run ends, or has just begun, and that has gone on for too long.
    pub(super) fn still_waits(
        &self,
        attempts: &Attempts,
        what: &str,
        said: impl Fn() -> String,
    ) -> Result<(), Failure> {
        let now = self.env.monotonic();
        let hurried_since_ms = self.hurried_since_ms.load(Ordering::Relaxed);
        if hurried_since_ms != NEVER {
            let from = attempts.since.max(Duration::from_millis(hurried_since_ms));
            if now.saturating_sub(from) >= SHORT_PATIENCE {
                let waited = Duration::from_secs(now.saturating_sub(attempts.since).as_secs());
                let (what, said) = (what.to_owned(), said());
                return Err(BigQueryProblem::Away { what, waited, said }.into());
            }
        }
        self.contact.unanswered(attempts.since_ms);
        Ok(())
    }

    /// Waits before `what` is asked again, after it was asked in vain.
    ///
    /// # Errors
    /// As [`Self::still_waits`].
    pub(super) async fn wait(
        &self,
        attempts: &mut Attempts,
        what: &str,
        answer: &Answer,
    ) -> Result<(), Failure> {
        let said = || answer.to_string();
        self.still_waits(attempts, what, said)?;
        let now = self.env.monotonic();
        if attempts.logged.is_none_or(|logged| now - logged >= LOGGED_EVERY) {
            attempts.logged = Some(now);
            tracing::warn!(what, %answer, "BigQuery did not do it, and is asked again");
        }
        // Between half of it and all, so that those who failed together do not come together.
        let part = (self.env.random_u64() % 1_000) as f64 / 2_000.0;
        let until = now + attempts.wait.mul_f64(0.5 + part);
        attempts.wait = (attempts.wait * 2).min(WAIT_MAX);
        loop {
            let left = until.saturating_sub(self.env.monotonic());
            if left.is_zero() {
                return Ok(());
            }
            self.env.sleep(left.min(LOOKED_AT)).await;
            self.still_waits(attempts, what, said)?;
        }
    }

    /// What `asking` gives; `what` is asked for.
    ///
    /// # Errors
    /// As [`Self::still_waits`].
    pub(super) async fn awaited<R>(
        &self,
        attempts: &Attempts,
        what: &str,
        asking: impl Future<Output = R>,
    ) -> Result<R, Failure> {
        let mut asking = pin!(asking);
        loop {
            tokio::select! {
                biased;
                answer = &mut asking => return Ok(answer),
                () = self.env.sleep(LOOKED_AT) => {
                    self.still_waits(attempts, what, || "it does not answer".to_owned())?;
                }
            }
        }
    }

    /// The service has answered.
    pub(super) fn answered(&self) {
        self.contact.answered();
    }

    /// Asks until the answer is not one that passes.
    ///
    /// # Errors
    /// As [`Self::still_waits`].
    pub(super) async fn repeat<R, F>(
        &self,
        what: &str,
        mut ask: impl FnMut() -> F,
    ) -> Result<Result<R, Answer>, Failure>
    where
        F: Future<Output = Result<R, Answer>>,
    {
        let mut attempts = Attempts::begin(&self.env);
        let mut has_new_token = false;
        loop {
            match self.awaited(&attempts, what, ask()).await? {
                Err(answer) if answer.verdict() == Verdict::Passing => {
                    self.wait(&mut attempts, what, &answer).await?;
                }
                Err(answer) if answer.is_about_credentials() && !has_new_token => {
                    has_new_token = true;
                }
                result => {
                    self.answered();
                    return Ok(result);
                }
            }
        }
    }

    /// A new stream of the table with the resource name `table`; gives its name.
    ///
    /// # Errors
    /// The service refuses, or is away for too long.
    pub(super) async fn create_stream(&self, table: &str, kind: Type) -> Result<String, Failure> {
        let what = format!("open a write stream of {table}");
        let created = self.repeat(&what, || async {
            let stream = v1::WriteStream { r#type: kind.into(), ..Default::default() };
            let (parent, write_stream) = (table.to_owned(), Some(stream));
            let message = v1::CreateWriteStreamRequest { parent, write_stream };
            let connection = self.connection(0);
            let request = request(connection, message, "parent", table).await?;
            let mut client = BigQueryWriteClient::new(connection.channel.clone());
            let created = answer(connection, client.create_write_stream(request).await);
            created.map_err(|answer| match self.may_come(&answer) {
                true => Answer::nothing(answer.said),
                false => answer,
            })
        });
        let created = created.await?.map_err(|answer| match answer.code {
            Code::NotFound => BigQueryProblem::NoTable { table: table.to_owned() },
            _ => answer.refused(what),
        })?;
        Ok(created.name)
    }

    /// Makes the first rows of a stream visible, so many. That they are already is success.
    ///
    /// # Errors
    /// The service refuses, or is away for too long. As an inner error what it says of a stream
    /// that it does not know, or that is finalized.
    pub(super) async fn flush(&self, stream: &StreamRows) -> Result<Result<(), Answer>, Failure> {
        let StreamRows { name, rows } = stream;
        // The service takes the offset of the last row that is to be visible.
        let offset = if self.flush_counts { *rows } else { rows - 1 };
        let what = "make rows visible";
        let flushed = self.repeat(what, || async {
            let message = v1::FlushRowsRequest { write_stream: name.clone(), offset: Some(offset) };
            let connection = self.connection(0);
            let request = request(connection, message, "write_stream", name).await?;
            let mut client = BigQueryWriteClient::new(connection.channel.clone());
            answer(connection, client.flush_rows(request).await)
        });
        Ok(match flushed.await? {
            Ok(_) => Ok(()),
            Err(answer) if answer.verdict() == Verdict::Done => Ok(()),
            // What was appended is there, so no offset of ours is out of range; it is what the
            // emulator says of rows that are visible.
            Err(answer) if self.flush_counts && answer.code == Code::OutOfRange => Ok(()),
            Err(answer) if answer.is_about_stream() => Err(answer),
            Err(answer) => return Err(answer.refused(what).into()),
        })
    }

    /// Ends a stream: nothing more can be appended.
    ///
    /// # Errors
    /// The service refuses, or is away for too long.
    pub(super) async fn finalize(&self, stream: &str) -> Result<Result<(), Answer>, Failure> {
        let finalized = self.repeat("end a write stream", || async {
            let message = v1::FinalizeWriteStreamRequest { name: stream.to_owned() };
            let connection = self.connection(0);
            let request = request(connection, message, "name", stream).await?;
            let mut client = BigQueryWriteClient::new(connection.channel.clone());
            answer(connection, client.finalize_write_stream(request).await)
        });
        Ok(finalized.await?.map(drop))
    }

    /// Makes all rows of ended streams of a table visible, in one step.
    ///
    /// # Errors
    /// The service refuses, or is away for too long.
    pub(super) async fn commit(&self, table: &str, streams: &[String]) -> Result<(), Failure> {
        let what = "commit the rows";
        let committed = self.repeat(what, || async {
            let (parent, write_streams) = (table.to_owned(), streams.to_vec());
            let message = v1::BatchCommitWriteStreamsRequest { parent, write_streams };
            let connection = self.connection(0);
            let request = request(connection, message, "parent", table).await?;
            let mut client = BigQueryWriteClient::new(connection.channel.clone());
            answer(connection, client.batch_commit_write_streams(request).await)
        });
        let committed = committed.await?.map_err(|answer| answer.refused(what))?;
        let already = v1::storage_error::StorageErrorCode::StreamAlreadyCommitted;
        match committed.stream_errors.iter().find(|error| error.code() != already) {
            None => Ok(()),
            Some(error) => {
                let (what, said) = (what.to_owned(), error.error_message.clone());
                let code = Code::FailedPrecondition;
                Err(BigQueryProblem::Refused { what, code, said }.into())
            }
        }
    }

    /// Begins to append to `stream`, with `first` as the first request: some servers say nothing
    /// before they have it.
    pub(super) async fn append(
        &self,
        lane: usize,
        stream: &str,
        first: v1::AppendRowsRequest,
    ) -> Result<Appending, Answer> {
        let connection = self.connection(lane);
        let (requests, outgoing) = mpsc::unbounded();
        // The other end is at hand.
        let _ = requests.unbounded_send(first);
        let mut request = connection.stream_request(outgoing).await.map_err(of_credentials)?;
        route(&mut request, "write_stream", stream);
        let mut client = BigQueryWriteClient::new(connection.channel.clone());
        let begun = tokio::select! {
            biased;
            begun = client.append_rows(request) => begun,
            () = self.env.sleep(ANSWER_PATIENCE) => {
                return Err(Answer::nothing("the connection does not answer"));
            }
        };
        let answers = answer(connection, begun)?;
        Ok(Appending { requests, answers })
    }

    /// A token that a service refuses is not used again.
    pub(super) fn refused(&self, lane: usize, status: &tonic::Status) {
        self.connection(lane).refused(status);
    }
}

fn answer<R>(
    connection: &Connection,
    answer: Result<tonic::Response<R>, tonic::Status>,
) -> Result<R, Answer> {
    answer.map(tonic::Response::into_inner).map_err(|status| {
        connection.refused(&status);
        status.into()
    })
}

async fn request<T>(
    connection: &Connection,
    message: T,
    key: &str,
    value: &str,
) -> Result<Request<T>, Answer> {
    let request = connection.request(message, ANSWER_PATIENCE).await;
    let mut request = request.map_err(of_credentials)?;
    route(&mut request, key, value);
    Ok(request)
}

fn route<T>(request: &mut Request<T>, key: &str, value: &str) {
    let text =
        url::form_urlencoded::Serializer::new(String::new()).append_pair(key, value).finish();
    if let Ok(text) = text.parse() {
        request.metadata_mut().insert(ROUTING, text);
    }
}

/// An answer of our own making, where there is no token.
pub(super) fn of_credentials(error: CredentialsError) -> Answer {
    let code = if error.kind() == Kind::Retry { Code::Unavailable } else { Code::Unauthenticated };
    Answer::of(code, error.to_string())
}
