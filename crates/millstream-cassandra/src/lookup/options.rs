//! What the options of a table that is looked up say.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use millstream_engine::api::connector::Table;
use millstream_engine::api::lookup::{CacheLimits, LookupForm, declared_columns};
use millstream_engine::api::options::{OptionError, Options};
use millstream_sql::types::spark_type;

use crate::options::{KEY_COLUMN, READS, within};
use crate::server::Server;

/// Requests that are under way at once.
const CONCURRENT: usize = 128;
/// A connection has 32768 stream ids.
const CONCURRENT_MAX: usize = 8_192;

/// A table that is looked up.
#[derive(Clone)]
pub(crate) struct LookupOptions {
    pub(super) server: Server,
    pub(super) keyspace: String,
    pub(super) table: String,
    pub(crate) form: LookupForm,
    pub(super) requests_max: usize,
}

impl LookupOptions {
    /// Checks a table that names its key; touches nothing.
    ///
    /// # Errors
    /// An option that does not read, or columns that cannot be looked up.
    pub(crate) fn parse(table: &Table, base_dir: &Path) -> Result<Self, OptionError> {
        let options = &table.options;
        let schema = declared_columns(table.columns.as_ref())?;
        let key = key(options, &schema)?;
        Ok(Self {
            server: Server::parse_for_reading(options, base_dir)?,
            keyspace: crate::options::keyspace(options)?.to_owned(),
            table: crate::options::table_name(table)?.to_owned(),
            form: LookupForm { schema, key, cache: CacheLimits::parse(options)? },
            requests_max: within(options, READS, CONCURRENT, CONCURRENT_MAX)?,
        })
    }

    /// The table with its keyspace, for people.
    pub(crate) fn shown(&self) -> String {
        format!("{}.{}", self.keyspace, self.table)
    }

    /// The cluster.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }
}

/// The columns of the key, in the order in which the option names them.
fn key(options: &Options, schema: &Schema) -> Result<Vec<usize>, OptionError> {
    let text = options.get(KEY_COLUMN).unwrap_or_default();
    let mut key = Vec::new();
    for name in text.split(',').map(str::trim) {
        let is_it = |field: &Arc<Field>| field.name().eq_ignore_ascii_case(name);
        let Some(index) = schema.fields().iter().position(is_it) else {
            let names: Vec<&str> =
                schema.fields().iter().map(|field| field.name().as_str()).collect();
            let problem = format!("the table has no column '{name}'");
            let help = format!("its columns are {}", names.join(", "));
            return Err(OptionError::of(KEY_COLUMN, problem, Some(help)));
        };
        if key.contains(&index) {
            return Err(OptionError::of(KEY_COLUMN, format!("'{name}' is there twice"), None));
        }
        check_key(schema.field(index))?;
        key.push(index);
    }
    Ok(key)
}

/// Of a key equal values must be the same bytes, and different ones different bytes.
fn check_key(field: &Field) -> Result<(), OptionError> {
    let data_type = field.data_type();
    let is_exact = data_type.is_signed_integer()
        || matches!(
            data_type,
            DataType::Utf8
                | DataType::Binary
                | DataType::Boolean
                | DataType::Date32
                | DataType::Decimal128(_, 0)
        );
    if is_exact {
        return Ok(());
    }
    let problem = format!(
        "'{}' is {}, of which equal values may be different keys",
        field.name(),
        spark_type(data_type)
    );
    let help = "a row is looked up by a STRING, a whole number, a DATE, a BOOLEAN or BINARY";
    Err(OptionError::of(KEY_COLUMN, problem, Some(help.to_owned())))
}
