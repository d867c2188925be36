//! Tries the Kafka connector by hand against a running broker, and measures it.
//!
//!     kafka_try create TOPIC PARTITIONS
//!     kafka_try fill TOPIC RECORDS BYTES        writes through the sink
//!     kafka_try read TOPIC                      reads everything through the source
//!     kafka_try replay TOPIC START END          reads a range again; offsets as JSON
//!     kafka_try relay IN OUT SECONDS            source to sink, until the time is over
//!     kafka_try bare IN OUT SECONDS             the same with the client alone, for comparison
//!     kafka_try probe IN OUT RATE SECONDS       latency from IN to OUT, while a relay runs
//!
//! The brokers are those in the variable `BROKERS`, else 127.0.0.1:9092.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, BinaryArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type, TimestampMicrosecondType};
use millstream_connect::kafka::KafkaConnector;
use millstream_engine::connector::{Connector, FlowContext, Options, ReadMode, Table};
use millstream_engine::sink::{BatchId, Failure, Output, Sink};
use millstream_engine::source::{Admission, Source, SourceLog, SourceOffset};
use millstream_store::env::Env;
use parking_lot::Mutex;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let env = Env::real();
    runtime.block_on(async {
        match arguments.as_slice() {
            ["create", topic, partitions] => create(topic, partitions.parse()?).await,
            ["fill", topic, records, bytes] => {
                fill(&env, topic, records.parse()?, bytes.parse()?).await
            }
            ["read", topic] => read(&env, topic).await,
            ["replay", topic, start, end] => replay(&env, topic, start, end).await,
            ["relay", from, to, seconds] => relay(&env, from, to, seconds.parse()?).await,
            ["bare", from, to, seconds] => bare(&env, from, to, seconds.parse()?),
            ["probe", from, to, rate, seconds] => {
                probe(&env, from, to, rate.parse()?, seconds.parse()?)
            }
            _ => Err("see the head of this file for the arguments".into()),
        }
    })
}

fn brokers() -> String {
    std::env::var("BROKERS").unwrap_or_else(|_| "127.0.0.1:9092".to_owned())
}

fn client() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers());
    config
}

/// A table with these options; `OPTIONS` may add some, as `key=value,key=value`.
fn table(options: &[(&str, &str)]) -> Table {
    let mut all = Options::default();
    all.set("kafka.bootstrap.servers", brokers());
    for (key, value) in options {
        all.set(*key, *value);
    }
    let more = std::env::var("OPTIONS").unwrap_or_default();
    for (key, value) in more.split(',').filter_map(|option| option.split_once('=')) {
        all.set(key, value);
    }
    Table { name: "try".to_owned(), columns: None, options: all }
}

fn context(env: &Env) -> FlowContext {
    FlowContext {
        flow: "try".to_owned(),
        query_id: env.random_uuid().to_string(),
        env: env.clone(),
        base_dir: PathBuf::from("."),
    }
}

fn message(failure: Failure) -> AnyError {
    format!("{:?}: {failure}", failure.kind()).into()
}

async fn open_source(
    env: &Env,
    topic: &str,
    from: &str,
    mode: ReadMode,
) -> Result<Box<dyn Source>, AnyError> {
    let table = table(&[("subscribe", topic), ("startingOffsets", from)]);
    KafkaConnector.check_source(&table, mode).map_err(|error| format!("{error:?}"))?;
    let mut source = KafkaConnector.source(&table, mode, &context(env)).map_err(message)?;
    let begun = env.monotonic();
    let position = source.open(None, SourceLog::in_memory()).await.map_err(message)?;
    source.start(&position).await.map_err(message)?;
    println!("{} opened in {:?} at {position}", source.description(), env.monotonic() - begun);
    Ok(source)
}

async fn open_sink(env: &Env, topic: &str) -> Result<Box<dyn Sink>, AnyError> {
    let table = table(&[("topic", topic)]);
    let schema = rows(&[], &[]).schema();
    KafkaConnector.check_sink(&table, &schema).map_err(|error| format!("{error:?}"))?;
    let mut sink = KafkaConnector.sink(&table, &schema, &context(env)).map_err(message)?;
    sink.open().await.map_err(message)?;
    Ok(sink)
}

fn rows(keys: &[Option<&[u8]>], values: &[Option<&[u8]>]) -> RecordBatch {
    let column = |values: &[Option<&[u8]>]| -> ArrayRef {
        Arc::new(values.iter().copied().collect::<BinaryArray>())
    };
    let columns = [("key", column(keys), true), ("value", column(values), true)];
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
}

async fn create(topic: &str, partitions: i32) -> Result<(), AnyError> {
    let admin: AdminClient<DefaultClientContext> = client().create()?;
    let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    println!("{:?}", admin.create_topics([&topic], &AdminOptions::new()).await?);
    Ok(())
}

