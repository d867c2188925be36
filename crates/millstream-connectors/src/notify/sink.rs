//! Publishes micro-batches as messages.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use millstream_engine::api::connector::FlowContext;
use millstream_engine::api::contact::Contacts;
use millstream_engine::api::refusals::Refusals;
use millstream_engine::api::sink::{
    Acknowledgement, Delivery, Ending, Failure, Output, Published, Sink,
};
use millstream_formats::RecordEncoder;
use millstream_store::env::Env;
use millstream_store::sink_log::SinkLog;

use super::Transport;
use super::accepted::Accepted;
use super::aside::Aside;
use super::courier::{Courier, Settings};
use super::error::DeliveryError;
use super::keys::Keys;
use super::refused_file::RefusedFile;
use super::retries::Retries;
use super::rows::failure;
use crate::paths;

/// How messages are delivered, as a table's options say.
pub struct Terms<'a> {
    /// When a message is tried again.
    pub retries: Retries,
    /// How many messages may be under way at a time.
    pub in_flight_max: usize,
    /// The time between the beginnings of two attempts, at least.
    pub interval: Duration,
    /// The file for refused messages; relative to the pipeline's base directory.
    pub refused_path: Option<&'a str>,
}

/// Messages with the lane that each must go to, as a number that those of one lane share.
pub type InLanes<T> = Vec<(Option<u64>, <T as Transport>::Message)>;

/// What a table's options say of its messages, and of the way that they take.
pub trait Channel: Send + Sync + 'static {
    /// The way that they take.
    type Transport: Transport;

    /// The sink, for messages to people, without any secret.
    fn description(&self) -> String;

    /// How a row becomes JSON.
    fn encoder(&self) -> &RecordEncoder;

    /// How they are delivered.
    fn terms(&self) -> Terms<'_>;

    /// Makes ready to deliver; touches nothing but local files.
    ///
    /// # Errors
    /// `Config`: a file that cannot be read, or has something else in it.
    fn transport(&self, base_dir: &Path, env: &Env) -> Result<Self::Transport, DeliveryError>;

    /// The messages of a micro-batch.
    ///
    /// # Errors
    /// Rows that cannot be written as JSON.
    fn messages(
        &self,
        keys: Keys<'_>,
        output: &Output,
    ) -> Result<InLanes<Self::Transport>, DeliveryError>;
}

/// Sends the rows of a table through its channel.
pub struct NotifySink<C: Channel> {
    channel: C,
    table: String,
    /// Part of each key; of a query that runs once it is random.
    query_id: String,
    base_dir: PathBuf,
    contacts: Contacts,
    env: Env,
    /// Where it is remembered what was delivered; a query that runs once never continues.
    log: Option<SinkLog>,
    /// Where rows go whose messages are refused.
    refusals: Option<Refusals>,
    courier: Option<Courier<C::Transport>>,
}

impl<C: Channel> NotifySink<C> {
    /// A sink that is not open yet.
    pub fn new(channel: C, table: &str, context: &FlowContext) -> Self {
        let env = context.env.clone();
        let query_id = match context.query_id.as_str() {
            "" => env.random_uuid().to_string(),
            query_id => query_id.to_owned(),
        };
        let (table, base_dir) = (table.to_owned(), context.base_dir.clone());
        let (contacts, log) = (context.contacts.clone(), context.sink_log.clone());
        let refusals = context.refusals.clone();
        Self { channel, table, query_id, base_dir, contacts, env, log, refusals, courier: None }
    }
}

#[async_trait]
impl<C: Channel> Sink for NotifySink<C> {
    fn description(&self) -> String {
        self.channel.description()
    }

    fn delivery(&self) -> Delivery {
        // The keys of a replay are the same only if its micro-batch is.
        Delivery::Idempotent
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        let Terms { retries, in_flight_max, interval, refused_path } = self.channel.terms();
        let refused = match refused_path {
            Some(path) => {
                let path = paths::resolve(&self.base_dir, path);
                let file = RefusedFile::new(path, self.env.clone());
                file.check().await?;
                Some(Aside::File(file))
            }
            None => self.refusals.clone().map(Aside::Letters),
        };
        let settings = Settings { retries, lanes: in_flight_max, interval, refused };
        let transport = self.channel.transport(&self.base_dir, &self.env)?;
        let contact = self.contacts.with(transport.receiver().to_owned());
        let accepted = Accepted::recall(self.log.as_ref(), self.refusals.clone()).await?;
        self.courier = Some(Courier::start(transport, settings, accepted, contact, &self.env));
        Ok(None)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        if let Some(courier) = &self.courier {
            courier.ready().await;
        }
        Ok(())
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let keys = Keys::new(&self.query_id, &self.table, output.batch_id);
        let messages = self.channel.messages(keys, &output)?;
        let courier = self.courier.as_mut().expect("the driver opens a sink before it uses it");
        let encoder = self.channel.encoder().clone();
        let batch_id = output.batch_id;
        Ok(courier.hand_over(batch_id, messages, move |undelivered| failure(&encoder, undelivered)))
    }

    async fn end(&mut self, ending: Ending) {
        if let Some(courier) = &self.courier {
            courier.end(ending);
        }
    }

    async fn close(&mut self) -> Result<(), Failure> {
        if let Some(courier) = self.courier.take() {
            let accepted = courier.close().await;
            if let Some(log) = &self.log {
                accepted.write(log).await;
            }
        }
        Ok(())
    }
}
