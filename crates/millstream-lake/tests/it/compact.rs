//! Small files put together, on request and beside a stream.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use millstream_lake::bucket::ClusterBy;
use millstream_lake::compact::background::AutoCompact;
use millstream_lake::compact::optimize::{OptimizeOptions, Optimized, optimize};
use millstream_lake::error::TableError;
use millstream_lake::file_writer::{FileSettings, FileWriter, WritePlan};
use millstream_lake::maintenance::{Care, LiveTable};
use millstream_lake::read::TableReader;
use millstream_lake::store::TableStore;
use millstream_lake::table::{Append, NewTable, Table};
use serde_json::{Value, json};

use crate::foreign;
use crate::proxy_store::Fate;
use crate::support::{World, append, create, rows, schema, written};

const ALL: OptimizeOptions<'static> =
    OptimizeOptions { target_bytes: 1 << 20, partitions: None, condition: None, is_dry_run: false };

fn optimized(store: &TableStore, options: &OptimizeOptions<'_>) -> Optimized {
    optimize(store, options).expect("nothing is in the way")
}

/// All `id`s, sorted.
fn ids(reader: &TableReader) -> Vec<i64> {
    let read = reader.read(Some(&["id".to_owned()]), None).expect("a read");
    let ids = |rows: RecordBatch| rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    let mut found: Vec<i64> = read.flat_map(|rows| ids(rows.expect("rows"))).collect();
    found.sort_unstable();
    found
}

fn newest_ids(world: &World) -> Vec<i64> {
    ids(&TableReader::open(&world.store()).expect("the table"))
}

fn root(world: &World) -> PathBuf {
    world.directory.path().join("a table")
}

/// The actions of a commit.
fn actions(world: &World, version: u64) -> Vec<Value> {
    let path = root(world).join(format!("_delta_log/{version:020}.json"));
    let text = fs::read_to_string(path).expect("a commit");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn of<'a>(actions: &'a [Value], kind: &str) -> Vec<&'a Value> {
    actions.iter().filter_map(|action| action.get(kind)).collect()
}

/// The data files in the directory, whether a version names them or not.
fn data_files(world: &World) -> usize {
    let files = world.store().list("", None).expect("a listing");
    files.iter().filter(|file| file.name.ends_with(".parquet")).count()
}

fn live_files(world: &World) -> u64 {
    Table::open(&world.store()).expect("the table").count_files().expect("a scan")
}

/// `count` appends of ten rows each.
fn appended(world: &World, partition_by: &[String], count: i64) -> Table {
    let table = create(&world.store(), partition_by);
    for version in 0..count {
        append(&table, "q", version, &rows(version * 10, 10)).expect("published");
    }
    table
}

/// A commit of another writer.
fn foreign_commit(world: &World, version: u64, actions: &[Value]) {
    let info = json!({"commitInfo": {"timestamp": 1, "operation": "DELETE"}});
    let lines: String =
        [&info].into_iter().chain(actions).map(|line| format!("{line}\n")).collect();
    let path = root(world).join(format!("_delta_log/{version:020}.json"));
    fs::write(path, lines).expect("it is writable");
}

