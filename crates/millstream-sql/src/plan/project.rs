//! Fitting a query's columns to the sink's, as Spark's INSERT does.
//!
//! Columns go by position, or by name with BY NAME. Casts are those of ANSI store assignment: a
//! number into any number, anything simple into a STRING, a date into a timestamp and back;
//! never a STRING into a number. A column that is not given is NULL.

use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit};

use super::blame::place_of;
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::nearest::{listed, nearest};
use crate::query::prepared::PreparedQuery;
use crate::query::twins::shown;
use crate::syntax::cursor::Name;
use crate::types::{holds_variant, spark_type};

/// What the sink's side of an INSERT says.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// What is written to it.
    pub query: &'a PreparedQuery,
    /// The sink's name, and where the INSERT names it.
    pub sink: &'a Name,
    /// `BY NAME`.
    pub by_name: bool,
    /// The column list after the sink's name.
    pub columns: &'a [Name],
    /// The sink's columns, where it declares any.
    pub declared: Option<&'a SchemaRef>,
}

/// Gives `plan` the sink's columns, in the sink's order, with the sink's types.
///
/// Without declared columns the query's columns are the sink's.
///
/// # Errors
/// Columns that are missing, too many, unknown or of a type that cannot be stored.
pub fn project_to_sink(plan: LogicalPlan, target: &Target<'_>) -> Result<LogicalPlan, Diagnostics> {
    refuse_twins(&plan, target)?;
    refuse_variants(&plan, target)?;
    let Some(declared) = target.declared else { return without_declaration(plan, target) };
    let given: Vec<(Expr, FieldRef)> = columns_of(&plan);
    let sources = if target.by_name {
        by_name(&given, declared, target)?
    } else {
        by_position(&given, declared, target)?
    };
    let mut found = Diagnostics::default();
    let mut exprs = Vec::with_capacity(sources.len());
    for (field, source) in declared.fields().iter().zip(sources) {
        exprs.extend(found.take(store(field, source, &given, target)));
    }
    found.into_result()?;
    project(plan, exprs, target.sink.span)
}

/// Two columns of one name cannot be written.
fn refuse_twins(plan: &LogicalPlan, target: &Target<'_>) -> Result<(), Diagnostic> {
    let fields = plan.schema().fields().iter();
    let names: Vec<&str> = fields.map(|field| shown(field.name())).collect();
    let by_position = !target.by_name && (target.declared.is_some() || !target.columns.is_empty());
    let twin = names.iter().enumerate().find(|(index, name)| {
        names[..*index].iter().any(|earlier| earlier.eq_ignore_ascii_case(name))
    });
    match twin {
        Some((_, name)) if !by_position => Err(Diagnostic::at(
            place_of(target.query, name).unwrap_or(target.sink.span),
            format!("two columns of the query are called `{name}`"),
        )
        .help(format!("give one another name: ... AS {name}_2"))),
        _ => Ok(()),
    }
}

/// What a sink stores has the form of its columns, which a VARIANT has not.
fn refuse_variants(plan: &LogicalPlan, target: &Target<'_>) -> Result<(), Diagnostic> {
    let mut fields = plan.schema().fields().iter();
    let Some(field) = fields.find(|field| holds_variant(field.data_type())) else { return Ok(()) };
    let name = shown(field.name());
    let at = place_of(target.query, name).unwrap_or(target.sink.span);
    Err(Diagnostic::at(at, format!("no sink takes the column `{name}`, which has VARIANTs"))
        .help("write to_json(v) for its JSON, or CAST(v:a AS INT) for a value in it"))
}

/// The columns of a plan, each called what the query calls it.
fn columns_of(plan: &LogicalPlan) -> Vec<(Expr, FieldRef)> {
    let columns = plan.schema().iter().map(|(table, field)| {
        let name = shown(field.name());
        let named = match name == field.name() {
            true => field.clone(),
            false => FieldRef::new(field.as_ref().clone().with_name(name)),
        };
        (Expr::Column(Column::from((table, field))), named)
    });
    columns.collect()
}

fn without_declaration(plan: LogicalPlan, target: &Target<'_>) -> Result<LogicalPlan, Diagnostics> {
    let given = columns_of(&plan);
    if target.columns.is_empty() {
        // Qualifiers and metadata of the query's tables are nothing to the sink.
        let exprs = given.into_iter().map(|(expr, field)| expr.alias(field.name())).collect();
        return project(plan, exprs, target.sink.span);
    }
    check_count(given.len(), target.columns.len(), "the column list has", target)?;
    let named = given.into_iter().zip(target.columns);
    let exprs = named.map(|((expr, _), name)| expr.alias(&name.text)).collect();
    project(plan, exprs, target.sink.span)
}

fn project(plan: LogicalPlan, exprs: Vec<Expr>, at: Span) -> Result<LogicalPlan, Diagnostics> {
    let projected = LogicalPlanBuilder::from(plan).project(exprs);
    let built = projected.and_then(LogicalPlanBuilder::build);
    built.map_err(|error| Diagnostic::at(at, super::blame::tidy(&error.message())).into())
}

fn check_count(
    given: usize,
    wanted: usize,
    whose: &str,
    target: &Target<'_>,
) -> Result<(), Diagnostic> {
    if given == wanted {
        return Ok(());
    }
    let count = |number: usize| match number {
        1 => "1 column".to_owned(),
        many => format!("{many} columns"),
    };
    let message = format!("the query gives {}, but {whose} {}", count(given), count(wanted));
    let diagnostic = Diagnostic::at(target.sink.span, message);
    Err(match target.declared {
        Some(declared) => {
            let names = declared.fields().iter().map(|field| field.name().as_str());
            diagnostic.note(format!("the columns of `{}` are {}", target.sink.text, listed(names)))
        }
        None => diagnostic,
    })
}

