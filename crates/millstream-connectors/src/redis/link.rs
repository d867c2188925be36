//! A connection that is made again when it breaks, and calls that are repeated until they succeed.
//!
//! Every call may be repeated: where an answer is lost nobody knows whether the script ran, and a
//! script that finds its work done says so.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use millstream_engine::api::contact::ContactWith;
use millstream_store::env::Env;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::{Client, Cmd, FromRedisValue, Pipeline, RedisError, Script, Value, cmd};

use super::error::{RedisProblem, may_pass, needs_connection};
use super::server::Server;

/// How long a call is repeated while the query runs; after that the flow is started again.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Before a call is repeated; each further wait is twice as long.
const WAIT: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Calls to the servers of a cluster that are under way at once.
const CALLS_MAX: usize = 64;

/// A connection to one server, or to all of a cluster.
pub(super) struct Link {
    server: Server,
    env: Env,
    contact: ContactWith,
    client: Client,
    is_cluster: bool,
    connection: Option<Connection>,
    /// Connections made so far.
    connections: u64,
    /// How long a call is repeated.
    patience: Duration,
}

/// A call: a script with keys and arguments, or a command.
pub(super) enum Call<'a> {
    Script {
        script: &'a Script,
        keys: &'a [&'a str],
        arguments: &'a [&'a [u8]],
    },
    /// One script for many slots; gives all answers.
    Slots {
        script: &'a Script,
        slots: &'a [SlotCall],
    },
    Command(&'a Cmd),
    /// Many at once; gives all answers.
    Commands(&'a [Cmd]),
}

/// A part of what a server says about itself.
pub(super) struct Info(String);

impl Info {
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
    }
}

/// What a script is given in one slot.
pub(super) struct SlotCall {
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) arguments: [Vec<u8>; 3],
}

#[derive(Clone)]
enum Connection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// A certificate cannot be read.
    pub(super) fn new(
        server: Server,
        env: Env,
        contact: ContactWith,
        patience: Duration,
    ) -> Result<Self, RedisProblem> {
        let client = server.client()?;
        Ok(Self {
            server,
            env,
            contact,
            client,
            is_cluster: false,
            connection: None,
            connections: 0,
            patience,
        })
    }

    /// From now on all servers of the cluster are called, each for its own slots.
    pub(super) fn is_to_cluster(&mut self) {
        self.is_cluster = true;
        self.connection = None;
    }

    /// Connections made so far: what one connection has written another does not wait for.
    pub(super) fn connections(&self) -> u64 {
        self.connections
    }

    /// The server, for people.
    pub(super) fn shown(&self) -> String {
        self.server.shown()
    }

    /// From now on a call is repeated for so long.
    pub(super) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The answer of `call`, as a `T`.
    ///
    /// # Errors
    /// What may pass did not in all that time, or what will not.
    pub(super) async fn call<T: FromRedisValue>(
        &mut self,
        call: &Call<'_>,
    ) -> Result<T, RedisProblem> {
        let (begun, begun_ms) = (self.env.monotonic(), self.env.now_ms());
        let mut wait = WAIT;
        loop {
            let error = match self.try_once(call).await {
                Ok(value) => {
                    self.contact.answered();
                    let read = T::from_redis_value(value);
                    return read.map_err(|error| {
                        let problem = error.to_string();
                        // What follows is the answer itself, with rows of the users.
                        let problem = problem.split(" (value was ").next().unwrap_or_default();
                        self.unexpected(problem.to_owned())
                    });
                }
                Err(error) => error,
            };
            let waited = self.env.monotonic().saturating_sub(begun);
            let server = self.server.shown();
            if !may_pass(&error) {
                self.connection = None;
                return Err(RedisProblem::Refused { server, error });
            }
            if needs_connection(&error) {
                self.renew().await;
            }
            if waited >= self.patience {
                return Err(RedisProblem::Away { server, waited, error });
            }
            tracing::debug!(server, %error, "a call to Redis is repeated");
            self.contact.unanswered(begun_ms);
            self.env.sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    /// What the server says about itself in `section` of INFO.
    pub(super) async fn info(&mut self, section: &str) -> Result<Info, RedisProblem> {
        let mut command = cmd("INFO");
        command.arg(section);
        self.call(&Call::Command(&command)).await.map(Info)
    }

    /// Whether the server is part of a cluster.
    pub(super) async fn is_part_of_cluster(&mut self) -> Result<bool, RedisProblem> {
        Ok(self.info("cluster").await?.value("cluster_enabled") == Some("1"))
    }

    /// An answer that makes no sense, and why; without rows of the users.
    pub(super) fn unexpected(&self, answer: String) -> RedisProblem {
        RedisProblem::Answer { server: self.server.shown(), answer }
    }

    async fn try_once(&mut self, call: &Call<'_>) -> Result<Value, RedisError> {
        let connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => {
                let connection = self.connect().await?;
                self.connections += 1;
                self.connection.insert(connection).clone()
            }
        };
        match connection {
            Connection::Server(mut connection) => match call {
                Call::Commands(commands) => pipeline(commands, &mut connection).await,
                call => run(call, &mut connection).await,
            },
            Connection::Cluster(mut connection) => run(call, &mut connection).await,
        }
    }

    /// Lets the next call have another connection. That of a cluster knows all its servers, while a
    /// new one begins at the server of the options, which may be the one that is away: so it is
    /// kept until there is another.
    async fn renew(&mut self) {
        if !self.is_cluster {
            self.connection = None;
        } else if let Ok(connection) = self.connect().await {
            self.connection = Some(connection);
            self.connections += 1;
        }
    }

    async fn connect(&self) -> Result<Connection, RedisError> {
        if self.is_cluster {
            let cluster = self.server.cluster_client()?;
            return Ok(Connection::Cluster(cluster.get_async_connection().await?));
        }
        let limits = self.server.limits();
        let made = self.client.get_multiplexed_async_connection_with_config(&limits).await?;
        Ok(Connection::Server(made))
    }
}

