//! TLS and logins against a peer made for testing. With a real broker librdkafka would be refused
//! first.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_store::env::Env;
use millstream_testkit::certificates::{Authority, Files};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::*;
use crate::protocol::login::Mechanism;
use crate::protocol::scram::Hash;
use crate::protocol::tls::Pem;

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap).collect()
}

/// A peer that shakes hands and answers a byte with a byte; gives its port.
fn peer(files: &Files, asks_for_a_certificate: bool) -> u16 {
    let builder = ServerConfig::builder();
    let builder = if asks_for_a_certificate {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(&files.ca));
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let config = builder.with_single_cert(certificates(&files.cert), key).unwrap();
    let config = Arc::new(config);
    serve(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let mut byte = [0];
        // What goes wrong is the client's to say.
        if stream.read_exact(&mut byte).is_ok() {
            let _ = stream.write_all(&byte).and_then(|()| stream.flush());
        }
    })
}

fn serve(each: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the test's process.
    std::mem::forget(Env::real().thread("peer", move || {
        for stream in listener.incoming().map_while(Result::ok) {
            each(stream);
        }
    }));
    port
}

/// What comes of a connection to `host` at `port`: nothing, or what is wrong.
fn connect(security: &Security, host: &str, port: u16) -> Result<(), String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut transport, _) =
        security.begin(stream, host, "test", "nonce").map_err(|error| error.to_string())?;
    let mut byte = [7];
    let mut exchange = || {
        transport.write_all(&byte)?;
        transport.flush()?;
        transport.read_exact(&mut byte)
    };
    exchange().map_err(|error| error.to_string())
}

fn tls(authority: Option<PathBuf>) -> Tls {
    Tls {
        authorities: authority.map(Pem::At),
        own: None,
        checks_names: true,
        checks_certificates: true,
    }
}

fn with(tls: Tls) -> Security {
    Security { tls: Some(tls), login: None }
}

struct Authorities {
    directory: tempfile::TempDir,
    files: Files,
    stranger: Files,
}

/// Two authorities, and certificates of both for 127.0.0.1.
fn authorities() -> Authorities {
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| {
        let authority = Authority::new(&directory.path().join(name)).unwrap();
        authority.issue("IP:127.0.0.1").unwrap()
    };
    let (files, stranger) = (of("ours"), of("others"));
    Authorities { directory, files, stranger }
}

#[test]
fn only_certificates_of_the_authority_for_the_name_are_accepted() {
    let Authorities { directory, files, stranger } = authorities();
    let port = peer(&files, false);
    let right = tls(Some(files.ca.clone()));
    assert_eq!(connect(&with(right.clone()), "127.0.0.1", port), Ok(()));
    let foreign = connect(&with(tls(Some(stranger.ca))), "127.0.0.1", port).unwrap_err();
    assert!(foreign.contains("kafka.ssl.ca.location"), "{foreign}");
    let unknown = connect(&with(tls(None)), "127.0.0.1", port).unwrap_err();
    assert!(unknown.contains("kafka.ssl.ca.location"), "{unknown}");
    let named = connect(&with(right.clone()), "broker.example", port).unwrap_err();
    assert!(named.contains("identification.algorithm"), "{named}");
    // Without the name all else is checked still; without anything nothing is.
    let nameless = |tls: Tls| with(Tls { checks_names: false, ..tls });
    assert_eq!(connect(&nameless(right.clone()), "broker.example", port), Ok(()));
    assert!(connect(&nameless(tls(None)), "broker.example", port).is_err());
    let unchecked = with(Tls { checks_certificates: false, ..tls(None) });
    assert_eq!(connect(&unchecked, "broker.example", port), Ok(()));
    // A directory has authorities under their hashes alone.
    let hashed = directory.path().join("hashed");
    std::fs::create_dir(&hashed).unwrap();
    std::fs::copy(&files.ca, hashed.join("ca.pem")).unwrap();
    let security = with(tls(Some(hashed.clone())));
    assert!(connect(&security, "127.0.0.1", port).unwrap_err().contains("no certificate"));
    std::fs::copy(&files.ca, hashed.join("9d66eef0.0")).unwrap();
    assert_eq!(connect(&security, "127.0.0.1", port), Ok(()));
}

#[test]
fn a_peer_may_ask_for_a_certificate() {
    let Authorities { directory: _directory, files, stranger } = authorities();
    let port = peer(&files, true);
    let right = tls(Some(files.ca.clone()));
    let missing = connect(&with(right.clone()), "127.0.0.1", port).unwrap_err();
    assert!(missing.contains("kafka.ssl.certificate.location"), "{missing}");
    let own = |files: &Files| Some((Pem::At(files.cert.clone()), Pem::At(files.key.clone())));
    let with_own = |own| with(Tls { own, ..right.clone() });
    assert_eq!(connect(&with_own(own(&files)), "127.0.0.1", port), Ok(()));
    assert!(connect(&with_own(own(&stranger)), "127.0.0.1", port).is_err());
    let mixed = Some((Pem::At(files.cert.clone()), Pem::At(stranger.key.clone())));
    let mixed = connect(&with_own(mixed), "127.0.0.1", port).unwrap_err();
    assert!(mixed.contains("cannot be used"), "{mixed}");
}

#[test]
fn what_is_no_tls_is_said() {
    let Authorities { directory: _directory, files, .. } = authorities();
    let plain = serve(|mut stream| {
        let _ = stream.write_all(b"\0\0\0\x04what is this, it is long enough for a header");
    });
    let refused = connect(&with(tls(Some(files.ca))), "127.0.0.1", plain).unwrap_err();
    assert!(refused.contains("kafka.security.protocol"), "{refused}");
    let gone = serve(drop);
    assert!(connect(&with(tls(None)), "127.0.0.1", gone).is_err());
}

/// A broker that lets in by SCRAM whoever it is, without knowing a password.
fn impostor(last: &'static str) -> u16 {
    serve(move |mut stream| {
        let answers: [&[u8]; 3] = [
            // The mechanism is fine.
            b"\0\0\0\0\0\0",
            b"r=nonce-and-more,s=AAAA,i=4096",
            last.as_bytes(),
        ];
        for (number, answer) in answers.into_iter().enumerate() {
            let mut length = [0; 4];
            if stream.read_exact(&mut length).is_err() {
                return;
            }
            let mut request = vec![0; i32::from_be_bytes(length) as usize];
            stream.read_exact(&mut request).unwrap();
            let mut body = (number as i32 + 1).to_be_bytes().to_vec();
            if number == 0 {
                body.extend(answer);
            } else {
                // Tagged fields, no error and no message, the answer, no lifetime, tagged fields.
                body.extend([0, 0, 0, 0, answer.len() as u8 + 1]);
                body.extend(answer);
                body.extend([0; 9]);
            }
            let _ = stream.write_all(&(body.len() as i32).to_be_bytes());
            let _ = stream.write_all(&body);
        }
    })
}

#[test]
fn a_broker_that_does_not_know_the_password_is_refused() {
    let login = Login::Password {
        mechanism: Mechanism::Scram(Hash::Sha512),
        user: "ann".to_owned(),
        password: "pl4nted".to_owned(),
    };
    let security = Security { tls: None, login: Some(login) };
    for (last, wanted) in [
        ("v=AAAA", "does not know the password"),
        ("e=invalid-proof", "invalid-proof"),
        ("", "no field 'v'"),
    ] {
        let refused = connect(&security, "127.0.0.1", impostor(last)).unwrap_err();
        assert!(refused.contains(wanted) && !refused.contains("pl4nted"), "{last}: {refused}");
    }
}
