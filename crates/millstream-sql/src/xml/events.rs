//! From a text to its events.

use thiserror::Error;

/// How deep elements may be nested. As in Spark.
const DEPTH_MAX: usize = 1_000;

/// How many attributes an element may have. As in Spark.
const ATTRIBUTES_MAX: usize = 1_000;

/// An attribute of an element: its name and its value.
pub(crate) type Attribute = (String, String);

/// What a reader meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The beginning of an element.
    Start { name: String, attributes: Vec<Attribute> },
    /// The end of the element of this name.
    End(String),
    /// Text between these, in which entities are what they stand for.
    Text(String),
    /// Here the text stops being XML.
    Malformed,
}

/// XML that is not read here, although Spark reads it.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}, which is not read here; replace it in the text, for example by regexp_replace")]
pub(crate) struct NotRead(pub(crate) String);

/// Why there are no more events.
enum Stop {
    Malformed,
    NotRead(String),
}

/// The events of a text up to the end of its outermost element. The last one is
/// [`Event::Malformed`] if there is no such end.
///
/// # Errors
/// The text has a declaration of its type, or an entity that only such a one declares.
pub(crate) fn events(text: &str) -> Result<Vec<Event>, NotRead> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut scanner = Scanner { rest: text, found: Vec::new(), open: Vec::new() };
    match scanner.document() {
        Ok(()) => {}
        Err(Stop::Malformed) => scanner.found.push(Event::Malformed),
        Err(Stop::NotRead(what)) => return Err(NotRead(what)),
    }
    Ok(scanner.found)
}

/// The events of a whole text, behind whose outermost element nothing but comments may be.
///
/// # Errors
/// As of [`events`].
pub(crate) fn whole(text: &str) -> Result<Vec<Event>, NotRead> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut scanner = Scanner { rest: text, found: Vec::new(), open: Vec::new() };
    match scanner.document().and_then(|()| scanner.trailer()) {
        Ok(()) => {}
        Err(Stop::Malformed) => scanner.found.push(Event::Malformed),
        Err(Stop::NotRead(what)) => return Err(NotRead(what)),
    }
    Ok(scanner.found)
}

/// Whether a text is only white space.
pub(crate) fn is_blank(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

/// Whether a text is a name that an element or an attribute can have.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(starts_name) && text.chars().all(is_in_name)
}

fn starts_name(char: char) -> bool {
    char.is_alphabetic() || matches!(char, '_' | ':')
}

fn is_in_name(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '_' | ':' | '-' | '.' | '\u{b7}')
}

fn is_char(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

struct Scanner<'a> {
    rest: &'a str,
    found: Vec<Event>,
    /// The names of the elements that have no end yet.
    open: Vec<&'a str>,
}

impl<'a> Scanner<'a> {
    fn eat(&mut self, what: &str) -> bool {
        match self.rest.strip_prefix(what) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// What stands before `end`, which is eaten too.
    fn until(&mut self, end: &str) -> Result<&'a str, Stop> {
        let (before, rest) = self.rest.split_once(end).ok_or(Stop::Malformed)?;
        self.rest = rest;
        Ok(before)
    }

    fn space(&mut self) -> bool {
        let rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let is_any = rest.len() < self.rest.len();
        self.rest = rest;
        is_any
    }

    fn name(&mut self) -> Result<&'a str, Stop> {
        let end = self.rest.find(|char: char| !is_in_name(char)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if !name.starts_with(starts_name) {
            return Err(Stop::Malformed);
        }
        self.rest = rest;
        Ok(name)
    }

    fn document(&mut self) -> Result<(), Stop> {
        if self.rest.starts_with("<?xml") && self.rest[5..].starts_with([' ', '\t', '\n', '\r']) {
            self.until("?>")?;
        }
        loop {
            self.space();
            if self.eat("<!--") {
                self.comment()?;
            } else if self.eat("<?") {
                self.instruction()?;
            } else if self.rest.starts_with("<!DOCTYPE") {
                return Err(Stop::NotRead("the XML has a <!DOCTYPE>".to_owned()));
            } else if self.eat("<") {
                self.start()?;
                break;
            } else {
                return Err(Stop::Malformed);
            }
        }
        self.content()
    }

    /// What may come behind the outermost element.
    fn trailer(&mut self) -> Result<(), Stop> {
        loop {
            self.space();
            if self.eat("<!--") {
                self.comment()?;
            } else if self.eat("<?") {
                self.instruction()?;
            } else if self.rest.is_empty() {
                return Ok(());
            } else {
                return Err(Stop::Malformed);
            }
        }
    }

    fn comment(&mut self) -> Result<(), Stop> {
        self.until("--")?;
        if self.eat(">") { Ok(()) } else { Err(Stop::Malformed) }
    }

    fn instruction(&mut self) -> Result<(), Stop> {
        if self.name()?.eq_ignore_ascii_case("xml") {
            return Err(Stop::Malformed);
        }
        self.until("?>").map(|_| ())
    }

