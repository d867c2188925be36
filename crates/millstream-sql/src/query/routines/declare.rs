//! `CREATE FUNCTION` and `DROP FUNCTION`, of which the types and the body stay tokens.

use std::ops::Range;
use std::sync::Arc;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::super::words::is_word;
use super::built_in;
use crate::diagnostic::Diagnostic;
use crate::syntax::cursor::{Cursor, Name};
use crate::syntax::lexer::Lexeme;
use crate::types;

/// The words that a query begins with.
const QUERY: &[&str] = &["SELECT", "WITH", "VALUES", "FROM", "TABLE"];
/// Parameters of one function, and columns of one that gives rows.
const NAMES_MAX: usize = 255;

/// A function.
#[derive(Clone, Debug)]
pub struct Routine {
    /// Its name.
    pub name: Name,
    /// `TEMPORARY`, which shows in the names of columns.
    pub is_temporary: bool,
    /// Its parameters in order.
    pub parameters: Vec<Parameter>,
    /// What it gives.
    pub returns: Returns,
    /// The tokens behind `RETURN`.
    pub body: Range<usize>,
}

/// A parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: Name,
    /// The tokens of its type.
    pub data_type: Range<usize>,
    /// The tokens of what it is where a call does not say it.
    pub default: Option<Range<usize>>,
}

/// What a function gives.
#[derive(Clone, Debug)]
pub enum Returns {
    /// A value of the body's type.
    Value,
    /// A value of the type with these tokens.
    Typed(Range<usize>),
    /// Rows with the body's columns.
    Rows,
    /// Rows with these columns; each has the tokens of its type.
    TypedRows(Vec<(Name, Range<usize>)>),
}

/// A statement about a function.
#[derive(Clone, Debug)]
pub enum Declaration {
    /// `CREATE FUNCTION`
    Create {
        /// The function.
        routine: Arc<Routine>,
        /// `OR REPLACE`
        replaces: bool,
        /// `IF NOT EXISTS`
        unless_there: bool,
    },
    /// `DROP FUNCTION`
    Drop {
        /// The function's name.
        name: Name,
        /// `IF EXISTS`
        if_there: bool,
    },
}

impl Routine {
    /// Whether it stands in FROM.
    pub fn gives_rows(&self) -> bool {
        matches!(self.returns, Returns::Rows | Returns::TypedRows(_))
    }
}

/// Whether a statement is about a function.
pub fn begins(cursor: &Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    if ahead.eat_words(&["DROP"]).is_none() {
        if ahead.eat_words(&["CREATE"]).is_none() {
            return false;
        }
        ahead.eat_words(&["OR", "REPLACE"]);
    }
    eat_temporary(&mut ahead);
    ahead.is_word("FUNCTION")
}

fn eat_temporary(cursor: &mut Cursor<'_>) -> bool {
    cursor.eat_words(&["TEMPORARY"]).or_else(|| cursor.eat_words(&["TEMP"])).is_some()
}

/// Reads a statement about a function to its end.
///
/// # Errors
/// What cannot be read, or is not supported.
pub fn declaration(cursor: &mut Cursor<'_>) -> Result<Declaration, Diagnostic> {
    if cursor.eat_words(&["DROP"]).is_some() {
        eat_temporary(cursor);
        cursor.expect_words(&["FUNCTION"], "after DROP")?;
        let if_there = cursor.eat_words(&["IF", "EXISTS"]).is_some();
        let name = name(cursor)?;
        if !cursor.at_end() {
            return Err(cursor.unexpected("the end of the statement"));
        }
        return Ok(Declaration::Drop { name, if_there });
    }
    cursor.expect_words(&["CREATE"], "before FUNCTION")?;
    let replaces = cursor.eat_words(&["OR", "REPLACE"]).is_some();
    let is_temporary = eat_temporary(cursor);
    cursor.expect_words(&["FUNCTION"], "after CREATE")?;
    let unless_there = cursor.eat_words(&["IF", "NOT", "EXISTS"]).is_some();
    let name = name(cursor)?;
    let parameters = parameters(cursor)?;
    let returns = returns(cursor)?;
    characteristics(cursor)?;
    cursor.expect_words(&["RETURN"], "before the function's body")?;
    let body = cursor.at..cursor.end;
    let Some(first) = cursor.peek() else {
        return Err(cursor.unexpected("an expression or a query"));
    };
    let routine = Routine { name, is_temporary, parameters, returns, body };
    if routine.gives_rows() && !is_query(first) && first.token != Token::LParen {
        return Err(cursor.unexpected("a query, as the function RETURNS TABLE"));
    }
    cursor.at = cursor.end;
    Ok(Declaration::Create { routine: Arc::new(routine), replaces, unless_there })
}

/// Whether a token is the first of a query.
pub fn is_query(lexeme: &Lexeme) -> bool {
    QUERY.iter().any(|word| lexeme.is_word(word))
}

fn name(cursor: &mut Cursor<'_>) -> Result<Name, Diagnostic> {
    let name = cursor.name("the function's name")?;
    if cursor.is_token(&Token::Period) {
        return Err(Diagnostic::at(name.span, "a function has a name of one part")
            .help("leave out the schema before it"));
    }
    if built_in::is_function(&name.text) {
        let message = format!("`{}` is a function of Spark's", name.text);
        return Err(Diagnostic::at(name.span, message).help("give yours another name"));
    }
    Ok(name)
}

