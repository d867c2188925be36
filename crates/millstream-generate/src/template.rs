//! A template: parsed once, written any number of times.

use std::sync::Arc;

use crate::error::{TemplateError, Warning, position};
use crate::op::{Op, Repeat};
use crate::repeat::{self, Repetition, TemplatePart};
use crate::scan::{Segment, scan};

/// A message with places to fill in, ready for [`Generator`](crate::Generator)s. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Template {
    program: Arc<Program>,
}

/// The steps that write a message.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
    pub(crate) has_repeats: bool,
    warnings: Vec<Warning>,
}

impl Template {
    /// Reads `text`.
    ///
    /// # Errors
    ///
    /// If a repetition is wrong: its number, or what it repeats. Other tokens that cannot be read
    /// are [`Self::warnings`].
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let parts = repeat::split(text)?;
        let mut compiler = Compiler { text, warnings: Vec::new() };
        let ops = compiler.level(parts, true)?;
        let has_repeats = contains_repeats(&ops);
        let program = Program { ops, has_repeats, warnings: compiler.warnings };
        Ok(Self { program: Arc::new(program) })
    }

    /// Tokens that every message will contain as they stand, in the order of their places.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.program.warnings
    }

    pub(crate) fn program(&self) -> Arc<Program> {
        Arc::clone(&self.program)
    }
}

/// Whether a step among `ops` itself repeats something.
pub(crate) fn contains_repeats(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::Repeat(_)))
}

struct Compiler<'a> {
    text: &'a str,
    warnings: Vec<Warning>,
}

impl Compiler<'_> {
    fn level(&mut self, parts: Vec<TemplatePart>, is_top: bool) -> Result<Vec<Op>, TemplateError> {
        let mut ops = Vec::new();
        let mut parts = parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                TemplatePart::Text(range) => {
                    let may_meet_brace = match parts.peek() {
                        Some(TemplatePart::Repeat(repetition)) => {
                            self.may_start_with_brace(repetition)
                        }
                        _ => !is_top,
                    };
                    let is_last = is_top && parts.peek().is_none();
                    let (text, start, end) = (self.text, range.start, range.end);
                    let segment = Segment { text, start, end, is_last, may_meet_brace };
                    scan(segment, &mut ops, &mut self.warnings)?;
                }
                TemplatePart::Repeat(repetition) => ops.push(Op::Repeat(self.repeat(repetition)?)),
            }
        }
        Ok(ops)
    }

    /// Whether an element may; one that starts with a repetition may as well.
    fn may_start_with_brace(&self, repetition: &Repetition) -> bool {
        let Some(TemplatePart::Text(range)) = repetition.body.first() else { return true };
        range.is_empty() || self.text[range.clone()].starts_with('{')
    }

    fn repeat(&mut self, repetition: Repetition) -> Result<Repeat, TemplateError> {
        let Repetition { at, count, end, body } = repetition;
        let body = self.level(body, false)?;
        Ok(Repeat { count, end, body, position: position(self.text, at) })
    }
}
