//! Whatever other engines have written into a table's log, it is read or refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_fuzz::{Limits, Target, outcome};
use millstream_lake::checkpoint::{
    Checkpointer, LayoutChoice, Settings, cleanup, interval_ms, remove_old,
};
use millstream_lake::describe::describe;
use millstream_lake::history::history;
use millstream_lake::read::TableReader;
use millstream_lake::store::TableStore;
use millstream_lake::stream::{Follower, Position, Rules, StreamTable};
use millstream_lake::table::Table;
use millstream_store::env::Env;
use object_store::memory::InMemory;
use tokio::runtime::Runtime;
use url::Url;

const PROTOCOL: &str = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#;
const METADATA: &str = r#"{"metaData":{"id":"a28ce9de-1997-467c-b72c-d5c82f494477","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}},{\"name\":\"p\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":["p"],"configuration":{"delta.logRetentionDuration":"interval 1 week"},"createdTime":1795333970421}}"#;
const ACTIONS: &str = r#"{"commitInfo":{"timestamp":1795334026275,"operation":"WRITE","operationParameters":{"mode":"Append"},"userMetadata":"{\"batchId\":4,\"millstreamAttempt\":\"m\"}"}}
{"txn":{"appId":"q","version":4,"lastUpdated":1795334026275}}
{"add":{"path":"p=a%20b/part-1.parquet","partitionValues":{"p":"a b"},"size":3104,"modificationTime":1795334026217,"dataChange":true,"stats":"{\"numRecords\":5,\"minValues\":{\"id\":5},\"maxValues\":{\"id\":9},\"nullCount\":{\"id\":0}}","deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6}}}
{"remove":{"path":"part-0.parquet","deletionTimestamp":1795334026217,"dataChange":true,"extendedFileMetadata":true,"partitionValues":{"p":null},"size":1}}
{"domainMetadata":{"domain":"d","configuration":"{}","removed":false}}"#;

const WORDS: &[&str] = &[
    "\"add\":",
    "\"remove\":",
    "\"txn\":",
    "\"metaData\":",
    "\"protocol\":",
    "\"commitInfo\":",
    "\"deletionVector\":",
    "\"storageType\":\"i\"",
    "\"path\":",
    "\"stats\":",
    "\"size\":",
    "\"partitionValues\":",
    "\"schemaString\":",
    "\\\"type\\\":",
    "\\\"struct\\\"",
    "\\\"decimal(10,2)\\\"",
    "\\\"timestamp\\\"",
    "\\\"array\\\"",
    "\\\"elementType\\\":",
    "\"readerFeatures\":[\"deletionVectors\"]",
    "\"minReaderVersion\":3",
    "null",
    "{",
    "}",
    "[",
    "]",
    "\\\"",
    "\n",
    "%",
    "%2",
    "../",
    "/",
    ":",
    "://",
    "\"checkpointMetadata\":",
    "\"sidecar\":",
    "\"delta.columnMapping.mode\":\"name\"",
    "\"delta.checkpointPolicy\":\"v2\"",
];

/// A table in memory, and the world around it.
struct World {
    env: Env,
    _runtime: Runtime,
}

impl World {
    fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let env = runtime.block_on(async { Env::real() });
        Self { env, _runtime: runtime }
    }

    fn table(&self, files: &[(String, Vec<u8>)]) -> TableStore {
        let url = Url::parse("memory:///table/").expect("a URL");
        let store = Arc::new(InMemory::new());
        let store = TableStore::new(store, object_store::path::Path::from("table"), url, &self.env);
        for (name, content) in files {
            store.put(name, content.clone().into()).expect("it is in memory");
        }
        store
    }
}

fn commit(version: u64, text: &[u8]) -> (String, Vec<u8>) {
    (format!("_delta_log/{version:020}.json"), text.to_vec())
}

fn settings() -> Settings {
    Settings { owner: "me".to_owned(), layout: LayoutChoice::Classic, ..Settings::default() }
}

/// Everything that is ever read of a table.
fn read(store: &TableStore) -> String {
    let reader = match TableReader::open(store) {
        Ok(reader) => reader,
        Err(error) => return error.to_string(),
    };
    let rows = reader.read(None, None);
    let rows = rows.map(|rows| rows.map(|rows| outcome(&rows)).collect::<String>());
    let found = [
        outcome(&reader.schema()),
        outcome(&reader.rows_estimate()),
        outcome(&reader.fingerprint()),
        outcome(&describe(&reader)),
        outcome(&history(&reader, 10)),
        rows.unwrap_or_else(|error| error.to_string()),
        outcome(&reader.at_version(0)),
        outcome(&reader.at_timestamp(1_795_334_026_275)),
        followed(store, false),
        followed(store, true),
    ];
    found.concat()
}

/// The table as a stream, from its beginning and from its newest version on.
fn followed(store: &TableStore, gives_changes: bool) -> String {
    let table = match StreamTable::open(store, gives_changes) {
        Ok(table) => Arc::new(table),
        Err(error) => return error.to_string(),
    };
    let scan = table.scan(&[0]);
    let mut found = String::new();
    for start in [Position::before(0), Position::before(1), Position::snapshot(table.version())] {
        let follower = Follower::new(Arc::clone(&table), start, Rules::default());
        let Ok(mut follower) = follower.map_err(|error| found.push_str(&error.to_string())) else {
            continue;
        };
        while let Some(step) = follower.next_step().unwrap_or_default() {
            found.push_str(&format!("{:?}", step.after));
            if let (Some(file), Ok(scan)) = (&step.file, &scan) {
                found.extend(scan.rows(file).map(|rows| outcome(&rows)));
                found.push_str(&outcome(&scan.count(file)));
            }
        }
        found.push_str(&outcome(&follower.look_around()));
    }
    found
}

/// Everything that a writer reads and does beside appending.
fn care(store: &TableStore) -> String {
    let table = Table::open(store);
    let published = table.as_ref().map(|table| table.last_published("q"));
    let note = table.as_ref().map(|table| table.note_of("q", 4));
    let mut checkpointer = Checkpointer::open(store.clone(), settings());
    let written = checkpointer.as_mut().map(|checkpointer| {
        let prepared = outcome(&checkpointer.prepare());
        format!("{prepared} {}", outcome(&checkpointer.write(1)))
    });
    let care = [outcome(&cleanup(store, 0, 0)), outcome(&remove_old(store, i64::MAX))];
    format!("{published:?} {note:?} {written:?} {care:?}")
}

#[test]
fn fuzz_commits() {
    let world = World::new();
    let first = format!("{PROTOCOL}\n{METADATA}\n");
    Target::text("delta_commits").seeds([ACTIONS]).words(WORDS).run(move |input| {
        let store = world.table(&[commit(0, first.as_bytes()), commit(1, input)]);
        format!("{} {}", read(&store), care(&store))
    });
}

#[test]
fn fuzz_schemas_and_properties() {
    let world = World::new();
    let mapped = fs::read(mapped().join("_delta_log/00000000000000000000.json")).expect("a commit");
    let seeds = [format!("{PROTOCOL}\n{METADATA}\n").into_bytes(), mapped];
    Target::text("delta_metadata").seeds(seeds).words(WORDS).run(move |input| {
        let store = world.table(&[commit(0, input), commit(1, ACTIONS.as_bytes())]);
        format!("{} {}", read(&store), care(&store))
    });
}

#[test]
fn fuzz_hints_and_checksums() {
    let world = World::new();
    let first = format!("{PROTOCOL}\n{METADATA}\n");
    let files = [commit(0, first.as_bytes()), commit(1, ACTIONS.as_bytes())];
    let store = world.table(&files);
    let mut checkpointer = Checkpointer::open(store.clone(), settings()).expect("a checkpointer");
    checkpointer.write(1).expect("a checkpoint");
    let hint = store.get("_delta_log/_last_checkpoint").expect("a hint").to_vec();
    let checkpoint = store.list("_delta_log", None).expect("a list").into_iter();
    let checkpoint = checkpoint.map(|file| file.name).find(|name| name.ends_with(".parquet"));
    let name = checkpoint.expect("a checkpoint");
    let content = store.get(&name).expect("a checkpoint").to_vec();
    let with = move |hint: &[u8], checkpoint: &[u8]| {
        let own = [
            ("_delta_log/_last_checkpoint".to_owned(), hint.to_vec()),
            (name.clone(), checkpoint.to_vec()),
        ];
        let store = world.table(&[&files[..], &own].concat());
        format!("{} {}", read(&store), care(&store))
    };
    let with = Arc::new(with);
    let (of_hint, of_checkpoint) = (Arc::clone(&with), with);
    let (sound_hint, sound) = (hint.clone(), content.clone());
    let words = &["\"version\":", "\"parts\":", "\"checksum\":", "\"size\":", "{", "}"];
    let target = Target::text("delta_hint").seeds([hint]).words(words);
    target.run(move |input| of_hint(input, &sound));
    let limits = Limits { input_bytes: 32 << 10, ..Limits::default() };
    let target = Target::bytes("delta_checkpoint").seeds([content]).limits(limits);
    target.run(move |input| of_checkpoint(&sound_hint, input));
}

fn mapped() -> PathBuf {
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("tests/data/mapped")
}

/// The files of a table of another engine, by their names.
fn files_below(directory: &Path, name: &str, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let own = path.file_name().expect("a name").to_string_lossy();
        let name = if name.is_empty() { own.into_owned() } else { format!("{name}/{own}") };
        if path.is_dir() {
            files_below(&path, &name, files);
        } else {
            files.push((name, fs::read(path).expect("a file")));
        }
    }
}

#[test]
fn fuzz_deletion_vectors_and_data_files() {
    let world = Arc::new(World::new());
    let mut files = Vec::new();
    files_below(&mapped(), "", &mut files);
    let ends = |end: &str| files.iter().position(|(name, _)| name.ends_with(end)).expect("a file");
    let (vector, data) = (ends(".bin"), ends(".parquet"));
    for (name, at) in [("delta_deletion_vector", vector), ("delta_data_file", data)] {
        let (world, mut files) = (Arc::clone(&world), files.clone());
        let seed = files.swap_remove(at);
        Target::bytes(name).seeds([seed.1]).run(move |input| {
            let own = [(seed.0.clone(), input.to_vec())];
            read(&world.table(&[&files[..], &own].concat()))
        });
    }
}

#[test]
fn fuzz_intervals() {
    let words = &["interval ", "week", "days", "-", " ", "microsecond"];
    Target::text("delta_intervals")
        .seeds(["interval 2 days 12 hours"])
        .words(words)
        .run(|input| format!("{:?}", interval_ms(&String::from_utf8_lossy(input)).is_some()));
}
