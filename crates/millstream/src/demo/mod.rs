//! demo
use crate::{app::App, cli::DemoArguments};
use std::process::ExitCode;
/// x
pub async fn run(_a: DemoArguments, app: &App) -> ExitCode {
    app.done()
}