    fn content(&mut self) -> Result<(), Stop> {
        let mut text = String::new();
        while !self.open.is_empty() {
            let end = self.rest.find(['<', '&']).ok_or(Stop::Malformed)?;
            let (run, rest) = self.rest.split_at(end);
            if run.contains("]]>") {
                return Err(Stop::Malformed);
            }
            self.rest = rest;
            push_text(run, &mut text)?;
            if self.eat("&") {
                text.push(self.reference()?);
            } else if self.eat("<![CDATA[") {
                push_text(self.until("]]>")?, &mut text)?;
            } else {
                if !text.is_empty() {
                    self.found.push(Event::Text(std::mem::take(&mut text)));
                }
                self.mark()?;
            }
        }
        Ok(())
    }

    /// What begins with `<` and is no text.
    fn mark(&mut self) -> Result<(), Stop> {
        if self.eat("<!--") {
            return self.comment();
        }
        if self.eat("<?") {
            return self.instruction();
        }
        if !self.eat("</") {
            return if self.eat("<") { self.start() } else { Err(Stop::Malformed) };
        }
        let name = self.name()?;
        self.space();
        if !self.eat(">") || self.open.pop() != Some(name) {
            return Err(Stop::Malformed);
        }
        self.found.push(Event::End(name.to_owned()));
        Ok(())
    }

    /// The beginning of an element, whose `<` is eaten.
    fn start(&mut self) -> Result<(), Stop> {
        let name = self.name()?;
        if self.open.len() == DEPTH_MAX {
            return Err(Stop::Malformed);
        }
        let mut attributes: Vec<Attribute> = Vec::new();
        let is_empty = loop {
            let is_apart = self.space();
            if self.eat(">") {
                break false;
            }
            if self.eat("/>") {
                break true;
            }
            if !is_apart {
                return Err(Stop::Malformed);
            }
            let attribute = self.attribute()?;
            if attributes.len() == ATTRIBUTES_MAX {
                return Err(Stop::Malformed);
            }
            if attributes.iter().any(|(known, _)| *known == attribute.0) {
                return Err(Stop::Malformed);
            }
            attributes.push(attribute);
        };
        self.found.push(Event::Start { name: name.to_owned(), attributes });
        match is_empty {
            true => self.found.push(Event::End(name.to_owned())),
            false => self.open.push(name),
        }
        Ok(())
    }

    fn attribute(&mut self) -> Result<Attribute, Stop> {
        let name = self.name()?.to_owned();
        self.space();
        if !self.eat("=") {
            return Err(Stop::Malformed);
        }
        self.space();
        let quote = if self.eat("\"") {
            "\""
        } else if self.eat("'") {
            "'"
        } else {
            return Err(Stop::Malformed);
        };
        let whole = self.until(quote)?;
        let after = std::mem::replace(&mut self.rest, whole);
        let mut value = String::new();
        loop {
            let end = self.rest.find(['<', '&']).unwrap_or(self.rest.len());
            let (run, rest) = self.rest.split_at(end);
            self.rest = rest;
            let from = value.len();
            push_text(run, &mut value)?;
            if value[from..].contains(['\t', '\n']) {
                let spaced = value[from..].replace(['\t', '\n'], " ");
                value.replace_range(from.., &spaced);
            }
            match () {
                () if self.rest.is_empty() => break,
                () if self.eat("&") => value.push(self.reference()?),
                () => return Err(Stop::Malformed),
            }
        }
        self.rest = after;
        Ok((name, value))
    }

    /// A character by its name or number, whose `&` is eaten.
    fn reference(&mut self) -> Result<char, Stop> {
        let (digits, radix) = match () {
            () if self.eat("#x") => (self.until(";")?, 16),
            () if self.eat("#") => (self.until(";")?, 10),
            () => {
                let name = self.name()?;
                if !self.eat(";") {
                    return Err(Stop::Malformed);
                }
                return match name {
                    "lt" => Ok('<'),
                    "gt" => Ok('>'),
                    "amp" => Ok('&'),
                    "quot" => Ok('"'),
                    "apos" => Ok('\''),
                    other => Err(Stop::NotRead(format!("the XML has the entity &{other};"))),
                };
            }
        };
        let is_number = digits.chars().all(|digit| digit.is_digit(radix));
        let number = u32::from_str_radix(digits, radix).ok().filter(|_| is_number);
        let found = number.and_then(char::from_u32);
        found.filter(|found| is_char(*found)).ok_or(Stop::Malformed)
    }
}

/// Appends text with `\n` for each end of a line.
fn push_text(run: &str, out: &mut String) -> Result<(), Stop> {
    if !run.chars().all(is_char) {
        return Err(Stop::Malformed);
    }
    if run.contains('\r') {
        out.push_str(&run.replace("\r\n", "\n").replace('\r', "\n"));
    } else {
        out.push_str(run);
    }
    Ok(())
}
