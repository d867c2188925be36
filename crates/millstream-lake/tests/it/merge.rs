//! Rows merged by key, compared with a map in memory.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use millstream_lake::compact::background::AutoCompact;
use millstream_lake::compact::optimize::{OptimizeOptions, optimize};
use millstream_lake::error::TableError;
use millstream_lake::file_writer::{FileSettings, FileWriter, WritePlan};
use millstream_lake::maintenance::{Care, LiveTable};
use millstream_lake::merge::{MergeRows, MergeSettings, MergeWriter, Merger};
use millstream_lake::read::TableReader;
use millstream_lake::store::TableStore;
use millstream_lake::table::{Append, Appended, NewTable, Table};
use serde_json::{Value, json};

use crate::proxy_store::Fate;
use crate::support::World;

/// A row: part, id, text.
type Row = (String, i64, String);
/// What a table is to have: text by part and id.
type Model = BTreeMap<i64, (String, String)>;

fn table_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("part", DataType::Utf8, true),
        Field::new("id", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
    ]))
}

/// Rows of the query: `None` as text deletes.
fn query_rows(rows: &[(&str, i64, Option<&str>)]) -> RecordBatch {
    let mut fields: Vec<_> = table_schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new("gone", DataType::Boolean, true)));
    let parts = StringArray::from_iter_values(rows.iter().map(|row| row.0));
    let ids = Int64Array::from_iter_values(rows.iter().map(|row| row.1));
    let texts: StringArray = rows.iter().map(|row| row.2).collect();
    let gone: BooleanArray =
        rows.iter().map(|row| if row.2.is_none() { Some(true) } else { None }).collect();
    RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        vec![Arc::new(parts), Arc::new(ids), Arc::new(texts), Arc::new(gone)],
    )
    .expect("four columns")
}

struct Setup {
    partition_by: Vec<String>,
    properties: Vec<(String, String)>,
    index_bytes: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self { partition_by: Vec::new(), properties: vec![vectors(true)], index_bytes: 16 << 20 }
    }
}

fn vectors(are_on: bool) -> (String, String) {
    ("delta.enableDeletionVectors".to_owned(), are_on.to_string())
}

fn create(store: &TableStore, setup: &Setup) {
    let Setup { partition_by, properties, .. } = setup;
    Table::create(store, &NewTable { schema: &table_schema(), partition_by, properties })
        .expect("a new table");
}

/// A query that merges.
struct Query {
    live: Arc<LiveTable>,
    merger: Merger,
    version: i64,
    name: String,
}

fn settings(index_bytes: usize) -> MergeSettings {
    MergeSettings {
        keys: vec!["ID".to_owned()],
        delete_column: Some("gone".to_owned()),
        index_bytes,
        refuses_repeated: false,
        files: FileSettings::default(),
    }
}

impl Query {
    fn open(store: &TableStore, name: &str, setup: &Setup, care: Care) -> Self {
        let live = LiveTable::start(Table::open(store).expect("the table"), care);
        let live = Arc::new(live.expect("it can be taken care of"));
        let version = live.table().last_published(name).expect("readable").unwrap_or(-1) + 1;
        let schema = query_rows(&[]).schema();
        let merger = Merger::open(&live, &schema, &settings(setup.index_bytes)).expect("it fits");
        Self { live, merger, version, name: name.to_owned() }
    }

    fn written(&self, batches: &[RecordBatch]) -> MergeRows {
        let store = self.live.table().store();
        let mut writer =
            MergeWriter::new(self.merger.plan().clone(), store, self.live.part_file_names());
        batches.iter().for_each(|rows| writer.write(rows).expect("they fit"));
        writer.finish().expect("files")
    }

    fn commit(&mut self, rows: &MergeRows) -> Result<Option<Appended>, TableError> {
        let append = Append {
            application: &self.name,
            version: self.version,
            files: &[],
            prepared_by: self.merger.plan().version(),
            note: r#"{"batch":1}"#,
        };
        let merged = self.merger.commit(&append, rows);
        self.version += 1;
        merged
    }