fn parameters(cursor: &mut Cursor<'_>) -> Result<Vec<Parameter>, Diagnostic> {
    cursor.expect(&Token::LParen, "after the function's name, as in f(x INT)")?;
    let mut parameters: Vec<Parameter> = Vec::new();
    if cursor.eat(&Token::RParen) {
        return Ok(parameters);
    }
    loop {
        let name = cursor.name("the name of a parameter")?;
        check_name(&name, parameters.iter().map(|known| &known.name))?;
        if is_word(&name.text) {
            let message = format!("a parameter cannot be called `{}`", name.text);
            let help = "Spark takes the name for the function of this name; give it another name";
            return Err(Diagnostic::at(name.span, message).help(help));
        }
        let data_type = data_type(cursor)?;
        let default = cursor.eat_words(&["DEFAULT"]).map(|_| default(cursor));
        if default.is_none() && parameters.last().is_some_and(|last| last.default.is_some()) {
            let message = format!("`{}` has no DEFAULT, but the one before it has", name.text);
            return Err(
                Diagnostic::at(name.span, message).help("parameters with a DEFAULT come last")
            );
        }
        comment(cursor)?;
        parameters.push(Parameter { name, data_type, default });
        if !cursor.eat(&Token::Comma) {
            break;
        }
    }
    cursor.expect(&Token::RParen, "or `,` after a parameter")?;
    Ok(parameters)
}

fn check_name<'a>(name: &Name, known: impl Iterator<Item = &'a Name>) -> Result<(), Diagnostic> {
    let mut count = 0;
    for known in known {
        count += 1;
        if known.text.to_lowercase() == name.text.to_lowercase() {
            let message = format!("`{}` is there twice", name.text);
            return Err(Diagnostic::at(name.span, message)
                .note_at(known.span, "first here")
                .help("give it another name"));
        }
    }
    if count >= NAMES_MAX {
        let message = format!("more than {NAMES_MAX} names");
        return Err(Diagnostic::at(name.span, message).help("make a STRUCT of some of them"));
    }
    Ok(())
}

/// The tokens of an expression, up to what ends a parameter.
fn default(cursor: &mut Cursor<'_>) -> Range<usize> {
    let start = cursor.at;
    let mut depth = 0_usize;
    while let Some(lexeme) = cursor.peek() {
        match lexeme.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::Comma if depth == 0 => break,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            _ if depth == 0 && lexeme.is_word("COMMENT") => break,
            _ => {}
        }
        cursor.advance();
    }
    start..cursor.at
}

fn data_type(cursor: &mut Cursor<'_>) -> Result<Range<usize>, Diagnostic> {
    let (start, here) = (cursor.at, cursor.here());
    let of = types::data_type(cursor)?;
    if types::holds_time(&of) {
        return Err(types::no_time(here));
    }
    if types::holds_variant(&of) {
        return Err(types::no_variant(here));
    }
    let tokens = start..cursor.at;
    let is_bounded = |lexeme: &&Lexeme| lexeme.is_word("VARCHAR") || lexeme.is_word("CHAR");
    if let Some(found) = cursor.lexed.lexemes[tokens.clone()].iter().find(is_bounded) {
        return Err(Diagnostic::at(found.span, "CHAR and VARCHAR are for columns of tables")
            .help("write STRING"));
    }
    Ok(tokens)
}

fn comment(cursor: &mut Cursor<'_>) -> Result<bool, Diagnostic> {
    if cursor.eat_words(&["COMMENT"]).is_none() {
        return Ok(false);
    }
    cursor.string("a comment").map(|_| true)
}

fn returns(cursor: &mut Cursor<'_>) -> Result<Returns, Diagnostic> {
    if cursor.eat_words(&["RETURNS"]).is_none() {
        return Ok(Returns::Value);
    }
    if cursor.eat_words(&["TABLE"]).is_none() {
        return data_type(cursor).map(Returns::Typed);
    }
    if !cursor.eat(&Token::LParen) {
        return Ok(Returns::Rows);
    }
    let mut columns: Vec<(Name, Range<usize>)> = Vec::new();
    loop {
        let name = cursor.name("the name of a column")?;
        check_name(&name, columns.iter().map(|(known, _)| known))?;
        columns.push((name, data_type(cursor)?));
        comment(cursor)?;
        if !cursor.eat(&Token::Comma) {
            break;
        }
    }
    cursor.expect(&Token::RParen, "or `,` after a column")?;
    Ok(Returns::TypedRows(columns))
}

/// What says something of a function that its body says as well.
fn characteristics(cursor: &mut Cursor<'_>) -> Result<(), Diagnostic> {
    let phrases: &[&[&str]] = &[
        &["LANGUAGE", "SQL"],
        &["CONTAINS", "SQL"],
        &["READS", "SQL", "DATA"],
        &["NOT", "DETERMINISTIC"],
        &["DETERMINISTIC"],
    ];
    loop {
        let found = phrases.iter().any(|phrase| cursor.eat_words(phrase).is_some());
        if !found && !comment(cursor)? {
            return Ok(());
        }
    }
}
