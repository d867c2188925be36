//! `millstream query`: statements over tables at rest, once or in a shell.

mod completion;
mod output;
mod progress;
mod shell;

use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use futures::StreamExt as _;
use millstream_engine::api::references::Lookup;
use millstream_engine::failures::from_datafusion;
use millstream_engine::pipeline::Pipeline;
use millstream_query::cluster::tls::TlsFiles;
use millstream_query::error::QueryError;
use millstream_query::session::{PlannedQuery, QuerySession};
use millstream_query::state::Limits;
use millstream_query::statements::{Statements, Step};
use millstream_query::tables::Catalog;
use millstream_sql::diagnostic::Diagnostics;
use millstream_sql::types::spark_type;
use millstream_store::error::{Failure, Kind};

use crate::app::App;
use crate::cli::{Format, LimitArguments, QueryArguments};
use crate::credentials;
use crate::load::PipelineFile;
use crate::lookup::Here;
use crate::render::{Paint, render};
use output::Output;

/// What the shell of a process reports that was ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Runs the command.
pub async fn run(arguments: QueryArguments, app: &App) -> ExitCode {
    match try_run(&arguments, app).await {
        Ok(status) => status,
        Err(refused) => refused.report(app),
    }
}

/// Why the command ends without having done what it was asked to.
pub enum Refused {
    /// Drawn already.
    Diagnosed(String),
    /// The command line is wrong.
    Wrong(String),
    /// The outside failed.
    Failed(String),
    /// By Ctrl-C.
    Interrupted,
    /// Nobody reads what is printed.
    NotRead,
}

impl Refused {
    /// Reports it, and gives the status with which the process ends.
    pub fn report(self, app: &App) -> ExitCode {
        match self {
            Self::Diagnosed(text) => {
                app.screen.say(text.trim_end());
                ExitCode::from(2)
            }
            Self::Wrong(problem) => app.wrong(&problem),
            Self::Failed(problem) => app.failed(&problem),
            Self::Interrupted => ExitCode::from(INTERRUPTED),
            Self::NotRead => app.done(),
        }
    }

    fn of(error: QueryError, name: &str, text: &str) -> Self {
        match error {
            QueryError::Sql(found) => Self::diagnosed(&found, name, text),
            QueryError::Failure(failure) => Self::failure(&failure),
        }
    }

    fn diagnosed(found: &Diagnostics, name: &str, text: &str) -> Self {
        Self::Diagnosed(render(found, name, text, Paint::for_stream(&io::stderr())))
    }

    fn failure(failure: &Failure) -> Self {
        match failure.kind() {
            Kind::Config | Kind::Credentials => Self::Wrong(failure.to_string()),
            _ => Self::Failed(failure.to_string()),
        }
    }

    fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::NotRead,
            io::ErrorKind::InvalidInput => Self::Wrong(error.to_string()),
            _ => Self::Failed(format!("standard output cannot be written: {error}")),
        }
    }
}

async fn try_run(arguments: &QueryArguments, app: &App) -> Result<ExitCode, Refused> {
    let mut desk = Desk::new(arguments, app)?;
    if let Some(file) = &arguments.tables {
        declare_tables_of(file, &arguments.settings, &desk.session)?;
    }
    let Some(given) = &arguments.query else {
        return shell::run(&mut desk).await;
    };
    let file = text_of(given)?;
    // They are options of the tables of one file.
    let settings: &[_] = if arguments.tables.is_some() { &[] } else { &arguments.settings };
    desk.run_text(&file, settings).await?;
    Ok(app.done())
}

/// A query that was given as it is, or the file that has it.
fn text_of(given: &str) -> Result<PipelineFile, Refused> {
    let is_file = given == "-" || (given.ends_with(".sql") && !given.contains(char::is_whitespace));
    if is_file {
        return PipelineFile::read(Path::new(given)).map_err(Refused::Wrong);
    }
    Ok(PipelineFile { name: "query".to_owned(), text: given.to_owned(), base_dir: here()? })
}

fn here() -> Result<PathBuf, Refused> {
    let here = std::env::current_dir();
    here.map_err(|error| Refused::Failed(format!("the current directory cannot be read: {error}")))
}

/// What a session may use: all cores and half of the memory, if nothing else is said.
pub fn limits(asked: &LimitArguments) -> Limits {
    let all = available_parallelism().map_or(1, usize::from);
    let memory = asked.memory.or_else(|| memory_of_machine().map(|bytes| bytes / 2));
    Limits {
        partitions: asked.cores.map_or(all, |cores| cores as usize),
        memory_bytes: memory.and_then(|bytes| usize::try_from(bytes).ok()),
        spill_directory: asked.spill.clone(),
    }
}

