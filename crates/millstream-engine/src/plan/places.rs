//! Where an expression of a plan stands in the pipeline file.
//!
//! Planning leaves no places behind: expressions are rewritten, merged and lowered. So the
//! query's tokens are searched for what the expression does and for the columns and constants that
//! it is made of. Of several places that do the same, the one that names most of them is taken.

use std::ops::Range;
use std::sync::Arc;

use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_sql::diagnostic::Span;
use millstream_sql::lines::LineIndex;
use millstream_sql::syntax::lexer::{Lexed, Lexeme};
use millstream_sql::types::{parse_type_ddl, spark_type};

use crate::pipeline::Branch;
use crate::plan::row_error::{Culprit, InSql, Operation, shortened};

/// The longest part of the SQL that is shown.
const PART_CHARACTERS: usize = 100;

/// The parts of a pipeline file that a plan was made of.
#[derive(Debug)]
pub struct SqlText {
    text: Arc<str>,
    pieces: Vec<Span>,
}

impl SqlText {
    /// The text of a branch's query and of its constraints.
    pub fn of(branch: &Branch) -> Self {
        let mut pieces = branch.query.pieces.clone();
        pieces.extend(branch.condition_spans());
        Self { text: branch.query.text.clone(), pieces }
    }

    /// Where `culprit` stands; in a view if not in the query itself.
    pub fn place_of(&self, culprit: &Culprit) -> Option<InSql> {
        let lexed = Lexed::new(&self.text).ok()?;
        let views = views(&lexed);
        let found = self.find(&lexed, &self.pieces, culprit, false);
        let found = found.or_else(|| self.find(&lexed, &views, culprit, false));
        let span = found.or_else(|| self.find(&lexed, &self.pieces, culprit, true))?;
        let lines = LineIndex::new(&self.text);
        Some(InSql {
            at: Some(lines.line_and_column(&self.text, span.start)),
            text: shortened(&self.text[span.range()], PART_CHARACTERS),
        })
    }

    fn find(
        &self,
        lexed: &Lexed,
        pieces: &[Span],
        culprit: &Culprit,
        by_name: bool,
    ) -> Option<Span> {
        let mut best: Option<(usize, Span)> = None;
        for piece in pieces {
            let within = within(&lexed.lexemes, *piece);
            let lexemes = &lexed.lexemes[within];
            for at in 0..lexemes.len() {
                let part = if by_name {
                    named(lexemes, at, &culprit.leaves)
                } else {
                    part(lexemes, at, &culprit.operation)
                };
                let Some(part) = part else { continue };
                let own = &lexemes[part.clone()];
                let is_there = |leaf: &&String| own.iter().any(|lexeme| is_leaf(lexeme, leaf));
                let score = culprit.leaves.iter().filter(is_there).count();
                if best.is_none_or(|(most, _)| score > most)
                    && let (Some(first), Some(last)) = (own.first(), own.last())
                {
                    best = Some((score, first.span.to(last.span)));
                }
            }
        }
        best.map(|(_, span)| span)
    }
}

fn within(lexemes: &[Lexeme], piece: Span) -> Range<usize> {
    let first = lexemes.partition_point(|lexeme| lexeme.span.start < piece.start);
    let last = lexemes.partition_point(|lexeme| lexeme.span.end <= piece.end);
    first..last.max(first)
}

/// The queries of all views.
fn views(lexed: &Lexed) -> Vec<Span> {
    let statements = lexed.lexemes.split(|lexeme| lexeme.token == Token::SemiColon);
    let views = statements.filter(|statement| {
        let head = statement.iter().take(5);
        statement.first().is_some_and(|first| first.is_word("CREATE"))
            && head.into_iter().any(|lexeme| lexeme.is_word("VIEW"))
    });
    views.filter_map(|view| Some(view.first()?.span.to(view.last()?.span))).collect()
}

/// The tokens of what begins at `at`, or has its operator there, if it does what is looked for.
fn part(lexemes: &[Lexeme], at: usize, operation: &Operation) -> Option<Range<usize>> {
    match operation {
        Operation::Cast(wanted) => cast(lexemes, at, wanted),
        Operation::Call(name) => {
            let end = call(lexemes, at)?;
            lexemes[at].is_word(name).then_some(at..end)
        }
        Operation::Operator(symbol) => {
            let text = lexemes[at].token.to_string();
            let is_it =
                text.eq_ignore_ascii_case(symbol) || (symbol == "/" && lexemes[at].is_word("DIV"));
            is_it.then(|| before(lexemes, at)..after(lexemes, at + 1))
        }
        Operation::Other => None,
    }
}

/// The end of the call whose name stands at `at`.
fn call(lexemes: &[Lexeme], at: usize) -> Option<usize> {
    let opens = lexemes.get(at + 1).is_some_and(|next| next.token == Token::LParen);
    (opens && lexemes[at].word().is_some()).then(|| closing(lexemes, at + 1) + 1)
}

/// `CAST(x AS type)`, `x::type` or `type(x)`.
fn cast(lexemes: &[Lexeme], at: usize, wanted: &str) -> Option<Range<usize>> {
    let is_wanted = |type_tokens: &[Lexeme]| {
        let text: String = type_tokens.iter().map(|lexeme| lexeme.token.to_string()).collect();
        text.eq_ignore_ascii_case(wanted)
            || text.eq_ignore_ascii_case(&wanted.replace(' ', ""))
            || parse_type_ddl(&text).is_ok_and(|found| spark_type(&found) == wanted)
    };
    if lexemes[at].token == Token::DoubleColon {
        let end = after(lexemes, at + 1);
        return is_wanted(&lexemes[at + 1..end]).then(|| before(lexemes, at)..end);
    }
    let end = call(lexemes, at)?;
    if lexemes[at].is_word("CAST") {
        let type_tokens = lexemes[at..end].iter().rposition(|lexeme| lexeme.is_word("AS"))?;
        return is_wanted(&lexemes[at + type_tokens + 1..end - 1]).then_some(at..end);
    }
    is_wanted(&lexemes[at..=at]).then_some(at..end)
}

