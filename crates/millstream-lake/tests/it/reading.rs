//! Reading: partitions, pruning, time travel, and what is wrong said by name.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arrow::array::{
    ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use millstream_lake::checkpoint::{Checkpointer, LayoutChoice, Settings};
use millstream_lake::describe::describe;
use millstream_lake::error::TableError;
use millstream_lake::read::{Comparison, Predicate, ReadFacts, TableReader, Value};
use millstream_lake::table::{NewTable, Table};

use crate::proxy_store::Fate;
use crate::support::{World, append, create, rows};

/// All `id`s, sorted, and how much was read.
fn ids(reader: &TableReader, predicate: Option<&Predicate>) -> (Vec<i64>, ReadFacts) {
    let mut read = reader.read(Some(&["id".to_owned()]), predicate).expect("a read");
    let mut ids = Vec::new();
    for rows in &mut read {
        let rows = rows.expect("rows");
        ids.extend(rows.column(0).as_primitive::<Int64Type>().values());
    }
    ids.sort_unstable();
    (ids, read.facts())
}

fn first_error(reader: &TableReader) -> TableError {
    let mut read = reader.read(None, None).expect("a read");
    let error = read.find_map(Result::err).expect("something is wrong");
    assert!(read.next().is_none(), "nothing comes after an error");
    error
}

/// `versions` appends of ten rows each, the first of them 0..10.
fn appended(world: &World, versions: i64) -> Table {
    let table = create(&world.store(), &[]);
    for version in 0..versions {
        append(&table, "q", version, &rows(version * 10, 10)).expect("published");
    }
    table
}

fn log_file(world: &World, name: &str) -> PathBuf {
    world.directory.path().join("a table/_delta_log").join(name)
}

fn data_files(world: &World) -> Vec<PathBuf> {
    let entries = fs::read_dir(world.directory.path().join("a table")).expect("the table");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "parquet")).collect()
}

fn checkpoint(world: &World, version: u64, layout: LayoutChoice) {
    let settings = Settings { layout, ..Settings::default() };
    let mut checkpointer = Checkpointer::open(world.store(), settings).expect("a log");
    checkpointer.write(version).expect("a checkpoint");
}

fn id_compared(comparison: Comparison, value: i64) -> Predicate {
    Predicate::compare("id", comparison, Value::Integer(value))
}

#[test]
fn a_version_that_a_listing_has_missed_is_looked_for_again() {
    let world = World::new();
    appended(&world, 5);
    let (missed, aside) = (log_file(&world, "00000000000000000003.json"), log_file(&world, "3"));
    fs::rename(&missed, &aside).expect("moved away");
    let error = TableReader::open(&world.store()).map(drop).expect_err("a version is missing");
    assert!(error.to_string().contains("version 3 is missing"), "{error}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(60));
            fs::rename(&aside, &missed).expect("moved back");
        });
        let reader = TableReader::open(&world.store()).expect("the table");
        assert_eq!(ids(&reader, None).0, (0..50).collect::<Vec<_>>());
    });
}

#[test]
fn what_was_appended_is_read() {
    let world = World::new();
    appended(&world, 20);
    let reader = TableReader::open(&world.store()).expect("the table");
    assert_eq!(reader.schema().expect("columns"), crate::support::schema());
    let (found, facts) = ids(&reader, None);
    assert_eq!(found, (0..200).collect::<Vec<_>>());
    assert_eq!(facts, ReadFacts { files: 20, files_read: 20, rows: 200 });
    let columns = ["name".to_owned(), "id".to_owned()];
    let first = reader.read(Some(&columns), None).expect("a read").next();
    let first = first.expect("rows").expect("rows");
    let id = first.column(1).as_primitive::<Int64Type>().value(0);
    assert_eq!(first.column(0).as_string::<i32>().value(0), format!("name {id}"));
    let counted = reader.read(Some(&[]), None).expect("a read");
    assert_eq!(counted.map(|rows| rows.expect("rows").num_rows()).sum::<usize>(), 200);
    let error = reader.read(Some(&["x".to_owned()]), None).err();
    assert!(matches!(error, Some(TableError::NoColumn { .. })));
}

