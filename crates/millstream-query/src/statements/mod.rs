//! A text of statements, cut at its semicolons.
//!
//! Declarations of tables, views, functions and variables, and queries, may stand in one file. The
//! flows of a
//! pipeline file are kept apart: its tables can be queried, and what its flows write is not written
//! again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_sql::diagnostic::{Diagnostic, Diagnostics, Span};
use millstream_sql::query::routines::declare::{self, Declaration, Routine};
use millstream_sql::query::variables::declare as variables;
use millstream_sql::syntax::cursor::{Cursor, Name};
use millstream_sql::syntax::lexer::{Lexed, Lexeme};
use millstream_sql::syntax::limits;

use crate::setting_statements::{self, Change};

/// What a text consists of.
pub struct Statements {
    /// The text and its tokens.
    pub lexed: Lexed,
    /// What is to be done, in order.
    pub steps: Vec<Step>,
    /// Its views, in order.
    pub views: Vec<View>,
    /// By the first token of each statement about a function, the functions that are there after
    /// it.
    pub functions: Vec<(usize, Arc<[Arc<Routine>]>)>,
    /// The functions that were there before it.
    functions_before: Arc<[Arc<Routine>]>,
    /// The places of flows, and of other statements that write.
    pub flows: Vec<Span>,
    /// By the first token of each statement that sets the session's time zone, its name.
    zones: Vec<(usize, String)>,
    /// By the first token of each statement that sets the session's ANSI mode, whether it has it.
    modes: Vec<(usize, bool)>,
    /// The first token of the functions that were known before. They stand behind the text, so
    /// that what is wrong with it is found at its own place.
    known_from: usize,
}

/// A view that a text declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its name.
    pub name: Name,
    /// The tokens of its query.
    pub query: Range<usize>,
    /// `CREATE OR REPLACE`
    replaces: bool,
}

/// The value of a setting at the token `from`, where it may have another one at the token `to`;
/// `None` in it where `from` comes before any statement that sets it.
fn between<T>(set: &[(usize, T)], from: usize, to: usize) -> Option<Option<&T>> {
    let before = set.partition_point(|(start, _)| *start < from);
    let until = set.partition_point(|(start, _)| *start < to);
    (before < until).then(|| set[..before].last().map(|(_, value)| value))
}

/// A statement that gives rows or changes the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A query, by its tokens.
    Query(Range<usize>),
    /// `EXPLAIN [ANALYZE]` and the tokens of a query.
    Explain {
        /// Whether the query runs, and its plan is shown with what it did.
        analyze: bool,
        /// The query's tokens.
        query: Range<usize>,
    },
    /// `SET` or `RESET`.
    Setting(Change),
    /// `DECLARE`, `SET VAR` or `DROP TEMPORARY VARIABLE`.
    Variable(variables::Statement),
    /// `EXECUTE IMMEDIATE`.
    Immediate(variables::Immediate),
    /// `SHOW TABLES`.
    ShowTables,
    /// `DESCRIBE table`.
    Describe {
        /// The table's name, as one that a query reads.
        query: String,
        /// The whole statement.
        span: Span,
    },
}

impl Statements {
    /// Reads `text`.
    ///
    /// # Errors
    /// A token that is none, or a statement that no query tool runs.
    pub fn parse(text: &str) -> Result<Self, Diagnostics> {
        Self::parse_after(text, &[])
    }

