//! Limits on the size of a pipeline file, the nesting of its queries and the length of their
//! chains.
//!
//! Reading and planning go as deep as brackets are nested and as operators follow one another, and
//! the time for a chain grows with its square. So both are counted here, in one pass over the
//! tokens, before any recursion begins. What exceeds a limit is refused at its place, with what to
//! write instead. The limits are far beyond what people write, and what programs write well has
//! other forms (`IN` for a thousand comparisons).

use datafusion::sql::sqlparser::tokenizer::Token;

use super::guard::too_deep;
use super::lexer::{Lexed, Lexeme};
use crate::diagnostic::{Diagnostic, Diagnostics, Span};

/// Bytes of a pipeline file.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Characters of a name.
const NAME_CHARACTERS_MAX: usize = 255;
/// Stands in the names of columns that the plan gives, and so in none that is written.
pub(crate) const RESERVED: char = '\u{E000}';
/// How deep brackets of any kind, and CASEs, may be nested.
const NESTING_MAX: usize = 64;
/// Functions `x -> ...` within each other: DataFusion looks at the inner one several times for each
/// outer one.
const FUNCTIONS_MAX: usize = 4;
/// Operators one after the other, AND and OR left out: `a + b + c` has two.
const OPERATORS_MAX: usize = 150;
/// ANDs and ORs one after the other.
const CONDITIONS_MAX: usize = 3_000;
/// Words between two queries.
pub(crate) const SET_OPERATORS: &[&str] = &["UNION", "EXCEPT", "INTERSECT", "MINUS"];
/// Set operators one after the other.
const UNIONS_MAX: usize = 250;
/// Joins and lateral views one after the other.
pub(crate) const JOINS_MAX: usize = 100;
const JOINS: &str = "joins and lateral views in a row";
const DIVIDE: &str = "divide the query into several, with a table between them";
/// Columns that one SELECT or table lists.
const ITEMS_MAX: usize = 2_000;
/// Branches of one CASE.
const BRANCHES_MAX: usize = 1_000;

/// Refuses a file that is too large to be parsed.
pub fn check_length(text: &str) -> Result<(), Diagnostic> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let message = format!("this file has {} bytes; the most is {TEXT_BYTES_MAX}", text.len());
    let first = text.chars().next().map_or(0, char::len_utf8);
    Err(Diagnostic::at(Span::new(0, first), message)
        .help("divide it into several files; each is run by a process of its own"))
}

/// Refuses what exceeds the limits, one diagnostic for each statement, and a comment that would
/// be longer in Spark.
pub fn check(lexed: &Lexed) -> Diagnostics {
    let mut found = Diagnostics::default();
    if let Some(span) = lexed.continued {
        let message = "in Spark this comment goes on in the next line";
        let help = "take the backslash at its end away";
        found.0.push(Diagnostic::at(span, message).help(help));
    }
    let mut at = 0;
    while at < lexed.lexemes.len() {
        let statement = &lexed.lexemes[at..];
        let end = statement.iter().position(|lexeme| lexeme.token == Token::SemiColon);
        let statement = &statement[..end.unwrap_or(statement.len())];
        if let Err(diagnostic) = Count::new(statement).run() {
            found.0.push(diagnostic);
        }
        at += statement.len() + 1;
    }
    found
}

/// What encloses tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Statement,
    Round,
    Square,
    Curly,
    /// `ARRAY<...>`
    Angle,
    /// `CASE ... END`
    Case,
}

/// What has been counted within one bracket.
struct Level {
    bracket: Bracket,
    operators: usize,
    conditions: usize,
    unions: usize,
    joins: usize,
    branches: usize,
    items: usize,
    /// BETWEENs whose AND has not come.
    betweens: usize,
    /// Functions `x -> ...` that have begun and not ended.
    functions: usize,
    /// True where commas separate columns.
    selects: bool,
    /// True where commas separate tables.
    reads: bool,
}

impl Level {
    fn new(bracket: Bracket) -> Self {
        let (operators, conditions, unions, joins) = (0, 0, 0, 0);
        let (branches, items, betweens, selects, reads) = (0, 0, 0, false, false);
        let functions = 0;
        Self {
            bracket,
            operators,
            conditions,
            unions,
            joins,
            branches,
            items,
            betweens,
            functions,
            selects,
            reads,
        }
    }

    /// Another expression begins.
    fn next_expression(&mut self) {
        (self.operators, self.conditions, self.betweens, self.functions) = (0, 0, 0, 0);
    }
}

struct Count<'a> {
    lexemes: &'a [Lexeme],
    levels: Vec<Level>,
    /// The statement is CREATE TABLE.
    declares: bool,
}

