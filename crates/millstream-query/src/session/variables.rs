//! The variables of a session.
//!
//! A value is computed when it is set, by a query of its own, and cast to the variable's type as
//! Spark casts it: what does not fit is an error, and leaves all variables as they were. A DEFAULT
//! is kept as text, since `SET VAR name = DEFAULT` computes it again.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use futures::StreamExt as _;
use millstream_engine::failures::from_datafusion;
use millstream_sql::diagnostic::{Diagnostic, Span};
use millstream_sql::nearest::suggest;
use millstream_sql::query::prepare::is_plain;
use millstream_sql::query::variables::declare::{Given, Statement};
use millstream_sql::query::variables::known::{BYTES_MAX, Variable};
use millstream_sql::syntax::cursor::Name;
use millstream_sql::types::{collations, field_type, spark_type};

use super::{PlannedQuery, QuerySession, Source};
use crate::error::QueryError;
use crate::statements::Statements;

/// How many variables a session may have.
const VARIABLES_MAX: usize = 1_000;
/// Stands in the query that casts a value, which has no other variables.
const VALUE: &str = "__value";

/// What a session knows by DECLARE.
#[derive(Clone, Debug, Default)]
pub(super) struct Variables {
    declared: Vec<Declared>,
    /// Values of markers, which last for one statement.
    pub(super) markers: Vec<Arc<Variable>>,
}

#[derive(Clone, Debug)]
struct Declared {
    variable: Arc<Variable>,
    /// Its type in Spark's words.
    data_type: String,
    /// The expression that it was declared with.
    default: Option<String>,
}

/// A value and its type.
#[derive(Clone, Debug)]
pub(super) struct Typed {
    pub(super) field: FieldRef,
    pub(super) value: ScalarValue,
}

impl Typed {
    fn null() -> Self {
        let field = Arc::new(Field::new(VALUE, DataType::Null, true));
        Self { field, value: ScalarValue::Null }
    }
}

impl Variables {
    /// All that a query sees.
    pub(super) fn all(&self) -> Vec<Arc<Variable>> {
        let declared = self.declared.iter().map(|one| Arc::clone(&one.variable));
        declared.chain(self.markers.iter().cloned()).collect()
    }

    /// Refuses a setting that has the name of a variable.
    pub(super) fn check_setting(&self, key: &str) -> Result<(), QueryError> {
        let lower = key.trim().to_lowercase();
        let name = lower.strip_prefix("system.").unwrap_or(&lower);
        let name = name.strip_prefix("session.").unwrap_or(name);
        let Some(at) = self.place(name) else { return Ok(()) };
        let name = &self.declared[at].variable.name;
        let message = format!(
            "UNSUPPORTED_FEATURE.SET_VARIABLE_IN_SET: `{name}` is a variable, and no setting"
        );
        let help = format!("write SET VAR {name} = ...");
        Err(QueryError::Sql(Diagnostic::nowhere(message).help(help).into()))
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.declared.iter().position(|one| one.variable.is_called(name))
    }

    /// Where the variable of this name is.
    pub(super) fn known(&self, name: &Name) -> Result<usize, QueryError> {
        self.place(&name.text).ok_or_else(|| {
            let message = format!("UNRESOLVED_VARIABLE: there is no variable `{}`", name.text);
            let names = self.declared.iter().map(|one| one.variable.name.as_str());
            let help = match self.declared.is_empty() {
                true => format!("declare it first: DECLARE {} INT", name.text),
                false => suggest(&name.text, "variables", names),
            };
            wrong(name.span, message, help)
        })
    }

    fn set(&mut self, at: usize, given: Typed) {
        let name = self.declared[at].variable.name.clone();
        let Typed { field, value } = given;
        self.declared[at].variable = Arc::new(Variable { name, field, value, is_marker: false });
    }

    fn remove(&mut self, name: &Name, if_there: bool) -> Result<(), QueryError> {
        if if_there && self.place(&name.text).is_none() {
            return Ok(());
        }
        let at = self.known(name)?;
        self.declared.remove(at);
        Ok(())
    }

