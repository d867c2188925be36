//! The parts of a query that sqlparser does not know: `STREAM t`, `STREAM(t)`,
//! `WATERMARK column DELAY OF INTERVAL ...`, `VERSION AS OF ...`, and
//! `DISTINCT ON (...) WITHIN WATERMARK`; and marks for subqueries in FROM, so that it need not find
//! them by trial.
//!
//! These words are taken out of the token list and remembered by the place of the table's name,
//! so that sqlparser reads plain SQL whose nodes still point into the file.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::brackets::Brackets;
use super::lambda_calls::{is_array_of_query, is_exists_call};
use super::star_tokens::{self, ALL_COLUMNS};
use super::token_ends::{keys_of_distinct, parenthesis_at_end, subquery_at_end};
use super::typed_numbers::TypedNumber;
use super::{dialects, scripts};
use crate::diagnostic::{Diagnostic, Span};
use crate::syntax::cursor::{Cursor, Name};
use crate::syntax::lexer::{Lexed, Lexeme, SparkDialect};
use crate::types::planner::WRITTEN;
use crate::values::interval::{is_unit, parse_duration};

/// The first key of `DISTINCT ON (...) WITHIN WATERMARK`.
pub const WITHIN_WATERMARK: &str = "__within_watermark";

/// Names of subqueries with a watermark begin with this.
pub const SUBQUERY_PREFIX: &str = "__watermarked_";

/// `WATERMARK column DELAY OF INTERVAL ...` on a table that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// The event time column as written.
    pub column: Name,
    /// How far the watermark stays behind the newest event time.
    pub delay: Duration,
    /// The whole clause.
    pub span: Span,
}

/// An earlier state of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// `VERSION AS OF 3`
    Version(u64),
    /// `TIMESTAMP AS OF '2026-01-31 12:00:00'`, as written.
    Timestamp(String),
}

/// What was written around a table's name.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// The place of `STREAM` and the name, where it was written.
    pub(crate) stream: Option<Span>,
    pub(crate) watermark: Option<Watermark>,
    /// `VERSION AS OF ...`
    pub(crate) as_of: Option<AsOf>,
    /// LATERAL stands before the subquery whose first word this is.
    pub(crate) is_lateral: bool,
    /// `MAX RECURSION LEVEL n` behind the name of a common table expression.
    pub(crate) levels: Option<u32>,
}

impl Mark {
    const NONE: Self =
        Self { stream: None, watermark: None, as_of: None, is_lateral: false, levels: None };
}

/// `(SELECT ...) WATERMARK column DELAY OF INTERVAL ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubqueryWatermark {
    /// The name of the subquery in the plan.
    pub alias: String,
    /// The clause.
    pub watermark: Watermark,
}

/// A query for sqlparser, and the marks by the first byte of the table's name.
pub(crate) struct Extracted {
    pub(crate) tokens: Vec<TokenWithSpan>,
    pub(crate) marks: HashMap<usize, Mark>,
    pub(crate) subqueries: Vec<SubqueryWatermark>,
}

/// In which part of a query the tokens of one parenthesis are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clause {
    Select,
    From,
    /// A parenthesis right within FROM, which may group joins.
    WithinFrom,
    Struct,
    /// The arguments of `count`, whose `*` is no columns but behind DISTINCT.
    Counted,
    /// The names behind `* EXCEPT`.
    Except,
    Other,
}

/// Words that cannot be a table's name, so that `FROM stream WHERE` reads a table called stream.
const NOT_A_NAME: &str = "\
    AS WHERE JOIN INNER LEFT RIGHT FULL CROSS SEMI ANTI NATURAL ON USING GROUP ORDER HAVING \
    LIMIT UNION EXCEPT INTERSECT MINUS LATERAL WINDOW WATERMARK TABLESAMPLE SORT CLUSTER \
    DISTRIBUTE QUALIFY";