impl<'a> Count<'a> {
    fn new(lexemes: &'a [Lexeme]) -> Self {
        let is = |at: usize, word| lexemes.get(at).is_some_and(|lexeme| lexeme.is_word(word));
        let declares = is(0, "CREATE") && is(1, "TABLE");
        Self { lexemes, levels: vec![Level::new(Bracket::Statement)], declares }
    }

    fn run(mut self) -> Result<(), Diagnostic> {
        for at in 0..self.lexemes.len() {
            self.token(at)?;
        }
        Ok(())
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("that of the statement stays")
    }

    fn token(&mut self, at: usize) -> Result<(), Diagnostic> {
        let lexeme = &self.lexemes[at];
        match &lexeme.token {
            Token::Word(word) => {
                let characters = word.value.chars().count();
                if characters > NAME_CHARACTERS_MAX {
                    let message = format!("this name has {characters} characters");
                    let help = format!("a name has at most {NAME_CHARACTERS_MAX}");
                    return Err(Diagnostic::at(lexeme.span, message).help(help));
                }
                if word.value.contains(RESERVED) {
                    let message = "the character U+E000 cannot stand in a name";
                    let help = "write another character; this one marks names in plans";
                    return Err(Diagnostic::at(lexeme.span, message).help(help));
                }
                return self.word(at);
            }
            Token::LParen => self.open(Bracket::Round, lexeme)?,
            Token::LBrace => self.open(Bracket::Curly, lexeme)?,
            Token::LBracket => {
                self.operator(lexeme)?;
                self.open(Bracket::Square, lexeme)?;
            }
            Token::RParen => self.close(Bracket::Round),
            Token::RBrace => self.close(Bracket::Curly),
            Token::RBracket => self.close(Bracket::Square),
            Token::Lt if self.opens_type(at) => self.open(Bracket::Angle, lexeme)?,
            Token::Gt if self.level().bracket == Bracket::Angle => self.close(Bracket::Angle),
            // `ARRAY<ARRAY<INT>>`: the tokenizer takes the two closing brackets for a shift.
            Token::ShiftRight if self.level().bracket == Bracket::Angle => {
                self.close(Bracket::Angle);
                self.close(Bracket::Angle);
            }
            Token::Comma => {
                let level = self.level();
                level.next_expression();
                level.items += usize::from(level.selects);
                level.joins += usize::from(level.reads);
                at_most(level.joins, JOINS_MAX, lexeme, JOINS, DIVIDE)?;
                let (count, help) =
                    (level.items, "make a struct of some of them: struct(a, b, ...)");
                at_most(count, ITEMS_MAX, lexeme, "columns", help)?;
            }
            // A step of a pipe begins.
            Token::VerticalBarRightAngleBracket => {
                let level = self.level();
                level.next_expression();
                (level.reads, level.selects) = (false, false);
            }
            Token::Arrow => {
                self.level().functions += 1;
                let count = self.levels.iter().map(|level| level.functions).sum();
                let what = "functions x -> ... within each other";
                at_most(count, FUNCTIONS_MAX, lexeme, what, "compute the inner one in a subquery")?;
            }
            _ if is_operator(lexeme) => self.operator(lexeme)?,
            _ => {}
        }
        Ok(())
    }

    fn word(&mut self, at: usize) -> Result<(), Diagnostic> {
        let lexeme = &self.lexemes[at];
        let Some(word) = lexeme.word() else { return Ok(()) };
        match word.to_ascii_uppercase().as_str() {
            // This AND belongs to a BETWEEN and joins no conditions.
            "AND" if self.level().betweens > 0 => {
                self.level().betweens -= 1;
                self.operator(lexeme)?;
            }
            "AND" | "OR" => {
                self.level().operators = 0;
                self.level().conditions += 1;
                let help = "compare with a list: x IN (1, 2, ...), or join a table of the values";
                let count = self.level().conditions;
                at_most(count, CONDITIONS_MAX, lexeme, "ANDs and ORs in a row", help)?;
            }
            "BETWEEN" => {
                self.level().betweens += 1;
                self.operator(lexeme)?;
            }
            "CASE" if self.opens_case(at) => self.open(Bracket::Case, lexeme)?,
            "END" if self.level().bracket == Bracket::Case => self.close(Bracket::Case),
            "WHEN" if self.level().bracket == Bracket::Case => {
                self.level().next_expression();
                self.level().branches += 1;
                let (count, help) = (self.level().branches, "join a table of the values");
                at_most(count, BRANCHES_MAX, lexeme, "branches of one CASE", help)?;
            }
            "UNION" | "EXCEPT" | "INTERSECT" | "MINUS" if !self.follows_operator(at) => {
                self.level().next_expression();
                self.level().unions += 1;
                let help = "write several flows into the same table, or fewer, larger queries";
                let count = self.level().unions;
                at_most(count, UNIONS_MAX, lexeme, "set operators in a row", help)?;
            }
            "JOIN" | "LATERAL" => {
                self.level().next_expression();
                self.level().joins += 1;
                at_most(self.level().joins, JOINS_MAX, lexeme, JOINS, DIVIDE)?;
            }
            "SELECT" if !self.follows_operator(at) => {
                let level = self.level();
                level.next_expression();
                (level.joins, level.items, level.selects) = (0, 0, true);
                level.reads = false;
            }
            "FROM" | "WHERE" | "GROUP" | "HAVING" | "ORDER" | "BY" | "ON" | "THEN" | "ELSE"
            | "VALUES" | "WINDOW"
                if !self.follows_operator(at) =>
            {
                let is_from = lexeme.is_word("FROM");
                let level = self.level();
                level.next_expression();
                // After ON commas still separate tables.
                if is_from || !lexeme.is_word("ON") {
                    (level.reads, level.selects) = (is_from, false);
                }
            }
            _ if is_operator(lexeme) => self.operator(lexeme)?,
            _ => {}
        }
        Ok(())
    }

