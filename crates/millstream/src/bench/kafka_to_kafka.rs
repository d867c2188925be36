//! `millstream bench kafka-to-kafka`: how long a record takes from the moment it is due at one
//! topic to its receipt from another, on the user's brokers.
//!
//! The flow starts at the end of the one topic, and a consumer at the end of the other; records are
//! sent at a steady rate, those of the warm-up first. When all are received, or nothing has come
//! for a while, the flow is stopped.

use std::process::ExitCode;
use std::time::Duration;

use millstream_engine::driver::stop::Stop;
use millstream_store::env::Env;
use millstream_store::error::Failure;
use rdkafka::Message as _;
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, BaseRecord};
use serde_json::{Map, json};

use super::clients::{Settings, failure};
use super::records::{SIZE_MIN, Tally, encode};
use super::{Flow, directory, failed, sql_options};
use crate::app::App;
use crate::client_error::ClientError;
use crate::key_value::key_value;

/// Before the measurement, at the same rate: the flow starts meanwhile.
const WARM_UP_SECONDS: u64 = 5;
/// How long receiving may hold up sending.
const PAUSE: Duration = Duration::from_micros(500);
/// After the last record was sent, how long nothing may come before the rest counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Flags of the check.
#[derive(clap::Args)]
pub struct Flags {
    /// Where your brokers are; several are separated by commas.
    #[arg(long, value_name = "HOST:PORT")]
    brokers: String,
    /// Setting of the Kafka client, such as security.protocol=SSL; may be repeated.
    #[arg(long = "client", value_name = "KEY=VALUE", value_parser = key_value)]
    settings: Vec<(String, String)>,
    /// A topic of yours to send to; without it two topics are made, and removed at the end.
    #[arg(long, value_name = "TOPIC", requires = "to")]
    from: Option<String>,
    /// A topic of yours that the flow writes to.
    #[arg(long, value_name = "TOPIC", requires = "from")]
    to: Option<String>,
    /// Partitions of topics that are made.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(i32).range(1..=1000))]
    partitions: i32,
    /// Records a second.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Bytes of a record's value.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(i64::from(SIZE_MIN)..))]
    size: u32,
    /// Seconds measured, after 5 of warm-up.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Write each micro-batch in a transaction.
    #[arg(long)]
    exactly_once: bool,
}

/// Runs the check.
pub async fn run(mut flags: Flags, app: &App) -> Result<ExitCode, ExitCode> {
    flags.settings.push(("bootstrap.servers".to_owned(), flags.brokers.clone()));
    let (settings, run) = (Settings(flags.settings.clone()), app.env.random_u64());
    let (topics, are_theirs) = match (&flags.from, &flags.to) {
        (Some(from), Some(to)) => ([from.clone(), to.clone()], true),
        _ => (["in", "out"].map(|end| format!("millstream-bench-{run:016x}-{end}")), false),
    };
    if !are_theirs {
        let made = settings.make(&topics, flags.partitions).await;
        made.map_err(|failure| failed(app, &failure))?;
    }
    let ends = Ends { settings: settings.clone(), topics: topics.clone(), run };
    let checked = check(&flags, ends, app).await;
    if !are_theirs {
        let removed = settings.remove(&topics).await;
        removed.map_err(|failure| failed(app, &failure))?;
    }
    checked
}

async fn check(flags: &Flags, ends: Ends, app: &App) -> Result<ExitCode, ExitCode> {
    let directory = directory(app)?;
    let opened = app.env.spawn_blocking("bench-open", move || ends.open()).join().await;
    let (ends, starts, consumer) = opened.map_err(|failure| failed(app, &failure))?;
    let flow = Flow::plan(ends.pipeline(&starts, flags.exactly_once), &directory, app).await?;
    let (env, stopper, stop) = (app.env.clone(), flow.stopper.clone(), flow.stop.clone());
    let Flags { rate, size, seconds, .. } = *flags;
    let measure = move || {
        let measured = Measuring { env, ends, rate, size, stop }.run(seconds, &consumer);
        stopper.stop();
        measured
    };
    let measuring = app.env.spawn_blocking("bench-measuring", measure);
    let ran = flow.run(app).await;
    let measured = measuring.join().await;
    ran?;
    let (tally, missing) = measured.map_err(|failure| failed(app, &failure))?;
    let ms = |share| tally.latencies.quantile(share).map(|latency| latency.as_secs_f64() * 1e3);
    let result = json!({
        "bench": "kafka-to-kafka",
        "exactly_once": flags.exactly_once,
        "rate": rate,
        "size": size,
        "seconds": seconds,
        "missing": missing,
        "p50_ms": ms(0.5),
        "p99_ms": ms(0.99),
        "max_ms": ms(1.0),
        "version": env!("CARGO_PKG_VERSION"),
    });
    let printed = app.print(&format!("{result}\n"));
    Ok(if missing == 0 { printed } else { app.failed("records were lost: see `missing`") })
}

