//! Where a registry is, who asks it, and who is trusted.

use std::fmt;
use std::path::PathBuf;

use crate::error::RegistryError;

/// What there is to set.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Its URLs, tried in turn, as `https://registry:8081/path`. One may have `user:password@`,
    /// percent-encoded, where [`auth`](Self::auth) is none.
    pub urls: Vec<String>,
    /// Who asks.
    pub auth: Auth,
    /// For URLs of `https`.
    pub tls: Tls,
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Auth {
    /// Nobody in particular.
    #[default]
    None,
    /// A user (RFC 7617).
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// Whoever has a token (RFC 6750).
    Bearer {
        /// The token.
        token: String,
    },
}

/// What TLS needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Who is trusted; `None` for whom the system trusts.
    pub authorities: Option<Pem>,
    /// The client's own certificate, with those between it and its authority, and its key.
    pub own: Option<(Pem, Pem)>,
    /// False if any certificate will do.
    pub checks_certificates: bool,
}

impl Default for Tls {
    fn default() -> Self {
        Self { authorities: None, own: None, checks_certificates: true }
    }
}

/// Certificates or a key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// In a file, which is read once.
    File(PathBuf),
    /// As it is.
    Text(String),
}

impl Pem {
    /// The text.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(&self, what: &str) -> Result<Vec<u8>, RegistryError> {
        let path = match self {
            Self::Text(text) => return Ok(text.clone().into_bytes()),
            Self::File(path) => path,
        };
        std::fs::read(path).map_err(|error| RegistryError::Setting {
            what: format!("{what} in {}", path.display()),
            problem: error.to_string(),
        })
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Text(_) => f.write_str("..."),
        }
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Basic { user, .. } => write!(f, "Basic({user:?}, ...)"),
            Self::Bearer { .. } => f.write_str("Bearer(...)"),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<_> = self.urls.iter().map(|url| without_user(url)).collect();
        let mut settings = f.debug_struct("Settings");
        settings.field("urls", &urls).field("auth", &self.auth).field("tls", &self.tls).finish()
    }
}

/// `url` without user and password. It need not be a URL: a password with a slash in it makes none,
/// so all before the last `@` is taken for one.
pub fn without_user(url: &str) -> String {
    let Some((user, rest)) = url.rsplit_once('@') else { return url.to_owned() };
    match user.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://{rest}"),
        None => rest.to_owned(),
    }
}
