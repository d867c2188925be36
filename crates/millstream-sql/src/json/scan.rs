//! Phase 1 of decoding: checks that bytes are JSON (RFC 8259) and finds where values lie.
//!
//! The scanner builds nothing. It walks over a value once and says where it started, where it
//! ended and what it was, so that phase 2 can go straight to the values a query wants.

use std::fmt;

/// How deep arrays and objects may be nested in each other.
pub(super) const DEPTH_MAX: usize = 1000;

/// What a value is, as far as its first bytes and its escapes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// There is no value: an object did not have the key.
    Missing,
    Null,
    True,
    False,
    /// A number without fraction and exponent.
    Integer,
    /// A number with a fraction or an exponent.
    Fraction,
    /// A string that is its own text.
    Text,
    /// A string with at least one escape.
    EscapedText,
    Array,
    Object,
}

/// Where a value lies in its record. For strings the quotation marks are outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub start: usize,
    pub end: usize,
    pub kind: Kind,
}

impl Span {
    pub const MISSING: Self = Self { start: 0, end: 0, kind: Kind::Missing };

    /// The value's bytes within `record`.
    pub fn of<'a>(&self, record: &'a str) -> &'a str {
        &record[self.start..self.end]
    }
}

/// Why a record cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is nothing but white space.
    Empty,
    /// The bytes are not UTF-8.
    NotUtf8,
    /// The text ends within a value.
    UnexpectedEnd,
    /// The grammar asks for something else here.
    Expected(&'static str),
    /// A control character stands unescaped in a string.
    ControlCharacter,
    /// A backslash is followed by something that is no escape.
    Escape,
    /// A number is not written as JSON writes numbers.
    Number,
    /// Something follows the value.
    TrailingText,
    /// Arrays and objects are nested too deeply.
    TooDeep,
    /// The value is not an object, so it has no columns.
    NotAnObject,
    /// The value of a column does not fit the column's type.
    WrongType {
        /// The column's name.
        column: String,
        /// The column's type, in Spark's words.
        expected: String,
    },
    /// A column declared NOT NULL has no value.
    NullColumn {
        /// The column's name.
        column: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the record is empty"),
            Self::NotUtf8 => f.write_str("the record is not UTF-8 text"),
            Self::UnexpectedEnd => f.write_str("the record ends in the middle of a value"),
            Self::Expected(what) => write!(f, "expected {what}"),
            Self::ControlCharacter => f.write_str("a string contains a control character"),
            Self::Escape => f.write_str("a backslash starts no known escape"),
            Self::Number => f.write_str("this is not a number"),
            Self::TrailingText => f.write_str("text follows the end of the record"),
            Self::TooDeep => write!(f, "values are nested more than {DEPTH_MAX} deep"),
            Self::NotAnObject => f.write_str("the record is not a JSON object"),
            Self::WrongType { column, expected } => {
                write!(f, "the value of column {column} is not a valid {expected}")
            }
            Self::NullColumn { column } => {
                write!(f, "column {column} is declared NOT NULL and has no value")
            }
        }
    }
}

/// Walks over the bytes of one record.
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    /// The next byte to look at.
    pub at: usize,
}

type Scan<T> = Result<T, Problem>;

