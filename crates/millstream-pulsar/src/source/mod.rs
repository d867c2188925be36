//! Topics that are read.
//!
//! ```text
//! reader of each partition ──▶ buffer ──▶ micro-batches ──▶ published ──▶ subscription lets go
//! ```
//!
//! - [`options`]: what a table's options say. [`position`]: offsets.
//! - [`reader`]: one partition, without gaps. [`permits`]: how much the broker may send.
//!   [`chunks`]: messages of several entries. [`hold`]: what the broker keeps until it is
//!   published.
//! - [`buffer`]: entries that wait for the driver. [`discovery`]: which partitions there are.
//! - [`rows`]: messages as columns. [`split`]: a part of a micro-batch.
//! - [`PulsarSource`]: what the driver sees.

mod buffer;
mod chunks;
mod discovery;
mod hold;
mod options;
mod permits;
mod position;
mod reader;
mod rows;
mod split;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Memory, ReadMode, Table};
use millstream_engine::api::needs::{Need, Usage};
use millstream_engine::api::options::OptionError;
use millstream_engine::api::source::{
    Beginning, Failure, InputBatch, ReadLimit, Source, SourceLog, SourceOffset, SourcePartition,
    Split,
};
use millstream_store::env::Task;

use crate::client::Client;
use crate::error::PulsarError;
use crate::protocol::messages::initial_position;
use buffer::{Buffer, Entry};
use discovery::Discovery;
use hold::Hold;
use options::{SourceOptions, Start, Starting};
use position::{Position, Positions, last_entry, parse_offset, to_offset};
use reader::Reader;
pub(crate) use rows::{Rows, ValuePayloads};
use split::PulsarSplit;

/// Bytes that wait for the driver, where no limit of memory says it.
const READ_AHEAD: usize = 64 << 20;
/// The file of the initial positions in the source's part of the checkpoint.
const INITIAL_ENTRY: &str = "0";
/// Entries of a split, about, where there are so many that several are worth it.
const SPLIT_ROWS: usize = 16_384;

/// The columns of a table, and how rows are made.
///
/// # Errors
/// What is wrong with the table.
pub(crate) fn check(table: &Table, mode: ReadMode, base_dir: &Path) -> Result<Rows, OptionError> {
    SourceOptions::parse(table, mode, base_dir)?;
    Rows::from_table(table)
}

/// What a table needs of the service.
///
/// # Errors
/// What is wrong with the table.
pub(crate) fn needs(
    table: &Table,
    mode: ReadMode,
    base_dir: &Path,
    usage: &Usage<'_>,
) -> Result<Vec<Need>, OptionError> {
    Ok(SourceOptions::parse(table, mode, base_dir)?.needs(usage))
}

/// A Pulsar table that is read.
pub(crate) struct PulsarSource {
    options: Arc<SourceOptions>,
    rows: Arc<Rows>,
    context: FlowContext,
    buffer: Arc<Buffer>,
    client: Arc<Client>,
    hold: Arc<Hold>,
    /// Where a new query starts; known once it is open.
    initial: Positions,
    tasks: Vec<Task<()>>,
    discovery: Option<Discovery>,
}

impl PulsarSource {
    /// A source of a table that was checked.
    pub(crate) fn new(
        table: &Table,
        mode: ReadMode,
        base_dir: &Path,
        context: &FlowContext,
    ) -> Result<Self, Failure> {
        let table = table.fresh()?;
        let options = SourceOptions::parse(&table, mode, base_dir)?;
        let rows = Arc::new(Rows::from_table(&table)?);
        let bytes_max = context.memory.map_or(READ_AHEAD, Memory::read_ahead);
        let client = Client::new(options.settings.clone(), &context.env);
        let id: String = context.query_id.chars().take(8).collect();
        let name = options.subscription.clone();
        let mut name = name.unwrap_or_else(|| format!("{}-{}-{id}", options.prefix, context.flow));
        if mode == ReadMode::Batch {
            // It is none that is kept, and must not meet one that is.
            name = format!("{name}-{}", context.env.secret());
        }
        Ok(Self {
            hold: Hold::new(Arc::clone(&client), name, mode == ReadMode::Stream),
            options: Arc::new(options),
            rows,
            context: context.clone(),
            buffer: Arc::new(Buffer::new(bytes_max)),
            client,
            initial: Positions::new(),
            tasks: Vec::new(),
            discovery: None,
        })
    }

