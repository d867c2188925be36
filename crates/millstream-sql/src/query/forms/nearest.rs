//! `a JOIN b EXACT NEAREST 3 BY DISTANCE abs(a.x - b.x)`, which joins each row of `a` with the
//! three rows of `b` that have the least value; BY SIMILARITY, the greatest. Rows without a value
//! are not joined, and which of equal ones are is open.
//!
//! It becomes `a JOIN LATERAL (SELECT * FROM b WHERE (value) IS NOT NULL ORDER BY value LIMIT 3) AS
//! b`. APPROX would allow Spark to look at less than all rows; here all are.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::primary::{ends_items, ends_primary};
use super::tokens::{Added, are_words, outside, position, starts_step};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexeme;

/// How many rows can be asked for, as in Spark.
const ROWS_MAX: usize = 100_000;
/// How many such joins a query can have: each is written anew with those before it.
const JOINS_MAX: usize = 100;

/// True at the first word of the clause.
pub(super) fn begins(tokens: &[Lexeme], at: usize) -> bool {
    length(tokens, at).is_some()
}

/// How many tokens come before the value.
fn length(tokens: &[Lexeme], at: usize) -> Option<usize> {
    let is_kind = tokens[at].is_word("APPROX") || tokens[at].is_word("EXACT");
    if !is_kind || !are_words(tokens, at + 1, &["NEAREST"]) {
        return None;
    }
    let has_number =
        tokens.get(at + 2).is_some_and(|number| matches!(number.token, Token::Number(..)));
    let by = at + 2 + usize::from(has_number);
    let is_clause =
        are_words(tokens, by, &["BY", "DISTANCE"]) || are_words(tokens, by, &["BY", "SIMILARITY"]);
    is_clause.then_some(by + 2 - at)
}

/// Makes LATERAL subqueries of such joins.
///
/// # Errors
/// The clause stands behind no join that can have it, or asks for no rows or too many; or there are
/// too many of them.
pub(super) fn as_laterals(mut tokens: Vec<Lexeme>) -> Result<Vec<Lexeme>, Diagnostic> {
    for _ in 0..JOINS_MAX {
        let Some(at) = position(&tokens, |at| begins(&tokens, at)) else { return Ok(tokens) };
        tokens = as_lateral(&tokens, at)?;
    }
    match position(&tokens, |at| begins(&tokens, at)) {
        None => Ok(tokens),
        Some(at) => {
            let message = format!("more than {JOINS_MAX} joins with NEAREST BY in one query");
            let help = "name what the first ones make in a WITH clause";
            Err(Diagnostic::at(tokens[at].span, message).help(help))
        }
    }
}

fn as_lateral(tokens: &[Lexeme], at: usize) -> Result<Vec<Lexeme>, Diagnostic> {
    let (added, value) = (Added(&tokens[at]), at + length(tokens, at).unwrap_or_default());
    let join = outside(&tokens[..at]).filter(|place| tokens[*place].is_word("JOIN")).last();
    let join = join.filter(|join| can_have_it(&tokens[..*join])).ok_or_else(|| {
        let message = "NEAREST BY belongs to an inner JOIN or a LEFT JOIN";
        Diagnostic::at(tokens[at].span, message).help(FORM)
    })?;
    let rows = match &tokens[at + 2].token {
        Token::Number(digits, false) => digits.parse::<usize>().unwrap_or_default(),
        Token::Number(..) => 0,
        _ => 1,
    };
    let end = outside(tokens).find(|place| *place > value && ends_value(tokens, *place));
    let end = end.unwrap_or(tokens.len());
    let table = &tokens[join + 1..at];
    let has_comma = position(table, |at| table[at].token == Token::Comma).is_some();
    // Those between the rows of an inline table belong to it.
    let is_one = table.first().is_some_and(|first| first.is_word("VALUES") || !has_comma);
    if !is_one || value >= end {
        return Err(Diagnostic::at(tokens[at].span, "this NEAREST BY cannot be read").help(FORM));
    }
    if end - value > VALUE_MAX {
        let message = format!("the value of NEAREST BY has more than {VALUE_MAX} tokens");
        return Err(Diagnostic::at(tokens[at].span, message).help("compute it in a subquery"));
    }
    if !(1..=ROWS_MAX).contains(&rows) {
        let message = format!("NEAREST takes a number of rows from 1 to {ROWS_MAX}");
        return Err(Diagnostic::at(tokens[at + 2].span, message));
    }
    let is_greatest = tokens[value - 1].is_word("SIMILARITY");
    let query = query(&added, table, &tokens[value..end], is_greatest, rows);
    let mut plain = tokens[..=join].to_vec();
    plain.push(added.word("LATERAL"));
    plain.extend(added.nested(query));
    if let Some(name) = name_of(table) {
        plain.extend([added.word("AS"), name.clone()]);
    }
    plain.extend(tokens[end..].iter().cloned());
    Ok(plain)
}

/// Tokens of the value, which is written twice.
const VALUE_MAX: usize = 10_000;
const FORM: &str = "the form is a JOIN b EXACT NEAREST 3 BY DISTANCE abs(a.x - b.x)";

