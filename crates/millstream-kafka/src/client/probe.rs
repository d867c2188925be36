//! Why a broker that is connected to in plain text does not answer. librdkafka says nothing where
//! the port is one for TLS.

use std::io;

use super::settings::ClientSettings;
use crate::protocol::connection::Connection;
use crate::protocol::frame::API_VERSIONS;
use crate::protocol::requests;
use crate::protocol::responses::{self, Address};
use crate::protocol::security::Security;

const CLIENT: &str = "millstream";
const CLOSED: &str = "the broker closes connections in plain text; it may want TLS on this port: \
                      set 'kafka.security.protocol' to SSL or SASL_SSL, or check the port";

/// Asks one server after the other in plain text, and gives what speaks for a port with TLS.
/// Nothing where the settings say TLS, or where no server can be connected to. Blocks.
pub fn wants_tls(settings: &ClientSettings) -> Option<String> {
    let protocol = settings.get("security.protocol").unwrap_or("plaintext");
    if protocol.trim().to_ascii_lowercase().ends_with("ssl") {
        return None;
    }
    let servers = settings.servers().split(',').filter_map(Address::parse);
    servers.filter_map(|server| why_not_plain(&server)).next()
}

fn why_not_plain(server: &Address) -> Option<String> {
    let mut connection = Connection::open(server, CLIENT, &Security::default(), "").ok()?;
    let error = connection.ask(API_VERSIONS, requests::api_versions, responses::has_all).err()?;
    match error.kind() {
        io::ErrorKind::PermissionDenied => Some(error.to_string()),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Some(CLOSED.to_owned()),
        _ => None,
    }
}
