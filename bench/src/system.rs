//! What can be measured between two topics: each a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use millstream_testkit::program::Process;

use crate::error::Error;

/// Something that carries records from one topic to another.
pub trait SystemUnderTest {
    /// Starts it; its files and its output go to `directory`.
    fn start(&self, route: Route<'_>, directory: &Path) -> Result<Process, Error>;

    /// Whether it ends with status 0 when it is asked to stop.
    fn ends_well(&self) -> bool {
        false
    }
}

/// Where records come from and go to.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// HOST:PORT
    pub brokers: &'a str,
    /// Topic to read, from its end at the start.
    pub from: &'a str,
    /// Topic to write.
    pub to: &'a str,
}

/// The Kafka client alone, see [`relay`](crate::relay).
pub struct Relay {
    /// With a transaction for the records that are there.
    pub transactions: bool,
}

impl SystemUnderTest for Relay {
    fn start(&self, route: Route<'_>, directory: &Path) -> Result<Process, Error> {
        let mut command = this_program()?;
        command.args(["relay", "--brokers", route.brokers]);
        command.args(["--from", route.from, "--to", route.to]);
        if self.transactions {
            command.arg("--transactions");
        }
        Ok(Process::start("the relay", command, &directory.join("relay.log"))?)
    }
}

/// The benchmarks' own program, for what runs in a process of its own.
pub fn this_program() -> Result<Command, Error> {
    this_file().map(Command::new)
}

/// The engine as users have it: the `millstream` beside this program, built together with it.
pub fn millstream() -> Result<Command, Error> {
    let program = this_file()?.with_file_name("millstream");
    if program.exists() {
        return Ok(Command::new(program));
    }
    Err(Error::NoEngine { path: program })
}

/// Stops an engine. Errors if it did not end well.
pub fn stop(process: &mut Process) -> Result<(), Error> {
    let status = process.stop()?;
    if status.success() {
        return Ok(());
    }
    let (name, log) = (process.name().to_owned(), process.log_tail());
    Err(Error::Unclean { process: name, status, log })
}

/// The error for an engine that has published nothing for so long.
pub fn behind(process: &Process, waited: Duration) -> Error {
    let (name, log) = (process.name().to_owned(), process.log_tail());
    Error::Behind { process: name, waited_s: waited.as_secs(), log }
}

fn this_file() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(Error::file("find", "this program"))
}

/// Writes a file that a system under test is started with.
pub fn write(directory: &Path, name: &str, text: &str) -> Result<PathBuf, Error> {
    let path = directory.join(name);
    fs::write(&path, text).map_err(Error::file("write", &path))?;
    Ok(path)
}
