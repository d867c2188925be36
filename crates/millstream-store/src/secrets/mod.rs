//! Secrets, and removing them from everything that people read.
//!
//! Two ways find a secret, because each misses what the other finds:
//!
//! - by its place in the text (`places`): the value of an option whose name says that it is one
//!   ([`is_secret_key`]), the user and password of a URL, a signature among a URL's parameters, a
//!   private key in PEM. This needs no earlier knowledge, so it works on a pipeline file that
//!   cannot be read, and on the texts of other libraries;
//! - by its value: values of such options and variables are [`remember`]ed when they are first
//!   seen, and removed from every message, wherever that repeats them: a broker's answer, an
//!   object store's error, a panic.
//!
//! All that people read goes through [`redacted`] on its way out; rows do not, they are the user's.
//! A pipeline file that is quoted goes through [`masked`], which keeps every character's place.
//!
//! What is remembered is the process's: a secret of one flow must not appear in the messages of
//! another, nor in those of a panic, which know no flow. Nothing else depends on it.

mod keys;
mod places;

use std::borrow::Cow;

use parking_lot::RwLock;

pub use self::keys::is_secret_key;
use self::places::{Kind, places};

/// What stands in place of a secret.
pub const HIDDEN: &str = "***";
/// Stars of one to four bytes.
const STARS: [char; 4] = ['*', '\u{D7}', '\u{FF0A}', '\u{1F7CA}'];
/// Shorter values are words that occur everywhere.
const LENGTH_MIN: usize = 3;
/// Longer values are not found in ordinary words, so that they are secrets wherever they stand.
const LENGTH_CERTAIN: usize = 8;

/// Longest first, so that a value is replaced before shorter ones that it contains.
static REMEMBERED: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Removes `value` from every later message, also in its escaped forms in URLs, JSON and quotes.
pub fn remember(value: &str) {
    let mut remembered = REMEMBERED.write();
    for form in forms(value) {
        if is_telling(&form) && !remembered.contains(&form) {
            remembered.push(form);
        }
    }
    remembered.sort_by_key(|form| std::cmp::Reverse(form.len()));
}

/// Does not look for `value` any more: for one that is good no longer, as a process that gets
/// another each hour would remember ever more of them.
pub fn forget(value: &str) {
    let gone = forms(value);
    REMEMBERED.write().retain(|form| !gone.contains(form));
}

/// How a value is written in messages.
fn forms(value: &str) -> [String; 6] {
    let trimmed = value.trim();
    let quoted = format!("{trimmed:?}");
    let json = serde_json::to_string(trimmed).expect("a text is JSON");
    let inner = |text: &str| text[1..text.len() - 1].to_owned();
    [
        trimmed.to_owned(),
        inner(&quoted),
        inner(&json),
        trimmed.replace('\'', "''"),
        url::form_urlencoded::byte_serialize(trimmed.as_bytes()).collect(),
        percent_encoded(trimmed),
    ]
}

/// Remembers the value of an option or variable called `key`, where that is secret by its name, and
/// what is secret within it: a password in a URL, or in a line of settings.
pub fn remember_setting(key: &str, value: &str) {
    if is_secret_key(key) {
        remember(value);
    }
    for place in places(value, Kind::Source) {
        remember(&value[place.clone()]);
        if let Some((_, password)) = value[place].split_once(':') {
            remember(password);
        }
    }
}

/// `text` without secrets, for a person or a log.
pub fn redacted(text: &str) -> Cow<'_, str> {
    without_remembered(without_places(text, Kind::Message))
}

/// `text` without secrets of URLs and those that are remembered: for plans, in which `token = x` is
/// a comparison.
pub fn redacted_values(text: &str) -> Cow<'_, str> {
    without_remembered(without_places(text, Kind::Urls))
}

/// As [`redacted`], for text that a person has written, where more may be a setting.
pub fn redacted_source(text: &str) -> Cow<'_, str> {
    without_remembered(without_places(text, Kind::Source))
}

/// A pipeline file whose secrets are stars, with as many characters and bytes: what points into the
/// file still points at the same. A secret's length shows, its content does not.
pub fn masked(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = 0;
    for place in places(text, Kind::Source) {
        masked.push_str(&text[rest..place.start]);
        masked.push_str(&stars(&text[place.clone()]));
        rest = place.end;
    }
    masked.push_str(&text[rest..]);
    let remembered = REMEMBERED.read();
    for value in remembered.iter().filter(|value| !value.contains(['\n', '\r'])) {
        if masked.contains(value.as_str()) {
            masked = replace(&masked, value, &stars(value));
        }
    }
    masked
}

/// The user and password in a URL, where it has any that a store or a broker could have been meant
/// to take. The container of `abfss://container@account` is none.
pub fn credentials_in_url(text: &str) -> Option<&str> {
    let place = places::user_info(text)?;
    Some(&text[place])
}

/// As many stars as there are characters, each with as many bytes.
fn stars(text: &str) -> String {
    let star = |char: char| match (char, char.len_utf8()) {
        ('\n' | '\r', _) => char,
        (_, length) => STARS[length - 1],
    };
    text.chars().map(star).collect()
}

/// False for values that would make ordinary text unreadable if they were replaced everywhere.
fn is_telling(value: &str) -> bool {
    let is_word = matches!(value.to_ascii_lowercase().as_str(), "true" | "false" | "none" | "null");
    value.len() >= LENGTH_MIN && !is_word
}

fn percent_encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encoded = text.bytes().map(|byte| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    });
    encoded.collect()
}

fn without_places(text: &str, kind: Kind) -> Cow<'_, str> {
    let places = places(text, kind);
    if places.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = 0;
    for place in places {
        out.push_str(&text[rest..place.start]);
        out.push_str(HIDDEN);
        rest = place.end;
    }
    out.push_str(&text[rest..]);
    Cow::Owned(out)
}

fn without_remembered(text: Cow<'_, str>) -> Cow<'_, str> {
    let mut text = text;
    for value in REMEMBERED.read().iter() {
        if text.contains(value.as_str()) {
            text = Cow::Owned(replace(&text, value, HIDDEN));
        }
    }
    text
}

/// A short value is replaced only where it is a word of its own.
fn replace(text: &str, value: &str, by: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = 0;
    for (at, found) in text.match_indices(value) {
        let end = at + found.len();
        let is_part = |char: Option<char>| char.is_some_and(|char| char.is_alphanumeric());
        let inside = is_part(text[..at].chars().next_back()) || is_part(text[end..].chars().next());
        if inside && value.len() < LENGTH_CERTAIN {
            continue;
        }
        out.push_str(&text[rest..at]);
        out.push_str(by);
        rest = end;
    }
    out.push_str(&text[rest..]);
    out
}

#[cfg(test)]
mod tests;
