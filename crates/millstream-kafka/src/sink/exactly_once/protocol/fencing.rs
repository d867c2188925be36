//! Takes a transactional id over, which ends what its last owner left open.

use std::sync::Arc;
use std::time::Duration;

use super::{ProtocolClient, ProtocolSettings};
use crate::brokers::request_error::RequestError;
use crate::brokers::{ApiSupport, Brokers, Purpose};
use crate::error::SinkError;
use crate::protocol::ProducerIdentity;
use crate::protocol::connection::Connection;
use crate::protocol::frame::{FOR_TRANSACTIONS, INIT_PRODUCER_ID};
use crate::protocol::requests;
use crate::protocol::responses::{self, Spoken};
use crate::sink::exactly_once::opening::{NotOpened, Opening, PAUSE, TAKE_OVER_PATIENCE};
use crate::sink::record_batches::Limits;

/// Whether the protocol client can be used with the brokers.
pub enum BrokerSupport {
    /// All brokers that answer support its requests.
    Yes,
    /// Some broker does not support them, or the client cannot speak to it, for the reason given.
    Never(String),
    /// No broker answers at the moment, for the reason given.
    NotNow(String),
}

/// Asks the brokers. One that is away decides nothing: the others say what the cluster supports,
/// and its partitions get other leaders or are waited for.
pub fn broker_support(opening: &Opening, settings: &ProtocolSettings) -> BrokerSupport {
    let has_all = |spoken: &Spoken| spoken.has(&FOR_TRANSACTIONS) && spoken.has_transactions();
    match brokers(opening, settings).api_support(has_all) {
        Ok(ApiSupport { by_all: true, silent }) => {
            for problem in silent {
                tracing::warn!(table = opening.table, %problem, "a broker of the cluster does not \
                    answer; transactions are begun with the others");
            }
            BrokerSupport::Yes
        }
        Ok(ApiSupport { by_all: false, .. }) => BrokerSupport::Never(
            "a broker does not have transactions of version 2, which are those of Kafka 4"
                .to_owned(),
        ),
        Err(problem) if problem.may_pass() => BrokerSupport::NotNow(problem.to_string()),
        Err(problem) => BrokerSupport::Never(problem.to_string()),
    }
}

fn brokers(opening: &Opening, settings: &ProtocolSettings) -> Brokers {
    let (throttling, env) = (Arc::clone(&opening.throttling), opening.env.clone());
    Brokers::new(settings.connections.clone(), throttling, env)
}

impl ProtocolClient {
    /// Takes over the transactional id number `index`. Blocks.
    pub fn open(
        opening: &Opening,
        settings: &ProtocolSettings,
        index: usize,
    ) -> Result<Self, NotOpened> {
        let id = opening.names.transactional_id(index);
        let mut brokers = brokers(opening, settings);
        let writer = take_over(opening, settings, &id, &mut brokers)?;
        let limits = Limits {
            record_bytes: settings.record_bytes_max,
            batch_bytes: settings.batch_bytes_max,
            compression: settings.compression,
        };
        Ok(Self {
            id,
            record_topic: opening.names.topic(),
            topic: opening.topic.as_ref().map(Arc::clone),
            origin: Arc::clone(&opening.origin),
            contact: Arc::clone(&opening.contact),
            timeout: settings.timeout,
            limits,
            writer,
            brokers,
            env: opening.env.clone(),
            begun: Duration::ZERO,
            refused_after: None,
        })
    }
}

fn take_over(
    opening: &Opening,
    settings: &ProtocolSettings,
    id: &str,
    brokers: &mut Brokers,
) -> Result<ProducerIdentity, NotOpened> {
    let begun = opening.env.monotonic();
    loop {
        let problem = match try_take_over(settings, id, brokers) {
            Ok(writer) => return Ok(writer),
            Err(problem) => problem,
        };
        let waited = opening.env.monotonic().saturating_sub(begun);
        let reason = problem.to_string();
        if problem.code().is_some_and(|code| code.is_not_allowed()) {
            return Err(NotOpened::NotAllowed(opening.not_allowed(reason)));
        }
        if !problem.may_pass() {
            return Err(SinkError::Fatal { reason }.into());
        }
        if waited > TAKE_OVER_PATIENCE {
            let servers = opening.settings.servers().to_owned();
            return Err(SinkError::NoCoordinator { servers, reason, waited }.into());
        }
        brokers.forget();
        std::thread::sleep(PAUSE);
    }
}

fn try_take_over(
    settings: &ProtocolSettings,
    id: &str,
    brokers: &mut Brokers,
) -> Result<ProducerIdentity, RequestError> {
    let timeout_ms = i32::try_from(settings.timeout.as_millis()).unwrap_or(i32::MAX);
    let channel = (brokers.coordinator(id)?, Purpose::Control);
    let body = |body: &mut _| requests::init_producer_id(body, Some(id), timeout_ms);
    let answer = brokers.using(&channel, |connection: &mut Connection| {
        connection.ask(INIT_PRODUCER_ID, body, responses::init_producer_id)
    })?;
    answer.map_err(RequestError::Refused)
}
