//! Finds the columns that the keys of an object belong to.
//!
//! Records of one stream have nearly always the same keys in the same order. So the keys of the
//! records so far are kept in their order, and a key is first compared with the one that came next
//! last time. Only an unexpected key is looked up by hash.

use std::collections::HashMap;

use super::scan::{Kind, Scanner, Span};

/// How many keys are remembered in order. Objects with more are used as maps, whose keys do not
/// repeat.
const LEARNED_MAX: usize = 128;
/// How many remembered keys a record may leave out before the next key is looked up by hash.
const LEFT_OUT_MAX: usize = 3;

/// Which column a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub column: usize,
    /// False if the key is spelled like the column only without regard to case.
    pub exact: bool,
}

/// The columns that are wanted from an object.
pub(super) struct Keys {
    exact: HashMap<String, usize>,
    /// By lower-case name; `None` if case counts.
    ignoring_case: Option<HashMap<String, usize>>,
    learned: Vec<(String, Option<Hit>)>,
    next: usize,
}

impl Keys {
    /// `columns` are the wanted names with the column each stands for.
    pub fn new<'a>(columns: impl Iterator<Item = (usize, &'a str)>, ignore_case: bool) -> Self {
        let exact: HashMap<_, _> =
            columns.map(|(column, name)| (name.to_owned(), column)).collect();
        let lower = || exact.iter().map(|(name, column)| (name.to_lowercase(), *column)).collect();
        let ignoring_case = ignore_case.then(lower);
        Self { exact, ignoring_case, learned: Vec::new(), next: 0 }
    }

    /// A new object begins.
    pub fn begin(&mut self) {
        self.next = 0;
    }

    /// The column of the object's next key, if it is wanted.
    #[inline]
    pub fn find(&mut self, key: &str) -> Option<Hit> {
        let end = self.learned.len().min(self.next + LEFT_OUT_MAX);
        for at in self.next..end {
            if self.learned[at].0 == key {
                self.next = at + 1;
                return self.learned[at].1;
            }
        }
        self.look_up(key)
    }

    #[cold]
    fn look_up(&mut self, key: &str) -> Option<Hit> {
        let hit = match self.exact.get(key) {
            Some(&column) => Some(Hit { column, exact: true }),
            None => self.ignoring_case.as_ref().and_then(|names| {
                let column = *names.get(&key.to_lowercase())?;
                Some(Hit { column, exact: false })
            }),
        };
        if self.learned.len() < LEARNED_MAX {
            let at = self.next.min(self.learned.len());
            self.learned.insert(at, (key.to_owned(), hit));
            self.next = at + 1;
        }
        hit
    }
}

/// The values of one object that belong to columns.
pub(super) struct MatchedValues {
    spans: Vec<Span>,
    exact: Vec<bool>,
    /// Values of keys that came again, with their columns, before those in `spans`.
    earlier: Vec<(usize, Span)>,
}

impl MatchedValues {
    pub fn new(columns: usize) -> Self {
        let (spans, exact) = (vec![Span::MISSING; columns], vec![false; columns]);
        Self { spans, exact, earlier: Vec::new() }
    }

    pub fn clear(&mut self) {
        self.spans.fill(Span::MISSING);
        self.exact.fill(false);
        self.earlier.clear();
    }

    /// The last value of a key wins, but never over a key with the column's exact spelling.
    #[inline]
    pub fn put(&mut self, hit: Hit, value: Span) {
        if hit.exact || !self.exact[hit.column] {
            if self.spans[hit.column].kind != Kind::Missing {
                self.put_again(hit);
            }
            self.spans[hit.column] = value;
            self.exact[hit.column] = hit.exact;
        }
    }

    /// Keeps the value that another one replaces, unless its key is spelled otherwise than the
    /// column and the other's is not.
    #[cold]
    fn put_again(&mut self, hit: Hit) {
        if hit.exact == self.exact[hit.column] {
            self.earlier.push((hit.column, self.spans[hit.column]));
        } else {
            self.earlier.retain(|(column, _)| *column != hit.column);
        }
    }

    #[inline]
    pub fn get(&self, column: usize) -> Span {
        self.spans[column]
    }

    /// Whether the key of a column came several times.
    #[inline]
    pub fn is_repeated(&self, column: usize) -> bool {
        !self.earlier.is_empty() && self.earlier(column).next().is_some()
    }

    /// The values of a column before the last one.
    pub fn earlier(&self, column: usize) -> impl Iterator<Item = Span> {
        self.earlier.iter().filter(move |(of, _)| *of == column).map(|(_, span)| *span)
    }
}

/// A key's text; `scratch` holds it if it has escapes.
#[inline]
pub(super) fn key_text<'a>(record: &'a str, key: Span, scratch: &'a mut String) -> &'a str {
    if key.kind == Kind::Text {
        return key.of(record);
    }
    scratch.clear();
    super::text::unescape(key.of(record), scratch);
    scratch
}

/// The elements of an array that phase 1 has checked.
pub(super) struct Elements<'a> {
    scanner: Scanner<'a>,
}

impl<'a> Elements<'a> {
    pub fn new(record: &'a str, array: Span) -> Self {
        Self { scanner: Scanner::from(record.as_bytes(), array.start + 1) }
    }
}

impl Iterator for Elements<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        match self.scanner.peek()? {
            b']' => return None,
            b',' => self.scanner.at += 1,
            _ => {}
        }
        self.scanner.value().ok()
    }
}

/// The keys and values of an object that phase 1 has checked.
pub(super) struct Members<'a> {
    scanner: Scanner<'a>,
}

impl<'a> Members<'a> {
    pub fn new(record: &'a str, object: Span) -> Self {
        Self { scanner: Scanner::from(record.as_bytes(), object.start + 1) }
    }
}

impl Iterator for Members<'_> {
    type Item = (Span, Span);

    fn next(&mut self) -> Option<(Span, Span)> {
        match self.scanner.peek()? {
            b'}' => return None,
            b',' => self.scanner.at += 1,
            _ => {}
        }
        let key = self.scanner.key().ok()?;
        let value = self.scanner.value().ok()?;
        Some((key, value))
    }
}
