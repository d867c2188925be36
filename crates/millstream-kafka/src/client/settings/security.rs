//! How clients are let in: names of Java's clients become librdkafka's, and what cannot be is said
//! before anybody connects.

use millstream_engine::api::options::{OptionError, Options};

use super::token_options::AWS_MSK_IAM;
use super::{ClientSettings, Converted};
use crate::protocol::login::OAUTHBEARER;

const MECHANISM: &str = "kafka.sasl.mechanism";
const MECHANISMS: [&str; 5] = ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", OAUTHBEARER, AWS_MSK_IAM];

/// Stores of the Java client that are files in PEM. The others are its own formats, of which
/// librdkafka reads PKCS#12 for the key.
#[derive(Clone, Copy, Default)]
pub(super) struct PemStores {
    trust: bool,
    key: bool,
}

impl PemStores {
    pub(super) fn of(options: &Options) -> Self {
        let is_pem = |key: &str| {
            let of = |(spelled, _): &(&str, &str)| spelled.eq_ignore_ascii_case(key);
            let found = options.iter().find(of);
            found.is_some_and(|(_, value)| value.trim().eq_ignore_ascii_case("PEM"))
        };
        Self { trust: is_pem("kafka.ssl.truststore.type"), key: is_pem("kafka.ssl.keystore.type") }
    }

    /// What becomes of a setting of a store in PEM.
    pub(super) fn convert(self, key: &str, value: &str) -> Option<Converted> {
        let several = |keys: &[&str]| {
            let setting = |key: &&str| ((*key).to_owned(), value.to_owned());
            Some(Converted::Several(keys.iter().map(setting).collect()))
        };
        match key {
            "ssl.truststore.type" if self.trust => several(&[]),
            "ssl.truststore.location" if self.trust => several(&["ssl.ca.location"]),
            "ssl.keystore.type" if self.key => several(&[]),
            "ssl.keystore.type" if value.trim().eq_ignore_ascii_case("PKCS12") => several(&[]),
            // The key and its certificate are in one file.
            "ssl.keystore.location" if self.key => {
                several(&["ssl.key.location", "ssl.certificate.location"])
            }
            _ => None,
        }
    }
}

impl ClientSettings {
    /// Checks what needs TLS, and how the user is known.
    pub(super) fn check_security(&self) -> Result<(), OptionError> {
        self.check_mechanism()?;
        if cfg!(feature = "tls") {
            return Ok(());
        }
        let problem = |key: &str, value: &str| {
            let problem = format!("'{key}' = '{value}' needs TLS, which this build does not have");
            let help = "Build Millstream with the feature 'kafka-tls' \
                        (cargo build --features kafka-tls), or use PLAINTEXT or SASL_PLAINTEXT \
                        with PLAIN";
            OptionError::of(key, problem, Some(help.to_owned()))
        };
        if let Some(protocol) = self.get("security.protocol")
            && protocol.to_ascii_lowercase().ends_with("ssl")
        {
            return Err(problem("kafka.security.protocol", protocol));
        }
        let mechanism = self.get("sasl.mechanism").or(self.get("sasl.mechanisms"));
        if let Some(mechanism) = mechanism
            && (mechanism.to_ascii_uppercase().starts_with("SCRAM")
                || mechanism.eq_ignore_ascii_case(OAUTHBEARER))
        {
            return Err(problem("kafka.sasl.mechanism", mechanism));
        }
        Ok(())
    }

