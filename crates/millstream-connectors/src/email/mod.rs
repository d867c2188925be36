//! `USING email`: rows as mails over SMTP, to notify people.
//!
//! A row is a mail, or all rows of a micro-batch together are one, a digest. Each mail has a
//! `Message-ID` that is the same on a replay, so that servers and people can recognize one that
//! comes twice. Delivery is at least once.
//!
//! - [`template`]: subjects and texts with values of columns in them.
//! - [`options`]: what the table's options say.
//! - [`mail`]: rows become mails; no value of a row can become a header or a recipient that the
//!   options do not name.
//! - [`transport`]: one attempt, and what the server's answer means.
//! - [`sink`]: all of that as a channel of [`notify`](crate::notify), which delivers.

mod mail;
mod needs;
mod options;
mod sink;
mod template;
mod transport;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, Table};
use millstream_engine::api::needs::{Need, Role, Usage};
use millstream_engine::api::options::{OptionError, OptionSpec, Side};
use millstream_engine::api::sink::{Failure, Sink};
pub use options::EmailOptions;

use crate::notify::options::REFUSED_PATH;
use crate::notify::sink::NotifySink;

/// The `email` connector.
pub struct Email;

const fn option(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Sink, about }
}

const OPTIONS: &[OptionSpec] = &[
    option("host", "the mail server"),
    option("port", "its port (default 465, 587 or 25, as 'security' says)"),
    option("security", "'tls' (default), 'starttls' or 'none'"),
    option("user", "the user"),
    option("password", "the user's password"),
    option("tls.caFile", "certificates of authorities to trust besides the system's, in PEM"),
    option("helloName", "the name given in EHLO (default: localhost)"),
    option("from", "the sender: 'Alerts <alerts@example.com>'"),
    option("to", "recipients, separated by commas"),
    option("toColumn", "the column with the address of a row's recipient"),
    option("replyTo", "where answers go"),
    option("subject", "the subject: 'Alert in {building}'"),
    option("text", "the text of a row (default: a line for each column)"),
    option("digest", "whether the rows of a micro-batch are one mail (default false)"),
    option("maxRowsPerMail", "rows of a digest, at most (default 1000)"),
    option("sendTimeout", "how long sending may take (default 60s)"),
    option("maxMailsPerMinute", "attempts in a minute, at most (default: no limit)"),
    option("maxRetries", "attempts after the first (default: as many as it takes)"),
    option("retryBackoff", "the wait after the first attempt; doubled each time (default 500ms)"),
    option("retryBackoffMax", "the longest wait (default 30s)"),
    option(
        REFUSED_PATH,
        "the file for mails that are refused (default: dead letters, or the query fails)",
    ),
];

impl Connector for Email {
    fn name(&self) -> &'static str {
        "email"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        EmailOptions::parse(&table.options, schema).map(|_| ())
    }

    fn has_refused_rows(&self, table: &Table) -> bool {
        // A file for them is what was asked for.
        table.options.get(REFUSED_PATH).is_none()
    }

    fn needs(&self, table: &Table, usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
        let Role::Written(schema) = usage.role else { return Ok(Vec::new()) };
        Ok(EmailOptions::parse(&table.options, schema)?.needs(usage.base_dir))
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        let options = EmailOptions::parse(&table.options, schema)?;
        Ok(Box::new(NotifySink::new(options, &table.name, context)))
    }
}

#[cfg(test)]
mod tests;