/// A column that is named, where what happens to it stands nowhere: it is fitted to a column of the
/// sink, or to what it is compared with.
fn named(lexemes: &[Lexeme], at: usize, leaves: &[String]) -> Option<Range<usize>> {
    let is_word = matches!(lexemes[at].token, Token::Word(_));
    let is_it = is_word && leaves.iter().any(|leaf| is_leaf(&lexemes[at], leaf));
    is_it.then(|| before(lexemes, at + 1)..after(lexemes, at))
}

fn is_leaf(lexeme: &Lexeme, leaf: &str) -> bool {
    match &lexeme.token {
        Token::Word(word) => word.value.eq_ignore_ascii_case(leaf),
        Token::SingleQuotedString(text) => text == leaf,
        Token::Number(number, _) => number == leaf,
        _ => false,
    }
}

/// The place of the parenthesis that closes the one at `open`, or the last one there is.
fn closing(lexemes: &[Lexeme], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, lexeme) in lexemes.iter().enumerate().skip(open) {
        match lexeme.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    lexemes.len() - 1
}

/// Where the operand that ends before `at` begins.
fn before(lexemes: &[Lexeme], at: usize) -> usize {
    let mut first = at;
    let (mut depth, mut is_complete) = (0_usize, false);
    while first > 0 {
        let previous = &lexemes[first - 1].token;
        match previous {
            Token::RParen | Token::RBracket if depth > 0 || !is_complete => depth += 1,
            Token::LParen | Token::LBracket if depth > 0 => {
                depth -= 1;
                is_complete = depth == 0
                    && *previous == Token::LParen
                    && !{
                        let name = first.checked_sub(2).map(|name| &lexemes[name]);
                        name.is_some_and(|name| matches!(name.token, Token::Word(_)))
                    };
            }
            _ if depth > 0 => {}
            Token::Period => is_complete = false,
            Token::Word(_) | Token::Number(..) | Token::SingleQuotedString(_) if !is_complete => {
                is_complete = true;
            }
            _ => break,
        }
        first -= 1;
    }
    first
}

/// The end of the operand that begins at `at`.
fn after(lexemes: &[Lexeme], at: usize) -> usize {
    let mut end = at;
    if lexemes.get(end).is_some_and(|first| matches!(first.token, Token::Minus | Token::Plus)) {
        end += 1;
    }
    if lexemes.get(end).is_some_and(|first| first.token == Token::LParen) {
        return closing(lexemes, end) + 1;
    }
    end = (end + 1).min(lexemes.len());
    while let Some(next) = lexemes.get(end) {
        match next.token {
            Token::Period => end = (end + 2).min(lexemes.len()),
            Token::LParen | Token::LBracket => end = closing(lexemes, end) + 1,
            _ => break,
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(query: &str, operation: Operation, leaves: &[&str]) -> String {
        let piece = Span::new(0, query.len());
        let sql = SqlText { text: query.into(), pieces: vec![piece] };
        let leaves = leaves.iter().map(|leaf| (*leaf).to_owned()).collect();
        let text = String::new();
        let place = sql.place_of(&Culprit { operation, leaves, values: Vec::new(), text });
        place.map_or("nowhere".to_owned(), |place| {
            let (line, column) = place.at.unwrap();
            format!("{line}:{column} {}", place.text)
        })
    }

    #[test]
    fn an_expression_is_found_by_what_it_does_and_names() {
        let query = "SELECT CAST(a AS INT) + 1,\n  CAST(trim(b) AS INT) AS x, t.c / (d - 1), e::DATE,\n\
                     element_at(split(f, ','), 3), int(g), -h % 2 FROM t WHERE b > 3";
        let cast = |to: &str| Operation::Cast(to.to_owned());
        let call = |name: &str| Operation::Call(name.to_owned());
        let operator = |symbol: &str| Operation::Operator(symbol.to_owned());
        for (operation, leaves, wanted) in [
            (cast("INT"), &["b"][..], "2:3 CAST(trim(b) AS INT)"),
            (cast("INT"), &["a"], "1:8 CAST(a AS INT)"),
            (cast("DATE"), &["e"], "2:45 e::DATE"),
            (cast("INT"), &["g"], "3:31 int(g)"),
            (operator("/"), &["c", "d"], "2:30 t.c / (d - 1)"),
            (operator("%"), &["h", "2"], "3:40 h % 2"),
            (call("element_at"), &["f"], "3:1 element_at(split(f, ','), 3)"),
            (operator(">"), &["b", "3"], "3:59 b > 3"),
            (cast("BIGINT"), &["f"], "3:18 f"),
            (call("nothing"), &["z"], "nowhere"),
        ] {
            assert_eq!(found(query, operation, leaves), wanted, "{leaves:?}");
        }
    }

    #[test]
    fn an_expression_of_a_view_is_found_there() {
        let text = "CREATE TEMP VIEW v AS SELECT CAST(a AS INT) AS n FROM t;\nSELECT n FROM v";
        let pieces = vec![Span::new(text.find("SELECT n").unwrap(), text.len())];
        let sql = SqlText { text: text.into(), pieces };
        let culprit = Culprit {
            operation: Operation::Cast("INT".to_owned()),
            leaves: vec!["a".to_owned()],
            values: Vec::new(),
            text: String::new(),
        };
        assert_eq!(sql.place_of(&culprit).unwrap().at, Some((1, 30)));
    }
}
