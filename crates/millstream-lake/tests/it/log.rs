//! Tables of which only the log is there, written by hand.

use std::fs;
use std::sync::Arc;

use millstream_lake::stream::{Change, Follower, Position, Rules, Step, StreamError, StreamTable};

use crate::support::World;

pub const SCHEMA: &str = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}"#;
pub const WIDER: &str = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}},{\"name\":\"more\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}}]}"#;
pub const OTHER: &str = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}}]}"#;

pub fn metadata(id: &str, schema: &str, properties: &str) -> String {
    metadata_with(id, schema, properties, "")
}

/// `partitions` are names in quotes.
pub fn metadata_with(id: &str, schema: &str, properties: &str, partitions: &str) -> String {
    format!(
        r#"{{"metaData":{{"id":"{id}","format":{{"provider":"parquet","options":{{}}}},"schemaString":"{schema}","partitionColumns":[{partitions}],"configuration":{{{properties}}},"createdTime":1}}}}"#
    )
}

pub fn add(path: &str) -> String {
    add_with(path, 5, true, "")
}

pub fn add_with(path: &str, modified_ms: i64, data_change: bool, more: &str) -> String {
    format!(
        r#"{{"add":{{"path":"{path}","partitionValues":{{}},"size":7,"modificationTime":{modified_ms},"dataChange":{data_change},"stats":"{{\"numRecords\":3}}"{more}}}}}"#
    )
}

pub fn remove(path: &str, data_change: bool) -> String {
    format!(
        r#"{{"remove":{{"path":"{path}","deletionTimestamp":1,"dataChange":{data_change},"size":7}}}}"#
    )
}

/// A table of which only the log is there.
pub struct Log {
    pub world: World,
}

pub fn protocol() -> String {
    r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#.to_owned()
}

/// With column mapping and a feed of changes.
fn protocol_with_features() -> String {
    r#"{"protocol":{"minReaderVersion":2,"minWriterVersion":5}}"#.to_owned()
}

pub const CHANGE_FEED: &str = r#""delta.enableChangeDataFeed":"true""#;

impl Log {
    pub fn new(properties: &str) -> Self {
        Self::with(metadata("t", SCHEMA, properties))
    }

    pub fn with(metadata: String) -> Self {
        let log = Self { world: World::new() };
        let is_plain = metadata.contains(r#""configuration":{}"#);
        let protocol = if is_plain { protocol() } else { protocol_with_features() };
        log.commit(0, &[protocol, metadata]);
        log
    }

    pub fn directory(&self) -> std::path::PathBuf {
        self.world.directory.path().join("a table")
    }

    pub fn path(&self, version: u64) -> std::path::PathBuf {
        let log = self.directory().join("_delta_log");
        fs::create_dir_all(&log).expect("a directory");
        log.join(format!("{version:020}.json"))
    }

    pub fn commit(&self, version: u64, actions: &[String]) {
        fs::write(self.path(version), actions.join("\n")).expect("it is writable");
    }

    pub fn open(&self) -> Arc<StreamTable> {
        Arc::new(StreamTable::open(&self.world.store(), false).expect("a table"))
    }

    pub fn follower(&self, position: Position, rules: Rules) -> Result<Follower, StreamError> {
        Follower::new(self.open(), position, rules)
    }

    pub fn steps(&self, position: Position, rules: Rules) -> Result<Vec<String>, StreamError> {
        all(&mut self.follower(position, rules)?)
    }
}

/// What comes until nothing does: path and number, or the end of a version.
pub fn all(follower: &mut Follower) -> Result<Vec<String>, StreamError> {
    let mut steps = Vec::new();
    while let Some(step) = follower.next_step()? {
        steps.push(shown(&step));
    }
    Ok(steps)
}

fn shown(step: &Step) -> String {
    let Position { version, index, is_in_snapshot } = step.after;
    match &step.file {
        Some(file) => {
            let index = index.expect("a number");
            let sign = match file.change {
                Change::Insert => "",
                Change::Delete => "-",
                Change::Stated => "~",
            };
            let all = if is_in_snapshot { " of all" } else { "" };
            format!("{version}/{index} {sign}{}{all}", file.path)
        }
        None => format!("{version}"),
    }
}

pub fn strict() -> Rules {
    Rules::default()
}