#[test]
fn small_files_become_one_and_all_rows_stay() {
    let world = World::new();
    let table = appended(&world, &[], 6);
    let dry = optimized(&world.store(), &OptimizeOptions { is_dry_run: true, ..ALL });
    assert_eq!((dry.files_removed, dry.files_added, dry.version), (6, 1, 6));
    assert_eq!(data_files(&world), 6, "nothing was written");

    let done = optimized(&world.store(), &ALL);
    let counts = (done.files_removed, done.files_added, done.commits, done.version);
    assert_eq!(counts, (6, 1, 1, 7));
    assert_eq!(newest_ids(&world), (0..60).collect::<Vec<_>>());
    assert_eq!((live_files(&world), data_files(&world)), (1, 7));

    let actions = actions(&world, 7);
    let (adds, removes) = (of(&actions, "add"), of(&actions, "remove"));
    assert_eq!((adds.len(), removes.len()), (1, 6));
    assert!(adds.iter().chain(&removes).all(|file| file["dataChange"] == json!(false)));
    let statistics: Value =
        serde_json::from_str(adds[0]["stats"].as_str().expect("text")).expect("JSON");
    assert_eq!(statistics["numRecords"], json!(60));
    assert_eq!(statistics["maxValues"]["id"], json!(59));
    let info = of(&actions, "commitInfo")[0];
    assert_eq!((&info["operation"], &info["readVersion"]), (&json!("OPTIMIZE"), &json!(6)));
    assert_eq!(info["operationMetrics"]["numRemovedFiles"], json!("6"));
    assert!(of(&actions, "txn").is_empty(), "nobody's progress is touched");

    // The query that has written goes on, and older versions are there.
    assert_eq!(table.last_published("q").expect("readable"), Some(5));
    append(&table, "q", 6, &rows(60, 10)).expect("published");
    let old = TableReader::open(&world.store()).expect("the table").at_version(6);
    assert_eq!(ids(&old.expect("a version")), (0..60).collect::<Vec<_>>());
    assert_eq!(newest_ids(&world), (0..70).collect::<Vec<_>>());
    let records = world.store().list("_millstream", None).expect("a listing");
    assert!(records.is_empty(), "nothing is left over: {records:?}");
}

#[test]
fn nothing_small_is_nothing_to_do() {
    let world = World::new();
    appended(&world, &[], 3);
    assert_eq!(optimized(&world.store(), &ALL).commits, 1);
    assert_eq!(optimized(&world.store(), &ALL).commits, 0);
    assert_eq!(live_files(&world), 1);
}

#[test]
fn files_stay_in_their_partitions_and_only_those_asked_for_are_touched() {
    let world = World::new();
    let table = create(&world.store(), &["name".to_owned()]);
    for version in 0..3 {
        append(&table, "q", version, &rows(0, 2)).expect("published");
    }
    let is_first = |rows: &RecordBatch| {
        let names = rows.column_by_name("name").expect("the column").as_string::<i32>();
        Ok(names.iter().map(|name| name == Some("name 0")).collect())
    };
    let options =
        OptimizeOptions { partitions: Some(&is_first), condition: Some("name = 'name 0'"), ..ALL };
    let done = optimized(&world.store(), &options);
    assert_eq!((done.files_removed, done.files_added), (3, 1));
    let actions = actions(&world, done.version);
    let add = of(&actions, "add")[0];
    assert_eq!(add["partitionValues"], json!({"name": "name 0"}));
    assert!(add["path"].as_str().expect("a path").starts_with("name=name%200/"), "{add}");
    let info = of(&actions, "commitInfo")[0];
    assert_eq!(info["operationParameters"]["predicate"], json!(r#"["name = 'name 0'"]"#));
    assert_eq!(newest_ids(&world), [0, 0, 0, 1, 1, 1]);
    let failing = |_: &RecordBatch| Err("it cannot be computed".to_owned());
    let refused = optimize(&world.store(), &OptimizeOptions { partitions: Some(&failing), ..ALL });
    assert!(matches!(refused, Err(TableError::Condition { .. })), "{refused:?}");
}

#[test]
fn files_stay_in_their_buckets() {
    let world = World::new();
    let table = create(&world.store(), &[]);
    let cluster_by = Some(ClusterBy { column: "id".to_owned(), buckets: 4 });
    let settings = FileSettings { cluster_by, ..FileSettings::default() };
    let plan = WritePlan::new(&table, &schema(), settings).expect("they fit");
    for version in 0..3 {
        let mut writer = FileWriter::new(plan.clone(), table.store());
        writer.write(&rows(version * 100, 100)).expect("written");
        let (files, prepared_by) = (writer.finish().expect("files"), plan.version());
        let append = Append { application: "q", version, files: &files, prepared_by, note: "{}" };
        table.append(&append).expect("readable").expect("published");
    }
    let buckets = || {
        let reader = TableReader::open(&world.store()).expect("the table");
        let files = reader.plain_files(None).expect("a plan").expect("plain ones");
        files.into_iter().map(|file| file.bucket.expect("a bucket").number).collect::<Vec<_>>()
    };
    assert_eq!(buckets().len(), 12);
    let done = optimized(&world.store(), &ALL);
    assert_eq!((done.files_removed, done.files_added), (12, 4));
    assert_eq!(buckets().into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 2, 3]));
    assert_eq!(newest_ids(&world), (0..300).collect::<Vec<_>>());
}

