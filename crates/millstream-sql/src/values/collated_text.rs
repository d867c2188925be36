//! Texts as a collation sees them: the key that texts are compared by, and what is found in them.
//!
//! To `UTF8_LCASE` two texts are equal if the lower cases of their characters are, one by one:
//! without regard to what stands beside a character, so that the sigma at the end of a word is like
//! any other. `İ` alone has a lower case of two characters; a part that begins or ends between them
//! is not found.

use std::borrow::Cow;

use super::unicode_order::Order;
use crate::types::collation::{Collation, Letters};

/// What texts are compared by.
pub struct Keys {
    collation: Collation,
    order: Option<Order>,
}

impl Keys {
    /// `None` if there are no tables of the collation's language.
    pub fn new(collation: Collation) -> Option<Self> {
        let order = match collation.letters {
            Letters::Unicode(unicode) => Some(Order::new(unicode)?),
            _ => None,
        };
        Some(Self { collation, order })
    }

    /// The key of a text: two are equal if these are, and their order is that of the bytes.
    pub fn key<'a>(&self, text: &'a str) -> Cow<'a, [u8]> {
        let text = trimmed(self.collation, text);
        match &self.order {
            Some(order) => Cow::Owned(order.key(text)),
            None => match lettered(self.collation, text) {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
        }
    }
}

/// A text without the blanks at its end, if they do not count.
pub fn trimmed(collation: Collation, text: &str) -> &str {
    if collation.trims { text.trim_end_matches(' ') } else { text }
}

/// A text in the letters that are compared, where these are characters.
fn lettered(collation: Collation, text: &str) -> Cow<'_, str> {
    match collation.letters {
        Letters::Bytes | Letters::Unicode(_) => Cow::Borrowed(text),
        Letters::LowerCase if text.bytes().all(|byte| matches!(byte, 0..=64 | 91..=127)) => {
            Cow::Borrowed(text)
        }
        Letters::LowerCase => Cow::Owned(text.chars().flat_map(lower).collect()),
    }
}

/// The lower case of a character, the same for both of the small sigmas.
pub fn lower(char: char) -> std::char::ToLowercase {
    if char == 'ς' { 'σ'.to_lowercase() } else { char.to_lowercase() }
}

/// A text that parts are looked for in. Places are numbers of characters.
pub struct Searched {
    /// The text in the letters that are compared.
    letters: String,
    /// Where each character of the text begins there, and at last where they end.
    starts: Vec<usize>,
}

impl Searched {
    /// `text`, whose blanks at the end count.
    pub fn new(collation: Collation, text: &str) -> Self {
        let (mut letters, mut starts) = (String::with_capacity(text.len()), Vec::new());
        for char in text.chars() {
            starts.push(letters.len());
            match collation.letters {
                Letters::LowerCase => letters.extend(lower(char)),
                Letters::Bytes | Letters::Unicode(_) => letters.push(char),
            }
        }
        starts.push(letters.len());
        Self { letters, starts }
    }

    /// How many characters it has.
    pub fn chars(&self) -> usize {
        self.starts.len() - 1
    }

    /// The first place from `from` on where it has `part`, with the place behind that.
    pub fn find(&self, part: &Part, from: usize) -> Option<(usize, usize)> {
        let mut at = *self.starts.get(from)?;
        loop {
            let start = at + self.letters[at..].find(part.0.as_str())?;
            if let Some(found) = self.place(start, start + part.0.len()) {
                return Some(found);
            }
            at = start + self.letters[start..].chars().next()?.len_utf8();
        }
    }

    /// The last place where it has `part`, which ends at `until` or before.
    pub fn find_last(&self, part: &Part, until: usize) -> Option<(usize, usize)> {
        let mut end = *self.starts.get(until)?;
        loop {
            let start = self.letters[..end].rfind(part.0.as_str())?;
            let behind = start + part.0.len();
            if let Some(found) = self.place(start, behind) {
                return Some(found);
            }
            end = behind - self.letters[..behind].chars().next_back()?.len_utf8();
        }
    }

    /// Whether it begins with `part`.
    pub fn starts_with(&self, part: &Part) -> bool {
        self.letters.starts_with(part.0.as_str()) && self.place(0, part.0.len()).is_some()
    }

    /// Whether it ends with `part`.
    pub fn ends_with(&self, part: &Part) -> bool {
        let end = self.letters.len();
        self.letters.ends_with(part.0.as_str()) && self.place(end - part.0.len(), end).is_some()
    }

    /// Places of letters as places of characters, if both are between two of them.
    fn place(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let place = |at: usize| self.starts.binary_search(&at).ok();
        Some((place(start)?, place(end)?))
    }
}

/// A part that is looked for, in the letters that are compared.
pub struct Part(String);

impl Part {
    /// `text`, whose blanks at the end count.
    pub fn new(collation: Collation, text: &str) -> Self {
        Self(lettered(collation, text).into_owned())
    }
}

