//! The key of a service account, and what it signs.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::json;

use super::error::CredentialsError;
use super::{SCOPE, TOKEN_LIFE_S};

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// A service account that can sign.
pub(super) struct ServiceAccount {
    pub(super) email: String,
    pub(super) token_uri: String,
    key_id: Option<String>,
    key: RsaKeyPair,
}

impl ServiceAccount {
    /// The account `email` with a private key in PEM (PKCS #8). Line breaks may be written `\n`,
    /// as in a key file.
    ///
    /// # Errors
    /// The text is no key.
    pub(super) fn new(
        email: &str,
        private_key: &str,
        key_id: Option<String>,
        token_uri: &str,
    ) -> Result<Self, CredentialsError> {
        let wrong = |problem: String| CredentialsError::Key { account: email.to_owned(), problem };
        let text = private_key.replace("\\n", "\n");
        let body = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        let Some((body, _)) = body else {
            return Err(wrong(format!("it lacks the line '{BEGIN}' or '{END}'")));
        };
        let body: String = body.chars().filter(|char| !char.is_whitespace()).collect();
        let der = STANDARD.decode(body).map_err(|error| wrong(format!("not base64: {error}")))?;
        let key = RsaKeyPair::from_pkcs8(&der).map_err(|error| wrong(error.to_string()))?;
        let (email, token_uri) = (email.to_owned(), token_uri.to_owned());
        Ok(Self { email, token_uri, key_id, key })
    }

    /// What is exchanged for a token: a JWT (RFC 7523) that says who asks, at `now_s` seconds since
    /// the epoch.
    pub(super) fn assertion(&self, now_s: i64) -> Result<String, CredentialsError> {
        let mut header = json!({"alg": "RS256", "typ": "JWT"});
        if let Some(key_id) = &self.key_id {
            header["kid"] = json!(key_id);
        }
        let claims = json!({
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": now_s,
            "exp": now_s + TOKEN_LIFE_S,
        });
        let encode = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|error| CredentialsError::Key {
            account: self.email.clone(),
            problem: error.to_string(),
        })?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}