    /// Checks that the names can be declared.
    fn check_new(&self, names: &[Name], replaces: bool) -> Result<(), QueryError> {
        let known = names.iter().find(|name| self.place(&name.text).is_some());
        if let Some(known) = known.filter(|_| !replaces) {
            let message = format!("VARIABLE_ALREADY_EXISTS: `{}` is a variable", known.text);
            return Err(wrong(known.span, message, "write DECLARE OR REPLACE"));
        }
        if self.declared.len() + names.len() > VARIABLES_MAX {
            let message = format!("more than {VARIABLES_MAX} variables of one session");
            let help = "drop those that are not needed: DROP TEMPORARY VARIABLE name";
            return Err(wrong(names[0].span, message, help));
        }
        Ok(())
    }

    /// Refuses values that are too much beside those of the other variables.
    fn check_room(&self, changed: &[&str], bytes: usize, span: Span) -> Result<(), QueryError> {
        let changed: HashSet<String> = changed.iter().map(|name| name.to_lowercase()).collect();
        let stays = |one: &&Declared| !changed.contains(&one.variable.name.to_lowercase());
        let others = self.declared.iter().filter(stays);
        let others: usize = others.map(|one| one.variable.value.size()).sum();
        if others.saturating_add(bytes) <= BYTES_MAX {
            return Ok(());
        }
        let message = format!("the variables of this session have more than {BYTES_MAX} bytes");
        let help = "write them to a table, or drop some: DROP TEMPORARY VARIABLE name";
        Err(wrong(span, message, help))
    }

    /// Declares variables of one value, with a type and a DEFAULT as they are written.
    fn declare(
        &mut self,
        names: &[Name],
        given: &Typed,
        data_type: &str,
        default: Option<&str>,
    ) -> Result<(), QueryError> {
        let changed: Vec<&str> = names.iter().map(|name| name.text.as_str()).collect();
        let bytes = given.value.size().saturating_mul(names.len());
        self.check_room(&changed, bytes, names[0].span)?;
        for name in names {
            let (name, field) = (name.text.clone(), Arc::clone(&given.field));
            let (value, is_marker) = (given.value.clone(), false);
            let variable = Arc::new(Variable { name, field, value, is_marker });
            let (data_type, default) = (data_type.to_owned(), default.map(str::to_owned));
            let declared = Declared { variable, data_type, default };
            match self.place(&declared.variable.name) {
                Some(at) => self.declared[at] = declared,
                None => self.declared.push(declared),
            }
        }
        Ok(())
    }
}

/// An error at a place in a statement.
pub(super) fn wrong(span: Span, message: impl Into<String>, help: impl Into<String>) -> QueryError {
    QueryError::Sql(Diagnostic::at(span, message).help(help).into())
}

/// An error in a text that is not the statement's own, at a place in the statement.
pub(super) fn moved(error: QueryError, span: Span) -> QueryError {
    let QueryError::Sql(found) = error else { return error };
    let first = found.0.into_iter().next();
    let (message, help) = first.map(|first| (first.message, first.help)).unwrap_or_default();
    QueryError::Sql(Diagnostic::at(span, message).maybe_help(help).into())
}

/// The only row of a query; `None` where there is none.
pub(super) async fn only_row(
    planned: &PlannedQuery,
    span: Span,
) -> Result<Option<Vec<Typed>>, QueryError> {
    let schema = planned.schema();
    if collations::are_in(&schema) {
        let message = "a variable has no collation";
        return Err(wrong(span, message, "write x COLLATE UTF8_BINARY"));
    }
    let mut rows = planned.run().await?;
    let mut found = None;
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(|error| QueryError::Failure(from_datafusion(error)))?;
        if batch.num_rows() == 0 {
            continue;
        }
        if batch.num_rows() > 1 || found.is_some() {
            let message = "ROW_SUBQUERY_TOO_MANY_ROWS: the query has more than one row";
            return Err(wrong(span, message, "write LIMIT 1, or an aggregate"));
        }
        let columns = batch.columns().iter().zip(schema.fields());
        let typed = columns.map(|(column, field)| {
            let value = ScalarValue::try_from_array(column, 0).map_err(from_datafusion)?;
            if value.size() > BYTES_MAX {
                let message = format!("this value has more than {BYTES_MAX} bytes");
                return Err(wrong(span, message, "write it to a table, and read that"));
            }
            let field = field.as_ref().clone().with_data_type(column.data_type().clone());
            Ok::<_, QueryError>(Typed { field: Arc::new(field), value })
        });
        found = Some(typed.collect::<Result<Vec<Typed>, QueryError>>()?);
    }
    Ok(found)
}

