//! Parts of URLs as Java's `URI` cuts them out (RFC 2396): as they are written. A library that
//! follows the rules of browsers makes letters small, leaves out known ports and resolves `..`.
//!
//! And texts without the escapes of URLs, which Java reads where others refuse what is no UTF-8.

use std::net::Ipv6Addr;

/// A URL in its parts.
pub(super) struct UrlParts<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    /// None behind a scheme such as `mailto:`.
    path: Option<&'a str>,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
}

impl<'a> UrlParts<'a> {
    /// Of a text that is a URL, or a part of one without a scheme; `None` of what is neither.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        let (text, fragment) = cut(text, '#');
        let (scheme, rest) = match text.find([':', '/', '?']) {
            Some(end) if text[end..].starts_with(':') => (Some(&text[..end]), &text[end + 1..]),
            _ => (None, text),
        };
        let is_begun = scheme.is_none_or(is_scheme);
        if !is_begun || fragment.is_some_and(|fragment| !has_only(fragment, ANYWHERE)) {
            return None;
        }
        if scheme.is_some() && !rest.starts_with('/') {
            let is_one = !rest.is_empty() && has_only(rest, ANYWHERE);
            let (authority, path, query) = (None, None, None);
            return is_one.then_some(Self { scheme, authority, path, query, fragment });
        }
        let (rest, query) = cut(rest, '?');
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                // It may be empty, but not with nothing behind it.
                if rest.is_empty() && query.is_none() && fragment.is_none() {
                    return None;
                }
                (Some(authority).filter(|it| !it.is_empty()), path)
            }
            None => (None, rest),
        };
        let is_one = authority.is_none_or(is_authority)
            && has_only(path, IN_PATHS)
            && query.is_none_or(|query| has_only(query, ANYWHERE));
        is_one.then_some(Self { scheme, authority, path: Some(path), query, fragment })
    }

    /// The part that Spark calls by this name; the query's value of `key`, if there is one.
    pub(super) fn get(&self, part: &str, key: Option<&str>) -> Option<String> {
        let found = match part {
            "PROTOCOL" => self.scheme,
            "AUTHORITY" => self.authority,
            "HOST" => self.server().map(|(_, host)| host),
            "USERINFO" => self.server().and_then(|(user, _)| user),
            "PATH" => self.path,
            "FILE" => {
                let query = self.query.map(|query| format!("?{query}")).unwrap_or_default();
                return self.path.map(|path| format!("{path}{query}"));
            }
            "QUERY" => match key {
                None => self.query,
                Some(key) => self.query.and_then(|query| {
                    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                    pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
                }),
            },
            "REF" => self.fragment,
            _ => None,
        };
        found.map(str::to_owned)
    }

    /// User and host, where the authority is that of a server.
    fn server(&self) -> Option<(Option<&'a str>, &'a str)> {
        server(self.authority?)
    }
}

/// What may stand anywhere in a URL, beside letters, digits and [`MARKS`].
const ANYWHERE: &str = ";/?:@&=+$,[]";
/// What may stand in a path.
const IN_PATHS: &str = ";/:@&=+$,";
/// What may stand in a name that is no server's.
const IN_NAMES: &str = ";:@&=+$,";
/// What may stand in the name of a user.
const IN_USERS: &str = ";:&=+$,";
/// What may stand in all parts.
const MARKS: &str = "-_.!~*'()";

/// Whether a text has no letters but those of all parts, those in `others`, and what is not ASCII
/// and can be seen. A `%` has two digits behind it.
fn has_only(text: &str, others: &str) -> bool {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let is_one = match letter {
            '%' => {
                let digits = [letters.next(), letters.next()];
                digits.into_iter().all(|digit| digit.is_some_and(|it| it.is_ascii_hexdigit()))
            }
            letter if letter.is_ascii() => {
                letter.is_ascii_alphanumeric() || MARKS.contains(letter) || others.contains(letter)
            }
            letter => !letter.is_control() && !letter.is_whitespace(),
        };
        if !is_one {
            return false;
        }
    }
    true
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Whether this is a server, or a name that says nothing of one.
fn is_authority(authority: &str) -> bool {
    server(authority).is_some() || has_only(authority, IN_NAMES)
}

