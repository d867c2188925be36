//! What mails are made of, and where they go.

use std::path::Path;

use millstream_engine::api::sink::Output;
use millstream_formats::RecordEncoder;
use millstream_store::env::Env;

use super::mail::mails;
use super::options::EmailOptions;
use super::transport::SmtpTransport;
use crate::notify::error::DeliveryError;
use crate::notify::keys::Keys;
use crate::notify::sink::{Channel, InLanes, Terms};

impl Channel for EmailOptions {
    type Transport = SmtpTransport;

    fn description(&self) -> String {
        format!("email[{}:{}]", self.host, self.port)
    }

    fn encoder(&self) -> &RecordEncoder {
        &self.encoder
    }

    fn terms(&self) -> Terms<'_> {
        Terms {
            retries: self.retries,
            // Mails stay in order, and one connection is what servers like.
            in_flight_max: 1,
            interval: self.interval,
            refused_path: self.refused_path.as_deref(),
        }
    }

    fn transport(&self, base_dir: &Path, env: &Env) -> Result<SmtpTransport, DeliveryError> {
        SmtpTransport::new(self.clone(), base_dir, env)
    }

    fn messages(
        &self,
        keys: Keys<'_>,
        output: &Output,
    ) -> Result<InLanes<SmtpTransport>, DeliveryError> {
        let batch_time_ms = output.end_offsets.batch_time_ms;
        let mails = mails(self, keys, batch_time_ms, output.record_batches())?;
        Ok(mails.into_iter().map(|mail| (None, mail)).collect())
    }
}
