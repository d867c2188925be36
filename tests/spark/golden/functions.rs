//! The functions and variables that a file declares between its queries.
//!
//! Spark keeps functions in its session; to ours they are statements in front of a query. The
//! answers do not say which of them Spark refuses. Those that ours refuses are left out, so that
//! the queries behind them have the functions that were there before.
//!
//! Variables are the session's on both sides, so that statements about them run once, in order,
//! also those that EXECUTE IMMEDIATE runs, which see the temporary views of the file. A script
//! between BEGIN and END has variables of its own, and is left out.

use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_query::statements::Statements;
use millstream_sql::query::routines::declare::begins;
use millstream_sql::query::variables::declare as variables;
use millstream_sql::syntax::cursor::Cursor;
use millstream_sql::syntax::lexer::Lexed;

/// The statements about functions of a file, up to some place.
#[derive(Default)]
pub struct Functions {
    /// How many bytes of the file have been read.
    pub read: usize,
    text: String,
    /// The temporary views, each of which replaces an earlier one of its name.
    views: String,
}

impl Functions {
    /// Goes on to byte `end` of the file, before which there is `text`. Gives the statements about
    /// variables.
    pub fn go_on(&mut self, text: &str, end: usize) -> Vec<String> {
        self.read = end;
        let mut about_variables = Vec::new();
        // Between queries there may be statements that are none to us.
        let Ok(lexed) = Lexed::new(text) else { return about_variables };
        let is_script = lexed.lexemes.iter().any(|lexeme| lexeme.is_word("BEGIN"));
        for statement in lexed.lexemes.split(|lexeme| lexeme.token == Token::SemiColon) {
            let (Some(first), Some(last)) = (statement.first(), statement.last()) else { continue };
            let of_all = |at: usize| lexed.lexemes.partition_point(|one| one.span.start < at);
            let (start, end) = (of_all(first.span.start), of_all(last.span.end));
            let (cursor, statement) =
                (Cursor::new(&lexed, start, end), &text[first.span.start..last.span.end]);
            if begins(&cursor) || is_mode(statement) {
                self.add(statement);
            }
            if is_view(&cursor) && Statements::parse(statement).is_ok() {
                self.views += &format!("{};\n", replacing(statement));
            }
            if variables::begins(&cursor) && !is_script {
                about_variables.push(format!("{}{statement}", self.text));
            }
            if variables::begins_immediate(&cursor) && !is_script {
                about_variables.push(format!("{}{}{statement}", self.views, self.text));
            }
        }
        about_variables
    }

    fn add(&mut self, statement: &str) {
        let longer = format!("{}{statement};\n", self.text);
        if Statements::parse(&longer).is_ok() {
            self.text = longer;
        }
    }

    /// The statements in front of a query.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A statement that makes a view, whether there is one of its name or not.
fn replacing(statement: &str) -> String {
    let after = statement.get("CREATE".len()..).unwrap_or_default();
    let word = after.split_whitespace().next().unwrap_or_default();
    if word.eq_ignore_ascii_case("OR") {
        statement.to_owned()
    } else {
        format!("CREATE OR REPLACE{after}")
    }
}

/// Whether it is `SET spark.sql.ansi.enabled`: a function that was made in the other mode is
/// refused.
fn is_mode(statement: &str) -> bool {
    let statement = statement.to_ascii_lowercase();
    statement.starts_with("set ") && statement.contains("spark.sql.ansi.enabled")
}

fn is_view(cursor: &Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    let begins = ahead.eat_words(&["CREATE"]).is_some();
    ahead.eat_words(&["OR", "REPLACE"]);
    begins && ahead.are_words(&["TEMPORARY", "VIEW"])
}
