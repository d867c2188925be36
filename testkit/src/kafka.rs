//! A real Apache Kafka: one node in KRaft mode on loopback. Three of them are a
//! [cluster](crate::cluster).
//!
//! The jars come from Maven Central, once. A benchmark has a broker of its own
//! ([`Broker::start_in`]). Most tests share one ([`shared`]) and keep apart by topic names; a test
//! that stops or restarts a broker starts its own ([`Broker::start`]).

use std::env::temp_dir;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::admin::Admin;
use crate::certificates::Authority;
use crate::error::Error;
use crate::kafka_java::java;
pub use crate::kafka_java::{VERSION, run_as_in_production};
use crate::program::Usage;
use crate::proxy::Proxy;
use crate::tokens::{AUDIENCE, ISSUER, Provider};
use crate::topics::Topics;
use crate::{cache, process, program, requests, wait};

const START_LIMIT: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A broker that is stopped, and its data removed, when dropped.
pub struct Broker {
    directory: Mutex<Option<TempDir>>,
    /// What clients connect to.
    port: u16,
    /// Where the cluster's controller is.
    controller_port: u16,
    /// Java's own options: the most that the process keeps of objects, and others.
    java: Vec<String>,
    child: Mutex<Option<Child>>,
    admin: Admin,
    topics: OnceLock<Topics>,
}

/// The broker that all tests of this process share, started by the first that asks.
pub fn shared() -> &'static Broker {
    SHARED.get_or_init(|| {
        process::at_exit(stop_shared);
        Broker::start()
    })
}

static SHARED: OnceLock<Broker> = OnceLock::new();

extern "C" fn stop_shared() {
    if let Some(broker) = SHARED.get() {
        broker.discard();
    }
}

impl Broker {
    /// Formats a data directory in `parent`, starts a broker on free ports and waits until it
    /// answers.
    pub fn start_in(parent: &Path) -> Result<Self, Error> {
        let ports = free_ports();
        Self::start_at(parent, ports, ports.0, Node::First, "")
    }

    /// The same among temporary files, for a test: an error is a panic, here and below.
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// The same with more settings, each on a line of its own.
    pub fn start_with(settings: &str) -> Self {
        let ports = free_ports();
        Self::start_at(&temp_dir(), ports, ports.0, Node::First, settings).unwrap()
    }

    /// Starts a second broker of the same cluster.
    pub fn start_beside(&self) -> Self {
        let (port, _) = free_ports();
        let ports = (port, self.controller_port);
        Self::start_at(&temp_dir(), ports, port, Node::Second, "").unwrap()
    }

    /// Starts a broker that its clients reach through a proxy only.
    pub fn start_behind_a_proxy() -> (Self, Proxy) {
        let ports = free_ports();
        let proxy = Proxy::start(ports.0);
        let broker = Self::start_at(&temp_dir(), ports, proxy.port(), Node::First, "");
        (broker.unwrap(), proxy)
    }

    /// Starts a broker with a second listener, on the port that is returned, which asks the user
    /// `app` for `password`.
    pub fn start_with_password(password: &str) -> (Self, u16) {
        let (ports, clients) = (free_ports(), free_port());
        let more = listeners(ports, clients);
        let broker = Self::start_at(&temp_dir(), ports, ports.0, Node::First, &more).unwrap();
        broker.stop();
        broker.set_password(password);
        broker.restart();
        (broker, clients)
    }

    /// Starts a broker with a second listener, on the port that is returned, for `users`, whose
    /// password is [`PASSWORD`], and with more settings, each on a line of its own.
    pub(crate) fn start_with_users(users: &[String], settings: &str) -> (Self, u16) {
        let (ports, clients) = (free_ports(), free_port());
        let user = |user: &String| format!(" user_{user}=\"{PASSWORD}\"");
        let users: String = users.iter().map(user).collect();
        // The last of several lines counts.
        let more = format!(
            "{}listener.name.clients.plain.sasl.jaas.config=\
             org.apache.kafka.common.security.plain.PlainLoginModule required{users};\n{settings}",
            listeners(ports, clients)
        );
        let broker = Self::start_at(&temp_dir(), ports, ports.0, Node::First, &more).unwrap();
        (broker, clients)
    }

