//! One attempt to send a request, and what the answer means.
//!
//! | answer | meaning |
//! |---|---|
//! | 2xx | accepted |
//! | 408, 425, 429, 5xx, no answer | later, not before `Retry-After` |
//! | 401, 403, 407 | the credentials are refused |
//! | 3xx that is not followed | the options name another place |
//! | any other 4xx | this request is refused |

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use millstream_store::env::Env;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Response, StatusCode};

use super::body::Request;
use super::options::{Authorization, Proxy, WebhookOptions};
use crate::notify::error::{DeliveryError, cause};
use crate::notify::retries::retry_after;
use crate::notify::{Outcome, Transport};
use crate::paths;

const USER_AGENT: &str = concat!("millstream/", env!("CARGO_PKG_VERSION"));
/// So much of an answer is in a message.
const EXCERPT_BYTES: usize = 300;
/// How long an answer's text is waited for: its status has said what counts.
const EXCERPT_PATIENCE: Duration = Duration::from_secs(1);
/// Redirects of one request.
const REDIRECTS_MAX: usize = 5;
/// The error of a chain of redirects that is followed no further.
const TOO_MANY_REDIRECTS: &str = "too many redirects";

/// Sends requests over connections that are kept.
pub struct HttpTransport {
    client: Client,
    options: WebhookOptions,
    /// The headers that every request has.
    headers: HeaderMap,
    receiver: String,
    env: Env,
}

impl HttpTransport {
    /// A transport as `options` say, with paths relative to `base_dir`. It touches nothing but the
    /// file of `tls.caFile`.
    ///
    /// # Errors
    /// `Config`: that file cannot be read, or is no certificate.
    pub fn new(options: WebhookOptions, base_dir: &Path, env: &Env) -> Result<Self, DeliveryError> {
        let receiver = receiver(&options);
        let client = client(&options, base_dir, &receiver)?;
        let mut headers = options.headers.clone();
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        Ok(Self { client, options, headers, receiver, env: env.clone() })
    }

    fn request(&self, request: &Request) -> reqwest::RequestBuilder {
        let timestamp_s = self.env.now_ms().div_euclid(1_000);
        let mut builder = self
            .client
            .request(self.options.method.clone(), self.options.url.clone())
            .headers(self.headers.clone())
            .header("idempotency-key", &request.key)
            .header("webhook-id", &request.key)
            .header("webhook-timestamp", timestamp_s);
        if let Some(secrets) = &self.options.signing {
            let signature = secrets.sign(&request.key, timestamp_s, &request.body);
            builder = builder.header("webhook-signature", signature);
        }
        builder = match &self.options.authorization {
            Authorization::None => builder,
            Authorization::Bearer(token) => builder.header(AUTHORIZATION, bearer(token)),
            Authorization::Basic { user, password } => builder.basic_auth(user, Some(password)),
        };
        builder.body(request.body.clone())
    }

    async fn judge(&self, response: Response) -> Outcome {
        let status = response.status();
        if status.is_success() {
            // Read to its end, the connection can be used again; its content does not matter.
            self.excerpt(response).await;
            return Outcome::Accepted;
        }
        let (headers, receiver) = (response.headers().clone(), self.receiver.clone());
        let answer = described(status, &self.excerpt(response).await);
        match status {
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                self.later(&headers, answer)
            }
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                Outcome::Failed(DeliveryError::Denied { receiver, answer })
            }
            _ if status.is_client_error() => Outcome::Refused(answer),
            _ if status.is_redirection() => {
                let to = headers.get(LOCATION).and_then(|to| to.to_str().ok());
                let to = to.and_then(|to| self.options.url.join(to).ok());
                let to = to.map_or("elsewhere".to_owned(), |to| to.origin().ascii_serialization());
                let problem = format!(
                    "its answer is {answer}, a redirect to {to}. Correct 'url'; 307 and 308 to the \
                     same host are followed with 'followRedirects' = 'true'"
                );
                Outcome::Failed(DeliveryError::Unusable { receiver, problem })
            }
            _ => self.later(&headers, answer),
        }
    }

    /// The beginning of an answer's text, as far as it comes soon.
    async fn excerpt(&self, response: Response) -> String {
        tokio::select! {
            text = excerpt(response) => text,
            () = self.env.sleep(EXCERPT_PATIENCE) => String::new(),
        }
    }

    fn later(&self, headers: &HeaderMap, problem: String) -> Outcome {
        let asked = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let wait = asked.and_then(|text| retry_after(text, self.env.now_ms()));
        Outcome::Later { problem, wait }
    }
}

