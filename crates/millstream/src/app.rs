//! What every command has: time and tasks, the terminal, and the three ways to end.

use std::io::{self, Write as _};
use std::process::ExitCode;

use millstream_store::env::Env;
use millstream_store::secrets;

use crate::load::LoadError;
use crate::screen::Screen;

/// The process, as the commands see it.
pub struct App {
    /// Clock, chance and tasks.
    pub env: Env,
    /// Standard error.
    pub screen: Screen,
    /// How many times `-v` was given.
    pub verbose: u8,
}

impl App {
    /// The process as it is.
    pub fn new(verbose: u8) -> Self {
        Self { env: Env::real(), screen: Screen::stderr(), verbose }
    }

    /// True where somebody may want to read more than results and errors.
    pub fn is_watched(&self) -> bool {
        self.screen.is_terminal() || self.verbose > 0
    }

    /// Status 0: done, or stopped by the user.
    pub fn done(&self) -> ExitCode {
        ExitCode::SUCCESS
    }

    /// Status 1: a query failed, or the outside did.
    pub fn failed(&self, problem: &str) -> ExitCode {
        self.screen.say(&format!("error: {problem}"));
        ExitCode::from(1)
    }

    /// Status 2: the pipeline file or the command line is wrong.
    pub fn wrong(&self, problem: &str) -> ExitCode {
        self.screen.say(&format!("error: {problem}"));
        ExitCode::from(2)
    }

    /// A pipeline file that does not load.
    pub fn not_loaded(&self, error: LoadError) -> ExitCode {
        match error {
            LoadError::Diagnosed(text) => {
                self.screen.say(text.trim_end());
                ExitCode::from(2)
            }
            LoadError::Wrong(problem) => self.wrong(&problem),
            LoadError::Failed(problem) => self.failed(&problem),
        }
    }

    /// Prints a command's result on standard output. A reader that has gone away has seen enough.
    pub fn print(&self, text: &str) -> ExitCode {
        let text = secrets::redacted_values(text);
        match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                self.failed(&format!("standard output cannot be written: {error}"))
            }
            _ => self.done(),
        }
    }
}
