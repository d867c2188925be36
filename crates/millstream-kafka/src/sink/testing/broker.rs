//! A broker made for testing, which answers as a test says and keeps what it was asked.

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::Env;
use parking_lot::Mutex;

use crate::protocol::frame::{
    ADD_PARTITIONS_TO_TXN, END_TXN, FIND_COORDINATOR, INIT_PRODUCER_ALONE, METADATA, PRODUCE,
};
use crate::protocol::responses::Address;
use crate::protocol::testing::{self, Request};
use crate::protocol::write::Writer;

/// Where the sequence of its first record stands in a record batch.
const SEQUENCE_AT: usize = 53;

/// One batch that was written: its topic, its partition, its sequence and its bytes.
pub type Batch = (String, i32, i32, Vec<u8>);

#[derive(Default)]
pub struct Asked {
    /// What was written.
    pub batches: Vec<Batch>,
    /// For each end of a transaction, whether it is a commit.
    pub ends: Vec<bool>,
    /// Codes for the next batches of these topics, in order, in place of success.
    pub codes: VecDeque<(String, i16)>,
    /// Codes for the next ends of transactions, in place of success.
    pub end_codes: VecDeque<i16>,
    /// Partitions that were added to a transaction, for each request that did so.
    pub added: Vec<Vec<(String, i32)>>,
    /// Codes for the next such requests, in place of success.
    pub add_codes: VecDeque<i16>,
    /// The other broker of the cluster, which leads the partitions 1.
    pub other: Option<Address>,
    /// How many of the next requests with rows are lost with their connections.
    pub lost: u32,
    /// How many connections were made.
    pub connections: u32,
    /// How many writers without a transaction were asked for.
    pub writers: i64,
    /// For how long nothing is read after the next answer to rows.
    pub quota_pause: Duration,
}

/// A cluster of one broker, or the first of [two](Self::second). Its topics have two partitions.
pub struct Broker {
    /// Where it is.
    pub address: Address,
    /// What it was asked, and what it is to answer.
    pub asked: Arc<Mutex<Asked>>,
}

impl Broker {
    /// One that nobody has asked anything.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address { host: "127.0.0.1".to_owned(), port };
        let asked = Arc::<Mutex<Asked>>::default();
        let broker = Self { address: address.clone(), asked: Arc::clone(&asked) };
        let env = Env::real();
        let threads = env.clone();
        // It ends with the test's process.
        std::mem::forget(env.thread("broker", move || {
            for connection in listener.incoming().map_while(Result::ok) {
                asked.lock().connections += 1;
                let (asked, address) = (Arc::clone(&asked), address.clone());
                let serve = move || serve(connection, &address, &asked);
                std::mem::forget(threads.thread("broker connection", serve));
            }
        }));
        broker
    }

    /// Another one, which leads the partitions 1 from now on. The first one keeps transactional ids
    /// and describes the cluster.
    pub fn second(&self) -> Self {
        let second = Self::start();
        self.asked.lock().other = Some(second.address.clone());
        second
    }
}

/// Answers the requests of one connection.
fn serve(mut connection: TcpStream, address: &Address, asked: &Mutex<Asked>) {
    while let Some(request) = testing::next(&mut connection) {
        let (key, number, mut request) = Request::read(&request);
        let (mut answer, mut pause) = (testing::answer_to(number), Duration::ZERO);
        match key {
            key if key == METADATA.key => {
                let other = asked.lock().other.clone();
                metadata(&mut request, &mut answer, address, other.as_ref());
            }
            key if key == FIND_COORDINATOR.key => coordinator(&mut answer, address),
            key if key == PRODUCE.key && is_lost(asked) => return,
            key if key == PRODUCE.key => {
                pause = std::mem::take(&mut asked.lock().quota_pause);
                produce(&mut request, &mut answer, asked, pause);
            }
            key if key == INIT_PRODUCER_ALONE.key => {
                assert_eq!(request.text_or_null(), None);
                new_writer(&mut answer, asked);
            }
            key if key == ADD_PARTITIONS_TO_TXN.key => add(&mut request, &mut answer, asked),
            key => {
                assert_eq!(key, END_TXN.key);
                end_txn(&mut request, &mut answer, asked);
            }
        }
        testing::send(answer, &mut connection).unwrap();
        std::thread::sleep(pause);
    }
}

fn is_lost(asked: &Mutex<Asked>) -> bool {
    let mut asked = asked.lock();
    let is_lost = asked.lost > 0;
    asked.lost = asked.lost.saturating_sub(1);
    is_lost
}

fn node(answer: &mut Writer, id: i32, address: &Address) {
    answer.i32(id);
    answer.text(&address.host);
    answer.i32(i32::from(address.port));
}