/// A session without declared tables.
pub fn new_session(limits: &Limits, app: &App) -> Result<QuerySession, Refused> {
    let base_dir = here()?;
    let registry = millstream_connectors::registry(&base_dir);
    let catalog = Arc::new(Catalog::new(registry, app.env.clone(), base_dir));
    let session = QuerySession::new(catalog, limits, app.env.clone());
    session.map_err(|error| Refused::of(error, "", ""))
}

/// Adds the tables that a file declares, with `settings` for their options.
pub fn declare_tables_of(
    file: &Path,
    settings: &[(String, String)],
    session: &QuerySession,
) -> Result<(), Refused> {
    let file = PipelineFile::read(file).map_err(Refused::Wrong)?;
    let statements = read(&file.name, &file.text)?;
    declare(session, &file, &statements, settings)
}

fn read(name: &str, text: &str) -> Result<Statements, Refused> {
    Statements::parse(text).map_err(|found| Refused::diagnosed(&found, name, text))
}

/// Adds the tables that a text declares.
fn declare(
    session: &QuerySession,
    file: &PipelineFile,
    statements: &Statements,
    settings: &[(String, String)],
) -> Result<(), Refused> {
    let declarations = statements.declarations();
    if declarations.trim().is_empty() {
        let problem = "--set is for options of declared tables, and there are none";
        return if settings.is_empty() { Ok(()) } else { Err(Refused::Wrong(problem.into())) };
    }
    let lookup: Arc<dyn Lookup> = Arc::new(Here { base_dir: file.base_dir.clone() });
    let registry = millstream_connectors::registry(&file.base_dir);
    let pipeline = Pipeline::load(&file.name, &declarations, &registry, settings, &lookup);
    let pipeline = pipeline.map_err(|found| Refused::diagnosed(&found, &file.name, &file.text))?;
    session.catalog().declare(&pipeline, &file.base_dir);
    Ok(())
}

/// A session, and where its rows go.
struct Desk<'a> {
    app: &'a App,
    session: QuerySession,
    format: Format,
    is_timed: bool,
    /// Texts follow one another.
    is_shell: bool,
}

impl<'a> Desk<'a> {
    fn new(arguments: &QueryArguments, app: &'a App) -> Result<Self, Refused> {
        let is_terminal = io::stdout().is_terminal();
        let default = if is_terminal { Format::Table } else { Format::Csv };
        let format = arguments.format.unwrap_or(default);
        if is_terminal && matches!(format, Format::Parquet | Format::Arrow) {
            let problem = "this format is not text: write it to a file, as in > rows.parquet";
            return Err(Refused::Wrong(problem.to_owned()));
        }
        let limits = limits(&arguments.limits);
        let mut session = new_session(&limits, app)?;
        if let Some(coordinator) = &arguments.on {
            let files = TlsFiles { ca: arguments.tls_ca.clone(), ..TlsFiles::default() };
            let security = credentials::security(arguments.token_file.as_deref(), &files);
            let security = security.map_err(|error| Refused::Wrong(error.to_string()))?;
            session.run_on(coordinator, &security);
        }
        let is_shell = arguments.query.is_none();
        Ok(Self { app, session, format, is_timed: arguments.timing, is_shell })
    }

    async fn run_text(
        &mut self,
        file: &PipelineFile,
        settings: &[(String, String)],
    ) -> Result<(), Refused> {
        let statements = self.session.read(&file.text);
        let statements =
            statements.map_err(|found| Refused::diagnosed(&found, &file.name, &file.text))?;
        let checked = statements.check_writes_nothing();
        checked.map_err(|found| Refused::diagnosed(&found, &file.name, &file.text))?;
        declare(&self.session, file, &statements, settings)?;
        let has_functions = !statements.functions.is_empty();
        let has_names = !statements.views.is_empty() || (has_functions && !self.is_shell);
        if statements.steps.is_empty() && has_names {
            let problem = "a view or a function is known in the text that it stands in: write the \
                           query behind it, or WITH name AS (...) SELECT ...";
            return Err(Refused::Wrong(problem.to_owned()));
        }
        let declares = has_functions || !statements.declarations().trim().is_empty();
        if statements.steps.is_empty() && !declares {
            let problem = format!("{} has no query: write SELECT ...", file.name);
            return Err(Refused::Wrong(problem));
        }
        for step in &statements.steps {
            let done = self.step(step, &statements).await;
            done.map_err(|error| match error {
                // The body of a function of an earlier text stands behind this one.
                StepError::Query(error) => Refused::of(error, &file.name, &statements.lexed.text),
                StepError::Refused(refused) => refused,
            })?;
        }
        self.session.keep_functions(&statements);
        Ok(())
    }

