//! The options of logins by tokens, under librdkafka's names and those of Kafka's and AWS's Java
//! clients. librdkafka itself gets tokens, and none of these.

use std::collections::BTreeMap;
use std::path::PathBuf;

use millstream_engine::api::options::OptionError;
use millstream_store::{secrets, storage::cloud_settings};

use crate::protocol::tls::Pem;
use crate::tokens::{Endpoint, Iam, Issuer, Tokens, region_of};

/// The mechanism of AWS's library for Java; by OAUTHBEARER brokers take the same credentials.
pub(super) const AWS_MSK_IAM: &str = "AWS_MSK_IAM";
/// Where tokens are asked for.
const URL: &str = "sasl.oauthbearer.token.endpoint.url";
const ID: &str = "sasl.oauthbearer.client.id";
const SECRET: &str = "sasl.oauthbearer.client.secret";
const SCOPE: &str = "sasl.oauthbearer.scope";
const EXTENSIONS: &str = "sasl.oauthbearer.extensions";
const METHOD: &str = "sasl.oauthbearer.method";
const AUTHORITIES: &str = "https.ca.location";
const AUTHORITIES_TEXT: &str = "https.ca.pem";
/// A region that is not in the names of the brokers.
const REGION: &str = "aws.region";
/// Names of Kafka 4.
const ALIASES: [(&str, &str); 2] = [
    ("sasl.oauthbearer.client.credentials.client.id", ID),
    ("sasl.oauthbearer.client.credentials.client.secret", SECRET),
];
const KEYS: [&str; 9] =
    [URL, ID, SECRET, SCOPE, EXTENSIONS, METHOD, AUTHORITIES, AUTHORITIES_TEXT, REGION];
/// Settings that name code of Java's, which gets tokens.
const HANDLERS: [&str; 2] =
    ["sasl.login.callback.handler.class", "sasl.client.callback.handler.class"];
/// The end of the name of Kafka's own code, and a part of those of AWS's.
const OWN_HANDLER: &str = ".OAuthBearerLoginCallbackHandler";
const AWS_HANDLERS: &str = "software.amazon.msk.auth.iam.";

/// What was set of them, under the names above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TokenOptions {
    set: BTreeMap<&'static str, String>,
    /// A handler of AWS's library was named.
    is_iam: bool,
}

impl TokenOptions {
    /// Takes a setting, without its prefix; false if it is none of these.
    ///
    /// # Errors
    /// It names code that cannot run here.
    pub fn take(&mut self, key: &str, value: &str) -> Result<bool, OptionError> {
        if HANDLERS.contains(&key) {
            let class = value.trim();
            let is_aws = class.starts_with(AWS_HANDLERS);
            if !is_aws && !class.ends_with(OWN_HANDLER) {
                let problem = format!("'{class}' is Java code and cannot run here");
                let help = "Leave it out, and say where tokens come from with \
                            'kafka.sasl.oauthbearer.token.endpoint.url'";
                return Err(OptionError::of(&option(key), problem, Some(help.to_owned())));
            }
            self.is_iam |= is_aws;
            return Ok(true);
        }
        let alias = ALIASES.iter().find(|(alias, _)| *alias == key).map(|(_, name)| *name);
        let known = alias.or_else(|| KEYS.into_iter().find(|name| *name == key));
        if let Some(name) = known {
            if name == SECRET {
                secrets::remember(value);
            }
            self.set.insert(name, value.trim().to_owned());
        }
        Ok(known.is_some())
    }

    /// Who gives tokens, for logins by OAUTHBEARER; `servers` are the brokers.
    ///
    /// # Errors
    /// An option is missing or cannot be.
    pub fn tokens(&self, is_iam: bool, servers: &str) -> Result<Tokens, OptionError> {
        let extensions = self.extensions()?;
        if is_iam || self.is_iam {
            return Ok(Tokens::new(Issuer::Iam(self.iam(servers)?), extensions));
        }
        if let Some(method) = self.set.get(METHOD)
            && !method.eq_ignore_ascii_case("oidc")
        {
            let option = option(METHOD);
            return Err(OptionError::invalid(&option, method, "'oidc'"));
        }
        let Some(url) = self.set.get(URL) else {
            let help = "Say where tokens come from: the token endpoint of the identity provider \
                        (https://...), or a file (file:///...)";
            return Err(OptionError::missing(&option(URL), help));
        };
        if let Some(path) = url.strip_prefix("file://") {
            return Ok(Tokens::new(Issuer::File(PathBuf::from(path)), extensions));
        }
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err(OptionError::invalid(&option(URL), url, "https://... or file:///..."));
        }
        let required = |key: &str| match self.set.get(key) {
            Some(value) => Ok(value.clone()),
            None => Err(OptionError::missing(&option(key), "Say who asks for tokens")),
        };
        let text = self.set.get(AUTHORITIES_TEXT).cloned().map(Pem::Text);
        let authorities =
            text.or_else(|| self.set.get(AUTHORITIES).map(|path| Pem::At(path.into())));
        let (url, scope) = (url.clone(), self.set.get(SCOPE).cloned());
        let (id, secret) = (required(ID)?, required(SECRET)?);
        let endpoint = Endpoint { url, id, secret, scope, authorities };
        Ok(Tokens::new(Issuer::Endpoint(endpoint), extensions))
    }

    fn iam(&self, servers: &str) -> Result<Iam, OptionError> {
        let variable = |wanted: &str| {
            let found = cloud_settings().find(|(name, value)| name == wanted && !value.is_empty());
            found.map(|(_, value)| value)
        };
        let region = self.set.get(REGION).cloned();
        let region = region.or_else(|| region_of(servers).map(str::to_owned));
        let region = region.or_else(|| variable("AWS_REGION"));
        match region.or_else(|| variable("AWS_DEFAULT_REGION")) {
            Some(region) => Ok(Iam { region }),
            None => {
                let help = "The brokers' names do not say in which region of AWS they are";
                Err(OptionError::missing(&option(REGION), help))
            }
        }
    }

    fn extensions(&self) -> Result<Vec<(String, String)>, OptionError> {
        let Some(text) = self.set.get(EXTENSIONS) else { return Ok(Vec::new()) };
        let pair = |part: &str| {
            let (name, value) = part.split_once('=')?;
            let (name, value) = (name.trim(), value.trim());
            // RFC 7628, 3.1; `auth` is the token's own.
            let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
            let is_value = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
            (is_name && is_value && name != "auth").then(|| (name.to_owned(), value.to_owned()))
        };
        let parts = text.split(',').filter(|part| !part.trim().is_empty());
        parts.map(pair).collect::<Option<_>>().ok_or_else(|| {
            OptionError::invalid(&option(EXTENSIONS), text, "as in 'name=value,other=value'")
        })
    }
}

fn option(key: &str) -> String {
    format!("kafka.{key}")
}
