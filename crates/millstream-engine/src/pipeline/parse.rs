//! From tokens to statements.
//!
//! Statements end with `;`. Each is read on its own, so that one mistake does not hide the next
//! statement's. Of a query only its place is kept here; `millstream-sql` reads it.

use std::ops::Range;

use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_sql::diagnostic::{Diagnostic, Diagnostics, Span};
use millstream_sql::nearest::nearest;
use millstream_sql::query::routines::declare::{self, Declaration};
use millstream_sql::query::variables::declare as variables;
use millstream_sql::syntax::cursor::{Cursor, Name};
use millstream_sql::syntax::lexer::{Lexed, Lexeme};

use super::constraints;
use super::declarations::{
    BranchDeclaration, FlowDeclaration, Insert, Statement, ViewDeclaration, insert,
    missing_semicolon, one_part_name, starts_statement,
};
use super::{branches, create_table};

/// Words a statement can start with.
const STARTS: &[&str] = &["CREATE", "INSERT", "SELECT", "WITH", "FROM"];

/// Reads all statements; every statement that cannot be read gives a diagnostic.
pub(super) fn parse(lexed: &Lexed) -> (Vec<Statement>, Diagnostics) {
    let (mut statements, mut found) = (Vec::new(), Diagnostics::default());
    let ends = lexed.lexemes.iter().enumerate();
    let ends = ends.filter(|(_, lexeme)| lexeme.token == Token::SemiColon).map(|(at, _)| at);
    let mut start = 0;
    for end in ends.chain([lexed.lexemes.len()]) {
        if start < end {
            statements.extend(found.take(statement(Cursor::new(lexed, start, end))));
        }
        start = end + 1;
    }
    (statements, found)
}

fn statement(mut cursor: Cursor<'_>) -> Result<Statement, Diagnostic> {
    let start = cursor.here();
    if declare::begins(&cursor) && cursor.is_word("CREATE") {
        return function(cursor);
    }
    if cursor.is_word("CREATE") {
        return create(cursor);
    }
    if cursor.is_word("INSERT") {
        return flow(cursor, start, None, None).map(Statement::Flow);
    }
    if starts_query(&cursor) {
        let query = query(&mut cursor)?;
        let (sink, by_name, columns) = (None, false, Vec::new());
        let span = start.to(cursor.last_span());
        let query = vec![query];
        let branches = vec![BranchDeclaration { sink, by_name, columns, query, span }];
        let (name, comment, constraints) = (None, None, Vec::new());
        let flow = FlowDeclaration { name, comment, constraints, branches, span };
        return Ok(Statement::Flow(flow));
    }
    if cursor.is_word("FROM") {
        return branches::parse(cursor, start, None, None).map(Statement::Flow);
    }
    Err(unknown_start(&cursor))
}

fn unknown_start(cursor: &Cursor<'_>) -> Diagnostic {
    let word = cursor.peek().and_then(Lexeme::word).unwrap_or("").to_uppercase();
    let refused = |message: &str, help: &str| Diagnostic::at(cursor.here(), message).help(help);
    if variables::begins(cursor) || variables::begins_immediate(cursor) {
        return refused(
            "a pipeline file has no variables",
            "write the value into the query; variables are there in millstream query",
        );
    }
    match word.as_str() {
        "SET" if cursor.are_words(&["SET", "TIME", "ZONE"]) => refused(
            "a pipeline has the time zone UTC",
            "write from_utc_timestamp(ts, 'Europe/Berlin') for what the clocks of a zone show",
        ),
        "SET" if sets_ansi(&cursor.lexed.text[cursor.here().start..]) => refused(
            "a pipeline has ANSI mode",
            "write try_cast, try_divide and their like for NULL instead of an error",
        ),
        "SET" => refused(
            "SET has no effect on a pipeline",
            "put the setting into the OPTIONS of the table it is about",
        ),
        "DROP" | "ALTER" | "TRUNCATE" | "DELETE" | "UPDATE" | "MERGE" => refused(
            &format!("{word} does not belong in a pipeline file"),
            "a pipeline file declares tables and the flows between them; it changes no table",
        ),
        "USE" => refused("USE is not supported", "tables of a pipeline file have one-part names"),
        "EXPLAIN" | "DESCRIBE" | "DESC" | "SHOW" => refused(
            &format!("{word} does not belong in a pipeline file"),
            "`millstream validate FILE.sql` shows tables, columns and plans",
        ),
        _ => {
            let help = match nearest(&word, STARTS.iter().copied()) {
                Some(start) => format!("did you mean {start}?"),
                None => "statements are CREATE TABLE, CREATE FLOW, INSERT INTO and SELECT".into(),
            };
            cursor.unexpected("a statement").help(help)
        }
    }
}

/// Whether the first statement of a text sets the ANSI mode.
fn sets_ansi(text: &str) -> bool {
    let statement = text.split(';').next().unwrap_or_default();
    statement.contains("spark.sql.ansi.enabled")
}