/// User and host of an authority, where it is that of a server: to Java `my_host` and `host:port`
/// are none.
fn server(authority: &str) -> Option<(Option<&str>, &str)> {
    let (user, server) = match authority.split_once('@') {
        Some((user, server)) => (Some(user), server),
        None => (None, authority),
    };
    let end = if server.starts_with('[') { server.find(']')? + 1 } else { 0 };
    let (host, port) = match server[end..].split_once(':') {
        Some((host, port)) => (&server[..end + host.len()], port),
        None => (server, ""),
    };
    let is_number =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<i32>().is_ok();
    let is_server = user.is_none_or(|user| has_only(user, IN_USERS))
        && (port.is_empty() || is_number(port))
        && match host.strip_prefix('[') {
            Some(address) => address.strip_suffix(']').is_some_and(is_address),
            None => is_host(host),
        };
    is_server.then_some((user, host))
}

/// Whether a text is an address of IPv6, which may have a zone behind a `%`.
fn is_address(text: &str) -> bool {
    let (address, zone) = cut(text, '%');
    let is_zone = |zone: &str| {
        !zone.is_empty()
            && zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte))
    };
    address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(is_zone)
}

/// The text before a letter, and what follows the letter.
fn cut(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// Whether a text is an address of four numbers, or a name: of one label, or with a last label that
/// begins with a letter.
fn is_host(host: &str) -> bool {
    let is_number = |label: &str| {
        label.bytes().all(|byte| byte.is_ascii_digit()) && label.parse::<u8>().is_ok()
    };
    if host.split('.').count() == 4 && host.split('.').all(is_number) {
        return true;
    }
    let labels = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_last = |label: &str| label.starts_with(|letter: char| letter.is_ascii_alphabetic());
    labels.split('.').all(is_label) && labels.rsplit_once('.').is_none_or(|(_, last)| is_last(last))
}

/// A text without its escapes as Java's `URLDecoder` reads it, or none where an escape is wrong.
/// Bytes that are no UTF-8 get a mark each, or several of them one, as in Java's texts.
pub(super) fn decoded(text: &str, out: &mut String) -> bool {
    let (mut rest, mut bytes) = (text, Vec::new());
    while let Some(first) = rest.chars().next() {
        if first == '%' {
            let digits = rest.get(1..3).and_then(|digits| i32::from_str_radix(digits, 16).ok());
            let Some(byte) = digits.and_then(|byte| u8::try_from(byte).ok()) else { return false };
            bytes.push(byte);
            rest = &rest[3..];
            continue;
        }
        marked(&bytes, out);
        bytes.clear();
        out.push(if first == '+' { ' ' } else { first });
        rest = &rest[first.len_utf8()..];
    }
    marked(&bytes, out);
    true
}

/// Appends the text that bytes are. To Java the three bytes of half a pair are one wrong one.
fn marked(bytes: &[u8], out: &mut String) {
    let mut rest = bytes;
    loop {
        let is_half = |three: &[u8]| {
            matches!(three, [0xED, second, third]
                if (0xA0..0xC0).contains(second) && (0x80..0xC0).contains(third))
        };
        let Some(at) = rest.windows(3).position(is_half) else { break };
        out.push_str(&String::from_utf8_lossy(&rest[..at]));
        out.push(char::REPLACEMENT_CHARACTER);
        rest = &rest[at + 3..];
    }
    out.push_str(&String::from_utf8_lossy(rest));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_as_java_does() {
        let read = |text: &str| {
            let mut out = String::new();
            decoded(text, &mut out).then_some(out)
        };
        assert_eq!(read("a+b%20%c3%a9").as_deref(), Some("a b é"));
        assert_eq!(read("c%e9+%c3").as_deref(), Some("c\u{FFFD} \u{FFFD}"));
        assert_eq!(read("%ed%a0%80x").as_deref(), Some("\u{FFFD}x"));
        assert_eq!(read("é%"), None);
        assert_eq!(read("%2"), None);
        assert_eq!(read("%é"), None);
        assert_eq!(read("%zz"), None);
        assert_eq!(read("%-1"), None);
    }

    #[test]
    fn parts_are_as_they_are_written() {
        let part = |url: &str, part: &str| UrlParts::of(url)?.get(part, None);
        let url = "HTTP://Me:x@Shop.Example.com:80/admin/../etc?a=1&b#top";
        let of = |name: &str| part(url, name);
        assert_eq!(of("PROTOCOL").as_deref(), Some("HTTP"));
        assert_eq!(of("HOST").as_deref(), Some("Shop.Example.com"));
        assert_eq!(of("USERINFO").as_deref(), Some("Me:x"));
        assert_eq!(of("AUTHORITY").as_deref(), Some("Me:x@Shop.Example.com:80"));
        assert_eq!(of("FILE").as_deref(), Some("/admin/../etc?a=1&b"));
        assert_eq!(of("REF").as_deref(), Some("top"));
        assert_eq!(part("http://my_host/a", "HOST"), None);
        assert_eq!(part("http://my_host/a", "AUTHORITY").as_deref(), Some("my_host"));
        assert_eq!(part("http://[::1]:80/", "HOST").as_deref(), Some("[::1]"));
        assert_eq!(part("http://10.0.0.1:8080", "HOST").as_deref(), Some("10.0.0.1"));
        assert_eq!(part("http://10.0.0.1:8080", "PATH").as_deref(), Some(""));
        assert_eq!(part("/a?b", "PATH").as_deref(), Some("/a"));
        assert_eq!(part("mailto:a@b.c", "PROTOCOL").as_deref(), Some("mailto"));
        assert_eq!(part("mailto:a@b.c", "FILE"), None);
        assert_eq!(part("http://a@b@c/p", "HOST"), None);
        assert_eq!(part("http://u:p@host:port/p?q", "HOST"), None);
        assert_eq!(part("http://u:p@host:port/p?q", "AUTHORITY").as_deref(), Some("u:p@host:port"));
        assert_eq!(part("http://u:p@host:port/p?q", "QUERY").as_deref(), Some("q"));
        assert_eq!(part("http://h:99999999999/", "HOST"), None);
        assert_eq!(part("http://123/", "HOST").as_deref(), Some("123"));
        assert_eq!(part("http://123.456/", "HOST"), None);
        assert_eq!(part("http://@h/p", "USERINFO").as_deref(), Some(""));
        assert_eq!(part("http://[::1%eth0]:80/", "HOST").as_deref(), Some("[::1%eth0]"));
    }

    #[test]
    fn only_urls_have_parts() {
        for url in ["", "#f", "?q", "a?b:c", "//h/p", "http:///p", "http://#x", "http://h:/x"] {
            assert!(UrlParts::of(url).is_some(), "{url}");
        }
        for url in ["http://%41/", "http://h/\u{1F600}", "http://\u{e9}.com/", "http://h/?a[1]"] {
            assert!(UrlParts::of(url).is_some(), "{url}");
        }
        for wrong in ["x y", "http://h ", "http://", "http:", "a:", "1a:b", "a_b://x", "a:a b"] {
            assert!(UrlParts::of(wrong).is_none(), "{wrong}");
        }
        for wrong in ["http://[zz]/", "http://[::1]x/", "http://u[v@h/", "http://[fe80::1%a b]/"] {
            assert!(UrlParts::of(wrong).is_none(), "{wrong}");
        }
        for wrong in ["http://h%zz/", "http://h/%z", "http://h/a[1]", "http://h/#a#b", "a://h|x"] {
            assert!(UrlParts::of(wrong).is_none(), "{wrong}");
        }
        for wrong in ["http://h/a\\b", "http://h/a\u{a0}b", "http://h/\u{3000}", ":x"] {
            assert!(UrlParts::of(wrong).is_none(), "{wrong}");
        }
    }
}
