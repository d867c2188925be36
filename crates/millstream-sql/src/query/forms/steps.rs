//! The operators of pipes: each makes another relation of the one before it.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::primary::{all, end_of_with};
use super::relation::{Relation, Settle};
use super::samples::{self, Sample};
use super::tokens::{Added, are_words, items, outside, position, starts_step};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexeme;

/// Steps of one query; most of them are a subquery around those before them.
const STEPS_MAX: usize = 200;
/// Subqueries of steps within each other: each step writes those before it anew.
const LEVELS_MAX: usize = 64;

/// The SELECT that a query of pipes stands for.
pub(super) fn run(tokens: Vec<Lexeme>) -> Result<Vec<Lexeme>, Diagnostic> {
    let with = end_of_with(&tokens);
    let bars: Vec<usize> = outside(&tokens).filter(|at| starts_step(&tokens, *at)).collect();
    let Some(first) = bars.first().copied().filter(|first| *first > with) else {
        let at = &tokens[bars.first().copied().unwrap_or(0)];
        return Err(Diagnostic::at(at.span, "there is no query before `|>`")
            .help("write FROM t |> ..., TABLE t |> ..., or SELECT ... |> ..."));
    };
    if let Some(bar) = bars.get(STEPS_MAX) {
        let message = format!("more than {STEPS_MAX} steps of one query");
        let help = "name what the first ones make in a WITH clause";
        return Err(Diagnostic::at(tokens[*bar].span, message).help(help));
    }
    check_first(&tokens[with..first])?;
    let mut relation = Relation::first(&tokens[with..first], &Added(&tokens[first]));
    let ends = bars.iter().skip(1).copied().chain([tokens.len()]);
    for (bar, end) in bars.iter().zip(ends) {
        relation = step(relation, &tokens[*bar], &tokens[bar + 1..end])?;
        check_levels(&relation, &tokens[*bar])?;
    }
    let mut query = tokens[..with].to_vec();
    query.extend(relation.all(&Added(&tokens[first])));
    Ok(query)
}

fn check_levels(relation: &Relation, at: &Lexeme) -> Result<(), Diagnostic> {
    if relation.levels <= LEVELS_MAX {
        return Ok(());
    }
    let message = format!("more than {LEVELS_MAX} steps of one query around each other");
    let help = "compute several columns in one step, or name what the first ones make in a WITH \
                clause";
    Err(Diagnostic::at(at.span, message).help(help))
}

/// ORDER BY and LIMIT belong to the end of a query; before a pipe they need parentheses.
fn check_first(tokens: &[Lexeme]) -> Result<(), Diagnostic> {
    let ends = |at: usize| {
        are_words(tokens, at, &["ORDER", "BY"])
            || are_words(tokens, at, &["SORT", "BY"])
            || (at > 0 && tokens[at].is_word("LIMIT"))
    };
    match position(tokens, ends) {
        None => Ok(()),
        Some(at) => {
            let message = "a query with ORDER BY or LIMIT before `|>` needs parentheses";
            Err(Diagnostic::at(tokens[at].span, message)
                .help("write FROM t |> ORDER BY a |> LIMIT 1 |> ..."))
        }
    }
}

