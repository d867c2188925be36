//! Options of a declared table, as a connector gets them.
//!
//! Keys have no case; the original spelling is kept for messages. What is wrong with an option is
//! an [`OptionError`], which the pipeline file's reader turns into a message that points at it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use millstream_sql::json::ParseMode;
use millstream_store::error::{Classified, Kind};
use millstream_store::secrets;

use super::references::{Lookup, Reference, SharedLookup, Template};

/// Options of one `CREATE TABLE`, in the order written. Secrets among them are not shown.
#[derive(Clone, Default)]
pub struct Options {
    entries: Vec<Entry>,
    lookup: SharedLookup,
}

#[derive(Clone)]
struct Entry {
    key: String,
    value: String,
    /// Where parts of the value are, if they stand elsewhere.
    template: Option<Template>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.iter().map(|(key, value)| {
            if self.is_secret(key) {
                (key, Cow::Borrowed(secrets::HIDDEN))
            } else {
                (key, secrets::redacted_source(value))
            }
        });
        f.debug_map().entries(shown).finish()
    }
}

impl Options {
    /// Options from keys and values; of two keys that differ in case only, the later one holds.
    pub fn new(entries: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut options = Self::default();
        for (key, value) in entries {
            options.set(key, value);
        }
        options
    }

    /// Sets one option, replacing it whatever its case.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.put(key.into(), value.into(), None);
    }

    /// Sets one option whose value stands elsewhere, replacing it whatever its case.
    ///
    /// # Errors
    /// Why the value cannot be looked up, a sentence without a full stop.
    pub fn set_elsewhere(
        &mut self,
        key: &str,
        template: Template,
        lookup: &Arc<dyn Lookup>,
    ) -> Result<(), String> {
        self.lookup = SharedLookup(Arc::clone(lookup));
        let value = template.value(&**lookup)?;
        let is_elsewhere = template.references().next().is_some();
        self.put(key.to_owned(), value, is_elsewhere.then_some(template));
        Ok(())
    }

    fn put(&mut self, key: String, value: String, template: Option<Template>) {
        secrets::remember_setting(&key, &value);
        self.entries.retain(|entry| !entry.key.eq_ignore_ascii_case(&key));
        self.entries.push(Entry { key, value, template });
    }

    /// True for an option whose value must not be shown: by its name, or because it stands
    /// elsewhere.
    pub fn is_secret(&self, key: &str) -> bool {
        secrets::is_secret_key(key) || self.references().any(|(of, _)| of.eq_ignore_ascii_case(key))
    }

    /// Where values stand that are not in the pipeline file, with the options they are of.
    pub fn references(&self) -> impl Iterator<Item = (&str, &Reference)> {
        let of = |entry: &'_ Entry| entry.template.is_some();
        self.entries.iter().filter(move |entry| of(entry)).flat_map(|entry| {
            let template = entry.template.iter();
            template.flat_map(Template::references).map(|reference| (&*entry.key, reference))
        })
    }

    /// The same options, with values that stand elsewhere looked up anew.
    ///
    /// # Errors
    /// The option and why its value cannot be looked up.
    pub fn fresh(&self) -> Result<Self, OptionError> {
        let mut fresh = self.clone();
        for entry in &mut fresh.entries {
            if let Some(template) = &entry.template {
                let value = template.value(&*self.lookup.0);
                entry.value =
                    value.map_err(|problem| OptionError::of(&entry.key, problem, None))?;
            }
        }
        Ok(fresh)
    }

    /// True for an option whose value stands elsewhere and was not looked at, as in a file that is
    /// only checked: what there is of it is its reference.
    pub fn is_unread(&self, key: &str) -> bool {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.key.eq_ignore_ascii_case(key));
        entry.is_some_and(|entry| {
            entry.template.as_ref().is_some_and(|template| template.written() == entry.value)
        })
    }

    /// Those of the options that `keep` says.
    pub fn only(&self, keep: impl Fn(&str) -> bool) -> Self {
        let entries = self.entries.iter().filter(|entry| keep(&entry.key)).cloned();
        Self { entries: entries.collect(), lookup: self.lookup.clone() }
    }

    /// The value of `key`, whatever its case.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.entries.iter().find(|entry| entry.key.eq_ignore_ascii_case(key));
        found.map(|entry| entry.value.as_str())
    }

    /// Keys and values as written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str()))
    }

    /// The value of `key` read as `T`; `wanted` says what it should look like ("a whole number").
    pub fn parse<T: std::str::FromStr>(
        &self,
        key: &str,
        wanted: &str,
    ) -> Result<Option<T>, OptionError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        match text.trim().parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(OptionError::invalid(key, text, wanted)),
        }
    }

    /// The value of `key` as a number of bytes, more than none: with `k`, `m` or `g` behind it,
    /// with or without `b`.
    pub fn parse_bytes(&self, key: &str) -> Result<Option<u64>, OptionError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
        let factor = match lower[digits..].trim().trim_end_matches('b') {
            "" => 1,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            _ => 0,
        };
        let count: Option<u64> = lower[..digits].parse().ok();
        match count.and_then(|count| count.checked_mul(factor)).filter(|bytes| *bytes > 0) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(OptionError::invalid(key, text, "a size such as '128mb'")),
        }
    }

    /// The option `mode`, for whatever text a table is read from.
    ///
    /// Errors: a value that is none of the three.
    pub fn parse_mode(&self) -> Result<ParseMode, OptionError> {
        let Some(text) = self.get("mode") else { return Ok(ParseMode::Permissive) };
        match text.trim().to_ascii_uppercase().as_str() {
            "PERMISSIVE" => Ok(ParseMode::Permissive),
            "DROPMALFORMED" => Ok(ParseMode::DropMalformed),
            "FAILFAST" => Ok(ParseMode::FailFast),
            _ => {
                let wanted = "PERMISSIVE, DROPMALFORMED or FAILFAST";
                Err(OptionError::invalid("mode", text, wanted))
            }
        }
    }

    /// The value of `key` as true or false.
    pub fn parse_bool(&self, key: &str) -> Result<Option<bool>, OptionError> {
        match self.get(key).map(|text| (text, text.trim().to_ascii_lowercase())) {
            None => Ok(None),
            Some((_, lower)) if lower == "true" => Ok(Some(true)),
            Some((_, lower)) if lower == "false" => Ok(Some(false)),
            Some((text, _)) => Err(OptionError::invalid(key, text, "true or false")),
        }
    }
}

