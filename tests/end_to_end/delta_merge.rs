//! Rows of a stream merged into a Delta table by key, read back by the engines that users have.
//!
//! The records are numbers, the same ones in each partition of a topic. A number's key is its
//! partition and what is left of it; every seventh number deletes. So what a table must have
//! follows from how many numbers there are.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::json;

use crate::delta::{self, versions};
use crate::files_and_static::put;
use crate::kafka;
use crate::lake::{ENGINES, read_here};
use crate::live::{Numbers, PARTITIONS, STATE_STEPS, kills, occurrences};
use crate::millstream::{Pipeline, Running, table};
use crate::oracle;
use crate::queries::query;

/// Keys in each partition.
const KEYS: u64 = 40;
/// A step of a merge beside those of other commits.
pub const MERGE_STEPS: [&str; 1] = ["vectors-written"];
const OFTEN: [(&str, &str); 2] = [("commitInterval", "30ms"), ("delta.checkpointInterval", "3")];
const MERGE: [(&str, &str); 2] = [("mode", "merge"), ("keys", "partition, k")];
const DELETING: (&str, &str) = ("delete.column", "gone");
const LATEST: &str = "SELECT CAST(id % 40 AS INT) AS k, id, partition, id % 7 = 3 AS gone\n\
     FROM (SELECT CAST(CAST(value AS STRING) AS BIGINT) AS id, partition FROM STREAM source)";
const COUNTED: &str = "SELECT CAST(id % 40 AS INT) AS k, max(id) AS id, partition, count(*) AS c\n\
     FROM (SELECT CAST(CAST(value AS STRING) AS BIGINT) AS id, partition FROM STREAM source)\n\
     GROUP BY partition, id % 40";

/// A flow from a topic that is merged into a table.
struct Merged {
    numbers: Numbers<'static>,
    pipeline: Pipeline,
}

impl Merged {
    fn new(name: &str, select: &str, sink: &[(&str, &str)]) -> Self {
        let broker = kafka::shared();
        let numbers = Numbers::new(broker.topics(), format!("{name}_in"));
        let to = [("path", "table")];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW merged AS INSERT INTO target\n{select};\n",
            numbers.source_table(&broker.address()),
            table("target", "", "delta", &[&to, &MERGE[..], sink].concat()),
        ));
        Self { numbers, pipeline }
    }

    fn table(&self) -> PathBuf {
        self.pipeline.path("table")
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = versions(&self.table());
        running.wait_while_running("another commit", || versions(&self.table()) > before);
    }

    /// The last number of each key, without those that delete; of one partition.
    fn latest(&self) -> Vec<u64> {
        let produced = self.numbers.produced();
        let last: BTreeMap<u64, u64> = (0..produced).map(|id| (id % KEYS, id)).collect();
        last.into_values().collect()
    }

    /// Holds the table, as others and `millstream` see it, against rows with the numbers `ids` in
    /// each partition.
    fn assert_rows(&self, ids: &[u64]) {
        let (rows, sum) = (ids.len() as u64, ids.iter().sum::<u64>());
        let expected = (rows * PARTITIONS as u64, sum * PARTITIONS as u64);
        let agreed = oracle::light().agreed(&["deltalake", "duckdb"], &self.table());
        assert_eq!(agreed["rows"].as_u64(), Some(expected.0), "{agreed}");
        assert_eq!(agreed["sums"]["id"].as_str(), Some(&*expected.1.to_string()), "{agreed}");
        let keys = "SELECT count(DISTINCT (partition, k)) AS n FROM TABLE";
        let keys = oracle::light().query(&self.table(), keys);
        assert_eq!(keys["n"].as_u64(), Some(expected.0), "each key has one row");
        assert_eq!(read_here(&self.table(), &self.pipeline), expected);
    }

    /// Runs what is left, and holds the table against what was produced.
    fn assert_exactly_once(&self) {
        self.numbers.run_the_rest(&self.pipeline, "target");
        let kept: Vec<u64> = self.latest().into_iter().filter(|id| id % 7 != 3).collect();
        self.assert_rows(&kept);
        self.numbers.assert_logged(&self.pipeline);
    }
}

