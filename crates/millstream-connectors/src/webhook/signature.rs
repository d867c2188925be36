//! Signatures of Standard Webhooks.
//!
//! The signed text is `ID.TIMESTAMP.BODY`, where ID is the header `webhook-id` and TIMESTAMP, in
//! seconds since 1970, the header `webhook-timestamp`. The header `webhook-signature` has `v1,` and
//! the HMAC-SHA256 of it in base64, for each secret, separated by spaces. A secret is `whsec_` and
//! 24 to 64 bytes in base64.
//!
//! Origin: the specification of Standard Webhooks, <https://www.standardwebhooks.com>.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac::{self, HMAC_SHA256, Key};

const PREFIX: &str = "whsec_";

/// The secrets that requests are signed with: one, or several while they are replaced.
#[derive(Clone)]
pub struct SigningSecrets(Vec<Key>);

impl SigningSecrets {
    /// Reads secrets, separated by spaces.
    ///
    /// # Errors
    /// What is wrong, without the secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        let keys: Result<Vec<Key>, String> = text.split_whitespace().map(key).collect();
        match keys? {
            keys if keys.is_empty() => Err("'signingSecret' is empty".to_owned()),
            keys => Ok(Self(keys)),
        }
    }

    /// The value of `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp_s: i64, body: &[u8]) -> String {
        let head = format!("{id}.{timestamp_s}.");
        let signatures = self.0.iter().map(|key| {
            let mut context = hmac::Context::with_key(key);
            context.update(head.as_bytes());
            context.update(body);
            format!("v1,{}", STANDARD.encode(context.sign()))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

fn key(text: &str) -> Result<Key, String> {
    let Some(encoded) = text.strip_prefix(PREFIX) else {
        return Err(format!("'signingSecret' should begin with {PREFIX}"));
    };
    let bytes = STANDARD.decode(encoded);
    let bytes = bytes.map_err(|_| format!("'signingSecret' is no base64 after {PREFIX}"))?;
    match bytes.len() {
        24..=64 => Ok(Key::new(HMAC_SHA256, &bytes)),
        length => Err(format!("'signingSecret' has {length} bytes, but should have 24 to 64")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn signs_as_the_libraries_of_the_specification_do() {
        let secrets = SigningSecrets::parse(SECRET).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signature = secrets.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn two_secrets_give_two_signatures() {
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let both = SigningSecrets::parse(&format!("{SECRET} {other}")).unwrap();
        let signature = both.sign("a", 1, b"b");
        let alone = |secret| SigningSecrets::parse(secret).unwrap().sign("a", 1, b"b");
        assert_eq!(signature, format!("{} {}", alone(SECRET), alone(other)));
    }

    #[test]
    fn a_wrong_secret_is_refused_and_not_shown() {
        for wrong in ["", "plainsecret", "whsec_plain secret", "whsec_c2hvcnQ="] {
            let problem = SigningSecrets::parse(wrong).err().unwrap();
            assert!(!problem.contains("plain"), "{problem}");
        }
    }
}
