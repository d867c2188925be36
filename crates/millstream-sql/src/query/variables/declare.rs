//! `DECLARE`, `SET VAR`, `DROP TEMPORARY VARIABLE` and `EXECUTE IMMEDIATE`, of which types and
//! expressions stay tokens.

use std::ops::Range;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::super::forms::literals;
use super::super::routines::declare::is_query;
use crate::diagnostic::Diagnostic;
use crate::syntax::cursor::{Cursor, Name};
use crate::syntax::lexer::Lexeme;
use crate::types;

/// A statement about variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// `DECLARE`
    Declare {
        /// The variables, which are alike.
        names: Vec<Name>,
        /// `OR REPLACE`
        replaces: bool,
        /// The tokens of their type, where it is not that of the default.
        data_type: Option<Range<usize>>,
        /// The tokens of what they are at first.
        default: Option<Range<usize>>,
    },
    /// `SET VAR a = 1, b = DEFAULT`
    Set(Vec<(Name, Given)>),
    /// `SET VAR (a, b) = (SELECT ...)`
    SetRow {
        /// The variables, by the columns of the query.
        names: Vec<Name>,
        /// The tokens of the query.
        query: Range<usize>,
    },
    /// `DROP TEMPORARY VARIABLE`
    Drop {
        /// The variable.
        name: Name,
        /// `IF EXISTS`
        if_there: bool,
    },
}

/// What a variable is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// `DEFAULT`
    Default,
    /// The expression with these tokens.
    Value(Range<usize>),
}

/// `EXECUTE IMMEDIATE text INTO variables USING values`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Immediate {
    /// The tokens of the text.
    pub text: Range<usize>,
    /// The variables that the only row is put into.
    pub into: Vec<Name>,
    /// The tokens of each value for a marker, and its name.
    pub using: Vec<(Range<usize>, Option<Name>)>,
}

/// Whether a statement is about variables.
pub fn begins(cursor: &Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    if ahead.is_word("DECLARE") {
        return true;
    }
    if ahead.eat_words(&["SET"]).is_some() {
        // A setting may be called `var.key`.
        let is_key = ahead.nth(1).is_some_and(|next| next.token == Token::Period);
        return is_variable(&ahead) && !is_key;
    }
    if ahead.eat_words(&["DROP"]).is_none() {
        return false;
    }
    eat_temporary(&mut ahead);
    is_variable(&ahead)
}

/// Whether a statement runs another one.
pub fn begins_immediate(cursor: &Cursor<'_>) -> bool {
    cursor.are_words(&["EXECUTE", "IMMEDIATE"])
}

fn is_variable(cursor: &Cursor<'_>) -> bool {
    cursor.is_word("VARIABLE") || cursor.is_word("VAR")
}

fn eat_variable(cursor: &mut Cursor<'_>) -> bool {
    cursor.eat_words(&["VARIABLE"]).or_else(|| cursor.eat_words(&["VAR"])).is_some()
}

fn eat_temporary(cursor: &mut Cursor<'_>) -> bool {
    cursor.eat_words(&["TEMPORARY"]).or_else(|| cursor.eat_words(&["TEMP"])).is_some()
}

/// Reads a statement about variables to its end.
///
/// # Errors
/// What cannot be read.
pub fn statement(cursor: &mut Cursor<'_>) -> Result<Statement, Diagnostic> {
    if cursor.eat_words(&["DECLARE"]).is_some() {
        return declaration(cursor);
    }
    if cursor.eat_words(&["DROP"]).is_some() {
        return drop_statement(cursor);
    }
    cursor.expect_words(&["SET"], "before VAR")?;
    eat_variable(cursor);
    if cursor.is_token(&Token::LParen) {
        return set_row(cursor);
    }
    let mut assignments: Vec<(Name, Given)> = Vec::new();
    loop {
        let name = name(cursor)?;
        check_other(&name, assignments.iter().map(|(known, _)| known))?;
        cursor.expect(&Token::Eq, "after the variable's name")?;
        let value = expression(cursor, &[]);
        let given = match &cursor.lexed.lexemes[value.clone()] {
            [] => return Err(cursor.unexpected("a value").help("write SET VAR name = value")),
            [only] if only.is_word("DEFAULT") => Given::Default,
            _ => Given::Value(value),
        };
        assignments.push((name, given));
        if !cursor.eat(&Token::Comma) {
            break;
        }
    }
    end(cursor)?;
    Ok(Statement::Set(assignments))
}

