//! A table whose commits a test writes itself, and what it should hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_lake::checkpoint::{Checkpointer, LayoutChoice, Settings};
use millstream_lake::kernel::probe::{Seen, look};
use millstream_lake::store::TableStore;
use millstream_store::env::Env;
use object_store::memory::InMemory;
use object_store::path::Path;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use url::Url;

/// Applications that tests use.
pub const APPS: [&str; 3] = ["idle", "busy", "late"];

pub struct Table {
    pub store: TableStore,
    /// The last version; none before the first commit.
    pub version: Option<u64>,
    /// Bytes by path and deletion vector, as [`Seen`] has them.
    pub files: BTreeMap<String, i64>,
    pub transactions: BTreeMap<String, i64>,
    _runtime: Runtime,
}

impl Table {
    /// An empty table with these table features.
    pub fn new(features: &[&str]) -> Self {
        let url = Url::parse("memory:///table/").unwrap();
        Self::on(features, |env| {
            TableStore::new(Arc::new(InMemory::new()), Path::from("table"), url, env)
        })
    }

    pub fn on(features: &[&str], store: impl FnOnce(&Env) -> TableStore) -> Self {
        let runtime = Runtime::new().unwrap();
        let env = runtime.block_on(async { Env::real() });
        let mut table = Self {
            store: store(&env),
            version: None,
            files: BTreeMap::new(),
            transactions: BTreeMap::new(),
            _runtime: runtime,
        };
        table.commit(&[protocol(features), metadata(json!({}))]);
        table
    }

    pub fn commit(&mut self, actions: &[Value]) -> u64 {
        let version = self.version.map_or(0, |version| version + 1);
        let mut lines = format!("{}\n", json!({"commitInfo": {"operation": "WRITE"}}));
        for action in actions {
            lines.push_str(&format!("{action}\n"));
            self.apply(action);
        }
        let name = format!("_delta_log/{version:020}.json");
        self.store.put_new(&name, lines.into()).unwrap();
        self.version = Some(version);
        version
    }

    fn apply(&mut self, action: &Value) {
        let file = |action: &Value| {
            let path = action["path"].as_str().unwrap().to_owned();
            match action["deletionVector"]["cardinality"].as_i64() {
                Some(rows) => format!("{path} without {rows}"),
                None => path,
            }
        };
        if let Some(add) = action.get("add") {
            self.files.insert(file(add), add["size"].as_i64().unwrap());
        } else if let Some(remove) = action.get("remove") {
            self.files.remove(&file(remove));
        } else if let Some(txn) = action.get("txn") {
            let app = txn["appId"].as_str().unwrap().to_owned();
            self.transactions.insert(app, txn["version"].as_i64().unwrap());
        }
    }

    /// Commits `count` new files under names that `draw` makes good.
    pub fn append(&mut self, count: usize, draw: impl Fn(&mut dyn FnMut() -> String) -> String) {
        let env = self.store.env().clone();
        let names = (0..count).map(|_| draw(&mut || format!("{}.parquet", env.random_uuid())));
        let adds: Vec<_> = names.map(|name| add(&name, 100)).collect();
        self.commit(&adds);
    }

    pub fn newest(&self) -> u64 {
        self.version.unwrap()
    }

    /// Deletes the commits below `version`, so that a reader needs the checkpoint.
    pub fn forget_commits_below(&self, version: u64) {
        let names: Vec<_> = (0..version).map(|at| format!("_delta_log/{at:020}.json")).collect();
        self.store.delete_many(&names).unwrap();
    }

    pub fn expected(&self) -> Seen {
        Seen {
            version: self.newest(),
            files: self.files.clone(),
            transactions: self.transactions.clone(),
        }
    }

    pub fn seen(&self) -> Seen {
        look(&self.store, &APPS).unwrap()
    }

    /// # Panics
    /// If a reader sees something else than was committed.
    pub fn check(&self) {
        assert_eq!(self.seen(), self.expected());
    }

    pub fn log(&self) -> Vec<String> {
        let listed = self.store.list("_delta_log", None).unwrap();
        listed.into_iter().map(|file| file.name["_delta_log/".len()..].to_owned()).collect()
    }

    pub fn checkpointer(&self, layout: LayoutChoice, part_rows: u64) -> Checkpointer {
        let settings = Settings { part_rows, layout, ..Settings::default() };
        Checkpointer::open(self.store.clone(), settings).unwrap()
    }
}

/// Any name will do.
pub fn any(names: &mut dyn FnMut() -> String) -> String {
    names()
}

pub fn protocol(features: &[&str]) -> Value {
    json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": features, "writerFeatures": features}})
}

pub fn metadata(configuration: Value) -> Value {
    let schema = json!({"type": "struct", "fields": [
        {"name": "x", "type": "long", "nullable": true, "metadata": {}},
        {"name": "day", "type": "string", "nullable": true, "metadata": {}},
    ]});
    json!({"metaData": {"id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}}, "schemaString": schema.to_string(),
        "partitionColumns": ["day"], "configuration": configuration, "createdTime": 1}})
}

pub fn add(path: &str, size: i64) -> Value {
    let stats = json!({"numRecords": size, "minValues": {"x": 0}, "maxValues": {"x": size}});
    json!({"add": {"path": path, "partitionValues": {"day": "2026-01-01"}, "size": size,
        "modificationTime": 5, "dataChange": true, "stats": stats.to_string()}})
}

pub fn remove(path: &str, deleted_at_ms: i64) -> Value {
    json!({"remove": {"path": path, "deletionTimestamp": deleted_at_ms, "dataChange": true,
        "extendedFileMetadata": true, "partitionValues": {"day": "2026-01-01"}, "size": 1}})
}

/// The action with a deletion vector that takes away `rows` rows.
pub fn with_vector(mut action: Value, rows: i64) -> Value {
    let kind = if action.get("add").is_some() { "add" } else { "remove" };
    action[kind]["deletionVector"] = json!({"storageType": "u", "pathOrInlineDv":
        format!("ab^-aqEH.-t@S}}K{{vb[*k^{rows:04}"), "offset": 4, "sizeInBytes": 40,
        "cardinality": rows});
    action
}

pub fn txn(app: &str, version: i64) -> Value {
    json!({"txn": {"appId": app, "version": version}})
}