    /// Subscribes to all partitions that there are, and finds where a new query begins.
    async fn find_initial(&self, log: &SourceLog) -> Result<Positions, Failure> {
        if let Some(entry) = log.get(INITIAL_ENTRY).await? {
            return Ok(parse_offset(&String::from_utf8_lossy(&entry))?);
        }
        let mut initial = Positions::new();
        for partition in self.partitions().await? {
            let start = self.options.starting.of(&partition);
            let position = match start {
                Start::At(position) => {
                    self.hold.add(&partition, initial_position::EARLIEST).await?;
                    position
                }
                Start::Latest => {
                    // What comes from now on is held before it is known what was there.
                    self.hold.add(&partition, initial_position::LATEST).await?;
                    Position::after_last(&self.hold.last_message(&partition).await?)
                }
            };
            initial.insert(partition, position);
        }
        log.put_if_absent(INITIAL_ENTRY, to_offset(&initial).as_str().as_bytes().to_vec()).await?;
        Ok(initial)
    }

    async fn partitions(&self) -> Result<Vec<String>, PulsarError> {
        discovery::partitions(&self.client, &self.options.topics).await
    }

    /// Whether a partition that a position is for is gone.
    async fn check_partitions(&self, positions: &Positions) -> Result<(), PulsarError> {
        let found = self.partitions().await?;
        for (partition, position) in positions {
            if found.contains(partition) {
                continue;
            }
            let error = PulsarError::MessagesLost {
                table: self.options.table.clone(),
                topic: partition.clone(),
                position: position.to_string(),
                found: "the topic is not there any more, or the table does not read it".to_owned(),
                subscription: self.hold.name().to_owned(),
            };
            if self.options.fails_on_loss {
                return Err(error);
            }
            tracing::warn!(%error, "going on without it");
        }
        for partition in &found {
            self.hold.add(partition, initial_position::EARLIEST).await?;
        }
        Ok(())
    }

    fn reader(&self, partition: &str, position: Position) -> Reader {
        let contact = self.context.contacts.with(format!("the broker of {partition}"));
        Reader::new(
            Arc::clone(&self.client),
            (&self.options.table, partition, self.hold.name()),
            self.options.fails_on_loss,
            position,
            contact,
        )
    }

    fn splits(&self, entries: Vec<(String, Vec<Entry>)>) -> Vec<Box<dyn Split>> {
        let mut splits: Vec<Box<dyn Split>> = Vec::new();
        for (partition, entries) in entries {
            let partition: Arc<str> = partition.into();
            let (mut group, mut rows) = (Vec::new(), 0);
            // The chunks before the last one have moved the position, and are nothing else.
            for entry in entries.into_iter().filter(|entry| entry.messages > 0) {
                rows += entry.rows();
                group.push(entry);
                if rows >= SPLIT_ROWS {
                    splits.push(self.split(&partition, std::mem::take(&mut group)));
                    rows = 0;
                }
            }
            if !group.is_empty() {
                splits.push(self.split(&partition, group));
            }
        }
        splits
    }

    fn split(&self, partition: &Arc<str>, entries: Vec<Entry>) -> Box<dyn Split> {
        let (partition, rows) = (Arc::clone(partition), Arc::clone(&self.rows));
        Box::new(PulsarSplit { partition, entries, rows })
    }

    fn input(&self, entries: Vec<(String, Vec<Entry>)>, end: SourceOffset) -> InputBatch {
        let all = || entries.iter().flat_map(|(_, entries)| entries);
        let rows = all().map(|entry| entry.rows() as u64).sum();
        let oldest = all().map(|entry| entry.arrival_us).min();
        let oldest_arrival_us = oldest.unwrap_or_else(|| self.context.env.now_us());
        InputBatch { end, rows, splits: self.splits(entries), oldest_arrival_us }
    }
}