    fn merge(&mut self, batches: &[RecordBatch]) -> Appended {
        let rows = self.written(batches);
        self.commit(&rows).expect("nothing is in the way").expect("it is new")
    }
}

fn found(world: &World) -> Vec<Row> {
    let reader = TableReader::open(&world.store()).expect("the table");
    let mut found = Vec::new();
    for rows in reader.read(None, None).expect("a read") {
        let rows = rows.expect("rows");
        let (parts, texts) = (rows.column(0).as_string::<i32>(), rows.column(2).as_string::<i32>());
        let ids = rows.column(1).as_primitive::<Int64Type>();
        found.extend(
            (0..rows.num_rows()).map(|row| {
                (parts.value(row).to_owned(), ids.value(row), texts.value(row).to_owned())
            }),
        );
    }
    found.sort_by_key(|row| row.1);
    found
}

fn rows_of(model: &Model) -> Vec<Row> {
    model.iter().map(|(id, (part, text))| (part.clone(), *id, text.clone())).collect()
}

fn actions(world: &World, version: u64) -> Vec<Value> {
    let path = world.directory.path().join(format!("a table/_delta_log/{version:020}.json"));
    let text = fs::read_to_string(path).expect("a commit");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn of<'a>(actions: &'a [Value], kind: &str) -> Vec<&'a Value> {
    actions.iter().filter_map(|action| action.get(kind)).collect()
}

#[test]
fn a_row_takes_the_place_of_the_one_with_its_key() {
    let world = World::new();
    let setup = Setup::default();
    create(&world.store(), &setup);
    let mut query = Query::open(&world.store(), "q", &setup, Care::default());
    query.merge(&[query_rows(&[
        ("a", 1, Some("one")),
        ("a", 2, Some("two")),
        ("a", 3, Some("3")),
    ])]);
    // The last of a key counts, also across record batches; a deletion counts in its place.
    query.merge(&[
        query_rows(&[("b", 1, Some("1")), ("b", 1, Some("uno")), ("b", 9, None), ("b", 4, None)]),
        query_rows(&[("b", 2, None), ("b", 4, Some("four")), ("b", 5, Some("5")), ("b", 5, None)]),
    ]);
    let expected = [("b", 1, "uno"), ("a", 3, "3"), ("b", 4, "four")];
    let expected = expected.map(|(part, id, text)| (part.to_owned(), id, text.to_owned()));
    assert_eq!(found(&world), expected);

    let actions = actions(&world, 2);
    let (adds, removes) = (of(&actions, "add"), of(&actions, "remove"));
    assert_eq!((adds.len(), removes.len()), (2, 1), "a new file, and one with a vector");
    let vector =
        adds.iter().find(|add| !add["deletionVector"].is_null()).expect("one has a vector");
    assert_eq!(vector["deletionVector"]["cardinality"], json!(2));
    assert_eq!(vector["deletionVector"]["storageType"], json!("u"));
    let statistics: Value =
        serde_json::from_str(vector["stats"].as_str().expect("text")).expect("JSON");
    assert_eq!((&statistics["numRecords"], &statistics["tightBounds"]), (&json!(3), &json!(false)));
    assert_eq!(of(&actions, "txn")[0]["version"], json!(1));
    let info = of(&actions, "commitInfo")[0];
    assert_eq!(info["operation"], json!("MERGE"));
    assert_eq!(info["operationMetrics"]["numTargetRowsUpdated"], json!("1"), "{info}");
    assert_eq!(info["operationMetrics"]["numTargetRowsInserted"], json!("1"));
    assert_eq!(info["operationMetrics"]["numTargetRowsDeleted"], json!("1"));

    // Of a file without rows nothing is left.
    query.merge(&[query_rows(&[("c", 3, None), ("c", 1, None), ("c", 4, None)])]);
    assert_eq!(found(&world), []);
    let live = Table::open(&world.store()).expect("the table").count_files().expect("a scan");
    assert_eq!(live, 0);
    // The progress of the query is there also where nothing was changed.
    query.merge(&[query_rows(&[("c", 77, None)])]);
    assert_eq!(query.live.table().last_published("q").expect("readable"), Some(3));
    let again = Append {
        application: "q",
        version: 3,
        files: &[],
        prepared_by: query.merger.plan().version(),
        note: "{}",
    };
    let rows = query.written(&[query_rows(&[("c", 3, Some("again"))])]);
    assert_eq!(query.merger.commit(&again, &rows).expect("no failure"), None);
    assert_eq!(found(&world), []);
}

