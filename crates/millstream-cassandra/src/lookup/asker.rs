//! Asks Cassandra, in a thread of its own.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::BooleanBuffer;
use futures::stream::{self, StreamExt, TryStreamExt};
use millstream_engine::api::contact::ContactWith;
use millstream_store::env::Env;
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use tokio::sync::{mpsc, oneshot};

use super::options::LookupOptions;
use super::table::Source;
use crate::error::CassandraProblem;
use crate::opening::{Place, connect, prepare};
use crate::repeat::{Asking, PATIENCE};
use crate::requests::KeyCells;
use crate::types::read;

/// Keys, in the order of the declared key, and which other columns of their rows are wanted.
pub(super) struct Question {
    pub(super) keys: Vec<ArrayRef>,
    pub(super) columns: Vec<usize>,
    pub(super) answer: oneshot::Sender<Result<Answer, CassandraProblem>>,
}

/// By key, whether it has a row, and the columns of it.
pub(super) struct Answer {
    pub(super) columns: Vec<ArrayRef>,
    pub(super) found: BooleanBuffer,
}

/// What it takes to begin.
pub(super) struct Opening {
    pub(super) options: Arc<LookupOptions>,
    pub(super) contact: ContactWith,
    pub(super) env: Env,
}

struct Asker {
    options: Arc<LookupOptions>,
    session: Session,
    source: Source,
    /// By columns that are wanted.
    statements: HashMap<Vec<usize>, PreparedStatement>,
    contact: ContactWith,
    env: Env,
}

type Values = Option<Vec<Option<CqlValue>>>;

impl Opening {
    /// Connects and looks at the table.
    ///
    /// # Errors
    /// The cluster is away, refuses the user, or has no table with these columns.
    async fn open(self) -> Result<Asker, CassandraProblem> {
        let Self { options, contact, env } = self;
        let session = connect(&options.server, &options.keyspace, &env).await?;
        let state = session.get_cluster_state();
        let place =
            Place { server: &options.server, keyspace: &options.keyspace, table: &options.table };
        let source =
            Source::new(&options, place.table(&state)?).map_err(|(column, mismatch)| {
                CassandraProblem::Column { table: options.shown(), column, mismatch }
            })?;
        drop(state);
        Ok(Asker { options, session, source, statements: HashMap::new(), contact, env })
    }
}

/// Answers one question after the other, until nobody asks any more.
pub(super) async fn serve(
    opening: Opening,
    opened: oneshot::Sender<Result<(), CassandraProblem>>,
    mut inbox: mpsc::Receiver<Question>,
) {
    let mut asker = match opening.open().await {
        Ok(asker) => asker,
        Err(problem) => {
            // Nobody listens where the query has ended.
            let _ = opened.send(Err(problem));
            return;
        }
    };
    if opened.send(Ok(())).is_err() {
        return;
    }
    while let Some(Question { keys, columns, answer }) = inbox.recv().await {
        let _ = answer.send(asker.answer(&keys, &columns).await);
    }
}

impl Asker {
    async fn answer(
        &mut self,
        keys: &[ArrayRef],
        columns: &[usize],
    ) -> Result<Answer, CassandraProblem> {
        let statement = self.statement(columns).await?;
        let asker = &*self;
        let cells = asker.source.cells(keys);
        let requests = cells.into_iter().map(|key| asker.row(&statement, key));
        let requests = stream::iter(requests).buffered(asker.options.requests_max);
        let rows: Vec<Values> = requests.try_collect().await?;
        let column = |(at, index): (usize, &usize)| {
            let field = asker.options.form.schema.field(*index);
            let values: Vec<Option<&CqlValue>> =
                rows.iter().map(|row| row.as_ref()?.get(at)?.as_ref()).collect();
            read::column(&values, field.data_type()).map_err(|problem| {
                let (table, column) = (asker.options.shown(), field.name().clone());
                CassandraProblem::Read { table, column, problem }
            })
        };
        let columns = columns.iter().enumerate().map(column).collect::<Result<_, _>>()?;
        Ok(Answer { columns, found: rows.iter().map(Option::is_some).collect() })
    }

    async fn statement(
        &mut self,
        columns: &[usize],
    ) -> Result<PreparedStatement, CassandraProblem> {
        if let Some(known) = self.statements.get(columns) {
            return Ok(known.clone());
        }
        let text = self.source.select(columns);
        let server = &self.options.server;
        let prepared = prepare(&self.session, &text, server, &self.env, PATIENCE).await?;
        self.statements.insert(columns.to_vec(), prepared.clone());
        Ok(prepared)
    }

    /// The row of a key, asked for until there is an answer; `None` without one.
    async fn row(
        &self,
        statement: &PreparedStatement,
        key: Option<Vec<u8>>,
    ) -> Result<Values, CassandraProblem> {
        let Some(key) = key else { return Ok(None) };
        let (server, contact, env) = (&self.options.server, &self.contact, &self.env);
        let asking = Asking { server, contact, env, what: "read rows" };
        let key = KeyCells(&key);
        let ask = || self.session.execute_unpaged(statement, &key);
        let silent = |waited, error| CassandraProblem::Silent {
            server: server.shown(),
            table: self.options.shown(),
            waited,
            error,
        };
        self.first_row(asking.until_answered(ask, silent).await?)
    }

    fn first_row(
        &self,
        answer: scylla::response::query_result::QueryResult,
    ) -> Result<Values, CassandraProblem> {
        let unread = |problem: String| CassandraProblem::Unread {
            server: self.options.server.shown(),
            table: self.options.shown(),
            problem,
        };
        let rows = answer.into_rows_result().map_err(|error| unread(error.to_string()))?;
        let row = rows.maybe_first_row::<Row>().map_err(|error| unread(error.to_string()))?;
        Ok(row.map(|row| row.columns))
    }
}
