//! Java's regular expressions on Rust's engine.
//!
//! The notations differ in details, which [`pattern_syntax`](super::pattern_syntax) translates.
//! Rust's engine takes time linear in the text whatever the pattern is, and so has no look-around,
//! no back-references and no possessive quantifiers; patterns with those are refused.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::common::{Result, plan_datafusion_err};
use parking_lot::Mutex;
use regex::{CaptureLocations, Regex};

use super::pattern_syntax::translated;

/// How many compiled patterns are kept. Queries have a few; more come from patterns in columns.
const CACHED_MAX: usize = 128;

static CACHE: Mutex<Option<HashMap<String, Arc<Pattern>>>> = Mutex::new(None);

/// A pattern that is ready to search with.
#[derive(Debug)]
pub(crate) struct Pattern {
    source: String,
    plain: Regex,
    /// For texts that end with a line break, where that matters.
    lined: Option<Lined>,
}

/// A pattern in which `$` takes a line break at the end into a group.
#[derive(Debug)]
struct Lined {
    regex: Regex,
    /// The number in the engine of each group of the pattern.
    groups: Vec<usize>,
    /// The groups that stand for `$`.
    ends: Vec<usize>,
}

impl Pattern {
    fn new(source: &str) -> Result<Self, regex::Error> {
        let plain = translated(source, false);
        let lined = match plain.has_end {
            true => {
                let lined = translated(source, true);
                let regex = Regex::new(&lined.text)?;
                Some(Lined { regex, groups: lined.groups, ends: lined.ends })
            }
            false => None,
        };
        Ok(Self { source: source.to_owned(), plain: Regex::new(&plain.text)?, lined })
    }

    /// As it is written.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// How many groups there are, and the match itself.
    pub(super) fn groups_len(&self) -> usize {
        self.plain.captures_len()
    }

    fn lined_for(&self, text: &str) -> Option<&Lined> {
        const LINE_BREAKS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
        self.lined.as_ref().filter(|_| text.ends_with(LINE_BREAKS))
    }

    /// Whether the pattern is found anywhere in `text`.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.lined_for(text).map_or(&self.plain, |lined| &lined.regex).is_match(text)
    }

    /// The first place of `text` that matches.
    pub(crate) fn find(&self, text: &str) -> Option<Range<usize>> {
        self.find_at(text, 0)
    }

    /// The first place from the byte `start` on.
    pub(super) fn find_at(&self, text: &str, start: usize) -> Option<Range<usize>> {
        match self.lined_for(text) {
            Some(_) => self.groups_at(text, start)?.get(0),
            None => self.plain.find_at(text, start).map(|found| found.range()),
        }
    }

    /// The first match from the byte `start` on, with its groups.
    pub(super) fn groups_at(&self, text: &str, start: usize) -> Option<Groups<'_>> {
        let lined = self.lined_for(text);
        let regex = lined.map_or(&self.plain, |lined| &lined.regex);
        let mut locations = regex.capture_locations();
        let mut end = regex.captures_read_at(&mut locations, text, start)?.end();
        for (from, to) in
            lined.iter().flat_map(|lined| &lined.ends).filter_map(|group| locations.get(*group))
        {
            if from < to && to == text.len() {
                end = end.min(from);
            }
        }
        Some(Groups { locations, lined, end })
    }

    fn group_named(&self, name: &str) -> Option<usize> {
        self.plain.capture_names().position(|known| known == Some(name))
    }
}

/// The groups of a match.
pub(super) struct Groups<'p> {
    locations: CaptureLocations,
    lined: Option<&'p Lined>,
    /// Where the match ends, which no group goes beyond.
    end: usize,
}

impl Groups<'_> {
    /// Where a group is, and as group 0 the match.
    pub(super) fn get(&self, group: usize) -> Option<Range<usize>> {
        let at = self.lined.map_or(Some(group), |lined| lined.groups.get(group).copied())?;
        let (start, end) = self.locations.get(at)?;
        Some(start.min(self.end)..end.min(self.end))
    }

    /// The text of a group; empty where it is no part of the match.
    pub(super) fn text<'t>(&self, group: usize, text: &'t str) -> &'t str {
        self.get(group).map_or("", |place| &text[place])
    }
}

