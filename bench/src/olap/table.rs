//! The events that are asked about, written by the engine's own Delta sink.
//!
//! A row has 80 columns, as an event of a large product has: who, when, what, and much that a
//! query leaves alone. Users are skewed: the first of them has thousands of events, most have a
//! few. The columns that the queries read make about 1.5 % of the bytes.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::engine::{self, EngineOptions};
use crate::error::Error;

/// The directory of the table, below the store's root.
pub const NAME: &str = "events";
/// Columns that no query reads, by their kinds.
const TEXTS: usize = 24;
const NUMBERS: usize = 48;
/// Seconds that the events are spread over: three months.
const SPAN_SECONDS: u64 = 90 * 86_400;
const FILES: u64 = 32;
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Writes a table of so many events below `root`.
pub fn write(root: &Path, directory: &Path, rows: u64) -> Result<(), Error> {
    let numbers = directory.join("numbers");
    fs::create_dir_all(&numbers).map_err(Error::file("create", &numbers))?;
    for file in 0..FILES {
        let mut text = String::new();
        for id in (rows * file / FILES)..(rows * (file + 1) / FILES) {
            let _ = writeln!(text, "{{\"id\":{id}}}");
        }
        let path = numbers.join(format!("{file:04}.json"));
        fs::write(&path, text).map_err(Error::file("write", &path))?;
    }
    let pipeline = pipeline(&numbers, &root.join(NAME), rows);
    let set = vec![("trigger".to_owned(), "availableNow".to_owned())];
    let options = EngineOptions { set, ..EngineOptions::default() };
    engine::start(&pipeline, &options, directory)?.wait(PATIENCE)?;
    fs::remove_dir_all(&numbers).map_err(Error::file("remove", &numbers))
}

/// The bytes of some columns in all files of the table below `root`, compressed as they are.
pub fn bytes_of(root: &Path, columns: &[&str]) -> Result<u64, Error> {
    let directory = root.join(NAME);
    let mut bytes = 0;
    for entry in fs::read_dir(&directory).map_err(Error::file("list", &directory))? {
        let path = entry.map_err(Error::file("list", &directory))?.path();
        if path.extension().is_none_or(|extension| extension != "parquet") {
            continue;
        }
        let file = fs::File::open(&path).map_err(Error::file("open", &path))?;
        let footer = SerializedFileReader::new(file)
            .map_err(|error| Error::Table { what: "a data file", problem: error.to_string() })?;
        let chunks = footer.metadata().row_groups().iter().flat_map(|group| group.columns());
        let wanted = chunks.filter(|chunk| columns.contains(&chunk.column_descr().name()));
        bytes += wanted.map(|chunk| chunk.compressed_size().cast_unsigned()).sum::<u64>();
    }
    Ok(bytes)
}

fn pipeline(numbers: &Path, target: &Path, rows: u64) -> String {
    let users = (rows / 20).max(1);
    let second =
        format!("timestamp_seconds(1750000000 + CAST(id * {SPAN_SECONDS} / {rows} AS BIGINT))");
    // The cube of an even draw: half of the events come from an eighth of the users.
    let draw = "(pmod(xxhash64(id, 1), 1000003) / 1000003.0e0)";
    let mut columns = vec![
        format!("{second} AS at"),
        format!("CAST(floor({users} * {draw} * {draw} * {draw}) AS INT) AS user_id"),
        "element_at(array('view', 'search', 'open', 'buy', 'leave'), \
         CAST(1 + pmod(xxhash64(id, 2), 5) AS INT)) AS kind"
            .to_owned(),
        "CAST(pmod(xxhash64(id, 3), 100000) AS INT) AS amount".to_owned(),
        "md5(CAST(id AS STRING)) AS event_id".to_owned(),
        "CAST(pmod(xxhash64(id, 4), 40) AS INT) AS country".to_owned(),
        "CAST(pmod(xxhash64(id, 5), 7) AS INT) AS platform".to_owned(),
        "CAST(id AS BIGINT) AS number".to_owned(),
    ];
    let texts = (0..TEXTS).map(|at| {
        format!("concat(hex(xxhash64(id, {at}, 'a')), hex(xxhash64(id, {at}))) AS text_{at}")
    });
    columns.extend(texts);
    columns.extend((0..NUMBERS).map(|at| format!("xxhash64(id, {at}, 'n') AS number_{at}")));
    format!(
        "CREATE TABLE numbers (id BIGINT) USING json OPTIONS ('path' = '{}', \
         'maxFilesPerTrigger' = '1');\n\
         CREATE TABLE events USING delta OPTIONS ('path' = '{}');\n\
         INSERT INTO events SELECT {} FROM STREAM numbers;\n",
        numbers.display(),
        target.display(),
        columns.join(",\n  "),
    )
}