impl<'a> Scanner<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn from(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// The next byte that is not white space, not consumed; `None` at the end.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                _ => return Some(byte),
            }
        }
        None
    }

    /// Consumes `byte` after white space, or says what was expected.
    #[inline]
    pub fn expect(&mut self, byte: u8, what: &'static str) -> Scan<()> {
        match self.peek() {
            Some(found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(Problem::Expected(what)),
            None => Err(Problem::UnexpectedEnd),
        }
    }

    /// Consumes one value of any kind, and white space before it.
    #[inline]
    pub fn value(&mut self) -> Scan<Span> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'{') => self.nested(Kind::Object),
            Some(b'[') => self.nested(Kind::Array),
            Some(_) => self.plain(),
            None => Err(Problem::UnexpectedEnd),
        }
    }

    /// Consumes `true`, `false`, `null` or a number.
    fn plain(&mut self) -> Scan<Span> {
        match self.bytes[self.at] {
            b't' => self.literal(b"true", Kind::True),
            b'f' => self.literal(b"false", Kind::False),
            b'n' => self.literal(b"null", Kind::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(Problem::Expected("a value")),
        }
    }

    fn literal(&mut self, word: &'static [u8], kind: Kind) -> Scan<Span> {
        let start = self.at;
        if !self.bytes[start..].starts_with(word) {
            return Err(Problem::Expected("true, false or null"));
        }
        self.at += word.len();
        Ok(Span { start, end: self.at, kind })
    }

    fn number(&mut self) -> Scan<Span> {
        let start = self.at;
        let mut kind = Kind::Integer;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(Problem::Number),
        }
        if self.byte() == Some(b'.') {
            kind = Kind::Fraction;
            self.at += 1;
            self.digits_required()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            kind = Kind::Fraction;
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits_required()?;
        }
        Ok(Span { start, end: self.at, kind })
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.byte() {
            self.at += 1;
        }
    }

    fn digits_required(&mut self) -> Scan<()> {
        let start = self.at;
        self.digits();
        if self.at == start { Err(Problem::Number) } else { Ok(()) }
    }

    /// Consumes a string; the scanner stands at its opening quotation mark.
    #[inline]
    pub fn string(&mut self) -> Scan<Span> {
        self.at += 1;
        let start = self.at;
        let mut kind = Kind::Text;
        loop {
            self.at = next_special(self.bytes, self.at).ok_or(Problem::UnexpectedEnd)?;
            match self.bytes[self.at] {
                b'"' => {
                    let end = self.at;
                    self.at += 1;
                    return Ok(Span { start, end, kind });
                }
                b'\\' => {
                    kind = Kind::EscapedText;
                    self.escape()?;
                }
                _ => return Err(Problem::ControlCharacter),
            }
        }
    }

    fn escape(&mut self) -> Scan<()> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let digits = self.bytes.get(self.at + 2..self.at + 6);
                let digits = digits.ok_or(Problem::UnexpectedEnd)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(Problem::Escape);
                }
                self.at += 6;
            }
            Some(_) => return Err(Problem::Escape),
            None => return Err(Problem::UnexpectedEnd),
        }
        Ok(())
    }

    /// Consumes an array or object without recursion, so that no input can overflow the stack.
    fn nested(&mut self, kind: Kind) -> Scan<Span> {
        let start = self.at;
        let mut open = Nesting::default();
        loop {
            let complete = match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    open.push(true)?;
                    self.closes_at_once(b'}', &mut open)
                }
                Some(b'[') => {
                    self.at += 1;
                    open.push(false)?;
                    self.closes_at_once(b']', &mut open)
                }
                Some(b'"') => self.string().map(|_| true)?,
                Some(_) => self.plain().map(|_| true)?,
                None => return Err(Problem::UnexpectedEnd),
            };
            if complete && self.after_value(&mut open)? {
                return Ok(Span { start, end: self.at, kind });
            }
            if open.in_object() {
                self.key()?;
            }
        }
    }

    fn closes_at_once(&mut self, close: u8, open: &mut Nesting) -> bool {
        let closes = self.peek() == Some(close);
        if closes {
            self.at += 1;
            open.pop();
        }
        closes
    }

    /// Consumes what follows a value: closing brackets and then a comma. True at the very end.
    fn after_value(&mut self, open: &mut Nesting) -> Scan<bool> {
        while !open.is_empty() {
            match (self.peek(), open.in_object()) {
                (Some(b','), _) => {
                    self.at += 1;
                    return Ok(false);
                }
                (Some(b'}'), true) | (Some(b']'), false) => {
                    self.at += 1;
                    open.pop();
                }
                (Some(_), true) => return Err(Problem::Expected("a comma or }")),
                (Some(_), false) => return Err(Problem::Expected("a comma or ]")),
                (None, _) => return Err(Problem::UnexpectedEnd),
            }
        }
        Ok(true)
    }

    /// Consumes an object's key and the colon after it.
    #[inline]
    pub fn key(&mut self) -> Scan<Span> {
        match self.peek() {
            Some(b'"') => {}
            Some(_) => return Err(Problem::Expected("a key in quotation marks")),
            None => return Err(Problem::UnexpectedEnd),
        }
        let key = self.string()?;
        self.expect(b':', "a colon")?;
        Ok(key)
    }
}

/// Which brackets are open: one bit for each level, set for an object.
#[derive(Default)]
struct Nesting {
    levels: [u64; DEPTH_MAX.div_ceil(64)],
    depth: usize,
}

impl Nesting {
    fn push(&mut self, object: bool) -> Scan<()> {
        if self.depth == DEPTH_MAX {
            return Err(Problem::TooDeep);
        }
        let bit = 1 << (self.depth % 64);
        let word = &mut self.levels[self.depth / 64];
        *word = if object { *word | bit } else { *word & !bit };
        self.depth += 1;
        Ok(())
    }

    fn pop(&mut self) {
        self.depth -= 1;
    }

    fn is_empty(&self) -> bool {
        self.depth == 0
    }

    fn in_object(&self) -> bool {
        self.depth > 0 && self.levels[(self.depth - 1) / 64] >> ((self.depth - 1) % 64) & 1 == 1
    }
}

/// The next quotation mark, backslash or control character at or after `at`.
///
/// Eight bytes at a time: the classic "has a byte less than n" test, whose lowest hit is exact.
#[inline]
fn next_special(bytes: &[u8], mut at: usize) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        let hits = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        let hits = hits & HIGH;
        if hits != 0 {
            return Some(at + hits.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    bytes.get(at..)?.iter().position(special).map(|index| at + index)
}

/// Consumes a whole record: one value and nothing after it.
pub(super) fn record(bytes: &[u8]) -> Result<Span, (usize, Problem)> {
    let mut scanner = Scanner::new(bytes);
    if scanner.peek().is_none() {
        return Err((scanner.at, Problem::Empty));
    }
    let value = scanner.value().map_err(|problem| (scanner.at, problem))?;
    match scanner.peek() {
        None => Ok(value),
        Some(_) => Err((scanner.at, Problem::TrailingText)),
    }
}
