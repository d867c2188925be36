//! Each layout, the way from one to another, and damaged ones.

use std::collections::BTreeSet;

use millstream_lake::checkpoint::{CheckpointError, Checkpointer, Layout, LayoutChoice, Settings};
use millstream_lake::kernel::probe::write_checkpoint;
use serde_json::json;

use crate::table::{Table, add, any, metadata, protocol, remove, txn, with_vector};

fn some_history(table: &mut Table) {
    table.commit(&[txn("idle", 7), domain("kept", false), domain("gone", false)]);
    table.append(30, any);
    let paths: Vec<_> = table.files.keys().take(4).cloned().collect();
    let now_ms = table.store.env().now_ms();
    table.commit(&[remove(&paths[0], now_ms), remove(&paths[1], 5), domain("gone", true)]);
    table.commit(&[add(&paths[0], 123), txn("busy", 1), add("day=a%20b/é.parquet", 5)]);
}

fn domain(name: &str, removed: bool) -> serde_json::Value {
    json!({"domainMetadata": {"domain": name, "configuration": "{}", "removed": removed}})
}

#[test]
fn every_layout_reads_as_the_commits_do() {
    let cases: [(LayoutChoice, u64, &[&str], Layout); 6] = [
        (LayoutChoice::Auto, 1_000, &[], Layout::Classic),
        (LayoutChoice::Auto, 10, &[], Layout::MultiPart { parts: 4 }),
        (LayoutChoice::Auto, 10, &["deletionVectors"], Layout::Classic),
        (LayoutChoice::Classic, 10, &[], Layout::Classic),
        (LayoutChoice::MultiPart, 1_000, &[], Layout::MultiPart { parts: 2 }),
        (LayoutChoice::Auto, 10, &["v2Checkpoint"], Layout::V2 { sidecars: 3 }),
    ];
    for (choice, part_rows, features, layout) in cases {
        let mut table = Table::new(features);
        some_history(&mut table);
        table.check();
        let mut checkpointer = table.checkpointer(choice, part_rows);
        let written = checkpointer.write(table.newest()).unwrap();
        assert_eq!((written.layout, written.adds), (layout, 30));
        assert!(written.is_hinted);
        table.forget_commits_below(written.version);
        table.check();
        // And on from there, twice with what is remembered and once with what is found.
        for round in 0..3_i64 {
            table.append(5, any);
            let path = table.files.keys().next().unwrap().clone();
            table.commit(&[remove(&path, table.store.env().now_ms()), txn("busy", 10 + round)]);
            if round == 2 {
                checkpointer = table.checkpointer(choice, part_rows);
            }
            let written = checkpointer.write(table.newest()).unwrap();
            assert_eq!(written.adds, table.files.len() as u64, "{layout:?}");
            table.forget_commits_below(written.version);
            table.check();
        }
        assert_eq!(table.transactions.len(), 2);
    }
}

#[test]
fn many_commits_go_into_several_checkpoints() {
    for (choice, features) in
        [(LayoutChoice::MultiPart, &[][..]), (LayoutChoice::V2, &["v2Checkpoint"][..])]
    {
        let mut table = Table::new(features);
        some_history(&mut table);
        for _ in 0..20 {
            table.append(10, any);
            let path = table.files.keys().next().unwrap().clone();
            table.commit(&[remove(&path, table.store.env().now_ms())]);
        }
        let settings = Settings {
            layout: choice,
            part_rows: 50,
            commits_bytes_max: 4_000,
            ..Settings::default()
        };
        let mut checkpointer = Checkpointer::open(table.store.clone(), settings).unwrap();
        let written = checkpointer.write(table.newest()).unwrap();
        assert_eq!((written.version, written.adds), (table.newest(), table.files.len() as u64));
        let files = table.store.list("_delta_log", None).unwrap();
        let versions: BTreeSet<_> = files
            .iter()
            .filter(|file| file.name.contains(".checkpoint."))
            .map(|file| file.name["_delta_log/".len()..][..20].to_owned())
            .collect();
        assert!(versions.len() > 3, "{choice:?}: {versions:?}");
        table.forget_commits_below(written.version);
        table.check();
    }
}

