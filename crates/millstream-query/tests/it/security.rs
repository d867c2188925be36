//! Every port of a cluster with the right token and certificate, and without.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow_flight::Action;
use arrow_flight::flight_service_client::FlightServiceClient;
use ballista_core::serde::protobuf::GetJobStatusParams;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use millstream_query::cluster::node::{self, Listeners, Node, NodeSettings};
use millstream_query::cluster::remote::{Reached, Runners};
use millstream_query::cluster::security::{Security, Token};
use millstream_query::cluster::tls::TlsFiles;
use millstream_query::cluster::transport::RunnerAddress;
use millstream_query::error::QueryError;
use millstream_query::state::Limits;
use millstream_store::env::{Env, Task};
use millstream_testkit::certificates::{Authority, Files};

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::lake::{answer, events, session};
use crate::remote::{QUERIES, listener, start_coordinator, start_runner};

/// What a part is set up with.
pub struct Setup {
    directory: TempDir,
    right: Files,
    other: Files,
}

impl Setup {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let issued = |name: &str| {
            let authority = Authority::new(&directory.path().join(name)).unwrap();
            authority.issue("IP:127.0.0.1").unwrap()
        };
        let (right, other) = (issued("right"), issued("other"));
        Self { directory, right, other }
    }

    pub fn security(&self, token: Option<&str>, files: Option<&Files>) -> Security {
        let token = token.map(|token| Token::new(token).expect("it is a token"));
        let files = files.map_or_else(TlsFiles::default, |files| TlsFiles {
            cert: Some(files.cert.clone()),
            key: Some(files.key.clone()),
            ca: Some(files.ca.clone()),
        });
        Security::new(token, &files).expect("the files are right")
    }
}

/// A part's port.
enum Port {
    Coordinator,
    Files,
    Proxy,
    Runner,
    /// Where answers are pushed, each under a key of its own.
    Inbox,
}

/// A cluster with TLS and a token: two nodes, and a runner.
struct Cluster {
    coordinator: String,
    ports: Vec<(Port, String)>,
    nodes: Vec<Node>,
    tasks: Vec<Task<()>>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.tasks.iter().for_each(Task::abort);
    }
}

impl Cluster {
    async fn start(setup: &Setup, security: &Security) -> Self {
        let env = Env::real();
        let (coordinator, serving) = start_coordinator(&env, security).await;
        let (runner, running) = start_runner(&env, &setup.directory, 0, security).await;
        let ports = vec![(Port::Coordinator, coordinator.clone()), (Port::Runner, runner.clone())];
        let tasks = vec![serving, running];
        let mut cluster = Self { coordinator, ports, nodes: Vec::new(), tasks };
        for number in 0..2 {
            let (files, proxy, inbox) = (listener().await, listener().await, listener().await);
            let address = |listener: &TcpListener| listener.local_addr().expect("one").to_string();
            cluster.ports.push((Port::Files, address(&files)));
            cluster.ports.push((Port::Proxy, address(&proxy)));
            cluster.ports.push((Port::Inbox, address(&inbox)));
            let settings = settings(setup, &cluster.coordinator, &runner, number, security);
            let listeners = Listeners { files, proxy, inbox: Some(inbox) };
            let node = node::start(&env, settings, listeners).await.expect("a node");
            cluster.nodes.push(node);
        }
        cluster
    }

    fn done(&self) -> usize {
        let counts = self.nodes.iter().filter_map(|node| node.counts.as_ref());
        counts.map(|counts| counts.done.load(Ordering::Relaxed)).sum()
    }
}

fn settings(
    setup: &Setup,
    coordinator: &str,
    runner: &str,
    number: usize,
    security: &Security,
) -> NodeSettings {
    let runners = Runners {
        addresses: vec![RunnerAddress::Http(runner.to_owned())],
        security: security.clone(),
        // Most answers are longer, and are pushed.
        inline_bytes_max: Some(300),
        reached: Reached::default(),
    };
    NodeSettings {
        coordinator: coordinator.to_owned(),
        limits: Limits { partitions: 2, memory_bytes: None, spill_directory: None },
        directory: setup.directory.path().join(format!("node-{number}")),
        host: "127.0.0.1".to_owned(),
        security: security.clone(),
        runners: Some((runners, 2)),
        cache: None,
    }
}

/// A node whose runner does not answer.
pub async fn node_of(setup: &Setup, coordinator: &str, security: &Security) -> Node {
    let settings = settings(setup, coordinator, "127.0.0.1:1", 0, security);
    let listeners = Listeners { files: listener().await, proxy: listener().await, inbox: None };
    node::start(&Env::real(), settings, listeners).await.expect("a node")
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It was served, or refused for what it asks.
    Admitted,
    /// It was refused for its token.
    Unauthenticated,
    /// No connection came about, or the request was not understood.
    Failed,
}

/// How a port is tried.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    token: Option<&'a str>,
    authority: Option<&'a Files>,
}

