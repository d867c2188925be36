//! Reading partitions: the request that asks for record batches, and its answer; where a partition
//! begins and ends.
//!
//! An answer can have tens of megabytes, so its record batches stay where they are.

use std::io;

use super::error_code::ErrorCode;
use super::read::ResponseReader;
use super::write::Writer;

/// The time that stands for a partition's end.
pub const AT_END: i64 = -1;
/// The time that stands for a partition's beginning.
pub const AT_BEGINNING: i64 = -2;

/// How much is asked for, and how long a broker may wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// How long a broker waits for `bytes_min`, in milliseconds.
    pub wait_ms: i32,
    /// With so many bytes it answers at once.
    pub bytes_min: i32,
    /// Bytes of an answer, unless its first record batch is larger.
    pub bytes_max: i32,
    /// Bytes of one partition in an answer, unless its first record batch is larger.
    pub partition_bytes_max: i32,
    /// Records of transactions that are open or aborted are left out.
    pub only_committed: bool,
    /// The rack of the reader; a broker may name a replica there. Empty for none.
    pub rack: String,
}

/// What a broker remembers of a connection's earlier requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionNumber {
    /// The session; 0 asks for a new one.
    pub id: i32,
    /// How many requests there were in it; 0 for the first.
    pub epoch: i32,
}

/// An epoch that is not known: nothing is compared with it.
pub const NO_EPOCH: i32 = -1;

/// Where a partition is read on. Each time that a partition gets another leader a new epoch begins,
/// and brokers write the epoch into the header of each record batch (KIP-320).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The next offset.
    pub offset: i64,
    /// The epoch of the record batch that was read last, or [`NO_EPOCH`]. A broker whose log does
    /// not have it up to `offset` says where its own log diverges.
    pub epoch: i32,
    /// The epoch of the leader as the brokers have described it, or [`NO_EPOCH`]. A broker that
    /// knows an older or a newer one refuses, also where it only follows: without this, a replica
    /// that does not lead any more would go on to answer (KIP-392).
    pub leader_epoch: i32,
}

impl Position {
    /// An offset of which nothing else is known.
    pub fn at(offset: i64) -> Self {
        Self { offset, epoch: NO_EPOCH, leader_epoch: NO_EPOCH }
    }
}

/// Partitions of one topic, each with something that goes along.
pub type OfTopic<'a, T> = (&'a str, Vec<(i32, T)>);

