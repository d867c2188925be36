//! Reading: what the client has received becomes chunks of columns.
//!
//! One consumer, one queue. Two threads drain it: the driver itself when it looks for input,
//! so that a record is handed between threads no more often than in a bare client; and a helper
//! while the driver is busy with a large micro-batch, so that copying the next one overlaps with
//! computing this one. Messages are copied into columns by partition and handed over under one
//! lock; there is no work per record but the copy.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::connector::Memory;
use millstream_engine::api::source::{Failure, Kind};
use millstream_store::env::{Env, Thread};
use parking_lot::Mutex;
use rdkafka::consumer::Consumer as _;
use rdkafka::types::RDKafkaErrorCode;

use super::chunk::ChunkBuilder;
use super::orders::{Order, Orders, Wanted};
use super::read_ahead::{Arrival, More, ReadAhead};
use crate::client::cluster::{client_error, serve_events};
use crate::client::context::{Context, is_refusal};
use crate::client::create::create;
use crate::client::native::{ConsumerClient, Message, MessageQueue, cached_watermarks};
use crate::client::settings::ClientSettings;
use crate::error::{DataLoss, SourceError};
use crate::offsets::{EARLIEST, PartitionId, PerPartition};

/// How many messages one look of the driver copies at most, about: they are processed before more
/// are copied.
const LOOK_MESSAGES_MAX: usize = 65_536;
/// A micro-batch of this many rows keeps the driver busy for longer than waking a thread takes.
const ROWS_WORTH_HELP: u64 = 8_192;
/// A chunk is finished when it has this many bytes; Arrow's offsets end at 2 GiB.
const CHUNK_BYTES_MAX: usize = 256 << 20;

/// Makes a consumer and its queue for reading; connects in the background.
/// Errors: `Config` for settings that contradict each other.
pub fn new_queue(
    settings: &ClientSettings,
    memory: Option<Memory>,
    env: &Env,
    purpose: &str,
) -> Result<MessageQueue, SourceError> {
    let context = Context::new(env.clone(), purpose, settings.tokens());
    let client: ConsumerClient = create(&settings.reader(memory), context).map_err(client_error)?;
    Ok(MessageQueue::new(Arc::new(client)))
}

/// The running reader. Dropping it ends the thread.
pub struct BackgroundReader {
    orders: Arc<Orders>,
    client: Arc<ConsumerClient>,
    reading: Arc<Mutex<Reading>>,
    // Ends before the client does: it uses the queue.
    thread: Option<Thread>,
}

impl BackgroundReader {
    /// Begins to read the partitions of `buffer` where they stand.
    pub fn start(
        mut queue: MessageQueue,
        positions: &PerPartition,
        buffer: Arc<ReadAhead>,
        rules: Rules,
        env: &Env,
    ) -> Self {
        let client = queue.client().clone();
        let notified = buffer.clone();
        queue.on_arrival(move || notified.notify());
        let inbox = Inbox::new(rules.include_headers);
        let mut reading = Reading { queue, inbox, buffer, rules, env: env.clone() };
        for (id, offset) in positions {
            reading.start_partition(id, *offset);
        }
        let reading = Arc::new(Mutex::new(reading));
        let orders = Arc::new(Orders::default());
        let (reading_of_thread, given) = (reading.clone(), orders.clone());
        let thread = env.thread("kafka-reader", move || help(&reading_of_thread, &given));
        Self { orders, client, reading, thread: Some(thread) }
    }

    /// Where orders to the reader are given.
    pub fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    /// Brings in what the client has received, as far as there is space.
    pub fn look(&self) -> More {
        match self.reading.try_lock() {
            Some(mut reading) => reading.look(),
            None => More::WillBeNotified,
        }
    }

    /// The driver is about to work on `rows` rows: the thread reads meanwhile if that takes long.
    pub fn is_busy_with(&self, rows: u64) {
        if rows >= ROWS_WORTH_HELP {
            self.orders.wake();
        }
    }

    /// The newest end of a partition that a fetch has brought along, if one has.
    pub fn end_seen(&self, id: &PartitionId) -> Option<i64> {
        let (_, high) = cached_watermarks(&self.client, &id.topic, id.partition);
        (high >= 0).then_some(high)
    }
}

impl Drop for BackgroundReader {
    fn drop(&mut self) {
        self.orders.stop_all();
        drop(self.thread.take());
    }
}

