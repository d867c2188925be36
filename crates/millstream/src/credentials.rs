//! What a process shows the parts of a cluster, from its flags and its environment.

use std::path::Path;

use millstream_query::cluster::error::ClusterError;
use millstream_query::cluster::security::{Security, Token};
use millstream_query::cluster::tls::TlsFiles;

/// The variable that has a cluster's token where no file has it.
const TOKEN: &str = "MILLSTREAM_TOKEN";

/// What `token_file`, or else the environment, and the files of TLS say.
///
/// # Errors
/// Files that cannot be read, or that do not have what they should.
pub fn security(token_file: Option<&Path>, tls: &TlsFiles) -> Result<Security, ClusterError> {
    let text = match token_file {
        None => std::env::var(TOKEN).ok().filter(|text| !text.is_empty()),
        Some(file) => Some(std::fs::read_to_string(file).map_err(|error| {
            let problem = format!("cannot be read: {error}");
            ClusterError::File { path: file.display().to_string(), problem }
        })?),
    };
    let token = text.map(|text| Token::new(&text)).transpose()?;
    Security::new(token, tls)
}
