//! Writes messages: walks a template's steps and appends bytes.
//!
//! The numbers of all repetitions are decided first, and then tokens run in order: the original
//! copies repeated text before it evaluates tokens, and counters and stored values make that order
//! visible.

use std::sync::Arc;

use crate::call::{Argument, Call};
use crate::error::{Problem, TemplateError};
use crate::op::{Op, Repeat};
use crate::repeat::End;
use crate::state::State;
use crate::template::{Program, Template, contains_repeats};

/// Arguments that need no allocation; functions of any number of arguments may have more.
const ARGUMENTS_INLINE: usize = 8;

/// Writes messages of one template and keeps what outlives a message: counters, stored values and
/// random numbers. One thread has one; several with different seeds work side by side.
pub struct Generator {
    program: Arc<Program>,
    state: State,
    /// How often each repetition of the message repeats, in the order they come.
    counts: Vec<i32>,
}

impl Generator {
    /// A generator whose random numbers `seed` decides. `now_ms` is the time that messages contain,
    /// in milliseconds since 1970, until [`Self::set_now_ms`].
    #[must_use]
    pub fn new(template: &Template, seed: u64, now_ms: i64) -> Self {
        let (program, state) = (template.program(), State::new(seed, now_ms));
        Self { program, state, counts: Vec::new() }
    }

    /// Sets the time that `date()`, `time()` and `timestamp()` give from the next message on, in
    /// milliseconds since 1970.
    pub fn set_now_ms(&mut self, now_ms: i64) {
        self.state.now_ms = now_ms;
    }

    /// Sets what `systemProperty(name)` gives. There are none at first.
    pub fn set_property(&mut self, name: &str, value: &str) {
        self.state.properties.insert(name.to_owned(), value.to_owned());
    }

    /// The number of tokens, since the generator was made, that could be read but gave no value,
    /// like `get` of a key that was never put. They appear in messages unchanged.
    #[must_use]
    pub fn tokens_left_literal(&self) -> u64 {
        self.state.left_literal
    }

    /// Appends one message, in UTF-8, to `out`.
    ///
    /// # Errors
    ///
    /// If a repetition's number is itself a call, as in `repeat(get("n"))`, and gives none. Nothing
    /// is appended then; the next message may succeed.
    pub fn write_message(&mut self, out: &mut Vec<u8>) -> Result<(), TemplateError> {
        let Self { program, state, counts } = self;
        if !program.has_repeats {
            write_plain(&program.ops, state, out);
            return Ok(());
        }
        counts.clear();
        count(&program.ops, state, counts)?;
        write(&program.ops, true, &mut counts.iter(), state, out);
        Ok(())
    }
}

fn count(ops: &[Op], state: &mut State, counts: &mut Vec<i32>) -> Result<(), TemplateError> {
    for op in ops {
        let Op::Repeat(repeat) = op else { continue };
        let times = times(repeat, state)?;
        counts.push(times);
        if contains_repeats(&repeat.body) {
            for _ in 0..times.max(1) {
                count(&repeat.body, state, counts)?;
            }
        }
    }
    Ok(())
}

fn times(repeat: &Repeat, state: &mut State) -> Result<i32, TemplateError> {
    let mut text = state.take_buffer();
    let called = call(&repeat.count, state, &mut text);
    let times = called.and_then(|()| {
        let digits = std::str::from_utf8(&text).ok().and_then(|digits| digits.parse().ok());
        digits.ok_or_else(|| Problem::new("the number of repetitions is none", "use integers"))
    });
    state.give_buffer(text);
    times.map_err(|Problem { what, remedy }| {
        let (line, column) = repeat.position;
        TemplateError { line, column, what, remedy }
    })
}

/// Writes one level of nesting. Where the text around it is left out (`with_tail` is not set), so
/// is what follows its last repetition: a quirk of the original, which gathers text in front of a
/// repetition and the rest separately.
fn write(
    ops: &[Op],
    with_tail: bool,
    counts: &mut std::slice::Iter<'_, i32>,
    state: &mut State,
    out: &mut Vec<u8>,
) {
    let tail = ops.iter().rposition(|op| matches!(op, Op::Repeat(_))).map_or(0, |last| last + 1);
    let end = if with_tail { ops.len() } else { tail };
    for op in &ops[..end] {
        match op {
            Op::Repeat(repeat) => write_repeat(repeat, with_tail, counts, state, out),
            other => write_op(other, state, out),
        }
    }
}

