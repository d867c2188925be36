//! Three brokers that replicate: each of them can be lost, and partitions change their leaders.
//!
//! Every broker is a controller, too, so a cluster without two of them decides nothing. Every
//! partition, those of Kafka's own topics among them, has a replica on each broker, and a record
//! written with `acks=all` is on two of them at least. A broker that is not heard of for three
//! seconds loses its partitions to the others.
//!
//! Most tests share one cluster ([`shared`]). One that takes brokers away does so as its only user
//! ([`Cluster::alone`]). A benchmark has a cluster of its own ([`Cluster::start_in`]).

use std::collections::BTreeMap;
use std::env::temp_dir;
use std::net::TcpStream;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rdkafka::consumer::Consumer as _;
use tempfile::TempDir;

use crate::admin::Admin;
use crate::certificates::Authority;
use crate::error::Error;
use crate::kafka::{Broker, PASSWORD, SecurePorts, USER, free_ports};
use crate::passage::Passage;
use crate::program::Usage;
use crate::requests::{Api, ask, put_text};
use crate::topics::Topics;
use crate::{process, wait};

/// How many there are; the replicas of each partition, too.
pub const BROKERS: i32 = 3;
/// How many of a partition's replicas have a record at least when `acks=all` is answered.
pub const IN_SYNC_MIN: i32 = 2;
const METADATA_LIMIT: Duration = Duration::from_secs(5);
/// What differs from a broker by itself. A lost broker is noticed in three seconds, not nine.
const SETTINGS: &str = "default.replication.factor=3\n\
     min.insync.replicas=2\n\
     offsets.topic.num.partitions=3\n\
     offsets.topic.replication.factor=3\n\
     transaction.state.log.num.partitions=3\n\
     transaction.state.log.replication.factor=3\n\
     transaction.state.log.min.isr=2\n\
     auto.leader.rebalance.enable=false\n\
     broker.heartbeat.interval.ms=500\n\
     broker.session.timeout.ms=3000\n";

/// Three brokers, stopped when dropped.
pub struct Cluster {
    brokers: Vec<Broker>,
    ports: Vec<u16>,
    secure: Vec<SecurePorts>,
    /// In front of the listeners for users, if there are any.
    passages: Vec<Passage>,
    /// Of the certificates.
    authority: Authority,
    /// Holds the authority's files.
    _files: TempDir,
    admin: Admin,
    topics: Topics,
    taken: Mutex<()>,
}

/// The cluster that all tests of this process share, started by the first that asks.
pub fn shared() -> &'static Cluster {
    SHARED.get_or_init(|| {
        process::at_exit(stop_shared);
        Cluster::start()
    })
}

static SHARED: OnceLock<Cluster> = OnceLock::new();

extern "C" fn stop_shared() {
    for broker in SHARED.get().into_iter().flat_map(|cluster| &cluster.brokers) {
        broker.discard();
    }
}

impl Cluster {
    /// Starts three brokers and waits until they have found each other; an error is a panic.
    pub fn start() -> Self {
        Self::start_with(&temp_dir(), true).unwrap()
    }

    /// The same with their data in `parent`, for a benchmark.
    pub fn start_in(parent: &Path) -> Result<Self, Error> {
        Self::start_with(parent, false)
    }

    /// With `passages` clients come to the brokers by TLS through one each.
    fn start_with(parent: &Path, passages: bool) -> Result<Self, Error> {
        let files = tempfile::tempdir_in(parent);
        let files = files.map_err(Error::file("make a directory in", parent))?;
        let authority = Authority::new(files.path())?;
        let ports = [(); BROKERS as usize].map(|()| free_ports());
        let mut secure = [(); BROKERS as usize].map(|()| SecurePorts::free());
        let passage = |ports: &mut SecurePorts| {
            let passage = Passage::start(&format!("127.0.0.1:{}", ports.password));
            ports.told = passage.port();
            passage
        };
        let passages = if passages { secure.iter_mut().map(passage).collect() } else { Vec::new() };
        // Certificates are made one after the other: their files have the same names.
        let made = Mutex::new(());
        let one = |id: usize| {
            let _made = made.lock();
            Broker::one_of(parent, id, &ports, SETTINGS, (&authority, secure[id - 1]))
        };
        // Each of them starts a Java or two first.
        let brokers: Result<Vec<Broker>, Error> = std::thread::scope(|scope| {
            let starting: Vec<_> =
                (1..=ports.len()).map(|id| scope.spawn(move || one(id))).collect();
            starting.into_iter().map(|one| one.join().expect("it does not panic")).collect()
        });
        let brokers = brokers?;
        let addresses: Vec<String> = brokers.iter().map(Broker::address).collect();
        let servers = addresses.join(",");
        let cluster = Self {
            brokers,
            ports: ports.map(|(port, _)| port).to_vec(),
            secure: secure.to_vec(),
            passages,
            authority,
            _files: files,
            admin: Admin::with_replicas(&servers, BROKERS)?,
            topics: Topics::with_replicas(&servers, BROKERS),
            taken: Mutex::new(()),
        };
        cluster.start_all(&[1, 2, 3])?;
        Ok(cluster)
    }

