//! Which requests there are, in which versions, and the header and length around each.

use std::io::{self, Read};

use super::read::ResponseReader;
use super::refusal::Refusal;
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
/// As [`PRODUCE`] and [`INIT_PRODUCER_ID`], without a transaction: the forms are the same, and
/// brokers have them since Kafka 2.7.
pub const PRODUCE_ALONE: Api = Api { key: 0, version: 9 };
/// See [`PRODUCE_ALONE`].
pub const INIT_PRODUCER_ALONE: Api = Api { key: 22, version: 4 };
/// Adds partitions to a transaction before anything is written to them. The last version that is
/// for clients: brokers speak later ones among each other.
pub const ADD_PARTITIONS_TO_TXN: Api = Api { key: 24, version: 3 };
/// Ends a transaction. From this version on the answer has the next epoch.
pub const END_TXN: Api = Api { key: 26, version: 5 };

/// Agrees on a mechanism of SASL. No version of it has tagged fields, in its headers neither.
pub const SASL_HANDSHAKE: Api = Api { key: 17, version: 1 };
/// A message of the mechanism.
pub const SASL_AUTHENTICATE: Api = Api { key: 36, version: 2 };

/// Record batches of partitions, from an offset on. From version 7 on a broker remembers what a
/// connection reads, so that a request names only what is new (KIP-227); from version 13 on topics
/// have ids in place of names. Kafka has this one since 2.7.
pub const FETCH: Api = Api { key: 1, version: 12 };
/// Where partitions begin and end.
pub const LIST_OFFSETS: Api = Api { key: 2, version: 7 };

/// What brokers must have for transactions.
pub const FOR_TRANSACTIONS: [Api; 6] =
    [METADATA, FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, PRODUCE, END_TXN];

/// What brokers must have for writing without transactions.
pub const FOR_WRITING: [Api; 3] = [METADATA, PRODUCE_ALONE, INIT_PRODUCER_ALONE];
/// What brokers must have for reading.
pub const FOR_READING: [Api; 3] = [METADATA, FETCH, LIST_OFFSETS];

/// How a server of TLS answers what is not TLS: an alert, and the version's first byte. As a length
/// it would be more than any answer has.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

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
    if api != SASL_HANDSHAKE {
        bytes.end();
    }
    body(&mut bytes);
    bytes.replace_i32(0, (bytes.len() - 4) as i32);
    bytes.into_bytes()
}

/// Reads an answer's header: the number of its request. What follows is the body.
pub fn header(api: Api, answer: &mut ResponseReader<'_>) -> io::Result<i32> {
    let correlation = answer.i32()?;
    if api != API_VERSIONS && api != SASL_HANDSHAKE {
        answer.end()?;
    }
    Ok(correlation)
}

/// Waits for an answer: its header and body, of `bytes_max` bytes at most.
///
/// # Errors
/// The connection is lost, or what comes is not Kafka's.
pub fn read_answer(stream: &mut impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    read_answer_into(&mut answer, stream, bytes_max)?;
    Ok(answer)
}

/// As [`read_answer`], into `answer`, whose space is used again.
pub fn read_answer_into(
    answer: &mut Vec<u8>,
    stream: &mut impl Read,
    bytes_max: usize,
) -> io::Result<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    if length[..2] == TLS_ALERT {
        return Err(Refusal::Protocol(
            "the broker speaks TLS on this port: set 'kafka.security.protocol' to SSL or \
             SASL_SSL, or connect to its port without TLS",
        )
        .into());
    }
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > bytes_max {
        let what = "an answer of impossible length";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    answer.clear();
    // Space grows with what has come, so that a length alone cannot ask for gigabytes.
    let read = stream.take(length as u64).read_to_end(answer)?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
