//! Words outside of parentheses, and tokens that stand for what was not written.

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::syntax::lexer::Lexeme;

/// Words that begin a step, after `|>` or, where nothing else can be meant, after `|`.
const STEPS: &[&str] = &[
    "SELECT",
    "EXTEND",
    "SET",
    "DROP",
    "AS",
    "WHERE",
    "AGGREGATE",
    "ORDER",
    "SORT",
    "CLUSTER",
    "DISTRIBUTE",
    "LIMIT",
    "OFFSET",
    "PIVOT",
    "UNPIVOT",
    "TABLESAMPLE",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "MINUS",
    "JOIN",
    "INNER",
    "LEFT",
    "RIGHT",
    "FULL",
    "CROSS",
    "NATURAL",
    "SEMI",
    "ANTI",
];

/// True for the `|>` or `|` before an operator's word.
pub(super) fn starts_step(tokens: &[Lexeme], at: usize) -> bool {
    match tokens[at].token {
        Token::VerticalBarRightAngleBracket => true,
        // `a | left` could be an operation of bits; a word that two names cannot follow cannot.
        Token::Pipe => tokens.get(at + 1).and_then(Lexeme::word).is_some_and(|word| {
            STEPS.iter().any(|step| step.eq_ignore_ascii_case(word))
                && tokens.get(at + 2).is_some_and(begins_operand)
        }),
        _ => false,
    }
}

fn begins_operand(lexeme: &Lexeme) -> bool {
    match &lexeme.token {
        Token::Word(_) => !["AS", "FROM", "WHERE", "AND", "OR", "IS", "IN", "NOT", "LIKE"]
            .iter()
            .any(|word| lexeme.is_word(word)),
        Token::Number(..) | Token::SingleQuotedString(_) => true,
        _ => false,
    }
}

/// The places of the tokens that no parenthesis of `tokens` encloses; those that open or close one
/// are among them.
pub(super) fn outside(tokens: &[Lexeme]) -> impl Iterator<Item = usize> {
    let mut depth = 0_usize;
    tokens.iter().enumerate().filter_map(move |(at, lexeme)| match lexeme.token {
        Token::LParen => {
            depth += 1;
            (depth == 1).then_some(at)
        }
        Token::RParen => {
            depth = depth.saturating_sub(1);
            (depth == 0).then_some(at)
        }
        _ => (depth == 0).then_some(at),
    })
}

/// Where the parenthesis ends whose first token within is at `from`.
pub(super) fn end_of_parenthesis(tokens: &[Lexeme], from: usize) -> usize {
    let mut depth = 1_usize;
    let rest = tokens[from..].iter();
    let end = rest.enumerate().find(|(_, lexeme)| {
        match lexeme.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.map_or(tokens.len(), |(at, _)| from + at)
}

/// The first place outside of parentheses for which `is` holds.
pub(super) fn position(tokens: &[Lexeme], is: impl Fn(usize) -> bool) -> Option<usize> {
    outside(tokens).find(|at| is(*at))
}

/// The tokens between the commas outside of parentheses.
pub(super) fn items(tokens: &[Lexeme]) -> Vec<&[Lexeme]> {
    let mut items = Vec::new();
    let mut start = 0;
    for at in outside(tokens).filter(|at| tokens[*at].token == Token::Comma) {
        items.push(&tokens[start..at]);
        start = at + 1;
    }
    items.push(&tokens[start..]);
    items
}

/// What is in the parenthesis that an item is, or the item itself.
pub(super) fn listed(item: &[Lexeme]) -> Vec<&[Lexeme]> {
    let is_list = item[0].token == Token::LParen && end_of_parenthesis(item, 1) + 1 == item.len();
    if is_list { items(&item[1..item.len() - 1]) } else { vec![item] }
}

/// True where the words at `at` are these.
pub(super) fn are_words(tokens: &[Lexeme], at: usize, words: &[&str]) -> bool {
    let found = |(ahead, word): (usize, &&str)| {
        tokens.get(at + ahead).is_some_and(|lexeme| lexeme.is_word(word))
    };
    words.iter().enumerate().all(found)
}

/// Tokens that were not written, at the place of one that was.
pub(super) struct Added<'a>(pub(super) &'a Lexeme);

impl Added<'_> {
    pub(super) fn token(&self, token: Token) -> Lexeme {
        Lexeme { token, ..self.0.clone() }
    }

    pub(super) fn word(&self, word: &str) -> Lexeme {
        self.token(Token::make_word(word, None))
    }

    /// Tokens in parentheses.
    pub(super) fn nested(&self, tokens: Vec<Lexeme>) -> Vec<Lexeme> {
        let mut nested = vec![self.token(Token::LParen)];
        nested.extend(tokens);
        nested.push(self.token(Token::RParen));
        nested
    }
}