/// The compiled `pattern`. Compiling is done once, not for every record batch, and the compiled
/// form is shared, since the engine learns from the texts that it has seen.
pub(crate) fn compile(pattern: &str) -> Result<Arc<Pattern>> {
    // The lock is held while compiling: the other threads of a query want the same pattern, and
    // would compile it as well.
    let mut cache = CACHE.lock();
    let cache = cache.get_or_insert_default();
    if let Some(regex) = cache.get(pattern) {
        return Ok(Arc::clone(regex));
    }
    let refused = |reason: &str| {
        plan_datafusion_err!(
            "the regular expression {pattern:?} cannot be used: {reason}. Look-around, \
             back-references and possessive quantifiers are not supported"
        )
    };
    if is_possessive(pattern) {
        return Err(refused("it has a possessive quantifier"));
    }
    let regex = Pattern::new(pattern).map_err(|error| refused(&reason(&error)))?;
    if cache.len() == CACHED_MAX {
        // Which patterns will be used again is not known, and those that are come back at the cost
        // of one compilation.
        cache.clear();
    }
    let regex = Arc::new(regex);
    cache.insert(pattern.to_owned(), Arc::clone(&regex));
    Ok(regex)
}

/// Whether a `+` follows a quantifier, which Rust's engine would take for a repetition.
fn is_possessive(pattern: &str) -> bool {
    let mut in_class = 0;
    let mut after_quantifier = false;
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            // What is quoted has no quantifiers.
            '\\' if chars.as_str().starts_with('Q') => {
                let quoted = chars.as_str();
                let end = quoted.find("\\E").map_or(quoted.len(), |at| at + 2);
                chars = quoted[end..].chars();
            }
            '\\' => {
                // The escaped character is skipped, so that `\*+` is a star some times over. The
                // braces of `\p{L}+` are no quantifier either.
                let has_name = matches!(chars.next(), Some('p' | 'P' | 'x'));
                if has_name && chars.as_str().starts_with('{') {
                    chars.by_ref().find(|char| *char == '}');
                }
            }
            '[' => in_class += 1,
            ']' if in_class > 0 => in_class -= 1,
            '+' if after_quantifier && in_class == 0 => return true,
            _ => {}
        }
        after_quantifier = matches!(char, '*' | '+' | '?' | '}') && in_class == 0;
    }
    false
}

/// The last line of the engine's message; the others draw the pattern.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

/// The last pattern used, so that a column of equal patterns costs a comparison a row.
#[derive(Default)]
pub(super) struct Last {
    pattern: String,
    regex: Option<Arc<Pattern>>,
}

impl Last {
    pub fn get(&mut self, pattern: &str) -> Result<&Pattern> {
        if self.regex.is_none() || self.pattern != pattern {
            self.regex = Some(compile(pattern)?);
            pattern.clone_into(&mut self.pattern);
        }
        Ok(self.regex.as_deref().expect("it was set above"))
    }
}

/// A replacement in Java's notation: `$1`, `${name}`, and a backslash before what is meant plainly.
pub(super) struct Replacement {
    parts: Vec<ReplacementPart>,
}

enum ReplacementPart {
    Text(String),
    Group(usize),
}

