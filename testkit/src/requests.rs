//! Requests of an administrator that librdkafka does not have, as bytes.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// API numbers and versions, from Kafka's protocol guide.
pub type Api = (i16, i16);

const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const ALTER_CLIENT_QUOTAS: Api = (49, 1);

/// Lets clients with the id `client` write so many bytes a second to the broker at `port`.
pub fn limit_writing(port: u16, client: &str, bytes_a_second: f64) -> io::Result<()> {
    let mut body = vec![2, 2]; // one entry, with one part of its name
    put_text(&mut body, "client-id");
    put_text(&mut body, client);
    body.extend([0, 2]); // one change
    put_text(&mut body, "producer_byte_rate");
    body.extend(bytes_a_second.to_be_bytes());
    body.extend([0; 5]); // not removed, no tagged fields of change and entry, for good, none
    ask(port, ALTER_CLIENT_QUOTAS, &body)
}

/// A compact text, which has a byte for its length here.
pub fn put_text(body: &mut Vec<u8>, text: &str) {
    let length = u8::try_from(text.len() + 1).ok().filter(|length| *length < 128);
    body.push(length.expect("names of topics in tests are short"));
    body.extend(text.as_bytes());
}

/// Sends a request to the broker at `port`, and waits for an answer; whether it did anything shows
/// elsewhere.
pub fn ask(port: u16, api: Api, body: &[u8]) -> io::Result<()> {
    answer(port, api, body).map(drop)
}

/// Sends a request to the broker at `port`, and gives the answer: its header and its body.
pub fn answer(port: u16, (api, version): Api, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut request = [api.to_be_bytes(), version.to_be_bytes()].concat();
    request.extend([0, 0, 0, 1]); // its number
    request.extend([0, 4]);
    request.extend(b"test\0"); // the client, and no tagged fields
    request.extend(body);
    let mut broker = TcpStream::connect(("127.0.0.1", port))?;
    broker.set_read_timeout(Some(ANSWER_LIMIT))?;
    let length = i32::try_from(request.len()).expect("requests are short");
    broker.write_all(&[&length.to_be_bytes()[..], &request].concat())?;
    let mut answer_length = [0; 4];
    broker.read_exact(&mut answer_length)?;
    let mut answer = vec![0; u32::from_be_bytes(answer_length) as usize];
    broker.read_exact(&mut answer)?;
    Ok(answer)
}
