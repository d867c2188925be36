//! Which parentheses hold a query, told from the tokens alone.

use std::collections::HashSet;
use std::ops::Range;

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::syntax::lexer::{Lexed, Lexeme};

/// The parentheses that hold a query, by the token that opens them.
pub(super) struct Brackets {
    queries: HashSet<usize>,
}

impl Brackets {
    /// Those of `ranges`.
    pub(super) fn of(lexed: &Lexed, ranges: &[Range<usize>]) -> Self {
        let (mut open, mut queries) = (Vec::new(), HashSet::new());
        for at in ranges.iter().cloned().flatten() {
            match lexed.lexemes[at].token {
                Token::LParen => open.push((at, starts_query(&lexed.lexemes, at))),
                Token::RParen => {
                    let Some((start, is_query)) = open.pop() else { continue };
                    if !is_query {
                        continue;
                    }
                    queries.insert(start);
                    // `((SELECT ...) UNION ...)` and `((SELECT ...))` are queries, too.
                    if let Some((outer, outer_is_query)) = open.last_mut()
                        && *outer + 1 == start
                    {
                        *outer_is_query = goes_on_a_query(lexed.lexemes.get(at + 1));
                    }
                }
                _ => {}
            }
        }
        // What is not closed is refused at its end; until then it is read like any other query.
        queries.extend(open.iter().filter(|(_, is_query)| *is_query).map(|(start, _)| start));
        Self { queries }
    }

    /// Whether the token at `open` opens such a pair.
    pub(super) fn is_query(&self, open: usize) -> bool {
        self.queries.contains(&open)
    }
}

fn starts_query(lexemes: &[Lexeme], open: usize) -> bool {
    let next = lexemes.get(open + 1);
    ["SELECT", "WITH", "VALUES"].iter().any(|word| next.is_some_and(|next| next.is_word(word)))
}

fn goes_on_a_query(next: Option<&Lexeme>) -> bool {
    const WORDS: &[&str] = &["UNION", "EXCEPT", "INTERSECT", "MINUS", "ORDER", "LIMIT", "OFFSET"];
    next.is_some_and(|next| {
        next.token == Token::RParen || WORDS.iter().any(|word| next.is_word(word))
    })
}
