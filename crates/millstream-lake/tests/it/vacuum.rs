//! Deleting files that nothing refers to.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use millstream_lake::error::TableError;
use millstream_lake::read::TableReader;
use millstream_lake::store::TableStore;
use millstream_lake::table::{NewTable, Table};
use millstream_lake::vacuum::{VacuumOptions, Vacuumed, vacuum};

use crate::support::{World, append, create, rows, schema, written};

const DAY: Duration = Duration::from_secs(86_400);

fn root(world: &World) -> PathBuf {
    world.directory.path().join("a table")
}

/// Makes a file as old as that; writes it if it is not there.
fn aged(path: &Path, age: Duration) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    let file = fs::File::options().create(true).append(true).open(path).expect("a file");
    #[allow(clippy::disallowed_methods, reason = "files on a disk have the disk's times")]
    let now = SystemTime::now();
    file.set_modified(now - age).expect("a time");
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn age_all(world: &World) {
    for path in files(&root(world)) {
        aged(&path, 30 * DAY);
    }
}

fn vacuumed(store: &TableStore, options: VacuumOptions) -> Vacuumed {
    vacuum(store, &options).expect("a vacuum")
}

fn read_rows(world: &World) -> usize {
    let reader = TableReader::open(&world.store()).expect("the table");
    let read = reader.read(None, None).expect("a read");
    read.map(|rows| rows.expect("rows").num_rows()).sum()
}

#[test]
fn only_old_files_without_a_name_go() {
    let world = World::new();
    let table = create(&world.store(), &[]);
    append(&table, "q", 0, &rows(0, 10)).expect("published");
    let abandoned = written(&table, &rows(10, 10));
    age_all(&world);
    let hidden = ["_hidden/x.parquet", ".x.tmp", "sub/_y/x.parquet", "_z.parquet"];
    for name in hidden {
        aged(&root(&world).join(name), 30 * DAY);
    }
    aged(&root(&world).join("sub/old.parquet"), 30 * DAY);
    aged(&root(&world).join("young.parquet"), DAY);
    let dry = VacuumOptions { is_dry_run: true, ..VacuumOptions::default() };
    let planned = vacuumed(&world.store(), dry);
    let mut expected = vec![abandoned[0].name.clone(), "sub/old.parquet".to_owned()];
    expected.sort();
    assert_eq!((&planned.files, planned.files_young), (&expected, 1));
    assert!(root(&world).join("sub/old.parquet").exists());
    assert_eq!(vacuumed(&world.store(), VacuumOptions::default()), planned);
    assert!(!root(&world).join("sub/old.parquet").exists());
    assert!(hidden.iter().all(|name| root(&world).join(name).exists()));
    assert!(root(&world).join("young.parquet").exists());
    assert_eq!(vacuumed(&world.store(), VacuumOptions::default()).files.len(), 0);
    assert_eq!(read_rows(&world), 10);
}

#[test]
fn a_short_retention_must_be_forced() {
    let world = World::new();
    let table = create(&world.store(), &[]);
    append(&table, "q", 0, &rows(0, 10)).expect("published");
    aged(&root(&world).join("old.parquet"), 2 * DAY);
    let options = VacuumOptions { retention_ms: Some(86_400_000), ..VacuumOptions::default() };
    let error = vacuum(&world.store(), &options).expect_err("too short");
    assert!(matches!(error, TableError::Retention { kept_ms: 604_800_000, .. }), "{error}");
    let forced = vacuumed(&world.store(), VacuumOptions { is_forced: true, ..options });
    assert_eq!(forced.files, ["old.parquet"]);
    assert_eq!(read_rows(&world), 10);
}

#[test]
fn the_table_says_how_long() {
    let world = World::new();
    let kept = ("delta.deletedFileRetentionDuration".to_owned(), "interval 1 days".to_owned());
    let new = NewTable { schema: &schema(), partition_by: &[], properties: &[kept] };
    Table::create(&world.store(), &new).expect("a new table");
    aged(&root(&world).join("old.parquet"), 2 * DAY);
    assert_eq!(vacuumed(&world.store(), VacuumOptions::default()).files, ["old.parquet"]);
}

#[test]
fn removed_files_stay_as_long_as_promised() {
    let world = World::new();
    let table = create(&world.store(), &[]);
    for version in 0..2 {
        append(&table, "q", version, &rows(version, 10)).expect("published");
    }
    let now_ms = world.env.now_ms();
    let commits = [(1, now_ms - 86_400_000), (2, now_ms - 20 * 86_400_000)];
    let mut removes = String::new();
    let mut names = Vec::new();
    for (version, deleted_ms) in commits {
        let commit = root(&world).join(format!("_delta_log/{version:020}.json"));
        let commit = fs::read_to_string(commit).expect("a commit");
        let add = commit.lines().find(|line| line.starts_with("{\"add\"")).expect("an add");
        let add: serde_json::Value = serde_json::from_str(add).expect("JSON");
        let path = add["add"]["path"].as_str().expect("a path");
        removes.push_str(&format!(
            "{{\"remove\":{{\"path\":\"{path}\",\"deletionTimestamp\":{deleted_ms},\
             \"dataChange\":true}}}}\n"
        ));
        names.push(path.to_owned());
    }
    fs::write(root(&world).join("_delta_log/00000000000000000003.json"), removes).expect("written");
    age_all(&world);
    assert_eq!(read_rows(&world), 0);
    assert_eq!(vacuumed(&world.store(), VacuumOptions::default()).files, [names[1].clone()]);
}

#[test]
fn partitions_are_known_by_their_names() {
    let world = World::new();
    let columns = arrow::datatypes::Schema::new(vec![
        arrow::datatypes::Field::new("id", arrow::datatypes::DataType::Int64, true),
        arrow::datatypes::Field::new("_p", arrow::datatypes::DataType::Utf8, true),
    ]);
    let partition_by = ["_p".to_owned()];
    let new = NewTable { schema: &columns, partition_by: &partition_by, properties: &[] };
    let table = Table::create(&world.store(), &new).expect("a new table");
    let values = arrow::array::StringArray::from(vec![Some("a b"), None, Some("x%2F/ä+&=")]);
    let rows = arrow::array::RecordBatch::try_new(
        std::sync::Arc::new(columns),
        vec![
            std::sync::Arc::new(arrow::array::Int64Array::from(vec![1, 2, 3])),
            std::sync::Arc::new(values),
        ],
    );
    append(&table, "q", 0, &rows.expect("two columns")).expect("published");
    age_all(&world);
    aged(&root(&world).join("_p=1/old.parquet"), 30 * DAY);
    aged(&root(&world).join("_q=1/old.parquet"), 30 * DAY);
    assert_eq!(vacuumed(&world.store(), VacuumOptions::default()).files, ["_p=1/old.parquet"]);
    assert_eq!(read_rows(&world), 3);
}

#[test]
fn an_unknown_feature_forbids_it() {
    let world = World::new();
    create(&world.store(), &[]);
    let protocol = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,
        "readerFeatures":[],"writerFeatures":["filesElsewhere"]}}"#;
    let protocol = protocol.replace('\n', "");
    fs::write(root(&world).join("_delta_log/00000000000000000001.json"), protocol)
        .expect("written");
    aged(&root(&world).join("old.parquet"), 30 * DAY);
    let error = vacuum(&world.store(), &VacuumOptions::default()).expect_err("unknown");
    assert!(matches!(error, TableError::Unsupported { .. }), "{error}");
    assert!(root(&world).join("old.parquet").exists());
}