/// What is wrong with a table's declaration. Points at an option, or at the whole declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionError {
    /// The option's key, or `None` where the declaration as a whole is wrong.
    pub key: Option<String>,
    /// What is wrong, a sentence without a full stop.
    pub problem: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl OptionError {
    /// An option whose value does not read as what it should be.
    pub fn invalid(key: &str, value: &str, wanted: &str) -> Self {
        Self {
            key: Some(key.to_owned()),
            problem: format!("'{key}' is '{value}', but should be {wanted}"),
            help: None,
        }
    }

    /// An option that must be there.
    pub fn missing(key: &str, help: impl Into<String>) -> Self {
        Self { key: None, problem: format!("'{key}' is missing"), help: Some(help.into()) }
    }

    /// Anything else about one option.
    pub fn of(key: &str, problem: impl Into<String>, help: Option<String>) -> Self {
        Self { key: Some(key.to_owned()), problem: problem.into(), help }
    }

    /// Anything else about the declaration as a whole.
    pub fn table(problem: impl Into<String>, help: Option<String>) -> Self {
        Self { key: None, problem: problem.into(), help }
    }
}

/// In one sentence or two, where nothing points at the declaration.
impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        let Some(help) = &self.help else { return Ok(()) };
        let mut rest = help.chars();
        let first = rest.next().into_iter().flat_map(char::to_uppercase);
        write!(f, ". {}{}", first.collect::<String>(), rest.as_str())
    }
}

impl Error for OptionError {}

impl Classified for OptionError {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

/// Where an option may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Only on a table that is read.
    Source,
    /// Only on a table that is written.
    Sink,
    /// On either.
    Both,
}

/// One option a connector knows. A name that ends in `.*` stands for all keys with that prefix.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// The key as documented.
    pub name: &'static str,
    /// Where it may stand.
    pub side: Side,
    /// A line for the reference page and for `validate`.
    pub about: &'static str,
}