#[test]
fn a_read_can_be_left() {
    let world = World::new();
    appended(&world, 30);
    let reader = TableReader::open(&world.store()).expect("the table");
    let mut read = reader.read(None, None).expect("a read");
    assert!(read.next().is_some());
    drop(read);
}

#[test]
fn statistics_save_files() {
    let world = World::new();
    appended(&world, 10);
    checkpoint(&world, 6, LayoutChoice::Classic);
    let reader = TableReader::open(&world.store()).expect("the table");
    let files_read = |predicate: &Predicate| ids(&reader, Some(predicate)).1.files_read;
    let (found, facts) = ids(&reader, Some(&id_compared(Comparison::Equal, 42)));
    assert_eq!((found, facts.files, facts.files_read), ((40..50).collect(), 10, 1));
    assert_eq!(files_read(&id_compared(Comparison::Less, 10)), 1);
    assert_eq!(files_read(&id_compared(Comparison::GreaterOrEqual, 80)), 2);
    assert_eq!(files_read(&id_compared(Comparison::Greater, 1_000)), 0);
    let values = vec![Value::Integer(5), Value::Integer(95), Value::Integer(-1)];
    let either = Predicate::In { column: "id".to_owned(), values };
    assert_eq!(files_read(&either), 2);
    assert_eq!(files_read(&Predicate::Not(Box::new(either))), 10);
    assert_eq!(files_read(&Predicate::IsNull("id".to_owned())), 0);
    assert_eq!(files_read(&Predicate::IsNotNull("id".to_owned())), 10);
    let text = Predicate::compare("name", Comparison::Equal, Value::Text("name 7".to_owned()));
    assert_eq!(files_read(&Predicate::And(vec![text, id_compared(Comparison::Less, 20)])), 1);
}

#[test]
fn bounds_never_hide_a_row() {
    let world = World::new();
    let moments = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("x", DataType::Float64, true),
        Field::new("at", moments, true),
    ]));
    let new = NewTable { schema: &schema, partition_by: &[], properties: &[] };
    let table = Table::create(&world.store(), &new).expect("a new table");
    for (version, second) in [(0, 2.0), (1, f64::NAN)] {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![version, version])),
            Arc::new(Float64Array::from(vec![1.0, second])),
            Arc::new(
                TimestampMicrosecondArray::from(vec![1_000, 5_700 + version]).with_timezone("UTC"),
            ),
        ];
        let rows = RecordBatch::try_new(Arc::clone(&schema), columns).expect("three columns");
        append(&table, "q", version, &rows).expect("published");
    }
    // To Spark a NaN is greater than any number, and Parquet leaves it out of its bounds.
    let bounds = |version: u64| {
        let entry = fs::read_to_string(log_file(&world, &format!("{version:020}.json")));
        let entry = entry.expect("a commit").lines().find_map(|action| {
            let action: serde_json::Value = serde_json::from_str(action).expect("JSON");
            action.pointer("/add/stats").and_then(|stats| stats.as_str()).map(str::to_owned)
        });
        let stats: serde_json::Value = serde_json::from_str(&entry.expect("a file")).expect("JSON");
        stats["maxValues"].clone()
    };
    assert_eq!((&bounds(1)["x"], &bounds(1)["id"]), (&2.0.into(), &0.into()));
    assert_eq!((bounds(2).get("x"), &bounds(2)["id"]), (None, &1.into()));
    let reader = TableReader::open(&world.store()).expect("the table");
    let above = |micros| {
        let at = Predicate::compare("at", Comparison::Greater, Value::Timestamp(micros));
        reader.read(None, Some(&at)).expect("a read").map(|rows| rows.expect("rows").num_rows())
    };
    assert_eq!((above(5_699).sum::<usize>(), above(7_000).sum::<usize>()), (4, 0));
}

/// What a partition column may hold, apart from the empty text, which the protocol does not have.
const DAYS: [Option<&str>; 8] = [
    Some("2024-01-01"),
    None,
    Some("a b/c"),
    Some("100%"),
    Some("x=y?z#"),
    Some("ä:ö+ü"),
    Some("%41&'\"\\"),
    Some("__HIVE_DEFAULT_PARTITION__ "),
];

