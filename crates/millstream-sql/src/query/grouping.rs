//! GROUP BY with several sets of columns, in the form in which DataFusion reads it.
//!
//! `GROUP BY a, b WITH ROLLUP` becomes `GROUP BY ROLLUP(a, b)`, and `GROUP BY a, b GROUPING SETS
//! (...)` the sets alone. Numbers and aliases in a set become what they stand for.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, GroupByExpr, GroupByWithModifier, Ident, Select,
    SelectItem, Spanned, Value, ValueWithSpan,
};

use super::ast::{arguments, binary, call, cast, function_name, item_expr};
use super::frame::Frame;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// The most columns or groups of columns of a CUBE that is spelled out.
const CUBE_MAX: usize = 12;

/// Puts what WITH ROLLUP, WITH CUBE and GROUPING SETS say into the grouping itself.
pub(crate) fn modifiers_into_sets(
    lexed: &Lexed,
    select: &mut Select,
    frame: &Frame,
) -> Result<(), Diagnostic> {
    let Select { projection, group_by, having, select_token, .. } = select;
    let GroupByExpr::Expressions(groups, modifiers) = group_by else { return Ok(()) };
    let items = projection.as_slice();
    let mut missing = None;
    match modifiers.as_slice() {
        [GroupByWithModifier::Rollup] => {
            let columns = std::mem::take(groups).into_iter().map(|group| vec![group]);
            groups.push(Expr::Rollup(columns.collect()));
        }
        [GroupByWithModifier::Cube] => {
            let columns = std::mem::take(groups).into_iter().map(|group| vec![group]);
            groups.push(Expr::Cube(columns.collect()));
        }
        [GroupByWithModifier::GroupingSets(Expr::GroupingSets(sets))] => {
            let mut sets = sets.clone();
            let meant = |expr: &Expr| meant(lexed, items, frame, expr);
            let all = groups.iter().map(meant).collect::<Result<Vec<_>, _>>()?;
            for expr in sets.iter_mut().flatten() {
                *expr = meant(expr)?;
            }
            let is_in_a_set = |one: &&Expr| sets.iter().flatten().any(|other| is_same(one, other));
            missing = all.iter().find(|one| !is_in_a_set(one)).cloned();
            if missing.is_some() {
                sets.push(all);
            }
            *groups = vec![Expr::GroupingSets(sets)];
        }
        _ => {}
    }
    modifiers.retain(|modifier| matches!(modifier, GroupByWithModifier::Totals));
    for group in groups.iter_mut() {
        let (Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets)) = group else {
            continue;
        };
        for expr in sets.iter_mut().flatten() {
            *expr = meant(lexed, items, frame, expr)?;
        }
        as_one(sets);
        spell_out(group);
    }
    // A column in no set is NULL in all rows. DataFusion knows only those in sets, so there is one
    // more set with all of them, whose rows are left out.
    if let Some(missing) = missing {
        let is_left_out = call("grouping", vec![missing], select_token.0.span);
        let one = Expr::Value(ValueWithSpan {
            value: Value::Number("1".to_owned(), false),
            span: select_token.0.span,
        });
        let kept = binary(is_left_out, BinaryOperator::Eq, one);
        *having = Some(match having.take() {
            Some(having) => binary(kept, BinaryOperator::And, Expr::Nested(Box::new(having))),
            None => kept,
        });
    }
    Ok(())
}

fn is_same(one: &Expr, other: &Expr) -> bool {
    one.to_string().eq_ignore_ascii_case(&other.to_string())
}

/// `a + b` and `b + a` are one expression to Spark: the first stands for both.
fn as_one(sets: &mut [Vec<Expr>]) {
    let mut known: Vec<Expr> = Vec::new();
    for expr in sets.iter_mut().flatten() {
        match known.iter().find(|known| is_exchanged(known, expr)) {
            Some(first) => expr.clone_from(first),
            None if matches!(expr, Expr::BinaryOp { .. }) => known.push(expr.clone()),
            None => {}
        }
    }
}

