//! `millstream checkpoint show`
use std::process::ExitCode;

use crate::app::App;

/// Runs the command.
pub async fn run(_directory: &str, app: &App) -> ExitCode {
    app.done()
}
