//! Appends: published once, whatever answers are lost and whoever else writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_lake::data_file::DataFile;
use millstream_lake::error::TableError;
use millstream_lake::file_writer::{FileSettings, FileWriter, WritePlan};
use millstream_lake::store::TableStore;
use millstream_lake::table::{Append, NewTable, Table};
use millstream_store::error::{Classified, Kind};
use object_store::memory::InMemory;
use object_store::path::Path;
use url::Url;

use crate::proxy_store::Fate;
use crate::support::{World, append, create, rows, schema, written};

fn of_query<'a>(
    application: &'a str,
    version: i64,
    files: &'a [DataFile],
    prepared_by: u64,
) -> Append<'a> {
    Append { application, version, files, prepared_by, note: "{}" }
}

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
    assert_eq!(again.note_of("q", 1).expect("readable"), None);
}

#[test]
fn an_append_is_one_request() {
    let world = World::new();
    let (store, control) = world.proxied();
    let table = create(&store, &[]);
    append(&table, "q", 0, &rows(0, 10));
    for version in 1..50 {
        let files = written(&table, &rows(0, 10));
        control.counted();
        let note = "{}";
        let prepared_by = table.version();
        let append = Append { application: "q", version, files: &files, prepared_by, note };
        table.append(&append).expect("published");
        assert_eq!(control.counted(), BTreeMap::from([("put", 1)]), "version {version}");
    }
}

#[test]
fn files_of_a_commit_are_put_side_by_side() {
    let world = World::new();
    let (store, control) = world.proxied();
    let table = create(&store, &["name".to_owned()]);
    assert_eq!(written(&table, &rows(0, 10)).len(), 10);
    assert!(control.puts_in_flight_max() > 1);
}

#[test]
fn files_beside_one_that_the_store_refuses_do_not_stay() {
    let world = World::new();
    let (store, control) = world.proxied();
    let table = create(&store, &["name".to_owned()]);
    let mut data_files = 0;
    control.decide(move |kind, name| {
        data_files += usize::from(kind == "put" && name.ends_with(".parquet"));
        if data_files == 5 { Fate::Forbidden } else { Fate::Pass }
    });
    let plan = WritePlan::new(&table, &schema(), FileSettings::default()).expect("they fit");
    let mut writer = FileWriter::new(plan, &store);
    writer.write(&rows(0, 10)).expect("encoded");
    assert!(writer.finish().is_err());
    assert!(writer.finish().expect("nothing is left to be put").is_empty());
    control.decide(|_, _| Fate::Pass);
    writer.abandon();
    let left = store.list("", None).expect("a listing");
    assert!(left.iter().all(|file| !file.name.ends_with(".parquet")), "{left:?}");
}

#[test]
fn an_append_goes_behind_those_of_others() {
    let world = World::new();
    let ours = create(&world.store(), &[]);
    let theirs = Table::open(&world.store()).expect("the table");
    for version in 0..3 {
        append(&theirs, "p", version, &rows(version, 3)).expect("published");
    }
    let appended = append(&ours, "q", 7, &rows(100, 2)).expect("published");
    assert_eq!((appended.version, appended.conflicts), (4, 1));
}

/// Meets the first put of a log entry with `fate`, and expects one version all the same.
fn meets(fate: Fate) {
    let world = World::new();
    let (store, control) = world.proxied();
    let table = create(&store, &[]);
    let mut is_met = false;
    control.decide(move |kind, name| {
        if kind == "put" && name.ends_with(".json") && !is_met {
            is_met = true;
            fate
        } else {
            Fate::Pass
        }
    });
    let appended = append(&table, "q", 0, &rows(0, 10)).expect("published");
    assert_eq!((appended.version, appended.conflicts), (1, 0), "{fate:?}");
    assert_eq!(append(&table, "q", 1, &rows(10, 10)).expect("published").version, 2);
    assert_eq!(Table::open(&world.store()).expect("the table").version(), 2);
}

#[test]
fn a_request_that_is_lost_is_made_again() {
    meets(Fate::LostOnTheWay);
}

#[test]
fn an_answer_that_is_lost_is_looked_up() {
    meets(Fate::AnswerLost);
}

#[test]
fn a_name_taken_by_ourselves_is_ours() {
    meets(Fate::RepeatedByTheClient);
}

#[test]
fn a_name_taken_by_nothing_is_tried_again() {
    meets(Fate::NameTakenByNothing);
}