#[async_trait]
impl Transport for HttpTransport {
    type Message = Request;

    fn receiver(&self) -> &str {
        &self.receiver
    }

    async fn attempt(&self, request: &Request) -> Outcome {
        let limit = self.options.request_timeout;
        let answered = tokio::select! {
            answered = self.request(request).send() => answered.map_err(problem),
            () = self.env.sleep(limit) => Err(format!("no answer within {limit:?}")),
        };
        match answered {
            Ok(response) => self.judge(response).await,
            Err(problem) => Outcome::Later { problem, wait: None },
        }
    }
}

/// Where requests go, without the path: it is a secret of some receivers.
fn receiver(options: &WebhookOptions) -> String {
    format!("the receiver at {}", options.url.origin().ascii_serialization())
}

fn client(
    options: &WebhookOptions,
    base_dir: &Path,
    receiver: &str,
) -> Result<Client, DeliveryError> {
    let unusable = |error: reqwest::Error| {
        let (receiver, problem) = (receiver.to_owned(), problem(error));
        DeliveryError::Unusable { receiver, problem }
    };
    let redirects = if options.follow_redirects { to_same_host() } else { Policy::none() };
    let mut builder = Client::builder()
        .user_agent(USER_AGENT)
        .http1_only()
        .connect_timeout(options.connect_timeout)
        .redirect(redirects);
    if let Some(path) = &options.ca_file {
        let (what, path) = ("the file of 'tls.caFile'", paths::resolve(base_dir, path));
        let file = |error| DeliveryError::File { what, path: path.clone(), error };
        let pem = std::fs::read(&path).map_err(file)?;
        let certificates = Certificate::from_pem_bundle(&pem).map_err(unusable)?;
        if certificates.is_empty() {
            return Err(file(std::io::Error::other("it has no certificate in PEM")));
        }
        builder = certificates
            .into_iter()
            .fold(builder, |builder, certificate| builder.add_root_certificate(certificate));
    }
    builder = match &options.proxy {
        Proxy::Environment => builder,
        Proxy::None => builder.no_proxy(),
        Proxy::Url(url) => builder.proxy(reqwest::Proxy::all(url.clone()).map_err(unusable)?),
    };
    builder.build().map_err(unusable)
}

/// Follows what keeps method and body, and leads to nobody who must not know our headers.
fn to_same_host() -> Policy {
    Policy::custom(|attempt| {
        let keeps_body = matches!(
            attempt.status(),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
        );
        let is_same =
            attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
        if attempt.previous().len() > REDIRECTS_MAX {
            attempt.error(TOO_MANY_REDIRECTS)
        } else if keeps_body && is_same {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

fn bearer(token: &str) -> HeaderValue {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.expect("the options were checked");
    value.set_sensitive(true);
    value
}

/// What went wrong, without the URL, which may be a secret.
fn problem(error: reqwest::Error) -> String {
    cause(&error.without_url())
}

/// The beginning of an answer; a large one is not read to its end.
async fn excerpt(mut response: Response) -> String {
    let mut begin = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        begin.extend_from_slice(&chunk);
        if begin.len() > 4 * EXCERPT_BYTES {
            break;
        }
    }
    begin.truncate(EXCERPT_BYTES);
    let text = String::from_utf8_lossy(&begin);
    text.split(|char: char| char.is_control() || char.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn described(status: StatusCode, excerpt: &str) -> String {
    let reason = status.canonical_reason().map_or(String::new(), |reason| format!(" {reason}"));
    let said = if excerpt.is_empty() { String::new() } else { format!(": {excerpt}") };
    format!("{}{reason}{said}", status.as_u16())
}
