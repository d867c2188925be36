//! The table itself: BigQuery's REST interface, of which two calls are needed.

use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::sink::Failure;
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use tonic::{Code, Status};

use super::columns::Column;
use super::error::{Answer, BigQueryProblem};
use super::options::Creation;
use super::storage::{Storage, of_credentials};
use crate::service::Connection;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// So much of an answer that makes no sense is in a message.
const EXCERPT_CHARS: usize = 300;
/// Reasons of refusals that pass, whatever the status: a quota is exceeded with 403.
const PASSING: [&str; 6] = [
    "backendError",
    "internalError",
    "jobRateLimitExceeded",
    "quotaExceeded",
    "rateLimitExceeded",
    "userRateLimitExceeded",
];

/// The REST interface.
pub(super) struct Rest {
    client: reqwest::Client,
    url: String,
    connection: Connection,
    billed: Option<String>,
    /// How long an answer is waited for.
    storage: Arc<Storage>,
}

/// The table's full name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TableReference {
    pub(super) project_id: String,
    pub(super) dataset_id: String,
    pub(super) table_id: String,
}

impl TableReference {
    /// As the Storage Write API writes it.
    pub(super) fn resource(&self) -> String {
        let Self { project_id, dataset_id, table_id } = self;
        format!("projects/{project_id}/datasets/{dataset_id}/tables/{table_id}")
    }

    fn shown(&self) -> String {
        format!("{}.{}.{}", self.project_id, self.dataset_id, self.table_id)
    }
}

/// A table, as far as it matters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    schema: Fields,
    /// When it was made, milliseconds since the epoch, as text.
    #[serde(default)]
    creation_time: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Fields {
    #[serde(default)]
    fields: Vec<Column>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewTable<'a> {
    table_reference: &'a TableReference,
    schema: Fields,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_partitioning: Option<TimePartitioning<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clustering: Option<Clustering<'a>>,
}

#[derive(Serialize)]
struct TimePartitioning<'a> {
    #[serde(rename = "type")]
    unit: &'a str,
    field: &'a str,
}

#[derive(Serialize)]
struct Clustering<'a> {
    fields: &'a [String],
}

/// An error as the interface describes it.
#[derive(Deserialize)]
struct Refusal {
    error: RefusalText,
}

#[derive(Deserialize)]
struct RefusalText {
    message: String,
    #[serde(default)]
    errors: Vec<RefusalReason>,
}

#[derive(Deserialize)]
struct RefusalReason {
    #[serde(default)]
    reason: String,
}

impl Rest {
    /// The interface at `url`. `connection` has the credentials; `billed` is the project that pays,
    /// and `storage` knows how long the service may be away.
    pub(super) fn new(
        url: &str,
        connection: Connection,
        billed: Option<String>,
        storage: Arc<Storage>,
    ) -> Result<Self, BigQueryProblem> {
        let client = reqwest::Client::builder().timeout(PATIENCE).build();
        let client =
            client.map_err(|error| BigQueryProblem::Client { problem: error.to_string() })?;
        Ok(Self { client, url: url.to_owned(), connection, billed, storage })
    }

    fn tables(&self, table: &TableReference) -> String {
        let TableReference { project_id, dataset_id, .. } = table;
        format!("{}/bigquery/v2/projects/{project_id}/datasets/{dataset_id}/tables", self.url)
    }

    /// The columns of a table, and when it was made, milliseconds since the epoch (0 where that is
    /// not said); `None` where it is not there.
    ///
    /// # Errors
    /// The service refuses or is away, or it is no table but a view.
    pub(super) async fn describe(
        &self,
        table: &TableReference,
    ) -> Result<Option<(Vec<Column>, i64)>, Failure> {
        let url = format!("{}/{}", self.tables(table), table.table_id);
        let what = format!("describe {}", table.shown());
        let (status, body) = self.ask(self.client.get(url), &what).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let body = accepted(status, &body, &what)?;
        let described: Described = serde_json::from_str(body).map_err(|error| {
            BigQueryProblem::Answer { answer: format!("a table without a schema: {error}") }
        })?;
        if !described.kind.is_empty() && described.kind != "TABLE" {
            let said = format!("it is a {}, and only tables are written to", described.kind);
            let what = format!("write to {}", table.shown());
            return Err(BigQueryProblem::Refused { what, code: Code::InvalidArgument, said }.into());
        }
        Ok(Some((described.schema.fields, described.creation_time.parse().unwrap_or(0))))
    }

