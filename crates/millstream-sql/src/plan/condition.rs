//! Conditions on one row that stand in a text by themselves, as in `EXPECT (amount > 0)`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::{ExprWithAlias, Query, SelectItem, SetExpr, Statement};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{blame, logical};
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::functions::random;
use crate::query::prepared::PreparedQuery;
use crate::query::settings::Settings;
use crate::query::{rewrite, streams};
use crate::syntax::lexer::{Lexed, SparkDialect};
use crate::syntax::unreadable::unreadable;
use crate::syntax::{balance, limits, reading};
use crate::types::spark_type;

/// `text` as a condition on rows of `schema`: true or false, never null. Names are looked up
/// without regard to case, and functions are Spark's, as in a query. `what` is what the condition
/// is called.
///
/// # Errors
/// A text that cannot be planned or is none, pointing into it.
pub fn condition(
    state: &SessionState,
    text: &str,
    schema: &DFSchema,
    what: &str,
) -> Result<Expr, Diagnostics> {
    let lexed = Lexed::new(text)?;
    limits::check(&lexed).into_result()?;
    let (Some(first), Some(last)) = (lexed.lexemes.first(), lexed.lexemes.last()) else {
        return Err(Diagnostic::at(Span::new(0, 0), format!("{what} is empty")).into());
    };
    let (tokens, span) = (0..lexed.lexemes.len(), first.span.to(last.span));
    let condition = Condition { lexed: &lexed, tokens, span, what };
    condition.plan(&logical::spark_state(state), schema)
}

/// A condition on one row, as tokens of a text.
pub struct Condition<'a> {
    /// The text.
    pub lexed: &'a Lexed,
    /// The condition's tokens.
    pub tokens: Range<usize>,
    /// Where it stands.
    pub span: Span,
    /// What it is called in messages.
    pub what: &'a str,
}

/// The name under which a condition sees the columns; no query has it.
const ROW: &str = "__row";

impl Condition<'_> {
    /// Whether it holds for a row of `schema`: true or false, never null. `state` is as
    /// [`logical::spark_state`] gives it.
    ///
    /// # Errors
    /// What cannot be planned or is no condition, pointing into the text.
    pub fn plan(&self, state: &SessionState, schema: &DFSchema) -> Result<Expr, Diagnostics> {
        let prepared = self.prepare(schema)?;
        let Statement::Query(wrapped) = &prepared.statement else { unreachable!("it was made so") };
        let expr = the_only(wrapped).expect("the query has one expression").clone();
        let expr = ExprWithAlias { expr, alias: None };
        let blamed = |error: DataFusionError| blame::blame(state, &prepared, &error);
        let expr = state.create_logical_expr_from_sql_expr(expr, schema).map_err(blamed)?;
        let needs_more = expr.exists(|expr| Ok(is_of_several_rows(expr))).unwrap_or(false);
        if needs_more {
            let message = format!("{} is a condition on one row", self.what);
            let help = "leave aggregates, window functions and subqueries out; compute them in \
                        the query";
            return Err(Diagnostic::at(self.span, message).help(help).into());
        }
        random::check_no_seed(&expr).map_err(blamed)?;
        match expr.get_type(schema).map_err(blamed)? {
            DataType::Boolean => Ok(Expr::IsTrue(Box::new(expr))),
            other => {
                let other = spark_type(&other);
                let message = format!("{} is a condition, but this is {other}", self.what);
                Err(Diagnostic::at(self.span, message).help("compare it with something").into())
            }
        }
    }

    /// The condition as a query, `SELECT condition FROM __row`, in DataFusion's words.
    fn prepare(&self, schema: &DFSchema) -> Result<PreparedQuery, Diagnostics> {
        let Self { lexed, tokens, span, .. } = self;
        let tokens = streams::extract(lexed, std::slice::from_ref(tokens))?.tokens;
        let (expr, next) = reading::read(lexed, tokens, span.end, |parser| parser.parse_expr())?;
        if next.token != Token::EOF {
            let at = lexed.span(next.span).unwrap_or(*span);
            let message = format!("the condition ends before `{}`", &lexed.text[at.range()]);
            return Err(Diagnostic::at(at, message).help("is an operator missing?").into());
        }
        let mut query = Parser::new(&SparkDialect::default())
            .try_with_sql(&format!("SELECT 1 FROM {ROW}"))
            .and_then(|mut parser| parser.parse_query())
            .map_err(|error| unreadable(lexed, &error, span.end))?;
        *the_only_mut(&mut query).expect("it has one expression") = expr;
        balance::balance(&mut query);
        let columns = Arc::new(schema.as_arrow().clone());
        let row = HashMap::from([(ROW.to_owned(), columns)]);
        rewrite::rewrite_over(lexed, &mut query, row, false, Settings::default())?;
        Ok(PreparedQuery {
            statement: Statement::Query(query),
            reads: Vec::new(),
            subquery_watermarks: Vec::new(),
            orders: Vec::new(),
            span: *span,
            pieces: vec![*span],
            text: Arc::clone(&lexed.text),
        })
    }
}

fn is_of_several_rows(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::AggregateFunction(_)
            | Expr::WindowFunction(_)
            | Expr::ScalarSubquery(_)
            | Expr::InSubquery(_)
            | Expr::Exists(_)
            | Expr::Unnest(_)
    )
}

fn the_only(query: &Query) -> Option<&datafusion::sql::sqlparser::ast::Expr> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    match &select.projection[..] {
        [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] => Some(expr),
        _ => None,
    }
}

fn the_only_mut(query: &mut Query) -> Option<&mut datafusion::sql::sqlparser::ast::Expr> {
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    match &mut select.projection[..] {
        [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] => Some(expr),
        _ => None,
    }
}
