//! JSON as Spark's parser takes it beyond RFC 8259: in single quotation marks, with `NaN`, with
//! comments, and with text behind the first value.
//!
//! It is rewritten as RFC 8259 has it, and then read as any other. That is done for records which
//! are no JSON otherwise, so that the others pay nothing.

use std::fmt::Write as _;

use super::scan::DEPTH_MAX;

/// How a NaN without quotation marks is rewritten: what is read tells it from a string by its
/// escape.
pub(super) const NAN: &str = "\\u004eaN";

/// What is taken beyond RFC 8259, in the words of Spark's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leniency {
    pub single_quotes: bool,
    pub non_numeric_numbers: bool,
    pub unquoted_field_names: bool,
    pub numeric_leading_zeros: bool,
    pub comments: bool,
    pub backslash_escaping_any_character: bool,
    pub unquoted_control_characters: bool,
}

impl Leniency {
    /// What `from_json` takes without options.
    pub fn of_records() -> Self {
        Self { single_quotes: true, non_numeric_numbers: true, ..Self::default() }
    }

    /// What functions of paths and members take.
    pub fn of_paths() -> Self {
        Self { single_quotes: true, unquoted_control_characters: true, ..Self::default() }
    }

    /// The option of this name, in lower case.
    pub fn option(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "allowsinglequotes" => &mut self.single_quotes,
            "allownonnumericnumbers" => &mut self.non_numeric_numbers,
            "allowunquotedfieldnames" => &mut self.unquoted_field_names,
            "allownumericleadingzeros" => &mut self.numeric_leading_zeros,
            "allowcomments" => &mut self.comments,
            "allowbackslashescapinganycharacter" => &mut self.backslash_escaping_any_character,
            "allowunquotedcontrolchars" => &mut self.unquoted_control_characters,
            _ => return None,
        })
    }

    /// The first value of `text` as RFC 8259 has it; none if it begins with no value.
    #[cold]
    pub fn strict(self, text: &str) -> Option<String> {
        let out = String::with_capacity(text.len() + 16);
        let mut rewriter = Rewriter { taken: self, text, at: 0, out };
        rewriter.value()?;
        Some(rewriter.out)
    }
}

struct Rewriter<'a> {
    taken: Leniency,
    text: &'a str,
    at: usize,
    out: String,
}

