//! The views that a query reads and that cannot be tables: those with a column of a type that our
//! Parquet files cannot have, like INTERVAL, or with too many rows; and those that only a function
//! reads, whose rows the answers do not have.
//!
//! They stand in front of the query as statements of their own, so that what a query reads is what
//! our engine makes of the view's text. A view that the query does not read is left out, as one
//! that is refused would have the query refused with it.
//!
//! Our tables have no database, and neither have those in the answers. Where several databases of a
//! file have a table of one name, it is a view, too: that of the query that made it in the database
//! which the file uses.

use std::collections::{BTreeMap, HashSet};

use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_sql::syntax::cursor::Cursor;
use millstream_sql::syntax::lexer::Lexed;
use millstream_sql::types::quoted;

/// The texts of views' queries, by the views' names in lower case.
#[derive(Default)]
pub struct Views {
    /// As the answers have them; none for what is a table, or is not there any more.
    answered: BTreeMap<String, Option<String>>,
    /// As the file's statements have them.
    stated: BTreeMap<String, String>,
    /// The database in use, in lower case; none at the beginning.
    database: String,
    /// By name and database, the queries that have made tables.
    tables: BTreeMap<(String, String), String>,
}

impl Views {
    /// Makes a name that of the view of a query; of no view where there is none.
    pub fn set(&mut self, name: &str, query: Option<String>) {
        self.answered.insert(name.to_owned(), query);
    }

    /// Makes a name that of a view as a statement has it.
    pub fn state(&mut self, name: &str, query: String) {
        self.answered.remove(name);
        self.stated.insert(name.to_owned(), query);
    }

    /// The tables whose names several databases have, with the queries of those of the one in use.
    pub fn of_database(&self) -> Vec<(String, String)> {
        let is_of_several =
            |name: &str| self.tables.keys().filter(|key| key.0 == *name).count() > 1;
        let own = self
            .tables
            .iter()
            .filter(|((name, database), _)| *database == self.database && is_of_several(name));
        own.map(|((name, _), query)| (name.clone(), query.clone())).collect()
    }

    /// Takes note of the statements about views in a part of the file. The answers do not say which
    /// of them Spark refuses, so they are of use only where the answers do not have the view.
    pub fn note(&mut self, text: &str) {
        // Between queries there may be statements that are none to us.
        let Ok(lexed) = Lexed::new(text) else { return };
        for statement in lexed.lexemes.split(|lexeme| lexeme.token == Token::SemiColon) {
            let (Some(first), Some(last)) = (statement.first(), statement.last()) else { continue };
            let of_all = |at: usize| lexed.lexemes.partition_point(|one| one.span.start < at);
            let (start, end) = (of_all(first.span.start), of_all(last.span.end));
            let cursor = Cursor::new(&lexed, start, end);
            if self.about_tables(cursor.clone(), last.span.end).is_none() {
                self.statement(cursor, last.span.end);
            }
        }
    }

    /// Takes note of `USE database` and of a statement that makes a table of a query, which ends at
    /// a byte; `None` if it is another one.
    fn about_tables(&mut self, mut cursor: Cursor<'_>, end: usize) -> Option<()> {
        if cursor.eat_words(&["USE"]).is_some() {
            self.database = cursor.name("a database").ok()?.text.to_lowercase();
            return Some(());
        }
        cursor.eat_words(&["CREATE", "TABLE"])?;
        cursor.eat_words(&["IF", "NOT", "EXISTS"]);
        let name = cursor.name("a table's name").ok()?.text.to_lowercase();
        while cursor.eat_words(&["AS"]).is_none() {
            cursor.advance()?;
        }
        let query = cursor.lexed.text.get(cursor.here().start..end)?.to_owned();
        self.tables.insert((name, self.database.clone()), query);
        Some(())
    }

