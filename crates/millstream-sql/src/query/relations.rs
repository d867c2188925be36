//! Which tables a query reads, and how.
//!
//! Every read of a stream becomes a relation of its own name (`__stream_logs`), under which the
//! caller registers the source; a table that is read as a batch keeps its name. The name as
//! written stays as the alias, so that columns are qualified as the query says. Views are put in
//! as subqueries.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

use datafusion::sql::sqlparser::ast::{
    Cte as WithQuery, Expr, Ident, ObjectName, ObjectNamePart, Query, Spanned, TableAlias,
    TableFactor, VisitMut, VisitorMut, With,
};
use datafusion::sql::sqlparser::tokenizer;

use super::ast::plain_alias;
use super::nesting::Nested;
use super::parse::parse;
use super::prepared::{NotThere, ReadMode, STREAM_PREFIX, TableCatalog, TableRead};
use super::routines::expand::expand;
use super::routines::resolve::Within;
use super::streams::{AsOf, Mark, SubqueryWatermark, Watermark};
use super::{file_metadata, laterals, recursion, table_calls};
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::nearest::suggest;
use crate::recursion::{LEVELS_MAX, planned_name};
use crate::syntax::lexer::Lexed;
use crate::types::collations;

/// Finds the tables that `query` reads and renames them. `within` are the declared functions in
/// whose bodies it stands.
pub(crate) fn resolve(
    lexed: &Lexed,
    query: &mut Query,
    marks: HashMap<usize, Mark>,
    subqueries: &mut Vec<SubqueryWatermark>,
    catalog: &dyn TableCatalog,
    within: &Within,
) -> Result<Vec<TableRead>, Diagnostics> {
    let mut resolver = Resolver {
        lexed,
        catalog,
        within,
        marks,
        subqueries,
        ctes: Vec::new(),
        hiding: 0,
        taken: Vec::new(),
        views: Vec::new(),
        entered: Vec::new(),
        size: 0,
        nesting: Vec::new(),
        reads: Vec::new(),
        asks_for_files: file_metadata::is_asked_for(lexed),
        found: Diagnostics::default(),
    };
    let _: ControlFlow<()> = VisitMut::visit(query, &mut resolver);
    resolver.found.into_result()?;
    Ok(resolver.reads)
}

/// How large a query may be: its expressions, and [`RELATION_SIZE`] for each relation. Planning
/// takes a fraction of a millisecond for each.
const SIZE_MAX: usize = 20_000;
const RELATION_SIZE: usize = 50;
/// How deep views may be nested.
const VIEWS_MAX: usize = 50;
const SMALLER: &str =
    "write what is read several times to a table, in a flow of its own, and read that";
const NAME_CASES: &str =
    "name the inner CASE in a subquery: SELECT f(x) FROM (SELECT *, CASE ... END AS x FROM ...)";

/// A common table expression in sight.
struct Cte {
    name: String,
    /// Its name in the plan.
    planned: String,
    /// What it adds to the query wherever it is read.
    size: usize,
    /// How often it was read so far.
    reads: usize,
}

struct Resolver<'a> {
    lexed: &'a Lexed,
    catalog: &'a dyn TableCatalog,
    /// The declared functions whose bodies are being read.
    within: &'a Within,
    marks: HashMap<usize, Mark>,
    /// Where those of views are added.
    subqueries: &'a mut Vec<SubqueryWatermark>,
    /// Names of the common table expressions in sight, innermost last.
    ctes: Vec<Cte>,
    /// How many hide one of the same name.
    hiding: usize,
    /// WITH clauses taken out of the queries being visited, and how many names were in sight.
    taken: Vec<(Option<With>, usize)>,
    /// Views being put in, outermost first.
    views: Vec<Range<usize>>,
    /// By table being visited, what was in sight where it turned out to be a view.
    entered: Vec<Option<Vec<Cte>>>,
    /// What there is to plan so far; see [`SIZE_MAX`].
    size: usize,
    /// The expressions being visited, outermost first.
    nesting: Vec<Nested>,
    reads: Vec<TableRead>,
    /// The text names `_metadata`.
    asks_for_files: bool,
    found: Diagnostics,
}