#[test]
fn a_store_that_stays_away_is_reported() {
    let world = World::new();
    let (store, control) = world.proxied();
    let table = create(&store, &[]);
    let files = written(&table, &rows(0, 10));
    control.decide(|kind, _| if kind == "put" { Fate::LostOnTheWay } else { Fate::Pass });
    let append = of_query("q", 0, &files, 0);
    let error = table.append(&append).expect_err("nothing gets through");
    assert_eq!(error.kind(), Kind::Retry, "{error}");
    assert!(error.to_string().contains("the connection was cut"), "{error}");
    control.decide(|_, _| Fate::Pass);
    assert_eq!(table.append(&append).expect("published").map(|done| done.version), Some(1));
}

#[test]
fn what_another_attempt_cannot_change_is_not_tried_again() {
    let world = World::new();
    let (store, control) = world.proxied();
    let table = create(&store, &[]);
    let files = written(&table, &rows(0, 10));
    control.decide(|kind, _| if kind == "put" { Fate::Forbidden } else { Fate::Pass });
    control.counted();
    table.append(&of_query("q", 0, &files, 0)).expect_err("it is forbidden");
    assert_eq!(control.counted()["put"], 1);
}

#[test]
fn what_others_have_published_for_a_query_is_known_when_it_asks() {
    let world = World::new();
    let ours = create(&world.store(), &[]);
    let theirs = Table::open(&world.store()).expect("the table");
    append(&theirs, "q", 5, &rows(0, 1)).expect("published");
    assert_eq!(ours.last_published("q").expect("readable"), Some(5));
}

#[test]
fn a_second_process_for_the_same_query_is_stopped() {
    let world = World::new();
    let ours = create(&world.store(), &[]);
    append(&ours, "q", 0, &rows(0, 1)).expect("published");
    let theirs = Table::open(&world.store()).expect("the table");
    append(&theirs, "q", 1, &rows(1, 1)).expect("published");
    let files = written(&ours, &rows(1, 1));
    let append = of_query("q", 1, &files, 0);
    let error = ours.append(&append).expect_err("the other one was first");
    assert!(matches!(error, TableError::Fenced { theirs: 1, ours: 1, .. }), "{error}");
    assert_eq!(error.kind(), Kind::Fenced);
    assert_eq!(Table::open(&world.store()).expect("the table").version(), 2);
}

#[test]
fn a_second_process_is_noticed_whatever_the_numbers_of_its_micro_batches() {
    let world = World::new();
    let ours = create(&world.store(), &[]);
    append(&ours, "q", 0, &rows(0, 1)).expect("published");
    let theirs = Table::open(&world.store()).expect("the table");
    // One commit of theirs has what three of ours have.
    append(&theirs, "q", 1, &rows(1, 3)).expect("published");
    let files = written(&ours, &rows(1, 1));
    let late = of_query("q", 3, &files, ours.version());
    let error = ours.append(&late).expect_err("its rows are published");
    assert!(matches!(error, TableError::Fenced { theirs: 1, ours: 3, .. }), "{error}");
    assert!(ours.append(&late).is_err(), "nor are they at the second attempt");
    // The others of this process go on.
    append(&ours, "p", 0, &rows(7, 1)).expect("published");
    assert_eq!(ours.last_published("q").expect("readable"), Some(1), "asked, it starts anew");
    append(&ours, "q", 2, &rows(4, 1)).expect("published");
}

#[test]
fn another_schema_is_noticed_by_each_query() {
    let world = World::new();
    let ours = create(&world.store(), &[]);
    let prepared_by = ours.version();
    let theirs = Table::open(&world.store()).expect("the table");
    let kind = arrow::datatypes::DataType::Int32;
    let more = arrow::datatypes::Field::new("more", kind, true);
    theirs.add_columns(&arrow::datatypes::Schema::new(vec![more])).expect("a column more");
    for query in ["q", "p"] {
        let files = written(&ours, &rows(0, 1));
        let append = of_query(query, 0, &files, prepared_by);
        let error = ours.append(&append).expect_err("the table has changed");
        assert!(matches!(error, TableError::Changed { version: 1, .. }), "{query}: {error}");
    }
    append(&ours, "r", 0, &rows(0, 1)).expect("prepared by what the table is now");
}

#[test]
fn another_schema_stops_rows_on_their_way() {
    let world = World::new();
    let ours = create(&world.store(), &[]);
    let files = written(&ours, &rows(0, 1));
    let theirs = Table::open(&world.store()).expect("the table");
    let more = arrow::datatypes::Schema::new(vec![arrow::datatypes::Field::new(
        "more",
        arrow::datatypes::DataType::Int32,
        false,
    )]);
    theirs.add_columns(&more).expect("a column more");
    let append = of_query("q", 0, &files, 0);
    let error = ours.append(&append).expect_err("the table has changed");
    assert!(matches!(error, TableError::Changed { version: 1, .. }), "{error}");
    let columns = Table::open(&world.store()).expect("the table").schema().expect("columns");
    assert!(columns.field_with_name("more").expect("it was added").is_nullable());
}