#[async_trait]
impl Source for PulsarSource {
    fn description(&self) -> String {
        self.options.description()
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.rows.schema)
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        log: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        let position = position.map(|offset| parse_offset(offset.as_str())).transpose()?;
        // Without a position but with an initial entry the query crashed before its first
        // micro-batch; it starts at the same positions again.
        if position.is_none() || log.get(INITIAL_ENTRY).await?.is_some() {
            self.initial = self.find_initial(&log).await?;
        }
        let position = position.unwrap_or_else(|| self.initial.clone());
        self.check_partitions(&position).await?;
        Ok(to_offset(&position))
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        let start = match start {
            Some(start) => parse_offset(start.as_str())?,
            None => self.initial.clone(),
        };
        let mut entries = Vec::new();
        for (partition, end) in parse_offset(end.as_str())? {
            let from = start.get(&partition).copied().unwrap_or(Position::Earliest);
            let Some(last) = end.entry().filter(|_| from != end) else { continue };
            let mut reader = self.reader(&partition, from);
            // What was read was there, so that less now is a loss, whatever the options say.
            reader.fails_on_loss = true;
            let mut found = Vec::new();
            loop {
                let entry = reader.next(self.buffer.share()).await?;
                let id = entry.id;
                if id <= last {
                    found.push(entry);
                }
                if id > last {
                    return Err(PulsarError::MessagesLost {
                        table: self.options.table.clone(),
                        topic: partition,
                        position: format!("{}:{}", last.0, last.1),
                        found: format!("the next one is {}:{}", id.0, id.1),
                        subscription: self.hold.name().to_owned(),
                    }
                    .into());
                }
                if id == last {
                    break;
                }
            }
            entries.push((partition, found));
        }
        Ok(self.input(entries, end.clone()))
    }

    fn beginning(&self) -> Option<Beginning> {
        let (text, may_skip) = match &self.options.starting {
            Starting::Earliest => ("earliest", false),
            Starting::Latest => ("latest", true),
            Starting::Positions(_) => ("{...}", true),
        };
        Some(Beginning { option: format!("'startingOffsets' = '{text}'"), may_skip })
    }

    fn offsets_stand_alone(&self) -> bool {
        true
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        let positions = parse_offset(position.as_str())?;
        let found = self.partitions().await?;
        let (context, hold) = (self.context.clone(), Arc::clone(&self.hold));
        let discovery = Discovery::new(
            Arc::clone(&self.client),
            Arc::clone(&self.options),
            Arc::clone(&self.buffer),
            hold,
            context,
        );
        for partition in found {
            let position = positions.get(&partition).copied().unwrap_or(Position::Earliest);
            discovery.read(&partition, position);
        }
        let env = &self.context.env;
        let contact = self.context.contacts.with(format!("subscription {}", self.hold.name()));
        self.tasks.push(env.spawn("pulsar-hold", Arc::clone(&self.hold).run(contact)));
        self.tasks.push(env.spawn("pulsar-partitions", discovery.clone().run()));
        self.discovery = Some(discovery);
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        let mut ends = BTreeMap::new();
        for partition in self.buffer.partitions() {
            let last = self.hold.last_message(&partition).await?;
            ends.insert(partition, last_entry(&last));
        }
        self.buffer.fix_end(&ends);
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.buffer.at_end()
    }

    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        let bytes_max = match limit {
            ReadLimit::Configured => self.options.bytes_max,
            ReadLimit::AllAvailable => None,
        };
        let Some(taken) = self.buffer.take(bytes_max)? else { return Ok(None) };
        Ok(Some(self.input(taken.entries, to_offset(&taken.end))))
    }

    async fn data_available(&mut self) {
        while !self.at_end() && !self.buffer.is_filled() {
            self.buffer.changed().await;
        }
    }

    fn partitions_behind(&self) -> Vec<SourcePartition> {
        self.buffer.behind()
    }

    fn committed(&mut self, end: &SourceOffset) {
        if let Ok(positions) = parse_offset(end.as_str()) {
            self.hold.published(positions);
        }
    }

    fn metrics(&self) -> BTreeMap<String, u64> {
        BTreeMap::from([("rowsMalformed".to_owned(), self.rows.malformed())])
    }

    async fn close(&mut self) {
        for task in self.tasks.drain(..) {
            task.stop().await;
        }
        if let Some(discovery) = self.discovery.take() {
            discovery.stop().await;
        }
        // What is not acknowledged now is by the next run.
        let acknowledging = self.hold.acknowledge();
        tokio::select! {
            _ = acknowledging => {}
            () = self.context.env.sleep(std::time::Duration::from_secs(1)) => {}
        }
        self.hold.close().await;
        // The frames that were just sent are written by tasks that end with the connections.
        self.context.env.sleep(std::time::Duration::from_millis(20)).await;
        self.client.close();
    }
}
