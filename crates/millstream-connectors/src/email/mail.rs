//! Rows become mails.
//!
//! Values of rows are hostile: somebody outside may have written them. In a subject they lose
//! everything that could end a header; in a text, everything but letters, tabs and ends of lines. A
//! value is a recipient only if all of it is one address.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use arrow::array::RecordBatch;
use bytes::Bytes;
use lettre::message::header::{ContentType, HeaderName, HeaderValue, MIME_VERSION_1_0};
use lettre::message::{Mailbox, Mailboxes};
use lettre::{Address, Message as Letter};
use serde_json::{Map, Value, json};

use super::options::{EmailOptions, MailKind, Recipients};
use crate::notify::Message;
use crate::notify::error::DeliveryError;
use crate::notify::keys::Keys;
use crate::notify::rows::objects;

/// A subject is cut behind so many characters: servers refuse lines of a thousand.
const SUBJECT_CHARACTERS_MAX: usize = 200;

/// A mail that is to be sent.
#[derive(Debug)]
pub struct Mail {
    /// The same for every attempt and every replay.
    pub key: String,
    /// What goes over the wire, or why there is nothing that could.
    pub letter: Result<Letter, String>,
    to: String,
    subject: String,
    text: String,
    /// The rows in it.
    rows: Vec<Bytes>,
}

impl Message for Mail {
    fn key(&self) -> &str {
        &self.key
    }

    fn rows(&self) -> &[Bytes] {
        &self.rows
    }

    fn content(&self) -> Value {
        json!({"to": self.to, "subject": self.subject, "text": self.text})
    }
}

/// A row on its way into a mail.
struct Row {
    object: Bytes,
    values: Map<String, Value>,
}

/// Whom a mail goes to, and the text of the option or of the column that says so.
type To = (String, Result<Mailboxes, String>);

/// The mails of a micro-batch of the time `batch_time_ms`, milliseconds since the epoch.
pub fn mails<'a>(
    options: &EmailOptions,
    mut keys: Keys<'_>,
    batch_time_ms: i64,
    rows: impl Iterator<Item = &'a RecordBatch>,
) -> Result<Vec<Mail>, DeliveryError> {
    let mut objects_of_all = Vec::new();
    for rows in rows {
        objects_of_all.extend(objects(&options.encoder, rows)?);
    }
    if let MailKind::Digest(_) = options.kind {
        // A replay may have the rows in another order: only sorted they make the same mails.
        objects_of_all.sort_unstable();
    }
    let rows = objects_of_all.iter().map(|object| Row {
        object: object.clone(),
        values: serde_json::from_slice(object).unwrap_or_default(),
    });
    let mut mail = |to: &To, subject: String, text: String, rows: Vec<Bytes>| {
        let (subject, text) = (one_line(&subject), plain(&text));
        let key = keys.next(format!("{}\0{subject}\0{text}", to.0).as_bytes());
        let letter = to
            .1
            .clone()
            .and_then(|mailboxes| letter(options, mailboxes, &key, batch_time_ms, &subject, &text));
        Mail { key, letter, to: to.0.clone(), subject, text, rows }
    };
    let MailKind::Digest(rows_max) = options.kind else {
        let mails = rows.map(|row| {
            let subject = options.subject.render(&row.values);
            let text = options.text.render(&row.values);
            mail(&recipients(options, &row), subject, text, vec![row.object.clone()])
        });
        return Ok(mails.collect());
    };
    let mut mails = Vec::new();
    for (to, rows) in by_recipient(options, rows) {
        for rows in rows.chunks(rows_max) {
            let count = Map::from_iter([("count".to_owned(), json!(rows.len()))]);
            let texts = rows.iter().map(|row| options.text.render(&row.values));
            let text = texts.map(ended).collect();
            let objects = rows.iter().map(|row| row.object.clone()).collect();
            mails.push(mail(&to, options.subject.render(&count), text, objects));
        }
    }
    Ok(mails)
}

fn by_recipient(options: &EmailOptions, rows: impl Iterator<Item = Row>) -> Vec<(To, Vec<Row>)> {
    let mut shares: BTreeMap<String, (To, Vec<Row>)> = BTreeMap::new();
    for row in rows {
        let to = recipients(options, &row);
        shares.entry(to.0.clone()).or_insert_with(|| (to, Vec::new())).1.push(row);
    }
    shares.into_values().collect()
}

/// Whom the mail of a row goes to.
fn recipients(options: &EmailOptions, row: &Row) -> To {
    let column = match &options.recipients {
        Recipients::Fixed(mailboxes) => return (mailboxes.to_string(), Ok(mailboxes.clone())),
        Recipients::Column(column) => column,
    };
    let text = match row.values.get(column) {
        Some(Value::String(text)) => text.trim(),
        _ => return (String::new(), Err(format!("the column '{column}' is null"))),
    };
    let address = text.parse::<Address>().ok().filter(|_| text.chars().all(is_of_address));
    let mailboxes = match address {
        Some(address) => Ok(Mailboxes::from(Mailbox::new(None, address))),
        None => Err(format!("the column '{column}' has no address of a mail: {}", one_line(text))),
    };
    (text.to_owned(), mailboxes)
}

/// Addresses with other characters exist, but hardly anybody has one on purpose.
fn is_of_address(char: char) -> bool {
    char.is_alphanumeric() || "@.!#$%&'*+-/=?^_`{|}~".contains(char)
}

fn letter(
    options: &EmailOptions,
    mailboxes: Mailboxes,
    key: &str,
    batch_time_ms: i64,
    subject: &str,
    text: &str,
) -> Result<Letter, String> {
    // All of it follows from the micro-batch, its time too: a replay gives the same bytes.
    let date = UNIX_EPOCH + Duration::from_millis(u64::try_from(batch_time_ms).unwrap_or(0));
    let domain = options.from.email.domain();
    let mut builder = Letter::builder()
        .from(options.from.clone())
        .subject(subject)
        .date(date)
        .message_id(Some(format!("<{key}@{domain}>")))
        .header(MIME_VERSION_1_0)
        .header(ContentType::TEXT_PLAIN)
        // RFC 3834: whoever answers by itself does not answer this.
        .raw_header(HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ));
    for mailbox in mailboxes {
        builder = builder.to(mailbox);
    }
    if let Some(reply_to) = &options.reply_to {
        builder = builder.reply_to(reply_to.clone());
    }
    builder.body(text.to_owned()).map_err(|error| error.to_string())
}

/// Without ends of lines and other control characters, without what readers would decode to such
/// (RFC 2047, section 2), and not too long.
fn one_line(text: &str) -> String {
    let text: String = text.chars().map(|char| if is_control(char) { ' ' } else { char }).collect();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut words = words.replace("=?", "= ?");
    if let Some((end, _)) = words.char_indices().nth(SUBJECT_CHARACTERS_MAX) {
        words.truncate(end);
        words.push('…');
    }
    words
}

/// Without control characters but tabs and ends of lines, which are one character each.
fn plain(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|char| matches!(char, '\n' | '\t') || !is_control(*char)).collect()
}

/// Control characters, and those that turn the direction of what is written after them.
fn is_control(char: char) -> bool {
    let turns = matches!(char, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    char.is_control() || turns || matches!(char, '\u{2028}' | '\u{2029}')
}

/// With an end of line.
fn ended(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
