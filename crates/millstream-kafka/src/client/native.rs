//! The few calls of librdkafka that its safe binding does not offer.
//!
//! Everything unsafe of the connector is in this file and in [`native_token`](super::native_token):
//! - [`MessageQueue`] reads any number of partitions through one queue without joining a group, and
//!   hands all messages that have arrived to a closure, without an allocation per message;
//! - [`ProducerTopic`] hands many records over in one call;
//! - [`commit_transaction`] waits for nothing but the brokers;
//! - cached watermarks and the list of known settings.
#![allow(unsafe_code)]

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as c;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseProducer, Producer as _};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::util::IntoOpaque as _;

use super::context::Context;
use super::delivery_reports::{Deliveries, Pending};

/// A consumer client; its events are for [`Context`].
pub type ConsumerClient = BaseConsumer<Context>;
/// A producer client; its delivery reports are for [`Deliveries`].
pub type ProducerClient = BaseProducer<Deliveries>;

/// How many messages one drain hands over at most: enough to amortize the lock around a drain, few
/// enough that the driver is told of the first one within a millisecond or two.
const DRAIN_MESSAGES_MAX: usize = 8_192;

/// Lets the client's partitioner choose: `RD_KAFKA_PARTITION_UA`.
const PARTITION_ANY: i32 = -1;

/// What is called when messages arrive.
type Arrival = Box<dyn Fn() + Send + Sync>;

/// A librdkafka queue.
struct Queue {
    queue: NonNull<c::rd_kafka_queue_t>,
    client: Arc<ConsumerClient>,
    /// Boxed again: librdkafka has a thin pointer to it.
    arrival: Option<Box<Arrival>>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: made by rd_kafka_queue_new, destroyed once, and before its client. Without its
        // callback first: librdkafka calls it under the lock that this call takes, so that it is
        // not called any more when the box goes.
        unsafe {
            c::rd_kafka_queue_cb_event_enable(self.queue.as_ptr(), None, ptr::null_mut());
            c::rd_kafka_queue_destroy(self.queue.as_ptr());
        }
    }
}

/// Called by a thread of librdkafka.
unsafe extern "C" fn call_arrival(_: *mut c::rd_kafka_t, arrival: *mut c_void) {
    // SAFETY: it is the pointer given to rd_kafka_queue_cb_event_enable, alive until the queue
    // that calls this is dropped.
    let arrival = unsafe { &*arrival.cast::<Arrival>() };
    arrival();
}

struct ConsumedTopic {
    handle: NonNull<c::rd_kafka_topic_t>,
    partitions: BTreeSet<i32>,
}

/// Reads partitions through one queue.
pub struct MessageQueue {
    queue: Queue,
    topics: HashMap<String, ConsumedTopic>,
    inbox: Vec<*mut c::rd_kafka_message_t>,
}

// SAFETY: queues and topic handles are objects that any thread may use, and `inbox` is empty
// outside of `drain`.
unsafe impl Send for MessageQueue {}

impl MessageQueue {
    /// A queue of `client` that reads nothing yet.
    pub fn new(client: Arc<ConsumerClient>) -> Self {
        // SAFETY: the client is alive; the queue keeps it so.
        let queue = unsafe { c::rd_kafka_queue_new(client.client().native_ptr()) };
        let queue = NonNull::new(queue).expect("rd_kafka_queue_new does not fail");
        Self {
            queue: Queue { queue, client, arrival: None },
            topics: HashMap::new(),
            inbox: Vec::with_capacity(DRAIN_MESSAGES_MAX),
        }
    }

    /// The client the queue belongs to.
    pub fn client(&self) -> &Arc<ConsumerClient> {
        &self.queue.client
    }

    /// Calls `arrival` from now on when messages come into the queue while it is empty. It is
    /// called by the thread that received them, with the queue locked: it must return at once and
    /// leave the queue alone.
    pub fn on_arrival(&mut self, arrival: impl Fn() + Send + Sync + 'static) {
        let arrival: Box<Arrival> = Box::new(Box::new(arrival));
        let opaque: *const Arrival = &raw const *arrival;
        // SAFETY: the queue is alive, and the box stays where it is until the queue is dropped or
        // this call has put another in its place.
        unsafe {
            let queue = self.queue.queue.as_ptr();
            let opaque = opaque.cast_mut().cast::<c_void>();
            c::rd_kafka_queue_cb_event_enable(queue, Some(call_arrival), opaque);
        }
        self.queue.arrival = Some(arrival);
    }

