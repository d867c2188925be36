//! A pipeline file, read and checked: its tables, and the flows between them.
//!
//! Nothing outside is touched here. What needs functions is left for later: each branch's
//! [`plan`](Branch::plan), and with it the check that the sink accepts the query's columns.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use millstream_sql::diagnostic::{Diagnostic, Diagnostics, Span};
use millstream_sql::nearest::suggest;
use millstream_sql::plan::logical::to_logical;
use millstream_sql::plan::project::{Target, project_to_sink};
use millstream_sql::query::prepare;
use millstream_sql::query::prepared::{PreparedQuery, TableCatalog, TableRead};
use millstream_sql::query::routines::declare::Routine;
use millstream_sql::syntax::cursor::Name;
use millstream_sql::syntax::lexer::Lexed;
use millstream_sql::syntax::limits;
use millstream_store::directory_name::folded;

use crate::api::connector::{Connector, ReadMode, Registry, Table};
use crate::api::references::Lookup;
use crate::api::settings::OnError;
use crate::constraints::Checks;

use super::branches::{OTHER_STREAM, OTHER_STREAM_HELP};
use super::checkpoints::{self, Placed};
use super::constraints::{self, ConstraintDeclaration, Planned};
use super::dead_letters::{DeadLetterTable, Surroundings, take_refused_rows};
use super::declarations::{
    BranchDeclaration, FlowDeclaration, Statement, TableDeclaration, ViewDeclaration,
};
use super::options::{DeclaredTable, Roles, WRITER_OPTIONS, WriterOptions};
use super::parse;

/// The most mistakes that are reported; the search for more ends there.
const DIAGNOSTICS_MAX: usize = 100;

/// A checked pipeline file.
pub struct Pipeline {
    /// The file's name as given.
    pub file_name: String,
    /// The file's text, which all spans count in.
    pub text: String,
    /// The declared tables in order.
    pub tables: Vec<Arc<DeclaredTable>>,
    /// The flows in order.
    pub flows: Vec<Flow>,
}

/// The queries that run together from one checkpoint: a query and the table it writes to, or
/// several that share their FROM clause.
#[derive(Clone)]
pub struct Flow {
    /// The flow's name, unique in the file.
    pub name: String,
    /// Its queries, at least one; all read the same streams.
    pub branches: Vec<Branch>,
    /// The tables that get its dead letters, in the order in which its sources name them.
    pub dead_letters: Vec<DeadLetterTable>,
    /// How the flow is driven.
    pub writer: WriterOptions,
    /// Where the checkpoint is: `checkpointLocation`, else `.millstream/<file>/<flow>`.
    pub checkpoint: String,
    /// True where the queries read a stream; else they run once over what is there.
    pub is_stream: bool,
}

/// A query and the table it writes to.
#[derive(Clone)]
pub struct Branch {
    /// The table written to.
    pub sink: Table,
    /// The sink's connector.
    pub connector: Arc<dyn Connector>,
    /// The query.
    pub query: PreparedQuery,
    declared: Arc<DeclaredTable>,
    insert: Insert,
    constraints: Vec<Planned>,
}

/// What INSERT says about the sink.
#[derive(Clone)]
struct Insert {
    sink: Name,
    by_name: bool,
    columns: Vec<Name>,
}

