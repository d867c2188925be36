//! Transactions against a broker made for testing, which answers as a test says and keeps what it
//! was asked.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use futures::future::BoxFuture;
use millstream_engine::api::contact::Contacts;
use millstream_store::env::{Clock, SeededRng};
use parking_lot::Mutex;

use super::*;
use crate::brokers::settings::ConnectionSettings;
use crate::brokers::throttling::Throttling;
use crate::protocol::compression::Compression;
use crate::protocol::frame::{FIND_COORDINATOR, METADATA, PRODUCE};
use crate::protocol::responses::Address;
use crate::protocol::security::Security;
use crate::protocol::write::Writer;
use crate::sink::exactly_once::testing::content;

/// Where the sequence of its first record stands in a record batch.
const SEQUENCE_AT: usize = 53;

/// One batch that was written: its topic, its partition, its sequence and its bytes.
type Batch = (String, i32, i32, Vec<u8>);

#[derive(Default)]
struct Asked {
    batches: Vec<Batch>,
    /// For each end of a transaction, whether it is a commit.
    ends: Vec<bool>,
    /// Codes for the next batches of these topics, in order, in place of success.
    codes: VecDeque<(String, i16)>,
    /// How many of the next requests with rows are lost with their connections.
    lost: u32,
    /// How many connections were made.
    connections: u32,
    /// For how long nothing is read after the next answer to rows.
    quota_pause: Duration,
}

/// A cluster of one broker, whose topics have two partitions.
struct Broker {
    address: Address,
    asked: Arc<Mutex<Asked>>,
}

impl Broker {
    fn start() -> Self {
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

    fn client(&self) -> ProtocolClient {
        let env = Env::real();
        let origin = Origin {
            query: "q".to_owned(),
            flow: "flow".to_owned(),
            topic: None,
            table: "t".to_owned(),
        };
        ProtocolClient {
            id: "id".to_owned(),
            record_topic: "records".to_owned(),
            topic: None,
            origin: Arc::new(origin),
            contact: Arc::new(Contacts::untold(env.clone()).with("the broker".to_owned())),
            timeout: Duration::from_secs(20),
            limits: Limits {
                record_bytes: 1_000,
                batch_bytes: 200,
                compression: Compression::None,
            },
            writer: ProducerIdentity { id: 7, epoch: 1 },
            brokers: Brokers::new(
                ConnectionSettings {
                    servers: vec![self.address.clone()],
                    client: "test".to_owned(),
                    security: Security::default(),
                    tokens: None,
                },
                Arc::new(Throttling::new("t")),
                env.clone(),
            ),
            env,
            begun: Duration::ZERO,
        }
    }
}

/// What is left of a request.
struct Request<'a>(&'a [u8]);

impl<'a> Request<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    /// A number of elements or bytes, which is stored plus one, as seven bits a byte.
    fn count(&mut self) -> usize {
        let (mut count, mut shift) = (0, 0);
        loop {
            let byte = self.take(1)[0];
            count |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return count - 1;
            }
        }
    }

    fn text(&mut self) -> String {
        let count = self.count();
        String::from_utf8(self.take(count).to_vec()).unwrap()
    }

    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.count()).map(|_| each(self)).collect()
    }

    /// The end of a structure without tagged fields.
    fn end(&mut self) {
        assert_eq!(self.take(1), [0]);
    }
}