/// For each declared column the index of the query's column that goes there.
type Sources = Vec<Option<usize>>;

fn by_position(
    given: &[(Expr, FieldRef)],
    declared: &SchemaRef,
    target: &Target<'_>,
) -> Result<Sources, Diagnostics> {
    let sink = &target.sink.text;
    if target.columns.is_empty() {
        check_count(given.len(), declared.fields().len(), &format!("`{sink}` has"), target)?;
        return Ok((0..given.len()).map(Some).collect());
    }
    check_count(given.len(), target.columns.len(), "the column list has", target)?;
    let mut sources = vec![None; declared.fields().len()];
    let mut found = Diagnostics::default();
    for (index, name) in target.columns.iter().enumerate() {
        match position(declared, &name.text) {
            None => found.0.push(unknown_column(&name.text, name.span, declared, sink)),
            Some(at) if sources[at].is_some() => {
                let message = format!("column `{}` is listed twice", name.text);
                found.0.push(Diagnostic::at(name.span, message));
            }
            Some(at) => sources[at] = Some(index),
        }
    }
    found.into_result()?;
    Ok(sources)
}

fn by_name(
    given: &[(Expr, FieldRef)],
    declared: &SchemaRef,
    target: &Target<'_>,
) -> Result<Sources, Diagnostics> {
    let mut sources = vec![None; declared.fields().len()];
    let mut found = Diagnostics::default();
    for (index, (_, field)) in given.iter().enumerate() {
        match position(declared, field.name()) {
            Some(at) => sources[at] = Some(index),
            None => found.0.push(unknown_column(
                field.name(),
                target.sink.span,
                declared,
                &target.sink.text,
            )),
        }
    }
    found.into_result()?;
    Ok(sources)
}

fn position(declared: &SchemaRef, name: &str) -> Option<usize> {
    declared.fields().iter().position(|field| field.name().eq_ignore_ascii_case(name))
}

fn unknown_column(name: &str, at: Span, declared: &SchemaRef, sink: &str) -> Diagnostic {
    let names = declared.fields().iter().map(|field| field.name().as_str());
    let help = match nearest(name, names.clone()) {
        Some(near) => format!("did you mean `{near}`? In a query: ... AS {near}"),
        None => format!("the columns of `{sink}` are {}", listed(names)),
    };
    Diagnostic::at(at, format!("`{sink}` has no column `{name}`")).help(help)
}

/// The expression for one column of the sink.
fn store(
    field: &Field,
    source: Option<usize>,
    given: &[(Expr, FieldRef)],
    target: &Target<'_>,
) -> Result<Expr, Diagnostic> {
    let (sink, name) = (&target.sink.text, field.name());
    let Some((expr, from)) = source.map(|index| &given[index]) else {
        if !field.is_nullable() {
            let message =
                format!("column `{name}` of `{sink}` is NOT NULL, but the query has none");
            return Err(Diagnostic::at(target.sink.span, message)
                .help(format!("add it to the query: ... AS {name}")));
        }
        let null = ScalarValue::try_from(field.data_type()).map_err(|error| {
            Diagnostic::at(target.sink.span, super::blame::tidy(&error.message()))
        })?;
        return Ok(lit(null).alias(name));
    };
    if from.data_type() == field.data_type() {
        return Ok(expr.clone().alias(name));
    }
    if can_store(from.data_type(), field.data_type()) {
        return Ok(cast(expr.clone(), field.data_type().clone()).alias(name));
    }
    let (from_type, to_type) = (spark_type(from.data_type()), spark_type(field.data_type()));
    let message =
        format!("column `{name}` of `{sink}` is {to_type}, but the query gives {from_type}");
    let value = if crate::types::quoted(from.name()) == *from.name() { from.name() } else { "..." };
    let help = format!("cast it: CAST({value} AS {to_type}) AS {name}");
    Err(Diagnostic::at(target.sink.span, message).help(help))
}

/// Spark's ANSI store assignment.
fn can_store(from: &DataType, to: &DataType) -> bool {
    let is_moment = |it: &DataType| matches!(it, DataType::Date32 | DataType::Timestamp(..));
    let is_string =
        |it: &DataType| matches!(it, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    match (from, to) {
        (DataType::Null, _) => true,
        (from, to) if from.is_numeric() && to.is_numeric() => true,
        (from, to) if is_string(to) => !from.is_nested(),
        (from, to) if is_moment(from) && is_moment(to) => true,
        (from, DataType::Binary) => matches!(
            from,
            DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_)
        ),
        (DataType::List(from), DataType::List(to)) => can_hold(from, to),
        (DataType::Map(from, _), DataType::Map(to, _)) => can_hold(from, to),
        (DataType::Struct(from), DataType::Struct(to)) => {
            let mut pairs = from.iter().zip(to);
            from.len() == to.len()
                && pairs.all(|(from, to)| {
                    from.name().eq_ignore_ascii_case(to.name()) && can_hold(from, to)
                })
        }
        (from, to) => from == to,
    }
}

fn can_hold(from: &Field, to: &Field) -> bool {
    from.data_type() == to.data_type() || can_store(from.data_type(), to.data_type())
}