fn declaration(cursor: &mut Cursor<'_>) -> Result<Statement, Diagnostic> {
    let replaces = cursor.eat_words(&["OR", "REPLACE"]).is_some();
    // A variable may be called so itself.
    let is_name = |next: &Lexeme| matches!(next.token, Token::Word(_)) && !next.is_word("DEFAULT");
    if is_variable(cursor) && cursor.nth(1).is_some_and(is_name) {
        eat_variable(cursor);
    }
    if cursor.are_words(&["IF", "NOT", "EXISTS"]) {
        return Err(cursor.unexpected("the name of a variable").help("write DECLARE OR REPLACE"));
    }
    let mut names = Vec::new();
    loop {
        let name = name(cursor)?;
        check_other(&name, names.iter())?;
        names.push(name);
        if !cursor.eat(&Token::Comma) {
            break;
        }
    }
    let data_type = match begins_default(cursor) || cursor.at_end() {
        true => None,
        false => Some(data_type(cursor)?),
    };
    let default = match begins_default(cursor) {
        true => {
            cursor.advance();
            let value = expression(cursor, &[]);
            if value.is_empty() {
                return Err(cursor.unexpected("a value"));
            }
            Some(value)
        }
        false => None,
    };
    end(cursor)?;
    if data_type.is_none() && default.is_none() {
        let message = "a variable has a type, or a DEFAULT that says it";
        let diagnostic = Diagnostic::at(names[0].span, message);
        return Err(diagnostic.help(format!("write DECLARE {} INT", names[0].text)));
    }
    Ok(Statement::Declare { names, replaces, data_type, default })
}

fn begins_default(cursor: &Cursor<'_>) -> bool {
    cursor.is_word("DEFAULT") || cursor.is_token(&Token::Eq)
}

fn data_type(cursor: &mut Cursor<'_>) -> Result<Range<usize>, Diagnostic> {
    let start = cursor.at;
    types::data_type(cursor)?;
    let tokens = start..cursor.at;
    let is_bounded = |lexeme: &&Lexeme| lexeme.is_word("VARCHAR") || lexeme.is_word("CHAR");
    if let Some(found) = cursor.lexed.lexemes[tokens.clone()].iter().find(is_bounded) {
        return Err(Diagnostic::at(found.span, "CHAR and VARCHAR are for columns of tables")
            .help("write STRING"));
    }
    Ok(tokens)
}

fn drop_statement(cursor: &mut Cursor<'_>) -> Result<Statement, Diagnostic> {
    if !eat_temporary(cursor) {
        return Err(cursor.unexpected("TEMPORARY").help("write DROP TEMPORARY VARIABLE name"));
    }
    eat_variable(cursor);
    let if_there = cursor.eat_words(&["IF", "EXISTS"]).is_some();
    let name = name(cursor)?;
    end(cursor)?;
    Ok(Statement::Drop { name, if_there })
}

fn set_row(cursor: &mut Cursor<'_>) -> Result<Statement, Diagnostic> {
    cursor.expect(&Token::LParen, "before the variables")?;
    let mut names = Vec::new();
    loop {
        let name = name(cursor)?;
        check_other(&name, names.iter())?;
        names.push(name);
        if !cursor.eat(&Token::Comma) {
            break;
        }
    }
    cursor.expect(&Token::RParen, "or `,` after a variable")?;
    cursor.expect(&Token::Eq, "after the variables")?;
    let start = cursor.at;
    let is_closed = cursor.is_token(&Token::LParen) && cursor.skip_parentheses();
    if !is_closed {
        return Err(cursor.unexpected("a query in parentheses, as (SELECT 1, 2)"));
    }
    let query = start + 1..cursor.at - 1;
    end(cursor)?;
    Ok(Statement::SetRow { names, query })
}

