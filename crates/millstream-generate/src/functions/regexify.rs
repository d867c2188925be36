//! Texts that match a regular expression.
//!
//! The syntax is a part of the original's (dk.brics.automaton): characters, `\` before one that is
//! to be taken literally, `.`, classes, groups, `|`, and `?`, `*`, `+`, `{n}`, `{n,}`, `{n,m}`, and
//! text in double quotes. `.` and classes that exclude give printable ASCII only; what has no upper
//! bound is repeated at most ten times more.

use std::ops::RangeInclusive;

use crate::error::Problem;
use crate::functions::Action;
use crate::random::Random;

const REPEATS_MORE: u32 = 10;
const REPEATS_MOST: u32 = 1_000_000;
/// What repetitions within each other may come to, in characters.
const LETTERS_MOST: u64 = 1 << 24;
/// How deep groups may be nested, and how many repetitions may follow one another.
const DEPTH_MOST: usize = 100;
/// Operators of the original that are not known here.
const UNKNOWN: &str = "&~#@<>";

/// An expression, read once.
#[derive(Debug)]
pub(crate) enum Expression {
    Character(char),
    /// One of these characters.
    Class(Letters),
    Sequence(Vec<Expression>),
    Choice(Vec<Expression>),
    Repeat {
        inner: Box<Expression>,
        min: u32,
        max: u32,
    },
}

/// Characters as ranges, since a few letters of an expression may mean all of Unicode.
#[derive(Debug)]
pub(crate) struct Letters {
    ranges: Vec<RangeInclusive<char>>,
    count: usize,
}

impl Letters {
    fn new(ranges: Vec<RangeInclusive<char>>) -> Self {
        let count = ranges.iter().map(length).sum();
        Self { ranges, count }
    }

    /// The one at `index`, which is below their number.
    fn at(&self, mut index: usize) -> char {
        for range in &self.ranges {
            match length(range) {
                length if index >= length => index -= length,
                _ => return range.clone().nth(index).expect("it is within the range"),
            }
        }
        unreachable!("an index is below the number of letters")
    }
}

fn length(range: &RangeInclusive<char>) -> usize {
    range.size_hint().0
}

impl Expression {
    /// The length of the longest text, in characters; at least 1 for each step of writing it.
    fn length_max(&self) -> u64 {
        let of_part = |part: &Self| part.length_max();
        match self {
            Self::Character(_) | Self::Class(_) => 1,
            Self::Sequence(parts) => parts.iter().map(of_part).fold(1, u64::saturating_add),
            Self::Choice(parts) => parts.iter().map(of_part).max().unwrap_or(1),
            Self::Repeat { inner, max, .. } => {
                inner.length_max().saturating_mul((*max).into()).saturating_add(1)
            }
        }
    }

    pub(crate) fn write(&self, random: &mut Random, out: &mut Vec<u8>) {
        match self {
            Self::Character(letter) => push(*letter, out),
            Self::Class(letters) => push(letters.at(random.index(letters.count)), out),
            Self::Sequence(parts) => parts.iter().for_each(|part| part.write(random, out)),
            Self::Choice(parts) => random.pick(parts).write(random, out),
            Self::Repeat { inner, min, max } => {
                for _ in 0..u64::from(*min) + random.below(u64::from(max - min) + 1) {
                    inner.write(random, out);
                }
            }
        }
    }
}

fn push(letter: char, out: &mut Vec<u8>) {
    out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
}

/// `regexify(expression)` and `regexify(locale, expression)`; the locale changes nothing.
pub(crate) fn regexify<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let text = arguments[arguments.len() - 1];
    let letters: Vec<char> = text.chars().collect();
    if letters.is_empty() {
        return Ok(Action::Regex(Expression::Sequence(Vec::new())));
    }
    let mut parser = Parser { letters: &letters, at: 0, depth: 0 };
    let expression = parser.choice().filter(|_| parser.at == letters.len());
    let problem = || {
        let rest: String = letters[parser.at.min(letters.len())..].iter().collect();
        let what = format!("the expression `{text}` cannot be read at `{rest}`");
        let remedy = "use characters, classes, groups, `|`, `?`, `*`, `+` and `{n,m}`";
        Problem::new(what, remedy)
    };
    let expression = expression.ok_or_else(problem)?;
    if expression.length_max() > LETTERS_MOST {
        let what = format!("the expression `{text}` may give more than {LETTERS_MOST} characters");
        return Err(Problem::new(what, "let it repeat less, or in fewer levels"));
    }
    Ok(Action::Regex(expression))
}