fn is_exchanged(one: &Expr, other: &Expr) -> bool {
    let (
        Expr::BinaryOp { left, op, right },
        Expr::BinaryOp { left: other_left, op: other_op, right: other_right },
    ) = (one, other)
    else {
        return false;
    };
    op == other_op
        && matches!(op, BinaryOperator::Plus | BinaryOperator::Multiply)
        && is_same(left, other_right)
        && is_same(right, other_left)
}

/// What a number or an alias in a set stands for.
fn meant(
    lexed: &Lexed,
    items: &[SelectItem],
    frame: &Frame,
    expr: &Expr,
) -> Result<Expr, Diagnostic> {
    match expr {
        Expr::Nested(inner) => meant(lexed, items, frame, inner),
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
            let number = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            let item = number.and_then(|at| items.get(at)).and_then(item_expr);
            item.cloned().ok_or_else(|| {
                let message = format!("GROUP BY position {digits} is not in the SELECT list");
                let help = format!("it has {} items", items.len());
                let diagnostic = Diagnostic::nowhere(message).help(help);
                Diagnostic { span: lexed.span(expr.span()), ..diagnostic }
            })
        }
        Expr::Identifier(name) if frame.resolve(std::slice::from_ref(name)).is_none() => {
            let aliased = items.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias }
                    if alias.value.eq_ignore_ascii_case(&name.value) =>
                {
                    Some(expr.clone())
                }
                _ => None,
            });
            Ok(aliased.unwrap_or_else(|| expr.clone()))
        }
        other => Ok(other.clone()),
    }
}

/// ROLLUP and CUBE of groups of columns, which DataFusion does not read, as their sets.
fn spell_out(group: &mut Expr) {
    let sets = match group {
        Expr::Rollup(parts) if has_groups(parts) => {
            (0..=parts.len()).rev().map(|length| joined(&parts[..length])).collect()
        }
        Expr::Cube(parts) if has_groups(parts) && parts.len() <= CUBE_MAX => {
            let all = (0..1_usize << parts.len()).rev();
            let chosen = all.map(|bits| {
                let parts = parts.iter().enumerate();
                let chosen = parts.filter(|(at, _)| bits & (1 << at) != 0);
                joined(&chosen.map(|(_, part)| part.clone()).collect::<Vec<_>>())
            });
            chosen.collect()
        }
        _ => return,
    };
    *group = Expr::GroupingSets(sets);
}

fn has_groups(parts: &[Vec<Expr>]) -> bool {
    // Spark reads no empty group here.
    parts.iter().any(|part| part.len() > 1) && !parts.iter().any(Vec::is_empty)
}

/// The columns of several groups, each once.
fn joined(parts: &[Vec<Expr>]) -> Vec<Expr> {
    let mut all: Vec<Expr> = Vec::new();
    for expr in parts.iter().flatten() {
        if !all.iter().any(|known| is_same(known, expr)) {
            all.push(expr.clone());
        }
    }
    all
}

/// What a query block with several sets groups by, in the order of the text; `None` for other
/// blocks. Of several empty sets Spark knows no `grouping_id` but in the SELECT list, so that they
/// count as others do.
pub(crate) fn columns(select: &Select) -> Option<Vec<Expr>> {
    let GroupByExpr::Expressions(groups, modifiers) = &select.group_by else { return None };
    let are_several_empty = |expr: &Expr| match expr {
        Expr::GroupingSets(sets) => sets.len() > 1 && sets.iter().all(Vec::is_empty),
        _ => false,
    };
    if groups.iter().any(are_several_empty) {
        return None;
    }
    let is_set =
        |expr: &Expr| matches!(expr, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_));
    if modifiers.is_empty() && !groups.iter().any(is_set) {
        return None;
    }
    let of = |expr: &Expr| match expr {
        Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => joined(sets),
        other => vec![other.clone()],
    };
    Some(joined(&groups.iter().map(of).collect::<Vec<_>>()))
}