/// A small generator of numbers, the same for a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const IDS: u64 = 60;

/// Rows of a micro-batch, and what they make of `model`.
fn micro_batch(draw: &mut Draw, model: &mut Model, size: u64) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    for _ in 0..=draw.below(2) {
        let mut rows = Vec::new();
        for _ in 0..draw.below(size) {
            let (id, part) = (draw.below(IDS) as i64, format!("p{}", draw.below(3)));
            let text = (draw.below(4) > 0).then(|| format!("text {}", draw.below(1_000)));
            match &text {
                Some(text) => {
                    model.insert(id, (part.clone(), text.clone()));
                }
                None => {
                    model.remove(&id);
                }
            }
            rows.push((part, id, text));
        }
        let rows: Vec<_> =
            rows.iter().map(|(part, id, text)| (part.as_str(), *id, text.as_deref())).collect();
        batches.push(query_rows(&rows));
    }
    batches
}

/// Another process appends a row of some keys, of which the table then has several.
fn append_by_others(world: &World, version: i64, model: &mut Model, ids: &[i64]) {
    let table = Table::open(&world.store()).expect("the table");
    let plan = WritePlan::new(&table, &table_schema(), FileSettings::default()).expect("they fit");
    let mut writer = FileWriter::new(plan, table.store());
    let texts: Vec<String> = ids.iter().map(|id| format!("appended {id}")).collect();
    let rows: Vec<_> =
        ids.iter().zip(&texts).map(|(id, text)| ("p9", *id, Some(&**text))).collect();
    let mut rows = query_rows(&rows);
    rows.remove_column(3);
    writer.write(&rows).expect("written");
    let files = writer.finish().expect("files");
    let prepared_by = table.version();
    let append = Append { application: "other", version, files: &files, prepared_by, note: "{}" };
    table.append(&append).expect("an append");
    for (id, text) in ids.iter().zip(texts) {
        model.insert(*id, ("p9".to_owned(), text));
    }
}

const OPTIMIZE: OptimizeOptions<'static> =
    OptimizeOptions { target_bytes: 1 << 20, partitions: None, condition: None, is_dry_run: false };

