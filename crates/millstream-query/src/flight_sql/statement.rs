//! The text of one request: settings and variables, and at its end a statement that gives rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_engine::failures::from_datafusion;
use millstream_sql::diagnostic::{Diagnostic, Diagnostics};
use millstream_sql::types::spark_type;
use millstream_store::error::{Failure, Kind};
use millstream_store::secrets::masked;
use tonic::Status;

use crate::error::QueryError;
use crate::session::{PlannedQuery, QuerySession};
use crate::setting_statements::Change;
use crate::statements::{Statements, Step};

/// How much of an error's text is sent: it travels in a header, whose length others limit.
const MESSAGE_BYTES_MAX: usize = 4_000;

/// A statement that can run.
pub(super) enum Planned {
    /// A query.
    Query(Box<PlannedQuery>),
    /// What is known without one.
    Known(RecordBatch),
    /// The plan of a query, which `EXPLAIN` shows.
    Explained {
        /// Its lines.
        rows: RecordBatch,
        /// Whether the nodes of a cluster can run the query, so that this is their plan.
        is_for_nodes: bool,
    },
}

impl Planned {
    /// Whether the nodes of a cluster can run it.
    pub(super) fn is_for_nodes(&self) -> bool {
        match self {
            Self::Query(query) => query.is_for_nodes(),
            Self::Known(_) => true,
            Self::Explained { is_for_nodes, .. } => *is_for_nodes,
        }
    }

    /// The columns of the answer.
    pub(super) fn schema(&self) -> SchemaRef {
        match self {
            Self::Query(query) => query.schema(),
            Self::Known(rows) | Self::Explained { rows, .. } => rows.schema(),
        }
    }
}

/// Plans what `text` says, with `session`'s settings and variables and those in front of the
/// statement.
///
/// # Errors
/// What is wrong with the text, or with a table that it reads.
pub(super) async fn plan(session: &QuerySession, text: &str) -> Result<Planned, QueryError> {
    let statements = Statements::parse(text)?;
    statements.check_writes_nothing()?;
    check_asks_nothing(&statements)?;
    let Some((last, before)) = statements.steps.split_last() else {
        return Err(refused("there is no query", "write SELECT ..."));
    };
    let mut session = session.clone();
    for step in before {
        match step {
            Step::Setting(change) => {
                session.apply(change)?;
            }
            Step::Variable(statement) => session.change(&statements, statement).await?,
            _ => {
                return Err(refused(
                    "there are several statements",
                    "send one at a time; SET ... and DECLARE ... may stand in front of it",
                ));
            }
        }
    }
    match last {
        Step::Query(query) => Ok(Planned::Query(Box::new(session.plan(&statements, query).await?))),
        Step::Explain { analyze: false, query } => {
            let planned = session.plan(&statements, query).await?;
            let lines = planned.shown().lines().map(str::to_owned).collect();
            let (rows, is_for_nodes) = (columns(&[("plan", lines)])?, planned.is_for_nodes());
            Ok(Planned::Explained { rows, is_for_nodes })
        }
        Step::Explain { analyze: true, .. } => Err(refused(
            "EXPLAIN ANALYZE is not there for clients of Flight SQL",
            "write EXPLAIN, or use millstream query",
        )),
        Step::ShowTables => {
            Ok(Planned::Known(columns(&[("tableName", session.catalog().declared())])?))
        }
        Step::Describe { query, span } => {
            let schema = session.describe(&statements, query, *span).await?;
            let fields = || schema.fields().iter();
            Ok(Planned::Known(columns(&[
                ("col_name", fields().map(|field| field.name().clone()).collect()),
                ("data_type", fields().map(|field| spark_type(field.data_type())).collect()),
            ])?))
        }
        Step::Immediate(statement) => match session.execute(&statements, statement).await? {
            Some(query) => Ok(Planned::Query(Box::new(query))),
            None => Err(refused("the statement has no rows", "write SELECT ... behind it")),
        },
        Step::Setting(change @ Change::Show(_)) => match session.apply(change)? {
            Some([key, value]) => {
                Ok(Planned::Known(columns(&[("key", vec![key]), ("value", vec![value])])?))
            }
            None => Err(refused("there is no such setting", "write SET key = value")),
        },
        Step::Setting(_) | Step::Variable(_) => Err(refused(
            "a setting and a variable last for one request",
            "write them in front of the query, separated by a semicolon",
        )),
    }
}

fn refused(problem: &str, help: &str) -> QueryError {
    QueryError::Sql(Diagnostic::nowhere(problem).help(help).into())
}

/// Refuses declarations, which would be those of all clients, and parameters.
fn check_asks_nothing(statements: &Statements) -> Result<(), Diagnostics> {
    if !statements.declarations().trim().is_empty() {
        let problem = "a client declares no tables";
        let help =
            "declare them in the coordinator's file: millstream coordinator --tables FILE.sql";
        return Err(Diagnostic::nowhere(problem).help(help).into());
    }
    let lexemes = statements.lexed.lexemes.iter();
    let parameters = lexemes.filter(|lexeme| matches!(lexeme.token, Token::Placeholder(_)));
    let refused = parameters.map(|parameter| {
        Diagnostic::at(parameter.span, "a query has no parameters")
            .help("write the value into the query")
    });
    Diagnostics(refused.collect()).into_result()
}

fn columns(columns: &[(&str, Vec<String>)]) -> Result<RecordBatch, QueryError> {
    let columns = columns.iter().map(|(name, values)| {
        let values: ArrayRef = Arc::new(StringArray::from_iter_values(values));
        (*name, values)
    });
    let rows = RecordBatch::try_from_iter(columns);
    rows.map_err(|error| QueryError::Failure(from_datafusion(error.into())))
}

/// The status that a client gets for `error`, with the place in `text`.
pub(super) fn status(error: &QueryError, text: &str) -> Status {
    match error {
        QueryError::Sql(found) => {
            Status::invalid_argument(short(&found.plain("query", &masked(text))))
        }
        QueryError::Failure(failure) => failed(failure),
    }
}

/// The status that a client gets for `failure`.
pub(super) fn failed(failure: &Failure) -> Status {
    let message = short(&failure.to_string());
    match failure.kind() {
        Kind::Config | Kind::Data => Status::invalid_argument(message),
        Kind::Credentials => Status::permission_denied(message),
        Kind::Retry => Status::unavailable(message),
        _ => Status::internal(message),
    }
}

fn short(message: &str) -> String {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let rest = if end < message.len() { " ..." } else { "" };
    format!("{}{rest}", message[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use millstream_store::env::Env;

    use super::*;
    use crate::state::Limits;
    use crate::tables::Catalog;

    #[tokio::test]
    async fn what_is_explained_is_for_nodes_if_the_query_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, env) = (directory.path().to_owned(), Env::real());
        std::fs::write(path.join("people.json"), "{\"id\": 1}\n").expect("it is written");
        let registry = millstream_connectors::registry(&path);
        let catalog = Arc::new(Catalog::new(registry, env.clone(), path));
        let limits = Limits { partitions: 1, memory_bytes: None, spill_directory: None };
        let session = QuerySession::new(catalog, &limits, env).expect("a session");
        for (query, expected) in
            [("SELECT 1 AS id", true), ("SELECT id FROM json.`people.json`", false)]
        {
            for text in [query.to_owned(), format!("EXPLAIN {query}")] {
                let planned =
                    plan(&session, &text).await.unwrap_or_else(|error| panic!("{error:?}"));
                assert_eq!(planned.is_for_nodes(), expected, "{text}");
            }
        }
    }
}
