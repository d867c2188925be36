//! Secrets that are known before a pipeline file is read, and outputs that do not go through the
//! [`screen`](crate::screen).

use std::backtrace::{Backtrace, BacktraceStatus};
use std::process::ExitCode;

use clap::error::ErrorKind;
use millstream_store::secrets;

/// Where the process is: variables that look like a password's by their names only.
const DIRECTORIES: [&str; 2] = ["PWD", "OLDPWD"];

/// Remembers the environment's secrets: clients of object stores take theirs from there, and what
/// they say may have them in it.
pub fn hide_environment() {
    for (name, value) in std::env::vars_os() {
        if let (Ok(name), Ok(value)) = (name.into_string(), value.into_string())
            && !DIRECTORIES.contains(&name.as_str())
        {
            secrets::remember_setting(&name, &value);
        }
    }
}

/// Takes secrets out of what a panic says.
pub fn in_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        eprintln!("{}", secrets::redacted(&format!("thread '{name}' {panic}")));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            eprintln!("{}", secrets::redacted(&backtrace.to_string()));
        }
    }));
}

/// Says what is wrong with the command line, which may have secrets in it, or the help that it asks
/// for.
pub fn said(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        error.exit();
    }
    eprint!("{}", secrets::redacted_source(&error.render().to_string()));
    ExitCode::from(2)
}