impl Pipeline {
    /// Reads and checks a file. `overrides` are `table.option` (or a writer option alone, for all
    /// flows) with their values; they win over the file.
    ///
    /// # Errors
    /// Everything that is wrong with the file, not only the first thing.
    pub fn load(
        file_name: &str,
        text: &str,
        registry: &Registry,
        overrides: &[(String, String)],
        lookup: &Arc<dyn Lookup>,
    ) -> Result<Self, Diagnostics> {
        limits::check_length(text)?;
        let lexed = Lexed::new(text)?;
        limits::check(&lexed).into_result()?;
        let (statements, mut found) = parse::parse(&lexed);
        let mut file = File::default();
        for statement in statements {
            match statement {
                Statement::Table(table) => file.tables.push(table),
                Statement::View(view) => file.views.push(view),
                Statement::Function(routine) => file.functions.push(routine),
                Statement::Flow(flow) => file.flows.push(flow),
            }
        }
        found.0.extend(file.twice().0);
        let tables = file.declared(registry, lookup, &mut found);
        let console = DeclaredTable::console(registry);
        let mut loader = Loader::new(&lexed, &file, tables, console);
        loader.override_options(overrides, lookup, &mut found);
        let flows = loader.flows(file_name, &mut found);
        // In the order in which they were found: what comes late is often a consequence of what
        // came first.
        found.0.truncate(DIAGNOSTICS_MAX);
        found.0.sort_by_key(|diagnostic| diagnostic.span.map_or(0, |span| span.start));
        found.forget_repeats();
        found.into_result()?;
        let tables = loader.tables;
        Ok(Self { file_name: file_name.to_owned(), text: text.to_owned(), tables, flows })
    }

    /// The declared table called `name`, as [`TableRead::table`] has it.
    pub fn table(&self, name: &str) -> Option<&Arc<DeclaredTable>> {
        self.tables.iter().find(|table| table.table.name.eq_ignore_ascii_case(name))
    }
}

impl Flow {
    /// What happens to records that its queries cannot compute.
    pub fn on_error(&self) -> OnError {
        let has_dead_letters = self.dead_letters.iter().any(|table| !table.expressions.is_empty());
        if has_dead_letters { OnError::DeadLetter } else { OnError::Fail }
    }

    /// The tables that its queries read, each once: streams in the order of the plans' scans, which
    /// is the same for all branches.
    pub fn reads(&self) -> Vec<&TableRead> {
        let mut reads: Vec<&TableRead> = Vec::new();
        for read in self.branches.iter().flat_map(|branch| &branch.query.reads) {
            if !reads.iter().any(|known| known.registered_as == read.registered_as) {
                reads.push(read);
            }
        }
        reads
    }
}

impl Branch {
    /// The branch's identifier in its flow: the sink's name in lower case.
    pub fn id(&self) -> String {
        self.sink.name.to_lowercase()
    }

    /// Plans the query with its columns fitted to the sink's, which the sink's connector checks.
    /// The tables in [`PreparedQuery::reads`] must be registered in `state` as `registered_as`.
    /// Columns for [`checks`](Self::checks) follow those of the sink.
    pub fn plan(&self, state: &SessionState) -> Result<LogicalPlan, Diagnostics> {
        let plan = to_logical(state, &self.query)?;
        let target = Target {
            query: &self.query,
            sink: &self.insert.sink,
            by_name: self.insert.by_name,
            columns: &self.insert.columns,
            declared: self.sink.columns.as_ref(),
        };
        let plan = project_to_sink(plan, &target)?;
        self.check_sink(&Arc::new(plan.schema().as_arrow().clone()))?;
        match &self.constraints[..] {
            [] => Ok(plan),
            constraints => constraints::add(state, plan, &self.query.text, constraints),
        }
    }

    /// What is to be checked of the rows that come out of the plan; `None` without constraints.
    pub fn checks(&self) -> Option<Checks> {
        let constraints = self.constraints.iter().map(|planned| planned.constraint.clone());
        (!self.constraints.is_empty()).then(|| Checks::new(constraints.collect()))
    }

    /// The places of its constraints' conditions.
    pub(crate) fn condition_spans(&self) -> impl Iterator<Item = Span> {
        self.constraints.iter().map(|planned| planned.span)
    }

    /// Asks the sink's connector whether it takes rows of `schema`.
    pub fn check_sink(&self, schema: &SchemaRef) -> Result<(), Diagnostics> {
        let checked = self.connector.check_sink(&self.sink, schema);
        checked.map_err(|error| {
            let about_rows = error.key.is_none();
            let diagnostic = self.declared.blame(error, Some(self.insert.sink.span));
            // A problem of the rows is shown at the INSERT, where the user sees both query and
            // table.
            if !about_rows {
                return diagnostic.into();
            }
            let diagnostic = Diagnostic { span: Some(self.insert.sink.span), ..diagnostic };
            match self.declared.span {
                Some(declared) => diagnostic.note_at(declared, "declared here").into(),
                None => diagnostic.into(),
            }
        })
    }
}

