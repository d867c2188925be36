//! TLS between the parts of a cluster, from files in PEM.
//!
//! A part has a certificate with its key, and the certificates of the authorities that it trusts.
//! The system's own authorities are not trusted: a cluster's certificates are usually its owner's.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use super::error::ClusterError;

/// How long a handshake of gRPC may take.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// The files of a part, in PEM; none for a part without TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// Its certificate, followed by those between it and the authority's.
    pub cert: Option<PathBuf>,
    /// The certificate's key.
    pub key: Option<PathBuf>,
    /// The certificates of the authorities that it trusts.
    pub ca: Option<PathBuf>,
}

/// TLS as one part has it.
pub struct Tls {
    authorities: Certificate,
    connector: TlsConnector,
    served: Option<(ServerTlsConfig, TlsAcceptor)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// What `files` say; `None` if they name none.
    ///
    /// # Errors
    /// [`ClusterError::TlsHalf`], and [`ClusterError::File`] for a file that cannot be read or
    /// has something else in it.
    pub(super) fn read(files: &TlsFiles) -> Result<Option<Self>, ClusterError> {
        let TlsFiles { cert, key, ca } = files;
        if cert.is_none() && key.is_none() && ca.is_none() {
            return Ok(None);
        }
        let Some(ca) = ca else { return Err(ClusterError::TlsHalf) };
        let authorities = read(ca)?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca, &authorities)? {
            roots.add(certificate).map_err(|error| wrong(ca, error))?;
        }
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let served = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some(serves(cert, key)?),
            _ => return Err(ClusterError::TlsHalf),
        };
        let connector = TlsConnector::from(Arc::new(client));
        Ok(Some(Self { authorities: Certificate::from_pem(authorities), connector, served }))
    }

    /// How gRPC clients connect.
    pub(super) fn client(&self) -> ClientTlsConfig {
        ClientTlsConfig::new().ca_certificate(self.authorities.clone())
    }

    /// How gRPC servers are connected to, if the part has a certificate.
    pub(super) fn identity(&self) -> Option<ServerTlsConfig> {
        self.served.as_ref().map(|(config, _)| config.clone())
    }

    /// A connection by TLS over `stream`, to the part at `HOST:PORT`.
    ///
    /// # Errors
    /// A certificate of an authority that is not trusted, or for another host.
    pub(super) async fn connect(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        self.connector.connect(name, stream).await
    }

    /// What makes connections over which the part is asked by HTTP/1.1.
    ///
    /// # Errors
    /// [`ClusterError::TlsHalf`]: the part has no certificate.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor, ClusterError> {
        let (_, acceptor) = self.served.as_ref().ok_or(ClusterError::TlsHalf)?;
        Ok(acceptor.clone())
    }
}

fn serves(cert: &Path, key: &Path) -> Result<(ServerTlsConfig, TlsAcceptor), ClusterError> {
    let (chain, secret) = (read(cert)?, read(key)?);
    let certificates = certificates(cert, &chain)?;
    let private = PrivateKeyDer::from_pem_slice(&secret)
        .map_err(|_| ClusterError::File { path: shown(key), problem: "has no key".to_owned() })?;
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(certificates, private);
    let mut config = config.map_err(|error| wrong(cert, error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let identity = ServerTlsConfig::new().identity(Identity::from_pem(chain, secret));
    let identity = identity.timeout(HANDSHAKE_PATIENCE);
    Ok((identity, TlsAcceptor::from(Arc::new(config))))
}

fn read(path: &Path) -> Result<Vec<u8>, ClusterError> {
    fs::read(path).map_err(|error| ClusterError::File {
        path: shown(path),
        problem: format!("cannot be read: {error}"),
    })
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ClusterError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| wrong(path, error))?;
    if found.is_empty() {
        let problem = "has no certificate".to_owned();
        return Err(ClusterError::File { path: shown(path), problem });
    }
    Ok(found)
}

fn wrong(path: &Path, error: impl fmt::Display) -> ClusterError {
    ClusterError::File { path: shown(path), problem: format!("cannot be used: {error}") }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
