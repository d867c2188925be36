//! Certificates that are taken, and those that are not.

use millstream_store::error::{Classified as _, Kind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::*;
use crate::{Pem, RegistryError};

// Made for these tests; they open nothing. The authority has issued all, for the same key: one
// certificate for 127.0.0.1, one that has expired, and one for another name.
const AUTHORITY: &[&str] = &[
    "MIIBMjCB2aADAgECAggBRbx7bAo+CDAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlhdXRob3JpdHkwIBcNMjAwMTAx",
    "MDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMMCWF1dGhvcml0eTBZMBMGByqGSM49AgEGCCqGSM49",
    "AwEHA0IABNi8VuNvRZP9Fc02sdGpc0lRox480JLHPpsdXxyxfKo2mXmW5TtJWjzh7OdkJQe3aNr+ad1aV9MG7ITK",
    "89vIP7+jEzARMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhANzxBiD8teeWGqGW5dUi6yVdMy0U",
    "gIqB3u8/ZdgNVnx4AiBEYmWSYMMYa8O86bn39Xs6a5wJNwgbooLXjVUA1WCuGA==",
];

const CERTIFICATE: &[&str] = &[
    "MIIBOzCB4qADAgECAggFnXbhQ3aU0DAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlhdXRob3JpdHkwIBcNMjAwMTAx",
    "MDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMA8xDTALBgNVBAMMBHBhcnQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC",
    "AAQW040pbwz944HwMg0V3DuydcJPpqXleXXUlFAMrGuMiOXGhXFVvbqFJDIFji75E95DIFnHiI9Lbb0QogX1GH4m",
    "oyEwHzAMBgNVHRMBAf8EAjAAMA8GA1UdEQQIMAaHBH8AAAEwCgYIKoZIzj0EAwIDSAAwRQIgIe9mNemk7AL6iTyi",
    "Ub04OXHZDF6/KpgeAWKcHbc+RFQCIQDkNHBIeiicgsRb6jwbiPyhri3L7qGpnkH2oAu8ZRQB/w==",
];

const EXPIRED: &[&str] = &[
    "MIIBOTCB4KADAgECAggGPzIOQP41GDAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlhdXRob3JpdHkwHhcNMjAwMTAx",
    "MDAwMDAwWhcNMjEwMTAxMDAwMDAwWjAPMQ0wCwYDVQQDDARwYXJ0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE",
    "FtONKW8M/eOB8DINFdw7snXCT6al5Xl11JRQDKxrjIjlxoVxVb26hSQyBY4u+RPeQyBZx4iPS229EKIF9Rh+JqMh",
    "MB8wDAYDVR0TAQH/BAIwADAPBgNVHREECDAGhwR/AAABMAoGCCqGSM49BAMCA0gAMEUCIFPdKQLsrMU9L1Pbt1Yb",
    "FcxhFRZDsSM20T6KPi9GbwXxAiEA/fd7icTUF3GBogYsu1TQEaNnKbphV4U4TYFk6Zkkr+A=",
];

const OF_ANOTHER: &[&str] = &[
    "MIIBRTCB66ADAgECAggAuMmp4XFl9zAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlhdXRob3JpdHkwIBcNMjAwMTAx",
    "MDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMA8xDTALBgNVBAMMBHBhcnQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC",
    "AAQW040pbwz944HwMg0V3DuydcJPpqXleXXUlFAMrGuMiOXGhXFVvbqFJDIFji75E95DIFnHiI9Lbb0QogX1GH4m",
    "oyowKDAMBgNVHRMBAf8EAjAAMBgGA1UdEQQRMA+CDW90aGVyLmV4YW1wbGUwCgYIKoZIzj0EAwIDSQAwRgIhAIcr",
    "xqjyrWNdGbDsL80faRDd0qVsdQ72n/zpTaICu2F5AiEA6QYdD672YX1qbNBvDYmzVk5i9Yf0Xop43Cto74sviqA=",
];

const KEY: &[&str] = &[
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgahJuqZGnEp3rheq24AORaCmhpU8k6ZeBkimcNaW0",
    "KGihRANCAAQW040pbwz944HwMg0V3DuydcJPpqXleXXUlFAMrGuMiOXGhXFVvbqFJDIFji75E95DIFnHiI9Lbb0Q",
    "ogX1GH4m",
];

fn pem(label: &str, lines: &[&str]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn certificate(lines: &[&str]) -> Pem {
    Pem::Text(pem("CERTIFICATE", lines))
}

fn key() -> Pem {
    Pem::Text(pem("PRIVATE KEY", KEY))
}

/// A registry with a certificate; `asks` for one of its clients too.
fn server(lines: &[&str], asks: bool) -> String {
    let der = |lines| {
        let pem = pem("CERTIFICATE", lines);
        CertificateDer::from_pem_slice(pem.as_bytes()).expect("it is a certificate")
    };
    let key = PrivateKeyDer::from_pem_slice(pem("PRIVATE KEY", KEY).as_bytes()).expect("a key");
    let config = match asks {
        false => ServerConfig::builder().with_no_client_auth(),
        true => {
            let mut roots = RootCertStore::empty();
            roots.add(der(AUTHORITY)).expect("it is an authority");
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
            ServerConfig::builder().with_client_cert_verifier(verifier.expect("it has a root"))
        }
    };
    let config = config.with_single_cert(vec![der(lines)], key).expect("they belong together");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let env = Env::real();
    env.block_on_io(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        env.spawn("server", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                Env::real().spawn("connection", async move {
                    // Clients that do not trust it go away.
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let _ = stream.read(&mut [0; 4096]).await;
                    let body = "{\"schema\": \"\\\"string\\\"\"}";
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        format!("https://{address}")
    })
}

fn ask(url: &str, tls: Tls) -> Result<(), RegistryError> {
    let settings = Settings { tls, ..settings(&[url]) };
    let registry = Registry::new(&settings, &Env::real())?;
    registry.schema(1, &patience()).map(drop)
}

fn trusting() -> Tls {
    Tls { authorities: Some(certificate(AUTHORITY)), ..Tls::default() }
}

fn careless() -> Tls {
    Tls { checks_certificates: false, ..Tls::default() }
}

fn own() -> Tls {
    Tls { own: Some((certificate(CERTIFICATE), key())), ..trusting() }
}

#[test]
fn a_certificate_has_to_be_of_a_trusted_authority_for_this_host_and_now() {
    let good = server(CERTIFICATE, false);
    ask(&good, trusting()).expect("it is trusted");
    for (lines, tls, said) in [
        (CERTIFICATE, Tls::default(), "not trusted; set the certificate of its authority"),
        (EXPIRED, trusting(), "it has to be renewed"),
        (OF_ANOTHER, trusting(), "for another host"),
    ] {
        let url = server(lines, false);
        let error = ask(&url, tls).expect_err("it is not to be trusted");
        assert!(matches!(&error, RegistryError::Tls { .. }), "{error}");
        assert_eq!(error.kind(), Kind::Config);
        let text = error.to_string();
        assert!(text.contains(said) && text.contains(&url), "{text}");
        ask(&url, careless()).expect("nothing is checked");
    }
}

#[test]
fn a_registry_may_ask_for_a_certificate() {
    let url = server(CERTIFICATE, true);
    ask(&url, own()).expect("it is the right one");
    let error = ask(&url, trusting()).expect_err("it is missing");
    assert!(matches!(&error, RegistryError::Tls { .. }), "{error}");
    assert!(error.to_string().contains("where it asks for a certificate"), "{error}");
}

#[test]
fn a_port_without_tls_is_named() {
    let plain = serve(|_| string_schema());
    let url = plain.url.replace("http:", "https:");
    let error = ask(&url, trusting()).expect_err("it does not speak TLS");
    assert!(matches!(&error, RegistryError::Tls { .. }), "{error}");
    assert!(error.to_string().contains("write http:// for https://"), "{error}");
}

#[test]
fn certificates_and_keys_are_read_and_checked_before_anybody_is_asked() {
    let file = Pem::File(concat!(env!("CARGO_MANIFEST_DIR"), "/none.pem").into());
    let no_pem = Pem::Text("tea".into());
    let of_another = Pem::Text(pem("PRIVATE KEY", &[&KEY[0][..40]]));
    for (tls, said) in [
        (Tls { authorities: Some(file.clone()), ..Tls::default() }, "none.pem cannot be used: No"),
        (Tls { authorities: Some(no_pem.clone()), ..Tls::default() }, "no certificate in PEM"),
        (Tls { own: Some((certificate(CERTIFICATE), file)), ..Tls::default() }, "the client's key"),
        (Tls { own: Some((no_pem, key())), ..Tls::default() }, "not found"),
        (Tls { own: Some((certificate(CERTIFICATE), of_another)), ..Tls::default() }, "with its"),
    ] {
        let error = ask("https://registry", tls).expect_err("it cannot be used");
        assert!(matches!(&error, RegistryError::Setting { .. }), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}
