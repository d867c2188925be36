//! The functions of the language: their names, how many arguments they take, what they give.
//!
//! A function *prepares* an [`Action`] from its arguments, which are texts; that is where arguments
//! are checked. The action *runs* for each message. With constant arguments the first happens once.

mod dates;
mod identifiers;
mod numbers;
mod people;
mod regexify;
mod stateful;
mod text;
mod times;

use crate::clock::Clock;
use crate::error::Problem;
use crate::state::State;
use std::borrow::Cow;

/// The prepared form of a call, which runs for each message.
#[derive(Debug)]
pub(crate) enum Action<'a> {
    /// Always the same.
    Text(Cow<'a, str>),
    Date(dates::Moment),
    Identifier(identifiers::Identifier),
    Number(numbers::Number),
    Person(people::Person<'a>),
    Regex(regexify::Expression),
    Stateful(stateful::Stateful<'a>),
    Time(times::TimeOfDay),
    /// One of these texts.
    Pick(Vec<Cow<'a, str>>),
    Upper(Cow<'a, str>),
    Lower(Cow<'a, str>),
}

impl Action<'_> {
    /// Appends a value to `out`.
    #[inline]
    pub(crate) fn run(&self, state: &mut State, out: &mut Vec<u8>) -> Result<(), Problem> {
        match self {
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Date(moment) => moment.write(state, out),
            Self::Identifier(identifier) => identifier.write(&mut state.random, out),
            Self::Number(number) => number.write(&mut state.random, out),
            Self::Person(person) => person.write(&mut state.random, out),
            Self::Regex(expression) => expression.write(&mut state.random, out),
            Self::Stateful(stateful) => stateful.run(state, out)?,
            Self::Time(time) => time.write(state, out),
            Self::Pick(texts) => out.extend_from_slice(state.random.pick(texts).as_bytes()),
            Self::Upper(text) => text::upper(text, out),
            Self::Lower(text) => text::lower(text, out),
        }
        Ok(())
    }

    /// Whether later calls can tell that this one ran.
    pub(crate) fn has_effects(&self) -> bool {
        matches!(self, Self::Stateful(_))
    }

    fn into_owned(self) -> Action<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Text(text) => Action::Text(owned(text)),
            Self::Date(moment) => Action::Date(moment),
            Self::Identifier(identifier) => Action::Identifier(identifier),
            Self::Number(number) => Action::Number(number),
            Self::Person(person) => Action::Person(person.into_owned()),
            Self::Regex(expression) => Action::Regex(expression),
            Self::Stateful(stateful) => Action::Stateful(stateful.into_owned()),
            Self::Time(time) => Action::Time(time),
            Self::Pick(texts) => Action::Pick(texts.into_iter().map(owned).collect()),
            Self::Upper(text) => Action::Upper(owned(text)),
            Self::Lower(text) => Action::Lower(owned(text)),
        }
    }
}

/// How many arguments a function takes.
type Arities = &'static [usize];

/// Any number, one at least.
const SOME: Arities = &[1, usize::MAX];
/// Any number, or none.
const ANY: Arities = &[0, usize::MAX];

type Prepare = for<'a> fn(&[&'a str], &Clock) -> Result<Action<'a>, Problem>;

/// A function of the language.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    arities: Arities,
    prepare: Prepare,
    /// Whether later calls can tell that it was called.
    pub(crate) has_effects: bool,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Function {
    /// Reads arguments whose values are known only while a message is written, at `now_ms`.
    pub(crate) fn prepare<'a>(
        &self,
        arguments: &[&'a str],
        now_ms: i64,
    ) -> Result<Action<'a>, Problem> {
        (self.prepare)(arguments, &Clock::at(now_ms))
    }

    /// Reads arguments that are constant; `None` if their meaning depends on the time.
    pub(crate) fn prepare_early(
        &self,
        arguments: &[&str],
    ) -> Result<Option<Action<'static>>, Problem> {
        let clock = Clock::at(0);
        let action = (self.prepare)(arguments, &clock)?;
        Ok((!clock.was_read()).then(|| action.into_owned()))
    }
}

/// The function called `name` that takes `arguments` arguments.
pub(crate) fn find(name: &str, arguments: usize) -> Result<&'static Function, Problem> {
    let Some(function) = FUNCTIONS.iter().find(|function| function.name == name) else {
        let what = format!("there is no function `{name}`");
        let close = FUNCTIONS.iter().find(|function| function.name.eq_ignore_ascii_case(name));
        return Err(match close {
            Some(close) => Problem::new(what, format!("write `{}`", close.name)),
            None => Problem::new(what, "docs/reference/generator.md lists all functions"),
        });
    };
    let fits = |arity: &usize| *arity == arguments || (*arity == usize::MAX && arguments > 0);
    if function.arities.iter().any(fits) {
        return Ok(function);
    }
    let what = format!("`{name}` does not take {arguments} arguments");
    Err(Problem::new(what, format!("give it {}", in_words(function.arities))))
}

fn in_words(arities: Arities) -> String {
    let word = |arity: &usize| match *arity {
        usize::MAX => "more".to_owned(),
        arity => arity.to_string(),
    };
    arities.iter().map(word).collect::<Vec<_>>().join(" or ")
}

