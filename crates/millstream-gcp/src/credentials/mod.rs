//! Who asks: keys, files and the metadata server become tokens.
//!
//! ```text
//! options, or GOOGLE_APPLICATION_CREDENTIALS, or gcloud's file ──▶ key ──▶ JWT ──▶ token server
//! on Google Cloud ───────────────────────────────────────────────────────▶ metadata server
//! ```
//!
//! A token lives for about an hour and is asked for again some minutes before its end, by whoever
//! needs one next. Where nobody gives one then, the old one is used to its end.
//!
//! - [`place`]: where credentials are. [`key`]: the key of a service account.

mod error;
mod key;
mod place;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use error::CredentialsError;
use millstream_store::env::Env;
use millstream_store::error::{Classified as _, Kind, root_cause};
use millstream_store::secrets;
use parking_lot::Mutex;
use place::Account;
pub use place::{OPTIONS, Place};
use serde::Deserialize;

/// All of Google Cloud that the account may use.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// How long a token is asked for, seconds; the most that Google gives.
const TOKEN_LIFE_S: i64 = 3_600;
/// A token is not used so close to its end: the clocks may differ, and calls take time.
const SPARE: Duration = Duration::from_secs(240);
/// How long the server of tokens may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take while there is a token that is still good, and when it is asked again.
const PATIENCE_WITH_TOKEN: Duration = Duration::from_secs(5);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(15);
/// So much of an answer is in a message.
const EXCERPT_CHARS: usize = 300;

/// Tokens of one account. To be shared, so that a token is asked for once.
pub struct Credentials {
    account: Account,
    project: Option<String>,
    client: reqwest::Client,
    token: Mutex<Option<Token>>,
    /// Whether there ever was one.
    had_token: AtomicBool,
    /// Held by the one that asks.
    asking: tokio::sync::Mutex<()>,
    env: Env,
}

#[derive(Clone)]
struct Token {
    text: String,
    /// When the next one is asked for, on the monotonic clock.
    renewed_at: Duration,
    /// When it ends.
    ends_at: Duration,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    expires_in: u64,
}

/// What the server says when it refuses.
#[derive(Deserialize)]
struct Refusal {
    error: String,
    #[serde(default)]
    error_description: String,
}

impl Credentials {
    /// Reads the credentials at `place`; nobody is asked yet. May block for a small file.
    ///
    /// # Errors
    /// There are none, or they are no credentials.
    pub fn read(place: &Place, env: &Env) -> Result<Self, CredentialsError> {
        let (account, project) = place::read(place)?;
        // The metadata server is on the machine itself, so no proxy is between.
        let client = match &account {
            Account::Metadata { .. } => reqwest::Client::builder().no_proxy(),
            _ => reqwest::Client::builder(),
        };
        let client = client.timeout(PATIENCE).build().map_err(|error| CredentialsError::Away {
            account: "the client".to_owned(),
            server: "this machine".to_owned(),
            problem: error.to_string(),
        })?;
        let (token, asking) = (Mutex::default(), tokio::sync::Mutex::default());
        let had_token = AtomicBool::new(false);
        Ok(Self { account, project, client, token, had_token, asking, env: env.clone() })
    }

    /// The project that the credentials belong to, if that is known without asking.
    pub fn project(&self) -> Option<&str> {
        self.project.as_deref()
    }

    /// Whose they are, for messages.
    pub fn account(&self) -> String {
        match &self.account {
            Account::Service(account) => account.email.clone(),
            Account::User(_) => "the user of gcloud".to_owned(),
            Account::Metadata { .. } => "this machine's service account".to_owned(),
        }
    }

