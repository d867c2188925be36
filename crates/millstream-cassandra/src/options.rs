//! What the options of a table that is written say.

use std::path::Path;

use arrow::datatypes::{DataType, SchemaRef};
use millstream_engine::api::connector::Table;
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};

use crate::server::Server;

/// A batch of one partition is one mutation of the server, which by default takes 16 MB; far below
/// that it gets slow.
const BATCH_BYTES: u64 = 16 << 10;
const BATCH_BYTES_MAX: u64 = 8 << 20;
const BATCH_ROWS: usize = 256;
const BATCH_ROWS_MAX: usize = 10_000;
/// Requests of one sink that are under way at once.
const REQUESTS: usize = 128;
/// A connection has 32768 stream ids.
const REQUESTS_MAX: usize = 8_192;
/// What Cassandra allows: twenty years.
const TTL_MAX_S: u32 = 20 * 365 * 24 * 60 * 60;

const IGNORE_NULLS: &str = "spark.cassandra.output.ignoreNulls";
const IF_NOT_EXISTS: &str = "spark.cassandra.output.ifNotExists";
const TIMESTAMP: &str = "spark.cassandra.output.timestamp";
const TTL: &str = "spark.cassandra.output.ttl";
const CONCURRENT_WRITES: &str = "spark.cassandra.output.concurrent.writes";
const SIZE_BYTES: &str = "spark.cassandra.output.batch.size.bytes";
const SIZE_ROWS: &str = "spark.cassandra.output.batch.size.rows";
const GROUPING_KEY: &str = "spark.cassandra.output.batch.grouping.key";
pub(crate) const KEY_COLUMN: &str = "key.column";
pub(crate) const READS: &str = "spark.cassandra.concurrent.reads";
const DELETE_COLUMN: &str = "delete.column";

const fn sink(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Sink, about }
}

const fn both(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Both, about }
}

const fn looked_up(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Source, about }
}

pub(crate) const OPTIONS: &[OptionSpec] = &[
    both("keyspace", "the keyspace"),
    both("table", "the table in it (default: the table's name in the pipeline file)"),
    both("spark.cassandra.connection.host", "nodes, separated by commas (default localhost)"),
    both("spark.cassandra.connection.port", "their port (default 9042)"),
    both("spark.cassandra.connection.localDC", "the data center that requests go to"),
    both("spark.cassandra.connection.timeoutMS", "milliseconds to connect (default 5000)"),
    both("spark.cassandra.read.timeoutMS", "milliseconds an answer may take (default 12000)"),
    both("spark.cassandra.auth.username", "the user"),
    both("spark.cassandra.auth.password", "the user's password"),
    both("spark.cassandra.connection.ssl.enabled", "whether there is TLS (default false)"),
    both("ssl.ca.location", "a file in PEM with the authorities that are trusted"),
    both("ssl.certificate.location", "a file in PEM with the client's own certificate"),
    both("ssl.key.location", "a file in PEM with its key"),
    sink("spark.cassandra.output.consistency.level", "a write's level (default LOCAL_QUORUM)"),
    sink(IGNORE_NULLS, "whether NULL leaves a column as it is (default false: it is removed)"),
    sink(TTL, "seconds until what is written expires (default: the table's)"),
    sink(DELETE_COLUMN, "a BOOLEAN column: where it is true the row is deleted"),
    sink(CONCURRENT_WRITES, "requests under way at once (default 128)"),
    sink(SIZE_BYTES, "bytes of a batch, at most (default 16384)"),
    sink(SIZE_ROWS, "rows of a batch, at most (default 256)"),
    sink(GROUPING_KEY, "which rows share a batch: partition (default) or none"),
    looked_up(KEY_COLUMN, "the key's columns, of a table that is looked up in a join"),
    looked_up("spark.cassandra.input.consistency.level", "a read's level (default LOCAL_QUORUM)"),
    looked_up(READS, "requests of a look-up under way at once (default 128)"),
    looked_up("lookup.cache", "NONE (default) or PARTIAL: whether rows are kept"),
    looked_up("lookup.partial-cache.max-rows", "keys that are kept, at most (default 10000)"),
    looked_up("lookup.partial-cache.max-bytes", "bytes that they take, about (default 16mb)"),
    looked_up("lookup.partial-cache.expire-after-write", "how long a row counts (default 10s)"),
    looked_up("lookup.partial-cache.cache-missing-key", "whether missing rows count (true)"),
    sink(IF_NOT_EXISTS, "refused unless false: such a write is not exactly-once"),
    sink(TIMESTAMP, "refused: a micro-batch has a write time of its own"),
];

