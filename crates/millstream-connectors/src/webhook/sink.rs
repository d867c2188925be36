//! Publishes micro-batches as requests.

use std::path::PathBuf;

use async_trait::async_trait;
use millstream_engine::api::connector::FlowContext;
use millstream_engine::api::contact::Contacts;
use millstream_engine::api::sink::{Acknowledgement, Delivery, Failure, Output, Published, Sink};
use millstream_store::env::Env;

use super::body::requests;
use super::options::WebhookOptions;
use super::transport::{HttpTransport, receiver};
use crate::notify::courier::{Courier, Settings};
use crate::notify::keys::Keys;
use crate::notify::refused_file::RefusedFile;
use crate::notify::rows::failure;
use crate::paths;

/// Sends each row, or arrays of rows, to one URL.
pub struct WebhookSink {
    options: WebhookOptions,
    table: String,
    /// Part of each key; of a query that runs once it is random.
    query_id: String,
    base_dir: PathBuf,
    contacts: Contacts,
    env: Env,
    courier: Option<Courier<HttpTransport>>,
}

impl WebhookSink {
    /// A sink that is not open yet.
    pub fn new(options: WebhookOptions, table: &str, context: &FlowContext) -> Self {
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
impl Sink for WebhookSink {
    fn description(&self) -> String {
        format!("webhook[{}]", self.options.url.origin().ascii_serialization())
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
        let settings = Settings {
            retries: self.options.retries,
            lanes: self.options.in_flight_max,
            interval: self.options.interval,
            refused,
        };
        let transport = HttpTransport::new(self.options.clone(), &self.base_dir, &self.env)?;
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
        let WebhookOptions { encoder, body, order_by, .. } = &self.options;
        let keys = Keys::new(&self.query_id, &self.table, output.batch_id);
        let requests = requests(encoder, *body, *order_by, keys, output.record_batches())?;
        let courier = self.courier.as_mut().expect("the driver opens a sink before it uses it");
        let encoder = encoder.clone();
        Ok(courier.hand_over(requests, move |failed| failure(&encoder, failed)))
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
