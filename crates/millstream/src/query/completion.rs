//! What the shell offers at Tab: words of SQL, functions, declared tables, and files behind a
//! backtick.

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

/// Words that begin or join parts of queries.
const WORDS: [&str; 46] = [
    "ALL",
    "AND",
    "ANALYZE",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "CREATE",
    "CROSS",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "ELSE",
    "END",
    "EXISTS",
    "EXPLAIN",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "INNER",
    "INTERVAL",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "OPTIONS",
    "ORDER",
    "OVER",
    "PARTITION",
    "SELECT",
    "SHOW",
    "TABLE",
    "TABLES",
    "THEN",
    "UNION",
    "USING",
    "VERSION",
    "WHERE",
    "WITH",
];

/// Completes the word before the cursor.
pub(super) struct Completion {
    /// Functions, in lower case.
    pub functions: Vec<String>,
    /// Declared tables.
    pub tables: Vec<String>,
    files: FilenameCompleter,
}

impl Completion {
    pub fn new(functions: Vec<String>) -> Self {
        Self { functions, tables: Vec::new(), files: FilenameCompleter::new() }
    }

    /// Where the word before the cursor begins, and what it may become.
    fn words(&self, line: &str, cursor: usize) -> (usize, Vec<String>) {
        let before = &line[..cursor];
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let start = before
            .rfind(|letter| !is_part(letter))
            .map_or(0, |at| at + before[at..].chars().next().map_or(0, char::len_utf8));
        let typed = &before[start..];
        if typed.is_empty() {
            return (start, Vec::new());
        }
        let begins = |word: &str| {
            word.get(..typed.len()).is_some_and(|head| head.eq_ignore_ascii_case(typed))
        };
        let is_lower = typed.chars().all(|letter| !letter.is_uppercase());
        let cased = |word: &&str| if is_lower { word.to_lowercase() } else { (*word).to_owned() };
        let mut found: Vec<String> =
            self.tables.iter().filter(|table| begins(table)).cloned().collect();
        found.extend(WORDS.iter().filter(|word| begins(word)).map(cased));
        // LEFT, for example, is both.
        let is_new = |name: &&String| !found.iter().any(|word| word.eq_ignore_ascii_case(name));
        let functions = self.functions.iter().filter(|name| begins(name)).filter(is_new);
        let functions: Vec<String> = functions.cloned().collect();
        found.extend(functions);
        (start, found)
    }
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        // An odd backtick opens a path, as in delta.`/lake/orders`.
        let (before, ticks) = (&line[..cursor], line[..cursor].matches('`').count());
        if ticks % 2 == 1 {
            let opened = before.rfind('`').map_or(0, |at| at + 1);
            let (start, found) =
                self.files.complete(&before[opened..], cursor - opened, context)?;
            return Ok((opened + start, found));
        }
        let (start, words) = self.words(line, cursor);
        let pair = |word: String| Pair { display: word.clone(), replacement: word };
        Ok((start, words.into_iter().map(pair).collect()))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}

impl Validator for Completion {}

impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_as_typed_and_keep_its_case() {
        let mut completion = Completion::new(vec!["max_by".to_owned(), "md5".to_owned()]);
        completion.tables = vec!["Orders".to_owned()];
        let found = |line: &str| completion.words(line, line.len());
        assert_eq!(found("sel"), (0, vec!["select".to_owned()]));
        assert_eq!(found("SELECT * FR"), (9, vec!["FROM".to_owned()]));
        let expected = vec!["Orders".to_owned(), "order".to_owned()];
        assert_eq!(found("select ä, x from or"), (18, expected));
        assert_eq!(found("select ma"), (7, vec!["max_by".to_owned()]));
        assert_eq!(found("select "), (7, Vec::new()));
        assert_eq!(completion.words("sel * from t", 3), (0, vec!["select".to_owned()]));
    }
}