    /// Reads `text`, which sees functions that were declared before it; `known` are the statements
    /// that declare them.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_after(text: &str, known: &[String]) -> Result<Self, Diagnostics> {
        Self::read(text, known).map_err(|found| within(found, text.len()))
    }

    fn read(text: &str, known: &[String]) -> Result<Self, Diagnostics> {
        limits::check_length(text)?;
        let known_from = Lexed::new(text)?.lexemes.len();
        // A backslash at the end of a comment at the end of the text is not the end of its line.
        let declarations: String = known.iter().map(|one| format!(" \n;{one}")).collect();
        let lexed = Lexed::new(&format!("{text}{declarations}"))?;
        limits::check(&lexed).into_result()?;
        let (mut steps, mut views, mut flows) = (Vec::new(), Vec::new(), Vec::new());
        let (mut declarations, mut before) = (Vec::new(), Vec::new());
        let (mut zones, mut modes) = (Vec::new(), Vec::new());
        let mut found = Diagnostics::default();
        for range in ranges(&lexed) {
            let (span, start) = (span_of(&lexed, &range), range.start);
            match statement(&lexed, range) {
                Ok(Statement::Step(step)) => {
                    if let Step::Setting(change) = &step {
                        zones.extend(change.zone().map(|zone| (start, zone.to_owned())));
                        modes.extend(change.ansi().map(|ansi| (start, ansi)));
                    }
                    steps.push(step);
                }
                Ok(Statement::View(view)) => views.push(view),
                Ok(Statement::Function(declaration)) if start < known_from => {
                    declarations.push((start, declaration));
                }
                Ok(Statement::Function(declaration)) => before.push(declaration),
                Ok(Statement::Flow) => flows.push(span),
                Ok(Statement::Declaration) => {}
                Err(diagnostic) => found.0.push(diagnostic),
            }
        }
        found.into_result()?;
        check_views(&views)?;
        if let Some((start, _)) = declarations.get(FUNCTIONS_MAX) {
            let message = format!("more than {FUNCTIONS_MAX} functions of one text");
            let span = lexed.lexemes[*start].span;
            return Err(Diagnostic::at(span, message).help("put them into several texts").into());
        }
        if before.len() > FUNCTIONS_MAX {
            let message = format!("more than {FUNCTIONS_MAX} functions of one session");
            let help = "drop those that are not needed, in a session of its own";
            return Err(Diagnostic::nowhere(message).help(help).into());
        }
        let mut there = Vec::new();
        for declaration in &before {
            apply(&mut there, declaration)?;
        }
        let functions_before = Arc::from(there.as_slice());
        let mut functions = Vec::with_capacity(declarations.len());
        for (start, declaration) in declarations {
            apply(&mut there, &declaration)?;
            functions.push((start, Arc::from(there.as_slice())));
        }
        Ok(Self {
            lexed,
            steps,
            views,
            functions,
            functions_before,
            flows,
            zones,
            modes,
            known_from,
        })
    }

    /// The statements that declare the functions which are there after the text.
    pub fn functions_after(&self) -> Vec<String> {
        let declaration = |routine: &Arc<Routine>| {
            let ranges = ranges(&self.lexed);
            let range = ranges.into_iter().find(|range| range.contains(&routine.body.start))?;
            Some(self.lexed.text[span_of(&self.lexed, &range).range()].to_owned())
        };
        self.last_functions().iter().filter_map(declaration).collect()
    }

    /// The functions that a query sees which begins with the token `at`.
    pub fn functions_at(&self, at: usize) -> &[Arc<Routine>] {
        let count = self.functions.partition_point(|(start, _)| *start < at);
        match self.functions[..count].last() {
            Some((_, functions)) => functions,
            None => &self.functions_before,
        }
    }

    /// The views that a query sees which begins with the token `at`; of those of one name the last
    /// one is meant.
    pub fn views_at(&self, at: usize) -> &[View] {
        &self.views[..self.views.partition_point(|view| view.query.end <= at)]
    }

    /// The functions that are there after the text.
    pub fn last_functions(&self) -> &[Arc<Routine>] {
        self.functions_at(self.known_from)
    }

    /// Whether a function was declared in a text before this one.
    pub fn is_of_earlier_text(&self, routine: &Routine) -> bool {
        routine.body.start >= self.known_from
    }

    /// The zone in which a statement at the token `from` was made, where a query at the token `to`
    /// may have another one; `None` in it where the statement comes before any that sets a zone.
    pub fn zone_between(&self, from: usize, to: usize) -> Option<Option<&str>> {
        between(&self.zones, from, to).map(|zone| zone.map(String::as_str))
    }

    /// The ANSI mode in which a statement was made, as [`Self::zone_between`] says it of the zone.
    pub fn ansi_between(&self, from: usize, to: usize) -> Option<Option<bool>> {
        between(&self.modes, from, to).map(|ansi| ansi.copied())
    }

    /// The token behind the text.
    pub fn end(&self) -> usize {
        self.known_from
    }

    /// The statements that declare what a query sees which begins with the token `at`: the views
    /// and the functions before it.
    pub fn declared_before(&self, at: usize) -> String {
        let declares = |range: &Range<usize>| match statement(&self.lexed, range.clone()) {
            Ok(Statement::View(_) | Statement::Function(_)) => {
                range.start < at || range.start >= self.known_from
            }
            _ => false,
        };
        let (own, known): (Vec<_>, Vec<_>) =
            ranges(&self.lexed).into_iter().partition(|range| range.start < self.known_from);
        let ranges = known.into_iter().chain(own).filter(declares);
        let texts = ranges.map(|range| {
            let text = &self.lexed.text[span_of(&self.lexed, &range).range()];
            format!("{text};\n")
        });
        texts.collect()
    }

    /// Refuses flows, where they would be taken for something that is done.
    ///
    /// # Errors
    /// There are flows.
    pub fn check_writes_nothing(&self) -> Result<(), Diagnostics> {
        let refused = self.flows.iter().map(|span| {
            Diagnostic::at(*span, "a query writes nothing")
                .help("run flows with millstream run; --tables FILE.sql has their tables")
        });
        Diagnostics(refused.collect()).into_result()
    }

    /// The text with nothing but its declarations of tables in it, at their places.
    pub fn declarations(&self) -> String {
        let mut kept = String::with_capacity(self.lexed.text.len());
        let mut end = 0;
        for range in ranges(&self.lexed) {
            if !is_declaration(&self.lexed, &range) {
                continue;
            }
            let span = span_of(&self.lexed, &range);
            blank(&mut kept, &self.lexed.text[end..span.start]);
            kept.push_str(&self.lexed.text[span.range()]);
            end = span.end;
            if self.lexed.text[end..].starts_with(';') {
                kept.push(';');
                end += 1;
            }
        }
        blank(&mut kept, &self.lexed.text[end..]);
        kept
    }
}

