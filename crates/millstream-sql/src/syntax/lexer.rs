//! Tokenizes a text in Spark's dialect.
//!
//! The whole file is tokenized once by sqlparser, so every token, and every node that sqlparser
//! makes of tokens, carries its place in the file. String literals are read as Spark reads them:
//! `\n`, `\t`, `\\`, `\u0041` and the like are escapes, any other escaped character stands for
//! itself, and `r'...'` has no escapes.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use datafusion::sql::sqlparser::dialect::{Dialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{
    self, Location, Token, TokenWithSpan, Tokenizer, Whitespace,
};

use super::guard::Guard;
use crate::diagnostic::{Diagnostic, Span};
use crate::lines::LineIndex;

/// Spark SQL as sqlparser needs to know it.
#[derive(Debug, Default)]
pub(crate) struct SparkDialect {
    pub(crate) guard: Guard,
}

impl Dialect for SparkDialect {
    // `explode(m) AS (key, value)`
    fn supports_select_item_multi_column_alias(&self) -> bool {
        true
    }
    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '`'
    }
    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_'
    }
    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_'
    }
    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }
    fn supports_numeric_prefix(&self) -> bool {
        true
    }
    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }
    fn supports_group_by_expr(&self) -> bool {
        true
    }
    fn supports_group_by_with_modifier(&self) -> bool {
        true
    }
    fn supports_lambda_functions(&self) -> bool {
        true
    }
    fn supports_select_wildcard_except(&self) -> bool {
        true
    }
    // What `|> SET` stands for; a query's own is refused where pipes are read.
    fn supports_select_wildcard_replace(&self) -> bool {
        true
    }
    // `extract(yr FROM ts)`: `date_part` knows the names.
    fn allow_extract_custom(&self) -> bool {
        true
    }
    // `CAST(x AS INTERVAL DAY TO SECOND)`.
    fn supports_interval_options(&self) -> bool {
        true
    }
    fn supports_pipe_operator(&self) -> bool {
        true
    }
    fn supports_cross_join_constraint(&self) -> bool {
        true
    }
    fn supports_struct_literal(&self) -> bool {
        true
    }
    fn supports_nested_comments(&self) -> bool {
        true
    }
    fn supports_values_as_table_factor(&self) -> bool {
        true
    }
    fn supports_bang_not_operator(&self) -> bool {
        true
    }
    fn supports_cte_without_as(&self) -> bool {
        true
    }
    fn supports_long_type_as_bigint(&self) -> bool {
        true
    }
    fn supports_map_literal_with_angle_brackets(&self) -> bool {
        true
    }
    fn supports_window_function_null_treatment_arg(&self) -> bool {
        true
    }
    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }
    /// Shifts bind closer than `&`, `^` and `|`, and less than sums; `||` binds as sums do, and
    /// `v:a` as close as `v::INT`.
    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        match parser.peek_token_ref().token {
            Token::ShiftLeft | Token::ShiftRight => {
                Some(Ok(self.prec_value(Precedence::PlusMinus) - 1))
            }
            Token::StringConcat => Some(Ok(self.prec_value(Precedence::PlusMinus))),
            Token::Colon => match parser.peek_nth_token_ref(1).token {
                Token::Word(_) | Token::LBracket => {
                    Some(Ok(self.prec_value(Precedence::DoubleColon)))
                }
                _ => None,
            },
            _ => None,
        }
    }
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        self.guard.parse_prefix(parser)
    }
    /// `a DIV b`, the division of whole numbers, and `a >>> b`, which is two tokens.
    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        left: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if is_unsigned_shift(parser) {
            parser.advance_token();
            parser.advance_token();
            return Some(parser.parse_subexpr(precedence).map(|right| Expr::BinaryOp {
                left: Box::new(left.clone()),
                op: BinaryOperator::Custom(UNSIGNED_SHIFT.to_owned()),
                right: Box::new(right),
            }));
        }
        parser.parse_keyword(Keyword::DIV).then(|| {
            Ok(Expr::BinaryOp {
                left: Box::new(left.clone()),
                op: BinaryOperator::MyIntegerDivide,
                right: Box::new(parser.parse_subexpr(precedence)?),
            })
        })
    }
}

/// Shifts a number's bits to the right and fills them up with zeros.
pub(crate) const UNSIGNED_SHIFT: &str = ">>>";

/// True before `>>` and `>` with nothing in between.
fn is_unsigned_shift(parser: &Parser<'_>) -> bool {
    let (first, second) = (parser.peek_token_ref(), parser.peek_nth_token_ref(1));
    first.token == Token::ShiftRight
        && second.token == Token::Gt
        && first.span.end == second.span.start
}

/// A token that means something, with its place in both units.
#[derive(Clone, Debug)]
pub struct Lexeme {
    /// The token.
    pub token: Token,
    /// Its bytes.
    pub span: Span,
    /// Its lines and columns, as sqlparser counts them.
    pub at: tokenizer::Span,
}

