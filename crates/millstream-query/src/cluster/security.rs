//! What the parts of a cluster show each other: a token, and certificates.
//!
//! One token is known to all parts. Whoever is connected to has it in each request, and whoever
//! connects sends it. Ballista's client of a node's files offers no place for a header, except the
//! user agent of its connection. So connections of this project carry the token there, and it is
//! taken from there or from the header `authorization`, where other clients have it.
//!
//! With TLS each part that listens has a certificate, and each that connects checks the other's
//! against the certificates that it trusts ([`Tls`]). Neither a token nor a certificate is part of
//! a plan or of the settings that travel with it.

use std::fmt;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use ballista_core::extension::SessionConfigExt as _;
use ballista_core::utils::{GrpcServerConfig, create_grpc_server};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use datafusion::prelude::SessionConfig;
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Status};

use super::error::ClusterError;
use super::tls::{Tls, TlsFiles};

/// What the user agent of a connection begins with that carries a token.
const USER_AGENT: &str = "millstream-token:";

/// Within so many seconds an answer has to begin; a statement of many files is planned before.
const ANSWER_BEGINS_S: u64 = 600;
/// After so many seconds in which nothing has come over a connection, the other side is asked
/// whether it is still there.
const PING_S: u64 = 30;
/// Within so many seconds it has to say so.
const PING_ANSWERED_S: u64 = 20;

/// Some clients leave the padding out.
const PADDED_OR_NOT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret word that all parts of a cluster know.
#[derive(Clone)]
pub struct Token(Arc<str>);

/// The variable that has a cluster's token where no file has it.
const VARIABLE: &str = "MILLSTREAM_TOKEN";

impl Token {
    /// The token that is written as `text`, white space around it aside.
    ///
    /// # Errors
    /// [`ClusterError::TokenText`]: it is empty or has characters that no header of a request has.
    pub fn new(text: &str) -> Result<Self, ClusterError> {
        let text = text.trim();
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.is_empty() || !is_plain {
            Err(ClusterError::TokenText)
        } else {
            Ok(Self(text.into()))
        }
    }