fn write_repeat(
    repeat: &Repeat,
    with_tail: bool,
    counts: &mut std::slice::Iter<'_, i32>,
    state: &mut State,
    out: &mut Vec<u8>,
) {
    let times = counts.next().copied().unwrap_or_default();
    let with_tail = if repeat.end == End::Braces { times > 0 } else { with_tail };
    if !with_tail && !contains_repeats(&repeat.body) {
        return;
    }
    for copy in 1..=times.max(1) {
        let is_last = copy == times.max(1);
        write(&repeat.body, with_tail || !is_last, counts, state, out);
        if !is_last {
            out.extend_from_slice(repeat.end.separator().as_bytes());
        }
    }
    if with_tail {
        out.extend_from_slice(repeat.end.closing().as_bytes());
    }
}

fn write_plain(ops: &[Op], state: &mut State, out: &mut Vec<u8>) {
    for op in ops {
        write_op(op, state, out);
    }
}

fn write_op(op: &Op, state: &mut State, out: &mut Vec<u8>) {
    match op {
        Op::Literal(bytes) => out.extend_from_slice(bytes),
        Op::Token { call: token, literal } => {
            let start = out.len();
            if call(token, state, out).is_err() {
                out.truncate(start);
                out.extend_from_slice(literal);
                state.left_literal += 1;
            }
        }
        Op::Effects(calls) => {
            let start = out.len();
            // The original stopped reading at the first call that fails, so later ones do not run.
            let _ = calls.iter().try_for_each(|effect| call(effect, state, out));
            out.truncate(start);
        }
        Op::Repeat(_) => {}
    }
}

/// Appends the value of a call; on failure `out` may have grown.
fn call(call: &Call, state: &mut State, out: &mut Vec<u8>) -> Result<(), Problem> {
    match call {
        Call::Ready(action) => action.run(state, out),
        Call::Late { function, arguments } if function.name == "concat" => {
            arguments.iter().try_for_each(|next| argument(next, state, out))
        }
        Call::Late { function, arguments } => {
            let mut buffer = state.take_buffer();
            let result = with_arguments(arguments, state, &mut buffer, |texts, state| {
                if function.name == "random" {
                    let chosen = state.random.word(texts);
                    out.extend_from_slice(chosen.as_bytes());
                    return Ok(());
                }
                function.prepare(texts, state.now_ms)?.run(state, out)
            });
            state.give_buffer(buffer);
            result
        }
    }
}

fn argument(argument: &Argument, state: &mut State, out: &mut Vec<u8>) -> Result<(), Problem> {
    match argument {
        Argument::Text(text) => {
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
        Argument::Call(inner) => call(inner, state, out),
    }
}

/// Evaluates `arguments` one after the other into `buffer` and hands them over as texts.
fn with_arguments(
    arguments: &[Argument],
    state: &mut State,
    buffer: &mut Vec<u8>,
    then: impl FnOnce(&[&str], &mut State) -> Result<(), Problem>,
) -> Result<(), Problem> {
    if arguments.len() <= ARGUMENTS_INLINE {
        let (mut ends, mut texts) = ([0; ARGUMENTS_INLINE], [""; ARGUMENTS_INLINE]);
        for (next, end) in arguments.iter().zip(&mut ends) {
            argument(next, state, buffer)?;
            *end = buffer.len();
        }
        cut(buffer, &ends[..arguments.len()], &mut texts);
        return then(&texts[..arguments.len()], state);
    }
    let mut ends = Vec::with_capacity(arguments.len());
    for next in arguments {
        argument(next, state, buffer)?;
        ends.push(buffer.len());
    }
    let mut texts = vec![""; arguments.len()];
    cut(buffer, &ends, &mut texts);
    then(&texts, state)
}

fn cut<'a>(buffer: &'a [u8], ends: &[usize], texts: &mut [&'a str]) {
    let mut start = 0;
    for (end, text) in ends.iter().zip(texts) {
        *text = std::str::from_utf8(&buffer[start..*end]).expect("calls write UTF-8");
        start = *end;
    }
}
