//! A broker made for testing, which leads two partitions of one topic and compares the epochs of
//! what was read with its own logs, as a broker of Kafka does.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::Env;
use parking_lot::Mutex;

use crate::protocol::ProducerIdentity;
use crate::protocol::compression::Compression;
use crate::protocol::fetch::{Diverging, Position};
use crate::protocol::frame::{FETCH, LIST_OFFSETS, METADATA};
use crate::protocol::record_batch::{Record, RecordBatch};
use crate::protocol::responses::Address;
use crate::protocol::testing::{self, Request};
use crate::protocol::write::Writer;

/// The topic.
pub const TOPIC: &str = "in";
const NODE: i32 = 1;
const OFFSET_OUT_OF_RANGE: i16 = 1;
const FENCED_LEADER_EPOCH: i16 = 74;
const UNKNOWN_LEADER_EPOCH: i16 = 75;
/// Where the epoch stands in a record batch.
const EPOCH_AT: usize = 12;

/// The log of a partition: each record batch with its epoch, its first offset and its values.
#[derive(Clone, Default)]
pub struct Log {
    /// The epoch of the leader.
    pub leader_epoch: i32,
    /// The epoch that the brokers' description names, where that is another one.
    pub described: Option<i32>,
    batches: Vec<(i32, i64, Vec<String>)>,
}

impl Log {
    /// Adds a batch of the leader's epoch.
    pub fn append(&mut self, values: &[&str]) {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        self.batches.push((self.leader_epoch, self.end(), values));
    }

    /// Another broker leads, which has whole batches up to `end` only.
    pub fn cut_back(&mut self, end: i64) {
        self.batches.retain(|(_, base, values)| base + values.len() as i64 <= end);
        self.leader_epoch += 1;
    }

    /// Where it ends.
    pub fn end(&self) -> i64 {
        self.batches.last().map_or(0, |(_, base, values)| base + values.len() as i64)
    }

    /// The largest epoch that is not after `epoch`, and where it ends.
    fn end_of(&self, epoch: i32) -> Option<(i32, i64)> {
        let mut epochs: BTreeMap<i32, i64> = BTreeMap::new();
        for (epoch, base, _) in &self.batches {
            epochs.entry(*epoch).or_insert(*base);
        }
        // A leader notes its epoch as soon as it leads.
        epochs.entry(self.leader_epoch).or_insert(self.end());
        let later = epochs.range(epoch + 1..).next();
        let (found, _) = epochs.range(..=epoch).next_back().unwrap_or((&epoch, &0));
        let is_later = epoch > self.leader_epoch;
        (!is_later).then(|| (*found, later.map_or(self.end(), |(_, start)| *start)))
    }

    /// What is answered to a reader at `at`.
    fn answer(&self, at: Position) -> Answer {
        match at.leader_epoch {
            -1 => {}
            asked if asked < self.leader_epoch => return Answer::Refused(FENCED_LEADER_EPOCH),
            asked if asked > self.leader_epoch => return Answer::Refused(UNKNOWN_LEADER_EPOCH),
            _ => {}
        }
        if at.epoch >= 0 {
            let Some((epoch, end_offset)) = self.end_of(at.epoch) else {
                return Answer::Refused(OFFSET_OUT_OF_RANGE);
            };
            if epoch < at.epoch || end_offset < at.offset {
                return Answer::Diverging(Diverging { epoch, end_offset });
            }
        }
        if !(0..=self.end()).contains(&at.offset) {
            return Answer::Refused(OFFSET_OUT_OF_RANGE);
        }
        let is_wanted =
            |(_, base, values): &&(i32, i64, Vec<String>)| base + values.len() as i64 > at.offset;
        Answer::Records(self.batches.iter().filter(is_wanted).flat_map(encode).collect())
    }
}

enum Answer {
    Refused(i16),
    Diverging(Diverging),
    Records(Vec<u8>),
}

fn encode((epoch, base, values): &(i32, i64, Vec<String>)) -> Vec<u8> {
    let mut batch = RecordBatch::default();
    for value in values {
        batch.push(&Record { key: None, value: Some(value.as_bytes()), headers: &[] });
    }
    let writer = ProducerIdentity { id: -1, epoch: -1 };
    let mut bytes = batch.encode(writer, 0, false, 1_000, Compression::None);
    bytes[..8].copy_from_slice(&base.to_be_bytes());
    bytes[EPOCH_AT..EPOCH_AT + 4].copy_from_slice(&epoch.to_be_bytes());
    bytes
}

/// What a broker has, and what it was asked.
pub struct State {
    /// The topic's id.
    pub topic_id: u8,
    /// The partitions' logs.
    pub logs: [Log; 2],
    /// Where each request has asked for each of the partitions.
    pub asked: Vec<(i32, Position)>,
    /// True once one answer has said that a log diverges, and had records of another one.
    pub is_mixed: bool,
}

/// A cluster of one broker.
pub struct Broker {
    /// Where it is.
    pub address: Address,
    /// What it has.
    pub state: Arc<Mutex<State>>,
}