struct Parser<'a> {
    letters: &'a [char],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += 1;
        Some(letter)
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn choice(&mut self) -> Option<Expression> {
        let mut parts = vec![self.sequence()?];
        while self.take('|') {
            parts.push(self.sequence()?);
        }
        Some(if parts.len() == 1 { parts.swap_remove(0) } else { Expression::Choice(parts) })
    }

    /// One part at least: an operator that stands first is a character.
    fn sequence(&mut self) -> Option<Expression> {
        let mut parts = Vec::new();
        while parts.is_empty() || self.peek().is_some_and(|letter| letter != '|' && letter != ')') {
            let atom = self.atom()?;
            parts.push(self.repeated(atom)?);
        }
        Some(Expression::Sequence(parts))
    }

    fn repeated(&mut self, mut inner: Expression) -> Option<Expression> {
        for _ in 0..=DEPTH_MOST {
            let (min, max) = match self.peek() {
                Some('?') => (0, 1),
                Some('*') => (0, REPEATS_MORE),
                Some('+') => (1, 1 + REPEATS_MORE),
                Some('{') => self.bounds()?,
                _ => return Some(inner),
            };
            self.at += 1;
            inner = Expression::Repeat { inner: Box::new(inner), min, max };
        }
        None
    }

    /// `{n}`, `{n,}` or `{n,m}`, up to the closing brace.
    fn bounds(&mut self) -> Option<(u32, u32)> {
        self.at += 1;
        let min = self.number()?;
        let max = match self.take(',') {
            false => min,
            true if self.peek() == Some('}') => min + REPEATS_MORE,
            true => self.number()?,
        };
        (self.peek() == Some('}') && min <= max && max <= REPEATS_MOST).then_some((min, max))
    }

    fn number(&mut self) -> Option<u32> {
        let start = self.at;
        while self.peek().is_some_and(|letter| letter.is_ascii_digit()) {
            self.at += 1;
        }
        let digits: String = self.letters[start..self.at].iter().collect();
        digits.parse().ok().filter(|number| *number <= REPEATS_MOST)
    }

    fn atom(&mut self) -> Option<Expression> {
        match self.next()? {
            '(' => {
                self.depth += 1;
                if self.depth > DEPTH_MOST {
                    return None;
                }
                if self.take(')') {
                    self.depth -= 1;
                    return Some(Expression::Sequence(Vec::new()));
                }
                let inner = self.choice()?;
                self.depth -= 1;
                self.take(')').then_some(inner)
            }
            '[' => self.class(),
            '.' => Some(Expression::Class(Letters::new(vec![' '..='~']))),
            '"' => self.quoted(),
            '\\' => self.next().map(Expression::Character),
            letter if UNKNOWN.contains(letter) => None,
            letter => Some(Expression::Character(letter)),
        }
    }

    fn quoted(&mut self) -> Option<Expression> {
        let mut parts = Vec::new();
        while !self.take('"') {
            parts.push(Expression::Character(self.next()?));
        }
        Some(Expression::Sequence(parts))
    }

    fn class(&mut self) -> Option<Expression> {
        let excludes = self.take('^');
        let mut ranges = Vec::new();
        while !self.take(']') {
            let first = self.class_letter()?;
            // A `-` before the closing bracket is a character.
            let is_range = self.peek() == Some('-') && self.letters.get(self.at + 1) != Some(&']');
            let last = if is_range && self.take('-') { self.class_letter()? } else { first };
            ranges.push(first..=last);
        }
        let letters = Letters::new(if excludes {
            let excluded = |letter: &char| {
                ranges.iter().any(|range: &RangeInclusive<char>| range.contains(letter))
            };
            let left = (' '..='~').filter(|letter| !excluded(letter));
            left.map(|letter| letter..=letter).collect()
        } else {
            ranges
        });
        (letters.count > 0).then_some(Expression::Class(letters))
    }

    fn class_letter(&mut self) -> Option<char> {
        match self.next()? {
            '\\' => self.next(),
            letter => Some(letter),
        }
    }
}
