//! The process in which the engine runs on messages in memory.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use millstream_engine::api::connector::{Connector, Registry};
use millstream_engine::api::progress::Silent;
use millstream_engine::api::references::{Lookup, Nowhere};
use millstream_engine::driver::start::Siblings;
use millstream_engine::driver::stop::stop_pair;
use millstream_engine::flow::{self, FlowError, PlannedFlow, RunSettings, Setup};
use millstream_engine::pipeline::{Flow, Pipeline};
use millstream_store::env::Env;

use super::source::{Chunks, InProcess};
use super::{Input, Measuring};
use crate::error::Error;

/// Flags of `millstream-bench in-process`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    #[arg(long)]
    pipeline: PathBuf,
    #[arg(long)]
    checkpoint: String,
    #[arg(long)]
    messages: u64,
    #[arg(long)]
    partitions: i32,
    #[arg(long)]
    windows: u32,
    #[arg(long)]
    keys: Option<u64>,
    #[arg(long)]
    size: Option<usize>,
    #[arg(long, value_name = "K=V")]
    set: Vec<String>,
}

/// Makes the messages, runs the pipeline over them, and tells what that took.
pub fn run(env: &Env, flags: &Flags) -> Result<(), Error> {
    let Flags { messages, partitions, windows, keys, size, .. } = *flags;
    let chunks = Chunks::make(&Input { messages, partitions, windows, keys, size })?;
    let measuring = Measuring::start(env);
    let (flow, plan) = load(env, flags, Arc::new(chunks))?;
    let (stopper, stop) = stop_pair();
    let settings = RunSettings {
        checkpoint: flags.checkpoint.clone(),
        trigger: flow.writer.trigger,
        logging: flow.writer.logging,
        listener: Arc::new(Silent),
        stop,
        siblings: Siblings::default(),
        adopt: None,
    };
    let running = async { env.spawn_on_own_thread("flow", plan.run(settings)).join().await };
    let finished = env.block_on_cores(running);
    // Without it the flow would take itself to be stopped.
    drop(stopper);
    let finished = finished.map_err(|failure| Error::InProcess { problem: failure.to_string() })?;
    measuring.tell(finished.rows_out);
    Ok(())
}

/// Plans the pipeline's flow as the `millstream` command does, with the messages as a connector.
fn load(env: &Env, flags: &Flags, chunks: Arc<Chunks>) -> Result<(Flow, PlannedFlow), Error> {
    let failed = |problem| Error::InProcess { problem };
    let text = fs::read_to_string(&flags.pipeline).map_err(Error::file("read", &flags.pipeline))?;
    // Paths in a benchmark's pipelines are absolute.
    let base_dir = PathBuf::new();
    let all = millstream_connectors::registry(&base_dir);
    let mut connectors: Vec<Arc<dyn Connector>> = vec![Arc::new(InProcess { chunks })];
    connectors.extend(all.names().filter_map(|name| all.get(name).cloned()));
    let registry = Registry::new(connectors);
    let settings = flags.set.iter().filter_map(|text| text.split_once('='));
    let settings: Vec<_> =
        settings.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let lookup: Arc<dyn Lookup> = Arc::new(Nowhere);
    let name = flags.pipeline.display().to_string();
    let pipeline = Pipeline::load(&name, &text, &registry, &settings, &lookup);
    let pipeline = pipeline.map_err(|found| failed(found.to_string()))?;
    let flow = pipeline.flows.first().cloned();
    let flow = flow.ok_or_else(|| failed("the pipeline has no flow".to_owned()))?;
    let partitions = available_parallelism().map_or(1, usize::from);
    let setup = Setup { registry, env: env.clone(), base_dir, partitions };
    let plan = env.block_on_cores(flow::plan(&pipeline, &flow, &setup));
    match plan {
        Ok(plan) => Ok((flow, plan)),
        Err(FlowError::Sql(found)) => Err(failed(found.to_string())),
        Err(FlowError::Failure(failure)) => Err(failed(failure.to_string())),
    }
}
