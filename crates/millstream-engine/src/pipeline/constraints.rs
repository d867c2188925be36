//! `(CONSTRAINT name EXPECT (condition) [ON VIOLATION ...], ...)` of a flow: reading it, and the
//! columns that its plan gets for it.
//!
//! Conditions see the columns of the flow's query, under the names that they have there, before
//! they are fitted to the sink. A condition that is null counts as one that does not hold.

use std::ops::Range;

use datafusion::common::{Column, DataFusionError};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, ScalarUDF, lit, when};
use datafusion::sql::sqlparser::tokenizer::Token;
use millstream_sql::diagnostic::{Diagnostic, Diagnostics, Span};
use millstream_sql::plan::condition::Condition;
use millstream_sql::plan::{blame, logical, optimize};
use millstream_sql::syntax::cursor::{Cursor, Name};
use millstream_sql::syntax::lexer::Lexed;

use crate::constraints::{Action, Constraint};

/// A constraint as written in the file.
#[derive(Clone, Debug)]
pub struct ConstraintDeclaration {
    /// Its name.
    pub name: Name,
    /// The condition between the parentheses of EXPECT.
    pub condition: Span,
    /// The condition's tokens.
    pub(super) tokens: Range<usize>,
    /// The action of `ON VIOLATION`.
    pub on_violation: OnViolation,
}

/// The action of `ON VIOLATION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnViolation {
    /// Nothing: the row is kept.
    Keep,
    /// `DROP ROW`.
    Drop,
    /// `FAIL UPDATE`.
    Fail,
    /// `DEAD LETTER [INTO table]`, and its place in the file.
    DeadLetter(Option<Name>, Span),
}

const FORM: &str = "the form is CONSTRAINT name EXPECT (condition) [ON VIOLATION DROP ROW | FAIL \
                    UPDATE | DEAD LETTER [INTO table]]";

/// Takes a list of constraints in parentheses, if there is one.
pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<Vec<ConstraintDeclaration>, Diagnostic> {
    let mut constraints: Vec<ConstraintDeclaration> = Vec::new();
    if !cursor.eat(&Token::LParen) {
        return Ok(constraints);
    }
    loop {
        let constraint = constraint(cursor)?;
        let mut earlier = constraints.iter().map(|earlier| &earlier.name);
        let name = &constraint.name;
        if let Some(first) = earlier.find(|first| first.text.eq_ignore_ascii_case(&name.text)) {
            let message = format!("constraint `{}` is declared twice", name.text);
            return Err(Diagnostic::at(name.span, message)
                .note_at(first.span, "first here")
                .help("give it another name"));
        }
        constraints.push(constraint);
        if !cursor.eat(&Token::Comma) {
            break;
        }
    }
    cursor.expect(&Token::RParen, "after the constraints").map_err(|error| error.help(FORM))?;
    Ok(constraints)
}

fn constraint(cursor: &mut Cursor<'_>) -> Result<ConstraintDeclaration, Diagnostic> {
    let formed = |error: Diagnostic| error.help(FORM);
    cursor.expect_words(&["CONSTRAINT"], "before the constraint's name").map_err(formed)?;
    let name = cursor.name("the constraint's name")?;
    cursor.expect_words(&["EXPECT"], "after the constraint's name").map_err(formed)?;
    if !cursor.is_token(&Token::LParen) {
        return Err(formed(cursor.unexpected("`(` before the condition")));
    }
    let (open, at) = (cursor.at, cursor.here());
    if !cursor.skip_parentheses() {
        return Err(Diagnostic::at(at, "this `(` is not closed").help(FORM));
    }
    let tokens = open + 1..cursor.at.saturating_sub(1);
    let (Some(first), Some(last)) =
        (cursor.lexed.lexemes[tokens.clone()].first(), cursor.lexed.lexemes[tokens.clone()].last())
    else {
        return Err(Diagnostic::at(cursor.last_span(), "EXPECT needs a condition").help(FORM));
    };
    let condition = first.span.to(last.span);
    let on_violation = on_violation(cursor)?;
    Ok(ConstraintDeclaration { name, condition, tokens, on_violation })
}

fn on_violation(cursor: &mut Cursor<'_>) -> Result<OnViolation, Diagnostic> {
    if cursor.eat_words(&["ON", "VIOLATION"]).is_none() {
        return Ok(OnViolation::Keep);
    }
    if cursor.eat_words(&["DROP", "ROW"]).is_some() {
        return Ok(OnViolation::Drop);
    }
    if cursor.eat_words(&["FAIL", "UPDATE"]).is_some() {
        return Ok(OnViolation::Fail);
    }
    let Some(span) = cursor.eat_words(&["DEAD", "LETTER"]) else {
        let expected = "DROP ROW, FAIL UPDATE or DEAD LETTER after ON VIOLATION";
        return Err(cursor.unexpected(expected));
    };
    let into = match cursor.eat_words(&["INTO"]) {
        Some(_) => Some(cursor.name("the name of a table for dead letters")?),
        None => None,
    };
    Ok(OnViolation::DeadLetter(into, span))
}

