//! Where the cluster is, who asks, and a session with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_engine::api::needs::Need;
use millstream_engine::api::options::{OptionError, Options};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::frame::types::Consistency;

use crate::error::{CassandraProblem, login_refusal};

const HOST: &str = "spark.cassandra.connection.host";
const PORT: &str = "spark.cassandra.connection.port";
const LOCAL_DC: &str = "spark.cassandra.connection.localDC";
const CONNECT_TIMEOUT: &str = "spark.cassandra.connection.timeoutMS";
const REQUEST_TIMEOUT: &str = "spark.cassandra.read.timeoutMS";
const USERNAME: &str = "spark.cassandra.auth.username";
const PASSWORD: &str = "spark.cassandra.auth.password";
const READ_CONSISTENCY: &str = "spark.cassandra.input.consistency.level";
const CONSISTENCY: &str = "spark.cassandra.output.consistency.level";
const SSL: &str = "spark.cassandra.connection.ssl.enabled";
const AUTHORITY: &str = "ssl.ca.location";
const CERTIFICATE: &str = "ssl.certificate.location";
const KEY: &str = "ssl.key.location";

const DEFAULT_PORT: u16 = 9042;
const CONNECT_TIMEOUT_MS: u64 = 5_000;
const REQUEST_TIMEOUT_MS: u64 = 12_000;
/// Between two questions whether a connection that says nothing is still there.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The levels that there are.
const LEVELS: [(&str, Consistency); 9] = [
    ("ANY", Consistency::Any),
    ("ONE", Consistency::One),
    ("TWO", Consistency::Two),
    ("THREE", Consistency::Three),
    ("QUORUM", Consistency::Quorum),
    ("ALL", Consistency::All),
    ("LOCAL_QUORUM", Consistency::LocalQuorum),
    ("EACH_QUORUM", Consistency::EachQuorum),
    ("LOCAL_ONE", Consistency::LocalOne),
];

/// The levels that only a write may ask for.
const OF_WRITES: [Consistency; 2] = [Consistency::Any, Consistency::EachQuorum];

/// The cluster that a table's options name. Nothing is connected yet.
#[derive(Clone)]
pub(crate) struct Server {
    /// Nodes, as HOST:PORT; the others are found through them.
    nodes: Vec<String>,
    local_dc: Option<String>,
    login: Option<(String, String)>,
    consistency: Consistency,
    connect_timeout: Duration,
    request_timeout: Duration,
    /// The files of TLS; `None` without TLS.
    tls: Option<Tls>,
}

/// Files in PEM that TLS uses; without them the system's authorities count.
#[derive(Clone, Default, PartialEq, Eq)]
struct Tls {
    authority: Option<PathBuf>,
    own: Option<(PathBuf, PathBuf)>,
}

impl Server {
    /// Reads the options of Spark's connector that say where a cluster is.
    ///
    /// # Errors
    /// A value that cannot be read, or two that contradict each other.
    pub(crate) fn parse(options: &Options, base_dir: &Path) -> Result<Self, OptionError> {
        let milliseconds = |key, default| {
            let wanted = "a number of milliseconds, 1 or more";
            match options.parse(key, wanted)?.unwrap_or(default) {
                0 => Err(OptionError::invalid(key, "0", wanted)),
                some => Ok(Duration::from_millis(some)),
            }
        };
        Ok(Self {
            nodes: nodes(options)?,
            local_dc: options.get(LOCAL_DC).map(|name| name.trim().to_owned()),
            login: login(options)?,
            consistency: level(options, CONSISTENCY, &[])?,
            connect_timeout: milliseconds(CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS)?,
            request_timeout: milliseconds(REQUEST_TIMEOUT, REQUEST_TIMEOUT_MS)?,
            tls: tls(options, base_dir)?,
        })
    }

