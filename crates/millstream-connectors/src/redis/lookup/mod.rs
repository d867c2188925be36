//! Keys of a server as a table that is asked for rows: the other side of what the sink writes.
//!
//! ```text
//! distinct keys ──▶ HMGET table:KEY field ..., many at once ──▶ texts ──▶ columns
//! ```
//!
//! A hash that has none of the fields asked for may have others, and then its row is there: those
//! are asked for again as a whole. The types of keys and values are those that the sink's texts
//! ([`encode`](super::encode)) can be read back as.

mod options;
mod rows;

use std::path::Path;

use arrow::array::{ArrayRef, RecordBatch};
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Table};
use millstream_engine::api::lookup::{LookedUp, LookupTable};
use millstream_engine::api::options::OptionError;
use millstream_engine::api::sink::Failure;
use redis::{Cmd, FromRedisValue, Value, cmd};
use tokio::sync::Mutex;

use super::encode::{column, write_key};
use super::error::{RedisProblem, is_wrong_type};
use super::link::{Call, Link, PATIENCE};
use super::options::Model;
use options::LookupOptions;
use rows::{Found, decode};

/// Keys of one call: their answers are in memory together.
const KEYS_MAX: usize = 1_000;

/// Asks for rows of one table.
pub(super) struct RedisLookup {
    options: LookupOptions,
    asking: Mutex<Asking>,
}

struct Asking {
    link: Link,
    /// Whether it is known that the server is part of a cluster, or not.
    knows_server: bool,
}

impl RedisLookup {
    /// A table that was checked. Nothing is connected before the first question.
    pub(super) fn new(
        table: &Table,
        base_dir: &Path,
        context: &FlowContext,
    ) -> Result<Self, Failure> {
        let options = LookupOptions::parse(table, base_dir)?;
        let (server, env) = (options.server.clone(), context.env.clone());
        let contact = context.contacts.with(format!("Redis at {}", server.shown()));
        let link = Link::new(server, env, contact, PATIENCE)?;
        Ok(Self { options, asking: Mutex::new(Asking { link, knows_server: false }) })
    }

    /// The options of a table, checked without touching anything.
    pub(super) fn check(table: &Table, base_dir: &Path) -> Result<LookupOptions, OptionError> {
        LookupOptions::parse(table, base_dir)
    }

    fn keys(&self, columns: &[ArrayRef]) -> Result<Vec<Vec<u8>>, Failure> {
        let rows = columns.first().map_or(0, |column| column.len());
        let parts = columns.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let keys = (0..rows).map(|row| {
            let mut key = Vec::new();
            let written = write_key(&self.options.prefix, &parts, row, &mut key);
            written.map_err(|part| {
                let index = self.options.form.key[part];
                let column = self.options.form.schema.field(index).name().clone();
                RedisProblem::NoKey { table: self.options.table.clone(), column }
            })?;
            Ok(key)
        });
        keys.collect()
    }

    /// The values of some keys: of hashes those of `fields`.
    async fn ask(
        &self,
        asking: &mut Asking,
        keys: &[Vec<u8>],
        fields: &[&str],
    ) -> Result<Vec<Option<Found>>, Failure> {
        if self.options.model != Model::Hash {
            let get = |key: &Vec<u8>| command("GET", key);
            let texts: Vec<Option<Vec<u8>>> = asking.answers(keys.iter().map(get)).await?;
            return Ok(texts.into_iter().map(|text| text.map(Found::Text)).collect());
        }
        if fields.is_empty() {
            let count = |key: &Vec<u8>| command("HLEN", key);
            let counts: Vec<u64> = asking.answers(keys.iter().map(count)).await?;
            let found = |count: u64| (count > 0).then(|| Found::Fields(Vec::new()));
            return Ok(counts.into_iter().map(found).collect());
        }
        let get = |key: &Vec<u8>| {
            let mut get = command("HMGET", key);
            get.arg(fields);
            get
        };
        let found: Vec<Vec<Option<Vec<u8>>>> = asking.answers(keys.iter().map(get)).await?;
        if found.iter().any(|values| values.len() != fields.len()) {
            let problem = "it has not as many values as fields were asked for".to_owned();
            return Err(asking.link.unexpected(problem).into());
        }
        let is_empty = |values: &[Option<Vec<u8>>]| values.iter().all(Option::is_none);
        // Nothing of what was asked for: the hash may have other fields, or not be there.
        let unsure = keys.iter().zip(&found).filter(|(_, values)| is_empty(values));
        let whole = unsure.map(|(key, _)| command("HGETALL", key));
        let mut whole = asking.answers::<Vec<(Vec<u8>, Vec<u8>)>>(whole).await?.into_iter();
        let found = found.into_iter().map(|values| {
            if !is_empty(&values) {
                return Some(Found::Fields(values));
            }
            // What it has now, all at the same moment.
            let all = whole.next().filter(|all| !all.is_empty())?;
            let value = |name: &&str| {
                let field = all.iter().find(|(field, _)| field == name.as_bytes());
                field.map(|(_, value)| value.clone())
            };
            Some(Found::Fields(fields.iter().map(value).collect()))
        });
        Ok(found.collect())
    }