/// Where some tokens stand.
pub(super) fn span_of(text: &Statements, tokens: &Range<usize>) -> Span {
    match &text.lexed.lexemes[tokens.clone()] {
        [first, .., last] => first.span.to(last.span),
        [only] => only.span,
        [] => Span::new(0, 0),
    }
}

impl QuerySession {
    /// Does what a statement about variables says.
    ///
    /// # Errors
    /// What is wrong with it; then no variable has changed.
    pub async fn change(
        &mut self,
        text: &Statements,
        statement: &Statement,
    ) -> Result<(), QueryError> {
        match statement {
            Statement::Declare { names, replaces, data_type, default } => {
                self.variables.check_new(names, *replaces)?;
                let words = |tokens: &Range<usize>| {
                    text.lexed.text[span_of(text, tokens).range()].to_owned()
                };
                let default = match default {
                    Some(tokens) => {
                        if !is_plain(&text.lexed, tokens)? {
                            let message = "INVALID_DEFAULT_VALUE: a DEFAULT has no query and no \
                                           aggregate in it";
                            let help = "declare the variable without it, and write SET VAR name = \
                                        (SELECT ...)";
                            return Err(wrong(span_of(text, tokens), message, help));
                        }
                        Some((self.value(text, tokens).await?, words(tokens)))
                    }
                    None => None,
                };
                let (value, default) = default.unzip();
                let value = value.unwrap_or_else(Typed::null);
                let data_type = match data_type {
                    Some(tokens) => words(tokens),
                    None => field_type(&value.field),
                };
                let value = self.converted(value, &data_type, names[0].span).await?;
                self.variables.declare(names, &value, &data_type, default.as_deref())
            }
            Statement::Set(assignments) => {
                let mut values = Vec::with_capacity(assignments.len());
                for (name, given) in assignments {
                    let at = self.variables.known(name)?;
                    let value = match given {
                        Given::Default => self.default_of(at, name.span).await?,
                        Given::Value(tokens) => self.value(text, tokens).await?,
                    };
                    values.push((at, value, name.span));
                }
                self.set_all(values).await
            }
            Statement::SetRow { names, query } => {
                let places = self.places(names)?;
                let mut variables = self.variables.all();
                if let [at] = places[..]
                    && selects_default(text, query)
                {
                    let Typed { field, value } = self.default_of(at, names[0].span).await?;
                    let name = "default".to_owned();
                    variables.push(Arc::new(Variable { name, field, value, is_marker: false }));
                }
                let source = Source::Query(query);
                let planned = self.plan_with(text, source, &variables).await?;
                self.put_into(names, &planned, span_of(text, query)).await
            }
            Statement::Drop { name, if_there } => self.variables.remove(name, *if_there),
        }
    }

    /// Where variables are.
    pub(super) fn places(&self, names: &[Name]) -> Result<Vec<usize>, QueryError> {
        names.iter().map(|name| self.variables.known(name)).collect()
    }

