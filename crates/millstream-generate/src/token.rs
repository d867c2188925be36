//! From the text between double braces to pieces: names, strings, numbers and punctuation.
//!
//! The rules are those of the original's lexer, oddities included: a name may start with a minus, a
//! line comment needs its line break, and a comment that ends in `**/` does not end.

use crate::error::Problem;

/// A piece of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    Open,
    Close,
    Comma,
    Name(String),
    /// A string without its quotes, or a number as it is written: values are texts.
    Text(String),
}

impl Symbol {
    /// How a message to people calls it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Open => "`(`".to_owned(),
            Self::Close => "`)`".to_owned(),
            Self::Comma => "`,`".to_owned(),
            Self::Name(name) => format!("`{name}`"),
            Self::Text(text) => format!("the value `{text}`"),
        }
    }
}

/// Reads pieces one by one, so that what follows a complete call is never looked at.
pub(crate) struct Lexer<'a> {
    text: &'a [char],
    at: usize,
    start: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a [char]) -> Self {
        Self { text, at: 0, start: 0 }
    }

    /// Index of the character that the last piece starts at, or what could not be read.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The next piece; none at the end of the token.
    pub(crate) fn next(&mut self) -> Result<Option<Symbol>, Problem> {
        self.start = self.at;
        self.skip()?;
        self.start = self.at;
        let Some(first) = self.peek(0) else { return Ok(None) };
        let punctuation = match first {
            '(' => Some(Symbol::Open),
            ')' => Some(Symbol::Close),
            ',' => Some(Symbol::Comma),
            _ => None,
        };
        if let Some(piece) = punctuation {
            self.at += 1;
            return Ok(Some(piece));
        }
        if first == '"' || first == '\'' {
            return self.quoted(first).map(Some);
        }
        let rest = &self.text[self.at..];
        // The original's lexer takes whatever is longest, and a number where both are as long.
        let (number, name) = (number_length(rest), name_length(rest));
        if number.max(name) == 0 {
            let what = format!("`{first}` is not allowed here");
            return Err(Problem::new(what, "write NAME(ARGUMENT, ...), strings in quotes"));
        }
        let text = rest[..number.max(name)].iter().collect();
        self.at += number.max(name);
        Ok(Some(if number >= name { Symbol::Text(text) } else { Symbol::Name(text) }))
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn skip(&mut self) -> Result<(), Problem> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(' ' | '\t' | '\n' | '\r'), _) => self.at += 1,
                (Some('/'), Some('/')) => self.line_comment()?,
                (Some('/'), Some('*')) => self.block_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn line_comment(&mut self) -> Result<(), Problem> {
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|letter| matches!(letter, '\n' | '\r'));
        let unended = || Problem::new("a `//` comment has no line break", "use /* ... */");
        self.at += end.ok_or_else(unended)? + 1;
        Ok(())
    }

    /// After a `*`, a `/` ends the comment; any other character only counts as inside, be it a `*`.
    fn block_comment(&mut self) -> Result<(), Problem> {
        let mut at = self.at + 2;
        loop {
            let star = self.text[at.min(self.text.len())..].iter().position(|next| *next == '*');
            let after =
                star.and_then(|star| self.text.get(at + star + 1).map(|next| (star, *next)));
            let Some((star, next)) = after else {
                let remedy = "end it with a single star, as in /* ... */";
                return Err(Problem::new("a `/*` comment has no end", remedy));
            };
            at += star + 2;
            if next == '/' {
                self.at = at;
                return Ok(());
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Symbol, Problem> {
        let mut at = self.at + 1;
        loop {
            match self.text.get(at) {
                Some(letter) if *letter == quote => break,
                Some('\n' | '\r') | None => {
                    let what = format!("a string has no closing {quote} on its line");
                    return Err(Problem::new(what, "close it"));
                }
                Some('\\') => at += self.escape_length(at, quote)?,
                Some(_) => at += 1,
            }
        }
        let text = self.text[self.at + 1..at].iter().collect();
        self.at = at + 1;
        Ok(Symbol::Text(text))
    }

    /// Escapes are checked and then kept as they are written, as the original does.
    fn escape_length(&self, at: usize, quote: char) -> Result<usize, Problem> {
        match self.text.get(at + 1) {
            Some('n' | 't' | 'b' | 'r' | 'f' | '\\' | '"' | '0'..='7') => Ok(2),
            Some('\'') if quote == '"' => Ok(2),
            _ => {
                let what = "a string has a backslash before a character that needs none";
                let remedy =
                    r#"only \n \t \b \r \f \\ \" (in "..." also \') and digits may follow"#;
                Err(Problem::new(what, remedy))
            }
        }
    }
}

fn name_length(text: &[char]) -> usize {
    let letter = |letter: &char| matches!(letter, '_' | '-' | 'a'..='z' | 'A'..='Z');
    if !text.first().is_some_and(letter) {
        return 0;
    }
    text.iter().take_while(|next| letter(next) || next.is_ascii_digit()).count()
}

/// The longest number at the start: `0`, `-?[1-9][0-9]*` with an `L` if there is one, or a floating
/// point number as Java writes it.
fn number_length(text: &[char]) -> usize {
    let sign = usize::from(text.first() == Some(&'-'));
    let whole = digits(&text[sign..]);
    integer_length(text, sign, whole).max(float_length(text, sign, whole))
}

fn integer_length(text: &[char], sign: usize, whole: usize) -> usize {
    let length = match text.get(sign) {
        // No digit follows a 0: `05` is two numbers, and `-0` is a name.
        Some('0') if sign == 0 => 1,
        Some('1'..='9') => sign + whole,
        _ => return 0,
    };
    length + usize::from(text.get(length) == Some(&'L'))
}

fn float_length(text: &[char], sign: usize, whole: usize) -> usize {
    let mut at = sign + whole;
    let mut is_float = false;
    if text.get(at) == Some(&'.') {
        let fraction = digits(&text[at + 1..]);
        if whole + fraction == 0 {
            return 0;
        }
        at += 1 + fraction;
        is_float = true;
    } else if whole == 0 {
        return 0;
    }
    let exponent = exponent_length(&text[at..]);
    at += exponent;
    let suffix = matches!(text.get(at), Some('f' | 'F' | 'd' | 'D'));
    is_float |= exponent > 0 || suffix;
    // Without point, exponent or suffix it is a whole number.
    if is_float { at + usize::from(suffix) } else { 0 }
}

fn exponent_length(text: &[char]) -> usize {
    if !matches!(text.first(), Some('e' | 'E')) {
        return 0;
    }
    let sign = usize::from(matches!(text.get(1), Some('+' | '-')));
    match digits(&text[1 + sign..]) {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

fn digits(text: &[char]) -> usize {
    text.iter().take_while(|letter| letter.is_ascii_digit()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Result<Vec<Symbol>, Problem> {
        let text: Vec<char> = text.chars().collect();
        let mut lexer = Lexer::new(&text);
        std::iter::from_fn(|| lexer.next().transpose()).collect()
    }

    fn values(text: &str) -> Vec<String> {
        let text_of = |piece| match piece {
            Symbol::Text(text) => text,
            other => format!("<{}>", other.describe()),
        };
        pieces(text).expect("it can be read").into_iter().map(text_of).collect()
    }

    #[test]
    fn numbers_are_as_long_as_they_can_be() {
        assert_eq!(
            values("5 5L -5 1e5 .5 5. -5f 1e-5d"),
            "5 5L -5 1e5 .5 5. -5f 1e-5d".split(' ').collect::<Vec<_>>()
        );
        assert_eq!(values("05"), ["0", "5"]);
        assert_eq!(values("1e"), ["1", "<`e`>"]);
        assert_eq!(values("-0"), ["<`-0`>"]);
        assert_eq!(values("-5a"), ["<`-5a`>"]);
    }

    #[test]
    fn comments_are_skipped_and_escapes_kept() {
        assert_eq!(values("/* a */ 'x\\n' // b\n \"it\\'s\""), ["x\\n", "it\\'s"]);
        assert!(pieces("'it\\'s'").is_err());
        assert!(pieces("'\\q'").is_err());
        assert!(pieces("/***/").is_err());
        assert!(pieces("// no line break").is_err());
        assert!(pieces("'a\nb'").is_err());
    }
}
