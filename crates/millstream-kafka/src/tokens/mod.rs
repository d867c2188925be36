//! Tokens for logins by OAUTHBEARER (RFC 7628), one keeper for all clients of a table.
//!
//! ```text
//! token endpoint (client credentials) ──┐
//! a file that somebody renews ──────────┼──▶ kept until shortly before its end ──▶ logins
//! a request signed for AWS's IAM ───────┘
//! ```
//!
//! A login needs a token at once, so it is asked for where it is needed, by whoever is first, and
//! asked for again when most of its life is over. Where nobody gives a new one then, the old one is
//! used to its end.
//!
//! - [`endpoint`]: OpenID Connect's client credentials. [`iam`]: AWS's IAM, as Amazon MSK takes it.
//!   [`jwt`]: what a token says of itself.

mod endpoint;
mod error;
mod iam;
mod jwt;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use endpoint::Endpoint;
pub use error::TokenError;
pub use iam::{Iam, region_of};
use millstream_store::env::Env;
use millstream_store::error::{Classified as _, Kind};
use millstream_store::secrets;
use parking_lot::Mutex;

/// How long whoever gives tokens may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take while there is a token that is still good, and when it is asked again.
const PATIENCE_WITH_TOKEN: Duration = Duration::from_secs(3);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(15);
/// It is asked again within this part of what is left of the old one's life.
const ASK_AGAIN_PART: u32 = 4;
/// The life of a token that does not say how long it is good.
const LIFE_UNSAID: Duration = Duration::from_secs(300);
/// A token is asked for again within this time, however long it is said to be good.
const LIFE_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Who a token is for, where it does not say so: a name for logs.
const PRINCIPAL_UNSAID: &str = "millstream";

/// Who gives tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Issuer {
    /// A token endpoint.
    Endpoint(Endpoint),
    /// A file, read for each token.
    File(PathBuf),
    /// AWS's IAM.
    Iam(Iam),
}

/// Tokens of one user. Cheap to clone; all clones share what is kept.
#[derive(Clone)]
pub struct Tokens(Arc<Keeper>);

struct Keeper {
    issuer: Issuer,
    extensions: Vec<(String, String)>,
    kept: Mutex<Option<Kept>>,
    /// Held by the one that asks.
    asking: Mutex<()>,
}

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The token itself, a secret.
    pub text: String,
    /// Whose it is.
    pub principal: String,
    /// When it ends, milliseconds since the epoch.
    pub ends_ms: i64,
    /// When the next one is asked for, on the monotonic clock.
    pub renewed_at: Duration,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the token of {}", self.principal)
    }
}

struct Kept {
    token: Token,
    /// The one before, which is hidden from messages for as long as it may still be good.
    before: Option<Token>,
    /// When it ends, on the monotonic clock.
    ends_at: Duration,
}

