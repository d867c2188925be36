//! Where the brokers are, and how to be let in: the options that all tables share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::needs::Need;
use millstream_engine::api::options::{OptionError, Options};
use serde_json::Value;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::PulsarError;

const URL: &str = "service.url";
const PLUGIN: &str = "pulsar.client.authPluginClassName";
const PARAMS: &str = "pulsar.client.authParams";
const TRUSTED: &str = "pulsar.client.tlsTrustCertsFilePath";
const CERTIFICATE: &str = "pulsar.client.tlsCertificateFilePath";
const KEY: &str = "pulsar.client.tlsKeyFilePath";
const TIMEOUT: &str = "pulsar.client.operationTimeoutMs";
const TIMEOUT_MS: u64 = 30_000;
const PORT: u16 = 6650;
const TLS_PORT: u16 = 6651;

/// What a table's options say of the service.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `HOST:PORT` of each broker that may be asked first.
    pub(crate) addresses: Vec<String>,
    pub(crate) has_tls: bool,
    login: Login,
    trusted: Option<PathBuf>,
    /// The client's own certificate and its key.
    own: Option<(PathBuf, PathBuf)>,
    /// How long an answer may take.
    pub(crate) timeout: Duration,
}

#[derive(Clone)]
enum Login {
    None,
    Token(String),
    /// A file with a token, read for each connection.
    TokenFile(PathBuf),
    /// `USER:PASSWORD`.
    Basic(String),
    /// The client's certificate, which the connection shows.
    Certificate,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

impl Settings {
    /// Reads the options.
    pub(crate) fn parse(options: &Options, base_dir: &Path) -> Result<Self, OptionError> {
        let Some(url) = options.get(URL) else {
            let help = "say where the brokers are: 'service.url' = 'pulsar://HOST:6650'";
            return Err(OptionError::missing(URL, help));
        };
        let (addresses, has_tls) = addresses(url)?;
        let wanted = "a number of milliseconds, 1 or more";
        let timeout = options.parse(TIMEOUT, wanted)?.unwrap_or(TIMEOUT_MS);
        if timeout == 0 {
            return Err(OptionError::invalid(TIMEOUT, "0", wanted));
        }
        let path = |key: &str| options.get(key).map(|path| base_dir.join(path));
        let (login, shown) = login(options, base_dir)?;
        let own = match (path(CERTIFICATE), path(KEY)) {
            (None, None) if shown.is_some() => shown,
            (None, None) if matches!(login, Login::Certificate) => {
                let help = "name the client's certificate, and its key in \
                            'pulsar.client.tlsKeyFilePath'";
                return Err(OptionError::missing(CERTIFICATE, help));
            }
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => {
                let problem = "a client's certificate needs its key, and a key its certificate";
                return Err(OptionError::of(
                    CERTIFICATE,
                    problem,
                    Some(format!("set '{KEY}', too")),
                ));
            }
        };
        let trusted = path(TRUSTED);
        if !has_tls && (trusted.is_some() || own.is_some()) {
            let problem = "there are certificates, but no TLS";
            let help = "begin 'service.url' with pulsar+ssl://".to_owned();
            return Err(OptionError::of(URL, problem, Some(help)));
        }
        let timeout = Duration::from_millis(timeout);
        Ok(Self { addresses, has_tls, login, trusted, own, timeout })
    }

    /// The brokers, and the files of the connection.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let purpose = "brokers that are asked first; all that they name must be reachable, too";
        let servers = self.addresses.iter().map(|address| Need::server(address, purpose));
        let own = self.own.iter().flat_map(|(certificate, key)| [certificate, key]);
        let files = self.trusted.iter().chain(own);
        let files = files.map(|path| Need::reads(path.display(), "the connection's TLS"));
        let token = match &self.login {
            Login::TokenFile(path) => Some(Need::reads(path.display(), "the token")),
            _ => None,
        };
        servers.chain(files).chain(token).collect()
    }

    /// The name of the way to be let in, and what is shown.
    ///
    /// # Errors
    /// The file of the token cannot be read.
    pub(crate) fn credentials(&self) -> Result<Option<(&'static str, Vec<u8>)>, PulsarError> {
        Ok(match &self.login {
            Login::None => None,
            Login::Token(token) => Some(("token", token.clone().into_bytes())),
            Login::TokenFile(path) => {
                let token = std::fs::read_to_string(path).map_err(|error| PulsarError::File {
                    option: PARAMS,
                    path: path.display().to_string(),
                    problem: format!("cannot be read: {error}"),
                })?;
                Some(("token", token.trim().to_owned().into_bytes()))
            }
            Login::Basic(pair) => Some(("basic", pair.clone().into_bytes())),
            Login::Certificate => Some(("tls", Vec::new())),
        })
    }

