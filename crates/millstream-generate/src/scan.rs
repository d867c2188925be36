//! Finds `{{...}}` in text that is not repeated, or not repeated any further.
//!
//! The rules are the original's reader's: a token runs to the first `}`, `\{` and `\}` in it stand
//! for braces, and if that `}` is not followed by another one the first `{` is text and scanning
//! goes on after it. At the end of the template the closing braces may be missing.

use crate::call::Call;
use crate::call::{self, Unreadable};
use crate::error::{Problem, TemplateError, Warning, position};
use crate::functions::Action;
use crate::op::Op;

/// A piece of the template, and what comes after it.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'a> {
    /// The whole template.
    pub(crate) text: &'a str,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Whether the message ends here.
    pub(crate) is_last: bool,
    /// Whether what is written next may start with a brace.
    pub(crate) may_meet_brace: bool,
}

/// Appends the steps that write `segment` to `ops`.
pub(crate) fn scan(
    segment: Segment<'_>,
    ops: &mut Vec<Op>,
    warnings: &mut Vec<Warning>,
) -> Result<(), TemplateError> {
    let letters = segment.text[segment.start..segment.end].char_indices().rev();
    let left = letters.map(|(at, letter)| (segment.start + at, letter)).collect();
    Scanner { segment, left, literal: Vec::new(), ops, warnings }.run()
}

struct Scanner<'a> {
    segment: Segment<'a>,
    /// What is still to be read, last first, each with its offset in the template.
    left: Vec<(usize, char)>,
    literal: Vec<u8>,
    ops: &'a mut Vec<Op>,
    warnings: &'a mut Vec<Warning>,
}

impl Scanner<'_> {
    fn run(mut self) -> Result<(), TemplateError> {
        while let Some((at, letter)) = self.left.pop() {
            if letter != '{' {
                self.push(letter);
            } else if self.next_is('{') {
                let second = self.left.pop();
                self.token(at, second.map_or(at, |(second, _)| second))?;
            } else if self.left.is_empty() && self.segment.may_meet_brace {
                return Err(self.crosses(at));
            } else {
                self.push(letter);
            }
        }
        self.flush();
        Ok(())
    }

    fn next_is(&self, wanted: char) -> bool {
        self.left.last().is_some_and(|(_, letter)| *letter == wanted)
    }

    fn push(&mut self, letter: char) {
        self.literal.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn flush(&mut self) {
        if !self.literal.is_empty() {
            self.ops.push(Op::Literal(std::mem::take(&mut self.literal).into_boxed_slice()));
        }
    }

    /// Reads a token whose braces are at `first` and `second`.
    fn token(&mut self, first: usize, second: usize) -> Result<(), TemplateError> {
        let mut inside = Vec::new();
        let closed_at = loop {
            match self.left.pop() {
                None => break None,
                Some((at, '}')) => break Some(at),
                Some((at, '\\')) => self.after_backslash(at, &mut inside),
                Some(letter) => inside.push(letter),
            }
        };
        match (closed_at, self.left.last()) {
            (Some(at), Some((_, letter))) if *letter != '}' => {
                self.left.push((at, '}'));
                self.left.extend(inside.into_iter().rev());
                self.left.push((second, '{'));
                self.push('{');
                return Ok(());
            }
            (Some(_), Some(_)) => drop(self.left.pop()),
            _ if !self.segment.is_last => return Err(self.crosses(first)),
            _ => {}
        }
        self.resolve(first, &inside);
        Ok(())
    }

    fn after_backslash(&mut self, at: usize, inside: &mut Vec<(usize, char)>) {
        let next = self.left.pop();
        if !matches!(next, Some((_, '{' | '}'))) {
            inside.push((at, '\\'));
        }
        inside.extend(next);
    }

    fn resolve(&mut self, first: usize, inside: &[(usize, char)]) {
        let letters: Vec<char> = inside.iter().map(|(_, letter)| *letter).collect();
        let literal = format!("{{{{{}}}}}", letters.iter().collect::<String>());
        match call::parse(&letters) {
            Ok(Call::Ready(Action::Text(text))) => {
                self.literal.extend_from_slice(text.as_bytes());
            }
            Ok(call) => {
                self.flush();
                self.ops.push(Op::Token { call, literal: literal.into_bytes().into() });
            }
            Err(unreadable) => {
                let at = inside.get(unreadable.at).map_or(first, |(at, _)| *at);
                self.leave(at, literal, unreadable);
            }
        }
    }

    fn leave(&mut self, at: usize, literal: String, unreadable: Unreadable) {
        let Unreadable { why, ran, .. } = unreadable;
        if ran.iter().any(Call::has_effects) {
            self.flush();
            self.ops.push(Op::Effects(ran));
        }
        self.literal.extend_from_slice(literal.as_bytes());
        let (line, column) = position(self.segment.text, at);
        let Problem { what, remedy } = why;
        self.warnings.push(Warning { line, column, token: literal, what, remedy });
    }

    fn crosses(&self, at: usize) -> TemplateError {
        let what = "`{{` opens a token that does not end before a repetition starts or ends";
        let remedy = "close it with `}}`, or put a space between braces that are text";
        Problem::new(what, remedy).at(self.segment.text, at)
    }
}
