//! Where alerts come: a receiver of webhooks, a mail server, a reader of a topic. Each says what
//! came, and when, in the clock of the generator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Failures, channel};
use std::time::Duration;

use millstream_store::env::{Env, Thread};
use millstream_testkit::http_receiver::{Answer, Receiver};
use parking_lot::Mutex;
use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};

use super::alerts::Alerts;
use super::case::{Case, SUBJECT, Target};
use super::events::alert_of;
use super::mail::MailServer;
use crate::broker::Broker;
use crate::clock::Clock;
use crate::error::Error;
use crate::{offsets, settings};

/// How often the reader of a topic looks up when nothing comes.
const POLL: Duration = Duration::from_millis(20);

/// What receives alerts; it ends with this.
pub enum Inbox {
    /// Requests by HTTP.
    Webhook(Receiver),
    /// Mails by SMTP.
    Email(MailServer),
    /// Records of a topic of one partition.
    Topic(Reader, String, String),
}

impl Inbox {
    /// What receives the alerts of `case`, and notes them in `alerts`. `topic` is for those that
    /// are records.
    pub fn open(
        env: &Env,
        clock: &Clock,
        broker: &Broker,
        topic: &str,
        case: Case,
        alerts: &Arc<Mutex<Alerts>>,
    ) -> Result<Self, Error> {
        let (clock, alerts) = (clock.clone(), Arc::clone(alerts));
        let hear = move |alert: Option<u64>| {
            let now_us = clock.now_us();
            alerts.lock().receive(alert, now_us);
        };
        Ok(match case.target() {
            Target::Webhook => Self::Webhook(Receiver::start(move |request, _| {
                hear(alert_of(case, &request.body));
                Answer::accept()
            })),
            Target::Email => {
                Self::Email(MailServer::start(env, move |subject| hear(number_of(subject)))?)
            }
            Target::Kafka => {
                let heard = move |value: &[u8]| {
                    hear(std::str::from_utf8(value).ok().and_then(|text| alert_of(case, text)));
                };
                let reader = Reader::start(env, &broker.address, topic, heard)?;
                Self::Topic(reader, broker.address.clone(), topic.to_owned())
            }
        })
    }

    /// The options of the sink that lead there.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Webhook(receiver) => vec![("url", format!("{}/alerts", receiver.address()))],
            Self::Email(server) => {
                vec![("host", "127.0.0.1".to_owned()), ("port", server.port().to_string())]
            }
            Self::Topic(_, brokers, topic) => {
                vec![("kafka.bootstrap.servers", brokers.clone()), ("topic", topic.clone())]
            }
        }
    }

    /// Errors if it does not read any more.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Self::Topic(reader, ..) => reader.check(),
            Self::Webhook(_) | Self::Email(_) => Ok(()),
        }
    }
}

/// The number of the record that a mail is about.
fn number_of(subject: &str) -> Option<u64> {
    let rest = subject.strip_prefix(SUBJECT)?.strip_prefix(' ')?;
    rest.split(' ').next()?.parse().ok()
}

/// A thread that reads a topic of one partition from its beginning, committed records only.
pub struct Reader {
    stop: Arc<AtomicBool>,
    failures: Failures<Error>,
    _thread: Thread,
}

impl Reader {
    fn start(
        env: &Env,
        brokers: &str,
        topic: &str,
        hear: impl Fn(&[u8]) + Send + 'static,
    ) -> Result<Self, Error> {
        let consumer: BaseConsumer = settings::meter(brokers)
            .create()
            .map_err(Error::kafka("starting the consumer of alerts"))?;
        let all = offsets::beginnings(topic, 1);
        consumer.assign(&all).map_err(Error::kafka(format!("reading {topic}")))?;
        let (stop, (report, failures)) = (Arc::new(AtomicBool::new(false)), channel());
        let told = Arc::clone(&stop);
        let thread = env.thread("bench-alerts", move || {
            while !told.load(Ordering::Relaxed) {
                match consumer.poll(POLL) {
                    None => {}
                    Some(Ok(message)) => hear(message.payload().unwrap_or_default()),
                    Some(Err(error)) => {
                        // Nobody listens only when the round has failed already.
                        let _ = report.send(Error::kafka("reading alerts")(error));
                        return;
                    }
                }
            }
        });
        Ok(Self { stop, failures, _thread: thread })
    }

    fn check(&self) -> Result<(), Error> {
        self.failures.try_recv().map_or(Ok(()), Err)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_names_its_record() {
        assert_eq!(number_of("Leak 4711 in the log of svc-7"), Some(4_711));
        assert_eq!(number_of("Leak of svc-7"), None);
        assert_eq!(number_of("Re: Leak 7 in it"), None);
    }
}
