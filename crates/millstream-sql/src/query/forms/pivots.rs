//! PIVOT and UNPIVOT as SELECTs.
//!
//! `t PIVOT (sum(a) FOR k IN ('x', 'y'))` is computed in two steps, as Spark does: the sums by `k`
//! and all columns that PIVOT does not name, then a column for each value of `k`, which is NULL
//! where there are no rows of it. A value is compared as what it is as a `k` (`__as_key`).
//! `t UNPIVOT (v FOR k IN (a, b))` is a `stack` of the columns.

use std::ops::Range;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::missing;
use super::pivot_literals::check_literal;
use super::pivot_names::{aggregate_name, text_of, text_of_all, value_name};
use super::tokens::{
    Added, are_words, end_of_parenthesis, items, listed, outside, position, starts_step,
};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexeme;

const PIVOT: &str = "the form is PIVOT (sum(a) AS s FOR key IN ('x' AS x, 'y' AS y))";
const UNPIVOT: &str = "the form is UNPIVOT (value FOR name IN (a, b AS other))";

/// How many PIVOTs and UNPIVOTs may follow one another.
const PIVOTS_MAX: usize = 50;
/// How many tokens may be written for one PIVOT: those within it, for each of its aggregates.
const TOKENS_MAX: usize = 100_000;

/// `tokens` with subqueries in place of all relations that PIVOT or UNPIVOT follows.
pub(super) fn all(mut tokens: Vec<Lexeme>) -> Result<Vec<Lexeme>, Diagnostic> {
    let mut count = 0;
    while let Some(at) = position(&tokens, |at| begins(&tokens, at)) {
        count += 1;
        if count > PIVOTS_MAX {
            let message = format!("more than {PIVOTS_MAX} PIVOTs and UNPIVOTs in a row");
            let help = "write some of them in subqueries with names";
            return Err(Diagnostic::at(tokens[at].span, message).help(help));
        }
        let rows: Vec<Range<usize>> = outside(&tokens)
            .take_while(|before| *before < at)
            .filter_map(|before| rows_of_values(&tokens, before))
            .collect();
        let start = outside(&tokens).take_while(|before| *before < at).filter(|before| {
            let is_comma = tokens[*before].token == Token::Comma;
            tokens[*before].is_word("FROM")
                || (is_comma && !rows.iter().any(|rows| rows.contains(before)))
        });
        let start = start.last().map_or(0, |before| before + 1);
        let open = opening(&tokens, at).unwrap_or(at + 1);
        let end = end_of_parenthesis(&tokens, open + 1);
        if start == at || end >= tokens.len() {
            return Err(Diagnostic::at(tokens[at].span, "there is no table before this"));
        }
        let (added, within) = (Added(&tokens[at]), &tokens[open + 1..end]);
        let from = &tokens[start..at];
        let query = if tokens[at].is_word("PIVOT") {
            pivoted(from, within, &added)?
        } else {
            let keeps_nulls = tokens[at + 1].is_word("INCLUDE");
            unpivoted(from, within, keeps_nulls, &added)?
        };
        let subquery = added.nested(query);
        tokens.splice(start..=end, subquery);
    }
    Ok(tokens)
}

/// The rows of an inline table, `VALUES (1, 2), (3, 4)`, that begins at a token.
fn rows_of_values(tokens: &[Lexeme], at: usize) -> Option<Range<usize>> {
    let is = |at: usize, token: &Token| tokens.get(at).is_some_and(|found| found.token == *token);
    if !tokens[at].is_word("VALUES") {
        return None;
    }
    let mut end = at + 1;
    while is(end, &Token::LParen) {
        end = end_of_parenthesis(tokens, end + 1) + 1;
        if !is(end, &Token::Comma) || !is(end + 1, &Token::LParen) {
            break;
        }
        end += 1;
    }
    Some(at..end)
}

/// True at a PIVOT or UNPIVOT that belongs to a FROM clause.
pub(super) fn begins(tokens: &[Lexeme], at: usize) -> bool {
    (tokens[at].is_word("PIVOT") || tokens[at].is_word("UNPIVOT"))
        && opening(tokens, at).is_some()
        && at > 0
        && !starts_step(tokens, at - 1)
}

/// Where the parenthesis opens behind the word.
fn opening(tokens: &[Lexeme], at: usize) -> Option<usize> {
    let is_open = |at: usize| tokens.get(at).is_some_and(|next| next.token == Token::LParen);
    let says_nulls = tokens[at].is_word("UNPIVOT")
        && (are_words(tokens, at + 1, &["INCLUDE", "NULLS"])
            || are_words(tokens, at + 1, &["EXCLUDE", "NULLS"]));
    let open = if says_nulls { at + 3 } else { at + 1 };
    is_open(open).then_some(open)
}

/// What stands before FOR, between FOR and IN, and in the list of IN.
struct Clause<'a> {
    values: &'a [Lexeme],
    key: &'a [Lexeme],
    list: Vec<&'a [Lexeme]>,
}

