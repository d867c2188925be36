//! The bare client of measurements of throughput: librdkafka and a loop, a process of its own.
//!
//! What it needs is only how much there is to do: it ends when it has read, or the brokers have
//! acknowledged, as many records as its flags say.

use millstream_store::env::Env;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::BaseConsumer;
use rdkafka::producer::BaseRecord;

use super::Route;
#[cfg(feature = "confluent")]
use super::alone::Client;
use super::alone::{Flags, WAIT, option};
use super::batches::Batches;
#[cfg(feature = "confluent")]
use super::confluent;
use crate::error::Error;
use crate::in_process::source::Chunks;
use crate::in_process::{Input, Measuring};
use crate::sender::Sender;
use crate::settings;

/// Acknowledgements are taken in after so many records: about as many as a request has.
const RECORDS_PER_LOOK: u64 = 1_024;

/// Reads, copies or writes. Only writing tells what it took: before that its records are made.
pub fn run(env: &Env, flags: &Flags) -> Result<(), Error> {
    #[cfg(feature = "confluent")]
    if flags.client == Client::Confluent {
        return confluent::run(env, flags);
    }
    match flags.route {
        Route::Read => read(flags),
        Route::Copy => copy(env, flags),
        Route::Write => write(env, flags),
    }
}

fn read(flags: &Flags) -> Result<(), Error> {
    let mut batches = flags.batches()?;
    let (mut records, mut bytes) = (0, 0);
    while records < flags.messages {
        records += batches.next(WAIT, |record| {
            bytes += record.key.unwrap_or_default().len() + record.value.unwrap_or_default().len();
            Ok(())
        })?;
    }
    std::hint::black_box(bytes);
    Ok(())
}

fn copy(env: &Env, flags: &Flags) -> Result<(), Error> {
    let mut batches = flags.batches()?;
    let mut writing = flags.writing(env)?;
    let mut records = 0;
    while records < flags.messages {
        records += batches.next(WAIT, |record| writing.write(record.key, record.value))?;
        // Few may come for a while.
        writing.sender.poll();
    }
    writing.sender.flush()
}

fn write(env: &Env, flags: &Flags) -> Result<(), Error> {
    let Flags { messages, partitions, size, .. } = *flags;
    let chunks =
        Chunks::make(&Input { messages, partitions, windows: 0, keys: None, size: Some(size) })?;
    let measuring = Measuring::start(env);
    let mut writing = flags.writing(env)?;
    for (key, value) in chunks.records() {
        writing.write(key, Some(value))?;
    }
    writing.sender.flush()?;
    measuring.tell(messages);
    Ok(())
}

impl Flags {
    fn batches(&self) -> Result<Batches, Error> {
        let mut config = settings::bulk_consumer(&self.brokers);
        self.add_options(&mut config)?;
        let starting = || Error::kafka(format!("reading {}", self.from));
        let consumer: BaseConsumer = config.create().map_err(starting())?;
        Batches::start(consumer, &self.from, self.partitions)
            .map_err(|code| starting()(rdkafka::error::KafkaError::MessageConsumption(code)))
    }

    fn writing(&self, env: &Env) -> Result<Writing, Error> {
        let mut config = settings::filler(&self.brokers);
        self.add_options(&mut config)?;
        Ok(Writing { sender: Sender::with_settings(env, &self.to, &config)?, records: 0 })
    }

    /// What the user has given for producers is not known to consumers, and the other way round:
    /// librdkafka warns of it, and ignores it.
    fn add_options(&self, config: &mut ClientConfig) -> Result<(), Error> {
        for text in &self.client_option {
            let (key, value) = option(text)?;
            config.set(key, value);
        }
        Ok(())
    }
}

/// A producer, and how much it was given.
struct Writing {
    sender: Sender,
    records: u64,
}

impl Writing {
    fn write(&mut self, key: Option<&[u8]>, value: Option<&[u8]>) -> Result<(), Error> {
        let mut record = BaseRecord::<[u8], [u8]>::to(self.sender.topic());
        (record.key, record.payload) = (key, value);
        self.sender.send(record)?;
        self.records += 1;
        if self.records.is_multiple_of(RECORDS_PER_LOOK) {
            self.sender.poll();
        }
        Ok(())
    }
}