#[test]
fn mapped_columns_and_deleted_rows_of_another_engine_stay_right() {
    let world = foreign::world();
    let before = foreign::all_rows(&world);
    let done = optimized(&world.store(), &ALL);
    assert!(done.files_removed > 0, "{done:?}");
    assert_eq!(foreign::all_rows(&world), before);
    let reader = TableReader::open(&world.store()).expect("the table");
    assert_eq!(reader.plain_files(None).expect("a plan"), None, "columns are mapped still");
    let actions = actions(&world, done.version);
    let (adds, removes) = (of(&actions, "add"), of(&actions, "remove"));
    assert!(removes.iter().any(|file| file.get("deletionVector").is_some()), "{removes:?}");
    assert!(adds.iter().all(|file| file.get("deletionVector").is_none()), "{adds:?}");
    let again = optimized(&world.store(), &ALL);
    assert_eq!(again.commits, 0, "no file with deleted rows is left");
}

#[test]
fn what_others_remove_meanwhile_is_given_up_and_what_they_add_is_not() {
    let world = World::new();
    let table = create(&world.store(), &["name".to_owned()]);
    for version in 0..3 {
        append(&table, "q", version, &rows(0, 2)).expect("published");
    }
    let adds: Vec<Value> = of(&actions(&world, 2), "add").into_iter().cloned().collect();
    let theirs = adds.iter().find(|add| add["partitionValues"]["name"] == "name 1");
    let path = theirs.expect("a file")["path"].clone();
    let is_first = AtomicBool::new(true);
    // It is asked when the files are known and none is written yet.
    let meanwhile = |rows: &RecordBatch| {
        if is_first.swap(false, Ordering::SeqCst) {
            append(&table, "q", 3, &self::rows(5, 1)).expect("published");
            let remove = json!({"remove": {"path": path, "dataChange": true,
                "deletionTimestamp": 1, "partitionValues": {"name": "name 1"}}});
            foreign_commit(&world, 5, &[remove]);
        }
        Ok(vec![true; rows.num_rows()])
    };
    let options = OptimizeOptions { partitions: Some(&meanwhile), ..ALL };
    let done = optimized(&world.store(), &options);
    assert_eq!((done.files_removed, done.files_added, done.files_given_up), (3, 1, 3));
    assert_eq!(done.version, 6);
    assert_eq!(newest_ids(&world), [0, 0, 0, 1, 1, 5]);
    // 3 times 2 files, one of the append, and the new one: what was given up is deleted.
    assert_eq!(data_files(&world), 8);
}

#[test]
fn another_schema_meanwhile_makes_it_begin_anew() {
    let world = World::new();
    let table = create(&world.store(), &["name".to_owned()]);
    for version in 0..2 {
        append(&table, "q", version, &rows(0, 2)).expect("published");
    }
    let metadata = of(&actions(&world, 0), "metaData")[0].clone();
    let is_first = AtomicBool::new(true);
    let meanwhile = |rows: &RecordBatch| {
        if is_first.swap(false, Ordering::SeqCst) {
            foreign_commit(&world, 3, &[json!({ "metaData": metadata })]);
        }
        Ok(vec![true; rows.num_rows()])
    };
    let done = optimized(&world.store(), &OptimizeOptions { partitions: Some(&meanwhile), ..ALL });
    assert_eq!((done.files_removed, done.files_added, done.version), (4, 2, 4));
    assert_eq!(newest_ids(&world), [0, 0, 1, 1]);
    assert_eq!(data_files(&world), 6, "what was written for the schema before is deleted");
}

