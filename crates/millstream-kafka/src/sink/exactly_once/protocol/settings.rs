//! Which `kafka.*` settings the protocol client understands. With any other one, librdkafka writes.

use std::time::Duration;

use crate::client::settings::{ClientSettings, RECORD_BYTES_MAX, Transactions};
use crate::protocol::responses::Address;

const PORT: u16 = 9092;
/// librdkafka's default.
const BATCH_BYTES_MAX: usize = 1_000_000;
/// Settings that may be set only to the values that the protocol client uses anyway.
const FIXED: [(&str, &[&str]); 8] = [
    ("acks", &["all", "-1"]),
    ("request.required.acks", &["all", "-1"]),
    ("enable.idempotence", &["true"]),
    ("security.protocol", &["plaintext"]),
    ("compression.type", &["none"]),
    ("compression.codec", &["none"]),
    ("linger.ms", &["0"]),
    ("partitioner", &["murmur2_random"]),
];
const READ: [&str; 5] =
    ["bootstrap.servers", "client.id", "transaction.timeout.ms", "message.max.bytes", "batch.size"];

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
}

impl ProtocolSettings {
    /// The settings, if there is none among them that only librdkafka has.
    pub fn of(settings: &ClientSettings) -> Option<Self> {
        if settings.transactions() == Transactions::Librdkafka || !settings.all().all(is_known) {
            return None;
        }
        let bytes = |key: &str, default: usize| match settings.get(key) {
            Some(text) => text.trim().parse().ok(),
            None => Some(default),
        };
        let record_bytes_max = bytes("message.max.bytes", RECORD_BYTES_MAX)?;
        let batch_bytes_max = bytes("batch.size", BATCH_BYTES_MAX)?.min(record_bytes_max);
        Some(Self {
            servers: settings.servers().split(',').map(address).collect::<Option<_>>()?,
            client: settings.get("client.id").unwrap_or("millstream").to_owned(),
            timeout: settings.transaction_timeout(),
            record_bytes_max,
            batch_bytes_max,
        })
    }
}

fn is_known((key, value): (&str, &str)) -> bool {
    let value = value.trim().to_ascii_lowercase();
    READ.contains(&key)
        || FIXED.iter().any(|(fixed, values)| *fixed == key && values.contains(&value.as_str()))
}

/// `host`, `host:port` or `[address]:port`.
fn address(text: &str) -> Option<Address> {
    let text = text.trim();
    if text.is_empty() || text.contains("//") {
        return None;
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (text, PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(Address { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use millstream_engine::api::options::Options;

    use super::*;
    use crate::client::settings::Use;

    fn parse(entries: &[(&str, &str)]) -> Option<ProtocolSettings> {
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
        for other in [
            ("kafka.security.protocol", "SASL_PLAINTEXT"),
            ("kafka.compression.type", "lz4"),
            ("kafka.linger.ms", "5"),
            ("kafka.socket.keepalive.enable", "true"),
            ("kafka.millstream.transactions", "librdkafka"),
        ] {
            assert_eq!(parse(&[other]), None, "{other:?}");
        }
        for protocol in ["protocol", "own"] {
            assert!(parse(&[("kafka.millstream.transactions", protocol)]).is_some());
        }
    }
}