    /// Makes a table, unless another has made it meanwhile.
    ///
    /// # Errors
    /// The service refuses, or is away.
    pub(super) async fn create(
        &self,
        table: &TableReference,
        columns: Vec<Column>,
        creation: &Creation,
    ) -> Result<(), Failure> {
        let partition = creation.partition.as_ref();
        let new = NewTable {
            table_reference: table,
            schema: Fields { fields: columns },
            time_partitioning: partition.map(|(field, unit)| TimePartitioning { unit, field }),
            clustering: (!creation.clustered_by.is_empty())
                .then(|| Clustering { fields: &creation.clustered_by }),
        };
        let body = serde_json::to_vec(&new).expect("names and numbers");
        let what = format!("create {}", table.shown());
        let request = self.client.post(self.tables(table));
        let request = request.header("content-type", "application/json").body(body);
        let (status, body) = self.ask(request, &what).await?;
        // That is said, too, where the answer to a first attempt was lost.
        if status != StatusCode::CONFLICT {
            accepted(status, &body, &what)?;
        }
        Ok(())
    }

    /// Asks until the answer is not one that passes; that something is not there, or is there
    /// already, is an answer.
    async fn ask(
        &self,
        request: reqwest::RequestBuilder,
        what: &str,
    ) -> Result<(StatusCode, String), Failure> {
        let again = || request.try_clone().expect("its body is in memory");
        let answer = self.storage.repeat(what, || self.ask_once(again())).await?;
        answer.map_err(|answer| answer.refused(what).into())
    }

    async fn ask_once(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<(StatusCode, String), Answer> {
        let request = match self.connection.token().await.map_err(of_credentials)? {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let request = match &self.billed {
            Some(project) => request.header("x-goog-user-project", project),
            None => request,
        };
        let away = |error: reqwest::Error| Answer::nothing(error.without_url().to_string());
        let answer = request.send().await.map_err(away)?;
        let status = answer.status();
        let body = answer.text().await.map_err(away)?;
        match refusal(status, &body) {
            None => Ok((status, body)),
            Some(answer) => {
                self.connection.refused(&Status::new(answer.code, ""));
                Err(answer)
            }
        }
    }
}

/// What an answer says that is neither yes nor about what is there.
fn refusal(status: StatusCode, body: &str) -> Option<Answer> {
    let is_plain = [StatusCode::NOT_FOUND, StatusCode::CONFLICT].contains(&status);
    if status.is_success() || is_plain {
        return None;
    }
    let (said, passes) = match serde_json::from_str::<Refusal>(body) {
        Ok(Refusal { error: RefusalText { message, errors } }) => {
            (message, errors.iter().any(|error| PASSING.contains(&error.reason.as_str())))
        }
        Err(_) => (excerpt(status, body), false),
    };
    let code = match status {
        _ if passes => Code::ResourceExhausted,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        other if other.is_server_error() => Code::Unavailable,
        _ => Code::InvalidArgument,
    };
    Some(Answer::of(code, said))
}

fn excerpt(status: StatusCode, body: &str) -> String {
    format!("{status} {}", body.chars().take(EXCERPT_CHARS).collect::<String>())
}

/// The body of an answer that says yes.
fn accepted<'a>(status: StatusCode, body: &'a str, what: &str) -> Result<&'a str, BigQueryProblem> {
    if status.is_success() {
        return Ok(body);
    }
    let said = match serde_json::from_str::<Refusal>(body) {
        Ok(refusal) => refusal.error.message,
        Err(_) => excerpt(status, body),
    };
    let code = match status {
        StatusCode::NOT_FOUND => Code::NotFound,
        _ => Code::AlreadyExists,
    };
    Err(BigQueryProblem::Refused { what: what.to_owned(), code, said })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bigquery::error::Verdict;

    fn refused(status: u16, reason: &str) -> Option<Verdict> {
        let body = format!(
            r#"{{"error":{{"code":{status},"message":"no","errors":[{{"reason":"{reason}"}}]}}}}"#
        );
        let status = StatusCode::from_u16(status).expect("it is one");
        refusal(status, &body).map(|answer| answer.verdict())
    }

    #[test]
    fn quotas_pass_and_permissions_do_not() {
        assert_eq!(refused(200, ""), None);
        assert_eq!(refused(404, "notFound"), None);
        for (status, reason) in [
            (403, "rateLimitExceeded"),
            (403, "quotaExceeded"),
            (429, "whatever"),
            (503, "backendError"),
            (400, "internalError"),
        ] {
            assert_eq!(refused(status, reason), Some(Verdict::Passing), "{status} {reason}");
        }
        for (status, reason) in [(403, "accessDenied"), (400, "invalid"), (401, "authError")] {
            assert_eq!(refused(status, reason), Some(Verdict::Refused), "{status} {reason}");
        }
        let page = refusal(StatusCode::FORBIDDEN, "<html>").expect("it is none");
        assert_eq!((page.code, &*page.said), (Code::PermissionDenied, "403 Forbidden <html>"));
    }
}
