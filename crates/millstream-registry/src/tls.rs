//! The client of HTTP with its certificates, and what it means if TLS does not come about.

use std::error::Error;
use std::io;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Identity};
use rustls::{AlertDescription, CertificateError};

use crate::error::RegistryError;
use crate::settings::Tls;

const USER_AGENT: &str = concat!("millstream/", env!("CARGO_PKG_VERSION"));
/// How long a connection may take until it stands.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A client that trusts whom `tls` says and follows no redirects.
///
/// # Errors
/// `Setting`: a certificate or key cannot be read or used.
pub(crate) fn client(tls: &Tls) -> Result<Client, RegistryError> {
    let mut builder = Client::builder()
        .use_rustls_tls()
        .http1_only()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::none())
        .danger_accept_invalid_certs(!tls.checks_certificates);
    if let Some(pem) = &tls.authorities {
        let what = "the certificates of authorities";
        let bundle = Certificate::from_pem_bundle(&pem.read(what)?).map_err(unusable(what))?;
        if bundle.is_empty() {
            return Err(setting(what, "there is no certificate in PEM in it"));
        }
        builder = bundle
            .into_iter()
            .fold(builder.tls_built_in_root_certs(false), |builder, certificate| {
                builder.add_root_certificate(certificate)
            });
    }
    if let Some((certificate, key)) = &tls.own {
        let mut pem = certificate.read("the client's certificate")?;
        pem.push(b'\n');
        pem.extend(key.read("the client's key")?);
        let identity = Identity::from_pem(&pem).map_err(unusable(OWN))?;
        builder = builder.identity(identity);
    }
    // Whether a key belongs to its certificate is seen only here.
    builder.build().map_err(unusable(if tls.own.is_some() { OWN } else { "TLS" }))
}

const OWN: &str = "the client's certificate with its key";

fn unusable(what: &'static str) -> impl Fn(reqwest::Error) -> RegistryError {
    move |error| setting(what, &cause(&error))
}

fn setting(what: &str, problem: &str) -> RegistryError {
    RegistryError::Setting { what: what.to_owned(), problem: problem.to_owned() }
}

/// What a request failed of: the last cause says it, those before only where.
pub(crate) fn cause(error: &reqwest::Error) -> String {
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Why there is no TLS and what to do, if that is why there is no answer. Whatever is not a lost
/// connection stays wrong until somebody changes it.
pub(crate) fn refusal(error: &reqwest::Error) -> Option<(String, String)> {
    let error = causes(error).find_map(of_tls)?;
    let (problem, remedy) = match error {
        rustls::Error::InvalidCertificate(reason) => untrusted(reason),
        rustls::Error::InvalidMessage(_) => (
            "it does not speak TLS on this port".to_owned(),
            "write http:// for https://, or name its port for TLS",
        ),
        rustls::Error::PeerIncompatible(reason) => {
            (format!("it speaks no version or cipher that is safe ({reason:?})"), OF_VERSION)
        }
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            ("it does not speak TLS 1.2 or 1.3".to_owned(), OF_VERSION)
        }
        // It says that it has a problem of its own, or that it ends.
        rustls::Error::AlertReceived(
            AlertDescription::InternalError
            | AlertDescription::CloseNotify
            | AlertDescription::UserCanceled,
        ) => return None,
        rustls::Error::AlertReceived(alert) => (
            format!("it ends the connection ({alert:?})"),
            "where it asks for a certificate of its clients, set one, with its key, of an \
             authority that it trusts",
        ),
        other => (other.to_string(), "see what it presents with: openssl s_client -connect"),
    };
    Some((problem, remedy.to_owned()))
}

const OF_VERSION: &str = "it needs TLS 1.2 or 1.3";

fn untrusted(reason: &CertificateError) -> (String, &'static str) {
    match reason {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            "its certificate is from an authority that is not trusted".to_owned(),
            "set the certificate of its authority, in PEM",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            format!("its certificate is for another host: {reason}"),
            "write the URL with a name that is in the certificate",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => (
            format!("its certificate is refused: {reason}"),
            "it has to be renewed, or this machine's clock is wrong",
        ),
        other => (
            format!("its certificate is refused: {other}"),
            "it has to be one of X.509 version 3 for the registry alone, with its names as \
             subjectAltName, and not the authority's own",
        ),
    }
}

/// What an error is of, from the outside to the inside.
fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let first: Option<&'a (dyn Error + 'static)> = Some(error);
    std::iter::successors(first, |&error| {
        // An error of the system gives the cause of what it wraps, and not that itself.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

fn of_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    error.downcast_ref()
}
