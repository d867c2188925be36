//! The steps that a template is compiled to.

use crate::call::Call;
use crate::repeat::End;

/// One step.
#[derive(Debug)]
pub(crate) enum Op {
    /// These bytes.
    Literal(Box<[u8]>),
    /// The call's value; the token as written where the call gives none.
    Token { call: Call, literal: Box<[u8]> },
    /// Calls inside a token that cannot be read: they count, and write nothing.
    Effects(Vec<Call>),
    /// Some steps, several times.
    Repeat(Repeat),
}

/// Steps to repeat.
#[derive(Debug)]
pub(crate) struct Repeat {
    pub(crate) count: Call,
    pub(crate) end: End,
    pub(crate) body: Vec<Op>,
    /// Line and column of the repetition.
    pub(crate) position: (usize, usize),
}