#[test]
fn an_answer_that_is_lost_is_looked_up() {
    for fate in [Fate::AnswerLost, Fate::RepeatedByTheClient, Fate::LostOnTheWay] {
        let world = World::new();
        appended(&world, &[], 4);
        let (store, control) = world.proxied();
        let mut is_first = true;
        control.decide(move |kind, name| {
            let is_commit = kind == "put" && name == "00000000000000000005.json";
            if is_commit && std::mem::take(&mut is_first) { fate } else { Fate::Pass }
        });
        let done = optimized(&store, &ALL);
        assert_eq!((done.commits, done.version), (1, 5), "{fate:?}");
        assert_eq!(newest_ids(&world), (0..40).collect::<Vec<_>>(), "{fate:?}");
        assert_eq!(live_files(&world), 1, "{fate:?}");
    }
}

#[test]
fn features_that_would_be_lost_are_named() {
    for (feature, property) in
        [("rowTracking", "delta.feature.rowTracking"), ("clustering", "delta.feature.clustering")]
    {
        let world = World::new();
        appended(&world, &[], 2);
        let mut first = actions(&world, 0);
        let protocol = json!({"minReaderVersion": 1, "minWriterVersion": 7,
            "writerFeatures": [feature, "domainMetadata", "appendOnly", "invariants"]});
        for action in &mut first {
            if action.get("protocol").is_some() {
                *action = json!({ "protocol": protocol });
            }
        }
        let lines: String = first.iter().map(|line| format!("{line}\n")).collect();
        let path = root(&world).join("_delta_log/00000000000000000000.json");
        fs::write(path, lines).expect("it is writable");
        let refused = optimize(&world.store(), &ALL);
        let Err(TableError::Unsupported { problem, action, .. }) = refused else {
            panic!("{property}: {refused:?}")
        };
        assert!(action == "compacted" && problem.contains(feature), "{problem}");
    }
}

fn live(world: &World, compaction: AutoCompact) -> LiveTable {
    let table = match Table::open(&world.store()) {
        Ok(table) => table,
        Err(_) => {
            let new = NewTable { schema: &schema(), partition_by: &[], properties: &[] };
            Table::create(&world.store(), &new).expect("a new table")
        }
    };
    table.last_published("q").expect("readable");
    let care = Care { compaction: Some(compaction), ..Care::default() };
    LiveTable::start(table, care).expect("nothing to repair")
}

fn often() -> AutoCompact {
    let (files_min, pause) = (4, Duration::ZERO);
    AutoCompact { files_min, pause, application: "q".to_owned(), ..AutoCompact::default() }
}

/// Micro-batches `first..end` of the query, of ten rows each.
fn stream(live: &LiveTable, first: i64, end: i64) {
    for version in first..end {
        let (files, prepared_by) =
            (written(live.table(), &rows(version * 10, 10)), live.table().version());
        let append = Append { application: "q", version, files: &files, prepared_by, note: "{}" };
        live.append(&append).expect("readable").expect("published");
    }
}

#[test]
fn a_stream_is_compacted_beside_it() {
    let world = World::new();
    let table = live(&world, often());
    for round in 0..10 {
        stream(&table, round * 10, round * 10 + 10);
        table.settle();
    }
    let done = table.compactions();
    assert!(done.commits > 1 && done.failed == 0, "{done:?}");
    drop(table);
    assert!(live_files(&world) < 10, "{} files", live_files(&world));
    assert_eq!(newest_ids(&world), (0..1_000).collect::<Vec<_>>());
    // Another process goes on, and finds what the first one has left.
    let table = live(&world, AutoCompact { files_min: 2, ..often() });
    stream(&table, 100, 101);
    table.settle();
    drop(table);
    assert_eq!(live_files(&world), 1);
    assert_eq!(newest_ids(&world), (0..1_010).collect::<Vec<_>>());
}