    /// What to write for `kafka.bootstrap.servers`.
    pub fn address(&self) -> String {
        let addresses: Vec<String> = self.brokers.iter().map(Broker::address).collect();
        addresses.join(",")
    }

    /// Options of a client that reaches the brokers by TLS, as a user.
    pub fn by_tls(&self) -> Vec<(&'static str, String)> {
        let address = |ports: &SecurePorts| format!("127.0.0.1:{}", ports.told);
        let addresses: Vec<String> = self.secure.iter().map(address).collect();
        vec![
            ("kafka.bootstrap.servers", addresses.join(",")),
            ("kafka.security.protocol", "SASL_SSL".to_owned()),
            ("kafka.sasl.mechanism", "SCRAM-SHA-512".to_owned()),
            ("kafka.sasl.username", USER.to_owned()),
            ("kafka.sasl.password", PASSWORD.to_owned()),
            ("kafka.ssl.ca.location", self.authority.certificate().display().to_string()),
        ]
    }

    /// What the brokers have used since their start, all together.
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        for usage in self.brokers.iter().map(Broker::usage) {
            sum.cpu_seconds += usage.cpu_seconds;
            sum.peak_rss_mb += usage.peak_rss_mb;
        }
        sum
    }

    /// Topics and records, for a test.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Waits until no other test takes brokers away, and keeps others from it meanwhile.
    pub fn alone(&self) -> Alone<'_> {
        Alone { cluster: self, away: Mutex::default(), _taken: self.taken.lock() }
    }

    /// The broker that leads a partition, from 1; `None` while there is none.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<i32> {
        self.partitions(Some(topic))?.get(&(topic.to_owned(), partition)).map(|of| of.leader)
    }

    /// Lets another broker lead a partition: the next of its replicas. Waits until it does.
    pub fn move_leader(&self, topic: &str, partition: i32) {
        let place = (topic.to_owned(), partition);
        let find = || self.partitions(Some(topic))?.remove(&place);
        let of = wait::until("the leader of a partition", wait::SOON, find);
        let at = of.replicas.iter().position(|id| *id == of.leader).unwrap_or(0);
        let mut wanted = of.replicas;
        wanted.rotate_left((at + 1) % BROKERS as usize);
        self.reassign(topic, partition, &wanted);
    }

    /// Gives a partition these replicas and no others, and lets the first of them lead it. Waits
    /// until it is so.
    pub fn set_replicas(&self, topic: &str, partition: i32, wanted: &[i32]) {
        self.reassign(topic, partition, wanted);
        wait::until_true("the replicas of a partition", wait::SOON, || {
            let of = self.partitions(Some(topic)).and_then(|mut all| {
                // A replica that leaves is named until it has left.
                all.remove(&(topic.to_owned(), partition))
            });
            of.is_some_and(|of| of.replicas == wanted && of.in_sync == wanted.len())
        });
    }

    fn reassign(&self, topic: &str, partition: i32, wanted: &[i32]) {
        wait::until_true("the leader to move", wait::SOON, || {
            // The first replica is the preferred leader. Any broker passes this on to the
            // controller; one that is away is asked in vain.
            for port in &self.ports {
                let asked = ask(*port, REASSIGN, &reassignment(topic, partition, wanted))
                    .and_then(|()| ask(*port, ELECT, &election(topic, partition)));
                if asked.is_ok() {
                    break;
                }
            }
            self.leader(topic, partition) == Some(wanted[0])
        });
    }

    /// Takes the replica of a partition from the broker that leads it, and has it made again there,
    /// while another one leads. Waits until all replicas are in step.
    pub fn remake_replica(&self, topic: &str, partition: i32) {
        let of = wait::until("the replicas of a partition", wait::SOON, || {
            self.partitions(Some(topic))?.remove(&(topic.to_owned(), partition))
        });
        let others: Vec<i32> = of.replicas.iter().copied().filter(|id| *id != of.leader).collect();
        self.set_replicas(topic, partition, &others);
        self.set_replicas(topic, partition, &[&others[..], &[of.leader]].concat());
    }

    /// Cuts all connections by TLS, where there are passages. Gives how many there were.
    pub fn cut_connections(&self) -> usize {
        self.passages.iter().map(Passage::cut).sum()
    }

    /// True if every partition has its replicas, all of them in step.
    fn is_whole(&self) -> bool {
        let all = self.partitions(None).unwrap_or_default();
        let count = BROKERS as usize;
        let brokers = self.admin.consumer().fetch_metadata(None, METADATA_LIMIT);
        brokers.is_ok_and(|metadata| metadata.brokers().len() == count)
            && all.values().all(|of| of.leader > 0 && of.in_sync == of.replicas.len())
    }

    fn start_all(&self, ids: &[i32]) -> Result<(), Error> {
        let brokers: Vec<&Broker> = ids.iter().map(|id| self.broker(*id)).collect();
        for broker in &brokers {
            broker.launch()?;
        }
        for broker in brokers {
            // That the others have not noticed that it was away does not mean that it is back.
            let listens = || TcpStream::connect(broker.address()).is_ok();
            broker.wait_until(|| listens() && self.is_whole())?;
        }
        Ok(())
    }

    fn broker(&self, id: i32) -> &Broker {
        &self.brokers[usize::try_from(id - 1).expect("brokers are numbered from 1")]
    }

    fn partitions(&self, topic: Option<&str>) -> Option<BTreeMap<(String, i32), Partition>> {
        let metadata = self.admin.consumer().fetch_metadata(topic, METADATA_LIMIT).ok()?;
        let of = |topic: &rdkafka::metadata::MetadataTopic| {
            let name = topic.name().to_owned();
            let partition = |partition: &rdkafka::metadata::MetadataPartition| {
                let of = Partition {
                    leader: partition.leader(),
                    replicas: partition.replicas().to_vec(),
                    in_sync: partition.isr().len(),
                };
                ((name.clone(), partition.id()), of)
            };
            topic.partitions().iter().map(partition).collect::<Vec<_>>()
        };
        Some(metadata.topics().iter().flat_map(of).collect())
    }
}

