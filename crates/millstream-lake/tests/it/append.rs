//! Appends: published once, whoever else writes.

use millstream_lake::table::Table;

use crate::support::{World, append, create, rows};

#[test]
fn an_append_is_one_version() {
    let world = World::new();
    let table = create(&world.store(), &[]);
    assert_eq!(table.version(), 0);
    let appended = append(&table, "q", 0, &rows(0, 10)).expect("published");
    assert_eq!((appended.version, appended.conflicts), (1, 0));
    assert_eq!(append(&table, "q", 0, &rows(0, 10)), None, "the same micro-batch again");
    let again = Table::open(&world.store()).expect("the table");
    assert_eq!(again.last_published("q").expect("readable"), Some(0));
    assert_eq!(again.last_published("p").expect("readable"), None);
    assert_eq!(again.note_of("q", 0).expect("readable").as_deref(), Some(r#"{"batch":1}"#));
}

#[test]
fn an_append_goes_behind_those_of_others() {
    let world = World::new();
    let ours = create(&world.store(), &["name".to_owned()]);
    let theirs = Table::open(&world.store()).expect("the table");
    for version in 0..3 {
        append(&theirs, "p", version, &rows(version, 3)).expect("published");
    }
    let appended = append(&ours, "q", 7, &rows(100, 2)).expect("published");
    assert_eq!((appended.version, appended.conflicts), (4, 1));
}
