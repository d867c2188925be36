//! The Kafka source: reads any number of partitions ahead and hands out ranges of them.
//!
//! The client receives ahead on its own; the driver, when it looks for input, has the messages
//! copied into columns and takes them; a thread of the reader helps while the driver is busy. A
//! watcher notices partitions that appear and disappear.

pub mod chunk;
pub mod dead_letters;
mod fetch;
mod limits;
mod needs;
mod options;
mod orders;
mod partition_watch;
mod read_ahead;
mod reader;
mod readers;
mod replay;
mod rows;
mod split;
pub mod static_table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Memory, ReadMode, Table};
use millstream_engine::api::options::OptionError;
use millstream_engine::api::source::{
    Beginning, Failure, InputBatch, ReadLimit, Source, SourceLog, SourceOffset, SourcePartition,
    Split,
};
use millstream_formats::schema::Registries;

use crate::client::cluster::{Cluster, Partitions};
use crate::client::subscription::Subscription;
use crate::error::{DataLoss, SourceError};
use crate::offsets::{
    EARLIEST, LATEST, PartitionId, PerPartition, parse_initial_entry, parse_source_offset,
    to_initial_entry, to_source_offset,
};
pub use needs::needs;
use options::{NoSuchTime, Place, SourceOptions};
use partition_watch::{PartitionWatch, WatchInputs};
use read_ahead::{More, ReadAhead};
use reader::{Rules, new_queue};
use readers::{Reader, StartOfReading};
use replay::{Range, replay, report};
use rows::Rows;
use split::KafkaSplit;

/// The file of the initial offsets in the source's part of the checkpoint.
const INITIAL_ENTRY: &str = "0";

/// A Kafka table that is read.
pub struct KafkaSource {
    options: Arc<SourceOptions>,
    mode: ReadMode,
    rows: Arc<Rows>,
    context: FlowContext,
    table: String,
    /// Where a new query starts; known once it is open.
    initial: PerPartition,
    /// The ends of partitions when reading began.
    ends: PerPartition,
    cluster: Option<Arc<Cluster>>,
    buffer: Arc<ReadAhead>,
    // Both are stopped before the buffer goes.
    watch: Option<PartitionWatch>,
    reader: Option<Reader>,
}

impl KafkaSource {
    /// A source of `table` that is not connected yet.
    /// Errors: `Config` for a table that was not checked.
    pub fn from_table(
        table: &Table,
        mode: ReadMode,
        context: &FlowContext,
        registries: &Registries,
    ) -> Result<Self, Failure> {
        let (options, rows) = parse(table, mode, registries)?;
        Ok(Self::new(options, mode, rows, &table.name, context))
    }

    fn new(
        options: SourceOptions,
        mode: ReadMode,
        rows: Rows,
        table: &str,
        context: &FlowContext,
    ) -> Self {
        let waiting = context.memory.map(Memory::read_ahead);
        let buffer = ReadAhead::new(context.env.clone(), options.limits).holding(waiting);
        let buffer = Arc::new(buffer);
        Self {
            options: Arc::new(options),
            mode,
            rows: Arc::new(rows),
            context: context.clone(),
            table: table.to_owned(),
            initial: PerPartition::new(),
            ends: PerPartition::new(),
            cluster: None,
            buffer,
            watch: None,
            reader: None,
        }
    }

    /// The consumer group that offsets are committed to, for lag monitors.
    fn group(&self) -> String {
        if let Some(group) = self.options.client.get("group.id") {
            return group.to_owned();
        }
        let prefix = self.options.group_prefix.as_deref().unwrap_or("millstream");
        let id: String = self.context.query_id.chars().take(8).collect();
        format!("{prefix}-{}-{id}", self.context.flow)
    }

    /// The newest end of a partition that is known; `None` where no broker has reported one.
    fn end_seen(&self, id: &PartitionId) -> Option<i64> {
        let at_start = self.ends.get(id).copied();
        self.reader.as_ref()?.end_seen(id).max(at_start)
    }

    fn look(&self) -> More {
        self.reader.as_ref().map_or(More::WillBeNotified, Reader::look)
    }

    fn cluster(&self) -> Arc<Cluster> {
        self.cluster.clone().expect("the driver opens a source before it uses it")
    }

