//! Names, places and words, out of this project's own lists.

use std::borrow::Cow;

use crate::error::Problem;
use crate::functions::Action;
use crate::java::parse_i32;
use crate::random::Random;
use crate::words::{
    CITIES, COMPANIES, COUNTRIES, FEMALE, LAST_NAMES, LATIN, MALE, STATES, STREETS,
};

/// Sentences in a paragraph: the least number, and how many numbers are possible from there on.
const SENTENCES: (u64, u64) = (2, 5);
/// Words in a sentence: the same two numbers.
const SENTENCE_WORDS: (u64, u64) = (5, 30);

/// A person, place or text to draw.
#[derive(Debug)]
pub(crate) enum Person<'a> {
    Word(&'static [&'static str]),
    Country,
    FirstName,
    Username,
    /// An address at the domain, or else at the domain of a company.
    Email(Option<Cow<'a, str>>),
    Words(i32),
    Paragraphs(i32),
}

impl Person<'_> {
    pub(crate) fn write(&self, random: &mut Random, out: &mut Vec<u8>) {
        match self {
            Self::Word(words) => push(random.word(words), out),
            Self::Country => push(random.pick(COUNTRIES).1, out),
            Self::FirstName => push(draw_first_name(random), out),
            Self::Username => {
                push_lower(&draw_first_name(random)[..1], out);
                push_lower(random.word(LAST_NAMES), out);
            }
            Self::Email(domain) => {
                push_lower(draw_first_name(random), out);
                out.push(b'.');
                push_lower(random.word(LAST_NAMES), out);
                out.push(b'@');
                match domain {
                    Some(domain) => push(&domain.to_lowercase(), out),
                    None => {
                        push_lower(random.word(COMPANIES), out);
                        push(".com", out);
                    }
                }
            }
            Self::Words(count) => write_words(i64::from(*count), "lorem", random, out),
            Self::Paragraphs(count) => write_paragraphs(*count, random, out),
        }
    }

    pub(crate) fn into_owned(self) -> Person<'static> {
        match self {
            Self::Word(words) => Person::Word(words),
            Self::Country => Person::Country,
            Self::FirstName => Person::FirstName,
            Self::Username => Person::Username,
            Self::Email(domain) => {
                Person::Email(domain.map(|domain| Cow::Owned(domain.into_owned())))
            }
            Self::Words(count) => Person::Words(count),
            Self::Paragraphs(count) => Person::Paragraphs(count),
        }
    }
}

fn push(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
}

/// Appends in lower case; the word lists are ASCII.
fn push_lower(text: &str, out: &mut Vec<u8>) {
    out.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
}

fn draw_first_name(random: &mut Random) -> &'static str {
    let names = if random.below(2) == 0 { MALE } else { FEMALE };
    random.word(names)
}

/// A single word is drawn; of several, the first two are always the same, as in the original.
fn write_words(count: i64, first: &str, random: &mut Random, out: &mut Vec<u8>) {
    if count == 1 {
        return push(random.word(LATIN), out);
    }
    push(first, out);
    push(" ipsum", out);
    for _ in 2..count {
        out.push(b' ');
        push(random.word(LATIN), out);
    }
}

/// Sentences without a space between them, as the original has them.
fn write_paragraphs(count: i32, random: &mut Random, out: &mut Vec<u8>) {
    for paragraph in 0..count {
        if paragraph > 0 {
            push("\n\n", out);
        }
        out.push(b'\t');
        for _ in 0..SENTENCES.0 + random.below(SENTENCES.1) {
            let words = SENTENCE_WORDS.0 + random.below(SENTENCE_WORDS.1);
            write_words(words as i64, "Lorem", random, out);
            out.push(b'.');
        }
    }
}

pub(crate) fn city() -> Action<'static> {
    Action::Person(Person::Word(CITIES))
}

pub(crate) fn company() -> Action<'static> {
    Action::Person(Person::Word(COMPANIES))
}

pub(crate) fn state() -> Action<'static> {
    Action::Person(Person::Word(STATES))
}

pub(crate) fn street() -> Action<'static> {
    Action::Person(Person::Word(STREETS))
}

pub(crate) fn country() -> Action<'static> {
    Action::Person(Person::Country)
}

pub(crate) fn last_name() -> Action<'static> {
    Action::Person(Person::Word(LAST_NAMES))
}

/// Female for any argument but `male`.
pub(crate) fn first_name<'a>(arguments: &[&'a str]) -> Action<'a> {
    Action::Person(match arguments.first() {
        None => Person::FirstName,
        Some(&"male") => Person::Word(MALE),
        Some(_) => Person::Word(FEMALE),
    })
}

pub(crate) fn username() -> Action<'static> {
    Action::Person(Person::Username)
}

pub(crate) fn email<'a>(arguments: &[&'a str]) -> Action<'a> {
    Action::Person(Person::Email(arguments.first().map(|domain| Cow::Borrowed(*domain))))
}

pub(crate) fn lorem<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let count = parse_i32(arguments[0])?;
    match arguments[1] {
        "words" => Ok(Action::Person(Person::Words(count))),
        "paragraphs" => Ok(Action::Person(Person::Paragraphs(count))),
        other => {
            let what = format!("`{other}` is nothing that lorem can count");
            Err(Problem::new(what, "write \"words\" or \"paragraphs\""))
        }
    }
}

/// For one code the country's name; for several an object without unknown codes; for none all
/// countries.
pub(crate) fn countries_list<'a>(codes: &[&'a str]) -> Result<Action<'a>, Problem> {
    let entry = |(code, name): &(&str, &str)| format!("\"{code}\": \"{name}\"");
    let find = |wanted: &&str| COUNTRIES.iter().find(|(code, _)| code == wanted);
    let text = match codes {
        [] => {
            format!("{{ {} }}", COUNTRIES.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        [code] => {
            let unknown = || {
                let what = format!("no country has the code `{code}`");
                Problem::new(what, "codes are those of ISO 3166, two capital letters")
            };
            find(code).ok_or_else(unknown)?.1.to_owned()
        }
        codes => {
            let found = codes.iter().enumerate().filter(|(at, code)| !codes[..*at].contains(code));
            let found = found.filter_map(|(_, code)| find(code));
            let entries: Vec<String> =
                found.map(|(code, name)| format!("\"{code}\":\"{name}\"")).collect();
            format!("{{{}}}", entries.join(","))
        }
    };
    Ok(Action::Text(Cow::Owned(text)))
}
