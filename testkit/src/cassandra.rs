//! A real Apache Cassandra: one node on loopback, and the client that its users have.
//!
//! The jars come from Maven Central, once. A start takes some seconds, so most tests share one
//! ([`shared`]) and keep apart by keyspaces.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certificates::Authority;
use crate::kafka::free_port;
use crate::{cache, process, wait};

/// The version that is started.
pub const VERSION: &str = "5.0.9";
const POM: &str = include_str!("../../tests/cassandra/pom.xml");
const REQUIREMENTS: &str = include_str!("../../tests/cassandra/requirements.txt");
const CLIENT: &str = include_str!("../../tests/cassandra/client.py");
const START_LIMIT: Duration = Duration::from_secs(180);
/// The user that a server with passwords begins with.
const SUPERUSER: [&str; 2] = ["cassandra", "cassandra"];

/// Messages on standard output.
const LOGGING: &str = r#"<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"#;

/// Packages that Java opens to Cassandra only when it is told to.
const EXPORTS: [&str; 9] = [
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "java.base/java.lang.ref",
    "jdk.unsupported/sun.misc",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.attach/sun.tools.attach",
];
const OPENS: [&str; 14] = [
    "java.base/java.lang.module",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.base/java.io",
    "java.base/java.lang.reflect",
    "java.base/java.lang",
    "java.base/java.util",
    "jdk.management/com.sun.management.internal",
    "jdk.compiler/com.sun.tools.javac",
];

/// A server that is stopped, and its data removed, when dropped. For tests: an error is a panic.
pub struct Cassandra {
    directory: Mutex<Option<TempDir>>,
    port: u16,
    has_passwords: bool,
    /// The authority that its clients trust, if it speaks TLS.
    authority: Option<PathBuf>,
    child: Mutex<Option<Child>>,
    client: Mutex<Option<Client>>,
}

/// The client, in a process of its own.
struct Client {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The server that all tests of this process share, started by the first that asks.
pub fn shared() -> &'static Cassandra {
    SHARED.get_or_init(|| {
        process::at_exit(stop_shared);
        Cassandra::start()
    })
}

static SHARED: OnceLock<Cassandra> = OnceLock::new();

extern "C" fn stop_shared() {
    if let Some(server) = SHARED.get() {
        server.discard();
    }
}

impl Cassandra {
    /// Starts a server with nothing in it, and waits until it answers.
    pub fn start() -> Self {
        Self::start_with("", false)
    }

    /// The same with users and passwords; the client is its superuser.
    pub fn start_with_passwords() -> Self {
        let settings = "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n\
                        permissions_validity: 0ms\n";
        Self::start_with(settings, true)
    }

    /// The same that writes its log before it answers, and so keeps what it has acknowledged
    /// through a [`kill`](Self::kill). As it comes, one that is killed loses what it wrote to its
    /// log behind the last marker, which is a tenth of a second.
    pub fn start_that_keeps_all() -> Self {
        Self::start_with("commitlog_sync: batch\n", false)
    }

    /// The same that speaks TLS only, with a certificate of `authority`.
    pub fn start_with_tls(authority: &Authority) -> Self {
        let files = authority.issue("IP:127.0.0.1").unwrap();
        let read = |path: &Path| fs::read_to_string(path).expect("it was just written");
        let both = read(&files.key) + &read(&files.cert);
        let own = files.cert.with_file_name("cassandra.pem");
        fs::write(&own, both).expect("it is writable");
        let settings = format!(
            "client_encryption_options:\n\
             \x20 enabled: true\n\
             \x20 optional: false\n\
             \x20 ssl_context_factory:\n\
             \x20   class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n\
             \x20 keystore: {}\n\
             \x20 truststore: {}\n",
            own.display(),
            files.ca.display(),
        );
        Self::start_by(&settings, false, Some(files.ca))
    }

    /// The same with more lines of `cassandra.yaml`.
    pub fn start_with(settings: &str, has_passwords: bool) -> Self {
        Self::start_by(settings, has_passwords, None)
    }