fn partitioned(world: &World) -> Table {
    let schema = Schema::new(vec![
        Field::new("day", DataType::Utf8, true),
        Field::new("id", DataType::Int64, true),
    ]);
    let partition_by = ["day".to_owned()];
    let new = NewTable { schema: &schema, partition_by: &partition_by, properties: &[] };
    let table = Table::create(&world.store(), &new).expect("a new table");
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(DAYS.to_vec())),
        Arc::new(Int64Array::from_iter_values(0..DAYS.len() as i64)),
    ];
    let rows = RecordBatch::try_new(Arc::new(schema), columns).expect("two columns");
    append(&table, "q", 0, &rows).expect("published");
    table
}

#[test]
fn partition_values_come_back() {
    let world = World::new();
    partitioned(&world);
    let reader = TableReader::open(&world.store()).expect("the table");
    assert_eq!(reader.partition_columns(), ["day"]);
    let mut found = Vec::new();
    for rows in reader.read(None, None).expect("a read") {
        let rows = rows.expect("rows");
        let (days, ids) = (rows.column(0).as_string::<i32>(), rows.column(1));
        let ids = ids.as_primitive::<Int64Type>().values().iter();
        let days = days.iter().map(|day| day.map(str::to_owned));
        found.extend(ids.copied().zip(days));
    }
    found.sort();
    let expected = (0..).zip(DAYS.map(|day| day.map(str::to_owned)));
    assert_eq!(found, expected.collect::<Vec<(i64, _)>>());
    let days = reader.read(Some(&["day".to_owned()]), None).expect("a read");
    let days: usize = days.map(|rows| rows.expect("rows").num_rows()).sum();
    assert_eq!(days, DAYS.len(), "a column that is in no file");
}