#[test]
fn others_delete_and_compact_beside_a_compacted_stream() {
    let world = Arc::new(World::new());
    let table = live(&world, often());
    stream(&table, 0, 1);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut deleted = BTreeSet::new();
    std::thread::scope(|scope| {
        let (theirs, over) = (Arc::clone(&world), Arc::clone(&is_over));
        scope.spawn(move || {
            while !over.load(Ordering::SeqCst) {
                // It may lose its files to the others, and come to nothing.
                let _ = optimize(&theirs.store(), &ALL);
            }
        });
        for round in 0..15 {
            stream(&table, 1 + round * 4, 1 + round * 4 + 4);
            let now = deleting(&world);
            deleted.extend(now);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    table.settle();
    drop(table);
    let expected: Vec<i64> = (0..610).filter(|id| !deleted.contains(id)).collect();
    assert_eq!(newest_ids(&world), expected);
}

/// Another writer removes a file with all of its rows, if it can; which they were.
fn deleting(world: &World) -> Vec<i64> {
    let reader = TableReader::open(&world.store()).expect("the table");
    let files = reader.plain_files(None).expect("a plan").expect("plain ones");
    let file = files.iter().min_by_key(|file| file.bytes).expect("a file");
    let name = file.url.rsplit('/').next().expect("a name").to_owned();
    let path = root(world).join(&name);
    let bytes = fs::File::open(path).expect("it is there");
    let parquet = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes, 1_024);
    let ids = parquet.expect("Parquet").flat_map(|rows| {
        let rows = rows.expect("rows");
        rows.column(0).as_primitive::<Int64Type>().values().to_vec()
    });
    let ids: Vec<i64> = ids.collect();
    let remove = json!({"remove": {"path": name, "dataChange": true, "deletionTimestamp": 1}});
    let info = json!({"commitInfo": {"timestamp": 1, "operation": "DELETE"}});
    let commit = format!("{info}\n{remove}\n");
    let entry = format!("_delta_log/{:020}.json", reader.version() + 1);
    match world.store().put_new(&entry, commit.into()) {
        Ok(()) => ids,
        Err(_) => Vec::new(),
    }
}

#[test]
fn what_a_crash_left_behind_is_deleted_once_the_query_goes_on() {
    let world = World::new();
    let table = appended(&world, &[], 2);
    let abandoned = written(&table, &rows(50, 10));
    let kept = written(&table, &rows(60, 10));
    let record = |owner: &str, mark: &str, began_ms: i64, file: &str| {
        let record = json!({"owner": owner, "mark": mark, "readVersion": 1,
            "beganMs": began_ms, "files": [file]});
        let name = format!("_millstream/rewrites/{owner}-{mark}.json");
        world.store().put(&name, record.to_string().into()).expect("written");
    };
    let now_ms = world.env.now_ms();
    record("q", "m1", now_ms, &abandoned[0].name);
    record("another", "m2", now_ms, &kept[0].name);
    let path = |name: &str| root(&world).join(name);
    drop(table);
    let table = live(&world, often());
    table.settle();
    assert!(path(&abandoned[0].name).exists(), "the former process may publish it yet");
    stream(&table, 2, 3);
    table.settle();
    drop(table);
    assert!(!path(&abandoned[0].name).exists());
    assert!(path(&kept[0].name).exists(), "it is another's, and young");
    // A record of what was published is forgotten, and its files stay.
    let add = of(&actions(&world, 2), "add")[0]["path"].as_str().expect("a path").to_owned();
    let mark = mark_of(&world, 2);
    record("q", &mark, now_ms, &add);
    let table = live(&world, often());
    stream(&table, 3, 4);
    table.settle();
    drop(table);
    assert_eq!(newest_ids(&world), (0..40).collect::<Vec<_>>());
    let left = world.store().list("_millstream", None).expect("a listing");
    assert_eq!(left.len(), 1, "{left:?}");
}

/// The mark in the note of a commit.
fn mark_of(world: &World, version: u64) -> String {
    let actions = actions(world, version);
    let note = of(&actions, "commitInfo")[0]["userMetadata"].as_str().expect("a note").to_owned();
    let note: Value = serde_json::from_str(&note).expect("JSON");
    note["millstreamAttempt"].as_str().expect("a mark").to_owned()
}
