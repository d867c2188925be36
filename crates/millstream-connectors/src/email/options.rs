//! The options of an `email` table.

use std::time::Duration;

use arrow::datatypes::Schema;
use lettre::message::{Mailbox, Mailboxes};
use millstream_engine::api::options::{OptionError, Options};
use millstream_formats::RecordEncoder;

use super::template::Template;
use crate::notify::options::{REFUSED_PATH, count, file, interval, time};
use crate::notify::retries::Retries;

/// The place in a digest's subject for the number of its rows.
const COUNT: &str = "count";

/// How the connection is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS from the beginning.
    Tls,
    /// TLS after the command STARTTLS, without which nothing is sent.
    StartTls,
    /// Nothing.
    None,
}

impl Security {
    fn port(self) -> u16 {
        match self {
            Self::Tls => 465,
            Self::StartTls => 587,
            Self::None => 25,
        }
    }
}

/// Whom mails go to.
#[derive(Clone, Debug)]
pub enum Recipients {
    /// The same for all.
    Fixed(Mailboxes),
    /// The address in this column.
    Column(String),
}

/// What a mail is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailKind {
    /// One row.
    Row,
    /// So many rows of a micro-batch at most.
    Digest(usize),
}

/// What an `email` table's options say about rows of a certain schema.
#[derive(Clone)]
pub struct EmailOptions {
    /// The mail server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is protected.
    pub security: Security,
    /// User and password.
    pub credentials: Option<(String, String)>,
    /// Authorities to trust; relative to the pipeline's base directory.
    pub ca_file: Option<String>,
    /// The name given in EHLO.
    pub hello_name: String,
    /// The sender.
    pub from: Mailbox,
    /// Whom mails go to.
    pub recipients: Recipients,
    /// Where answers go.
    pub reply_to: Option<Mailbox>,
    /// The subject, with places for columns, or for the number of a digest's rows.
    pub subject: Template,
    /// The text of a row, with places for columns.
    pub text: Template,
    /// What a mail is made of.
    pub kind: MailKind,
    /// How a row becomes the JSON that values are taken from.
    pub encoder: RecordEncoder,
    /// How long sending may take.
    pub send_timeout: Duration,
    /// The time between two attempts, at least.
    pub interval: Duration,
    /// When a mail is sent again.
    pub retries: Retries,
    /// The file for refused mails; relative to the pipeline's base directory.
    pub refused_path: Option<String>,
}

impl EmailOptions {
    /// Reads the options of a table that rows of `schema` are written to.
    pub fn parse(options: &Options, schema: &Schema) -> Result<Self, OptionError> {
        let encoder = RecordEncoder::Json { ignore_null_fields: true };
        encoder.check(schema)?;
        let names: Vec<&str> = schema.fields().iter().map(|field| &**field.name()).collect();
        let security = security(options)?;
        let port = options.parse("port", "a port's number")?.unwrap_or(security.port());
        let host = required(options, "host", "'mail.example.com'")?.trim().to_owned();
        let kind = kind(options)?;
        let (subject, text) = templates(options, &names, kind)?;
        let from = required(options, "from", "'Alerts <alerts@example.com>'")?;
        Ok(Self {
            credentials: credentials(options, security, &host)?,
            host,
            port,
            security,
            ca_file: file(options, "tls.caFile")?,
            hello_name: hello_name(options)?,
            from: mailbox("from", from)?,
            recipients: recipients(options, &names)?,
            reply_to: options.get("replyTo").map(|text| mailbox("replyTo", text)).transpose()?,
            subject,
            text,
            kind,
            encoder,
            send_timeout: time(options, "sendTimeout", Duration::from_secs(60))?,
            interval: interval(options, "maxMailsPerMinute", Duration::from_secs(60))?,
            retries: Retries::parse(options)?,
            refused_path: file(options, REFUSED_PATH)?,
        })
    }
}

fn required<'a>(options: &'a Options, key: &str, example: &str) -> Result<&'a str, OptionError> {
    match options.get(key) {
        Some(text) if !text.trim().is_empty() => Ok(text),
        Some(text) => Err(OptionError::invalid(key, text, &format!("something like {example}"))),
        None => Err(OptionError::missing(key, format!("add '{key}' = {example}"))),
    }
}