/// Asks for record batches. `wanted` has the partitions that are new or have moved, and where each
/// is read on; `unwanted` those that the session is to forget.
pub fn fetch(
    body: &mut Writer,
    limits: &FetchLimits,
    session: SessionNumber,
    wanted: &[OfTopic<'_, Position>],
    unwanted: &[OfTopic<'_, ()>],
) {
    // This is no replica.
    body.i32(-1);
    body.i32(limits.wait_ms);
    body.i32(limits.bytes_min);
    body.i32(limits.bytes_max);
    body.bool(limits.only_committed);
    body.i32(session.id);
    body.i32(session.epoch);
    list_by_topic(body, wanted, |body, position| {
        body.i32(position.leader_epoch);
        body.i64(position.offset);
        body.i32(position.epoch);
        // The beginning of a replica's log.
        body.i64(-1);
        body.i32(limits.partition_bytes_max);
        body.end();
    });
    list_by_topic(body, unwanted, |_, ()| {});
    body.text(&limits.rack);
    body.end();
}

/// Asks where partitions begin or end, each at [`AT_BEGINNING`] or [`AT_END`].
pub fn list_offsets(body: &mut Writer, only_committed: bool, partitions: &[OfTopic<'_, i64>]) {
    body.i32(-1);
    body.bool(only_committed);
    list_by_topic(body, partitions, |body, time| {
        body.i32(-1);
        body.i64(*time);
        body.end();
    });
    body.end();
}

fn list_by_topic<T>(
    body: &mut Writer,
    topics: &[OfTopic<'_, T>],
    mut each: impl FnMut(&mut Writer, &T),
) {
    body.count(topics.len());
    for (topic, partitions) in topics {
        body.text(topic);
        body.count(partitions.len());
        for (partition, what) in partitions {
            body.i32(*partition);
            each(body, what);
        }
        body.end();
    }
}

/// A transaction that was aborted: its producer, and the first offset it has written to.
pub type Aborted = (i64, i64);

/// The tagged field that says where a log diverges.
const DIVERGING: u64 = 0;

/// Where the log of a broker differs from the one that was read (KIP-595).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diverging {
    /// The largest epoch that the broker has and that is not after the one that was asked with.
    pub epoch: i32,
    /// Where that epoch ends in the broker's log.
    pub end_offset: i64,
}

/// What came of one partition.
#[derive(Debug, PartialEq, Eq)]
pub struct Fetched<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// The error, or none.
    pub code: ErrorCode,
    /// The end of what all replicas in sync have; -1 if it is not known.
    pub high_watermark: i64,
    /// The end of what belongs to no open transaction; -1 if it is not known.
    pub last_stable: i64,
    /// Aborted transactions among the records.
    pub aborted: Vec<Aborted>,
    /// The replica that the broker would rather have asked; -1 for none.
    pub other_replica: i32,
    /// Where the log diverges from the one that was read; there are no records then.
    pub diverging: Option<Diverging>,
    /// Record batches, the last of which may be cut off.
    pub records: &'a [u8],
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct FetchAnswer<'a> {
    /// An error of the request as a whole, or none.
    pub code: ErrorCode,
    /// The session, 0 if the broker keeps none.
    pub session: i32,
    /// Partitions that have something new.
    pub partitions: Vec<Fetched<'a>>,
}

/// Reads the answer to [`fetch`].
pub fn fetched<'a>(body: &mut ResponseReader<'a>) -> io::Result<FetchAnswer<'a>> {
    body.throttle()?;
    let (code, session) = (ErrorCode(body.i16()?), body.i32()?);
    let mut partitions = Vec::new();
    body.list(|topic| {
        let name = topic.text_in_place()?;
        topic.list(|partition| {
            partitions.push(fetched_partition(name, partition)?);
            Ok(())
        })?;
        topic.end()
    })?;
    body.end()?;
    Ok(FetchAnswer { code, session, partitions })
}

fn fetched_partition<'a>(topic: &'a str, body: &mut ResponseReader<'a>) -> io::Result<Fetched<'a>> {
    let (partition, code) = (body.i32()?, ErrorCode(body.i16()?));
    let (high_watermark, last_stable) = (body.i64()?, body.i64()?);
    // Where the log begins.
    body.i64()?;
    let aborted = body.list(|aborted| {
        let transaction = (aborted.i64()?, aborted.i64()?);
        aborted.end()?;
        Ok(transaction)
    })?;
    let other_replica = body.i32()?;
    let records = body.bytes_or_null()?.unwrap_or_default();
    let mut diverging = None;
    body.tagged(|tag, field| {
        if tag == DIVERGING {
            let (epoch, end_offset) = (field.i32()?, field.i64()?);
            // Without an epoch it is the field's default.
            diverging = (epoch >= 0).then_some(Diverging { epoch, end_offset });
        }
        Ok(())
    })?;
    Ok(Fetched {
        topic,
        partition,
        code,
        high_watermark,
        last_stable,
        aborted,
        other_replica,
        diverging,
        records,
    })
}

/// An offset that was asked for, or why there is none.
#[derive(Debug, PartialEq, Eq)]
pub struct Listed {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: Result<i64, ErrorCode>,
}

/// Reads the answer to [`list_offsets`].
pub fn listed(body: &mut ResponseReader<'_>) -> io::Result<Vec<Listed>> {
    body.throttle()?;
    let mut all = Vec::new();
    body.list(|topic| {
        let name = topic.text()?;
        topic.list(|partition| {
            let (index, code) = (partition.i32()?, ErrorCode(partition.i16()?));
            // The time of the record there.
            partition.i64()?;
            let offset = partition.i64()?;
            // The leader's epoch.
            partition.i32()?;
            partition.end()?;
            let offset = if code == ErrorCode::NONE { Ok(offset) } else { Err(code) };
            all.push(Listed { topic: name.clone(), partition: index, offset });
            Ok(())
        })?;
        topic.end()
    })?;
    body.end()?;
    Ok(all)
}