#[test]
fn layouts_follow_each_other() {
    let mut table = Table::new(&[]);
    some_history(&mut table);
    let steps = [
        (LayoutChoice::Classic, 10),
        (LayoutChoice::MultiPart, 10),
        (LayoutChoice::MultiPart, 2),
        (LayoutChoice::MultiPart, 1_000),
        (LayoutChoice::Classic, 1),
        (LayoutChoice::Auto, 7),
    ];
    for (choice, part_rows) in steps {
        table.append(3, any);
        let written = table.checkpointer(choice, part_rows).write(table.newest()).unwrap();
        table.forget_commits_below(written.version);
        table.check();
    }
    table.commit(&[protocol(&["v2Checkpoint"])]);
    for part_rows in [5, 1_000] {
        table.append(3, any);
        let mut checkpointer = table.checkpointer(LayoutChoice::V2, part_rows);
        let written = checkpointer.write(table.newest()).unwrap();
        assert!(matches!(written.layout, Layout::V2 { .. }));
        table.forget_commits_below(written.version);
        table.check();
    }
    table.append(3, any);
    let written = table.checkpointer(LayoutChoice::Classic, 5).write(table.newest()).unwrap();
    assert_eq!(written.layout, Layout::Classic);
    table.forget_commits_below(written.version);
    table.check();
}

#[test]
fn checkpoints_of_another_writer_are_a_base() {
    let cases: [(&[&str], Option<usize>); 4] = [
        (&[], None),
        (&["v2Checkpoint"], None),
        (&["v2Checkpoint"], Some(10)),
        (&["v2Checkpoint", "deletionVectors"], Some(10)),
    ];
    for (features, sidecar_actions) in cases {
        let mut table = Table::new(features);
        some_history(&mut table);
        write_checkpoint(&table.store, sidecar_actions).unwrap();
        table.forget_commits_below(table.newest());
        table.check();
        let paths: Vec<_> = table.files.keys().take(2).cloned().collect();
        let now_ms = table.store.env().now_ms();
        table.commit(&[remove(&paths[0], now_ms), remove(&paths[1], now_ms), txn("busy", 2)]);
        table.append(3, any);
        let mut checkpointer = table.checkpointer(LayoutChoice::Auto, 10);
        for _ in 0..2 {
            let written = checkpointer.write(table.newest()).unwrap();
            assert_eq!((written.adds, written.damaged.len()), (table.files.len() as u64, 0));
            table.forget_commits_below(written.version);
            table.check();
            table.append(1, any);
        }
    }
}

#[test]
fn deletion_vectors_tell_actions_on_one_path_apart() {
    for features in [&["deletionVectors"][..], &["deletionVectors", "v2Checkpoint"]] {
        let mut table = Table::new(features);
        table.append(3, any);
        let mut checkpointer = table.checkpointer(LayoutChoice::Auto, 2);
        checkpointer.write(table.newest()).unwrap();
        let path = table.files.keys().next().unwrap().clone();
        let now_ms = table.store.env().now_ms();
        table.commit(&[remove(&path, now_ms), with_vector(add(&path, 100), 1)]);
        checkpointer.write(table.newest()).unwrap();
        table.commit(&[with_vector(remove(&path, now_ms), 1), with_vector(add(&path, 100), 2)]);
        let written = checkpointer.write(table.newest()).unwrap();
        assert_eq!((written.adds, written.removes), (3, 2));
        table.forget_commits_below(written.version);
        table.check();
    }
}

#[test]
fn v2_needs_its_feature() {
    let table = Table::new(&[]);
    let error = table.checkpointer(LayoutChoice::V2, 10).write(0).unwrap_err();
    assert!(matches!(error, CheckpointError::V2NotEnabled));
}

#[test]
fn a_missing_commit_is_named() {
    let mut table = Table::new(&[]);
    table.append(1, any);
    let error = table.checkpointer(LayoutChoice::Auto, 10).write(5).unwrap_err();
    assert!(matches!(error, CheckpointError::CommitMissing { version: 2 }), "{error:?}");
}