    /// `given`, or else what `variable` gives of the environment; an empty value is none.
    ///
    /// # Errors
    /// As [`Token::new`].
    pub fn or_variable(
        given: Option<Self>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ClusterError> {
        let in_variable = || variable(VARIABLE).filter(|text| !text.is_empty());
        match given {
            Some(token) => Ok(Some(token)),
            None => in_variable().map(|text| Self::new(&text)).transpose(),
        }
    }

    /// The token itself.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Whether `given` is this token. Takes the same time wherever the two differ.
    fn is(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differ = |bits: u8, (a, b): (&u8, &u8)| black_box(bits | (a ^ b));
        own.len() == given.len() && own.iter().zip(given).fold(0, differ) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// How a part of a cluster proves itself to others, and what it asks of them.
#[derive(Clone, Debug, Default)]
pub struct Security {
    token: Option<Token>,
    tls: Option<Arc<Tls>>,
}

impl Security {
    /// What `token` and `files` say.
    ///
    /// # Errors
    /// Files that cannot be read, or that do not have what they should.
    pub fn new(token: Option<Token>, files: &TlsFiles) -> Result<Self, ClusterError> {
        let tls = Tls::read(files)?.map(Arc::new);
        Ok(Self { token, tls })
    }

    /// A token alone, if there is one: nothing is encrypted.
    pub fn token(token: Option<Token>) -> Self {
        Self { token, tls: None }
    }

    /// TLS, if it is on.
    pub(super) fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// The value of the header `authorization` that proves whoever sends it.
    pub fn authorization(&self) -> Option<String> {
        self.token.as_ref().map(|token| format!("Bearer {}", token.secret()))
    }

    /// Refuses to listen where others than this machine can connect, if it is open to everybody.
    ///
    /// # Errors
    /// [`ClusterError::Open`], and [`ClusterError::TlsHalf`] for a part that could connect to
    /// others by TLS, but not be connected to.
    pub fn check_listens(&self, address: SocketAddr) -> Result<(), ClusterError> {
        if self.tls.as_ref().is_some_and(|tls| tls.identity().is_none()) {
            return Err(ClusterError::TlsHalf);
        }
        if !address.ip().is_loopback() && self.token.is_none() {
            return Err(ClusterError::Open { address: address.to_string() });
        }
        Ok(())
    }

    /// Warns if others than this machine can connect to `address`, at which this part listens, and
    /// what is sent there is not encrypted. For the program, once.
    pub fn warn_unencrypted(&self, address: SocketAddr) {
        if !address.ip().is_loopback() && self.tls.is_none() {
            tracing::warn!(%address, "rows and the token are not encrypted on their way");
        }
    }

    /// Where a request to the part at `HOST:PORT` goes.
    ///
    /// # Errors
    /// An address that is none.
    pub(super) fn endpoint(&self, address: &str) -> Result<Endpoint, tonic::transport::Error> {
        self.connects(Endpoint::from_shared(format!("http://{address}"))?)
    }

    /// `endpoint` with what a connection needs.
    fn connects(&self, endpoint: Endpoint) -> Result<Endpoint, tonic::transport::Error> {
        let mut endpoint = endpoint;
        if let Some(tls) = &self.tls {
            // Ballista does not know everywhere that a cluster has TLS, and nothing is to be sent
            // without it.
            if endpoint.uri().scheme_str() != Some("https") {
                let authority = endpoint.uri().authority().map(ToString::to_string);
                let url = format!("https://{}", authority.unwrap_or_default());
                endpoint = Endpoint::from_shared(url)?;
            }
            endpoint = endpoint.tls_config(tls.client())?;
        }
        match &self.token {
            Some(token) => endpoint.user_agent(format!("{USER_AGENT}{}", token.secret())),
            None => Ok(endpoint),
        }
    }

    /// How Ballista's own clients connect.
    pub(super) fn connector(&self) -> ballista_core::extension::EndpointOverrideFn {
        let security = self.clone();
        Arc::new(move |endpoint| Ok(security.connects(endpoint)?))
    }

    /// `config`, by which tasks and clients connect to nodes. What is added to it does not travel.
    pub fn configured(&self, config: SessionConfig) -> SessionConfig {
        config
            .with_extension(Arc::new(self.clone()))
            .with_ballista_use_tls(self.tls.is_some())
            .with_ballista_override_create_grpc_client_endpoint(self.connector())
    }

    /// What a session that was [configured](Self::configured) with it has.
    pub(super) fn of(config: &SessionConfig) -> Self {
        config.get_extension::<Self>().map(|security| (*security).clone()).unwrap_or_default()
    }

    /// A server that takes connections as this part does.
    ///
    /// # Errors
    /// A certificate that does not fit its key.
    pub(super) fn server(&self) -> Result<Server, ClusterError> {
        let server = create_grpc_server(&GrpcServerConfig {
            timeout_seconds: ANSWER_BEGINS_S,
            http2_keepalive_interval_seconds: PING_S,
            http2_keepalive_timeout_seconds: PING_ANSWERED_S,
            ..GrpcServerConfig::default()
        });
        let Some(identity) = self.tls.as_ref().and_then(|tls| tls.identity()) else {
            return Ok(server);
        };
        let failed =
            |error: tonic::transport::Error| ClusterError::Tls { problem: error.to_string() };
        server.tls_config(identity).map_err(failed)
    }

    /// What asks requests for the token.
    pub fn guard(&self) -> Guard {
        Guard(self.token.clone())
    }
}

/// Refuses requests that do not have the token, if there is one.
#[derive(Clone, Debug)]
pub struct Guard(Option<Token>);

impl Guard {
    /// Whether a request may pass whose header of some name is `header(name)`.
    pub(super) fn admits<'a>(&self, header: impl Fn(&'static str) -> Option<&'a [u8]>) -> bool {
        let Some(token) = &self.0 else { return true };
        let by_agent = header("user-agent")
            .and_then(|agent| agent.strip_prefix(USER_AGENT.as_bytes()))
            .and_then(|agent| agent.split(|byte| *byte == b' ').next())
            .is_some_and(|given| token.is(given));
        by_agent || header("authorization").is_some_and(|value| admits_credentials(token, value))
    }

    /// Whether a request with these headers may pass.
    pub(super) fn admits_metadata(&self, metadata: &MetadataMap) -> bool {
        self.admits(|name| metadata.get(name).map(|value| value.as_bytes()))
    }
}

/// `Bearer TOKEN`, or `Basic` with any user's name and the token as password.
fn admits_credentials(token: &Token, value: &[u8]) -> bool {
    let Some(space) = value.iter().position(|byte| *byte == b' ') else { return false };
    let (scheme, rest) = (&value[..space], value[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return token.is(rest);
    }
    let decoded = PADDED_OR_NOT.decode(rest).unwrap_or_default();
    let password = decoded.splitn(2, |byte| *byte == b':').nth(1);
    scheme.eq_ignore_ascii_case(b"basic") && password.is_some_and(|given| token.is(given))
}

impl Interceptor for Guard {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        if self.admits_metadata(request.metadata()) {
            return Ok(request);
        }
        Err(Status::unauthenticated("the token is missing or wrong"))
    }
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};

