//! The bodies of requests.

use super::ProducerIdentity;
use super::write::Writer;

/// The type of a coordinator's key; groups have 0.
const TRANSACTIONAL_ID: i8 = 1;

/// Record batches for one topic: partition and bytes.
pub type Batches<'a> = (&'a str, Vec<(i32, Vec<u8>)>);

/// Partitions of one topic.
pub type Partitions<'a> = (&'a str, Vec<i32>);

/// Asks what a broker can do.
pub fn api_versions(body: &mut Writer) {
    body.text("millstream");
    body.text(env!("CARGO_PKG_VERSION"));
    body.end();
}

/// Asks for the partitions of topics, which `may_create` if the brokers are set up so.
pub fn metadata(body: &mut Writer, topics: &[&str], may_create: bool) {
    body.count(topics.len());
    for topic in topics {
        // No topic id: the topic is asked for by name.
        body.raw(&[0; 16]);
        body.text(topic);
        body.end();
    }
    // Permissions are not asked for.
    body.bool(may_create);
    body.bool(false);
    body.end();
}

/// Asks for a mechanism of SASL by its name.
pub fn sasl_handshake(body: &mut Writer, mechanism: &str) {
    body.short_text(mechanism);
}

/// Sends a message of the mechanism that was agreed on.
pub fn sasl_authenticate(body: &mut Writer, message: &[u8]) {
    body.count(message.len());
    body.raw(message);
    body.end();
}

/// Asks which broker keeps the transactional id `id`.
pub fn find_coordinator(body: &mut Writer, id: &str) {
    body.i8(TRANSACTIONAL_ID);
    body.count(1);
    body.text(id);
    body.end();
}

/// Takes a transactional id over, whoever has it; without one, asks for the id of a new producer.
pub fn init_producer_id(body: &mut Writer, id: Option<&str>, timeout_ms: i32) {
    body.text_or_null(id);
    body.i32(timeout_ms);
    // No producer id and epoch of an earlier request. With them the brokers would only raise that
    // epoch; without them they take the id over from whoever has it.
    body.i64(-1);
    body.i16(-1);
    body.end();
}

/// Writes batches in the transaction of `id`, if there is one, to be acknowledged by all replicas
/// in sync.
pub fn produce(body: &mut Writer, id: Option<&str>, timeout_ms: i32, topics: &[Batches<'_>]) {
    body.text_or_null(id);
    // Acknowledged by all replicas in sync, which idempotent producers must ask for.
    body.i16(-1);
    body.i32(timeout_ms);
    body.count(topics.len());
    for (topic, partitions) in topics {
        body.text(topic);
        body.count(partitions.len());
        for (partition, batch) in partitions {
            body.i32(*partition);
            body.count(batch.len());
            body.raw(batch);
            body.end();
        }
        body.end();
    }
    body.end();
}

/// Adds partitions of topics to the transaction of `id`.
pub fn add_partitions_to_txn(
    body: &mut Writer,
    id: &str,
    writer: ProducerIdentity,
    topics: &[Partitions<'_>],
) {
    body.text(id);
    body.i64(writer.id);
    body.i16(writer.epoch);
    body.count(topics.len());
    for (topic, partitions) in topics {
        body.text(topic);
        body.count(partitions.len());
        for partition in partitions {
            body.i32(*partition);
        }
        body.end();
    }
    body.end();
}

/// Ends the transaction of `id`.
pub fn end_txn(body: &mut Writer, id: &str, writer: ProducerIdentity, commit: bool) {
    body.text(id);
    body.i64(writer.id);
    body.i16(writer.epoch);
    body.bool(commit);
    body.end();
}
