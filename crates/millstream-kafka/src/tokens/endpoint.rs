//! The token endpoint of an OpenID Connect provider, asked with client credentials (RFC 6749, 4.4).

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_store::env::Env;
use millstream_store::error::root_cause;
use reqwest::{Certificate, Client};
use serde::Deserialize;

use super::error::TokenError;
use super::jwt;
use crate::protocol::tls::Pem;

/// No answer is longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// So much of an answer is in a message.
const EXCERPT_CHARS: usize = 300;

/// A token endpoint, and who asks it.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it is.
    pub url: String,
    /// The client's id.
    pub id: String,
    /// The client's secret.
    pub secret: String,
    /// What the token is to be good for.
    pub scope: Option<String>,
    /// Who is trusted; `None` for whom the system trusts.
    pub authorities: Option<Pem>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.url, self.id)
    }
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    /// Seconds: a number, and for some providers a text.
    expires_in: Option<serde_json::Value>,
}

/// What the endpoint says when it refuses (RFC 6749, 5.2).
#[derive(Deserialize)]
struct Refusal {
    error: String,
    #[serde(default)]
    error_description: String,
}

impl Endpoint {
    /// Asks for a token. Gives how long it is good as well, if that is said. Blocks.
    pub fn ask(
        &self,
        env: &Env,
        patience: Duration,
    ) -> Result<(String, Option<Duration>), TokenError> {
        // The caller may be a thread of a runtime, which may not wait for another one.
        let (status, body) = env
            .blocking(|| env.block_on_io(self.send(patience)))
            .map_err(|problem| self.away(problem))?;
        if (200..300).contains(&status) {
            return self.token_of(&body);
        }
        let said = match serde_json::from_slice::<Refusal>(&body) {
            Ok(said) => format!("{} {}", said.error, said.error_description),
            Err(_) => String::from_utf8_lossy(&body).chars().take(EXCERPT_CHARS).collect(),
        };
        let problem = format!("{status} {}", said.trim()).replace(&self.secret, "...");
        if (400..500).contains(&status) && status != 408 && status != 429 {
            let (server, user) = (self.url.clone(), self.id.clone());
            return Err(TokenError::Refused { server, user, problem });
        }
        Err(self.away(problem))
    }

    fn token_of(&self, body: &[u8]) -> Result<(String, Option<Duration>), TokenError> {
        let answer = serde_json::from_slice::<Answer>(body).ok();
        let Some(answer) = answer.filter(|answer| jwt::is_token(&answer.access_token)) else {
            return Err(self.away("its answer is not a token".to_owned()));
        };
        let seconds = answer
            .expires_in
            .and_then(|life| life.as_f64().or_else(|| life.as_str()?.trim().parse().ok()));
        let life = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok((answer.access_token, life))
    }

    async fn send(&self, patience: Duration) -> Result<(u16, Vec<u8>), String> {
        let client = self.client(patience)?;
        let mut form = vec![("grant_type", "client_credentials")];
        form.extend(self.scope.as_deref().map(|scope| ("scope", scope)));
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let user = STANDARD.encode(format!("{}:{}", self.id, self.secret));
        let request = client
            .post(&self.url)
            .header("authorization", format!("Basic {user}"))
            .header("accept", "application/json")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form);
        let mut answer = request.send().await.map_err(|error| root_cause(&error))?;
        let (status, mut body) = (answer.status().as_u16(), Vec::new());
        while let Some(part) = answer.chunk().await.map_err(|error| root_cause(&error))? {
            if body.len() + part.len() > ANSWER_BYTES_MAX {
                return Err("its answer is too long for a token".to_owned());
            }
            body.extend_from_slice(&part);
        }
        Ok((status, body))
    }

    fn client(&self, patience: Duration) -> Result<Client, String> {
        // The secret goes nowhere else.
        let redirects = reqwest::redirect::Policy::none();
        let mut client = Client::builder().timeout(patience).redirect(redirects);
        if let Some(authorities) = &self.authorities {
            let unusable = |problem: String| format!("'kafka.https.ca.location': {problem}");
            let pem = match authorities {
                Pem::At(path) => std::fs::read(path).map_err(|error| {
                    unusable(format!("{} cannot be read: {error}", path.display()))
                })?,
                Pem::Text(text) => text.clone().into_bytes(),
            };
            let certificates = Certificate::from_pem_bundle(&pem)
                .map_err(|_| unusable("it has no certificate in PEM".to_owned()))?;
            client = client.tls_built_in_root_certs(false);
            client = certificates
                .into_iter()
                .fold(client, |client, certificate| client.add_root_certificate(certificate));
        }
        client.build().map_err(|error| root_cause(&error))
    }

    fn away(&self, problem: String) -> TokenError {
        TokenError::Away { server: self.url.clone(), problem }
    }
}