    /// Begins to read a partition at `offset`, which may be -2 for the earliest.
    /// Errors: the client's, for a name or an offset that cannot be.
    pub fn start(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<(), RDKafkaErrorCode> {
        let queue = self.queue.queue.as_ptr();
        let consumed = self.topic(topic)?;
        // SAFETY: topic and queue are alive and of the same client.
        let status = unsafe {
            c::rd_kafka_consume_start_queue(consumed.handle.as_ptr(), partition, offset, queue)
        };
        if status != 0 {
            return Err(last_error());
        }
        consumed.partitions.insert(partition);
        Ok(())
    }

    /// Stops reading a partition. Messages of it that wait in the queue are dropped.
    pub fn stop(&mut self, topic: &str, partition: i32) {
        let Some(consumed) = self.topics.get_mut(topic) else { return };
        if consumed.partitions.remove(&partition) {
            // SAFETY: the topic is alive. The call waits for a thread of the client, not for a
            // broker. It fails only for partitions that were not started.
            unsafe { c::rd_kafka_consume_stop(consumed.handle.as_ptr(), partition) };
        }
    }

    fn topic(&mut self, name: &str) -> Result<&mut ConsumedTopic, RDKafkaErrorCode> {
        if !self.topics.contains_key(name) {
            let native = self.queue.client.client().native_ptr();
            let handle = new_topic(native, name)?;
            let topic = ConsumedTopic { handle, partitions: BTreeSet::new() };
            self.topics.insert(name.to_owned(), topic);
        }
        Ok(self.topics.get_mut(name).expect("inserted above"))
    }

    /// Hands over what has arrived, in order; waits up to `wait` for the first message.
    /// Returns how many messages there were.
    pub fn drain(&mut self, wait: Duration, mut each: impl FnMut(Message<'_>)) -> usize {
        let queue = self.queue.queue.as_ptr();
        let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive. The message returned is ours to destroy.
        let first = unsafe { c::rd_kafka_consume_queue(queue, wait_ms) };
        if first.is_null() {
            return 0;
        }
        self.inbox.push(first);
        // A timeout here would wait until the array is full; without one the call takes what is
        // there and returns.
        // SAFETY: the spare capacity has room for DRAIN_MESSAGES_MAX - 1 pointers.
        let more = unsafe {
            let spare = self.inbox.as_mut_ptr().add(1);
            c::rd_kafka_consume_batch_queue(queue, 0, spare, DRAIN_MESSAGES_MAX - 1)
        };
        let more = usize::try_from(more).unwrap_or(0);
        // SAFETY: the call above wrote `more` valid pointers behind the first one.
        unsafe { self.inbox.set_len(1 + more) };
        for message in self.inbox.drain(..) {
            // SAFETY: a valid message that nobody else has; it is destroyed only after its last
            // use.
            unsafe {
                each(Message { raw: &*message });
                c::rd_kafka_message_destroy(message);
            }
        }
        1 + more
    }
}

impl Drop for MessageQueue {
    fn drop(&mut self) {
        for topic in self.topics.values() {
            for partition in &topic.partitions {
                // SAFETY: the topic is alive until the call after this loop.
                unsafe { c::rd_kafka_consume_stop(topic.handle.as_ptr(), *partition) };
            }
            // SAFETY: made by rd_kafka_topic_new, destroyed once.
            unsafe { c::rd_kafka_topic_destroy(topic.handle.as_ptr()) };
        }
    }
}

/// How a record got its timestamp, as Spark numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampKind {
    /// The broker sent none.
    None = -1,
    /// Set by the producer.
    Create = 0,
    /// Set by the broker.
    LogAppend = 1,
}

/// A message of a queue: a record, or an error or event of one partition.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    raw: &'a c::rd_kafka_message_t,
}

impl<'a> Message<'a> {
    /// The error or event it is, or `None` for a record.
    pub fn error(&self) -> Option<RDKafkaErrorCode> {
        let error = self.raw.err;
        (error != c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR).then(|| error.into())
    }

    /// The error in words.
    pub fn error_text(&self) -> String {
        // SAFETY: the message is alive, and the text is copied at once.
        unsafe { text(c::rd_kafka_message_errstr(self.raw)) }
    }

    /// Equal for two messages of one drain exactly if they have the same topic.
    pub fn topic_identity(&self) -> usize {
        self.raw.rkt as usize
    }

