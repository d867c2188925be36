//! One transactional id: a producer client that fills and ends one transaction at a time.
//!
//! Errors of three sorts come out of the client. Some may pass, and the same call is made again for
//! as long as a transaction lives. Some spoil the transaction: it is aborted, and the query fails;
//! a restart finds out what is published. Some mean that the brokers refuse this id: because
//! another instance has taken it over, or because the transaction was open for too long. The time
//! since its beginning distinguishes the two.
//!
//! And one call may never come back: while librdkafka looks for the coordinator of a group it does
//! not keep its limit of time, and may wait for an event that does not come
//! ([5456](https://github.com/confluentinc/librdkafka/issues/5456),
//! [5511](https://github.com/confluentinc/librdkafka/issues/5511)). Then the client is given up,
//! and the flow starts again. Only that takes all ids over and then reads the record: a client
//! that took this one id alone could take it from another instance that has gone on meanwhile.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use millstream_engine::api::contact::ContactWith;
use millstream_store::crash_points::{self, Step};
use millstream_store::env::Env;
use parking_lot::Mutex;
use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::KafkaError;
use rdkafka::producer::{Producer as _, PurgeConfig};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::opening::{
    Groups, NotOpened, OPENING_ATTEMPT, Opening, PAUSE, TAKE_OVER_PATIENCE, is_not_allowed,
};
use super::progress::{self, Origin, carrier};
use super::rotation::{Content, Transactor};
use crate::client::cluster::client_error;
use crate::client::context::is_refusal;
use crate::client::create::create;
use crate::client::delivery_reports::Pending;
use crate::client::native::{ProducerClient, TransactionError, commit_transaction};
use crate::client::poller::Poller;
use crate::error::SinkError;
use crate::sink::outbox::Outbox;

/// The step that puts the record of progress into a transaction, for messages.
const RECORD: &str = "the record of progress";
/// One call to the brokers; it is repeated while that may help.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long aborting may take at the end of a query that failed. The brokers would do it, too.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);
/// How soon a full queue is looked at again.
const SPACE_INTERVAL: Duration = Duration::from_millis(1);
/// How long a pause of this process counts as at most, while a call lasts.
const SECOND: Duration = Duration::from_secs(1);
/// How long a call may last that has a limit of [`ATTEMPT`], before its client is given up: so many
/// seconds in which this process was not paused.
const CALL_SECONDS: u64 = 10;
/// How long the commit of a transaction may be without an answer, beyond the transaction's life.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// Where records of progress go, and which query they belong to.
pub struct Recorder {
    /// The groups of the record's pieces, which all clients share.
    pub groups: Arc<Mutex<Groups>>,
    /// What records say of the query.
    pub origin: Arc<Origin>,
    /// Told whether the brokers answer.
    pub contact: Arc<ContactWith>,
}

/// A client with a transactional id.
pub struct TransactionalClient {
    id: String,
    outbox: Outbox,
    topic: Option<Arc<str>>,
    recorder: Recorder,
    env: Env,
    timeout: Duration,
    /// When the transaction began, on the monotonic clock.
    begun: Duration,
    poller: Arc<Poller>,
}

impl TransactionalClient {
    /// Takes over the transactional id number `index` with librdkafka, which shares `groups` with
    /// the other clients. Blocks.
    pub fn open(
        opening: &Opening,
        index: usize,
        groups: &Arc<Mutex<Groups>>,
    ) -> Result<Self, NotOpened> {
        let id = opening.names.transactional_id(index);
        let (config, timeout) = opening.settings.transactional(&id);
        let native = config.create_native_config().map_err(client_error);
        let native = native.map_err(SinkError::Cluster)?;
        let bytes_max = native.get("message.max.bytes").ok().and_then(|text| text.parse().ok());
        let deliveries = opening.deliveries(bytes_max.unwrap_or(0));
        let client: ProducerClient =
            create(&config, deliveries).map_err(client_error).map_err(SinkError::Cluster)?;
        let topic = opening.topic.clone();
        let client = Arc::new(client);
        let (groups, origin) = (groups.clone(), opening.origin.clone());
        let record = Recorder { groups, origin, contact: opening.contact.clone() };
        let poller =
            Poller::start(&opening.env, "kafka-reports", client.clone(), record.contact.clone());
        let client = Self {
            id,
            outbox: Outbox::new(client),
            topic,
            recorder: record,
            env: opening.env.clone(),
            timeout,
            begun: Duration::ZERO,
            poller: Arc::new(poller),
        };
        client.taken_over(opening)
    }