impl Broker {
    /// One whose logs are empty.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address { host: "127.0.0.1".to_owned(), port };
        let state =
            State { topic_id: 1, logs: Default::default(), asked: Vec::new(), is_mixed: false };
        let state = Arc::new(Mutex::new(state));
        let broker = Self { address: address.clone(), state: Arc::clone(&state) };
        let env = Env::real();
        let threads = env.clone();
        // It ends with the test's process.
        std::mem::forget(env.thread("broker", move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (state, address) = (Arc::clone(&state), address.clone());
                let serve = move || serve(connection, &address, &state);
                std::mem::forget(threads.thread("broker connection", serve));
            }
        }));
        broker
    }
}

/// Gives the number of each partition that a request lists to `each`, with what follows it.
fn partitions(request: &mut Request<'_>, mut each: impl FnMut(&mut Request<'_>, i32)) {
    request.list(|topic| {
        assert_eq!(topic.text(), TOPIC);
        topic.list(|partition| {
            let number = partition.i32();
            each(partition, number);
        });
        topic.end();
    });
}

/// Answers the requests of one connection.
fn serve(mut connection: TcpStream, address: &Address, state: &Mutex<State>) {
    while let Some(request) = testing::next(&mut connection) {
        let (key, number, mut request) = Request::read(&request);
        let mut answer = testing::answer_to(number);
        // The time of a pause by a quota.
        answer.i32(0);
        match key {
            key if key == METADATA.key => metadata(&mut answer, address, &state.lock()),
            key if key == LIST_OFFSETS.key => offsets(&mut request, &mut answer, &state.lock()),
            key => {
                assert_eq!(key, FETCH.key);
                fetch(&mut request, &mut answer, state);
            }
        }
        if testing::send(answer, &mut connection).is_err() {
            return;
        }
    }
}

fn metadata(answer: &mut Writer, address: &Address, state: &State) {
    answer.count(1);
    answer.i32(NODE);
    answer.text(&address.host);
    answer.i32(i32::from(address.port));
    // No rack, and no id of the cluster.
    answer.unsigned(0);
    answer.end();
    answer.unsigned(0);
    answer.i32(NODE);
    answer.count(1);
    answer.i16(0);
    answer.text(TOPIC);
    answer.raw(&[state.topic_id; 16]);
    answer.bool(false);
    answer.count(state.logs.len());
    for (partition, log) in (0..).zip(&state.logs) {
        answer.i16(0);
        answer.i32(partition);
        answer.i32(NODE);
        answer.i32(log.described.unwrap_or(log.leader_epoch));
        (0..3).for_each(|_| answer.count(0));
        answer.end();
    }
    answer.i32(0);
    answer.end();
    answer.end();
}

fn offsets(request: &mut Request<'_>, answer: &mut Writer, state: &State) {
    // This is no replica; whether only committed records count.
    request.take(5);
    let mut listed = Vec::new();
    partitions(request, |it, partition| {
        it.i32();
        let is_end = it.i64() == -1;
        it.end();
        listed.push((partition, if is_end { state.logs[partition as usize].end() } else { 0 }));
    });
    answer.count(1);
    answer.text(TOPIC);
    answer.count(listed.len());
    for (partition, offset) in listed {
        answer.i32(partition);
        answer.i16(0);
        answer.i64(-1);
        answer.i64(offset);
        answer.i32(-1);
        answer.end();
    }
    answer.end();
    answer.end();
}

/// Answers without a session, so that each request names all partitions.
fn fetch(request: &mut Request<'_>, answer: &mut Writer, state: &Mutex<State>) {
    // No replica; time to wait, bytes, isolation, session.
    request.take(25);
    let mut asked = Vec::new();
    partitions(request, |it, partition| {
        let (leader_epoch, offset, epoch) = (it.i32(), it.i64(), it.i32());
        it.take(12);
        it.end();
        asked.push((partition, Position { offset, epoch, leader_epoch }));
    });
    // As a broker that waits for records, but not for long.
    std::thread::sleep(Duration::from_millis(2));
    let mut state = state.lock();
    state.asked.extend(&asked);
    answer.i16(0);
    answer.i32(0);
    answer.count(1);
    answer.text(TOPIC);
    answer.count(asked.len());
    let of =
        |(partition, at): (i32, Position)| (partition, state.logs[partition as usize].answer(at));
    let answers: Vec<(i32, Answer)> = asked.into_iter().map(of).collect();
    let diverges = answers.iter().any(|(_, it)| matches!(it, Answer::Diverging(_)));
    let has_records =
        answers.iter().any(|(_, it)| matches!(it, Answer::Records(it) if !it.is_empty()));
    state.is_mixed |= diverges && has_records;
    for (partition, what) in answers {
        fetched(answer, partition, &what, state.logs[partition as usize].end());
    }
    answer.end();
    answer.end();
}

fn fetched(answer: &mut Writer, partition: i32, what: &Answer, end: i64) {
    answer.i32(partition);
    answer.i16(if let Answer::Refused(code) = what { *code } else { 0 });
    answer.i64(end);
    answer.i64(end);
    answer.i64(0);
    // No aborted transactions, and no other replica.
    answer.count(0);
    answer.i32(-1);
    let records = if let Answer::Records(records) = what { &records[..] } else { &[] };
    answer.count(records.len());
    answer.raw(records);
    match what {
        Answer::Diverging(Diverging { epoch, end_offset }) => {
            // One tagged field: its number and its length.
            answer.raw(&[1, 0, 13]);
            answer.i32(*epoch);
            answer.i64(*end_offset);
            answer.end();
        }
        _ => answer.end(),
    }
}