async fn fill(env: &Env, topic: &str, records: usize, bytes: usize) -> Result<(), AnyError> {
    const ROWS: usize = 8_192;
    let mut sink = open_sink(env, topic).await?;
    let value = vec![b'x'; bytes];
    let begun = env.monotonic();
    let (mut done, mut batch_id, mut waiting) = (0, BatchId(0), Vec::new());
    while done < records {
        let count = ROWS.min(records - done);
        let batch = rows(&vec![None; count], &vec![Some(&value[..]); count]);
        let output = Output { batch_id, partitions: vec![vec![batch]] };
        waiting.push(sink.publish(output).await.map_err(message)?);
        done += count;
        batch_id = batch_id.next();
    }
    let handed_over = env.monotonic() - begun;
    for acknowledgement in waiting {
        acknowledgement.await.map_err(message)?;
    }
    let taken = env.monotonic() - begun;
    println!("{} records/s written ({handed_over:?} of {taken:?} to hand over)", rate(done, taken));
    sink.close().await.map_err(message)
}

fn rate(records: usize, taken: Duration) -> u64 {
    (records as f64 / taken.as_secs_f64()) as u64
}

async fn read(env: &Env, topic: &str) -> Result<(), AnyError> {
    let begun = env.monotonic();
    let mut source = open_source(env, topic, "earliest", ReadMode::Batch).await?;
    source.fix_end().await.map_err(message)?;
    let (mut records, mut takes, mut bytes) = (0, 0, 0);
    while !source.at_end() {
        source.arrived().await;
        let Some(taken) = source.take(Admission::All).map_err(message)? else { continue };
        takes += 1;
        for split in taken.splits {
            for batch in split.read(&[0, 1]) {
                let batch = batch.map_err(message)?;
                records += batch.num_rows();
                bytes += batch.get_array_memory_size();
            }
        }
    }
    let taken = env.monotonic() - begun;
    println!("{records} records, {} records/s, {takes} takes, {bytes} bytes", rate(records, taken));
    println!("{:?} latest {:?}", source.metrics(), source.latest().map(|end| end.to_string()));
    source.close().await;
    Ok(())
}

async fn replay(env: &Env, topic: &str, start: &str, end: &str) -> Result<(), AnyError> {
    let table = table(&[("subscribe", topic)]);
    let mut source =
        KafkaConnector.source(&table, ReadMode::Stream, &context(env)).map_err(message)?;
    let (start, end) = (SourceOffset::new(start), SourceOffset::new(end));
    source.open(Some(&start), SourceLog::in_memory()).await.map_err(message)?;
    let begun = env.monotonic();
    let taken = source.replay(Some(&start), &end).await.map_err(message)?;
    println!("{} rows in {:?}", taken.rows, env.monotonic() - begun);
    for split in taken.splits {
        let batches = split.read(&[3, 4]).collect::<Result<Vec<_>, _>>().map_err(message)?;
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else { continue };
        let offset =
            |batch: &RecordBatch, row| batch.column(1).as_primitive::<Int64Type>().value(row);
        let partition = first.column(0).as_primitive::<Int32Type>().value(0);
        let last_offset = offset(last, last.num_rows() - 1);
        println!("partition {partition}: {} to {last_offset}", offset(first, 0));
    }
    source.close().await;
    Ok(())
}

async fn relay(env: &Env, from: &str, to: &str, seconds: u64) -> Result<(), AnyError> {
    let mut source = open_source(env, from, "latest", ReadMode::Stream).await?;
    let mut sink = open_sink(env, to).await?;
    let until = env.monotonic() + Duration::from_secs(seconds);
    let (mut batch_id, mut records) = (BatchId(0), 0);
    let (mut arriving, mut waiting) = (Vec::new(), Vec::new());
    let acknowledging = Arc::new(Mutex::new(Vec::new()));
    while env.monotonic() < until {
        tokio::select! {
            () = source.arrived() => {}
            () = env.sleep(Duration::from_millis(200)) => continue,
        }
        let Some(taken) = source.take(Admission::Limited).map_err(message)? else { continue };
        records += taken.rows;
        waiting.push(env.now_us() - taken.oldest_arrival_us);
        let mut partitions = Vec::new();
        for split in taken.splits {
            let batches = split.read(&[0, 1, 5]).collect::<Result<Vec<_>, _>>().map_err(message)?;
            for batch in &batches {
                let sent_us = batch.column(2).as_primitive::<TimestampMicrosecondType>().value(0);
                arriving.push(taken.oldest_arrival_us - sent_us);
            }
            let records = batches.iter().map(|batch| batch.project(&[0, 1]));
            partitions.push(records.collect::<Result<Vec<_>, _>>()?);
        }
        if std::env::var("NOSINK").is_ok() {
            continue;
        }
        let output = Output { batch_id, partitions };
        let (published_us, clock) = (env.now_us(), env.clone());
        let acknowledgement = sink.publish(output).await.map_err(message)?;
        let times = acknowledging.clone();
        env.spawn("acknowledgement", async move {
            match acknowledgement.await {
                Ok(()) => times.lock().push(clock.now_us() - published_us),
                Err(failure) => eprintln!("{failure}"),
            }
        });
        source.committed(&taken.end);
        batch_id = batch_id.next();
    }
    println!("{records} records in {batch_id} micro-batches; {:?}", source.metrics());
    println!("from producer to source: {}", quantiles(arriving));
    println!("from source to driver:   {}", quantiles(waiting));
    println!("from driver to broker:   {}", quantiles(std::mem::take(&mut acknowledging.lock())));
    source.close().await;
    sink.close().await.map_err(message)
}

