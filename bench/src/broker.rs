//! The broker that a benchmark runs against: one the user names, or a real Apache Kafka of its own,
//! whose data is in the benchmark's work directory.

use std::time::Duration;

use millstream_testkit::admin::Admin;
use millstream_testkit::certificates::Authority;
use millstream_testkit::kafka::{self, PASSWORD, USER, VERSION};
use millstream_testkit::wait::Deadline;

use crate::error::Error;
use crate::work_directory::WorkDirectory;

/// A broker that runs already has no start to wait for.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A broker to run against, and its topics.
pub struct Broker {
    /// HOST:PORT
    pub address: String,
    /// What is known of its version.
    pub version: String,
    admin: Admin,
    /// The broker, if it is the benchmark's own; stopped with it.
    _own: Option<kafka::Broker>,
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
        Ok(Self { address: address.into(), version: "external".into(), admin, _own: None })
    }

    /// A broker of the benchmark's own that also speaks TLS, and the options of a client that uses
    /// that, with a user.
    pub fn start_secure(work: &WorkDirectory) -> Result<(Self, Vec<(String, String)>), Error> {
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
        Ok(Self { address, version, admin, _own: Some(own) })
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
