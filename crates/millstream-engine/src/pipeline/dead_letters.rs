//! `'deadLetter' = 'table'` on a source, and `DEAD LETTER INTO table` of a constraint: which table
//! gets which letters, and whether it can take them.

use std::sync::Arc;

use millstream_sql::diagnostic::{Diagnostic, Diagnostics, Span};
use millstream_sql::nearest::suggest;
use millstream_sql::query::prepared::TableRead;
use millstream_sql::syntax::cursor::Name;

use crate::api::connector::{Connector, ReadMode, Table};
use crate::api::dead_letter::{Layout, OPTION};
use crate::api::options::OptionError;
use crate::api::settings::OnError;

use super::declarations::TableDeclaration;
use super::options::{DeclaredTable, ON_ERROR, WRITER_OPTIONS, WriterOptions};

/// A table that gets dead letters of a flow.
#[derive(Clone)]
pub struct DeadLetterTable {
    /// The table.
    pub sink: Table,
    /// Its connector.
    pub connector: Arc<dyn Connector>,
    /// Which columns it gets.
    pub layout: Layout,
    /// The streams of the flow whose malformed records it gets, by name; none where it gets only
    /// rows that break a constraint.
    pub sources: Vec<String>,
    /// The streams of the flow whose records it gets where the query cannot compute them, by name.
    pub expressions: Vec<String>,
    /// The tables of the flow whose rows it gets where their receiver refuses them, by name.
    pub refusals: Vec<String>,
}

impl DeadLetterTable {
    /// Its identifier among the sinks of its flow: its name in lower case.
    pub fn id(&self) -> String {
        self.sink.name.to_lowercase()
    }
}

/// The declarations of the file, among which the tables of a flow's dead letters are searched for.
pub(super) struct Surroundings<'a> {
    /// All tables that could be read.
    pub(super) tables: &'a [Arc<DeclaredTable>],
    /// All tables as written in the file.
    pub(super) declarations: &'a [TableDeclaration],
    /// The tables that flows write rows to, in lower case.
    pub(super) written: &'a dyn Fn(&str) -> bool,
}

