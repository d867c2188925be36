//! The bodies of requests.

use super::Identity;
use super::write::Writer;

/// What `find_coordinator` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keeper {
    /// Of a consumer group.
    Group = 0,
    /// Of a transactional id.
    Transaction = 1,
}

/// Record batches for one topic: partition and bytes.
pub type Batches<'a> = (&'a str, Vec<(i32, Vec<u8>)>);

/// An offset of a group, with a text beside it.
pub struct GroupOffset<'a> {
    /// The group.
    pub group: &'a str,
    /// The topic whose partition 0 it belongs to.
    pub topic: &'a str,
    /// The offset.
    pub offset: i64,
    /// The text.
    pub metadata: &'a str,
}

/// Asks what a broker can do.
pub fn api_versions(body: &mut Writer) {
    body.text("millstream");
    body.text(env!("CARGO_PKG_VERSION"));
    body.end();
}

/// Asks for the partitions of topics, which are created if the brokers are set up so.
pub fn metadata(body: &mut Writer, topics: &[&str]) {
    body.count(topics.len());
    for topic in topics {
        body.raw(&[0; 16]);
        body.text(topic);
        body.end();
    }
    body.bool(true);
    body.bool(false);
    body.end();
}

/// Asks which broker keeps `key`.
pub fn find_coordinator(body: &mut Writer, keeper: Keeper, key: &str) {
    body.i8(keeper as i8);
    body.count(1);
    body.text(key);
    body.end();
}

/// Takes a transactional id over, whoever has it.
pub fn init_producer_id(body: &mut Writer, id: &str, timeout_ms: i32) {
    body.text(id);
    body.i32(timeout_ms);
    body.i64(-1);
    body.i16(-1);
    body.end();
}

/// Writes batches in the transaction of `id`, to be acknowledged by all replicas in sync.
pub fn produce(body: &mut Writer, id: &str, timeout_ms: i32, topics: &[Batches<'_>]) {
    body.text(id);
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

/// Writes a group's offset in the transaction of `id`.
pub fn txn_offset_commit(body: &mut Writer, id: &str, writer: Identity, at: &GroupOffset<'_>) {
    body.text(id);
    body.text(at.group);
    body.i64(writer.id);
    body.i16(writer.epoch);
    // No member of the group does it: generation, member and instance.
    body.i32(-1);
    body.text("");
    body.null();
    body.count(1);
    body.text(at.topic);
    body.count(1);
    body.i32(0);
    body.i64(at.offset);
    body.i32(-1);
    body.text(at.metadata);
    body.end();
    body.end();
    body.end();
}

/// Ends the transaction of `id`.
pub fn end_txn(body: &mut Writer, id: &str, writer: Identity, commit: bool) {
    body.text(id);
    body.i64(writer.id);
    body.i16(writer.epoch);
    body.bool(commit);
    body.end();
}