impl Lexeme {
    /// True for the bare word `word`, whatever its case.
    pub fn is_word(&self, word: &str) -> bool {
        self.word().is_some_and(|own| own.eq_ignore_ascii_case(word))
    }

    /// A word that is not in backticks.
    pub fn word(&self) -> Option<&str> {
        match &self.token {
            Token::Word(word) if word.quote_style.is_none() => Some(&word.value),
            _ => None,
        }
    }

    /// The token for sqlparser's parser.
    pub fn for_parser(&self) -> TokenWithSpan {
        TokenWithSpan { token: self.token.clone(), span: self.at }
    }
}

/// A pipeline file as tokens; whitespace and comments are gone.
pub struct Lexed {
    /// The text itself.
    pub text: Arc<str>,
    /// Its tokens in order.
    pub lexemes: Vec<Lexeme>,
    lines: Arc<LineIndex>,
    /// The first comment that Spark would read on in the next line: it ends with a backslash.
    pub(crate) continued: Option<Span>,
}

impl Lexed {
    /// Tokenizes `text`. Fails on a string or comment that does not end.
    pub fn new(text: &str) -> Result<Self, Diagnostic> {
        let lines = LineIndex::new(text);
        let dialect = SparkDialect::default();
        let mut tokenizer = Tokenizer::new(&dialect, text).with_unescape(false);
        let tokens = tokenizer.tokenize_with_location().map_err(|error| {
            let start = lines.byte(text, error.location);
            let end = text[start..].find('\n').map_or(text.len(), |length| start + length);
            unreadable(Span::new(start, end), &error.message)
        })?;
        let mut lexemes: Vec<Lexeme> = Vec::with_capacity(tokens.len());
        let mut continued = None;
        for TokenWithSpan { token, span: at } in tokens {
            let span = || Span::new(lines.byte(text, at.start), lines.byte(text, at.end));
            if let Token::Whitespace(Whitespace::SingleLineComment { comment, .. }) = &token
                && continued.is_none()
                && comment.ends_with("\\\n")
            {
                continued = Some(span()).filter(|span| has_words(&text[span.end..]));
            }
            if matches!(token, Token::Whitespace(_) | Token::EOF) {
                continue;
            }
            let span = span();
            push(&mut lexemes, Lexeme { token, span, at });
        }
        Ok(Self { text: text.into(), lexemes, lines: Arc::new(lines), continued })
    }

    /// Other tokens over the same text.
    pub(crate) fn with(&self, lexemes: Vec<Lexeme>) -> Self {
        let (text, lines) = (Arc::clone(&self.text), Arc::clone(&self.lines));
        Self { text, lexemes, lines, continued: self.continued }
    }

    /// The bytes of a range of sqlparser's; `None` for its empty span.
    pub fn span(&self, at: tokenizer::Span) -> Option<Span> {
        if at.start.line == 0 {
            return None;
        }
        let (start, end) = (self.byte(at.start), self.byte(at.end));
        Some(Span::new(start, end))
    }

    /// The byte at a line and column of sqlparser's.
    pub fn byte(&self, at: Location) -> usize {
        self.lines.byte(&self.text, at)
    }

    /// The token that starts at byte `start`.
    pub fn lexeme_at(&self, start: usize) -> Option<&Lexeme> {
        let found = self.lexemes.binary_search_by_key(&start, |lexeme| lexeme.span.start);
        found.ok().map(|index| &self.lexemes[index])
    }
}

/// Whether the first line of `rest` has more in it than a comment.
fn has_words(rest: &str) -> bool {
    let line = rest.lines().next().unwrap_or("").trim_start();
    !line.is_empty() && !line.starts_with("--")
}

fn unreadable(span: Span, message: &str) -> Diagnostic {
    let message = message.to_lowercase();
    if message.contains("comment") {
        Diagnostic::at(span, "this comment does not end").help("end it with `*/`")
    } else if message.contains("string") {
        Diagnostic::at(span, "this string does not end")
            .help("end it with a quote; a quote inside is written twice or as \\'")
    } else if message.contains('`') || message.contains("delimit") {
        Diagnostic::at(span, "this quoted name does not end").help("end it with a backtick")
    } else {
        Diagnostic::at(span, format!("this cannot be read: {message}"))
    }
}

