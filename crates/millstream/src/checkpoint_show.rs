//! `millstream checkpoint show`: what a checkpoint holds, in words; one of Spark's, too.

use std::process::ExitCode;

use millstream_store::error::{Classified as _, Kind};
use millstream_store::inspect;

use crate::app::App;

/// Runs the command. Takes no lock, so a running query is not disturbed.
pub async fn run(location: &str, app: &App) -> ExitCode {
    match inspect::inspect(location, &app.env).await {
        Ok(inspection) => app.print(&inspection.to_string()),
        Err(error) if error.kind() == Kind::Config => app.wrong(&error.to_string()),
        Err(error) => app.failed(&error.to_string()),
    }
}
