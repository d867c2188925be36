//! `percentile_cont(share) WITHIN GROUP (ORDER BY x)` and `percentile_disc`, as calls of the value
//! and its share, and `mode() WITHIN GROUP (ORDER BY x)`, as one of the value.
//!
//! Over a stream `percentile_cont(x, share)` stays DataFusion's: a checkpoint has its state in that
//! form.
//!
//! Over a named window they stay as they are, and the planner refuses them: its order is not in
//! sight, and with one Spark has no such call.

use datafusion::sql::sqlparser::ast::{Expr, Function, FunctionArguments, Spanned, WindowType};

use super::ast::{arguments, call, function_name};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// Rewrites a call where it is one of these.
pub(super) fn rewrite(lexed: &Lexed, expr: &mut Expr, is_batch: bool) -> Result<(), Diagnostic> {
    let Expr::Function(function) = expr else { return Ok(()) };
    let name = function_name(function);
    if name == "percentile_cont" && !is_batch && function.within_group.is_empty() {
        return Ok(());
    }
    let names = match name.as_str() {
        "percentile_cont" => ["percentile", "percentile_cont_descending"],
        "percentile_disc" => ["percentile_disc_ascending", "percentile_disc_descending"],
        // Of several values that occur most often, the first one in the order.
        "mode" if !function.within_group.is_empty() => ["mode", "mode_descending"],
        _ => return Ok(()),
    };
    if matches!(function.over, Some(WindowType::NamedWindow(_))) {
        return Ok(());
    }
    let share = if name == "mode" { "" } else { "0.5" };
    let refused = |message: String| Diagnostic {
        span: lexed.span(function.name.span()),
        ..Diagnostic::nowhere(message)
            .help(format!("write {name}({share}) WITHIN GROUP (ORDER BY x)"))
    };
    if is_distinct(function) {
        return Err(refused(format!("`{name}` takes no DISTINCT")));
    }
    if is_framed(function) {
        return Err(refused(format!("`{name}` takes no ORDER BY and no frame in its OVER")));
    }
    let shares: Vec<&Expr> = arguments(function).collect();
    let [order] = function.within_group.as_slice() else {
        return Err(refused(format!("`{name}` takes one value in WITHIN GROUP")));
    };
    let args = match (name.as_str(), shares.as_slice()) {
        ("mode", []) => vec![order.expr.clone()],
        ("mode", _) => return Err(refused(format!("`{name}` takes its value in WITHIN GROUP"))),
        (_, [share]) => vec![order.expr.clone(), (*share).clone()],
        _ => return Err(refused(format!("`{name}` takes a share beside WITHIN GROUP"))),
    };
    let name = names[usize::from(order.options.asc == Some(false))];
    if let Expr::Function(made) = call(name, args, function.name.0[0].span()) {
        function.name = made.name;
        function.args = made.args;
        function.within_group = Vec::new();
    }
    Ok(())
}

fn is_distinct(function: &Function) -> bool {
    match &function.args {
        FunctionArguments::List(list) => list.duplicate_treatment.is_some(),
        _ => false,
    }
}

fn is_framed(function: &Function) -> bool {
    match &function.over {
        Some(WindowType::WindowSpec(spec)) => {
            !spec.order_by.is_empty() || spec.window_frame.is_some() || spec.window_name.is_some()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::{OrderByExpr, OrderByOptions};
    use datafusion::sql::sqlparser::tokenizer::Span;

    use super::*;
    use crate::query::ast::text;

    #[test]
    fn over_a_stream_percentile_cont_of_two_arguments_stays_as_it_is() {
        let lexed = Lexed::new("SELECT 1").expect("the text has tokens");
        let share = text("0.5".to_owned(), Span::empty());
        let mut expr = call("percentile_cont", vec![share], Span::empty());
        let before = expr.clone();
        assert!(rewrite(&lexed, &mut expr, false).is_ok());
        assert_eq!(expr, before);
        assert!(rewrite(&lexed, &mut expr, true).is_err(), "it has no WITHIN GROUP");
        let Expr::Function(function) = &mut expr else { panic!("it is a call") };
        function.within_group = vec![OrderByExpr {
            expr: text("x".to_owned(), Span::empty()),
            options: OrderByOptions { asc: None, nulls_first: None },
            with_fill: None,
        }];
        assert!(rewrite(&lexed, &mut expr, false).is_ok());
        assert!(expr.to_string().starts_with("percentile("), "{expr}");
    }
}
