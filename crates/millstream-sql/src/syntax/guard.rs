//! Bounds the parsing of one text: by remembering what was parsed at each place, and by a count of
//! steps.
//!
//! See [`super::reading`] for why that is needed. The dialect carries it, since sqlparser asks that
//! before it reads an expression.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::{CastKind, Expr};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{self, Token};

use crate::diagnostic::{Diagnostic, Span};

/// The bounds and results of one parsing.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The number of steps that are left.
    steps: Cell<usize>,
    /// The last token that was reached.
    pub(crate) farthest: Cell<tokenizer::Span>,
    /// The place at which sqlparser itself parses next: the dialect is asked for it again and must
    /// then stand aside.
    passing: Cell<Option<usize>>,
    /// By place, the error of an expression that cannot be parsed there.
    failed: RefCell<HashMap<usize, ParserError>>,
    /// By place, an expression that was parsed within a form that may be given up, and its end.
    read: RefCell<HashMap<usize, (Expr, usize)>>,
    /// How many such forms are being parsed.
    trials: Cell<usize>,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            steps: Cell::new(usize::MAX),
            farthest: Cell::new(tokenizer::Span::empty()),
            passing: Cell::default(),
            failed: RefCell::default(),
            read: RefCell::default(),
            trials: Cell::default(),
        }
    }
}

impl Guard {
    /// A guard of a reading of at most so many steps.
    pub(super) fn new(steps: usize) -> Self {
        Self { steps: Cell::new(steps), ..Self::default() }
    }

    /// Reads the beginning of an expression; `None` leaves it to sqlparser.
    pub(crate) fn parse_prefix(
        &self,
        parser: &mut Parser<'_>,
    ) -> Option<Result<Expr, ParserError>> {
        let at = parser.index();
        if self.passing.take() == Some(at) {
            return None;
        }
        // sqlparser tries several forms at one place, each of which would parse what is nested in
        // it again: without this memory the time doubles with each level.
        if let Some(error) = self.failed.borrow().get(&at) {
            return Some(Err(error.clone()));
        }
        if let Some((expr, end)) = self.read.borrow().get(&at) {
            while parser.index() < *end {
                parser.advance_token();
            }
            return Some(Ok(expr.clone()));
        }
        let token = parser.peek_token_ref();
        if token.span.start > self.farthest.get().start {
            self.farthest.set(token.span);
        }
        let Some(left) = self.steps.get().checked_sub(1) else {
            return Some(Err(ParserError::RecursionLimitExceeded));
        };
        self.steps.set(left);
        let is_trial = may_be_given_up(&parser.peek_token_ref().token);
        self.trials.set(self.trials.get() + usize::from(is_trial));
        let read = certain(parser).unwrap_or_else(|| {
            self.passing.set(Some(at));
            parser.parse_prefix()
        });
        self.trials.set(self.trials.get() - usize::from(is_trial));
        match &read {
            Err(error) => {
                self.failed.borrow_mut().insert(at, error.clone());
            }
            Ok(expr) if self.trials.get() > 0 => {
                self.read.borrow_mut().insert(at, (expr.clone(), parser.index()));
            }
            Ok(_) => {}
        }
        Some(read)
    }

    pub(crate) fn exceeded(&self, at: Span) -> Diagnostic {
        match self.steps.get() {
            0 => Diagnostic::at(at, "this query is too intricate to be read up to here").help(
                "name parts of it in a WITH clause or in CREATE TEMPORARY VIEW name AS SELECT ...",
            ),
            _ => too_deep(at),
        }
    }
}

/// Reads an expression that can be nothing else, so that its error is reported instead of being
/// hidden by a second attempt to read it as a name.
fn certain(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    let Token::Word(word) = &parser.peek_token_ref().token else { return None };
    let (keyword, next) = (word.keyword, &parser.peek_nth_token_ref(1).token);
    let when = matches!(next, Token::Word(word) if word.keyword == Keyword::WHEN);
    let kind = match keyword {
        Keyword::CASE if when => {
            parser.advance_token();
            return Some(parser.parse_case_expr());
        }
        Keyword::CAST if *next == Token::LParen => CastKind::Cast,
        Keyword::TRY_CAST if *next == Token::LParen => CastKind::TryCast,
        _ => return None,
    };
    parser.advance_token();
    Some(parser.parse_cast_expr(kind))
}

/// The error at something that is nested too deeply.
pub(crate) fn too_deep(at: Span) -> Diagnostic {
    Diagnostic::at(at, "this is nested too deeply")
        .help("name inner parts in a WITH clause or in CREATE TEMPORARY VIEW name AS SELECT ...")
}

/// True for words with a form of their own beside that of a call, as `trim(BOTH FROM x)`: sqlparser
/// tries the form first, and may have read much of it when it turns out to be a call.
fn may_be_given_up(token: &Token) -> bool {
    let Token::Word(word) = token else { return false };
    matches!(
        word.keyword,
        Keyword::ARRAY
            | Keyword::CEIL
            | Keyword::CONVERT
            | Keyword::EXISTS
            | Keyword::EXTRACT
            | Keyword::FLOOR
            | Keyword::INTERVAL
            | Keyword::OVERLAY
            | Keyword::POSITION
            | Keyword::STRUCT
            | Keyword::SUBSTR
            | Keyword::SUBSTRING
            | Keyword::TRIM
    )
}