impl<'a> Rewriter<'a> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        self.text.as_bytes()[self.at..].starts_with(text.as_bytes())
    }

    /// The next byte behind white space and comments.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.byte()? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                b'/' if self.taken.comments => {
                    let rest = &self.text[self.at..];
                    let (end, length) = if let Some(comment) = rest.strip_prefix("/*") {
                        (comment.find("*/")? + 2, 2)
                    } else if rest.starts_with("//") {
                        (rest.find('\n').unwrap_or(rest.len()), 0)
                    } else {
                        return None;
                    };
                    self.at += end + length;
                }
                byte => return Some(byte),
            }
        }
    }

    /// Takes a byte that stays as it is.
    fn keep(&mut self, byte: u8) {
        self.out.push(char::from(byte));
        self.at += 1;
    }

    /// Takes a value without recursion, so that no text can overflow the stack.
    fn value(&mut self) -> Option<()> {
        // Of the open brackets, whether they are those of objects.
        let mut open: Vec<bool> = Vec::new();
        loop {
            let first = self.peek()?;
            if matches!(first, b'{' | b'[') {
                let is_object = first == b'{';
                if open.len() == DEPTH_MAX {
                    return None;
                }
                self.keep(first);
                open.push(is_object);
                let closes = self.peek()? == if is_object { b'}' } else { b']' };
                if !closes && is_object {
                    self.key()?;
                }
                if !closes {
                    continue;
                }
            } else {
                self.scalar(first)?;
            }
            if self.after_value(&mut open)? {
                return Some(());
            }
        }
    }

    /// Takes what follows a value: closing brackets, then a comma and a key. True at the very end.
    fn after_value(&mut self, open: &mut Vec<bool>) -> Option<bool> {
        while let Some(is_object) = open.last().copied() {
            match (self.peek()?, is_object) {
                (b',', _) => {
                    self.keep(b',');
                    if is_object {
                        self.key()?;
                    }
                    return Some(false);
                }
                (close @ b'}', true) | (close @ b']', false) => {
                    self.keep(close);
                    open.pop();
                }
                _ => return None,
            }
        }
        Some(true)
    }

    fn key(&mut self) -> Option<()> {
        match self.peek()? {
            quote @ (b'"' | b'\'') => self.string(quote)?,
            _ if self.taken.unquoted_field_names => self.name()?,
            _ => return None,
        }
        if self.peek()? != b':' {
            return None;
        }
        self.keep(b':');
        Some(())
    }

    /// Takes a name without quotation marks.
    fn name(&mut self) -> Option<()> {
        let is_part = |char: char| char.is_alphanumeric() || "_$@#*-+".contains(char);
        let rest = &self.text[self.at..];
        let end = rest.find(|char| !is_part(char)).unwrap_or(rest.len());
        if end == 0 || rest.starts_with(|char: char| char.is_ascii_digit()) {
            return None;
        }
        self.out.push('"');
        self.out.push_str(&rest[..end]);
        self.out.push('"');
        self.at += end;
        Some(())
    }

    /// Takes a string; `quote` stands at its beginning and its end.
    fn string(&mut self, quote: u8) -> Option<()> {
        if quote == b'\'' && !self.taken.single_quotes {
            return None;
        }
        self.at += 1;
        self.out.push('"');
        loop {
            let rest = &self.text[self.at..];
            let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\'' | b'\\' | 0..=0x1f);
            let plain = rest.bytes().take_while(|byte| is_plain(byte)).count();
            self.out.push_str(&rest[..plain]);
            self.at += plain;
            match self.byte()? {
                byte if byte == quote => {
                    self.at += 1;
                    self.out.push('"');
                    return Some(());
                }
                b'\\' => self.escape()?,
                b'"' => {
                    self.out.push_str("\\\"");
                    self.at += 1;
                }
                b'\'' => self.keep(b'\''),
                control if self.taken.unquoted_control_characters => {
                    _ = write!(self.out, "\\u{control:04x}");
                    self.at += 1;
                }
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        let escaped = self.text[self.at + 1..].chars().next()?;
        match escaped {
            '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => {
                self.out.push('\\');
                self.out.push(escaped);
            }
            'u' => {
                let digits = self.text.as_bytes().get(self.at + 2..self.at + 6)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                self.out.push_str(&self.text[self.at..self.at + 6]);
                self.at += 6;
                return Some(());
            }
            '\'' if self.taken.single_quotes => self.out.push('\''),
            control @ '\0'..='\x1f' if self.taken.backslash_escaping_any_character => {
                _ = write!(self.out, "\\u{:04x}", u32::from(control));
            }
            other if self.taken.backslash_escaping_any_character => self.out.push(other),
            _ => return None,
        }
        self.at += 1 + escaped.len_utf8();
        Some(())
    }

    fn scalar(&mut self, first: u8) -> Option<()> {
        match first {
            b'"' | b'\'' => self.string(first),
            b'-' | b'0'..=b'9' => self.non_number().or_else(|| self.number()),
            b'+' | b'N' | b'I' => self.non_number(),
            _ => {
                let word = ["true", "false", "null"];
                let word = word.into_iter().find(|word| self.starts_with(word))?;
                self.out.push_str(word);
                self.word(word)
            }
        }
    }

    /// Takes a word, behind which no other letters stand.
    fn word(&mut self, word: &str) -> Option<()> {
        self.at += word.len();
        let next = self.text[self.at..].chars().next();
        (!next.is_some_and(|next| next.is_alphanumeric() || next == '_')).then_some(())
    }

    /// Takes NaN or an infinity; the latter is a number that no DOUBLE holds.
    fn non_number(&mut self) -> Option<()> {
        if !self.taken.non_numeric_numbers {
            return None;
        }
        const WORDS: [(&str, &str); 6] = [
            ("NaN", ""),
            ("Infinity", "1e999"),
            ("+Infinity", "1e999"),
            ("+INF", "1e999"),
            ("-Infinity", "-1e999"),
            ("-INF", "-1e999"),
        ];
        let (word, number) = WORDS.into_iter().find(|(word, _)| self.starts_with(word))?;
        if number.is_empty() {
            self.out.extend(["\"", NAN, "\""]);
        }
        self.out.push_str(number);
        self.word(word)
    }

    fn digits(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn number(&mut self) -> Option<()> {
        let mut start = self.at;
        if self.byte() == Some(b'-') {
            self.keep(b'-');
            start = self.at;
        }
        let whole = self.digits();
        let digits = whole.len();
        let zeros = digits - whole.trim_start_matches('0').len();
        if digits == 0 || (digits > 1 && zeros > 0 && !self.taken.numeric_leading_zeros) {
            return None;
        }
        // One zero stays where there is no other digit.
        start += zeros.min(digits - 1);
        if self.byte() == Some(b'.') {
            self.at += 1;
            if self.digits().is_empty() {
                return None;
            }
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            if self.digits().is_empty() {
                return None;
            }
        }
        let number = &self.text[start..self.at];
        self.out.push_str(number);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::scan::record;

    fn taken(leniency: Leniency, text: &str) -> Option<String> {
        let strict = leniency.strict(text)?;
        assert!(record(strict.as_bytes()).is_ok(), "{text} became {strict}");
        Some(strict)
    }

    #[test]
    fn what_is_taken_is_rewritten() {
        let records = Leniency::of_records();
        let one = |text: &str| taken(records, text);
        assert_eq!(one(r#"{'a':'it\'s "x"'}"#).as_deref(), Some(r#"{"a":"it's \"x\""}"#));
        assert_eq!(one("{\"a\":1} trailing").as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(
            one("[ NaN, -Infinity ,[ ] ,{ } ]").as_deref(),
            Some(r#"["\u004eaN",-1e999,[],{}]"#)
        );
        for text in ["{a:1}", "{\"a\":007}", "{\"a\":1 /* c */}", "{\"a\":nullx}", "{\"a\":1", ""] {
            assert_eq!(one(text), None, "{text}");
        }
    }

    #[test]
    fn options_take_more() {
        let mut all = Leniency::of_records();
        let names = [
            "allowunquotedfieldnames",
            "allownumericleadingzeros",
            "allowcomments",
            "allowbackslashescapinganycharacter",
            "allowunquotedcontrolchars",
        ];
        for name in names {
            *all.option(name).expect("it is one") = true;
        }
        let one = |text: &str| taken(all, text);
        assert_eq!(one("{a_1:-007.50}").as_deref(), Some(r#"{"a_1":-7.50}"#));
        assert_eq!(one("{\"a\":000 /* } */}// x").as_deref(), Some(r#"{"a":0}"#));
        assert_eq!(one("[\"\\x\u{1}\"]").as_deref(), Some(r#"["x\u0001"]"#));
        assert_eq!(all.option("mode"), None);
    }
}
