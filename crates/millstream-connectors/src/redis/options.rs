//! What the options of a table that is written say.

use std::path::Path;

use arrow::datatypes::{DataType, SchemaRef};
use millstream_engine::api::connector::Table;
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_sql::json;

use super::server::Server;

/// More columns do not fit into one call of a script.
const COLUMNS_MAX: usize = 2_000;
/// What the keys of the record of progress begin with, before a colon.
const OWN: &str = "millstream";

const fn both(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Both, about }
}

const fn source(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Source, about }
}

const fn sink(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Sink, about }
}

pub(super) const OPTIONS: &[OptionSpec] = &[
    both("url", "redis://USER:PASSWORD@HOST:PORT/DATABASE, rediss:// with TLS"),
    both("host", "the server, where there is no url (default localhost)"),
    both("port", "its port (default 6379)"),
    both("user", "the user of an access list; without it the default user"),
    both("auth", "the password"),
    both("dbNum", "the number of the database (default 0)"),
    both("ssl", "whether the connection has TLS (default false)"),
    both("ssl.ca.location", "a file in PEM with the authorities that are trusted"),
    both("ssl.certificate.location", "a file in PEM with the client's own certificate"),
    both("ssl.key.location", "a file in PEM with its key"),
    both("timeout", "milliseconds that an answer may take (default 10000)"),
    both("table", "what keys begin with, before a colon (default: the table's name)"),
    both("key.column", "the columns of the key, separated by commas"),
    both("model", "hash (default), string, json; of a sink also list, set, stream or publish"),
    sink("ttl", "seconds until a key expires, from its last write on"),
    sink("wait.replicas", "replicas that must have a micro-batch before it counts (default 0)"),
    source("stream.keys", "the streams that are read, separated by commas"),
    source("startingOffsets", "where a new query begins: latest (default) or earliest"),
    source("stream.offsets", "the same, behind an entry of each stream, as JSON"),
    source("stream.read.batch.size", "entries in one answer, of all streams (default 1000)"),
    source("stream.read.block", "milliseconds that an empty answer is held back (default 500)"),
    source("maxOffsetsPerTrigger", "entries in a micro-batch, at most (default: no limit)"),
    source("mode", "fields that do not read as their column's type: PERMISSIVE, FAILFAST"),
    source("lookup.cache", "whether rows that were looked up are kept: NONE (default), PARTIAL"),
    source("lookup.partial-cache.max-rows", "keys that are kept, at most (default 10000)"),
    source("lookup.partial-cache.max-bytes", "bytes that are kept, at most (default 16m)"),
    source("lookup.partial-cache.expire-after-write", "how long a row is kept (default 10s)"),
    source("lookup.partial-cache.cache-missing-key", "whether misses are kept (default true)"),
    both("failOnDataLoss", "whether to stop where Redis has lost rows (default true)"),
];

/// What a row becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Model {
    /// A field for each column, under the row's key.
    Hash,
    /// The text of the only column.
    String,
    /// All columns as one JSON text.
    Json,
    /// An element at the end of a list.
    List,
    /// A member of a set.
    Set,
    /// An entry of a stream, with a field for each column.
    Stream,
    /// A message to a channel.
    Publish,
}

impl Model {
    const ALL: [Self; 7] =
        [Self::Hash, Self::String, Self::Json, Self::List, Self::Set, Self::Stream, Self::Publish];

    /// Its name in the option `model`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::String => "string",
            Self::Json => "json",
            Self::List => "list",
            Self::Set => "set",
            Self::Stream => "stream",
            Self::Publish => "publish",
        }
    }

    /// What the scripts call it, which is also Redis' name of its type: JSON is a text to Redis.
    pub(super) fn stored(self) -> &'static str {
        if self == Self::Json { "string" } else { self.name() }
    }

    /// Whether columns stay apart.
    pub(super) fn has_fields(self) -> bool {
        matches!(self, Self::Hash | Self::Stream)
    }

    /// Whether each row has a key of its own.
    fn needs_key(self) -> bool {
        matches!(self, Self::Hash | Self::String | Self::Json)
    }

    pub(super) fn parse(options: &Options) -> Result<Self, OptionError> {
        let Some(text) = options.get("model") else { return Ok(Self::Hash) };
        let name = text.trim().to_ascii_lowercase();
        if name == "binary" {
            let problem = "'model' = 'binary' is a form that only the JVM reads";
            let help = "write 'hash' or 'json'".to_owned();
            return Err(OptionError::of("model", problem, Some(help)));
        }
        Self::ALL.into_iter().find(|model| model.name() == name).ok_or_else(|| {
            let wanted = "hash, string, json, list, set, stream or publish";
            OptionError::invalid("model", text, wanted)
        })
    }
}

/// What a table that is written looks like in Redis.
#[derive(Clone)]
pub(super) struct SinkOptions {
    pub(super) server: Server,
    /// The name of the table in the pipeline file.
    pub(super) name: String,
    /// What keys begin with.
    pub(super) prefix: String,
    pub(super) model: Model,
    /// Indices of the key's columns.
    pub(super) key: Vec<usize>,
    /// Indices of the other columns.
    pub(super) values: Vec<usize>,
    pub(super) ttl_s: Option<u32>,
    pub(super) wait_replicas: u32,
    pub(super) fails_on_loss: bool,
}