fn step(before: Relation, bar: &Lexeme, tokens: &[Lexeme]) -> Result<Relation, Diagnostic> {
    let Some(operator) = tokens.first() else {
        return Err(Diagnostic::at(bar.span, "there is no operator behind `|>`").help(OPERATORS));
    };
    let (added, rest) = (Added(operator), &tokens[1..]);
    let word = operator.word().unwrap_or_default().to_ascii_uppercase();
    Ok(match word.as_str() {
        "SELECT" => before.settled(Settle::Order, &added).replaced(rest.to_vec(), false, &added),
        "EXTEND" => {
            let mut all = vec![added.token(Token::Mul), added.token(Token::Comma)];
            all.extend(rest.iter().cloned());
            before.settled(Settle::Order, &added).replaced(all, true, &added)
        }
        "SET" => return set(before, &added, rest),
        "DROP" => {
            let mut all = vec![added.token(Token::Mul), added.word("EXCEPT")];
            all.extend(added.nested(rest.to_vec()));
            before.settled(Settle::Order, &added).replaced(all, true, &added)
        }
        "AS" => match rest {
            [name] if matches!(name.token, Token::Word(_)) => before.renamed(name.clone(), &added),
            _ => return Err(wrong(operator, "the form is |> AS name")),
        },
        "WHERE" => before.settled(Settle::Limit, &added).filtered(rest),
        "AGGREGATE" => return aggregate(before, &added, rest),
        "ORDER" if position(rest, |at| limits(rest, at)).is_some() => {
            return Err(wrong(operator, "write |> ORDER BY a |> LIMIT 1"));
        }
        "ORDER" => ordered(before, &added, tokens),
        "LIMIT" | "OFFSET" => before.settled(Settle::Limit, &added).limited(tokens),
        // These say where rows are computed, and in Spark no more than that.
        "DISTRIBUTE" if rest.len() > 1 => {
            before.settled(Settle::Order, &added).filtered(&computed(&added, &rest[1..]))
        }
        "SORT" | "CLUSTER" | "DISTRIBUTE" => before.settled(Settle::Order, &added),
        "UNION" | "EXCEPT" | "INTERSECT" | "MINUS" => set_operation(&before, &added, tokens),
        "PIVOT" | "UNPIVOT" | "JOIN" | "INNER" | "LEFT" | "RIGHT" | "FULL" | "CROSS"
        | "NATURAL" | "SEMI" | "ANTI" => return before.followed_by(tokens, &added),
        "TABLESAMPLE" => match samples::read(tokens, 0) {
            Some((Sample::All, end)) if end == tokens.len() => before,
            Some((Sample::First(count), end)) if end == tokens.len() => {
                let limit = [added.word("LIMIT"), count.clone()];
                before.settled(Settle::Limit, &added).limited(&limit)
            }
            _ => {
                let message = "this TABLESAMPLE is not supported";
                return Err(Diagnostic::at(operator.span, message).help(samples::HELP));
            }
        },
        _ => {
            let found = operator.token.to_string();
            let message = format!("expected an operator behind `|>`, found `{found}`");
            return Err(Diagnostic::at(operator.span, message).help(OPERATORS));
        }
    })
}

const OPERATORS: &str = "the operators are SELECT, EXTEND, SET, DROP, AS, WHERE, AGGREGATE, JOIN, \
                         ORDER BY, LIMIT, OFFSET, PIVOT, UNPIVOT, UNION, INTERSECT and EXCEPT";

/// `ORDER BY x ORDER BY y`, of which the last one belongs to the query itself.
fn ordered(before: Relation, added: &Added<'_>, tokens: &[Lexeme]) -> Relation {
    let again = position(tokens, |at| at > 0 && are_words(tokens, at, &["ORDER", "BY"]));
    let (first, last) = tokens.split_at(again.unwrap_or(tokens.len()));
    let ordered = before.settled(Settle::Order, added).ordered(first);
    if last.is_empty() {
        return ordered;
    }
    ordered.settled(Settle::Order, added).ordered(last)
}

/// A condition that is always true, of expressions that have to have values.
fn computed(added: &Added<'_>, expressions: &[Lexeme]) -> Vec<Lexeme> {
    let mut condition = Vec::new();
    for expression in items(expressions) {
        condition.extend(added.nested(expression.to_vec()));
        condition.extend(["IS", "NULL", "OR"].map(|word| added.word(word)));
    }
    condition.push(added.word("TRUE"));
    condition
}

fn limits(tokens: &[Lexeme], at: usize) -> bool {
    tokens[at].is_word("LIMIT") || tokens[at].is_word("OFFSET")
}

fn wrong(at: &Lexeme, form: &str) -> Diagnostic {
    Diagnostic::at(at.span, "this step cannot be read").help(form)
}

/// `SET a = x, b = y`: each assignment sees what those before it made.
fn set(
    mut before: Relation,
    added: &Added<'_>,
    assignments: &[Lexeme],
) -> Result<Relation, Diagnostic> {
    let assignments = items(assignments);
    if assignments.len() > STEPS_MAX {
        return Err(wrong(added.0, "write columns with many values as |> SELECT"));
    }
    for assignment in assignments {
        let [name, equals, value @ ..] = assignment else {
            return Err(wrong(added.0, "the form is |> SET column = expression, ..."));
        };
        let is_name = matches!(name.token, Token::Word(_)) && equals.token == Token::Eq;
        if !is_name || value.is_empty() {
            return Err(wrong(name, "the form is |> SET column = expression, ..."));
        }
        let mut replacement = added.nested(value.to_vec());
        replacement.extend([added.word("AS"), name.clone()]);
        let mut all = vec![added.token(Token::Mul), added.word("REPLACE")];
        all.extend(added.nested(replacement));
        before = before.settled(Settle::Order, added).replaced(all, true, added);
        check_levels(&before, name)?;
    }
    Ok(before)
}

