//! Reading with librdkafka's own call for many messages at a time.
//!
//! Its safe binding hands over one message a call, and allocates an event for each: a contender
//! that read so would be slower than librdkafka is.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::slice;
use std::time::Duration;

use rdkafka::bindings as c;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use crate::error::Error;

/// Messages of one call, at most.
const MESSAGES_MAX: usize = 8_192;
/// From the first record on: `RD_KAFKA_OFFSET_BEGINNING`.
const BEGINNING: i64 = -2;

/// All partitions of a topic, through one queue.
pub struct Batches {
    queue: NonNull<c::rd_kafka_queue_t>,
    topic: NonNull<c::rd_kafka_topic_t>,
    partitions: i32,
    inbox: Vec<*mut c::rd_kafka_message_t>,
    /// Keeps the client alive for the two above.
    _consumer: BaseConsumer,
}

/// A record that was read.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
}

impl Batches {
    /// Begins to read all of `topic` with `consumer`, which is a member of no group.
    pub fn start(
        consumer: BaseConsumer,
        topic: &str,
        partitions: i32,
    ) -> Result<Self, RDKafkaErrorCode> {
        let native = consumer.client().native_ptr();
        let name = CString::new(topic).map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
        // SAFETY: the client is alive; a null configuration means its default.
        let topic = unsafe { c::rd_kafka_topic_new(native, name.as_ptr(), ptr::null_mut()) };
        let topic = NonNull::new(topic).ok_or_else(last_error)?;
        // SAFETY: the client is alive.
        let queue = unsafe { c::rd_kafka_queue_new(native) };
        let queue = NonNull::new(queue).expect("rd_kafka_queue_new does not fail");
        let inbox = Vec::with_capacity(MESSAGES_MAX);
        let mut batches = Self { queue, topic, partitions: 0, inbox, _consumer: consumer };
        for partition in 0..partitions {
            // SAFETY: topic and queue are alive and of the same client.
            let status = unsafe {
                let (topic, queue) = (batches.topic.as_ptr(), batches.queue.as_ptr());
                c::rd_kafka_consume_start_queue(topic, partition, BEGINNING, queue)
            };
            if status != 0 {
                return Err(last_error());
            }
            batches.partitions = partition + 1;
        }
        Ok(batches)
    }

    /// Hands over what has arrived; waits up to `wait` for the first record. Gives how many records
    /// there were.
    ///
    /// # Errors
    /// The client's, or the first one of `each`.
    pub fn next(
        &mut self,
        wait: Duration,
        mut each: impl FnMut(Record<'_>) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        self.fill(wait);
        let (mut records, mut outcome) = (0, Ok(()));
        for message in self.inbox.drain(..) {
            // SAFETY: a valid message that nobody else has; it is destroyed only after its last
            // use.
            unsafe {
                if outcome.is_ok() {
                    let record = record(&*message);
                    let record = record.map_err(|error| Error::kafka("reading a topic")(error));
                    outcome = record.and_then(&mut each);
                    records += 1;
                }
                c::rd_kafka_message_destroy(message);
            }
        }
        outcome.map(|()| records)
    }

    fn fill(&mut self, wait: Duration) {
        let queue = self.queue.as_ptr();
        let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive. The message returned is ours to destroy.
        let first = unsafe { c::rd_kafka_consume_queue(queue, wait_ms) };
        if first.is_null() {
            return;
        }
        self.inbox.push(first);
        // With a time to wait this call would not return before the array is full.
        // SAFETY: the vector's capacity is MESSAGES_MAX, and one place is taken.
        let more = unsafe {
            let spare = self.inbox.as_mut_ptr().add(1);
            c::rd_kafka_consume_batch_queue(queue, 0, spare, MESSAGES_MAX - 1)
        };
        let more = usize::try_from(more).unwrap_or(0);
        // SAFETY: the call above wrote `more` valid pointers behind the first one.
        unsafe { self.inbox.set_len(1 + more) };
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // SAFETY: topic and queue were made in `start`, are destroyed once, and before the client,
        // which is a field. Stopping waits for a thread of the client, not for a broker.
        unsafe {
            for partition in 0..self.partitions {
                c::rd_kafka_consume_stop(self.topic.as_ptr(), partition);
            }
            c::rd_kafka_topic_destroy(self.topic.as_ptr());
            c::rd_kafka_queue_destroy(self.queue.as_ptr());
        }
    }
}

/// What a message says: a record, or an error of its partition.
fn record(message: &c::rd_kafka_message_t) -> Result<Record<'_>, KafkaError> {
    if message.err != c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Err(KafkaError::MessageConsumption(message.err.into()));
    }
    // SAFETY: pointers and lengths describe memory that lives as long as the message.
    unsafe {
        Ok(Record {
            key: bytes(message.key.cast::<u8>(), message.key_len),
            value: bytes(message.payload.cast::<u8>(), message.len),
        })
    }
}

/// # Safety
/// `start` is null, or the start of `len` bytes that live for `'a`.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!start.is_null()).then(|| unsafe { slice::from_raw_parts(start, len) })
}

fn last_error() -> RDKafkaErrorCode {
    // SAFETY: reads a value of this thread.
    unsafe { c::rd_kafka_last_error() }.into()
}
