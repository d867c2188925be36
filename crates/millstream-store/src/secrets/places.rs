//! Where secrets stand in a text.
//!
//! The text may be a pipeline file with a mistake in it, so nothing here relies on quotes being in
//! pairs: what follows the name of a secret is a secret, whatever came before.

use std::ops::Range;

use super::STARS;
use super::keys::is_secret_key;

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Written by a person: a pipeline file, a command line.
    Source,
    /// A message, in which `token` is most often just a word.
    Message,
    /// Something in which only URLs mean what they seem to.
    Urls,
}

/// In URLs of these schemes the part before `@` is a container, not a user.
const CONTAINER_SCHEMES: [&str; 7] = ["abfs", "abfss", "wasb", "wasbs", "az", "azure", "adl"];
/// Functions of SQL, by the ends of their names, whose second argument is a key.
const WITH_KEY: [&str; 2] = ["aes_encrypt", "aes_decrypt"];
/// How many times over a text may be looked at for their keys, as calls stand in each other.
const NESTED_CALLS: usize = 8;
const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";

/// The places of secrets in `text`, in order, none within another.
pub(super) fn places(text: &str, kind: Kind) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    urls(text, &mut found);
    pem(text, &mut found);
    keys(text, kind, &mut found);
    if kind != Kind::Urls {
        settings(text, kind, &mut found);
    }
    // A text may pass through here twice; stars of the first pass are not replaced by stars again.
    found.retain(|place| !text[place.clone()].chars().all(is_hidden));
    found.sort_by_key(|place| (place.start, std::cmp::Reverse(place.end)));
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for place in found {
        match joined.last_mut() {
            Some(last) if place.start < last.end => last.end = last.end.max(place.end),
            _ => joined.push(place),
        }
    }
    joined
}

/// The user and password of the first URL that has them.
pub(super) fn user_info(text: &str) -> Option<Range<usize>> {
    let mut schemes = text.match_indices("://");
    schemes.find_map(|(at, _)| user_info_at(text, at))
}

fn urls(text: &str, found: &mut Vec<Range<usize>>) {
    for (at, mark) in text.match_indices("://") {
        found.extend(user_info_at(text, at));
        let start = at + mark.len();
        let end = start + end_of_url(&text[start..]);
        // JDBC URLs separate parameters by `;`, and OAuth puts tokens behind `#`.
        for (question, _) in text[start..end].match_indices(['?', '&', ';', '#']) {
            let start = start + question + 1;
            let parameter = &text[start..end];
            let parameter =
                &parameter[..parameter.find(['&', ';', '#']).unwrap_or(parameter.len())];
            if let Some((key, value)) = parameter.split_once('=')
                && is_secret_key(key)
                && !is_reference(value)
            {
                let start = start + key.len() + 1;
                found.push(start..start + value.len());
            }
        }
    }
}

/// The part before `@` of the URL whose `://` is at `at`.
fn user_info_at(text: &str, at: usize) -> Option<Range<usize>> {
    let is_of_scheme = |char: char| char.is_ascii_alphanumeric() || matches!(char, '+' | '.' | '-');
    let scheme = &text[text[..at].trim_end_matches(is_of_scheme).len()..at];
    let start = at + "://".len();
    let url = &text[start..start + end_of_url(&text[start..])];
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    let user = match authority.rfind('@') {
        Some(end) => &authority[..end],
        // A password with a slash in it, as keys of object stores have, ends no authority.
        None => {
            let (_, after) = authority.split_once(':')?;
            let is_port = after.bytes().all(|byte| byte.is_ascii_digit()) && !after.is_empty();
            &url[..url.rfind('@').filter(|_| !is_port)?]
        }
    };
    let is_container =
        !user.contains(':') && CONTAINER_SCHEMES.iter().any(|known| scheme.ends_with(known));
    let is_secret = !user.is_empty() && !scheme.is_empty() && !is_container;
    (is_secret && !is_reference(user)).then(|| start..start + user.len())
}

fn end_of_url(text: &str) -> usize {
    let is_end = |char: char| char.is_whitespace() || matches!(char, '\'' | '"' | '`' | '<' | '>');
    text.find(is_end).unwrap_or(text.len())
}

fn pem(text: &str, found: &mut Vec<Range<usize>>) {
    for (at, _) in text.match_indices(PEM_BEGIN) {
        let Some(title) = text[at + PEM_BEGIN.len()..].find("-----") else { continue };
        let start = at + PEM_BEGIN.len() + title + "-----".len();
        if text[at..start].contains("PRIVATE KEY") {
            let end = text[start..].find(PEM_END).map_or(text.len(), |length| start + length);
            found.push(start..end);
        }
    }
}

/// Keys in calls of functions that take one. Each call is looked at to its end, whatever is around
/// it, so calls within calls are looked at several times; a text that has them so deep that this
/// would take long is hidden from there on.
fn keys(text: &str, kind: Kind, found: &mut Vec<Range<usize>>) {
    let mut left = text.len().saturating_mul(NESTED_CALLS);
    for (open, _) in text.match_indices('(') {
        let before =
            text[..open].trim_end_matches(|char: char| char.is_whitespace() || char == '`');
        let takes_key = WITH_KEY.iter().any(|name| {
            let end = before.len().checked_sub(name.len()).and_then(|start| before.get(start..));
            end.is_some_and(|end| end.eq_ignore_ascii_case(name))
        });
        if !takes_key {
            continue;
        }
        let end = key(text, open + 1, kind, found);
        let Some(still_left) = left.checked_sub(end - open) else {
            found.push(open + 1..text.len());
            return;
        };
        left = still_left;
    }
}

