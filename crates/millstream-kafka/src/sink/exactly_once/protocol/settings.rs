//! Which `kafka.*` settings the protocol client understands. With any other one, librdkafka writes.

use std::time::Duration;

use crate::brokers::settings::{ConnectionSettings, NotSpoken, is_of_connections};
use crate::client::settings::{ClientSettings, Implementation, RECORD_BYTES_MAX};
use crate::protocol::compression::Compression;

/// librdkafka's default.
const BATCH_BYTES_MAX: usize = 1_000_000;
/// Settings that may be set only to the values that the protocol client uses anyway.
const FIXED: [(&str, &[&str]); 4] = [
    ("acks", &["all", "-1"]),
    ("request.required.acks", &["all", "-1"]),
    ("enable.idempotence", &["true"]),
    ("partitioner", &["murmur2_random"]),
];
/// Settings of transactions and batches, beside those of every connection.
const READ: [&str; 5] = [
    "transaction.timeout.ms",
    "message.max.bytes",
    "batch.size",
    "compression.type",
    "compression.codec",
];
/// Settings of how librdkafka gathers records and repeats requests. The protocol client has a
/// micro-batch as a whole, and needs none of that.
const WITHOUT_EFFECT: [&str; 14] = [
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
    "message.timeout.ms",
    "delivery.timeout.ms",
    "client.rack",
];

/// What the protocol client needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolSettings {
    /// How connections are made.
    pub connections: ConnectionSettings,
    /// How long a transaction may be open.
    pub timeout: Duration,
    /// The largest record.
    pub record_bytes_max: usize,
    /// The largest batch of several records.
    pub batch_bytes_max: usize,
    /// How batches are compressed.
    pub compression: Compression,
}

impl ProtocolSettings {
    /// The settings, unless librdkafka is `wanted`.
    ///
    /// # Errors
    /// It is, or only librdkafka has one of them.
    pub fn of(settings: &ClientSettings, wanted: Implementation) -> Result<Self, NotSpoken> {
        if wanted == Implementation::Librdkafka {
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
        Ok(Self {
            connections: ConnectionSettings::of(settings)?,
            timeout: settings.transaction_timeout(),
            record_bytes_max,
            batch_bytes_max,
            compression: compression.ok_or_else(|| not("compression.type"))?,
        })
    }
}

fn is_known((key, value): (&str, &str)) -> bool {
    let value = value.trim().to_ascii_lowercase();
    is_of_connections(key)
        || READ.contains(&key)
        || WITHOUT_EFFECT.contains(&key)
        || FIXED.iter().any(|(fixed, values)| *fixed == key && values.contains(&value.as_str()))
}

#[cfg(test)]
mod tests {
    use millstream_engine::api::options::Options;

    use super::*;
    use crate::client::settings::Use;
    #[cfg(feature = "tls")]
    use crate::protocol::tls::{Pem, Tls};

    fn parse(entries: &[(&str, &str)]) -> Result<ProtocolSettings, NotSpoken> {
        let servers = [("kafka.bootstrap.servers", "a:1, b,[::1]:7")];
        let entries = servers.iter().chain(entries);
        let entries = entries.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let settings = ClientSettings::parse(&Options::new(entries), Use::Producer).unwrap();
        ProtocolSettings::of(&settings, settings.transactions())
    }

    #[test]
    fn plain_settings_are_understood() {
        let settings = parse(&[("kafka.acks", "all"), ("kafka.message.max.bytes", "5000")]);
        let settings = settings.unwrap();
        assert_eq!((settings.record_bytes_max, settings.batch_bytes_max), (5_000, 5_000));
        let servers = settings.connections.servers.iter().map(|at| (at.host.as_str(), at.port));
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
        assert!(settings.connections.security.tls.is_none());
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
        let security = settings.unwrap().connections.security;
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