    /// What makes connections with TLS, if they have it.
    ///
    /// # Errors
    /// A file of certificates cannot be used.
    pub(crate) fn tls(&self) -> Result<Option<TlsConnector>, PulsarError> {
        if !self.has_tls {
            return Ok(None);
        }
        let mut roots = RootCertStore::empty();
        match &self.trusted {
            Some(path) => {
                for certificate in certificates(TRUSTED, path)? {
                    let added = roots.add(certificate);
                    added.map_err(|error| unusable(TRUSTED, path, error))?;
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                let (added, _) = roots.add_parsable_certificates(found.certs);
                tracing::debug!(added, "certificates of the system");
            }
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = match &self.own {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(CERTIFICATE, certificate)?;
                let private = PrivateKeyDer::from_pem_file(key);
                let private = private.map_err(|error| unusable(KEY, key, error))?;
                let config = config.with_client_auth_cert(chain, private);
                config.map_err(|error| unusable(CERTIFICATE, certificate, error))?
            }
        };
        Ok(Some(TlsConnector::from(Arc::new(config))))
    }

    /// The service, for people.
    pub(crate) fn shown(&self) -> String {
        self.addresses.join(",")
    }
}

fn certificates(
    option: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, PulsarError> {
    let found =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found: Vec<_> = found.map_err(|error| unusable(option, path, error))?;
    if found.is_empty() {
        return Err(unusable(option, path, "there is no certificate in it"));
    }
    Ok(found)
}

fn unusable(option: &'static str, path: &Path, error: impl std::fmt::Display) -> PulsarError {
    let problem = format!("cannot be used: {error}");
    PulsarError::File { option, path: path.display().to_string(), problem }
}

/// `HOST:PORT` of each address of `pulsar://HOST:PORT,HOST:PORT`, and whether there is TLS.
pub(crate) fn addresses(url: &str) -> Result<(Vec<String>, bool), OptionError> {
    let invalid = || OptionError::invalid(URL, url, "pulsar://HOST:PORT, or pulsar+ssl:// for TLS");
    let text = url.trim().trim_end_matches('/');
    let (rest, has_tls) = match (text.strip_prefix("pulsar://"), text.strip_prefix("pulsar+ssl://"))
    {
        (Some(rest), _) => (rest, false),
        (_, Some(rest)) => (rest, true),
        _ => return Err(invalid()),
    };
    let port = if has_tls { TLS_PORT } else { PORT };
    let address = |text: &str| {
        let text = text.trim();
        let after_host = text.rsplit_once(']').map_or(text, |(_, after)| after);
        let is_plain = !text.is_empty() && !text.contains(['/', '@', ' ', '?']);
        match after_host.rsplit_once(':') {
            _ if !is_plain => Err(invalid()),
            None => Ok(format!("{text}:{port}")),
            Some((_, number)) if number.parse::<u16>().is_ok() => Ok(text.to_owned()),
            Some(_) => Err(invalid()),
        }
    };
    let addresses = rest.split(',').map(address).collect::<Result<Vec<_>, _>>()?;
    Ok((addresses, has_tls))
}

/// How to be let in, and a certificate with its key where the parameters name one.
fn login(
    options: &Options,
    base_dir: &Path,
) -> Result<(Login, Option<(PathBuf, PathBuf)>), OptionError> {
    let (plugin, params) = (options.get(PLUGIN), options.get(PARAMS));
    let class = plugin.map(|name| name.rsplit('.').next().unwrap_or(name).trim());
    let Some(class) = class else {
        if params.is_some() {
            let help = "for a token write org.apache.pulsar.client.impl.auth.AuthenticationToken";
            return Err(OptionError::missing(PLUGIN, help));
        }
        return Ok((Login::None, None));
    };
    let params = params.unwrap_or_default().trim();
    let object: Option<Value> = serde_json::from_str(params).ok().filter(Value::is_object);
    let field = |name: &str| Some(object.as_ref()?.get(name)?.as_str()?.to_owned());
    match class.to_ascii_lowercase().as_str() {
        "authenticationtoken" | "token" => {
            let wrong = "'pulsar.client.authParams' has no token";
            let help = "write 'token:...', or 'file:///PATH' of a file that has it".to_owned();
            if let Some(path) = params.strip_prefix("file:") {
                let path = path.strip_prefix("//").unwrap_or(path);
                return Ok((Login::TokenFile(base_dir.join(path)), None));
            }
            let token = field("token").unwrap_or_else(|| {
                params.strip_prefix("token:").unwrap_or(params).trim().to_owned()
            });
            if token.is_empty() || token.starts_with('{') {
                return Err(OptionError::of(PARAMS, wrong, Some(help)));
            }
            Ok((Login::Token(token), None))
        }
        "authenticationbasic" | "basic" => {
            let pair = field("userId").zip(field("password"));
            let pair = pair.map(|(user, password)| format!("{user}:{password}"));
            pair.map(|pair| (Login::Basic(pair), None)).ok_or_else(|| {
                let problem = "'pulsar.client.authParams' has no user and password";
                let help = "write '{\"userId\":\"...\",\"password\":\"...\"}'".to_owned();
                OptionError::of(PARAMS, problem, Some(help))
            })
        }
        "authenticationtls" | "tls" => {
            let named = |name: &str| {
                let mut pairs = params.split(',').filter_map(|pair| pair.split_once(':'));
                let found = pairs.find(|(key, _)| key.trim() == name);
                let path = field(name).or_else(|| found.map(|(_, path)| path.trim().to_owned()));
                path.map(|path| base_dir.join(path))
            };
            Ok((Login::Certificate, named("tlsCertFile").zip(named("tlsKeyFile"))))
        }
        "authenticationdisabled" => Ok((Login::None, None)),
        _ => {
            let problem = format!("there is no way '{class}' here to be let in");
            let help = "AuthenticationToken, AuthenticationBasic and AuthenticationTls are known";
            Err(OptionError::of(PLUGIN, problem, Some(help.to_owned())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[(&str, &str)]) -> Result<Settings, OptionError> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Settings::parse(&Options::new(entries.iter().map(owned)), Path::new("/base"))
    }

    #[test]
    fn addresses_have_ports() {
        let parsed = addresses("pulsar://a,b:1/").expect("it is one");
        assert_eq!(parsed, (vec!["a:6650".to_owned(), "b:1".to_owned()], false));
        let tls = addresses("pulsar+ssl://[::1]").expect("it is one");
        assert_eq!(tls, (vec!["[::1]:6651".to_owned()], true));
        for wrong in
            ["a:6650", "http://a", "pulsar://", "pulsar://a:b", "pulsar://u@a", "pulsar://a/b"]
        {
            assert!(addresses(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_and_a_password_are_read_as_spark_writes_them() {
        let url = (URL, "pulsar://a");
        let token = (PLUGIN, "org.apache.pulsar.client.impl.auth.AuthenticationToken");
        for params in ["token:abc", "abc", r#"{"token":"abc"}"#] {
            let settings = parse(&[url, token, (PARAMS, params)]).expect("it is one");
            assert_eq!(settings.credentials().unwrap(), Some(("token", b"abc".to_vec())));
        }
        let basic = (PLUGIN, "org.apache.pulsar.client.impl.auth.AuthenticationBasic");
        let settings = parse(&[url, basic, (PARAMS, r#"{"userId":"u","password":"p"}"#)]);
        assert_eq!(settings.unwrap().credentials().unwrap(), Some(("basic", b"u:p".to_vec())));
        assert!(parse(&[url, basic, (PARAMS, "u:p")]).is_err());
        assert!(parse(&[url, token]).is_err());
        assert!(parse(&[url, (PARAMS, "abc")]).is_err());
        assert!(parse(&[url, (PLUGIN, "x.AuthenticationSasl")]).is_err());
        assert!(!format!("{:?}", parse(&[url, token, (PARAMS, "abc")])).contains("abc"));
    }

    #[test]
    fn a_certificate_can_be_what_lets_in() {
        let url = (URL, "pulsar+ssl://a");
        let plugin = (PLUGIN, "org.apache.pulsar.client.impl.auth.AuthenticationTls");
        let json = r#"{"tlsCertFile":"own.pem","tlsKeyFile":"own.key"}"#;
        let wanted = (PathBuf::from("/base/own.pem"), PathBuf::from("/base/own.key"));
        for params in ["tlsCertFile:own.pem,tlsKeyFile:own.key", json] {
            let settings = parse(&[url, plugin, (PARAMS, params)]).expect("it is one");
            assert_eq!(settings.credentials().unwrap(), Some(("tls", Vec::new())));
            assert_eq!(settings.own.as_ref(), Some(&wanted));
        }
        let named = [url, plugin, (CERTIFICATE, "own.pem"), (KEY, "own.key")];
        assert_eq!(parse(&named).expect("it is one").own, Some(wanted));
        assert!(parse(&[url, plugin]).is_err(), "there is no certificate");
    }

    #[test]
    fn certificates_without_tls_are_a_mistake() {
        assert!(parse(&[(URL, "pulsar://a"), (TRUSTED, "ca.pem")]).is_err());
        assert!(parse(&[(URL, "pulsar+ssl://a"), (TRUSTED, "ca.pem")]).is_ok());
        assert!(parse(&[(URL, "pulsar+ssl://a"), (KEY, "key.pem")]).is_err());
    }
}
