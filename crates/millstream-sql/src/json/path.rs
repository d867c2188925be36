//! Paths into JSON documents, as `get_json_object` takes them: `$.a.b[0]`, `$['a b'][*]`.

use std::borrow::Cow;

use super::keys::{Elements, Members, key_text};
use super::lenient::Leniency;
use super::scan::{self, Kind, Span};
use super::text::{rewritten, string, unescape};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
    EveryElement,
}

/// A path that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    steps: Vec<Step>,
}

impl Path {
    /// Reads a path; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.strip_prefix('$')?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = if let Some(quoted) = rest.strip_prefix("['") {
                let (name, after) = quoted.split_once("']")?;
                (Step::Key(name.to_owned()), after)
            } else if let Some(index) = rest.strip_prefix('[') {
                let (index, after) = index.split_once(']')?;
                let every = index == "*";
                (if every { Step::EveryElement } else { Step::Index(index.parse().ok()?) }, after)
            } else {
                let name = rest.strip_prefix('.')?;
                let end = name.find(['.', '[']).unwrap_or(name.len());
                let (name, after) = name.split_at(end);
                if name.is_empty() || name == "*" {
                    return None;
                }
                (Step::Key(name.to_owned()), after)
            };
            steps.push(step);
            rest = after;
        }
        Some(Self { steps })
    }

    /// Writes what the path leads to in `document` into `out`: the text of a string, the JSON text
    /// of anything else. False, with `out` as it was, if there is nothing, or null, or no JSON.
    pub fn find(&self, document: &str, out: &mut String) -> bool {
        let Some((document, root)) = root(document) else { return false };
        let document = &*document;
        let mut matches = Vec::new();
        follow(document, root, &self.steps, &mut matches);
        let many = self.steps.contains(&Step::EveryElement);
        match matches.as_slice() {
            [] => false,
            [only] if !many || only.kind == Kind::Array => one(document, *only, out),
            [only] => {
                write_json(document, *only, out);
                true
            }
            all => {
                for (count, value) in all.iter().enumerate() {
                    out.push(if count == 0 { '[' } else { ',' });
                    write_json(document, *value, out);
                }
                out.push(']');
                true
            }
        }
    }
}

/// A document and its value, as Spark's parser takes it.
fn root(document: &str) -> Option<(Cow<'_, str>, Span)> {
    if let Ok(root) = scan::record(document.as_bytes()) {
        return Some((Cow::Borrowed(document), root));
    }
    let strict = Leniency::of_paths().strict(document)?;
    let root = scan::record(strict.as_bytes()).ok()?;
    Some((Cow::Owned(strict), root))
}

/// How many elements an array has; `None` if `document` is not an array.
pub(crate) fn array_length(document: &str) -> Option<i32> {
    let (document, root) = root(document)?;
    let is_array = root.kind == Kind::Array;
    is_array.then(|| Elements::new(&document, root).count() as i32)
}

/// The keys of the object that a document is, in their order.
pub(crate) fn object_keys(document: &str) -> Option<Vec<String>> {
    let (document, root) = root(document)?;
    let document = &*document;
    if root.kind != Kind::Object {
        return None;
    }
    let key = |key| key_text(document, key, &mut String::new()).to_owned();
    Some(Members::new(document, root).map(|(name, _)| key(name)).collect())
}

/// Writes the last member of an object that is called `key` and is not null; false if there is
/// none.
pub(crate) fn member(document: &str, key: &str, out: &mut String) -> bool {
    let Some((document, root)) = root(document) else { return false };
    let document = &*document;
    if root.kind != Kind::Object {
        return false;
    }
    let mut scratch = String::new();
    let members = Members::new(document, root);
    let found = members.filter(|(name, value)| {
        value.kind != Kind::Null && key_text(document, *name, &mut scratch) == key
    });
    found.last().is_some_and(|(_, value)| one(document, value, out))
}

fn follow(document: &str, value: Span, steps: &[Step], matches: &mut Vec<Span>) {
    let Some((step, rest)) = steps.split_first() else {
        return matches.push(value);
    };
    match (step, value.kind) {
        (Step::Key(name), Kind::Object) => {
            let mut scratch = String::new();
            let mut members = Members::new(document, value);
            let found = members.find(|(key, value)| {
                value.kind != Kind::Null && key_text(document, *key, &mut scratch) == name
            });
            if let Some((_, value)) = found {
                follow(document, value, rest, matches);
            }
        }
        (Step::Index(index), Kind::Array) => {
            if let Some(value) = Elements::new(document, value).nth(*index) {
                follow(document, value, rest, matches);
            }
        }
        (Step::EveryElement, Kind::Array) => {
            Elements::new(document, value).for_each(|value| follow(document, value, rest, matches));
        }
        _ => {}
    }
}

fn one(document: &str, value: Span, out: &mut String) -> bool {
    match value.kind {
        Kind::Null => return false,
        Kind::EscapedText => unescape(value.of(document), out),
        Kind::Text => out.push_str(value.of(document)),
        _ => rewritten(value.of(document), out),
    }
    true
}

fn write_json(document: &str, value: Span, out: &mut String) {
    match value.kind {
        Kind::Text | Kind::EscapedText => string(value.of(document), out),
        _ => rewritten(value.of(document), out),
    }
}
