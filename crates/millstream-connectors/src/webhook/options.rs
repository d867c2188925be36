//! The options of a `webhook` table.

use std::time::Duration;

use arrow::datatypes::Schema;
use millstream_engine::api::options::{OptionError, Options};
use millstream_formats::RecordEncoder;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::signature::SigningSecrets;
use crate::notify::options::{REFUSED_PATH, count, file, interval, time};
use crate::notify::retries::Retries;

/// The secret of signatures.
pub(super) const SIGNING_SECRET: &str = "signingSecret";
const HEADER_PREFIX: &str = "header.";
/// Headers that are made for each request, or by the connection.
const OWN_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "host",
    "idempotency-key",
    "transfer-encoding",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];
/// More would be no request any more, but a load.
const IN_FLIGHT_MAX: usize = 256;

/// What the body of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// One row, as a JSON object.
    Row,
    /// So many rows at most, as a JSON array of objects.
    Array(usize),
}

/// Whom requests are sent through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// What the variables `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` say.
    Environment,
    /// Nobody.
    None,
    /// This one.
    Url(Url),
}

/// Who we are, for the receiver.
#[derive(Clone)]
pub enum Authorization {
    /// Nobody in particular, or somebody by a header.
    None,
    /// `Authorization: Bearer`.
    Bearer(String),
    /// `Authorization: Basic`.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
}

/// What a `webhook` table's options say about rows of a certain schema.
#[derive(Clone)]
pub struct WebhookOptions {
    /// Where requests go.
    pub url: Url,
    /// POST, PUT or PATCH.
    pub method: Method,
    /// What a request has.
    pub body: BodyKind,
    /// How a row becomes JSON.
    pub encoder: RecordEncoder,
    /// The user's headers.
    pub headers: HeaderMap,
    /// Who we are.
    pub authorization: Authorization,
    /// What requests are signed with.
    pub signing: Option<SigningSecrets>,
    /// How long an answer may take.
    pub request_timeout: Duration,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// Requests at a time.
    pub in_flight_max: usize,
    /// The column whose equal values stay in order.
    pub order_by: Option<usize>,
    /// The time between two attempts, at least.
    pub interval: Duration,
    /// When a request is sent again.
    pub retries: Retries,
    /// The file for refused requests; relative to the pipeline's base directory.
    pub refused_path: Option<String>,
    /// Whether redirects to the same host are followed.
    pub follow_redirects: bool,
    /// Authorities to trust; relative to the pipeline's base directory.
    pub ca_file: Option<String>,
    /// Whom requests are sent through.
    pub proxy: Proxy,
}

impl WebhookOptions {
    /// Reads the options of a table that rows of `schema` are written to.
    pub fn parse(options: &Options, schema: &Schema) -> Result<Self, OptionError> {
        let ignore_null_fields = options.parse_bool("ignoreNullFields")?.unwrap_or(true);
        let encoder = RecordEncoder::Json { ignore_null_fields };
        encoder.check(schema)?;
        let body = body(options)?;
        let order_by = order_by(options, schema, body)?;
        let signing = options.get(SIGNING_SECRET).map(SigningSecrets::parse).transpose();
        Ok(Self {
            url: url(options)?,
            method: method(options)?,
            body,
            encoder,
            headers: headers(options)?,
            authorization: authorization(options)?,
            // The value must not be in the message.
            signing: signing.map_err(|problem| OptionError::of(SIGNING_SECRET, problem, None))?,
            request_timeout: time(options, "requestTimeout", Duration::from_secs(30))?,
            connect_timeout: time(options, "connectTimeout", Duration::from_secs(10))?,
            in_flight_max: count(options, "maxRequestsInFlight", 1, IN_FLIGHT_MAX)?,
            order_by,
            interval: interval(options, "maxRequestsPerSecond", Duration::from_secs(1))?,
            retries: Retries::parse(options)?,
            refused_path: file(options, REFUSED_PATH)?,
            follow_redirects: options.parse_bool("followRedirects")?.unwrap_or(false),
            ca_file: file(options, "tls.caFile")?,
            proxy: proxy(options)?,
        })
    }
}

fn body(options: &Options) -> Result<BodyKind, OptionError> {
    let text = options.get("body").unwrap_or("row");
    let rows_max = count(options, "maxRowsPerRequest", 500, 1 << 20)?;
    match text.trim().to_ascii_lowercase().as_str() {
        "row" if options.get("maxRowsPerRequest").is_some() => Err(OptionError::of(
            "maxRowsPerRequest",
            "'maxRowsPerRequest' is given, but each row is a request of its own",
            Some("add 'body' = 'array', or leave it out".into()),
        )),
        "row" => Ok(BodyKind::Row),
        "array" => Ok(BodyKind::Array(rows_max)),
        _ => Err(OptionError::invalid("body", text, "'row' or 'array'")),
    }
}