#[test]
fn what_expired_is_left_out() {
    for features in [&[][..], &["v2Checkpoint"]] {
        let mut table = Table::new(features);
        table.append(40, any);
        let mut checkpointer = table.checkpointer(LayoutChoice::Auto, 10);
        checkpointer.write(table.newest()).unwrap();
        let now_ms = table.store.env().now_ms();
        let paths: Vec<_> = table.files.keys().cloned().collect();
        let old =
            json!({"txn": {"appId": "late", "version": 1, "lastUpdated": now_ms - 7_200_000}});
        table.commit(&[remove(&paths[0], now_ms - 3_600_000), remove(&paths[1], now_ms), old]);
        let written = checkpointer.write(table.newest()).unwrap();
        assert_eq!((written.adds, written.removes), (38, 2));
        table.check();
        table.commit(&[metadata(json!({
            "delta.deletedFileRetentionDuration": "interval 30 minutes",
            "delta.setTransactionRetentionDuration": "interval 1 hour",
        }))]);
        let written = checkpointer.write(table.newest()).unwrap();
        assert_eq!((written.adds, written.removes), (38, 1));
        table.transactions.remove("late");
        table.forget_commits_below(written.version);
        table.check();
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let mut table = Table::new(&[]);
    table.append(30, any);
    let mut checkpointer = table.checkpointer(LayoutChoice::MultiPart, 10);
    checkpointer.write(table.newest()).unwrap();
    table.append(3, any);
    checkpointer.write(table.newest()).unwrap();
    let name = format!("_delta_log/{:020}.checkpoint.0000000003.0000000004.parquet", 2);
    table.store.put(&name, "PAR1 this is not PAR1".into()).unwrap();
    table.append(3, any);
    let written = table.checkpointer(LayoutChoice::MultiPart, 10).write(table.newest()).unwrap();
    assert_eq!((written.adds, written.damaged.len()), (36, 1));
    table.forget_commits_below(written.version);
    table.check();
    // What is remembered may be gone too.
    let gone: Vec<_> =
        table.log().into_iter().filter(|name| name.contains("checkpoint.")).collect();
    table.append(1, any);
    let all: Vec<_> = gone.iter().map(|name| format!("_delta_log/{name}")).collect();
    table.store.delete_many(&all).unwrap();
    let error = checkpointer.write(table.newest()).unwrap_err();
    assert!(matches!(error, CheckpointError::CommitMissing { version: 0 }), "{error:?}");
}

#[test]
fn an_incomplete_set_is_no_base() {
    let mut table = Table::new(&[]);
    table.append(30, any);
    table.checkpointer(LayoutChoice::Classic, 10).write(table.newest()).unwrap();
    table.append(3, any);
    let bytes = table.store.get(&format!("_delta_log/{:020}.checkpoint.parquet", 1)).unwrap();
    let part = format!("_delta_log/{:020}.checkpoint.0000000001.0000000002.parquet", 2);
    table.store.put(&part, bytes).unwrap();
    table.append(3, any);
    let written = table.checkpointer(LayoutChoice::MultiPart, 10).write(table.newest()).unwrap();
    assert_eq!((written.adds, written.damaged.len()), (36, 0));
    table.forget_commits_below(written.version);
    table.check();
}

#[test]
fn the_hint_does_not_move_backwards() {
    let mut table = Table::new(&[]);
    table.append(3, any);
    table.append(3, any);
    let mut later = table.checkpointer(LayoutChoice::Classic, 10);
    let mut earlier = table.checkpointer(LayoutChoice::Classic, 10);
    later.write(2).unwrap();
    let hint = table.store.get("_delta_log/_last_checkpoint").unwrap();
    assert!(!earlier.write(1).unwrap().is_hinted);
    assert_eq!(table.store.get("_delta_log/_last_checkpoint").unwrap(), hint);
    assert!(matches!(later.write(1), Err(CheckpointError::Backwards { asked: 1, last: 2 })));
}