/// Reads `EXECUTE IMMEDIATE` to its end.
///
/// # Errors
/// What cannot be read.
pub fn immediate(cursor: &mut Cursor<'_>) -> Result<Immediate, Diagnostic> {
    cursor.expect_words(&["EXECUTE", "IMMEDIATE"], "before a text")?;
    let text = expression(cursor, &["INTO", "USING"]);
    if text.is_empty() {
        return Err(cursor.unexpected("a text").help("write EXECUTE IMMEDIATE 'SELECT ...'"));
    }
    let mut into = Vec::new();
    if cursor.eat_words(&["INTO"]).is_some() {
        loop {
            let name = name(cursor)?;
            check_other(&name, into.iter())?;
            into.push(name);
            if !cursor.eat(&Token::Comma) {
                break;
            }
        }
    }
    let mut using = Vec::new();
    if cursor.eat_words(&["USING"]).is_some() {
        let end_of_list = list_in_parentheses(cursor);
        loop {
            using.push(value_with_name(cursor)?);
            if !cursor.eat(&Token::Comma) {
                break;
            }
        }
        if end_of_list {
            cursor.expect(&Token::RParen, "after the values of USING")?;
        }
    }
    end(cursor)?;
    Ok(Immediate { text, into, using })
}

/// Takes the parenthesis that all values stand in, where they do.
fn list_in_parentheses(cursor: &mut Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    let is_query = cursor.nth(1).is_some_and(is_query);
    let is_all = ahead.is_token(&Token::LParen) && ahead.skip_parentheses() && ahead.at_end();
    is_all && !is_query && cursor.eat(&Token::LParen)
}

fn value_with_name(cursor: &mut Cursor<'_>) -> Result<(Range<usize>, Option<Name>), Diagnostic> {
    let value = expression(cursor, &["AS"]);
    if value.is_empty() {
        return Err(cursor.unexpected("a value"));
    }
    let name = match cursor.eat_words(&["AS"]) {
        Some(_) => Some(cursor.name("the name of a marker")?),
        None => None,
    };
    Ok((value, name))
}

/// The tokens of an expression, up to a comma, what closes a parenthesis around it, or a word that
/// is one of `ends`.
fn expression(cursor: &mut Cursor<'_>, ends: &[&str]) -> Range<usize> {
    let start = cursor.at;
    let mut depth = 0_usize;
    while let Some(lexeme) = cursor.peek() {
        match lexeme.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::Comma if depth == 0 => break,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            _ if depth == 0 && ends.iter().any(|word| lexeme.is_word(word)) => break,
            _ => {}
        }
        cursor.advance();
    }
    start..cursor.at
}

/// The name of a variable, without the schema that may stand before it.
fn name(cursor: &mut Cursor<'_>) -> Result<Name, Diagnostic> {
    let first = cursor.peek().map(|lexeme| lexeme.span);
    let mut parts = part(cursor)?;
    while cursor.eat(&Token::Period) {
        parts.extend(part(cursor)?);
    }
    let span = first.map_or(cursor.last_span(), |first| first.to(cursor.last_span()));
    let lower: Vec<String> = parts.iter().map(|part| part.to_lowercase()).collect();
    let lower: Vec<&str> = lower.iter().map(String::as_str).collect();
    if !matches!(lower.as_slice(), [_] | ["session", _] | ["system", "session", _]) {
        let message = format!("`{}` is no name of a variable", parts.join("."));
        let help = "the schema of all variables is system.session; leave it out";
        return Err(Diagnostic::at(span, message).help(help));
    }
    Ok(Name { text: parts.pop().unwrap_or_default(), span })
}

/// A part of a name, or the parts that `IDENTIFIER('...')` means.
fn part(cursor: &mut Cursor<'_>) -> Result<Vec<String>, Diagnostic> {
    let is_open = cursor.nth(1).is_some_and(|next| next.token == Token::LParen);
    if !cursor.is_word("IDENTIFIER") || !is_open {
        return Ok(vec![cursor.name("the name of a variable")?.text]);
    }
    cursor.at += 2;
    let text = cursor.string("the name of a variable")?;
    cursor.expect(&Token::RParen, "after the name")?;
    literals::parts(&text.text)
        .ok_or_else(|| Diagnostic::at(text.span, "this is no name").help("write it in backticks"))
}