/// Checks `grouping` and `grouping_id`, and gives the latter its columns if it has none.
pub(crate) fn check_call(
    lexed: &Lexed,
    frame: &Frame,
    function: &mut Function,
) -> Result<(), Diagnostic> {
    let name = function_name(function);
    if !matches!(name.as_str(), "grouping" | "grouping_id") {
        return Ok(());
    }
    let span = function.name.0[0].span();
    let Some(columns) = &frame.grouping else {
        let message = format!("`{name}` is for GROUP BY with GROUPING SETS, ROLLUP or CUBE");
        let diagnostic = Diagnostic::nowhere(message);
        return Err(Diagnostic { span: lexed.span(span), ..diagnostic });
    };
    if name == "grouping" {
        return Ok(());
    }
    let args: Vec<&Expr> = arguments(function).collect();
    if args.is_empty() {
        if let Expr::Function(with) = call("grouping_id", columns.clone(), span) {
            function.args = with.args;
        }
    } else if !are_all(frame, &args, columns) {
        let columns: Vec<String> = columns.iter().map(Expr::to_string).collect();
        let message = format!(
            "the arguments of `grouping_id` are all columns of GROUP BY in their order, ({}) \
             (GROUPING_ID_COLUMN_MISMATCH)",
            columns.join(", ")
        );
        let help = "write grouping_id() for all of them, or grouping(x) for one column";
        let diagnostic = Diagnostic::nowhere(message).help(help);
        return Err(Diagnostic { span: lexed.span(span), ..diagnostic });
    }
    Ok(())
}

/// Whether arguments can be these columns, each in its place. What is no plain column has several
/// spellings, and is taken for the one in its place.
fn are_all(frame: &Frame, args: &[&Expr], columns: &[Expr]) -> bool {
    let name = |expr: &Expr| {
        let parts = match expr {
            Expr::Identifier(name) => std::slice::from_ref(name),
            Expr::CompoundIdentifier(parts) => parts.as_slice(),
            _ => return None,
        };
        // With the table or without it, and of two tables by USING, a column is the same one.
        frame.resolve(parts)?.parts.pop()
    };
    let is_other = |(&arg, column): (&&Expr, &Expr)| match (name(arg), name(column)) {
        (Some(one), Some(other)) => one != other,
        _ => false,
    };
    // What several columns in parentheses count as is not looked at.
    columns.iter().any(|column| matches!(column, Expr::Tuple(_)))
        || args.len() == columns.len() && !args.iter().zip(columns).any(is_other)
}

/// `grouping__id` is a name of `grouping_id()`, unless something else is called so.
pub(crate) fn named_id(frame: &Frame, expr: &mut Expr) {
    if let Expr::Identifier(name) = expr
        && is_id(frame, name)
    {
        *expr = call("grouping_id", Vec::new(), name.span);
    }
    id_of_all_rows(frame, expr);
}

/// `grouping_id()` of the empty set alone is 0; without columns there is no such function.
fn id_of_all_rows(frame: &Frame, expr: &mut Expr) {
    let Expr::Function(function) = &*expr else { return };
    let is_of_no_columns = frame.grouping.as_ref().is_some_and(Vec::is_empty);
    let is_plain = function.over.is_none() && arguments(function).next().is_none();
    if is_of_no_columns && is_plain && function_name(function) == "grouping_id" {
        let span = function.name.0[0].span();
        let zero = Value::Number("0".to_owned(), false).with_span(span);
        *expr = cast(Expr::Value(zero), DataType::BigInt(None));
    }
}

/// Whether `name` is `grouping__id`.
pub(crate) fn is_id(frame: &Frame, name: &Ident) -> bool {
    name.value.eq_ignore_ascii_case("grouping__id")
        && frame.grouping.is_some()
        && frame.resolve(std::slice::from_ref(name)).is_none()
}

impl Frame {
    /// Whether a name becomes another expression.
    pub(crate) fn stands_for_other(&self, name: &Ident) -> bool {
        self.merged_value(&name.value).is_some() || is_id(self, name)
    }
}
