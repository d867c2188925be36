//! What a benchmark runs against: brokers the user names, or real ones of its own, one Apache Kafka
//! or three that replicate, whose data is in the benchmark's work directory.

use std::time::Duration;

use millstream_testkit::admin::Admin;
use millstream_testkit::certificates::Authority;
use millstream_testkit::cluster::{self, Cluster};
use millstream_testkit::kafka::{self, PASSWORD, USER, VERSION};
use millstream_testkit::wait::Deadline;
use rdkafka::consumer::Consumer as _;
use serde::Serialize;

use crate::error::Error;
use crate::work_directory::WorkDirectory;

/// A broker that runs already has no start to wait for.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(200);
const METADATA_LIMIT: Duration = Duration::from_secs(20);

/// A broker or a cluster to run against, and its topics.
pub struct Broker {
    /// HOST:PORT, of several separated by commas.
    pub address: String,
    /// What is known of its version.
    pub version: String,
    /// How often records are kept.
    pub replication: Replication,
    admin: Admin,
    /// The brokers, if they are the benchmark's own; stopped with it.
    own: Own,
}

/// How many brokers there are, and how many of them keep a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Replication {
    /// How many brokers there are.
    pub brokers: usize,
    /// Replicas of each partition of the benchmark's topics.
    pub replication_factor: i32,
    /// How many replicas have a record at least when it is acknowledged; `None` where the brokers'
    /// own setting decides, which is not asked for.
    pub min_insync_replicas: Option<i32>,
}

/// Options of a client: names and values.
pub type ClientOptions = Vec<(String, String)>;

/// Whose brokers they are.
enum Own {
    /// Somebody else's.
    No,
    /// One broker.
    One(Box<kafka::Broker>),
    /// Three.
    Cluster(Box<Cluster>),
}

impl Broker {
    /// The broker that `--brokers` names, or else one of the benchmark's own.
    pub fn of(work: &WorkDirectory, brokers: Option<&str>) -> Result<Self, Error> {
        match brokers {
            Some(address) => Self::external(address),
            None => Self::start(work),
        }
    }

    /// The broker at `address`, which somebody else runs.
    fn external(address: &str) -> Result<Self, Error> {
        let admin = Admin::new(address)?;
        let deadline = Deadline::after(CONNECT_LIMIT);
        while !admin.answers() {
            if deadline.is_over() {
                let (brokers, waited_s) = (address.to_owned(), CONNECT_LIMIT.as_secs());
                return Err(millstream_testkit::error::Error::BrokerSilent { brokers, waited_s })?;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        let metadata = admin.consumer().fetch_metadata(None, METADATA_LIMIT);
        let metadata = metadata.map_err(Error::kafka("counting the brokers"))?;
        let brokers = metadata.brokers().len();
        let replication = Replication { brokers, replication_factor: 1, min_insync_replicas: None };
        let (address, version) = (address.to_owned(), "external".to_owned());
        Ok(Self { address, version, replication, admin, own: Own::No })
    }

    /// Three brokers of the benchmark's own, and the options of a client that uses TLS, with a
    /// user.
    pub fn start_cluster(work: &WorkDirectory) -> Result<(Self, ClientOptions), Error> {
        let own = Cluster::start_in(&work.subdirectory("kafka")?)?;
        let by_tls = own.by_tls().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let address = own.address();
        let replication = Replication {
            brokers: usize::try_from(cluster::BROKERS).expect("it is small"),
            replication_factor: cluster::BROKERS,
            min_insync_replicas: Some(cluster::IN_SYNC_MIN),
        };
        let broker = Self {
            version: format!("Apache Kafka {VERSION}"),
            replication,
            admin: Admin::with_replicas(&address, cluster::BROKERS)?,
            own: Own::Cluster(Box::new(own)),
            address,
        };
        Ok((broker, by_tls))
    }

    /// A broker of the benchmark's own that also speaks TLS, and the options of a client that uses
    /// that, with a user.
    pub fn start_secure(work: &WorkDirectory) -> Result<(Self, ClientOptions), Error> {
        let authority = Authority::new(&work.subdirectory("authority")?)?;
        let parent = work.subdirectory("kafka")?;
        let (own, ports) = kafka::Broker::start_in_with_tls(&parent, &authority)?;
        let client = [
            ("kafka.bootstrap.servers", format!("127.0.0.1:{}", ports.password)),
            ("kafka.security.protocol", "SASL_SSL".to_owned()),
            ("kafka.sasl.mechanism", "SCRAM-SHA-512".to_owned()),
            ("kafka.sasl.username", USER.to_owned()),
            ("kafka.sasl.password", PASSWORD.to_owned()),
            ("kafka.ssl.ca.location", authority.certificate().display().to_string()),
        ];
        let client = client.map(|(key, value)| (key.to_owned(), value)).to_vec();
        Ok((Self::own(own)?, client))
    }

    /// A broker of the benchmark's own.
    fn start(work: &WorkDirectory) -> Result<Self, Error> {
        Self::own(kafka::Broker::start_in(&work.subdirectory("kafka")?)?)
    }

    fn own(own: kafka::Broker) -> Result<Self, Error> {
        let (address, version) = (own.address(), format!("Apache Kafka {VERSION}"));
        let admin = Admin::new(&address)?;
        let replication =
            Replication { brokers: 1, replication_factor: 1, min_insync_replicas: Some(1) };
        Ok(Self { address, version, replication, admin, own: Own::One(Box::new(own)) })
    }

    /// Processor time that the brokers have used since their start, all together; `None` for
    /// somebody else's.
    pub fn cpu_seconds(&self) -> Option<f64> {
        match &self.own {
            Own::No => None,
            Own::One(broker) => Some(broker.usage().cpu_seconds),
            Own::Cluster(cluster) => Some(cluster.usage().cpu_seconds),
        }
    }

    /// Makes a topic and waits until every partition has a leader.
    pub fn create(
        &self,
        topic: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Result<(), Error> {
        // Records carry times of their own, which may be long past: the broker would delete them.
        let settings = [&[("retention.ms", "-1")], settings].concat();
        Ok(self.admin.create(topic, partitions, &settings)?)
    }

    /// Deletes topics. Their records go some time later.
    pub fn delete(&self, topics: &[&str]) -> Result<(), Error> {
        Ok(self.admin.delete(topics)?)
    }
}