fn security(options: &Options) -> Result<Security, OptionError> {
    let text = options.get("security").unwrap_or("tls");
    match text.trim().to_ascii_lowercase().as_str() {
        "tls" => Ok(Security::Tls),
        "starttls" => Ok(Security::StartTls),
        "none" => Ok(Security::None),
        _ => Err(OptionError::invalid("security", text, "'tls', 'starttls' or 'none'")),
    }
}

fn credentials(
    options: &Options,
    security: Security,
    host: &str,
) -> Result<Option<(String, String)>, OptionError> {
    let is_here = matches!(host, "localhost" | "127.0.0.1" | "::1");
    match (options.get("user"), options.get("password")) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(OptionError::of("user", "'user' is given without 'password'", None)),
        (None, Some(_)) => {
            Err(OptionError::of("password", "'password' is given without 'user'", None))
        }
        (Some(_), Some(_)) if security == Security::None && !is_here => Err(OptionError::of(
            "security",
            "'security' is 'none', so the password would be readable on its way",
            Some("set 'tls' or 'starttls'".into()),
        )),
        (Some(user), Some(password)) => Ok(Some((user.to_owned(), password.to_owned()))),
    }
}

fn hello_name(options: &Options) -> Result<String, OptionError> {
    let name = options.get("helloName").unwrap_or("localhost");
    let is_part = |char: char| char.is_ascii_alphanumeric() || ".-[]:".contains(char);
    if name.is_empty() || !name.chars().all(is_part) {
        return Err(OptionError::invalid("helloName", name, "the name of a host"));
    }
    Ok(name.to_owned())
}

fn mailbox(key: &str, text: &str) -> Result<Mailbox, OptionError> {
    let wanted = "an address such as 'alerts@example.com' or 'Alerts <alerts@example.com>'";
    text.trim().parse().map_err(|_| OptionError::invalid(key, text, wanted))
}

fn recipients(options: &Options, names: &[&str]) -> Result<Recipients, OptionError> {
    match (options.get("to"), options.get("toColumn")) {
        (Some(text), None) => {
            let wanted = "addresses, separated by commas";
            let parsed: Result<Mailboxes, _> = text.trim().parse();
            let mailboxes = parsed.map_err(|_| OptionError::invalid("to", text, wanted))?;
            if mailboxes.iter().next().is_none() {
                return Err(OptionError::invalid("to", text, wanted));
            }
            Ok(Recipients::Fixed(mailboxes))
        }
        (None, Some(column)) => {
            match names.iter().find(|name| name.eq_ignore_ascii_case(column.trim())) {
                Some(name) => Ok(Recipients::Column((*name).to_owned())),
                None => Err(OptionError::of(
                    "toColumn",
                    format!("the query has no column '{column}'"),
                    Some(format!("its columns are {}", names.join(", "))),
                )),
            }
        }
        (Some(_), Some(_)) => Err(OptionError::of(
            "toColumn",
            "both 'to' and 'toColumn' are given",
            Some("keep one".into()),
        )),
        (None, None) => Err(OptionError::missing(
            "to",
            "add 'to' = 'guards@example.com', or 'toColumn' with the column of the address",
        )),
    }
}

fn kind(options: &Options) -> Result<MailKind, OptionError> {
    let rows_max = count(options, "maxRowsPerMail", 1_000, 100_000)?;
    match options.parse_bool("digest")?.unwrap_or(false) {
        true => Ok(MailKind::Digest(rows_max)),
        false if options.get("maxRowsPerMail").is_some() => Err(OptionError::of(
            "maxRowsPerMail",
            "'maxRowsPerMail' is given, but each row is a mail of its own",
            Some("add 'digest' = 'true', or leave it out".into()),
        )),
        false => Ok(MailKind::Row),
    }
}

/// The templates of the subject and of a row's text.
fn templates(
    options: &Options,
    names: &[&str],
    kind: MailKind,
) -> Result<(Template, Template), OptionError> {
    let template = |key: &str, text: &str, names: &[&str]| {
        Template::parse(text, names)
            .map_err(|problem| OptionError::of(key, format!("in '{key}' {problem}"), None))
    };
    let subject = required(options, "subject", "'Alert in {building}'")?;
    let subject = match kind {
        MailKind::Row => template("subject", subject, names)?,
        // Many rows have many values, but one number.
        MailKind::Digest(_) => template("subject", subject, &[COUNT])?,
    };
    let text = match options.get("text") {
        Some(text) => template("text", text, names)?,
        None => Template::lines(names),
    };
    Ok((subject, text))
}