    use super::*;

    fn guard() -> Guard {
        Security::token(Some(Token::new(" s3cret\n").expect("it is a token"))).guard()
    }

    fn admits(name: &'static str, value: &str) -> bool {
        guard().admits(|asked| (asked == name).then_some(value.as_bytes()))
    }

    #[test]
    fn a_token_is_taken_from_where_clients_have_it() {
        assert!(admits("authorization", "Bearer s3cret"));
        assert!(admits("authorization", "bearer  s3cret"));
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        assert!(admits("authorization", &basic("anybody:s3cret")));
        let unpadded = format!("Basic {}", BASE64_STANDARD_NO_PAD.encode("any:s3cret"));
        assert!(admits("authorization", &unpadded));
        assert!(admits("user-agent", "millstream-token:s3cret tonic/1"));
        for (name, value) in [
            ("authorization", ""),
            ("authorization", "s3cret"),
            ("authorization", "Bearer s3cre"),
            ("authorization", "Bearer s3creT"),
            ("authorization", "Bearer s3cret2"),
            ("authorization", "Bearer "),
            ("authorization", "Basic s3cret"),
            ("user-agent", "s3cret"),
            ("user-agent", "millstream-token: tonic/1"),
            ("x-token", "s3cret"),
        ] {
            assert!(!admits(name, value), "{name}: {value}");
        }
        assert!(!admits("authorization", &basic("s3cret")));
        assert!(!admits("authorization", &basic("s3cret:other")));
        assert!(Security::default().guard().admits(|_| None));
    }

    #[test]
    fn a_token_is_a_word_and_is_never_shown() {
        for text in ["", " ", "a b", "ä", "a\nb"] {
            assert!(matches!(Token::new(text), Err(ClusterError::TokenText)), "{text}");
        }
        let token = Token::new("s3cret").expect("it is a token");
        let security = Security::token(Some(token));
        let config =
            security.configured(super::super::settings::cluster_config(SessionConfig::new()));
        let travels = format!("{:?}", config.options().entries());
        for shown in [format!("{security:?} {:?}", security.guard()), travels] {
            assert!(!shown.contains("s3cret"), "{shown}");
        }
        assert!(Security::of(&config).token.is_some());
    }

    #[test]
    fn what_others_can_connect_to_needs_a_token() {
        let anywhere: SocketAddr = "0.0.0.0:1".parse().expect("an address");
        let here: SocketAddr = "[::1]:1".parse().expect("an address");
        let open = Security::default();
        assert!(matches!(open.check_listens(anywhere), Err(ClusterError::Open { .. })));
        assert!(open.check_listens(here).is_ok());
        let token = Security::token(Some(Token::new("x").expect("it is a token")));
        assert!(token.check_listens(anywhere).is_ok());
    }
}
