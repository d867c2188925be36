//! The source as the driver sees it: positions in the journal.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Memory, ReadMode, Table};
use millstream_engine::api::options::OptionError;
use millstream_engine::api::source::{
    Failure, InputBatch, ReadLimit, Source, SourceLog, SourceOffset, Split,
};
use millstream_store::journal::{self, Journal, JournalError};

use super::buffer::{Buffer, Waiting};
use super::client::Client;
use super::error::PubsubError;
use super::intake::{Intake, Running, Settings};
use super::options::SourceOptions;
use super::rows::{self, MessageSplit};

/// Bytes that wait for the driver, where no limit of memory says it.
const READ_AHEAD: usize = 32 << 20;
/// Rows of a split, at least, where there are so many that several are worth it.
const SPLIT_ROWS: usize = 4_096;
const SPLITS_MAX: usize = 8;

/// A subscription that is read.
pub(super) struct PubsubSource {
    options: SourceOptions,
    schema: SchemaRef,
    context: FlowContext,
    buffer: Arc<Buffer>,
    open: Option<Open>,
    running: Option<Running>,
    is_ending: bool,
}

/// What there is once the source is open.
struct Open {
    journal: Arc<Journal>,
    client: Arc<Client>,
    intake: Option<Arc<Intake>>,
    of: Arc<str>,
}

impl PubsubSource {
    /// The columns of a table, if nothing is wrong with it.
    pub(super) fn check(
        table: &Table,
        mode: ReadMode,
        base_dir: &Path,
    ) -> Result<SchemaRef, OptionError> {
        SourceOptions::parse(table, mode, base_dir)?;
        rows::columns(table)
    }

    /// A source of a table that was checked.
    pub(super) fn new(
        table: &Table,
        mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Self, Failure> {
        let table = table.fresh()?;
        let options = SourceOptions::parse(&table, mode, &context.base_dir)?;
        let schema = rows::columns(&table)?;
        let bytes_max = context.memory.map_or(READ_AHEAD, Memory::read_ahead);
        let (context, buffer) = (context.clone(), Arc::new(Buffer::new(bytes_max)));
        let (open, running, is_ending) = (None, None, false);
        Ok(Self { options, schema, context, buffer, open, running, is_ending })
    }

    fn opened(&self) -> Result<&Open, PubsubError> {
        self.open.as_ref().ok_or(PubsubError::NotOpen)
    }

    fn splits(&self, messages: Vec<Waiting>) -> Vec<Box<dyn Split>> {
        let of = self.open.as_ref().map_or_else(|| "".into(), |open| Arc::clone(&open.of));
        let rows = messages.len().div_ceil(SPLITS_MAX).max(SPLIT_ROWS);
        let mut splits: Vec<Box<dyn Split>> = Vec::new();
        let mut rest = messages;
        while !rest.is_empty() {
            let after = rest.split_off(rows.min(rest.len()));
            let (schema, of) = (Arc::clone(&self.schema), Arc::clone(&of));
            splits.push(Box::new(MessageSplit { schema, of, messages: rest }));
            rest = after;
        }
        splits
    }
}

#[async_trait]
impl Source for PubsubSource {
    fn description(&self) -> String {
        format!("PubSub[{}]", self.options.subscription())
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        log: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        let env = &self.context.env;
        let position = position.map(journal::position).transpose()?;
        let journal = Journal::open(&log, position, self.options.journal, env).await?;
        let connection = self.options.service.connect(env)?;
        let names = self.options.names(connection.project())?;
        let contact = self.context.contacts.with(format!("the subscription {}", names.0));
        let of: Arc<str> = names.0.as_str().into();
        let client = Client::new(connection, names, contact, env.clone());
        let start = position.unwrap_or_else(|| journal.first());
        let journal = Arc::new(journal);
        self.open = Some(Open { journal, client, intake: None, of });
        Ok(journal::offset(start))
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        let journal = Arc::clone(&self.opened()?.journal);
        let to = journal::position(end)?;
        let mut from = match start {
            Some(start) => journal::position(start)?,
            None => 0,
        };
        let arrival_us = self.context.env.now_us();
        let mut messages = Vec::new();
        while from < to {
            let read = journal.read(from, to).await?;
            let Some((last, _)) = read.last() else {
                let location = self.options.table.clone();
                return Err(JournalError::Missing { location, from, to }.into());
            };
            from = last + 1;
            messages.extend(read.into_iter().map(|(position, record)| Waiting {
                position,
                content: record.content,
                arrival_us,
            }));
        }
        let rows = messages.len() as u64;
        let splits = self.splits(messages);
        Ok(InputBatch { end: end.clone(), rows, splits, oldest_arrival_us: arrival_us })
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        let open = self.open.as_mut().ok_or(PubsubError::NotOpen)?;
        let (journal, client) = (Arc::clone(&open.journal), Arc::clone(&open.client));
        self.buffer.begin(journal::position(position)?, journal.durable());
        // What is on its way is in memory too.
        let memory = self.context.memory.map(|memory| memory.client_queue() as u64);
        let settings = Settings {
            id_attribute: self.options.id_attribute.clone(),
            messages_max: self.options.messages_max,
            bytes_max: self.options.bytes_max.min(memory.unwrap_or(u64::MAX)),
            streams: self.options.streams,
            fetch_period: self.options.fetch_period,
        };
        let intake = Intake::new(client, journal, Arc::clone(&self.buffer), settings);
        open.intake = Some(Arc::clone(&intake));
        self.running = Some(intake.start());
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        let env = &self.context.env;
        self.buffer.end_is_fixed(env.now_ms(), env.monotonic());
        self.is_ending = true;
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.is_ending && self.buffer.is_over() && !self.buffer.is_filled()
    }

    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        let (rows_max, bytes_max) = match limit {
            ReadLimit::Configured => (self.options.batch_rows_max, self.options.batch_bytes_max),
            ReadLimit::AllAvailable => (usize::MAX, usize::MAX),
        };
        let Some(taken) = self.buffer.take(rows_max, bytes_max)? else { return Ok(None) };
        let oldest = taken.messages.iter().map(|message| message.arrival_us).min();
        let rows = taken.messages.len() as u64;
        let splits = self.splits(taken.messages);
        let (end, oldest_arrival_us) = (journal::offset(taken.end), oldest.unwrap_or_default());
        Ok(Some(InputBatch { end, rows, splits, oldest_arrival_us }))
    }

    async fn data_available(&mut self) {
        while !self.at_end() && !self.buffer.is_filled() {
            self.buffer.changed().await;
        }
    }

    fn committed(&mut self, end: &SourceOffset) {
        if let (Some(open), Ok(position)) = (&self.open, journal::position(end)) {
            open.journal.released(position);
        }
    }

    fn latest(&self) -> Option<SourceOffset> {
        self.open.as_ref().map(|open| journal::offset(open.journal.durable()))
    }

    fn metrics(&self) -> BTreeMap<String, u64> {
        let Some(open) = &self.open else { return BTreeMap::new() };
        let (repeated, refused) = open.intake.as_ref().map_or((0, 0), |intake| intake.counts());
        let (keys, forgotten) = open.journal.keys();
        [
            ("messagesRepeated", repeated),
            ("acknowledgementsRefused", refused),
            ("journalBytes", open.journal.bytes()),
            ("idsKnown", keys as u64),
            ("idsForgottenEarly", forgotten),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    async fn close(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
        if let Some(open) = self.open.take() {
            open.journal.close().await;
        }
    }
}
