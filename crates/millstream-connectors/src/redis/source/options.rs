//! What the options of a table that is read say.

use std::path::Path;
use std::time::Duration;

use millstream_engine::api::connector::{ReadMode, Table};
use millstream_engine::api::needs::Need;
use millstream_engine::api::options::{OptionError, Options};
use millstream_sql::json::ParseMode;

use super::offsets::{self, Id};
use crate::redis::server::Server;

/// Entries of one answer, of all streams.
const READ_SIZE: usize = 1_000;
/// How long the server holds an empty answer back.
const READ_BLOCK_MS: u64 = 500;

/// Where a new query begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Starting {
    /// With the first entry that is there.
    Earliest,
    /// With the first that comes.
    Latest,
    /// Behind these, by stream.
    After(Vec<Id>),
}

impl Starting {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Earliest => "earliest",
            Self::Latest => "latest",
            Self::After(_) => "stream.offsets",
        }
    }
}

/// A table that is read.
#[derive(Clone)]
pub(in crate::redis) struct SourceOptions {
    pub(super) server: Server,
    pub(super) table: String,
    /// The streams.
    pub(super) keys: Vec<String>,
    pub(super) starting: Starting,
    /// Entries of one answer, of all streams.
    pub(super) read_size: usize,
    pub(super) read_block: Duration,
    /// Rows of one micro-batch.
    pub(super) rows_max: usize,
    pub(super) fails_on_loss: bool,
    pub(super) mode: ParseMode,
}

/// Options of tables that are written, or looked up in a join, and never read as a stream.
const OF_KEYS: [&str; 8] = [
    "key.column",
    "table",
    "model",
    "lookup.cache",
    "lookup.partial-cache.max-rows",
    "lookup.partial-cache.max-bytes",
    "lookup.partial-cache.expire-after-write",
    "lookup.partial-cache.cache-missing-key",
];

impl SourceOptions {
    /// What a table needs of its server.
    pub(in crate::redis) fn needs(&self) -> Vec<Need> {
        let commands = ["TYPE", "XREAD", "XRANGE", "XREVRANGE", "XINFO|STREAM"];
        let of = |key: &String| Need::rights(&commands, format!("key '{key}'"), "reading it");
        let mut needs = self.server.needs();
        needs.extend(self.keys.iter().map(of));
        needs.push(Need::rights(&["INFO"], "the server", "what it is"));
        needs
    }

    pub(in crate::redis) fn parse(
        table: &Table,
        mode: ReadMode,
        base_dir: &Path,
    ) -> Result<Self, OptionError> {
        let options = &table.options;
        if mode == ReadMode::Batch {
            let name = &table.name;
            let problem = format!("'{name}' uses 'redis', which is read as a stream only");
            let help = format!(
                "write FROM STREAM {name}; or, to look rows up by their key in a join with a \
                 stream, name the key's columns: 'key.column' = 'id'"
            );
            return Err(OptionError::table(problem, Some(help)));
        }
        if let Some(key) = OF_KEYS.into_iter().find(|key| options.get(key).is_some()) {
            let problem = format!("'{key}' is about keys, and FROM STREAM reads streams");
            let help = "leave it out; 'stream.keys' names the streams".to_owned();
            return Err(OptionError::of(key, problem, Some(help)));
        }
        let Some(text) = options.get("stream.keys") else {
            let help = "name the streams, for example 'stream.keys' = 'orders'";
            return Err(OptionError::missing("stream.keys", help));
        };
        let keys: Vec<String> = text.split(',').map(|key| key.trim().to_owned()).collect();
        let is_twice = keys.iter().enumerate().any(|(at, key)| keys[..at].contains(key));
        if is_twice || keys.iter().any(String::is_empty) {
            let wanted = "names of streams, each once, separated by commas";
            return Err(OptionError::invalid("stream.keys", text, wanted));
        }
        let positive = |key: &str| {
            let wanted = "a whole number, 1 or more";
            match options.parse::<usize>(key, wanted)? {
                Some(0) => Err(OptionError::invalid(key, "0", wanted)),
                number => Ok(number),
            }
        };
        let block = options.parse("stream.read.block", "a number of milliseconds")?;
        let starting = starting(table, &keys)?;
        let server = Server::parse(options, base_dir)?;
        // An answer that is held back longer than one may take would never come.
        let block_ms = block.unwrap_or(READ_BLOCK_MS).max(1);
        let read_block = Duration::from_millis(block_ms).min(server.timeout() / 2);
        Ok(Self {
            server,
            table: table.name.clone(),
            keys,
            starting,
            read_size: positive("stream.read.batch.size")?.unwrap_or(READ_SIZE),
            read_block,
            rows_max: positive("maxOffsetsPerTrigger")?.unwrap_or(usize::MAX),
            fails_on_loss: options.parse_bool("failOnDataLoss")?.unwrap_or(true),
            mode: mode_of(options)?,
        })
    }
}

fn starting(table: &Table, keys: &[String]) -> Result<Starting, OptionError> {
    let options = &table.options;
    if let Some(text) = options.get("stream.offsets") {
        if options.get("startingOffsets").is_some() {
            let problem = "'startingOffsets' and 'stream.offsets' are both given";
            return Err(OptionError::of("startingOffsets", problem, None));
        }
        let wanted = "{\"offsets\":{\"KEY\":{\"offset\":\"ID\"}}} with each of 'stream.keys'";
        let positions = offsets::read(keys, text)
            .map_err(|()| OptionError::invalid("stream.offsets", text, wanted))?;
        return Ok(Starting::After(positions.into_iter().map(|position| position.id).collect()));
    }
    match options.get("startingOffsets").map(|text| (text, text.trim().to_ascii_lowercase())) {
        None => Ok(Starting::Latest),
        Some((_, lower)) if lower == "latest" => Ok(Starting::Latest),
        Some((_, lower)) if lower == "earliest" => Ok(Starting::Earliest),
        Some((text, _)) => {
            Err(OptionError::invalid("startingOffsets", text, "'earliest' or 'latest'"))
        }
    }
}

pub(in crate::redis) fn mode_of(options: &Options) -> Result<ParseMode, OptionError> {
    match options.parse_mode()? {
        ParseMode::DropMalformed => {
            let problem = "entries are not dropped because of one field";
            let help = "set 'mode' = 'PERMISSIVE', and WHERE in the query".to_owned();
            Err(OptionError::of("mode", problem, Some(help)))
        }
        mode => Ok(mode),
    }
}