impl Tokens {
    /// Tokens of `issuer`. `extensions` are sent to the brokers with each (RFC 7628, section 3.1).
    pub fn new(issuer: Issuer, extensions: Vec<(String, String)>) -> Self {
        let (kept, asking) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Keeper { issuer, extensions, kept, asking }))
    }

    /// Who gives them.
    pub fn issuer(&self) -> &Issuer {
        &self.0.issuer
    }

    /// Extensions that logins send with a token, as name and value.
    pub fn extensions(&self) -> &[(String, String)] {
        &self.0.extensions
    }

    /// A token that is good for a while, unless nobody gives a new one. Blocks.
    ///
    /// # Errors
    /// `Credentials`: the issuer refuses. `Retry`: it does not answer. `Config`: a file is missing,
    /// or what it has is no token.
    pub fn token(&self, env: &Env) -> Result<Token, TokenError> {
        if let Some(token) = self.fresh(env) {
            return Ok(token);
        }
        let _asking = self.0.asking.lock();
        // Whoever asked before may have brought it.
        if let Some(token) = self.fresh(env) {
            return Ok(token);
        }
        let old = self.old(env);
        let patience = if old.is_some() { PATIENCE_WITH_TOKEN } else { PATIENCE };
        match (self.renew(env, patience), old) {
            // A file may be read just when it is written.
            (Err(error), Some(old))
                if error.kind() == Kind::Retry || matches!(error, TokenError::File { .. }) =>
            {
                tracing::debug!(%error, "no new token for Kafka; using the old one");
                if let Some(kept) = &mut *self.0.kept.lock() {
                    let now = env.monotonic();
                    let left = kept.ends_at.saturating_sub(now) / ASK_AGAIN_PART;
                    kept.token.renewed_at = now + left.min(ASK_AGAIN_AFTER);
                }
                Ok(old)
            }
            (renewed, _) => renewed,
        }
    }

    /// Forgets a token that the brokers have refused, so that the next login has another.
    pub fn forget(&self, refused: &str) {
        let mut kept = self.0.kept.lock();
        if let Some(kept) = kept.as_mut().filter(|kept| kept.token.text == refused) {
            (kept.token.renewed_at, kept.ends_at) = (Duration::ZERO, Duration::ZERO);
        }
    }

    fn renew(&self, env: &Env, patience: Duration) -> Result<Token, TokenError> {
        let now_ms = env.now_ms();
        let (text, life) = match &self.0.issuer {
            Issuer::Endpoint(endpoint) => endpoint.ask(env, patience)?,
            Issuer::File(path) => (read(path)?, None),
            Issuer::Iam(iam) => iam.token(env, patience)?,
        };
        secrets::remember(&text);
        let claims = jwt::claims(&text);
        let by_claim = claims.ends_s.map(|ends_s| {
            let left_ms = ends_s.saturating_mul(1_000).saturating_sub(now_ms);
            Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))
        });
        let life = life.or(by_claim).unwrap_or(LIFE_UNSAID).min(LIFE_MAX);
        let now = env.monotonic();
        let token = Token {
            text,
            principal: claims.subject.unwrap_or_else(|| PRINCIPAL_UNSAID.to_owned()),
            renewed_at: now + life * 4 / 5,
            ends_ms: now_ms.saturating_add(i64::try_from(life.as_millis()).unwrap_or(i64::MAX)),
        };
        let mut kept = self.0.kept.lock();
        let (before, older) = match kept.take() {
            Some(old) if old.token.text == token.text => (old.before, None),
            Some(old) => (Some(old.token), old.before),
            None => (None, None),
        };
        if let Some(older) = older.filter(|older| older.text != token.text) {
            secrets::forget(&older.text);
        }
        *kept = Some(Kept { token: token.clone(), before, ends_at: now + life });
        Ok(token)
    }

    fn fresh(&self, env: &Env) -> Option<Token> {
        let now = env.monotonic();
        self.kept(|kept| now < kept.token.renewed_at)
    }

    /// The token that there is, if it has not ended.
    fn old(&self, env: &Env) -> Option<Token> {
        let now = env.monotonic();
        self.kept(|kept| now < kept.ends_at)
    }

    fn kept(&self, is_good: impl Fn(&Kept) -> bool) -> Option<Token> {
        let kept = self.0.kept.lock();
        kept.as_ref().filter(|kept| is_good(kept)).map(|kept| kept.token.clone())
    }
}

impl PartialEq for Tokens {
    fn eq(&self, other: &Self) -> bool {
        self.0.issuer == other.0.issuer && self.0.extensions == other.0.extensions
    }
}

impl Eq for Tokens {}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tokens of {:?}", self.0.issuer)
    }
}

fn read(path: &PathBuf) -> Result<String, TokenError> {
    let unreadable = |problem: String| TokenError::File { path: path.clone(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    match text.trim() {
        text if jwt::is_token(text) => Ok(text.to_owned()),
        "" => Err(unreadable("it is empty".to_owned())),
        _ => Err(unreadable("it has more than a token".to_owned())),
    }
}
