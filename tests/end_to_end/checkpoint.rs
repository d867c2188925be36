//! A checkpoint directory, read as Spark would read it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The second line of an offset log entry, as Spark 4.2 writes it, between batch time and shuffle
/// partitions and from there to the end.
const CONF: [&str; 2] = [
    concat!(
        r#","conf":{"spark.sql.streaming.stateStore.providerClass":"#,
        r#""org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider","#,
        r#""spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion":"2","#,
        r#""spark.sql.streaming.stateStore.rocksdb.formatVersion":"5","#,
        r#""spark.sql.streaming.queryEvolution.enableSourceEvolution":"false","#,
        r#""spark.sql.streaming.stateStore.encodingFormat":"unsaferow","#,
        r#""spark.sql.streaming.statefulOperator.useStrictDistribution":"true","#,
        r#""spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion":"2","#,
        r#""spark.sql.streaming.multipleWatermarkPolicy":"min","#,
        r#""spark.sql.streaming.stateStore.rowChecksum.enabled":"false","#,
        r#""spark.sql.streaming.aggregation.stateFormatVersion":"2","#,
        r#""spark.sql.function.protobufExtensions.enabled":"false","#,
        r#""spark.sql.shuffle.partitions":""#,
    ),
    concat!(
        r#"","spark.sql.streaming.join.stateFormatVersion":"2","#,
        r#""spark.sql.streaming.stateStore.compression.codec":"lz4","#,
        r#""spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan":"false"}}"#,
    ),
];

/// A checkpoint directory.
pub struct Checkpoint {
    directory: PathBuf,
}

impl Checkpoint {
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A file in it, for example `offsets/3`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The bytes of every file in it, by path; to show that nothing was changed. The lock file is
    /// left out: each process writes there who holds it.
    pub fn bytes(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.directory, &mut files);
        files.remove(&self.path(".millstream.lock"));
        files
    }

    /// The ids in `offsets` or `commits`, ascending.
    pub fn ids(&self, log: &str) -> Vec<u64> {
        let Ok(entries) = fs::read_dir(self.path(log)) else { return Vec::new() };
        let names = entries.map(|entry| entry.expect("it can be listed").file_name());
        let mut ids: Vec<u64> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
        ids.sort_unstable();
        ids
    }

    /// The id of the newest entry of `log`.
    pub fn latest(&self, log: &str) -> u64 {
        *self.ids(log).last().unwrap_or_else(|| panic!("{log} has no entry"))
    }

    /// The lines of an entry.
    pub fn lines(&self, log: &str, id: u64) -> Vec<String> {
        let path = self.path(&format!("{log}/{id}"));
        let text = fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.split('\n').map(str::to_owned).collect()
    }

    /// The offsets of source 0 where micro-batch `id` ends.
    pub fn end(&self, id: u64) -> Value {
        let line = &self.lines("offsets", id)[2];
        serde_json::from_str(line).expect("a source's offset is JSON")
    }

    /// The offsets of source 0 in a Kafka topic where micro-batch `id` ends, by partition.
    pub fn kafka_end(&self, id: u64, topic: &str) -> BTreeMap<i32, i64> {
        kafka_offsets(&self.end(id), topic)
    }

    /// Where source 0, a Kafka source, started: `sources/0/0`.
    pub fn kafka_start(&self, topic: &str) -> BTreeMap<i32, i64> {
        let bytes = fs::read(self.path("sources/0/0")).expect("the source wrote its start");
        let json = bytes.strip_prefix(b"\0v1\n").expect("NUL, version and line break come first");
        kafka_offsets(&serde_json::from_slice(json).expect("then comes JSON"), topic)
    }

    /// How many records source 0 read in each micro-batch, from the log.
    pub fn kafka_batch_sizes(&self, topic: &str) -> Vec<i64> {
        let total = |offsets: BTreeMap<i32, i64>| offsets.values().sum::<i64>();
        let mut before = total(self.kafka_start(topic));
        let mut sizes = Vec::new();
        for id in self.ids("offsets") {
            let after = total(self.kafka_end(id, topic));
            sizes.push(after - before);
            before = after;
        }
        sizes
    }

    /// Checks every entry of both logs against Spark's form, byte by byte, and that ids have no
    /// gap and no commit is without its intent. `sources` is the number of sources of the query.
    pub fn assert_well_formed(&self, sources: usize) {
        for log in ["offsets", "commits"] {
            let ids = self.ids(log);
            // The first may be one that a purge has left because it is surely on the disk.
            let mut pairs = ids.windows(2).skip(1);
            assert!(pairs.all(|pair| pair[1] == pair[0] + 1), "{log}: gaps in {ids:?}");
        }
        self.assert_entries_well_formed(sources);
    }

    /// Whether micro-batches between the first and the last entry of `log` have none.
    pub fn has_gaps(&self, log: &str) -> bool {
        self.ids(log).windows(2).any(|pair| pair[1] != pair[0] + 1)
    }

    /// The same as [`assert_well_formed`](Self::assert_well_formed), but there may be gaps.
    pub fn assert_entries_well_formed(&self, sources: usize) {
        assert_metadata(&fs::read_to_string(self.path("metadata")).expect("there is metadata"));
        let [offsets, commits] = ["offsets", "commits"].map(|log| self.ids(log));
        assert!(commits.last() <= offsets.last(), "{commits:?} beyond {offsets:?}");
        let of_intents =
            offsets.iter().map(|id| assert_offset_entry(&self.lines("offsets", *id), sources));
        self.assert_watermarks(&of_intents.collect::<Vec<_>>());
        let of_commits = commits.iter().map(|id| {
            let text = self.lines("commits", *id).join("\n");
            let watermark_ms = text.strip_prefix("v1\n{\"nextBatchWatermarkMs\":");
            let watermark_ms = watermark_ms.and_then(|rest| rest.strip_suffix('}'));
            let parsed = watermark_ms.and_then(|ms| ms.parse().ok());
            parsed.unwrap_or_else(|| panic!("commits/{id}: {text}"))
        });
        self.assert_watermarks(&of_commits.collect::<Vec<_>>());
    }

    /// The watermarks of a log's entries, in order, never go back; without state there are none.
    fn assert_watermarks(&self, watermarks_ms: &[i64]) {
        assert!(watermarks_ms.is_sorted(), "{watermarks_ms:?}");
        if !self.path("state/millstream-state").exists() {
            assert!(watermarks_ms.iter().all(|ms| *ms == 0), "{watermarks_ms:?}");
        }
    }
}