fn url(options: &Options) -> Result<Url, OptionError> {
    let Some(text) = options.get("url") else {
        return Err(OptionError::missing("url", "add 'url' = 'https://...'"));
    };
    // The value may have a secret in its path, so it is in no message.
    let wrong = |problem: &str| OptionError::of("url", format!("'url' {problem}"), None);
    let url = Url::parse(text.trim()).map_err(|error| wrong(&format!("is no URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong("should begin with http:// or https://, and name a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("has a user or a password in it; give them as 'user' and 'password'"));
    }
    Ok(url)
}

fn method(options: &Options) -> Result<Method, OptionError> {
    let text = options.get("method").unwrap_or("POST");
    match text.trim().to_ascii_uppercase().as_str() {
        "POST" => Ok(Method::POST),
        "PUT" => Ok(Method::PUT),
        "PATCH" => Ok(Method::PATCH),
        _ => Err(OptionError::invalid("method", text, "POST, PUT or PATCH")),
    }
}

fn headers(options: &Options) -> Result<HeaderMap, OptionError> {
    let mut headers = HeaderMap::new();
    for (key, value) in options.iter() {
        let prefix = key.get(..HEADER_PREFIX.len());
        if !prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(HEADER_PREFIX)) {
            continue;
        }
        let name = &key[HEADER_PREFIX.len()..];
        let wrong = |problem: String| OptionError::of(key, problem, None);
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| wrong(format!("'{name}' is no name of a header")))?;
        if OWN_HEADERS.contains(&header.as_str()) {
            return Err(wrong(format!("the header '{name}' is set by the connector itself")));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            wrong(format!("the value of the header '{name}' has a character that no header has"))
        })?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

fn authorization(options: &Options) -> Result<Authorization, OptionError> {
    let (user, password) = (options.get("user"), options.get("password"));
    let token = options.get("bearerToken");
    if has_header(options, "authorization") && (token.is_some() || user.is_some()) {
        let option = if token.is_some() { "bearerToken" } else { "user" };
        let problem = format!("both '{option}' and 'header.Authorization' are given");
        return Err(OptionError::of(option, problem, Some("keep one".into())));
    }
    let given = match (token, user, password) {
        (Some(token), None, None) => Authorization::Bearer(token.trim().to_owned()),
        (Some(_), _, _) => {
            let problem = "both 'bearerToken' and 'user' or 'password' are given";
            return Err(OptionError::of("bearerToken", problem, Some("keep one".into())));
        }
        (None, Some(user), password) => Authorization::Basic {
            user: user.to_owned(),
            password: password.unwrap_or_default().to_owned(),
        },
        (None, None, Some(_)) => {
            return Err(OptionError::of("password", "'password' is given without 'user'", None));
        }
        (None, None, None) => Authorization::None,
    };
    let is_header_value = match &given {
        Authorization::Bearer(token) => HeaderValue::from_str(token).is_ok() && !token.is_empty(),
        _ => true,
    };
    if !is_header_value {
        let problem = "'bearerToken' is empty, or has a character that no header has";
        return Err(OptionError::of("bearerToken", problem, None));
    }
    Ok(given)
}

fn has_header(options: &Options, name: &str) -> bool {
    options.get(&format!("{HEADER_PREFIX}{name}")).is_some()
}

fn order_by(
    options: &Options,
    schema: &Schema,
    body: BodyKind,
) -> Result<Option<usize>, OptionError> {
    let Some(wanted) = options.get("orderBy") else { return Ok(None) };
    if body != BodyKind::Row {
        let problem = "'orderBy' needs a request for each row";
        return Err(OptionError::of("orderBy", problem, Some("set 'body' = 'row'".into())));
    }
    let mut fields = schema.fields().iter();
    match fields.position(|field| field.name().eq_ignore_ascii_case(wanted)) {
        Some(index) => Ok(Some(index)),
        None => {
            let names: Vec<&str> = schema.fields().iter().map(|field| &**field.name()).collect();
            Err(OptionError::of(
                "orderBy",
                format!("the query has no column '{wanted}'"),
                Some(format!("its columns are {}", names.join(", "))),
            ))
        }
    }
}

fn proxy(options: &Options) -> Result<Proxy, OptionError> {
    let text = options.get("proxy").unwrap_or("environment").trim();
    match text.to_ascii_lowercase().as_str() {
        "environment" => Ok(Proxy::Environment),
        "none" => Ok(Proxy::None),
        _ => match Url::parse(text) {
            Ok(url) if url.scheme() == "http" || url.scheme() == "https" => Ok(Proxy::Url(url)),
            _ => Err(OptionError::of(
                "proxy",
                "'proxy' should be 'environment', 'none', or a URL that begins with http://",
                None,
            )),
        },
    }
}