/// The characters of a text from one place to another.
pub fn between(text: &str, from: usize, to: usize) -> &str {
    let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
    let start = byte(from);
    &text[start..byte(to).max(start)]
}

/// Characters that are taken off the ends of a text.
pub struct TrimSet {
    lower: Vec<char>,
    /// `İ`, which `i` and a dot above it are, too.
    dotted: bool,
}

impl TrimSet {
    /// The characters of `text`.
    pub fn new(collation: Collation, text: &str) -> Self {
        let is_dotted = |char: char| collation.letters == Letters::LowerCase && char == 'İ';
        let dotted = text.chars().any(is_dotted);
        let chars = text.chars().filter(|char| !is_dotted(*char));
        Self { lower: chars.map(|char| one(collation, char)).collect(), dotted }
    }

    /// How many of these characters, which are in lower case, are taken off, the first one first.
    /// `pair` is what two of them in a row must be to be an `İ`.
    fn count(&self, chars: impl Iterator<Item = char>, pair: [char; 2]) -> usize {
        let (mut chars, mut count) = (chars.peekable(), 0);
        while let Some(char) = chars.next() {
            let is_pair = self.dotted && char == pair[0] && chars.peek() == Some(&pair[1]);
            if is_pair {
                chars.next();
                count += 2;
            } else if self.lower.contains(&char) || (self.dotted && char == 'İ') {
                count += 1;
            } else {
                break;
            }
        }
        count
    }
}

/// A character in the letters that are compared; `İ` as it is.
fn one(collation: Collation, char: char) -> char {
    match collation.letters {
        Letters::LowerCase if char != 'İ' => lower(char).next().unwrap_or(char),
        _ => char,
    }
}

/// `text` without what `set` takes off its beginning.
pub fn trim_start<'a>(collation: Collation, text: &'a str, set: &TrimSet) -> &'a str {
    let chars = text.chars().map(|char| one(collation, char));
    let count = set.count(chars, ['i', '\u{307}']);
    between(text, count, usize::MAX)
}

/// `text` without what `set` takes off its end. Blanks at the end that do not count stay there and
/// hide nothing.
pub fn trim_end(collation: Collation, text: &str, set: &TrimSet) -> String {
    let end = if collation.trims && !set.lower.contains(&' ') { blanks_from(text) } else { None };
    let chars = text.chars().count();
    let Some(end) = end.filter(|end| *end < chars) else {
        // Spark looks for blanks by bytes where it counts characters: behind letters of several
        // bytes it finds none, and then drops them.
        let is_dropped =
            collation.trims && collation.letters == Letters::Bytes && !set.lower.contains(&' ');
        let text = if is_dropped { text.trim_end_matches(' ') } else { text };
        return without_end(collation, text, set).to_owned();
    };
    if end == 0 {
        return text.to_owned();
    }
    let kept = match collation.letters {
        Letters::LowerCase => between(text, 0, end),
        Letters::Bytes | Letters::Unicode(_) => text.trim_end_matches(' '),
    };
    format!("{}{}", without_end(collation, kept, set), between(text, end, chars))
}

fn without_end<'a>(collation: Collation, text: &'a str, set: &TrimSet) -> &'a str {
    let chars = text.chars().rev().map(|char| one(collation, char));
    let count = set.count(chars, ['\u{307}', 'i']);
    between(text, 0, text.chars().count() - count)
}

/// The place from which on a text has blanks only, as Spark counts it: by bytes, from the place
/// whose number is that of the characters.
fn blanks_from(text: &str) -> Option<usize> {
    let chars = text.chars().count();
    let before = text.as_bytes().get(..chars)?;
    Some(before.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1))
}

/// What `translate` puts in the place of characters.
pub struct Translation {
    /// By character in the letters that are compared; `None` takes it away.
    to: Vec<(char, Option<char>)>,
    /// What `İ` becomes.
    dotted: Option<Option<char>>,
}

impl Translation {
    /// Each character of `from` becomes the one of `to` at the same place. `None` where two of
    /// `from` are the same letter with different results, of which Spark takes one by chance.
    pub fn new(collation: Collation, from: &str, to: &str) -> Option<Self> {
        let mut pairs: Vec<(char, Option<char>)> = Vec::new();
        let mut others = to.chars();
        for char in from.chars() {
            let other = others.next();
            if !pairs.iter().any(|(known, _)| *known == char) {
                pairs.push((char, other));
            }
        }
        let is_small = pairs.len() <= 24 && pairs.iter().all(|(char, _)| char.is_ascii());
        let (mut letters, mut dotted) = (Vec::<(char, Option<char>)>::new(), None);
        for (char, other) in pairs {
            if collation.letters == Letters::LowerCase && char == 'İ' {
                dotted = Some(other);
                continue;
            }
            let letter = one(collation, char);
            match letters.iter().find(|(known, _)| *known == letter) {
                None => letters.push((letter, other)),
                Some((_, first)) if *first == other || is_small => {}
                Some(_) => return None,
            }
        }
        Some(Self { to: letters, dotted })
    }

