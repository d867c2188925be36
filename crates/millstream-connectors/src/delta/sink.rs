//! The sink: opens the table, or makes it, and says what it published last.
//!
//! A commit carries a `txn` action with the query's id and the number of the last micro-batch in
//! it, which checkpoints of the table keep, and in its `userMetadata` where the sources stood then.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Memory};
use millstream_engine::api::sink::{
    Acknowledgement, BatchId, Delivery, EndOffsets, Failure, OtherQuery, Output, PieceWriter,
    Published, Sink,
};
use millstream_lake::applications::{Application, Said};
use millstream_lake::checkpoint::{LayoutChoice, Settings as CheckpointSettings};
use millstream_lake::compact::background::AutoCompact;
use millstream_lake::data_file::DataFile;
use millstream_lake::error::TableError;
use millstream_lake::file_writer::{FileWriter, WritePlan};
use millstream_lake::maintenance::{Care, LiveTable};
use millstream_lake::merge::Merger;
use millstream_lake::store::TableStore;
use millstream_lake::table::{Append, NewTable, Table};
use millstream_store::checkpoint::is_query_id;
use millstream_store::crash_points::{self, Step};
use millstream_store::env::Env;
use millstream_store::sink_log::SinkLog;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::OpenTables;
use super::error::{DeltaError, not_written};
use super::memory::{self, Known, Recorder};
use super::merge::{self, Merges};
use super::note::{Note, note};
use super::options::{Compaction, WriteOptions};
use crate::gather::{Destination, Gather, Pacing, RowWriter};

/// The property that a table with V2 checkpoints is made with.
const V2_CHECKPOINTS: &str = "delta.feature.v2Checkpoint";

/// What the ids of batch queries begin with, by which the table knows them.
const BATCH_RUN: &str = "millstream-batch-";
/// The length of a query's id; what follows names one of several sinks.
const ID_LENGTH: usize = 36;

/// Writes micro-batches to a Delta table.
pub(super) struct DeltaSink {
    options: WriteOptions,
    schema: SchemaRef,
    store: TableStore,
    tables: Arc<OpenTables>,
    query_id: String,
    flow: String,
    env: Env,
    memory: Option<Memory>,
    /// Whether the query runs once, over tables at rest.
    is_batch: bool,
    log: Option<SinkLog>,
    recorder: Option<Recorder>,
    gather: Option<Gather>,
    /// The table, while the sink is open.
    live: Option<Arc<LiveTable>>,
}

impl DeltaSink {
    pub(super) fn new(
        options: WriteOptions,
        schema: &SchemaRef,
        tables: Arc<OpenTables>,
        context: &FlowContext,
    ) -> Result<Self, Failure> {
        let env = context.env.clone();
        let store = super::store(&options.path, &context.base_dir, &env)?;
        let schema = Arc::clone(schema);
        let (memory, is_batch) = (context.memory, context.query_id.is_empty());
        let query_id = match is_batch {
            // Each run is one of its own.
            true => format!("{BATCH_RUN}{}", env.random_uuid()),
            false => context.query_id.clone(),
        };
        let (flow, log, live) = (context.flow.clone(), context.sink_log.clone(), None);
        let (gather, recorder) = (None, None);
        Ok(Self {
            options,
            schema,
            store,
            tables,
            query_id,
            flow,
            env,
            memory,
            is_batch,
            log,
            recorder,
            gather,
            live,
        })
    }

    fn pacing(&self) -> Pacing {
        Pacing { interval: self.options.commit_interval, patience: None }
    }
}

/// How rows come into the table.
enum Way {
    Append(WritePlan),
    Merge(Box<Merger>),
}

/// What happens in `open`, on a thread that may block.
fn open(
    store: &TableStore,
    tables: &OpenTables,
    (options, schema): (&WriteOptions, &SchemaRef),
    merges: (Option<Memory>, bool),
    (query_id, remembered): (&str, Option<(&SinkLog, &Known)>),
) -> Result<(Arc<LiveTable>, Way, Option<Published>), Failure> {
    let written = &options.written(schema);
    let live = tables.get(store, || {
        let table = match (Table::open(store), remembered) {
            (Err(TableError::Missing { .. }), None) => create(store, options, written)?,
            (Err(TableError::Missing { .. }), Some((log, known))) => {
                known.check(store, None, log)?;
                create(store, options, written)?
            }
            (opened, _) => opened?,
        };
        // The first part of a UUID.
        let owner = query_id.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
        let checkpoints = CheckpointSettings { owner, ..options.checkpoints.clone() };
        let compaction = compaction(&table, options, query_id);
        Ok(LiveTable::start(table, Care { checkpoints, is_off: false, compaction })?)
    })?;
    let table = live.table();
    if let Some((log, known)) = remembered {
        known.check(store, Some(table), log)?;
    }
    check_layout(table, options)?;
    if options.merge_schema {
        table.add_columns(written)?;
    }
    let way = match &options.merge {
        None => Way::Append(WritePlan::new(table, written, options.files.clone())?),
        Some(merge) => Way::Merge(Box::new(merge::open(&live, schema, (options, merge), merges)?)),
    };
    let published = match table.last_published(query_id)? {
        None => None,
        Some(version) => Some(published(table, query_id, version)?),
    };
    Ok((live, way, published))
}