    /// Starts a broker with two more listeners, which speak TLS with a certificate of `authority`:
    /// one asks for a password, the other for a certificate of the same authority. A login counts
    /// for some seconds only, then it has to be repeated.
    pub fn start_with_tls(authority: &Authority) -> (Self, SecurePorts) {
        Self::start_in_with_tls(&temp_dir(), authority).unwrap()
    }

    /// The same with its data in `parent`, for a benchmark.
    pub fn start_in_with_tls(
        parent: &Path,
        authority: &Authority,
    ) -> Result<(Self, SecurePorts), Error> {
        let (ports, secure) = (free_ports(), SecurePorts::free());
        let directory = temp_directory(parent)?;
        let own = server_properties(directory.path(), ports.0, ports.1, ports.0, Node::First);
        let more = secure.settings(ports, authority, directory.path())? + &login_limit();
        let broker = Self::prepare(directory, own + &more, ports, "-Xmx512m", &users())?;
        broker.run()?;
        Ok((broker, secure))
    }

    /// Starts a broker with one more listener, on the port that is returned, which speaks TLS and
    /// takes the tokens of `provider`.
    pub fn start_with_tokens(authority: &Authority, provider: &Provider) -> (Self, u16) {
        let (ports, clients) = (free_ports(), free_port());
        let directory = temp_directory(&temp_dir()).unwrap();
        let keys = format!("file://{}", provider.keys().display());
        let own = server_properties(directory.path(), ports.0, ports.1, ports.0, Node::First);
        let more = token_listener(ports, clients, authority, directory.path(), &keys).unwrap();
        let mut broker = Self::prepare(directory, own + &more, ports, "-Xmx512m", &[]).unwrap();
        broker.java.push(format!("-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"));
        broker.run().unwrap();
        (broker, clients)
    }

    /// Replaces the password, from the next start on.
    pub fn set_password(&self, password: &str) {
        let path = self.directory().join("server.properties");
        let mut settings = File::options().append(true).open(path).expect("it is there");
        let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
        // The last of several lines counts.
        let line = format!(
            "listener.name.clients.plain.sasl.jaas.config={module} required \
             user_app=\"{password}\";\n"
        );
        settings.write_all(line.as_bytes()).expect("it is writable");
    }

    /// `port` is what clients are told.
    fn start_at(
        parent: &Path,
        (own_port, controller_port): (u16, u16),
        port: u16,
        node: Node,
        more: &str,
    ) -> Result<Self, Error> {
        let directory = temp_directory(parent)?;
        let settings = server_properties(directory.path(), own_port, controller_port, port, node);
        let broker =
            Self::prepare(directory, settings + more, (port, controller_port), "-Xmx512m", &[])?;
        broker.run()?;
        Ok(broker)
    }

    /// A broker in `directory`, ready to start.
    fn prepare(
        directory: TempDir,
        settings: String,
        (port, controller_port): (u16, u16),
        heap: &str,
        users: &[String],
    ) -> Result<Self, Error> {
        let file = directory.path().join("server.properties");
        fs::write(&file, settings).map_err(Error::file("write", &file))?;
        format_storage(directory.path(), users)?;
        let admin = Admin::new(&format!("127.0.0.1:{port}"))?;
        let (directory, child) = (Mutex::new(Some(directory)), Mutex::new(None));
        let topics = OnceLock::new();
        let java = vec![heap.to_owned()];
        Ok(Self { directory, port, controller_port, java, child, admin, topics })
    }

    /// One of several brokers that are controllers, too: number `id`, from 1, of those whose ports
    /// for clients and for controllers are `ports`. Its data is in `parent`. It speaks TLS, too,
    /// and is not started yet.
    pub(crate) fn one_of(
        parent: &Path,
        id: usize,
        ports: &[(u16, u16)],
        settings: &str,
        (authority, secure): (&Authority, SecurePorts),
    ) -> Result<Self, Error> {
        let directory = temp_directory(parent)?;
        let (port, controller_port) = ports[id - 1];
        let own = server_properties(directory.path(), port, controller_port, port, Node::First);
        let voter = |(at, (_, port)): (usize, &(u16, u16))| format!("{}@127.0.0.1:{port}", at + 1);
        let voters = ports.iter().enumerate().map(voter).collect::<Vec<_>>().join(",");
        // The last of several lines counts.
        let tls = secure.settings(ports[id - 1], authority, directory.path())?;
        let more = format!("node.id={id}\ncontroller.quorum.voters={voters}\n{settings}{tls}");
        Self::prepare(directory, own + &more, (port, controller_port), "-Xmx256m", &users())
    }

