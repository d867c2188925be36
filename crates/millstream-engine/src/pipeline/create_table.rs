//! `CREATE TABLE name [(columns)] USING connector [clauses]`, the clauses in any order.

use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_sql::diagnostic::{Diagnostic, Span};
use millstream_sql::nearest::nearest;
use millstream_sql::syntax::cursor::{Cursor, Name};
use millstream_sql::syntax::lexer::Lexeme;
use millstream_sql::types;

use super::declarations::{
    ColumnDeclaration, OptionDeclaration, TableDeclaration, missing_semicolon, one_part_name,
    starts_statement,
};

const CLAUSES: &[&str] = &["USING", "OPTIONS", "PARTITIONED", "LOCATION", "COMMENT"];

/// Reads what follows `CREATE TABLE`; `start` is the word CREATE.
pub(super) fn parse(mut cursor: Cursor<'_>, start: Span) -> Result<TableDeclaration, Diagnostic> {
    cursor.eat_words(&["IF", "NOT", "EXISTS"]);
    let name = one_part_name(&mut cursor, "the table's name")?;
    let columns = if cursor.is_token(&Token::LParen) { Some(columns(&mut cursor)?) } else { None };
    let mut clauses = Clauses::default();
    while !cursor.at_end() {
        clauses.read(&mut cursor)?;
    }
    let Some(connector) = clauses.connector else {
        return Err(Diagnostic::at(name.span, format!("table `{}` has no connector", name.text))
            .help("say what the table is on: CREATE TABLE name USING kafka OPTIONS (...)"));
    };
    let span = start.to(cursor.last_span());
    Ok(TableDeclaration {
        name,
        columns,
        connector,
        options: clauses.options.unwrap_or_default(),
        partitioned_by: clauses.partitioned_by.unwrap_or_default(),
        location: clauses.location,
        comment: clauses.comment,
        span,
    })
}

#[derive(Default)]
struct Clauses {
    connector: Option<Name>,
    options: Option<Vec<OptionDeclaration>>,
    partitioned_by: Option<Vec<Name>>,
    location: Option<Name>,
    comment: Option<Name>,
}

impl Clauses {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Diagnostic> {
        let here = cursor.here();
        if cursor.eat_words(&["USING"]).is_some() {
            let name = cursor.name("a connector's name")?;
            return once(&mut self.connector, name, "USING", here);
        }
        if cursor.eat_words(&["OPTIONS"]).is_some() {
            let options = options(cursor)?;
            return once(&mut self.options, options, "OPTIONS", here);
        }
        if cursor.eat_words(&["PARTITIONED", "BY"]).is_some() {
            let names = partition_columns(cursor)?;
            return once(&mut self.partitioned_by, names, "PARTITIONED BY", here);
        }
        if cursor.eat_words(&["LOCATION"]).is_some() {
            let location = cursor.string("a path")?;
            return once(&mut self.location, location, "LOCATION", here);
        }
        if cursor.eat_words(&["COMMENT"]).is_some() {
            let comment = cursor.string("a comment")?;
            return once(&mut self.comment, comment, "COMMENT", here);
        }
        Err(refused_clause(cursor))
    }
}

fn once<T>(place: &mut Option<T>, value: T, what: &str, at: Span) -> Result<(), Diagnostic> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Diagnostic::at(at, format!("{what} is given twice"))),
    }
}

fn refused_clause(cursor: &Cursor<'_>) -> Diagnostic {
    if starts_statement(cursor) || cursor.is_word("SELECT") {
        return missing_semicolon(cursor);
    }
    let word = cursor.peek().and_then(Lexeme::word).unwrap_or("").to_uppercase();
    let refused = |message: &str, help: &str| Diagnostic::at(cursor.here(), message).help(help);
    match word.as_str() {
        "WITH" => refused(
            "WITH (...) is not Spark's form of a table's options",
            "write USING connector OPTIONS ('key' = 'value', ...), for example\n\
             CREATE TABLE logs (...) USING kafka\n\
             OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092', 'subscribe' = 'logs')",
        ),
        "AS" => refused(
            "CREATE TABLE ... AS SELECT is not supported",
            "declare the table, then write to it: INSERT INTO name SELECT ...",
        ),
        "TBLPROPERTIES" => {
            refused("TBLPROPERTIES is not supported", "put settings of the connector in OPTIONS")
        }
        "CLUSTER" | "CLUSTERED" => refused(
            &format!("{word} BY is not supported"),
            "PARTITIONED BY (column, ...) divides a table that is written",
        ),
        _ => {
            let help = match nearest(&word, CLAUSES.iter().copied()) {
                Some("PARTITIONED") => "did you mean PARTITIONED BY?".into(),
                Some(clause) => format!("did you mean {clause}?"),
                None => "after the name and the columns come USING, OPTIONS, PARTITIONED BY, \
                         LOCATION and COMMENT"
                    .to_owned(),
            };
            cursor.unexpected("a clause of CREATE TABLE, or `;`").help(help)
        }
    }
}

