//! What a sink and a look-up do first: connect, find the table, prepare a statement.

use std::time::Duration;

use millstream_store::env::Env;
use scylla::client::session::Session;
use scylla::cluster::ClusterState;
use scylla::cluster::metadata::Table;
use scylla::statement::prepared::PreparedStatement;

use crate::error::{CassandraProblem, may_prepare_later};
use crate::repeat::Waits;
use crate::server::Server;

/// How long a cluster may be away at the start: a wrong address is to be reported soon.
pub(crate) const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// Connects, and reads what the cluster says of `keyspace`.
///
/// # Errors
/// The cluster is away, or refuses the user.
pub(crate) async fn connect(
    server: &Server,
    keyspace: &str,
    env: &Env,
) -> Result<Session, CassandraProblem> {
    let mut waits = Waits::begin(env);
    loop {
        match server.connect(keyspace).await {
            Err(problem @ CassandraProblem::Unconnected { .. }) => {
                if waits.waited() >= OPEN_PATIENCE {
                    return Err(problem);
                }
            }
            settled => return settled,
        }
        waits.pause().await;
    }
}

/// The name of a table, as options say it.
pub(crate) struct Place<'a> {
    pub(crate) server: &'a Server,
    pub(crate) keyspace: &'a str,
    pub(crate) table: &'a str,
}

impl Place<'_> {
    /// The table, as the cluster describes it.
    ///
    /// # Errors
    /// There is none of that name.
    pub(crate) fn table<'s>(&self, state: &'s ClusterState) -> Result<&'s Table, CassandraProblem> {
        let (keyspace, table) = (self.keyspace.to_owned(), self.table.to_owned());
        let server = self.server.shown();
        let Some(known) = state.get_keyspace(self.keyspace) else {
            return Err(CassandraProblem::NoKeyspace { server, keyspace });
        };
        if let Some(found) = known.tables.get(self.table) {
            return Ok(found);
        }
        if let Some(view) = known.views.get(self.table) {
            let (table, base) = (format!("{keyspace}.{table}"), view.base_table_name.clone());
            return Err(CassandraProblem::View { table, base });
        }
        let mut names: Vec<&str> = known.tables.keys().map(String::as_str).collect();
        names.sort_unstable();
        let known = match names.is_empty() {
            true => String::new(),
            false => format!("; its tables are {}", names.join(", ")),
        };
        Err(CassandraProblem::NoTable { server, keyspace, table, known })
    }
}

/// Prepares a statement that may be repeated, within `patience`.
///
/// # Errors
/// The server refuses it, or is away for longer.
pub(crate) async fn prepare(
    session: &Session,
    text: &str,
    server: &Server,
    env: &Env,
    patience: Duration,
) -> Result<PreparedStatement, CassandraProblem> {
    let mut waits = Waits::begin(env);
    loop {
        let error = match session.prepare(text).await {
            Ok(mut prepared) => {
                prepared.set_is_idempotent(true);
                return Ok(prepared);
            }
            Err(error) => error,
        };
        if waits.waited() >= patience || !may_prepare_later(&error) {
            return Err(CassandraProblem::Unprepared {
                server: server.shown(),
                error: Box::new(error),
            });
        }
        waits.pause().await;
    }
}