/// What a table that is written looks like in Cassandra.
#[derive(Clone)]
pub(crate) struct SinkOptions {
    pub(crate) server: Server,
    pub(crate) keyspace: String,
    pub(crate) table: String,
    pub(crate) ignores_nulls: bool,
    pub(crate) ttl_s: Option<u32>,
    /// Index of the column of the query that says which rows are deleted.
    pub(crate) delete: Option<usize>,
    pub(crate) requests_max: usize,
    pub(crate) batch_bytes: usize,
    /// 1 where rows do not share a batch.
    pub(crate) batch_rows: usize,
}

impl SinkOptions {
    /// Checks a table for rows of `schema`; touches nothing.
    ///
    /// # Errors
    /// An option that does not read, or that would break the promise.
    pub(crate) fn parse(
        table: &Table,
        schema: &SchemaRef,
        base_dir: &Path,
    ) -> Result<Self, OptionError> {
        let options = &table.options;
        refuse_what_is_not_idempotent(options)?;
        let (keyspace, name) = (keyspace(options)?, table_name(table)?);
        let batch_bytes = options.parse_bytes(SIZE_BYTES)?.unwrap_or(BATCH_BYTES);
        if batch_bytes > BATCH_BYTES_MAX {
            let wanted = "8mb or less: the server refuses larger ones";
            return Err(OptionError::invalid(SIZE_BYTES, &batch_bytes.to_string(), wanted));
        }
        Ok(Self {
            server: Server::parse(options, base_dir)?,
            keyspace: keyspace.to_owned(),
            table: name.to_owned(),
            ignores_nulls: options.parse_bool(IGNORE_NULLS)?.unwrap_or(false),
            ttl_s: ttl(options)?,
            delete: delete_column(options, schema)?,
            requests_max: within(options, CONCURRENT_WRITES, REQUESTS, REQUESTS_MAX)?,
            batch_bytes: usize::try_from(batch_bytes).expect("at most some megabytes"),
            batch_rows: batch_rows(options)?,
        })
    }

    /// The table with its keyspace, for people.
    pub(crate) fn shown(&self) -> String {
        format!("{}.{}", self.keyspace, self.table)
    }
}

/// The option `keyspace`.
///
/// # Errors
/// There is none.
pub(crate) fn keyspace(options: &Options) -> Result<&str, OptionError> {
    let keyspace = options.get("keyspace").filter(|name| !name.is_empty());
    keyspace.ok_or_else(|| OptionError::missing("keyspace", "name the keyspace of the table"))
}

/// The name of a table in its keyspace.
///
/// # Errors
/// It is empty.
pub(crate) fn table_name(table: &Table) -> Result<&str, OptionError> {
    match table.options.get("table").unwrap_or(&table.name) {
        "" => Err(OptionError::invalid("table", "", "the name of a table")),
        name => Ok(name),
    }
}

fn refuse_what_is_not_idempotent(options: &Options) -> Result<(), OptionError> {
    if options.parse_bool(IF_NOT_EXISTS)?.unwrap_or(false) {
        let problem = "a write with IF NOT EXISTS cannot have the write time that makes a repeated \
                       micro-batch harmless";
        let help = "leave it out: a row replaces the one with the same key".to_owned();
        return Err(OptionError::of(IF_NOT_EXISTS, problem, Some(help)));
    }
    match options.get(TIMESTAMP) {
        // Spark's own default: the time is left to others.
        None | Some("0") => Ok(()),
        Some(_) => {
            let problem = "the write time of a micro-batch decides which of two writes counts, and \
                           is kept in the checkpoint, so that a repeated one changes nothing";
            Err(OptionError::of(TIMESTAMP, problem, Some("leave it out".to_owned())))
        }
    }
}

fn ttl(options: &Options) -> Result<Option<u32>, OptionError> {
    let wanted = "a number of seconds up to twenty years, or 0 for the table's own";
    match options.parse::<u32>(TTL, wanted)? {
        Some(seconds) if seconds > TTL_MAX_S => {
            Err(OptionError::invalid(TTL, &seconds.to_string(), wanted))
        }
        // Spark's own default, which leaves it to the table.
        Some(0) | None => Ok(None),
        some => Ok(some),
    }
}