    /// Takes note of a statement that ends at a byte; `None` if it is about no view.
    fn statement(&mut self, mut cursor: Cursor<'_>, end: usize) -> Option<()> {
        let is_dropped = cursor.eat_words(&["DROP"]).is_some();
        if !is_dropped {
            cursor.eat_words(&["CREATE"])?;
            cursor.eat_words(&["OR", "REPLACE"]);
            let _ = cursor.eat_words(&["TEMPORARY"]).or_else(|| cursor.eat_words(&["TEMP"]));
        }
        cursor.eat_words(&["VIEW"])?;
        cursor.eat_words(&["IF", "EXISTS"]);
        cursor.eat_words(&["IF", "NOT", "EXISTS"]);
        let name = cursor.name("a view's name").ok()?.text.to_lowercase();
        if is_dropped {
            self.stated.remove(&name);
            return Some(());
        }
        let columns = cursor.here().start;
        let has_columns = cursor.is_token(&Token::LParen) && cursor.skip_parentheses();
        let columns = columns..cursor.last_span().end;
        cursor.eat_words(&["AS"])?;
        let text = &cursor.lexed.text;
        let query = text.get(cursor.here().start..end)?;
        let query = if has_columns {
            format!("SELECT * FROM ({query}) AS named{}", text.get(columns)?)
        } else {
            query.to_owned()
        };
        self.stated.insert(name, query);
        Some(())
    }

    /// The statements that make the views that `text` may read, each after those that it reads.
    pub fn before(&self, text: &str) -> String {
        let (mut made, mut statements) = (HashSet::new(), String::new());
        self.add(text, &mut made, &mut statements);
        statements
    }

    fn add<'a>(&'a self, text: &str, made: &mut HashSet<&'a str>, statements: &mut String) {
        let words: HashSet<String> = words(text).map(str::to_lowercase).collect();
        for name in self.answered.keys().chain(self.stated.keys()) {
            if !words.contains(name) || !made.insert(name) {
                continue;
            }
            let Some(query) = self.query(name) else { continue };
            self.add(query, made, statements);
            *statements += &format!("CREATE TEMPORARY VIEW {} AS {query};\n", quoted(name));
        }
    }

    fn query(&self, name: &str) -> Option<&str> {
        match self.answered.get(name) {
            Some(query) => query.as_deref(),
            None => self.stated.get(name).map(String::as_str),
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|ch: char| !ch.is_alphanumeric() && ch != '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_stand_before_those_that_read_them() {
        let mut views = Views::default();
        for (name, query) in [("a", "SELECT * FROM b"), ("b", "SELECT 1 AS x"), ("c", "oops")] {
            views.set(name, Some(query.to_owned()));
        }
        let wanted = "CREATE TEMPORARY VIEW b AS SELECT 1 AS x;\n\
                      CREATE TEMPORARY VIEW a AS SELECT * FROM b;\n";
        assert_eq!(views.before("SELECT * FROM A, b"), wanted);
        assert_eq!(views.before("SELECT abc FROM d"), "");
        views.set("b", None);
        assert_eq!(views.before("SELECT * FROM b"), "");
    }

    #[test]
    fn views_that_read_each_other_end() {
        let mut views = Views::default();
        views.set("a", Some("SELECT * FROM b".to_owned()));
        views.set("b", Some("SELECT * FROM a".to_owned()));
        assert_eq!(views.before("SELECT * FROM a").lines().count(), 2);
    }

    #[test]
    fn statements_make_views_that_the_answers_do_not_have() {
        let mut views = Views::default();
        views.note(
            "SELECT 1; CREATE VIEW V1(a, b) AS VALUES (1, 2); create temp view v2 as select 3",
        );
        let wanted = "CREATE TEMPORARY VIEW v1 AS SELECT * FROM (VALUES (1, 2)) AS named(a, b);\n\
                      CREATE TEMPORARY VIEW v2 AS select 3;\n";
        assert_eq!(views.before("v1 v2"), wanted);
        views.note("DROP VIEW IF EXISTS v1;");
        views.set("v2", None);
        assert_eq!(views.before("v1 v2"), "");
    }

    #[test]
    fn of_tables_with_one_name_that_of_the_database_in_use_is_meant() {
        let mut views = Views::default();
        views.note(
            "USE a; CREATE TABLE t USING parquet AS SELECT 1 AS i; CREATE TABLE u AS SELECT 2",
        );
        assert!(views.of_database().is_empty());
        views.note("USE b; CREATE TABLE T AS SELECT 20 AS i; CREATE TABLE v (i INT)");
        assert_eq!(views.of_database(), [("t".to_owned(), "SELECT 20 AS i".to_owned())]);
        views.set("t", None);
        views.note("USE a");
        for (name, query) in views.of_database() {
            views.state(&name, query);
        }
        assert_eq!(views.before("FROM t"), "CREATE TEMPORARY VIEW t AS SELECT 1 AS i;\n");
    }
}
