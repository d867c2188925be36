//! What a table is, for people: schema, properties, size and the state of its log.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use serde_json::Value;

use crate::checkpoint::facts_of::{self, CheckpointFacts};
use crate::error::TableError;
use crate::read::{TableReader, live_files};

/// A table at one version.
#[derive(Clone, Debug)]
pub struct Description {
    /// Where it is.
    pub location: String,
    /// Which version is described.
    pub version: u64,
    /// The table's own identifier.
    pub id: String,
    /// The table's name, if it was given one.
    pub name: Option<String>,
    /// The user's words.
    pub description: Option<String>,
    /// All columns, partition columns among them.
    pub schema: SchemaRef,
    /// The columns that files are sorted into directories by.
    pub partition_columns: Vec<String>,
    /// `delta.*` and other properties.
    pub properties: BTreeMap<String, String>,
    /// The reader version of the protocol.
    pub reader_version: i64,
    /// The writer version of the protocol.
    pub writer_version: i64,
    /// Features that readers must know.
    pub reader_features: Vec<String>,
    /// Features that writers must know.
    pub writer_features: Vec<String>,
    /// Live files.
    pub files: u64,
    /// Bytes of the live files.
    pub bytes: u64,
    /// The checkpoint that reading begins with.
    pub checkpoint: Option<CheckpointFacts>,
}

/// Describes the version that `reader` stands at. Reads the log if nothing else tells the size.
pub fn describe(reader: &TableReader) -> Result<Description, TableError> {
    let (files, bytes) = size(reader)?;
    let snapshot = reader.snapshot();
    let configuration = snapshot.table_configuration();
    let json = |value: Result<Value, serde_json::Error>| {
        value.map_err(|error| TableError::Damaged {
            table: reader.store().shown(),
            problem: error.to_string(),
        })
    };
    let metadata = json(serde_json::to_value(configuration.metadata()))?;
    let protocol = json(serde_json::to_value(configuration.protocol()))?;
    let parts = &snapshot.log_segment().listed.checkpoint_parts;
    let parts = parts.iter().filter_map(|part| reader.store().name_of(&part.location.location));
    let text = |key: &str| metadata[key].as_str().map(str::to_owned);
    Ok(Description {
        location: reader.store().shown(),
        version: snapshot.version(),
        id: text("id").unwrap_or_default(),
        name: text("name"),
        description: text("description"),
        schema: reader.schema()?,
        partition_columns: reader.partition_columns(),
        properties: snapshot.metadata_configuration().clone().into_iter().collect(),
        reader_version: protocol["minReaderVersion"].as_i64().unwrap_or(0),
        writer_version: protocol["minWriterVersion"].as_i64().unwrap_or(0),
        reader_features: features(&protocol["readerFeatures"]),
        writer_features: features(&protocol["writerFeatures"]),
        files,
        bytes,
        checkpoint: facts_of::checkpoint(reader.store(), &parts.collect::<Vec<_>>())?,
    })
}

/// Live files and their bytes.
fn size(reader: &TableReader) -> Result<(u64, u64), TableError> {
    if let Some(stats) = reader.snapshot().get_file_stats_if_present()
        && let (Ok(files), Ok(bytes)) =
            (u64::try_from(stats.num_files()), u64::try_from(stats.table_size_bytes()))
    {
        return Ok((files, bytes));
    }
    let files = live_files(reader)?;
    let bytes = files.iter().map(|file| u64::try_from(file.size).unwrap_or(0)).sum();
    Ok((files.len() as u64, bytes))
}

fn features(list: &Value) -> Vec<String> {
    let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}