impl SinkOptions {
    /// Checks a table for rows of `schema`.
    pub(super) fn parse(
        table: &Table,
        schema: &SchemaRef,
        base_dir: &Path,
    ) -> Result<Self, OptionError> {
        let options = &table.options;
        let model = Model::parse(options)?;
        let key = key_columns(options, schema, model, "the query")?;
        let values: Vec<usize> =
            (0..schema.fields().len()).filter(|index| !key.contains(index)).collect();
        check_values(schema, &values, model)?;
        let wanted = "a number of seconds, 1 or more";
        let ttl_s = options.parse("ttl", wanted)?;
        if ttl_s == Some(0) {
            return Err(OptionError::invalid("ttl", "0", wanted));
        }
        Ok(Self {
            server: Server::parse(options, base_dir)?,
            name: table.name.clone(),
            prefix: prefix(table)?,
            model,
            key,
            values,
            ttl_s,
            wait_replicas: options.parse("wait.replicas", "a whole number")?.unwrap_or(0),
            fails_on_loss: options.parse_bool("failOnDataLoss")?.unwrap_or(true),
        })
    }
}

/// What keys of a table begin with.
pub(super) fn prefix(table: &Table) -> Result<String, OptionError> {
    let prefix = table.options.get("table").unwrap_or(&table.name).to_owned();
    if prefix.is_empty() {
        return Err(OptionError::invalid("table", "", "what keys begin with"));
    }
    if prefix == OWN || prefix.strip_prefix(OWN).is_some_and(|rest| rest.starts_with(':')) {
        let wanted = "another name: keys that begin with 'millstream:' say what was written";
        return Err(OptionError::invalid("table", &prefix, wanted));
    }
    Ok(prefix)
}

/// The columns of the key; `whose` columns they are is for people.
pub(super) fn key_columns(
    options: &Options,
    schema: &SchemaRef,
    model: Model,
    whose: &str,
) -> Result<Vec<usize>, OptionError> {
    let Some(text) = options.get("key.column") else {
        if model.needs_key() {
            let help = "name the columns that make a row's key, for example 'key.column' = 'id'";
            return Err(OptionError::missing("key.column", help));
        }
        return Ok(Vec::new());
    };
    let mut key = Vec::new();
    for name in text.split(',').map(str::trim) {
        let is_it = |field: &arrow::datatypes::FieldRef| field.name().eq_ignore_ascii_case(name);
        let Some(index) = schema.fields().iter().position(is_it) else {
            let names: Vec<&str> =
                schema.fields().iter().map(|field| field.name().as_str()).collect();
            let problem = format!("{whose} has no column '{name}'");
            let help = format!("its columns are {}", names.join(", "));
            return Err(OptionError::of("key.column", problem, Some(help)));
        };
        if schema.field(index).data_type().is_nested() {
            let problem = format!("'{name}' is {}", schema.field(index).data_type());
            let help = "a key is made of plain values".to_owned();
            return Err(OptionError::of("key.column", problem, Some(help)));
        }
        if key.contains(&index) {
            return Err(OptionError::of("key.column", format!("'{name}' is there twice"), None));
        }
        key.push(index);
    }
    Ok(key)
}

fn check_values(schema: &SchemaRef, values: &[usize], model: Model) -> Result<(), OptionError> {
    if values.is_empty() {
        let help = "select another column, or a constant".to_owned();
        return Err(OptionError::table("all columns belong to the key", Some(help)));
    }
    if values.len() > COLUMNS_MAX {
        let problem = format!("a row may have {COLUMNS_MAX} columns beside its key");
        return Err(OptionError::table(problem, None));
    }
    if model == Model::String && values.len() > 1 {
        let problem =
            format!("'model' = 'string' holds one column, and there are {}", values.len());
        let help = "set 'model' = 'json', or select the key and one column".to_owned();
        return Err(OptionError::of("model", problem, Some(help)));
    }
    for field in values.iter().map(|index| schema.field(*index)) {
        if *field.data_type() == DataType::Null {
            continue;
        }
        json::check(field.data_type()).map_err(|error| {
            OptionError::table(format!("column {}: {error}", field.name()), None)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema};

    use super::*;

    #[test]
    fn keys_of_the_record_of_progress_are_not_written_to() {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Utf8, true)]));
        let problem = |prefix: &str| {
            let options = [("model", "list"), ("table", prefix)];
            let options = options.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let table =
                Table { name: "t".to_owned(), columns: None, options: Options::new(options) };
            SinkOptions::parse(&table, &schema, Path::new("")).err().map(|error| error.problem)
        };
        for prefix in ["millstream", "millstream:", "millstream:progress:{t}"] {
            assert!(problem(prefix).is_some_and(|text| text.contains("another name")), "{prefix}");
        }
        assert_eq!(problem("millstreams"), None);
    }
}
