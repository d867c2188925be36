//! How connections to brokers are made: the settings of a client that say so, and which of them are
//! understood without librdkafka.

use crate::client::settings::ClientSettings;
use crate::protocol::login::{Login, Mechanism};
use crate::protocol::responses::Address;
use crate::protocol::security::Security;
use crate::protocol::tls::{Pem, Tls};
use crate::tokens::Tokens;

const READ: [&str; 15] = [
    "bootstrap.servers",
    "client.id",
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
];
/// How librdkafka keeps its connections. Here a connection is made when it is needed, and made anew
/// when it is lost.
const WITHOUT_EFFECT: [&str; 13] = [
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "request.timeout.ms",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "socket.connection.setup.timeout.ms",
    "connections.max.idle.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "metadata.max.age.ms",
    "topic.metadata.refresh.interval.ms",
];
/// The header of a request has the length of the client's name in two bytes, with a sign.
const CLIENT_BYTES_MAX: usize = i16::MAX as usize;
/// The same for all clients.
const STATISTICS: &str = "statistics.interval.ms";

/// What is needed to speak to brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// Where to ask first.
    pub servers: Vec<Address>,
    /// The name the brokers know the client by.
    pub client: String,
    /// How connections are made; a login by a token is added to each.
    pub security: Security,
    /// Who gives tokens, where users are known by them.
    pub tokens: Option<Tokens>,
}

/// Why librdkafka has to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSpoken {
    /// The options say so.
    Wanted,
    /// This setting is not understood here, or not with this value.
    Setting(String),
}

impl NotSpoken {
    /// The reason in words, if it has to be told: not where the options say so themselves.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Wanted => None,
            Self::Setting(key) => Some(format!("only librdkafka has 'kafka.{key}' as it is set")),
        }
    }
}

/// Says that librdkafka serves `table`, and why. `does` is what it does.
pub fn warn_of_librdkafka(table: &str, does: &str, reason: &str) {
    tracing::warn!(
        table,
        reason,
        "librdkafka {does}, and not Millstream's own client; \
        'kafka.millstream.client' = 'librdkafka' says that this is meant"
    );
}

impl ConnectionSettings {
    /// Those of a client.
    ///
    /// # Errors
    /// Only librdkafka has one of them.
    pub fn of(settings: &ClientSettings) -> Result<Self, NotSpoken> {
        let servers = settings.servers().split(',').map(Address::parse).collect::<Option<_>>();
        let client = settings.get("client.id").unwrap_or("millstream");
        if client.len() > CLIENT_BYTES_MAX {
            return Err(NotSpoken::Setting("client.id".to_owned()));
        }
        Ok(Self {
            servers: servers.ok_or_else(|| NotSpoken::Setting("bootstrap.servers".to_owned()))?,
            client: client.to_owned(),
            security: security(settings)?,
            tokens: settings.tokens().cloned(),
        })
    }
}

/// True for a setting that [`ConnectionSettings`] understands, or that has no effect on them.
pub fn is_of_connections(key: &str) -> bool {
    READ.contains(&key) || WITHOUT_EFFECT.contains(&key) || key == STATISTICS
}

fn security(settings: &ClientSettings) -> Result<Security, NotSpoken> {
    let protocol = settings.get("security.protocol").unwrap_or("plaintext");
    let (has_tls, has_login) = match protocol.trim().to_ascii_lowercase().as_str() {
        "plaintext" => (false, false),
        "ssl" => (true, false),
        "sasl_plaintext" => (false, true),
        "sasl_ssl" => (true, true),
        _ => return Err(NotSpoken::Setting("security.protocol".to_owned())),
    };
    let login = match has_login && settings.tokens().is_none() {
        true => Some(login(settings).map_err(|key| NotSpoken::Setting(key.to_owned()))?),
        false => None,
    };
    Ok(Security { tls: has_tls.then(|| tls(settings)), login })
}

/// The user, or the setting that is missing or not understood.
fn login(settings: &ClientSettings) -> Result<Login, &'static str> {
    let mechanism = settings.get("sasl.mechanism").or(settings.get("sasl.mechanisms"));
    let text = |key| settings.get(key).map(str::to_owned).ok_or(key);
    Ok(Login::Password {
        mechanism: mechanism.and_then(Mechanism::named).ok_or("sasl.mechanism")?,
        user: text("sasl.username")?,
        password: text("sasl.password")?,
    })
}

fn tls(settings: &ClientSettings) -> Tls {
    let pem = |text: &str, location: &str| {
        let text = settings.get(text).map(|text| Pem::Text(text.to_owned()));
        text.or_else(|| Some(Pem::At(settings.get(location)?.into())))
    };
    // What librdkafka looks for by itself are the system's authorities.
    let authorities = pem("ssl.ca.pem", "ssl.ca.location");
    let authorities = authorities.filter(|pem| *pem != Pem::At("probe".into()));
    let certificate = pem("ssl.certificate.pem", "ssl.certificate.location");
    let is = |key, values: &[&str]| {
        let text = settings.get(key).map(|text| text.trim().to_ascii_lowercase());
        text.is_some_and(|text| values.contains(&text.as_str()))
    };
    Tls {
        authorities,
        own: certificate.zip(pem("ssl.key.pem", "ssl.key.location")),
        checks_names: !is("ssl.endpoint.identification.algorithm", &["none"]),
        checks_certificates: !is("enable.ssl.certificate.verification", &["false", "f", "0"]),
    }
}
