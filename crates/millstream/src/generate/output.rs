//! Where messages go, apart from a topic.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_store::env::Env;
use millstream_store::error::{Classified, Failure, Kind};
use thiserror::Error;

/// A file gets so many messages at most.
const MESSAGES_PER_FILE: u64 = 100_000;
/// And is finished after so long, so that whoever reads the directory sees messages soon.
const FILE_LASTS: Duration = Duration::from_secs(1);
const BUFFER_BYTES: usize = 1 << 16;

/// Why messages do not get where they are to go.
#[derive(Debug, Error)]
enum OutputError {
    /// The directory for files cannot be made.
    #[error("{} cannot be made: {error}", path.display())]
    Directory { path: PathBuf, error: io::Error },
    /// A message has line breaks that cannot be taken out.
    #[error(
        "a message has several lines and is not JSON ({0}), so it cannot be a line of a file; take \
         the line breaks out of the template, or write --to kafka"
    )]
    Lines(serde_json::Error),
    /// The system refuses.
    #[error("messages cannot be written: {0}")]
    Write(io::Error),
}

impl Classified for OutputError {
    fn kind(&self) -> Kind {
        match self {
            Self::Directory { .. } | Self::Lines(_) => Kind::Config,
            Self::Write(_) => Kind::Retry,
        }
    }
}

/// Takes messages.
pub trait Output {
    /// Takes one.
    fn write(&mut self, message: &[u8]) -> Result<(), Failure>;

    /// Called when no message is due for now.
    fn tick(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// No more will come.
    fn finish(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Drops messages: how fast they are made, and nothing else.
pub struct Nowhere;

impl Output for Nowhere {
    fn write(&mut self, _message: &[u8]) -> Result<(), Failure> {
        Ok(())
    }
}

/// A message a line. One that has line breaks is written without its white space if it is JSON.
pub struct Lines<W> {
    writer: W,
}

impl Lines<BufWriter<io::Stdout>> {
    /// On standard output.
    pub fn stdout() -> Self {
        Self { writer: BufWriter::with_capacity(BUFFER_BYTES, io::stdout()) }
    }
}

impl<W: Write> Lines<W> {
    fn line(&mut self, message: &[u8]) -> Result<(), Failure> {
        let written = if message.contains(&b'\n') {
            self.writer.write_all(&compact(message)?)
        } else {
            self.writer.write_all(message)
        };
        written.and_then(|()| self.writer.write_all(b"\n")).map_err(failed)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(failed)
    }
}

impl<W: Write> Output for Lines<W> {
    fn write(&mut self, message: &[u8]) -> Result<(), Failure> {
        self.line(message)
    }

    fn tick(&mut self) -> Result<(), Failure> {
        self.flush()
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.flush()
    }
}

fn compact(message: &[u8]) -> Result<Vec<u8>, Failure> {
    let value: Result<serde_json::Value, _> = serde_json::from_slice(message);
    Ok(value.map_err(OutputError::Lines)?.to_string().into_bytes())
}

fn failed(error: io::Error) -> Failure {
    OutputError::Write(error).into()
}

/// Files in a directory, a message a line. A file has its name when it is whole: until then it is
/// hidden, and no reader looks at it.
pub struct Files {
    directory: PathBuf,
    env: Env,
    open: Option<Open>,
    number: u64,
}

struct Open {
    lines: Lines<BufWriter<File>>,
    hidden: PathBuf,
    name: PathBuf,
    messages: u64,
    since: Duration,
}

impl Files {
    /// In `directory`, which is made if it is not there.
    pub fn new(directory: &Path, env: &Env) -> Result<Self, Failure> {
        let made = fs::create_dir_all(directory);
        made.map_err(|error| OutputError::Directory { path: directory.to_owned(), error })?;
        Ok(Self { directory: directory.to_owned(), env: env.clone(), open: None, number: 0 })
    }

    fn open(&mut self) -> Result<Open, Failure> {
        let name = loop {
            let name = self.directory.join(format!("part-{:05}.json", self.number));
            self.number += 1;
            // Files of an earlier run stay.
            if !name.exists() {
                break name;
            }
        };
        let file_name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hidden = self.directory.join(format!(".{file_name}.tmp"));
        let file = File::create(&hidden).map_err(failed)?;
        let lines = Lines { writer: BufWriter::with_capacity(BUFFER_BYTES, file) };
        Ok(Open { lines, hidden, name, messages: 0, since: self.env.monotonic() })
    }

    fn close(&mut self) -> Result<(), Failure> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        open.lines.flush()?;
        fs::rename(&open.hidden, &open.name).map_err(failed)
    }
}

impl Output for Files {
    fn write(&mut self, message: &[u8]) -> Result<(), Failure> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.open()?,
        };
        let open = self.open.insert(open);
        open.lines.line(message)?;
        open.messages += 1;
        if open.messages >= MESSAGES_PER_FILE { self.close() } else { Ok(()) }
    }

    fn tick(&mut self) -> Result<(), Failure> {
        let now = self.env.monotonic();
        match &self.open {
            Some(open) if now - open.since >= FILE_LASTS => self.close(),
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_line() {
        let mut lines = Lines { writer: Vec::new() };
        lines.write(b"{ \"a\": 1 }").expect("it is a line already");
        lines.write(b"{\n  \"b\": [1,\n 2]\n}").expect("it is JSON");
        assert_eq!(lines.writer, b"{ \"a\": 1 }\n{\"b\":[1,2]}\n");
        let refused = lines.write(b"<a>\n</a>").expect_err("it is no JSON");
        assert!(refused.to_string().contains("--to kafka"), "{refused}");
    }

    #[test]
    fn files_have_their_names_when_they_are_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let names = || {
            let entries = fs::read_dir(directory.path()).expect("it is there");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().expect("text")).collect();
            names.sort();
            names
        };
        fs::write(directory.path().join("part-00000.json"), "old\n").expect("writable");
        let mut files = Files::new(directory.path(), &Env::real()).expect("it is there");
        files.write(b"{}").expect("writable");
        assert_eq!(names(), [".part-00001.json.tmp", "part-00000.json"]);
        files.finish().expect("writable");
        assert_eq!(names(), ["part-00000.json", "part-00001.json"]);
    }
}