/// `SELECT * FROM table WHERE (value) IS NOT NULL ORDER BY (value) LIMIT rows`
fn query(
    added: &Added<'_>,
    table: &[Lexeme],
    value: &[Lexeme],
    is_greatest: bool,
    rows: usize,
) -> Vec<Lexeme> {
    let word = |word: &str| added.word(word);
    let mut query = vec![word("SELECT"), added.token(Token::Mul), word("FROM")];
    query.extend(table.iter().cloned());
    query.push(word("WHERE"));
    query.extend(added.nested(value.to_vec()));
    query.extend([word("IS"), word("NOT"), word("NULL"), word("ORDER"), word("BY")]);
    query.extend(added.nested(value.to_vec()));
    query.extend(is_greatest.then(|| word("DESC")));
    query.extend([word("LIMIT"), added.token(Token::Number(rows.to_string(), false))]);
    query
}

/// Whether the words before JOIN are those of an inner join or a LEFT JOIN.
fn can_have_it(before: &[Lexeme]) -> bool {
    let is = |lexeme: &Lexeme, words: &[&str]| words.iter().any(|word| lexeme.is_word(word));
    match before {
        [.., side, outer] if outer.is_word("OUTER") => side.is_word("LEFT"),
        [.., last] => !is(last, &["RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "NATURAL"]),
        [] => true,
    }
}

/// The name that a relation has in the query: its alias, or the last part of a table's name.
fn name_of(table: &[Lexeme]) -> Option<&Lexeme> {
    let name = |lexeme: &&Lexeme| matches!(lexeme.token, Token::Word(_));
    match table.last()?.token {
        // The columns of an alias, the arguments of a function, or a subquery.
        Token::RParen => {
            let open = outside(table).filter(|at| table[*at].token == Token::LParen).last()?;
            table[..open].last().filter(name).filter(|_| open > 1)
        }
        _ => table.last().filter(name),
    }
}

/// True at what follows the value: another join, clause or query.
fn ends_value(tokens: &[Lexeme], at: usize) -> bool {
    let joins = ["JOIN", "INNER", "CROSS", "NATURAL", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI"];
    let is_call = tokens.get(at + 1).is_some_and(|next| next.token == Token::LParen);
    let is_join = !is_call && joins.iter().any(|word| tokens[at].is_word(word));
    let others = ["LATERAL", "PIVOT", "UNPIVOT", "WATERMARK"];
    is_join
        || tokens[at].token == Token::Comma
        || others.iter().any(|word| tokens[at].is_word(word))
        || ends_items(tokens, at)
        || ends_primary(tokens, at)
        || starts_step(tokens, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::lexer::Lexed;

    fn plain(text: &str) -> Option<String> {
        let tokens = as_laterals(Lexed::new(text).expect("the text has tokens").lexemes).ok()?;
        let words = tokens.iter().map(|lexeme| lexeme.token.to_string());
        Some(words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_join_with_the_nearest_rows_is_lateral() {
        let text = "SELECT * FROM u LEFT JOIN s.p APPROX NEAREST 2 BY SIMILARITY u.a - b WHERE c";
        let wanted = "SELECT * FROM u LEFT JOIN LATERAL ( SELECT * FROM s . p WHERE ( u . a - b ) \
                      IS NOT NULL ORDER BY ( u . a - b ) DESC LIMIT 2 ) AS p WHERE c";
        assert_eq!(plain(text).as_deref(), Some(wanted));
        let text = "SELECT * FROM u JOIN (SELECT 1) AS q(x) EXACT NEAREST BY DISTANCE x, t";
        let wanted = "SELECT * FROM u JOIN LATERAL ( SELECT * FROM ( SELECT 1 ) AS q ( x ) WHERE \
                      ( x ) IS NOT NULL ORDER BY ( x ) LIMIT 1 ) AS q , t";
        assert_eq!(plain(text).as_deref(), Some(wanted));
    }

    #[test]
    fn other_joins_and_numbers_are_refused() {
        let join = |join: &str, rows: &str| {
            plain(&format!("SELECT 1 FROM a {join} b EXACT NEAREST {rows} BY DISTANCE x"))
        };
        assert!(join("INNER JOIN", "1").is_some());
        assert!(join("LEFT OUTER JOIN", "100000").is_some());
        for (kind, rows) in
            [("RIGHT JOIN", "1"), ("FULL OUTER JOIN", "1"), ("JOIN", "0"), ("JOIN", "100001")]
        {
            assert!(join(kind, rows).is_none(), "{kind} {rows}");
        }
        let joins = |count| "JOIN b EXACT NEAREST BY DISTANCE x ".repeat(count);
        assert!(plain(&format!("FROM a {}", joins(JOINS_MAX))).is_some());
        assert!(plain(&format!("FROM a {}", joins(JOINS_MAX + 1))).is_none());
        let other = "SELECT exact nearest FROM t";
        assert_eq!(plain(other).as_deref(), Some(other));
    }
}
