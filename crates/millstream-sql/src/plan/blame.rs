//! DataFusion's errors in the words of the pipeline file.
//!
//! DataFusion names places by line and column where it knows them. Where it does not, the name
//! that the message is about is looked for in the query's text. Its own names, `Utf8` for STRING
//! and `__stream_logs` for a table that was called `logs`, never reach the reader.

use datafusion::common::{Column, DataFusionError, SchemaError, Span as PlanSpan};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::tokenizer::{Location, Token};
use regex::Regex;

use super::type_words::{in_spark_words, type_name};
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::functions::known_as;
use crate::functions::literals::Unusable;
use crate::nearest::{listed, nearest, suggest};
use crate::query::prepared::PreparedQuery;
use crate::query::twins::shown;
use crate::syntax::lexer::{Lexed, Lexeme};
use crate::syntax::unreadable::lower_first;

/// Functions of Spark that are left out: their names, why that is, and what to write instead.
const LEFT_OUT: &[(&[&str], &str, &str)] = &[
    (
        &["monotonically_increasing_id", "spark_partition_id"],
        "depends on how rows are spread over partitions, and is not supported",
        "write row_number() OVER (ORDER BY ...) for numbers in an order, or uuid()",
    ),
    (
        &["java_method", "reflect", "try_reflect"],
        "calls a method of Java, and there is no JVM here",
        "write the expression in SQL; CREATE FUNCTION gives it a name",
    ),
];

/// What `error` means for the query.
pub(crate) fn blame(
    state: &SessionState,
    prepared: &PreparedQuery,
    error: &DataFusionError,
) -> Diagnostics {
    let Ok(lexed) = Lexed::new(&prepared.text) else {
        return Diagnostic::at(prepared.span, tidy(&error.message())).into();
    };
    let blame = Blame { state, prepared, lexed };
    let mut found = Vec::new();
    blame.each(error, None, &mut found);
    found.dedup();
    Diagnostics(found)
}

/// Literals that the query's functions cannot use.
pub(crate) fn literals(
    state: &SessionState,
    prepared: &PreparedQuery,
    unusable: &[Unusable],
) -> Diagnostics {
    let Ok(lexed) = Lexed::new(&prepared.text) else { return Diagnostics::default() };
    let blame = Blame { state, prepared, lexed };
    let mut found = Vec::new();
    for Unusable { function, literal, problem } in unusable {
        let mut lexemes = blame.lexemes();
        let is_meant = |lexeme: &Lexeme| match &lexeme.token {
            Token::SingleQuotedString(text) => text == literal && !literal.is_empty(),
            _ => false,
        };
        let at = lexemes.find(|(_, lexeme)| is_meant(lexeme)).map(|(_, lexeme)| lexeme.span);
        let at = at.or_else(|| blame.find_operator(function));
        let at = at.or_else(|| blame.find_call(function));
        found.push(blame.at(at, lower_first(&tidy(problem))));
    }
    found.dedup();
    Diagnostics(found)
}

struct Blame<'a> {
    state: &'a SessionState,
    prepared: &'a PreparedQuery,
    lexed: Lexed,
}

