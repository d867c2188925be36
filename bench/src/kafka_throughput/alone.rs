//! What a client alone is started with, whosever it is.

use std::time::Duration;

use clap::ValueEnum;

use super::Route;
use crate::error::Error;

/// How long a call waits for the first record.
pub(super) const WAIT: Duration = Duration::from_millis(100);

/// Flags of the bare client's process.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Whose code it is
    #[arg(long)]
    pub(super) client: Client,
    /// What it does
    #[arg(long)]
    pub(super) route: Route,
    /// Broker to connect to, HOST:PORT
    #[arg(long)]
    pub(super) brokers: String,
    /// Topic to read
    #[arg(long, default_value_t)]
    pub(super) from: String,
    /// Topic to write
    #[arg(long, default_value_t)]
    pub(super) to: String,
    /// Records to deal with
    #[arg(long)]
    pub(super) messages: u64,
    /// Bytes of a value that is written
    #[arg(long)]
    pub(super) size: usize,
    /// Partitions of the topic that is read
    #[arg(long)]
    pub(super) partitions: i32,
    /// Setting of the client
    #[arg(long, value_name = "K=V")]
    pub(super) client_option: Vec<String>,
}

/// Whose client it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// librdkafka.
    Librdkafka,
    /// Confluent's own for Rust.
    #[cfg(feature = "confluent")]
    Confluent,
}

/// The name and the value of an option of the client.
pub fn option(text: &str) -> Result<(&str, &str), Error> {
    text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
        let problem = format!("--client-option {text}: write it as NAME=VALUE");
        Error::Flags { problem }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        assert_eq!(option("a.b=c=d").expect("it is one"), ("a.b", "c=d"));
        assert!(option("a.b").is_err() && option("=c").is_err());
    }
}
