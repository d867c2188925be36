//! What happened to a table.

use std::fs;

use millstream_lake::history::history;
use millstream_lake::read::TableReader;

use crate::support::{World, append, create, rows};

#[test]
fn the_newest_versions_come_first() {
    let world = World::new();
    let table = create(&world.store(), &[]);
    let before_ms = world.env.now_ms() - 10_000;
    for version in 0..5 {
        append(&table, "q", version, &rows(version * 10, 10)).expect("published");
    }
    let reader = TableReader::open(&world.store()).expect("the table");
    let found = history(&reader, 3).expect("commits");
    assert_eq!(found.iter().map(|found| found.version).collect::<Vec<_>>(), [5, 4, 3]);
    let newest = &found[0];
    assert_eq!((newest.files_added, newest.rows_added), (1, Some(10)));
    assert_eq!((newest.files_removed, newest.rows_removed), (0, Some(0)));
    assert!(newest.timestamp_ms > before_ms);
    assert!(newest.operation.is_some() && newest.user_metadata.is_some());
    assert!(newest.engine_info.as_deref().is_some_and(|info| info.contains("Millstream")));
    let earlier = reader.at_version(2).expect("a version");
    assert_eq!(history(&earlier, 10).expect("commits").len(), 3);
    let log = world.directory.path().join("a table/_delta_log");
    fs::remove_file(log.join("00000000000000000001.json")).expect("a commit");
    assert_eq!(history(&reader, 10).expect("commits").len(), 4);
}
