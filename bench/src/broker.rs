//! The broker that a benchmark runs against: one the user names, or a real Apache Kafka of its own,
//! whose data is in the benchmark's work directory.

use std::time::Duration;

use millstream_testkit::admin::Admin;
use millstream_testkit::kafka::{self, VERSION};
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

    /// A broker of the benchmark's own.
    fn start(work: &WorkDirectory) -> Result<Self, Error> {
        let own = kafka::Broker::start_in(&work.subdirectory("kafka")?)?;
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