    /// `failure`, or which of the keys holds something else, where it is about that.
    async fn explained(&self, asking: &mut Asking, keys: &[Vec<u8>], failure: Failure) -> Failure {
        let problem = failure.cause().downcast_ref::<RedisProblem>();
        let Some(RedisProblem::Refused { error, .. }) = problem else { return failure };
        if !is_wrong_type(error) {
            return failure;
        }
        let types = keys.iter().map(|key| command("TYPE", key));
        let Ok(types) = asking.answers::<String>(types).await else { return failure };
        let wanted = self.options.model.stored();
        let wrong = keys.iter().zip(types).find(|(_, found)| found != wanted && found != "none");
        wrong.map_or(failure, |(key, found)| {
            let (table, key) = (self.options.table.clone(), String::from_utf8_lossy(key));
            RedisProblem::WrongLookup { table, key: key.into_owned(), found, wanted }.into()
        })
    }
}

impl Asking {
    /// The answers to `commands`, in order.
    async fn answers<T: FromRedisValue>(
        &mut self,
        commands: impl Iterator<Item = Cmd>,
    ) -> Result<Vec<T>, Failure> {
        let commands: Vec<Cmd> = commands.collect();
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        if !self.knows_server {
            if self.link.is_part_of_cluster().await? {
                self.link.is_to_cluster();
            }
            self.knows_server = true;
        }
        let answers: Vec<Value> = self.link.call(&Call::Commands(&commands)).await?;
        if answers.len() != commands.len() {
            let problem = "it has not as many parts as there were questions".to_owned();
            return Err(self.link.unexpected(problem).into());
        }
        let read = answers.into_iter().map(|answer| {
            T::from_redis_value(answer).map_err(|_| {
                // The error itself has rows of the users.
                self.link.unexpected("it is not of the type asked for".to_owned()).into()
            })
        });
        read.collect()
    }
}

fn command(name: &str, key: &[u8]) -> Cmd {
    let mut command = cmd(name);
    command.arg(key);
    command
}

#[async_trait]
impl LookupTable for RedisLookup {
    fn keys_max(&self) -> usize {
        KEYS_MAX
    }

    async fn look_up(&self, keys: &[ArrayRef], columns: &[usize]) -> Result<LookedUp, Failure> {
        let names = self.keys(keys)?;
        let values = columns.iter().filter(|column| !self.options.form.key.contains(column));
        let values: Vec<usize> = values.copied().collect();
        let schema = &self.options.form.schema;
        let fields: Vec<&str> =
            values.iter().map(|column| schema.field(*column).name().as_str()).collect();
        let mut asking = self.asking.lock().await;
        let found = match self.ask(&mut asking, &names, &fields).await {
            Ok(found) => found,
            Err(failure) => return Err(self.explained(&mut asking, &names, failure).await),
        };
        drop(asking);
        let rows = decode(&self.options, &names, &found, &values)?;
        let is_found = found.iter().map(Option::is_some).collect();
        Ok(LookedUp { rows: self.with_keys(rows, keys, columns, &values)?, found: is_found })
    }
}

impl RedisLookup {
    /// `columns` in their order, of which those of the key are the ones that were asked for.
    fn with_keys(
        &self,
        rows: RecordBatch,
        keys: &[ArrayRef],
        columns: &[usize],
        values: &[usize],
    ) -> Result<RecordBatch, Failure> {
        let column = |column: &usize| {
            let of_key = self.options.form.key.iter().position(|key| key == column);
            let of_values = || values.iter().position(|value| value == column);
            of_key.map(|at| keys[at].clone()).or_else(|| Some(rows.column(of_values()?).clone()))
        };
        let all = columns.iter().filter_map(column).collect();
        rows::batch(&self.options.form.schema, columns, all, rows.num_rows())
    }
}