struct Partition {
    leader: i32,
    replicas: Vec<i32>,
    in_sync: usize,
}

/// The right to take brokers away. At its end, a failed test's too, all of them are back.
pub struct Alone<'a> {
    cluster: &'a Cluster,
    away: Mutex<BTreeMap<i32, Away>>,
    _taken: MutexGuard<'a, ()>,
}

#[derive(Clone, Copy, PartialEq)]
enum Away {
    Killed,
    Frozen,
}

impl Alone<'_> {
    /// Ends a broker at once, as a power failure would.
    pub fn kill(&self, id: i32) {
        self.cluster.broker(id).kill();
        self.away.lock().insert(id, Away::Killed);
    }

    /// Makes a broker stand still: connections to it stay open, and nothing is answered.
    pub fn freeze(&self, id: i32) {
        self.cluster.broker(id).freeze();
        self.away.lock().insert(id, Away::Frozen);
    }

    /// Starts a broker that was killed, and waits for nothing: it may lack what the others have.
    pub fn start(&self, id: i32) {
        self.cluster.broker(id).launch().unwrap();
        self.away.lock().remove(&id);
    }

    /// Brings back all brokers that were killed or frozen, and waits until they have caught up
    /// with the others.
    pub fn restore(&self) {
        let away = std::mem::take(&mut *self.away.lock());
        let of = |wanted: Away| away.iter().filter(move |(_, how)| **how == wanted);
        for (id, _) in of(Away::Frozen) {
            self.cluster.broker(*id).thaw();
        }
        let killed: Vec<i32> = of(Away::Killed).map(|(id, _)| *id).collect();
        self.cluster.start_all(&killed).unwrap();
        wait::until_true("the replicas", wait::SOON, || self.cluster.is_whole());
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.restore();
    }
}

const REASSIGN: Api = (45, 0);
const ELECT: Api = (43, 2);

fn reassignment(topic: &str, partition: i32, replicas: &[i32]) -> Vec<u8> {
    let mut body = 10_000_i32.to_be_bytes().to_vec();
    body.push(2); // one topic; a count is written as one more
    put_text(&mut body, topic);
    body.push(2); // one partition
    body.extend(partition.to_be_bytes());
    body.push(u8::try_from(replicas.len() + 1).expect("few replicas"));
    body.extend(replicas.iter().flat_map(|id| id.to_be_bytes()));
    body.extend([0; 3]); // no tagged fields of partition, topic and request
    body
}

fn election(topic: &str, partition: i32) -> Vec<u8> {
    let mut body = vec![0, 2]; // the preferred leader; one topic
    put_text(&mut body, topic);
    body.push(2); // one partition
    body.extend(partition.to_be_bytes());
    body.push(0);
    body.extend(10_000_i32.to_be_bytes());
    body.push(0);
    body
}