/// What is quoted in the second one of the arguments that begin at `start`; of a plan, in which
/// bytes stand without quotes, all but the first argument. Gives the end of what was looked at.
fn key(text: &str, start: usize, kind: Kind, found: &mut Vec<Range<usize>>) -> usize {
    let (mut at, mut depth, mut second) = (start, 0, None);
    while let Some(char) = text[at..].chars().next() {
        match char {
            '\'' | '"' => {
                let begin = text[..at].trim_end_matches('\\').len();
                let quoted = quoted_or_bare(&text[begin..], kind);
                let (from, to) = (begin + quoted.start, begin + quoted.end);
                if second.is_some() && kind != Kind::Urls {
                    found.push(from..to);
                }
                // On to the closing quote.
                at = to + text[to..].find(['\'', '"']).unwrap_or(text.len() - to);
            }
            '(' => depth += 1,
            ')' if depth == 0 => break,
            ')' => depth -= 1,
            ',' if depth == 0 && second.is_none() => second = Some(at + 1),
            ',' if depth == 0 && kind != Kind::Urls => break,
            _ => {}
        }
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    if let (Some(second), Kind::Urls) = (second, kind) {
        found.push(second..at);
    }
    at
}

/// Values behind names of secrets.
fn settings(text: &str, kind: Kind, found: &mut Vec<Range<usize>>) {
    let is_of_name = |char: char| char.is_alphanumeric() || matches!(char, '_' | '.' | '-');
    let mut at = 0;
    while let Some(start) = text[at..].find(is_of_name).map(|start| at + start) {
        let rest = &text[start..];
        let end = start + rest.find(|char| !is_of_name(char)).unwrap_or(rest.len());
        at = end;
        let name = &text[start..end];
        if is_secret_key(name)
            && let Some(value) = value(text, start..end, kind)
            && !is_reference(&text[value.clone()])
        {
            at = value.end;
            found.push(value);
        }
    }
}

/// The value of the setting whose name is at `name`.
fn value(text: &str, name: Range<usize>, kind: Kind) -> Option<Range<usize>> {
    let before = text[..name.start].chars().next_back();
    let is_quoted = before.is_some_and(|char| matches!(char, '\'' | '"' | '`'));
    let is_full = is_quoted || text[name.clone()].contains('.');
    let mut at = name.end;
    if is_quoted {
        at += text[at..].len() - text[at..].trim_start_matches(['\\', '\'', '"', '`']).len();
    }
    let gap = spaces(&text[at..]);
    let is_closed = at > name.end;
    let (separator, is_colon) = separator(&text[at + gap..]);
    let start = at + gap + separator;
    let after = spaces(&text[start..]);
    let start = start + after;
    let rest = &text[start..];
    let opens = rest.trim_start_matches('\\').starts_with(['\'', '"']);
    let is_header = text[name].to_ascii_lowercase().ends_with("authorization");
    // `Authorization: Bearer abc` has a space within its value, so the value is the rest of the
    // line.
    if separator > 0 && is_header {
        return Some(start..start + rest.find(['\n', '\r', '\'', '"']).unwrap_or(rest.len()));
    }
    // Whether the text behind the name is its value. In a file `name value` is enough if one of
    // them is written like a setting; in a message that would hide the words of every sentence
    // about a token.
    let follows = match (kind, separator > 0) {
        (Kind::Source, true) => true,
        (Kind::Source, false) => gap > 0 && (opens || (is_full && !is_closed)),
        // `token: the broker said no` is a sentence.
        (_, true) => opens || !is_colon || after == 0,
        (_, false) => gap > 0 && opens && is_full,
    };
    let value = quoted_or_bare(rest, kind);
    follows.then(|| start + value.start..start + value.end)
}

fn spaces(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// The length of what stands between a name and its value, and whether it is a colon.
fn separator(text: &str) -> (usize, bool) {
    for separator in ["=>", "==", "=", ":"] {
        if text.starts_with(separator) {
            return (separator.len(), separator == ":");
        }
    }
    for word in ["is ", "was "] {
        if let Some(rest) = text.strip_prefix(word)
            && rest.starts_with(['\'', '"'])
        {
            return (word.len(), false);
        }
    }
    (0, false)
}

/// The value that `text` begins with, without its quotes.
fn quoted_or_bare(text: &str, kind: Kind) -> Range<usize> {
    let escapes = text.len() - text.trim_start_matches('\\').len();
    let Some(quote) = text[escapes..].chars().next().filter(|char| matches!(char, '\'' | '"'))
    else {
        let is_end =
            |char: char| char.is_whitespace() || matches!(char, ',' | ')' | ';' | '&' | '}' | ']');
        let is_quote = |char: char| matches!(char, '\'' | '"' | '`');
        let end = text.find(|char| is_end(char) || is_quote(char));
        return 0..end.unwrap_or(text.len());
    };
    let start = escapes + quote.len_utf8();
    let mut chars = text[start..].char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '\n' if kind == Kind::Message => return start..start + at,
            // The whole text is quoted once more (`\"value\"`), so the closing quote is escaped
            // like the first.
            '\\' if escapes > 0 && chars.peek().is_some_and(|(_, next)| *next == quote) => {
                return start..start + at;
            }
            '\\' => {
                chars.next();
            }
            // A doubled quote is a quote within the value, as in SQL.
            _ if char == quote => match chars.peek() {
                Some((_, next)) if *next == quote => {
                    chars.next();
                }
                _ => return start..start + at,
            },
            _ => {}
        }
    }
    start..text.len()
}

/// True for what [`masked`](super::masked) has left of a secret.
fn is_hidden(char: char) -> bool {
    STARS.contains(&char) || char.is_whitespace()
}

/// True for a value that says where the secret is, instead of what.
fn is_reference(value: &str) -> bool {
    value.starts_with("${") && value.ends_with('}') && !value[2..].contains("${")
}
