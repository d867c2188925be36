//! `refusedPath`: a file for messages that their receiver refuses for good.
//!
//! A line is a JSON object with the key, the moment, the receiver's answer and what the message
//! said. It is on the disk before the micro-batch is acknowledged, so that a crash loses none; one
//! that is refused again after a crash is there twice, under the same key.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_store::env::Env;
use serde_json::json;

use super::Message;
use super::error::DeliveryError;

/// The file of refused messages. Cheap to clone.
#[derive(Clone)]
pub struct RefusedFile {
    path: Arc<PathBuf>,
    env: Env,
}

impl RefusedFile {
    /// The file at `path`, which need not be there yet.
    pub fn new(path: PathBuf, env: Env) -> Self {
        Self { path: Arc::new(path), env }
    }

    /// Makes sure that it can be written.
    ///
    /// # Errors
    /// `Config`: its directory does not exist, or may not be written.
    pub async fn check(&self) -> Result<(), DeliveryError> {
        self.append(Vec::new()).await
    }

    /// Appends a message and the `answer` to it.
    ///
    /// # Errors
    /// `Config`: the file cannot be written.
    pub async fn add(&self, message: &impl Message, answer: &str) -> Result<(), DeliveryError> {
        let line = json!({
            "key": message.key(),
            "at": self.env.now_ms(),
            "answer": answer,
            "content": message.content(),
        });
        self.append(format!("{line}\n").into_bytes()).await
    }

    async fn append(&self, line: Vec<u8>) -> Result<(), DeliveryError> {
        let path = Arc::clone(&self.path);
        let append = move || {
            append(&path, &line)
                .map_err(|error| DeliveryError::RefusedFile { path: path.to_path_buf(), error })
        };
        self.env.spawn_blocking("refused-file", append).join().await
    }
}

/// Appends in one call, so that lines of several lanes do not mix.
fn append(path: &Path, line: &[u8]) -> std::io::Result<()> {
    let is_new = !path.try_exists()?;
    let mut file: File = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(line)?;
    file.sync_data()?;
    match path.parent() {
        // Its name is to survive a loss of power, too.
        Some(directory) if is_new && directory.is_dir() => File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}
