//! Names in backticks that are patterns for names of columns: ``SELECT `(a|b)?+.+` FROM t`` has all
//! columns but `a` and `b`, where `spark.sql.parser.quotedRegexColumnNames` is true.
//!
//! A pattern is one of Java's, has to match a whole name, and passes over case.

use std::sync::Arc;

use super::places::parts_of;
use crate::functions::pattern;
use datafusion::sql::sqlparser::ast::{Expr, Ident};

/// A name with none of these is meant itself.
const SPECIAL: [char; 14] = ['\\', '^', '$', '.', '|', '?', '*', '+', '(', ')', '[', ']', '{', '}'];

/// The pattern that an expression is, and the name of a table before it.
pub(super) fn of(expr: &Expr) -> Option<(Option<&Ident>, &str)> {
    let (table, name) = match parts_of(expr)? {
        [name] => (None, name),
        [table, name] => (Some(table), name),
        _ => return None,
    };
    let is_pattern = name.quote_style.is_some() && name.value.contains(SPECIAL);
    is_pattern.then_some((table, name.value.as_str()))
}

/// A pattern for whole names.
pub(super) struct Pattern {
    /// What names may begin with, and what then belongs to nothing else.
    lead: Option<Arc<pattern::Pattern>>,
    rest: Arc<pattern::Pattern>,
}

/// Reads a pattern.
///
/// # Errors
/// It is none, or has a form that the engine does not know.
pub(super) fn compile(text: &str) -> Result<Pattern, String> {
    let compiled = |text: &str| pattern::compile(text).map_err(|error| error.message().to_string());
    let (lead, rest) = match lead(text) {
        Some((lead, rest)) => (Some(lead), rest),
        None => (None, text),
    };
    // Brackets that belong together only with those around them are none.
    compiled(rest)?;
    let lead = match lead {
        Some(lead) => {
            compiled(lead)?;
            Some(compiled(&format!("(?i)^{lead}"))?)
        }
        None => None,
    };
    Ok(Pattern { lead, rest: compiled(&format!("(?i)^(?:{rest})$"))? })
}

/// The group of `(...)?+` at the beginning, which keeps what it has matched, and what follows it.
/// The usual form for all columns but some needs it, and at the beginning it is easily told apart.
fn lead(text: &str) -> Option<(&str, &str)> {
    let group = text.strip_prefix('(')?;
    let end = group.find([')', '(', '[', '\\'])?;
    let rest = group[end..].strip_prefix(")?+")?;
    Some((&text[..end + 2], rest))
}

impl Pattern {
    /// Whether all of `name` matches.
    pub(super) fn is_match(&self, name: &str) -> bool {
        let lead = self.lead.as_ref().and_then(|lead| lead.find(name));
        let used = lead.map_or(0, |found| found.end);
        self.rest.is_match(&name[used..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(pattern: &str) -> Vec<&'static str> {
        let pattern = compile(pattern).expect("it is a pattern");
        ["A", "B", "c", "ab"].into_iter().filter(|name| pattern.is_match(name)).collect()
    }

    #[test]
    fn a_group_at_the_beginning_keeps_what_it_has() {
        assert_eq!(matching("(a)?+.+"), ["B", "c", "ab"]);
        assert_eq!(matching("(a|B)?+.+"), ["c", "ab"]);
        assert_eq!(matching("(a|B)"), ["A", "B"]);
        assert_eq!(matching("(e|f)"), Vec::<&str>::new());
    }

    #[test]
    fn what_the_engine_does_not_know_is_refused() {
        assert!(compile("a(b)?+.+").is_err());
        assert!(compile("a)|(b").is_err());
        assert!(compile("(?!a).*").is_err());
    }
}
