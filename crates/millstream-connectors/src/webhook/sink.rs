//! What requests are made of, and where they go.

use std::path::Path;

use millstream_engine::api::sink::Output;
use millstream_formats::RecordEncoder;
use millstream_store::env::Env;

use super::body::requests;
use super::options::WebhookOptions;
use super::transport::HttpTransport;
use crate::notify::error::DeliveryError;
use crate::notify::keys::Keys;
use crate::notify::sink::{Channel, InLanes, Terms};

impl Channel for WebhookOptions {
    type Transport = HttpTransport;

    fn description(&self) -> String {
        format!("webhook[{}]", self.url.origin().ascii_serialization())
    }

    fn encoder(&self) -> &RecordEncoder {
        &self.encoder
    }

    fn terms(&self) -> Terms<'_> {
        Terms {
            retries: self.retries,
            in_flight_max: self.in_flight_max,
            interval: self.interval,
            refused_path: self.refused_path.as_deref(),
        }
    }

    fn transport(&self, base_dir: &Path, env: &Env) -> Result<HttpTransport, DeliveryError> {
        HttpTransport::new(self.clone(), base_dir, env)
    }

    fn messages(
        &self,
        keys: Keys<'_>,
        output: &Output,
    ) -> Result<InLanes<HttpTransport>, DeliveryError> {
        requests(&self.encoder, self.body, self.order_by, keys, output.record_batches())
    }
}