fn delete_column(options: &Options, schema: &SchemaRef) -> Result<Option<usize>, OptionError> {
    let Some(name) = options.get(DELETE_COLUMN).map(str::trim) else { return Ok(None) };
    let is_it = |field: &arrow::datatypes::FieldRef| field.name().eq_ignore_ascii_case(name);
    let Some(index) = schema.fields().iter().position(is_it) else {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let problem = format!("the query has no column '{name}'");
        let help = format!("its columns are {}", names.join(", "));
        return Err(OptionError::of(DELETE_COLUMN, problem, Some(help)));
    };
    if *schema.field(index).data_type() != DataType::Boolean {
        let problem = format!("'{name}' is not BOOLEAN");
        let help = format!("select a condition, for example op = 'd' AS {name}");
        return Err(OptionError::of(DELETE_COLUMN, problem, Some(help)));
    }
    Ok(Some(index))
}

/// A number from 1 to `max`; `default` where the option is not there.
///
/// # Errors
/// Another number, or none.
pub(crate) fn within(
    options: &Options,
    key: &str,
    default: usize,
    max: usize,
) -> Result<usize, OptionError> {
    let wanted = format!("a whole number from 1 to {max}");
    let number = options.parse::<usize>(key, &wanted)?.unwrap_or(default);
    match (1..=max).contains(&number) {
        true => Ok(number),
        false => Err(OptionError::invalid(key, &number.to_string(), &wanted)),
    }
}

fn batch_rows(options: &Options) -> Result<usize, OptionError> {
    let rows = match options.get(SIZE_ROWS) {
        Some("auto") => BATCH_ROWS,
        _ => within(options, SIZE_ROWS, BATCH_ROWS, BATCH_ROWS_MAX)?,
    };
    let Some(text) = options.get(GROUPING_KEY) else { return Ok(rows) };
    match text.trim().to_ascii_lowercase().as_str() {
        "partition" => Ok(rows),
        "none" => Ok(1),
        "replica_set" => {
            let problem = "a batch of several partitions burdens one node with the others' rows";
            let help = "write 'partition', or 'none' for a request per row".to_owned();
            Err(OptionError::of(GROUPING_KEY, problem, Some(help)))
        }
        _ => Err(OptionError::invalid(GROUPING_KEY, text, "partition or none")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn parsed(options: &[(&str, &str)]) -> Result<SinkOptions, OptionError> {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let table = Table { name: "t".to_owned(), columns: None, options: Options::new(options) };
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("gone", DataType::Boolean, true),
        ]);
        SinkOptions::parse(&table, &Arc::new(schema), Path::new(""))
    }

    #[test]
    fn what_would_not_be_exactly_once_is_refused_with_the_reason() {
        let keyspace = ("keyspace", "k");
        for (options, wanted) in [
            (&[][..], "'keyspace' is missing"),
            (&[keyspace, (IF_NOT_EXISTS, "true")], "IF NOT EXISTS cannot have the write time"),
            (&[keyspace, (TIMESTAMP, "17")], "is kept in the checkpoint"),
            (&[keyspace, (GROUPING_KEY, "replica_set")], "several partitions"),
            (&[keyspace, (SIZE_BYTES, "9mb")], "8mb or less"),
            (&[keyspace, (SIZE_ROWS, "0")], "from 1 to 10000"),
            (&[keyspace, (CONCURRENT_WRITES, "10000")], "from 1 to 8192"),
            (&[keyspace, (TTL, "999999999")], "twenty years"),
            (&[keyspace, (DELETE_COLUMN, "id")], "'id' is not BOOLEAN"),
            (&[keyspace, (DELETE_COLUMN, "x")], "no column 'x'"),
        ] {
            let refused = parsed(options).err().unwrap_or_else(|| panic!("{options:?}"));
            assert!(refused.to_string().contains(wanted), "{refused}");
        }
    }

    #[test]
    fn defaults_of_spark_may_be_written() {
        let options = parsed(&[
            ("keyspace", "k"),
            (IF_NOT_EXISTS, "false"),
            (TIMESTAMP, "0"),
            (TTL, "0"),
            (SIZE_ROWS, "auto"),
            (DELETE_COLUMN, "GONE"),
        ]);
        let options = options.expect("they are");
        assert_eq!((options.ttl_s, options.batch_rows, options.delete), (None, 256, Some(1)));
        assert_eq!(options.shown(), "k.t");
        let alone = parsed(&[("keyspace", "k"), (GROUPING_KEY, "none")]).expect("it can be");
        assert_eq!(alone.batch_rows, 1);
    }
}
