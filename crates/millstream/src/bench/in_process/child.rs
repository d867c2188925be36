//! The process in which the engine runs on messages in memory.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_connectors::delta::Delta;
use millstream_connectors::noop::Noop;
use millstream_engine::api::connector::Registry;
use millstream_engine::api::progress::Silent;
use millstream_engine::driver::others::Siblings;
use millstream_engine::driver::stop::stop_pair;
use millstream_engine::flow::RunSettings;
use millstream_store::env::Env;

use super::super::error::Error;
use super::super::process;
use super::source::{Chunks, InProcess};
use super::{Input, Outcome};
use crate::load::{Changes, LoadError, Loaded, PipelineFile};

/// Flags of `bench in-process`.
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
    #[arg(long, value_name = "K=V")]
    set: Vec<String>,
}

/// Makes the messages, runs the pipeline over them, and prints an [`Outcome`].
pub fn run(env: &Env, flags: &Flags) -> Result<(), Error> {
    let Flags { messages, partitions, windows, keys, .. } = *flags;
    let chunks = Chunks::make(&Input { messages, partitions, windows, keys })?;
    let (began, before) = (env.monotonic(), process::own_usage());
    let loaded = load(env, flags, Arc::new(chunks))?;
    let (stopper, stop) = stop_pair();
    let settings = RunSettings {
        checkpoint: loaded.checkpoint,
        trigger: loaded.flow.writer.trigger,
        logging: loaded.flow.writer.logging,
        listener: Arc::new(Silent),
        stop,
        siblings: Siblings::default(),
        adopt: None,
    };
    let running = async { env.spawn_on_own_thread("flow", loaded.plan.run(settings)).join().await };
    let finished = env.block_on_cores(running);
    // Without it the flow would take itself to be stopped.
    drop(stopper);
    let finished = finished.map_err(|failure| Error::InProcess { problem: failure.to_string() })?;
    let (elapsed, after) = (env.monotonic() - began, process::own_usage());
    let outcome = Outcome {
        seconds: elapsed.as_secs_f64(),
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        peak_rss_mb: after.peak_rss_mb,
        rows_out: finished.rows_out,
    };
    println!("{}", serde_json::to_string(&outcome).expect("outcomes are plain values"));
    Ok(())
}

fn load(env: &Env, flags: &Flags, chunks: Arc<Chunks>) -> Result<Loaded, Error> {
    let failed = |problem| Error::InProcess { problem };
    let file = PipelineFile::read(&flags.pipeline).map_err(failed)?;
    let registry = Registry::new(vec![
        Arc::new(InProcess { chunks }),
        Arc::new(Delta::new(file.base_dir())),
        Arc::new(Noop),
    ]);
    let settings = flags.set.iter().filter_map(|text| text.split_once('='));
    let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let checkpoint = Some(&*flags.checkpoint);
    let changes = Changes { settings, checkpoint, ..Changes::default() };
    let loaded = env.block_on_cores(file.load(registry, env, &changes));
    let mut loaded = loaded.map_err(|error| match error {
        LoadError::Diagnosed(problem) | LoadError::Wrong(problem) | LoadError::Failed(problem) => {
            failed(problem)
        }
    })?;
    loaded.pop().ok_or_else(|| failed("the pipeline has no flow".to_owned()))
}
