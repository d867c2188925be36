//! Aggregates, and calls over windows, that differ in casts alone: `max(n)` beside
//! `max(CAST(n AS STRING))`.
//!
//! DataFusion names columns without the casts in them, and refuses two of one name. So casts of
//! such calls get a function around them that tells them apart ([`APART`]). All other calls stay as
//! they are: a checkpoint knows a query again by how its aggregates are written.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, CastKind, Expr, Function, FunctionArguments, Ident, ObjectName, ObjectNamePart, OrderBy,
    Query, Select, SetExpr, Spanned, VisitMut, VisitorMut, WindowType,
};

use arrow::datatypes::DataType;

use super::ast::{call, counting_queries, function_name, take, text};
use super::routines::built_in;
use crate::functions::APART;
use crate::types::planner::spark_type_of;
use crate::types::spark_type;

/// Tells such calls of each SELECT of a query apart. Those of queries within it are left alone.
pub(super) fn tell_apart(query: &mut Query) {
    let mut bodies = vec![(&mut *query.body, query.order_by.as_mut())];
    while let Some((body, order)) = bodies.pop() {
        match body {
            SetExpr::SetOperation { left, right, .. } => {
                bodies.extend([(&mut **left, None), (&mut **right, None)]);
            }
            SetExpr::Select(select) => of_select(select, order),
            _ => {}
        }
    }
}

fn of_select(select: &mut Select, mut order: Option<&mut OrderBy>) {
    let mut calls = Calls::default();
    visit(select, order.as_deref_mut(), &mut calls);
    let twins = calls.twins();
    if !twins.is_empty() {
        visit(select, order, &mut Twins { twins, queries: 0 });
    }
}

/// Visits all that may have an aggregate in it.
fn visit(
    select: &mut Select,
    order: Option<&mut OrderBy>,
    visitor: &mut impl VisitorMut<Break = ()>,
) {
    let _: ControlFlow<()> = VisitMut::visit(&mut select.distinct, visitor);
    let _: ControlFlow<()> = VisitMut::visit(&mut select.projection, visitor);
    let _: ControlFlow<()> = VisitMut::visit(&mut select.having, visitor);
    let _: ControlFlow<()> = VisitMut::visit(&mut select.qualify, visitor);
    if let Some(order) = order {
        let _: ControlFlow<()> = VisitMut::visit(order, visitor);
    }
}

/// Whether a call becomes a column that is named after it.
fn is_column(function: &Function) -> bool {
    function.over.is_some() || built_in::is_aggregate(&function_name(function))
}

/// The parts of a call that DataFusion names without their casts.
fn named(function: &mut Function, visitor: &mut impl VisitorMut<Break = ()>) {
    if let FunctionArguments::List(list) = &mut function.args {
        let _: ControlFlow<()> = VisitMut::visit(&mut list.args, visitor);
    }
    if let Some(WindowType::WindowSpec(window)) = &mut function.over {
        let _: ControlFlow<()> = VisitMut::visit(&mut window.partition_by, visitor);
    }
}

/// The orders of a call, which must have the form of what is ordered.
fn ordered(function: &mut Function, visitor: &mut impl VisitorMut<Break = ()>) {
    if let FunctionArguments::List(list) = &mut function.args {
        let _: ControlFlow<()> = VisitMut::visit(&mut list.clauses, visitor);
    }
    let _: ControlFlow<()> = VisitMut::visit(&mut function.within_group, visitor);
}

/// The text of a call, in which equal casts are written alike, or without casts.
fn written(function: &Function, without_casts: bool) -> String {
    let mut function = function.clone();
    named(&mut function, &mut Writing { without_casts, queries: 0 });
    function.to_string()
}

/// What a cast makes of a value, the same for all words of one type.
fn made(kind: &CastKind, data_type: &ast::DataType) -> String {
    let word = data_type.to_string().to_uppercase();
    let name = match spark_type_of(data_type) {
        Ok(of) if of.is_numeric() => spark_type(&of),
        Ok(of @ (DataType::Boolean | DataType::Binary | DataType::Date32)) => spark_type(&of),
        Ok(of @ DataType::Timestamp(..)) => spark_type(&of),
        Ok(of @ DataType::Utf8) if !word.contains("COLLATE") => spark_type(&of),
        // The fields of an INTERVAL, and collations, are in the word alone.
        _ => word,
    };
    match kind {
        CastKind::Cast | CastKind::DoubleColon => name,
        CastKind::TryCast | CastKind::SafeCast => format!("{name} OR NULL"),
    }
}

