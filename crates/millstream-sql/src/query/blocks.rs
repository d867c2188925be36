//! One SELECT with its clauses: what Spark reads otherwise than DataFusion, or refuses.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, GroupByExpr, Ident, OrderBy, OrderByKind, Select,
    SelectItem, Spanned, UnaryOperator, Value, ValueWithSpan, WindowSpec, WindowType,
};
use datafusion::sql::sqlparser::tokenizer;

use super::ast::{any, binary, call, cast, function_name, item_expr, quoted_ident, take};
use super::frame::Frame;
use super::naming::item_name;
use super::routines::built_in;
use super::{grouping, using};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// Gives the clauses of `select` the form in which DataFusion reads them as Spark does, and says
/// what Spark refuses.
pub(crate) fn into_read_form(lexed: &Lexed, select: &mut Select, frame: &Frame) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    by_a_column_called_all(select, frame);
    found.extend(number_beside_star(lexed, select));
    found.extend(qualified_groups(lexed, select));
    found.extend(grouping::modifiers_into_sets(lexed, select, frame).err());
    if frame.visible.is_some() {
        using::into_conditions(select, &frame.relations);
    } else if using::keeps_right_and_merges(select) {
        let message = "USING and NATURAL of a RIGHT or FULL JOIN need tables with names, joined in \
                       one chain";
        let span = lexed.span(select.select_token.0.span);
        let help = "write ON, and say of which table each column is";
        found.push(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
    }
    found
}

/// `GROUP BY ALL` means a column or an alias of this name, where there is one.
fn by_a_column_called_all(select: &mut Select, frame: &Frame) {
    let GroupByExpr::All(modifiers) = &select.group_by else { return };
    let all = Ident::new("all");
    if frame.resolve(std::slice::from_ref(&all)).is_some() || frame.alias("all").is_some() {
        let all = Expr::Identifier(quoted_ident("all".to_owned(), tokenizer::Span::empty()));
        select.group_by = GroupByExpr::Expressions(vec![all], modifiers.clone());
    }
}

/// What `*` stands for is not counted, so a number in GROUP BY names nothing beside it.
fn number_beside_star(lexed: &Lexed, select: &Select) -> Option<Diagnostic> {
    let GroupByExpr::Expressions(groups, _) = &select.group_by else { return None };
    let is_number =
        |expr: &&Expr| matches!(expr, Expr::Value(ValueWithSpan { value: Value::Number(..), .. }));
    let number = groups.iter().find(is_number)?;
    let is_star = |item: &SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    let message = "GROUP BY with a number cannot stand beside `*` in the SELECT list";
    let diagnostic = Diagnostic::nowhere(message).help("write the columns' names");
    let span = lexed.span(number.span());
    select.projection.iter().any(is_star).then_some(Diagnostic { span, ..diagnostic })
}

/// QUALIFY of a SELECT with groups sees the result alone: an aggregate in it cannot be of columns
/// that are none of the result.
fn qualified_groups(lexed: &Lexed, select: &Select) -> Option<Diagnostic> {
    let qualify = select.qualify.as_ref()?;
    if !is_grouped(select) {
        return None;
    }
    let names = select.projection.iter().map(item_name).collect::<Option<Vec<String>>>()?;
    let mut found = None;
    let mut is_hidden = |part: &Expr| match part {
        Expr::Identifier(name) if !names.iter().any(|it| it.eq_ignore_ascii_case(&name.value)) => {
            found = Some(name.clone());
            true
        }
        _ => false,
    };
    any(qualify, |part| match part {
        Expr::Function(call) if call.over.is_none() => {
            built_in::is_aggregate(&function_name(call)) && any(part, &mut is_hidden)
        }
        _ => false,
    });
    let name = found?;
    let message =
        format!("`{}` is no column of the result, which QUALIFY beside groups sees", name.value);
    let help = "give the aggregate a name in the SELECT list, and write that name";
    Some(Diagnostic { span: lexed.span(name.span), ..Diagnostic::nowhere(message).help(help) })
}