    /// The nodes, and the files of TLS.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let purpose = "nodes that are asked first; all nodes of the cluster must be reachable, too";
        let nodes = self.nodes.iter().map(|node| Need::server(node, purpose));
        let files = self.tls.iter().flat_map(|tls| {
            let own = tls.own.iter().flat_map(|(certificate, key)| [certificate, key]);
            tls.authority.iter().chain(own)
        });
        let files = files.map(|path| Need::reads(path.display(), "the connection's TLS"));
        nodes.chain(files).collect()
    }

    /// As [`Self::parse`], for requests that read.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(crate) fn parse_for_reading(
        options: &Options,
        base_dir: &Path,
    ) -> Result<Self, OptionError> {
        let consistency = level(options, READ_CONSISTENCY, &OF_WRITES)?;
        Ok(Self { consistency, ..Self::parse(options, base_dir)? })
    }

    /// The addresses, for people.
    pub(crate) fn shown(&self) -> String {
        self.nodes.join(", ")
    }

    /// Connects, and reads what the cluster says of itself and of `keyspace`.
    ///
    /// # Errors
    /// Nobody answers, or the user is refused, or the data center is not there.
    pub(crate) async fn connect(&self, keyspace: &str) -> Result<Session, CassandraProblem> {
        let profile = ExecutionProfile::builder()
            .consistency(self.consistency)
            .request_timeout(Some(self.request_timeout))
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(&self.nodes)
            .connection_timeout(self.connect_timeout)
            .keepalive_interval(KEEPALIVE)
            .keepalive_timeout(self.request_timeout.max(KEEPALIVE))
            .keyspaces_to_fetch([keyspace])
            .fetch_full_schema_metadata(true)
            .default_execution_profile_handle(profile.into_handle());
        if let Some((user, password)) = &self.login {
            builder = builder.user(user, password);
        }
        if let Some(name) = &self.local_dc {
            builder = builder.prefer_datacenter(name.clone());
        }
        builder = self.with_tls(builder)?;
        let session = builder.build().await.map_err(|error| {
            let server = self.shown();
            match login_refusal(&error) {
                Some(reason) => CassandraProblem::Login { server, reason },
                None => CassandraProblem::Unconnected { server, error: Box::new(error) },
            }
        })?;
        self.check_data_center(&session)?;
        Ok(session)
    }

    fn check_data_center(&self, session: &Session) -> Result<(), CassandraProblem> {
        let state = session.get_cluster_state();
        let nodes = state.get_nodes_info();
        let mut known: Vec<&str> =
            nodes.iter().filter_map(|node| node.datacenter.as_deref()).collect();
        known.sort_unstable();
        known.dedup();
        match &self.local_dc {
            Some(wanted) if !known.contains(&wanted.as_str()) => {
                Err(CassandraProblem::DataCenter {
                    server: self.shown(),
                    wanted: wanted.clone(),
                    known: known.join(", "),
                })
            }
            None if known.len() > 1 => {
                tracing::warn!(
                    data_centers = known.join(", "),
                    "the cluster has several data centers: name the one that is near in \
                     '{LOCAL_DC}', else requests go to all of them"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    #[cfg(not(feature = "tls"))]
    fn with_tls(&self, builder: SessionBuilder) -> Result<SessionBuilder, CassandraProblem> {
        debug_assert!(self.tls.is_none(), "refused when the options were read");
        Ok(builder)
    }

    #[cfg(feature = "tls")]
    fn with_tls(&self, builder: SessionBuilder) -> Result<SessionBuilder, CassandraProblem> {
        use openssl::ssl::{SslConnector, SslFiletype, SslMethod};
        use scylla::client::session::OpenSsl010Config;

        let Some(tls) = &self.tls else { return Ok(builder) };
        let wrong = |path: &Path| {
            let path = path.to_owned();
            move |error: openssl::error::ErrorStack| CassandraProblem::Certificate {
                path,
                problem: format!("cannot be used for TLS: {error}"),
            }
        };
        let mut context =
            SslConnector::builder(SslMethod::tls_client()).map_err(wrong(Path::new("OpenSSL")))?;
        if let Some(authority) = &tls.authority {
            context.set_ca_file(authority).map_err(wrong(authority))?;
        }
        if let Some((certificate, key)) = &tls.own {
            context.set_certificate_chain_file(certificate).map_err(wrong(certificate))?;
            context.set_private_key_file(key, SslFiletype::PEM).map_err(wrong(key))?;
            context.check_private_key().map_err(wrong(key))?;
        }
        Ok(builder.tls_context(Some(OpenSsl010Config::new(context))))
    }
}

fn nodes(options: &Options) -> Result<Vec<String>, OptionError> {
    let port = match options.parse(PORT, "a port number")? {
        Some(0) => return Err(OptionError::invalid(PORT, "0", "a port number")),
        port => port.unwrap_or(DEFAULT_PORT),
    };
    let text = options.get(HOST).unwrap_or("localhost");
    let mut nodes = Vec::new();
    for host in text.split(',').map(str::trim) {
        if host.is_empty() || host.contains(['/', '@']) {
            // The text itself may contain a password, as in a URL.
            let problem = format!("'{HOST}' should be names or addresses, separated by commas");
            let help = format!("the password belongs in '{PASSWORD}', the port in '{PORT}'");
            return Err(OptionError::of(HOST, problem, Some(help)));
        }
        let is_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
        let has_port =
            !is_v6 && host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        nodes.push(match (has_port, is_v6) {
            (true, _) => host.to_owned(),
            (false, true) => format!("[{host}]:{port}"),
            (false, false) => format!("{host}:{port}"),
        });
    }
    Ok(nodes)
}

fn login(options: &Options) -> Result<Option<(String, String)>, OptionError> {
    match (options.get(USERNAME), options.get(PASSWORD)) {
        (Some(user), Some(password)) => Ok(Some((user.to_owned(), password.to_owned()))),
        (None, None) => Ok(None),
        (user, _) => {
            let (given, other) =
                if user.is_some() { (USERNAME, PASSWORD) } else { (PASSWORD, USERNAME) };
            let problem = format!("'{given}' is given without '{other}'");
            Err(OptionError::of(given, problem, Some(format!("set '{other}'"))))
        }
    }
}

/// The level that an option asks for, which is none of `refused`.
fn level(
    options: &Options,
    key: &str,
    refused: &[Consistency],
) -> Result<Consistency, OptionError> {
    let Some(text) = options.get(key) else { return Ok(Consistency::LocalQuorum) };
    let name = text.trim().to_ascii_uppercase();
    let levels = LEVELS.iter().filter(|(_, level)| !refused.contains(level));
    if let Some((_, level)) = levels.clone().find(|(of, _)| *of == name) {
        return Ok(*level);
    }
    let names: Vec<&str> = levels.map(|(name, _)| *name).collect();
    Err(OptionError::invalid(key, text, &format!("one of {}", names.join(", "))))
}

fn tls(options: &Options, base_dir: &Path) -> Result<Option<Tls>, OptionError> {
    let path = |key: &str| options.get(key).map(|text| base_dir.join(text));
    let own = match (path(CERTIFICATE), path(KEY)) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            let problem = format!("'{CERTIFICATE}' and '{KEY}' belong together");
            return Err(OptionError::table(problem, None));
        }
    };
    let tls = Tls { authority: path(AUTHORITY), own };
    if !options.parse_bool(SSL)?.unwrap_or(false) {
        return match tls == Tls::default() {
            true => Ok(None),
            false => {
                let problem = "certificates are given, but the connection is without TLS";
                Err(OptionError::table(problem, Some(format!("set '{SSL}' = 'true'"))))
            }
        };
    }
    if cfg!(not(feature = "tls")) {
        let problem = "this build has no TLS for Cassandra";
        let help = "build it with --features cassandra-tls, which is a default".to_owned();
        return Err(OptionError::of(SSL, problem, Some(help)));
    }
    Ok(Some(tls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: &[(&str, &str)]) -> Result<Server, OptionError> {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Server::parse(&Options::new(options), Path::new("/base"))
    }

    #[test]
    fn nodes_are_listed_with_their_ports() {
        let nodes = |options: &[(&str, &str)]| parsed(options).expect("they can be read").nodes;
        assert_eq!(nodes(&[]), ["localhost:9042"]);
        let listed = [(HOST, "a, 10.0.0.1:9999,::1"), (PORT, "1234")];
        assert_eq!(nodes(&listed), ["a:1234", "10.0.0.1:9999", "[::1]:1234"]);
    }

    #[test]
    fn what_is_refused_is_named_and_no_password_is_shown() {
        for (options, wanted) in [
            (&[(HOST, "user:pl4nted@server")][..], "names or addresses"),
            (&[(PORT, "0")], "a port number"),
            (&[(USERNAME, "u")], "without 'spark.cassandra.auth.password'"),
            (&[(PASSWORD, "pl4nted")], "without 'spark.cassandra.auth.username'"),
            (&[(CONSISTENCY, "SERIAL")], "one of ANY, ONE"),
            (&[(REQUEST_TIMEOUT, "0")], "1 or more"),
            (&[(AUTHORITY, "ca.pem")], "without TLS"),
            (&[(CERTIFICATE, "c.pem"), (SSL, "true")], "belong together"),
        ] {
            let refused = parsed(options).err().unwrap_or_else(|| panic!("{options:?}"));
            let refused = refused.to_string();
            assert!(refused.contains(wanted) && !refused.contains("pl4nted"), "{refused}");
        }
    }

    #[test]
    fn levels_have_no_case() {
        let server = parsed(&[(CONSISTENCY, "local_one")]).expect("it is one");
        assert_eq!(server.consistency, Consistency::LocalOne);
        assert_eq!(parsed(&[]).expect("defaults").consistency, Consistency::LocalQuorum);
    }
}