    /// Puts the only row of a query into variables; NULL, where there is none.
    pub(super) async fn put_into(
        &mut self,
        names: &[Name],
        planned: &PlannedQuery,
        span: Span,
    ) -> Result<(), QueryError> {
        let places = self.places(names)?;
        let count = planned.schema().fields().len();
        if count != names.len() {
            let message = format!(
                "ASSIGNMENT_ARITY_MISMATCH: the query has {count} columns, and there are {} \
                 variables",
                names.len()
            );
            return Err(wrong(span, message, "write a variable for each column"));
        }
        let row = only_row(planned, span).await?;
        let row = row.unwrap_or_else(|| vec![Typed::null(); count]);
        let spans = names.iter().map(|name| name.span);
        let values = places.into_iter().zip(row).zip(spans);
        self.set_all(values.map(|((at, value), span)| (at, value, span)).collect()).await
    }

    async fn set_all(&mut self, values: Vec<(usize, Typed, Span)>) -> Result<(), QueryError> {
        let first = values.first().map(|(_, _, span)| *span);
        let mut converted = Vec::with_capacity(values.len());
        for (at, value, span) in values {
            let data_type = self.variables.declared[at].data_type.as_str();
            converted.push((at, self.converted(value, data_type, span).await?));
        }
        let bytes: usize = converted.iter().map(|(_, given)| given.value.size()).sum();
        let changed =
            converted.iter().map(|(at, _)| self.variables.declared[*at].variable.name.as_str());
        let changed: Vec<&str> = changed.collect();
        if let Some(span) = first {
            self.variables.check_room(&changed, bytes, span)?;
        }
        for (at, value) in converted {
            self.variables.set(at, value);
        }
        Ok(())
    }

    /// The value of an expression.
    pub(super) async fn value(
        &self,
        text: &Statements,
        tokens: &Range<usize>,
    ) -> Result<Typed, QueryError> {
        let variables = self.variables.all();
        let planned = self.plan_with(text, Source::Value(tokens), &variables).await?;
        let row = only_row(&planned, span_of(text, tokens)).await?;
        let value = row.and_then(|row| row.into_iter().next());
        Ok(value.unwrap_or_else(Typed::null))
    }

    /// What a variable is by its declaration.
    async fn default_of(&self, at: usize, span: Span) -> Result<Typed, QueryError> {
        let Some(default) = &self.variables.declared[at].default else { return Ok(Typed::null()) };
        let text = Statements::parse(&format!("SELECT {default}"))?;
        let tokens = 1..text.lexed.lexemes.len();
        self.value(&text, &tokens).await.map_err(|error| moved(error, span))
    }

    /// A value as one of a type. What does not fit is an error also without ANSI mode.
    async fn converted(
        &self,
        given: Typed,
        data_type: &str,
        span: Span,
    ) -> Result<Typed, QueryError> {
        if field_type(&given.field).eq_ignore_ascii_case(data_type) {
            return Ok(given);
        }
        if data_type == spark_type(&DataType::Null) {
            let message = format!("a {} is not cast to VOID", field_type(&given.field));
            let help = "declare the variable with a type: DECLARE OR REPLACE name INT";
            return Err(wrong(span, message, help));
        }
        let text = Statements::parse(&format!("SELECT CAST(`{VALUE}` AS {data_type})"))?;
        let Typed { field, value } = given;
        let name = VALUE.to_owned();
        let variables = [Arc::new(Variable { name, field, value, is_marker: false })];
        let tokens = 1..text.lexed.lexemes.len();
        let mut strict = self.clone();
        strict.meaning.ansi = true;
        let planned = strict.plan_with(&text, Source::Value(&tokens), &variables).await;
        let planned = planned.map_err(|error| moved(error, span))?;
        let row = only_row(&planned, span).await?;
        Ok(row.and_then(|row| row.into_iter().next()).unwrap_or_else(Typed::null))
    }
}

/// Whether a query is `SELECT DEFAULT FROM ...`: elsewhere Spark refuses the word.
fn selects_default(text: &Statements, query: &Range<usize>) -> bool {
    match &text.lexed.lexemes[query.clone()] {
        [first, second, third, ..] => {
            first.is_word("SELECT") && second.is_word("DEFAULT") && third.is_word("FROM")
        }
        _ => false,
    }
}