impl VisitorMut for Resolver<'_> {
    type Break = ();

    /// Visits the WITH clause first: each of its queries sees only those before it.
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let known = self.ctes.len();
        let mut with = query.with.take();
        let may_recurse = with.as_ref().is_some_and(|with| with.recursive);
        for cte in with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            // Its size counts wherever it is read, which may be several times or never.
            let before = std::mem::take(&mut self.size);
            let recursive = if may_recurse { self.recursive(cte)? } else { None };
            if recursive.is_none() {
                if may_recurse {
                    recursion::with_types(&mut *cte.query);
                }
                VisitMut::visit(&mut cte.query, self)?;
            }
            let size = std::mem::replace(&mut self.size, before);
            let name = cte.alias.name.value.clone();
            let planned = recursive.unwrap_or_else(|| self.planned_name(&name, known));
            cte.alias.name.value.clone_from(&planned);
            self.ctes.push(Cte { name, planned, size, reads: 0 });
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
        let nested = Nested::new(self.nesting.last(), expr);
        self.nesting.push(nested);
        // A list of literals is planned as one.
        let size = usize::from(!matches!(expr, Expr::Value(_)));
        let counted = self.count(&expr.span(), size.saturating_mul(nested.times));
        if let Err(diagnostic) = counted {
            let help = if nested.times > 1 { NAME_CASES } else { SMALLER };
            self.found.0.push(diagnostic.help(help));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _expr: &mut Expr) -> ControlFlow<()> {
        self.nesting.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        match factor {
            // `streams` added LATERAL to make sqlparser accept the text, and marked a query's own.
            // One that was not written, which has no place, is as it was made.
            TableFactor::Derived { lateral, subquery, .. } => {
                *lateral = self.is_lateral(subquery).unwrap_or(*lateral);
            }
            _ => table_calls::into_plain(factor),
        }
        if let TableFactor::Table { name, sample: Some(_), .. } = factor {
            let diagnostic = Diagnostic::at(self.span_of(name), "TABLESAMPLE is not supported");
            let help = "leave it out; WHERE says which rows are wanted, as in hash(id) % 10 = 0";
            self.found.0.push(diagnostic.help(help));
        }
        if let Some(what) = not_planned(factor) {
            let span = self.lexed.span(factor.span());
            let diagnostic = Diagnostic::nowhere(format!("{} is not supported", what.0));
            self.found.0.push(Diagnostic { span, ..diagnostic }.help(what.1));
            return ControlFlow::Break(());
        }
        if let TableFactor::Table { name, alias, args: None, .. } = factor
            && let Err(diagnostic) = self.table(name, alias)
        {
            self.found.0.push(diagnostic);
        }
        let mut entered = None;
        if let Some(view) = self.view_of(factor) {
            entered = self.enter_view(factor, view).map_or_else(
                |found| {
                    self.found.0.extend(found.0);
                    None
                },
                Some,
            );
            if !self.found.0.is_empty() {
                return ControlFlow::Break(());
            }
        }
        self.entered.push(entered);
        if let Err(diagnostic) = self.count(&factor.span(), RELATION_SIZE) {
            self.found.0.push(diagnostic.help(SMALLER));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Leaves a view.
    fn post_visit_table_factor(&mut self, _factor: &mut TableFactor) -> ControlFlow<()> {
        if let Some(Some(ctes)) = self.entered.pop() {
            self.ctes = ctes;
            self.views.pop();
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

    /// A common table expression hides one of the same name outside, whose name in the plan must be
    /// another one. `known` are those outside.
    fn planned_name(&mut self, name: &str, known: usize) -> String {
        let hides = self.ctes[..known].iter().any(|cte| cte.name.eq_ignore_ascii_case(name));
        let is_invented = self.ctes.iter().any(|cte| {
            cte.planned.eq_ignore_ascii_case(name) && !cte.name.eq_ignore_ascii_case(name)
        });
        if !hides && !is_invented {
            return name.to_owned();
        }
        loop {
            self.hiding += 1;
            let planned = format!("{name}__{}", self.hiding);
            if !self.is_known(&planned) {
                return planned;
            }
        }
    }

    /// Whether a query or a table is called `name`, in the text or in the plan.
    fn is_known(&self, name: &str) -> bool {
        let is_query = |cte: &Cte| {
            cte.planned.eq_ignore_ascii_case(name) || cte.name.eq_ignore_ascii_case(name)
        };
        self.ctes.iter().any(is_query) || self.catalog.table(name).is_some()
    }

    /// Visits a query of WITH RECURSIVE; its name in the plan if it reads itself. Otherwise it is
    /// still to be visited.
    fn recursive(&mut self, cte: &mut WithQuery) -> ControlFlow<(), Option<String>> {
        let name = cte.alias.name.clone();
        if !recursion::names(&cte.query, &name.value) {
            recursion::enclose(&mut cte.query);
            return ControlFlow::Continue(None);
        }
        let span = self.lexed.span(name.span);
        let refused = |message: &str, help: &str| {
            let message = format!("`{}` {message}", name.value);
            Diagnostic { span, ..Diagnostic::nowhere(message).help(help) }
        };
        recursion::move_with(&mut cte.query);
        let Some((first, rest, all)) = recursion::parts(&mut cte.query) else {
            let message = "can read itself only as first UNION ALL rest";
            let help = "put WITH, ORDER BY and LIMIT into the parts, or into a query around it";
            self.found.0.push(refused(message, help));
            return ControlFlow::Break(());
        };
        let mark = span.and_then(|span| self.marks.get(&span.start));
        let levels = mark.and_then(|mark| mark.levels).unwrap_or(LEVELS_MAX);
        self.hiding += 1;
        let planned = planned_name(levels, self.hiding);
        recursion::with_types(first);
        VisitMut::visit(first, self)?;
        let own = Cte { name: name.value.clone(), planned: planned.clone(), size: 0, reads: 0 };
        self.ctes.push(own);
        VisitMut::visit(rest, self)?;
        let reads = self.ctes.pop().map_or(0, |own| own.reads);
        if reads != 1 || !all {
            let help = "write first UNION ALL rest, where rest reads it in one place";
            self.found.0.push(refused("reads itself in a way that is not supported", help));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(Some(planned))
    }

    /// Whether LATERAL is written before a subquery, if that is written.
    fn is_lateral(&self, subquery: &Query) -> Option<bool> {
        let Some(first) = laterals::beginning(subquery) else { return Some(false) };
        let mark = self.marks.get(&self.lexed.span(first)?.start);
        Some(mark.is_some_and(|mark| mark.is_lateral))
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
            return self.table_at(name, alias);
        };
        let written = ident.clone();
        if Self::is_resolved(&written.value) {
            return Ok(());
        }
        let mark = self.marks.get(&span.start).cloned();
        let stream = mark.as_ref().and_then(|mark| mark.stream);
        let as_of = mark.as_ref().and_then(|mark| mark.as_of.clone());
        let mut ctes = self.ctes.iter_mut().rev();
        let cte = ctes.find(|cte| cte.name.eq_ignore_ascii_case(&written.value));
        let cte = cte.map(|cte| {
            cte.reads += 1;
            (cte.planned.clone(), cte.size)
        });
        if let Some((cte, size)) = cte {
            self.count(&written.span, size).map_err(|error| error.help(SMALLER))?;
            if let Some(at) = stream {
                return Err(not_a_table(at, &cte, "common table expression"));
            }
            if as_of.is_some() {
                return Err(no_versions(span, &cte, "common table expression"));
            }
            keep_as(name, alias, &written, cte);
            return Ok(());
        }
        let Some(declared) = self.catalog.table(&written.value) else {
            return match (self.catalog.view(&written.value), stream) {
                (Some(_), Some(at)) => Err(not_a_table(at, &written.value, "view")),
                (Some(_), None) if as_of.is_some() => {
                    Err(no_versions(span, &written.value, "view"))
                }
                (Some(_), None) => Ok(()),
                (None, _) => Err(self.unknown(&written.value, span)),
            };
        };
        let mode = if stream.is_some() { ReadMode::Stream } else { ReadMode::Batch };
        let declared = self.as_of(declared, as_of.as_ref(), span)?;
        let span = stream.unwrap_or(span);
        let watermark = mark.and_then(|mark| mark.watermark);
        let registered_as = self.read(declared, mode, span, watermark)?;
        keep_as(name, alias, &written, registered_as);
        Ok(())
    }

    /// A table that is named by its format and its path.
    fn table_at(
        &mut self,
        name: &mut ObjectName,
        alias: &mut Option<TableAlias>,
    ) -> Result<(), Diagnostic> {
        let span = self.span_of(name);
        let mark = self.marks.get(&span.start).cloned();
        let of_file = || Diagnostic::at(span, "tables of a pipeline file have one-part names");
        let parts = match name.0.as_slice() {
            // Spark's name for the catalog of tables that no other has.
            [ObjectNamePart::Identifier(catalog), parts @ ..]
                if parts.len() == 2 && catalog.value.eq_ignore_ascii_case("spark_catalog") =>
            {
                parts
            }
            parts => parts,
        };
        let [ObjectNamePart::Identifier(format), ObjectNamePart::Identifier(path)] = parts else {
            return Err(of_file());
        };
        let is_schema = format.value.eq_ignore_ascii_case("default");
        if mark.as_ref().is_some_and(|mark| mark.stream.is_some()) {
            let help = "declare it: CREATE TABLE name USING delta OPTIONS ('path' = '...')";
            return Err(Diagnostic::at(span, "a stream is a declared table").help(help));
        }
        let declared = match self.catalog.table_at(&format.value, &path.value) {
            Some(found) => found.map_err(|wrong| not_there(span, wrong))?,
            None => return Err(of_file()),
        };
        let as_of = mark.as_ref().and_then(|mark| mark.as_of.as_ref());
        let declared = self.as_of(declared, as_of, span)?;
        let written = path.clone();
        let registered_as = self.read(declared, ReadMode::Batch, span, None)?;
        if is_schema {
            alias.get_or_insert_with(|| plain_alias(written.clone()));
        }
        let renamed = Ident { value: registered_as, quote_style: Some('`'), span: written.span };
        *name = ObjectName(vec![ObjectNamePart::Identifier(renamed)]);
        Ok(())
    }

    /// The declared name of a table, or of its earlier state.
    fn as_of(
        &self,
        declared: String,
        when: Option<&AsOf>,
        span: Span,
    ) -> Result<String, Diagnostic> {
        let Some(when) = when else { return Ok(declared) };
        match self.catalog.table_as_of(&declared, when) {
            Some(found) => found.map_err(|wrong| not_there(span, wrong)),
            None => {
                let message = format!("`{declared}` is read as it is when the query starts");
                let help = "declare another table with 'versionAsOf' or 'timestampAsOf' among its \
                            OPTIONS";
                Err(Diagnostic::at(span, message).help(help))
            }
        }
    }

    /// Notes a read and gives the name its provider is registered as.
    fn read(
        &mut self,
        table: String,
        mode: ReadMode,
        span: Span,
        watermark: Option<Watermark>,
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
        let mut declared = self.catalog.schema(&table, mode, span)?;
        if mode == ReadMode::Batch && self.asks_for_files && self.catalog.has_files(&table) {
            declared = file_metadata::with_hidden(declared);
        }
        if !self.catalog.has_collations() && collations::are_in(&declared) {
            let message =
                format!("columns of `{table}` have collations, which a pipeline's have not");
            let help = "declare them as STRING, and write x COLLATE name where it is compared";
            return Err(Diagnostic::at(span, message).help(help));
        }
        let named = declared.fields().iter();
        let named =
            named.filter_map(|field| Some((field.name().clone(), collations::of_field(field)?)));
        let read = TableRead {
            table,
            mode,
            registered_as: registered_as.clone(),
            schema: collations::stripped(&declared),
            collations: named.collect(),
            span,
            watermark,
        };
        self.reads.push(read);
        Ok(registered_as)
    }

    fn unknown(&self, name: &str, span: Span) -> Diagnostic {
        let mut names = self.catalog.names();
        names.extend(self.ctes.iter().map(|cte| cte.name.clone()));
        let diagnostic = Diagnostic::at(span, format!("there is no table `{name}`"));
        if names.is_empty() {
            return diagnostic.help("declare it: CREATE TABLE name (...) USING connector ...");
        }
        diagnostic.help(suggest(name, "declared tables", names.iter().map(String::as_str)))
    }

    fn view_of(&self, factor: &TableFactor) -> Option<Range<usize>> {
        let TableFactor::Table { name, args: None, .. } = factor else { return None };
        let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else { return None };
        let cte = self
            .ctes
            .iter()
            .any(|cte| cte.planned == ident.value || cte.name.eq_ignore_ascii_case(&ident.value));
        if cte || Self::is_resolved(&ident.value) || self.catalog.table(&ident.value).is_some() {
            return None;
        }
        self.catalog.view(&ident.value)
    }

    /// Puts a view's query in the place of its name. It is visited next; what the query that reads
    /// it calls common table expressions is given back, for when that is done.
    fn enter_view(
        &mut self,
        factor: &mut TableFactor,
        view: Range<usize>,
    ) -> Result<Vec<Cte>, Diagnostics> {
        let TableFactor::Table { name, alias, .. } = factor else { return Ok(Vec::new()) };
        let span = self.span_of(name);
        if self.views.contains(&view) {
            return Err(Diagnostic::at(span, "this view reads itself").into());
        }
        if self.views.len() >= VIEWS_MAX {
            let message = format!("more than {VIEWS_MAX} views that read each other");
            return Err(Diagnostic::at(span, message).help(SMALLER).into());
        }
        let (mut query, mut marks, subqueries) = parse(self.lexed, std::slice::from_ref(&view))?;
        expand(self.lexed, &mut query, &mut marks, self.catalog, self.within, resolve)?;
        self.marks.extend(marks);
        self.subqueries.extend(subqueries);
        let alias = alias
            .take()
            .or_else(|| name.0.last().and_then(ObjectNamePart::as_ident).cloned().map(plain_alias));
        self.views.push(view);
        let subquery = Box::new(query);
        *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        // A view sees the tables of the file, not the names of the query that reads it.
        Ok(std::mem::take(&mut self.ctes))
    }

    /// Counts what is to be planned: views and common table expressions count wherever they are
    /// read, since each of those places is planned for itself.
    fn count(&mut self, at: &tokenizer::Span, size: usize) -> Result<(), Diagnostic> {
        self.size = self.size.saturating_add(size);
        if self.size <= SIZE_MAX {
            return Ok(());
        }
        let at = self.lexed.span(*at).unwrap_or(Span::new(0, 0));
        let message = "with all that its views and common table expressions stand for, this query \
                       is too large to be planned";
        Err(Diagnostic::at(at, message))
    }
}

/// What nothing plans, and what to write instead.
fn not_planned(factor: &TableFactor) -> Option<(&'static str, &'static str)> {
    let functions = "LATERAL VIEW explode(array) t AS element makes rows of an array";
    match factor {
        TableFactor::Pivot { .. } => Some((
            "PIVOT",
            "write a column for each value: sum(x) FILTER (WHERE kind = 'a') AS a, ... GROUP BY",
        )),
        TableFactor::Unpivot { .. } => Some((
            "UNPIVOT",
            "write a row for each column: LATERAL VIEW explode(map('a', a, 'b', b)) or UNION ALL",
        )),
        TableFactor::MatchRecognize { .. } => {
            Some(("MATCH_RECOGNIZE", "compare rows by a join, or in a flow of their own"))
        }
        TableFactor::Table { args: Some(_), .. }
        | TableFactor::TableFunction { .. }
        | TableFactor::Function { .. }
        | TableFactor::UNNEST { .. }
        | TableFactor::JsonTable { .. }
        | TableFactor::OpenJsonTable { .. }
        | TableFactor::XmlTable { .. } => None,
        TableFactor::SemanticView { .. } => Some(("SEMANTIC_VIEW", functions)),
        _ => None,
    }
}

fn not_there(at: Span, wrong: NotThere) -> Diagnostic {
    Diagnostic::at(at, wrong.problem).maybe_help(wrong.help)
}

fn no_versions(at: Span, name: &str, what: &str) -> Diagnostic {
    Diagnostic::at(at, format!("`{name}` is a {what}, which has no versions"))
        .help("write VERSION AS OF behind a Delta table")
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
