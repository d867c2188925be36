//! From a pipeline file to planned flows; nothing durable is touched.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;

use futures::{StreamExt as _, stream};
use millstream_engine::api::connector::{Connector, Registry, Table};
use millstream_engine::api::needs::{Need, Role, Usage};
use millstream_engine::api::options::OptionError;
use millstream_engine::api::references::{Lookup, Reference};
use millstream_engine::flow::{self, FlowError, PlannedFlow, Setup};
use millstream_engine::pipeline::{Flow, Pipeline};
use millstream_sql::diagnostic::Diagnostics;
use millstream_sql::nearest;
use millstream_store::env::{Env, on_deep_stack};
use millstream_store::error::{Classified, Failure, Kind};
use thiserror::Error;

use crate::checkpoints::{self, FilePlace};
use crate::lookup::{Here, Variables};
use crate::render::{Paint, render};

/// A pipeline file's text and where it is from.
pub struct PipelineFile {
    /// The name for messages.
    pub name: String,
    /// The text.
    pub text: String,
    /// What relative paths in it are relative to: the file's own directory.
    pub base_dir: PathBuf,
}

/// A flow that can run.
pub struct Loaded {
    /// As declared.
    pub flow: Flow,
    /// As planned.
    pub plan: PlannedFlow,
    /// Where its checkpoint is.
    pub checkpoint: String,
    /// Where values of its tables' options stand that are not in the file.
    pub needs: BTreeSet<Reference>,
    /// Where the checkpoints of all flows of the file are, also of those that do not run.
    pub family: Arc<Vec<String>>,
    /// What plans it once more.
    pub planner: Planner,
}

/// What one table of a flow needs outside.
pub struct TableNeeds {
    /// The table's name.
    pub table: String,
    /// The connector's name.
    pub connector: &'static str,
    /// What it needs.
    pub needs: Vec<Need>,
}

/// Plans a flow again, as its file was when it was read.
#[derive(Clone)]
pub struct Planner {
    pipeline: Arc<Pipeline>,
    flow: Flow,
    setup: Arc<Setup>,
}

impl Planner {
    /// What each table of the flow needs outside, as connectors say it: the tables that it reads,
    /// then those that it writes to. `plan` is the flow's.
    ///
    /// # Errors
    /// An option is wrong.
    pub fn outside(&self, plan: &PlannedFlow) -> Result<Vec<TableNeeds>, OptionError> {
        let Self { pipeline, flow, setup } = self;
        let needs = |table: &Table, connector: &Arc<dyn Connector>, role: Role<'_>| {
            let (base_dir, is_stream) = (setup.base_dir.as_path(), flow.is_stream);
            let usage = Usage { flow: &flow.name, role, base_dir, is_stream };
            let needs = connector.needs(table, &usage)?;
            Ok(TableNeeds { table: table.name.clone(), connector: connector.name(), needs })
        };
        let reads = flow.reads();
        let read = reads.iter().filter_map(|read| Some((read, pipeline.table(&read.table)?)));
        let read = read.map(|(read, declared)| {
            needs(&declared.table, &declared.connector, Role::Read(read.mode))
        });
        let schemas = plan.branches().into_iter().map(|branch| branch.schema);
        let written =
            flow.branches.iter().zip(schemas).map(|(branch, schema)| {
                needs(&branch.sink, &branch.connector, Role::Written(&schema))
            });
        let letters = flow.dead_letters.iter().map(|letters| {
            needs(&letters.sink, &letters.connector, Role::Written(letters.layout.schema()))
        });
        read.chain(written).chain(letters).collect()
    }

    /// A new plan. Blocks for as long as planning takes.
    pub fn plan(&self) -> Result<PlannedFlow, Failure> {
        let planning = || flow::plan(&self.pipeline, &self.flow, &self.setup);
        match on_deep_stack(|| self.setup.env.block_on_cores(planning())) {
            Ok(plan) => Ok(plan),
            Err(FlowError::Failure(failure)) => Err(failure),
            Err(FlowError::Sql(found)) => Err(NotPlanned(found).into()),
        }
    }
}

/// A flow whose file was right once cannot be planned again.
#[derive(Debug, Error)]
#[error("{0}")]
struct NotPlanned(Diagnostics);

impl Classified for NotPlanned {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

/// What `run` and `validate` may change in a file.
#[derive(Default)]
pub struct Changes<'a> {
    /// Options over what the file says.
    pub settings: Vec<(String, String)>,
    /// Only this flow.
    pub flow: Option<&'a str>,
    /// `--checkpoint`.
    pub checkpoint: Option<&'a str>,
    /// Whether values that stand elsewhere must be there.
    pub values: Values,
}

/// What becomes of options' values that stand in the environment or in files.
#[derive(Clone, Copy, Default)]
pub enum Values {
    /// All are looked up, and one that is missing is an error.
    #[default]
    AreLookedUp,
    /// No file is read, and what is missing stays as it is written.
    MayBeMissing,
}

/// Why a file does not load.
#[derive(Debug)]
pub enum LoadError {
    /// The file is wrong; drawn already, to be printed as it is.
    Diagnosed(String),
    /// Something else about the file or the command line is wrong.
    Wrong(String),
    /// The outside failed.
    Failed(String),
}