#[test]
fn the_last_row_of_each_key_is_there_and_all_engines_see_it() {
    let merged = Merged::new("merge_plain", LATEST, &[DELETING]);
    for _ in 0..3 {
        merged.numbers.produce(37);
        merged.assert_exactly_once();
    }
    let agreed = oracle::all().agreed(&ENGINES, &merged.table());
    let commits = versions(&merged.table());
    merged.assert_exactly_once();
    assert_eq!(versions(&merged.table()), commits, "nothing new: nothing is written");
    let text = "SELECT count(*) AS n, sum(id) AS s FROM delta.`table`";
    let here = query(&merged.pipeline, &[text]).expect_success().stdout;
    let expected = format!("{},{}", agreed["rows"], agreed["sums"]["id"].as_str().expect("a sum"));
    assert!(here.contains(&expected), "{here}, not {expected}");
}

#[test]
fn a_crash_at_any_step_leaves_the_last_row_of_each_key() {
    let merged = Merged::new("merge_steps", LATEST, &[&OFTEN[..], &[DELETING]].concat());
    let steps = [&delta::STEPS[..10], &MERGE_STEPS].concat();
    merged.numbers.crash_at_steps(&merged.pipeline, &steps, &occurrences(12));
    merged.assert_exactly_once();
}

#[test]
fn a_crash_where_files_are_written_anew_leaves_the_last_row_of_each_key() {
    let without = ("delta.enableDeletionVectors", "false");
    let merged = Merged::new("merge_copies", LATEST, &[&OFTEN[..], &[DELETING, without]].concat());
    let steps = ["before-commit", "files-rewritten", "after-commit"];
    merged.numbers.crash_at_steps(&merged.pipeline, &steps, &occurrences(12));
    merged.assert_exactly_once();
}

#[test]
fn kills_at_random_moments_beside_compaction_leave_the_last_row_of_each_key() {
    let compacted = [("autoCompact", "true"), ("autoCompact.minNumFiles", "3"), DELETING];
    let merged = Merged::new("merge_kills", LATEST, &[&OFTEN[..], &compacted].concat());
    let rounds = 10 * kills(1);
    let wait = |running: &mut Running| merged.wait_for_more(running);
    merged.numbers.kill_at_random(&merged.pipeline, rounds, wait);
    merged.assert_exactly_once();
}

#[test]
fn an_aggregation_in_update_mode_keeps_one_row_for_each_group() {
    let update = ("outputMode", "update");
    let merged = Merged::new("merge_groups", COUNTED, &[&OFTEN[..], &[update]].concat());
    let steps = [&["after-run", "before-commit", "vectors-written"], &STATE_STEPS[..]].concat();
    merged.numbers.crash_at_steps(&merged.pipeline, &steps, &occurrences(8));
    merged.numbers.run_the_rest(&merged.pipeline, "target");
    merged.assert_rows(&merged.latest());
    let counted = "SELECT CAST(sum(c) AS BIGINT) AS n FROM TABLE";
    let counted = oracle::light().query(&merged.table(), counted);
    assert_eq!(counted["n"].as_u64(), Some(merged.numbers.produced() * PARTITIONS as u64));
}