    /// Lets clients with the id `client` write so many bytes a second and no more.
    pub fn limit_writing(&self, client: &str, bytes_a_second: f64) {
        requests::limit_writing(self.port, client, bytes_a_second).expect("it is there");
    }

    /// What clients connect to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What to write for `kafka.bootstrap.servers`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What the process has used since its start; zero while there is none.
    pub fn usage(&self) -> Usage {
        let pid = self.child.lock().as_ref().map(Child::id);
        pid.and_then(program::usage_of).unwrap_or_default()
    }

    /// Makes and deletes topics on this broker.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// Topics and records on this broker, for a test.
    pub fn topics(&self) -> &Topics {
        self.topics.get_or_init(|| Topics::new(&self.address()))
    }

    /// Ends the process at once, as a power failure would.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().take() {
            // An error here means that it had ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Makes it stand still: connections stay open, and nothing is answered.
    pub fn freeze(&self) {
        process::pause(self.child.lock().as_ref().expect("it runs"));
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        process::go_on(self.child.lock().as_ref().expect("it runs"));
    }

    /// Ends the process as an operator would, and waits for it.
    pub fn stop(&self) {
        let Some(mut child) = self.child.lock().take() else { return };
        process::terminate(&child);
        wait::until("the broker to stop", wait::SOON, || child.try_wait().expect("it is ours"));
    }

    /// Starts the process again on the same data and port, and waits until it answers.
    pub fn restart(&self) {
        self.run().unwrap();
    }

    fn run(&self) -> Result<(), Error> {
        self.launch()?;
        self.wait_until_ready()
    }

    /// Starts the process, and waits for nothing.
    pub(crate) fn launch(&self) -> Result<(), Error> {
        let directory = self.directory();
        let path = directory.join("broker.log");
        let log = File::options().create(true).append(true).open(&path);
        let log = log.map_err(Error::file("write", &path))?;
        let errors = log.try_clone().map_err(Error::file("share", &path))?;
        let mut java = java(&directory, &self.java)?;
        java.args(["kafka.Kafka", "server.properties"]).stdout(log).stderr(errors);
        let (program, remedy) = ("java".to_owned(), cache::JAVA_REMEDY.to_owned());
        let child = process::spawn(java);
        let child = child.map_err(|source| Error::Program { program, remedy, source })?;
        *self.child.lock() = Some(child);
        Ok(())
    }

    fn wait_until_ready(&self) -> Result<(), Error> {
        self.wait_until(|| self.admin.answers())
    }

