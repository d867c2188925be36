//! Tables to query, and sessions over them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt as _;
use millstream_query::error::QueryError;
use millstream_query::session::QuerySession;
use millstream_query::state::Limits;
use millstream_query::statements::{Statements, Step};
use millstream_query::tables::Catalog;
use millstream_store::env::Env;
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

/// Files of the table, and rows of each.
pub const FILES: i64 = 8;
pub const ROWS: i64 = 5_000;

/// A directory `events` of Parquet files: a user, an amount, a country.
pub fn events() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let events = directory.path().join("events");
    std::fs::create_dir(&events).expect("it is new");
    for file in 0..FILES {
        write(&events.join(format!("part-{file}.parquet")), file);
    }
    directory
}

/// Copies a directory.
pub fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let from = entry.expect("an entry").path();
        let to = to.join(from.file_name().expect("it has a name"));
        if from.is_dir() {
            copied(&from, &to);
        } else {
            std::fs::copy(from, to).expect("a copy");
        }
    }
}

fn write(path: &Path, file: i64) {
    let ids: Vec<i64> = (file * ROWS..(file + 1) * ROWS).collect();
    let users = ids.iter().map(|id| id * id % 997).collect::<Vec<_>>();
    let amounts = ids.iter().map(|id| id % 100).collect::<Vec<_>>();
    let countries = ids.iter().map(|id| ["de", "fr", "jp", "kr"][(id % 4) as usize]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(ids.clone()))),
        ("user_id", Arc::new(Int64Array::from(users))),
        ("amount", Arc::new(Int64Array::from(amounts))),
        ("country", Arc::new(StringArray::from_iter_values(countries))),
    ];
    let rows = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let file = File::create(path).expect("a new file");
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).expect("a writer");
    writer.write(&rows).expect("written");
    writer.close().expect("closed");
}

/// A session whose relative paths are in `directory`.
pub fn session(directory: &Path) -> QuerySession {
    let registry = millstream_connectors::registry(directory);
    let catalog = Catalog::new(registry, Env::real(), directory.to_owned());
    let limits = Limits { partitions: 4, memory_bytes: None, spill_directory: None };
    QuerySession::new(Arc::new(catalog), &limits, Env::real()).expect("a session")
}

/// The rows of the only query in `text`, drawn.
pub async fn answer(session: &QuerySession, text: &str) -> Result<String, QueryError> {
    let statements = Statements::parse(text)?;
    let [Step::Query(query)] = statements.steps.as_slice() else { panic!("{text} is no query") };
    let planned = session.plan(&statements, query).await?;
    let rows = planned.run().await?;
    let rows: Result<Vec<RecordBatch>, _> = rows.try_collect().await;
    let rows = rows.map_err(millstream_engine::failures::from_datafusion)?;
    Ok(pretty_format_batches(&rows).expect("they can be drawn").to_string())
}
