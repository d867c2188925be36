//! Which `kafka.*` settings the protocol client understands. With any other one, librdkafka writes.

use std::time::Duration;

use crate::client::settings::{ClientSettings, RECORD_BYTES_MAX, Transactions};
use crate::protocol::compression::Compression;
use crate::protocol::login::{Login, Mechanism};
use crate::protocol::responses::Address;
use crate::protocol::security::Security;
use crate::protocol::tls::{Pem, Tls};
use crate::tokens::Tokens;

/// librdkafka's default.
const BATCH_BYTES_MAX: usize = 1_000_000;
/// Settings that may be set only to the values that the protocol client uses anyway.
const FIXED: [(&str, &[&str]); 4] = [
    ("acks", &["all", "-1"]),
    ("request.required.acks", &["all", "-1"]),
    ("enable.idempotence", &["true"]),
    ("partitioner", &["murmur2_random"]),
];
const READ: [&str; 21] = [
    "bootstrap.servers",
    "client.id",
    "transaction.timeout.ms",
    "message.max.bytes",
    "batch.size",
    "compression.type",
    "compression.codec",
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
    "client.rack",
];
/// Settings of how librdkafka gathers records, keeps connections and repeats requests. The protocol
/// client has a micro-batch as a whole, and needs none of that.
const WITHOUT_EFFECT: [&str; 27] = [
    "linger.ms",
    "queue.buffering.max.ms",
    "queue.buffering.max.messages",
    "queue.buffering.max.kbytes",
    "queue.buffering.backpressure.threshold",
    "batch.num.messages",
    "sticky.partitioning.linger.ms",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "retries",
    "message.send.max.retries",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "request.timeout.ms",
    "message.timeout.ms",
    "delivery.timeout.ms",
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
    "statistics.interval.ms",
];

/// What the protocol client needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolSettings {
    /// Where to ask first.
    pub servers: Vec<Address>,
    /// The name the brokers know the client by.
    pub client: String,
    /// How long a transaction may be open.
    pub timeout: Duration,
    /// The largest record.
    pub record_bytes_max: usize,
    /// The largest batch of several records.
    pub batch_bytes_max: usize,
    /// How batches are compressed.
    pub compression: Compression,
    /// How connections are made; a login by a token is added to each.
    pub security: Security,
    /// Who gives tokens, where users are known by them.
    pub tokens: Option<Tokens>,
}

/// Why librdkafka writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSpoken {
    /// The options say so.
    Wanted,
    /// This setting is not understood here, or not with this value.
    Setting(String),
}

impl ProtocolSettings {
    /// The settings.
    ///
    /// # Errors
    /// Only librdkafka has one of them.
    pub fn of(settings: &ClientSettings) -> Result<Self, NotSpoken> {
        if settings.transactions() == Transactions::Librdkafka {
            return Err(NotSpoken::Wanted);
        }
        if let Some((key, _)) = settings.all().find(|setting| !is_known(*setting)) {
            return Err(NotSpoken::Setting(key.to_owned()));
        }
        let not = |key: &str| NotSpoken::Setting(key.to_owned());
        let bytes = |key: &str, default: usize| match settings.get(key) {
            Some(text) => text.trim().parse().map_err(|_| not(key)),
            None => Ok(default),
        };
        let record_bytes_max = bytes("message.max.bytes", RECORD_BYTES_MAX)?;
        let batch_bytes_max = bytes("batch.size", BATCH_BYTES_MAX)?.min(record_bytes_max);
        let compression = settings.get("compression.type").or(settings.get("compression.codec"));
        let compression = compression.map_or(Some(Compression::None), Compression::named);
        let servers = settings.servers().split(',').map(Address::parse).collect::<Option<_>>();
        Ok(Self {
            servers: servers.ok_or_else(|| not("bootstrap.servers"))?,
            client: settings.get("client.id").unwrap_or("millstream").to_owned(),
            timeout: settings.transaction_timeout(),
            record_bytes_max,
            batch_bytes_max,
            compression: compression.ok_or_else(|| not("compression.type"))?,
            security: security(settings)?,
            tokens: settings.tokens().cloned(),
        })
    }
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

fn is_known((key, value): (&str, &str)) -> bool {
    let value = value.trim().to_ascii_lowercase();
    READ.contains(&key)
        || WITHOUT_EFFECT.contains(&key)
        || FIXED.iter().any(|(fixed, values)| *fixed == key && values.contains(&value.as_str()))
}

#[cfg(test)]
mod tests {
    use millstream_engine::api::options::Options;

