//! Values of options that stand elsewhere: `${env:NAME}` and `${file:path}`.
//!
//! A secret has no place in a pipeline file. A reference says where it is: in a variable of the
//! environment, or in a file, without the line feed at its end. It may stand anywhere in a value,
//! several times. `$${` is a `${` that means itself.
//!
//! A value is looked up when the pipeline file is read, so that what is missing is known before
//! anything runs, and again whenever a source or a sink is made ([`Table::fresh`]): files rotate.
//! What was looked up is remembered as a secret and never shown. Who looks, and where, is the
//! caller's: this crate knows no environment.
//!
//! [`Table::fresh`]: super::connector::Table::fresh

use std::fmt;
use std::sync::Arc;

use millstream_store::secrets;

/// Where a part of a value is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reference {
    /// A variable of the environment.
    Env(String),
    /// A file, with its path as written.
    File(String),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "${{env:{name}}}"),
            Self::File(path) => write!(f, "${{file:{path}}}"),
        }
    }
}

/// Looks references up.
pub trait Lookup: Send + Sync {
    /// What a reference stands for; `None` where this is not the time to look, so that the value
    /// stays as written.
    ///
    /// # Errors
    /// What is wrong: a sentence without a full stop.
    fn look_up(&self, reference: &Reference) -> Result<Option<String>, String>;
}

/// For values that have no references.
pub struct Nowhere;

impl Lookup for Nowhere {
    fn look_up(&self, _reference: &Reference) -> Result<Option<String>, String> {
        Ok(None)
    }
}

/// A lookup as options carry it.
#[derive(Clone)]
pub(crate) struct SharedLookup(pub(crate) Arc<dyn Lookup>);

impl Default for SharedLookup {
    fn default() -> Self {
        Self(Arc::new(Nowhere))
    }
}

/// A value as written, in its parts.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    written: String,
    parts: Vec<TextPart>,
}

#[derive(Clone, PartialEq, Eq)]
enum TextPart {
    Text(String),
    Reference(Reference),
}

/// Why a value cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// What is wrong: a sentence without a full stop.
    pub problem: String,
    /// What to write instead.
    pub help: String,
}

const HELP: &str = "write ${env:NAME} for a variable of the environment, ${file:/path} for what is in a file, and $${ where ${ means itself";

impl Template {
    /// Reads a value.
    ///
    /// # Errors
    /// A `${` that does not end, or that names no place.
    pub fn parse(written: &str) -> Result<Self, TemplateError> {
        let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), written);
        while let Some(at) = rest.find("${") {
            if let Some(before) = rest[..at].strip_suffix('$') {
                text.push_str(before);
                text.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            text.push_str(&rest[..at]);
            let Some(end) = rest[at..].find('}') else {
                let problem = "a `${` has no `}`".to_owned();
                return Err(TemplateError { problem, help: HELP.to_owned() });
            };
            parts.push(TextPart::Text(std::mem::take(&mut text)));
            parts.push(TextPart::Reference(reference(&rest[at + 2..at + end])?));
            rest = &rest[at + end + 1..];
        }
        text.push_str(rest);
        parts.push(TextPart::Text(text));
        parts.retain(|part| *part != TextPart::Text(String::new()));
        Ok(Self { written: written.to_owned(), parts })
    }

    /// The value as it is written.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Where parts of the value are.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        self.parts.iter().filter_map(|part| match part {
            TextPart::Reference(reference) => Some(reference),
            TextPart::Text(_) => None,
        })
    }

    /// The value, with what is elsewhere remembered as a secret; as written where it is not the
    /// time to look.
    ///
    /// # Errors
    /// As [`Lookup::look_up`].
    pub fn value(&self, lookup: &dyn Lookup) -> Result<String, String> {
        let mut value = String::new();
        for part in &self.parts {
            match part {
                TextPart::Text(text) => value.push_str(text),
                TextPart::Reference(reference) => match lookup.look_up(reference)? {
                    Some(found) => {
                        secrets::remember(&found);
                        value.push_str(&found);
                    }
                    None => return Ok(self.written.clone()),
                },
            }
        }
        Ok(value)
    }
}

