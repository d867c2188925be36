//! Repair and cleanup.

use millstream_lake::checkpoint::{LayoutChoice, cleanup, remove_old, repair};
use serde_json::json;

use crate::table::{Table, add, any};

const DAY_MS: i64 = 86_400_000;

#[test]
fn cleanup_keeps_what_the_boundary_needs() {
    for (features, layout) in
        [(&[][..], LayoutChoice::MultiPart), (&["v2Checkpoint"], LayoutChoice::V2)]
    {
        let mut table = Table::new(features);
        table.append(30, any);
        let mut checkpointer = table.checkpointer(layout, 10);
        for _ in 0..3 {
            table.append(3, any);
            checkpointer.write(table.newest()).unwrap();
        }
        table.append(3, any);
        table.store.put("_delta_log/00000000000000000001.crc", "{}".into()).unwrap();
        let compacted = "_delta_log/00000000000000000000.00000000000000000001.compacted.json";
        table.store.put(compacted, "".into()).unwrap();
        let now_ms = table.store.env().now_ms();
        let nothing = cleanup(&table.store, DAY_MS, now_ms).unwrap();
        assert_eq!((nothing.boundary, nothing.deleted.len()), (None, 0));
        let cleaned = cleanup(&table.store, DAY_MS, now_ms + 3 * DAY_MS).unwrap();
        assert_eq!(cleaned.boundary, Some(4));
        let log = table.log();
        let version_of = |name: &str| name.get(..20)?.parse::<u64>().ok();
        let is_old = |name: &String| version_of(name).is_some_and(|version| version < 4);
        assert!(!log.iter().any(is_old), "{log:?}");
        assert!(log.contains(&format!("{:020}.json", 4)));
        assert!(!cleaned.deleted.iter().any(|name| name.contains("_sidecars")));
        table.check();
        checkpointer.write(table.newest()).unwrap();
        table.check();
    }
}

#[test]
fn cleanup_deletes_sidecars_that_nobody_names() {
    let mut table = Table::new(&["v2Checkpoint"]);
    table.append(30, any);
    let mut checkpointer = table.checkpointer(LayoutChoice::V2, 1_000);
    for _ in 0..30 {
        table.append(1, any);
        checkpointer.write(table.newest()).unwrap();
    }
    let sidecars =
        |table: &Table| table.log().iter().filter(|name| name.starts_with("_sidecars")).count();
    let before = sidecars(&table);
    let now_ms = table.store.env().now_ms() + 3 * DAY_MS;
    cleanup(&table.store, DAY_MS, now_ms).unwrap();
    assert!(sidecars(&table) < before / 2, "{} of {before}", sidecars(&table));
    table.check();
}

#[test]
fn cleanup_does_nothing_without_a_checkpoint() {
    let mut table = Table::new(&[]);
    table.append(3, any);
    let set = format!("_delta_log/{:020}.checkpoint.0000000001.0000000002.parquet", 1);
    table.store.put(&set, "".into()).unwrap();
    let now_ms = table.store.env().now_ms() + 3 * DAY_MS;
    let cleaned = cleanup(&table.store, DAY_MS, now_ms).unwrap();
    assert_eq!((cleaned.boundary, cleaned.deleted.len()), (None, 0));
    table.check();
}

#[test]
fn cleanup_goes_by_what_commits_say_of_their_time() {
    let table = Table::new(&[]);
    let now_ms = table.store.env().now_ms();
    for version in 1..=6_i64 {
        let at_ms = now_ms - (6 - version) * DAY_MS;
        let info = json!({"commitInfo": {"inCommitTimestamp": at_ms}});
        let lines = format!("{info}\n{}\n", add(&format!("{version}.parquet"), 1));
        table.store.put_new(&format!("_delta_log/{version:020}.json"), lines.into()).unwrap();
    }
    let mut checkpointer = table.checkpointer(LayoutChoice::Classic, 10);
    for version in [2, 3, 5] {
        checkpointer.write(version).unwrap();
    }
    // Versions up to 4 are two days old; version 0 is as old as its file.
    let cleaned = cleanup(&table.store, 2 * DAY_MS, now_ms + 5_000).unwrap();
    assert_eq!(cleaned.boundary, Some(3));
    assert_eq!(table.seen().files.len(), 6);
}

#[test]
fn repair_deletes_old_incomplete_sets_and_moves_a_hint_that_names_one() {
    let mut table = Table::new(&[]);
    table.append(30, any);
    let mut checkpointer = table.checkpointer(LayoutChoice::MultiPart, 10);
    checkpointer.write(1).unwrap();
    table.append(30, any);
    checkpointer.write(2).unwrap();
    let part = format!("_delta_log/{:020}.checkpoint.0000000002.0000000008.parquet", 2);
    table.store.delete_many(std::slice::from_ref(&part)).unwrap();
    let repaired = repair(&table.store, "nobody").unwrap();
    assert!(repaired.is_hint_moved);
    table.check();
    // The set may be another writer's work in progress, but not for ever.
    assert_eq!(repaired.deleted.len(), 0);
    assert_eq!(repair(&table.store, "nobody").unwrap(), Default::default());
}

#[test]
fn the_last_checkpoints_stay_when_others_are_thinned() {
    let mut table = Table::new(&[]);
    let mut checkpointer = table.checkpointer(LayoutChoice::MultiPart, 10);
    for _ in 0..6 {
        table.append(3, any);
        checkpointer.write(table.newest()).unwrap();
    }
    let now_ms = table.store.env().now_ms();
    assert_eq!(remove_old(&table.store, now_ms).unwrap().len(), 0);
    let deleted = remove_old(&table.store, now_ms + DAY_MS).unwrap();
    let of = |version: u64| {
        let prefix = format!("_delta_log/{version:020}.checkpoint");
        deleted.iter().any(|name| name.starts_with(&prefix))
    };
    assert_eq!((1..=6).map(of).collect::<Vec<_>>(), [true, true, true, false, false, false]);
    table.forget_commits_below(6);
    table.check();
}

#[test]
fn what_another_process_is_at_work_on_is_left_alone() {
    let mut table = Table::new(&[]);
    table.append(30, any);
    table.checkpointer(LayoutChoice::MultiPart, 10).write(1).unwrap();
    let staged = "_delta_log/_staged/v7-p4-theirs-0-part-1";
    let part = format!("_delta_log/{:020}.checkpoint.0000000001.0000000004.parquet", 7);
    for name in [staged, &part] {
        table.store.put(name, bytes::Bytes::from_static(b"PAR1")).unwrap();
    }
    assert_eq!(repair(&table.store, "nobody").unwrap(), Default::default());
    let theirs = repair(&table.store, "theirs").unwrap();
    assert_eq!(theirs.deleted, [part, staged.to_owned()]);
}