/// The two ends of what is measured.
struct Ends {
    settings: Settings,
    topics: [String; 2],
    run: u64,
}

impl Ends {
    /// Where the input topic ends now, by partition, and a consumer at the end of the output.
    fn open(self) -> Result<(Self, Vec<i64>, BaseConsumer), Failure> {
        let [from, to] = &self.topics;
        let (starts, ends) = (self.settings.ends(from)?, self.settings.ends(to)?);
        let consumer = self.settings.consumer(to, &ends)?;
        Ok((self, starts, consumer))
    }

    /// From one topic to the other, key and value as they are.
    fn pipeline(&self, starts: &[i64], exactly_once: bool) -> String {
        let [from, to] = &self.topics;
        let start = |(partition, end): (usize, &i64)| (partition.to_string(), json!(end));
        let starts: Map<_, _> = starts.iter().enumerate().map(start).collect();
        let starts = json!({ from: starts }).to_string();
        let delivery = if exactly_once { "exactly-once" } else { "at-least-once" };
        let settings = self.settings.0.iter();
        let settings: Vec<_> =
            settings.map(|(key, value)| (format!("kafka.{key}"), value.as_str())).collect();
        let settings = || settings.iter().map(|(key, value)| (key.as_str(), *value));
        format!(
            "CREATE TABLE input USING kafka OPTIONS ({});\n\
             CREATE TABLE output USING kafka OPTIONS ({});\n\
             CREATE FLOW measure AS INSERT INTO output BY NAME\n\
             SELECT key, value FROM STREAM input WHERE value IS NOT NULL;\n",
            sql_options(settings().chain([("subscribe", &**from), ("startingOffsets", &starts)])),
            sql_options(settings().chain([("topic", &**to), ("delivery", delivery)])),
        )
    }
}

/// Sends records when they are due, and receives what comes out.
struct Measuring {
    env: Env,
    ends: Ends,
    rate: u64,
    size: u32,
    stop: Stop,
}

impl Measuring {
    /// Gives how many records were lost, too.
    fn run(&self, seconds: u64, consumer: &BaseConsumer) -> Result<(Tally, u64), Failure> {
        let warm_up = WARM_UP_SECONDS * self.rate;
        let records = warm_up + seconds * self.rate;
        let mut tally = Tally::new(self.ends.run, records, warm_up);
        let mut config = self.ends.settings.config();
        config.set("acks", "all").set("enable.idempotence", "true").set("linger.ms", "0");
        let producer: BaseProducer = config.create().map_err(failure("a producer"))?;
        let (began, mut sent) = (self.env.monotonic(), 0);
        let due = |number| began + Duration::from_nanos(number * 1_000_000_000 / self.rate);
        let mut came = began;
        while tally.received < records {
            let now = self.env.monotonic();
            if self.stop.is_requested() {
                return Err(ClientError::Stopped.into());
            }
            while sent < records && due(sent) <= now {
                self.send(&producer, sent, due(sent))?;
                sent += 1;
            }
            if sent == records && now.saturating_sub(came) > SILENCE_MAX {
                break;
            }
            producer.poll(Duration::ZERO);
            match consumer.poll(PAUSE) {
                Some(Ok(message)) => {
                    came = self.env.monotonic();
                    tally.add(message.payload().unwrap_or_default(), came);
                }
                // The client connects again by itself; what never comes is reported as missing.
                Some(Err(error)) => tracing::warn!(%error, "reading the output topic"),
                None => {}
            }
        }
        let missing = records - tally.received;
        Ok((tally, missing))
    }

    fn send(&self, producer: &BaseProducer, number: u64, due: Duration) -> Result<(), Failure> {
        let topic = self.ends.topics[0].as_str();
        let value = encode(self.ends.run, number, due, self.size);
        let mut record = BaseRecord::<(), [u8]>::to(topic).payload(&value);
        while let Err((error, unsent)) = producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(failure(topic)(error));
            }
            producer.poll(PAUSE);
            record = unsent;
        }
        Ok(())
    }
}
