//! The broker that a benchmark runs against: one the user names, or a real Apache Kafka of its own.
//!
//! The jars come from Maven Central, once; the end-to-end tests use the same. The broker is one
//! node in KRaft mode on loopback, its data in the benchmark's work directory.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use millstream_store::env::Env;

use crate::cache::{self, JAVA_REMEDY};
use crate::error::Error;
use crate::process::Process;
use crate::topics::Topics;
use crate::work_directory::WorkDirectory;

const POM: &str = include_str!("../../tests/kafka/pom.xml");
const VERSION: &str = "4.3.1";
const START_LIMIT: Duration = Duration::from_secs(120);
/// A broker that runs already has no start to wait for.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A broker to run against, and its topics.
pub struct Broker {
    /// HOST:PORT
    pub address: String,
    /// What is known of its version.
    pub version: String,
    /// Makes and deletes topics on it.
    pub topics: Topics,
    /// The process, if the broker is the benchmark's own; stopped with it.
    _own: Option<Process>,
}

impl Broker {
    /// The broker that `--brokers` names, or else one of the benchmark's own.
    pub fn of(env: &Env, work: &WorkDirectory, brokers: Option<&str>) -> Result<Self, Error> {
        match brokers {
            Some(address) => Self::external(env, address),
            None => Self::start(env, work),
        }
    }

    /// The broker at `address`, which somebody else runs.
    fn external(env: &Env, address: &str) -> Result<Self, Error> {
        let topics = Topics::new(env, address)?;
        wait_until_it_answers(env, &topics, address, None)?;
        Ok(Self { address: address.into(), version: "external".into(), topics, _own: None })
    }

    /// A broker of the benchmark's own.
    fn start(env: &Env, work: &WorkDirectory) -> Result<Self, Error> {
        let jars = cache::jars(&format!("kafka-{VERSION}"), POM)?;
        let directory = work.subdirectory("kafka")?;
        let (port, controller_port) = free_ports(&directory)?;
        let address = format!("127.0.0.1:{port}");
        let settings = directory.join("server.properties");
        let text = server_properties(&directory, port, controller_port);
        fs::write(&settings, text).map_err(Error::file("write", &settings))?;

        let mut format = java(&jars, &directory);
        // Any cluster id will do: 16 bytes in URL-safe base64.
        format.args(["kafka.tools.StorageTool", "format", "--cluster-id"]);
        format.args(["bWlsbHN0cmVhbS1iZW5jaA", "--config", "server.properties"]);
        cache::run("formatting the broker's storage", format, JAVA_REMEDY)?;

        let mut start = java(&jars, &directory);
        start.args(["kafka.Kafka", "server.properties"]);
        let mut own = Process::start("Apache Kafka", start, &directory.join("broker.log"))?;
        let topics = Topics::new(env, &address)?;
        wait_until_it_answers(env, &topics, &address, Some(&mut own))?;
        Ok(Self { address, version: format!("Apache Kafka {VERSION}"), topics, _own: Some(own) })
    }
}

fn wait_until_it_answers(
    env: &Env,
    topics: &Topics,
    address: &str,
    mut own: Option<&mut Process>,
) -> Result<(), Error> {
    let limit = if own.is_some() { START_LIMIT } else { CONNECT_LIMIT };
    let asked = env.monotonic();
    while !topics.answers() {
        if let Some(own) = own.as_mut() {
            own.check()?;
        }
        if env.monotonic() - asked > limit {
            let log = own.map(|own| format!("; the end of its output:\n{}", own.log_tail()));
            return Err(Error::BrokerSilent {
                brokers: address.to_owned(),
                waited_s: limit.as_secs(),
                log: log.unwrap_or_default(),
            });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

fn java(jars: &Path, directory: &Path) -> Command {
    let mut java = Command::new("java");
    java.args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]);
    java.arg(jars.join("*")).current_dir(directory);
    java
}

/// Two ports nobody listens on. Somebody could take them before the broker does, but the kernel
/// hands out others first.
fn free_ports(directory: &Path) -> Result<(u16, u16), Error> {
    let listen = || TcpListener::bind("127.0.0.1:0").map_err(Error::file("listen for", directory));
    let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
    let (first, second) = (listen()?, listen()?);
    let ports = port(&first).and_then(|first| Ok((first, port(&second)?)));
    ports.map_err(Error::file("find ports for", directory))
}

fn server_properties(directory: &Path, port: u16, controller_port: u16) -> String {
    let data = directory.join("data");
    format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller_port}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
         controller.listener.names=CONTROLLER\n\
         inter.broker.listener.name=PLAINTEXT\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
         log.dirs={data}\n\
         auto.create.topics.enable=false\n\
         group.initial.rebalance.delay.ms=0\n\
         offsets.topic.num.partitions=1\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n",
        data = data.display()
    )
}