impl Surroundings<'_> {
    fn find(&self, name: &str) -> Option<&Arc<DeclaredTable>> {
        self.tables.iter().find(|table| table.table.name.eq_ignore_ascii_case(name))
    }

    /// The dead-letter tables of a flow that reads `reads` and writes to `sinks`.
    pub(super) fn of_flow(
        &self,
        reads: &[&TableRead],
        sinks: &[&str],
    ) -> Result<Vec<DeadLetterTable>, Diagnostics> {
        let (mut found, mut tables) = (Diagnostics::default(), Vec::<DeadLetterTable>::new());
        for read in reads {
            let Some(source) = self.find(&read.table) else { continue };
            let Some(name) = source.table.options.get(OPTION) else { continue };
            if read.mode == ReadMode::Batch {
                found.0.push(read_at_rest(read, name));
                continue;
            }
            let known = tables.iter_mut().find(|table| table.sink.name.eq_ignore_ascii_case(name));
            if let Some(known) = known {
                if !known.sources.contains(&source.table.name) {
                    known.sources.push(source.table.name.clone());
                }
                continue;
            }
            let wrong = |problem: String, help: String| {
                let error = OptionError::of(OPTION, problem, Some(help));
                Diagnostics::from(source.blame(error, None))
            };
            if let Some(mut letters) = found.take(self.table(name, reads, sinks, &wrong)) {
                letters.sources.push(source.table.name.clone());
                tables.push(letters);
            }
        }
        found.forget_repeats();
        found.into_result()?;
        Ok(tables)
    }

    /// The table that `DEAD LETTER INTO name` means, among `tables` or added to them.
    pub(super) fn named(
        &self,
        name: &Name,
        tables: &mut Vec<DeadLetterTable>,
        reads: &[&TableRead],
        sinks: &[&str],
    ) -> Result<usize, Diagnostics> {
        let named = |table: &DeadLetterTable| table.sink.name.eq_ignore_ascii_case(&name.text);
        if let Some(known) = tables.iter().position(named) {
            return Ok(known);
        }
        let wrong = |problem: String, help: String| {
            Diagnostics::from(Diagnostic::at(name.span, problem).help(help))
        };
        tables.push(self.table(&name.text, reads, sinks, &wrong)?);
        Ok(tables.len() - 1)
    }

    /// Assigns records that the flow's query cannot compute to one of `tables`, or to another that
    /// is added: the table named beside 'onError' on `sink`, or the one of each stream.
    pub(super) fn take_failing_records(
        &self,
        writer: &WriterOptions,
        sink: &DeclaredTable,
        tables: &mut Vec<DeadLetterTable>,
        (reads, sinks): (&[&TableRead], &[&str]),
    ) -> Result<(), Diagnostics> {
        if writer.on_error == OnError::Fail {
            return Ok(());
        }
        let wrong = |problem: String, help: String| {
            let error = OptionError::of(ON_ERROR, problem, Some(help));
            Diagnostics::from(sink.blame(error, None))
        };
        let mut streams = reads.iter().filter(|read| read.mode == ReadMode::Stream).peekable();
        if streams.peek().is_none() {
            let problem = "'onError' = 'dead letter' is for a flow that reads a stream".to_owned();
            let help = "read the table FROM STREAM: with the trigger 'availableNow' the flow ends";
            return Err(wrong(problem, help.to_owned()));
        }
        for read in streams {
            let Some(source) = self.find(&read.table) else { continue };
            let (own, name) = (source.table.options.get(OPTION), source.table.name.clone());
            let Some(letters) = writer.dead_letter.as_deref().or(own) else {
                let problem = format!(
                    "'onError' = 'dead letter' names no table, and `{name}` has no option '{OPTION}'"
                );
                let help = format!(
                    "add '{OPTION}' = 'bad' to the options of `{}`, and declare that table: \
                     CREATE TABLE bad USING delta LOCATION 'bad'",
                    sink.table.name
                );
                return Err(wrong(problem, help));
            };
            let named = |table: &DeadLetterTable| table.sink.name.eq_ignore_ascii_case(letters);
            let at = match tables.iter().position(named) {
                Some(known) => known,
                None => {
                    tables.push(self.table(letters, reads, sinks, &wrong)?);
                    tables.len() - 1
                }
            };
            if !tables[at].expressions.contains(&name) {
                tables[at].expressions.push(name);
            }
        }
        Ok(())
    }

    /// The table `name`; `wrong` makes an error of a problem and what to do about it.
    fn table(
        &self,
        name: &str,
        reads: &[&TableRead],
        sinks: &[&str],
        wrong: &dyn Fn(String, String) -> Diagnostics,
    ) -> Result<DeadLetterTable, Diagnostics> {
        let Some(declared) = self.find(name) else {
            let names = self.declarations.iter().map(|table| table.name.text.as_str());
            let problem = format!("there is no table `{name}` for dead letters");
            return Err(wrong(problem, suggest(name, "declared tables", names)));
        };
        let is_named = |other: &str| other.eq_ignore_ascii_case(name);
        let other = || "name a table that gets nothing else".to_owned();
        if reads.iter().any(|read| is_named(&read.table)) {
            let problem = format!("dead letters cannot go to `{name}`, which the same flow reads");
            return Err(wrong(problem, other()));
        }
        // Both would be sinks of the flow, and those have different names.
        if sinks.iter().any(|sink| is_named(sink)) {
            let problem =
                format!("dead letters cannot go to `{name}`, which the flow writes its rows to");
            return Err(wrong(problem, other()));
        }
        let layout = self.check(declared, wrong)?;
        let (sink, connector) = (declared.table.clone(), Arc::clone(&declared.connector));
        let (sources, expressions, refusals) = (Vec::new(), Vec::new(), Vec::new());
        Ok(DeadLetterTable { sink, connector, layout, sources, expressions, refusals })
    }

    fn check(
        &self,
        declared: &DeclaredTable,
        wrong: &dyn Fn(String, String) -> Diagnostics,
    ) -> Result<Layout, Diagnostics> {
        let table = &declared.table;
        let form = declared.connector.dead_letters().form();
        let layout = Layout::new(table.columns.as_ref(), form).map_err(|error| {
            let at = self.column_span(&table.name, &error.column).or(declared.span);
            let unfit = Diagnostic { span: at, ..Diagnostic::nowhere(error.problem) };
            Diagnostics::from(unfit.help(error.help))
        })?;
        let writer = WRITER_OPTIONS.iter().find(|option| table.options.get(option).is_some());
        if let Some(option) = writer.filter(|_| !(self.written)(&table.name)) {
            let problem = format!(
                "'{option}' is an option of a flow, but `{}` gets dead letters",
                table.name
            );
            let help = "put it on the table that the flow writes its rows to".to_owned();
            return Err(declared.blame(OptionError::of(option, problem, Some(help)), None).into());
        }
        let checked = declared.connector.check_sink(table, layout.schema());
        checked.map_err(|error| match error.key {
            Some(_) => declared.blame(error, None).into(),
            None => {
                let help = error.help.unwrap_or_else(|| "name another table".to_owned());
                let problem =
                    format!("`{}` cannot take dead letters: {}", table.name, error.problem);
                wrong(problem, help)
            }
        })?;
        Ok(layout.with_bytes_max(declared.connector.dead_letters().bytes_max(table)))
    }

    fn column_span(&self, table: &str, column: &str) -> Option<Span> {
        let mut declarations = self.declarations.iter();
        let declaration = declarations.find(|known| known.name.text.eq_ignore_ascii_case(table))?;
        let mut columns = declaration.columns.iter().flatten();
        columns.find(|known| known.name.text == column).map(|known| known.name.span)
    }
}

