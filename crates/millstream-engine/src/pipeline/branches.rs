//! `FROM ... INSERT INTO a SELECT ... INSERT INTO b SELECT ...`: one reading for several sinks.
//!
//! Each branch is read as the query `SELECT list FROM ... rest`, put together from three places of
//! the file: tokens keep their places, so every message about them points at what was written. This
//! module finds those places, and refuses what cannot be a branch.

use std::ops::Range;

use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_sql::diagnostic::{Diagnostic, Span};
use millstream_sql::query::streams::can_name_a_table;
use millstream_sql::syntax::cursor::{Cursor, Name};
use millstream_sql::syntax::lexer::Lexeme;

use super::declarations::{
    BranchDeclaration, FlowDeclaration, Insert, insert, missing_semicolon, starts_statement,
};

/// The words that end the list of a SELECT without FROM.
const AFTER_FROM: &[&str] = &[
    "WHERE",
    "LATERAL",
    "GROUP",
    "HAVING",
    "WINDOW",
    "QUALIFY",
    "ORDER",
    "SORT",
    "CLUSTER",
    "DISTRIBUTE",
    "LIMIT",
    "OFFSET",
];
/// Those of them that cannot be at the end of the FROM clause itself.
const ONLY_IN_BRANCHES: &[&str] = &["WHERE", "GROUP", "HAVING", "QUALIFY", "ORDER", "LIMIT"];
const SET_OPERATORS: &[&str] = &["UNION", "EXCEPT", "INTERSECT", "MINUS"];

pub(super) const OTHER_STREAM: &str =
    "a branch reads no stream but those of the FROM clause at the head";
pub(super) const OTHER_STREAM_HELP: &str =
    "read the table without STREAM here: it is read as a batch";
const FORM: &str = "the form is FROM STREAM source INSERT INTO sink SELECT ... [INSERT INTO ...]";

/// Reads a flow from its FROM clause on.
pub(super) fn parse(
    mut cursor: Cursor<'_>,
    start: Span,
    name: Option<Name>,
    comment: Option<Name>,
) -> Result<FlowDeclaration, Diagnostic> {
    let head = head(&mut cursor)?;
    let mut branches: Vec<BranchDeclaration> = Vec::new();
    while !cursor.at_end() {
        let branch = branch(&mut cursor, &head)?;
        not_twice(&branches, &branch)?;
        branches.push(branch);
    }
    let span = start.to(cursor.last_span());
    Ok(FlowDeclaration { name, comment, constraints: Vec::new(), branches, span })
}

/// Takes the FROM clause, up to the first INSERT.
fn head(cursor: &mut Cursor<'_>) -> Result<Range<usize>, Diagnostic> {
    let from = cursor.at;
    cursor.eat_words(&["FROM"]);
    let table = cursor.at;
    loop {
        if cursor.is_word("INSERT") && cursor.at > table {
            return Ok(from..cursor.at);
        }
        // An INSERT right behind FROM leaves no table.
        if cursor.at_end() || cursor.is_word("INSERT") {
            let expected = if cursor.at == table { "a table" } else { "INSERT INTO" };
            return Err(cursor.unexpected(expected).help(FORM));
        }
        if is_keyword(cursor, &["SELECT", "VALUES"]) {
            return Err(cursor
                .unexpected("INSERT INTO after the FROM clause")
                .help(format!("{FORM}; without INSERT write SELECT ... FROM ...")));
        }
        if is_keyword(cursor, ONLY_IN_BRANCHES) || is_keyword(cursor, SET_OPERATORS) {
            return Err(not_in_head(cursor));
        }
        if starts_statement(cursor) {
            return Err(missing_semicolon(cursor));
        }
        advance(cursor);
    }
}

fn not_in_head(cursor: &Cursor<'_>) -> Diagnostic {
    let word = cursor.peek().and_then(Lexeme::word).unwrap_or("").to_uppercase();
    let message = format!("{word} cannot follow a FROM clause that several INSERTs share");
    Diagnostic::at(cursor.here(), message).help(format!(
        "write it in each branch, or within the clause: FROM (SELECT ... {word} ...) AS t INSERT ..."
    ))
}

/// Takes one INSERT with its SELECT.
fn branch(cursor: &mut Cursor<'_>, head: &Range<usize>) -> Result<BranchDeclaration, Diagnostic> {
    let start = cursor.here();
    let Insert { sink, by_name, columns } = insert(cursor)?;
    if !cursor.is_word("SELECT") {
        let help = "each branch is one SELECT, without FROM; common table expressions, unions and parentheses belong in the FROM clause at the head";
        return Err(cursor.unexpected("SELECT").help(help));
    }
    let list = cursor.at;
    cursor.advance();
    to_end_of_list(cursor)?;
    let rest = cursor.at;
    list_is_whole(cursor, list)?;
    while !cursor.at_end() && !cursor.is_word("INSERT") {
        within(cursor)?;
        advance(cursor);
    }
    reads_no_stream(cursor, list)?;
    let query = vec![list..rest, head.clone(), rest..cursor.at];
    let span = start.to(cursor.last_span());
    Ok(BranchDeclaration { sink: Some(sink), by_name, columns, query, span })
}