fn kafka_offsets(offsets: &Value, topic: &str) -> BTreeMap<i32, i64> {
    let topics = offsets.as_object().expect("Kafka offsets are an object");
    let Some(partitions) = topics.get(topic) else { return BTreeMap::new() };
    let partitions = partitions.as_object().expect("partitions are an object").iter();
    let parse = |(partition, offset): (&String, &Value)| {
        (partition.parse().expect("a partition"), offset.as_i64().expect("an offset"))
    };
    partitions.map(parse).collect()
}

fn assert_metadata(text: &str) {
    let id = text.strip_prefix("{\"id\":\"").and_then(|rest| rest.strip_suffix("\"}"));
    let id = id.unwrap_or_else(|| panic!("metadata is {text:?}"));
    let groups: Vec<_> = id.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "the query id is a UUID: {id}");
}

/// Gives the entry's watermark.
fn assert_offset_entry(lines: &[String], sources: usize) -> i64 {
    assert_eq!(lines[0], "v1");
    assert_eq!(lines.len(), 2 + sources, "a version, a header and a line per source: {lines:?}");
    let rest = lines[1].strip_prefix("{\"batchWatermarkMs\":");
    let rest = rest.and_then(|rest| rest.split_once(",\"batchTimestampMs\":"));
    let (watermark_ms, rest) =
        rest.unwrap_or_else(|| panic!("the header starts otherwise: {}", lines[1]));
    let (time_ms, conf) = rest.split_at(rest.find(',').expect("the conf follows"));
    assert!(time_ms.parse::<u64>().is_ok_and(|ms| ms > 1_700_000_000_000), "{time_ms}");
    let shuffle = conf.strip_prefix(CONF[0]).and_then(|rest| rest.strip_suffix(CONF[1]));
    let shuffle = shuffle.unwrap_or_else(|| panic!("the conf differs from Spark's: {conf}"));
    assert!(shuffle.parse::<u32>().is_ok(), "shuffle partitions: {shuffle}");
    watermark_ms.parse().unwrap_or_else(|_| panic!("the watermark is {watermark_ms}"))
}

fn collect(directory: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            let bytes = fs::read(&path).expect("it can be read");
            files.insert(path, bytes);
        }
    }
}