#[test]
fn spark_merges_deletes_and_compacts_beside_the_stream() {
    let interval = ("commitInterval", "1s");
    let merged = Merged::new("merge_spark", LATEST, &[interval, DELETING]);
    let path = merged.table();
    let spark = |sql: &str| {
        let sql = sql.replace("TABLE", &format!("delta.`{}`", path.display()));
        oracle::all().expect(&json!({"op": "sql", "engine": "spark", "sql": sql}))
    };
    merged.numbers.produce(50);
    merged.assert_exactly_once();
    // Spark changes rows of ours and adds some; further numbers replace those of the same keys.
    spark(
        "MERGE INTO TABLE t USING (SELECT CAST(id AS INT) AS k, CAST(-1 AS BIGINT) AS id, \
         CAST(0 AS INT) AS partition FROM range(0, 45)) s ON t.k = s.k AND t.partition = s.partition \
         WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    );
    merged.numbers.produce(KEYS);
    merged.numbers.run_the_rest(&merged.pipeline, "target");
    spark("DELETE FROM TABLE WHERE k >= 40");
    merged.assert_exactly_once();
    // While rows are on their way. Spark gives up where a commit of ours came before its own.
    let beside = |sql: &str| {
        let sql = sql.replace("TABLE", &format!("delta.`{}`", path.display()));
        let request = json!({"op": "sql", "engine": "spark", "sql": sql});
        let answer = oracle::all().ask(&request);
        let error = answer["error"]["type"].as_str().unwrap_or_default();
        assert!(error.is_empty() || error.contains("Concurrent"), "{answer}");
        error.is_empty()
    };
    let mut running = merged.pipeline.start(&[]);
    let mut done = 0;
    merged.numbers.while_producing(|| {
        for round in 0..5 {
            merged.wait_for_more(&mut running);
            done += u32::from(beside(&format!("DELETE FROM TABLE WHERE k = {round}")));
            merged.wait_for_more(&mut running);
            done += u32::from(beside("OPTIMIZE TABLE"));
        }
    });
    assert!(done > 0, "Spark came to nothing");
    running.stop().expect_success();
    merged.numbers.produce(KEYS);
    merged.assert_exactly_once();
    oracle::all().agreed(&ENGINES, &path);
}

/// JSON files that are merged into a table.
fn of_files(rest: &str, sink: &[(&str, &str)]) -> Pipeline {
    let options = [("path", "input"), ("maxFilesPerTrigger", "1")];
    Pipeline::new(&format!(
        "{}{}{rest}",
        table("source", "(k BIGINT, id BIGINT, gone BOOLEAN)", "json", &options),
        table("target", "", "delta", &[&[("path", "table")], sink].concat()),
    ))
}

#[test]
fn a_batch_query_merges_and_refuses_a_key_that_comes_twice() {
    let merge = [("mode", "merge"), ("keys", "k"), DELETING];
    let pipeline = of_files("INSERT INTO target SELECT k, id, gone FROM source;\n", &merge);
    let row =
        |k: u64, id: u64, gone: bool| format!("{}\n", json!({"k": k, "id": id, "gone": gone}));
    let first: String = (0..10).map(|k| row(k, k, false)).collect();
    put(&pipeline, "input/rows.json", &first);
    pipeline.run(&[]).expect_success();
    let second: String = (5..15).map(|k| row(k, 100, k == 7)).collect();
    put(&pipeline, "input/rows.json", &second);
    pipeline.run(&[]).expect_success();
    assert_eq!(read_here(&pipeline.path("table"), &pipeline), (14, 10 + 900));
    put(&pipeline, "input/rows.json", &(second + &row(8, 1, false)));
    let refused = pipeline.run(&[]).expect_exit(1).without_internals();
    refused.says(&["several rows with the same k", "GROUP BY"]);
    assert_eq!(read_here(&pipeline.path("table"), &pipeline), (14, 10 + 900));
}

#[test]
fn a_null_in_a_key_is_named_with_its_record() {
    let flow = "CREATE FLOW f AS INSERT INTO target SELECT k, id, gone FROM STREAM source;\n";
    let pipeline = of_files(flow, &[("mode", "merge"), ("keys", "k"), DELETING]);
    put(&pipeline, "input/1.json", "{\"k\":1,\"id\":1}\n{\"id\":2,\"gone\":true}\n");
    let refused = pipeline.run(&["--trigger", "availableNow"]).expect_exit(1).without_internals();
    refused.says(&["/input/1.json:2 cannot be written", "k is NULL", "IS NOT NULL"]);
}

#[test]
fn what_is_wrong_with_a_merge_is_found_before_anything_is_touched() {
    let check = |sink: &[(&str, &str)], select: &str, words: &[&str]| {
        let flow = format!("CREATE FLOW f AS INSERT INTO target {select};\n");
        let pipeline = of_files(&flow, sink);
        let command = pipeline.bare_command(&["validate", "pipeline.sql"]);
        let finished = pipeline.spawn(command).wait(crate::wait::SOON);
        if words.is_empty() {
            finished.expect_success();
        } else {
            finished.expect_exit(2).says(words).without_internals();
        }
        assert!(!pipeline.path("table").exists());
    };
    let (merge, keys) = (("mode", "merge"), ("keys", "k"));
    let rows = "SELECT k, id, gone FROM STREAM source";
    let groups = "SELECT k, count(*) AS c FROM STREAM source GROUP BY k";
    let update = ("outputMode", "update");
    check(&[merge], rows, &["'keys'"]);
    check(&[("mode", "replace")], rows, &["append or merge"]);
    check(&[keys], rows, &["'mode' is not 'merge'", "leave 'keys' out"]);
    check(&[merge, ("keys", "k, missing")], rows, &["no column 'missing'", "k, id, gone"]);
    check(&[merge, ("keys", "k, K")], rows, &["twice"]);
    check(&[merge, keys, ("delete.column", "id")], rows, &["'id' is not BOOLEAN"]);
    check(&[merge, keys, ("delete.column", "away")], rows, &["no column 'away'"]);
    check(&[merge, keys], "SELECT 1.5D AS k FROM STREAM source", &["cannot be a key", "CAST(k"]);
    check(&[update], groups, &["outputMode 'update'", "'mode' = 'merge'"]);
    check(&[update, merge, keys], groups, &[]);
    check(&[merge, keys, ("targetFileSize", "1mb")], rows, &["'targetFileSize'", "leave it out"]);
    // Several groups with the same keys.
    let place = "would take each other's place";
    let of = |select: &str, by: &str| format!("SELECT {select} FROM STREAM source GROUP BY {by}");
    let both = ("keys", "k, id");
    let by_id = of("k, id, count(*) AS c", "k, id");
    check(&[update, merge, keys], &by_id, &[place, "groups by", "id", "'keys'"]);
    check(&[update, merge, both], &by_id, &[]);
    check(&[update, merge, keys], &of("k, count(*) AS c", "k, id"), &[place]);
    check(&[update, merge, keys], &of("k % 10 AS k, count(*) AS c", "k"), &[place]);
    check(&[update, merge, keys], &of("k % 10 AS k, count(*) AS c", "k % 10"), &[]);
    let windows = |select: &str| {
        let by = "window(timestamp_seconds(id), '1 minute'), k";
        of(&format!("{select}, count(*) AS c"), by)
    };
    let started = ("keys", "k, began");
    check(&[update, merge, started], &windows("k, window.start AS began"), &[]);
    check(&[update, merge, started], &windows("k, window.end AS began"), &[]);
    check(&[update, merge, keys], &windows("k, window.start AS began"), &[place, "window"]);
    // Without groups the last row of a key counts.
    check(&[update, merge, keys], rows, &[]);
    check(&[merge, keys, DELETING], rows, &[]);
}

#[test]
fn tables_with_changes_and_tables_that_only_grow_are_refused() {
    for (property, remedy) in
        [("delta.appendOnly", "leave 'mode'"), ("delta.enableChangeDataFeed", "set it to false")]
    {
        let flow = "CREATE FLOW f AS INSERT INTO target SELECT k, id FROM STREAM source;\n";
        let sink = [("mode", "merge"), ("keys", "k"), (property, "true")];
        let pipeline = of_files(flow, &sink);
        put(&pipeline, "input/1.json", "{\"k\":1,\"id\":1}\n");
        let refused = pipeline.run(&["--trigger", "availableNow"]).expect_exit(1);
        refused.says(&[property, remedy]).without_internals();
    }
}