/// Random micro-batches of a query that is started anew now and then, while others merge, append
/// and compact: the table is what a map in memory is. `setup` is tried with many seeds.
fn run_model(setup: &Setup, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (world, mut draw, mut model) = (World::new(), Draw(seed), Model::new());
        create(&world.store(), setup);
        let mut query = Query::open(&world.store(), "q", setup, Care::default());
        let mut other = Query::open(&world.store(), "p", setup, Care::default());
        for step in 0..40 {
            match draw.below(12) {
                0 => query = Query::open(&world.store(), "q", setup, Care::default()),
                1 => {
                    // Keys that the table does not have: a second row of one could be either.
                    let all = 0..IDS as i64;
                    let free: Vec<i64> = all.filter(|id| !model.contains_key(id)).take(4).collect();
                    append_by_others(&world, step, &mut model, &free);
                }
                2 => {
                    optimize(&world.store(), &OPTIMIZE).expect("nothing is in the way");
                }
                3 | 4 => {
                    let rows = micro_batch(&mut draw, &mut model, 20);
                    other.merge(&rows);
                }
                _ => {
                    let rows = micro_batch(&mut draw, &mut model, 40);
                    query.merge(&rows);
                }
            }
            assert_eq!(found(&world), rows_of(&model), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn random_merges_end_as_a_map_does() {
    run_model(&Setup::default(), 0..4);
}

#[test]
fn random_merges_without_deletion_vectors_end_as_a_map_does() {
    run_model(&Setup { properties: vec![vectors(false)], ..Setup::default() }, 10..12);
}

#[test]
fn random_merges_into_partitions_end_as_a_map_does() {
    let partition_by = vec!["part".to_owned()];
    run_model(&Setup { partition_by, ..Setup::default() }, 20..22);
}

#[test]
fn keys_that_memory_is_not_for_are_found_in_files() {
    for has_vectors in [true, false] {
        let world = World::new();
        let properties = vec![vectors(has_vectors)];
        let setup = Setup { properties, index_bytes: 1 << 20, ..Setup::default() };
        create(&world.store(), &setup);
        let mut query = Query::open(&world.store(), "q", &setup, Care::default());
        let (mut draw, mut model) = (Draw(3), Model::new());
        for first in (0..40_000).step_by(10_000) {
            let rows: Vec<_> = (first..first + 10_000).map(|id| ("a", id, Some("first"))).collect();
            query.merge(&[query_rows(&rows)]);
            let row = |id| (id, ("a".to_owned(), "first".to_owned()));
            model.extend((first..first + 10_000).map(row));
        }
        for step in 0..12 {
            if step == 6 {
                query = Query::open(&world.store(), "q", &setup, Care::default());
            }
            let (indexed, files) = query.merger.files_indexed();
            assert!(0 < indexed && indexed < files, "{indexed} of {files} files");
            let ids: Vec<i64> = (0..50).map(|_| draw.below(44_000) as i64).collect();
            let rows = ids.iter().map(|id| ("b", *id, (id % 5 != 0).then_some("second")));
            let rows: Vec<_> = rows.collect();
            query.merge(&[query_rows(&rows)]);
            for (part, id, text) in rows {
                match text {
                    Some(text) => model.insert(id, (part.to_owned(), text.to_owned())),
                    None => model.remove(&id),
                };
            }
            assert!(found(&world) == rows_of(&model), "step {step}");
        }
    }
}

#[test]
fn several_rows_of_a_key_become_one() {
    let world = World::new();
    let setup = Setup::default();
    create(&world.store(), &setup);
    let mut query = Query::open(&world.store(), "q", &setup, Care::default());
    query.merge(&[query_rows(&[("a", 1, Some("1")), ("a", 2, Some("2"))])]);
    let mut model = Model::new();
    append_by_others(&world, 0, &mut model, &[1, 1, 2, 3, 3]);
    assert_eq!(found(&world).len(), 7);
    query.merge(&[query_rows(&[("b", 1, Some("one")), ("b", 3, None)])]);
    let expected = [("b", 1, "one"), ("a", 2, "2"), ("p9", 2, "appended 2")];
    let expected = expected.map(|(part, id, text)| (part.to_owned(), id, text.to_owned()));
    let mut found = found(&world);
    found.sort();
    assert_eq!(found, {
        let mut expected = expected;
        expected.sort();
        expected
    });
}

#[test]
fn rows_that_others_have_restored_are_replaced_too() {
    let world = World::new();
    let setup = Setup::default();
    create(&world.store(), &setup);
    let mut query = Query::open(&world.store(), "q", &setup, Care::default());
    query.merge(&[query_rows(&[("a", 1, Some("1")), ("a", 2, Some("2")), ("a", 3, Some("3"))])]);
    query.merge(&[query_rows(&[("b", 1, Some("one")), ("b", 2, None)])]);
    // What Spark's RESTORE to version 1 does: the first file is there as it was.
    let (before, after) = (actions(&world, 1), actions(&world, 2));
    let mut lines = vec![json!({"commitInfo": {"timestamp": 1, "operation": "RESTORE"}})];
    lines.extend(of(&before, "add").into_iter().map(|add| json!({ "add": add })));
    lines.extend(of(&after, "add").into_iter().map(|add| {
        json!({ "remove": { "path": add["path"], "deletionVector": add["deletionVector"],
            "dataChange": true, "deletionTimestamp": 1 } })
    }));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let log = world.directory.path().join("a table/_delta_log");
    fs::write(log.join(format!("{:020}.json", 3)), text).expect("it is writable");
    assert_eq!(found(&world).len(), 3);
    query.merge(&[query_rows(&[("c", 1, Some("uno")), ("c", 2, None)])]);
    let texts: Vec<_> = found(&world).into_iter().map(|row| (row.1, row.2)).collect();
    assert_eq!(texts, [(1, "uno".to_owned()), (3, "3".to_owned())]);
}

#[test]
fn rows_beyond_memory_go_through_files() {
    let world = World::new();
    let setup = Setup { index_bytes: 4 << 20, ..Setup::default() };
    create(&world.store(), &setup);
    let mut query = Query::open(&world.store(), "q", &setup, Care::default());
    let long = "x".repeat(1_000);
    let batch = |ids: std::ops::Range<i64>, text: &str| {
        let text = format!("{text}{long}");
        let rows: Vec<_> = ids.map(|id| ("a", id, Some(text.as_str()))).collect();
        query_rows(&rows)
    };
    // Two thousand rows of a kilobyte are more than is held; half of them come again.
    let batches = [batch(0..1_000, "a"), batch(1_000..2_000, "b"), batch(500..1_500, "c")];
    let rows = query.written(&batches);
    assert!(rows.files() > 1, "some went into files early");
    query.commit(&rows).expect("nothing is in the way").expect("it is new");
    let found = found(&world);
    assert_eq!(found.len(), 2_000);
    for (_, id, text) in found {
        let expected = if (500..1_500).contains(&id) {
            "c"
        } else if id < 1_000 {
            "a"
        } else {
            "b"
        };
        assert!(text.starts_with(expected), "{id}");
    }
    // Whatever was in files that were written anew is deleted.
    let files = world.store().list("", None).expect("a listing");
    let parquet = files.iter().filter(|file| file.name.ends_with(".parquet")).count();
    let live = Table::open(&world.store()).expect("the table").count_files().expect("a scan");
    assert_eq!(parquet as u64, live);
}

#[test]
fn a_lost_answer_and_a_lost_race_change_nothing() {
    let world = World::new();
    let setup = Setup::default();
    create(&world.store(), &setup);
    let (store, control) = world.proxied();
    let mut query = Query::open(&store, "q", &setup, Care::default());
    query.merge(&[query_rows(&[("a", 1, Some("1")), ("a", 2, Some("2")), ("a", 3, Some("3"))])]);
    for (round, fate) in
        [Fate::AnswerLost, Fate::RepeatedByTheClient, Fate::LostOnTheWay, Fate::NameTakenByNothing]
            .into_iter()
            .enumerate()
    {
        let mut met = false;
        control.decide(move |kind, name| {
            let is_commit = kind == "put" && name.ends_with(".json") && !name.starts_with('_');
            if is_commit && !std::mem::replace(&mut met, true) { fate } else { Fate::Pass }
        });
        let text = format!("round {round}");
        let merged = query.merge(&[query_rows(&[("b", 1, Some(&text))])]);
        assert_eq!(merged.conflicts, 0, "{fate:?}");
        control.decide(|_, _| Fate::Pass);
        let found = found(&world);
        assert_eq!(found.iter().map(|row| row.1).collect::<Vec<_>>(), [1, 2, 3], "{fate:?}");
        assert_eq!(found[0].2, text);
    }
    // Somebody else gets the version, and with it another row of a key of ours.
    let rows = query.written(&[query_rows(&[("c", 4, Some("ours")), ("c", 2, None)])]);
    append_by_others(&world, 0, &mut Model::new(), &[4]);
    let merged = query.commit(&rows).expect("nothing is in the way").expect("it is new");
    assert_eq!(merged.conflicts, 1);
    let texts: Vec<_> = found(&world).into_iter().map(|row| (row.1, row.2)).collect();
    let expected = [(1, "round 3"), (3, "3"), (4, "ours")].map(|(id, text)| (id, text.to_owned()));
    assert_eq!(texts, expected);
    // The deletion vectors of the attempt that lost are gone.
    let files = world.store().list("", None).expect("a listing");
    let vectors = files.iter().filter(|file| file.name.ends_with(".bin")).count();
    let mut commits = 0;
    for version in 0..=query.live.table().version() {
        let actions = actions(&world, version);
        commits +=
            usize::from(of(&actions, "add").iter().any(|add| !add["deletionVector"].is_null()));
    }
    assert_eq!(vectors, commits);
}

#[test]
fn compaction_beside_merges_loses_and_doubles_no_row() {
    for setup in [Setup::default(), Setup { properties: vec![vectors(false)], ..Setup::default() }]
    {
        let world = World::new();
        create(&world.store(), &setup);
        let compaction = AutoCompact {
            files_min: 3,
            pause: std::time::Duration::ZERO,
            application: "q".to_owned(),
            ..AutoCompact::default()
        };
        let care = Care { compaction: Some(compaction), ..Care::default() };
        let mut query = Query::open(&world.store(), "q", &setup, care);
        let (mut draw, mut model) = (Draw(7), Model::new());
        for step in 0..150 {
            let rows = micro_batch(&mut draw, &mut model, 12);
            query.merge(&rows);
            if step % 10 == 0 {
                assert_eq!(found(&world), rows_of(&model), "step {step}");
            }
        }
        query.live.settle();
        assert_eq!(found(&world), rows_of(&model));
        assert!(query.live.compactions().commits > 0, "{:?}", query.live.compactions());
        let rows = micro_batch(&mut draw, &mut model, 40);
        query.merge(&rows);
        assert_eq!(found(&world), rows_of(&model));
    }
}

#[test]
fn tables_whose_rules_a_merge_would_break_are_refused() {
    for (key, remedy) in [
        ("delta.appendOnly", "leave 'mode' = 'merge' out"),
        ("delta.enableChangeDataFeed", "set it to false"),
    ] {
        let world = World::new();
        let properties = vec![(key.to_owned(), "true".to_owned())];
        create(&world.store(), &Setup { properties, ..Setup::default() });
        let live = LiveTable::start(Table::open(&world.store()).expect("there"), Care::default());
        let live = Arc::new(live.expect("it can be taken care of"));
        let schema = query_rows(&[]).schema();
        let refused = Merger::open(&live, &schema, &settings(1 << 20)).err().expect("a refusal");
        let said = refused.to_string();
        assert!(said.contains(key) && said.contains(remedy), "{said}");
    }
}

#[test]
fn keys_that_are_null_and_repeated_keys_at_rest_are_refused() {
    let world = World::new();
    let setup = Setup { partition_by: vec!["part".to_owned()], ..Setup::default() };
    create(&world.store(), &setup);
    let live = LiveTable::start(Table::open(&world.store()).expect("there"), Care::default());
    let live = Arc::new(live.expect("it can be taken care of"));
    let schema = query_rows(&[]).schema();
    let settings = MergeSettings {
        keys: vec!["id".to_owned(), "part".to_owned()],
        refuses_repeated: true,
        ..settings(1 << 20)
    };
    let merger = Merger::open(&live, &schema, &settings).expect("it fits");
    let store = world.store();
    let writer = || MergeWriter::new(merger.plan().clone(), &store, live.part_file_names());
    let rows = query_rows(&[("a", 1, Some("1")), ("a", 2, Some("2"))]);
    let ids: Arc<dyn Array> = Arc::new(Int64Array::from(vec![Some(1), None]));
    let columns = [rows.column(0), &ids, rows.column(2), rows.column(3)].map(Arc::clone).to_vec();
    let with_null = RecordBatch::try_new(rows.schema(), columns).expect("four columns");
    let said = writer().write(&with_null).expect_err("a refusal").to_string();
    assert!(said.contains("id is NULL") && said.contains("IS NOT NULL"), "{said}");
    assert!(merger.plan().refuses(&with_null) && !merger.plan().refuses(&rows));
    let said = writer().write(&query_rows(&[("", 1, None)])).expect_err("a refusal").to_string();
    assert!(said.contains("part is empty"), "{said}");
    let mut writer = writer();
    let twice = query_rows(&[("a", 1, Some("1")), ("b", 1, Some("2")), ("a", 1, Some("3"))]);
    let said = writer.write(&twice).expect_err("a refusal").to_string();
    assert!(said.contains("several rows with the same id, part"), "{said}");
}