/// The statements of a file by kind.
#[derive(Default)]
struct File {
    tables: Vec<TableDeclaration>,
    views: Vec<ViewDeclaration>,
    functions: Vec<Arc<Routine>>,
    flows: Vec<FlowDeclaration>,
}

impl File {
    fn declared(
        &self,
        registry: &Registry,
        lookup: &Arc<dyn Lookup>,
        found: &mut Diagnostics,
    ) -> Vec<Arc<DeclaredTable>> {
        let tables = self.tables.iter();
        let declared = tables.map(|table| DeclaredTable::declare(table, registry, lookup));
        declared.filter_map(|table| found.take(table)).map(Arc::new).collect()
    }

    /// Names that are declared twice.
    fn twice(&self) -> Diagnostics {
        let mut found = Diagnostics::default();
        // Tables and views share their names, since a query reads both by name alone.
        let tables = self.tables.iter().map(|table| (&table.name, "table"));
        let views = self.views.iter().map(|view| (&view.name, "view"));
        let mut names: Vec<(&Name, &str)> = tables.chain(views).collect();
        names.sort_by_key(|(name, _)| name.span.start);
        report_twice(&mut found, names);
        let flows = self.flows.iter().filter_map(|flow| flow.name.as_ref());
        report_twice(&mut found, flows.map(|name| (name, "flow")).collect());
        let functions = self.functions.iter().map(|routine| (&routine.name, "function"));
        report_twice(&mut found, functions.collect());
        found
    }
}

fn report_twice(found: &mut Diagnostics, names: Vec<(&Name, &str)>) {
    let mut first: HashMap<String, Span> = HashMap::new();
    for (name, what) in names {
        if let Some(earlier) = first.insert(folded(&name.text), name.span) {
            found.0.push(
                Diagnostic::at(name.span, format!("{what} `{}` is declared twice", name.text))
                    .note_at(earlier, "first here")
                    .help("give it another name"),
            );
        }
    }
}

struct Loader<'a> {
    lexed: &'a Lexed,
    file: &'a File,
    tables: Vec<Arc<DeclaredTable>>,
    console: Option<Arc<DeclaredTable>>,
    /// Overrides of writer options for all flows.
    writer_overrides: Vec<(String, String)>,
}

impl<'a> Loader<'a> {
    fn new(
        lexed: &'a Lexed,
        file: &'a File,
        tables: Vec<Arc<DeclaredTable>>,
        console: Option<DeclaredTable>,
    ) -> Self {
        let console = console.map(Arc::new);
        Self { lexed, file, tables, console, writer_overrides: Vec::new() }
    }

