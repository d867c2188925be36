//! Collations by their names: how two STRINGs are compared.
//!
//! `UTF8_BINARY` is what a STRING has without one: its bytes are compared. `UTF8_LCASE` compares
//! the lower case of each character. `UNICODE` and languages compare as Unicode's algorithm does;
//! with `_CI` behind the name case does not count, with `_AI` accents do not. `_RTRIM` leaves
//! blanks at the end out.

use std::fmt;

/// What stands before a name where it is written in full.
const SCHEMA: &str = "SYSTEM.BUILTIN.";

/// The collations that there are, for messages.
pub const KNOWN: &str = "UTF8_BINARY, UTF8_LCASE, UNICODE and languages such as de; behind UNICODE \
                         and a language may stand _CI and _AI, behind all of them _RTRIM";

/// Languages, UNICODE first, which is the order of none of them. Others that Spark has are those
/// with a script or a country, and those whose order is large.
const LANGUAGES: [&str; 34] = [
    "UNICODE", "be", "bg", "bs", "ca", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "hr",
    "hu", "is", "it", "lt", "lv", "mk", "nl", "no", "pl", "pt", "ro", "ru", "sk", "sl", "sq", "sr",
    "sv", "tr", "uk",
];

/// Languages in which letters have other capitals than elsewhere.
const OWN_CAPITALS: [&str; 4] = ["el", "lt", "nl", "tr"];

/// How two STRINGs are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Collation {
    /// Which characters are the same.
    pub letters: Letters,
    /// Blanks at the end do not count.
    pub trims: bool,
}

/// Which characters are the same to a collation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Letters {
    /// Those of the same bytes.
    #[default]
    Bytes,
    /// Those of the same lower case, one by one.
    LowerCase,
    /// Those that are the same to Unicode.
    Unicode(Unicode),
}

/// An order of Unicode's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unicode {
    language: &'static str,
    /// Case counts.
    pub case: bool,
    /// Accents count.
    pub accents: bool,
}

impl Unicode {
    /// The language's tag, `und` for none.
    pub fn tag(self) -> &'static str {
        if self.language == LANGUAGES[0] { "und" } else { self.language }
    }

    /// Whether `upper` and `lower` are what they are without a language.
    pub fn has_common_capitals(self) -> bool {
        !OWN_CAPITALS.contains(&self.language)
    }

    /// An order without the marks behind it, `["CI", "AI"]`.
    fn parse<'a>(language: &str, marks: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut known = LANGUAGES.into_iter();
        let language = known.find(|known| known.eq_ignore_ascii_case(language))?;
        let (mut case, mut accents) = (None, None);
        for mark in marks {
            let (which, counts) = match mark {
                "CS" => (&mut case, true),
                "CI" => (&mut case, false),
                "AS" => (&mut accents, true),
                "AI" => (&mut accents, false),
                _ => return None,
            };
            if which.replace(counts).is_some() {
                return None;
            }
        }
        Some(Self { language, case: case.unwrap_or(true), accents: accents.unwrap_or(true) })
    }
}

impl Collation {
    /// The collation of a name, whatever its case; `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.to_uppercase();
        let name = name.strip_prefix(SCHEMA).unwrap_or(&name);
        let mut parts: Vec<&str> = name.split('_').collect();
        // It may stand anywhere among the marks, once.
        let trimmed = parts.iter().skip(1).position(|part| *part == "RTRIM");
        if let Some(at) = trimmed {
            parts.remove(at + 1);
        }
        let letters = match parts.as_slice() {
            ["UTF8", "BINARY"] => Letters::Bytes,
            ["UTF8", "LCASE"] => Letters::LowerCase,
            [language, marks @ ..] => {
                Letters::Unicode(Unicode::parse(language, marks.iter().copied())?)
            }
            [] => return None,
        };
        Some(Self { letters, trims: trimmed.is_some() })
    }

    /// Whether STRINGs are compared byte by byte, as they are without a collation.
    pub fn is_binary(self) -> bool {
        self == Self::default()
    }

    /// Whether what is equal is found out character by character, so that parts of a text can be
    /// looked for.
    pub fn is_by_characters(self) -> bool {
        !matches!(self.letters, Letters::Unicode(_))
    }

    /// The name in full, as `collation(x)` gives it.
    pub fn full_name(self) -> String {
        format!("{SCHEMA}{self}")
    }
}

impl fmt::Display for Collation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.letters {
            Letters::Bytes => f.write_str("UTF8_BINARY")?,
            Letters::LowerCase => f.write_str("UTF8_LCASE")?,
            Letters::Unicode(Unicode { language, case, accents }) => {
                f.write_str(language)?;
                f.write_str(if case { "" } else { "_CI" })?;
                f.write_str(if accents { "" } else { "_AI" })?;
            }
        }
        f.write_str(if self.trims { "_RTRIM" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_whatever_their_case_and_written_as_spark_does() {
        let written = |name: &str| Collation::parse(name).map(|found| found.to_string());
        assert_eq!(written("utf8_binary").as_deref(), Some("UTF8_BINARY"));
        assert_eq!(written("Utf8_Lcase_rTrim").as_deref(), Some("UTF8_LCASE_RTRIM"));
        assert_eq!(written("system.builtin.utf8_lcase").as_deref(), Some("UTF8_LCASE"));
        assert_eq!(written("unicode_cs_as").as_deref(), Some("UNICODE"));
        assert_eq!(written("SR_RTRIM_AI_CI").as_deref(), Some("sr_CI_AI_RTRIM"));
        for wrong in ["UTF8_LCASE_LTRIM", "utf8", "UTF8_BINARY_CI", "de_CI_CS", "xx", "", "_CI"] {
            assert_eq!(written(wrong), None, "{wrong}");
        }
        let found = Collation::parse("UTF8_BINARY_RTRIM").expect("there is one of this name");
        assert!(!found.is_binary());
        assert_eq!(found.full_name(), "SYSTEM.BUILTIN.UTF8_BINARY_RTRIM");
    }
}