/// Answers the requests of one connection.
fn serve(mut connection: TcpStream, address: &Address, asked: &Mutex<Asked>) {
    let mut length = [0; 4];
    while connection.read_exact(&mut length).is_ok() {
        let mut request = vec![0; i32::from_be_bytes(length) as usize];
        connection.read_exact(&mut request).unwrap();
        let mut request = Request(&request);
        let (key, _, number) = (request.i16(), request.i16(), request.i32());
        let client = request.i16();
        request.take(client as usize);
        request.end();
        let (mut answer, mut pause) = (Writer::default(), Duration::ZERO);
        // In place of the length.
        answer.i32(0);
        answer.i32(number);
        answer.end();
        match key {
            key if key == METADATA.key => metadata(&mut request, &mut answer, address),
            key if key == FIND_COORDINATOR.key => coordinator(&mut answer, address),
            key if key == PRODUCE.key && is_lost(asked) => return,
            key if key == PRODUCE.key => {
                pause = std::mem::take(&mut asked.lock().quota_pause);
                produce(&mut request, &mut answer, asked, pause);
            }
            key => {
                assert_eq!(key, END_TXN.key);
                end_txn(&mut request, &mut answer, asked);
            }
        }
        answer.replace_i32(0, (answer.len() - 4) as i32);
        connection.write_all(answer.as_slice()).unwrap();
        std::thread::sleep(pause);
    }
}

fn is_lost(asked: &Mutex<Asked>) -> bool {
    let mut asked = asked.lock();
    let is_lost = asked.lost > 0;
    asked.lost = asked.lost.saturating_sub(1);
    is_lost
}

fn node(answer: &mut Writer, address: &Address) {
    answer.i32(1);
    answer.text(&address.host);
    answer.i32(i32::from(address.port));
}

