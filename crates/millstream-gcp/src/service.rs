//! Where a service of Google Cloud is, and a connection to it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use millstream_engine::api::needs::Need;
use millstream_engine::api::options::{OptionError, Options};
use millstream_store::env::Env;
use millstream_store::error::{Classified, Kind};
use thiserror::Error;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use crate::credentials::{Credentials, CredentialsError, Place};

/// How long a connection may take, and again its TLS handshake.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// How often a connection without traffic is looked at, and how long the answer may take: a peer
/// that is gone without a word is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_PATIENCE: Duration = Duration::from_secs(15);

/// Where a service is, and whose credentials open it.
#[derive(Clone, Debug)]
pub struct Service {
    /// `https://host`, or `http://host:port` of an emulator.
    pub url: String,
    /// `None` for an emulator, which asks nobody.
    pub credentials: Option<Place>,
}

/// `HOST:PORT` of a URL; the URL itself where it has none.
pub fn host_and_port(url: &str) -> String {
    let parsed = url::Url::parse(url).ok();
    let address = parsed
        .as_ref()
        .and_then(|url| Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?)));
    address.unwrap_or_else(|| url.to_owned())
}

impl Service {
    /// What the option `endpoint` says, else the variable of an emulator (as `HOST:PORT`), else
    /// `default`, the service itself, for which `place` has the credentials.
    ///
    /// # Errors
    /// The option is no URL.
    pub fn parse(
        options: &Options,
        emulator_variable: &str,
        default: &str,
        place: Place,
    ) -> Result<Self, OptionError> {
        let emulator = std::env::var(emulator_variable).ok().filter(|host| !host.is_empty());
        let (key, url) = match (options.get("endpoint"), emulator) {
            (Some(url), _) => ("endpoint", url.to_owned()),
            (None, Some(host)) if host.contains("://") => (emulator_variable, host),
            (None, Some(host)) => (emulator_variable, format!("http://{host}")),
            (None, None) => ("endpoint", default.to_owned()),
        };
        let parsed = url::Url::parse(&url).ok();
        let scheme = parsed.as_ref().filter(|url| url.has_host()).map(|url| url.scheme());
        let credentials = match scheme {
            Some("https") => Some(place),
            Some("http") => None,
            _ => {
                let wanted = "https://HOST, or http://HOST:PORT of an emulator";
                return Err(OptionError::invalid(key, &url, wanted));
            }
        };
        Ok(Self { url, credentials })
    }

    /// The service, and what getting a token for it needs.
    pub fn needs(&self) -> Vec<Need> {
        let mut needs = vec![Need::server(host_and_port(&self.url), "the service")];
        needs.extend(self.credentials.iter().flat_map(Place::needs));
        needs
    }

    /// A connection, made when it is first used and made again when it breaks.
    ///
    /// # Errors
    /// The credentials cannot be read, or the system has no certificates.
    pub fn connect(&self, env: &Env) -> Result<Connection, ServiceError> {
        self.connect_within(CONNECT_PATIENCE, env)
    }

    fn connect_within(&self, patience: Duration, env: &Env) -> Result<Connection, ServiceError> {
        let wrong = |problem: String| ServiceError::Url { url: self.url.clone(), problem };
        let endpoint = Endpoint::from_shared(self.url.clone());
        let endpoint = endpoint.map_err(|error| wrong(error.to_string()))?;
        let mut endpoint = endpoint
            .user_agent(concat!("millstream/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| wrong(error.to_string()))?
            .connect_timeout(patience)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_PATIENCE)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        if self.url.starts_with("https://") {
            let tls = tls()?.timeout(patience);
            endpoint = endpoint.tls_config(tls).map_err(|error| wrong(error.to_string()))?;
        }
        let credentials = match &self.credentials {
            Some(place) => Some(Arc::new(Credentials::read(place, env)?)),
            None => None,
        };
        Ok(Connection { channel: endpoint.connect_lazy(), credentials, env: env.clone() })
    }
}

/// The system's authorities. (The feature of tonic that reads them would build it once more for
/// the rest of the product.)
fn tls() -> Result<ClientTlsConfig, ServiceError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let problem = found.errors.first().map(ToString::to_string);
        return Err(ServiceError::NoAuthorities { problem: problem.unwrap_or_default() });
    }
    let pem = |der: &[u8]| {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    };
    let authorities = found.certs.iter().map(|der| Certificate::from_pem(pem(der)));
    Ok(ClientTlsConfig::new().ca_certificates(authorities))
}

/// A connection to a service. Clones share it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// For the generated clients.
    pub channel: Channel,
    credentials: Option<Arc<Credentials>>,
    env: Env,
}

