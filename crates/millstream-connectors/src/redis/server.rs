//! Where the server is, and how to connect to it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_engine::api::needs::Need;
use millstream_engine::api::options::{OptionError, Options};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, TlsCertificates,
};

use super::error::RedisProblem;

const PORT: u16 = 6379;
const TIMEOUT_MS: u64 = 10_000;

/// The server that a table's options name. Nothing is connected yet.
#[derive(Clone)]
pub(super) struct Server {
    addr: ConnectionAddr,
    redis: RedisConnectionInfo,
    /// How long an answer may take before the connection is given up.
    timeout: Duration,
    certificates: Certificates,
}

/// Files in PEM that TLS uses; without them the system's certificates count.
#[derive(Clone, Default)]
struct Certificates {
    root: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
}

impl Server {
    /// Reads `url`, or `host`, `port` and the other options that spark-redis has.
    ///
    /// # Errors
    /// A value that cannot be read, or two that contradict each other.
    pub(super) fn parse(options: &Options, base_dir: &Path) -> Result<Self, OptionError> {
        let timeout = options.parse("timeout", "a number of milliseconds")?.unwrap_or(TIMEOUT_MS);
        if timeout == 0 {
            return Err(OptionError::invalid("timeout", "0", "a number of milliseconds"));
        }
        let (addr, redis) = match options.get("url") {
            Some(url) => from_url(options, url)?,
            None => from_parts(options)?,
        };
        let certificates = certificates(options, base_dir)?;
        let has_tls = matches!(addr, ConnectionAddr::TcpTls { .. });
        if !has_tls && (certificates.root.is_some() || certificates.client.is_some()) {
            let problem = "certificates are given, but the connection is without TLS";
            let help = "set 'ssl' = 'true', or write rediss:// in 'url'".to_owned();
            return Err(OptionError::table(problem, Some(help)));
        }
        Ok(Self { addr, redis, timeout: Duration::from_millis(timeout), certificates })
    }

    /// The address and the database, for people.
    pub(super) fn shown(&self) -> String {
        match self.redis.db() {
            0 => self.addr.to_string(),
            database => format!("{} (database {database})", self.addr),
        }
    }

    /// The server itself, and what a connection needs.
    pub(super) fn needs(&self) -> Vec<Need> {
        let mut needs = vec![Need::server(self.addr.to_string(), "Redis")];
        let Certificates { root, client } = &self.certificates;
        let own = client.iter().flat_map(|(certificate, key)| [certificate, key]);
        let files = root.iter().chain(own);
        needs.extend(files.map(|path| Need::reads(path.display(), "the connection's TLS")));
        if self.redis.db() != 0 {
            let database = format!("database {}", self.redis.db());
            needs.push(Need::rights(&["SELECT"], database, "'dbNum'"));
        }
        needs
    }

    /// How long an answer may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What connections are made with; reads the certificates.
    ///
    /// # Errors
    /// A certificate cannot be read.
    pub(super) fn client(&self) -> Result<Client, RedisProblem> {
        let info = self.info()?;
        let wrong = |error| RedisProblem::Settings { server: self.shown(), error };
        if !matches!(self.addr, ConnectionAddr::TcpTls { .. }) {
            return Client::open(info).map_err(wrong);
        }
        Client::build_with_tls(info, self.tls()?).map_err(wrong)
    }

    /// What connections to all servers of the cluster are made with. The server is one of them.
    ///
    /// # Errors
    /// The client refuses the settings.
    pub(super) fn cluster_client(&self) -> Result<ClusterClient, RedisError> {
        let unread = |problem: RedisProblem| {
            RedisError::from((ErrorKind::InvalidClientConfig, "TLS", problem.to_string()))
        };
        let info = self.info().map_err(unread)?;
        let mut builder = ClusterClientBuilder::new([info])
            .connection_timeout(self.timeout)
            .response_timeout(self.timeout);
        if matches!(self.addr, ConnectionAddr::TcpTls { .. }) {
            builder = builder.certs(self.tls().map_err(unread)?);
        }
        builder.build()
    }

