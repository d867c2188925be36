//! Messages of a topic that benchmarks empty: 1,005 bytes of JSON each, the same in every run.

use std::path::Path;

use millstream_generate::{Generator, Template};

use crate::error::Error;

/// Messages of [`MESSAGE_BYTES`], with [`IDS`] different ids.
const TEMPLATE: &str =
    r#"{ "logStreamId": "{{integer(1000001,2000000)}}", "message": "{{alphaNumeric(962)}}" }"#;
/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 1_005;
/// Ids are from here on.
pub const FIRST_ID: u64 = 1_000_001;
/// How many different ids there are.
pub const IDS: usize = 999_999;
/// Every run has the same messages.
const SEED: u64 = 1;

/// Length of a window that messages are spread over.
pub const WINDOW_S: u32 = 60;
const WINDOW_MS: i64 = WINDOW_S as i64 * 1_000;
/// The first window; any moment would do.
const FIRST_WINDOW_MS: i64 = 1_767_225_600_000;

/// Messages whose times are spread evenly over windows.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// How many messages.
    pub messages: u64,
    /// How many windows.
    pub windows: u32,
}

impl Spread {
    /// The window that a message is in, from 0, and its time in milliseconds since the epoch.
    pub fn of(&self, number: u64) -> (usize, i64) {
        let span_ms = i128::from(WINDOW_MS) * i128::from(self.windows);
        let into_ms = span_ms * i128::from(number) / i128::from(self.messages.max(1));
        let into_ms = i64::try_from(into_ms).expect("it is within the span");
        let window = usize::try_from(into_ms / WINDOW_MS).expect("it is not negative");
        (window, FIRST_WINDOW_MS + into_ms)
    }

    /// Where the last window ends.
    pub fn end_ms(&self) -> i64 {
        FIRST_WINDOW_MS + WINDOW_MS * i64::from(self.windows)
    }
}

/// Makes messages, one after the other.
pub struct Messages {
    generator: Generator,
    keys: Option<u64>,
    message: Vec<u8>,
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its `logStreamId`.
    pub id: u64,
    /// Its JSON.
    pub bytes: &'a [u8],
}

impl Messages {
    /// From the first message on. With `keys` only so many different ids, else [`IDS`].
    pub fn new(keys: Option<u64>) -> Self {
        let template = Template::parse(TEMPLATE).expect("it is a template");
        // No token of the template tells the time.
        let generator = Generator::new(&template, SEED, 0);
        Self { generator, keys, message: Vec::with_capacity(MESSAGE_BYTES) }
    }

    /// Makes the next one.
    pub fn make(&mut self) -> Result<Message<'_>, Error> {
        self.message.clear();
        let made = self.generator.write_message(&mut self.message);
        made.map_err(|error| Error::Fill { problem: error.to_string() })?;
        assert_eq!(self.message.len(), MESSAGE_BYTES, "the template says so");
        let mut id = id_of(&self.message);
        if let Some(keys) = self.keys {
            id = FIRST_ID + (id - FIRST_ID) % keys;
            replace_id(&mut self.message, id);
        }
        Ok(Message { id, bytes: &self.message })
    }
}

/// Where the id stands: behind the third quotation mark.
fn id_starts(message: &[u8]) -> usize {
    let mut marks = message.iter().enumerate().filter(|(_, byte)| **byte == b'"');
    marks.nth(2).map(|(at, _)| at + 1).expect("the template has it there")
}

fn id_of(message: &[u8]) -> u64 {
    let digits = message[id_starts(message)..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |id, digit| id * 10 + u64::from(digit - b'0'))
}

/// Ids have seven digits, all of them.
fn replace_id(message: &mut [u8], id: u64) {
    let start = id_starts(message);
    let text = id.to_string();
    message[start..start + text.len()].copy_from_slice(text.as_bytes());
}

/// Rows, and the sums of their ids and of the ids' squares: what is lost or doubled changes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessagesFound {
    /// How many there are.
    pub rows: u64,
    ids: (u64, u64),
}

impl MessagesFound {
    /// Adds a row with this id.
    pub fn add(&mut self, id: u64) {
        self.rows += 1;
        let (sum, squares) = self.ids;
        self.ids = (sum.wrapping_add(id), squares.wrapping_add(id.wrapping_mul(id)));
    }

    /// Adds a row with the id that a text is; one that is no number is counted as id 0.
    pub fn add_text(&mut self, id: Option<&str>) {
        self.add(id.and_then(|id| id.parse().ok()).unwrap_or(0));
    }

    /// Rows of this, which is what `place` holds, less those of `sent`. Errors if there are as
    /// many, and others.
    pub fn surplus(&self, sent: &Self, place: &Path) -> Result<i64, Error> {
        if self.rows == sent.rows && self.ids != sent.ids {
            let problem = "as many rows as messages, but not the same".to_owned();
            return Err(Error::Result { path: place.to_owned(), problem });
        }
        let signed = |rows: u64| i64::try_from(rows).expect("messages are few");
        Ok(signed(self.rows) - signed(sent.rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_many_as_asked_for() {
        let mut messages = Messages::new(Some(3));
        let mut ids = std::collections::BTreeSet::new();
        for _ in 0..50 {
            let message = messages.make().expect("it is made");
            let json: serde_json::Value = serde_json::from_slice(message.bytes).expect("JSON");
            assert_eq!(json["logStreamId"].as_str(), Some(message.id.to_string().as_str()));
            ids.insert(message.id);
        }
        assert_eq!(ids.into_iter().collect::<Vec<_>>(), [FIRST_ID, FIRST_ID + 1, FIRST_ID + 2]);
    }

    #[test]
    fn lost_doubled_and_wrong_rows_are_told() {
        let of = |ids: &[u64]| {
            let mut found = MessagesFound::default();
            ids.iter().for_each(|id| found.add(*id));
            found
        };
        let surplus = |found: &[u64], sent: &[u64]| {
            of(found).surplus(&of(sent), Path::new("table")).map_err(|error| error.to_string())
        };
        assert_eq!(surplus(&[1, 2], &[2, 1]), Ok(0));
        assert_eq!(surplus(&[1], &[1, 2]), Ok(-1));
        // The sum alone would not tell these apart.
        assert!(surplus(&[1, 3], &[2, 2]).is_err());
    }
}
