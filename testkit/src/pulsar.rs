//! A real Apache Pulsar on loopback: broker and bookie in one process.
//!
//! The jars come from Maven Central, once. What there is of messages is asked of Pulsar's own
//! client, and of the broker's interface for administrators.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::certificates::Files;
use crate::kafka::{free_port, free_ports};
use crate::{cache, process, wait};

/// The version that is started.
pub const VERSION: &str = "4.2.4";
const POM: &str = include_str!("../../tests/pulsar/pom.xml");
const REQUIREMENTS: &str = include_str!("../../tests/pulsar/requirements.txt");
const START_LIMIT: Duration = Duration::from_secs(180);
/// What the JVM has to open for Pulsar and for what it is made of.
const OPENED: [&str; 8] = [
    "java.base/jdk.internal.loader",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
];

/// A server that is stopped, and its data removed, when dropped. For tests: an error is a panic.
pub struct Pulsar {
    directory: Mutex<Option<TempDir>>,
    port: u16,
    /// Where connections have TLS, if it has a certificate.
    tls_port: Option<u16>,
    web_port: u16,
    child: Mutex<Option<Child>>,
    /// What whoever asks has to show.
    token: Option<String>,
    role: Role,
}

/// What is started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// All that a broker needs, and the broker.
    Alone,
    /// A broker whose store is somewhere else.
    Broker,
}

/// The server that all tests of this process share, started by the first that asks.
pub fn shared() -> &'static Pulsar {
    SHARED.get_or_init(|| {
        process::at_exit(stop_shared);
        Pulsar::start()
    })
}

static SHARED: OnceLock<Pulsar> = OnceLock::new();

extern "C" fn stop_shared() {
    if let Some(server) = SHARED.get() {
        server.discard();
    }
}

impl Pulsar {
    /// Starts a server and waits until it answers.
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// The same with more settings, each on a line of its own.
    pub fn start_with(settings: &str) -> Self {
        Self::prepare(settings, None, None, Role::Alone).started()
    }

    /// The same, where administrators have to show a token.
    pub fn start_with_token(settings: &str, token: &str) -> Self {
        Self::prepare(settings, Some(token.to_owned()), None, Role::Alone).started()
    }

    /// The same, with a certificate that it shows on a port of its own; whoever connects there has
    /// to show one of the same authority.
    pub fn start_with_tls(files: &Files, settings: &str, token: &str) -> Self {
        let port = free_port();
        let settings = format!(
            "{settings}brokerServicePortTls={port}\ntlsCertificateFilePath={}\n\
             tlsKeyFilePath={}\ntlsTrustCertsFilePath={}\n\
             tlsRequireTrustedClientCertOnConnect=true\n",
            files.cert.display(),
            files.key.display(),
            files.ca.display(),
        );
        Self::prepare(&settings, Some(token.to_owned()), Some(port), Role::Alone).started()
    }

    /// A broker whose store is somewhere else, as `settings` say. It is not waited for.
    pub(crate) fn begin_broker(settings: &str) -> Self {
        let server = Self::prepare(settings, None, None, Role::Broker);
        server.spawn();
        server
    }

    fn prepare(settings: &str, token: Option<String>, tls_port: Option<u16>, role: Role) -> Self {
        let (port, web_port) = free_ports();
        let balance = if role == Role::Alone { ALONE } else { "" };
        let directory = directory_with(&(configuration(port, web_port) + balance + settings));
        let directory = Mutex::new(Some(directory));
        let child = Mutex::new(None);
        Self { directory, port, tls_port, web_port, child, token, role }
    }

    fn started(self) -> Self {
        self.restart();
        self
    }

    /// What to write for `service.url`.
    pub fn url(&self) -> String {
        format!("pulsar://127.0.0.1:{}", self.port)
    }

    /// The same for connections with TLS.
    pub fn tls_url(&self) -> String {
        format!("pulsar+ssl://127.0.0.1:{}", self.tls_port.expect("it has a certificate"))
    }