/// True where `text` ends with a semicolon that ends a statement: one that is neither in a quoted
/// text nor in a comment.
pub fn ends_statement(text: &str) -> bool {
    // A quote or a comment that is open is no token yet.
    let Ok(lexed) = Lexed::new(text) else { return false };
    lexed.lexemes.last().is_some_and(|last| last.token == Token::SemiColon)
}

/// Appends `text` as spaces; line breaks stay.
fn blank(kept: &mut String, text: &str) {
    for ch in text.chars() {
        match ch {
            '\n' => kept.push('\n'),
            ch => kept.extend(std::iter::repeat_n(' ', ch.len_utf8())),
        }
    }
}

enum Statement {
    Step(Step),
    View(View),
    Function(Declaration),
    Declaration,
    Flow,
}

/// What was found, without places behind the first `end` bytes: nobody has written those now.
fn within(mut found: Diagnostics, end: usize) -> Diagnostics {
    for diagnostic in &mut found.0 {
        diagnostic.span = diagnostic.span.filter(|span| span.end <= end);
        for note in &mut diagnostic.notes {
            note.span = note.span.filter(|span| span.end <= end);
        }
    }
    found
}

/// The tokens of each statement, without the semicolons.
fn ranges(lexed: &Lexed) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for (at, lexeme) in lexed.lexemes.iter().enumerate() {
        if lexeme.token == Token::SemiColon {
            ranges.push(start..at);
            start = at + 1;
        }
    }
    ranges.push(start..lexed.lexemes.len());
    ranges.retain(|range| !range.is_empty());
    ranges
}

fn span_of(lexed: &Lexed, range: &Range<usize>) -> Span {
    lexed.lexemes[range.start].span.to(lexed.lexemes[range.end - 1].span)
}

fn is_declaration(lexed: &Lexed, range: &Range<usize>) -> bool {
    matches!(statement(lexed, range.clone()), Ok(Statement::Declaration))
}

