//! A process that dies at any request of a checkpoint, and the next one.

use std::sync::Arc;

use millstream_lake::checkpoint::{Checkpointer, LayoutChoice, Settings, repair};
use object_store::ObjectStore;

use crate::stores::{Counted, Requests};
use crate::table::{Table, any, remove};

fn settings(layout: LayoutChoice) -> Settings {
    Settings { part_rows: 10, layout, ..Settings::default() }
}

/// A table with a checkpoint and commits above it.
fn begun(features: &[&str], layout: LayoutChoice) -> (Table, Checkpointer) {
    let mut table = Table::new(features);
    table.append(30, any);
    let mut checkpointer = Checkpointer::open(table.store.clone(), settings(layout)).unwrap();
    checkpointer.write(table.newest()).unwrap();
    table.append(3, any);
    let path = table.files.keys().next().unwrap().clone();
    table.commit(&[remove(&path, table.store.env().now_ms())]);
    (table, checkpointer)
}

fn dies_at(requests_left: u64, features: &[&str], layout: LayoutChoice) -> bool {
    let (mut table, _) = begun(features, layout);
    let requests = Requests::new(requests_left);
    let shared = Arc::clone(&requests);
    let dying = table.store.wrapped(|store: Arc<dyn ObjectStore>| {
        Arc::new(Counted { store, requests: shared }) as Arc<dyn ObjectStore>
    });
    let written = Checkpointer::open(dying, settings(layout))
        .and_then(|mut checkpointer| checkpointer.write(table.newest()));
    table.check();
    let repaired = repair(&table.store, "nobody").unwrap();
    table.check();
    assert!(!table.log().iter().any(|name| name.starts_with("_staged")), "{repaired:?}");
    let whole_sets = |table: &Table, version: u64| {
        let prefix = format!("{version:020}.checkpoint.");
        let parts = table.log().into_iter().filter(|name| name.starts_with(&prefix)).count();
        layout != LayoutChoice::MultiPart || parts == 0 || parts == 4
    };
    assert!(whole_sets(&table, table.newest()), "{:?}", table.log());
    table.append(2, any);
    let mut next = Checkpointer::open(table.store.clone(), settings(layout)).unwrap();
    let again = next.write(table.newest()).unwrap();
    assert_eq!(again.adds, table.files.len() as u64);
    table.forget_commits_below(again.version);
    table.check();
    assert!(written.is_ok() || requests.has_died());
    written.is_err()
}

#[test]
fn a_crash_at_any_request_loses_nothing() {
    let layouts: [(&[&str], LayoutChoice); 3] = [
        (&[], LayoutChoice::Classic),
        (&[], LayoutChoice::MultiPart),
        (&["v2Checkpoint"], LayoutChoice::V2),
    ];
    for (features, layout) in layouts {
        let mut crashes = 0;
        while dies_at(crashes, features, layout) {
            crashes += 1;
            assert!(crashes < 200, "a checkpoint does not take so many requests");
        }
        assert!(crashes > 8, "{layout:?}: {crashes}");
    }
}

#[test]
fn a_failed_attempt_can_be_repeated() {
    for left in 0..40 {
        let (mut table, _) = begun(&[], LayoutChoice::MultiPart);
        let requests = Requests::new(u64::MAX);
        let shared = Arc::clone(&requests);
        let store = table.store.wrapped(|store: Arc<dyn ObjectStore>| {
            Arc::new(Counted { store, requests: shared }) as Arc<dyn ObjectStore>
        });
        let mut checkpointer =
            Checkpointer::open(store, settings(LayoutChoice::MultiPart)).unwrap();
        checkpointer.write(table.newest()).unwrap();
        table.append(3, any);
        requests.die_after(left);
        let first = checkpointer.write(table.newest());
        requests.die_after(u64::MAX);
        let second = checkpointer.write(table.newest()).unwrap();
        assert!(!table.log().iter().any(|name| name.starts_with("_staged")));
        assert!(first.is_err() || first.unwrap().version == second.version);
        assert_eq!(second.adds, table.files.len() as u64);
        assert!(second.is_hinted);
        table.forget_commits_below(second.version);
        table.check();
    }
}