    fn override_options(
        &mut self,
        overrides: &[(String, String)],
        lookup: &Arc<dyn Lookup>,
        found: &mut Diagnostics,
    ) {
        for (key, value) in overrides {
            match key.split_once('.') {
                Some((table, option)) => {
                    let mut known = self.tables.iter_mut().chain(&mut self.console);
                    let known = known.find(|own| own.table.name.eq_ignore_ascii_case(table));
                    // No flow shares the table yet, so it can still be changed.
                    let Some(known) = known.and_then(Arc::get_mut) else {
                        found.0.push(no_such_override(key, table, self.file));
                        continue;
                    };
                    found.take(known.override_option(option, value, lookup));
                }
                None if is_writer_option(key) => {
                    self.writer_overrides.push((key.clone(), value.clone()));
                }
                None => found.0.push(no_such_override(key, "", self.file)),
            }
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<DeclaredTable>> {
        self.tables.iter().find(|table| table.table.name.eq_ignore_ascii_case(name))
    }

    fn flows(&self, file_name: &str, found: &mut Diagnostics) -> Vec<Flow> {
        let names = self.flow_names();
        let mut roles: HashMap<String, Roles> = HashMap::new();
        let branches = self.file.flows.iter().flat_map(|flow| &flow.branches);
        for sink in branches.filter_map(|branch| branch.sink.as_ref()) {
            roles.entry(sink.text.to_lowercase()).or_default().written = true;
        }
        let mut flows = Vec::new();
        let mut all_read = true;
        for (declaration, name) in self.file.flows.iter().zip(names) {
            if found.0.len() >= DIAGNOSTICS_MAX {
                return flows;
            }
            let declared = declaration.branches.iter();
            let branches: Vec<_> = declared
                .map(|branch| {
                    let query = found.take(prepare::prepare(self.lexed, &branch.query, self));
                    all_read &= query.is_some();
                    for read in query.iter().flat_map(|query| &query.reads) {
                        roles.entry(read.table.to_lowercase()).or_default().read = true;
                    }
                    let sink = found.take(self.sink(branch));
                    Some(self.branch(query?, sink?, branch))
                })
                .collect();
            // A flow of which a branch is wrong would only repeat that branch's error.
            if let Some(branches) = branches.into_iter().collect() {
                let flow = self.flow(name, branches, &declaration.constraints, file_name);
                flows.extend(found.take(flow));
            }
        }
        for flow in &flows {
            for letters in &flow.dead_letters {
                // A table of dead letters is also read, by a replay.
                *roles.entry(letters.id()).or_default() = Roles { read: true, written: true };
            }
        }
        for table in &self.tables {
            let own = roles.get(&table.table.name.to_lowercase()).copied().unwrap_or_default();
            // A query that could not be read may have used the table in any way.
            let read = own.read || !all_read;
            let wrong_keys = table.check_keys(Roles { read, ..own }).0;
            if !read && !own.written && wrong_keys.is_empty() {
                found.0.extend(table.check_unused());
            }
            found.0.extend(wrong_keys);
        }
        if let Some(console) = &self.console {
            found.0.extend(console.check_keys(Roles { read: false, written: true }).0);
        }
        self.shared_checkpoints(&flows, found);
        flows
    }

    /// Names as given, else the sink's, with a number where it is taken.
    fn flow_names(&self) -> Vec<String> {
        let given = self.file.flows.iter().filter_map(|flow| flow.name.as_ref());
        let mut taken: Vec<String> = given.map(|name| folded(&name.text)).collect();
        let names = self.file.flows.iter().map(|flow| {
            if let Some(name) = &flow.name {
                return name.text.clone();
            }
            let first = flow.branches.first().and_then(|branch| branch.sink.as_ref());
            let sink = first.map_or("console", |sink| &sink.text);
            let numbered = (1..).map(|number| match number {
                1 => sink.to_owned(),
                number => format!("{sink}_{number}"),
            });
            let mut free = numbered.filter(|name| !taken.contains(&folded(name)));
            let name = free.next().expect("there is always a number that is free");
            taken.push(folded(&name));
            name
        });
        names.collect()
    }

    fn sink(&self, branch: &BranchDeclaration) -> Result<(Arc<DeclaredTable>, Name), Diagnostic> {
        let Some(sink) = &branch.sink else {
            let at = Span::new(branch.span.start, branch.span.start + "SELECT".len());
            let console = self.console.clone().ok_or_else(|| {
                Diagnostic::at(at, "this query's rows have nowhere to go")
                    .help("write INSERT INTO a declared table SELECT ...")
            })?;
            return Ok((console, Name { text: "console".into(), span: at }));
        };
        if let Some(declared) = self.find(&sink.text) {
            return Ok((declared.clone(), sink.clone()));
        }
        let declared_badly =
            self.file.tables.iter().any(|table| table.name.text.eq_ignore_ascii_case(&sink.text));
        let message = if declared_badly {
            format!("table `{}` could not be read", sink.text)
        } else {
            format!("there is no table `{}` to write to", sink.text)
        };
        let names: Vec<String> = self.names();
        let diagnostic = Diagnostic::at(sink.span, message);
        if declared_badly {
            return Err(diagnostic.help("see the error at its declaration"));
        }
        if names.is_empty() {
            return Err(diagnostic.help("declare it: CREATE TABLE name USING connector ..."));
        }
        let names = names.iter().map(String::as_str);
        Err(diagnostic.help(suggest(&sink.text, "declared tables", names)))
    }

    fn branch(
        &self,
        query: PreparedQuery,
        (declared, sink): (Arc<DeclaredTable>, Name),
        declaration: &BranchDeclaration,
    ) -> Branch {
        let (by_name, columns) = (declaration.by_name, declaration.columns.clone());
        Branch {
            sink: declared.table.clone(),
            connector: declared.connector.clone(),
            insert: Insert { sink, by_name, columns },
            query,
            declared,
            constraints: Vec::new(),
        }
    }

    fn flow(
        &self,
        name: String,
        mut branches: Vec<Branch>,
        constraints: &[ConstraintDeclaration],
        file_name: &str,
    ) -> Result<Flow, Diagnostics> {
        same_streams(&branches)?;
        let declared: Vec<_> = branches.iter().map(|branch| &*branch.declared).collect();
        let writer = DeclaredTable::writer_of_all(&declared, &self.writer_overrides)?;
        super::orders::check(writer.output_mode, branches.iter().map(|branch| &branch.query))?;
        let (dead_letters, constraints) = self.dead_letters(&branches, constraints, &writer)?;
        branches[0].constraints = constraints;
        let default = || checkpoints::default(file_name, &name);
        Ok(Flow {
            checkpoint: writer.checkpoint_location.clone().unwrap_or_else(default),
            is_stream: branches.iter().any(|branch| branch.query.is_stream()),
            name,
            branches,
            dead_letters,
            writer,
        })
    }

    /// The tables for a flow's dead letters, and its constraints.
    fn dead_letters(
        &self,
        branches: &[Branch],
        declared: &[ConstraintDeclaration],
        writer: &WriterOptions,
    ) -> Result<(Vec<DeadLetterTable>, Vec<Planned>), Diagnostics> {
        let written = |name: &str| {
            let branches = self.file.flows.iter().flat_map(|flow| &flow.branches);
            let mut sinks = branches.filter_map(|branch| branch.sink.as_ref());
            sinks.any(|sink| sink.text.eq_ignore_ascii_case(name))
        };
        let (tables, declarations) = (&self.tables[..], &self.file.tables[..]);
        let surroundings = Surroundings { tables, declarations, written: &written };
        let reads: Vec<_> = branches.iter().flat_map(|branch| &branch.query.reads).collect();
        let sinks: Vec<&str> = branches.iter().map(|branch| branch.sink.name.as_str()).collect();
        let mut letters = surroundings.of_flow(&reads, &sinks)?;
        if let ([_, _, ..], Some(first)) = (branches, declared.first()) {
            let message = "a flow that writes to several tables has no constraints";
            return Err(Diagnostic::at(first.name.span, message)
                .help("write a flow for the table whose rows are to be checked")
                .into());
        }
        let source_tables = letters.len();
        let mut found = Diagnostics::default();
        let constraints = declared.iter().filter_map(|declared| {
            let action = constraints::action(declared, source_tables, |name| {
                surroundings.named(name, &mut letters, &reads, &sinks)
            });
            Some(declared.planned(found.take(action)?, &self.lexed.text))
        });
        let constraints = constraints.collect();
        let has_on_error =
            |branch: &&Branch| branch.sink.options.get(super::options::ON_ERROR).is_some();
        let sink = &branches.iter().find(has_on_error).unwrap_or(&branches[0]).declared;
        found.take(surroundings.take_failing_records(writer, sink, &mut letters, (&reads, &sinks)));
        let declared: Vec<_> = branches.iter().map(|branch| &*branch.declared).collect();
        found.take(take_refused_rows(&declared, &mut letters));
        found.into_result()?;
        Ok((letters, constraints))
    }

    fn shared_checkpoints(&self, flows: &[Flow], found: &mut Diagnostics) {
        let streams = flows.iter().filter(|flow| flow.is_stream);
        let placed = streams.map(|flow| Placed {
            flow: &flow.name,
            checkpoint: &flow.checkpoint,
            span: flow.branches[0].insert.sink.span,
        });
        found.0.extend(checkpoints::shared(&placed.collect::<Vec<_>>()));
    }
}

/// Branches are run over the same rows, so none may read a stream that the others do not.
fn same_streams(branches: &[Branch]) -> Result<(), Diagnostic> {
    let streams = |branch: &Branch| -> Vec<(String, Span)> {
        let reads = branch.query.reads.iter().filter(|read| read.mode == ReadMode::Stream);
        reads.map(|read| (read.registered_as.clone(), read.span)).collect()
    };
    let first_streams = streams(&branches[0]);
    for branch in &branches[1..] {
        let own = streams(branch);
        if own == first_streams {
            continue;
        }
        let odd = own.iter().find(|read| !first_streams.contains(read));
        let odd = odd.or_else(|| first_streams.iter().find(|read| !own.contains(read)));
        let at = odd.map_or(branch.insert.sink.span, |(_, span)| *span);
        return Err(Diagnostic::at(at, OTHER_STREAM).help(OTHER_STREAM_HELP));
    }
    Ok(())
}

impl TableCatalog for Loader<'_> {
    fn table(&self, name: &str) -> Option<String> {
        // Also a table whose declaration has an error: one message about it is enough.
        let mut tables = self.file.tables.iter().map(|table| &table.name.text);
        tables.find(|table| table.eq_ignore_ascii_case(name)).cloned()
    }

    fn names(&self) -> Vec<String> {
        let tables = self.file.tables.iter().map(|table| table.name.text.clone());
        tables.chain(self.file.views.iter().map(|view| view.name.text.clone())).collect()
    }

    fn schema(&self, table: &str, mode: ReadMode, span: Span) -> Result<SchemaRef, Diagnostic> {
        let Some(declared) = self.find(table) else {
            let message = format!("table `{table}` could not be read");
            return Err(Diagnostic::at(span, message).help("see the error at its declaration"));
        };
        let checked = declared.connector.check_source(&declared.table, mode);
        checked.map_err(|error| {
            let diagnostic = declared.blame(error, Some(span));
            diagnostic.note_at(span, format!("`{table}` is read here"))
        })
    }

    fn view(&self, name: &str) -> Option<Range<usize>> {
        let view = self.file.views.iter().find(|view| view.name.text.eq_ignore_ascii_case(name))?;
        Some(view.query.clone())
    }

    fn has_functions(&self) -> bool {
        !self.file.functions.is_empty()
    }

    fn function(&self, name: &str) -> Option<Arc<Routine>> {
        let is_meant = |known: &&Arc<Routine>| known.name.text.eq_ignore_ascii_case(name);
        self.file.functions.iter().find(is_meant).cloned()
    }
}

fn is_writer_option(key: &str) -> bool {
    WRITER_OPTIONS.iter().any(|known| known.eq_ignore_ascii_case(key))
}

fn no_such_override(key: &str, table: &str, file: &File) -> Diagnostic {
    let names: Vec<&str> = file.tables.iter().map(|table| table.name.text.as_str()).collect();
    if table.is_empty() || is_writer_option(table) {
        let example = names.first().copied().unwrap_or("table");
        return Diagnostic::nowhere(format!("--set {key}: the option has no table"))
            .help(format!("say which table's option it is: --set {example}.{key}=..."));
    }
    let diagnostic = Diagnostic::nowhere(format!("--set {key}: there is no table `{table}`"));
    match millstream_sql::nearest::nearest(table, names.iter().copied()) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => {
            let example = names.first().copied().unwrap_or("table");
            diagnostic.help(format!("an option of a table is set as --set {example}.{key}=..."))
        }
    }
}