fn columns(cursor: &mut Cursor<'_>) -> Result<Vec<ColumnDeclaration>, Diagnostic> {
    cursor.advance();
    let mut columns: Vec<ColumnDeclaration> = Vec::new();
    loop {
        if cursor.are_words(&["WATERMARK", "FOR"]) {
            return Err(watermark_for(cursor));
        }
        if cursor.are_words(&["PRIMARY", "KEY"]) || cursor.is_word("CONSTRAINT") {
            return Err(Diagnostic::at(cursor.here(), "keys and constraints are not supported")
                .help("list columns only: name TYPE [NOT NULL] [COMMENT '...']"));
        }
        let name = cursor.name("a column name")?;
        let first = columns.iter().find(|known| known.name.text.eq_ignore_ascii_case(&name.text));
        if let Some(first) = first {
            return Err(Diagnostic::at(name.span, format!("column `{}` is twice", name.text))
                .note_at(first.name.span, "first here"));
        }
        let (field, comment) = types::column_after(cursor, &name)?;
        if types::holds_time(field.data_type()) {
            return Err(types::no_time(name.span));
        }
        if types::holds_variant(field.data_type()) {
            return Err(types::no_variant(name.span));
        }
        if cursor.is_word("METADATA") || cursor.is_word("GENERATED") || cursor.is_word("AS") {
            return Err(Diagnostic::at(cursor.here(), "a computed column is not supported").help(
                "list the columns of the data; compute others in the SELECT. A Kafka table \
                 without columns has key, value, topic, partition, offset and timestamp",
            ));
        }
        columns.push(ColumnDeclaration { name, field, comment });
        if !cursor.eat(&Token::Comma) {
            break;
        }
    }
    cursor.expect(&Token::RParen, "or `,` after a column")?;
    Ok(columns)
}

fn watermark_for(cursor: &Cursor<'_>) -> Diagnostic {
    let column = cursor.nth(2).and_then(Lexeme::word).unwrap_or("ts");
    Diagnostic::at(cursor.here(), "WATERMARK FOR in a table is not Spark's form").help(format!(
        "a watermark is part of the query: \
         FROM STREAM name WATERMARK {column} DELAY OF INTERVAL 10 SECONDS"
    ))
}

fn partition_columns(cursor: &mut Cursor<'_>) -> Result<Vec<Name>, Diagnostic> {
    cursor.expect(&Token::LParen, "after PARTITIONED BY")?;
    let mut names = Vec::new();
    loop {
        names.push(cursor.name("a column name")?);
        if !cursor.eat(&Token::Comma) {
            break;
        }
    }
    cursor.expect(&Token::RParen, "or `,` after a column")?;
    Ok(names)
}

fn options(cursor: &mut Cursor<'_>) -> Result<Vec<OptionDeclaration>, Diagnostic> {
    cursor.expect(&Token::LParen, "after OPTIONS")?;
    let mut options: Vec<OptionDeclaration> = Vec::new();
    while !cursor.eat(&Token::RParen) {
        let key = option_key(cursor)?;
        // Spark lets the sign be left out: OPTIONS (path '/x').
        let _ = cursor.eat(&Token::Eq);
        let value = option_value(cursor)?;
        let first = options.iter().find(|known| known.key.text.eq_ignore_ascii_case(&key.text));
        if let Some(first) = first {
            return Err(Diagnostic::at(key.span, format!("option '{}' is given twice", key.text))
                .note_at(first.key.span, "first here"));
        }
        options.push(OptionDeclaration { key, value });
        if !cursor.eat(&Token::Comma) && !cursor.is_token(&Token::RParen) {
            return Err(cursor.unexpected("`,` or `)` after an option"));
        }
    }
    Ok(options)
}

/// A key in quotes, or bare with dots: `kafka.bootstrap.servers`.
fn option_key(cursor: &mut Cursor<'_>) -> Result<Name, Diagnostic> {
    if let Some(Lexeme { token: Token::SingleQuotedString(_), .. }) = cursor.peek() {
        return cursor.string("an option's key");
    }
    let mut key = cursor.name("an option's key")?;
    // A key may have hyphens, which the lexer reads as minus signs.
    while cursor.is_token(&Token::Period) || cursor.is_token(&Token::Minus) {
        let separator = if cursor.eat(&Token::Period) { '.' } else { '-' };
        if separator == '-' {
            cursor.advance();
        }
        let part = cursor.name("the rest of the option's key")?;
        key.text.push(separator);
        key.text.push_str(&part.text);
        key.span = key.span.to(part.span);
    }
    Ok(key)
}

/// A string, a number or true or false; as text.
fn option_value(cursor: &mut Cursor<'_>) -> Result<Name, Diagnostic> {
    let help = "values are strings in quotes, numbers, true or false";
    let here = cursor.here();
    let negative = cursor.eat(&Token::Minus);
    let value = cursor.peek().ok_or_else(|| cursor.unexpected("a value"))?;
    let text = match &value.token {
        Token::SingleQuotedString(text) if !negative => text.clone(),
        Token::Number(digits, _) if negative => format!("-{digits}"),
        Token::Number(digits, _) => digits.clone(),
        Token::Word(_) if !negative && (value.is_word("true") || value.is_word("false")) => {
            value.word().unwrap_or("").to_lowercase()
        }
        _ => return Err(cursor.unexpected("an option's value").help(help)),
    };
    cursor.advance();
    Ok(Name { text, span: here.to(cursor.last_span()) })
}