    fn start_by(settings: &str, has_passwords: bool, authority: Option<PathBuf>) -> Self {
        let directory = tempfile::Builder::new().prefix("millstream-cassandra-").tempdir();
        let directory = directory.expect("a temporary directory can be made");
        let (port, storage_port) = (free_port(), free_port());
        fs::create_dir(directory.path().join("conf")).expect("it can be made");
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join("conf").join(name), text).expect("it is writable");
        };
        let mut own = own_settings(port, storage_port);
        if !settings.contains("commitlog_sync:") {
            own += "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms\n";
        }
        write("cassandra.yaml", &(own + settings));
        write("logback.xml", LOGGING);
        let server = Self {
            directory: Mutex::new(Some(directory)),
            port,
            has_passwords,
            authority,
            child: Mutex::default(),
            client: Mutex::default(),
        };
        server.restart();
        server
    }

    /// What clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The rows of a statement, each as an array.
    pub fn ask(&self, cql: &str) -> Vec<Value> {
        let mut answer = self.try_ask(cql);
        match answer["answer"].take() {
            Value::Array(rows) => rows,
            _ => panic!("{cql}: {answer}\n{}", self.log()),
        }
    }

    fn try_ask(&self, cql: &str) -> Value {
        let mut client = self.client.lock();
        let client = client.get_or_insert_with(|| self.start_client());
        writeln!(client.commands, "{}", json!(cql)).expect("the client reads");
        let mut line = String::new();
        client.answers.read_line(&mut line).expect("the client answers in text");
        serde_json::from_str(&line).expect("the client answers in JSON")
    }

    /// Makes a keyspace, without replicas.
    pub fn create_keyspace(&self, name: &str) {
        self.ask(&format!(
            "CREATE KEYSPACE {name} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        ));
    }

    /// Ends the server at once, as a crash would.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().take() {
            // An error here means that it had ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again after [`kill`](Self::kill), on the same port, with what it has on disk.
    pub fn restart(&self) {
        let log = self.path(|directory| directory.join("log"));
        let out = File::options().create(true).append(true).open(&log).expect("it is writable");
        let mut java = self.path(java);
        java.stdin(Stdio::null()).stderr(out.try_clone().expect("a file")).stdout(out);
        if !self.has_passwords {
            java.arg("-Dcassandra.skip_default_role_setup=true");
        }
        java.args(["-cp"]).arg(format!("conf:{}/*", jars().display()));
        java.arg("org.apache.cassandra.service.CassandraDaemon");
        let child = process::spawn(java);
        let child = child.unwrap_or_else(|error| panic!("{error}; {}", cache::JAVA_REMEDY));
        *self.child.lock() = Some(child);
        wait::until_true("Cassandra to listen", START_LIMIT, || {
            let ended = self.child.lock().as_mut().expect("it runs").try_wait();
            let ended = ended.expect("the process is ours");
            assert!(ended.is_none(), "Cassandra ended:\n{}", self.log());
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
        wait::until_true("Cassandra to answer", START_LIMIT, || {
            self.try_ask("SELECT key FROM system.local").get("answer").is_some()
        });
    }

    /// Lets it stand still.
    pub fn pause(&self) {
        process::pause(self.child.lock().as_ref().expect("it runs"));
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        process::go_on(self.child.lock().as_ref().expect("it runs"));
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path(|directory| directory.join("log"))).unwrap_or_default()
    }

    fn path<T>(&self, of: impl FnOnce(&Path) -> T) -> T {
        of(self.directory.lock().as_ref().expect("it stays until the end").path())
    }

    fn start_client(&self) -> Client {
        let environment = cache::python("cassandra-client", REQUIREMENTS).unwrap();
        let file = self.path(|directory| directory.join("client.py"));
        fs::write(&file, CLIENT).expect("it is writable");
        let mut command = Command::new(environment.join("bin/python"));
        command.arg(file).arg(self.port.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        if self.has_passwords {
            command.args(SUPERUSER);
        }
        if let Some(authority) = &self.authority {
            command.env("AUTHORITY", authority);
        }
        let mut child = process::spawn(command).expect("python can start");
        let commands = child.stdin.take().expect("it is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Client { child, commands, answers }
    }

    /// Ends the processes, and removes the data.
    fn discard(&self) {
        if let Some(mut client) = self.client.lock().take() {
            let _ = client.child.kill();
            let _ = client.child.wait();
        }
        self.kill();
        drop(self.directory.lock().take());
    }
}

impl Drop for Cassandra {
    fn drop(&mut self) {
        self.discard();
    }
}

fn jars() -> std::path::PathBuf {
    cache::jars(&format!("cassandra-{VERSION}"), POM).unwrap()
}

/// Java without the class that is run: little memory, and no waiting for neighbours.
fn java(directory: &Path) -> Command {
    let mut java = Command::new("java");
    java.current_dir(directory).args(["-Xms256m", "-Xmx256m", "-Xmn64m", "-Xss256k"]);
    java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxDirectMemorySize=256m"]);
    for package in EXPORTS {
        java.arg("--add-exports").arg(format!("{package}=ALL-UNNAMED"));
    }
    for package in OPENS {
        java.arg("--add-opens").arg(format!("{package}=ALL-UNNAMED"));
    }
    java.args(["-Djdk.attach.allowAttachSelf=true", "-Dio.netty.tryReflectionSetAccessible=true"]);
    java.arg(format!("-javaagent:{}", jars().join("jamm-0.4.0.jar").display()));
    java.arg(format!("-Dcassandra.config=file:{}/conf/cassandra.yaml", directory.display()));
    java.arg(format!("-Dlogback.configurationFile={}/conf/logback.xml", directory.display()));
    java.args(["-Dcassandra.storagedir=data", "-Dcassandra-foreground=yes"]);
    java.args(["-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=0"]);
    java
}

fn own_settings(port: u16, storage_port: u16) -> String {
    format!(
        "cluster_name: tests\n\
         num_tokens: 1\n\
         initial_token: \"0\"\n\
         partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
         endpoint_snitch: SimpleSnitch\n\
         seed_provider: [{{class_name: org.apache.cassandra.locator.SimpleSeedProvider, \
         parameters: [{{seeds: \"127.0.0.1:{storage_port}\"}}]}}]\n\
         listen_address: 127.0.0.1\n\
         storage_port: {storage_port}\n\
         rpc_address: 127.0.0.1\n\
         start_native_transport: true\n\
         native_transport_port: {port}\n\
         data_file_directories: [data/data]\n\
         commitlog_directory: data/commitlog\n\
         saved_caches_directory: data/saved_caches\n\
         hints_directory: data/hints\n\
         cdc_raw_directory: data/cdc_raw\n\
         commitlog_total_space: 256MiB\n\
         commitlog_segment_size: 16MiB\n\
         memtable_heap_space: 64MiB\n\
         memtable_offheap_space: 64MiB\n\
         materialized_views_enabled: true\n"
    )
}