fn check_other<'a>(
    name: &Name,
    mut known: impl Iterator<Item = &'a Name>,
) -> Result<(), Diagnostic> {
    let is_same = |known: &&Name| known.text.to_lowercase() == name.text.to_lowercase();
    let Some(first) = known.find(is_same) else { return Ok(()) };
    let message = format!("DUPLICATE_ASSIGNMENTS: `{}` is there twice", name.text);
    Err(Diagnostic::at(name.span, message).note_at(first.span, "first here").help("leave one out"))
}

fn end(cursor: &Cursor<'_>) -> Result<(), Diagnostic> {
    match cursor.at_end() {
        true => Ok(()),
        false => Err(cursor.unexpected("the end of the statement")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::lexer::Lexed;

    fn read(text: &str) -> Result<Statement, String> {
        let lexed = Lexed::new(text).expect("the text is right");
        let mut cursor = Cursor::new(&lexed, 0, lexed.lexemes.len());
        assert!(begins(&cursor), "{text}");
        statement(&mut cursor).map_err(|wrong| wrong.message)
    }

    fn declared(text: &str) -> (Vec<String>, bool, bool) {
        match read(text) {
            Ok(Statement::Declare { names, data_type, default, .. }) => {
                let names = names.into_iter().map(|name| name.text).collect();
                (names, data_type.is_some(), default.is_some())
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn words_of_a_declaration_may_be_left_out() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(declared("DECLARE a INT"), (names(&["a"]), true, false));
        assert_eq!(declared("DECLARE VARIABLE a, b = 5"), (names(&["a", "b"]), false, true));
        assert_eq!(declared("DECLARE OR REPLACE INT DEFAULT 5.0"), (names(&["INT"]), false, true));
        let whole = "DECLARE VAR system.Session.a MAP<STRING, INT> = map('a', 1)";
        assert_eq!(declared(whole), (names(&["a"]), true, true));
        assert_eq!(declared("DECLARE IDENTIFIER('a') = 1"), (names(&["a"]), false, true));
    }

    #[test]
    fn each_target_has_its_value() {
        let Ok(Statement::Set(set)) = read("SET VAR a = f(1, 2), session.b = DEFAULT") else {
            panic!("it sets two variables");
        };
        let shown = set.iter().map(|(name, given)| (name.text.as_str(), given.clone()));
        let expected = [("a", Given::Value(4..10)), ("b", Given::Default)];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        let row = read("SET VARIABLE (a, b) = (SELECT 1, 2)").expect("it is right");
        assert!(matches!(row, Statement::SetRow { names, query } if names.len() == 2
            && query == (9..13)));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for (text, problem) in [
            ("DECLARE a", "has a type"),
            ("DECLARE a.b INT", "no name of a variable"),
            ("DECLARE VARIABLE IF NOT EXISTS a INT", "the name of a variable"),
            ("DECLARE a, A INT", "twice"),
            ("SET VAR a = 1, A = 2", "twice"),
            ("SET VAR a =", "a value"),
            ("SET VAR () = (SELECT 1)", "the name of a variable"),
            ("SET VAR (a) = SELECT 1", "in parentheses"),
            ("DROP VARIABLE a", "TEMPORARY"),
            ("DROP TEMPORARY VARIABLE a b", "the end of the statement"),
        ] {
            let message = read(text).expect_err("it is wrong");
            assert!(message.contains(problem), "{text}: {message}");
        }
    }

    #[test]
    fn texts_are_run_with_values_and_variables() {
        let text = "EXECUTE IMMEDIATE 'SELECT ' || x INTO a, b USING f(1, 2) AS c, 3";
        let lexed = Lexed::new(text).expect("the text is right");
        let read = immediate(&mut Cursor::new(&lexed, 0, lexed.lexemes.len()));
        let Immediate { text, into, using } = read.expect("it is right");
        assert_eq!((text, into.len()), (2..5, 2));
        let names = using.iter().map(|(value, name)| (value.len(), name.is_some()));
        assert_eq!(names.collect::<Vec<_>>(), [(6, true), (1, false)]);
    }
}