/// All `commands` in one piece; the first that fails is the failure of all.
async fn pipeline(
    commands: &[Cmd],
    connection: &mut MultiplexedConnection,
) -> Result<Value, RedisError> {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(command.clone());
    }
    let answers = connection.req_packed_commands(&pipeline, 0, commands.len()).await?;
    let answers = answers.into_iter().map(|answer| match answer {
        Value::ServerError(error) => Err(RedisError::from(error)),
        answer => Ok(answer),
    });
    Ok(Value::Array(answers.collect::<Result<_, _>>()?))
}

async fn run<C>(call: &Call<'_>, connection: &mut C) -> Result<Value, RedisError>
where
    C: ConnectionLike + Clone,
{
    match call {
        Call::Command(command) => command.query_async(connection).await,
        Call::Commands(commands) => {
            let one = |command: &Cmd| {
                let (mut connection, command) = (connection.clone(), command.clone());
                async move { command.query_async::<Value>(&mut connection).await }
            };
            let calls: Vec<_> = commands.iter().map(one).collect();
            let answers = stream::iter(calls).buffered(CALLS_MAX).try_collect().await?;
            Ok(Value::Array(answers))
        }
        Call::Script { script, keys, arguments } => {
            let mut invocation = script.prepare_invoke();
            for key in *keys {
                invocation.key(*key);
            }
            for argument in *arguments {
                invocation.arg(*argument);
            }
            invocation.invoke_async(connection).await
        }
        Call::Slots { script, slots } => {
            let one = |slot: &SlotCall| {
                let (mut connection, mut invocation) =
                    (connection.clone(), script.prepare_invoke());
                for key in &slot.keys {
                    invocation.key(&**key);
                }
                for argument in &slot.arguments {
                    invocation.arg(&**argument);
                }
                async move { invocation.invoke_async::<Value>(&mut connection).await }
            };
            let calls: Vec<_> = slots.iter().map(one).collect();
            let answers = stream::iter(calls).buffered(CALLS_MAX).try_collect().await?;
            Ok(Value::Array(answers))
        }
    }
}
