//! What checkpoints cost: a line of JSON per measurement.
//!
//! ```text
//! checkpoint_speed DIRECTORY [FILES [CHECKPOINTS [v2]]]
//! ```
//! Builds a table of FILES live files (its log; no data files are needed) and measures its first
//! checkpoint, from commits alone; one of all its rows in another number of parts, from that of
//! before, by a process that has just begun; and then CHECKPOINTS of them in the steady state, each
//! after ten commits of a few files.
#![allow(clippy::disallowed_methods)]

use std::error::Error;
use std::time::Instant;

use millstream_lake::checkpoint::{Checkpointer, Settings, Steering};
use millstream_lake::store::TableStore;
use millstream_store::env::Env;
use serde_json::json;

const FILES_PER_COMMIT: usize = 10_000;
const COMMITS_BETWEEN: usize = 10;
const FILES_BETWEEN: usize = 3;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory =
        arguments.next().ok_or("usage: checkpoint_speed DIRECTORY [FILES [CHECKPOINTS [v2]]]")?;
    let files: usize = arguments.next().map_or(Ok(700_000), |files| files.parse())?;
    let checkpoints: usize = arguments.next().map_or(Ok(40), |count| count.parse())?;
    let has_v2 = arguments.next().is_some();
    let runtime = tokio::runtime::Runtime::new()?;
    let env = runtime.block_on(async { Env::real() });
    let store = TableStore::parse(&directory, &env)?;
    let mut table = Table { store, version: 0 };
    table.create(has_v2)?;
    while table.version < files.div_ceil(FILES_PER_COMMIT) as u64 {
        table.commit(FILES_PER_COMMIT, &Steering::default())?;
    }

    let store = table.store.clone();
    let open = |part_rows: u64| {
        let settings = Settings { part_rows, ..Settings::default() };
        Checkpointer::open(store.clone(), settings)
    };
    let mut first = open(100_000)?;
    measured("first, from commits", || first.write(table.version))?;
    drop(first);
    reset_peak();
    table.commit(FILES_BETWEEN, &Steering::default())?;
    let mut checkpointer = open(50_000)?;
    measured("full, from a checkpoint", || checkpointer.write(table.version))?;
    reset_peak();
    let steering = checkpointer.steering();
    for _ in 0..checkpoints {
        for _ in 0..COMMITS_BETWEEN {
            table.commit(FILES_BETWEEN, &steering)?;
        }
        measured("steady", || checkpointer.write(table.version))?;
    }
    Ok(())
}

struct Table {
    store: TableStore,
    version: u64,
}

impl Table {
    fn create(&self, has_v2: bool) -> Outcome<()> {
        let schema = r#"{"type":"struct","fields":[]}"#;
        let features: &[&str] = if has_v2 { &["v2Checkpoint"] } else { &[] };
        let protocol = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": features, "writerFeatures": features}});
        let metadata = json!({"metaData": {"id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
            "partitionColumns": [], "configuration": {}, "createdTime": 1}});
        self.put(0, format!("{protocol}\n{metadata}\n"))
    }

    fn put(&self, version: u64, lines: String) -> Outcome<()> {
        Ok(self.store.put_new(&format!("_delta_log/{version:020}.json"), lines.into())?)
    }

    fn commit(&mut self, files: usize, steering: &Steering) -> Outcome<()> {
        self.version += 1;
        let env = self.store.env();
        let mut lines = String::with_capacity(files * 600);
        for file in 0..files {
            let name = || format!("part-00000-{}-c000.snappy.parquet", env.random_uuid());
            let path = steering.draw("", name);
            let add = json!({"add": {"path": path, "partitionValues": {},
                "size": env.random_u64() % 100_000_000, "modificationTime": env.now_ms(),
                "dataChange": true, "stats": statistics(env, file as u64)}});
            lines.push_str(&format!("{add}\n"));
        }
        let txn = json!({"txn": {"appId": "query", "version": self.version}});
        lines.push_str(&format!("{txn}\n"));
        self.put(self.version, lines)
    }
}

/// About 300 bytes, different for each file.
fn statistics(env: &Env, file: u64) -> String {
    let (low, high) = (env.random_u64() % 1_000_000, env.random_u64() % 1_000_000);
    let times = ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z");
    let user = format!("user-{:016x}", env.random_u64());
    json!({"numRecords": 1_000 + file,
        "minValues": {"id": low, "price": low as f64 / 7.0, "user": user, "at": times.0},
        "maxValues": {"id": high, "price": high as f64 / 7.0, "user": user, "at": times.1},
        "nullCount": {"id": 0, "price": file % 5, "user": 0, "at": 0, "note": 1_000}})
    .to_string()
}

fn measured<E: Error + 'static>(
    what: &str,
    work: impl FnOnce() -> Result<millstream_lake::checkpoint::Written, E>,
) -> Outcome<()> {
    let (start, cpu_before) = (Instant::now(), cpu_ms());
    let written = work()?;
    let wall_ms = start.elapsed().as_millis() as u64;
    let line = json!({"bench": "checkpoint", "what": what, "wall_ms": wall_ms,
        "cpu_ms": cpu_ms() - cpu_before, "peak_rss_mb": status_mb("VmHWM:"),
        "rss_mb": status_mb("VmRSS:"), "adds": written.adds,
        "bytes": written.bytes, "parts": written.parts, "rewritten": written.parts_rewritten});
    println!("{line}");
    Ok(())
}

/// Milliseconds of processor time of this process so far.
#[allow(unsafe_code)]
fn cpu_ms() -> i64 {
    // SAFETY: a structure of numbers, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let ms = |time: libc::timeval| time.tv_sec * 1_000 + time.tv_usec / 1_000;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}

/// Memory held, now or at most since the last reset; `getrusage` cannot forget.
fn status_mb(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(key));
    let kilobytes = value.and_then(|kb| kb.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1_024
}

fn reset_peak() {
    // Not every kernel has this; the figure is then that of all steps so far.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