/// Assigns the rows that receivers of `sinks` refuse to one of `tables`: the one that gets the
/// records that the query cannot compute.
pub(super) fn take_refused_rows(
    sinks: &[&DeclaredTable],
    tables: &mut [DeadLetterTable],
) -> Result<(), Diagnostics> {
    for sink in sinks {
        if !sink.connector.has_refused_rows(&sink.table) {
            continue;
        }
        let mut with_records = tables.iter_mut().filter(|table| !table.expressions.is_empty());
        let Some(letters) = with_records.next() else { continue };
        let wrong = |problem: String, help: &str| {
            let error = OptionError::of(ON_ERROR, problem, Some(help.to_owned()));
            Diagnostics::from(sink.blame(error, sink.span))
        };
        let (own, name) = (&sink.table.name, &letters.sink.name);
        if let Some(other) = with_records.next() {
            let problem = format!(
                "rows that the receiver of `{own}` refuses could go to `{name}` and to `{}`",
                other.sink.name
            );
            return Err(wrong(problem, "name one table in 'deadLetter' beside 'onError'"));
        }
        if !letters.connector.dead_letters().takes_several_writers() {
            let problem = format!(
                "rows that the receiver of `{own}` refuses cannot go to `{name}`: a directory \
                 of files belongs to one writer, and it gets other dead letters already"
            );
            let help = "name a table of Delta or Kafka for dead letters";
            return Err(wrong(problem, help));
        }
        letters.refusals.push(own.clone());
    }
    Ok(())
}

fn read_at_rest(read: &TableRead, letters: &str) -> Diagnostic {
    let message = format!(
        "`{}` sends dead letters to `{letters}`, which a table that is read at rest cannot",
        read.table
    );
    Diagnostic::at(read.span, message).help(format!(
        "read it FROM STREAM (with the trigger 'availableNow' the query ends), or declare it a \
         second time without '{OPTION}'"
    ))
}