impl Attempt<'_> {
    async fn at(self, port: &Port, address: &str) -> Outcome {
        let trying = async {
            match port {
                Port::Runner => self.by_http("/task", address).await,
                Port::Inbox => self.by_http("/answer", address).await,
                Port::Coordinator | Port::Files | Port::Proxy => self.by_grpc(port, address).await,
            }
        };
        let limit = Duration::from_secs(20);
        tokio::time::timeout(limit, trying).await.unwrap_or(Outcome::Failed)
    }

    async fn by_grpc(self, port: &Port, address: &str) -> Outcome {
        let Ok(channel) = self.channel(address).await else { return Outcome::Failed };
        let answered = match port {
            Port::Coordinator => {
                let job = GetJobStatusParams { job_id: "none".to_owned() };
                SchedulerGrpcClient::new(channel).get_job_status(job).await.map(|_| ())
            }
            _ => {
                let action = Action { r#type: "none".to_owned(), body: "x".into() };
                FlightServiceClient::new(channel).do_action(action).await.map(|_| ())
            }
        };
        match answered {
            Ok(()) => Outcome::Admitted,
            Err(status) => match status.code() {
                Code::Unauthenticated => Outcome::Unauthenticated,
                // What Flight says of actions that it does not know.
                Code::InvalidArgument | Code::Unimplemented => Outcome::Admitted,
                _ => Outcome::Failed,
            },
        }
    }

    async fn channel(self, address: &str) -> Result<Channel, Box<dyn std::error::Error>> {
        let mut endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        if let Some(files) = self.authority {
            let ca = Certificate::from_pem(std::fs::read(&files.ca)?);
            endpoint = Endpoint::from_shared(format!("https://{address}"))?
                .tls_config(ClientTlsConfig::new().ca_certificate(ca))?;
        }
        if let Some(token) = self.token {
            endpoint = endpoint.user_agent(format!("millstream-token:{token}"))?;
        }
        Ok(endpoint.connect().await?)
    }

    async fn by_http(self, path: &str, address: &str) -> Outcome {
        let Ok(stream) = TcpStream::connect(address).await else { return Outcome::Failed };
        let Some(files) = self.authority else { return self.post(path, stream).await };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&files.ca).expect("a file") {
            roots.add(certificate.expect("a certificate")).expect("it is one of an authority");
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let address: SocketAddr = address.parse().expect("an address");
        let name = ServerName::from(address.ip());
        match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
            Ok(stream) => self.post(path, stream).await,
            Err(_) => Outcome::Failed,
        }
    }

    async fn post(self, path: &str, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Outcome {
        let token = self.token.map(|token| format!("authorization: Bearer {token}\r\n"));
        let token = token.unwrap_or_default();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{token}content-length: 0\r\n\r\n"
        );
        let mut answer = Vec::new();
        if stream.write_all(request.as_bytes()).await.is_err() {
            return Outcome::Failed;
        }
        // TLS that is not closed as it should be is an error after the answer.
        let _ = stream.read_to_end(&mut answer).await;
        match answer.get(9..12) {
            Some(b"401") => Outcome::Unauthenticated,
            // An empty message is no task.
            Some(b"500") => Outcome::Admitted,
            _ => Outcome::Failed,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_port_serves_who_has_the_token_and_trusts_the_authority() {
    let setup = Setup::new();
    let security = setup.security(Some("secret"), Some(&setup.right));
    let cluster = Cluster::start(&setup, &security).await;
    let right = Attempt { token: Some("secret"), authority: Some(&setup.right) };
    for (port, address) in &cluster.ports {
        for (attempt, expected) in [
            (right, Outcome::Admitted),
            (Attempt { token: Some("secreT"), ..right }, Outcome::Unauthenticated),
            (Attempt { token: None, ..right }, Outcome::Unauthenticated),
            (Attempt { authority: Some(&setup.other), ..right }, Outcome::Failed),
            (Attempt { authority: None, ..right }, Outcome::Failed),
        ] {
            // The token of the cluster is no key.
            let is_key = matches!((port, &expected), (Port::Inbox, Outcome::Admitted));
            let expected = if is_key { Outcome::Unauthenticated } else { expected };
            assert_eq!(attempt.at(port, address).await, expected, "{address}");
        }
    }
    let lake = events();
    let here = session(lake.path());
    for text in QUERIES {
        let expected = answer(&here, text).await.expect("it runs here");
        for stages in ["none", "scan, group by"] {
            let before = cluster.done();
            let mut session = session(lake.path());
            session.run_on(&cluster.coordinator, &security);
            session.set("millstream.remote.stages", stages).expect("a setting");
            let given = answer(&session, text).await.unwrap_or_else(|error| panic!("{error:?}"));
            assert_eq!(given, expected, "{stages}: {text}");
            assert_eq!(cluster.done() > before, stages != "none", "{stages}");
        }
    }
    let counts = cluster.nodes.iter().filter_map(|node| node.counts.as_ref());
    let pushed: usize = counts.map(|counts| counts.pushed.load(Ordering::Relaxed)).sum();
    assert!(pushed > 0, "no answer was pushed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_and_nodes_that_are_not_of_the_cluster_are_refused() {
    let setup = Setup::new();
    let right = setup.security(Some("secret"), Some(&setup.right));
    let cluster = Cluster::start(&setup, &right).await;
    let lake = events();
    for (token, files, said) in [
        (Some("wrong"), Some(&setup.right), "refuses the token"),
        (None, Some(&setup.right), "refuses the token"),
        (Some("secret"), Some(&setup.other), "does not answer"),
        (Some("secret"), None, "does not answer"),
    ] {
        let security = setup.security(token, files);
        let mut session = session(lake.path());
        session.run_on(&cluster.coordinator, &security);
        let error = answer(&session, QUERIES[0]).await.expect_err("a refusal");
        let settings = settings(&setup, &cluster.coordinator, "127.0.0.1:1", 9, &security);
        let (files, proxy) = (listener().await, listener().await);
        let listeners = Listeners { files, proxy, inbox: None };
        let node = node::start(&Env::real(), settings, listeners).await;
        let refused = node.err().expect("a refusal");
        for error in [error, refused] {
            let QueryError::Failure(failure) = &error else { panic!("{error:?}") };
            let problem = format!("{failure} {error:?}");
            assert!(problem.contains(said), "{problem}");
            assert!(!problem.contains("secret"), "{problem}");
        }
    }
}
