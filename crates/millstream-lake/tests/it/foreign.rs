//! A table of another engine, with what it can hold that is not written here.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Date32Type, Int64Type};
use millstream_lake::describe::describe;
use millstream_lake::error::TableError;
use millstream_lake::history::history;
use millstream_lake::read::{Comparison, Predicate, TableReader, Value};
use millstream_lake::vacuum::{VacuumOptions, vacuum};

use crate::support::World;

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copied(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("a copy");
        }
    }
}

pub fn world() -> World {
    let world = World::new();
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let from = Path::new(&here).join("tests/data/mapped");
    copied(&from, &world.directory.path().join("a table"));
    world
}

type Row = (i64, String, Option<i32>, Option<String>, Option<String>);

fn sorted_rows(reader: &TableReader) -> Vec<Row> {
    let mut found = Vec::new();
    for rows in reader.read(None, None).expect("a read") {
        let rows = rows.expect("rows");
        let column = |name: &str| rows.column_by_name(name).expect("a column");
        let extra = column("extra").as_struct();
        let (words, pt) = (column("words").as_string::<i32>(), column("pt").as_string::<i32>());
        let text = |array: &arrow::array::StringArray, row: usize| {
            array.is_valid(row).then(|| array.value(row).to_owned())
        };
        let day = column("day").as_primitive::<Date32Type>();
        for row in 0..rows.num_rows() {
            found.push((
                column("id").as_primitive::<Int64Type>().value(row),
                words.value(row).to_owned(),
                day.is_valid(row).then(|| day.value(row)),
                text(pt, row),
                extra.is_valid(row).then(|| extra.column(1).as_string::<i32>().value(row).into()),
            ));
        }
    }
    found.sort();
    found
}

/// All rows of the table, in words.
pub fn all_rows(world: &World) -> Vec<String> {
    let reader = TableReader::open(&world.store()).expect("the table");
    sorted_rows(&reader).iter().map(|row| format!("{row:?}")).collect()
}

#[test]
fn mapped_widened_and_deleted_rows_are_read() {
    let world = world();
    let reader = TableReader::open(&world.store()).expect("the table");
    let mut expected: Vec<Row> = Vec::new();
    for id in (0..30).filter(|id| ![3, 7, 25].contains(id)) {
        // 2024-01-01 is day 19723.
        let (day, pt) = (Some(19_723 + id as i32), (id < 20).then(|| "a b".to_owned()));
        expected.push((id, format!("row {id}"), day, pt, None));
    }
    for id in 0..5 {
        let (pt, extra) = (Some("c/d".to_owned()), Some("z".to_owned()));
        expected.push((id + 5_000_000_000, format!("row {id}"), None, pt, extra));
    }
    assert_eq!(sorted_rows(&reader), expected);
    let schema = reader.schema().expect("columns");
    assert_eq!(schema.field(0).data_type(), &DataType::Int64);
    let old = reader.at_version(2).expect("a version");
    let schema = old.schema().expect("columns");
    assert_eq!(schema.field(0).data_type(), &DataType::Int32);
    assert_eq!(schema.field(1).name(), "text");
    let rows = old.read(None, None).expect("a read");
    assert_eq!(rows.map(|rows| rows.expect("rows").num_rows()).sum::<usize>(), 30);
}

#[test]
fn mapped_columns_save_files() {
    let world = world();
    let reader = TableReader::open(&world.store()).expect("the table");
    let facts = |predicate| reader.read(None, Some(&predicate)).expect("a read").facts();
    let large = Predicate::compare("id", Comparison::Greater, Value::Integer(1 << 32));
    assert_eq!((facts(large.clone()).files, facts(large).files_read), (3, 1));
    let words = Value::Text("row 5".to_owned());
    assert_eq!(facts(Predicate::compare("words", Comparison::Equal, words)).files_read, 1);
    assert_eq!(facts(Predicate::IsNull("pt".to_owned())).files_read, 1);
}

#[test]
fn a_missing_deletion_vector_is_named() {
    let world = world();
    let name = "deletion_vector_8d144e99-66f1-4b8a-9c22-342337d0446e.bin";
    fs::remove_file(world.directory.path().join("a table").join(name)).expect("a file");
    let reader = TableReader::open(&world.store()).expect("the table");
    let error = reader.read(None, None).expect("a read").find_map(Result::err);
    let Some(TableError::FileMissing { file, .. }) = error else { panic!("{error:?}") };
    assert_eq!(file, name);
}

#[test]
fn its_files_survive_a_vacuum() {
    let world = world();
    let directory = world.directory.path().join("a table");
    let month = Duration::from_secs(30 * 86_400);
    #[allow(clippy::disallowed_methods, reason = "files on a disk have the disk's times")]
    let old = SystemTime::now() - month;
    fs::write(directory.join("HY/old.parquet"), b"x").expect("a file");
    for file in world.store().list("", None).expect("files") {
        let file = fs::File::options().append(true).open(directory.join(&file.name));
        file.expect("a file").set_modified(old).expect("a time");
    }
    let options = VacuumOptions { retention_ms: Some(0), is_forced: true, is_dry_run: false };
    let vacuumed = vacuum(&world.store(), &options).expect("a vacuum");
    assert_eq!(vacuumed.files, ["HY/old.parquet"]);
    let reader = TableReader::open(&world.store()).expect("the table");
    assert_eq!(sorted_rows(&reader).len(), 32);
}

#[test]
fn its_past_is_told() {
    let world = world();
    let reader = TableReader::open(&world.store()).expect("the table");
    let versions = history(&reader, 100).expect("commits");
    assert_eq!(versions.len(), 8);
    let deletion = &versions[4];
    assert_eq!(deletion.operation.as_deref(), Some("DELETE"));
    assert_eq!((deletion.rows_added, deletion.rows_removed), (Some(27), Some(30)));
    let description = describe(&reader).expect("facts");
    assert_eq!((description.files, description.partition_columns), (3, vec!["pt".to_owned()]));
    assert!(description.reader_features.contains(&"deletionVectors".to_owned()));
    assert!(description.properties.contains_key("delta.columnMapping.mode"));
    assert_eq!(description.checkpoint, None);
}
