//! What the steps of a pipe have made so far: a SELECT whose clauses are still apart, so that a
//! step sees the tables before it by their names for as long as Spark does.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::{Added, are_words, end_of_parenthesis, position};
use super::{column_names, pivots, primary};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexeme;

pub(super) struct Relation {
    /// What stands behind FROM.
    base: Vec<Lexeme>,
    /// Its name, where it is one table or subquery.
    alias: Option<Lexeme>,
    /// True where a name can be put behind `base`.
    is_one: bool,
    /// How many subqueries of steps are within each other in `base`.
    pub(super) levels: usize,
    conditions: Vec<Vec<Lexeme>>,
    order: Vec<Lexeme>,
    limit: Vec<Lexeme>,
}

impl Relation {
    fn of(base: Vec<Lexeme>, alias: Option<Lexeme>, is_one: bool) -> Self {
        let (conditions, order, limit) = (Vec::new(), Vec::new(), Vec::new());
        Self { base, alias, is_one, levels: 0, conditions, order, limit }
    }

    /// A subquery around what has so many levels.
    fn around(self, levels: usize) -> Self {
        Self { levels: levels + 1, ..self }
    }

    /// A subquery.
    pub(super) fn subquery(query: Vec<Lexeme>, added: &Added<'_>) -> Self {
        Self::of(added.nested(query), None, true)
    }

    /// What a pipe begins with.
    pub(super) fn first(tokens: &[Lexeme], added: &Added<'_>) -> Self {
        let first = &tokens[0];
        let has_select = position(tokens, |at| tokens[at].is_word("SELECT")).is_some();
        let is_set_operation =
            position(tokens, |at| at > 0 && primary::ends_primary(tokens, at)).is_some();
        let is_table = first.is_word("TABLE") && primary::is_table(tokens, 0);
        let is_from = first.is_word("FROM") && !has_select && tokens.len() > 1;
        if (is_table || is_from) && !is_set_operation {
            return Self::named(&tokens[1..]);
        }
        if first.is_word("VALUES") && !is_set_operation {
            return Self::of(tokens.to_vec(), None, false);
        }
        if first.token == Token::LParen && end_of_parenthesis(tokens, 1) + 1 == tokens.len() {
            return Self::of(tokens.to_vec(), None, true);
        }
        Self::subquery(primary::all(tokens.to_vec()), added)
    }

    /// `t`, `db.t`, `t AS u`, or anything else that follows FROM.
    fn named(tokens: &[Lexeme]) -> Self {
        let is_name = |lexeme: &Lexeme| matches!(lexeme.token, Token::Word(_));
        let parts = tokens.iter().enumerate();
        let dotted = parts.take_while(|(at, lexeme)| match at % 2 {
            0 => is_name(lexeme) && !lexeme.is_word("STREAM"),
            _ => lexeme.token == Token::Period,
        });
        let length = dotted.count();
        let (name, rest) = tokens.split_at(length);
        let rest = if are_words(rest, 0, &["AS"]) { &rest[1..] } else { rest };
        match rest {
            [] if length % 2 == 1 => {
                // A name that is not written again is the last part.
                let last = name[length - 1].clone();
                Self::of(name.to_vec(), None, true).known_as(last)
            }
            [alias] if length % 2 == 1 && is_name(alias) => {
                Self::of(name.to_vec(), Some(alias.clone()), true)
            }
            _ => Self::of(tokens.to_vec(), None, false),
        }
    }

    fn known_as(mut self, name: Lexeme) -> Self {
        self.alias = Some(name);
        self
    }

    /// The names of its columns, where the text has all of them.
    pub(super) fn column_names(&self) -> Option<Vec<&Lexeme>> {
        column_names::of(&self.base)
    }

    fn is_table(&self) -> bool {
        matches!(self.base.first().map(|first| &first.token), Some(Token::Word(_)))
    }

    /// What stands behind FROM, with its name.
    pub(super) fn from(&self, added: &Added<'_>) -> Vec<Lexeme> {
        let mut from = self.base.clone();
        let is_last = |alias: &Lexeme| {
            self.is_table() && from.last().is_some_and(|last| last.span == alias.span)
        };
        if let Some(alias) = self.alias.as_ref().filter(|alias| !is_last(alias)) {
            from.extend([added.word("AS"), alias.clone()]);
        }
        from
    }