    /// The topic's name.
    pub fn topic(&self) -> &'a str {
        if self.raw.rkt.is_null() {
            return "";
        }
        // SAFETY: a message keeps its topic, and the topic its name, alive.
        let name = unsafe { CStr::from_ptr(c::rd_kafka_topic_name(self.raw.rkt)) };
        name.to_str().unwrap_or("")
    }

    /// The partition.
    pub fn partition(&self) -> i32 {
        self.raw.partition
    }

    /// The offset; of an event, the one it speaks of.
    pub fn offset(&self) -> i64 {
        self.raw.offset
    }

    /// The record's value.
    pub fn value(&self) -> Option<&'a [u8]> {
        // SAFETY: payload and len describe memory of the message.
        unsafe { bytes(self.raw.payload, self.raw.len) }
    }

    /// The record's key.
    pub fn key(&self) -> Option<&'a [u8]> {
        // SAFETY: key and key_len describe memory of the message.
        unsafe { bytes(self.raw.key, self.raw.key_len) }
    }

    /// Milliseconds since the epoch, and who set them.
    pub fn timestamp(&self) -> (i64, TimestampKind) {
        use c::rd_kafka_timestamp_type_t as kind;
        let mut native = kind::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive, and the call writes one of the enumeration's values.
        let millis = unsafe { c::rd_kafka_message_timestamp(self.raw, &mut native) };
        match native {
            kind::RD_KAFKA_TIMESTAMP_CREATE_TIME => (millis, TimestampKind::Create),
            kind::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME => (millis, TimestampKind::LogAppend),
            kind::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE => (-1, TimestampKind::None),
        }
    }

    /// Calls `each` with every header's name and value, in order.
    pub fn headers(&self, mut each: impl FnMut(&'a str, Option<&'a [u8]>)) {
        let no_error = c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive; the headers stay its own.
        if unsafe { c::rd_kafka_message_headers(self.raw, &mut headers) } != no_error {
            return;
        }
        let mut index = 0;
        loop {
            let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
            // SAFETY: the call writes the three places, or fails past the last header.
            unsafe {
                let status =
                    c::rd_kafka_header_get_all(headers, index, &mut name, &mut value, &mut size);
                if status != no_error {
                    return;
                }
                each(CStr::from_ptr(name).to_str().unwrap_or(""), bytes(value, size));
            }
            index += 1;
        }
    }
}

/// The newest low and high watermarks that `client` has seen, without asking a broker. Either is
/// negative while unknown.
pub fn cached_watermarks(client: &ConsumerClient, topic: &str, partition: i32) -> (i64, i64) {
    let (mut low, mut high) = (-1, -1);
    let Ok(topic) = CString::new(topic) else { return (low, high) };
    // SAFETY: the client and the places written to are alive.
    unsafe {
        let native = client.client().native_ptr();
        c::rd_kafka_get_watermark_offsets(native, topic.as_ptr(), partition, &mut low, &mut high);
    }
    (low, high)
}

/// A record to be produced.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// The record's key.
    pub key: Option<&'a [u8]>,
    /// The record's value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The partition, or `None` to let the client's partitioner choose.
    pub partition: Option<i32>,
}

/// How far [`ProducerTopic::produce`] came.
pub struct Enqueued {
    /// Records dealt with: accepted or rejected. The rest found the queue full.
    pub count: usize,
    /// Records that can never be sent, by index.
    pub rejected: Vec<(usize, RDKafkaErrorCode)>,
}

/// A topic records are produced to.
pub struct ProducerTopic {
    handle: NonNull<c::rd_kafka_topic_t>,
    // Keeps the client alive for the handle.
    _client: Arc<ProducerClient>,
    messages: Vec<c::rd_kafka_message_t>,
}

// SAFETY: topic handles may be used from any thread, and `messages` holds pointers only during
// `produce`.
unsafe impl Send for ProducerTopic {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for ProducerTopic {}

impl ProducerTopic {
    /// The topic called `name`.
    /// Errors: the client's, for a name that cannot be.
    pub fn new(client: &Arc<ProducerClient>, name: &str) -> Result<Self, RDKafkaErrorCode> {
        let handle = new_topic(client.client().native_ptr(), name)?;
        Ok(Self { handle, _client: client.clone(), messages: Vec::new() })
    }