/// Takes these words out of the query whose tokens are `ranges`, one after the other.
pub(crate) fn extract(lexed: &Lexed, ranges: &[Range<usize>]) -> Result<Extracted, Diagnostic> {
    let mut extraction = Extraction {
        cursor: Cursor::new(lexed, 0, 0),
        brackets: Brackets::of(lexed, ranges),
        clauses: vec![Clause::Other],
        last_table: None,
        out: Extracted { tokens: Vec::new(), marks: HashMap::new(), subqueries: Vec::new() },
    };
    for range in ranges {
        extraction.cursor = Cursor::new(lexed, range.start, range.end);
        while !extraction.cursor.at_end() {
            extraction.step()?;
        }
    }
    Ok(extraction.out)
}

struct Extraction<'a> {
    cursor: Cursor<'a>,
    brackets: Brackets,
    clauses: Vec<Clause>,
    /// The first byte of the name of the table read last.
    last_table: Option<usize>,
    out: Extracted,
}

impl Extraction<'_> {
    fn step(&mut self) -> Result<(), Diagnostic> {
        dialects::check(&self.cursor)?;
        scripts::check(&self.cursor)?;
        if self.in_from() && self.cursor.is_word("WATERMARK") && self.follows_a_table() {
            return self.watermark();
        }
        if self.in_from()
            && let Some(words) = self.words_of_as_of()
        {
            return self.as_of(words);
        }
        if self.cursor.is_word("WITHIN")
            && self.cursor.nth(1).is_some_and(|next| next.is_word("WATERMARK"))
        {
            return self.within_watermark();
        }
        if self.may_start_table() && self.stream() {
            return Ok(());
        }
        if self.recursion_levels() {
            return Ok(());
        }
        if self.cursor.is_word("INTERVAL") && self.long_interval() {
            return Ok(());
        }
        if self.typed_number()? {
            return Ok(());
        }
        let Some(lexeme) = self.cursor.peek() else { return Ok(()) };
        if self.clauses.last() == Some(&Clause::Except)
            && let Some((length, token)) = star_tokens::path(&self.cursor)
        {
            self.out.tokens.push(TokenWithSpan { token, span: lexeme.at });
            self.cursor.at += length;
            return Ok(());
        }
        if self.may_start_table() {
            self.table_in_parentheses(lexeme)?;
        }
        if self.may_start_table() && matches!(lexeme.token, Token::Word(_)) {
            self.last_table = Some(lexeme.span.start);
        }
        let is_star = lexeme.token == Token::Mul && self.stands_for_columns();
        let is_call = is_star && star_tokens::has_except(&self.cursor);
        let is_call_of_exists =
            || is_exists_call(&self.cursor) && !self.brackets.is_query(self.cursor.at + 1);
        let token = if is_star {
            Token::make_word(ALL_COLUMNS, None)
        } else if is_call_of_exists() {
            Token::make_word("exists", Some('`'))
        } else if is_array_of_query(&self.cursor) {
            Token::make_word("array", Some('`'))
        } else {
            lexeme.token.clone()
        };
        self.follow(lexeme);
        self.out.tokens.push(TokenWithSpan { token, span: lexeme.at });
        // The word EXCEPT between the name and its arguments is left out.
        self.cursor.at += 1 + usize::from(is_call);
        Ok(())
    }

    /// Marks a subquery in FROM by LATERAL, which sqlparser takes for the beginning of one at once.
    /// It would try and read a parenthesis as a query and, where that fails, as a join, so that
    /// each level of `((SELECT ...) AS a JOIN b)` would double the time.
    fn table_in_parentheses(&mut self, lexeme: &Lexeme) -> Result<(), Diagnostic> {
        if lexeme.is_word("LATERAL") {
            return self.lateral(lexeme);
        }
        if lexeme.token == Token::LParen && self.brackets.is_query(self.cursor.at) {
            let token = Token::make_keyword("LATERAL");
            self.out.tokens.push(TokenWithSpan { token, span: lexeme.at });
        }
        Ok(())
    }

    /// A query's own LATERAL, which is kept; the subquery behind it is marked.
    fn lateral(&mut self, lexeme: &Lexeme) -> Result<(), Diagnostic> {
        let is_open =
            |at: usize| self.cursor.nth(at).is_some_and(|next| next.token == Token::LParen);
        if self.brackets.is_query(self.cursor.at + 1) {
            // `((SELECT ...) UNION ...)` is one, too.
            let first = (2..).find(|at| !is_open(*at)).and_then(|at| self.cursor.nth(at));
            if let Some(first) = first {
                let mark = Mark { is_lateral: true, ..Mark::NONE };
                self.out.marks.insert(first.span.start, mark);
            }
            return Ok(());
        }
        let name = self.cursor.nth(1).map(|name| &name.token);
        if matches!(name, Some(Token::Word(_))) && is_open(2) {
            return Ok(());
        }
        Err(Diagnostic::at(lexeme.span, "LATERAL is for a subquery or a function here")
            .help("LATERAL VIEW explode(array) t AS e makes rows of an array; else join"))
    }

    /// Keeps track of the part of the query.
    fn follow(&mut self, lexeme: &Lexeme) {
        let clause = *self.clauses.last().unwrap_or(&Clause::Other);
        match &lexeme.token {
            Token::LParen => self.clauses.push(match clause {
                Clause::From | Clause::WithinFrom if self.groups_joins() => Clause::WithinFrom,
                Clause::From | Clause::WithinFrom => Clause::Other,
                _ if self.previous().is_some_and(|last| last.is_word("STRUCT")) => Clause::Struct,
                _ if self.previous().is_some_and(|last| last.is_word("COUNT")) => Clause::Counted,
                _ if star_tokens::opens_except(&self.cursor) => Clause::Except,
                _ => Clause::Other,
            }),
            Token::RParen if self.clauses.len() > 1 => {
                self.clauses.pop();
            }
            Token::Word(_) => {
                let is_before_table = self.may_start_table();
                let next = match lexeme.word().unwrap_or("").to_ascii_uppercase().as_str() {
                    "SELECT" => Clause::Select,
                    "FROM" if clause == Clause::Select => Clause::From,
                    "LATERAL" if is_before_table => return,
                    "WHERE" | "GROUP" | "HAVING" | "ORDER" | "LIMIT" | "UNION" | "EXCEPT"
                    | "INTERSECT" | "LATERAL" | "SORT" | "WINDOW"
                        if clause == Clause::From =>
                    {
                        Clause::Other
                    }
                    _ => return,
                };
                if let Some(last) = self.clauses.last_mut() {
                    *last = next;
                }
            }
            _ => {}
        }
    }

    fn previous(&self) -> Option<&Lexeme> {
        self.cursor.at.checked_sub(1).map(|last| &self.cursor.lexed.lexemes[last])
    }

    fn in_from(&self) -> bool {
        matches!(self.clauses.last(), Some(Clause::From | Clause::WithinFrom))
    }

    /// True at a parenthesis in FROM around a join; others hold a query, arguments or a condition.
    fn groups_joins(&self) -> bool {
        self.may_start_table() && !self.brackets.is_query(self.cursor.at)
    }

    /// True where a table's name is expected.
    fn may_start_table(&self) -> bool {
        self.in_from()
            && self.previous().is_some_and(|last| {
                last.is_word("FROM")
                    || last.is_word("JOIN")
                    || last.token == Token::Comma
                    || (last.token == Token::LParen
                        && self.clauses.last() == Some(&Clause::WithinFrom))
            })
    }

    /// Takes `STREAM name` or `STREAM(name)`; false where STREAM is a name itself.
    fn stream(&mut self) -> bool {
        if !self.cursor.is_word("STREAM") {
            return false;
        }
        let in_parentheses = self.cursor.nth(1).is_some_and(|next| next.token == Token::LParen)
            && self.cursor.nth(3).is_some_and(|next| next.token == Token::RParen);
        let name_at = 1 + usize::from(in_parentheses);
        let Some(name) = self.cursor.nth(name_at).filter(|name| can_name_a_table(name)) else {
            return false;
        };
        let from = self.cursor.here();
        self.cursor.at += name_at + 1 + usize::from(in_parentheses);
        let span = from.to(self.cursor.last_span());
        let mark = Mark { stream: Some(span), ..Mark::NONE };
        self.out.marks.insert(name.span.start, mark);
        self.last_table = Some(name.span.start);
        self.out.tokens.push(name.for_parser());
        true
    }

    /// Takes `MAX RECURSION LEVEL 5` behind `name` or `name(columns)`.
    fn recursion_levels(&mut self) -> bool {
        let words = ["MAX", "RECURSION", "LEVEL"];
        let is_word = |(at, word): (usize, &&str)| {
            self.cursor.nth(at).is_some_and(|lexeme| lexeme.is_word(word))
        };
        if !words.iter().enumerate().all(is_word) {
            return false;
        }
        let levels = match self.cursor.nth(words.len()).map(|lexeme| &lexeme.token) {
            Some(Token::Number(digits, false)) => digits.parse::<u32>().ok(),
            _ => None,
        };
        let tokens = &self.out.tokens;
        let before = match parenthesis_at_end(tokens) {
            Some(open) => open.checked_sub(1),
            None => tokens.len().checked_sub(1),
        };
        let name = before.and_then(|before| self.cursor.lexed.span(tokens[before].span));
        let (Some(levels), Some(name)) = (levels, name) else { return false };
        self.out.marks.entry(name.start).or_insert(Mark::NONE).levels = Some(levels);
        self.cursor.at += words.len() + 1;
        true
    }

    fn follows_a_table(&self) -> bool {
        self.last_table.is_some()
            && self.previous().is_some_and(|last| {
                matches!(last.token, Token::Word(_) | Token::RParen) && !last.is_word("JOIN")
            })
            && self.cursor.nth(1).is_some_and(|next| matches!(next.token, Token::Word(_)))
            && (self.cursor.nth(2).is_some_and(|next| next.is_word("DELAY"))
                || self.cursor.nth(1).is_some_and(|next| next.is_word("FOR")))
    }

    /// Takes `WATERMARK column DELAY OF INTERVAL ...`.
    fn watermark(&mut self) -> Result<(), Diagnostic> {
        let form = "the form is FROM STREAM t WATERMARK ts DELAY OF INTERVAL 10 SECONDS";
        let start = self.cursor.here();
        self.cursor.eat_words(&["WATERMARK"]);
        if self.cursor.is_word("FOR") {
            return Err(Diagnostic::at(start, "WATERMARK FOR is not Spark's form").help(form));
        }
        let column = self.cursor.name("the event time column")?;
        let after = "after WATERMARK column";
        let words = self.cursor.expect_words(&["DELAY", "OF"], after);
        words.map_err(|error| error.help(form))?;
        self.cursor.eat_words(&["INTERVAL"]);
        let from = self.cursor.at;
        while self.cursor.peek().is_some_and(|next| is_interval_part(next, self.cursor.at == from))
        {
            self.cursor.advance();
        }
        // A number with a word that is no unit: the word was meant to be one.
        if self.cursor.at == from + 1
            && self.cursor.peek().is_some_and(|next| next.word().is_some())
            && matches!(self.cursor.lexed.lexemes[from].token, Token::Number(..))
        {
            self.cursor.advance();
        }
        let parts = &self.cursor.lexed.lexemes[from..self.cursor.at];
        if parts.is_empty() {
            return Err(self.cursor.unexpected("an interval").help(form));
        }
        let delay = parse_duration(&interval_text(parts)).map_err(|help| {
            let span = parts[0].span.to(self.cursor.last_span());
            Diagnostic::at(span, "this is not an interval").help(help)
        })?;
        let watermark = Watermark { column, delay, span: start.to(self.cursor.last_span()) };
        if let Some(open) = subquery_at_end(&self.out.tokens) {
            self.name_subquery(open, watermark);
            return Ok(());
        }
        let table = self.last_table.expect("follows_a_table was checked");
        let marks = &mut self.out.marks;
        let mark = marks.entry(table).or_insert(Mark::NONE);
        if mark.watermark.is_some() {
            return Err(Diagnostic::at(watermark.span, "the table has a watermark already"));
        }
        mark.watermark = Some(watermark);
        Ok(())
    }

    /// How many words begin a clause that asks for an earlier state of the table before it: of
    /// `[FOR] (VERSION | SYSTEM_VERSION | TIMESTAMP | SYSTEM_TIME) AS OF`.
    fn words_of_as_of(&self) -> Option<usize> {
        self.last_table?;
        let optional = usize::from(self.cursor.is_word("FOR"));
        let kind = self.cursor.nth(optional)?;
        let kinds = ["VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME"];
        let is_clause = kinds.iter().any(|word| kind.is_word(word))
            && self.cursor.nth(optional + 1)?.is_word("AS")
            && self.cursor.nth(optional + 2)?.is_word("OF");
        is_clause.then_some(optional + 3)
    }

    /// Takes `VERSION AS OF 3` or `TIMESTAMP AS OF '2026-01-31 12:00:00'`.
    fn as_of(&mut self, words: usize) -> Result<(), Diagnostic> {
        let forms = "write VERSION AS OF 3, or TIMESTAMP AS OF '2026-01-31 12:00:00'";
        let start = self.cursor.here();
        let kind = self.cursor.nth(words - 3);
        let is_version =
            kind.is_some_and(|kind| kind.is_word("VERSION") || kind.is_word("SYSTEM_VERSION"));
        self.cursor.at += words;
        let value = self.cursor.peek().map(|value| &value.token);
        let when = match value {
            Some(Token::Number(digits, false)) if is_version => {
                digits.parse().ok().map(AsOf::Version)
            }
            Some(Token::SingleQuotedString(digits)) if is_version => {
                digits.parse().ok().map(AsOf::Version)
            }
            Some(Token::SingleQuotedString(text)) => Some(AsOf::Timestamp(text.clone())),
            _ => None,
        };
        let Some(when) = when else {
            let wanted = if is_version { "a version's number" } else { "a timestamp in quotes" };
            return Err(self.cursor.unexpected(wanted).help(forms));
        };
        self.cursor.advance();
        let table = self.last_table.expect("words_of_as_of was checked");
        let mark = self.out.marks.entry(table).or_insert(Mark::NONE);
        if mark.as_of.replace(when).is_some() {
            let span = start.to(self.cursor.last_span());
            return Err(Diagnostic::at(span, "the table has such a clause already"));
        }
        Ok(())
    }

    /// Makes `(SELECT * FROM (subquery) AS name)` of the subquery that the tokens end with.
    fn name_subquery(&mut self, open: usize, watermark: Watermark) {
        let alias = format!("{SUBQUERY_PREFIX}{}", watermark.span.start);
        let tokens = &mut self.out.tokens;
        let (front, back) = (tokens[open].span, tokens[tokens.len() - 1].span);
        let word = |word: &str| Token::make_word(word, None);
        let before = [Token::LParen, word("SELECT"), Token::Mul, word("FROM")];
        let before = before.map(|token| TokenWithSpan { token, span: front });
        tokens.splice(open..open, before);
        let after = [word("AS"), Token::make_word(&alias, Some('`')), Token::RParen];
        tokens.extend(after.map(|token| TokenWithSpan { token, span: back }));
        self.out.subqueries.push(SubqueryWatermark { alias, watermark });
    }

    /// Takes `WITHIN WATERMARK` after `DISTINCT ON (...)`, and inserts a first key that stands for
    /// it.
    fn within_watermark(&mut self) -> Result<(), Diagnostic> {
        let span = self.cursor.here();
        let tokens = &mut self.out.tokens;
        let Some(open) = keys_of_distinct(tokens) else {
            let message = "WITHIN WATERMARK follows the keys of DISTINCT ON (...)";
            let help = "the form is SELECT DISTINCT ON (id) WITHIN WATERMARK * FROM STREAM t \
                        WATERMARK ts DELAY OF INTERVAL 10 MINUTES";
            return Err(Diagnostic::at(span, message).help(help));
        };
        let place = tokens[open].span;
        let marker = Token::SingleQuotedString(WITHIN_WATERMARK.to_owned());
        let marker = [marker, Token::Comma].map(|token| TokenWithSpan { token, span: place });
        tokens.splice(open + 1..open + 1, marker);
        self.cursor.eat_words(&["WITHIN", "WATERMARK"]);
        Ok(())
    }

    /// Takes `INTERVAL 1 DAY -2 HOURS` as one string, which sqlparser would end after `1 DAY`.
    fn long_interval(&mut self) -> bool {
        let (mut length, mut pairs) = (0, 0);
        while let Some(more) = interval_part(&self.cursor, 1 + length) {
            length += more;
            pairs += 1;
        }
        if pairs < 2 {
            return false;
        }
        let lexemes = &self.cursor.lexed.lexemes[self.cursor.at..=self.cursor.at + length];
        let (keyword, parts) = (&lexemes[0], &lexemes[1..]);
        let text = Token::SingleQuotedString(interval_text(parts));
        let mut span = parts[0].at;
        span.end = parts[length - 1].at.end;
        self.out.tokens.push(keyword.for_parser());
        self.out.tokens.push(TokenWithSpan { token: text, span });
        self.cursor.at += 1 + length;
        true
    }

    /// Takes a number with a type suffix (`1.5D`, `10L`, `1e3`) as a cast of its digits; sqlparser
    /// would read the letter as an alias.
    fn typed_number(&mut self) -> Result<bool, Diagnostic> {
        let Some(number) = TypedNumber::at(&self.cursor) else { return Ok(false) };
        let (sign, type_name) = number.cast().map_err(|problem| {
            let span = self.cursor.here();
            Diagnostic::at(span, problem)
        })?;
        // The smallest number of a type has no positive counterpart.
        let sign = if sign && self.eat_minus() { "-" } else { "" };
        // Written so that the cast is known from one in the text.
        let written = match type_name.as_str() {
            "BIGINT" | "SMALLINT" => format!("({WRITTEN})"),
            _ => String::new(),
        };
        let cast = format!("CAST('{sign}{}' AS {type_name}{written})", number.digits);
        let tokens = Tokenizer::new(&SparkDialect::default(), &cast).tokenize();
        let at = number.at;
        for token in tokens.expect("a cast of a number can be read") {
            if !matches!(token, Token::Whitespace(_)) {
                self.out.tokens.push(TokenWithSpan { token, span: at });
            }
        }
        self.cursor.at += number.length;
        Ok(true)
    }

    /// Takes back a `-` that belongs to a number.
    fn eat_minus(&mut self) -> bool {
        let is_minus = self.out.tokens.last().is_some_and(|last| last.token == Token::Minus);
        if is_minus {
            self.out.tokens.pop();
        }
        is_minus
    }

    /// True for a `*` among values, as in `struct(*)` and `count(DISTINCT *)`; not that of
    /// `count(*)`.
    fn stands_for_columns(&self) -> bool {
        let is_among_values = match self.clauses.last() {
            Some(Clause::Struct) => true,
            Some(Clause::Counted) => return star_tokens::is_distinct_star(&self.cursor),
            Some(Clause::Other) => self.clauses.len() > 1,
            _ => false,
        };
        is_among_values && star_tokens::is_star(&self.cursor)
    }
}

