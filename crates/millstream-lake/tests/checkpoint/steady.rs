//! The cost of one checkpoint after another.

use std::sync::Arc;

use millstream_lake::checkpoint::placement::{part_of, part_of_other_actions};
use millstream_lake::checkpoint::{Layout, LayoutChoice};
use object_store::ObjectStore;

use crate::stores::{Counted, Requests};
use crate::table::{Table, any, txn};

fn counted(table: &mut Table) -> Arc<Requests> {
    let requests = Requests::new(u64::MAX);
    let shared = Arc::clone(&requests);
    table.store = table.store.wrapped(|store: Arc<dyn ObjectStore>| {
        Arc::new(Counted { store, requests: shared }) as Arc<dyn ObjectStore>
    });
    requests
}

#[test]
fn steered_files_dirty_one_part() {
    let mut table = Table::new(&[]);
    table.append(200, any);
    let requests = counted(&mut table);
    let mut checkpointer = table.checkpointer(LayoutChoice::Auto, 20);
    let parts = match checkpointer.write(table.newest()).unwrap().layout {
        Layout::MultiPart { parts } => parts,
        other => panic!("{other:?}"),
    };
    assert_eq!(parts, 16);
    let part_file_names = checkpointer.part_file_names();
    for batch in 0..40 {
        let (_, hot) = part_file_names.hot();
        assert_ne!(hot, part_of_other_actions(parts));
        for version in 0..3 {
            table.append(1, |names| part_file_names.draw("day=2026-01-01/", names));
            table.commit(&[txn("busy", batch * 3 + version)]);
        }
        requests.take();
        let written = checkpointer.write(table.newest()).unwrap();
        let [gets, puts, lists, copies, deletes] = requests.take();
        if written.layout != (Layout::MultiPart { parts }) {
            break;
        }
        assert_eq!((written.parts_rewritten, written.parts_copied), (2, 14));
        // Six commits, two old parts, two footers, the hint.
        assert_eq!((gets, puts, lists, copies, deletes), (11, 3, 0, 16, 2));
        if batch % 8 == 0 {
            table.forget_commits_below(written.version);
            table.check();
        }
    }
    let hot = table.files.keys().filter(|path| path.starts_with("day"));
    assert!(hot.clone().all(|path| part_of(path, parts) != part_of_other_actions(parts)));
    table.check();
}

#[test]
fn the_first_checkpoint_after_a_start_is_as_cheap_as_others() {
    let mut table = Table::new(&[]);
    table.append(200, any);
    table.checkpointer(LayoutChoice::Auto, 20).write(table.newest()).unwrap();
    let mut checkpointer = table.checkpointer(LayoutChoice::Auto, 20);
    checkpointer.prepare().unwrap();
    let part_file_names = checkpointer.part_file_names();
    for _ in 0..12 {
        table.append(1, |names| part_file_names.draw("", names));
    }
    let written = checkpointer.write(table.newest()).unwrap();
    // Theirs, and the one that has everything that is not about files.
    assert_eq!((written.parts, written.parts_rewritten), (16, 2));
    table.forget_commits_below(written.version);
    table.check();
}

#[test]
fn commits_that_others_cleaned_up_are_done_without() {
    let mut table = Table::new(&[]);
    table.append(30, any);
    let mut checkpointer = table.checkpointer(LayoutChoice::Auto, 20);
    checkpointer.write(table.newest()).unwrap();
    table.append(30, any);
    table.append(30, any);
    table.checkpointer(LayoutChoice::Auto, 20).write(table.newest()).unwrap();
    table.forget_commits_below(table.newest());
    table.append(1, any);
    let written = checkpointer.write(table.newest()).unwrap();
    assert_eq!(written.adds, table.files.len() as u64);
    table.check();
}

#[test]
fn parts_double_when_they_are_full() {
    let mut table = Table::new(&[]);
    table.append(30, any);
    let mut checkpointer = table.checkpointer(LayoutChoice::Auto, 16);
    let part_file_names = checkpointer.part_file_names();
    let mut parts_seen = Vec::new();
    for _ in 0..40 {
        table.append(8, |names| part_file_names.draw("", names));
        let written = checkpointer.write(table.newest()).unwrap();
        parts_seen.push(written.parts);
        table.forget_commits_below(written.version);
    }
    assert!(parts_seen.is_sorted());
    assert!(parts_seen.contains(&4) && parts_seen.last() > Some(&16), "{parts_seen:?}");
    table.check();
}

#[test]
fn many_small_row_groups_become_one() {
    for (features, layout) in
        [(&[][..], LayoutChoice::MultiPart), (&["v2Checkpoint"], LayoutChoice::V2)]
    {
        let mut table = Table::new(features);
        table.append(50, any);
        let mut checkpointer = table.checkpointer(layout, 1_000);
        let part_file_names = checkpointer.part_file_names();
        for _ in 0..150 {
            table.append(2, |names| part_file_names.draw("", names));
            let written = checkpointer.write(table.newest()).unwrap();
            assert!(written.parts < 20, "{written:?}");
            assert_eq!(written.adds, table.files.len() as u64);
        }
        table.forget_commits_below(table.newest());
        table.check();
    }
}

#[test]
fn sidecars_are_referenced_again() {
    let mut table = Table::new(&["v2Checkpoint"]);
    table.append(100, any);
    let requests = counted(&mut table);
    let mut checkpointer = table.checkpointer(LayoutChoice::Auto, 20);
    checkpointer.write(table.newest()).unwrap();
    table.append(3, any);
    requests.take();
    let written = checkpointer.write(table.newest()).unwrap();
    assert_eq!((written.parts_rewritten, written.parts_copied), (1, 5));
    // One commit, one footer, the hint.
    assert_eq!(requests.take(), [3, 3, 0, 0, 0]);
    table.forget_commits_below(written.version);
    table.check();
}
