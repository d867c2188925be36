//! What may stand in the OPTIONS of a table that rows are merged into.

use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use millstream_engine::api::connector::ReplacingKeys;
use millstream_engine::api::options::{OptionError, Options};
use millstream_lake::merge::{NO_KEY, can_be_key};
use millstream_sql::types::spark_type;

const MODE: &str = "mode";
const KEYS: &str = "keys";
const DELETE_COLUMN: &str = "delete.column";
const INDEX_MEMORY: &str = "merge.indexMemory";
const TARGET_FILE_SIZE: &str = "targetFileSize";
const KEYS_HELP: &str = "write 'keys' = 'id', or with several columns 'keys' = 'a, b'";
/// Less than this holds no index that is worth it.
const INDEX_BYTES_MIN: u64 = 1 << 20;

/// How rows are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MergeOptions {
    /// The key columns, as written.
    pub(super) keys: Vec<String>,
    /// The column that says which rows are deleted.
    pub(super) delete_column: Option<String>,
    /// Memory of the index; `None`: as much as there is.
    pub(super) index_bytes: Option<u64>,
}

impl MergeOptions {
    /// `None` for a table that rows are appended to.
    pub(super) fn parse(options: &Options) -> Result<Option<Self>, OptionError> {
        let mode = options.get(MODE).map_or("append", str::trim);
        if mode.eq_ignore_ascii_case("append") {
            let given = [KEYS, DELETE_COLUMN, INDEX_MEMORY];
            return match given.into_iter().find(|key| options.get(key).is_some()) {
                None => Ok(None),
                Some(key) => {
                    let problem = format!("'{key}' is given, and 'mode' is not 'merge'");
                    let help = format!("add 'mode' = 'merge', or leave '{key}' out");
                    Err(OptionError::of(key, problem, Some(help)))
                }
            };
        }
        if !mode.eq_ignore_ascii_case("merge") {
            return Err(OptionError::invalid(MODE, mode, "append or merge"));
        }
        if options.get(TARGET_FILE_SIZE).is_some() {
            let problem = format!("'{TARGET_FILE_SIZE}' has no effect with 'mode' = 'merge'");
            let help = "leave it out: a commit writes one file for each partition, and \
                        'autoCompact' = 'true' puts files together";
            return Err(OptionError::of(TARGET_FILE_SIZE, problem, Some(help.to_owned())));
        }
        let keys = options.get(KEYS).unwrap_or_default().split(',').map(str::trim);
        let keys: Vec<String> = keys.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if keys.is_empty() {
            return Err(OptionError::missing(KEYS, KEYS_HELP));
        }
        let delete_column = options.get(DELETE_COLUMN).map(|name| name.trim().to_owned());
        let index_bytes = options.parse_bytes(INDEX_MEMORY)?;
        match index_bytes {
            Some(bytes) if bytes < INDEX_BYTES_MIN => {
                Err(OptionError::invalid(INDEX_MEMORY, &bytes.to_string(), "1mb or more"))
            }
            _ => Ok(Some(Self { keys, delete_column, index_bytes })),
        }
    }

    /// Where the keys are among columns of `schema`.
    pub(super) fn replacing(&self, schema: &SchemaRef) -> ReplacingKeys {
        let is_key =
            |field: &&FieldRef| self.keys.iter().any(|key| key.eq_ignore_ascii_case(field.name()));
        let columns = schema.fields().iter().enumerate().filter(|(_, field)| is_key(field));
        ReplacingKeys { option: KEYS, columns: columns.map(|(index, _)| index).collect() }
    }

    /// Checks rows of `schema` as far as that goes without looking at the table.
    pub(super) fn check(&self, schema: &SchemaRef) -> Result<(), OptionError> {
        for (index, name) in self.keys.iter().enumerate() {
            let field = column(schema, KEYS, name)?;
            if self.keys[..index].iter().any(|other| other.eq_ignore_ascii_case(name)) {
                return Err(OptionError::of(KEYS, format!("'keys' has {name} twice"), None));
            }
            if !can_be_key(field.data_type()) {
                let found = spark_type(field.data_type());
                let problem = format!("{name} is {found}, which cannot be a key: {NO_KEY}");
                let help = format!("select it as one of them, CAST({name} AS STRING) for example");
                return Err(OptionError::of(KEYS, problem, Some(help)));
            }
        }
        let Some(name) = &self.delete_column else { return Ok(()) };
        if *column(schema, DELETE_COLUMN, name)?.data_type() != DataType::Boolean {
            let problem = format!("'{name}' is not BOOLEAN");
            let help = format!("select a condition, for example op = 'd' AS {name}");
            return Err(OptionError::of(DELETE_COLUMN, problem, Some(help)));
        }
        if self.keys.iter().any(|key| key.eq_ignore_ascii_case(name)) {
            let problem = format!("'{name}' is one of 'keys', and is not written");
            let help = Some("select a column of its own that says what is deleted".to_owned());
            return Err(OptionError::of(DELETE_COLUMN, problem, help));
        }
        Ok(())
    }
}

fn column<'a>(schema: &'a SchemaRef, key: &str, name: &str) -> Result<&'a FieldRef, OptionError> {
    let is_it = |field: &&FieldRef| field.name().eq_ignore_ascii_case(name);
    schema.fields().iter().find(is_it).ok_or_else(|| {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let problem = format!("the query has no column '{name}'");
        OptionError::of(key, problem, Some(format!("its columns are {}", names.join(", "))))
    })
}