#[test]
fn partitions_save_files() {
    let world = World::new();
    partitioned(&world);
    let reader = TableReader::open(&world.store()).expect("the table");
    for (id, day) in (0..).zip(DAYS) {
        let predicate = match day {
            Some(day) => Predicate::compare("day", Comparison::Equal, Value::Text(day.to_owned())),
            None => Predicate::IsNull("day".to_owned()),
        };
        let (found, facts) = ids(&reader, Some(&predicate));
        assert_eq!((found, facts.files, facts.files_read), (vec![id], 8, 1), "{day:?}");
    }
    let (found, _) = ids(&reader, Some(&Predicate::IsNotNull("day".to_owned())));
    assert_eq!(found, [0, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn older_versions_are_read() {
    let world = World::new();
    appended(&world, 3);
    for version in 0..4_u64 {
        let commit = fs::File::options();
        let path = log_file(&world, &format!("{version:020}.json"));
        let commit = commit.clone().write(true).open(path).expect("a commit");
        let at = UNIX_EPOCH + Duration::from_secs(1_000_000 + version * 100);
        commit.set_modified(at).expect("a time");
    }
    let reader = TableReader::open(&world.store()).expect("the table");
    let rows_at = |version| ids(&reader.at_version(version).expect("a version"), None).0.len();
    assert_eq!((rows_at(0), rows_at(1), rows_at(3)), (0, 10, 30));
    let version_at = |ms| reader.at_timestamp(ms).map(|reader| reader.version());
    assert_eq!(version_at(1_000_100_000).expect("a moment"), 1);
    assert_eq!(version_at(1_000_199_999).expect("a moment"), 1);
    assert_eq!(version_at(i64::MAX).expect("a moment"), 3);
    let error = version_at(999_999_999).expect_err("before the table");
    let TableError::NotReadable { oldest: 0, oldest_ms, newest: 3, newest_ms, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((oldest_ms, newest_ms), (1_000_000_000, 1_000_300_000));
    let error = reader.at_version(4).err().expect("not there yet");
    assert!(matches!(error, TableError::NotReadable { newest: 3, .. }), "{error}");
}

#[test]
fn versions_that_were_cleaned_up_are_named() {
    let world = World::new();
    appended(&world, 6);
    checkpoint(&world, 4, LayoutChoice::Classic);
    for version in 0..4 {
        fs::remove_file(log_file(&world, &format!("{version:020}.json"))).expect("a commit");
    }
    let reader = TableReader::open(&world.store()).expect("the table");
    assert_eq!(ids(&reader, None).0.len(), 60);
    assert_eq!(ids(&reader.at_version(5).expect("a version"), None).0.len(), 50);
    let error = reader.at_version(3).err().expect("cleaned up");
    assert!(matches!(error, TableError::NotReadable { oldest: 4, newest: 6, .. }), "{error}");
    let error = reader.at_timestamp(0).err().expect("cleaned up");
    assert!(matches!(error, TableError::NotReadable { oldest: 4, .. }), "{error}");
    fs::remove_file(log_file(&world, "00000000000000000004.json")).expect("a commit");
    let error = reader.at_timestamp(0).err().expect("cleaned up");
    assert!(matches!(error, TableError::NotReadable { oldest: 5, .. }), "{error}");
}

#[test]
fn in_commit_times_go_before_those_of_files() {
    let world = World::new();
    let property = ("delta.enableInCommitTimestamps".to_owned(), "true".to_owned());
    let schema = crate::support::schema();
    let new = NewTable { schema: &schema, partition_by: &[], properties: &[property] };
    let table = Table::create(&world.store(), &new).expect("a new table");
    append(&table, "q", 0, &rows(0, 1)).expect("published");
    for version in 0..2 {
        let path = log_file(&world, &format!("{version:020}.json"));
        let commit = fs::File::options().write(true).open(path).expect("a commit");
        commit.set_modified(UNIX_EPOCH).expect("a time");
    }
    let reader = TableReader::open(&world.store()).expect("the table");
    assert!(reader.at_timestamp(1_000_000_000).is_err(), "long before the table");
    assert_eq!(reader.at_timestamp(world.env.now_ms()).expect("now").version(), 1);
}

#[test]
fn a_missing_file_is_named() {
    let world = World::new();
    appended(&world, 5);
    let gone = data_files(&world).remove(2);
    fs::remove_file(&gone).expect("a file");
    let error = first_error(&TableReader::open(&world.store()).expect("the table"));
    let TableError::FileMissing { file, version: 5, .. } = error else { panic!("{error}") };
    assert!(gone.ends_with(file));
}

#[test]
fn a_damaged_file_is_named() {
    let world = World::new();
    appended(&world, 5);
    let damaged = data_files(&world).remove(2);
    let content = fs::read(&damaged).expect("a file");
    let mut zeros = content.clone();
    let middle = zeros.len() / 4;
    zeros[4..middle].fill(0);
    for broken in [&content[..content.len() / 2], &zeros, b""] {
        fs::write(&damaged, broken).expect("a file");
        let error = first_error(&TableReader::open(&world.store()).expect("the table"));
        let TableError::FileDamaged { file, .. } = error else { panic!("{error}") };
        assert!(damaged.ends_with(file));
    }
}

#[test]
fn a_store_that_is_away_is_no_damage() {
    use millstream_store::error::{Classified, Kind};
    let world = World::new();
    appended(&world, 5);
    checkpoint(&world, 5, LayoutChoice::Classic);
    let (store, control) = world.proxied();
    let reader = TableReader::open(&store).expect("the table");
    control.decide(|kind, name| {
        if kind == "get" && name.ends_with("snappy.parquet") {
            Fate::LostOnTheWay
        } else {
            Fate::Pass
        }
    });
    assert_eq!(first_error(&reader).kind(), Kind::Retry);
    control.decide(|kind, name| {
        if kind == "get" && name.ends_with("checkpoint.parquet") {
            Fate::LostOnTheWay
        } else {
            Fate::Pass
        }
    });
    let error = TableReader::open(&store).err().expect("no checkpoint");
    assert_eq!(error.kind(), Kind::Retry, "{error}");
}

/// Damages a file from its middle on, or cuts it.
fn damage(world: &World, name: &str, is_cut: bool) {
    let path = log_file(world, name);
    let mut content = fs::read(&path).expect("a file of the log");
    let half = content.len() / 2;
    if is_cut {
        content.truncate(half)
    } else {
        content[4..].fill(0)
    }
    fs::write(&path, content).expect("a file of the log");
}

#[test]
fn a_damaged_checkpoint_is_done_without() {
    for is_cut in [true, false] {
        let world = World::new();
        let table = appended(&world, 12);
        checkpoint(&world, 5, LayoutChoice::Classic);
        checkpoint(&world, 10, LayoutChoice::Classic);
        drop(table);
        damage(&world, "00000000000000000010.checkpoint.parquet", is_cut);
        let reader = TableReader::open(&world.store()).expect("the table");
        assert_eq!(ids(&reader, None).0, (0..120).collect::<Vec<_>>());
        assert_eq!(ids(&reader.at_version(11).expect("a version"), None).0.len(), 110);

        let table = Table::open(&world.store()).expect("the table");
        assert_eq!(table.last_published("q").expect("readable"), Some(11));
        assert_eq!(append(&table, "q", 12, &rows(120, 10)).expect("published").version, 13);

        damage(&world, "00000000000000000005.checkpoint.parquet", is_cut);
        let reader = TableReader::open(&world.store()).expect("the table");
        assert_eq!(ids(&reader, None).0, (0..130).collect::<Vec<_>>());
        fs::remove_file(log_file(&world, "00000000000000000003.json")).expect("a commit");
        let error = TableReader::open(&world.store()).err().expect("nothing to begin with");
        let TableError::Irreplaceable { file, missing: 3, .. } = &error else { panic!("{error}") };
        assert!(file.ends_with("checkpoint.parquet"), "{error}");
        assert!(Table::open(&world.store()).is_err());
    }
}

/// Pages of the `add` column alone: the snapshot can be made, and the files not be told.
#[test]
fn damage_that_is_found_late_is_done_without() {
    let world = World::new();
    appended(&world, 12);
    checkpoint(&world, 10, LayoutChoice::Classic);
    let path = log_file(&world, "00000000000000000010.checkpoint.parquet");
    let whole = fs::read(&path).expect("a checkpoint");
    let found = whole.windows(8).position(|bytes| bytes == b".parquet").unwrap_or(whole.len() / 3);
    for place in [found, whole.len() / 3, whole.len() / 2] {
        let mut damaged = whole.clone();
        let end = (place + 400).min(damaged.len());
        damaged[place..end].fill(0xff);
        fs::write(&path, damaged).expect("a checkpoint");
        let reader = TableReader::open(&world.store()).expect("the table");
        assert_eq!(ids(&reader, None).0, (0..120).collect::<Vec<_>>(), "damaged at {place}");
        let table = Table::open(&world.store()).expect("the table");
        assert_eq!(table.last_published("q").expect("readable"), Some(11));
    }
}

#[test]
fn one_damaged_part_is_enough() {
    let world = World::new();
    appended(&world, 12);
    checkpoint(&world, 10, LayoutChoice::MultiPart);
    let part = "00000000000000000010.checkpoint.0000000002.0000000002.parquet";
    damage(&world, part, true);
    let reader = TableReader::open(&world.store()).expect("the table");
    assert_eq!(ids(&reader, None).0, (0..120).collect::<Vec<_>>());
    let table = Table::open(&world.store()).expect("the table");
    assert_eq!(table.last_published("q").expect("readable"), Some(11));
    fs::remove_file(log_file(&world, "00000000000000000007.json")).expect("a commit");
    let reader = TableReader::open(&world.store());
    let error = match reader.and_then(|reader| reader.read(None, None).map(drop)) {
        Err(error) => error,
        Ok(()) => panic!("rows without version 7"),
    };
    let TableError::Irreplaceable { file, missing: 7, .. } = &error else { panic!("{error}") };
    assert!(file.ends_with(part), "{error}");
}

#[test]
fn a_sidecar_is_done_without() {
    for is_removed in [true, false] {
        let world = World::new();
        let property = ("delta.feature.v2Checkpoint".to_owned(), "supported".to_owned());
        let schema = crate::support::schema();
        let new = NewTable { schema: &schema, partition_by: &[], properties: &[property] };
        let table = Table::create(&world.store(), &new).expect("a new table");
        for version in 0..12 {
            append(&table, "q", version, &rows(version * 10, 10)).expect("published");
        }
        checkpoint(&world, 10, LayoutChoice::V2);
        let sidecars = fs::read_dir(log_file(&world, "_sidecars")).expect("sidecars");
        for sidecar in sidecars.map(|entry| entry.expect("an entry").path()) {
            if is_removed {
                fs::remove_file(sidecar).expect("a sidecar");
            } else {
                fs::write(sidecar, b"PAR1").expect("a sidecar");
            }
        }
        let reader = TableReader::open(&world.store()).expect("the table");
        assert_eq!(ids(&reader, None).0, (0..120).collect::<Vec<_>>());
        fs::remove_file(log_file(&world, "00000000000000000007.json")).expect("a commit");
        let reader = TableReader::open(&world.store());
        let error = reader.and_then(|reader| reader.read(None, None).map(drop));
        let error = error.expect_err("nothing to begin with");
        let TableError::Irreplaceable { file, missing: 7, .. } = &error else { panic!("{error}") };
        assert!(file.contains("_sidecars"), "{error}");
    }
}

#[test]
fn a_hint_at_an_incomplete_checkpoint_is_read_past() {
    let world = World::new();
    appended(&world, 12);
    checkpoint(&world, 5, LayoutChoice::Classic);
    checkpoint(&world, 10, LayoutChoice::MultiPart);
    let part = "00000000000000000010.checkpoint.0000000002.0000000002.parquet";
    fs::remove_file(log_file(&world, part)).expect("a part");
    let reader = TableReader::open(&world.store()).expect("the table");
    assert_eq!(ids(&reader, None).0, (0..120).collect::<Vec<_>>());
    assert_eq!(Table::open(&world.store()).expect("the table").version(), 12);
    fs::remove_file(log_file(&world, "00000000000000000007.json")).expect("a commit");
    let error = TableReader::open(&world.store()).err().expect("nothing to begin with");
    let TableError::Irreplaceable { file, problem, missing: 7, .. } = &error else {
        panic!("{error}")
    };
    assert!(file.ends_with("_last_checkpoint") && problem.contains(part), "{error}");
}

#[test]
fn a_log_without_its_beginning_is_no_short_log() {
    let world = World::new();
    appended(&world, 12);
    checkpoint(&world, 10, LayoutChoice::Classic);
    for version in 0..10 {
        fs::remove_file(log_file(&world, &format!("{version:020}.json"))).expect("a commit");
    }
    fs::write(log_file(&world, "00000000000000000010.checkpoint.parquet"), b"").expect("a file");
    for has_hint in [true, false] {
        let error = TableReader::open(&world.store()).err().expect("nothing to begin with");
        if has_hint {
            assert!(matches!(error, TableError::Irreplaceable { .. }), "{error}");
            fs::remove_file(log_file(&world, "_last_checkpoint")).expect("the hint");
        }
    }
}

#[test]
fn the_newest_version_is_found_without_listing() {
    let world = World::new();
    let table = appended(&world, 2);
    let (store, control) = world.proxied();
    let reader = TableReader::open(&store).expect("the table");
    control.counted();
    let before = reader.fingerprint().expect("a version");
    assert_eq!(before.version, 2);
    assert_eq!(control.counted().into_iter().collect::<Vec<_>>(), [("get", 2)]);
    assert_eq!(reader.fingerprint().expect("a version"), before);
    for version in 2..30 {
        append(&table, "q", version, &rows(version, 1)).expect("published");
    }
    control.counted();
    assert_eq!(reader.fingerprint().expect("a version").version, 30);
    assert!(!control.counted().contains_key("list"));
    let newest = reader.at_newest().expect("the table");
    assert_eq!((newest.version(), ids(&newest, None).0.len()), (30, 48));
    checkpoint(&world, 30, LayoutChoice::Classic);
    for version in 0..30 {
        fs::remove_file(log_file(&world, &format!("{version:020}.json"))).expect("a commit");
    }
    assert_eq!(reader.fingerprint().expect("a version").version, 30);
}

#[test]
fn a_table_is_described() {
    let world = World::new();
    appended(&world, 12);
    checkpoint(&world, 10, LayoutChoice::MultiPart);
    let reader = TableReader::open(&world.store()).expect("the table");
    let description = describe(&reader).expect("facts");
    assert_eq!((description.version, description.files), (12, 12));
    assert!(description.bytes > 0 && description.reader_version > 0);
    let checkpoint = description.checkpoint.expect("a checkpoint");
    assert_eq!((checkpoint.version, checkpoint.parts), (10, 2));
    assert!(checkpoint.rows.expect("footers") >= 12);
}
