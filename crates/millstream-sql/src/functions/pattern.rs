//! Java's regular expressions on Rust's engine.
//!
//! The notations differ in details that are translated here: `\d`, `\w` and `\s` mean ASCII in
//! Java, `\<` is a plain `<`, `\Q...\E` quotes, `\p{Alpha}` is ASCII. Rust's engine takes time
//! linear in the text whatever the pattern is, and so has no look-around, no back-references and
//! no possessive quantifiers; patterns with those are refused.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{Result, plan_datafusion_err};
use parking_lot::Mutex;
use regex::{Captures, Regex};

/// How many compiled patterns are kept. Queries have a few; more come from patterns in columns.
const CACHED_MAX: usize = 128;

static CACHE: Mutex<Option<HashMap<String, Arc<Regex>>>> = Mutex::new(None);

/// The compiled `pattern`. Compiling is done once, not for every record batch, and the compiled
/// form is shared, since the engine learns from the texts that it has seen.
pub(crate) fn compile(pattern: &str) -> Result<Arc<Regex>> {
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
    let regex = Regex::new(&translate(pattern)).map_err(|error| refused(&reason(&error)))?;
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
    regex: Option<Arc<Regex>>,
}

impl Last {
    pub fn get(&mut self, pattern: &str) -> Result<&Regex> {
        if self.regex.is_none() || self.pattern != pattern {
            self.regex = Some(compile(pattern)?);
            pattern.clone_into(&mut self.pattern);
        }
        Ok(self.regex.as_deref().expect("it was set above"))
    }
}

/// A Java pattern in Rust's notation.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let Some(escaped) = after.chars().next() else {
            out.push('\\');
            return out;
        };
        rest = &after[escaped.len_utf8()..];
        match escaped {
            'd' => out.push_str("[0-9]"),
            'D' => out.push_str("[^0-9]"),
            'w' => out.push_str("[A-Za-z0-9_]"),
            'W' => out.push_str("[^A-Za-z0-9_]"),
            's' => out.push_str(r"[ \t\n\x0B\f\r]"),
            'S' => out.push_str(r"[^ \t\n\x0B\f\r]"),
            'h' => out.push_str(r"[ \t\xA0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000]"),
            'R' => out.push_str(r"(?:\r\n|[\n\x0B\f\r\u0085\u2028\u2029])"),
            // Java's `\Z` is also before a line break at the end.
            'Z' => out.push_str(r"(?:\n?\z)"),
            'e' => out.push_str(r"\x1B"),
            // A word is of ASCII letters, as for `\w`. `\b{g}` and its like go to the engine, which
            // refuses what it does not know.
            'b' if !rest.starts_with('{') => out.push_str(r"(?-u:\b)"),
            'Q' => {
                let (quoted, after) = rest.split_once(r"\E").unwrap_or((rest, ""));
                out.push_str(&regex::escape(quoted));
                rest = after;
            }
            'p' | 'P' => rest = property(escaped, rest, &mut out),
            // In Rust these are the two ends of a word.
            '<' | '>' => out.push(escaped),
            other => {
                out.push('\\');
                out.push(other);
            }
        }
    }
    out.push_str(rest);
    out
}

/// Translates `{Name}` after `\p` or `\P`; returns what follows it.
fn property<'a>(escaped: char, rest: &'a str, out: &mut String) -> &'a str {
    let parsed = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    let Some((name, after)) = parsed else {
        out.push('\\');
        out.push(escaped);
        return rest;
    };
    let ascii = match name {
        "Lower" | "Upper" | "ASCII" | "Alpha" | "Digit" | "Alnum" | "Punct" | "Graph" | "Print"
        | "Blank" | "Cntrl" | "Space" => Some(name.to_lowercase()),
        "XDigit" => Some("xdigit".to_owned()),
        _ => None,
    };
    match ascii {
        Some(class) => {
            let not = if escaped == 'P' { "^" } else { "" };
            out.push_str(&format!("[[:{not}{class}:]]"));
        }
        None => {
            // Java writes `\p{IsAlphabetic}` for properties that Rust knows without the `Is`.
            let name = name.strip_prefix("Is").unwrap_or(name);
            out.push_str(&format!("\\{escaped}{{{name}}}"));
        }
    }
    after
}

/// A replacement in Java's notation: `$1`, `${name}`, and a backslash before what is meant plainly.
pub(super) struct Replacement {
    parts: Vec<ReplacementPart>,
}

enum ReplacementPart {
    Text(String),
    Group(usize),
    Named(String),
}

impl Replacement {
    /// Reads a replacement for matches of `regex`, whose groups it may name.
    pub fn parse(text: &str, regex: &Regex) -> Result<Self> {
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
                        if !regex.capture_names().flatten().any(|known| known == name) {
                            return Err(refused("names a group that the pattern does not have"));
                        }
                        parts.push(ReplacementPart::Named(name));
                        continue;
                    }
                    // Java takes one digit, and further ones as long as there is such a group.
                    let digit = chars.next().and_then(|char| char.to_digit(10));
                    let mut group = digit.ok_or_else(|| refused("has a $ without group"))? as usize;
                    while let Some(digit) = chars.peek().and_then(|char| char.to_digit(10)) {
                        let longer = group * 10 + digit as usize;
                        if longer >= regex.captures_len() {
                            break;
                        }
                        group = longer;
                        chars.next();
                    }
                    if group >= regex.captures_len() {
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

    /// Appends the replacement for one match.
    pub fn write(&self, captures: &Captures<'_>, out: &mut String) {
        for part in &self.parts {
            match part {
                ReplacementPart::Text(text) => out.push_str(text),
                ReplacementPart::Group(group) => {
                    out.push_str(captures.get(*group).map_or("", |m| m.as_str()))
                }
                ReplacementPart::Named(name) => {
                    out.push_str(captures.name(name).map_or("", |m| m.as_str()))
                }
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