fn statement(lexed: &Lexed, range: Range<usize>) -> Result<Statement, Diagnostic> {
    let mut cursor = Cursor::new(lexed, range.start, range.end);
    let begins_query = cursor.peek().is_some_and(declare::is_query);
    if begins_query || cursor.is_token(&Token::LParen) {
        let is_insert = |pair: &[Lexeme]| pair[0].is_word("INSERT") && pair[1].is_word("INTO");
        let writes =
            cursor.is_word("FROM") && lexed.lexemes[range.clone()].windows(2).any(is_insert);
        return Ok(if writes { Statement::Flow } else { Statement::Step(Step::Query(range)) });
    }
    if declare::begins(&cursor) {
        return declare::declaration(&mut cursor).map(Statement::Function);
    }
    if variables::begins(&cursor) {
        let read = variables::statement(&mut cursor);
        return read.map(|read| Statement::Step(Step::Variable(read)));
    }
    if variables::begins_immediate(&cursor) {
        let read = variables::immediate(&mut cursor);
        return read.map(|read| Statement::Step(Step::Immediate(read)));
    }
    if cursor.eat_words(&["EXPLAIN"]).is_some() {
        let analyze = cursor.eat_words(&["ANALYZE"]).is_some();
        cursor.eat_words(&["FORMATTED"]);
        cursor.eat_words(&["EXTENDED"]);
        let query = cursor.at..range.end;
        if query.is_empty() {
            return Err(cursor.unexpected("a query").help("write EXPLAIN SELECT ..."));
        }
        return Ok(Statement::Step(Step::Explain { analyze, query }));
    }
    if cursor.eat_words(&["SHOW", "TABLES"]).is_some() {
        return Ok(Statement::Step(Step::ShowTables));
    }
    if cursor.is_word("SET") || cursor.is_word("RESET") {
        let change = setting_statements::read(lexed, &range)?;
        return Ok(Statement::Step(Step::Setting(change)));
    }
    if cursor.eat_words(&["DESCRIBE"]).is_some() || cursor.eat_words(&["DESC"]).is_some() {
        cursor.eat_words(&["TABLE"]);
        cursor.eat_words(&["EXTENDED"]);
        if cursor.at_end() {
            return Err(cursor.unexpected("the name of a table"));
        }
        let table = span_of(lexed, &(cursor.at..range.end));
        let query = format!("SELECT * FROM {}", &lexed.text[table.range()]);
        return Ok(Statement::Step(Step::Describe { query, span: span_of(lexed, &range) }));
    }
    if cursor.is_word("CREATE") {
        return create(cursor, range.end);
    }
    if cursor.is_word("INSERT") {
        return Ok(Statement::Flow);
    }
    Err(cursor
        .unexpected("a query")
        .help("write SELECT, EXPLAIN, SHOW TABLES, DESCRIBE, SET or CREATE TABLE"))
}

/// Refuses views that are there already.
fn check_views(views: &[View]) -> Result<(), Diagnostic> {
    let mut known = HashMap::with_capacity(views.len());
    for view in views {
        let first = *known.entry(view.name.text.to_lowercase()).or_insert(view.name.span);
        if first != view.name.span && !view.replaces {
            let name = &view.name.text;
            let message = format!("TEMP_TABLE_OR_VIEW_ALREADY_EXISTS: `{name}` is a view");
            return Err(Diagnostic::at(view.name.span, message)
                .note_at(first, "first here")
                .help("write CREATE OR REPLACE TEMPORARY VIEW"));
        }
    }
    Ok(())
}

/// Statements about functions in one text: what is known after each of them is kept.
const FUNCTIONS_MAX: usize = 1_000;

/// Does what a statement says to the functions that are there before it.
fn apply(there: &mut Vec<Arc<Routine>>, statement: &Declaration) -> Result<(), Diagnostic> {
    let name = match statement {
        Declaration::Create { routine, .. } => &routine.name,
        Declaration::Drop { name, .. } => name,
    };
    let known = there.iter().position(|known| known.name.text.eq_ignore_ascii_case(&name.text));
    match (statement, known) {
        (Declaration::Create { routine, .. }, None) => there.push(Arc::clone(routine)),
        (Declaration::Create { routine, replaces: true, .. }, Some(at)) => {
            there[at] = Arc::clone(routine);
        }
        (Declaration::Create { unless_there: true, .. }, Some(_))
        | (Declaration::Drop { if_there: true, .. }, None) => {}
        (Declaration::Create { .. }, Some(at)) => {
            let message = format!("function `{}` is declared twice", name.text);
            return Err(Diagnostic::at(name.span, message)
                .note_at(there[at].name.span, "first here")
                .help("write CREATE OR REPLACE FUNCTION"));
        }
        (Declaration::Drop { .. }, Some(at)) => {
            there.remove(at);
        }
        (Declaration::Drop { .. }, None) => {
            let message = format!("there is no function `{}`", name.text);
            return Err(Diagnostic::at(name.span, message).help("write IF EXISTS"));
        }
    }
    Ok(())
}

fn create(mut cursor: Cursor<'_>, end: usize) -> Result<Statement, Diagnostic> {
    cursor.eat_words(&["CREATE"]);
    let replaces = cursor.eat_words(&["OR", "REPLACE"]).is_some();
    if cursor.is_word("TABLE") {
        return Ok(Statement::Declaration);
    }
    let _ = cursor.eat_words(&["TEMPORARY"]).or_else(|| cursor.eat_words(&["TEMP"]));
    if cursor.eat_words(&["VIEW"]).is_none() {
        return Ok(Statement::Flow);
    }
    let name = cursor.name("the name of the view")?;
    cursor.expect_words(&["AS"], "after the view's name")?;
    Ok(Statement::View(View { name, query: cursor.at..end, replaces }))
}

#[cfg(test)]
mod tests;
