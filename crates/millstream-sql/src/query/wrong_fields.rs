//! Fields that are not there, or are there several times.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::Ident;

use crate::diagnostic::Diagnostic;
use crate::nearest::suggest;
use crate::syntax::lexer::Lexed;
use crate::types::spark_type;

/// Refuses `field` of the column or field `before`, whose type is `of`.
pub(super) fn refused(lexed: &Lexed, field: &Ident, before: &str, of: &DataType) -> Diagnostic {
    let is_called = |name: &str| name.eq_ignore_ascii_case(&field.value);
    let diagnostic =
        match of {
            DataType::Struct(fields) if fields.iter().any(|known| is_called(known.name())) => {
                let message = format!("`{before}` has several fields `{}`", field.value);
                Diagnostic::nowhere(message).help("give them other names where they are made")
            }
            DataType::Struct(fields) => {
                let names = fields.iter().map(|field| field.name().as_str());
                Diagnostic::nowhere(format!("`{before}` has no field `{}`", field.value))
                    .help(suggest(&field.value, "fields", names))
            }
            other => {
                let message = format!("`{before}` has no fields: it is {}", spark_type(other));
                Diagnostic::nowhere(message)
            }
        };
    Diagnostic { span: lexed.span(field.span), ..diagnostic }
}