    fn operator(&mut self, lexeme: &Lexeme) -> Result<(), Diagnostic> {
        self.level().operators += 1;
        let help = "name a part of the expression in a subquery: SELECT a + rest ... FROM (SELECT \
                    *, b + c + ... AS rest FROM ...); or use a function of many arguments (concat)";
        at_most(self.level().operators, OPERATORS_MAX, lexeme, "operators in a row", help)
    }

    fn open(&mut self, bracket: Bracket, lexeme: &Lexeme) -> Result<(), Diagnostic> {
        let mut level = Level::new(bracket);
        level.selects = self.declares && self.levels.len() == 1;
        self.levels.push(level);
        if self.levels.len() > NESTING_MAX + 1 {
            Err(too_deep(lexeme.span)
                .note(format!("brackets and CASEs are nested at most {NESTING_MAX} deep")))
        } else {
            Ok(())
        }
    }

    /// Closes the innermost bracket of the kind, and what was left open in it.
    fn close(&mut self, bracket: Bracket) {
        if let Some(at) = self.levels.iter().rposition(|level| level.bracket == bracket) {
            self.levels.truncate(at);
        }
    }

    fn before(&self, at: usize) -> Option<&Lexeme> {
        at.checked_sub(1).map(|before| &self.lexemes[before])
    }

    /// True where a word is used as a value, whatever it means elsewhere.
    fn follows_operator(&self, at: usize) -> bool {
        let is_from = self.lexemes[at].is_word("FROM");
        self.before(at).is_some_and(|before| {
            // `*` may be all columns, and `|>` begins a step; `IS DISTINCT FROM` is an operator.
            let begins = matches!(before.token, Token::Mul | Token::VerticalBarRightAngleBracket);
            (is_operator(before) && !begins)
                || (is_from && before.is_word("DISTINCT"))
                || before.is_word("AND")
                || before.is_word("OR")
        })
    }

    /// True at the `<` of `ARRAY<`.
    fn opens_type(&self, at: usize) -> bool {
        let is_type = |word: &str| ["ARRAY", "MAP", "STRUCT"].contains(&word);
        let before = self.before(at).and_then(Lexeme::word);
        before.is_some_and(|word| is_type(&word.to_ascii_uppercase()))
    }

    /// True at a CASE that is no name.
    fn opens_case(&self, at: usize) -> bool {
        let after = |ahead: usize| self.lexemes.get(at + ahead);
        after(1).is_some_and(|next| next.is_word("WHEN") || next.token == Token::LParen)
            || after(2).is_some_and(|next| next.is_word("WHEN"))
    }
}

fn at_most(
    count: usize,
    most: usize,
    at: &Lexeme,
    what: &str,
    help: &str,
) -> Result<(), Diagnostic> {
    if count > most {
        Err(Diagnostic::at(at.span, format!("more than {most} {what}")).help(help))
    } else {
        Ok(())
    }
}

/// Words that stand between operands, or after one.
const OPERATOR_WORDS: &[&str] = &[
    "AT", "COLLATE", "DIV", "ESCAPE", "ILIKE", "IN", "IS", "ISNULL", "LIKE", "MEMBER", "NOT",
    "NOTNULL", "OPERATOR", "OVERLAPS", "REGEXP", "RLIKE", "SIMILAR", "TO", "XOR", "ZONE",
];

fn is_operator(lexeme: &Lexeme) -> bool {
    match &lexeme.token {
        Token::Word(_) => OPERATOR_WORDS.iter().any(|word| lexeme.is_word(word)),
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::LParen
        | Token::RParen
        | Token::LBracket
        | Token::RBracket
        | Token::LBrace
        | Token::RBrace
        | Token::Comma
        | Token::SemiColon => false,
        // Any other symbol: sqlparser knows many operators, and no operand is a symbol.
        other => other.to_string().chars().all(|character| !character.is_alphanumeric()),
    }
}