    /// Runs questions to the brokers on a thread that may block.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Cluster, &SourceOptions) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, Failure> {
        let (cluster, options) = (self.cluster(), self.options.clone());
        let asking = move || question(&cluster, &options);
        let answer = self.context.env.spawn_blocking("kafka-question", asking).join().await;
        Ok(answer?)
    }

    async fn start_reader(&self, position: &PerPartition) -> Result<Reader, Failure> {
        let rules = Rules {
            include_headers: self.options.include_headers,
            fail_on_data_loss: self.options.fail_on_data_loss,
        };
        let start = StartOfReading {
            client: self.options.client.clone(),
            memory: self.context.memory,
            table: self.table.clone(),
            position: position.clone(),
            buffer: self.buffer.clone(),
            rules,
            env: self.context.env.clone(),
        };
        self.ask(move |_, _| start.reader()).await
    }

    async fn find_initial(&self, log: &SourceLog) -> Result<PerPartition, Failure> {
        if let Some(entry) = log.get(INITIAL_ENTRY).await? {
            let initial = parse_initial_entry(&entry).map_err(|error| SourceError::Offset {
                offset: String::from_utf8_lossy(&entry).into_owned(),
                problem: error.to_string(),
            })?;
            return Ok(initial);
        }
        let initial = self.ask(first_positions).await?;
        log.put_if_absent(INITIAL_ENTRY, to_initial_entry(&initial)).await?;
        Ok(initial)
    }

    fn hand_out(&self, chunks: Vec<(PartitionId, Vec<chunk::Chunk>)>) -> Vec<Box<dyn Split>> {
        let split = |(id, chunks)| -> Box<dyn Split> {
            Box::new(KafkaSplit { id, chunks, rows: self.rows.clone() })
        };
        chunks.into_iter().map(split).collect()
    }
}

#[async_trait]
impl Source for KafkaSource {
    fn description(&self) -> String {
        self.options.subscription.description()
    }

    fn schema(&self) -> SchemaRef {
        self.rows.schema.clone()
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        log: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        let (group, env) = (self.group(), &self.context.env);
        let cluster = Cluster::new(&self.options.client, Some(&group), env, &self.table)?;
        self.cluster = Some(Arc::new(cluster));
        let position = position.map(positions).transpose()?;
        // Without a position but with an initial entry the query crashed before its first
        // micro-batch; it starts at the same offsets again.
        if position.is_none() || log.get(INITIAL_ENTRY).await?.is_some() {
            self.initial = self.find_initial(&log).await?;
        }
        let position = position.unwrap_or_else(|| self.initial.clone());
        let checked = position.clone();
        self.ask(move |cluster, options| reconcile(cluster, options, checked).map(drop)).await?;
        Ok(to_source_offset(&position))
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        let start = match start {
            Some(start) => positions(start)?,
            None => self.initial.clone(),
        };
        let range = Range {
            start,
            end: positions(end)?,
            fail_on_data_loss: self.options.fail_on_data_loss,
            include_headers: self.options.include_headers,
        };
        let (env, table) = (self.context.env.clone(), self.table.clone());
        let memory = self.context.memory;
        let reading = move |cluster: &Cluster, options: &SourceOptions| {
            let queue = new_queue(&options.client, memory, &env, &table)?;
            replay(&range, cluster, queue, &env)
        };
        let chunks = self.ask(reading).await?;
        let all = || chunks.iter().flat_map(|(_, chunks)| chunks);
        let rows = all().map(|chunk| chunk.rows() as u64).sum();
        let oldest_arrival_us =
            all().map(|chunk| chunk.arrival_us).min().unwrap_or(self.context.env.now_us());
        Ok(InputBatch { end: end.clone(), rows, splits: self.hand_out(chunks), oldest_arrival_us })
    }

    fn offsets_stand_alone(&self) -> bool {
        true
    }