impl Connection {
    /// What a call answers, whose request was made with the same `patience`. (That a request says
    /// how long it may take does not bound how long it waits for a connection.)
    ///
    /// # Errors
    /// The call's own, or that there was no answer.
    pub async fn within<T>(
        &self,
        patience: Duration,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        tokio::select! {
            biased;
            answer = call => answer,
            () = self.env.sleep(patience) => {
                let said = format!("no answer within {} s", patience.as_secs_f64());
                Err(Status::deadline_exceeded(said))
            }
        }
    }

    /// A request that says who asks, and that may take so long: see [`within`](Self::within).
    ///
    /// # Errors
    /// There is no token.
    pub async fn request<T>(
        &self,
        message: T,
        patience: Duration,
    ) -> Result<Request<T>, CredentialsError> {
        let mut request = self.stream_request(message).await?;
        request.set_timeout(patience);
        Ok(request)
    }

    /// A request for a stream, which may take as long as it wants.
    ///
    /// # Errors
    /// There is no token.
    pub async fn stream_request<T>(&self, message: T) -> Result<Request<T>, CredentialsError> {
        let mut request = Request::new(message);
        if let Some(credentials) = &self.credentials {
            let text = format!("Bearer {}", credentials.token().await?);
            let mut value: MetadataValue<_> =
                text.parse().map_err(|_| CredentialsError::Refused {
                    account: credentials.account(),
                    problem: "the token is not one that a header can hold".to_owned(),
                })?;
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }

    /// A token for a request that is not gRPC; `None` where nobody asks who asks.
    ///
    /// # Errors
    /// There is none to be had.
    pub async fn token(&self) -> Result<Option<String>, CredentialsError> {
        match &self.credentials {
            Some(credentials) => credentials.token().await.map(Some),
            None => Ok(None),
        }
    }

    /// To be called with every error: a token that a service refuses is not used again.
    pub fn refused(&self, status: &Status) {
        if status.code() == tonic::Code::Unauthenticated
            && let Some(credentials) = &self.credentials
        {
            credentials.forget();
        }
    }

    /// The project of the credentials, if they say it.
    pub fn project(&self) -> Option<&str> {
        self.credentials.as_ref()?.project()
    }

    /// Whose credentials it has, for messages.
    pub fn account(&self) -> String {
        self.credentials.as_ref().map_or_else(|| "nobody".to_owned(), |own| own.account())
    }
}

/// Why there is no connection.
#[derive(Clone, Debug, Error)]
pub enum ServiceError {
    /// The address is none.
    #[error("{url} cannot be connected to: {problem}")]
    Url {
        /// The address.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// The machine has no certificates.
    #[error(
        "this machine has no certificates of authorities, so no server can be trusted: install \
         them (Debian: ca-certificates), or set SSL_CERT_FILE. {problem}"
    )]
    NoAuthorities {
        /// What was said while looking.
        problem: String,
    },
    /// There are no credentials.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl Classified for ServiceError {
    fn kind(&self) -> Kind {
        match self {
            Self::Url { .. } | Self::NoAuthorities { .. } => Kind::Config,
            Self::Credentials(error) => error.kind(),
        }
    }
}

#[cfg(test)]
mod tests {
    use googleapis_tonic_google_pubsub_v1::google::pubsub::v1 as pb;
    use pb::subscriber_client::SubscriberClient;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_that_accepts_and_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let env = Env::real();
        let silent = env.spawn("silent", async move {
            let mut accepted = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                accepted.push(stream);
            }
        });
        let service =
            |scheme: &str| Service { url: format!("{scheme}://{address}"), credentials: None };
        let patience = Duration::from_millis(300);
        // The handshake of TLS, of a call without an end of its own.
        let connection = service("https").connect_within(patience, &env);
        let connection = connection.expect("nobody is asked yet");
        let request =
            connection.stream_request(futures::stream::pending::<pb::StreamingPullRequest>()).await;
        let request = request.expect("nobody asks who asks");
        let mut stub = SubscriberClient::new(connection.channel.clone());
        tokio::select! {
            answer = stub.streaming_pull(request) => assert!(answer.is_err()),
            () = env.sleep(Duration::from_secs(20)) => panic!("it waits for ever"),
        }
        // A connection that is there, and a call.
        let connection = service("http").connect(&env).expect("nobody is asked yet");
        let message = pb::AcknowledgeRequest::default();
        let request = connection.request(message, Duration::from_secs(600)).await;
        let request = request.expect("nobody asks who asks");
        let mut stub = SubscriberClient::new(connection.channel.clone());
        let answer = connection.within(patience, stub.acknowledge(request)).await;
        assert_eq!(answer.expect_err("there is none").code(), tonic::Code::DeadlineExceeded);
        silent.abort();
    }
}