impl PipelineFile {
    /// Reads a file, or standard input for `-`.
    ///
    /// # Errors
    /// A message for the user.
    pub fn read(path: &Path) -> Result<Self, String> {
        if path == Path::new("-") {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map_err(|error| format!("standard input cannot be read: {error}"))?;
            let base_dir = std::env::current_dir()
                .map_err(|error| format!("the current directory cannot be read: {error}"))?;
            return Ok(Self { name: "stdin".into(), text, base_dir });
        }
        let failed = |error| format!("{} cannot be read: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let absolute = std::path::absolute(path).map_err(failed)?;
        let base_dir = absolute.parent().expect("a file is in a directory").to_owned();
        Ok(Self { name: path.display().to_string(), text, base_dir })
    }

    /// What relative paths in the file are relative to.
    pub fn base_dir(&self) -> &Path {
        &self.base_dir
    }

    /// Parses, resolves and plans the file's flows.
    pub async fn load(
        &self,
        registry: Registry,
        env: &Env,
        changes: &Changes<'_>,
    ) -> Result<Vec<Loaded>, LoadError> {
        if changes.checkpoint.is_some_and(|flag| flag.trim().is_empty()) {
            let problem = "--checkpoint is empty: write a directory, or leave the flag out";
            return Err(LoadError::Wrong(problem.to_owned()));
        }
        let lookup: Arc<dyn Lookup> = match changes.values {
            Values::AreLookedUp => Arc::new(Here { base_dir: self.base_dir.clone() }),
            Values::MayBeMissing => Arc::new(Variables),
        };
        let (name, settings) = (&self.name, &changes.settings);
        let pipeline = Pipeline::load(name, &self.text, &registry, settings, &lookup);
        let pipeline = Arc::new(pipeline.map_err(|found| self.diagnosed(&found))?);
        if pipeline.flows.is_empty() {
            return Err(LoadError::Wrong(format!(
                "{} has no flow: write INSERT INTO a table SELECT ... FROM STREAM another",
                self.name
            )));
        }
        let several = pipeline.flows.len() > 1;
        let flows = choose(&pipeline.flows, changes.flow)?;
        let partitions = available_parallelism().map_or(1, usize::from);
        let base_dir = self.base_dir.clone();
        let setup = Arc::new(Setup { registry, env: env.clone(), base_dir, partitions });
        let place = FilePlace { name: &self.name, base_dir: &self.base_dir };
        let location =
            |flow: &Flow| checkpoints::location(place, flow, changes.checkpoint, several);
        let family = Arc::new(pipeline.flows.iter().map(location).collect::<Vec<_>>());
        let (mut loaded, mut found) = (Vec::new(), Diagnostics::default());
        // They take some milliseconds each, and know nothing of each other.
        let planned = flows.into_iter().map(|flow| {
            let (pipeline, flow, setup) = (Arc::clone(&pipeline), flow.clone(), Arc::clone(&setup));
            let planning = move || {
                let planned = setup.env.block_on_cores(flow::plan(&pipeline, &flow, &setup));
                (flow, planned)
            };
            async { env.spawn_blocking("plan", planning).join().await }
        });
        let mut planned = stream::iter(planned).buffered(partitions);
        while let Some((flow, planned)) = planned.next().await {
            match planned {
                Ok(plan) => {
                    let (checkpoint, family) = (location(&flow), Arc::clone(&family));
                    let needs = needs(&pipeline, &flow);
                    let (pipeline, setup) = (Arc::clone(&pipeline), Arc::clone(&setup));
                    let planner = Planner { pipeline, flow: flow.clone(), setup };
                    loaded.push(Loaded { needs, flow, plan, checkpoint, family, planner });
                }
                Err(FlowError::Sql(wrong)) => found.0.extend(wrong.0),
                Err(FlowError::Failure(failure)) => {
                    let problem = format!("flow '{}' cannot be planned: {failure}", flow.name);
                    return Err(match failure.kind() {
                        Kind::Config | Kind::Credentials => LoadError::Wrong(problem),
                        _ => LoadError::Failed(problem),
                    });
                }
            }
        }
        found.into_result().map_err(|found| self.diagnosed(&found))?;
        let streams = loaded.iter().filter(|loaded| loaded.plan.is_stream());
        let placed = streams.map(|loaded| (loaded.plan.name(), loaded.checkpoint.as_str()));
        checkpoints::are_apart(placed).map_err(LoadError::Wrong)?;
        Ok(loaded)
    }

    fn diagnosed(&self, found: &Diagnostics) -> LoadError {
        let paint = Paint::for_stream(&io::stderr());
        LoadError::Diagnosed(render(found, &self.name, &self.text, paint))
    }
}

/// Where values stand that the flow's tables have not in the file.
fn needs(pipeline: &Pipeline, flow: &Flow) -> BTreeSet<Reference> {
    let letters = flow.dead_letters.iter().map(|letters| &letters.sink);
    let sinks = flow.branches.iter().map(|branch| &branch.sink).chain(letters);
    let reads = flow.reads();
    let read = reads.iter().filter_map(|read| pipeline.table(&read.table));
    let tables = read.map(|declared| &declared.table).chain(sinks);
    tables.flat_map(|table| table.options.references()).map(|(_, at)| at.clone()).collect()
}

/// All flows, or the one that is asked for.
fn choose<'a>(flows: &'a [Flow], only: Option<&str>) -> Result<Vec<&'a Flow>, LoadError> {
    let Some(only) = only else { return Ok(flows.iter().collect()) };
    if let Some(chosen) = flows.iter().find(|flow| flow.name.eq_ignore_ascii_case(only)) {
        return Ok(vec![chosen]);
    }
    let names = flows.iter().map(|flow| flow.name.as_str());
    let help = match nearest::nearest(only, names.clone()) {
        Some(known) => format!("did you mean '{known}'?"),
        None => format!("it has {}", nearest::listed(names)),
    };
    Err(LoadError::Wrong(format!("the file has no flow '{only}': {help}")))
}