    /// Copies `records` into the client's queue, in order, up to the first that finds it full.
    /// Each accepted record holds a reference to `pending` until its delivery report.
    pub fn produce(&mut self, records: &[Outgoing<'_>], pending: &Arc<Pending>) -> Enqueued {
        self.messages.clear();
        self.messages.extend(records.iter().map(|record| native_message(record, pending)));
        let count = i32::try_from(records.len()).expect("records are handed over in small pieces");
        let flags = c::RD_KAFKA_MSG_F_COPY | c::RD_KAFKA_MSG_F_PARTITION;
        // SAFETY: handle and messages are alive; keys and values, which `records` borrows, are
        // copied during the call.
        unsafe {
            let (topic, messages) = (self.handle.as_ptr(), self.messages.as_mut_ptr());
            c::rd_kafka_produce_batch(topic, PARTITION_ANY, flags as _, messages, count);
        }
        let mut enqueued = Enqueued { count: records.len(), rejected: Vec::new() };
        for (index, message) in self.messages.drain(..).enumerate() {
            if message.err == c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                continue;
            }
            // SAFETY: the reference of a message that was not accepted comes back to us.
            drop(unsafe { Arc::<Pending>::from_ptr(message._private) });
            let code = RDKafkaErrorCode::from(message.err);
            if code == RDKafkaErrorCode::QueueFull {
                enqueued.count = enqueued.count.min(index);
            } else {
                enqueued.rejected.push((index, code));
            }
        }
        enqueued
    }
}

impl Drop for ProducerTopic {
    fn drop(&mut self) {
        // SAFETY: made by rd_kafka_topic_new, destroyed once, before its client.
        unsafe { c::rd_kafka_topic_destroy(self.handle.as_ptr()) }
    }
}

fn native_message(record: &Outgoing<'_>, pending: &Arc<Pending>) -> c::rd_kafka_message_t {
    let (payload, len) = raw_bytes(record.value);
    let (key, key_len) = raw_bytes(record.key);
    c::rd_kafka_message_t {
        err: c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
        rkt: ptr::null_mut(),
        partition: record.partition.unwrap_or(PARTITION_ANY),
        payload,
        len,
        key,
        key_len,
        offset: 0,
        _private: pending.clone().into_ptr(),
    }
}

/// Why a call about a transaction failed, and what may be done.
#[derive(Clone, Debug)]
pub struct TransactionError {
    /// The reason.
    pub code: RDKafkaErrorCode,
    /// The same in words.
    pub reason: String,
    /// The same call may be made again.
    pub is_retriable: bool,
    /// The client can do nothing any more.
    pub is_fatal: bool,
}

/// Commits the client's transaction; waits up to `wait` for the brokers.
///
/// The safe binding looks for delivery reports first, in steps of 100 ms; here another thread
/// takes them.
pub fn commit_transaction(client: &ProducerClient, wait: Duration) -> Result<(), TransactionError> {
    let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the client is alive; the error, if there is one, is ours to destroy.
    unsafe {
        let error = c::rd_kafka_commit_transaction(client.client().native_ptr(), wait_ms);
        if error.is_null() {
            return Ok(());
        }
        let failed = TransactionError {
            code: c::rd_kafka_error_code(error).into(),
            reason: text(c::rd_kafka_error_string(error)),
            is_retriable: c::rd_kafka_error_is_retriable(error) != 0,
            is_fatal: c::rd_kafka_error_is_fatal(error) != 0,
        };
        c::rd_kafka_error_destroy(error);
        Err(failed)
    }
}

/// Every setting librdkafka knows.
pub fn known_settings() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    // SAFETY: both configurations are made, dumped and destroyed here.
    unsafe {
        let conf = c::rd_kafka_conf_new();
        let mut count = 0;
        let dump = c::rd_kafka_conf_dump(conf, &mut count);
        collect_names(dump, count, &mut names);
        c::rd_kafka_conf_destroy(conf);
        let conf = c::rd_kafka_topic_conf_new();
        let dump = c::rd_kafka_topic_conf_dump(conf, &mut count);
        collect_names(dump, count, &mut names);
        c::rd_kafka_topic_conf_destroy(conf);
    }
    names
}

/// # Safety
/// `dump` has `count` texts, names and values in turn, and is ours to free.
unsafe fn collect_names(dump: *mut *const c_char, count: usize, names: &mut BTreeSet<String>) {
    // SAFETY: the caller's promise.
    unsafe {
        let entries = slice::from_raw_parts(dump, count);
        names.extend(entries.iter().step_by(2).map(|name| text(*name)));
        c::rd_kafka_conf_dump_free(dump, count);
    }
}

fn new_topic(
    client: *mut c::rd_kafka_t,
    name: &str,
) -> Result<NonNull<c::rd_kafka_topic_t>, RDKafkaErrorCode> {
    let name = CString::new(name).map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
    // SAFETY: the client is alive; a null configuration means the client's default.
    let handle = unsafe { c::rd_kafka_topic_new(client, name.as_ptr(), ptr::null_mut()) };
    NonNull::new(handle).ok_or_else(last_error)
}

fn last_error() -> RDKafkaErrorCode {
    // SAFETY: reads a value of this thread.
    unsafe { c::rd_kafka_last_error() }.into()
}

/// # Safety
/// `start` is null, or the start of `len` bytes that live for `'a`.
unsafe fn bytes<'a>(start: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!start.is_null()).then(|| unsafe { slice::from_raw_parts(start.cast(), len) })
}

/// # Safety
/// `text` is null or a text that ends in a zero byte.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn raw_bytes(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    bytes.map_or((ptr::null_mut(), 0), |bytes| (bytes.as_ptr().cast_mut().cast(), bytes.len()))
}