    /// Runs Pulsar's client for Java. `arguments` are those of `tests/pulsar/Client.java` behind
    /// the address.
    pub fn java_client(&self, arguments: &[&str]) {
        let mut client = source_launch(&cache::repository().join("tests/pulsar/Client.java"));
        let output = client.arg(self.url()).args(arguments).stdin(Stdio::null()).output();
        let output = output.expect(cache::JAVA_REMEDY);
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "Client.java {arguments:?}: {errors}{text}");
    }

    /// What Pulsar's own client prints, in lines. `arguments` are those of `tests/pulsar/client.py`
    /// behind the address.
    pub fn client(&self, arguments: &[&str]) -> Vec<String> {
        let environment = cache::python("pulsar-client", REQUIREMENTS).unwrap();
        let mut client = Command::new(environment.join("bin/python"));
        client.arg(cache::repository().join("tests/pulsar/client.py")).arg(self.url());
        if let Some(token) = &self.token {
            client.env("PULSAR_TOKEN", token);
        }
        let output = client.args(arguments).stdin(Stdio::null()).output();
        let output = output.expect("Python is there");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "client.py {arguments:?}: {errors}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// What administrators are answered at `/admin/v2/PATH`, by the broker that has to answer it;
    /// `Err` where that is an error.
    pub fn admin(&self, method: &str, path: &str, body: &str) -> Result<String, String> {
        let (mut port, mut path) = (self.web_port, format!("/admin/v2/{path}"));
        loop {
            let answer = self.asked(port, method, &path, body).map_err(|it| it.to_string())?;
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
            let status = head.split(' ').nth(1).unwrap_or_default();
            if status.starts_with("20") {
                return Ok(body.to_owned());
            }
            let place = head.lines().find_map(|line| line.strip_prefix("Location: http://"));
            let place = place.filter(|_| status == "307").and_then(|place| place.split_once('/'));
            let Some((host, rest)) = place else { return Err(answer) };
            let (_, number) = host.rsplit_once(':').ok_or_else(|| answer.clone())?;
            port = number.parse().map_err(|_| answer.clone())?;
            path = format!("/{rest}");
        }
    }

    fn asked(&self, port: u16, method: &str, path: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let length = body.len();
        let login = self.token.as_ref();
        let login = login.map(|token| format!("authorization: Bearer {token}\r\n"));
        let login = login.unwrap_or_default();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nhost: x\r\n{login}content-type: \
             application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Makes a topic; 0 partitions mean that it has none.
    pub fn create(&self, topic: &str, partitions: u32) {
        let path = format!("persistent/public/default/{topic}");
        let made = match partitions {
            0 => self.admin("PUT", &path, ""),
            count => self.admin("PUT", &format!("{path}/partitions"), &count.to_string()),
        };
        made.unwrap();
    }

    /// How many messages a topic without partitions was ever sent, aborted ones among them. One in
    /// another namespace is `TENANT/NAMESPACE/TOPIC`.
    pub fn received(&self, topic: &str) -> u64 {
        let namespace = if topic.contains('/') { "" } else { "public/default/" };
        let path = format!("persistent/{namespace}{topic}/stats");
        let Ok(stats) = self.admin("GET", &path, "") else { return 0 };
        let after = stats.split_once("\"msgInCounter\":").map_or("", |(_, after)| after);
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    }

    /// Ends the server at once, as a crash would.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().take() {
            // An error here means that it had ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on its data and ports, and waits until it answers.
    pub fn restart(&self) {
        self.spawn();
        self.wait_until_it_answers();
    }

    pub(crate) fn wait_until_it_answers(&self) {
        let deadline = wait::Deadline::after(START_LIMIT);
        // The port is open long before the namespace is there.
        while !self.admin("GET", "namespaces/public", "").is_ok_and(|it| it.contains("/default")) {
            let ended =
                self.child.lock().as_mut().and_then(|child| child.try_wait().ok().flatten());
            assert!(ended.is_none(), "Pulsar ended with {ended:?}:\n{}", self.log());
            assert!(!deadline.is_over(), "Pulsar does not answer:\n{}", self.log());
            wait::pause(Duration::from_millis(100));
        }
    }

    /// Lets it stand still.
    pub fn pause(&self) {
        process::pause(self.child.lock().as_ref().expect("it runs"));
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        process::go_on(self.child.lock().as_ref().expect("it runs"));
    }

    fn path(&self) -> std::path::PathBuf {
        let directory = self.directory.lock();
        directory.as_ref().expect("the directory stays until the end").path().to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    fn spawn(&self) {
        *self.child.lock() = Some(start(&self.path(), program(self.role), false));
    }

    fn discard(&self) {
        self.kill();
        drop(self.directory.lock().take());
    }
}

impl Drop for Pulsar {
    fn drop(&mut self) {
        self.discard();
    }
}

/// A Java program of one file, with Pulsar's client for Java; arguments come behind.
///
/// # Panics
/// The jars cannot be had.
pub fn source_launch(file: &Path) -> Command {
    let jars = cache::jars(&format!("pulsar-{VERSION}"), POM).unwrap();
    let mut java = Command::new("java");
    java.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    java.arg("--add-opens").arg("java.base/sun.net=ALL-UNNAMED");
    java.arg("-cp").arg(format!("{}/*", jars.display())).arg(file);
    java
}

/// A directory with what [`start`] needs.
pub(crate) fn directory_with(configuration: &str) -> TempDir {
    let directory = tempfile::Builder::new().prefix("millstream-pulsar-").tempdir();
    let directory = directory.expect("a temporary directory can be made");
    let conf = directory.path().join("conf");
    fs::create_dir_all(&conf).expect("the directory is writable");
    fs::write(conf.join("standalone.conf"), configuration).expect("the directory is writable");
    fs::write(conf.join("log4j2.xml"), LOGGING).expect("the directory is writable");
    directory
}

/// Starts a program of Pulsar in `directory`; what it prints goes to the file `log` there.
pub(crate) fn start(directory: &Path, arguments: &[&str], uses_zookeeper: bool) -> Child {
    let jars = cache::jars(&format!("pulsar-{VERSION}"), POM).unwrap();
    let log = directory.join("log");
    let log = File::options().create(true).append(true).open(log).expect("it is writable");
    let mut java = Command::new("java");
    java.args(["-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=256m"]);
    java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    java.arg("-Dio.netty.tryReflectionSetAccessible=true");
    java.arg("-Dlog4j2.configurationFile=conf/log4j2.xml");
    for module in OPENED {
        java.args(["--add-opens", &format!("{module}=ALL-UNNAMED")]);
    }
    java.arg("-cp").arg(format!("conf:{}/*", jars.display())).args(arguments);
    if uses_zookeeper {
        java.env("PULSAR_STANDALONE_USE_ZOOKEEPER", "1");
    }
    java.current_dir(directory).stdin(Stdio::null());
    java.stderr(log.try_clone().expect("a file")).stdout(log);
    process::spawn(java).expect(cache::JAVA_REMEDY)
}

fn program(role: Role) -> &'static [&'static str] {
    match role {
        Role::Broker => {
            &["org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", "conf/standalone.conf"]
        }
        Role::Alone => &[
            "org.apache.pulsar.PulsarStandaloneStarter",
            "--config",
            "conf/standalone.conf",
            "--no-functions-worker",
            "--no-stream-storage",
            "--metadata-dir",
            "data/metadata",
            "--bookkeeper-dir",
            "data/bk",
            "--advertised-address",
            "127.0.0.1",
        ],
    }
}

/// Settings of a broker that has all topics.
const ALONE: &str = "loadBalancerEnabled=false\n\
    loadManagerClassName=org.apache.pulsar.broker.loadbalance.NoopLoadManager\n";

/// What is worth reading when a test fails, on the standard output.
const LOGGING: &str = "<Configuration status=\"WARN\"><Appenders><Console name=\"out\">\
    <PatternLayout pattern=\"%d %p %c{1} %m%n\"/></Console></Appenders>\
    <Loggers><Root level=\"warn\"><AppenderRef ref=\"out\"/></Root></Loggers></Configuration>";

/// Everything listens on loopback only; without `listeningInterface` the bookie would not. It is
/// small, and has transactions. Nothing is deleted by itself. Without `nettyMaxFrameSizeBytes` the
/// bookie refuses a message of the size that the broker takes, and the broker would write it again
/// without end, and nothing else.
pub(crate) fn configuration(port: u16, web_port: u16) -> String {
    format!(
        "clusterName=standalone\n\
         bindAddress=127.0.0.1\n\
         advertisedAddress=127.0.0.1\n\
         brokerServicePort={port}\n\
         webServicePort={web_port}\n\
         managedLedgerDefaultEnsembleSize=1\n\
         managedLedgerDefaultWriteQuorum=1\n\
         managedLedgerDefaultAckQuorum=1\n\
         managedLedgerCacheSizeMB=32\n\
         transactionCoordinatorEnabled=true\n\
         systemTopicEnabled=true\n\
         acknowledgmentAtBatchIndexLevelEnabled=true\n\
         brokerDeduplicationEnabled=true\n\
         brokerDeleteInactiveTopicsEnabled=false\n\
         defaultRetentionTimeInMinutes=-1\n\
         defaultRetentionSizeInMB=-1\n\
         backlogQuotaCheckIntervalInSeconds=1\n\
         nettyMaxFrameSizeBytes=5253120\n\
         journalSyncData=false\n\
         allowLoopback=true\n\
         listeningInterface=lo\n\
         dbStorage_writeCacheMaxSizeMb=16\n\
         dbStorage_readAheadCacheMaxSizeMb=16\n\
         dbStorage_rocksDB_blockCacheSize=8388608\n\
         diskUsageThreshold=0.99\n\
         diskUsageWarnThreshold=0.98\n"
    )
}