fn quantiles(mut micros: Vec<i64>) -> String {
    micros.sort_unstable();
    let quantile = |q: f64| {
        let index = ((micros.len().max(1) - 1) as f64 * q) as usize;
        micros.get(index).copied().unwrap_or(0) as f64 / 1_000.0
    };
    let (p50, p90, p99, p999) = (quantile(0.5), quantile(0.9), quantile(0.99), quantile(0.999));
    format!("{} in ms p50 {p50:.2} p90 {p90:.2} p99 {p99:.2} p999 {p999:.2}", micros.len())
}

/// A consumer of all partitions from their ends, without a group's rebalancing.
fn consumer_at_end(env: &Env, topic: &str) -> Result<BaseConsumer, AnyError> {
    let consumer: BaseConsumer = client()
        .set("group.id", env.random_uuid().to_string())
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "100")
        .set("enable.partition.eof", std::env::var("EOF").unwrap_or_else(|_| "false".to_owned()))
        .create()?;
    let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(10))?;
    let mut list = TopicPartitionList::new();
    for partition in metadata.topics()[0].partitions() {
        let (_, end) = consumer.fetch_watermarks(topic, partition.id(), Duration::from_secs(10))?;
        list.add_partition_offset(topic, partition.id(), Offset::Offset(end))?;
    }
    consumer.assign(&list)?;
    Ok(consumer)
}

fn bare(env: &Env, from: &str, to: &str, seconds: u64) -> Result<(), AnyError> {
    let consumer = consumer_at_end(env, from)?;
    let producer: ThreadedProducer<DefaultProducerContext> =
        client().set("enable.idempotence", "true").set("linger.ms", "0").create()?;
    let until = env.monotonic() + Duration::from_secs(seconds);
    while env.monotonic() < until {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let Ok(message) = message else { continue };
        let record = BaseRecord::to(to).payload(message.payload().unwrap_or_default());
        let record = match message.key() {
            Some(key) => record.key(key),
            None => record,
        };
        producer.send(record).map_err(|(error, _)| error)?;
    }
    Ok(())
}

fn probe(env: &Env, from: &str, to: &str, rate: u64, seconds: u64) -> Result<(), AnyError> {
    let consumer = consumer_at_end(env, to)?;
    let producer: ThreadedProducer<DefaultProducerContext> = client()
        .set("linger.ms", "0")
        .set("sticky.partitioning.linger.ms", "10")
        .set("queue.buffering.max.messages", "1000000")
        .create()?;
    let stop = Arc::new(AtomicBool::new(false));
    let total = rate * seconds;
    let (pace, topic, stopped) = (env.clone(), from.to_owned(), stop.clone());
    let sender = env.thread("probe", move || {
        let begun = pace.monotonic();
        for number in 0..total {
            // The time a record should be sent counts, not when it could be.
            let due = begun + Duration::from_nanos(number * 1_000_000_000 / rate);
            while let Some(early) = due.checked_sub(pace.monotonic()).filter(|wait| !wait.is_zero())
            {
                std::thread::sleep(early);
            }
            let value = format!("{:020} {:80}", due.as_nanos(), number);
            let record = BaseRecord::<[u8], str>::to(&topic).payload(&value);
            if producer.send(record).is_err() || stopped.load(Ordering::Relaxed) {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(500));
    });
    let mut latencies_us = Vec::with_capacity(total as usize);
    let until = env.monotonic() + Duration::from_secs(seconds + 10);
    while latencies_us.len() < total as usize && env.monotonic() < until {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message?;
        let text = message.payload_view::<str>().ok_or("a record without value")??;
        let due = Duration::from_nanos(text[..20].parse()?);
        latencies_us.push(env.monotonic().saturating_sub(due).as_micros() as i64);
    }
    stop.store(true, Ordering::Relaxed);
    drop(sender);
    // The first second is the start of connections.
    let steady = latencies_us.split_off(latencies_us.len().min(rate as usize));
    if steady.is_empty() {
        return Err("nothing came back".into());
    }
    println!("rate {rate}: {}", quantiles(steady));
    Ok(())
}
