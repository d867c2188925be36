//! Where credentials are: in a table's options, in a file, or with the metadata server.

use std::path::{Path, PathBuf};

use millstream_engine::api::needs::Need;
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use serde::Deserialize;

use super::error::CredentialsError;
use super::key::ServiceAccount;

/// The variable with the path of a key file.
const FILE_VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// The variable that moves the metadata server, as other clients have it.
const METADATA_VARIABLE: &str = "GCE_METADATA_HOST";
const METADATA_HOST: &str = "metadata.google.internal";
/// Where an account's key is exchanged for a token, unless its file says another place.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";

const fn both(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Both, about }
}

/// The options that say who asks; they are the same for all of Google Cloud.
pub const OPTIONS: [OptionSpec; 6] = [
    both("projectId", "the project (default: that of the credentials)"),
    both("credentialsFile", "the key file of a service account, or of a user"),
    both("clientEmail", "the service account, with 'privateKey', where there is no key file"),
    both("clientId", "the service account's number; not needed, and accepted as Spark has it"),
    both("privateKey", "its private key, in PEM"),
    both("privateKeyId", "the id of that key"),
];

/// Where a table's credentials are, as its options and the process's environment say.
#[derive(Clone, Debug)]
pub enum Place {
    /// In the options themselves.
    Options {
        /// The service account.
        email: String,
        /// Its key in PEM.
        private_key: String,
        /// The key's id.
        key_id: Option<String>,
    },
    /// In a file.
    File(PathBuf),
    /// With the metadata server of the machine.
    Metadata {
        /// Its host.
        host: String,
    },
}

impl Place {
    /// What the options say, with relative paths relative to `base_dir`; else what the environment
    /// says, else the file that `gcloud auth application-default login` writes, else the metadata
    /// server. Nothing is read yet.
    ///
    /// # Errors
    /// Options that contradict each other, or of which one is missing.
    pub fn parse(options: &Options, base_dir: &Path) -> Result<Self, OptionError> {
        let (email, key) = (options.get("clientEmail"), options.get("privateKey"));
        let file = options.get("credentialsFile");
        match (email, key, file) {
            (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
                let problem =
                    "'credentialsFile' and 'clientEmail' with 'privateKey' are both given";
                Err(OptionError::of("credentialsFile", problem, Some("leave one out".to_owned())))
            }
            (Some(email), Some(private_key), None) => Ok(Self::Options {
                email: email.to_owned(),
                private_key: private_key.to_owned(),
                key_id: options.get("privateKeyId").map(str::to_owned),
            }),
            (Some(_), None, None) => {
                Err(OptionError::missing("privateKey", "it goes with 'clientEmail'"))
            }
            (None, Some(_), None) => {
                Err(OptionError::missing("clientEmail", "it goes with 'privateKey'"))
            }
            (None, None, Some(file)) => Ok(Self::File(base_dir.join(file))),
            (None, None, None) => Ok(Self::of_environment()),
        }
    }

    /// What getting a token needs.
    pub fn needs(&self) -> Vec<Need> {
        let token = || Need::server("oauth2.googleapis.com:443", "tokens for the account");
        match self {
            Self::Options { .. } => vec![token()],
            Self::File(path) => vec![Need::reads(path.display(), "the account's key"), token()],
            Self::Metadata { host } => {
                vec![Need::server(format!("{host}:80"), "tokens for the machine's account")]
            }
        }
    }

    fn of_environment() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|text: &String| !text.is_empty());
        if let Some(file) = variable(FILE_VARIABLE) {
            return Self::File(file.into());
        }
        let configuration = variable("CLOUDSDK_CONFIG").map(PathBuf::from);
        let home = || variable("HOME").map(|home| Path::new(&home).join(".config/gcloud"));
        let file = configuration.or_else(home);
        let file = file.map(|directory| directory.join("application_default_credentials.json"));
        match file.filter(|file| file.is_file()) {
            Some(file) => Self::File(file),
            None => {
                let host = variable(METADATA_VARIABLE);
                Self::Metadata { host: host.unwrap_or_else(|| METADATA_HOST.to_owned()) }
            }
        }
    }
}

/// Who asks.
pub(super) enum Account {
    Service(Box<ServiceAccount>),
    User(User),
    Metadata { host: String },
}

/// What `gcloud auth application-default login` leaves.
#[derive(Deserialize)]
pub(super) struct User {
    pub(super) client_id: String,
    pub(super) client_secret: String,
    pub(super) refresh_token: String,
    #[serde(default = "token_uri")]
    pub(super) token_uri: String,
}

#[derive(Deserialize)]
struct KeyFile {
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    #[serde(default = "token_uri")]
    token_uri: String,
}

#[derive(Deserialize)]
struct AnyFile {
    r#type: String,
    project_id: Option<String>,
    quota_project_id: Option<String>,
}

fn token_uri() -> String {
    TOKEN_URI.to_owned()
}

/// Reads what is at `place`: the account, and the project if it is said there.
pub(super) fn read(place: &Place) -> Result<(Account, Option<String>), CredentialsError> {
    match place {
        Place::Options { email, private_key, key_id } => {
            let account = ServiceAccount::new(email, private_key, key_id.clone(), TOKEN_URI)?;
            Ok((Account::Service(Box::new(account)), None))
        }
        Place::Metadata { host } => Ok((Account::Metadata { host: host.clone() }, None)),
        Place::File(path) => read_file(path),
    }
}

fn read_file(path: &Path) -> Result<(Account, Option<String>), CredentialsError> {
    let bytes = std::fs::read(path);
    let bytes = bytes.map_err(|error| CredentialsError::unreadable(path.to_owned(), &error))?;
    // What does not parse is not shown: it may be a key.
    let malformed = |error: serde_json::Error| {
        let problem = format!("line {}: not the JSON of credentials", error.line());
        CredentialsError::file(path.to_owned(), &problem)
    };
    let any: AnyFile = serde_json::from_slice(&bytes).map_err(malformed)?;
    let account = match any.r#type.as_str() {
        "service_account" => {
            let file: KeyFile = serde_json::from_slice(&bytes).map_err(malformed)?;
            let (email, key) = (&file.client_email, &file.private_key);
            let id = file.private_key_id;
            Account::Service(Box::new(ServiceAccount::new(email, key, id, &file.token_uri)?))
        }
        "authorized_user" => Account::User(serde_json::from_slice(&bytes).map_err(malformed)?),
        other => {
            let (path, found) = (path.to_owned(), other.to_owned());
            return Err(CredentialsError::Unsupported { path, found });
        }
    };
    Ok((account, any.project_id.or(any.quota_project_id)))
}
