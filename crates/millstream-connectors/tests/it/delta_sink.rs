//! Delta tables as sinks: what a query finds of itself at a restart, and what stops it.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_engine::api::sink::{
    BatchId, EndOffsets, Failure, Kind, Output, Published, Sink, SourceOffset,
};
use millstream_lake::store::TableStore;
use millstream_lake::table::Table;
use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::Env;
use millstream_store::storage::Storage;

use crate::support::{connector, context, table};

fn numbers(values: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_from_iter_with_nullable([("n", column, true)]).unwrap()
}

fn column(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}

/// After rows of a source that stands at `position` then.
fn output(batch_id: u64, rows: RecordBatch, position: u64) -> Output {
    let ends = vec![Some(SourceOffset::new(position.to_string()))];
    let batch_time_ms = 1_767_225_600_000;
    let end_offsets = EndOffsets { ends, batch_time_ms };
    Output { batch_id: BatchId(batch_id), partitions: vec![vec![rows]], end_offsets }
}

async fn publish(sink: &mut Box<dyn Sink>, output: Output) -> Result<(), Failure> {
    sink.publish(output).await?.accepted().await.map(drop)
}

/// The sink of one query into the table `out` of `base`; `checkpoint` remembers the table.
fn sink_of(base: &Path, schema: &SchemaRef, checkpoint: Option<&Checkpoint>) -> Box<dyn Sink> {
    let options = [("path", "out"), ("commitInterval", "0"), ("mergeSchema", "true")];
    let mut context = context(base);
    context.sink_log = checkpoint.map(|checkpoint| checkpoint.sink_log("out"));
    connector("delta", base).sink(&table(None, &options), schema, &context).unwrap()
}

fn lake_table(base: &Path) -> Table {
    let path = base.join("out");
    Table::open(&TableStore::parse(path.to_str().unwrap(), &Env::real()).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_finds_what_it_published_and_where_it_stood() {
    let base = tempfile::tempdir().unwrap();
    let schema = numbers(0..0).schema();
    let mut sink = sink_of(base.path(), &schema, None);
    assert_eq!(sink.open().await.unwrap(), None);
    publish(&mut sink, output(0, numbers(0..2), 2)).await.unwrap();
    let last = output(1, numbers(2..3), 3);
    let expected = Published { batch_id: BatchId(1), end_offsets: Some(last.end_offsets.clone()) };
    publish(&mut sink, last).await.unwrap();
    sink.close().await.unwrap();
    assert_eq!(sink_of(base.path(), &schema, None).open().await.unwrap(), Some(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_was_deleted_is_not_made_again() {
    let base = tempfile::tempdir().unwrap();
    let (schema, env) = (numbers(0..0).schema(), Env::real());
    let checkpoint = Checkpoint::open_in(Storage::in_memory(), &env).await.unwrap();
    let mut sink = sink_of(base.path(), &schema, Some(&checkpoint));
    sink.open().await.unwrap();
    publish(&mut sink, output(0, numbers(0..2), 2)).await.unwrap();
    sink.close().await.unwrap();
    std::fs::remove_dir_all(base.path().join("out")).unwrap();
    let failure = sink_of(base.path(), &schema, Some(&checkpoint)).open().await.unwrap_err();
    assert_eq!(failure.kind(), Kind::Data, "{failure}");
    assert!(!base.path().join("out/_delta_log").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_was_replaced_is_not_written_to() {
    let base = tempfile::tempdir().unwrap();
    let (schema, env) = (numbers(0..0).schema(), Env::real());
    let checkpoint = Checkpoint::open_in(Storage::in_memory(), &env).await.unwrap();
    let mut sink = sink_of(base.path(), &schema, Some(&checkpoint));
    sink.open().await.unwrap();
    sink.close().await.unwrap();
    std::fs::remove_dir_all(base.path().join("out")).unwrap();
    let mut other = sink_of(base.path(), &schema, None);
    other.open().await.unwrap();
    other.close().await.unwrap();
    let failure = sink_of(base.path(), &schema, Some(&checkpoint)).open().await.unwrap_err();
    assert_eq!(failure.kind(), Kind::Data, "{failure}");
    assert!(failure.to_string().contains("another table"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_other_partitions_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let schema: SchemaRef = Arc::new(Schema::new(vec![column("n"), column("day")]));
    let mut sink = sink_of(base.path(), &schema, None);
    sink.open().await.unwrap();
    sink.close().await.unwrap();
    let options = table(None, &[("path", "out"), ("partitionBy", "day")]);
    let context = context(base.path());
    let mut other = connector("delta", base.path()).sink(&options, &schema, &context).unwrap();
    let failure = other.open().await.unwrap_err();
    assert!(failure.to_string().contains("partitioned by day"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_the_table_lacks_are_added_where_that_is_wanted() {
    let base = tempfile::tempdir().unwrap();
    let mut sink = sink_of(base.path(), &numbers(0..0).schema(), None);
    sink.open().await.unwrap();
    sink.close().await.unwrap();
    let wider = Arc::new(Schema::new(vec![column("n"), column("more")]));
    let mut sink = sink_of(base.path(), &wider, None);
    sink.open().await.unwrap();
    sink.close().await.unwrap();
    let path = base.path().to_owned();
    let look = move || lake_table(&path).schema().unwrap();
    let schema = Env::real().spawn_blocking("reader", look).join().await;
    assert!(schema.field_with_name("more").is_ok(), "{schema:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_prepared_before_the_table_changed_are_not_appended() {
    let base = tempfile::tempdir().unwrap();
    let mut sink = sink_of(base.path(), &numbers(0..0).schema(), None);
    sink.open().await.unwrap();
    publish(&mut sink, output(0, numbers(0..2), 2)).await.unwrap();
    let adding = {
        let base = base.path().to_owned();
        let more = Schema::new(vec![column("more")]);
        move || lake_table(&base).add_columns(&more).unwrap()
    };
    Env::real().spawn_blocking("other-writer", adding).join().await;
    let failure = publish(&mut sink, output(1, numbers(2..3), 3)).await.unwrap_err();
    assert!(failure.to_string().contains("got another"), "{failure}");
    sink.close().await.unwrap();
}
