//! Two brokers of Apache Pulsar, which divide topics among themselves, and in a third process what
//! they store them in: ZooKeeper and a bookie. A server that is started alone would not do: it
//! takes itself for a proxy.

use std::process::Child;

use tempfile::TempDir;

use crate::kafka::free_port;
use crate::pulsar::{self, Pulsar};
use crate::wait;

/// They are stopped, and their data is removed, when dropped. For tests: an error is a panic.
pub struct PulsarPair {
    /// What is killed has its topics taken over by the other, within seconds.
    pub brokers: [Pulsar; 2],
    _store: Store,
}

struct Store {
    directory: TempDir,
    child: Child,
}

impl PulsarPair {
    /// Starts all of it, and waits until both brokers answer.
    pub fn start() -> Self {
        let zookeeper = free_port();
        let store = Store::start(zookeeper);
        // A broker that is gone is noticed by the end of its session.
        let settings = format!(
            "metadataStoreUrl=zk:127.0.0.1:{zookeeper}\n\
             configurationMetadataStoreUrl=zk:127.0.0.1:{zookeeper}\n\
             metadataStoreSessionTimeoutMillis=5000\n\
             loadBalancerEnabled=true\n\
             loadManagerClassName=\
             org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl\n"
        );
        let brokers = [(); 2].map(|()| Pulsar::begin_broker(&settings));
        brokers.iter().for_each(Pulsar::wait_until_it_answers);
        Self { brokers, _store: store }
    }
}

impl Store {
    fn start(zookeeper: u16) -> Self {
        // The ports of a broker are not used.
        let directory = pulsar::directory_with(&pulsar::configuration(0, 0));
        let port = zookeeper.to_string();
        let store = [
            "org.apache.pulsar.PulsarStandaloneStarter",
            "--config",
            "conf/standalone.conf",
            "--no-broker",
            "--no-functions-worker",
            "--no-stream-storage",
            "--zookeeper-dir",
            "data/zookeeper",
            "--zookeeper-port",
            &port,
            "--bookkeeper-dir",
            "data/bk",
            "--advertised-address",
            "127.0.0.1",
        ];
        let child = pulsar::start(directory.path(), &store, true);
        let store = Self { directory, child };
        let listens = || std::net::TcpStream::connect(("127.0.0.1", zookeeper)).is_ok();
        wait::until_true("ZooKeeper", wait::SOON, listens);
        store.initialize(zookeeper);
        store
    }

    /// Names the cluster, and makes the namespaces that every cluster has.
    fn initialize(&self, zookeeper: u16) {
        let metadata = format!("zk:127.0.0.1:{zookeeper}");
        let initialize = [
            "org.apache.pulsar.PulsarClusterMetadataSetup",
            "--cluster",
            "standalone",
            "--metadata-store",
            &metadata,
            "--configuration-metadata-store",
            &metadata,
            "--web-service-url",
            "http://127.0.0.1:8080",
            "--broker-service-url",
            "pulsar://127.0.0.1:6650",
        ];
        let mut child = pulsar::start(self.directory.path(), &initialize, false);
        let status = child.wait().expect("it is a child of this process");
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        assert!(status.success(), "the cluster was not initialized:\n{log}");
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // An error here means that it had ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
