//! What the options of a table that is looked up say.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use millstream_engine::api::connector::Table;
use millstream_engine::api::lookup::{CacheLimits, LookupForm};
use millstream_engine::api::options::{OptionError, Options};
use millstream_sql::json::{self, ParseMode};
use millstream_sql::types::spark_type;

use crate::duration;
use crate::redis::options::{Model, key_columns, prefix};
use crate::redis::server::Server;
use crate::redis::source::mode_of;

/// Whether there is a cache.
const CACHE: &str = "lookup.cache";
const ROWS_MAX: &str = "lookup.partial-cache.max-rows";
const BYTES_MAX: &str = "lookup.partial-cache.max-bytes";
const EXPIRE: &str = "lookup.partial-cache.expire-after-write";
const MISSING: &str = "lookup.partial-cache.cache-missing-key";

const ROWS_DEFAULT: usize = 10_000;
const BYTES_DEFAULT: usize = 16 << 20;
const EXPIRE_DEFAULT: Duration = Duration::from_secs(10);

/// A table that is looked up.
#[derive(Clone)]
pub(in crate::redis) struct LookupOptions {
    pub(super) server: Server,
    pub(super) table: String,
    /// What keys begin with.
    pub(super) prefix: String,
    pub(super) model: Model,
    pub(in crate::redis) form: LookupForm,
    pub(super) mode: ParseMode,
}

impl LookupOptions {
    pub(super) fn parse(table: &Table, base_dir: &Path) -> Result<Self, OptionError> {
        let options = &table.options;
        let Some(columns) = &table.columns else {
            let help = "declare the key and the fields, for example (id STRING, address STRING)";
            let problem = "the columns of a table that is looked up must be declared";
            return Err(OptionError::table(problem, Some(help.to_owned())));
        };
        let model = Model::parse(options)?;
        if !matches!(model, Model::Hash | Model::String | Model::Json) {
            let problem = format!("a {} has no row for each key", model.name());
            let help = "rows are looked up in 'model' = 'hash', 'string' or 'json'".to_owned();
            return Err(OptionError::of("model", problem, Some(help)));
        }
        // What Redis lacks is NULL.
        let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
        let fields: Vec<Field> = columns.fields().iter().map(nullable).collect();
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let key = key_columns(options, &schema, model, "the table")?;
        check_key(&schema, &key)?;
        check_values(&schema, &key, model)?;
        let form = LookupForm { schema, key, cache: cache(options)? };
        Ok(Self {
            server: Server::parse(options, base_dir)?,
            table: table.name.clone(),
            prefix: prefix(table)?,
            model,
            form,
            mode: mode_of(options)?,
        })
    }
}

/// Equal values of the key must have equal texts, and different ones different texts.
fn check_key(schema: &SchemaRef, key: &[usize]) -> Result<(), OptionError> {
    for field in key.iter().map(|index| schema.field(*index)) {
        let data_type = field.data_type();
        let is_exact = data_type.is_signed_integer()
            || matches!(
                data_type,
                DataType::Utf8
                    | DataType::Binary
                    | DataType::Boolean
                    | DataType::Date32
                    | DataType::Decimal128(..)
            );
        if !is_exact {
            let problem = format!(
                "'{}' is {}, of which equal values may have different texts",
                field.name(),
                spark_type(data_type)
            );
            let help = "a row is looked up by a STRING, a whole number, a DECIMAL, a DATE, a \
                        BOOLEAN or BINARY: declare it as STRING, and cast in the join"
                .to_owned();
            return Err(OptionError::of("key.column", problem, Some(help)));
        }
    }
    Ok(())
}

fn check_values(schema: &SchemaRef, key: &[usize], model: Model) -> Result<(), OptionError> {
    let values = (0..schema.fields().len()).filter(|index| !key.contains(index));
    let values: Vec<&Field> = values.map(|index| schema.field(index)).collect();
    if model == Model::String && values.len() != 1 {
        let problem =
            format!("'model' = 'string' holds one column, and there are {}", values.len());
        let help = "declare the key and one column, or set 'model' = 'json'".to_owned();
        return Err(OptionError::of("model", problem, Some(help)));
    }
    for field in values {
        if field.data_type().is_nested() && model != Model::Json {
            let (name, own) = (field.name(), spark_type(field.data_type()));
            let problem = format!("column {name} {own} is a text in Redis");
            let help = format!("declare {name} STRING, and write from_json in the query");
            return Err(OptionError::table(problem, Some(help)));
        }
        json::check(field.data_type()).map_err(|error| {
            OptionError::table(format!("column {}: {error}", field.name()), None)
        })?;
    }
    Ok(())
}

fn cache(options: &Options) -> Result<Option<CacheLimits>, OptionError> {
    let is_partial = match options.get(CACHE).map(|text| text.trim().to_ascii_uppercase()) {
        None => false,
        Some(text) if text == "NONE" => false,
        Some(text) if text == "PARTIAL" => true,
        Some(text) => return Err(OptionError::invalid(CACHE, &text, "NONE or PARTIAL")),
    };
    if !is_partial {
        let limits = [ROWS_MAX, BYTES_MAX, EXPIRE, MISSING];
        if let Some(limit) = limits.into_iter().find(|limit| options.get(limit).is_some()) {
            let problem = format!("'{limit}' is given, but there is no cache");
            let help = format!("set '{CACHE}' = 'PARTIAL'");
            return Err(OptionError::of(limit, problem, Some(help)));
        }
        return Ok(None);
    }
    let rows_max = options.parse(ROWS_MAX, "a whole number, 1 or more")?.unwrap_or(ROWS_DEFAULT);
    if rows_max == 0 {
        return Err(OptionError::invalid(ROWS_MAX, "0", "a whole number, 1 or more"));
    }
    let bytes_max = options.parse_bytes(BYTES_MAX)?;
    let bytes_max = bytes_max.map_or(BYTES_DEFAULT, |bytes| bytes.try_into().unwrap_or(usize::MAX));
    let expire_after_write = duration::option(options, EXPIRE)?.unwrap_or(EXPIRE_DEFAULT);
    if expire_after_write.is_zero() {
        let wanted = "a duration such as '10s'; without a cache leave 'lookup.cache' out";
        return Err(OptionError::invalid(EXPIRE, "0", wanted));
    }
    let keeps_missing_keys = options.parse_bool(MISSING)?.unwrap_or(true);
    Ok(Some(CacheLimits { rows_max, bytes_max, expire_after_write, keeps_missing_keys }))
}