    /// Waits until `is_ready`; fails at once if the process ends.
    pub(crate) fn wait_until(&self, is_ready: impl Fn() -> bool) -> Result<(), Error> {
        let deadline = wait::Deadline::after(START_LIMIT);
        while !is_ready() {
            if let Some(status) = self.child_status() {
                let (program, log) = ("Apache Kafka".to_owned(), self.log());
                return Err(Error::Ended { program, status, log });
            }
            if deadline.is_over() {
                let (brokers, waited_s) = (self.address(), START_LIMIT.as_secs());
                return Err(Error::BrokerSilent { brokers, waited_s });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn child_status(&self) -> Option<std::process::ExitStatus> {
        self.child.lock().as_mut().and_then(|child| child.try_wait().expect("it is ours"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory().join("broker.log")).unwrap_or_default()
    }

    fn directory(&self) -> PathBuf {
        let directory = self.directory.lock();
        directory.as_ref().expect("the directory stays until the end").path().to_owned()
    }

    /// Ends the process, and removes its data.
    pub(crate) fn discard(&self) {
        self.kill();
        drop(self.directory.lock().take());
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.discard();
    }
}

fn temp_directory(parent: &Path) -> Result<TempDir, Error> {
    let directory = tempfile::Builder::new().prefix("millstream-kafka-").tempdir_in(parent);
    directory.map_err(Error::file("make a directory in", parent))
}

/// `users` are those of SCRAM.
fn format_storage(directory: &Path, users: &[String]) -> Result<(), Error> {
    let mut format = java(directory, &["-Xmx256m".to_owned()])?;
    // Any cluster id will do: 16 bytes in URL-safe base64.
    format.args(["kafka.tools.StorageTool", "format", "--cluster-id", "bWlsbHN0cmVhbS10ZXN0cw"]);
    format.args(["--config", "server.properties"]);
    for user in users {
        format.args(["--add-scram", user]);
    }
    program::run("formatting the broker's storage", format, cache::JAVA_REMEDY)
}

/// Two ports nobody listens on. They are below those that the kernel hands out by itself: a server
/// may need half a minute to take its port, and many connections begin in that time.
pub(crate) fn free_ports() -> (u16, u16) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    // Other processes with tests begin elsewhere.
    let start = std::process::id().wrapping_mul(997);
    let free = || loop {
        let number = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + number).expect("it is below 32,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    };
    (free(), free())
}

/// A port of loopback that nobody listens on.
pub fn free_port() -> u16 {
    free_ports().0
}

/// Which broker of a cluster.
#[derive(Clone, Copy)]
enum Node {
    /// The one that is the controller, too.
    First,
    /// Another.
    Second,
}

/// The user of brokers with TLS.
pub const USER: &str = "app";
/// The password of that user.
pub const PASSWORD: &str = "pl4nted-one";
/// How long a login counts at a broker by itself, in milliseconds.
const LOGIN_MS: u32 = 4_000;

fn login_limit() -> String {
    ["scram-sha-512", "scram-sha-256", "plain"]
        .map(|name| format!("listener.name.password.{name}.connections.max.reauth.ms={LOGIN_MS}\n"))
        .concat()
}

/// The user, for SCRAM.
fn users() -> [String; 2] {
    ["SCRAM-SHA-512", "SCRAM-SHA-256"]
        .map(|name| format!("{name}=[name={USER},password={PASSWORD}]"))
}

/// Where a broker speaks TLS.
#[derive(Clone, Copy, Debug)]
pub struct SecurePorts {
    /// Asks for a user and a password, by SCRAM or PLAIN.
    pub password: u16,
    /// Where clients go who are to come to that one: the same, or a passage to it.
    pub told: u16,
    /// Asks for a certificate.
    pub certificate: u16,
}

impl SecurePorts {
    /// Ports that nobody listens on.
    pub(crate) fn free() -> Self {
        let (password, certificate) = free_ports();
        Self { password, told: password, certificate }
    }

    fn settings(
        self,
        (port, controller_port): (u16, u16),
        authority: &Authority,
        directory: &Path,
    ) -> Result<String, Error> {
        let files = authority.issue("IP:127.0.0.1,DNS:localhost")?;
        let read = |path: &Path| fs::read_to_string(path).map_err(Error::file("read", path));
        let own = directory.join("broker.pem");
        let both = read(&files.key)? + &read(&files.cert)?;
        fs::write(&own, both).map_err(Error::file("write", &own))?;
        let Self { password, told, certificate } = self;
        let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
        let plain = format!(
            "org.apache.kafka.common.security.plain.PlainLoginModule required \
             user_{USER}=\"{PASSWORD}\";"
        );
        let ours = "listener.name.password";
        Ok(format!(
            "listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},\
             PASSWORD://127.0.0.1:{password},CERTIFICATE://127.0.0.1:{certificate}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port},PASSWORD://127.0.0.1:{told},\
             CERTIFICATE://127.0.0.1:{certificate}\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,\
             PASSWORD:SASL_SSL,CERTIFICATE:SSL\n\
             ssl.keystore.type=PEM\n\
             ssl.keystore.location={}\n\
             ssl.truststore.type=PEM\n\
             ssl.truststore.location={}\n\
             listener.name.certificate.ssl.client.auth=required\n\
             {ours}.sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN\n\
             {ours}.scram-sha-512.sasl.jaas.config={scram}\n\
             {ours}.scram-sha-256.sasl.jaas.config={scram}\n\
             {ours}.plain.sasl.jaas.config={plain}\n",
            own.display(),
            files.ca.display(),
        ))
    }
}

/// Settings of a listener for users with a password, beside the one that the tests use.
fn listeners((port, controller_port): (u16, u16), clients: u16) -> String {
    format!(
        "listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},\
         CLIENTS://127.0.0.1:{clients}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port},CLIENTS://127.0.0.1:{clients}\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,\
         CLIENTS:SASL_PLAINTEXT\n\
         sasl.enabled.mechanisms=PLAIN\n\
         listener.name.clients.plain.sasl.jaas.config=\
         org.apache.kafka.common.security.plain.PlainLoginModule required;\n"
    )
}

/// Settings of a listener for tokens that are signed by one of the keys at the URL `keys`, and a
/// login counts for some seconds only. Kafka's default for them checks no signature.
fn token_listener(
    (port, controller_port): (u16, u16),
    clients: u16,
    authority: &Authority,
    directory: &Path,
    keys: &str,
) -> Result<String, Error> {
    let files = authority.issue("IP:127.0.0.1,DNS:localhost")?;
    let read = |path: &Path| fs::read_to_string(path).map_err(Error::file("read", path));
    let own = directory.join("broker.pem");
    let both = read(&files.key)? + &read(&files.cert)?;
    fs::write(&own, both).map_err(Error::file("write", &own))?;
    let ours = "listener.name.tokens";
    let code = "org.apache.kafka.common.security.oauthbearer";
    Ok(format!(
        "listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},\
         TOKENS://127.0.0.1:{clients}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port},TOKENS://127.0.0.1:{clients}\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TOKENS:SASL_SSL\n\
         ssl.keystore.type=PEM\n\
         ssl.keystore.location={}\n\
         {ours}.sasl.enabled.mechanisms=OAUTHBEARER\n\
         {ours}.oauthbearer.connections.max.reauth.ms={LOGIN_MS}\n\
         {ours}.oauthbearer.sasl.jaas.config={code}.OAuthBearerLoginModule required \
         unsecuredLoginStringClaim_sub=\"unused\";\n\
         {ours}.oauthbearer.sasl.server.callback.handler.class=\
         {code}.OAuthBearerValidatorCallbackHandler\n\
         {ours}.sasl.oauthbearer.jwt.validator.class={code}.BrokerJwtValidator\n\
         {ours}.sasl.oauthbearer.jwks.endpoint.url={keys}\n\
         {ours}.sasl.oauthbearer.expected.audience={AUDIENCE}\n\
         {ours}.sasl.oauthbearer.expected.issuer={ISSUER}\n",
        own.display(),
    ))
}

/// Nothing is kept for a limited time: records of tests and benchmarks bear dates of years ago, and
/// what takes longer than five minutes would lose them to retention.
fn server_properties(
    directory: &Path,
    port: u16,
    controller_port: u16,
    advertised_port: u16,
    node: Node,
) -> String {
    let data = directory.join("data");
    let (roles, id, controller) = match node {
        Node::First => {
            ("broker,controller", 1, format!(",CONTROLLER://127.0.0.1:{controller_port}"))
        }
        Node::Second => ("broker", 2, String::new()),
    };
    format!(
        "process.roles={roles}\n\
         node.id={id}\n\
         controller.quorum.voters=1@127.0.0.1:{controller_port}\n\
         listeners=PLAINTEXT://127.0.0.1:{port}{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{advertised_port}\n\
         controller.listener.names=CONTROLLER\n\
         inter.broker.listener.name=PLAINTEXT\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
         log.dirs={data}\n\
         auto.create.topics.enable=false\n\
         controlled.shutdown.enable=false\n\
         group.initial.rebalance.delay.ms=0\n\
         offsets.topic.num.partitions=1\n\
         offsets.topic.replication.factor=1\n\
         log.retention.ms=-1\n\
         transaction.state.log.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n",
        data = data.display()
    )
}
