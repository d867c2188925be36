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
    trims_start: bool,
    trims_end: bool,
    values: Vec<u8>,
    /// Where each value ends in `values`, and whether it was quoted.
    ends: Vec<(usize, bool)>,
}

impl Splitter {
    /// A splitter for lines in `dialect`.
    pub fn new(dialect: &Dialect) -> Self {
        Self {
            dialect: dialect.clone(),
            trims_start: false,
            trims_end: false,
            values: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// The same, which leaves out white space before values, and behind those without quotes.
    pub fn trimming(self, start: bool, end: bool) -> Self {
        Self { trims_start: start, trims_end: end, ..self }
    }

    /// Splits `line` and gives the number of values.
    pub fn split(&mut self, line: &[u8]) -> usize {
        self.values.clear();
        self.ends.clear();
        let mut rest = line;
        loop {
            if self.trims_start {
                rest = self.without_space(rest);
            }
            let is_quoted =
                self.dialect.quote.is_some() && rest.first().copied() == self.dialect.quote;
            let (length, is_quoted) = match self.dialect.quote.filter(|_| is_quoted) {
                Some(quote) => self.quoted(rest, quote),
                None => (self.unquoted(rest), false),
            };
            if self.trims_end && !is_quoted {
                self.trim_end();
            }
            self.ends.push((self.values.len(), is_quoted));
            // A line that ends with a separator has one more value, an empty one: then the rest is
            // empty, not absent.
            match rest.get(length + 1..) {
                Some(after) => rest = after,
                None => return self.ends.len(),
            }
        }
    }

    /// The text without what univocity takes for white space, the space and all before it.
    fn without_space<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        let is_space = |byte: &&u8| **byte <= b' ' && **byte != self.dialect.separator;
        &text[text.iter().take_while(is_space).count()..]
    }

    /// Takes such white space from the end of the last value.
    fn trim_end(&mut self) {
        let start = self.ends.last().map_or(0, |(end, _)| *end);
        let kept = self.values[start..].iter().rposition(|byte| *byte > b' ');
        self.values.truncate(start + kept.map_or(0, |last| last + 1));
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
    fn white_space_is_left_out_where_that_is_wanted() {
        let mut splitter = Splitter::new(&Dialect::default()).trimming(true, true);
        assert_eq!(splitter.split(b" 1 , x y ,  , \" q \" "), 4);
        let values =
            [0, 1, 2, 3].map(|at| String::from_utf8_lossy(splitter.value(at)).into_owned());
        assert_eq!(values, ["1", "x y", "", " q "]);
        assert_eq!(splitter.value_or_null(2), None);
        let mut splitter = Splitter::new(&Dialect::default()).trimming(false, true);
        assert_eq!(splitter.split(b" 1 "), 1);
        assert_eq!(splitter.value(0), b" 1");
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
