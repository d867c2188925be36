//! Which requests there are, in which versions, and the header and length around each.

use super::read::ResponseReader;
use super::write::Writer;

/// A kind of request, and the version of it that is spoken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    /// Kafka's number of it.
    pub key: i16,
    /// The version.
    pub version: i16,
}

/// The requests and features that a broker supports. Its answer alone has the old header (version
/// 0): a client must be able to read it before it knows the broker's version.
pub const API_VERSIONS: Api = Api { key: 18, version: 3 };
/// Topics, partitions, leaders.
pub const METADATA: Api = Api { key: 3, version: 12 };
/// Finds the coordinator of a transactional id.
pub const FIND_COORDINATOR: Api = Api { key: 10, version: 4 };
/// Takes a transactional id over, and gives the producer's id and epoch.
pub const INIT_PRODUCER_ID: Api = Api { key: 22, version: 5 };
/// Writes record batches. From this version on the brokers add partitions to the transaction.
pub const PRODUCE: Api = Api { key: 0, version: 12 };
/// Ends a transaction. From this version on the answer has the next epoch.
pub const END_TXN: Api = Api { key: 26, version: 5 };

/// All that a broker must speak.
pub const NEEDED: [Api; 5] = [METADATA, FIND_COORDINATOR, INIT_PRODUCER_ID, PRODUCE, END_TXN];

/// A request with its header and length.
pub fn frame(api: Api, correlation: i32, client: &str, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut bytes = Writer::default();
    // Request header, version 2. The length in front is filled in at the end. The client's name
    // keeps its length of two bytes even here, so that any broker can read the header.
    bytes.i32(0);
    bytes.i16(api.key);
    bytes.i16(api.version);
    bytes.i32(correlation);
    bytes.i16(client.len() as i16);
    bytes.raw(client.as_bytes());
    bytes.end();
    body(&mut bytes);
    bytes.replace_i32(0, (bytes.len() - 4) as i32);
    bytes.into_bytes()
}

/// Reads an answer's header: the number of its request. What follows is the body.
pub fn header(api: Api, answer: &mut ResponseReader<'_>) -> std::io::Result<i32> {
    let correlation = answer.i32()?;
    if api != API_VERSIONS {
        answer.end()?;
    }
    Ok(correlation)
}
