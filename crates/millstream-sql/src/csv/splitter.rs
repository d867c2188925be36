//! Splits a line into its values.

use super::Dialect;

/// Splits one line after the other into values.
///
/// Inside quotes the escape character before a quote or before itself gives that character;
/// anywhere else it is an ordinary one. Two quotes give one only where the quote is its own escape
/// character. Where it is not, text that follows a quote makes the value one that is not quoted: it
/// has all of the text up to the next separator, quotes included. This is what Spark's parser
/// (univocity, `STOP_AT_DELIMITER`) does by default.
pub struct Splitter {
    dialect: Dialect,
    values: Vec<u8>,
    /// Where each value ends in `values`, and whether it was quoted.
    ends: Vec<(usize, bool)>,
}

impl Splitter {
    /// A splitter for lines in `dialect`.
    pub fn new(dialect: &Dialect) -> Self {
        Self { dialect: dialect.clone(), values: Vec::new(), ends: Vec::new() }
    }

    /// Splits `line` and gives the number of values.
    pub fn split(&mut self, line: &[u8]) -> usize {
        self.values.clear();
        self.ends.clear();
        let mut rest = line;
        loop {
            let is_quoted =
                self.dialect.quote.is_some() && rest.first().copied() == self.dialect.quote;
            let (length, is_quoted) = match self.dialect.quote.filter(|_| is_quoted) {
                Some(quote) => self.quoted(rest, quote),
                None => (self.unquoted(rest), false),
            };
            self.ends.push((self.values.len(), is_quoted));
            // A line that ends with a separator has one more value, an empty one: then the rest is
            // empty, not absent.
            match rest.get(length + 1..) {
                Some(after) => rest = after,
                None => return self.ends.len(),
            }
        }
    }

    /// Takes the value that ends before the next separator; gives its length.
    fn unquoted(&mut self, text: &[u8]) -> usize {
        let separator = self.dialect.separator;
        let length = text.iter().position(|byte| *byte == separator).unwrap_or(text.len());
        self.values.extend_from_slice(&text[..length]);
        length
    }

    /// Takes the value that `text` starts with, a quote first. Gives the length with quotes and the
    /// spaces behind them, and whether the value was quoted to its end.
    fn quoted(&mut self, text: &[u8], quote: u8) -> (usize, bool) {
        let start = self.values.len();
        let mut at = 1;
        loop {
            // Without a closing quote the value ends with the line, as in univocity.
            let Some(&byte) = text.get(at) else { return (text.len(), true) };
            let next = text.get(at + 1).copied();
            let is_escape = Some(byte) == self.dialect.escape;
            if is_escape && (next == Some(quote) || next == Some(byte)) {
                self.values.extend(next);
                at += 2;
            } else if byte == quote {
                break;
            } else {
                let escape = self.dialect.escape;
                let rest = &text[at + 1..];
                let plain = rest.iter().position(|byte| *byte == quote || Some(*byte) == escape);
                let end = at + 1 + plain.unwrap_or(rest.len());
                self.values.extend_from_slice(&text[at..end]);
                at = end;
            }
        }
        let after = at + text[at..].iter().take_while(|byte| **byte == quote).count();
        let end = after + text[after..].iter().take_while(|byte| **byte == b' ').count();
        if text.get(end).is_none_or(|byte| *byte == self.dialect.separator) {
            self.values.extend(std::iter::repeat_n(quote, after - at - 1));
            return (end, true);
        }
        self.values.insert(start, quote);
        self.values.extend_from_slice(&text[at..after]);
        (after + self.unquoted(&text[after..]), false)
    }

    /// Whether a line break stands outside quotes in the last line: then it is several.
    pub fn has_line_break(&self) -> bool {
        (0..self.ends.len()).any(|index| !self.ends[index].1 && self.value(index).contains(&b'\n'))
    }

    /// The value at `index` of the last line.
    pub fn value(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |previous| self.ends[previous].0);
        &self.values[start..self.ends[index].0]
    }

    /// The value, or `None` where it stands for null.
    pub fn value_or_null(&self, index: usize) -> Option<&[u8]> {
        let (_, is_quoted) = *self.ends.get(index)?;
        let value = self.value(index);
        let is_null = value.is_empty() && !is_quoted || value == self.dialect.null_value.as_bytes();
        (!is_null).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_spark_splits_them() {
        let cases: &[(&str, &[&str])] = &[
            ("a,b,c", &["a", "b", "c"]),
            ("", &[""]),
            (",", &["", ""]),
            (r#""a,b",c"#, &["a,b", "c"]),
            (r#""say ""hi""",c"#, &[r#""say ""hi""""#, "c"]),
            (r#""say ""hi"", she said",c"#, &[r#""say ""hi"""#, r#" she said""#, "c"]),
            (r#""hi""",c"#, &[r#"hi"""#, "c"]),
            (r#""hi"""",c"#, &[r#"hi""""#, "c"]),
            (r#""a\"b""c",d"#, &[r#""a"b""c""#, "d"]),
            (r#""say \"hi\"",c"#, &[r#"say "hi""#, "c"]),
            (r#""C:\new\\",C:\new"#, &[r"C:\new\", r"C:\new"]),
            (r#""a" ,b"#, &["a", "b"]),
            (r#""a"x,b"#, &[r#""a"x"#, "b"]),
            (r#"5" pipe,b"#, &[r#"5" pipe"#, "b"]),
            (r#"a,"never closed, so to the end"#, &["a", "never closed, so to the end"]),
            ("größe,水", &["größe", "水"]),
        ];
        for (line, values) in cases {
            let mut splitter = Splitter::new(&Dialect::default());
            let count = splitter.split(line.as_bytes());
            let found: Vec<_> = (0..count).map(|index| splitter.value(index)).collect();
            let values: Vec<_> = values.iter().map(|value| value.as_bytes()).collect();
            assert_eq!(found, values, "{line}");
        }
    }

    #[test]
    fn a_quote_that_is_its_own_escape_character_is_doubled() {
        let dialect = Dialect { escape: Some(b'"'), ..Dialect::default() };
        let mut splitter = Splitter::new(&dialect);
        assert_eq!(splitter.split(br#""say ""hi""","",""",""","a"x"#), 4);
        let values: Vec<_> = (0..4).map(|index| splitter.value(index)).collect();
        let expected: [&[u8]; 4] = [br#"say "hi""#, b"", br#"",""#, br#""a"x"#];
        assert_eq!(values, expected);
    }

    #[test]
    fn nulls_are_unquoted_or_equal_to_the_null_value() {
        let dialect = Dialect { null_value: "NA".into(), ..Dialect::default() };
        let mut splitter = Splitter::new(&dialect);
        splitter.split(br#"NA,"NA",,"",x"#);
        let values: Vec<_> = (0..6).map(|index| splitter.value_or_null(index)).collect();
        assert_eq!(values, [None, None, None, Some(&b""[..]), Some(b"x"), None]);
    }
}