fn metadata(request: &mut Request<'_>, answer: &mut Writer, address: &Address) {
    let topics = request.list(|topic| {
        topic.take(16);
        let name = topic.text();
        topic.end();
        name
    });
    answer.i32(0);
    answer.count(1);
    node(answer, address);
    // No rack, and no id of the cluster.
    answer.unsigned(0);
    answer.end();
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
            answer.i32(1);
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
    node(answer, address);
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
    request.text();
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

fn end_txn(request: &mut Request<'_>, answer: &mut Writer, asked: &Mutex<Asked>) {
    request.text();
    let id = i64::from_be_bytes(request.take(8).try_into().unwrap());
    let epoch = request.i16();
    asked.lock().ends.push(request.take(1) == [1]);
    answer.i32(0);
    answer.i16(0);
    answer.i64(id);
    answer.i16(epoch + 1);
    answer.end();
}

fn has(batch: &Batch, value: &str) -> bool {
    batch.3.windows(value.len()).any(|bytes| bytes == value.as_bytes())
}

#[test]
fn a_transaction_has_its_rows_and_its_record_and_is_committed() {
    let broker = Broker::start();
    let mut client = broker.client();
    for epoch in [2, 3] {
        client.fill(&content(&[("a", 1, "first"), ("b", 1, "second")])).unwrap();
        client.commit().unwrap();
        assert_eq!(client.writer, ProducerIdentity { id: 7, epoch }, "the brokers' answer");
        let Asked { batches, ends, .. } = std::mem::take(&mut *broker.asked.lock());
        assert_eq!(ends, [true]);
        let places: Vec<_> = batches.iter().map(|batch| (batch.0.as_str(), batch.1)).collect();
        assert_eq!(places, [("a", 1), ("b", 1), ("records", 0)]);
        assert!(has(&batches[0], "first") && has(&batches[1], "second"));
        assert!(has(&batches[2], "12"), "the number of the micro-batch");
    }
    client.fill(&content(&[("a", 0, "third")])).unwrap();
    client.abort();
    assert_eq!(broker.asked.lock().ends, [false]);
}

#[test]
fn batches_of_a_partition_are_numbered_by_their_records() {
    let broker = Broker::start();
    let long = "long ".repeat(8);
    let all = [("a", 0, long.as_str()); 5];
    broker.client().fill(&content(&all)).unwrap();
    let asked = broker.asked.lock();
    let of_rows = asked.batches.iter().filter(|batch| batch.0 == "a");
    let sequences: Vec<i32> = of_rows.map(|batch| batch.2).collect();
    assert_eq!(sequences, [0, 2, 4], "a batch has room for two records");
}

#[test]
fn what_is_refused_for_a_while_goes_out_again() {
    let broker = Broker::start();
    // NOT_ENOUGH_REPLICAS, which passes.
    broker.asked.lock().codes.push_back(("b".to_owned(), 19));
    broker.client().fill(&content(&[("a", 0, "first"), ("b", 0, "second")])).unwrap();
    let asked = broker.asked.lock();
    let mut places: Vec<_> =
        asked.batches.iter().map(|batch| (batch.0.as_str(), batch.2)).collect();
    places.sort_unstable();
    assert_eq!(places, [("a", 0), ("b", 0), ("records", 0)], "each once");
}

#[test]
fn rows_whose_answer_is_lost_go_out_again() {
    let broker = Broker::start();
    broker.asked.lock().lost = 2;
    broker.client().fill(&content(&[("a", 0, "first"), ("b", 0, "second")])).unwrap();
    let asked = broker.asked.lock();
    let mut topics: Vec<_> = asked.batches.iter().map(|batch| batch.0.as_str()).collect();
    topics.sort_unstable();
    assert_eq!(topics, ["a", "b", "records"], "each once");
}

#[test]
fn a_broker_that_throttles_is_waited_for_on_the_same_connection() {
    let broker = Broker::start();
    let mut client = broker.client();
    // Longer than an answer is waited for otherwise.
    broker.asked.lock().quota_pause = Duration::from_millis(10_400);
    client.fill(&content(&[("a", 0, "first")])).unwrap();
    let before = broker.asked.lock().connections;
    client.fill(&content(&[("a", 0, "second")])).unwrap();
    let asked = broker.asked.lock();
    let of_rows = asked.batches.iter().filter(|batch| batch.0 == "a");
    assert_eq!((of_rows.count(), asked.connections), (2, before), "each once");
}

#[test]
fn a_record_that_is_too_large_is_not_sent() {
    let broker = Broker::start();
    let large = "large ".repeat(200);
    let error = broker.client().fill(&content(&[("a", 0, "small"), ("a", 0, &large)]));
    assert!(error.unwrap_err().to_string().contains("1000"), "it names the limit");
    assert!(broker.asked.lock().batches.is_empty());
}

#[test]
fn a_partition_that_is_not_there_is_not_written_to() {
    let broker = Broker::start();
    for partition in [2, -1] {
        assert!(broker.client().fill(&content(&[("a", partition, "lost")])).is_err());
    }
    assert!(broker.asked.lock().batches.is_empty());
}

#[test]
fn who_is_turned_away_was_replaced_or_came_too_late() {
    let mut client = Broker::start().client();
    let refused = |code| RequestError::Refused(ErrorCode(code));
    client.begun = client.env.monotonic();
    for code in [47, 90] {
        let error = client.explain("its rows", &refused(code));
        assert!(matches!(error, SinkError::TakenOver { .. }), "{error}");
    }
    let error = client.explain("its rows", &refused(48));
    assert!(matches!(error, SinkError::Transaction { .. }), "{error}");
    client.timeout = Duration::ZERO;
    std::thread::sleep(Duration::from_millis(2));
    for code in [47, 48, 90] {
        let error = client.explain("its rows", &refused(code));
        assert!(matches!(error, SinkError::TimedOut { .. }), "{error}");
    }
}

/// The machine's clock, an hour ahead.
struct Ahead(Env);

impl Clock for Ahead {
    fn now_us(&self) -> i64 {
        self.0.now_us()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic() + Duration::from_secs(3_600)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }
}

#[test]
fn the_time_of_a_transaction_begins_when_it_is_filled() {
    let broker = Broker::start();
    let mut client = broker.client();
    client.env = Env::new(Arc::new(Ahead(Env::real())), Arc::new(SeededRng::new(1)));
    // NOT_ENOUGH_REPLICAS, after which it is looked whether there is time left.
    broker.asked.lock().codes.push_back(("a".to_owned(), 19));
    client.fill(&content(&[("a", 0, "first")])).unwrap();
}