impl Blame<'_> {
    fn each(&self, error: &DataFusionError, at: Option<Span>, found: &mut Vec<Diagnostic>) {
        match error {
            DataFusionError::Collection(errors) => {
                errors.iter().for_each(|error| self.each(error, at, found));
            }
            DataFusionError::Shared(error) => self.each(error, at, found),
            DataFusionError::Context(_, error) => self.each(error, at, found),
            DataFusionError::Diagnostic(diagnostic, error) => {
                let at = diagnostic.span.map(|span| self.span(span)).or(at);
                self.each(error, at, found);
            }
            DataFusionError::SchemaError(error, _) => found.push(self.schema(error, at)),
            other => found.push(self.other(&other.message(), at)),
        }
    }

    /// A place of DataFusion's in the file; of `t.c`, all of it.
    fn span(&self, span: PlanSpan) -> Span {
        let location = |at: datafusion::common::Location| Location::new(at.line, at.column);
        Span::new(self.lexed.byte(location(span.start)), self.lexed.byte(location(span.end)))
    }

    fn schema(&self, error: &SchemaError, at: Option<Span>) -> Diagnostic {
        match error {
            SchemaError::FieldNotFound { field, valid_fields } => {
                self.no_column(field, valid_fields, at)
            }
            // An ambiguous name in the query was refused before, so this is about the result's
            // columns.
            SchemaError::AmbiguousReference { field } => {
                let at = at.or_else(|| self.spans_of(field)).or_else(|| self.find(&field.name));
                self.twins(&field.name, at)
            }
            SchemaError::DuplicateUnqualifiedField { name }
            | SchemaError::DuplicateQualifiedField { name, .. } => {
                self.twins(name, at.or_else(|| self.find(name)))
            }
        }
    }

    fn twins(&self, name: &str, at: Option<Span>) -> Diagnostic {
        let diagnostic = self.at(at, format!("two columns of the query are called `{name}`"));
        diagnostic.help(format!("give one another name: ... AS {name}_2"))
    }

    fn spans_of(&self, column: &Column) -> Option<Span> {
        column.spans.first().map(|span| self.span(span))
    }

    fn no_column(&self, field: &Column, valid: &[Column], at: Option<Span>) -> Diagnostic {
        let at = at.or_else(|| self.spans_of(field)).or_else(|| self.find(&field.name));
        let names: Vec<&str> = valid.iter().map(|column| shown(&column.name)).collect();
        let qualifier = field.relation.as_ref().map(|relation| demangle(relation.table()));
        let message = match &qualifier {
            None => format!("there is no column `{}`", field.name),
            Some(table) => format!("there is no column `{}` in `{table}`", field.name),
        };
        let tables: Vec<String> = {
            let tables = valid.iter().filter_map(|column| column.relation.as_ref());
            let mut tables: Vec<String> = tables.map(|table| demangle(table.table())).collect();
            tables.dedup();
            tables
        };
        let diagnostic = self.at(at, message);
        if let Some(table) = &qualifier
            && !tables.contains(table)
            && !tables.is_empty()
        {
            let message = format!("there is no table or column `{table}` here");
            let known = tables.iter().map(String::as_str).chain(names.iter().copied());
            let help = suggest(table, "tables and columns", known);
            return Diagnostic { message, ..diagnostic }.help(help);
        }
        // A column of the table that was named is suggested before one of another table.
        let own = valid.iter().filter(|column| {
            let table = column.relation.as_ref().map(|table| demangle(table.table()));
            qualifier.is_none() || table == qualifier
        });
        let own: Vec<&str> = own.map(|column| shown(&column.name)).collect();
        match nearest(&field.name, own.iter().copied()) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None if names.is_empty() => diagnostic.help("the query reads no table here"),
            None => {
                let columns = if own.is_empty() { names } else { own };
                diagnostic.help(format!("the columns are {}", listed(columns)))
            }
        }
    }

    fn other(&self, message: &str, at: Option<Span>) -> Diagnostic {
        if let Some(name) = captured(&INVALID_FUNCTION, message) {
            return self.no_function(&name, at);
        }
        if let Some(name) = captured(&FUNCTION, message) {
            let at = at.or_else(|| self.find_call(&name));
            return self.wrong_arguments(&name, message, at);
        }
        if let Some((left, op, right)) = captured_three(&COMPARISON, message) {
            let at = at.or_else(|| self.find_operator(&op));
            let (left, right) = (type_name(&left), type_name(&right));
            let message = format!("`{op}` cannot be applied to {left} and {right}");
            return self.at(at, message).help("CAST one side to the type of the other");
        }
        if let Some((before, rest)) = message.split_once("there is no type `") {
            let (name, help) = rest.split_once('`').unwrap_or((rest, ""));
            let help = match help.trim_start_matches("; ") {
                "" => "write one of Spark's: STRING, INT, BIGINT, DOUBLE, DECIMAL(10,2), TIMESTAMP",
                help => help,
            };
            let at = at.or_else(|| self.find(name));
            // A schema that is a literal names the function and itself.
            let before = if before.contains("is not a schema") { tidy(before) } else { "".into() };
            let before = before.trim_end_matches(':');
            let colon = if before.is_empty() { "" } else { ": " };
            let message = format!("{before}{colon}there is no type `{name}`");
            return self.at(at, message).help(help);
        }
        if message.contains("unique expression names") {
            let name = captured(&SAME_NAME, message).unwrap_or_default();
            return self.twins(&name, at.or_else(|| self.find(&name)));
        }
        if let Some(captures) = NOT_A_CONDITION.captures(message) {
            let (condition, found) = (demangle(&captures[1]), type_name(&captures[2]));
            let at = at.or_else(|| self.find("WHERE"));
            return self
                .at(at, format!("a condition must be BOOLEAN, but `{condition}` is {found}"));
        }
        if message.contains("UNION queries have different number of columns") {
            let at = self.find("UNION").or(at);
            return self.at(at, "both sides of a UNION must have as many columns".into());
        }
        if message.contains("unnest() can only be applied") {
            let at = at.or_else(|| self.find_call("explode"));
            let at = at.or_else(|| self.find_call("explode_outer"));
            let diagnostic = self.at(at, "explode takes an ARRAY or a MAP".into());
            return diagnostic.help("of a MAP name both columns: explode(m) AS (key, value)");
        }
        let at = at.or_else(|| self.find_named_in(message));
        self.at(at, lower_first(&tidy(message)))
    }

    fn no_function(&self, name: &str, at: Option<Span>) -> Diagnostic {
        let at = at.or_else(|| self.find_call(name));
        let is_meant = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        if let Some((_, why, help)) = LEFT_OUT.iter().find(|(names, ..)| is_meant(names)) {
            return self.at(at, format!("`{name}` {why}")).help(*help);
        }
        let state = self.state;
        let mut known: Vec<&str> = state.scalar_functions().keys().map(String::as_str).collect();
        known.extend(state.aggregate_functions().keys().map(String::as_str));
        known.extend(state.window_functions().keys().map(String::as_str));
        known.extend(["explode", "explode_outer", "struct", "if"]);
        known.sort_unstable();
        let diagnostic = self.at(at, format!("there is no function `{name}`"));
        match nearest(name, known.into_iter().filter(|name| !name.starts_with("__"))) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic,
        }
    }

    fn wrong_arguments(&self, name: &str, message: &str, at: Option<Span>) -> Diagnostic {
        let given = captured(&GIVEN_TYPES, message).map(|types| in_spark_words(&types));
        // The order of WITHIN GROUP is in the names that such calls have within.
        let name = name.strip_suffix("_descending").unwrap_or(name);
        let name = name.strip_suffix("_ascending").unwrap_or(name);
        let name = known_as(name);
        let message = match given {
            Some(types) if types.is_empty() => {
                format!("`{name}` cannot be called without arguments")
            }
            Some(types) => format!("`{name}` cannot be called with ({types})"),
            None => lower_first(&tidy(message)),
        };
        let diagnostic = self.at(at, message);
        match name {
            "variant_get" => diagnostic.help("of a STRING: get_json_object(x, '$.a.b')"),
            "array_contains" | "array_remove" => {
                diagnostic.help("cast the array or what is looked for in it")
            }
            _ => diagnostic,
        }
    }

    fn at(&self, at: Option<Span>, message: String) -> Diagnostic {
        Diagnostic::at(at.unwrap_or_else(|| self.prepared.first_word()), message)
    }

    fn lexemes(&self) -> impl Iterator<Item = (usize, &Lexeme)> {
        lexemes(self.prepared, &self.lexed)
    }

    /// The first place where the query has the name.
    fn find(&self, name: &str) -> Option<Span> {
        find(self.prepared, &self.lexed, name)
    }

    fn find_call(&self, name: &str) -> Option<Span> {
        let is_call = |at: usize| {
            self.lexed.lexemes.get(at + 1).is_some_and(|next| next.token == Token::LParen)
        };
        let found = self.lexemes().find(|(at, lexeme)| lexeme.is_word(name) && is_call(*at));
        found.map(|(_, lexeme)| lexeme.span).or_else(|| self.find(name))
    }

    /// The operator, where the query has it only once.
    fn find_operator(&self, op: &str) -> Option<Span> {
        let text = |lexeme: &Lexeme| self.lexed.text[lexeme.span.range()].to_uppercase();
        let mut found = self.lexemes().filter(|(_, lexeme)| text(lexeme) == op);
        let first = found.next()?;
        found.next().is_none().then_some(first.1.span)
    }

    /// The first name in quotes within `message` that the query has.
    fn find_named_in(&self, message: &str) -> Option<Span> {
        QUOTED.captures_iter(message).find_map(|captures| self.find(&captures[1]))
    }
}