    /// librdkafka's default is GSSAPI, and that it cannot be had is an error only when the client
    /// is made, which names no option.
    fn check_mechanism(&self) -> Result<(), OptionError> {
        let protocol = self.get("security.protocol").unwrap_or_default();
        if !protocol.trim().to_ascii_lowercase().starts_with("sasl") {
            return Ok(());
        }
        let known = MECHANISMS.join(", ");
        let Some(mechanism) = self.get("sasl.mechanism").or(self.get("sasl.mechanisms")) else {
            let help = format!("Say how the user is known to the brokers: one of {known}");
            return Err(OptionError::missing(MECHANISM, &help));
        };
        if MECHANISMS.contains(&mechanism.trim().to_ascii_uppercase().as_str()) {
            return Ok(());
        }
        let problem = format!("'{MECHANISM}' = '{mechanism}' is not supported");
        let help = format!(
            "It may be one of {known}. Brokers that ask for Kerberos often have \
             another listener for SCRAM, or for certificates ('kafka.security.protocol' = 'SSL')"
        );
        Err(OptionError::of(MECHANISM, problem, Some(help)))
    }
}

/// What a line of Java's says of the user.
///
/// # Errors
/// Its login module is not known, or names no user.
pub(super) fn jaas(spelled: &str, value: &str) -> Result<Converted, OptionError> {
    let setting = |(key, value): (&str, String)| (key.to_owned(), value);
    if value.contains("OAuthBearerLoginModule") {
        return Ok(Converted::Several(token_settings(value)));
    }
    if value.contains("IAMLoginModule") {
        return iam(spelled, value);
    }
    match (field(value, "username"), field(value, "password")) {
        (Some(user), Some(password)) => {
            let both = [("sasl.username", user), ("sasl.password", password)];
            Ok(Converted::Several(both.map(setting).into()))
        }
        _ => {
            let problem = format!("'{spelled}' names no username and password");
            let help = "Use 'kafka.sasl.username' and 'kafka.sasl.password' instead".to_owned();
            Err(OptionError::of(spelled, problem, Some(help)))
        }
    }
}

/// A field of a line, which has quotation marks.
fn field(line: &str, name: &str) -> Option<String> {
    fields(line).find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
}

/// The fields of a line, as in `name="value"`.
fn fields(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let (before, after) = rest.split_once('=')?;
        let name = before.split_whitespace().next_back().unwrap_or_default();
        let quote = after.chars().next().filter(|first| matches!(first, '"' | '\''));
        let (value, left) = match quote {
            Some(quote) => after[1..].split_once(quote)?,
            None => after.split_at(after.find([' ', ';']).unwrap_or(after.len())),
        };
        rest = left;
        Some((name, value))
    })
}

/// The settings of tokens in a line of Java's module for them.
fn token_settings(line: &str) -> Vec<(String, String)> {
    let named = |(name, value): (&str, &str)| {
        let key = match name {
            "clientId" => "sasl.oauthbearer.client.id",
            "clientSecret" => "sasl.oauthbearer.client.secret",
            "scope" => "sasl.oauthbearer.scope",
            _ => return None,
        };
        Some((key.to_owned(), value.to_owned()))
    };
    let is_extension = |(name, _): &(&str, &str)| name.starts_with("extension_");
    let (extensions, others): (Vec<_>, Vec<_>) = fields(line).partition(is_extension);
    let mut settings: Vec<_> = others.into_iter().filter_map(named).collect();
    let extension =
        |(name, value): &(&str, &str)| format!("{}={value}", name.trim_start_matches("extension_"));
    let extensions: Vec<String> = extensions.iter().map(extension).collect();
    if !extensions.is_empty() {
        settings.push(("sasl.oauthbearer.extensions".to_owned(), extensions.join(",")));
    }
    settings
}

fn iam(spelled: &str, line: &str) -> Result<Converted, OptionError> {
    let other = fields(line).find(|(name, _)| name.starts_with("aws") && *name != "awsDebugCreds");
    match other {
        None => Ok(Converted::Several(Vec::new())),
        Some((name, _)) => {
            let problem = format!("'{spelled}' has {name}, which is not supported");
            let help = "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, for \
                        example from 'aws configure export-credentials', or run where a role \
                        gives credentials";
            Err(OptionError::of(spelled, problem, Some(help.to_owned())))
        }
    }
}