impl Replacement {
    /// Reads a replacement for matches of `regex`, whose groups it may name.
    pub fn parse(text: &str, regex: &Pattern) -> Result<Self> {
        let refused = |what: &str| plan_datafusion_err!("the replacement {text:?} {what}");
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            match char {
                '\\' => plain.push(chars.next().ok_or_else(|| refused("ends in a backslash"))?),
                '$' => {
                    if !plain.is_empty() {
                        parts.push(ReplacementPart::Text(std::mem::take(&mut plain)));
                    }
                    if chars.next_if_eq(&'{').is_some() {
                        let name: String = chars.by_ref().take_while(|char| *char != '}').collect();
                        let Some(group) = regex.group_named(&name) else {
                            return Err(refused("names a group that the pattern does not have"));
                        };
                        parts.push(ReplacementPart::Group(group));
                        continue;
                    }
                    // Java takes one digit, and further ones as long as there is such a group.
                    let digit = chars.next().and_then(|char| char.to_digit(10));
                    let mut group = digit.ok_or_else(|| refused("has a $ without group"))? as usize;
                    while let Some(digit) = chars.peek().and_then(|char| char.to_digit(10)) {
                        let longer = group * 10 + digit as usize;
                        if longer >= regex.groups_len() {
                            break;
                        }
                        group = longer;
                        chars.next();
                    }
                    if group >= regex.groups_len() {
                        return Err(refused("names a group that the pattern does not have"));
                    }
                    parts.push(ReplacementPart::Group(group));
                }
                char => plain.push(char),
            }
        }
        if !plain.is_empty() {
            parts.push(ReplacementPart::Text(plain));
        }
        Ok(Self { parts })
    }

    /// Appends the replacement for one match in `text`.
    pub fn write(&self, groups: &Groups<'_>, text: &str, out: &mut String) {
        for part in &self.parts {
            match part {
                ReplacementPart::Text(plain) => out.push_str(plain),
                ReplacementPart::Group(group) => out.push_str(groups.text(*group, text)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).expect("the pattern is supported").is_match(text)
    }

    #[test]
    fn classes_are_ascii_as_in_java() {
        assert!(matches(r"^\d+$", "123"));
        assert!(!matches(r"\d", "\u{0663}"));
        assert!(!matches(r"\w", "é"));
        assert!(matches(r"^[\d.]+$", "1.2"));
        assert!(matches(r"^[^\d]+$", "ab"));
        assert!(matches(r"\p{Upper}\P{Digit}", "Ab"));
        assert!(matches(r"^\p{L}+$", "é"));
        assert!(matches(r"^\p{IsAlphabetic}+$", "é"));
        assert!(matches(r"\<a\>", "<a>"));
        assert!(matches(r"^\Qa.b(\E$", "a.b("));
        assert!(!matches(r"\Qa.b\E", "axb"));
        assert!(matches(r"\bcat\b", "the cat sat"));
        assert!(matches(r"\\d", r"\d"));
        assert!(matches(r"^\++[*+]+$", "++*+"));
    }

    #[test]
    fn the_end_is_also_before_a_line_break() {
        let found = |pattern: &str, text: &str| compile(pattern).unwrap().find(text);
        assert_eq!(found("c$", "abc"), Some(2..3));
        assert_eq!(found("c$", "abc\n"), Some(2..3));
        assert_eq!(found("(?:b|c$)c?", "ac\r\n"), Some(1..2));
        assert_eq!(found(r"\s+$", "a \n"), Some(1..3));
        assert_eq!(found("(?d)c$", "c\r"), None);
        assert_eq!(found(r"c\z", "c\n"), None);
        assert_eq!(found(r"c\Z", "c\n"), Some(0..1));
        let pattern = compile("(a)(b$)|(c)$").unwrap();
        let groups = pattern.groups_at("xab\n", 0).unwrap();
        assert_eq!((groups.get(1), groups.get(2), groups.get(3)), (Some(1..2), Some(2..3), None));
        assert_eq!(pattern.groups_len(), 4);
    }

    #[test]
    fn case_and_classes_are_ascii_without_flags() {
        assert!(matches("(?i)É?b", "B") && !matches("(?i)é", "É") && matches("(?iu)é", "É"));
        assert!(!matches(r"\w", "é") && matches(r"(?U)\w", "é"));
        assert!(!matches("a.b", "a\rb") && matches("(?s)a.b", "a\nb"));
        assert!(matches("(?i)[a-c]X", "Bx") && !matches("(?i)k", "\u{212A}"));
    }

    #[test]
    fn what_the_engine_lacks_is_refused() {
        for pattern in ["(?=a)", r"(a)\1", "a++b", "a?+", "[a]{2}+", "("] {
            let error = compile(pattern).expect_err(pattern).to_string();
            assert!(error.contains("cannot be used"), "{error}");
        }
    }

    #[test]
    fn compiled_patterns_are_shared() {
        let first = compile("shared-[0-9]").unwrap();
        assert!(Arc::ptr_eq(&first, &compile("shared-[0-9]").unwrap()));
    }
}
