//! Standard error, shared by messages, log lines and the live lines.
//!
//! Live lines stay at the bottom: whatever else is written goes through [`Screen::above`], which
//! takes them away for that moment. Where standard error is not a terminal there are none and
//! everything is plain text. Secrets are taken out of all of it here.

use std::io::{self, IsTerminal as _, Write as _};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use millstream_store::secrets;

/// Standard error. Cheap to clone.
#[derive(Clone)]
pub struct Screen {
    lines: MultiProgress,
    is_terminal: bool,
}

impl Screen {
    /// Standard error as it is.
    pub fn stderr() -> Self {
        let is_terminal = io::stderr().is_terminal();
        let target = if is_terminal {
            ProgressDrawTarget::stderr_with_hz(8)
        } else {
            ProgressDrawTarget::hidden()
        };
        Self { lines: MultiProgress::with_draw_target(target), is_terminal }
    }

    /// True where a person may be looking.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Prints a message on a line of its own.
    pub fn say(&self, message: &str) {
        let message = secrets::redacted(message);
        self.above(|| {
            // Nobody reads standard error any more: there is nowhere left to say so.
            let _ = writeln!(io::stderr(), "{message}");
        });
    }

    /// Runs `write`, which prints, with the live lines out of the way.
    pub fn above<T>(&self, write: impl FnOnce() -> T) -> T {
        self.lines.suspend(write)
    }

    /// A new live line at the bottom.
    pub fn live_line(&self) -> ProgressBar {
        let line = self.lines.add(ProgressBar::new_spinner());
        let style = ProgressStyle::with_template("{wide_msg}");
        line.set_style(style.expect("the template is valid"));
        line
    }
}

impl io::Write for Screen {
    /// A whole log line, as the subscriber writes it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        let line = secrets::redacted(&line);
        self.above(|| io::stderr().write_all(line.as_bytes())).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
