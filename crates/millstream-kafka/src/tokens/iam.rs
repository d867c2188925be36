//! AWS's IAM, as Amazon MSK takes it by OAUTHBEARER: a token is the address of a request that is
//! signed but never sent. The broker sends it on to learn who signed it.
//!
//! The request is `GET https://kafka.REGION.amazonaws.com/?Action=kafka-cluster:Connect`, signed in
//! its query by AWS's Signature Version 4; the token is its address in URL-safe base64.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millstream_store::env::Env;
use millstream_store::storage::cloud_settings;
use millstream_store::time_text::compact_utc;
use object_store::aws::{AmazonS3Builder, AwsCredential, AwsCredentialProvider};
use ring::{digest, hmac};

use super::error::TokenError;

/// How long a token is good, seconds; the most that MSK takes.
const LIFE_S: u32 = 900;
const SERVICE: &str = "kafka-cluster";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Said of who has made the token; it is no part of what is signed.
const AGENT: &str = concat!("millstream/", env!("CARGO_PKG_VERSION"));

/// A region of AWS, whose brokers take the credentials of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iam {
    /// The region.
    pub region: String,
}

/// The region that a broker of Amazon MSK has in its name.
pub fn region_of(servers: &str) -> Option<&str> {
    let hosts = servers.split(',').map(|server| server.trim().split(':').next().unwrap_or(""));
    hosts.into_iter().find_map(|host| {
        let host = host.strip_suffix(".cn").unwrap_or(host);
        let (_, region) = host.strip_suffix(".amazonaws.com")?.rsplit_once('.')?;
        (!region.is_empty()).then_some(region)
    })
}

impl Iam {
    /// A token and how long it is good. Blocks where credentials have to be asked for.
    pub fn token(
        &self,
        env: &Env,
        patience: Duration,
    ) -> Result<(String, Option<Duration>), TokenError> {
        let provider = self.provider(cloud_settings().collect())?;
        let asked = env.blocking(|| {
            env.block_on_io(async {
                tokio::select! {
                    credential = provider.get_credential() => Some(credential),
                    () = env.sleep(patience) => None,
                }
            })
        });
        let server = || "AWS".to_owned();
        let credential = match asked {
            Some(Ok(credential)) => credential,
            Some(Err(error)) => {
                return Err(TokenError::Away { server: server(), problem: error.to_string() });
            }
            None => {
                let problem = "no answer to a question for credentials".to_owned();
                return Err(TokenError::Away { server: server(), problem });
            }
        };
        let text = token(&self.region, &credential, &compact_utc(env.now_ms()));
        Ok((text, Some(Duration::from_secs(u64::from(LIFE_S)))))
    }

    /// Who has credentials by the variables `settings`, a role of the machine among them.
    fn provider(
        &self,
        settings: HashMap<String, String>,
    ) -> Result<AwsCredentialProvider, TokenError> {
        // A store's builder knows all the places that credentials come from.
        let mut builder = AmazonS3Builder::new().with_bucket_name("none").with_region(&self.region);
        for (key, value) in &settings {
            if let Ok(key) = key.to_ascii_lowercase().parse() {
                builder = builder.with_config(key, value);
            }
        }
        let store = builder.build();
        let store = store.map_err(|error| TokenError::Aws { problem: error.to_string() })?;
        Ok(store.credentials().clone())
    }
}

/// The token of `credential` at `time`, as in `20260101T000000Z`.
fn token(region: &str, credential: &AwsCredential, time: &str) -> String {
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    let host = format!("kafka.{region}.{domain}");
    let day = &time[..8];
    let scope = format!("{day}/{region}/{SERVICE}/aws4_request");
    let mut query = vec![
        ("Action", format!("{SERVICE}:Connect")),
        ("X-Amz-Algorithm", ALGORITHM.to_owned()),
        ("X-Amz-Credential", format!("{}/{scope}", credential.key_id)),
        ("X-Amz-Date", time.to_owned()),
        ("X-Amz-Expires", LIFE_S.to_string()),
    ];
    // Parameters are signed in the order of their names.
    query.extend(credential.token.clone().map(|token| ("X-Amz-Security-Token", token)));
    query.push(("X-Amz-SignedHeaders", "host".to_owned()));
    let query: Vec<String> =
        query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let query = query.join("&");
    let nothing = hex(digest::digest(&digest::SHA256, b"").as_ref());
    let request = format!("GET\n/\n{query}\nhost:{host}\n\nhost\n{nothing}");
    let request = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
    let to_sign = format!("{ALGORITHM}\n{time}\n{scope}\n{request}");
    let first = format!("AWS4{}", credential.secret_key).into_bytes();
    let parts = [day, region, SERVICE, "aws4_request", to_sign.as_str()];
    let signature = parts.iter().fold(first, |key, part| sign(&key, part));
    let signature = hex(&signature);
    let agent = encoded(AGENT);
    let url = format!("https://{host}/?{query}&X-Amz-Signature={signature}&User-Agent={agent}");
    URL_SAFE_NO_PAD.encode(url)
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// As AWS wants values encoded: all but letters, digits, `-`, `.`, `_` and `~`.
fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What AWS's own signer for Python gives for the same moment.
    #[test]
    fn a_token_is_signed_as_aws_does_it() {
        for (session, signature) in [
            (None, "041523979242934edc439edc0e42cc9fc52e5860527af3c5ed4e8e970b879f7d"),
            (
                Some("session/token+="),
                "d41908e5d7f3324d80dea67f800dd5535d5eca582b96831a4f7ca14c9e2cc3ac",
            ),
        ] {
            let credential = AwsCredential {
                key_id: "AKIDEXAMPLE".to_owned(),
                secret_key: "wJalrXUtnFEMI/K7MDENG".to_owned(),
                token: session.map(str::to_owned),
            };
            let token = token("eu-west-1", &credential, "20260101T000000Z");
            let url = String::from_utf8(URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap();
            let (url, rest) = url.split_once("&X-Amz-Signature=").unwrap();
            assert!(
                url.starts_with(
                    "https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&\
                     X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20260101%2F\
                     eu-west-1%2Fkafka-cluster%2Faws4_request&X-Amz-Date=20260101T000000Z&\
                     X-Amz-Expires=900&"
                ),
                "{url}"
            );
            assert_eq!(rest.split_once('&').unwrap().0, signature);
        }
    }

    #[test]
    fn the_region_is_in_the_names_of_brokers() {
        for (servers, region) in [
            ("b-1.x.abc.c2.kafka.eu-west-1.amazonaws.com:9098", Some("eu-west-1")),
            ("boot-x.c1.kafka-serverless.us-east-1.amazonaws.com:9098,b", Some("us-east-1")),
            ("localhost:9092, b-1.x.kafka.cn-north-1.amazonaws.com.cn:9098", Some("cn-north-1")),
            ("broker:9092", None),
            (".amazonaws.com", None),
        ] {
            assert_eq!(region_of(servers), region, "{servers}");
        }
    }
}