const fn plain(name: &'static str, arities: Arities, prepare: Prepare) -> Function {
    Function { name, arities, prepare, has_effects: false }
}

const fn with_effects(name: &'static str, arities: Arities, prepare: Prepare) -> Function {
    Function { name, arities, prepare, has_effects: true }
}

static FUNCTIONS: &[Function] = &[
    plain("addDays", &[2, 3], |a, c| dates::add(a, c, dates::Unit::Days(1))),
    plain("addHours", &[2, 3], |a, c| dates::add(a, c, dates::Unit::Milliseconds(3_600_000))),
    plain("addMinutes", &[2, 3], |a, c| dates::add(a, c, dates::Unit::Milliseconds(60_000))),
    plain("addMonths", &[2, 3], |a, c| dates::add(a, c, dates::Unit::Months(1))),
    plain("addSeconds", &[2, 3], |a, c| dates::add(a, c, dates::Unit::Milliseconds(1_000))),
    plain("addWeeks", &[2, 3], |a, c| dates::add(a, c, dates::Unit::Days(7))),
    plain("addYears", &[2, 3], |a, c| dates::add(a, c, dates::Unit::Months(12))),
    plain("alpha", &[0, 1, 2], |a, _| numbers::alpha(a)),
    plain("alphaNumeric", &[0, 1, 2], |a, _| numbers::alpha_numeric(a)),
    plain("bool", &[0, 1], |a, _| numbers::bool(a)),
    plain("city", &[0], |_, _| Ok(people::city())),
    plain("company", &[0], |_, _| Ok(people::company())),
    plain("concat", SOME, |a, _| Ok(text::concat(a))),
    plain("countriesList", ANY, |a, _| people::countries_list(a)),
    plain("countryList", ANY, |a, _| people::countries_list(a)),
    plain("country", &[0], |_, _| Ok(people::country())),
    plain("date", &[0, 1, 2, 3, 4], dates::date),
    plain("dateFormat", &[3], dates::date_format),
    plain("double", &[2, 3], |a, _| numbers::double(a)),
    plain("email", &[0, 1], |a, _| Ok(people::email(a))),
    plain("firstName", &[0, 1], |a, _| Ok(people::first_name(a))),
    plain("float", &[2, 3], |a, _| numbers::float(a)),
    plain("floating", &[2, 3], |a, _| numbers::float(a)),
    plain("gender", &[0, 1], |a, _| numbers::gender(a)),
    with_effects("get", &[1], |a, _| Ok(stateful::get(a))),
    plain("guid", &[0, 1], |a, _| Ok(identifiers::uuid(a))),
    plain("hex", &[0, 1], |a, _| identifiers::hex(a)),
    with_effects("index", &[0, 1, 2], |a, _| stateful::index(a)),
    plain("integer", &[2], |a, _| numbers::integer(a)),
    plain("ipv4", &[0], |_, _| Ok(identifiers::ipv4())),
    plain("ipv6", &[0, 1], |a, _| Ok(identifiers::ipv6(a))),
    plain("lastName", &[0], |_, _| Ok(people::last_name())),
    plain("long", &[2], |a, _| numbers::long(a)),
    plain("lorem", &[2], |a, _| people::lorem(a)),
    plain("objectId", &[0], |_, _| Ok(identifiers::object_id())),
    plain("phone", &[0], |_, _| Ok(identifiers::phone())),
    with_effects("put", &[2], |a, _| Ok(stateful::put(a))),
    plain("random", SOME, |a, _| Ok(text::random(a))),
    plain("regexify", &[1, 2], |a, _| regexify::regexify(a)),
    plain("repeat", &[1, 2], |a, _| numbers::repeat(a)),
    with_effects("resetIndex", &[0, 1], |a, _| Ok(stateful::reset_index(a))),
    plain("ssn", &[0], |_, _| Ok(identifiers::ssn())),
    plain("state", &[0], |_, _| Ok(people::state())),
    plain("street", &[0], |_, _| Ok(people::street())),
    plain("substring", &[2, 3], |a, _| text::substring(a)),
    plain("surname", &[0], |_, _| Ok(people::last_name())),
    with_effects("systemProperty", &[1], |a, _| Ok(stateful::system_property(a))),
    plain("time", &[0, 1, 3], |a, _| times::time(a)),
    plain("timestamp", &[0, 2], |a, c| dates::timestamp(a, c, 1)),
    plain("timestampSeconds", &[0, 2], |a, c| dates::timestamp(a, c, 1_000)),
    plain("toLowerCase", &[1], |a, _| Ok(Action::Lower(Cow::Borrowed(a[0])))),
    plain("toTimestamp", &[1, 2], |a, c| dates::to_timestamp(a, c, 1)),
    plain("toTimestampSeconds", &[1, 2], |a, c| dates::to_timestamp(a, c, 1_000)),
    plain("toUpperCase", &[1], |a, _| Ok(Action::Upper(Cow::Borrowed(a[0])))),
    plain("username", &[0], |_, _| Ok(people::username())),
    plain("uuid", &[0, 1], |a, _| Ok(identifiers::uuid(a))),
];

#[cfg(test)]
mod tests;