fn create(mut cursor: Cursor<'_>) -> Result<Statement, Diagnostic> {
    let start = cursor.here();
    cursor.eat_words(&["CREATE"]);
    if let Some(span) = cursor.eat_words(&["OR", "REPLACE"])
        && !["TEMPORARY", "TEMP", "VIEW"].iter().any(|word| cursor.is_word(word))
    {
        return Err(Diagnostic::at(span, "OR REPLACE is not supported")
            .help("a pipeline file declares each name once; leave OR REPLACE out"));
    }
    if let Some(span) = cursor.eat_words(&["STREAMING", "TABLE"]) {
        return Err(Diagnostic::at(span, "CREATE STREAMING TABLE is not supported").help(
            "declare the table with CREATE TABLE name USING connector ..., then write to it:\n\
             CREATE FLOW flow AS INSERT INTO name SELECT ... FROM STREAM source",
        ));
    }
    if let Some(span) = cursor.eat_words(&["MATERIALIZED", "VIEW"]) {
        return Err(Diagnostic::at(span, "CREATE MATERIALIZED VIEW is not supported").help(
            "declare a table for the result and write to it: INSERT INTO name SELECT ...; or, \
             where the result need not be stored, CREATE TEMPORARY VIEW name AS SELECT ...",
        ));
    }
    let _ = cursor.eat_words(&["TEMPORARY"]).or_else(|| cursor.eat_words(&["TEMP"]));
    if cursor.eat_words(&["VIEW"]).is_some() {
        return view(cursor);
    }
    if cursor.eat_words(&["FLOW"]).is_some() {
        let name = cursor.name("the flow's name")?;
        let mut comment = None;
        if cursor.eat_words(&["COMMENT"]).is_some() {
            comment = Some(cursor.string("a comment")?);
        }
        let constraints = constraints::parse(&mut cursor)?;
        let constrained = |flow| Statement::Flow(FlowDeclaration { constraints, ..flow });
        cursor.expect_words(&["AS"], "after the flow's name")?;
        if cursor.is_word("FROM") {
            return branches::parse(cursor, start, Some(name), comment).map(constrained);
        }
        if !cursor.is_word("INSERT") {
            let help = "a flow is CREATE FLOW name AS INSERT INTO sink SELECT ...";
            return Err(cursor.unexpected("INSERT INTO").help(help));
        }
        return flow(cursor, start, Some(name), comment).map(constrained);
    }
    if cursor.eat_words(&["TABLE"]).is_some() {
        return create_table::parse(cursor, start).map(Statement::Table);
    }
    let word = cursor.peek().and_then(Lexeme::word).unwrap_or("");
    let known = ["TABLE", "FLOW", "VIEW", "FUNCTION", "TEMPORARY"];
    let help = match nearest(word, known) {
        Some(known) => format!("did you mean CREATE {known}?"),
        None => "CREATE TABLE, CREATE FLOW, CREATE FUNCTION and CREATE TEMPORARY VIEW are \
                 supported"
            .into(),
    };
    Err(cursor.unexpected("TABLE, FLOW, FUNCTION or VIEW after CREATE").help(help))
}

/// `CREATE FUNCTION`; its name is known in the whole file.
fn function(mut cursor: Cursor<'_>) -> Result<Statement, Diagnostic> {
    let words = [1, 2].map(|at| cursor.nth(at).map_or_else(|| cursor.here(), |word| word.span));
    match declare::declaration(&mut cursor)? {
        Declaration::Create { routine, replaces: false, .. } => Ok(Statement::Function(routine)),
        _ => Err(Diagnostic::at(words[0].to(words[1]), "OR REPLACE is not supported")
            .help("a pipeline file declares each name once; leave OR REPLACE out")),
    }
}

fn view(mut cursor: Cursor<'_>) -> Result<Statement, Diagnostic> {
    cursor.eat_words(&["IF", "NOT", "EXISTS"]);
    let name = one_part_name(&mut cursor, "the view's name")?;
    if cursor.is_token(&Token::LParen) {
        return Err(Diagnostic::at(cursor.here(), "a column list of a view is not supported")
            .help("name the columns in the query: SELECT a AS first, ..."));
    }
    cursor.expect_words(&["AS"], "after the view's name")?;
    let query = query(&mut cursor)?;
    Ok(Statement::View(ViewDeclaration { name, query }))
}

fn flow(
    mut cursor: Cursor<'_>,
    start: Span,
    name: Option<Name>,
    comment: Option<Name>,
) -> Result<FlowDeclaration, Diagnostic> {
    let from = cursor.here();
    let Insert { sink, by_name, columns } = insert(&mut cursor)?;
    // `FROM t |> WHERE ...` and `TABLE t`. In parentheses these may be names of columns.
    let is_other_form = cursor.is_word("FROM") || cursor.is_word("TABLE");
    if !starts_query(&cursor) && !is_other_form {
        return Err(cursor.unexpected("a query (SELECT or WITH)"));
    }
    let query = vec![query(&mut cursor)?];
    let (sink, end) = (Some(sink), cursor.last_span());
    let branches = vec![BranchDeclaration { sink, by_name, columns, query, span: from.to(end) }];
    let (constraints, span) = (Vec::new(), start.to(end));
    Ok(FlowDeclaration { name, comment, constraints, branches, span })
}

fn starts_query(cursor: &Cursor<'_>) -> bool {
    let mut ahead = 0;
    while cursor.nth(ahead).is_some_and(|lexeme| lexeme.token == Token::LParen) {
        ahead += 1;
    }
    let next = cursor.nth(ahead);
    ["SELECT", "WITH", "VALUES"].iter().any(|word| next.is_some_and(|next| next.is_word(word)))
}

/// Takes a query to the end of the statement; refuses what can only be another statement.
fn query(cursor: &mut Cursor<'_>) -> Result<Range<usize>, Diagnostic> {
    let range = cursor.at..cursor.end;
    let mut depth = 0_usize;
    while let Some(lexeme) = cursor.peek() {
        match lexeme.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ if depth == 0 && starts_statement(cursor) => return Err(missing_semicolon(cursor)),
            _ => {}
        }
        cursor.advance();
    }
    Ok(range)
}