fn to_end_of_list(cursor: &mut Cursor<'_>) -> Result<(), Diagnostic> {
    while !cursor.at_end() && !cursor.is_word("INSERT") && !is_keyword(cursor, AFTER_FROM) {
        within(cursor)?;
        advance(cursor);
    }
    Ok(())
}

fn list_is_whole(cursor: &Cursor<'_>, list: usize) -> Result<(), Diagnostic> {
    let last = &cursor.lexed.lexemes[cursor.at - 1];
    if cursor.at == list + 1 || last.token == Token::Comma {
        return Err(cursor.unexpected("an expression"));
    }
    Ok(())
}

/// Refuses what cannot be part of a branch.
fn within(cursor: &Cursor<'_>) -> Result<(), Diagnostic> {
    if is_keyword(cursor, &["FROM"]) && !is_distinct_from(cursor) {
        return Err(Diagnostic::at(cursor.here(), "a branch has no FROM of its own").help(
            "all branches read the FROM clause at the head; another table is joined there, and \
             another stream read in a flow of its own",
        ));
    }
    if is_keyword(cursor, SET_OPERATORS) {
        let word = cursor.peek().and_then(Lexeme::word).unwrap_or("").to_uppercase();
        return Err(Diagnostic::at(cursor.here(), format!("{word} is not allowed in a branch"))
            .help("each branch is one SELECT; write two branches, or the union at the head"));
    }
    if starts_statement(cursor) {
        return Err(missing_semicolon(cursor));
    }
    Ok(())
}

/// Refuses a stream in a subquery of the branch that begins at token `list`.
fn reads_no_stream(cursor: &Cursor<'_>, list: usize) -> Result<(), Diagnostic> {
    let lexemes = &cursor.lexed.lexemes[list..cursor.at];
    let stream = lexemes.windows(3).find(|tokens| {
        (tokens[0].is_word("FROM") || tokens[0].is_word("JOIN"))
            && tokens[1].is_word("STREAM")
            // `STREAM` alone is a table of that name.
            && (tokens[2].token == Token::LParen || can_name_a_table(&tokens[2]))
    });
    let Some([_, stream, name]) = stream else { return Ok(()) };
    Err(Diagnostic::at(stream.span.to(name.span), OTHER_STREAM).help(OTHER_STREAM_HELP))
}

/// Takes a token, or a parenthesis with all within.
fn advance(cursor: &mut Cursor<'_>) {
    if cursor.is_token(&Token::LParen) {
        cursor.skip_parentheses();
    } else {
        cursor.advance();
    }
}

/// True at one of `words`, unless only a name can be at this place.
fn is_keyword(cursor: &Cursor<'_>, words: &[&str]) -> bool {
    let names = |last: &Lexeme| last.is_word("AS") || last.token == Token::Period;
    // A clause is `WINDOW name AS ...`; `window.start` and `window(...)` are expressions.
    let as_follows = cursor.lexed.lexemes.get(cursor.at + 2).is_some_and(|next| next.is_word("AS"));
    let is_expression = cursor.is_word("WINDOW") && !as_follows;
    words.iter().any(|word| cursor.is_word(word))
        && !is_expression
        && !before(cursor, 1).is_some_and(names)
}

/// True at the FROM of `a IS [NOT] DISTINCT FROM b`.
fn is_distinct_from(cursor: &Cursor<'_>) -> bool {
    let is = |ahead, word| before(cursor, ahead).is_some_and(|lexeme| lexeme.is_word(word));
    is(1, "DISTINCT") && (is(2, "IS") || is(2, "NOT"))
}

fn before<'a>(cursor: &Cursor<'a>, tokens: usize) -> Option<&'a Lexeme> {
    cursor.lexed.lexemes.get(cursor.at.checked_sub(tokens)?)
}

/// Two branches into one table would each take the other's record of progress for their own.
fn not_twice(branches: &[BranchDeclaration], branch: &BranchDeclaration) -> Result<(), Diagnostic> {
    let Some(sink) = &branch.sink else { return Ok(()) };
    let mut sinks = branches.iter().filter_map(|earlier| earlier.sink.as_ref());
    let Some(first) = sinks.find(|first| first.text.eq_ignore_ascii_case(&sink.text)) else {
        return Ok(());
    };
    let message = format!("this flow writes to `{}` twice", sink.text);
    Err(Diagnostic::at(sink.span, message)
        .note_at(first.span, "first here")
        .help("write one branch, with OR between the conditions, or a flow for each"))
}