/// Adds a token, with escapes in strings resolved and `r'...'` made one token.
fn push(lexemes: &mut Vec<Lexeme>, mut lexeme: Lexeme) {
    let raw =
        lexemes.last().is_some_and(|last| last.is_word("r") && last.span.end == lexeme.span.start);
    match &mut lexeme.token {
        Token::SingleQuotedString(content) | Token::DoubleQuotedString(content) if raw => {
            let prefix = lexemes.pop().expect("raw is true only after a last lexeme");
            lexeme.token = Token::SingleQuotedString(std::mem::take(content));
            lexeme.span = prefix.span.to(lexeme.span);
            lexeme.at.start = prefix.at.start;
        }
        Token::SingleQuotedString(content) => *content = unescape(content, '\''),
        // In Spark's SQL double quotes make a string too.
        Token::DoubleQuotedString(content) => {
            lexeme.token = Token::SingleQuotedString(unescape(content, '"'));
        }
        Token::Word(word) if word.quote_style == Some('`') => {
            word.value = word.value.replace("``", "`");
            word.keyword = Keyword::NoKeyword;
        }
        _ => {}
    }
    lexemes.push(lexeme);
}

/// Resolves escapes as Spark's parser does; `\%` and `\_` stay, for `LIKE`.
fn unescape(content: &str, quote: char) -> String {
    let mut out = String::with_capacity(content.len());
    let mut rest = content;
    while let Some(ch) = rest.chars().next() {
        rest = &rest[ch.len_utf8()..];
        if ch == quote {
            // The tokenizer ends a string at a single quote, so this one is doubled.
            rest = rest.strip_prefix(quote).unwrap_or(rest);
            out.push(quote);
        } else if ch == '\\' {
            rest = escape(rest, &mut out);
        } else {
            out.push(ch);
        }
    }
    out
}

/// Resolves one escape, `rest` being what follows the backslash; returns the text after it.
fn escape<'a>(rest: &'a str, out: &mut String) -> &'a str {
    let Some(ch) = rest.chars().next() else {
        out.push('\\');
        return rest;
    };
    if let Some((found, length)) = surrogates(rest) {
        out.push(found);
        return &rest[length..];
    }
    let code = |digits: usize, radix: u32, from: usize| {
        let text = rest.get(from..from + digits)?;
        let all = text.chars().all(|digit| digit.is_digit(radix));
        all.then(|| u32::from_str_radix(text, radix).ok().and_then(char::from_u32)).flatten()
    };
    let numbered = match ch {
        'u' => code(4, 16, 1).map(|found| (found, 5)),
        'U' => code(8, 16, 1).map(|found| (found, 9)),
        // Three octal digits up to `\177`, as in Spark; `\2` and higher are ordinary characters.
        '0' | '1' => code(3, 8, 0).map(|found| (found, 3)),
        _ => None,
    };
    if let Some((found, length)) = numbered {
        out.push(found);
        return &rest[length..];
    }
    match ch {
        '0' => out.push('\0'),
        'b' => out.push('\u{8}'),
        'n' => out.push('\n'),
        'r' => out.push('\r'),
        't' => out.push('\t'),
        'Z' => out.push('\u{1a}'),
        '%' | '_' => out.extend(['\\', ch]),
        other => out.push(other),
    }
    &rest[ch.len_utf8()..]
}

/// The character whose halves in UTF-16 are `uXXXX\uXXXX`, and how long that is. A half alone is
/// `?`, which is what becomes of it in Java.
fn surrogates(rest: &str) -> Option<(char, usize)> {
    let high = unit(rest).filter(|unit| (0xD800..0xE000).contains(unit))?;
    let low = rest.get(5..).and_then(|rest| unit(rest.strip_prefix('\\')?));
    let both = low.and_then(|low| char::decode_utf16([high, low]).next()?.ok());
    Some(both.map_or(('?', 5), |found| (found, 11)))
}

/// The unit of UTF-16 that `uXXXX` is.
fn unit(rest: &str) -> Option<u16> {
    let digits = rest.strip_prefix('u')?.get(..4)?;
    let all = digits.chars().all(|digit| digit.is_ascii_hexdigit());
    all.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_as_spark_reads_them() {
        let cases = [
            (r"'a''b'", "a'b"),
            (r"'it\'s'", "it's"),
            (r"'\d\\d\n'", "d\\d\n"),
            (r"'\u0041\101\0'", "AA\0"),
            (r"'50\%\_'", r"50\%\_"),
            (r"'\uD83D\uDE00x'", "\u{1F600}x"),
            (r"'\uD83Dx\uDE00\uD83D\u0041'", "?x??A"),
            (r#""say ""so"" 'x'""#, r#"say "so" 'x'"#),
            (r"r'\d+'", r"\d+"),
        ];
        for (text, wanted) in cases {
            let lexed = Lexed::new(text).unwrap();
            assert_eq!(lexed.lexemes.len(), 1, "{text}");
            let token = &lexed.lexemes[0].token;
            assert_eq!(token, &Token::SingleQuotedString(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn places_count_characters_but_spans_count_bytes() {
        let text = "-- größe\nSELECT 'ü', x";
        let lexed = Lexed::new(text).unwrap();
        let last = lexed.lexemes.last().unwrap();
        assert_eq!(&text[last.span.range()], "x");
        assert_eq!(LineIndex::new(text).line_and_column(text, last.span.start), (2, 13));
    }
}