/// The thread: follows orders, and reads while the driver is busy.
fn help(reading: &Mutex<Reading>, orders: &Orders) {
    loop {
        let Wanted { stop, help, list } = orders.take();
        if stop {
            return;
        }
        let mut reads = reading.lock();
        let client = reads.queue.client().clone();
        let buffer = reads.buffer.clone();
        list.into_iter().for_each(|order| reads.follow(order));
        drop(reads);
        let mut more = if help { More::Waits } else { More::WillBeNotified };
        while more == More::Waits && buffer.has_space() {
            more = reading.lock().look();
            buffer.notify();
        }
        // The driver may have found the lock taken while this thread held it.
        buffer.notify();
        serve_events(&client);
    }
}

/// What the reader needs to know of the table's options.
#[derive(Clone, Copy)]
pub struct Rules {
    /// Whether headers are kept.
    pub include_headers: bool,
    /// Whether missing records end the query.
    pub fail_on_data_loss: bool,
}

struct Reading {
    queue: MessageQueue,
    inbox: Inbox,
    buffer: Arc<ReadAhead>,
    rules: Rules,
    env: Env,
}

impl Reading {
    fn look(&mut self) -> More {
        let mut messages = 0;
        while messages < LOOK_MESSAGES_MAX {
            if !self.buffer.has_space() {
                return More::Waits;
            }
            match self.queue.drain(Duration::ZERO, |message| self.inbox.add(message)) {
                0 => return More::WillBeNotified,
                drained => messages += drained,
            }
            self.hand_over();
        }
        More::Waits
    }

    fn hand_over(&mut self) {
        let arrivals = self.inbox.empty(self.env.now_us());
        if !arrivals.is_empty() {
            self.buffer.push(arrivals);
        }
        for trouble in std::mem::take(&mut self.inbox.troubles) {
            self.handle(trouble);
        }
    }

    fn follow(&mut self, order: Order) {
        match order {
            Order::Start(id, offset) => self.start_partition(&id, offset),
            Order::Stop(id) => self.queue.stop(&id.topic, id.partition),
        }
    }

    fn start_partition(&mut self, id: &PartitionId, offset: i64) {
        if let Err(code) = self.queue.start(&id.topic, id.partition, offset) {
            let text = code.to_string();
            let (id, kind) = (id.clone(), Kind::Config);
            self.buffer.fail(SourceError::Read { id, offset, text, kind }.into());
        }
    }

    fn handle(&mut self, trouble: Trouble) {
        let Trouble { id, code, offset, text } = trouble;
        match Verdict::of(code) {
            Verdict::OutOfRange => self.out_of_range(id, offset),
            Verdict::Hopeless(kind) => {
                self.buffer.fail(SourceError::Read { id, offset, text, kind }.into());
            }
            // The client retries by itself, and the watcher notices topics that are gone.
            Verdict::Passing => {
                let message = format!("reading {id}: {text}");
                self.queue.client().context().warn_now_and_then(&format!("{code:?}"), &message);
            }
        }
    }

    fn out_of_range(&mut self, id: PartitionId, position: i64) {
        let loss = DataLoss::out_of_range(self.queue.client(), id.clone(), position);
        if self.rules.fail_on_data_loss {
            self.buffer.fail(Failure::from(SourceError::DataLoss { loss }));
            return;
        }
        tracing::warn!("{loss}; continuing from the earliest offset");
        if !matches!(loss, DataLoss::AgedOut { .. }) {
            // Where the log begins now is not known yet; no offset is before 0.
            self.buffer.begin_again(&id, 0, i64::MAX);
        }
        self.queue.stop(&id.topic, id.partition);
        self.start_partition(&id, EARLIEST);
    }
}

impl DataLoss {
    /// Says what is wrong with a position that the broker refused, from what the client has seen.
    pub fn out_of_range(client: &ConsumerClient, id: PartitionId, position: i64) -> Self {
        match cached_watermarks(client, &id.topic, id.partition) {
            (earliest, _) if earliest > position => Self::AgedOut { id, position, earliest },
            (_, latest) if (0..position).contains(&latest) => Self::Shrunk { id, position, latest },
            _ => Self::OutOfRange { id, position },
        }
    }
}

/// What an error of a partition means.
pub enum Verdict {
    /// The offset does not exist.
    OutOfRange,
    /// The error stays until a person acts.
    Hopeless(Kind),
    /// The client tries again by itself.
    Passing,
}

impl Verdict {
    /// The verdict on an error that a partition reported.
    pub fn of(code: RDKafkaErrorCode) -> Self {
        use RDKafkaErrorCode as Code;
        match code {
            Code::AutoOffsetReset | Code::OffsetOutOfRange => Self::OutOfRange,
            Code::BadMessage
            | Code::BadCompression
            | Code::NotImplemented
            | Code::InvalidMessage => Self::Hopeless(Kind::Data),
            code if is_refusal(code) => Self::Hopeless(Kind::Config),
            _ => Self::Passing,
        }
    }
}