    fn taken_over(mut self, opening: &Opening) -> Result<Self, NotOpened> {
        let begun = opening.env.monotonic();
        loop {
            let Err(error) = self.take_over(OPENING_ATTEMPT) else { return Ok(self) };
            let waited = opening.env.monotonic().saturating_sub(begun);
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
            let reason = match &error {
                KafkaError::Transaction(error) => error.string(),
                other => other.to_string(),
            };
            let fatal = self.outbox().client().client().fatal_error();
            if is_not_allowed(code) || fatal.as_ref().is_some_and(|(code, _)| is_not_allowed(*code))
            {
                return Err(NotOpened::NotAllowed(opening.not_allowed(reason)));
            }
            if let Some((_, reason)) = fatal {
                return Err(SinkError::Fatal { reason }.into());
            }
            if waited > TAKE_OVER_PATIENCE {
                let servers = opening.settings.servers().to_owned();
                return Err(SinkError::NoCoordinator { servers, reason, waited }.into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Where rows go, and the client behind it.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Takes over the transactional id; ends what its last owner left open.
    pub fn take_over(&self, wait: Duration) -> Result<(), KafkaError> {
        self.client().init_transactions(wait)
    }
}

impl Transactor for TransactionalClient {
    fn fill(&mut self, content: &Content) -> Result<(), SinkError> {
        crash_points::reached(Step::BeforeBegin);
        self.begun = self.env.monotonic();
        self.client().begin_transaction().map_err(|error| self.failed("its beginning", &error))?;
        let filled = self.fill_open(content);
        filled.map_err(|error| self.topic_refusal(content, &error).unwrap_or(error))
    }

    fn commit(&mut self) -> Result<(), SinkError> {
        crash_points::reached(Step::BeforeCommit);
        let asked_ms = self.env.now_ms();
        while let Err(error) = commit_transaction(self.client(), ATTEMPT) {
            self.recorder.contact.unanswered(asked_ms);
            let may_pass = error.is_retriable && !error.is_fatal;
            if !may_pass || self.open_for() > self.timeout + ANSWER_PATIENCE {
                return Err(self.not_committed(error));
            }
        }
        self.recorder.contact.answered();
        crash_points::reached(Step::AfterCommit);
        Ok(())
    }

    fn abort(&mut self) {
        if self.client().client().fatal_error().is_some() {
            return;
        }
        if let Err(error) = self.client().abort_transaction(ABORT_PATIENCE) {
            tracing::debug!(id = self.id, %error, "a transaction was left to the brokers to abort");
        }
    }
}

impl TransactionalClient {
    /// Fills the transaction that is open.
    fn fill_open(&mut self, content: &Content) -> Result<(), SinkError> {
        let (pending, outcome) = Pending::with_outcome(&self.env);
        let put = self.put(content, &pending);
        // This function's own reference: the outcome comes when the last record has given its
        // reference back.
        drop(pending);
        put?;
        crash_points::reached(Step::AfterProduce);
        self.record(content)?;
        crash_points::reached(Step::AfterOffsets);
        match outcome.blocking_recv() {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.turned_away().unwrap_or(error)),
            Err(_) => Err(SinkError::AfterFailure),
        }
    }

    /// That a topic refuses this user, if that is what `error` came from: it spoils the
    /// transaction, and then calls say only that they are not possible any more, and reports of
    /// records that these were dropped.
    fn topic_refusal(&self, content: &Content, error: &SinkError) -> Option<SinkError> {
        if matches!(error, SinkError::Transaction { code, .. } if is_refusal(*code)) {
            return None;
        }
        // Begins nothing, since a transaction is open: the client says what has spoilt that one.
        let KafkaError::Transaction(spoilt) = self.client().begin_transaction().err()? else {
            return None;
        };
        let code = spoilt.code();
        if !spoilt.txn_requires_abort() || code != RDKafkaErrorCode::TopicAuthorizationFailed {
            return None;
        }
        let rows = content.rows.iter().find(|rows| rows.rows > 0)?;
        let topic = self.topic.as_deref().or_else(|| rows.topic(0))?;
        Some(self.client().context().explain(topic, rows.key(0), rows.value(0), code))
    }

    fn put(&mut self, content: &Content, pending: &Arc<Pending>) -> Result<(), SinkError> {
        for rows in &content.rows {
            let mut row = 0;
            loop {
                row = self.outbox.put(rows, row, self.topic.as_deref(), pending)?;
                if row == rows.rows {
                    break;
                }
                std::thread::sleep(SPACE_INTERVAL);
            }
        }
        Ok(())
    }

    /// Puts the record of the query's progress into the transaction.
    fn record(&self, content: &Content) -> Result<(), SinkError> {
        let Recorder { groups, origin, .. } = &self.recorder;
        for (index, piece) in progress::encode(&content.end_offsets, origin).iter().enumerate() {
            let group = groups.lock().get(index)?;
            let mut offsets = TopicPartitionList::with_capacity(1);
            let mut element = offsets.add_partition(carrier(self.topic.as_deref()), 0);
            let number = i64::try_from(content.batch_id.0).expect("numbers stay far below 2^63");
            let set = element.set_offset(Offset::Offset(number));
            element.set_metadata(piece);
            set.map_err(|error| self.failed(RECORD, &error))?;
            while let Err(error) = self.send_offsets(&offsets, &group)? {
                if !is_retriable(&error) || self.open_for() > self.timeout {
                    return Err(self.not_recorded(&error, index));
                }
            }
        }
        Ok(())
    }

    /// Why piece `piece` of the record is not in the transaction; says where it should be.
    fn not_recorded(&self, error: &KafkaError, piece: usize) -> SinkError {
        match self.failed(RECORD, error) {
            SinkError::Transaction { id, step, code, reason } => {
                let group = self.recorder.groups.lock().name(piece);
                let topic = carrier(self.topic.as_deref());
                let reason = format!("{reason}, in the group '{group}' for the topic '{topic}'");
                SinkError::Transaction { id, step, code, reason }
            }
            other => other,
        }
    }

    /// One attempt to put offsets into the transaction, on a thread that may be left behind.
    fn send_offsets(
        &self,
        offsets: &TopicPartitionList,
        group: &Arc<ConsumerGroupMetadata>,
    ) -> Result<Result<(), KafkaError>, SinkError> {
        let (told, sent) = channel();
        let (client, offsets, group) = (self.client().clone(), offsets.clone(), group.clone());
        // What the client says until then still has to be taken.
        let poller = self.poller.clone();
        let call = move || {
            // Nobody listens any more where it took too long.
            let _ = told.send(client.send_offsets_to_transaction(&offsets, &group, ATTEMPT));
            drop(poller);
        };
        let left = |reason| self.explain(RECORD, RDKafkaErrorCode::OperationTimedOut, reason);
        let begun = self.env.detached_thread("kafka-offsets", call);
        begun.map_err(|error| left(format!("there is no thread for it: {error}")))?;
        let answer = (0..CALL_SECONDS).find_map(|_| sent.recv_timeout(SECOND).ok());
        answer.ok_or_else(|| {
            self.client().purge(PurgeConfig::default().queue().inflight().non_blocking());
            left(format!("librdkafka does not come back from a call, after {CALL_SECONDS} seconds"))
        })
    }

    fn client(&self) -> &Arc<ProducerClient> {
        self.outbox.client()
    }

    fn open_for(&self) -> Duration {
        self.env.monotonic().saturating_sub(self.begun)
    }

    fn failed(&self, step: &'static str, error: &KafkaError) -> SinkError {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
        let reason = match error {
            KafkaError::Transaction(error) => error.string(),
            other => other.to_string(),
        };
        self.explain(step, code, reason)
    }

    fn not_committed(&self, error: TransactionError) -> SinkError {
        self.explain("its commit", error.code, error.reason)
    }

    fn explain(&self, step: &'static str, code: RDKafkaErrorCode, reason: String) -> SinkError {
        let displaced = self.displaced(code).or_else(|| self.turned_away());
        displaced.unwrap_or(SinkError::Transaction { id: self.id.clone(), step, code, reason })
    }

    /// The error of a client that the brokers do not accept any more, if they do not.
    fn turned_away(&self) -> Option<SinkError> {
        let (code, _) = self.client().client().fatal_error()?;
        self.displaced(code)
    }

    /// What it means if the brokers do not know the owner of this id, or its transaction. They give
    /// a transaction up after its time and turn its owner away then, too.
    fn displaced(&self, code: RDKafkaErrorCode) -> Option<SinkError> {
        let (id, open) = (self.id.clone(), self.open_for());
        // Kafka reports both cases by the same codes.
        let too_old = open > self.timeout;
        match code {
            RDKafkaErrorCode::Fenced
            | RDKafkaErrorCode::ProducerFenced
            | RDKafkaErrorCode::InvalidProducerEpoch
                if !too_old =>
            {
                Some(SinkError::TakenOver { id })
            }
            RDKafkaErrorCode::Fenced
            | RDKafkaErrorCode::ProducerFenced
            | RDKafkaErrorCode::InvalidProducerEpoch
            | RDKafkaErrorCode::InvalidTransactionalState
                if too_old =>
            {
                Some(SinkError::TimedOut { id, open, timeout: self.timeout })
            }
            _ => None,
        }
    }
}

fn is_retriable(error: &KafkaError) -> bool {
    matches!(error, KafkaError::Transaction(error) if error.is_retriable())
}

#[cfg(test)]
mod tests {
    use millstream_engine::api::contact::Contacts;
    use millstream_engine::api::options::Options;
    use millstream_engine::api::source::{Classified as _, Kind};
    use rdkafka::mocking::{MockCluster, MockCoordinator};
    use rdkafka::producer::DefaultProducerContext;

    use super::super::Names;
    use super::*;
    use crate::brokers::throttling::Throttling;
    use crate::client::settings::{ClientSettings, Use};
    use crate::sink::testing::rows::content;

    /// Puts the group of the record at one broker, and the transactions at another.
    fn opening(
        cluster: &MockCluster<'_, DefaultProducerContext>,
        group_at: i32,
        transactions_at: i32,
    ) -> Opening {
        let env = Env::real();
        let servers = ("kafka.bootstrap.servers".to_owned(), cluster.bootstrap_servers());
        let settings = ClientSettings::parse(&Options::new([servers]), Use::Producer).unwrap();
        let names = Names::new("flow", "0a1b2c3d-0000-4000-8000-000000000000");
        let id = names.transactional_id(0);
        cluster.create_topic("rows", 1, 1).unwrap();
        cluster.coordinator(MockCoordinator::Group(names.group(0)), group_at).unwrap();
        cluster.coordinator(MockCoordinator::Transaction(id), transactions_at).unwrap();
        let (query, flow, table) = ("q".to_owned(), "flow".to_owned(), "t".to_owned());
        let origin = Arc::new(Origin { query, flow, topic: None, table: table.clone() });
        let contact = Arc::new(Contacts::untold(env.clone()).with("the brokers".to_owned()));
        let topic = Some("rows".into());
        let throttling = Arc::new(Throttling::new(&table));
        Opening { settings, names, table, topic, origin, contact, throttling, env }
    }

    #[test]
    fn a_client_that_does_not_come_back_from_a_call_is_given_up() {
        let cluster = MockCluster::new(3).unwrap();
        let opening = opening(&cluster, 2, 1);
        let groups = Arc::new(Mutex::new(Groups::new(opening.clone()).unwrap()));
        let open = || match TransactionalClient::open(&opening, 0, &groups) {
            Ok(client) => client,
            Err(NotOpened::NotAllowed(error) | NotOpened::Failed(error)) => panic!("{error}"),
        };
        let mut client = open();
        // No rows: such a cluster does not always take those of a transaction.
        let rows = content(&[]);
        client.fill(&rows).unwrap();
        client.commit().unwrap();
        cluster.broker_down(2).unwrap();
        let error = client.fill(&rows).unwrap_err();
        assert!(error.to_string().contains("does not come back from a call"), "{error}");
        assert_eq!(error.kind(), Kind::Retry);
        cluster.broker_up(2).unwrap();
        let mut client = open();
        client.fill(&rows).unwrap();
        client.commit().unwrap();
    }
}