/// Whether GROUP BY is written.
fn is_grouped(select: &Select) -> bool {
    match &select.group_by {
        GroupByExpr::Expressions(groups, modifiers) => !groups.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    }
}

/// `f(...) OVER (w)` as `f(...) OVER w`.
pub(crate) fn named_window(lexed: &Lexed, function: &mut Function) -> Result<(), Diagnostic> {
    let Some(WindowType::WindowSpec(spec)) = &function.over else { return Ok(()) };
    let WindowSpec { window_name: Some(name), partition_by, order_by, window_frame } = spec else {
        return Ok(());
    };
    if !partition_by.is_empty() || !order_by.is_empty() || window_frame.is_some() {
        let message = format!("the window `{}` is used as it was defined", name.value);
        let help = "write OVER with its name alone, or all of the window";
        let diagnostic = Diagnostic::nowhere(message).help(help);
        return Err(Diagnostic { span: lexed.span(name.span), ..diagnostic });
    }
    function.over = Some(WindowType::NamedWindow(name.clone()));
    Ok(())
}

/// Makes a condition of HAVING that is no condition one, as Spark does: any number but 0 is true.
pub(crate) fn as_condition(having: &mut Expr) {
    use BinaryOperator::{Divide, Minus, Modulo, Multiply, Plus};
    let is_number = match &*having {
        Expr::BinaryOp { op, .. } => matches!(op, Plus | Minus | Multiply | Divide | Modulo),
        Expr::Function(function) => function.over.is_none(),
        _ => false,
    };
    if is_number {
        take(having, |value| cast(value, DataType::Boolean));
    }
}

/// HAVING of a query without GROUP BY and aggregates is about all rows as one group, which an
/// aggregate says.
pub(crate) fn having_of_all_rows(select: &mut Select) {
    if select.having.is_none() {
        return;
    }
    let is_aggregate = |part: &Expr| match part {
        Expr::Function(call) => call.over.is_none() && built_in::is_aggregate(&function_name(call)),
        _ => false,
    };
    let mut exprs = select.projection.iter().filter_map(item_expr).chain(&select.having);
    if is_grouped(select) || exprs.any(|expr| any(expr, is_aggregate)) {
        return;
    }
    // What stands there for |> AGGREGATE asks for an aggregate.
    let is_true = |having: &mut Expr| {
        matches!(having, Expr::Value(ValueWithSpan { value: Value::Boolean(true), .. }))
    };
    if let Some(having) = select.having.take_if(|having| !is_true(having)) {
        let span = having.span();
        let number =
            |digits: &str| Expr::Value(Value::Number(digits.into(), false).with_span(span));
        let count = call("count", vec![number("1")], span);
        let is_group = binary(count, BinaryOperator::GtEq, number("0"));
        let having = Expr::Nested(Box::new(having));
        select.having = Some(binary(is_group, BinaryOperator::And, having));
    }
}

/// A negative number in ORDER BY names no item, and ALL may be the name of a column.
pub(crate) fn check_order(
    lexed: &Lexed,
    order: &OrderBy,
    frames: &[Frame],
) -> Result<(), Diagnostic> {
    let OrderByKind::Expressions(exprs) = &order.kind else {
        let all = Ident::new("all");
        if frames.iter().any(|frame| frame.resolve(std::slice::from_ref(&all)).is_some()) {
            let message = "ORDER BY ALL, where a column is called `all`, could mean either";
            let diagnostic = Diagnostic::nowhere(message).help("write the columns' names");
            return Err(Diagnostic { span: lexed.span(order.span()), ..diagnostic });
        }
        return Ok(());
    };
    let is_negative = |expr: &&Expr| match expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            matches!(**expr, Expr::Value(ValueWithSpan { value: Value::Number(..), .. }))
        }
        _ => false,
    };
    match exprs.iter().map(|order| &order.expr).find(is_negative) {
        Some(number) => {
            let message = format!("ORDER BY position {number} is not in the SELECT list");
            let span = lexed.span(number.span());
            Err(Diagnostic { span, ..Diagnostic::nowhere(message) })
        }
        None => Ok(()),
    }
}