    fn beginning(&self) -> Option<Beginning> {
        let (option, place) = &self.options.starting;
        Some(Beginning { option: format!("'{option}' = '{place}'"), may_skip: place.may_skip() })
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        let logged = positions(position)?;
        let checked = logged.clone();
        let reconciled = self.ask(move |cluster, options| reconcile(cluster, options, checked));
        let Reconciled { position, ends } = reconciled.await?;
        self.ends = ends;
        for (id, offset) in &position {
            let end = logged.get(id).copied().unwrap_or(*offset);
            self.buffer.add(id.clone(), end.max(*offset));
            self.buffer.begin_again(id, *offset, i64::MAX);
        }
        let reader = self.start_reader(&position).await?;
        let env = &self.context.env;
        let inputs = WatchInputs {
            cluster: self.cluster(),
            subscription: self.options.subscription.clone(),
            fail_on_data_loss: self.options.fail_on_data_loss,
            buffer: self.buffer.clone(),
            orders: reader.orders().clone(),
            brokers: self.context.contacts.with(format!("the brokers of {}", self.description())),
            leaders: self
                .context
                .contacts
                .with(format!("the leaders of some partitions of {}", self.description())),
        };
        self.watch = Some(PartitionWatch::start(inputs, env));
        self.reader = Some(reader);
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        let ids: BTreeSet<PartitionId> = self.buffer.taken().into_keys().collect();
        let batch = self.mode == ReadMode::Batch;
        let end = self.ask(move |cluster, options| last_positions(cluster, options, &ids, batch));
        let end = end.await?;
        self.buffer.fix_end(&end);
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.buffer.at_end()
    }

    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        self.look();
        let Some(taken) = self.buffer.take(limit)? else { return Ok(None) };
        if let Some(reader) = &self.reader {
            reader.is_busy_with(taken.rows);
        }
        Ok(Some(InputBatch {
            end: taken.end,
            rows: taken.rows,
            splits: self.hand_out(taken.chunks),
            oldest_arrival_us: taken.oldest_arrival_us,
        }))
    }

    async fn data_available(&mut self) {
        self.buffer.arrived(|| self.look()).await;
    }

    fn partitions_behind(&self) -> Vec<SourcePartition> {
        if self.reader.is_none() {
            return Vec::new();
        }
        let behind = self.buffer.behind(|id| self.end_seen(id));
        behind.iter().map(PartitionId::source_partition).collect()
    }

    fn committed(&mut self, end: &SourceOffset) {
        if let Some(watch) = &self.watch {
            watch.commit(end);
        }
    }

    fn latest(&self) -> Option<SourceOffset> {
        self.reader.as_ref()?;
        let latest = self.buffer.read().into_iter().map(|(id, read)| {
            let seen = self.end_seen(&id)?;
            Some((id, seen.max(read)))
        });
        // An offset that lacks partitions would be read as the offset of all of them.
        Some(to_source_offset(&latest.collect::<Option<_>>()?))
    }

    fn metrics(&self) -> BTreeMap<String, u64> {
        let malformed = self.rows.malformed.load(Ordering::Relaxed);
        let mut metrics = BTreeMap::from([("rowsMalformed".to_owned(), malformed)]);
        if self.reader.is_some() {
            let behind = self.buffer.taken().into_iter().filter_map(|(id, taken)| {
                Some(u64::try_from(self.end_seen(&id)? - taken).unwrap_or(0))
            });
            metrics.extend(behind_metrics(&behind.collect::<Vec<_>>()));
        }
        metrics
    }

    async fn close(&mut self) {
        let (watch, reader, cluster) = (self.watch.take(), self.reader.take(), self.cluster.take());
        // Ending a thread waits for it, and closing a client for its connections.
        let ending = move || {
            drop(watch);
            drop(reader);
            drop(cluster);
        };
        self.context.env.spawn_blocking("kafka-close", ending).join().await;
    }
}

/// The options of a table that is read, and how rows are made of its records.
/// Errors: options or columns that cannot be.
pub fn parse(
    table: &Table,
    mode: ReadMode,
    registries: &Registries,
) -> Result<(SourceOptions, Rows), OptionError> {
    let options = SourceOptions::parse(&table.options, mode)?;
    let topic = options.subscription.only_topic();
    let rows = Rows::from_table(table, options.include_headers, topic, registries)?;
    Ok((options, rows))
}

/// Spark's metrics of a Kafka source.
fn behind_metrics(behind: &[u64]) -> Vec<(String, u64)> {
    let (Some(min), Some(max)) = (behind.iter().min(), behind.iter().max()) else {
        return Vec::new();
    };
    let average = behind.iter().sum::<u64>() / behind.len() as u64;
    vec![
        ("minOffsetsBehindLatest".to_owned(), *min),
        ("maxOffsetsBehindLatest".to_owned(), *max),
        ("avgOffsetsBehindLatest".to_owned(), average),
    ]
}

fn positions(offset: &SourceOffset) -> Result<PerPartition, SourceError> {
    parse_source_offset(offset).map_err(|error| SourceError::Offset {
        offset: offset.as_str().to_owned(),
        problem: error.to_string(),
    })
}

/// Where a new query starts.
fn first_positions(
    cluster: &Cluster,
    options: &SourceOptions,
) -> Result<PerPartition, SourceError> {
    let is_all = |partitions: &Partitions| partitions.missing.is_empty();
    let partitions = cluster.partitions_at_start(&options.subscription, is_all)?;
    let (servers, option) = (cluster.servers().to_owned(), options.subscription.option());
    if let Some(topic) = partitions.missing.into_iter().next() {
        return Err(SourceError::NoTopic { topic, servers, option });
    }
    if let Subscription::Partitions(assigned) = &options.subscription
        && let Some(absent) = assigned.difference(&partitions.found).next()
    {
        let problem = format!("names {absent}, which does not exist at {servers}");
        return Err(SourceError::Start { option, problem });
    }
    let (option, place) = &options.starting;
    locate(cluster, option, place, &partitions.found, options.no_such_time)
}

