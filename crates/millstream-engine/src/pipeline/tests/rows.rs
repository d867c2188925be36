//! Runs queries over a few rows: what the rewriting means, not only what it looks like.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use millstream_sql::diagnostic::Diagnostics;

use super::{load, quoted, session};
use crate::pipeline::Flow;

/// The tables that all queries see.
const TABLES: &str = "\
CREATE TABLE logs (service STRING, ts TIMESTAMP, Level INT, message STRING, tags ARRAY<STRING>, \
ctx STRUCT<host: STRING, Port: INT>) USING kafka OPTIONS ('subscribe' = 'logs');
CREATE TABLE owners (Service STRING, owner STRING, load DOUBLE) USING delta LOCATION '/owners';
";

/// The rows of the last query of a file.
pub fn outcome(query: &str) -> String {
    let text = format!("{TABLES}{query}");
    match run(&text) {
        Ok(rows) => rows,
        Err(found) => found.plain("p.sql", &text),
    }
}

fn run(text: &str) -> Result<String, Diagnostics> {
    let pipeline = load(text)?;
    let flow = pipeline.flows.last().expect("the case has a query");
    let session = session();
    for read in flow.reads() {
        let columns = match read.table.as_str() {
            "logs" => logs(&read.schema),
            _ => owners(),
        };
        let rows = RecordBatch::try_new(read.schema.clone(), columns).expect("the types fit");
        let table = MemTable::try_new(read.schema.clone(), vec![vec![rows]]).expect("it is valid");
        session.register_table(quoted(&read.registered_as), Arc::new(table)).expect("unique names");
    }
    let plan = flow.branches[0].plan(&session.state())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it can start");
    let rows = runtime.block_on(async {
        let rows = session.execute_logical_plan(plan).await?;
        rows.collect().await
    });
    Ok(match rows {
        Ok(rows) => {
            sorted(flow, &pretty_format_batches(&rows).expect("it can be shown").to_string())
        }
        Err(error) => format!("failed: {error}"),
    })
}

/// Rows in an order of their own, where the query gives none.
fn sorted(flow: &Flow, table: &str) -> String {
    if flow.branches[0].query.statement.to_string().contains("ORDER BY") {
        return table.to_owned();
    }
    let mut lines: Vec<&str> = table.lines().collect();
    if lines.len() > 4 {
        let last = lines.len() - 1;
        lines[3..last].sort_unstable();
    }
    lines.join("\n")
}

fn logs(schema: &SchemaRef) -> Vec<ArrayRef> {
    let DataType::Struct(ctx) = schema.field(5).data_type() else {
        unreachable!("ctx is a struct")
    };
    let tags: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let tags = ListArray::new(
        Arc::new(Field::new_list_field(DataType::Utf8, true)),
        OffsetBuffer::from_lengths([2, 0, 1, 0]),
        tags,
        Some(vec![true, true, true, false].into()),
    );
    let hosts: ArrayRef = Arc::new(StringArray::from(vec!["h1", "h2", "h1", "h3"]));
    let ports: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4]));
    vec![
        Arc::new(StringArray::from(vec![Some("auth"), Some("pay"), Some("auth"), None])),
        Arc::new(
            TimestampMicrosecondArray::from(vec![0, 1_000_000, 2_000_000, 60_000_000])
                .with_timezone("UTC"),
        ),
        Arc::new(Int32Array::from(vec![1, 2, 3, 7])),
        Arc::new(StringArray::from(vec!["ssn 123-45-6789", "ok", "it's", "50%"])),
        Arc::new(tags),
        Arc::new(StructArray::new(ctx.clone(), vec![hosts, ports], None)),
    ]
}

fn owners() -> Vec<ArrayRef> {
    vec![
        Arc::new(StringArray::from(vec!["auth", "web"])),
        Arc::new(StringArray::from(vec!["Ada", "Bob"])),
        Arc::new(Float64Array::from(vec![0.5, 2.0])),
    ]
}