/// The first place in the file where the query has the name.
pub(super) fn place_of(prepared: &PreparedQuery, name: &str) -> Option<Span> {
    find(prepared, &Lexed::new(&prepared.text).ok()?, name)
}

fn find(prepared: &PreparedQuery, lexed: &Lexed, name: &str) -> Option<Span> {
    let found = lexemes(prepared, lexed).find(|(_, lexeme)| match &lexeme.token {
        Token::Word(word) => word.value.eq_ignore_ascii_case(name),
        _ => false,
    });
    found.map(|(_, lexeme)| lexeme.span)
}

/// The lexemes of the query among those of the file, with their numbers.
fn lexemes<'a>(
    prepared: &'a PreparedQuery,
    lexed: &'a Lexed,
) -> impl Iterator<Item = (usize, &'a Lexeme)> {
    let is_inside = |lexeme: &Lexeme| {
        let mut pieces = prepared.pieces.iter();
        pieces.any(|piece| lexeme.span.start >= piece.start && lexeme.span.end <= piece.end)
    };
    lexed.lexemes.iter().enumerate().filter(move |(_, lexeme)| is_inside(lexeme))
}

pattern!(INVALID_FUNCTION, r"Invalid function '([^']+)'");
pattern!(FUNCTION, r"(?:[Ff]unction|call to|signature for) '?`?([a-z_][a-z0-9_]*)'?`?\b");
pattern!(
    GIVEN_TYPES,
    r"No function matches the given name and argument types '[a-z0-9_]+\((.*?)\)'"
);
pattern!(
    COMPARISON,
    concat!(
        r"(?:operation|expression) (.+?) (=|!=|<=|>=|<|>|\+|-|\*|/|%|AND|OR|\|\||LIKE|ILIKE) ",
        r"(.+?)(?: to valid types|$|\n)"
    )
);
pattern!(SAME_NAME, r#""[^"]* AS ([^"]+)" at position"#);
pattern!(NOT_A_CONDITION, r"non-boolean predicate '(.*)' returning (.+)");
pattern!(QUOTED, r"['`\x22]([A-Za-z_][A-Za-z0-9_]*)['`\x22]");
pattern!(STREAM_NAME, r"__stream_([A-Za-z0-9_]+?)(?:__[0-9]+)?\b");
fn captured(pattern: &Regex, text: &str) -> Option<String> {
    pattern.captures(text).map(|captures| captures[1].to_owned())
}

fn captured_three(pattern: &Regex, text: &str) -> Option<(String, String, String)> {
    let captures = pattern.captures(text)?;
    Some((captures[1].to_owned(), captures[2].to_owned(), captures[3].to_owned()))
}

/// A relation's name as the pipeline file has it.
fn demangle(name: &str) -> String {
    STREAM_NAME.replace_all(name, "$1").into_owned()
}

/// A message without DataFusion's prefixes, names of types and advice to its own users.
pub fn tidy(message: &str) -> String {
    let mut rest = message;
    for prefix in ["Error during planning: ", "type_coercion\ncaused by\n", "Schema error: "] {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    let rest = rest.split("\n\tCandidate functions").next().unwrap_or(rest);
    let rest = rest.split("\n\nbacktrace").next().unwrap_or(rest);
    let rest = rest.split("\nThis issue was likely caused by a bug").next().unwrap_or(rest);
    let rest = demangle(rest);
    let rest = in_spark_words(&rest);
    rest.trim_end_matches(['.', ' ', '\n']).replace("DataFusion", "Millstream")
}