    /// Adds `text`, translated, to `out`.
    pub fn write(&self, collation: Collation, text: &str, out: &mut String) {
        let mut chars = text.chars();
        let mut held = None;
        while !chars.as_str().is_empty() {
            let Some(char) = held.take().or_else(|| chars.next()) else { break };
            // Spark reads on behind an `i`, and does not look at what it has read at the end.
            let is_dotted = match chars.clone().next() {
                Some(next) if self.dotted.is_some() && char == 'i' => {
                    chars.next();
                    held = Some(next).filter(|next| *next != '\u{307}');
                    held.is_none()
                }
                _ => collation.letters == Letters::LowerCase && char == 'İ',
            };
            match self.result(collation, char, is_dotted) {
                Some(other) => out.extend(other),
                None => out.push(char),
            }
        }
        out.extend(held);
    }

    /// What a character becomes; `None` if it stays.
    fn result(&self, collation: Collation, char: char, is_dotted: bool) -> Option<Option<char>> {
        if is_dotted {
            return self.dotted;
        }
        let letter = one(collation, char);
        self.to.iter().find(|(known, _)| *known == letter).map(|(_, other)| *other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collation(name: &str) -> Collation {
        Collation::parse(name).expect("there is one of this name")
    }

    #[test]
    fn a_key_is_the_same_for_texts_that_are_equal() {
        let [bytes, lower, trimmed, both, unicode] =
            ["utf8_binary", "utf8_lcase", "utf8_binary_rtrim", "utf8_lcase_rtrim", "unicode_rtrim"]
                .map(|name| Keys::new(collation(name)).expect("it needs no tables, or has them"));
        assert_eq!(*bytes.key("aB "), *b"aB ");
        assert_eq!(*lower.key("aB "), *b"ab ");
        assert_eq!(*trimmed.key("aB  "), *b"aB");
        assert_eq!(*both.key("aB\t "), *b"ab\t");
        assert_eq!(lower.key("ΣΊΣΥΦΟΣ"), lower.key("σίσυφος"));
        assert_eq!(*lower.key("İo"), *"i\u{307}o".as_bytes());
        assert_eq!(unicode.key("a "), unicode.key("a"));
        assert_ne!(unicode.key("a\n"), unicode.key("a"));
    }

    #[test]
    fn half_of_a_character_is_not_found() {
        let lower = collation("utf8_lcase");
        let found = |text: &str, part: &str, from| {
            Searched::new(lower, text).find(&Part::new(lower, part), from)
        };
        assert_eq!(found("xİo", "i\u{307}O", 0), Some((1, 3)));
        assert_eq!(found("xİo", "\u{307}o", 0), None);
        assert_eq!(found("İi", "i", 0), Some((1, 2)));
        assert_eq!(found("abAB", "B", 2), Some((3, 4)));
        assert_eq!(found("abAB", "", 4), Some((4, 4)));
        let text = Searched::new(lower, "aXbx");
        assert_eq!(text.find_last(&Part::new(lower, "x"), 4), Some((3, 4)));
        assert_eq!(text.find_last(&Part::new(lower, "x"), 3), Some((1, 2)));
        assert!(text.starts_with(&Part::new(lower, "Ax")));
        assert!(text.ends_with(&Part::new(lower, "BX")));
        assert!(!Searched::new(lower, "xİ").ends_with(&Part::new(lower, "\u{307}")));
    }

    #[test]
    fn blanks_at_the_end_hide_nothing_and_stay() {
        let trims = |name: &str, text: &str, set: &str| {
            let collation = collation(name);
            let set = TrimSet::new(collation, set);
            trim_end(collation, trim_start(collation, text, &set), &set)
        };
        assert_eq!(trims("utf8_lcase", "AbcBA", "ab"), "c");
        assert_eq!(trims("utf8_lcase", "AbcBA  ", "ab"), "cBA  ");
        assert_eq!(trims("utf8_lcase_rtrim", "AbcBA  ", "ab"), "c  ");
        assert_eq!(trims("utf8_lcase_rtrim", "AbcBA  ", "ab "), "c");
        assert_eq!(trims("utf8_binary_rtrim", "AbcBA  ", "A"), "bcB  ");
        assert_eq!(trims("utf8_lcase", "i\u{307}oİ", "İ"), "o");
    }

    #[test]
    fn letters_are_translated_in_either_case() {
        let lower = collation("utf8_lcase");
        let translated = |text: &str, from: &str, to: &str| {
            let mut out = String::new();
            let translation = Translation::new(lower, from, to)?;
            translation.write(lower, text, &mut out);
            Some(out)
        };
        assert_eq!(translated("aBcDCbA", "aBc", "123").as_deref(), Some("123D321"));
        assert_eq!(translated("aBcDCbA", "aAb", "12").as_deref(), Some("1cDC1"));
        assert_eq!(translated("éÉ", "éÉ", "12"), None);
        assert_eq!(translated("i\u{307}xİ", "İ", "1").as_deref(), Some("1x1"));
    }
}
