//! Stock Ballista and datafusion-distributed, asked over standard input.
//!
//! `query-peers ENGINE THREADS NAME=FILE ...` registers Parquet files as tables. Each line of its
//! input is a query; each is answered by one line of JSON: `{"rows": N, "ms": T}`, T from the text
//! to the last row, or `{"error": TEXT}`. Both engines are as their libraries set them up, with
//! `THREADS` partitions; the parts of a cluster are in this process and speak over loopback:
//!
//! - `ballista`: a scheduler, and an executor with `THREADS` tasks at one time;
//! - `distributed`: `THREADS` workers of datafusion-distributed.

use std::env;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use ballista::prelude::{SessionConfigExt, SessionContextExt};
use datafusion::common::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_distributed::{DistributedExt, SessionStateBuilderExt, Worker, WorkerResolver};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use url::Url;

// What DataFusion's own command line uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Problem = Box<dyn Error>;

#[tokio::main]
async fn main() -> Result<(), Problem> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [engine, threads, tables @ ..] = arguments.as_slice() else {
        return Err("usage: query-peers ballista|distributed THREADS NAME=FILE ...".into());
    };
    let threads = threads.parse()?;
    let context = match engine.as_str() {
        "ballista" => ballista(threads).await?,
        "distributed" => distributed(threads).await?,
        other => return Err(format!("no engine is called {other}").into()),
    };
    for table in tables {
        let (name, file) = table.split_once('=').ok_or("a table is NAME=FILE")?;
        context.register_parquet(name, file, ParquetReadOptions::default()).await?;
    }
    for query in io::stdin().lock().lines() {
        let answer = match answer(&context, &query?).await {
            Ok((rows, ms)) => serde_json::json!({ "rows": rows, "ms": ms }),
            Err(error) => serde_json::json!({ "error": error.to_string() }),
        };
        println!("{answer}");
        io::stdout().flush()?;
    }
    Ok(())
}

/// How many rows a query has, and the milliseconds that they took.
async fn answer(context: &SessionContext, query: &str) -> Result<(usize, f64), DataFusionError> {
    let start = Instant::now();
    let result = context.sql(query).await?.collect().await?;
    let rows = result.iter().map(|rows| rows.num_rows()).sum();
    Ok((rows, start.elapsed().as_secs_f64() * 1e3))
}

fn config(config: SessionConfig, threads: usize) -> SessionConfig {
    let config = config.with_target_partitions(threads);
    // The 43 queries name columns in their own case.
    config.set_bool("datafusion.sql_parser.enable_ident_normalization", false)
}

async fn ballista(threads: usize) -> Result<SessionContext, Problem> {
    let config = config(SessionConfig::new_with_ballista(), threads);
    let config = config.with_ballista_standalone_parallelism(threads);
    let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
    Ok(SessionContext::standalone_with_state(state).await?)
}

async fn distributed(threads: usize) -> Result<SessionContext, Problem> {
    let mut workers = Vec::new();
    for _ in 0..threads {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        workers.push(Url::parse(&format!("http://{}", listener.local_addr()?))?);
        let server = Server::builder().add_service(Worker::default().into_worker_server());
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    }
    let state = SessionStateBuilder::new()
        .with_config(config(SessionConfig::new(), threads))
        .with_default_features()
        .with_distributed_worker_resolver(Workers(workers))
        .with_distributed_planner()
        .build();
    Ok(SessionContext::from(state))
}

#[derive(Clone)]
struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}