    /// The query `before` and what follows it there, as a subquery.
    pub(super) fn combined(query: Vec<Lexeme>, before: &Self, added: &Added<'_>) -> Self {
        Self::subquery(query, added).around(before.levels)
    }

    /// The query of these items, with all that is pending.
    pub(super) fn query(&self, items: Vec<Lexeme>, added: &Added<'_>) -> Vec<Lexeme> {
        let mut select = vec![added.word("SELECT")];
        select.extend(items);
        let mut query = primary::with_from(&select, &self.clause(added));
        query.extend(self.order.iter().cloned());
        query.extend(self.limit.iter().cloned());
        query
    }

    /// `FROM ... WHERE ...`
    fn clause(&self, added: &Added<'_>) -> Vec<Lexeme> {
        let mut clause = vec![added.word("FROM")];
        clause.extend(self.from(added));
        for (at, condition) in self.conditions.iter().enumerate() {
            clause.push(added.word(if at == 0 { "WHERE" } else { "AND" }));
            clause.extend(added.nested(condition.clone()));
        }
        clause
    }

    /// All columns.
    pub(super) fn all(&self, added: &Added<'_>) -> Vec<Lexeme> {
        self.query(vec![added.token(Token::Mul)], added)
    }

    /// As a subquery, if something is pending that must come before the next step.
    pub(super) fn settled(self, settle: Settle, added: &Added<'_>) -> Self {
        let pending = match settle {
            Settle::Limit => !self.limit.is_empty(),
            Settle::Order => !self.limit.is_empty() || !self.order.is_empty(),
            Settle::All => {
                let order = !self.limit.is_empty() || !self.order.is_empty();
                order || !self.conditions.is_empty()
            }
        };
        if pending { self.wrapped(added) } else { self }
    }

    fn wrapped(mut self, added: &Added<'_>) -> Self {
        if !self.order.is_empty() && self.limit.is_empty() {
            // An order without a limit would be dropped from a subquery.
            let none = Token::Number("0".into(), false);
            self.limit = vec![added.word("OFFSET"), added.token(none)];
        }
        let alias = self.alias.take_if(|_| self.is_one);
        let levels = self.levels;
        let query = {
            let named = Self { alias: alias.clone(), ..self };
            named.all(added)
        };
        let mut wrapped = Self::subquery(query, added).around(levels);
        wrapped.alias = alias;
        wrapped
    }

    /// The result of a query of this relation, which keeps its name where `keeps` says so.
    pub(super) fn replaced(self, items: Vec<Lexeme>, keeps: bool, added: &Added<'_>) -> Self {
        let query = self.query(items, added);
        let mut replaced = Self::subquery(query, added).around(self.levels);
        replaced.alias = self.alias.filter(|_| keeps && self.is_one);
        replaced
    }

    pub(super) fn filtered(mut self, condition: &[Lexeme]) -> Self {
        self.conditions.push(condition.to_vec());
        self
    }

    pub(super) fn ordered(mut self, order: &[Lexeme]) -> Self {
        self.order = order.to_vec();
        self
    }

    pub(super) fn limited(mut self, limit: &[Lexeme]) -> Self {
        self.limit = limit.to_vec();
        self
    }

    /// Under another name.
    pub(super) fn renamed(self, name: Lexeme, added: &Added<'_>) -> Self {
        let mut renamed = self.settled(Settle::All, added);
        if !renamed.is_one {
            renamed = renamed.wrapped(added);
        }
        renamed.known_as(name)
    }

    /// With tokens behind it that belong to FROM: a join, PIVOT or UNPIVOT.
    pub(super) fn followed_by(
        self,
        tokens: &[Lexeme],
        added: &Added<'_>,
    ) -> Result<Self, Diagnostic> {
        let settled = self.settled(Settle::All, added);
        let mut from = settled.from(added);
        from.extend(tokens.iter().cloned());
        Ok(Self { levels: settled.levels, ..Self::of(pivots::all(from)?, None, false) })
    }
}

/// What a step cannot be merged with.
#[derive(Clone, Copy)]
pub(super) enum Settle {
    /// A LIMIT or OFFSET.
    Limit,
    /// That, and an ORDER BY.
    Order,
    /// That, and conditions.
    All,
}