/// Whether a token can be a table's name, unlike a word that continues a query.
pub fn can_name_a_table(lexeme: &Lexeme) -> bool {
    matches!(lexeme.token, Token::Word(_))
        && !NOT_A_NAME.split_whitespace().any(|word| lexeme.is_word(word))
}

fn is_interval_part(lexeme: &Lexeme, first: bool) -> bool {
    match &lexeme.token {
        Token::Number(..) => true,
        Token::SingleQuotedString(_) => first,
        Token::Word(_) => !first && lexeme.word().is_some_and(is_unit),
        _ => false,
    }
}

/// How many tokens the number and the unit are that begin so far ahead, with a sign before them.
fn interval_part(cursor: &Cursor<'_>, ahead: usize) -> Option<usize> {
    let is_sign = |lexeme: &&Lexeme| matches!(lexeme.token, Token::Minus | Token::Plus);
    let sign = usize::from(cursor.nth(ahead).filter(is_sign).is_some());
    let number = &cursor.nth(ahead + sign)?.token;
    let is_number = matches!(number, Token::Number(..) | Token::SingleQuotedString(_));
    let is_unit = cursor.nth(ahead + sign + 1)?.word().is_some_and(is_unit);
    (is_number && is_unit).then_some(sign + 2)
}

fn interval_text(parts: &[Lexeme]) -> String {
    let words = parts.iter().map(|part| match &part.token {
        Token::Number(digits, _) => digits.clone(),
        Token::SingleQuotedString(text) => text.clone(),
        other => other.to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}
