//! One URL of a registry: who asks there, and one attempt to ask.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_store::secrets;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER,
};
use reqwest::{Client, Method, Response, StatusCode};
use url::Url;

use crate::ask::Ask;
use crate::error::RegistryError;
use crate::settings::{Auth, without_user};
use crate::tls;

const MEDIA_TYPE: &str = "application/vnd.schemaregistry.v1+json";
/// An answer may be so large, bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Redirects of one request.
const REDIRECTS_MAX: usize = 5;

/// A URL of the registry.
pub(crate) struct Server {
    /// Without user, query and the slash at its end.
    url: String,
    authorization: Option<HeaderValue>,
    who: String,
}

/// What a server says.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// How long it asks us to wait.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Vec<u8>,
}

/// Why there is no usable answer.
pub(crate) enum Missed {
    /// There may be one later, or elsewhere.
    Away { problem: String, retry_after: Option<Duration> },
    /// There will be none.
    Final(RegistryError),
}

impl From<RegistryError> for Missed {
    fn from(error: RegistryError) -> Self {
        Self::Final(error)
    }
}

impl Server {
    /// The server at `text`, which may have a user and password if `auth` is none.
    ///
    /// # Errors
    /// `Url`, `Setting`.
    pub(crate) fn new(text: &str, auth: &Auth) -> Result<Self, RegistryError> {
        let wrong = |problem: &str| RegistryError::Url {
            url: without_user(text),
            problem: problem.to_owned(),
        };
        let url = Url::parse(text.trim()).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(wrong("it has to begin with http:// or https:// and a host"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("it ends with its path, without '?' and '#'"));
        }
        let in_url = Self::auth_in(&url);
        let auth = match (&in_url, auth) {
            (Some(in_url), Auth::None) => in_url,
            (None, auth) => auth,
            (Some(_), _) => return Err(wrong("user and password are given in it and beside it")),
        };
        let (authorization, who) = authorization(auth)?;
        let path = url.path().trim_end_matches('/');
        let url = format!("{}{path}", url.origin().ascii_serialization());
        Ok(Self { url, authorization, who })
    }

    fn auth_in(url: &Url) -> Option<Auth> {
        if url.username().is_empty() && url.password().is_none() {
            return None;
        }
        let password = decoded(url.password().unwrap_or_default());
        Some(Auth::Basic { user: decoded(url.username()), password })
    }

    /// Its URL, without user and password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Who asks there, for messages.
    pub(crate) fn who(&self) -> &str {
        &self.who
    }

    /// Asks once, and follows redirects within the server.
    pub(crate) async fn attempt(&self, client: &Client, ask: &Ask<'_>) -> Result<Reply, Missed> {
        let path = ask.path()?;
        let url = format!("{}{path}", self.url);
        let mut url = Url::parse(&url).map_err(|error| self.not_a_registry(error.to_string()))?;
        let (method, body) = (ask.method(), ask.body());
        for _ in 0..=REDIRECTS_MAX {
            let mut request = client.request(method.clone(), url.clone()).headers(self.headers());
            if let Some(body) = &body {
                request = request.header(CONTENT_TYPE, MEDIA_TYPE).body(body.clone());
            }
            let response = request.send().await.map_err(|error| self.missed(error))?;
            match self.redirect(&url, &method, &response)? {
                Some(to) => url = to,
                None => return self.read(response).await,
            }
        }
        Err(self.not_a_registry(format!("it redirects more than {REDIRECTS_MAX} times")).into())
    }

    fn headers(&self) -> HeaderMap {
        let accept = HeaderValue::from_static("application/vnd.schemaregistry.v1+json, */*;q=0.5");
        let mut headers = HeaderMap::from_iter([(ACCEPT, accept)]);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        headers
    }

    /// Where the same request is to be sent instead. Another server must not learn who we are, and
    /// a redirect that would make a GET of a POST leads nowhere.
    fn redirect(
        &self,
        from: &Url,
        method: &Method,
        response: &Response,
    ) -> Result<Option<Url>, RegistryError> {
        let keeps_method = match response.status() {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::GET,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
            StatusCode::SEE_OTHER => false,
            _ => return Ok(None),
        };
        let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
        let to = to.and_then(|to| from.join(to).ok());
        match to {
            Some(mut to) if keeps_method && to.origin() == from.origin() => {
                // What fails here has no user.
                let _ = (to.set_username(""), to.set_password(None));
                Ok(Some(to))
            }
            to => {
                let to = to.map_or("elsewhere".to_owned(), |to| to.origin().ascii_serialization());
                let status = response.status().as_u16();
                Err(self.not_a_registry(format!("it redirects to {to} ({status})")))
            }
        }
    }

    async fn read(&self, mut response: Response) -> Result<Reply, Missed> {
        let too_large = || {
            let found = format!("its answer has more than {} MiB", ANSWER_BYTES_MAX >> 20);
            Missed::Final(self.not_a_registry(found))
        };
        let retry_after = retry_after(response.headers());
        // What it says of its length is taken as a reason to refuse, never to allocate.
        if response.content_length().is_some_and(|length| length > ANSWER_BYTES_MAX as u64) {
            return Err(too_large());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.missed(error))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply { status: response.status(), retry_after, body })
    }

    fn missed(&self, error: reqwest::Error) -> Missed {
        let error = error.without_url();
        if let Some((problem, remedy)) = tls::refusal(&error) {
            return RegistryError::Tls { url: self.url.clone(), problem, remedy }.into();
        }
        let problem = match error.is_timeout() {
            true => format!("no connection within {:?}", tls::CONNECT_TIMEOUT),
            false => tls::cause(&error),
        };
        Missed::Away { problem, retry_after: None }
    }

    /// The error that something else came than a registry's answer.
    pub(crate) fn not_a_registry(&self, found: String) -> RegistryError {
        RegistryError::NotARegistry { url: self.url.clone(), found }
    }
}

/// The header that says who asks, and the same for messages. The secrets in it are remembered, so
/// that no message repeats them.
fn authorization(auth: &Auth) -> Result<(Option<HeaderValue>, String), RegistryError> {
    let wrong = |what: &str, problem: &str| RegistryError::Setting {
        what: what.to_owned(),
        problem: problem.to_owned(),
    };
    let (text, who) = match auth {
        Auth::None => return Ok((None, "who asks without a user".to_owned())),
        Auth::Basic { user, .. } if user.contains(':') => {
            return Err(wrong("the user of the schema registry", "a name may have no colon in it"));
        }
        Auth::Basic { user, password } => {
            let encoded = STANDARD.encode(format!("{user}:{password}"));
            secrets::remember(password);
            secrets::remember(&encoded);
            (format!("Basic {encoded}"), format!("the user '{user}'"))
        }
        Auth::Bearer { token } => {
            secrets::remember(token);
            (format!("Bearer {token}"), "the token".to_owned())
        }
    };
    let what = "the token of the schema registry";
    let mut header =
        HeaderValue::from_str(&text).map_err(|_| wrong(what, "it has line breaks in it"))?;
    header.set_sensitive(true);
    Ok((Some(header), who))
}

/// How long to wait, where that is said in seconds. A date is not read: it needs both clocks to be
/// right, and the ordinary waits will do.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// `text` of a URL without its percent-encoding (RFC 3986, section 2.1).
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let digits = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