fn clause<'a>(
    within: &'a [Lexeme],
    added: &Added<'_>,
    form: &str,
) -> Result<Clause<'a>, Diagnostic> {
    let wrong = || Diagnostic::at(added.0.span, "this cannot be read").help(form);
    let of = position(within, |at| within[at].is_word("FOR")).ok_or_else(wrong)?;
    let list = position(within, |at| at > of && within[at].is_word("IN")).ok_or_else(wrong)?;
    let open = within.get(list + 1).is_some_and(|next| next.token == Token::LParen);
    if !open || end_of_parenthesis(within, list + 2) + 1 != within.len() {
        return Err(wrong());
    }
    let found = Clause {
        values: &within[..of],
        key: &within[of + 1..list],
        list: items(&within[list + 2..within.len() - 1]),
    };
    let is_empty = found.values.is_empty() || found.key.is_empty();
    if is_empty || found.list.iter().any(|item| item.is_empty()) { Err(wrong()) } else { Ok(found) }
}

/// An item and its alias.
fn with_alias(item: &[Lexeme]) -> (&[Lexeme], Option<&Lexeme>) {
    match item {
        [value @ .., alias, name] if alias.is_word("AS") && !value.is_empty() => {
            (value, Some(name))
        }
        // A name behind a value or a call.
        [value @ .., name]
            if matches!(name.token, Token::Word(_))
                && value.last().is_some_and(|last| ends_value(last, name)) =>
        {
            (value, Some(name))
        }
        _ => (item, None),
    }
}

fn ends_value(last: &Lexeme, name: &Lexeme) -> bool {
    match last.token {
        // The letter right behind a number says its type.
        Token::Number(..) => last.span.end < name.span.start,
        Token::RParen | Token::SingleQuotedString(_) | Token::Word(_) => true,
        _ => false,
    }
}

/// Tokens of a SELECT being written.
struct Written<'a> {
    added: &'a Added<'a>,
    tokens: Vec<Lexeme>,
}

impl<'a> Written<'a> {
    fn new(added: &'a Added<'a>) -> Self {
        Self { added, tokens: Vec::new() }
    }

    fn words(mut self, words: &str) -> Self {
        self.tokens.extend(words.split(' ').map(|word| match word {
            "*" => self.added.token(Token::Mul),
            "," => self.added.token(Token::Comma),
            "(" => self.added.token(Token::LParen),
            ")" => self.added.token(Token::RParen),
            "<=>" => self.added.token(Token::Spaceship),
            word => self.added.word(word),
        }));
        self
    }

    fn taken(mut self, tokens: &[Lexeme]) -> Self {
        self.tokens.extend(tokens.iter().cloned());
        self
    }

    fn name(mut self, name: &str) -> Self {
        self.tokens.push(self.added.token(Token::make_word(name, Some('`'))));
        self
    }

    fn names(self, names: &[String]) -> Self {
        let mut written = self;
        for (at, name) in names.iter().enumerate() {
            written = if at > 0 { written.words(",") } else { written }.name(name);
        }
        written
    }

    fn text(mut self, text: &str) -> Self {
        self.tokens.push(self.added.token(Token::SingleQuotedString(text.to_owned())));
        self
    }

    fn number(mut self, number: usize) -> Self {
        self.tokens.push(self.added.token(Token::Number(number.to_string(), false)));
        self
    }
}

fn pivoted(
    from: &[Lexeme],
    within: &[Lexeme],
    added: &Added<'_>,
) -> Result<Vec<Lexeme>, Diagnostic> {
    let clause = clause(within, added, PIVOT)?;
    let keys = listed(clause.key);
    check_names(&keys, added, PIVOT)?;
    let sums: Vec<_> = items(clause.values).into_iter().map(with_alias).collect();
    if within.len().saturating_mul(sums.len()) > TOKENS_MAX {
        let message = "PIVOT would make too many columns";
        return Err(Diagnostic::at(added.0.span, message).help("divide it into several queries"));
    }
    let aggregates: Vec<&[Lexeme]> = sums.iter().map(|(sum, _)| *sum).collect();
    missing::check(&aggregates, added.0.span)?;
    let mut named: Vec<String> = Vec::new();
    let key_names = keys.iter().flat_map(|key| columns(key));
    let used = key_names.chain(sums.iter().flat_map(|(sum, _)| columns(sum)));
    for name in used {
        if !named.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            named.push(name);
        }
    }
    let parts: Vec<String> = (0..sums.len()).map(|at| format!("__pivot_{at}")).collect();
    let mut inner = Written::new(added).words("SELECT * EXCEPT (").names(&named).words(")");
    for key in &keys {
        inner = inner.words(",").taken(key);
    }
    for ((sum, _), part) in sums.iter().zip(&parts) {
        inner = inner.words(",").taken(sum).words("AS").name(part);
    }
    let inner = inner.words("FROM").taken(from).words("GROUP BY ALL");
    let hidden: Vec<String> =
        keys.iter().flat_map(|key| columns(key)).chain(parts.iter().cloned()).collect();
    let mut outer = Written::new(added).words("SELECT * EXCEPT (").names(&hidden).words(")");
    for item in &clause.list {
        let (value, alias) = with_alias(item);
        let values = if keys.len() == 1 { vec![value] } else { listed(value) };
        if values.len() != keys.len() {
            let at = value.first().unwrap_or(added.0).span;
            let message = format!("PIVOT has {} columns, and here is another number", keys.len());
            return Err(Diagnostic::at(at, message).help(PIVOT));
        }
        for value in &values {
            check_literal(value, added.0.span)?;
        }
        let label = match alias {
            Some(alias) => text_of(alias),
            None => value_name(value, added.0.span)?,
        };
        for ((sum, alias), part) in sums.iter().zip(&parts) {
            outer = outer.words(", first (").name(part).words(") FILTER ( WHERE");
            for (at, (key, value)) in keys.iter().zip(&values).enumerate() {
                outer = if at > 0 { outer.words("AND") } else { outer };
                outer = outer.words("(").taken(key).words("<=> __as_key (").taken(value);
                outer = outer.words(",").taken(key).words(") )");
            }
            let name = match (sums.len(), alias) {
                (1, _) => label.clone(),
                (_, Some(alias)) => format!("{label}_{}", text_of(alias)),
                (_, None) => format!("{label}_{}", aggregate_name(sum, added.0.span)?),
            };
            outer = outer.words(") AS").name(&name);
        }
    }
    Ok(outer.words("FROM (").taken(&inner.tokens).words(") GROUP BY ALL").tokens)
}

