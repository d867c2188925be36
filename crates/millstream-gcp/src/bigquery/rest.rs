//! The table itself: BigQuery's REST interface, of which two calls are needed.

use std::time::Duration;

use millstream_engine::api::sink::Failure;
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use tonic::Code;

use super::columns::Column;
use super::error::BigQueryProblem;
use super::options::Creation;
use crate::service::Connection;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// So much of an answer that makes no sense is in a message.
const EXCERPT_CHARS: usize = 300;

/// The REST interface.
pub(super) struct Rest {
    client: reqwest::Client,
    url: String,
    connection: Connection,
    billed: Option<String>,
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
struct Described {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    schema: Fields,
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
}

impl Rest {
    /// The interface at `url`. `connection` has the credentials; `billed` is the project that pays.
    pub(super) fn new(
        url: &str,
        connection: Connection,
        billed: Option<String>,
    ) -> Result<Self, BigQueryProblem> {
        let client = reqwest::Client::builder().timeout(PATIENCE).build();
        let client =
            client.map_err(|error| BigQueryProblem::Client { problem: error.to_string() })?;
        Ok(Self { client, url: url.to_owned(), connection, billed })
    }

    fn tables(&self, table: &TableReference) -> String {
        let TableReference { project_id, dataset_id, .. } = table;
        format!("{}/bigquery/v2/projects/{project_id}/datasets/{dataset_id}/tables", self.url)
    }

    /// The columns of a table; `None` where it is not there.
    ///
    /// # Errors
    /// The service refuses or is away, or it is no table but a view.
    pub(super) async fn columns(
        &self,
        table: &TableReference,
    ) -> Result<Option<Vec<Column>>, Failure> {
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
        Ok(Some(described.schema.fields))
    }

    /// Makes a table. False where another made it meanwhile.
    ///
    /// # Errors
    /// The service refuses, or is away.
    pub(super) async fn create(
        &self,
        table: &TableReference,
        columns: Vec<Column>,
        creation: &Creation,
    ) -> Result<bool, Failure> {
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
        if status == StatusCode::CONFLICT {
            return Ok(false);
        }
        accepted(status, &body, &what)?;
        Ok(true)
    }

    async fn ask(
        &self,
        request: reqwest::RequestBuilder,
        what: &str,
    ) -> Result<(StatusCode, String), Failure> {
        let request = match self.connection.token().await? {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let request = match &self.billed {
            Some(project) => request.header("x-goog-user-project", project),
            None => request,
        };
        let away = |error: reqwest::Error| {
            let (what, waited) = (what.to_owned(), PATIENCE);
            BigQueryProblem::Away { what, waited, said: error.without_url().to_string() }
        };
        let answer = request.send().await.map_err(away)?;
        let status = answer.status();
        Ok((status, answer.text().await.map_err(away)?))
    }
}

/// The body of an answer that says yes.
fn accepted<'a>(status: StatusCode, body: &'a str, what: &str) -> Result<&'a str, BigQueryProblem> {
    if status.is_success() {
        return Ok(body);
    }
    let said = match serde_json::from_str::<Refusal>(body) {
        Ok(refusal) => refusal.error.message,
        Err(_) => format!("{status} {}", body.chars().take(EXCERPT_CHARS).collect::<String>()),
    };
    let what = what.to_owned();
    let code = match status {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::NotFound,
        other if other.is_server_error() || other == StatusCode::TOO_MANY_REQUESTS => {
            return Err(BigQueryProblem::Away { what, waited: PATIENCE, said });
        }
        _ => Code::InvalidArgument,
    };
    Err(BigQueryProblem::Refused { what, code, said })
}
