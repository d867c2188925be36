//! A table as one that is asked for rows by its whole key.
//!
//! ```text
//! distinct keys ──▶ asker (a thread): a SELECT for each, many at once ──▶ values ──▶ columns
//! ```
//!
//! A prepared statement carries its partition key, so each request goes to a node that has the row.
//! Keys are the bytes that the sink writes, and what no row of the table can have as a key is not
//! asked for. A request is repeated until it is answered.

mod asker;
mod options;
mod table;

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Table};
use millstream_engine::api::error::ArrowBug;
use millstream_engine::api::lookup::{LookedUp, LookupTable};
use millstream_engine::api::sink::Failure;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::error::CassandraProblem;
use asker::{Opening, Question, serve};
pub(crate) use options::LookupOptions;

/// Keys of one call: their answers are in memory together.
const KEYS_MAX: usize = 1_000;

/// Asks for rows of one table.
pub(crate) struct CassandraLookup {
    options: Arc<LookupOptions>,
    context: FlowContext,
    questions: Mutex<Option<mpsc::Sender<Question>>>,
}

impl CassandraLookup {
    /// A table that was checked; nothing is connected yet.
    pub(crate) fn new(
        table: &Table,
        base_dir: &Path,
        context: &FlowContext,
    ) -> Result<Self, Failure> {
        let options = Arc::new(LookupOptions::parse(table, base_dir)?);
        Ok(Self { options, context: context.clone(), questions: Mutex::default() })
    }
}

#[async_trait]
impl LookupTable for CassandraLookup {
    async fn open(&self) -> Result<(), Failure> {
        let env = self.context.env.clone();
        let what = format!("Cassandra at {}", self.options.server().shown());
        let contact = self.context.contacts.with(what);
        let opening = Opening { options: Arc::clone(&self.options), contact, env: env.clone() };
        let (questions, inbox) = mpsc::channel(1);
        let (opened, opening_ends) = oneshot::channel();
        // It ends when the sender is gone.
        drop(env.spawn_on_own_thread("cassandra-lookup", serve(opening, opened, inbox)));
        opening_ends.await.unwrap_or(Err(CassandraProblem::Ended))?;
        *self.questions.lock() = Some(questions);
        Ok(())
    }

    fn keys_max(&self) -> usize {
        KEYS_MAX
    }

    async fn look_up(&self, keys: &[ArrayRef], columns: &[usize]) -> Result<LookedUp, Failure> {
        let form = &self.options.form;
        let values = columns.iter().filter(|column| !form.key.contains(column));
        let values: Vec<usize> = values.copied().collect();
        let (answer, answered) = oneshot::channel();
        let question = Question { keys: keys.to_vec(), columns: values.clone(), answer };
        let questions = self.questions.lock().clone();
        let questions = questions.expect("the engine opens a table before it asks");
        // If it is not taken, `answer` is dropped and the wait ends.
        let _ = questions.send(question).await;
        let answer = answered.await.unwrap_or(Err(CassandraProblem::Ended))?;
        let column = |column: &usize| {
            let of_key = form.key.iter().position(|key| key == column);
            let of_values = || values.iter().position(|value| value == column);
            of_key.map(|at| keys[at].clone()).or_else(|| Some(answer.columns[of_values()?].clone()))
        };
        let all = columns.iter().filter_map(column).collect();
        let schema = Arc::new(form.schema.project(columns).map_err(ArrowBug)?);
        let options = RecordBatchOptions::new().with_row_count(Some(answer.found.len()));
        let rows = RecordBatch::try_new_with_options(schema, all, &options).map_err(ArrowBug)?;
        Ok(LookedUp { rows, found: answer.found })
    }
}
