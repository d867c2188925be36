//! Publishes micro-batches as mails.

use std::path::PathBuf;

use async_trait::async_trait;
use millstream_engine::api::connector::FlowContext;
use millstream_engine::api::contact::Contacts;
use millstream_engine::api::sink::{Acknowledgement, Delivery, Failure, Output, Published, Sink};
use millstream_store::env::Env;

use super::mail::mails;
use super::options::EmailOptions;
use super::transport::{SmtpTransport, receiver};
use crate::notify::courier::{Courier, Settings};
use crate::notify::keys::Keys;
use crate::notify::refused_file::RefusedFile;
use crate::notify::rows::failure;
use crate::paths;

/// Sends each row, or digests of many, through one mail server.
pub struct EmailSink {
    options: EmailOptions,
    table: String,
    /// Part of each key; of a query that runs once it is random.
    query_id: String,
    base_dir: PathBuf,
    contacts: Contacts,
    env: Env,
    courier: Option<Courier<SmtpTransport>>,
}

impl EmailSink {
    /// A sink that is not open yet.
    pub fn new(options: EmailOptions, table: &str, context: &FlowContext) -> Self {
        let env = context.env.clone();
        let query_id = match context.query_id.as_str() {
            "" => env.random_uuid().to_string(),
            query_id => query_id.to_owned(),
        };
        let (table, base_dir) = (table.to_owned(), context.base_dir.clone());
        let contacts = context.contacts.clone();
        Self { options, table, query_id, base_dir, contacts, env, courier: None }
    }
}

#[async_trait]
impl Sink for EmailSink {
    fn description(&self) -> String {
        format!("email[{}:{}]", self.options.host, self.options.port)
    }

    fn delivery(&self) -> Delivery {
        // The keys of a replay are the same only if its micro-batch is.
        Delivery::Idempotent
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        let refused =
            self.options.refused_path.as_ref().map(|path| {
                RefusedFile::new(paths::resolve(&self.base_dir, path), self.env.clone())
            });
        if let Some(file) = &refused {
            file.check().await?;
        }
        // One lane: mails stay in order, and one connection is what servers like.
        let (retries, interval) = (self.options.retries, self.options.interval);
        let settings = Settings { retries, lanes: 1, interval, refused };
        let transport = SmtpTransport::new(self.options.clone(), &self.base_dir, &self.env)?;
        let contact = self.contacts.with(receiver(&self.options));
        self.courier = Some(Courier::start(transport, settings, contact, &self.env));
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
        let batch_time_ms = output.end_offsets.batch_time_ms;
        let mails = mails(&self.options, keys, batch_time_ms, output.record_batches())?;
        let courier = self.courier.as_mut().expect("the driver opens a sink before it uses it");
        let encoder = self.options.encoder.clone();
        let mails = mails.into_iter().map(|mail| (None, mail)).collect();
        Ok(courier.hand_over(mails, move |undelivered| failure(&encoder, undelivered)))
    }

    async fn flush(&mut self) {
        if let Some(courier) = &self.courier {
            courier.end();
        }
    }

    async fn close(&mut self) -> Result<(), Failure> {
        self.courier = None;
        Ok(())
    }
}
