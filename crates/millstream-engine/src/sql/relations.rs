//! Which tables a query reads, and how.
//!
//! Every read of a stream becomes a relation of its own name (`__stream_logs`), under which the
//! caller registers the source; a table that is read as a batch keeps its name. The name as
//! written stays as the alias, so that columns are qualified as the query says. Views are put in
//! as subqueries.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Query, Spanned, TableAlias, TableFactor, VisitMut,
    VisitorMut, With,
};

use crate::connector::ReadMode;

use super::diagnostic::{Diagnostic, Diagnostics, Span};
use super::lexer::Lexed;
use super::nearest::suggest;
use super::prepare::{self, SubqueryWatermark, TableCatalog, TableRead};
use super::streams::Mark;

/// Starts the names of relations that are streams.
pub(crate) const STREAM_PREFIX: &str = "__stream_";

/// Finds the tables that `query` reads and renames them.
pub(super) fn resolve(
    lexed: &Lexed,
    query: &mut Query,
    marks: HashMap<usize, Mark>,
    subqueries: &mut Vec<SubqueryWatermark>,
    catalog: &dyn TableCatalog,
) -> Result<Vec<TableRead>, Diagnostics> {
    let mut resolver = Resolver {
        lexed,
        catalog,
        marks,
        subqueries,
        ctes: Vec::new(),
        taken: Vec::new(),
        views: Vec::new(),
        reads: Vec::new(),
        found: Diagnostics::default(),
    };
    let _: ControlFlow<()> = VisitMut::visit(query, &mut resolver);
    resolver.found.into_result()?;
    Ok(resolver.reads)
}

struct Resolver<'a> {
    lexed: &'a Lexed,
    catalog: &'a dyn TableCatalog,
    marks: HashMap<usize, Mark>,
    /// Where those of views are added.
    subqueries: &'a mut Vec<SubqueryWatermark>,
    /// Names of the common table expressions in sight, innermost last.
    ctes: Vec<String>,
    /// WITH clauses taken out of the queries being visited, and how many names were in sight.
    taken: Vec<(Option<With>, usize)>,
    /// Views being put in, outermost first.
    views: Vec<Range<usize>>,
    reads: Vec<TableRead>,
    found: Diagnostics,
}

