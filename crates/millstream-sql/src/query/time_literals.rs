//! `TIME '12:30:00'` as a call that gives the time; to DataFusion it would be a cast, and there are
//! no casts to TIME.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Spanned, TimezoneInfo, TypedString, Value, ValueWithSpan,
};

use super::ast::{call, text};
use crate::diagnostic::Diagnostic;
use crate::functions::times_of_day::TIME_OF;
use crate::syntax::lexer::Lexed;
use crate::values::time_of_day::parse_time;

/// Rewrites a literal in place.
pub(super) fn rewrite(lexed: &Lexed, expr: &mut Expr) -> Result<(), Diagnostic> {
    let Expr::TypedString(TypedString {
        data_type: DataType::Time(None, TimezoneInfo::None),
        value: ValueWithSpan { value, span },
        ..
    }) = &*expr
    else {
        return Ok(());
    };
    let (Value::SingleQuotedString(written) | Value::DoubleQuotedString(written)) = value else {
        return Ok(());
    };
    let Some(us) = parse_time(written) else {
        let message = format!("'{written}' is no TIME (INVALID_TYPED_LITERAL)");
        let diagnostic = Diagnostic::nowhere(message).help("write TIME'12:30:00.5'");
        return Err(Diagnostic { span: lexed.span(*span), ..diagnostic });
    };
    let (us, span) = (text(us.to_string(), *span), expr.span());
    *expr = call(TIME_OF, vec![us], span);
    Ok(())
}