    /// A token that is good for some minutes, unless nobody gives a new one.
    ///
    /// # Errors
    /// `Credentials`: Google refuses. `Retry`: nobody answers. `Config`: there are none.
    pub async fn token(&self) -> Result<String, CredentialsError> {
        if let Some(text) = self.known() {
            return Ok(text);
        }
        let _asking = self.asking.lock().await;
        // Whoever asked before may have brought it, or has just asked in vain.
        if let Some(text) = self.known() {
            return Ok(text);
        }
        let Some(old) = self.old() else { return self.renew().await };
        let renewed = tokio::select! {
            biased;
            renewed = self.renew() => Some(renewed),
            () = self.env.sleep(PATIENCE_WITH_TOKEN) => None,
        };
        let problem = match renewed {
            Some(Err(error)) if error.kind() == Kind::Retry => error.to_string(),
            Some(renewed) => return renewed,
            None => "no answer".to_owned(),
        };
        tracing::debug!(problem, "no new token of Google Cloud; using the old one");
        if let Some(token) = &mut *self.token.lock() {
            token.renewed_at = self.env.monotonic() + ASK_AGAIN_AFTER;
        }
        Ok(old)
    }

    async fn renew(&self) -> Result<String, CredentialsError> {
        let answer = self.ask().await?;
        secrets::remember(&answer.access_token);
        let life = Duration::from_secs(answer.expires_in);
        let ends_at = self.env.monotonic() + life;
        let renewed_at = ends_at.saturating_sub(SPARE.min(life / 2));
        let text = answer.access_token.clone();
        *self.token.lock() = Some(Token { text, renewed_at, ends_at });
        self.had_token.store(true, Ordering::Relaxed);
        Ok(answer.access_token)
    }

    /// Forgets the token: a service has refused it.
    pub fn forget(&self) {
        *self.token.lock() = None;
    }

    fn known(&self) -> Option<String> {
        let now = self.env.monotonic();
        let token = self.token.lock();
        let token = token.as_ref().filter(|token| now < token.renewed_at && now < token.ends_at);
        token.map(|token| token.text.clone())
    }

    /// The token that there is, if it has not ended.
    fn old(&self) -> Option<String> {
        let now = self.env.monotonic();
        let token = self.token.lock();
        token.as_ref().filter(|token| now < token.ends_at).map(|token| token.text.clone())
    }

    async fn ask(&self) -> Result<Answer, CredentialsError> {
        let (server, request) = match &self.account {
            Account::Service(account) => {
                let assertion = account.assertion(self.env.now_ms() / 1_000)?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
                let form = form(&[("grant_type", grant), ("assertion", &assertion)]);
                (account.token_uri.clone(), self.client.post(&account.token_uri).body(form))
            }
            Account::User(user) => {
                let form = form(&[
                    ("grant_type", "refresh_token"),
                    ("client_id", &user.client_id),
                    ("client_secret", &user.client_secret),
                    ("refresh_token", &user.refresh_token),
                ]);
                (user.token_uri.clone(), self.client.post(&user.token_uri).body(form))
            }
            Account::Metadata { host } => {
                let path = "computeMetadata/v1/instance/service-accounts/default/token";
                let request = self.client.get(format!("http://{host}/{path}"));
                (host.clone(), request.header("Metadata-Flavor", "Google"))
            }
        };
        let request = match &self.account {
            Account::Metadata { .. } => request,
            _ => request.header("content-type", "application/x-www-form-urlencoded"),
        };
        let away = |problem: String| {
            let (account, server) = (self.account(), server.clone());
            CredentialsError::Away { account, server, problem }
        };
        let answer = request.send().await.map_err(|error| {
            // Where there never was such a server, this machine is not one of Google Cloud.
            let is_nowhere = error.is_connect() && !self.had_token.load(Ordering::Relaxed);
            match &self.account {
                Account::Metadata { .. } if is_nowhere => {
                    CredentialsError::None { problem: root_cause(&error) }
                }
                _ => away(root_cause(&error)),
            }
        })?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| away(root_cause(&error)))?;
        if status.is_success() {
            return serde_json::from_slice(&body)
                .map_err(|_| away("the answer is not a token".to_owned()));
        }
        let said = match serde_json::from_slice::<Refusal>(&body) {
            Ok(said) => format!("{} {}", said.error, said.error_description),
            Err(_) => String::from_utf8_lossy(&body).chars().take(EXCERPT_CHARS).collect(),
        };
        let problem = format!("{status} {}", said.trim());
        if status.is_client_error() && status != 408 && status != 429 {
            return Err(CredentialsError::Refused { account: self.account(), problem });
        }
        Err(away(problem))
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.account())
    }
}

fn form(pairs: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}
