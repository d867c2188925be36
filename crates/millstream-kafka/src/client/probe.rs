//! Why a broker that is connected to in plain text does not answer. librdkafka says nothing where
//! the port is one for TLS.

use super::settings::ClientSettings;
use crate::protocol::connection::Connection;
use crate::protocol::frame::API_VERSIONS;
use crate::protocol::refusal::Refusal;
use crate::protocol::requests;
use crate::protocol::responses::{self, Address};
use crate::protocol::security::Security;

const CLIENT: &str = "millstream";
/// Asks the first server that can be connected to in plain text, and gives what speaks for a port
/// with TLS. Nothing where the settings say TLS, or where no server can be connected to. Blocks.
pub fn wants_tls(settings: &ClientSettings) -> Option<String> {
    let protocol = settings.get("security.protocol").unwrap_or("plaintext");
    if protocol.trim().to_ascii_lowercase().ends_with("ssl") {
        return None;
    }
    let servers = settings.servers().split(',').filter_map(Address::parse);
    let open = |server| Connection::open(&server, CLIENT, &Security::default(), "").ok();
    let mut connection = servers.filter_map(open).next()?;
    let error =
        connection.ask(API_VERSIONS, requests::api_versions, responses::api_versions).err()?;
    let refusal = error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>());
    refusal.map(ToString::to_string)
}
