//! A function's body, ready to be put in the place of a call.

use std::collections::{BTreeSet, HashMap};
use std::ops::{ControlFlow, Range};

use datafusion::sql::sqlparser::ast::{
    self, Expr, GroupByExpr, ObjectName, Query, SelectItem, SetExpr, Visit, VisitMut, Visitor,
    VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::super::ast::{function_name, item_expr, one_part};
use super::super::parse::{Parsed, parse};
use super::built_in;
use crate::diagnostic::{Diagnostic, Span};
use crate::syntax::lexer::{Lexed, Lexeme};

/// A body with names of their own for its parameters.
pub(super) struct Template {
    pub(super) body: Body,
    pub(super) parameters: Vec<Slot>,
    /// What its queries and functions call something, in lower case.
    pub(super) hidden: BTreeSet<String>,
    /// It has columns that are not known.
    pub(super) is_open: bool,
    /// A parameter stands in a query or a function of it.
    pub(super) is_deep: bool,
    /// The tables and views that it reads, in lower case.
    pub(super) reads: BTreeSet<String>,
    /// How many expressions it has.
    pub(super) size: usize,
    /// How deep they stand in each other.
    pub(super) depth: usize,
}

/// What a body gives.
pub(super) enum Body {
    Value(Box<Expr>),
    Rows(Box<Query>),
}

/// A parameter of a template.
pub(super) struct Slot {
    /// Its name in the template.
    pub(super) reserved: String,
    pub(super) data_type: ast::DataType,
    pub(super) default: Option<Expr>,
    /// In how many places it stands.
    pub(super) uses: usize,
}

/// Reads an expression as `SELECT expression`.
pub(in crate::query) fn value(lexed: &Lexed, tokens: &Range<usize>) -> Result<Parsed, Diagnostic> {
    around(lexed, &["SELECT"], tokens, &[])
}

/// Reads a type as that of a cast.
pub(super) fn data_type(lexed: &Lexed, tokens: &Range<usize>) -> Result<ast::DataType, Diagnostic> {
    let (query, ..) = around(lexed, &["SELECT", "CAST", "(", "NULL", "AS"], tokens, &[")"])?;
    match lone(&query) {
        Some(Expr::Cast { data_type, .. }) => Ok(data_type.clone()),
        _ => Err(Diagnostic::nowhere("this is no type")),
    }
}

/// Reads tokens with others around them, which have the place of the first one.
fn around(
    lexed: &Lexed,
    before: &[&str],
    tokens: &Range<usize>,
    after: &[&str],
) -> Result<Parsed, Diagnostic> {
    let written = &lexed.lexemes[tokens.clone()];
    let Some(first) = written.first() else {
        return Err(Diagnostic::nowhere("an expression is missing"));
    };
    let added = |word: &&str| {
        let token = match *word {
            "(" => Token::LParen,
            ")" => Token::RParen,
            word => Token::make_word(word, None),
        };
        Lexeme { token, ..first.clone() }
    };
    let all = before.iter().map(added).chain(written.iter().cloned());
    let whole = lexed.with(all.chain(after.iter().map(added)).collect());
    let all = 0..whole.lexemes.len();
    parse(&whole, std::slice::from_ref(&all))
}

/// The only value of a query that reads nothing.
pub(in crate::query) fn lone(query: &Query) -> Option<&Expr> {
    let Query { with: None, order_by: None, limit_clause: None, fetch: None, body, .. } = query
    else {
        return None;
    };
    let SetExpr::Select(select) = body.as_ref() else { return None };
    let is_grouped = match &select.group_by {
        GroupByExpr::Expressions(keys, modifiers) => !keys.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let has_more = is_grouped
        || select.distinct.is_some()
        || select.selection.is_some()
        || select.having.is_some()
        || select.qualify.is_some()
        || !select.from.is_empty()
        || !select.lateral_views.is_empty()
        || !select.sort_by.is_empty()
        || !select.cluster_by.is_empty()
        || !select.distribute_by.is_empty()
        || !select.named_window.is_empty();
    match select.projection.as_slice() {
        [item] if !has_more => item_expr(item),
        _ => None,
    }
}

/// Whether a query has a name for its only column.
pub(in crate::query) fn has_alias(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    !matches!(select.projection.as_slice(), [SelectItem::UnnamedExpr(_)])
}

/// What stands in expressions.
#[derive(Default)]
pub(in crate::query) struct Contents {
    pub(in crate::query) expressions: usize,
    pub(in crate::query) queries: usize,
    pub(in crate::query) names: usize,
    pub(in crate::query) calls: usize,
    /// An aggregate, or a call over a window, that is in no query.
    pub(in crate::query) aggregates: bool,
    /// A call whose result is another one each time.
    pub(in crate::query) varies: bool,
    /// How deep expressions stand in each other.
    pub(in crate::query) depth: usize,
    /// In how many expressions and queries the visit is.
    around: usize,
    within: usize,
}

impl Contents {
    pub(in crate::query) fn of(node: &impl Visit) -> Self {
        let mut contents = Self::default();
        let _: ControlFlow<()> = node.visit(&mut contents);
        contents
    }
}

impl Visitor for Contents {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.queries += 1;
        self.within += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.within -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.expressions += 1;
        self.around += 1;
        self.depth = self.depth.max(self.around);
        match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => self.names += 1,
            Expr::Function(function) => {
                let name = function_name(function);
                self.calls += 1;
                let is_aggregate = function.over.is_some() || built_in::is_aggregate(&name);
                self.aggregates |= self.within == 0 && is_aggregate;
                self.varies |= built_in::varies(&name);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _expr: &Expr) -> ControlFlow<()> {
        self.around -= 1;
        ControlFlow::Continue(())
    }
}

/// The relations of a query, by their names in lower case.
#[derive(Default)]
pub(super) struct Relations {
    /// Its common table expressions.
    pub(super) ctes: BTreeSet<String>,
    /// What it reads by a name of one part, and is none of these.
    pub(super) reads: BTreeSet<String>,
}

impl Relations {
    pub(super) fn of(query: &Query) -> Self {
        let mut relations = Self::default();
        let _: ControlFlow<()> = query.visit(&mut relations);
        let Self { ctes, reads } = &mut relations;
        reads.retain(|name| !ctes.contains(name));
        relations
    }
}

impl Visitor for Relations {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        self.ctes.extend(ctes.map(|cte| cte.alias.name.value.to_lowercase()));
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.reads.extend(one_part(relation).map(|name| name.to_lowercase()));
        ControlFlow::Continue(())
    }
}

/// How often each parameter stands in a query.
pub(super) fn uses(query: &Query, reserved: &[String]) -> Vec<usize> {
    let mut uses = Uses { reserved, counts: vec![0; reserved.len()] };
    let _: ControlFlow<()> = query.visit(&mut uses);
    uses.counts
}

struct Uses<'a> {
    reserved: &'a [String],
    counts: Vec<usize>,
}

impl Visitor for Uses<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Identifier(ident) = expr
            && let Some(at) = self.reserved.iter().position(|name| *name == ident.value)
        {
            self.counts[at] += 1;
        }
        ControlFlow::Continue(())
    }
}

/// Puts values in the places of names.
pub(super) fn substitute(node: &mut impl VisitMut, values: &HashMap<String, Expr>) {
    let _: ControlFlow<()> = VisitMut::visit(node, &mut Substitution { values });
}

struct Substitution<'a> {
    values: &'a HashMap<String, Expr>,
}

impl VisitorMut for Substitution<'_> {
    type Break = ();

    /// What is put in is not visited again.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(ident) = &*expr
            && let Some(value) = self.values.get(&ident.value)
        {
            *expr = value.clone();
        }
        ControlFlow::Continue(())
    }
}

/// Where tokens stand.
pub(in crate::query) fn span_of(lexed: &Lexed, tokens: &Range<usize>) -> Span {
    let lexemes = &lexed.lexemes[tokens.clone()];
    match (lexemes.first(), lexemes.last()) {
        (Some(first), Some(last)) => first.span.to(last.span),
        _ => Span::new(0, 0),
    }
}
