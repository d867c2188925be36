//! The bare client once more, with Confluent's own client for Rust in librdkafka's place.
//!
//! It takes the names of settings of Kafka's Java client, and gets the same ones as librdkafka does
//! where it has them. A refused record shows when the topic is read back.

use std::collections::HashMap;

use bytes::Bytes;
use confluent_kafka::common::TopicPartition;
use confluent_kafka::common::serialization::{ByteArraySerializer, BytesDeserializer};
use confluent_kafka::consumer::{Consumer as _, ConsumerConfig, KafkaConsumer};
use confluent_kafka::producer::{KafkaProducer, Producer as _, ProducerConfig, ProducerRecord};
use millstream_store::env::Env;

use super::Route;
use super::alone::{Flags, WAIT, option};
use crate::error::Error;
use crate::in_process::source::Chunks;
use crate::in_process::{Input, Measuring};

type Reader = KafkaConsumer<Bytes, Bytes>;
type Writer = KafkaProducer<Vec<u8>, Vec<u8>>;

const OF_READER: [(&str, &str); 6] = [
    ("group.protocol", "consumer"),
    ("enable.auto.commit", "false"),
    ("auto.offset.reset", "earliest"),
    ("isolation.level", "read_uncommitted"),
    ("fetch.max.wait.ms", "100"),
    ("max.poll.records", "8192"),
];
const OF_WRITER: [(&str, &str); 5] = [
    ("acks", "all"),
    ("enable.idempotence", "true"),
    ("linger.ms", "5"),
    ("batch.size", "1000000"),
    ("buffer.memory", "536870912"),
];

/// Reads, copies or writes, as [`super::bare::run`] does.
pub fn run(env: &Env, flags: &Flags) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(Error::file("start", "a runtime"))?;
    runtime.block_on(async {
        match flags.route {
            Route::Read => read(flags).await,
            Route::Copy => copy(flags).await,
            Route::Write => write(env, flags).await,
        }
    })
}

async fn read(flags: &Flags) -> Result<(), Error> {
    let mut reader = start_reader(flags).await?;
    let (mut records, mut bytes) = (0, 0);
    while records < flags.messages {
        for record in &reader.poll(WAIT).await.map_err(failed("reading"))? {
            bytes += record.key().map_or(0, Bytes::len) + record.value().map_or(0, Bytes::len);
            records += 1;
        }
    }
    std::hint::black_box(bytes);
    reader.close().await.map_err(failed("closing"))
}

async fn copy(flags: &Flags) -> Result<(), Error> {
    let mut reader = start_reader(flags).await?;
    let writer = start_writer(flags)?;
    let mut records = 0;
    while records < flags.messages {
        for record in &reader.poll(WAIT).await.map_err(failed("reading"))? {
            send(&writer, flags, record.key().map(AsRef::as_ref), record.value()).await?;
            records += 1;
        }
    }
    writer.flush().await.map_err(failed("writing"))?;
    writer.close().await.map_err(failed("closing"))?;
    reader.close().await.map_err(failed("closing"))
}

async fn write(env: &Env, flags: &Flags) -> Result<(), Error> {
    let Flags { messages, partitions, size, .. } = *flags;
    let chunks =
        Chunks::make(&Input { messages, partitions, windows: 0, keys: None, size: Some(size) })?;
    let measuring = Measuring::start(env);
    let writer = start_writer(flags)?;
    for (key, value) in chunks.records() {
        send(&writer, flags, key, Some(&value)).await?;
    }
    writer.flush().await.map_err(failed("writing"))?;
    measuring.tell(messages);
    writer.close().await.map_err(failed("closing"))
}

async fn start_reader(flags: &Flags) -> Result<Reader, Error> {
    let config = ConsumerConfig::new(&settings(flags, &OF_READER)?).map_err(failed("reading"))?;
    let (key, value) = (BytesDeserializer::new(), BytesDeserializer::new());
    let mut reader = Reader::new(config, key, value).map_err(failed("reading"))?;
    let partitions = (0..flags.partitions).map(|it| TopicPartition::new(flags.from.as_str(), it));
    reader.assign(partitions.collect()).await.map_err(failed("reading"))?;
    Ok(reader)
}

fn start_writer(flags: &Flags) -> Result<Writer, Error> {
    let config = ProducerConfig::new(&settings(flags, &OF_WRITER)?).map_err(failed("writing"))?;
    let (key, value) = (ByteArraySerializer::new(), ByteArraySerializer::new());
    Writer::new(config, key, value).map_err(failed("writing"))
}

async fn send(
    writer: &Writer,
    flags: &Flags,
    key: Option<&[u8]>,
    value: Option<&impl AsRef<[u8]>>,
) -> Result<(), Error> {
    let record = ProducerRecord::with_key(flags.to.clone(), key, value.map(AsRef::as_ref));
    // What becomes of it is not waited for.
    writer.send(record, None).await.map(drop).map_err(failed("writing"))
}

fn settings(flags: &Flags, own: &[(&str, &str)]) -> Result<HashMap<String, String>, Error> {
    let servers = ("bootstrap.servers", flags.brokers.as_str());
    let given: Result<Vec<_>, Error> = flags.client_option.iter().map(|it| option(it)).collect();
    let all = own.iter().copied().chain([servers]).chain(given?);
    Ok(all.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

fn failed(what: &'static str) -> impl FnOnce(confluent_kafka::common::Error) -> Error {
    move |error| Error::Confluent { what, problem: error.to_string() }
}
