//! The memory of a batch query does not grow with its tables.

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use crate::files_and_static::data_files;
use crate::millstream::{Pipeline, table};
use crate::wait;

/// How many rows the file of the input has.
const ROWS: usize = 40_000;
/// How many characters a row has in memory, about.
const CHARACTERS: usize = 500;
/// How many names the file has in the smaller input, which fills all that is on its way between
/// threads, and in the larger one.
const COPIES: [usize; 2] = [8, 24];
/// What the peaks of two runs may differ by, though the larger one has 320 MB more to read: by
/// what the allocator makes of it.
const DIFFERENCE_MAX: u64 = 128 << 20;
/// How long one query may take.
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// A pipeline whose input is a file of text under `copies` names.
fn pipeline(copies: usize) -> Pipeline {
    let pipeline = Pipeline::new("");
    fs::create_dir_all(pipeline.path("input")).expect("the directory is writable");
    let mut text = String::with_capacity(ROWS * (CHARACTERS + 10));
    for row in 0..ROWS {
        writeln!(text, "{row:0CHARACTERS$}").expect("it is text");
    }
    let first = pipeline.path("input/0.txt");
    fs::write(&first, text).expect("the directory is writable");
    for copy in 1..copies {
        let path = pipeline.path(&format!("input/{copy}.txt"));
        fs::hard_link(&first, path).expect("the directory is writable");
    }
    pipeline
}

fn tables() -> String {
    [
        table("input", "", "text", &[("path", "input")]),
        table("files", "", "text", &[("path", "files")]),
        table("first", "", "delta", &[("path", "first")]),
        table("second", "", "delta", &[("path", "second")]),
    ]
    .concat()
}

/// Runs `query`; gives the most memory that the process had, in bytes.
fn peak(pipeline: &Pipeline, query: &str) -> u64 {
    pipeline.rewrite(&format!("{}{query}", tables()));
    let mut running = pipeline.start(&[]);
    let mut peak = 0;
    wait::until_true("the end of a batch query", RUN_LIMIT, || {
        peak = running.memory_peak_so_far().map_or(peak, |bytes| peak.max(bytes));
        !running.is_running()
    });
    running.wait(RUN_LIMIT).expect_success();
    peak
}

#[test]
fn the_memory_of_a_batch_query_does_not_grow_with_its_tables() {
    // In a table of Delta the long column is short: all rows have the same value.
    let to_delta = format!(
        "INSERT INTO first SELECT CAST(value AS INT) AS id, repeat('x', {CHARACTERS}) AS long \
         FROM input;"
    );
    let queries = [
        "INSERT INTO files SELECT value FROM input WHERE NOT value LIKE '%7';",
        &to_delta,
        "INSERT INTO second SELECT id, upper(long) AS long FROM first WHERE long LIKE 'x%';",
    ];
    let [small, large] = COPIES.map(pipeline);
    for query in queries {
        let (little, much) = (peak(&small, query), peak(&large, query));
        println!("{} MiB, {} MiB: {query}", little >> 20, much >> 20);
        assert!(little.min(much) >> 20 > 0, "a process of {little} or {much} bytes did nothing");
        let difference = much.saturating_sub(little);
        assert!(difference < DIFFERENCE_MAX, "{little} and {much} bytes: {query}");
    }
    let bytes = |path: &std::path::PathBuf| fs::metadata(path).expect("it is there").len();
    let written: u64 = data_files(&large.path("files")).iter().map(bytes).sum();
    let rows = COPIES[1] * ROWS;
    assert_eq!(written, (rows / 10 * 9 * (CHARACTERS + 1)) as u64);
    large.rewrite(&format!(
        "{}SELECT count(*) AS n, count(DISTINCT id) AS ids, max(length(long)) AS longest \
         FROM second;",
        tables(),
    ));
    let counted = format!("|{rows}|{ROWS}|{CHARACTERS}|");
    let shown = large.run(&[]).expect_success().stdout.replace(' ', "");
    assert!(shown.contains(&counted), "{counted} in {shown}");
}