/// `AGGREGATE sums GROUP BY keys`: the keys are columns of the result, before the sums.
fn aggregate(
    before: Relation,
    added: &Added<'_>,
    tokens: &[Lexeme],
) -> Result<Relation, Diagnostic> {
    let group = position(tokens, |at| are_words(tokens, at, &["GROUP", "BY"]));
    let (sums, keys) = match group {
        Some(at) => (&tokens[..at], items(&tokens[at + 2..])),
        None => (tokens, Vec::new()),
    };
    let sums = if sums.is_empty() { Vec::new() } else { items(sums) };
    let names = before.column_names();
    let keys = keys.into_iter().map(|key| named_key(key, names.as_deref()));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let keys: Vec<&[Lexeme]> = keys.iter().map(Vec::as_slice).collect();
    check_sums(&sums, added)?;
    let mut selected = Vec::new();
    for item in keys.iter().chain(&sums) {
        if !selected.is_empty() {
            selected.push(added.token(Token::Comma));
        }
        selected.extend(item.iter().cloned());
    }
    if keys.is_empty() {
        // Without keys all columns have to be aggregates, which HAVING asks for.
        selected.extend([added.word("HAVING"), added.word("TRUE")]);
    } else {
        selected.extend([added.word("GROUP"), added.word("BY")]);
        for (at, key) in keys.iter().enumerate() {
            if at > 0 {
                selected.push(added.token(Token::Comma));
            }
            let named = position(key, |at| key[at].is_word("AS")).unwrap_or(key.len());
            selected.extend(key[..named].iter().cloned());
        }
    }
    Ok(before.settled(Settle::Order, added).replaced(selected, false, added))
}

/// A number among the keys is the place of a column of the input, which may not be known here.
fn named_key(key: &[Lexeme], names: Option<&[&Lexeme]>) -> Result<Vec<Lexeme>, Diagnostic> {
    let [place @ Lexeme { token: Token::Number(digits, _), .. }] = key else {
        return Ok(key.to_vec());
    };
    let number = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let name = number.and_then(|at| names?.get(at).copied());
    let name = name.ok_or_else(|| {
        Diagnostic::at(place.span, "a key of AGGREGATE has to have a name here")
            .help("write the column's name instead of its place")
    })?;
    Ok(vec![Added(place).token(name.token.clone())])
}

fn check_sums(sums: &[&[Lexeme]], added: &Added<'_>) -> Result<(), Diagnostic> {
    let calls = |sum: &&[Lexeme]| sum.iter().any(|lexeme| lexeme.token == Token::LParen);
    match sums.iter().find(|sum| !calls(sum)) {
        Some(sum) => {
            let at = sum.first().unwrap_or(added.0);
            let message = "each expression of AGGREGATE has to call an aggregate function";
            Err(Diagnostic::at(at.span, message)
                .help("a key stands behind GROUP BY, and only there"))
        }
        None => Ok(()),
    }
}

/// `UNION ALL query` and the like.
fn set_operation(before: &Relation, added: &Added<'_>, tokens: &[Lexeme]) -> Relation {
    let mut query = added.nested(before.all(added));
    let quantified =
        tokens.get(1).is_some_and(|next| next.is_word("ALL") || next.is_word("DISTINCT"));
    let (operator, right) = tokens.split_at(1 + usize::from(quantified));
    query.extend(operator.iter().cloned());
    query.extend(all(right.to_vec()));
    Relation::combined(query, before, added)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::lexer::Lexed;

    fn is_read(text: &str) -> bool {
        let lexed = Lexed::new(text).expect("the text has tokens");
        run(lexed.lexemes).is_ok()
    }

    #[test]
    fn assignments_of_all_steps_are_counted() {
        let assignments = |count| vec!["a = 1"; count].join(", ");
        let steps = |count| format!("FROM t |> SET {0} |> SET {0}", assignments(count));
        assert!(is_read(&steps(LEVELS_MAX / 2)));
        assert!(!is_read(&steps(LEVELS_MAX / 2 + 1)));
    }
}