    async fn step(&mut self, step: &Step, text: &Statements) -> Result<(), StepError> {
        match step {
            Step::Query(query) => {
                let start = self.app.env.monotonic();
                let planned = interruptible(self.session.plan(text, query)).await??;
                self.show(&planned, start).await
            }
            Step::Variable(statement) => {
                Ok(interruptible(self.session.change(text, statement)).await??)
            }
            Step::Immediate(statement) => {
                let start = self.app.env.monotonic();
                match interruptible(self.session.execute(text, statement)).await?? {
                    Some(planned) => self.show(&planned, start).await,
                    None => Ok(()),
                }
            }
            Step::Explain { analyze, query } => {
                let planned = interruptible(self.session.plan(text, query)).await??;
                if !*analyze {
                    return self.print(&planned.shown());
                }
                self.count_rows(&planned).await?;
                self.print(&interruptible(planned.profile()).await??)
            }
            Step::ShowTables => {
                let mut names = self.session.catalog().declared().join("\n");
                names.push('\n');
                self.print(&names)
            }
            Step::Describe { query, span } => {
                let described = self.session.describe(text, query, *span);
                let schema = interruptible(described).await??;
                let columns = schema.fields().iter();
                let columns = columns
                    .map(|field| format!("{}\t{}\n", field.name(), spark_type(field.data_type())));
                self.print(&columns.collect::<String>())
            }
            Step::Setting(change) => match self.session.apply(change)? {
                Some([key, value]) => self.print(&format!("{key}\t{value}\n")),
                None => Ok(()),
            },
        }
    }

    /// Prints the rows of a query that began to be planned at `start`.
    async fn show(&self, planned: &PlannedQuery, start: Duration) -> Result<(), StepError> {
        let rows = self.print_rows(planned).await?;
        if self.is_timed {
            let took = self.app.env.monotonic() - start;
            let ms = took.as_secs_f64() * 1e3;
            self.app.screen.say(&format!("{rows} rows in {ms:.1} ms"));
        }
        Ok(())
    }

    fn print(&self, text: &str) -> Result<(), StepError> {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| Refused::output(&error).into())
    }

    /// Gives the number of rows.
    async fn print_rows(&self, planned: &PlannedQuery) -> Result<u64, StepError> {
        let out = BufWriter::new(io::stdout());
        let mut line = self.progress(planned);
        let failed = |error| StepError::from(Refused::output(&error));
        let mut rows = interruptible(planned.run()).await??;
        let schema = output::schema(self.format, planned)?;
        let begin = |out| Output::begin(self.format, &schema, out).map_err(failed);
        // A query that fails at once prints nothing.
        let (mut waiting, mut begun, mut count) = (Some(out), None, 0);
        while let Some(next) = interruptible(rows.next()).await? {
            let next = next.map_err(|error| QueryError::Failure(from_datafusion(error)))?;
            count += next.num_rows() as u64;
            if let Some(out) = waiting.take() {
                begun = Some(begin(out)?);
            }
            if let Some(output) = begun.as_mut().filter(|_| next.num_rows() > 0) {
                if io::stdout().is_terminal() {
                    // The rows show that the query is alive.
                    line = None;
                }
                output.write(output::rows(self.format, planned, next)?).map_err(failed)?;
            }
        }
        if let Some(out) = waiting.take() {
            begun = Some(begin(out)?);
        }
        drop(line);
        if let Some(output) = begun {
            output.finish().map_err(failed)?;
        }
        Ok(count)
    }

    fn progress(&self, planned: &PlannedQuery) -> Option<progress::Line> {
        progress::Line::begin(&self.app.env, &self.app.screen, planned.scans())
    }

    async fn count_rows(&self, planned: &PlannedQuery) -> Result<u64, StepError> {
        let _line = self.progress(planned);
        let (mut count, mut rows) = (0, interruptible(planned.run()).await??);
        while let Some(next) = interruptible(rows.next()).await? {
            let next = next.map_err(|error| QueryError::Failure(from_datafusion(error)))?;
            count += next.num_rows() as u64;
        }
        Ok(count)
    }
}

/// Why a statement failed.
enum StepError {
    Query(QueryError),
    Refused(Refused),
}

impl From<QueryError> for StepError {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

impl From<Refused> for StepError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// Waits for `work`, or for Ctrl-C.
async fn interruptible<T>(work: impl Future<Output = T>) -> Result<T, Refused> {
    tokio::select! {
        done = work => Ok(done),
        _ = tokio::signal::ctrl_c() => Err(Refused::Interrupted),
    }
}

/// The bytes of memory that the process may have: the machine's, or its container's if that is
/// less.
pub fn memory_of_machine() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = machine.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let machine = kibibytes << 10;
    let container = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container = container.and_then(|text| text.trim().parse().ok());
    Some(container.map_or(machine, |container: u64| container.min(machine)))
}
