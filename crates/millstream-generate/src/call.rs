//! Parses a token into a call: `toUpperCase(substring(gender(),0,1))`.
//!
//! Arguments are values or calls, and values are texts. A call whose arguments are all constant is
//! prepared at once, so its errors are known before the first message.

use crate::error::Problem;
use crate::functions::{self, Action, Function};
use crate::token::{Lexer, Symbol};

/// How deep calls may be nested: far deeper than people write, and far from the stack's end.
const DEPTH_MOST: usize = 200;

/// A call, ready to give values.
#[derive(Debug)]
pub(crate) enum Call {
    /// Its arguments are constant: they are read and checked.
    Ready(Action<'static>),
    /// Its arguments are known only when a message is written.
    Late { function: &'static Function, arguments: Vec<Argument> },
}

/// An argument of a call.
#[derive(Debug)]
pub(crate) enum Argument {
    Text(String),
    Call(Call),
}

impl Call {
    /// Whether later calls can tell that this one happened.
    pub(crate) fn has_effects(&self) -> bool {
        match self {
            Self::Ready(action) => action.has_effects(),
            Self::Late { function, arguments } => {
                function.has_effects || arguments.iter().any(Argument::has_effects)
            }
        }
    }
}

impl Argument {
    fn has_effects(&self) -> bool {
        matches!(self, Self::Call(call) if call.has_effects())
    }
}

/// A token that is no call.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) why: Problem,
    /// Index of the character at which the error was found.
    pub(crate) at: usize,
    /// The calls before that place. The original runs calls while it reads, so counters that they
    /// advance stay advanced.
    pub(crate) ran: Vec<Call>,
}

/// Reads `text`, the inside of a token. What follows the call is ignored, as in the original.
pub(crate) fn parse(text: &[char]) -> Result<Call, Unreadable> {
    let mut parser =
        Parser { lexer: Lexer::new(text), depth: 0, wrong_call_at: None, ran: Vec::new() };
    parser.call().map_err(|why| Unreadable {
        why,
        at: parser.wrong_call_at.unwrap_or(parser.lexer.start()),
        ran: std::mem::take(&mut parser.ran),
    })
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    depth: usize,
    /// Start of a call that was read, and that no function can answer.
    wrong_call_at: Option<usize>,
    ran: Vec<Call>,
}

impl Parser<'_> {
    fn call(&mut self) -> Result<Call, Problem> {
        match self.expect("the name of a function")? {
            Symbol::Name(name) => self.call_of(&name),
            other => Err(unexpected(&other, "the name of a function")),
        }
    }

    fn call_of(&mut self, name: &str) -> Result<Call, Problem> {
        let name_at = self.lexer.start();
        match self.expect("`(`")? {
            Symbol::Open => {}
            other => return Err(unexpected(&other, "`(`")),
        }
        self.depth += 1;
        if self.depth > DEPTH_MOST {
            let what = format!("calls are nested in more than {DEPTH_MOST} others");
            return Err(Problem::new(what, "put parts into values with `put`"));
        }
        let mut arguments = Vec::new();
        let resolved = self.arguments(&mut arguments).and_then(|()| {
            resolve(name, &arguments).inspect_err(|_| self.wrong_call_at = Some(name_at))
        });
        self.depth -= 1;
        match resolved {
            Ok((_, Some(action))) => Ok(Call::Ready(action)),
            Ok((function, None)) => Ok(Call::Late { function, arguments }),
            Err(problem) => {
                // Arguments run before the call itself, and so before an inner call that failed.
                self.ran.splice(0..0, arguments.into_iter().filter_map(Argument::into_call));
                Err(problem)
            }
        }
    }

    fn arguments(&mut self, into: &mut Vec<Argument>) -> Result<(), Problem> {
        let wanted = "an argument: a string, a number or a call";
        let mut piece = self.expect("`)`")?;
        if piece == Symbol::Close {
            return Ok(());
        }
        loop {
            into.push(match piece {
                Symbol::Text(text) => Argument::Text(text),
                Symbol::Name(name) => Argument::Call(self.call_of(&name)?),
                other => return Err(unexpected(&other, wanted)),
            });
            match self.expect("`,` or `)`")? {
                Symbol::Close => return Ok(()),
                Symbol::Comma => piece = self.expect(wanted)?,
                other => return Err(unexpected(&other, "`,` or `)`")),
            }
        }
    }

    fn expect(&mut self, wanted: &str) -> Result<Symbol, Problem> {
        let end = || Problem::new("the token ends too early", format!("write {wanted}"));
        self.lexer.next()?.ok_or_else(end)
    }
}

/// The function, and what it does if that is known already.
fn resolve(
    name: &str,
    arguments: &[Argument],
) -> Result<(&'static Function, Option<Action<'static>>), Problem> {
    let function = functions::find(name, arguments.len())?;
    let Some(texts) = arguments.iter().map(Argument::text).collect::<Option<Vec<&str>>>() else {
        return Ok((function, None));
    };
    Ok((function, function.prepare_early(&texts)?))
}

impl Argument {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Call(_) => None,
        }
    }

    fn into_call(self) -> Option<Call> {
        match self {
            Self::Text(_) => None,
            Self::Call(call) => Some(call),
        }
    }
}

fn unexpected(found: &Symbol, wanted: &str) -> Problem {
    Problem::new(format!("{} is not allowed here", found.describe()), format!("write {wanted}"))
}
