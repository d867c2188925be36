//! Delta tables between engines: what is written here is read there, and the other way round.
//!
//! Foreign engines read tables whose commits below the checkpoint are gone, so that it is the
//! checkpoint that they read.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::millstream::{Pipeline, table};
use crate::{oracle, wait};

pub const ENGINES: [&str; 3] = ["deltalake", "duckdb", "spark"];
const COLUMNS: &str = "(id BIGINT, name STRING, day DATE, at TIMESTAMP, price DECIMAL(10,2))";
const ROWS_PER_FILE: u64 = 20;

/// Files of JSON that become commits of a table, one each.
pub struct Feed {
    pub pipeline: Pipeline,
    table: PathBuf,
    files: u64,
    /// The `id` of the first row.
    first: u64,
}

impl Feed {
    pub fn new(sink: &[(&str, &str)]) -> Self {
        let pipeline = Pipeline::new("");
        let table = pipeline.path("table");
        Self::into_table(pipeline, table, sink, 0)
    }

    fn into_table(pipeline: Pipeline, path: PathBuf, sink: &[(&str, &str)], first: u64) -> Self {
        let source = [("path", "input"), ("maxFilesPerTrigger", "1")];
        let shown = path.display().to_string();
        let to = [("path", shown.as_str()), ("commitInterval", "0")];
        pipeline.rewrite(&format!(
            "{}{}CREATE FLOW fed AS INSERT INTO target SELECT * FROM STREAM source;\n",
            table("source", COLUMNS, "json", &source),
            table("target", "", "delta", &[&to, sink].concat()),
        ));
        fs::create_dir(pipeline.path("input")).expect("it can be made");
        Self { pipeline, table: path, files: 0, first }
    }

    pub fn table(&self) -> PathBuf {
        self.table.clone()
    }

    /// Makes `count` commits more.
    pub fn commit(&mut self, count: u64) {
        self.put(count);
        self.pipeline.run(&["--trigger", "availableNow"]).expect_success();
    }

    /// Lays down files for `count` commits more.
    pub fn put(&mut self, count: u64) {
        for file in self.files..self.files + count {
            let first = self.first + file * ROWS_PER_FILE;
            let lines: String = (first..first + ROWS_PER_FILE).map(line).collect();
            let hidden = self.pipeline.path("input").join(format!(".{file:05}.json"));
            fs::write(&hidden, lines).expect("it is writable");
            fs::rename(&hidden, self.pipeline.path("input").join(format!("{file:05}.json")))
                .expect("it can be renamed");
        }
        self.files += count;
    }

    pub fn rows(&self) -> u64 {
        self.files * ROWS_PER_FILE
    }
}

/// A row with nulls, an empty text and letters beyond ASCII now and then.
fn line(id: u64) -> String {
    let name = match id % 7 {
        0 => Value::Null,
        1 => json!(""),
        2 => json!("Zürich/100%"),
        _ => json!(format!("name {id}")),
    };
    let row = json!({
        "id": id,
        "name": name,
        "day": format!("2026-01-{:02}", 1 + id % 3),
        "at": format!("2026-01-01T00:00:00.{:06}Z", id),
        "price": if id.is_multiple_of(5) { Value::Null } else { json!(format!("{}.{:02}", id, id % 100)) },
    });
    format!("{row}\n")
}

/// Deletes the commits below the newest checkpoint; gives its version.
fn forget_commits(table: &Path) -> u64 {
    let log = table.join("_delta_log");
    let hint = fs::read(log.join("_last_checkpoint")).expect("there is a hint");
    let hint: Value = serde_json::from_slice(&hint).expect("it is JSON");
    let version = hint["version"].as_u64().expect("a version");
    for below in 0..version {
        let _ = fs::remove_file(log.join(format!("{below:020}.json")));
        let _ = fs::remove_file(log.join(format!("{below:020}.crc")));
    }
    version
}

/// What a batch query of ours says of a table: rows, and the sum of `id`.
pub fn read_here(table: &Path, pipeline: &Pipeline) -> (u64, u64) {
    let name = format!("{}.sql", uniquely("read"));
    let out = uniquely("out");
    let path = table.display().to_string();
    let sql = format!(
        "{}{}INSERT INTO result SELECT count(*) AS n, coalesce(sum(id), 0) AS s FROM lake;\n",
        crate::millstream::table("lake", "", "delta", &[("path", &path)]),
        crate::millstream::table("result", "", "json", &[("path", &out)]),
    );
    fs::write(pipeline.path(&name), sql).expect("it is writable");
    let command = pipeline.bare_command(&["run", &name]);
    pipeline.spawn(command).wait(wait::SOON).expect_success();
    let parts = fs::read_dir(pipeline.path(&out)).expect("it was written");
    let part = parts
        .map(|entry| entry.expect("readable").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "json"));
    let text = fs::read_to_string(part.expect("a file of rows")).expect("readable");
    let row: Value = serde_json::from_str(text.trim()).expect("one row");
    (row["n"].as_u64().expect("a number"), row["s"].as_u64().expect("a number"))
}