#[test]
fn columns_are_added_behind_what_others_have_committed() {
    let world = World::new();
    let ours = create(&world.store(), &[]);
    let theirs = Table::open(&world.store()).expect("the table");
    append(&theirs, "p", 0, &rows(0, 3)).expect("published");
    let more = arrow::datatypes::Field::new("more", arrow::datatypes::DataType::Int32, true);
    ours.add_columns(&arrow::datatypes::Schema::new(vec![more])).expect("a column more");
    assert_eq!(ours.version(), 2);
    let columns = Table::open(&world.store()).expect("the table").schema().expect("columns");
    assert!(columns.field_with_name("more").is_ok());
}

#[test]
fn a_table_that_was_deleted_or_put_back_on_the_disk_gets_no_other_version() {
    for (is_put_back, words) in [(false, "no table that can be read"), (true, "ends at version 1")]
    {
        let world = World::new();
        let table = create(&world.store(), &[]);
        append(&table, "q", 0, &rows(0, 1)).expect("published");
        append(&table, "q", 1, &rows(1, 1)).expect("published");
        let files = written(&table, &rows(2, 1));
        let log = world.directory.path().join("a table/_delta_log");
        let last = log.join("00000000000000000002.json");
        if is_put_back {
            std::fs::remove_file(&last).expect("deleted");
        } else {
            std::fs::remove_dir_all(&log).expect("deleted");
        }
        let error = table.append(&of_query("q", 2, &files, 2)).expect_err("the version is gone");
        assert!(matches!(error, TableError::Gone { version: 2, .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!log.join("00000000000000000003.json").exists());
    }
}

#[test]
fn a_table_that_is_gone_from_an_object_store_gets_no_other_version() {
    let world = World::new();
    let (memory, root) = (Arc::new(InMemory::new()), Path::from("table"));
    let url = Url::parse("memory:///table/").expect("a URL");
    let store = TableStore::new(memory, root, url, &world.env);
    let table = create(&store, &[]);
    append(&table, "q", 0, &rows(0, 1)).expect("published");
    table.look_again();
    append(&table, "q", 1, &rows(1, 1)).expect("it is all there");
    let files = written(&table, &rows(2, 1));
    let names: Vec<String> = store
        .list("_delta_log", None)
        .expect("listed")
        .into_iter()
        .map(|listed| listed.name)
        .collect();
    store.delete_many(&names).expect("deleted");
    table.look_again();
    for _ in 0..2 {
        let append = of_query("q", 2, &files, table.version());
        let error = table.append(&append).expect_err("the table is gone");
        assert!(matches!(error, TableError::Gone { version: 2, .. }), "{error}");
    }
    assert!(store.list("_delta_log", None).expect("listed").is_empty());
}

#[test]
fn a_table_is_made_where_a_crash_cut_its_making_off() {
    let world = World::new();
    let log = world.directory.path().join("a table/_delta_log");
    std::fs::create_dir_all(&log).expect("a directory");
    std::fs::write(log.join(".00000000000000000000.json.5162.tmp"), "{").expect("written");
    assert!(matches!(Table::open(&world.store()), Err(TableError::Missing { .. })));
    let table = create(&world.store(), &[]);
    append(&table, "q", 4, &rows(0, 1)).expect("published");
    assert_eq!(Table::open(&world.store()).expect("the table").version(), 1);
}

#[test]
fn what_was_published_is_known_though_the_table_forgets_it() {
    let world = World::new();
    let property = "delta.setTransactionRetentionDuration".to_owned();
    let properties = [(property, "interval 0 seconds".to_owned())];
    let new = NewTable { schema: &schema(), partition_by: &[], properties: &properties };
    let table = Table::create(&world.store(), &new).expect("a new table");
    append(&table, "q", 4, &rows(0, 1)).expect("published");
    append(&table, "p", 1, &rows(0, 1)).expect("published");
    std::thread::sleep(std::time::Duration::from_millis(5));
    let again = Table::open(&world.store()).expect("the table");
    assert_eq!(again.last_published("q").expect("readable"), Some(4));
}

#[test]
fn several_queries_append_from_several_threads() {
    let world = World::new();
    let table = create(&world.store(), &[]);
    std::thread::scope(|scope| {
        for query in ["a", "b", "c"] {
            let table = &table;
            scope.spawn(move || {
                for version in 0..20 {
                    append(table, query, version, &rows(version, 1)).expect("published");
                }
            });
        }
    });
    assert_eq!(table.version(), 60);
    assert_eq!(Table::open(&world.store()).expect("the table").version(), 60);
}