/// How small files are put together, if they are. Origin of the property: Databricks; `auto` and
/// `legacy` are ways of its own to choose sizes.
fn compaction(table: &Table, options: &WriteOptions, query_id: &str) -> Option<AutoCompact> {
    let Compaction { is_on, files_min, target_bytes } = options.compaction;
    let property = || table.property("delta.autoOptimize.autoCompact");
    let is_wanted = |text: String| {
        ["true", "auto", "legacy"].iter().any(|on| text.trim().eq_ignore_ascii_case(on))
    };
    let is_on = is_on.unwrap_or_else(|| property().is_some_and(is_wanted));
    let application = query_id.to_owned();
    is_on.then(|| AutoCompact { files_min, target_bytes, application, ..AutoCompact::default() })
}

fn create(
    store: &TableStore,
    options: &WriteOptions,
    schema: &SchemaRef,
) -> Result<Table, TableError> {
    let partition_by = &options.partition_by;
    let mut properties = options.properties.clone();
    let known = |(key, _): &(String, String)| key.eq_ignore_ascii_case(V2_CHECKPOINTS);
    if options.checkpoints.layout == LayoutChoice::V2 && !properties.iter().any(known) {
        properties.push((V2_CHECKPOINTS.to_owned(), "supported".to_owned()));
    }
    let known = |(key, _): &(String, String)| key.eq_ignore_ascii_case(merge::DELETION_VECTORS);
    if options.merge.is_some() && !properties.iter().any(known) {
        properties.push((merge::DELETION_VECTORS.to_owned(), "true".to_owned()));
    }
    Table::create(store, &NewTable { schema, partition_by, properties: &properties })
}

/// Holds what the declaration says of a table against the table that is there.
fn check_layout(table: &Table, options: &WriteOptions) -> Result<(), TableError> {
    let mismatch = |problem| TableError::Mismatch { table: table.store().shown(), problem };
    let (wanted, found) = (&options.partition_by, table.partition_columns());
    let same = wanted.len() == found.len()
        && wanted.iter().zip(&found).all(|(wanted, found)| wanted.eq_ignore_ascii_case(found));
    if !wanted.is_empty() && !same {
        let found = if found.is_empty() {
            "has no partitions".to_owned()
        } else {
            format!("is partitioned by {}", found.join(", "))
        };
        return Err(mismatch(format!(
            "it is declared as partitioned by {}, but {found}; leave PARTITIONED BY out",
            wanted.join(", ")
        )));
    }
    if options.checkpoints.layout == LayoutChoice::V2 && !table.has_v2_checkpoints() {
        let problem = "'checkpointLayout' is 'v2', and the table does not have the feature \
                       v2Checkpoint; enable it (ALTER TABLE ... SET TBLPROPERTIES \
                       ('delta.feature.v2Checkpoint' = 'supported') in Spark), or leave the \
                       option out";
        return Err(mismatch(problem.to_owned()));
    }
    Ok(())
}

fn published(table: &Table, query_id: &str, version: i64) -> Result<Published, Failure> {
    let number = u64::try_from(version).map_err(|_| DeltaError::Version { version })?;
    let batch_id = BatchId(number);
    let note = table.note_of(query_id, version)?;
    let end_offsets = note.and_then(|note| serde_json::from_str::<Note>(&note).ok());
    Ok(Published { batch_id, end_offsets: end_offsets.map(Note::end_offsets) })
}

/// The streaming queries of ours that have published to the table. A commit that is forgotten by
/// now may have been another engine's; it counts, as nothing says that it was.
fn queries(table: &Table) -> Result<Vec<OtherQuery>, Failure> {
    let query = |application: Application| {
        let Application { id, version, updated_ms, said } = application;
        let is_id = id.get(..ID_LENGTH).is_some_and(is_query_id);
        let note = match said {
            Said::Foreign => return None,
            Said::Note(note) => Some(serde_json::from_str::<Note>(&note).ok()?),
            Said::Forgotten => None,
        };
        let (mut flow, mut at_ms) = (None, updated_ms);
        if let Some(note) = note {
            if note.offsets.is_empty() {
                return None;
            }
            (flow, at_ms) = (note.flow, Some(note.batch_timestamp_ms));
        }
        let batch_id = BatchId(u64::try_from(version).ok()?);
        is_id.then_some(OtherQuery { query_id: id, flow, batch_id, at_ms })
    };
    Ok(table.applications()?.into_iter().filter_map(query).collect())
}

#[async_trait]
impl Sink for DeltaSink {
    fn description(&self) -> String {
        format!("DeltaSink[{}]", self.store.shown())
    }