fn metadata(
    request: &mut Request<'_>,
    answer: &mut Writer,
    address: &Address,
    other: Option<&Address>,
) {
    let topics = request.list(|topic| {
        topic.take(16);
        let name = topic.text();
        topic.end();
        name
    });
    answer.i32(0);
    let nodes: Vec<&Address> = [address].into_iter().chain(other).collect();
    answer.count(nodes.len());
    for (id, address) in (1..).zip(&nodes) {
        node(answer, id, address);
        // No rack, and below no id of the cluster.
        answer.unsigned(0);
        answer.end();
    }
    answer.unsigned(0);
    answer.i32(1);
    answer.count(topics.len());
    for topic in topics {
        answer.i16(0);
        answer.text(&topic);
        answer.raw(&[0; 17]);
        answer.count(2);
        for partition in 0..2 {
            answer.i16(0);
            answer.i32(partition);
            answer.i32(if other.is_some() { 1 + partition } else { 1 });
            answer.i32(0);
            (0..3).for_each(|_| answer.count(0));
            answer.end();
        }
        answer.i32(0);
        answer.end();
    }
    answer.end();
}

fn coordinator(answer: &mut Writer, address: &Address) {
    answer.i32(0);
    answer.count(1);
    answer.text("id");
    node(answer, 1, address);
    answer.i16(0);
    answer.unsigned(0);
    answer.end();
    answer.end();
}

fn produce(
    request: &mut Request<'_>,
    answer: &mut Writer,
    asked: &Mutex<Asked>,
    quota_pause: Duration,
) {
    request.text_or_null();
    // Whose acknowledgement is waited for, and how long.
    request.take(6);
    let topics = request.list(|topic| {
        let name = topic.text();
        let partitions = topic.list(|partition| {
            let (index, bytes) = (partition.i32(), partition.count());
            let batch = partition.take(bytes).to_vec();
            partition.end();
            (index, batch)
        });
        topic.end();
        (name, partitions)
    });
    let mut asked = asked.lock();
    answer.count(topics.len());
    for (topic, partitions) in topics {
        answer.text(&topic);
        answer.count(partitions.len());
        for (index, batch) in partitions {
            let code = asked.codes.pop_front_if(|(of, _)| *of == topic).map_or(0, |(_, code)| code);
            if code == 0 {
                let sequence = batch[SEQUENCE_AT..SEQUENCE_AT + 4].try_into().unwrap();
                let sequence = i32::from_be_bytes(sequence);
                asked.batches.push((topic.clone(), index, sequence, batch));
            }
            answer.i32(index);
            answer.i16(code);
            answer.raw(&[0; 24]);
            answer.count(0);
            answer.unsigned(0);
            answer.end();
        }
        answer.end();
    }
    answer.i32(quota_pause.as_millis() as i32);
    answer.end();
}

/// A writer whose id is how many there were before, from 1 on.
fn new_writer(answer: &mut Writer, asked: &Mutex<Asked>) {
    asked.lock().writers += 1;
    answer.i32(0);
    answer.i16(0);
    answer.i64(asked.lock().writers);
    answer.i16(0);
    answer.end();
}

fn add(request: &mut Request<'_>, answer: &mut Writer, asked: &Mutex<Asked>) {
    request.text();
    // The writer.
    request.take(10);
    let topics = request.list(|topic| {
        let name = topic.text();
        let partitions = topic.list(Request::i32);
        topic.end();
        (name, partitions)
    });
    let mut asked = asked.lock();
    let of = |(name, partitions): &(String, Vec<i32>)| {
        partitions.iter().map(|partition| (name.clone(), *partition)).collect::<Vec<_>>()
    };
    asked.added.push(topics.iter().flat_map(of).collect());
    let code = asked.add_codes.pop_front().unwrap_or(0);
    answer.i32(0);
    answer.count(topics.len());
    for (topic, partitions) in topics {
        answer.text(&topic);
        answer.count(partitions.len());
        for partition in partitions {
            answer.i32(partition);
            answer.i16(code);
            answer.end();
        }
        answer.end();
    }
    answer.end();
}

fn end_txn(request: &mut Request<'_>, answer: &mut Writer, asked: &Mutex<Asked>) {
    request.text();
    let id = request.i64();
    let epoch = request.i16();
    let mut asked = asked.lock();
    asked.ends.push(request.take(1) == [1]);
    let code = asked.end_codes.pop_front().unwrap_or(0);
    answer.i32(0);
    answer.i16(code);
    answer.i64(if code == 0 { id } else { -1 });
    answer.i16(if code == 0 { epoch + 1 } else { -1 });
    answer.end();
}

/// True if a batch has a value.
pub fn has(batch: &Batch, value: &str) -> bool {
    batch.3.windows(value.len()).any(|bytes| bytes == value.as_bytes())
}
