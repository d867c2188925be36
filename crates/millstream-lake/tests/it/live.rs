//! What is done beside a table that is written to: checkpoints, checksums, and what is deleted.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use millstream_lake::file_writer::{FileSettings, FileWriter, WritePlan};
use millstream_lake::maintenance::{Care, LiveTable};
use millstream_lake::table::{Append, NewTable, Table};
use millstream_store::env::Env;

use crate::support::{World, rows, schema};

fn live(world: &World) -> LiveTable {
    let table = match Table::open(&world.store()) {
        Ok(table) => table,
        Err(_) => {
            let property = ("delta.checkpointInterval".to_owned(), "2".to_owned());
            let new = NewTable { schema: &schema(), partition_by: &[], properties: &[property] };
            Table::create(&world.store(), &new).expect("a new table")
        }
    };
    LiveTable::start(table, Care::default()).expect("nothing to repair")
}

/// Micro-batches `first..end` of the query, and all that is due after each.
fn append(live: &LiveTable, first: i64, end: i64) {
    let table = live.table();
    let plan = WritePlan::new(table, &schema(), FileSettings::default()).expect("they fit");
    let mut writer = FileWriter::new(plan.clone(), table.store());
    for version in first..end {
        writer.write(&rows(version, 1)).expect("written");
        let files = writer.finish().expect("files");
        let prepared_by = plan.version();
        let append = Append { application: "q", version, files: &files, prepared_by, note: "{}" };
        live.append(&append).expect("readable").expect("published");
        live.settle();
    }
}

fn log_files(world: &World, ending: &str) -> Vec<PathBuf> {
    let log = world.directory.path().join("a table/_delta_log");
    let entries = fs::read_dir(log).expect("the log").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    files.sort();
    files
}

fn make_old(files: &[PathBuf]) {
    let now_ms = u64::try_from(Env::real().now_ms()).expect("after 1970");
    let then = UNIX_EPOCH + Duration::from_millis(now_ms) - Duration::from_secs(7_200);
    for file in files {
        let file = fs::File::options().write(true).open(file).expect("a file");
        file.set_modified(then).expect("a time");
    }
}

#[test]
fn checkpoints_and_checksums_come_by_themselves() {
    let world = World::new();
    let live = live(&world);
    append(&live, 0, 7);
    assert_eq!((live.checkpoints().written, live.checkpoints().failed), (3, 0));
    assert_eq!(log_files(&world, ".checkpoint.parquet").len(), 3);
    assert_eq!(log_files(&world, ".crc").len(), 3, "one beside each");
    assert_eq!(log_files(&world, "_last_checkpoint").len(), 1);
}

#[test]
fn old_checkpoints_are_thinned_out_under_the_feet_of_nobody() {
    let world = World::new();
    append(&live(&world), 0, 12);
    let old = log_files(&world, ".checkpoint.parquet");
    assert_eq!(old.len(), 6);
    let live = live(&world);
    make_old(&old);
    append(&live, 12, 20);
    let left = log_files(&world, ".checkpoint.parquet");
    assert!(left.len() < 10, "{left:?}");
    assert!(!left.contains(&old[1]), "{left:?}");
    // A query that comes new to the table is looked for in what the table was loaded from.
    assert_eq!(live.table().last_published("another").expect("readable"), None);
    assert_eq!(live.table().last_published("q").expect("readable"), Some(19));
}
