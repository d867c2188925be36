//! TLS to a broker.
//!
//! Files are read for each connection, so that a certificate that was renewed counts from the next
//! one on.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    RootCertStore, SignatureScheme, StreamOwned,
};

use super::refusal::Refusal;

/// Certificates or a key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// In a file, or certificates in a directory as OpenSSL has them: under the hashes of their
    /// names, as in `9d66eef0.0`.
    At(PathBuf),
    /// As it is. Not shown, since it may be a key.
    Text(String),
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(path) => path.fmt(f),
            Self::Text(_) => f.write_str("..."),
        }
    }
}

/// What TLS needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Who is trusted; `None` for whom the system trusts.
    pub authorities: Option<Pem>,
    /// The client's own certificate and key.
    pub own: Option<(Pem, Pem)>,
    /// True if a certificate has to be for the name that is connected to.
    pub checks_names: bool,
    /// False if any certificate will do.
    pub checks_certificates: bool,
}

/// Begins TLS with `host` over `stream`.
///
/// # Errors
/// The connection is lost, or a [`Refusal`].
pub fn handshake(
    tls: &Tls,
    stream: TcpStream,
    host: &str,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Refusal::Tls(format!("'{host}' is no name that a certificate may have")))?;
    let config = tls.config().map_err(Refusal::Tls)?;
    let connection = ClientConnection::new(Arc::new(config), name)
        .map_err(|error| Refusal::Tls(error.to_string()))?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(refusal)?;
    }
    Ok(stream)
}

/// An error of TLS as what it means: whatever is not a lost connection stays wrong.
pub fn refusal(error: io::Error) -> io::Error {
    let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
    else {
        return error;
    };
    match inner {
        rustls::Error::InvalidMessage(_) => Refusal::Protocol(
            "the broker does not speak TLS on this port: connect to its port for TLS, or set \
             'kafka.security.protocol' to PLAINTEXT or SASL_PLAINTEXT",
        )
        .into(),
        rustls::Error::InvalidCertificate(reason) => Refusal::Tls(untrusted(reason)).into(),
        rustls::Error::PeerIncompatible(reason) => Refusal::Tls(format!(
            "the broker speaks no version or cipher that is safe ({reason:?}): it needs TLS 1.2 or \
             1.3"
        ))
        .into(),
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            Refusal::Tls("the broker does not speak TLS 1.2 or 1.3".to_owned()).into()
        }
        rustls::Error::AlertReceived(alert) => Refusal::Tls(format!(
            "the broker ends the connection ({alert:?}); where it asks for a certificate of its \
             clients, set 'kafka.ssl.certificate.location' and 'kafka.ssl.key.location'"
        ))
        .into(),
        other => Refusal::Tls(other.to_string()).into(),
    }
}

fn untrusted(reason: &CertificateError) -> String {
    match reason {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the broker's certificate is from an authority that is \
             not trusted: name its certificate in 'kafka.ssl.ca.location'"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "{reason}; where that is meant to be, set \
                 'kafka.ssl.endpoint.identification.algorithm' to none"
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the broker's certificate is refused: {reason}; it has to be renewed")
        }
        other => format!(
            "the broker's certificate is refused: {other}; it has to be one of X.509 version 3 \
             for the broker alone, with its names as subjectAltName, and not the authority's own"
        ),
    }
}

impl Tls {
    fn config(&self) -> Result<ClientConfig, String> {
        let builder = ClientConfig::builder();
        let builder = match (self.checks_certificates, self.checks_names) {
            (true, true) => builder.with_root_certificates(self.roots()?),
            (checks_certificates, _) => builder
                .dangerous()
                .with_custom_certificate_verifier(self.lenient(checks_certificates)?),
        };
        let config = match &self.own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let certificates = certificates(certificate)?;
                let refused = |error| format!("{key:?} cannot be used: {error}");
                let key = read_key(key)?;
                builder.with_client_auth_cert(certificates, key).map_err(refused)?
            }
        };
        Ok(config)
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, String> {
        let Some(pem) = &self.authorities else { return Ok(system_roots()) };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem)? {
            roots.add(certificate).map_err(|error| format!("{pem:?}: {error}"))?;
        }
        Ok(Arc::new(roots))
    }

    fn lenient(&self, checks_certificates: bool) -> Result<Arc<Lenient>, String> {
        let verifier = match checks_certificates {
            false => None,
            true => {
                let verifier = WebPkiServerVerifier::builder(self.roots()?).build();
                Some(verifier.map_err(|error| format!("authorities: {error}"))?)
            }
        };
        let algorithms = rustls::crypto::ring::default_provider();
        let algorithms = algorithms.signature_verification_algorithms;
        Ok(Arc::new(Lenient { verifier, algorithms }))
    }
}

/// The authorities that the system trusts, read once.
fn system_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        // Some systems have old certificates in a form that is not read any more.
        roots.add_parsable_certificates(found.certs);
        Arc::new(roots)
    };
    Arc::clone(ROOTS.get_or_init(read))
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut found = Vec::new();
    for (place, text) in texts(pem)? {
        for certificate in CertificateDer::pem_slice_iter(&text) {
            found.push(certificate.map_err(|error| format!("{place} is not in PEM: {error}"))?);
        }
    }
    if found.is_empty() {
        return Err(format!("{pem:?} has no certificate in PEM"));
    }
    Ok(found)
}

fn read_key(pem: &Pem) -> Result<PrivateKeyDer<'static>, String> {
    let mut texts = texts(pem)?;
    let (place, text) = texts.pop().filter(|_| texts.is_empty()).ok_or("one key is needed")?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| format!("{place} has no key: {error}"))
}

/// What is there, with what to call it in an error.
fn texts(pem: &Pem) -> Result<Vec<(String, Vec<u8>)>, String> {
    let path = match pem {
        Pem::Text(text) => return Ok(vec![("the option".to_owned(), text.clone().into_bytes())]),
        Pem::At(path) => path,
    };
    let read = |path: &Path| {
        let place = path.display().to_string();
        let text = fs::read(path).map_err(|error| format!("{place}: {error}"))?;
        Ok::<_, String>((place, text))
    };
    if !path.is_dir() {
        return Ok(vec![read(path)?]);
    }
    let failed = |error| format!("{}: {error}", path.display());
    let mut all = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_str().is_some_and(is_hash) {
            all.push(read(&entry.path())?);
        }
    }
    Ok(all)
}

/// Whether OpenSSL would look at a file of this name in a directory of authorities.
fn is_hash(name: &str) -> bool {
    name.split_once('.').is_some_and(|(hash, number)| {
        hash.len() == 8
            && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Certificates for any name, or any certificate at all, as the options ask for.
#[derive(Debug)]
struct Lenient {
    /// What checks all but the name; `None` if any certificate will do.
    verifier: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(verifier) = &self.verifier else { return Ok(ServerCertVerified::assertion()) };
        // The name is checked last, once all else is right.
        match verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
