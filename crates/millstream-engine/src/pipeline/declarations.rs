//! The declarations of a pipeline file's statements, and the parsing that several of them share.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_sql::diagnostic::{Diagnostic, Span};
use millstream_sql::query::routines::declare::Routine;
use millstream_sql::syntax::cursor::{Cursor, Name};

use super::constraints::ConstraintDeclaration;

/// `CREATE TABLE`.
#[derive(Clone, Debug)]
pub struct TableDeclaration {
    /// The table's name.
    pub name: Name,
    /// The columns, or `None` where the declaration has no list.
    pub columns: Option<Vec<ColumnDeclaration>>,
    /// The name after `USING`.
    pub connector: Name,
    /// Keys and values of `OPTIONS`, in order.
    pub options: Vec<OptionDeclaration>,
    /// The columns of `PARTITIONED BY`.
    pub partitioned_by: Vec<Name>,
    /// `LOCATION '...'`.
    pub location: Option<Name>,
    /// `COMMENT '...'`.
    pub comment: Option<Name>,
    /// The whole statement.
    pub span: Span,
}

/// A column of a `CREATE TABLE`.
#[derive(Clone, Debug)]
pub struct ColumnDeclaration {
    /// The column's name, and where it stands.
    pub name: Name,
    /// Name, type and nullability.
    pub field: FieldRef,
    /// `COMMENT '...'`.
    pub comment: Option<Name>,
}

/// One `'key' = 'value'`.
#[derive(Clone, Debug)]
pub struct OptionDeclaration {
    /// The key as written.
    pub key: Name,
    /// The value as text.
    pub value: Name,
}

/// `[CREATE FLOW name AS] INSERT INTO sink query`, or a query alone, or several of the first that
/// share a FROM clause.
#[derive(Clone, Debug)]
pub struct FlowDeclaration {
    /// The name after `CREATE FLOW`.
    pub name: Option<Name>,
    /// `COMMENT '...'`.
    pub comment: Option<Name>,
    /// `CONSTRAINT ...`, in the order written.
    pub constraints: Vec<ConstraintDeclaration>,
    /// What is written where; at least one.
    pub branches: Vec<BranchDeclaration>,
    /// The whole statement.
    pub span: Span,
}

/// A query of a flow and the table it writes to.
#[derive(Clone, Debug)]
pub struct BranchDeclaration {
    /// The table written to; `None` for a query alone, whose rows go to the console.
    pub sink: Option<Name>,
    /// `BY NAME`.
    pub by_name: bool,
    /// Columns listed after the sink's name.
    pub columns: Vec<Name>,
    /// The query's tokens; in pieces, where a FROM clause is shared.
    pub(super) query: Vec<Range<usize>>,
    /// INSERT and the query, without a FROM clause that is shared.
    pub span: Span,
}

/// `INSERT INTO sink`, up to the query.
pub(super) struct Insert {
    pub(super) sink: Name,
    pub(super) by_name: bool,
    pub(super) columns: Vec<Name>,
}

/// `CREATE TEMPORARY VIEW name AS query`.
#[derive(Clone, Debug)]
pub struct ViewDeclaration {
    /// The view's name.
    pub name: Name,
    /// The query's tokens.
    pub(super) query: Range<usize>,
}

/// A statement of a pipeline file.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    Table(TableDeclaration),
    Flow(FlowDeclaration),
    View(ViewDeclaration),
    Function(Arc<Routine>),
}

/// Takes `INSERT INTO sink [BY NAME] [(columns)]`.
pub(super) fn insert(cursor: &mut Cursor<'_>) -> Result<Insert, Diagnostic> {
    cursor.eat_words(&["INSERT"]);
    if let Some(span) = cursor.eat_words(&["OVERWRITE"]) {
        return Err(Diagnostic::at(span, "INSERT OVERWRITE is not supported")
            .help("a flow adds rows: INSERT INTO"));
    }
    cursor.expect_words(&["INTO"], "after INSERT")?;
    cursor.eat_words(&["TABLE"]);
    let sink = one_part_name(cursor, "the name of the table to write to")?;
    let by_name = cursor.eat_words(&["BY", "NAME"]).is_some();
    let mut columns = Vec::new();
    // A parenthesis may also open the query itself.
    let lists_columns = cursor.is_token(&Token::LParen)
        && !cursor.nth(1).is_some_and(|next| next.is_word("SELECT") || next.is_word("WITH"));
    if lists_columns {
        cursor.advance();
        loop {
            columns.push(cursor.name("a column name")?);
            if !cursor.eat(&Token::Comma) {
                break;
            }
        }
        cursor.expect(&Token::RParen, "after the column list")?;
    }
    if by_name && let Some(first) = columns.first() {
        return Err(Diagnostic::at(first.span, "BY NAME takes no column list")
            .help("leave out BY NAME, or the list"));
    }
    Ok(Insert { sink, by_name, columns })
}

/// A table's name; `a.b` is refused.
pub(super) fn one_part_name(cursor: &mut Cursor<'_>, what: &str) -> Result<Name, Diagnostic> {
    let name = cursor.name(what)?;
    if !cursor.is_token(&Token::Period) {
        return Ok(name);
    }
    let mut last = name.clone();
    while cursor.eat(&Token::Period) {
        last = cursor.name(what)?;
    }
    Err(Diagnostic::at(name.span.to(last.span), "tables of a pipeline file have one-part names")
        .help(format!("write `{}`", last.text)))
}

/// True where the next tokens cannot continue a query or a clause, but start a statement.
pub(super) fn starts_statement(cursor: &Cursor<'_>) -> bool {
    let second = |words: &[&str]| {
        cursor.nth(1).is_some_and(|next| words.iter().any(|word| next.is_word(word)))
    };
    (cursor.is_word("CREATE")
        && second(&["TABLE", "FLOW", "VIEW", "FUNCTION", "TEMPORARY", "TEMP", "OR", "STREAMING"]))
        || (cursor.is_word("INSERT") && second(&["INTO", "OVERWRITE"]))
}

/// The error before a statement that follows another without a `;`.
pub(super) fn missing_semicolon(cursor: &Cursor<'_>) -> Diagnostic {
    let end = cursor.last_span().end;
    let words = &cursor.lexed.text[cursor.here().range()];
    Diagnostic::at(cursor.here(), format!("a `;` is missing before {}", words.to_uppercase()))
        .note_at(Span::new(end, end), "the statement before ends here")
        .help("end each statement with `;`")
}
