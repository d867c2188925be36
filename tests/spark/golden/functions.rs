//! The functions that a file declares between its queries.
//!
//! Spark keeps them in its session; to ours they are statements in front of a query. The answers do
//! not say which of them Spark refuses. Those that ours refuses are left out, so that the queries
//! behind them have the functions that were there before.

use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_query::statements::Statements;
use millstream_sql::query::routines::declare::begins;
use millstream_sql::syntax::cursor::Cursor;
use millstream_sql::syntax::lexer::Lexed;

/// The statements about functions of a file, up to some place.
#[derive(Default)]
pub struct Functions {
    /// How many bytes of the file have been read.
    pub read: usize,
    text: String,
}

impl Functions {
    /// Goes on to byte `end` of the file, before which there is `text`.
    pub fn go_on(&mut self, text: &str, end: usize) {
        self.read = end;
        // Between queries there may be statements that are none to us.
        let Ok(lexed) = Lexed::new(text) else { return };
        for statement in lexed.lexemes.split(|lexeme| lexeme.token == Token::SemiColon) {
            let (Some(first), Some(last)) = (statement.first(), statement.last()) else { continue };
            let of_all = |at: usize| lexed.lexemes.partition_point(|one| one.span.start < at);
            let (start, end) = (of_all(first.span.start), of_all(last.span.end));
            if begins(&Cursor::new(&lexed, start, end)) {
                self.add(&text[first.span.start..last.span.end]);
            }
        }
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