    fn delivery(&self) -> Delivery {
        Delivery::Transactional
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        let (store, tables) = (self.store.clone(), Arc::clone(&self.tables));
        let (options, schema) = (self.options.clone(), Arc::clone(&self.schema));
        let (query_id, log) = (self.query_id.clone(), self.log.clone());
        let known = match &log {
            Some(log) => memory::recall(log).await?,
            None => None,
        };
        let recalled = known.clone();
        let merges = (self.memory, self.is_batch);
        let opening = move || {
            let remembered = log.as_ref().zip(known.as_ref());
            open(&store, &tables, (&options, &schema), merges, (&query_id, remembered))
        };
        let (table, way, published) = self.env.spawn_blocking("delta-open", opening).join().await?;
        if let Some(log) = self.log.clone() {
            let live = Arc::clone(&table);
            self.recorder = Some(Recorder::start(log, live, recalled, &self.env).await?);
        }
        self.live = Some(Arc::clone(&table));
        let (application, flow) = (self.query_id.clone(), self.flow.clone());
        let commits = self.tables.commits(&self.store);
        let (pacing, env) = (self.pacing(), &self.env);
        self.gather = Some(match way {
            Way::Append(plan) => {
                let destination = Commits { table, plan, application, flow, commits };
                Gather::start(Arc::new(destination), pacing, env)
            }
            Way::Merge(merger) => {
                let plan = merger.plan().clone();
                let merger = Mutex::new(*merger);
                let destination = Merges { table, plan, merger, application, flow, commits };
                Gather::start(Arc::new(destination), pacing, env)
            }
        });
        Ok(published)
    }

    async fn other_queries(&mut self) -> Result<Vec<OtherQuery>, Failure> {
        let live = self.live.clone().expect("the driver opens a sink before it asks");
        self.env.spawn_blocking("delta-open", move || queries(live.table())).join().await
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        if let Some(gather) = &mut self.gather {
            gather.ready().await;
        }
        Ok(())
    }

    fn micro_batches_in_flight_max(&self) -> Option<usize> {
        self.pacing().micro_batches_in_flight_max()
    }

    fn piece_writer(&mut self) -> Option<&mut dyn PieceWriter> {
        Some(self)
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let gather = self.gather.as_mut().expect("the driver opens a sink before it uses it");
        Ok(gather.publish(output).await)
    }

    async fn flush(&mut self) {
        if let Some(gather) = &self.gather {
            gather.flush().await;
        }
    }

    async fn close(&mut self) -> Result<(), Failure> {
        let open = self.gather.take();
        self.env.spawn_blocking("delta-close", move || drop(open)).join().await;
        if let Some(recorder) = self.recorder.take() {
            recorder.end().await;
        }
        let live = self.live.take();
        self.env.spawn_blocking("delta-close", move || drop(live)).join().await;
        Ok(())
    }
}

#[async_trait]
impl PieceWriter for DeltaSink {
    async fn write(&mut self, _partition: usize, rows: RecordBatch) -> Result<(), Failure> {
        let gather = self.gather.as_mut().expect("the driver opens a sink before it uses it");
        gather.write(rows).await
    }
}

/// The table as a destination of commits.
struct Commits {
    table: Arc<LiveTable>,
    plan: WritePlan,
    /// The query's id.
    application: String,
    /// The flow's name, which commits tell.
    flow: String,
    /// Wakes flows of this process that read the table.
    commits: watch::Sender<u64>,
}

impl Destination for Commits {
    type File = DataFile;
    type Writer = TableWriter;

    const THREADS: [&'static str; 3] = ["delta-gather", "delta-write", "delta-commit"];

    fn writer(&self) -> TableWriter {
        let mut files = FileWriter::new(self.plan.clone(), self.table.table().store());
        files.name_with(self.table.part_file_names());
        TableWriter(files)
    }

    fn publish(
        &self,
        files: Vec<DataFile>,
        batch_id: BatchId,
        end_offsets: &EndOffsets,
    ) -> Result<(), Failure> {
        let append = Append {
            application: &self.application,
            version: i64::try_from(batch_id.0).expect("batch ids are counted from 0"),
            files: &files,
            prepared_by: self.plan.version(),
            note: &note(&self.flow, batch_id, end_offsets),
        };
        crash_points::reached(Step::BeforeCommit);
        let appended = self.table.append(&append)?;
        crash_points::reached(Step::AfterCommit);
        let Some(appended) = appended else { return Err(DeltaError::Taken { batch_id }.into()) };
        let (version, conflicts) = (appended.version, appended.conflicts);
        self.commits.send_replace(version);
        tracing::debug!(version, conflicts, files = files.len(), "committed");
        Ok(())
    }
}

/// Encodes rows into files of the table.
struct TableWriter(FileWriter);

impl RowWriter for TableWriter {
    type File = DataFile;

    fn write(&mut self, rows: &RecordBatch) -> Result<(), Failure> {
        self.0.write(rows).map_err(|error| {
            let plan = self.0.plan().clone();
            not_written(error, move |rows| plan.refuses(rows))
        })
    }

    /// Not counted: a table's commits do not wait for more.
    fn bytes(&self) -> u64 {
        0
    }

    fn finish(&mut self) -> Result<Vec<DataFile>, Failure> {
        Ok(self.0.finish()?)
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }
}
