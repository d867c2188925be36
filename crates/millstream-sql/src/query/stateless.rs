//! What a query over a stream cannot do without state, found before anything is planned.
//!
//! A query is a stream where it reads one, directly or through subqueries and common table
//! expressions. The refusals are Spark's, plus those for operators whose state does not exist
//! here yet. The same query without STREAM is free to do anything.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, JoinOperator, ObjectName, ObjectNamePart, Query, Select, SetExpr, SetOperator,
    Spanned, TableFactor, TableWithJoins, Value, Visit, Visitor,
};

use super::laterals::has_lateral;
use super::prepared::{ReadMode, STREAM_PREFIX, TableRead};
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::query::streams::WITHIN_WATERMARK;
use crate::syntax::lexer::Lexed;

const WITHOUT_STREAM: &str = "without STREAM the same query runs as a batch query";

const COMPLETE: &str = "set outputMode to 'complete', which sorts all groups of an aggregation \
                        each time; or leave STREAM out: the same query runs as a batch query";

/// Refuses what needs state over a stream. Gives ORDER BY and LIMIT over a stream, which are
/// refused unless the output mode is `complete`.
pub(crate) fn check(
    lexed: &Lexed,
    query: &Query,
    reads: &[TableRead],
) -> Result<Vec<Diagnostic>, Diagnostics> {
    let mut check = Check {
        lexed,
        reads,
        ctes: Vec::new(),
        known: Vec::new(),
        orders: Vec::new(),
        found: Diagnostics::default(),
    };
    let _: ControlFlow<()> = query.visit(&mut check);
    check.found.into_result().map(|()| check.orders)
}

/// The name of a common table expression, the stream it reads, and whether it has been read.
struct Cte {
    name: String,
    stream: Option<String>,
    read: bool,
}

struct Check<'a> {
    lexed: &'a Lexed,
    reads: &'a [TableRead],
    ctes: Vec<Cte>,
    /// How many names were visible before each query that is being visited.
    known: Vec<usize>,
    orders: Vec<Diagnostic>,
    found: Diagnostics,
}