/// A constraint of a flow, with the place of its condition.
#[derive(Clone)]
pub(super) struct Planned {
    pub(super) constraint: Constraint,
    pub(super) tokens: Range<usize>,
    pub(super) span: Span,
}

/// Adds a column for each constraint to `projected`, which fits the columns of `query` to the
/// sink; and one with the row, as JSON, where an action shows it.
///
/// # Errors
/// A condition that cannot be planned or is not Boolean, pointing into the pipeline file.
pub(super) fn add(
    state: &SessionState,
    projected: LogicalPlan,
    text: &str,
    constraints: &[Planned],
) -> Result<LogicalPlan, Diagnostics> {
    let LogicalPlan::Projection(projection) = projected else {
        unreachable!("fitting to a sink is a projection")
    };
    // Conditions are computed below that projection's names, in one pass with it: the sink may call
    // the columns otherwise, and have fewer of them.
    let query = projection.input.as_ref().clone();
    let (spark, lexed) = (logical::spark_state(state), Lexed::new(text)?);
    let mut found = Diagnostics::default();
    let (mut columns, mut showing) = (projection.expr.clone(), Vec::new());
    for (index, planned) in constraints.iter().enumerate() {
        let (tokens, what) = (planned.tokens.clone(), "a constraint");
        let condition = Condition { lexed: &lexed, tokens, span: planned.span, what };
        let condition = condition.plan(&spark, query.schema());
        let Some(holds) = found.take(condition) else { continue };
        if planned.constraint.action.shows_row() {
            showing.push(holds.clone());
        }
        columns.push(holds.alias(format!("__constraint_{index}")));
    }
    found.into_result()?;
    let at = constraints.first().map_or(Span::new(0, 0), |first| first.span);
    let failed = |error: DataFusionError| {
        let message = format!("the constraints cannot be checked: {}", error.message());
        Diagnostics::from(Diagnostic::at(at, blame::tidy(&message)))
    };
    if let Some(all) = showing.into_iter().reduce(Expr::and) {
        // One column for all constraints: a row is made JSON once, however many it breaks.
        columns.push(shown(&spark, &query, all).map_err(failed)?.alias("__row"));
    }
    let plan = LogicalPlanBuilder::from(query).project(columns);
    let plan = plan.and_then(LogicalPlanBuilder::build).map_err(failed)?;
    optimize::analyze(&spark, plan).map_err(failed)
}

/// The row as JSON where not all of its conditions hold.
fn shown(state: &SessionState, query: &LogicalPlan, all: Expr) -> Result<Expr, DataFusionError> {
    let function = |name: &str| -> Result<ScalarUDF, DataFusionError> {
        let missing = || DataFusionError::Internal(format!("there is no function {name}"));
        state.scalar_functions().get(name).map(|udf| udf.as_ref().clone()).ok_or_else(missing)
    };
    let mut fields = Vec::new();
    for (table, field) in query.schema().iter() {
        fields.push(lit(field.name().as_str()));
        fields.push(Expr::Column(Column::from((table, field))));
    }
    let row = function("to_json")?.call(vec![function("named_struct")?.call(fields)]);
    when(Expr::Not(Box::new(all)), row).end()
}

/// What `ON VIOLATION` means in a flow whose sources have `source_tables` tables for dead letters;
/// `named` finds the table of a name.
pub(super) fn action(
    declared: &ConstraintDeclaration,
    source_tables: usize,
    named: impl FnOnce(&Name) -> Result<usize, Diagnostics>,
) -> Result<Action, Diagnostics> {
    let needs_name = |at: Span, problem: &str| {
        let message = format!("DEAD LETTER has no table: {problem}");
        Err(Diagnostic::at(at, message).help("write DEAD LETTER INTO table").into())
    };
    match &declared.on_violation {
        OnViolation::Keep => Ok(Action::Keep),
        OnViolation::Drop => Ok(Action::Drop),
        OnViolation::Fail => Ok(Action::Fail),
        OnViolation::DeadLetter(Some(name), _) => named(name).map(Action::DeadLetter),
        OnViolation::DeadLetter(None, at) => match source_tables {
            0 => needs_name(*at, "no source of the flow has the option 'deadLetter'"),
            1 => Ok(Action::DeadLetter(0)),
            _ => needs_name(*at, "the sources of the flow have several"),
        },
    }
}

impl ConstraintDeclaration {
    /// The constraint, with what happens to rows that break it.
    pub(super) fn planned(&self, action: Action, text: &str) -> Planned {
        let condition = &text[self.condition.range()];
        let condition = condition.split_whitespace().collect::<Vec<_>>().join(" ");
        let constraint = Constraint { name: self.name.text.as_str().into(), condition, action };
        Planned { constraint, tokens: self.tokens.clone(), span: self.condition }
    }
}
