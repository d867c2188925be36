//! Finds `'{{repeat(3)}}',` and the element after it that is repeated.
//!
//! The original copies the element's text and then looks for repetitions in the copies. Here the
//! template becomes a tree of [`TemplatePart`]s; what an element is, and what happens to it when it
//! is repeated zero times, is decided as the original does:
//!
//! - an element that starts with a brace, or has one, ends where its braces balance; if the
//!   character after that is the element's first one (a quote) it belongs to it,
//! - one without braces ends at the `]` (or `}`) of what surrounds it, which is written as `]`,
//! - one with a tag ends at its closing tag.

use std::ops::Range;

use crate::call::{self, Call};
use crate::error::{Problem, TemplateError};

const OPENING: &str = "'{{repeat(";
/// What follows the call.
const CLOSING: &str = "}}',";

/// How deep repetitions may be nested; each level multiplies the output, so a few are enough.
const DEPTH_MOST: usize = 50;

/// A template's text, taken apart.
#[derive(Debug)]
pub(crate) enum TemplatePart {
    Text(Range<usize>),
    Repeat(Repetition),
}

/// An element and how often it is written.
#[derive(Debug)]
pub(crate) struct Repetition {
    /// Offset of the quote it starts with.
    pub(crate) at: usize,
    pub(crate) count: Call,
    pub(crate) end: End,
    pub(crate) body: Vec<TemplatePart>,
}

/// What ended an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its braces balanced. Zero times leaves it out.
    Braces,
    /// The bracket around it. Zero times writes it once, as the original does.
    Bracket,
    /// Its closing tag. Zero times writes it once.
    Tag,
}

impl End {
    /// What stands between two copies.
    pub(crate) fn separator(self) -> &'static str {
        match self {
            Self::Braces | Self::Bracket => ",\n",
            Self::Tag => "\n",
        }
    }

    /// What follows the last copy.
    pub(crate) fn closing(self) -> &'static str {
        match self {
            Self::Bracket => "]",
            Self::Braces | Self::Tag => "",
        }
    }
}

/// Takes `text` apart.
pub(crate) fn split(text: &str) -> Result<Vec<TemplatePart>, TemplateError> {
    Splitter { text, depth: 0, first: None, closing_tag: String::new() }.split(0..text.len())
}

/// One level of nesting. Its marks outlive a repetition, since the original never resets them.
struct Splitter<'a> {
    text: &'a str,
    depth: usize,
    /// First character of the first element.
    first: Option<char>,
    /// Closing tag of the last element with one.
    closing_tag: String,
}

struct Element {
    body: Range<usize>,
    /// Where the text after the element starts.
    next: usize,
    end: End,
}

impl Splitter<'_> {
    fn split(&mut self, range: Range<usize>) -> Result<Vec<TemplatePart>, TemplateError> {
        let mut parts = Vec::new();
        let (mut written, mut at) = (range.start, range.start);
        while let Some(found) = self.text[at..range.end].find(OPENING) {
            let start = at + found;
            at = start + OPENING.len();
            let Some(call_end) = self.call_end(start, range.end)? else { continue };
            let count = self.count(start, call_end)?;
            let element = self.element(start, call_end + CLOSING.len()..range.end)?;
            parts.push(TemplatePart::Text(written..start));
            let body = self.inner(start)?.split(element.body)?;
            parts.push(TemplatePart::Repeat(Repetition {
                at: start,
                count,
                end: element.end,
                body,
            }));
            (written, at) = (element.next, element.next);
        }
        parts.push(TemplatePart::Text(written..range.end));
        Ok(parts)
    }

    fn inner(&self, start: usize) -> Result<Self, TemplateError> {
        if self.depth == DEPTH_MOST {
            let what = format!("repetitions are nested in more than {DEPTH_MOST} others");
            return Err(Problem::new(what, "nest fewer").at(self.text, start));
        }
        let (text, depth) = (self.text, self.depth + 1);
        Ok(Self { text, depth, first: None, closing_tag: String::new() })
    }

    /// Where the braces after the call are, if this is a repetition.
    fn call_end(&self, start: usize, limit: usize) -> Result<Option<usize>, TemplateError> {
        let arguments = start + OPENING.len();
        let Some(length) = self.text[arguments..limit].find('}') else {
            let why = Problem::new("`'{{repeat(` has no end", "end it with `)}}',`");
            return Err(why.at(self.text, start));
        };
        let end = arguments + length;
        let after = &self.text[end..limit];
        if after.len() < CLOSING.len() && CLOSING.starts_with(after) && limit < self.text.len() {
            let what = "a repetition stands where another one's element ends";
            let remedy = "repeat an object or array that contains it instead";
            return Err(Problem::new(what, remedy).at(self.text, start));
        }
        Ok(after.starts_with(CLOSING).then_some(end))
    }

    fn count(&self, start: usize, call_end: usize) -> Result<Call, TemplateError> {
        let token = start + "'{{".len();
        let letters: Vec<char> = self.text[token..call_end].chars().collect();
        call::parse(&letters).map_err(|unreadable| {
            let before: usize = letters.iter().take(unreadable.at).map(|c| c.len_utf8()).sum();
            unreadable.why.at(self.text, token + before)
        })
    }

    /// The element that starts where `range` does.
    fn element(&mut self, start: usize, range: Range<usize>) -> Result<Element, TemplateError> {
        let mut depth = 0_i64;
        let mut in_tag = false;
        let mut letters = self.text[range.clone()].char_indices();
        while let Some((offset, letter)) = letters.next() {
            let mut next = range.start + offset + letter.len_utf8();
            if self.first.is_none() && !letter.is_whitespace() {
                self.first = Some(letter);
            }
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ']' if depth == 0 => depth = -1,
                '<' if !in_tag => {
                    let tag = letters.by_ref().map(|(_, letter)| letter);
                    let name: String = tag.take_while(|letter| *letter != '>').collect();
                    next += name.len() + ">".len();
                    self.closing_tag = format!("</{name}>");
                    in_tag = true;
                }
                _ => {}
            }
            if depth < 0 {
                return Ok(Element { body: range.start..next - 1, next, end: End::Bracket });
            }
            if letter == '}' && depth == 0 && !in_tag {
                let after = self.text[next..range.end].chars().next();
                next += after.filter(|_| after == self.first).map_or(0, char::len_utf8);
                return Ok(Element { body: range.start..next, next, end: End::Braces });
            }
            let ends_tag =
                || self.text[range.start..next.min(range.end)].ends_with(&self.closing_tag);
            if !self.closing_tag.is_empty() && ends_tag() {
                return Ok(Element { body: range.start..next, next, end: End::Tag });
            }
        }
        let what = "nothing ends the element that is repeated";
        let remedy = "repeat an object `{...}`, or items up to the `]` of their array";
        Err(Problem::new(what, remedy).at(self.text, start))
    }
}