/// An error that a partition reported.
pub struct Trouble {
    /// The partition.
    pub id: PartitionId,
    /// The error.
    pub code: RDKafkaErrorCode,
    /// The offset it is about.
    pub offset: i64,
    /// The error in words.
    pub text: String,
}

/// Messages of one drain, sorted by partition into columns.
pub struct Inbox {
    include_headers: bool,
    slots: Vec<Slot>,
    by_topic: HashMap<String, HashMap<i32, usize>>,
    /// The slot of the last message: messages of a partition come in runs, so it is tried first.
    last: Option<(usize, i32, usize)>,
    touched: Vec<usize>,
    full: Vec<(usize, Arrival)>,
    /// Errors among the messages.
    pub troubles: Vec<Trouble>,
}

struct Slot {
    id: PartitionId,
    rows: ChunkBuilder,
    end: Option<i64>,
    touched: bool,
}

impl Inbox {
    /// An empty one.
    pub fn new(include_headers: bool) -> Self {
        Self {
            include_headers,
            slots: Vec::new(),
            by_topic: HashMap::new(),
            last: None,
            touched: Vec::new(),
            full: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// Takes one message in.
    pub fn add(&mut self, message: Message<'_>) {
        let slot = self.slot(&message);
        let full = match message.error() {
            None => self.slots[slot].add(&message, self.include_headers),
            Some(RDKafkaErrorCode::PartitionEOF) => {
                self.slots[slot].end = Some(message.offset());
                false
            }
            Some(code) => {
                let (id, offset) = (self.slots[slot].id.clone(), message.offset());
                self.troubles.push(Trouble { id, code, offset, text: message.error_text() });
                return;
            }
        };
        if !self.slots[slot].touched {
            self.slots[slot].touched = true;
            self.touched.push(slot);
        }
        if full {
            let chunk = self.slots[slot].rows.finish(0);
            self.full.push((slot, Arrival::Rows(chunk)));
        }
    }

    fn slot(&mut self, message: &Message<'_>) -> usize {
        let (topic, partition) = (message.topic_identity(), message.partition());
        if let Some((last_topic, last_partition, slot)) = self.last
            && (last_topic, last_partition) == (topic, partition)
        {
            return slot;
        }
        let name = message.topic();
        let known = self.by_topic.get(name).and_then(|slots| slots.get(&partition));
        let slot = match known {
            Some(slot) => *slot,
            None => self.add_slot(name, partition),
        };
        self.last = Some((topic, partition, slot));
        slot
    }

    fn add_slot(&mut self, topic: &str, partition: i32) -> usize {
        let slot = self.slots.len();
        let rows = ChunkBuilder::new(self.include_headers);
        let id = PartitionId::new(topic, partition);
        self.slots.push(Slot { id, rows, end: None, touched: false });
        self.by_topic.entry(topic.to_owned()).or_default().insert(partition, slot);
        slot
    }

    /// The arrivals since the last call, by partition and in order.
    pub fn empty(&mut self, arrival_us: i64) -> Vec<(PartitionId, Arrival)> {
        // Identities hold within a drain only: a topic that is gone may leave its place to another.
        self.last = None;
        let mut arrivals = Vec::with_capacity(self.touched.len());
        for (slot, mut arrival) in self.full.drain(..) {
            if let Arrival::Rows(chunk) = &mut arrival {
                chunk.arrival_us = arrival_us;
            }
            arrivals.push((self.slots[slot].id.clone(), arrival));
        }
        for slot in self.touched.drain(..) {
            let slot = &mut self.slots[slot];
            slot.touched = false;
            if !slot.rows.is_empty() {
                arrivals.push((slot.id.clone(), Arrival::Rows(slot.rows.finish(arrival_us))));
            }
            if let Some(end) = slot.end.take() {
                arrivals.push((slot.id.clone(), Arrival::End(end)));
            }
        }
        arrivals
    }
}

impl Slot {
    /// Returns true when the chunk should be finished.
    fn add(&mut self, message: &Message<'_>, include_headers: bool) -> bool {
        let (timestamp_ms, kind) = message.timestamp();
        let (key, value, offset) = (message.key(), message.value(), message.offset());
        self.rows.push(key, value, offset, timestamp_ms, kind as i32);
        if include_headers {
            message.headers(|name, value| self.rows.push_header(name, value));
            self.rows.end_headers();
        }
        // An end that was reported before this record is the end no more.
        self.end = None;
        self.rows.bytes() > CHUNK_BYTES_MAX
    }
}
