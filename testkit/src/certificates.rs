//! Certificates for TLS, made by OpenSSL when a test begins.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::program;

/// What to do where OpenSSL is missing.
const REMEDY: &str = "install OpenSSL: apt-get install openssl";

/// Certificates that one authority has issued.
pub struct Authority {
    directory: PathBuf,
}

/// A certificate, its key, and that of the authority, in PEM.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority's certificate.
    pub ca: PathBuf,
}

impl Authority {
    /// A new authority, whose files are in `directory`.
    pub fn new(directory: &Path) -> Result<Self, Error> {
        fs::create_dir_all(directory).map_err(Error::file("create", directory))?;
        let authority = Self { directory: directory.to_owned() };
        let mut request = openssl("req");
        request.args(["-x509", "-nodes", "-days", "2", "-subj", "/CN=authority"]);
        request.args(NEW_KEY).arg("-keyout").arg(authority.at("ca.key"));
        request.arg("-out").arg(authority.at("ca.pem"));
        program::run("making an authority", request, REMEDY)?;
        Ok(authority)
    }

    /// Its certificate, which clients have to trust.
    pub fn certificate(&self) -> PathBuf {
        self.at("ca.pem")
    }

    /// A certificate for `names`, as in `IP:127.0.0.1,DNS:localhost`.
    pub fn issue(&self, names: &str) -> Result<Files, Error> {
        let extensions = self.at("names");
        fs::write(&extensions, format!("subjectAltName={names}\n"))
            .map_err(Error::file("write", &extensions))?;
        let mut request = openssl("req");
        request.args(["-nodes", "-subj", "/CN=part"]).args(NEW_KEY);
        request.arg("-keyout").arg(self.at("part.key")).arg("-out").arg(self.at("part.csr"));
        program::run("asking for a certificate", request, REMEDY)?;
        let mut issue = openssl("x509");
        issue.args(["-req", "-days", "2", "-CAcreateserial"]);
        issue.arg("-in").arg(self.at("part.csr")).arg("-extfile").arg(&extensions);
        issue.arg("-CA").arg(self.at("ca.pem")).arg("-CAkey").arg(self.at("ca.key"));
        issue.arg("-out").arg(self.at("part.pem"));
        program::run("issuing a certificate", issue, REMEDY)?;
        Ok(Files { cert: self.at("part.pem"), key: self.at("part.key"), ca: self.at("ca.pem") })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

const NEW_KEY: [&str; 4] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];

fn openssl(command: &str) -> Command {
    let mut openssl = Command::new("openssl");
    openssl.arg(command);
    openssl
}