    /// The time limits of one connection.
    pub(super) fn limits(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout))
    }

    fn info(&self) -> Result<ConnectionInfo, RedisProblem> {
        let wrong = |error| RedisProblem::Settings { server: self.shown(), error };
        let info = self.addr.clone().into_connection_info().map_err(wrong)?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        Ok(info.set_redis_settings(self.redis.clone()).set_tcp_settings(tcp))
    }

    fn tls(&self) -> Result<TlsCertificates, RedisProblem> {
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map_err(|error| RedisProblem::Certificate { path: path.clone(), error })
        };
        let client_tls = match &self.certificates.client {
            Some((certificate, key)) => {
                Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
            }
            None => None,
        };
        let root_cert = self.certificates.root.as_ref().map(read).transpose()?;
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

/// What whoever works with a cluster needs besides.
pub(super) fn of_cluster() -> Need {
    Need::rights(&["CLUSTER|SLOTS", "PING"], "each server", "only in a cluster")
}

fn from_url(
    options: &Options,
    url: &str,
) -> Result<(ConnectionAddr, RedisConnectionInfo), OptionError> {
    let parts = ["host", "port", "user", "auth", "dbNum", "ssl"];
    if let Some(part) = parts.into_iter().find(|part| options.get(part).is_some()) {
        let problem = format!("'url' and '{part}' are both given");
        let help = format!("leave '{part}' out, and write it in the URL");
        return Err(OptionError::of(part, problem, Some(help)));
    }
    let wanted = "redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// with TLS";
    let refused = || {
        // The URL itself may contain a password.
        OptionError::of("url", format!("'url' should be {wanted}"), None)
    };
    let is_ours = ["redis://", "rediss://", "valkey://", "valkeys://"];
    if !is_ours.iter().any(|scheme| url.starts_with(scheme)) || url.contains('#') {
        return Err(refused());
    }
    let info = url.into_connection_info().map_err(|_| refused())?;
    Ok((info.addr().clone(), info.redis_settings().clone()))
}

fn from_parts(options: &Options) -> Result<(ConnectionAddr, RedisConnectionInfo), OptionError> {
    let host = options.get("host").unwrap_or("localhost").trim().to_owned();
    if host.is_empty() || host.contains(['/', '@']) {
        // The text itself may contain a password, as in a URL.
        let problem = "'host' should be the name or address of a server, and nothing else";
        let help = "write a URL into 'url', and the password into 'auth'".to_owned();
        return Err(OptionError::of("host", problem, Some(help)));
    }
    let port = options.parse("port", "a port number")?.unwrap_or(PORT);
    let addr = match options.parse_bool("ssl")?.unwrap_or(false) {
        false => ConnectionAddr::Tcp(host, port),
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    };
    let database = options.parse::<u32>("dbNum", "the number of a database")?.unwrap_or(0);
    let mut redis = RedisConnectionInfo::default().set_db(i64::from(database));
    if let Some(user) = options.get("user") {
        redis = redis.set_username(user);
    }
    if let Some(password) = options.get("auth") {
        redis = redis.set_password(password);
    } else if options.get("user").is_some() {
        let help = "set 'auth', the user's password".to_owned();
        return Err(OptionError::of("user", "'user' is given without 'auth'", Some(help)));
    }
    Ok((addr, redis))
}

fn certificates(options: &Options, base_dir: &Path) -> Result<Certificates, OptionError> {
    let path = |key: &str| options.get(key).map(|text| crate::paths::resolve(base_dir, text));
    let [certificate, key] = ["ssl.certificate.location", "ssl.key.location"];
    let client = match (path(certificate), path(key)) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            let problem = format!("'{certificate}' and '{key}' belong together");
            return Err(OptionError::table(problem, None));
        }
    };
    Ok(Certificates { root: path("ssl.ca.location"), client })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_refused_is_not_shown() {
        for host in ["user:pl4nted@server", "redis://:pl4nted@server", "server/pl4nted"] {
            let options = Options::new([("host".to_owned(), host.to_owned())]);
            let refused = Server::parse(&options, Path::new("")).err().expect("it is no host");
            assert!(!refused.to_string().contains("pl4nted"), "{refused}");
        }
    }
}