impl VisitorMut for Resolver<'_> {
    type Break = ();

    /// Visits the WITH clause first: each of its queries sees only those before it.
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let known = self.ctes.len();
        let mut with = query.with.take();
        for cte in with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            VisitMut::visit(&mut cte.query, self)?;
            self.ctes.push(cte.alias.name.value.clone());
        }
        self.taken.push((with, known));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some((with, known)) = self.taken.pop() {
            query.with = with;
            self.ctes.truncate(known);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = expr
            && let Expr::Subquery(_) = &**right
        {
            let message = "comparing with ANY, SOME or ALL of a query's rows is not supported";
            let diagnostic = Diagnostic::nowhere(message);
            let diagnostic = Diagnostic { span: self.lexed.span(expr.span()), ..diagnostic };
            let help = "compare with its min or max, or write IN, EXISTS or NOT EXISTS";
            self.found.0.push(diagnostic.help(help));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, sample: Some(_), .. } = factor {
            let diagnostic = Diagnostic::at(self.span_of(name), "TABLESAMPLE is not supported");
            let help = "leave it out; WHERE says which rows are wanted";
            self.found.0.push(diagnostic.help(help));
        }
        if let TableFactor::Table { name, alias, args: None, .. } = factor
            && let Err(diagnostic) = self.table(name, alias)
        {
            self.found.0.push(diagnostic);
        }
        if let Some(view) = self.view_of(factor) {
            // The view's query is visited here, to know when it ends. That it is visited once more
            // as a part of this one changes nothing: its tables have been renamed.
            if let Err(diagnostic) = self.view(factor, view) {
                self.found.0.push(diagnostic);
            }
            if !self.found.0.is_empty() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

impl Resolver<'_> {
    fn span_of(&self, name: &ObjectName) -> Span {
        let parts = name.0.iter().filter_map(ObjectNamePart::as_ident);
        let spans = parts.filter_map(|part| self.lexed.span(part.span));
        spans.reduce(Span::to).unwrap_or(Span::new(0, 0))
    }

    fn is_resolved(name: &str) -> bool {
        name.starts_with(STREAM_PREFIX)
    }

    fn table(
        &mut self,
        name: &mut ObjectName,
        alias: &mut Option<TableAlias>,
    ) -> Result<(), Diagnostic> {
        let span = self.span_of(name);
        let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else {
            return Err(Diagnostic::at(span, "tables of a pipeline file have one-part names"));
        };
        let written = ident.clone();
        if Self::is_resolved(&written.value) {
            return Ok(());
        }
        let mark = self.marks.get(&span.start).cloned();
        let stream = mark.as_ref().and_then(|mark| mark.stream);
        let cte = self.ctes.iter().rev().find(|cte| cte.eq_ignore_ascii_case(&written.value));
        if let Some(cte) = cte.cloned() {
            if let Some(at) = stream {
                return Err(not_a_table(at, &cte, "common table expression"));
            }
            keep_as(name, alias, &written, cte);
            return Ok(());
        }
        let Some(declared) = self.catalog.table(&written.value) else {
            return match (self.catalog.view(&written.value), stream) {
                (Some(_), Some(at)) => Err(not_a_table(at, &written.value, "view")),
                (Some(_), None) => Ok(()),
                (None, _) => Err(self.unknown(&written.value, span)),
            };
        };
        let mode = if stream.is_some() { ReadMode::Stream } else { ReadMode::Batch };
        let span = stream.unwrap_or(span);
        let watermark = mark.and_then(|mark| mark.watermark);
        let registered_as = self.read(declared, mode, span, watermark)?;
        keep_as(name, alias, &written, registered_as);
        Ok(())
    }

    /// Notes a read and gives the name its provider is registered as.
    fn read(
        &mut self,
        table: String,
        mode: ReadMode,
        span: Span,
        watermark: Option<prepare::Watermark>,
    ) -> Result<String, Diagnostic> {
        let of_table = |read: &&TableRead| read.table == table && read.mode == mode;
        let before = self.reads.iter().filter(of_table).count();
        let registered_as = match (mode, before) {
            (ReadMode::Batch, _) => table.clone(),
            (ReadMode::Stream, 0) => format!("{STREAM_PREFIX}{table}"),
            (ReadMode::Stream, _) => format!("{STREAM_PREFIX}{table}__{}", before + 1),
        };
        if before > 0 && mode == ReadMode::Batch && watermark.is_none() {
            return Ok(registered_as);
        }
        let schema = self.catalog.schema(&table, mode, span)?;
        let read = TableRead {
            table,
            mode,
            registered_as: registered_as.clone(),
            schema,
            span,
            watermark,
        };
        self.reads.push(read);
        Ok(registered_as)
    }

    fn unknown(&self, name: &str, span: Span) -> Diagnostic {
        let mut names = self.catalog.names();
        names.extend(self.ctes.iter().cloned());
        let diagnostic = Diagnostic::at(span, format!("there is no table `{name}`"));
        if names.is_empty() {
            return diagnostic.help("declare it: CREATE TABLE name (...) USING connector ...");
        }
        diagnostic.help(suggest(name, "declared tables", names.iter().map(String::as_str)))
    }

    fn view_of(&self, factor: &TableFactor) -> Option<Range<usize>> {
        let TableFactor::Table { name, args: None, .. } = factor else { return None };
        let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else { return None };
        let cte = self.ctes.iter().any(|cte| cte.eq_ignore_ascii_case(&ident.value));
        if cte || Self::is_resolved(&ident.value) || self.catalog.table(&ident.value).is_some() {
            return None;
        }
        self.catalog.view(&ident.value)
    }

    /// Puts a view's query in the place of its name.
    fn view(&mut self, factor: &mut TableFactor, view: Range<usize>) -> Result<(), Diagnostic> {
        let TableFactor::Table { name, alias, .. } = factor else { return Ok(()) };
        let span = self.span_of(name);
        if self.views.contains(&view) {
            return Err(Diagnostic::at(span, "this view reads itself"));
        }
        let (mut query, marks, subqueries) =
            prepare::parse(self.lexed, std::slice::from_ref(&view))?;
        self.marks.extend(marks);
        self.subqueries.extend(subqueries);
        let alias = alias
            .take()
            .or_else(|| name.0.last().and_then(ObjectNamePart::as_ident).cloned().map(plain_alias));
        // A view sees the tables of the file, not the names of the query that reads it.
        let ctes = std::mem::take(&mut self.ctes);
        self.views.push(view);
        let _: ControlFlow<()> = VisitMut::visit(&mut query, self);
        self.views.pop();
        self.ctes = ctes;
        let subquery = Box::new(query);
        *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        Ok(())
    }
}

fn not_a_table(at: Span, name: &str, what: &str) -> Diagnostic {
    Diagnostic::at(at, format!("STREAM is for tables, and `{name}` is a {what}"))
        .help(format!("write STREAM inside the {what}: SELECT ... FROM STREAM table"))
}

/// Renames a relation; the written name stays as the alias.
fn keep_as(
    name: &mut ObjectName,
    alias: &mut Option<TableAlias>,
    written: &Ident,
    registered_as: String,
) {
    if registered_as == written.value {
        return;
    }
    let renamed = Ident { value: registered_as, quote_style: Some('`'), span: written.span };
    *name = ObjectName(vec![ObjectNamePart::Identifier(renamed)]);
    alias.get_or_insert_with(|| plain_alias(written.clone()));
}

pub(super) fn plain_alias(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: Vec::new(), at: None }
}
