//! `_metadata`, by which a query asks of which file a row is: `SELECT _metadata.file_name FROM t`.
//!
//! The tables of a query that names it have hidden columns, if they are made of files: one for each
//! field, behind their own. No `*` shows them, as [`super::stars`] says what that stands for, and
//! `_metadata.file_name` becomes the hidden column. NATURAL JOIN would compare the hidden columns
//! of two tables, so beside it there are none.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::syntax::lexer::Lexed;
use crate::types::timestamp;

/// What queries call it.
pub(super) const NAME: &str = "_metadata";
/// Begins the names of hidden columns; the last character is reserved for names in plans.
const PREFIX: &str = "_metadata\u{E000}";

/// The fields, and their types.
fn fields() -> [(&'static str, DataType); 6] {
    [
        ("file_path", DataType::Utf8),
        ("file_name", DataType::Utf8),
        ("file_size", DataType::Int64),
        ("file_block_start", DataType::Int64),
        ("file_block_length", DataType::Int64),
        ("file_modification_time", timestamp()),
    ]
}

/// The field of `_metadata` that a column is.
pub fn field_of(column: &str) -> Option<&str> {
    column.strip_prefix(PREFIX)
}

/// The hidden column for a field, whatever its case, and its type.
pub(super) fn hidden(field: &str) -> Option<(String, DataType)> {
    let mut fields = fields().into_iter();
    let (name, data_type) = fields.find(|(name, _)| name.eq_ignore_ascii_case(field))?;
    Some((format!("{PREFIX}{name}"), data_type))
}

/// Whether a table has hidden columns.
pub fn is_in(schema: &Schema) -> bool {
    schema.fields().last().is_some_and(|last| field_of(last.name()).is_some())
}

/// The columns of a table with hidden ones, unless it has a `_metadata` of its own.
pub(super) fn with_hidden(schema: SchemaRef) -> SchemaRef {
    if schema.fields().iter().any(|field| field.name().eq_ignore_ascii_case(NAME)) {
        return schema;
    }
    let hidden = fields().into_iter().map(|(name, data_type)| {
        FieldRef::new(Field::new(format!("{PREFIX}{name}"), data_type, true))
    });
    let all: Vec<FieldRef> = schema.fields().iter().cloned().chain(hidden).collect();
    Arc::new(Schema::new_with_metadata(all, schema.metadata().clone()))
}

/// The columns of a table without hidden ones.
pub fn without_hidden(schema: &SchemaRef) -> SchemaRef {
    if !is_in(schema) {
        return Arc::clone(schema);
    }
    let own = schema.fields().iter().filter(|field| field_of(field.name()).is_none());
    let own: Vec<FieldRef> = own.cloned().collect();
    Arc::new(Schema::new_with_metadata(own, schema.metadata().clone()))
}

/// Whether a text asks for it.
pub(super) fn is_asked_for(lexed: &Lexed) -> bool {
    let is_name = |token: &Token| match token {
        Token::Word(word) => word.value.eq_ignore_ascii_case(NAME),
        _ => false,
    };
    lexed.lexemes.iter().any(|lexeme| is_name(&lexeme.token))
        && !lexed.lexemes.iter().any(|lexeme| lexeme.is_word("NATURAL"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::limits::RESERVED;

    #[test]
    fn hidden_columns_come_and_go() {
        let schema =
            |name: &str| Arc::new(Schema::new(vec![Field::new(name, DataType::Int32, true)]));
        let own = schema("a");
        let all = with_hidden(Arc::clone(&own));
        assert!(is_in(&all) && !is_in(&own));
        assert_eq!(all.fields().len(), 1 + fields().len());
        assert_eq!(without_hidden(&all), own);
        let (column, data_type) = hidden("FILE_size").expect("there is one");
        assert_eq!(all.field_with_name(&column).expect("it is there").data_type(), &data_type);
        assert_eq!(field_of(&column), Some("file_size"));
        assert!(!is_in(&with_hidden(schema("_Metadata"))));
        assert!(PREFIX.ends_with(RESERVED));
    }

    #[test]
    fn a_text_asks_by_name() {
        let asks = |text: &str| is_asked_for(&Lexed::new(text).expect("the text has tokens"));
        assert!(asks("SELECT t.`_metadata`.file_name FROM t"));
        assert!(!asks("SELECT '_metadata' FROM t"));
        assert!(!asks("SELECT _metadata.file_name FROM t NATURAL JOIN u"));
    }
}
