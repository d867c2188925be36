//! Tables, contexts and rows.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::pretty::pretty_format_batches;
use millstream_connectors::registry;
use millstream_engine::api::connector::{Connector, FlowContext, ReadMode, Table};
use millstream_engine::api::options::Options;
use millstream_engine::api::sink::{Failure, Sink};
use millstream_engine::api::source::{InputBatch, ReadLimit, Source};
use millstream_store::env::Env;

pub fn columns(fields: &[(&str, DataType)]) -> Option<SchemaRef> {
    let fields = fields.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
    Some(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

pub fn table(columns: Option<SchemaRef>, options: &[(&str, &str)]) -> Table {
    let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Table { name: "t".into(), columns, options: Options::new(options) }
}

pub fn context(base_dir: &Path) -> FlowContext {
    context_of(base_dir, "11111111-1111-4111-8111-111111111111")
}

pub fn context_of(base_dir: &Path, query_id: &str) -> FlowContext {
    FlowContext::new("flow", query_id, &Env::real(), base_dir)
}

pub fn connector(name: &str, base_dir: &Path) -> Arc<dyn Connector> {
    registry(base_dir).get(name).unwrap().clone()
}

/// A checked stream of files in `base_dir`.
pub fn source(name: &str, table: &Table, base_dir: &Path) -> Box<dyn Source> {
    let connector = connector(name, base_dir);
    connector.check_source(table, ReadMode::Stream).unwrap();
    connector.source(table, ReadMode::Stream, &context(base_dir)).unwrap()
}

/// A checked sink for `schema`.
pub fn sink(name: &str, table: &Table, schema: &SchemaRef, base_dir: &Path) -> Box<dyn Sink> {
    let connector = connector(name, base_dir);
    connector.check_sink(table, schema).unwrap();
    connector.sink(table, schema, &context(base_dir)).unwrap()
}

/// Waits for rows and takes them.
pub async fn next(source: &mut Box<dyn Source>) -> InputBatch {
    loop {
        source.data_available().await;
        if let Some(taken) = source.poll(ReadLimit::Configured).unwrap() {
            return taken;
        }
    }
}

pub fn read_columns(taken: InputBatch, projection: &[usize]) -> Result<Vec<RecordBatch>, Failure> {
    taken.splits.into_iter().flat_map(|split| split.read(projection)).collect()
}

/// The rows as text: a line per row, values separated by bars, in order.
pub fn lines(rows: &[RecordBatch]) -> Vec<String> {
    let table = pretty_format_batches(rows).unwrap().to_string();
    let cells = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        cells.join("|")
    };
    table.lines().filter(|line| line.starts_with('|')).skip(1).map(cells).collect()
}

/// All rows of a micro-batch as text.
pub fn read(taken: InputBatch, columns: usize) -> Vec<String> {
    lines(&read_columns(taken, &(0..columns).collect::<Vec<_>>()).unwrap())
}

/// Names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
