//! `millstream bench`: the benchmarks are not part of this build.

use std::process::ExitCode;

use clap::Args;

/// `millstream bench`
#[derive(Args)]
pub struct Arguments {
    /// Which benchmark.
    #[arg(value_name = "NAME")]
    name: String,
}

/// Says that there are none.
pub async fn run(arguments: Arguments) -> ExitCode {
    eprintln!("error: '{}' is not built in: this build has no benchmarks", arguments.name);
    ExitCode::from(2)
}