/// Words of an expression that name no column.
const NO_COLUMNS: &[&str] = &[
    "ALL", "AND", "AS", "BETWEEN", "CASE", "DISTINCT", "ELSE", "END", "FALSE", "FILTER", "IN",
    "IS", "LIKE", "NOT", "NULL", "OR", "THEN", "TRUE", "WHEN", "WHERE",
];

/// The columns that an expression names.
fn columns(tokens: &[Lexeme]) -> Vec<String> {
    let is_column = |at: &usize| {
        let next = tokens.get(at + 1).map(|next| &next.token);
        matches!(tokens[*at].token, Token::Word(_))
            && !matches!(next, Some(Token::LParen | Token::Period))
            && !NO_COLUMNS.iter().any(|word| tokens[*at].is_word(word))
    };
    (0..tokens.len()).filter(is_column).map(|at| text_of(&tokens[at])).collect()
}

/// What stands for a column has to be one word.
fn check_names(names: &[&[Lexeme]], added: &Added<'_>, form: &str) -> Result<(), Diagnostic> {
    let is_name = |name: &&[Lexeme]| matches!(name, [Lexeme { token: Token::Word(_), .. }]);
    match names.iter().find(|name| !is_name(name)) {
        None => Ok(()),
        Some(name) => {
            let at = name.first().unwrap_or(added.0).span;
            Err(Diagnostic::at(at, "the name of a column has to stand here").help(form))
        }
    }
}

fn unpivoted(
    from: &[Lexeme],
    within: &[Lexeme],
    keeps_nulls: bool,
    added: &Added<'_>,
) -> Result<Vec<Lexeme>, Diagnostic> {
    let clause = clause(within, added, UNPIVOT)?;
    let values = listed(clause.values);
    check_names(&values, added, UNPIVOT)?;
    check_names(&[clause.key], added, UNPIVOT)?;
    let stacked: Vec<String> = (0..=values.len()).map(|at| format!("__unpivot_{at}")).collect();
    let mut hidden: Vec<String> = Vec::new();
    let mut inner = Written::new(added).words("SELECT * , stack (").number(clause.list.len());
    for item in &clause.list {
        let (list, alias) = with_alias(item);
        let list = listed(list);
        check_names(&list, added, UNPIVOT)?;
        if list.len() != values.len() {
            let message =
                format!("UNPIVOT makes {} columns, and here is another number", values.len());
            return Err(Diagnostic::at(item[0].span, message).help(UNPIVOT));
        }
        let names: Vec<String> = list.iter().map(|one| text_of_all(one)).collect();
        let label = alias.map_or_else(|| names.join("_"), text_of);
        inner = inner.words(",").text(&label);
        for one in list {
            inner = inner.words(",").taken(one);
        }
        for name in names {
            if !hidden.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
                hidden.push(name);
            }
        }
    }
    let inner = inner.words(") AS (").names(&stacked).words(") FROM").taken(from);
    hidden.extend(stacked.iter().cloned());
    let mut outer = Written::new(added).words("SELECT * EXCEPT (").names(&hidden).words(") ,");
    outer = outer.name(&stacked[0]).words("AS").taken(clause.key);
    for (value, stacked) in values.iter().zip(&stacked[1..]) {
        outer = outer.words(",").name(stacked).words("AS").taken(value);
    }
    outer = outer.words("FROM (").taken(&inner.tokens).words(")");
    if !keeps_nulls {
        for (at, stacked) in stacked[1..].iter().enumerate() {
            let before = if at == 0 { "WHERE" } else { "OR" };
            outer = outer.words(before).name(stacked).words("IS NOT NULL");
        }
    }
    Ok(outer.tokens)
}