fn uniquely(name: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn sum_to(rows: u64) -> u64 {
    rows * rows.saturating_sub(1) / 2
}

/// All engines see all rows, with the commits below the checkpoint gone.
fn all_agree(feed: &Feed) {
    let version = forget_commits(&feed.table());
    assert!(version > 0, "the checkpoint is of some commits");
    let agreed = oracle::all().agreed(&ENGINES, &feed.table());
    assert_eq!(agreed["rows"].as_u64(), Some(feed.rows()), "{agreed}");
    assert_eq!(agreed["sums"]["id"].as_str(), Some(&*sum_to(feed.rows()).to_string()), "{agreed}");
    let here = read_here(&feed.table(), &feed.pipeline);
    assert_eq!(here, (feed.rows(), sum_to(feed.rows())));
}

#[test]
fn a_table_with_one_checkpoint_file_is_read_by_all() {
    let mut feed = Feed::new(&[]);
    feed.commit(12);
    all_agree(&feed);
}

#[test]
fn a_partitioned_table_with_a_checkpoint_in_parts_is_read_by_all() {
    let mut feed = Feed::new(&[("partSize", "8"), ("partitionBy", "day,name")]);
    feed.commit(11);
    feed.commit(13);
    all_agree(&feed);
}

#[test]
fn a_table_with_v2_checkpoints_is_read_by_all() {
    let v2 = [("delta.feature.v2Checkpoint", "supported"), ("delta.checkpointPolicy", "v2")];
    let mut feed = Feed::new(&v2);
    feed.commit(11);
    feed.commit(12);
    all_agree(&feed);
}

#[test]
fn a_table_of_sparks_is_gone_on_with() {
    let mut feed = Feed::new(&[]);
    let path = feed.table();
    let schema = "id bigint, name string, day date, at timestamp, price decimal(10,2)";
    let mut rows = 0;
    {
        let mut oracle = oracle::all();
        let properties = json!({"delta.checkpointInterval": "5"});
        oracle.expect(&json!({"op": "create", "engine": "spark", "table": path, "schema": schema,
            "properties": properties}));
        for _ in 0..7 {
            oracle.expect(&json!({"op": "append", "engine": "spark", "table": path, "rows": 3,
                "first": 1_000_000 + rows, "schema": schema,
                "conf": {"spark.databricks.delta.checkpoint.partSize": "2"}}));
            rows += 3;
        }
    }
    feed.commit(8);
    {
        let mut oracle = oracle::all();
        oracle.expect(&json!({"op": "optimize", "engine": "spark", "table": path}));
        oracle.expect(&json!({"op": "delete", "engine": "deltalake", "table": path,
            "where": "id >= 1000000"}));
    }
    feed.commit(12);
    all_agree(&feed);
}

#[test]
fn delta_rs_appends_and_cleans_up_beside_us() {
    let mut feed =
        Feed::new(&[("partSize", "6"), ("delta.logRetentionDuration", "interval 0 days")]);
    let path = feed.table();
    feed.commit(12);
    let schema = "id bigint, name string, day date, at timestamp, price decimal(10,2)";
    oracle::light()
        .expect(&json!({"op": "append", "engine": "deltalake", "table": path, "rows": 5,
        "first": 5_000_000, "schema": schema}));
    feed.commit(12);
    oracle::light().expect(&json!({"op": "cleanup", "engine": "deltalake", "table": path}));
    oracle::light().expect(&json!({"op": "checkpoint", "engine": "deltalake", "table": path}));
    feed.commit(3);
    let agreed = oracle::all().agreed(&ENGINES, &path);
    assert_eq!(agreed["rows"].as_u64(), Some(feed.rows() + 5), "{agreed}");
    assert_eq!(read_here(&path, &feed.pipeline).0, feed.rows() + 5);
}

#[test]
fn two_of_us_and_spark_append_at_once() {
    let mut ours = Feed::new(&[]);
    ours.commit(1);
    let path = ours.table();
    let beside = [("otherQueries", "allowed")];
    let mut others = Feed::into_table(Pipeline::new(""), path.clone(), &beside, 500_000);
    let schema = "id bigint, name string, day date, at timestamp, price decimal(10,2)";
    let mut by_spark = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| (0..4).for_each(|_| ours.commit(15)));
        scope.spawn(|| (0..4).for_each(|_| others.commit(15)));
        for _ in 0..5 {
            oracle::all().expect(&json!({"op": "append", "engine": "spark", "table": path,
                "rows": 4, "first": 1_000_000 + by_spark, "schema": schema}));
            by_spark += 4;
        }
    });
    let rows = ours.rows() + others.rows() + by_spark;
    let agreed = oracle::all().agreed(&ENGINES, &path);
    assert_eq!(agreed["rows"].as_u64(), Some(rows), "{agreed}");
    let sql = "SELECT count(DISTINCT id) AS n FROM TABLE";
    assert_eq!(oracle::light().query(&path, sql)["n"].as_u64(), Some(rows));
}
