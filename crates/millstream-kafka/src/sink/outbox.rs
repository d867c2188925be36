//! Hands rows to one producer client, in order.
//!
//! Nothing here waits: when the client's queue is full the caller learns how many rows were taken,
//! waits in its own way, and calls again.

use std::collections::HashMap;
use std::sync::Arc;

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _};
use rdkafka::types::RDKafkaErrorCode;

use super::columns::SinkRows;
use crate::client::context::is_refusal;
use crate::client::delivery_reports::Pending;
use crate::client::native::{Outgoing, ProducerClient, ProducerTopic};
use crate::error::SinkError;

/// Records handed to the client in one call. The client locks the topic meanwhile.
const RECORDS_PER_CALL: usize = 512;

/// A producer client and the topics it writes to.
pub struct Outbox {
    client: Arc<ProducerClient>,
    topics: HashMap<String, ProducerTopic>,
}

impl Outbox {
    /// For `client`, which knows no topic yet.
    pub fn new(client: Arc<ProducerClient>) -> Self {
        Self { client, topics: HashMap::new() }
    }

    /// The client.
    pub fn client(&self) -> &Arc<ProducerClient> {
        &self.client
    }

    /// Lets the client ask for a topic's partitions before the first record.
    /// Errors: the client's, for a name that cannot be.
    pub fn prepare(&mut self, topic: &str) -> Result<(), SinkError> {
        self.topic(topic).map(drop)
    }

    /// Hands over rows from row `from` on, until the client's queue is full. Returns the row to go
    /// on with; it is the number of rows once all are handed over. `topic` is the option of that
    /// name. Records that can never be sent make `pending` fail.
    pub fn put(
        &mut self,
        rows: &SinkRows,
        from: usize,
        topic: Option<&str>,
        pending: &Arc<Pending>,
    ) -> Result<usize, SinkError> {
        let topic_of = |row: usize| topic.or_else(|| rows.topic(row)).ok_or(SinkError::NullTopic);
        let mut records = Vec::with_capacity(RECORDS_PER_CALL.min(rows.rows - from));
        let mut row = from;
        while row < rows.rows {
            let topic = topic_of(row)?;
            if rows.have_headers() {
                if !self.put_with_headers(topic, rows, row, pending) {
                    return Ok(row);
                }
                row += 1;
                continue;
            }
            records.clear();
            let mut next = row;
            while next < rows.rows && records.len() < RECORDS_PER_CALL && topic_of(next)? == topic {
                let (key, value) = (rows.key(next), rows.value(next));
                records.push(Outgoing { key, value, partition: rows.partition(next) });
                next += 1;
            }
            let enqueued = self.topic(topic)?.produce(&records, pending);
            for (index, code) in enqueued.rejected {
                let Outgoing { key, value, .. } = records[index];
                self.reject(topic, key, value, code, pending);
            }
            row += enqueued.count;
            if enqueued.count < records.len() {
                return Ok(row);
            }
        }
        Ok(row)
    }

    /// One record with headers: these go one by one. False if the queue is full.
    fn put_with_headers(
        &self,
        topic: &str,
        rows: &SinkRows,
        row: usize,
        pending: &Arc<Pending>,
    ) -> bool {
        let (key, value) = (rows.key(row), rows.value(row));
        let mut headers = OwnedHeaders::new();
        for (key, value) in rows.headers(row) {
            headers = headers.insert(Header { key, value });
        }
        let record = BaseRecord {
            topic,
            partition: rows.partition(row),
            payload: value,
            key,
            timestamp: None,
            headers: Some(headers),
            delivery_opaque: pending.clone(),
        };
        let Err((error, _)) = self.client.send(record) else { return true };
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => false,
            code => {
                let code = code.unwrap_or(RDKafkaErrorCode::Fail);
                self.reject(topic, key, value, code, pending);
                true
            }
        }
    }

    fn reject(
        &self,
        topic: &str,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        code: RDKafkaErrorCode,
        pending: &Pending,
    ) {
        let error = match self.client.client().fatal_error() {
            // Another start would meet it again.
            Some((refusal, _)) if is_refusal(refusal) => {
                self.client.context().explain(topic, key, value, refusal)
            }
            Some((_, reason)) => SinkError::Fatal { reason },
            None => self.client.context().explain(topic, key, value, code),
        };
        pending.fail(error);
    }

    fn topic(&mut self, name: &str) -> Result<&mut ProducerTopic, SinkError> {
        if !self.topics.contains_key(name) {
            let topic = ProducerTopic::new(&self.client, name)
                .map_err(|code| SinkError::Topic { topic: name.to_owned(), code })?;
            self.topics.insert(name.to_owned(), topic);
        }
        Ok(self.topics.get_mut(name).expect("inserted above"))
    }
}
