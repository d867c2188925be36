//! Reading tokens one after the other, with errors that point at the one that does not fit.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::lexer::{Lexed, Lexeme};
use crate::diagnostic::{Diagnostic, Span};

/// A name or a value, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The text, without quotes.
    pub text: String,
    /// Where it stands, quotes included.
    pub span: Span,
}

/// A place among the tokens of one statement.
#[derive(Clone)]
pub struct Cursor<'a> {
    /// The text.
    pub lexed: &'a Lexed,
    /// Index of the next token.
    pub at: usize,
    /// Index after the statement's last token.
    pub end: usize,
    /// The first `>` of a `>>` has been taken.
    half_shift: bool,
}

impl<'a> Cursor<'a> {
    /// A place among the tokens from `at` to `end`, which is exclusive.
    pub fn new(lexed: &'a Lexed, at: usize, end: usize) -> Self {
        Self { lexed, at, end, half_shift: false }
    }

    /// The next token.
    pub fn peek(&self) -> Option<&'a Lexeme> {
        self.nth(0)
    }

    /// The token `ahead` places after the next one.
    pub fn nth(&self, ahead: usize) -> Option<&'a Lexeme> {
        self.lexed.lexemes[..self.end].get(self.at + ahead)
    }

    /// Takes the next token.
    pub fn advance(&mut self) -> Option<&'a Lexeme> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    /// True where the next token is this bare word, whatever its case.
    pub fn is_word(&self, word: &str) -> bool {
        self.peek().is_some_and(|lexeme| lexeme.is_word(word))
    }

    /// True where the next tokens are these bare words.
    pub fn are_words(&self, words: &[&str]) -> bool {
        words
            .iter()
            .enumerate()
            .all(|(ahead, word)| self.nth(ahead).is_some_and(|lexeme| lexeme.is_word(word)))
    }

    /// Takes these bare words, or nothing.
    pub fn eat_words(&mut self, words: &[&str]) -> Option<Span> {
        let first = self.peek()?.span;
        if !self.are_words(words) {
            return None;
        }
        self.at += words.len();
        Some(first.to(self.last_span()))
    }

    /// True where this token is next.
    pub fn is_token(&self, token: &Token) -> bool {
        self.peek().is_some_and(|lexeme| lexeme.token == *token)
    }

    /// Takes this token, where it is next.
    pub fn eat(&mut self, token: &Token) -> bool {
        let found = self.is_token(token);
        self.at += usize::from(found);
        found
    }

    /// Takes `token`; `after` says what it has to follow.
    pub fn expect(&mut self, token: &Token, after: &str) -> Result<Span, Diagnostic> {
        if self.eat(token) {
            return Ok(self.last_span());
        }
        Err(self.unexpected(&format!("`{token}` {after}")))
    }

    /// Takes these bare words; the error says that they are expected `after` something.
    pub fn expect_words(&mut self, words: &[&str], after: &str) -> Result<Span, Diagnostic> {
        let found = self.eat_words(words);
        found.ok_or_else(|| self.unexpected(&format!("{} {after}", words.join(" "))))
    }

    /// Takes a closing `>` of a type, also half of a `>>`.
    pub fn expect_closing_angle(&mut self, after: &str) -> Result<(), Diagnostic> {
        if self.is_token(&Token::ShiftRight) {
            self.at += usize::from(self.half_shift);
            self.half_shift = !self.half_shift;
            return Ok(());
        }
        self.expect(&Token::Gt, after).map(|_| ())
    }

    /// Takes a name, bare or in backticks; `what` says whose name it is.
    pub fn name(&mut self, what: &str) -> Result<Name, Diagnostic> {
        match self.peek() {
            Some(Lexeme { token: Token::Word(word), span, .. }) => {
                self.at += 1;
                Ok(Name { text: word.value.clone(), span: *span })
            }
            Some(Lexeme { token: Token::SingleQuotedString(text), span, .. }) => {
                Err(Diagnostic::at(*span, format!("expected {what}, found a string"))
                    .help(format!("names stand bare or in backticks: `{text}`")))
            }
            _ => Err(self.unexpected(what)),
        }
    }

    /// Takes a string literal.
    pub fn string(&mut self, what: &str) -> Result<Name, Diagnostic> {
        match self.peek() {
            Some(Lexeme { token: Token::SingleQuotedString(text), span, .. }) => {
                self.at += 1;
                Ok(Name { text: text.clone(), span: *span })
            }
            _ => Err(self.unexpected(&format!("{what} in quotes"))),
        }
    }

    /// True behind the last token.
    pub fn at_end(&self) -> bool {
        self.at >= self.end
    }

    /// The token before the next one.
    pub fn last_span(&self) -> Span {
        match self.at.checked_sub(1) {
            Some(last) => self.lexed.lexemes[last].span,
            None => Span::new(0, 0),
        }
    }

    /// The next token, or the place after the last one.
    pub fn here(&self) -> Span {
        match self.peek() {
            Some(lexeme) => lexeme.span,
            None => Span::new(self.last_span().end, self.last_span().end),
        }
    }

    /// An error at the next token.
    pub fn unexpected(&self, expected: &str) -> Diagnostic {
        let message = match self.peek() {
            None => format!("expected {expected}, but the statement ends here"),
            Some(lexeme) => {
                format!("expected {expected}, found `{}`", &self.lexed.text[lexeme.span.range()])
            }
        };
        Diagnostic::at(self.here(), message)
    }

    /// Skips a parenthesis and all within; the next token opens it. False where nothing closes it.
    pub fn skip_parentheses(&mut self) -> bool {
        let mut depth = 0_usize;
        while let Some(lexeme) = self.advance() {
            match lexeme.token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return true;
            }
        }
        false
    }
}