/// Where a query with an end stops. A stream stops at what is there now.
fn last_positions(
    cluster: &Cluster,
    options: &SourceOptions,
    ids: &BTreeSet<PartitionId>,
    batch: bool,
) -> Result<PerPartition, SourceError> {
    if !batch {
        return cluster.latest(ids);
    }
    let (option, place) = &options.ending;
    locate(cluster, option, place, ids, NoSuchTime::Latest)
}

/// Finds the offsets of a place.
fn locate(
    cluster: &Cluster,
    option: &'static str,
    place: &Place,
    ids: &BTreeSet<PartitionId>,
    no_such_time: NoSuchTime,
) -> Result<PerPartition, SourceError> {
    if let Some(problem) = place.mismatch(ids) {
        return Err(SourceError::Start { option, problem });
    }
    let everywhere = |time: i64| ids.iter().map(|id| (id.clone(), time)).collect();
    match place {
        Place::Earliest => cluster.earliest(ids),
        Place::Latest => cluster.latest(ids),
        Place::Time(time) => locate_times(cluster, option, everywhere(*time), no_such_time),
        Place::Times(times) => locate_times(cluster, option, times.clone(), no_such_time),
        Place::Offsets(offsets) => {
            let mut offsets = offsets.clone();
            let special =
                |(id, offset): (&PartitionId, &i64)| (*offset < 0).then(|| (id.clone(), *offset));
            let asked: PerPartition = offsets.iter().filter_map(special).collect();
            offsets.extend(cluster.offsets(&asked)?);
            Ok(offsets)
        }
    }
}

fn locate_times(
    cluster: &Cluster,
    option: &'static str,
    times: PerPartition,
    no_such_time: NoSuchTime,
) -> Result<PerPartition, SourceError> {
    let mut offsets = cluster.offsets(&times)?;
    let late: BTreeSet<PartitionId> =
        offsets.iter().filter(|(_, offset)| **offset < 0).map(|(id, _)| id.clone()).collect();
    if let (Some(id), NoSuchTime::Fail) = (late.first(), no_such_time) {
        let time = times.get(id).copied().unwrap_or_default();
        let problem = format!(
            "is {time} for {id}, but all its records are older. To start after the last record \
             there, set 'startingOffsetsByTimestampStrategy' = 'latest'"
        );
        return Err(SourceError::Start { option, problem });
    }
    offsets.extend(cluster.latest(&late)?);
    Ok(offsets)
}

/// Validates a query's positions against the partitions that exist now. Partitions that were not
/// read before start at the earliest offset. Positions that do not exist any more are lost data: an
/// error, or moved, as `failOnDataLoss` says.
fn reconcile(
    cluster: &Cluster,
    options: &SourceOptions,
    position: PerPartition,
) -> Result<Reconciled, SourceError> {
    let fail = options.fail_on_data_loss;
    let is_all = |partitions: &Partitions| position.keys().all(|id| partitions.found.contains(id));
    let found = cluster.partitions_at_start(&options.subscription, is_all)?.found;
    let times = |time: i64| found.iter().map(|id| (id.clone(), time)).collect::<PerPartition>();
    let earliest = cluster.offsets(&times(EARLIEST))?;
    let latest = cluster.offsets(&times(LATEST))?;
    let mut reconciled = PerPartition::new();
    for (id, position) in &position {
        let (Some(&earliest), Some(&latest)) = (earliest.get(id), latest.get(id)) else {
            report(DataLoss::Gone { id: id.clone(), position: *position }, fail)?;
            continue;
        };
        let mut offset = *position;
        if offset < earliest {
            report(DataLoss::AgedOut { id: id.clone(), position: offset, earliest }, fail)?;
            offset = earliest;
        } else if offset > latest {
            report(DataLoss::Shrunk { id: id.clone(), position: offset, latest }, fail)?;
            // The topic was made again, so all of its records are new.
            offset = earliest;
        }
        reconciled.insert(id.clone(), offset);
    }
    for (id, earliest) in earliest {
        if position.contains_key(&id) {
            continue;
        }
        if earliest > 0 {
            report(DataLoss::NewPartitionTruncated { id: id.clone(), earliest }, fail)?;
        }
        reconciled.insert(id, earliest);
    }
    Ok(Reconciled { position: reconciled, ends: latest })
}

/// Where a query continues.
struct Reconciled {
    position: PerPartition,
    /// The ends of the partitions at that time.
    ends: PerPartition,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_reported_as_spark_does() {
        let metrics: BTreeMap<String, u64> = behind_metrics(&[4, 0, 5]).into_iter().collect();
        assert_eq!(metrics["minOffsetsBehindLatest"], 0);
        assert_eq!(metrics["maxOffsetsBehindLatest"], 5);
        assert_eq!(metrics["avgOffsetsBehindLatest"], 3);
        assert!(behind_metrics(&[]).is_empty());
    }
}
