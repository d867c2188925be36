//! What a process shows the parts of a cluster, from its flags and its environment.

use std::path::Path;

use millstream_query::cluster::error::ClusterError;
use millstream_query::cluster::security::{Security, Token};
use millstream_query::cluster::tls::TlsFiles;

/// What `token_file`, or else the environment, and the files of TLS say.
///
/// # Errors
/// Files that cannot be read, or that do not have what they should.
pub fn security(token_file: Option<&Path>, tls: &TlsFiles) -> Result<Security, ClusterError> {
    let given = token_file.map(token).transpose()?;
    let token = Token::or_variable(given, |name| std::env::var(name).ok())?;
    Security::new(token, tls)
}

/// The token in `file`.
///
/// # Errors
/// A file that cannot be read, and as [`Token::new`].
pub fn token(file: &Path) -> Result<Token, ClusterError> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let problem = format!("cannot be read: {error}");
        ClusterError::File { path: file.display().to_string(), problem }
    })?;
    Token::new(&text)
}