fn reference(inner: &str) -> Result<Reference, TemplateError> {
    let wrong = |problem: String| TemplateError { problem, help: HELP.to_owned() };
    let (scheme, place) = inner.split_once(':').unwrap_or(("", inner));
    match (scheme, place.trim()) {
        ("env" | "file", "") => Err(wrong(format!("`${{{inner}}}` names nothing"))),
        ("env", name) => Ok(Reference::Env(name.to_owned())),
        ("file", path) => Ok(Reference::File(path.to_owned())),
        ("", _) => Err(wrong(format!("`${{{inner}}}` does not say where the value is"))),
        (other, _) => Err(wrong(format!("there is no `{other}` to take a value from"))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::api::connector::Table;
    use crate::api::options::Options;
    use crate::api::source::Kind;

    struct Upper;

    impl Lookup for Upper {
        fn look_up(&self, reference: &Reference) -> Result<Option<String>, String> {
            match reference {
                Reference::Env(name) if name == "NONE" => Err("it is not set".to_owned()),
                Reference::Env(name) => Ok(Some(name.to_uppercase())),
                Reference::File(_) => Ok(None),
            }
        }
    }

    fn value(written: &str) -> Result<String, String> {
        Template::parse(written).map_err(|error| error.problem)?.value(&Upper)
    }

    #[test]
    fn references_stand_anywhere_and_may_be_escaped() {
        let cases = [
            ("plain $x {y}", "plain $x {y}"),
            ("${env:first_q}", "FIRST_Q"),
            ("a${env:q_2}b${env:q_3}", "aQ_2bQ_3"),
            ("$${env:x}", "${env:x}"),
            ("$$${env:x}", "$${env:x}"),
            ("a${file:/x}b", "a${file:/x}b"),
            ("", ""),
        ];
        for (written, wanted) in cases {
            assert_eq!(value(written).as_deref(), Ok(wanted), "{written}");
        }
    }

    #[test]
    fn a_table_is_made_with_values_as_they_are_then() {
        struct Rotating(AtomicU32);
        impl Lookup for Rotating {
            fn look_up(&self, _reference: &Reference) -> Result<Option<String>, String> {
                match self.0.fetch_add(1, Ordering::Relaxed) {
                    2 => Err("the file is gone".to_owned()),
                    turn => Ok(Some(format!("turn{turn}"))),
                }
            }
        }
        let lookup: Arc<dyn Lookup> = Arc::new(Rotating(AtomicU32::new(0)));
        let mut options = Options::default();
        let template = Template::parse("${file:x}").expect("it is well formed");
        options.set_elsewhere("password", template, &lookup).expect("it is there");
        let table = Table { name: "t".to_owned(), columns: None, options };
        assert_eq!(table.options.get("password"), Some("turn0"));
        assert_eq!(table.fresh().expect("there").options.get("password"), Some("turn1"));
        let failure = table.fresh().expect_err("gone");
        assert_eq!(failure.kind(), Kind::Config);
        assert!(failure.to_string().contains("table 't'"), "{failure}");
        assert!(!format!("{:?}", table.options).contains("turn"));
    }

    #[test]
    fn what_names_no_place_is_refused() {
        for (written, problem) in [
            ("${env:x", "no `}`"),
            ("${x}", "does not say where"),
            ("${env:}", "names nothing"),
            ("${vault:x}", "there is no `vault`"),
            ("${ENV:x}", "there is no `ENV`"),
            ("${env:NONE}", "it is not set"),
        ] {
            let found = value(written).expect_err("it is wrong");
            assert!(found.contains(problem), "{written}: {found}");
        }
    }
}