impl Visitor for Check<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.known.push(self.ctes.len());
        self.enter(query);
        self.set_expression(&query.body);
        if self.stream_of_body(&query.body).is_some() {
            self.order_and_limit(query);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        let known = self.known.pop().unwrap_or(0);
        self.ctes.truncate(known);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for table in &select.from {
            self.joins(table);
        }
        if select.from.iter().any(|table| self.stream_of_tables(table).is_some()) {
            self.select(select);
            if has_lateral(&select.from) {
                self.lateral(self.span_of(select));
            }
        } else if is_within_watermark(select) {
            let message = "WITHIN WATERMARK is for streams: over a batch DISTINCT ON (...) is all";
            let at = self.after_select(select);
            self.push(at, message.to_owned(), "leave it out, or read FROM STREAM");
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let Some(name) = one_part(relation) else { return ControlFlow::Continue(()) };
        let span = relation.0.first().and_then(|part| self.lexed.span(part.span()));
        let cte = self.ctes.iter_mut().rev().find(|cte| cte.name.eq_ignore_ascii_case(name));
        if let Some(Cte { stream: Some(table), read, name }) = cte
            // Each read of a stream is a source with offsets of its own; a common table expression
            // that is read twice would read one source twice.
            && std::mem::replace(read, true)
        {
            let message = format!("`{name}` reads a stream and can be used only once");
            let help = format!("write FROM STREAM {table} in each place");
            let diagnostic = Diagnostic::nowhere(message).help(help);
            self.found.0.push(Diagnostic { span, ..diagnostic });
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let (subquery, what) = match expr {
            Expr::Exists { subquery, .. } => (subquery, "EXISTS (...)"),
            Expr::InSubquery { subquery, .. } => (subquery, "IN (SELECT ...)"),
            Expr::Subquery(subquery) => (subquery, "a subquery as a value"),
            _ => return ControlFlow::Continue(()),
        };
        if let Some(table) = self.stream_of_query(subquery) {
            let at = self.read_span(&table).or_else(|| self.lexed.span(expr.span()));
            let message = format!("{what} over a stream is not supported");
            let help = format!("read `{table}` without STREAM here: it is read as a batch");
            self.push(at, message, help);
        }
        ControlFlow::Continue(())
    }
}

impl Check<'_> {
    fn push(&mut self, at: Option<Span>, message: String, help: impl Into<String>) {
        let diagnostic = Diagnostic::nowhere(message).help(help);
        self.found.0.push(Diagnostic { span: at, ..diagnostic });
    }

    fn needs_state(&mut self, at: Option<Span>, what: &str) {
        let message = format!("{what} over a stream is not supported");
        self.push(at, message, WITHOUT_STREAM);
    }

    /// Where the query reads the stream `table`.
    fn read_span(&self, table: &str) -> Option<Span> {
        self.reads.iter().find(|read| read.table == table && is_stream(read)).map(|read| read.span)
    }

    /// The last bare word `word` before the byte `before`, from `from` on.
    fn word_before(&self, word: &str, before: Option<Span>) -> Option<Span> {
        let before = before?;
        let earlier = self.lexed.lexemes.iter().rev();
        let mut earlier = earlier.filter(|lexeme| lexeme.span.start < before.start);
        let found = earlier.find(|lexeme| lexeme.is_word(word)).map(|lexeme| lexeme.span);
        found.or(Some(before))
    }

    /// The first bare word `word` within a span.
    fn word_within(&self, word: &str, within: Option<Span>) -> Option<Span> {
        let within = within?;
        let lexemes = self.lexed.lexemes.iter();
        let mut lexemes = lexemes
            .filter(|lexeme| lexeme.span.start >= within.start && lexeme.span.end <= within.end);
        lexemes.find(|lexeme| lexeme.is_word(word)).map(|lexeme| lexeme.span)
    }

    /// Refuses LATERAL of the block at `select`; NEAREST BY has become one by now.
    fn lateral(&mut self, select: Option<Span>) {
        let lateral = self.word_within("LATERAL", select);
        let nearest = self.word_within("NEAREST", select).filter(|_| lateral.is_none());
        match nearest {
            Some(at) => self.needs_state(Some(at), "NEAREST BY"),
            None => self.needs_state(lateral.or(select), "LATERAL"),
        }
    }

    fn span_of(&self, node: &impl Spanned) -> Option<Span> {
        self.lexed.span(node.span())
    }

    /// The word after SELECT: DISTINCT.
    fn after_select(&self, select: &Select) -> Option<Span> {
        let select = self.lexed.span(select.select_token.0.span)?;
        let next = self.lexed.lexemes.iter().find(|lexeme| lexeme.span.start >= select.end);
        next.map(|lexeme| lexeme.span)
    }

    fn select(&mut self, select: &Select) {
        let mut calls = Calls { calls: Vec::new(), depth: 0 };
        let _: ControlFlow<()> = select.projection.visit(&mut calls);
        let _: ControlFlow<()> = select.having.visit(&mut calls);
        let _: ControlFlow<()> = select.qualify.visit(&mut calls);
        for call in calls.calls {
            let at = self.lexed.span(call.span);
            self.needs_state(at, &format!("`{}` OVER a window", call.name));
        }
        let ordered = [
            ("SORT BY", select.sort_by.first().and_then(|first| self.span_of(first))),
            ("CLUSTER BY", select.cluster_by.first().and_then(|first| self.span_of(first))),
            ("DISTRIBUTE BY", select.distribute_by.first().and_then(|first| self.span_of(first))),
        ];
        for (what, at) in ordered.into_iter().filter(|(_, at)| at.is_some()) {
            self.push(at, format!("{what} has no meaning over a stream"), WITHOUT_STREAM);
        }
    }

    fn order_and_limit(&mut self, query: &Query) {
        if let Some(order_by) = &query.order_by {
            let at = self.word_before("ORDER", self.span_of(order_by));
            let message =
                "ORDER BY over a stream would have to wait for its end, which never comes";
            self.order(at, message.to_owned());
        }
        if let Some(limit) = &query.limit_clause {
            let at = self.word_before("LIMIT", self.span_of(limit));
            self.order(at, "LIMIT over a stream is not supported".to_owned());
        }
        if let Some(fetch) = &query.fetch {
            let at = fetch.quantity.as_ref().and_then(|quantity| self.span_of(quantity));
            let at = self.word_before("FETCH", at);
            self.order(at, "FETCH over a stream is not supported".to_owned());
        }
    }

    fn order(&mut self, at: Option<Span>, message: String) {
        let diagnostic = Diagnostic::nowhere(message).help(COMPLETE);
        self.orders.push(Diagnostic { span: at, ..diagnostic });
    }

    /// Set operations: only UNION ALL of streams needs no state.
    fn set_expression(&mut self, body: &SetExpr) {
        let SetExpr::SetOperation { left, op, right, .. } = body else { return };
        self.set_expression(left);
        self.set_expression(right);
        let (left_stream, right_stream) = (self.stream_of_body(left), self.stream_of_body(right));
        if left_stream.is_none() && right_stream.is_none() {
            return;
        }
        let at = self.word_before(&op.to_string(), self.span_of(right.as_ref()));
        if *op != SetOperator::Union {
            return self.needs_state(at, &op.to_string());
        }
        if let (Some(stream), None) | (None, Some(stream)) = (left_stream, right_stream) {
            let help = format!("read both as streams, or `{stream}` without STREAM as well");
            self.push(at, "UNION ALL of a stream and a batch is not supported".into(), help);
        }
    }

    fn joins(&mut self, tables: &TableWithJoins) {
        let mut left = self.stream_of_factor(&tables.relation);
        for join in &tables.joins {
            let right = self.stream_of_factor(&join.relation);
            match (&left, &right) {
                (Some(stream), None) | (None, Some(stream)) => {
                    let stream_is_left = left.is_some();
                    self.outer_join(&join.join_operator, stream_is_left, stream.clone());
                }
                _ => {}
            }
            left = left.or(right);
        }
    }

    /// The stream must be the side whose rows are kept: a row of the batch side that has no partner
    /// yet may still get one.
    fn outer_join(&mut self, join: &JoinOperator, stream_is_left: bool, stream: String) {
        let what = match (join, stream_is_left) {
            (JoinOperator::FullOuter(_), _) => "FULL OUTER JOIN",
            (JoinOperator::Right(_) | JoinOperator::RightOuter(_), true) => "RIGHT OUTER JOIN",
            (JoinOperator::Left(_) | JoinOperator::LeftOuter(_), false) => "LEFT OUTER JOIN",
            (JoinOperator::RightAnti(_), true) => "RIGHT ANTI JOIN",
            (JoinOperator::Anti(_) | JoinOperator::LeftAnti(_), false) => "LEFT ANTI JOIN",
            (JoinOperator::RightSemi(_), true) => "RIGHT SEMI JOIN",
            (JoinOperator::Semi(_) | JoinOperator::LeftSemi(_), false) => "LEFT SEMI JOIN",
            _ => return,
        };
        let at = self.read_span(&stream);
        let message = format!(
            "{what} would keep rows of the batch table that have no partner in `{stream}`, \
             but a stream may always bring one"
        );
        let help = "keep the stream's rows: stream LEFT JOIN table; or use an inner JOIN";
        self.push(at, message, help);
    }

    /// Makes a query's common table expressions visible.
    fn enter(&mut self, query: &Query) {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            let stream = self.stream_of_query(&cte.query);
            let name = cte.alias.name.value.clone();
            self.ctes.push(Cte { name, stream, read: false });
        }
    }

    fn stream_of_query(&mut self, query: &Query) -> Option<String> {
        let known = self.ctes.len();
        self.enter(query);
        let stream = self.stream_of_body(&query.body);
        self.ctes.truncate(known);
        stream
    }

    fn stream_of_body(&mut self, body: &SetExpr) -> Option<String> {
        match body {
            SetExpr::Select(select) => {
                select.from.iter().find_map(|table| self.stream_of_tables(table))
            }
            SetExpr::Query(query) => self.stream_of_query(query),
            SetExpr::SetOperation { left, right, .. } => {
                self.stream_of_body(left).or_else(|| self.stream_of_body(right))
            }
            _ => None,
        }
    }

    fn stream_of_tables(&mut self, tables: &TableWithJoins) -> Option<String> {
        let first = self.stream_of_factor(&tables.relation);
        first.or_else(|| tables.joins.iter().find_map(|join| self.stream_of_factor(&join.relation)))
    }

    fn stream_of_factor(&mut self, factor: &TableFactor) -> Option<String> {
        match factor {
            TableFactor::Table { name, .. } => {
                let name = one_part(name)?;
                if name.starts_with(STREAM_PREFIX) {
                    let read = self.reads.iter().find(|read| read.registered_as == name)?;
                    return Some(read.table.clone());
                }
                let cte = self.ctes.iter().rev().find(|cte| cte.name.eq_ignore_ascii_case(name));
                cte.and_then(|cte| cte.stream.clone())
            }
            TableFactor::Derived { subquery, .. } => self.stream_of_query(subquery),
            TableFactor::NestedJoin { table_with_joins, .. } => {
                self.stream_of_tables(table_with_joins)
            }
            TableFactor::Pivot { table, .. } | TableFactor::Unpivot { table, .. } => {
                self.stream_of_factor(table)
            }
            _ => None,
        }
    }
}

fn is_stream(read: &TableRead) -> bool {
    read.mode == ReadMode::Stream
}

fn one_part(name: &ObjectName) -> Option<&str> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Some(&ident.value),
        _ => None,
    }
}

struct Call {
    name: String,
    span: datafusion::sql::sqlparser::tokenizer::Span,
}

/// Finds calls of window functions, except those within subqueries.
struct Calls {
    calls: Vec<Call>,
    depth: usize,
}

impl Visitor for Calls {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Function(function) = expr
            && let Some(name) = one_part(&function.name)
            && function.over.is_some()
        {
            let (name, span) = (name.to_lowercase(), function.name.0[0].span());
            self.calls.push(Call { name, span });
        }
        ControlFlow::Continue(())
    }
}

/// Whether the keys of DISTINCT ON are kept for the time of the watermark.
fn is_within_watermark(select: &Select) -> bool {
    let Some(Distinct::On(keys)) = &select.distinct else { return false };
    keys.iter().any(|key| match key {
        Expr::Value(value) => value.value == Value::SingleQuotedString(WITHIN_WATERMARK.to_owned()),
        _ => false,
    })
}
