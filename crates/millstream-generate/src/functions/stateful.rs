//! Counters, stored values and properties: what later calls and messages can see.

use std::borrow::Cow;

use crate::error::Problem;
use crate::functions::Action;
use crate::java::{parse_i32, push_integer};
use crate::state::{Counter, State};

const DEFAULT: &str = "DEFAULT";

/// A call that reads or changes what outlives it.
#[derive(Debug)]
pub(crate) enum Stateful<'a> {
    Index { name: Cow<'a, str>, start: i32 },
    ResetIndex { name: Cow<'a, str> },
    Put { key: Cow<'a, str>, value: Cow<'a, str> },
    Get { key: Cow<'a, str> },
    Property { key: Cow<'a, str> },
}

impl Stateful<'_> {
    pub(crate) fn run(&self, state: &mut State, out: &mut Vec<u8>) -> Result<(), Problem> {
        match self {
            Self::Index { name, start } => count(name, *start, state, out),
            Self::ResetIndex { name } => {
                let counter = state.counters.get_mut(&**name);
                let counter = counter.ok_or_else(|| missing("counter", name, "index"))?;
                counter.next = counter.start;
            }
            Self::Put { key, value } => {
                store(key, value, state);
                out.extend_from_slice(value.as_bytes());
            }
            Self::Get { key } => {
                let value = state.values.get(&**key);
                let value = value.ok_or_else(|| missing("value", key, "put"))?;
                out.extend_from_slice(value.as_bytes());
            }
            Self::Property { key } => {
                let value = state.properties.get(&**key);
                let value = value.ok_or_else(|| missing("property", key, "the caller"))?;
                out.extend_from_slice(value.as_bytes());
            }
        }
        Ok(())
    }

    pub(crate) fn into_owned(self) -> Stateful<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Index { name, start } => Stateful::Index { name: owned(name), start },
            Self::ResetIndex { name } => Stateful::ResetIndex { name: owned(name) },
            Self::Put { key, value } => Stateful::Put { key: owned(key), value: owned(value) },
            Self::Get { key } => Stateful::Get { key: owned(key) },
            Self::Property { key } => Stateful::Property { key: owned(key) },
        }
    }
}

/// Where a counter starts matters only the first time it is named.
fn count(name: &str, start: i32, state: &mut State, out: &mut Vec<u8>) {
    let counter = match state.counters.get_mut(name) {
        Some(counter) => counter,
        None => state.counters.entry(name.to_owned()).or_insert(Counter { start, next: start }),
    };
    push_integer(i64::from(counter.next), out);
    counter.next = counter.next.wrapping_add(1);
}

fn store(key: &str, value: &str, state: &mut State) {
    match state.values.get_mut(key) {
        Some(stored) => {
            stored.clear();
            stored.push_str(value);
        }
        None => drop(state.values.insert(key.to_owned(), value.to_owned())),
    }
}

fn missing(what: &str, name: &str, set_by: &str) -> Problem {
    Problem::new(format!("there is no {what} `{name}`"), format!("{set_by} sets it, before this"))
}

/// A single argument that is an integer is where the default counter starts, else a name.
pub(crate) fn index<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let (name, start) = match arguments {
        [] => (DEFAULT, 0),
        [argument] => match parse_i32(argument) {
            Ok(start) => (DEFAULT, start),
            Err(_) => (*argument, 0),
        },
        [name, start, ..] => (*name, parse_i32(start)?),
    };
    Ok(Action::Stateful(Stateful::Index { name: Cow::Borrowed(name), start }))
}

pub(crate) fn reset_index<'a>(arguments: &[&'a str]) -> Action<'a> {
    let name = Cow::Borrowed(arguments.first().copied().unwrap_or(DEFAULT));
    Action::Stateful(Stateful::ResetIndex { name })
}

pub(crate) fn put<'a>(arguments: &[&'a str]) -> Action<'a> {
    let (key, value) = (Cow::Borrowed(arguments[0]), Cow::Borrowed(arguments[1]));
    Action::Stateful(Stateful::Put { key, value })
}

pub(crate) fn get<'a>(arguments: &[&'a str]) -> Action<'a> {
    Action::Stateful(Stateful::Get { key: Cow::Borrowed(arguments[0]) })
}

pub(crate) fn system_property<'a>(arguments: &[&'a str]) -> Action<'a> {
    Action::Stateful(Stateful::Property { key: Cow::Borrowed(arguments[0]) })
}