/// The calls of a SELECT: by their texts without casts the texts with them.
#[derive(Default)]
struct Calls {
    texts: HashMap<String, HashSet<String>>,
    queries: usize,
}

impl Calls {
    /// Those that differ in casts alone.
    fn twins(self) -> HashSet<String> {
        self.texts.into_values().filter(|texts| texts.len() > 1).flatten().collect()
    }
}

impl VisitorMut for Calls {
    type Break = ();

    counting_queries!();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let (0, Expr::Function(function)) = (self.queries, &*expr)
            && is_column(function)
        {
            let texts = self.texts.entry(written(function, true)).or_default();
            texts.insert(written(function, false));
        }
        ControlFlow::Continue(())
    }
}

/// Writes the casts of a call alike, or leaves them out.
struct Writing {
    without_casts: bool,
    queries: usize,
}

impl VisitorMut for Writing {
    type Break = ();

    counting_queries!();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.queries > 0 {
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Cast { .. } if self.without_casts => take(expr, |cast| match cast {
                Expr::Cast { expr, .. } => *expr,
                other => other,
            }),
            Expr::Cast { kind, data_type, .. } => {
                let name = ObjectNamePart::Identifier(Ident::new(made(kind, data_type)));
                *data_type = ast::DataType::Custom(ObjectName(vec![name]), Vec::new());
                *kind = CastKind::Cast;
            }
            Expr::Identifier(name) => name.quote_style = None,
            Expr::CompoundIdentifier(parts) => {
                parts.iter_mut().for_each(|part| part.quote_style = None);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Puts the function around the casts of some calls.
struct Twins {
    twins: HashSet<String>,
    queries: usize,
}

impl VisitorMut for Twins {
    type Break = ();

    counting_queries!();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let (0, Expr::Function(function)) = (self.queries, expr)
            && is_column(function)
            && self.twins.contains(&written(function, false))
        {
            named(function, &mut Casts { queries: 0 });
            ordered(function, &mut Casts { queries: 0 });
        }
        ControlFlow::Continue(())
    }
}

/// Puts the function around all casts.
struct Casts {
    queries: usize,
}

impl VisitorMut for Casts {
    type Break = ();

    counting_queries!();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let (0, Expr::Cast { kind, data_type, .. }) = (self.queries, &*expr) {
            let (made, span) = (made(kind, data_type), expr.span());
            take(expr, |cast| call(APART, vec![cast, text(made, span)], span));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::parse::parse;
    use crate::syntax::lexer::Lexed;

    fn told_apart(text: &str) -> String {
        let lexed = Lexed::new(text).expect("the text has tokens");
        let all = 0..lexed.lexemes.len();
        let parsed = parse(&lexed, std::slice::from_ref(&all));
        let (mut query, ..) = parsed.unwrap_or_else(|_| panic!("{text} is a query"));
        tell_apart(&mut query);
        query.to_string()
    }

    #[test]
    fn casts_of_such_calls_are_told_apart() {
        let query = "SELECT max(n), max(CAST(n AS STRING)) FROM t \
                     HAVING max(n::STRING) > '1' ORDER BY max(CAST(n AS STRING))";
        let wanted = "SELECT max(n), max(__apart(CAST(n AS STRING), 'STRING')) FROM t \
                      HAVING max(__apart(n::STRING, 'STRING')) > '1' \
                      ORDER BY max(__apart(CAST(n AS STRING), 'STRING'))";
        assert_eq!(told_apart(query), wanted);
        let query = "SELECT sum(CAST(n AS INT) + 1), sum(TRY_CAST(n AS INT) + 1) OVER (), \
                     sum(CAST(n AS INTEGER) + 1) OVER () FROM t";
        let wanted = "SELECT sum(CAST(n AS INT) + 1), \
                      sum(__apart(TRY_CAST(n AS INT), 'INT OR NULL') + 1) OVER (), \
                      sum(__apart(CAST(n AS INTEGER), 'INT') + 1) OVER () FROM t";
        assert_eq!(told_apart(query), wanted);
    }

    #[test]
    fn all_other_calls_stay() {
        for query in [
            "SELECT max(n), max(CAST(m AS STRING)) FROM t",
            "SELECT max(CAST(n AS INT)), max(CAST(n AS INTEGER)), max(n::INT) FROM t",
            "SELECT max(n), (SELECT max(CAST(n AS STRING)) FROM t) FROM t",
            "SELECT max(n) FROM t UNION ALL SELECT max(CAST(n AS STRING)) FROM t",
            "SELECT upper(n), upper(CAST(n AS STRING)), n, CAST(n AS INT) FROM t",
        ] {
            assert_eq!(told_apart(query), query);
        }
    }
}
