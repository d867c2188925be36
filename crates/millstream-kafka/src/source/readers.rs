//! Who reads: the protocol reader, or librdkafka with settings or brokers that the former does not
//! have. Both bring what has come into the same buffer.

use std::sync::Arc;

use millstream_engine::api::connector::Memory;
use millstream_store::env::Env;

use super::fetch::{self, FetchSettings, Fetcher};
use super::orders::Orders;
use super::read_ahead::{More, ReadAhead};
use super::reader::{BackgroundReader, Rules, new_queue};
use crate::brokers::Brokers;
use crate::brokers::settings::warn_of_librdkafka;
use crate::client::settings::ClientSettings;
use crate::error::SourceError;
use crate::offsets::{PartitionId, PerPartition};
use crate::protocol::frame::FOR_READING;

/// A running reader. Dropping it ends its threads.
pub enum Reader {
    /// The protocol reader.
    Protocol(Fetcher),
    /// librdkafka.
    Librdkafka(BackgroundReader),
}

/// What a reader needs to know.
pub struct StartOfReading {
    /// The client's settings.
    pub client: ClientSettings,
    /// The limit of memory.
    pub memory: Option<Memory>,
    /// The table.
    pub table: String,
    /// Where each partition stands.
    pub position: PerPartition,
    /// Where records go.
    pub buffer: Arc<ReadAhead>,
    /// The table's options.
    pub rules: Rules,
    /// Clock, chance and threads.
    pub env: Env,
}

impl StartOfReading {
    /// Begins to read. Blocks while the brokers are asked what they can do.
    ///
    /// # Errors
    /// librdkafka has to read, and cannot with these settings.
    pub fn reader(self) -> Result<Reader, SourceError> {
        let Self { memory, table, position, buffer, rules, env, .. } = &self;
        if let Some((settings, brokers)) = self.protocol() {
            let names = (table.as_str(), self.client.servers());
            let into = (Arc::clone(buffer), *rules);
            let fetcher = Fetcher::start(settings, brokers, names, position, into, env);
            return Ok(Reader::Protocol(fetcher));
        }
        let queue = new_queue(&self.client, *memory, env, table)?;
        let reader = BackgroundReader::start(queue, position, Arc::clone(buffer), *rules, env);
        Ok(Reader::Librdkafka(reader))
    }

    /// How to read without librdkafka, if that can be. Tells why not, unless the options say so.
    fn protocol(&self) -> Option<(FetchSettings, Brokers)> {
        let reason = match FetchSettings::of(&self.client, self.memory) {
            Err(not_spoken) => not_spoken.reason()?,
            Ok(settings) => {
                let mut brokers = fetch::brokers(&settings, &self.table, &self.env);
                match brokers.lacks(&FOR_READING) {
                    None => return Some((settings, brokers)),
                    Some(reason) => reason,
                }
            }
        };
        warn_of_librdkafka(&self.table, "reads", &reason);
        None
    }
}

impl Reader {
    /// Brings in what has come, as far as there is space. The protocol reader's own threads do.
    pub fn look(&self) -> More {
        match self {
            Self::Protocol(_) => More::WillBeNotified,
            Self::Librdkafka(reader) => reader.look(),
        }
    }

    /// The driver is about to work on `rows` rows.
    pub fn is_busy_with(&self, rows: u64) {
        if let Self::Librdkafka(reader) = self {
            reader.is_busy_with(rows);
        }
    }

    /// The newest end of a partition that a broker has reported, if one has.
    pub fn end_seen(&self, id: &PartitionId) -> Option<i64> {
        match self {
            Self::Protocol(reader) => reader.end_seen(id),
            Self::Librdkafka(reader) => reader.end_seen(id),
        }
    }

    /// Where orders to the reader are given.
    pub fn orders(&self) -> &Arc<Orders> {
        match self {
            Self::Protocol(reader) => reader.orders(),
            Self::Librdkafka(reader) => reader.orders(),
        }
    }
}
