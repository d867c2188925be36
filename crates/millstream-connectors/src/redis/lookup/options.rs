//! What the options of a table that is looked up say.

use std::path::Path;

use arrow::datatypes::{DataType, Field, SchemaRef};
use millstream_engine::api::connector::Table;
use millstream_engine::api::lookup::{CacheLimits, LookupForm, declared_columns};
use millstream_engine::api::needs::Need;
use millstream_engine::api::options::OptionError;
use millstream_sql::json::{self, ParseMode};
use millstream_sql::types::spark_type;

use crate::redis::options::{Model, key_columns, prefix};
use crate::redis::server::{Server, of_cluster};
use crate::redis::source::mode_of;

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
    /// What a table needs of its server.
    pub(in crate::redis) fn needs(&self) -> Vec<Need> {
        let commands: &[&str] = match self.model {
            Model::Hash => &["HMGET", "HGETALL", "HLEN", "TYPE"],
            _ => &["GET", "TYPE"],
        };
        let keys = format!("keys '{}:*'", self.prefix);
        let mut needs = self.server.needs();
        needs.push(Need::rights(commands, keys, "looking rows up"));
        needs.push(Need::rights(&["INFO"], "the server", "whether it is part of a cluster"));
        needs.push(of_cluster());
        needs
    }

    pub(super) fn parse(table: &Table, base_dir: &Path) -> Result<Self, OptionError> {
        let options = &table.options;
        let schema = declared_columns(table.columns.as_ref())?;
        let model = Model::parse(options)?;
        if !matches!(model, Model::Hash | Model::String | Model::Json) {
            let problem = format!("a {} has no row for each key", model.name());
            let help = "rows are looked up in 'model' = 'hash', 'string' or 'json'".to_owned();
            return Err(OptionError::of("model", problem, Some(help)));
        }
        let key = key_columns(options, &schema, model, "the table")?;
        check_key(&schema, &key)?;
        check_values(&schema, &key, model)?;
        let form = LookupForm { schema, key, cache: CacheLimits::parse(options)? };
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
