//! `USING webhook`: rows as HTTP requests, to notify people and services.
//!
//! A row, or an array of rows, is the JSON body of a request. Each request has a key that is the
//! same on a replay, so that a receiver can ignore what it has seen: the header `Idempotency-Key`,
//! and `webhook-id` of [Standard Webhooks](https://www.standardwebhooks.com), whose signature it
//! may have too. Delivery is at least once.
//!
//! - [`options`]: what the table's options say.
//! - [`body`]: rows become requests.
//! - [`signature`]: signed requests.
//! - [`transport`]: one attempt, and what its answer means.
//! - [`sink`]: all of that as a channel of [`notify`](crate::notify), which delivers.

mod body;
mod needs;
mod options;
mod signature;
mod sink;
mod transport;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, Table};
use millstream_engine::api::needs::{Need, Role, Usage};
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_engine::api::sink::{Failure, Sink};
use options::SIGNING_SECRET;
pub use options::{BodyKind, WebhookOptions};

use crate::notify::options::REFUSED_PATH;
use crate::notify::sink::NotifySink;

/// The `webhook` connector.
pub struct Webhook;

const fn option(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Sink, about }
}

const OPTIONS: &[OptionSpec] = &[
    option("url", "where requests go: http:// or https://"),
    option("method", "POST (default), PUT or PATCH"),
    option("body", "'row' (default): a request for each row, or 'array': for many rows"),
    option("maxRowsPerRequest", "rows of an array, at most (default 500)"),
    option("ignoreNullFields", "whether objects leave out null fields (default true)"),
    option("header.*", "a header of each request"),
    option("bearerToken", "the token of 'Authorization: Bearer'"),
    option("user", "the user of 'Authorization: Basic'"),
    option("password", "the password of 'Authorization: Basic'"),
    option("signingSecret", "the secret of Standard Webhooks' signature: 'whsec_...'"),
    option("requestTimeout", "how long an answer may take (default 30s)"),
    option("connectTimeout", "how long a connection may take (default 10s)"),
    option("maxRequestsInFlight", "requests at a time (default 1)"),
    option(
        "orderBy",
        "the column whose equal values stay in order (default: see maxRequestsInFlight)",
    ),
    option("maxRequestsPerSecond", "attempts in a second, at most (default: no limit)"),
    option("maxRetries", "attempts after the first (default: as many as it takes)"),
    option("retryBackoff", "the wait after the first attempt; doubled each time (default 500ms)"),
    option("retryBackoffMax", "the longest wait (default 30s)"),
    option(
        REFUSED_PATH,
        "the file for requests that are refused (default: dead letters, or the query fails)",
    ),
    option("followRedirects", "whether 307 and 308 to the same host are followed (default false)"),
    option("tls.caFile", "certificates of authorities to trust besides the system's, in PEM"),
    option("proxy", "'environment' (default): the usual variables, 'none', or a URL"),
];

/// What can be checked of options: a secret whose place was not looked at has no form yet.
fn checkable(options: &Options) -> Options {
    let is_unread =
        |key: &str| key.eq_ignore_ascii_case(SIGNING_SECRET) && options.is_unread(SIGNING_SECRET);
    options.only(|key| !is_unread(key))
}

impl Connector for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        WebhookOptions::parse(&checkable(&table.options), schema).map(|_| ())
    }

    fn has_refused_rows(&self, table: &Table) -> bool {
        // A file for them is what was asked for.
        table.options.get(REFUSED_PATH).is_none()
    }

    fn needs(&self, table: &Table, usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
        let Role::Written(schema) = usage.role else { return Ok(Vec::new()) };
        let is_signed = table.options.get(SIGNING_SECRET).is_some();
        let options = WebhookOptions::parse(&checkable(&table.options), schema)?;
        Ok(options.needs(is_signed, usage.base_dir))
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        let options = WebhookOptions::parse(&table.options, schema)?;
        Ok(Box::new(NotifySink::new(options, &table.name, context)))
    }
}

#[cfg(test)]
mod tests;
