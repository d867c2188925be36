//! Writes the line of some values, as `to_csv` does.
//!
//! The rules are those of univocity, which Spark writes with. They are not those of the sink for
//! files here: spaces at the ends of a value are lost, and a value that looks like null is not
//! quoted.

use super::Dialect;

/// What begins a comment for readers of Spark's lines, so that a line that begins so is quoted.
const COMMENT: char = '#';

/// What can be chosen beside the dialect.
#[derive(Clone, Debug)]
pub(crate) struct WriteRules {
    pub dialect: Dialect,
    /// What is written for a text of no characters.
    pub empty_value: String,
    /// Leave out spaces before values.
    pub trims_start: bool,
    /// Leave out spaces after values.
    pub trims_end: bool,
}

impl Default for WriteRules {
    fn default() -> Self {
        Self {
            dialect: Dialect::default(),
            empty_value: "\"\"".to_owned(),
            trims_start: true,
            trims_end: true,
        }
    }
}

/// Writes values, each behind the one before.
pub(crate) struct Writer {
    rules: WriteRules,
    separator: char,
    quote: char,
    escape: char,
}

impl Writer {
    /// A writer by these rules; `None` where the dialect has no quote or no escape character.
    pub fn new(rules: WriteRules) -> Option<Self> {
        let quote = char::from(rules.dialect.quote?);
        let escape = char::from(rules.dialect.escape?);
        Some(Self { separator: char::from(rules.dialect.separator), quote, escape, rules })
    }

    /// Appends the value at place `at` of a line, with the separator before it.
    pub fn write(&self, at: usize, value: Option<&str>, line: &mut String) {
        if at > 0 {
            line.push(self.separator);
        }
        match value {
            Some("") => self.write_constant(at, &self.rules.empty_value, line),
            Some(value) => self.write_value(at, value, line),
            None => self.write_constant(at, &self.rules.dialect.null_value, line),
        }
    }

    /// Appends what stands for null or for an empty text: if it has quotes already, as it is.
    fn write_constant(&self, at: usize, value: &str, line: &mut String) {
        let is_quoted =
            value.len() >= 2 && value.starts_with(self.quote) && value.ends_with(self.quote);
        match is_quoted {
            true => line.push_str(value),
            false => self.write_text(at, value, line),
        }
    }

    /// Appends a value; of one that is nothing but spaces, what stands for an empty text is left.
    fn write_value(&self, at: usize, value: &str, line: &mut String) {
        match self.trimmed(value).is_empty() && !self.needs_quotes(at, value) {
            true => line.push_str(&self.rules.empty_value),
            false => self.write_text(at, value, line),
        }
    }

    fn write_text(&self, at: usize, value: &str, line: &mut String) {
        let text = self.trimmed(value);
        if !self.needs_quotes(at, value) {
            return line.push_str(text);
        }
        line.push(self.quote);
        for char in text.chars() {
            if char == self.quote || char == self.escape {
                line.push(self.escape);
            }
            line.push(char);
        }
        line.push(self.quote);
    }

    fn needs_quotes(&self, at: usize, value: &str) -> bool {
        let special = [self.separator, self.quote, '\n', '\r'];
        let text = if self.rules.trims_start { trimmed_start(value) } else { value };
        (at == 0 && value.starts_with(COMMENT)) || text.contains(special.as_slice())
    }

    fn trimmed<'a>(&self, value: &'a str) -> &'a str {
        let value = if self.rules.trims_start { trimmed_start(value) } else { value };
        if self.rules.trims_end { value.trim_end_matches(is_space) } else { value }
    }
}

fn trimmed_start(value: &str) -> &str {
    value.trim_start_matches(is_space)
}

/// As univocity has it: the space and all control characters before it.
fn is_space(char: char) -> bool {
    char <= ' '
}

#[cfg(test)]
mod tests {
    use super::super::Splitter;
    use super::*;

    fn line(rules: &WriteRules, values: &[Option<&str>]) -> String {
        let writer = Writer::new(rules.clone()).expect("there are quotes");
        let mut line = String::new();
        for (at, value) in values.iter().enumerate() {
            writer.write(at, *value, &mut line);
        }
        line
    }

    #[test]
    fn lines_are_written_as_spark_writes_them() {
        let cases: &[(&[Option<&str>], &str)] = &[
            (&[Some("1"), Some("2")], "1,2"),
            (&[Some("a,b"), None, Some("")], "\"a,b\",,\"\""),
            (&[Some("say \"hi\""), Some("C:\\new")], "\"say \\\"hi\\\"\",C:\\new"),
            (&[Some("a,\\")], "\"a,\\\\\""),
            (&[Some("  a, b  , c  ")], "\"a, b  , c\""),
            (&[Some("  a  "), Some("   ")], "a,\"\""),
            (&[Some("a\nb")], "\"a\nb\""),
            (&[Some("#a"), Some("#b")], "\"#a\",#b"),
        ];
        for (values, written) in cases {
            assert_eq!(line(&WriteRules::default(), values), *written, "{values:?}");
        }
    }

    #[test]
    fn the_rules_can_be_chosen() {
        let dialect = Dialect { null_value: "-".into(), ..Dialect::default() };
        let nulls = WriteRules { dialect, empty_value: "EMPTY".into(), ..WriteRules::default() };
        assert_eq!(line(&nulls, &[None, Some(""), Some("-")]), "-,EMPTY,-");
        let spaces = WriteRules { trims_start: false, ..WriteRules::default() };
        assert_eq!(line(&spaces, &[Some("  a, b  ")]), "\"  a, b\"");
        let escape = Dialect { escape: Some(b'#'), ..Dialect::default() };
        let escaped = WriteRules { dialect: escape, ..WriteRules::default() };
        assert_eq!(line(&escaped, &[Some("\"")]), "\"#\"\"");
        let none = Dialect { quote: None, ..Dialect::default() };
        assert!(Writer::new(WriteRules { dialect: none, ..WriteRules::default() }).is_none());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let rules = WriteRules::default();
        for value in ["a", "a,b", "\"", "\\", "\\\"", "a\nb", "#", "a \" b"] {
            let line = line(&rules, &[Some(value), Some("x")]);
            let mut splitter = Splitter::new(&rules.dialect);
            assert_eq!(splitter.split(line.as_bytes()), 2, "{line}");
            assert_eq!(splitter.value(0), value.as_bytes(), "{line}");
        }
    }
}