    use super::*;
    use crate::client::settings::Use;

    fn parse(entries: &[(&str, &str)]) -> Result<ProtocolSettings, NotSpoken> {
        let servers = [("kafka.bootstrap.servers", "a:1, b,[::1]:7")];
        let entries = servers.iter().chain(entries);
        let entries = entries.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let settings = ClientSettings::parse(&Options::new(entries), Use::Producer).unwrap();
        ProtocolSettings::of(&settings)
    }

    #[test]
    fn plain_settings_are_understood() {
        let settings = parse(&[("kafka.acks", "all"), ("kafka.message.max.bytes", "5000")]);
        let settings = settings.unwrap();
        assert_eq!((settings.record_bytes_max, settings.batch_bytes_max), (5_000, 5_000));
        let servers = settings.servers.iter().map(|at| (at.host.as_str(), at.port));
        assert!(servers.eq([("a", 1), ("b", 9092), ("::1", 7)]));
    }

    #[test]
    fn everything_else_is_librdkafkas() {
        for (other, reason) in [
            (("kafka.partitioner", "random"), "partitioner"),
            (
                ("kafka.client.dns.lookup", "resolve_canonical_bootstrap_servers_only"),
                "client.dns.lookup",
            ),
        ] {
            assert_eq!(parse(&[other]), Err(NotSpoken::Setting(reason.to_owned())));
        }
        let wanted = ("kafka.millstream.transactions", "librdkafka");
        assert_eq!(parse(&[wanted]), Err(NotSpoken::Wanted));
        for protocol in ["protocol", "own"] {
            assert!(parse(&[("kafka.millstream.transactions", protocol)]).is_ok());
        }
    }

    #[test]
    fn compression_and_users_are_understood() {
        let settings = parse(&[
            ("kafka.compression.type", "zstd"),
            ("kafka.linger.ms", "5"),
            ("kafka.security.protocol", "sasl_plaintext"),
            ("kafka.sasl.mechanism", "PLAIN"),
            ("kafka.sasl.username", "ann"),
            ("kafka.sasl.password", "pl4nted"),
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.compression, Compression::Zstd);
        assert!(settings.security.tls.is_none());
        let shown = format!("{settings:?}");
        assert!(shown.contains("PLAIN as ann") && !shown.contains("pl4nted"), "{shown}");
        let without_user =
            [("kafka.security.protocol", "SASL_PLAINTEXT"), ("kafka.sasl.mechanism", "PLAIN")];
        assert_eq!(parse(&without_user), Err(NotSpoken::Setting("sasl.username".to_owned())));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_understood() {
        let settings = parse(&[
            ("kafka.security.protocol", "SASL_SSL"),
            ("kafka.sasl.mechanism", "SCRAM-SHA-512"),
            ("kafka.sasl.username", "ann"),
            ("kafka.sasl.password", "pl4nted"),
            ("kafka.ssl.ca.location", "/ca.pem"),
            ("kafka.ssl.certificate.location", "/own.pem"),
            ("kafka.ssl.key.location", "/own.key"),
            ("kafka.ssl.endpoint.identification.algorithm", "none"),
        ]);
        let security = settings.unwrap().security;
        let tls = Tls {
            authorities: Some(Pem::At("/ca.pem".into())),
            own: Some((Pem::At("/own.pem".into()), Pem::At("/own.key".into()))),
            checks_names: false,
            checks_certificates: true,
        };
        assert_eq!(security.tls, Some(tls));
        let password = ("kafka.ssl.key.password", "pl4nted");
        let refused = NotSpoken::Setting("ssl.key.password".to_owned());
        assert_eq!(parse(&[("kafka.security.protocol", "SSL"), password]), Err(refused));
    }
}
