//! `EXECUTE IMMEDIATE`: a statement that is a text, with values for its markers; and `DESCRIBE`,
//! whose query is made here.
//!
//! What the text around it declares is written in front of it, so that it sees the same views and
//! functions, beside the session's tables and variables.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_sql::diagnostic::Span;
use millstream_sql::query::prepare::is_plain;
use millstream_sql::query::variables::declare::Immediate;
use millstream_sql::query::variables::known::Variable;
use millstream_sql::query::variables::markers::{Filled, Given, fill};
use millstream_sql::syntax::lexer::Lexed;
use millstream_sql::syntax::limits;
use millstream_sql::types::field_type;

use super::variables::{moved, span_of, wrong};
use super::{PlannedQuery, QuerySession};
use crate::error::QueryError;
use crate::setting_statements::Change;
use crate::statements::{Statements, Step};

impl QuerySession {
    /// The columns of what `DESCRIBE` names in a text: `query` reads it, and the statement is at
    /// `span`.
    ///
    /// # Errors
    /// There is no such table, or it cannot be read.
    pub async fn describe(
        &self,
        text: &Statements,
        query: &str,
        span: Span,
    ) -> Result<SchemaRef, QueryError> {
        let at = text.lexed.lexemes.partition_point(|lexeme| lexeme.span.start < span.start);
        let declared = text.declared_before(at);
        let read = Statements::parse(&format!("{declared}{query}"));
        let read = read.map_err(|found| moved(found.into(), span))?;
        let [Step::Query(tokens)] = read.steps.as_slice() else {
            return Err(wrong(span, "this names no table", "write DESCRIBE name"));
        };
        let planned = self.plan(&read, tokens).await.map_err(|error| moved(error, span))?;
        Ok(planned.schema())
    }

    /// Runs the statement that a text is. The query is given where it has rows to show.
    ///
    /// # Errors
    /// What is wrong with the statement, or with the text.
    pub async fn execute(
        &mut self,
        text: &Statements,
        statement: &Immediate,
    ) -> Result<Option<PlannedQuery>, QueryError> {
        let span = span_of(text, &statement.text);
        for tokens in statement.using.iter().map(|(tokens, _)| tokens).chain([&statement.text]) {
            if !is_plain(&text.lexed, tokens)? {
                let message = "UNSUPPORTED_EXPR_FOR_PARAMETER: there is a query or an aggregate in \
                               this value";
                let help = "put it into a variable: SET VAR name = (SELECT ...)";
                return Err(wrong(span_of(text, tokens), message, help));
            }
        }
        let written = self.value(text, &statement.text).await?;
        let words = Variable {
            name: String::new(),
            field: Arc::clone(&written.field),
            value: written.value,
            is_marker: false,
        };
        let Some(words) = words.text() else {
            let message = format!(
                "INVALID_EXPR_TYPE_FOR_QUERY_EXECUTE_IMMEDIATE: a statement is a STRING that is \
                 not NULL, and this is {}",
                field_type(&written.field)
            );
            return Err(wrong(span, message, "write EXECUTE IMMEDIATE 'SELECT ...'"));
        };
        let mut given = Vec::with_capacity(statement.using.len());
        for (tokens, name) in &statement.using {
            let value = self.value(text, tokens).await?;
            let name = name.as_ref().map(|name| name.text.clone());
            given.push(Given { name, field: value.field, value: value.value });
        }
        let checked = limits::check_length(words);
        checked.map_err(|found| moved(QueryError::Sql(found.into()), span))?;
        let lexed =
            Lexed::new(words).map_err(|found| moved(QueryError::Sql(found.into()), span))?;
        let filled = fill(&lexed, &given);
        let filled = filled.map_err(|found| moved(QueryError::Sql(found.into()), span))?;
        if self.meanings(text, statement.text.start).has_any_other() {
            let message = "a view or a function that the statement sees was made when the \
                           session's time zone or ANSI mode was another one";
            return Err(wrong(span, message, "make it again behind SET"));
        }
        let declared = text.declared_before(statement.text.start);
        let done = self.run_filled(filled, &declared, statement, span).await;
        done.map_err(|error| moved(error, span))
    }

    async fn run_filled(
        &mut self,
        filled: Filled,
        declared: &str,
        statement: &Immediate,
        span: Span,
    ) -> Result<Option<PlannedQuery>, QueryError> {
        let inner = Statements::parse(&format!("{declared}{}", filled.text))?;
        inner.check_writes_nothing()?;
        if !inner.declarations().trim().is_empty() {
            let message = "EXECUTE IMMEDIATE declares no tables";
            return Err(wrong(span, message, "write CREATE TABLE by itself"));
        }
        let [step] = inner.steps.as_slice() else {
            let message = "EXECUTE IMMEDIATE runs one statement";
            return Err(wrong(span, message, "write one query, or one SET VAR"));
        };
        let outer = std::mem::replace(&mut self.variables.markers, filled.variables);
        let done = self.run_step(&inner, step, statement, span).await;
        self.variables.markers = outer;
        done
    }

    async fn run_step(
        &mut self,
        inner: &Statements,
        step: &Step,
        statement: &Immediate,
        span: Span,
    ) -> Result<Option<PlannedQuery>, QueryError> {
        if let Step::Query(query) = step {
            let planned = self.plan(inner, query).await?;
            if statement.into.is_empty() {
                return Ok(Some(planned));
            }
            self.put_into(&statement.into, &planned, span).await?;
            return Ok(None);
        }
        if !statement.into.is_empty() {
            let message = "INVALID_STATEMENT_FOR_EXECUTE_INTO: INTO takes the row of a query";
            return Err(wrong(span, message, "leave INTO out, or write a query"));
        }
        match step {
            Step::Variable(statement) => self.change(inner, statement).await?,
            Step::Setting(change) if change.zone().is_some() => {
                let message = "EXECUTE IMMEDIATE sets no time zone";
                return Err(wrong(span, message, "write SET TIME ZONE by itself"));
            }
            Step::Setting(change) if change.ansi().is_some() => {
                let message = "EXECUTE IMMEDIATE does not change ANSI mode";
                return Err(wrong(span, message, "write SET spark.sql.ansi.enabled by itself"));
            }
            Step::Setting(change) if !matches!(change, Change::Show(_)) => {
                self.apply(change)?;
            }
            _ => {
                let message = "EXECUTE IMMEDIATE runs a query, SET, or a statement about variables";
                return Err(wrong(span, message, "write the statement by itself"));
            }
        }
        Ok(None)
    }
}
